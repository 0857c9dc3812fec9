"""``branch_name``: ids as a branch's name, one to one, and the first ids as the prefix of all that begin with them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import example, given, strategies as st

from versioned_state import Memory, Versioned, branch_name
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.names.branch_name import id_of
from versioned_state.repository.refs.ref import check_name

# Every character, lone surrogates included; characters that names treat in a special way come often.
ID = st.one_of(
    st.text(st.characters(exclude_categories=[]), max_size=12),
    st.text("%/.-@{HEADht0 \x00\ud800~", max_size=8),
    st.builds(lambda char, times: char * times, st.sampled_from("a/é\ud800"), st.integers(15, 300)),
)
IDS = st.lists(ID, min_size=1, max_size=7)


@given(IDS)
@example(["HEAD"])
@example(["@"])
@example([""])
@example(["", ""])
@example(["."])
@example([".."])
@example(["-x"])
@example(["\x00"])
@example(["x" * 63, "x" * 63, "x" * 63, "x" * 63])
@example(["x" * 64] * 9)
def test_any_ids_give_a_name_that_a_branch_may_have(ids):
    name = branch_name(*ids)
    check_name("branch", name)
    assert name == branch_name(*ids)


@given(IDS, IDS)
@example(["a_b", "c"], ["a", "b_c"])
@example(["a/b"], ["a", "b"])
@example(["a", ""], ["a"])
@example(["%2F"], ["/"])
@example(["\ud83d\ude00"], ["\U0001f600"])
@example(["x" * 300 + "1"], ["x" * 300 + "2"])
@example(["x" * 60] * 5, ["x" * 60] * 6)
@example(["x" * 60] * 3 + ["a", "bc" * 50], ["x" * 60] * 3 + ["ab", "c" + "bc" * 49])
@example([branch_name("x" * 300)], ["x" * 300])
def test_other_ids_give_another_name(ids, others):
    assert (branch_name(*ids) == branch_name(*others)) == (ids == others)


@given(st.lists(ID, min_size=1, max_size=3), IDS)
@example([""], ["", ""])
def test_the_first_ids_are_the_prefix_of_all_names_that_begin_with_them(first, others):
    start = branch_name(*first) + "/"
    assert branch_name(*first, *others).startswith(start)
    begins = len(others) > len(first) and others[: len(first)] == first
    assert branch_name(*others).startswith(start) == begins


@given(IDS)
@example(["", "%", "%25", "%h", "\ud83d\ude00", "\U0001f600", "."])
@example(["x" * 64, "a"])
@example(["x" * 60] * 5)
def test_the_parts_of_a_name_are_the_ids_or_hashes(ids):
    shown = [id_of(part) for part in branch_name(*ids).split("/")]
    assert all(known in (id, None) for known, id in zip(shown, ids, strict=False))
    if all(len(branch_name(id)) < 40 for id in ids) and len(ids) < 4:
        assert shown == ids


@pytest.mark.parametrize("part", ["%zz", "%FF", "%h12", "%t12", "a%4"])
def test_a_part_that_no_id_is_written_as_stands_for_none(part):
    assert id_of(part) is None


def test_what_people_use_as_ids_stays_legible():
    assert branch_name("bob@example.com", "session_2025-08-08") == "bob@example.com/session_2025-08-08"
    assert branch_name("用户", "Zürich trip") == "用户/Zürich%20trip"
    assert branch_name("", "one") == "%/one"


def test_a_name_is_the_same_on_every_machine_and_release():
    """Branches are found again by these: a change of the encoding loses every session of a store."""
    assert branch_name("a b/c", "HEAD", "..", "\ud800\x00", "%") == "a%20b%2Fc/%48EAD/%2E%2E/%ED%A0%80%00/%25"
    assert branch_name("x" * 64) == "%hafcb7b8ebf9b92b14ead5db681a0d112d51a24fa1c7a84c9"
    assert branch_name(*["y" * 63] * 4) == "/".join(["y" * 63] * 4)
    assert (
        branch_name(*["y" * 63] * 5) == "/".join(["y" * 63] * 3) + "/%td1d96357ff982f0a0557174cdab89b3b2d3b17ab1892edc5"
    )
    program = "from versioned_state import branch_name; print(ascii(branch_name('é' * 40, 'b')))"
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert there.strip() == ascii(branch_name("é" * 40, "b"))


@pytest.mark.parametrize("parts", [(), (None,), ("a", 1), (b"a",)])
def test_anything_but_strings_is_refused(parts):
    with pytest.raises(InvalidArgumentError):
        branch_name(*parts)


def test_a_state_lives_on_such_a_branch():
    store = Memory()
    for ids in [("\ud800",), ("a" * 300, "\x00"), ("a" * 300, "")]:
        state = Versioned(store, branch=branch_name(*ids))
        state["ids"] = ids
        state.commit()
    for ids in [("\ud800",), ("a" * 300, "\x00"), ("a" * 300, "")]:
        assert Versioned(store, branch=branch_name(*ids))["ids"] == ids
    assert len(list(Versioned(store).repository.branches)) == 3
