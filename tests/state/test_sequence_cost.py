"""A sequence's calls cost what they touch, whatever its length, and only elements that somebody holds are in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest

from tests.support.counted_calls import calls_of
from tests.support.handles import committed
from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.state.worktree.lists.unloaded import UnloadedLists
from versioned_state.storage import Counting
from versioned_state.storage.wrappers.counting import Counts

SIZES = (1_000, 100_000)


@lru_cache(maxsize=1)
def stores() -> dict[int, KVStore]:
    """By length, a store with a list of that length."""
    found: dict[int, KVStore] = {}
    for size in SIZES:
        found[size] = Memory()
        committed(found[size], list=[{"n": n, "text": "some words"} for n in range(size)])
    return found


def cold(size: int, name: str) -> tuple[Versioned, Counting]:
    """A handle on a branch of its own, which has read nothing."""
    store = Counting(stores()[size])
    Repository(store).branches.create(name, "main")
    state = Versioned(store, branch=name)
    store.reset()
    return state, store


def middle(sequence: Any) -> int:
    return len(sequence) // 2


CALLS: dict[str, Callable[[Any], Any]] = {
    "append": lambda sequence: sequence.append(1),
    "extend": lambda sequence: sequence.extend([1, 2]),
    "insert at the front": lambda sequence: sequence.insert(0, 1),
    "insert in the middle": lambda sequence: sequence.insert(middle(sequence), 1),
    "pop": lambda sequence: sequence.pop(),
    "pop the first": lambda sequence: sequence.pop(0),
    "pop ten": lambda sequence: [sequence.pop() for _ in range(10)],
    "delete": lambda sequence: sequence.__delitem__(middle(sequence)),
    "delete a slice": lambda sequence: sequence.__delitem__(slice(middle(sequence), middle(sequence) + 5)),
    "delete an extended slice": lambda sequence: sequence.__delitem__(slice(0, 9, 4)),
    "delete nearly all": lambda sequence: sequence.__delitem__(slice(5, None)),
    "clear": lambda sequence: sequence.clear(),
    "assign": lambda sequence: sequence.__setitem__(middle(sequence), 1),
    "assign a slice": lambda sequence: sequence.__setitem__(slice(3, 7), [1]),
    "assign an extended slice": lambda sequence: sequence.__setitem__(slice(None, -7, -3), [1, 2]),
    "remove": lambda sequence: sequence.remove({"n": 5, "text": "some words"}),
    "change in place": lambda sequence: sequence[-1].update(n=-1),
    "read": lambda sequence: (sequence[0], sequence[middle(sequence)], sequence[-1], sequence[-3:], sequence[4:9:2]),
    "begin an iteration": lambda sequence: next(iter(sequence)),
    "begin one from the end": lambda sequence: next(reversed(sequence)),
    "find an early one": lambda sequence: sequence.index({"n": 5, "text": "some words"}),
    "differ in length": lambda sequence: sequence == [1],
}


@pytest.mark.parametrize("size", SIZES)
def test_a_run_of_elements_takes_one_call_of_the_store_a_level_wherever_it_lies(size):
    def requests(start: int, count: int) -> int:
        state, store = cold(size, f"run-{start}-{count}")
        assert [each["n"] for each in state.sequence("list")[start : start + count]] == list(
            range(start, start + count)
        )
        return store.counts.round_trips

    one = requests(0, 1)
    # The last node of a level may be in segments, which takes a call more.
    levels = {requests(start, 500) for start in range(0, size - 500, size // 9)} | {requests(size - 500, 500)}
    assert levels == {one, one + 1}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_and_its_commit_cost_what_they_touch(name):
    costs: dict[int, Counts] = {}
    taken: dict[int, int] = {}
    for size in SIZES:
        state, store = cold(size, name.replace(" ", "-"))
        taken[size] = calls_of(lambda: (CALLS[name](state.sequence("list")), state.status(), state.commit()))  # noqa: B023
        costs[size] = store.counts
    small, large = costs[SIZES[0]], costs[SIZES[1]]
    assert large.objects_read <= small.objects_read + 24, costs  # an open leaf has up to some twenty segments
    assert large.objects_read <= 40
    assert large.objects_written <= small.objects_written + 6
    assert large.bytes_written <= small.bytes_written + 6_000
    assert large.applies == small.applies <= 1
    # one leaf of 2,000 of these elements is read and written
    assert taken[SIZES[1]] <= 3 * taken[SIZES[0]] + 12_000, taken


def test_merging_an_edit_beside_another_writer_costs_what_they_touch():
    costs = []
    for size in SIZES:
        state, store = cold(size, "merged")
        other = Versioned(store, branch="merged")
        held = state.sequence("list")[-20:]
        state.sequence("list").insert(500, {"n": "ours"})
        held[0]["text"] = "changed"
        del other.sequence("list")[3]
        other.sequence("list").append({"n": "theirs"})
        other.commit()
        store.reset()
        state.commit()
        assert [each.get("text") for each in held] == ["changed", *["some words"] * 19]
        assert state.sequence("list")[-21] is held[0], "it moved with the list, and is the same object"
        held[1]["text"] = "later"
        assert [str(change.path) for change in state.status()] == [f"list[{size - 19}].text"]
        costs.append(store.counts.objects_read)
    assert costs[1] <= costs[0] + 16, costs


def test_a_snapshot_reads_what_it_is_asked_for():
    for size in SIZES:
        state, store = cold(size, "snapshot")
        sequence = state.checkout("HEAD").sequence("list")
        assert (len(sequence), sequence[-1]["n"], [each["n"] for each in sequence[2:5]]) == (size, size - 1, [2, 3, 4])
        assert next(reversed(sequence)) == {"n": size - 1, "text": "some words"}
        assert store.counts.objects_read <= 40


# What is in memory


@dataclass
class Node:
    """An element with attributes."""

    n: int
    tags: list[str]


def in_memory(state: Versioned) -> int:
    return sum(edits.in_memory for edits in state._worktree._tracked.lists.values())


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "make",
    [lambda n: {"n": n, "tags": ["a"]}, lambda n: Node(n, ["a"]), lambda n: [n, ("a", {n})]],
    ids=["dict", "class", "list"],
)
def test_what_nobody_holds_is_let_go_of(make):
    state = Versioned()
    log = state.sequence("log")
    for n in range(0, 200, 2):
        log.extend([make(n), make(n + 1)])
        state.commit()
    assert in_memory(state) == 0
    held = log[100]
    part = (
        vars(log[101])["tags"]
        if isinstance(held, Node)
        else log[101]["tags"]
        if isinstance(held, dict)
        else log[101][1][1]
    )
    log.append(make(200))
    state.commit()
    assert in_memory(state) == 2, "what is held, itself or by a part of it, is kept"
    (part.append if isinstance(part, list) else part.add)("b")
    assert next(str(change.path) for change in state.status()).startswith("log[101]")
    assert log[100] is held
    del held, part
    state.commit()
    state.commit()
    assert in_memory(state) == 0


def test_a_commit_takes_few_steps_for_each_element_that_is_held_and_has_not_changed():
    def taken(held: int) -> int:
        state, _ = cold(1_000, f"held-{held}")
        sequence = state.sequence("list")
        elements = sequence[-held:]
        sequence.append({"n": 1_000})
        count = calls_of(state.commit)
        assert [each["n"] for each in elements] == list(range(1_000 - held, 1_000))
        return count

    assert taken(120) - taken(20) <= 3 * 100


@pytest.mark.parametrize("at", [0, 5, 63, 64, 99])
def test_a_change_in_place_is_seen_beside_elements_as_they_are_stored(at):
    state = committed(list=[{"n": n} for n in range(300)])
    state.release("list")
    sequence = state.sequence("list")
    held = sequence[100:200]
    del sequence[:3]
    state.commit()
    held[at]["n"] = True
    sequence.append(b"not of JSON types")
    assert [str(change.path) for change in state.status()] == [f"list[{97 + at}].n", "list[297]"]
    state.commit()
    del held[at]["n"]
    assert [str(change.path) for change in state.status()] == [f"list[{97 + at}].n"]
    state.commit()
    assert sequence[100] is held[3]
    assert not state.status()


@pytest.mark.parametrize(
    "read",
    [lambda sequence: sequence[-20:], lambda sequence: sequence == [*sequence], list],
    ids=["slice", "compare", "all"],
)
def test_large_elements_are_read_together(read):
    store = Counting(Memory())
    with Versioned(store) as state:
        state["list"] = [{"n": n, "text": "words " * 1_000 + str(n)} for n in range(100)]
        state.commit()
    repository = Repository(store)
    with Versioned(repository) as state:
        for sequence in (state.sequence("list"), repository.snapshot("main").sequence("list")):
            store.reset()
            read(sequence)
            assert store.reset().round_trips <= 8


def test_an_iteration_holds_some_of_the_elements(monkeypatch):
    state, _ = cold(100_000, "iteration")
    most = 0
    read = UnloadedLists.read

    def watch(lists: UnloadedLists, key: bytes, picked: range) -> list[Any]:
        nonlocal most
        most = max(most, in_memory(state))
        return read(lists, key, picked)

    monkeypatch.setattr(UnloadedLists, "read", watch)
    for number, each in enumerate(state.sequence("list")):
        if number in (10, 10_000):
            each["seen"] = True
        if number == 20_000:
            break
    assert most < 3_000
    assert [str(change) for change in state.status()] == ["+ list[10].seen = True", "+ list[10000].seen = True"]


def test_many_edits_before_a_commit():
    state, _ = cold(100_000, "many")
    sequence = state.sequence("list")
    expected = list(range(100_000))
    for n in range(500):
        at = n * 7919 % len(expected)
        if n % 3:
            sequence.insert(at, -n)
            expected.insert(at, -n)
        else:
            sequence.pop(at)
            expected.pop(at)
    assert [
        each if isinstance(each, int) else each["n"] for each in state.checkout(state.commit()).sequence("list")
    ] == expected
