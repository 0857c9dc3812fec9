"""The names and the bytes of the cells of `S3`."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from versioned_state.storage.s3.format import (
    ABSENT,
    HISTORY,
    PRESENT,
    UNDECIDED,
    Cell,
    Pending,
    key_in,
    kind_of,
    name_of,
    names_below,
    next_cell,
    read_cell,
    write_cell,
)
from versioned_state.storage.testing.contract import ODD_KEYS, ODD_OBJECTS

texts = st.text(st.characters(exclude_categories=["Cs"]))
long_starts = st.integers(480, 610).map("k".__mul__) | st.integers(80, 102).map(lambda count: "o/" + "é" * count)
keys = texts | texts.map("o/".__add__) | st.builds("{}{}".format, long_starts, texts)
writes = st.binary(min_size=8, max_size=8)
values = st.none() | st.binary(max_size=40)
cells = st.builds(
    Cell,
    keys,
    values,
    writes,
    st.lists(writes, max_size=HISTORY).map(tuple),
    st.none() | st.builds(Pending, st.binary(min_size=16, max_size=16), values, st.integers(1, 2**32 - 1)),
)


# Names


def check_name(key: str) -> None:
    name = name_of(key)
    # 300 characters of prefix, and a slash, fit before it in the 1,024 that S3 takes.
    assert re.fullmatch(r"[oe]/[\w.-]*!([0-9a-f]{64})?", name, re.ASCII)
    assert len(name) <= 700

    assert key_in(name) == (None if len(name) > 610 or not name.endswith("!") else key)


def test_odd_keys_have_names_of_their_own():
    everything = (*ODD_KEYS, *ODD_OBJECTS)
    for key in everything:
        check_name(key)
    assert len(set(map(name_of, everything))) == len(everything)


def test_names_are_readable():
    assert name_of("ref/branch/user_1/what-if") == "e/ref-branch-user_1-what.2dif!"
    assert name_of("o/" + "ab" * 24) == "o/" + "ab" * 24 + "!"


@given(keys)
def test_a_name_gives_its_key_back(key: str):
    check_name(key)


@given(keys, keys)
def test_two_keys_have_two_names(one: str, other: str):
    assert (name_of(one) == name_of(other)) == (one == other)


@given(keys, st.integers(min_value=0))
def test_names_below_a_prefix_hold_all_that_begin_with_it(key: str, length: int):
    prefix = key[: length % (len(key) + 1)]
    assert any(name_of(key).startswith(start) and name_of(key) > start for start in names_below(prefix))


def test_other_folders_are_not_listed():
    assert names_below("ref/") == ["e/ref-"]
    assert names_below("o/ab") == ["o/ab"]
    assert names_below("o") == ["e/o", "o/"]
    assert names_below("") == ["e/", "o/"]


@pytest.mark.parametrize(
    "name",
    [
        "e/readme.txt",
        "e/a/b!",
        "e/a!/b",
        "x/a!",
        "e/.6!",
        "e/.zz!",
        "e/.61!",
        "e/.c3!",
        "e/.2f!",
        "o/o/a!",
        "",
        "e/",
        "a!",
    ],
)
def test_a_name_of_another_form_is_none_of_ours(name: str):
    with pytest.raises(ValueError, match=r".+"):
        key_in(name)


# Cells


@given(cells)
def test_a_cell_comes_back_and_its_size_shows_its_kind(cell: Cell):
    body = write_cell(cell)
    assert read_cell(body) == cell
    settled = PRESENT if cell.value is not None else ABSENT
    assert kind_of(len(body)) == (UNDECIDED if cell.pending else settled)


@given(cells, st.data())
def test_a_damaged_cell_is_refused_or_has_another_value(cell: Cell, data: st.DataObject):
    body = bytearray(write_cell(cell))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read_cell(bytes(body))
    except ValueError:
        return
    assert (found.key, found.write, found.past) == (cell.key, cell.write, cell.past)
    assert (found.value is None) == (cell.value is None)
    assert (found.pending and found.pending.batch) == (cell.pending and cell.pending.batch)


@given(cells, st.data())
def test_a_cut_cell_is_refused(cell: Cell, data: st.DataObject):
    body = write_cell(cell)
    end = len(body) - kind_of(len(body)) - 4
    with pytest.raises(ValueError, match=r".+"):
        read_cell(body[: data.draw(st.integers(0, max(0, end)))])


def test_bytes_that_are_not_a_cell_are_refused():
    for body in (b"", b"x", b"hello, I am a text file" * 10, b"vs3\x02" + bytes(100), b"vs3\x01\xff" + bytes(100)):
        with pytest.raises(ValueError, match=r".+"):
            read_cell(body)


def test_a_cell_remembers_the_writes_that_led_to_it():
    chain = [next_cell("k", None, b"0")]
    for number in range(HISTORY + 5):
        chain.append(next_cell("k", chain[-1], b"%d" % number))
    last = chain[-1]
    assert [last.remembers(cell.write) for cell in chain] == [False] * 5 + [True] * (HISTORY + 1)
    assert [cell.remembers_all for cell in chain] == [True] * HISTORY + [False] * 6
    assert len({cell.write for cell in chain}) == len(chain)
