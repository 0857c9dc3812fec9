"""Bisect finds the first bad commit wherever it is, past what cannot be told, and asks O(log n) times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.histories import numbered
from versioned_state import Commit, Memory, Repository, Skip, Snapshot, Versioned
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.storage import Counting


def rounds(count: int) -> tuple[Repository, list[Commit]]:
    """A line of commits, each with its number in the state."""
    repository = Repository(Memory())
    state = Versioned(repository)
    commits = []
    for number in range(count):
        state["number"] = number
        commits.append(state.commit(f"Round {number}"))
    return repository, commits


def from_round(first: int) -> Callable[[Snapshot], bool]:
    """Bad are this round and all after it."""
    return lambda snapshot: snapshot["number"] >= first


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 9])
def test_the_first_bad_round_is_found_wherever_it_is(count: int):
    repository, commits = rounds(count)
    for first in range(1, count):
        found = repository.bisect(commits[0], commits[-1], from_round(first))
        assert found.commit == commits[first]
        assert found.suspects == (commits[first],)
        assert found.is_certain
        assert str(found.diff) == f"~ number = {first - 1} -> {first}"
        assert found.steps <= 2 + (count - 1).bit_length()


def test_it_asks_and_reads_little_on_a_long_line():
    store = Counting(Memory())
    state = Versioned(store)
    numbered(state, range(2_000), key="number")
    repository = Repository(store)
    for first in (1, 2, 777, 1_998, 1_999):
        repository.database.forget()
        store.reset()
        found = repository.bisect("main~1999", "main", from_round(first))
        assert found.commit.message == repository.commit(f"main~{1_999 - first}").message
        assert found.steps <= 13
        assert store.counts.objects_read <= 13 * 25


@given(st.integers(2, 40), st.data())
def test_skipped_rounds_are_passed_over_and_named_where_they_may_be_the_first(count: int, data: st.DataObject):
    repository, commits = rounds(count)
    first = data.draw(st.integers(1, count - 1))
    skipped = data.draw(st.sets(st.integers(0, count - 1)))
    asked: list[int] = []

    def is_bad(snapshot: Snapshot) -> bool:
        asked.append(snapshot["number"])
        if snapshot["number"] in skipped:
            raise Skip
        return bool(snapshot["number"] >= first)

    found = repository.bisect(commits[0], commits[-1], is_bad)
    told_good = max([0, *(number for number in range(first) if number not in skipped)])
    told_bad = min([count - 1, *(number for number in range(first, count) if number not in skipped)])
    assert found.suspects == tuple(commits[told_good + 1 : told_bad + 1])
    assert found.commit == commits[told_bad]
    assert found.is_certain == (told_good + 1 == told_bad)
    assert len(asked) == len(set(asked)) == found.steps  # nothing is asked twice


def test_only_first_parents_are_followed():
    repository = Repository(Memory())
    main = Versioned(repository)
    main["a"] = 1
    good = main.commit("good")
    side = main.fork("side")
    for number in range(5):
        side["broken"] = number
        side.commit(f"side {number}")
    main["b"] = 1
    main.commit("fine")
    merged = main.merge("side")
    main["c"] = 1
    main.commit("bad")
    found = repository.bisect(good, "main", lambda snapshot: "broken" in snapshot)
    assert found.commit == merged
    assert str(found.diff) == "+ broken = 4"
    with pytest.raises(InvalidArgumentError, match="first parents do not lead") as error:
        repository.bisect("side~1", "main", lambda _: True)
    assert "--first-parent" in error.value.hint
    with pytest.raises(InvalidArgumentError, match="comes after"):
        repository.bisect("main", good, lambda _: True)


@pytest.mark.parametrize(
    ("is_bad", "message"),
    [
        (lambda _: True, "is bad already"),
        (lambda _: False, "is good"),
        (lambda snapshot: snapshot["number"] < 3, "bad"),
    ],
)
def test_a_condition_that_both_ends_contradict_is_told(is_bad: Any, message: str):
    repository, commits = rounds(6)
    with pytest.raises(InvalidArgumentError, match=message):
        repository.bisect(commits[0], commits[-1], is_bad)


def test_both_ends_must_be_two_commits_that_are_there():
    repository, commits = rounds(3)
    with pytest.raises(InvalidArgumentError, match="both"):
        repository.bisect("main", commits[-1], lambda _: True)
    with pytest.raises(UnknownRevisionError):
        repository.bisect("main~7", "main", lambda _: True)


def test_an_error_of_the_predicate_passes():
    repository, commits = rounds(3)
    with pytest.raises(KeyError, match="missing"):
        repository.bisect(commits[0], commits[-1], lambda snapshot: snapshot["missing"])


def test_history_that_was_cut_in_between_is_said_to_be():
    repository, commits = rounds(6)
    repository.prune(keep_last=3)
    with pytest.raises(UnknownRevisionError, match="older history was pruned"):
        repository.bisect(commits[0], "main", lambda _: True)
    found = repository.bisect("main~2", "main", lambda snapshot: snapshot["number"] == 5)
    assert found.commit == commits[5]


def test_a_state_bisects_from_its_own_branch_also_while_it_changes():
    state = Versioned(clock=lambda: int(dt.datetime(2026, 11, 21, tzinfo=dt.UTC).timestamp()) * 1_000_000)
    state["plan"] = ["look"]
    good = state.commit("planned")
    state["plan"].append("book")
    state.commit("more")
    state["plan"].clear()
    emptied = state.commit("emptied")
    state["other"] = 1
    state.commit("on")

    def is_bad(snapshot: Snapshot) -> bool:
        state["seen"] = len(snapshot["plan"])  # the handle is free meanwhile
        return not snapshot["plan"]

    found = state.bisect(good, "HEAD", is_bad)
    assert found.commit == emptied
    assert str(found.diff) == "- plan[0] = 'look'\n- plan[1] = 'book'"
