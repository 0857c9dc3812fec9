"""A sequence reads and appends like the list under its key, without loading it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.handles import committed
from versioned_state import Memory, StateSequence, Versioned
from versioned_state.state.worktree.lists.unloaded import UnloadedLists
from versioned_state.storage import Counting

SIZES = (0, 1, 5, 100, 3000)


@pytest.mark.parametrize("size", SIZES)
def test_a_sequence_reads_like_the_list(size):
    expected = [{"n": n, "x": "x" * (n % 40)} for n in range(size)]
    first = committed(list=expected)
    for state in (first, Versioned(first.repository)):
        sequence = state.sequence("list")
        assert isinstance(sequence, StateSequence)
        assert len(sequence) == size
        assert list(sequence) == expected
        assert list(reversed(sequence)) == expected[::-1]
        for start, stop, step in itertools.product(
            (None, 0, 2, -3, size), (None, 1, 7, -1, size + 9), (None, 1, 3, -1, -2)
        ):
            assert sequence[start:stop:step] == expected[start:stop:step]
        for index in {0, -1, size // 2, size - 1} if size else ():
            assert sequence[index] == expected[index]
        for index in (size, -size - 1):
            with pytest.raises(IndexError):
                sequence[index]
        if size:
            assert expected[size // 2] in sequence
            assert sequence.index(expected[-1]) == expected.index(expected[-1])
            assert sequence.count(expected[0]) == expected.count(expected[0])


SEARCHES: dict[str, Callable[[StateSequence], object]] = {
    "index": lambda sequence: sequence.index(2999),
    "reversed": lambda sequence: sum(1 for _ in reversed(sequence)),
    "count": lambda sequence: sequence.count(7),
    "in": lambda sequence: 2999 in sequence,
}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_sequence_is_searched_in_batches(search, monkeypatch):
    first = committed(list=list(range(3000)))
    reads: list[int] = []
    read, peek = UnloadedLists.read, UnloadedLists.peek

    def count(lists: UnloadedLists, key: bytes, picked: range) -> list[Any]:
        reads.append(len(picked))
        return read(lists, key, picked)

    def count_peeks(lists: UnloadedLists, key: bytes, start: int, end: int) -> list[Any]:
        reads.append(end - start)
        return peek(lists, key, start, end)

    monkeypatch.setattr(UnloadedLists, "read", count)
    monkeypatch.setattr(UnloadedLists, "peek", count_peeks)
    assert SEARCHES[search](Versioned(first.repository).sequence("list"))
    assert 1 <= len(reads) <= 13
    assert sum(reads) <= 3000


@pytest.mark.parametrize("size", SIZES)
def test_a_sequence_appends_without_loading_the_list(size):
    first = committed(list=[{"n": n} for n in range(size)])
    store = Counting(first.repository.store)
    state = Versioned(store)
    sequence = state.sequence("list")
    sequence.append("a")
    sequence.extend(["b", {"c": 1}])
    assert len(sequence) == size + 3
    assert sequence[size:] == ["a", "b", {"c": 1}]
    assert sequence[-1] == {"c": 1}
    commit = state.commit()
    assert len(sequence) == size + 3
    sequence.append("later")
    assert len(sequence) == size + 4
    assert state.checkout(commit)["list"] == [*({"n": n} for n in range(size)), "a", "b", {"c": 1}]
    state.discard()
    assert len(sequence) == size + 3
    same = Versioned()
    same["list"] = first.checkout(commit)["list"]
    assert same.commit().root == commit.root, "canonical, however it came about"
    if size == 3000:
        assert store.counts.objects_read < 40


def test_a_sequence_of_a_key_that_is_not_there_yet():
    state = Versioned()
    sequence = state.sequence("new")
    assert list(sequence) == []
    assert "new" not in state
    sequence.append(1)
    assert "new" in state
    assert dict(state) == {"new": [1]}
    assert state.checkout(state.commit())["new"] == [1]
    other = Versioned(state.repository)
    lazily = other.sequence("new")
    lazily.append(2)
    del other["new"]
    assert list(lazily) == []
    lazily.append(3)
    assert other["new"] == [3]
    assert other.checkout(other.commit())["new"] == [3]


def test_a_sequence_and_its_list_are_one():
    state = committed(list=[1])
    other = Versioned(state.repository)
    sequence = other.sequence("list")
    sequence.append(2)
    live = other["list"]
    assert live == [1, 2]
    sequence.append(3)
    live.append(4)
    assert live == [1, 2, 3, 4] == list(sequence)
    assert [str(change) for change in other.status()] == ["+ list[1] = 2", "+ list[2] = 3", "+ list[3] = 4"]


@pytest.mark.parametrize("reopened", [False, True])
def test_a_large_element_that_a_rollback_has_put_back_is_stored(reopened):
    """The rollback staged the value for itself, and the commit must still store it."""
    store = Memory()
    state = Versioned(store)
    if reopened:
        state["a"] = [{"text": "first"}] * 300
        state.commit()
    with state.transaction("a block"):
        state.sequence("a").append({"text": ["a long text " * 500]})
        with suppress(ZeroDivisionError), state.transaction():
            state.sequence("a").append({"text": "no"})
            state.sequence("a")[-2]["text"][0] = 1 / 0
    assert Versioned(store)["a"][-1] == {"text": ["a long text " * 500]}
    assert state.repository.fsck().ok


def test_our_insertions_and_the_elements_after_them_keep_their_places_when_the_head_moves():
    repository = committed(list=[{"n": number} for number in range(500)]).repository
    state, other = Versioned(repository), Versioned(repository)
    ours, theirs = state.sequence("list"), other.sequence("list")
    ours.insert(0, {"n": "first"})
    ours.insert(300, {"n": "between"})
    held = ours[400]
    theirs.append({"n": "last"})
    del theirs[10]
    other.commit()
    state.refresh()
    expected = [number for number in range(500) if number != 10]
    assert [each["n"] for each in ours] == ["first", *expected[:298], "between", *expected[298:], "last"]
    assert ours[399] is held
    held["n"] = "changed"
    state.commit()
    assert Versioned(repository)["list"][399] == {"n": "changed"}
