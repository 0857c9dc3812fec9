"""Changes as people see them: bounded however large the values are, and saying what differs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.support.handles import committed
from tests.support.processes import run
from versioned_state import Diff, Disk, Memory, Repository, Versioned
from versioned_state.repository.views.change import Change, ChangeRun
from versioned_state.storage import Counting


def changed(old: Any, new: Any) -> Change:
    (change,) = diff_of(old, new)
    return change


def diff_of(old: Any, new: Any, store: Any = None) -> Diff:
    state = committed(store if store is not None else Memory(), value=old)
    first = state.head
    state["value"] = new
    return state.repository.diff(first, state.commit())


_RNG = random.Random(1)
LINES = [f"line {number}: {_RNG.random()}" for number in range(40_000)]
TEXT = "\n".join(LINES)


@pytest.mark.parametrize(
    ("at", "new", "shown"),
    [
        (20_000, ["changed"], [("-", LINES[20_000]), ("+", "changed")]),
        (0, ["first"], [("-", LINES[0]), ("+", "first")]),
        (39_999, ["last"], [("-", LINES[39_999]), ("+", "last")]),
        (500, [LINES[500], "a", "b"], [("+", "a"), ("+", "b")]),
        (39_999, [], [("-", LINES[39_999])]),
        (7, ["x" * 200_000], [("-", LINES[7]), ("+", "x" * 200_000)]),
    ],
)
def test_the_lines_of_a_large_text_that_differ(at, new, shown):
    assert len(TEXT) > 1 << 20
    changed_lines = "\n".join([*LINES[:at], *new, *LINES[at + 1 :]])
    change = changed(TEXT, changed_lines)
    marks = [line for line in change.lines() if line[0] != "@"]
    assert marks == shown
    (where,) = [line for mark, line in change.lines() if mark == "@"]
    kept = 1 if new[:1] == LINES[at : at + 1] else 0
    assert where == f"byte {len(chr(10).join(LINES[:at])) + (at > 0) + kept * (len(LINES[at]) + 1):,}"


def test_a_large_text_that_is_another_one_is_measured():
    other = "\n".join(reversed(LINES))
    change = changed(TEXT, other)
    lines = change.lines()
    assert len(str(change)) < 5_000
    assert sum("bytes)" in line for _, line in lines) >= 2
    grown = changed("short", TEXT)
    assert f"({len(TEXT):,} bytes)" in str(grown)
    assert len(str(grown)) < 1_000


@pytest.mark.parametrize(
    "large", [TEXT, TEXT.encode(), bytearray(TEXT.encode()), np.arange(500_000)], ids=lambda value: type(value).__name__
)
def test_a_large_value_is_shown_by_its_beginning_and_its_size(large):
    """No chunk is read but the first ones."""
    store = Counting(Memory())
    diff = diff_of(1, large, store)
    holder = diff_of(1, {"name": "holder", "list": [0, large, large]}, store)
    store.reset()
    (change,) = diff
    (held,) = holder
    assert f"{len(TEXT):,} bytes" in str(change) or "shape (500000,)" in str(change)
    assert "'holder'" in str(held)
    assert len(str(change) + str(held)) < 1_000
    assert store.counts.bytes_read < 500_000


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "set"])
def test_a_large_container_is_shown_by_its_beginning_and_its_count(kind):
    count = 50_000
    elements = [f"element {number}" for number in range(count)]
    make: Any = {"list": list, "tuple": tuple, "set": set, "dict": lambda elements: dict(enumerate(elements))}[kind]
    value = make(elements)
    store = Counting(Memory())
    diff = diff_of(1, value, store)
    store.reset()
    (change,) = diff
    shown = str(change)
    assert f"… ({count})" in shown or shown.endswith("…")
    if kind in ("list", "tuple"):
        assert "'element 0', 'element 1'" in shown
    if kind == "dict":
        assert "0: 'element 0'" in shown
    assert store.counts.objects_read < 60


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (np.zeros(5), np.array([0, 0, 1.5, 0, 0]), "= array([0., 0., 0., 0., 0.]) -> array([0. , 0. , 1.5, 0. , 0. ])"),
        (np.zeros((1000, 10)), np.zeros((1000, 11)), "- <f8, shape (1000, 10)|+ <f8, shape (1000, 11)"),
        (np.zeros(5000), np.zeros(5000, np.float32), "- <f8, shape (5000,)|+ <f4, shape (5000,)"),
    ],
)
def test_two_arrays_show_how_they_differ(old, new, shown):
    text = str(changed(old, new))
    assert all(part in text for part in shown.split("|")), text


@pytest.mark.parametrize("dtype", ["f8", "i1", "S3", [("a", "i4"), ("b", "f8")]], ids=str)
@pytest.mark.parametrize("count", [3000, 400_000])
def test_the_elements_of_an_array_that_differ(dtype, count):
    """Arrays of one chunk and of many, with elements across the boundaries of chunks. A NaN equals itself."""
    old = np.zeros((count // 10, 10), dtype)
    if dtype == "f8":
        old[5] = np.nan
    new = old.copy()
    flat = new.reshape(-1).view(np.uint8).reshape(count, -1)
    differing = sorted({0, 17, 65_536 // flat.shape[1] % count, count // 2, count - 1, count - 2, count - 3})
    flat[differing, -1] = 7
    change = changed(old, new)
    lines = change.lines()
    assert lines[0] == ("@", f"{len(differing)} of {count:,} elements")
    assert [line.split("] ")[0] for mark, line in lines if mark == "+"] == [
        f"[{at // 10}, {at % 10}" for at in differing[:5]
    ]
    assert lines[-1] == ("@", "and 2 more")
    assert f"    @ {len(differing)} of {count:,} elements" in str(change)


PRINT = """
import resource, sys
from versioned_state import Disk, Repository
repository = Repository(Disk(sys.argv[1], read_only=True))
diff = repository.diff("HEAD~1", "HEAD")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert 100 < len(str(diff)) < 400_000, len(str(diff))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("how", ["one line", "all lines"])
def test_printing_a_diff_of_a_large_text_takes_little_memory(how, tmp_path):
    """20 MB a side: whole, and split into lines, they would take ten times that."""
    lines = [f"line {number} {'x' * 90}" for number in range(200_000)]
    with Versioned(Disk(tmp_path / "store")) as state:
        state["text"] = "\n".join(lines)
        state.commit()
        state["text"] = "\n".join(["changed", *lines[1:]] if how == "one line" else lines[::-1])
        state.commit()
    assert int(run(PRINT, tmp_path / "store").stdout) < 30


def test_folded_runs():
    state = committed(
        messages=[{"role": "user", "content": f"message {number}"} for number in range(10_001)], users={}, few=[1, 2, 3]
    )
    first = state.head
    del state["messages"][:]
    state["users"] = {f"user {number:03}": {"id": number} for number in range(30)}
    state["few"] = []
    state["new"] = 1
    diff = state.repository.diff(first, state.commit())
    shown = [str(each) for each in diff.folded()]
    assert shown == [
        "- few[0] = 1",
        "- few[1] = 2",
        "- few[2] = 3",
        "- messages[0…10000]: 10,001 elements",
        "+ new = 1",
        '+ users["user 000"] … ["user 029"]: 30 entries',
    ]
    run = diff.folded()[3]
    assert isinstance(run, ChangeRun)
    assert (run.kind, str(run.path), str(run.first), str(run.last), run.count) == (
        "removed",
        "messages",
        "messages[0]",
        "messages[10000]",
        10_001,
    )
    assert run.to_json() == {"kind": "removed", "first": "messages[0]", "last": "messages[10000]", "count": 10_001}
    assert diff.stat().removed == 10_004
    assert repr(diff) == "<Diff: 10,035 changes: +31 -10004 ~0>"


def test_runs_do_not_span_a_gap_or_another_kind():
    state = committed(l=list(range(100)))
    first = state.head
    state["l"] = [value if value in (20, 60) else -value for value in range(100)]
    state["l"] += range(200, 215)
    folded = state.repository.diff(first, state.commit()).folded()
    assert [(each.kind, each.count) for each in folded if isinstance(each, ChangeRun)] == [
        ("changed", 19),
        ("changed", 39),
        ("changed", 39),
        ("added", 15),
    ]


def test_under_is_a_diff():
    state = committed(a={"b": [1, 2], "c": "x" * 5000}, d=1)
    first = state.head
    state["a"]["b"].append(3)
    state["d"] = 2
    diff = state.repository.diff(first, state.commit())
    under = diff.under("a")
    assert isinstance(under, Diff)
    assert str(under) == "+ a.b[2] = 3"
    assert under[0].path == diff[0].path
    assert under.under("a.b").stat().added == 1
    assert not under.under("d")
    assert len(diff.under("d").to_patch()) == 1


def test_a_diff_of_whole_values_covers_their_parts_without_reading_them():
    store = Counting(Memory())
    diff = diff_of({"other": 1}, {"part": {"deep": "x" * 5000}, "text": TEXT}, store)
    store.reset()
    assert [str(change.path) for change in diff.under("value.part.deep")] == ["value.part"]
    assert store.counts.bytes_read < 100_000


def test_a_long_list_in_another_order_is_one_change():
    """To align a million elements takes ten seconds and a gigabyte, and a million changes tell nobody anything."""
    count = 110_000
    repository = Repository()
    state = committed(repository, list=list(range(count)))
    first = state.head
    state["list"] = list(range(count))[::-1]
    diff = repository.diff(first, state.commit())
    (change,) = diff
    assert (change.kind, str(change.path)) == ("changed", "list")
    assert str(change).startswith("~ list = [0, 1, 2, 3, ")
    assert "… -> [109999, 109998, 109997, " in str(change)
    assert change.new[0] == count - 1


def test_what_is_under_a_path_costs_the_key_that_it_begins_with():
    store = Counting(Memory())
    state = Versioned(store)
    state.update({f"key {number}": ["x" * 100] * 100 for number in range(200)})
    first = state.commit()
    state.update({f"key {number}": ["y" * 100] * 100 for number in range(200)})
    diff = state.repository.diff(first, state.commit())
    store.reset()
    assert len(diff.under('["key 7"]')) == 100
    assert not diff.under("nothing.there")
    assert store.counts.objects_read < 40
    assert len(diff) == 20_000
    assert len(diff.under('["key 7"]')) == 100
