"""Parallel calls work on forks that are merged by path. If one fails, nothing is merged, unless that is asked for."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.handles import committed
from versioned_state import Disk, Live, Memory, Migrations, Repository, Versioned, current_state, events, parallel, task
from versioned_state.agents.events.classes import TaskStartEvent
from versioned_state.errors import InvalidArgumentError, MergeConflictError, SchemaError, UncommittedChangesError


@task
def book(city: str, *, fail: bool = False) -> str:
    state = current_state()
    state[city] = {"booked": True}
    state["last"] = state.get("last", "")
    state.setdefault("trips", []).append(city)
    if fail:
        raise ValueError(city)
    return city.upper()


@task
def note(name: str, value: Any) -> Any:
    current_state()[name] = value
    return value


def open_state(store: Any = None) -> Versioned:
    return committed(store, trips=[])


def test_calls_run_side_by_side_and_are_merged():
    state = open_state()
    trips = state["trips"]
    outcomes = parallel(state, [partial(book, "Rome"), partial(book, "Oslo")], policies={"trips": "append"})
    assert [outcome.value for outcome in outcomes] == ["ROME", "OSLO"]
    assert {outcome.error for outcome in outcomes} == {None}
    assert state["trips"] is trips
    assert sorted(trips) == ["Oslo", "Rome"]
    assert state.keys() == {"Rome", "Oslo", "trips", "last"}
    assert list(state.repository.branches) == ["main"]
    assert len(events(state)) == 4
    for outcome in outcomes:
        assert outcome.commit is not None
        assert outcome.commit.meta["task"] == "book"
        assert state.repository.merge_base(outcome.commit, state.head) == outcome.commit


def test_a_conflict_names_path_and_callers_and_nothing_lands():
    state = open_state()
    head = state.head
    calls = [partial(note, "a", 1), partial(note, "b", 1), partial(note, "a", 2)]
    with pytest.raises(ExceptionGroup) as raised:
        parallel(state, calls)
    (error,) = raised.value.exceptions
    assert isinstance(error, MergeConflictError)
    assert "call 2, note('a', 2)" in error.__notes__[-1]
    assert state.head == head
    assert dict(state) == {"trips": []}
    outcomes = parallel(state, calls, on_failure="return")
    assert [outcome.value for outcome in outcomes] == [1, 1, 2]
    (conflict,) = outcomes[2].conflicts
    assert (conflict.path, conflict.calls) == ("a", (0,))
    assert dict(state) == {"a": 1, "b": 1, "trips": []}


def test_nothing_of_a_failed_call_lands():
    state = open_state()
    calls = [partial(book, "Rome"), partial(book, "Oslo", fail=True)]
    with pytest.raises(ExceptionGroup) as raised:
        parallel(state, calls)
    assert [str(error) for error in raised.value.exceptions] == ["Oslo"]
    assert state["trips"] == []
    outcomes = parallel(state, calls, on_failure="return")
    assert state["trips"] == ["Rome"]
    assert isinstance(outcomes[1].error, ValueError)
    assert list(state.repository.branches) == ["main"]


def test_other_commits_on_the_branch_are_merged():
    repository = Repository(Memory())
    state = open_state(repository)
    other = Versioned(repository)

    @task
    def meddle() -> None:
        current_state()["mine"] = 1
        other["theirs"] = 1
        other.commit()

    parallel(state, [meddle])
    assert dict(state) == {"mine": 1, "theirs": 1, "trips": []}


def test_uncommitted_changes_are_refused():
    state = open_state()
    state["trips"].append("Bern")
    with pytest.raises(UncommittedChangesError):
        parallel(state, [partial(book, "Rome")])


def test_no_calls_and_an_empty_state():
    state = Versioned()
    none: list[partial[None]] = []
    assert parallel(state, none) == []
    parallel(state, [partial(note, "a", 1)])
    assert dict(state) == {"a": 1}


def test_a_namespace():
    state = open_state()
    parallel(state.namespace("team"), [partial(note, "a", 1), partial(note, "b", 2)])
    assert dict(state.namespace("team")) == {"a": 1, "b": 2}
    assert dict(state) == {"trips": []}


def test_within_a_task_it_is_a_checkpoint():
    @task
    def orchestrate(*, fail: bool) -> int:
        state = current_state()
        state["plan"] = 1
        outcomes = parallel(state, [partial(note, "a", 1), partial(note, "b", 2)])
        state["after"] = sum(outcome.value for outcome in outcomes)
        if fail:
            raise RuntimeError
        return len(outcomes)

    state = open_state()
    assert orchestrate(fail=False, state=state) == 2
    assert dict(state) == {"a": 1, "after": 3, "b": 2, "plan": 1, "trips": []}
    assert not state.status()
    names = {event.full_namespace for event in events(state, types=TaskStartEvent)}
    assert names == {"orchestrate", "orchestrate/note"}
    state = open_state()
    with pytest.raises(RuntimeError):
        orchestrate(fail=True, state=state)
    assert dict(state) == {"a": 1, "b": 2, "plan": 1, "trips": []}
    assert not state.status()


async def test_coroutines_run_in_the_event_loop():
    begun = []

    @task
    async def meet(name: str) -> str:
        begun.append(name)
        while len(begun) < 2:  # noqa: ASYNC110 - both must be running
            await asyncio.sleep(0)
        current_state()[name] = 1
        return name

    state = open_state()
    outcomes = await parallel(state, [partial(meet, "a"), partial(meet, "b")])
    assert [outcome.value for outcome in outcomes] == ["a", "b"]
    assert dict(state) == {"a": 1, "b": 1, "trips": []}
    assert list(state.repository.branches) == ["main"]


migrations = Migrations()


@migrations.to(2)
def trips_are_journeys(state: Any) -> None:
    state["journeys"] = state.pop("trips")


@task
def read(name: str) -> Any:
    return current_state()[name]


def test_processes(tmp_path: Path):
    state = open_state(Disk(tmp_path))
    outcomes = parallel(
        state, [partial(note, "a", 1), partial(book, "Oslo", fail=True)], executor="processes", on_failure="return"
    )
    assert outcomes[0].value == 1
    assert isinstance(outcomes[1].error, ValueError)
    assert dict(state) == {"a": 1, "trips": []}
    shaped = Versioned(state.repository, schema={"a": int}, migrations=migrations)
    outcomes = parallel(
        shaped, [partial(note, "a", "text"), partial(read, "journeys")], executor="processes", on_failure="return"
    )
    assert isinstance(outcomes[0].error, SchemaError), "each process has the shape of the state"
    assert outcomes[1].value == []
    with pytest.raises(InvalidArgumentError, match="cannot share a Memory"):
        parallel(open_state(), [partial(note, "a", 1)], executor="processes")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((Live(), []), {}),
        ((Versioned(), [len]), {}),
        ((Versioned(), []), {"executor": "other"}),
        ((Versioned(), []), {"on_failure": "other"}),
    ],
)
def test_bad_arguments(arguments: Any, options: Any):
    with pytest.raises(InvalidArgumentError):
        parallel(*arguments, **options)


def test_what_calls_append_is_in_the_order_of_the_calls_whichever_ends_first():
    ended = [threading.Event() for _ in range(5)]
    ended[4].set()

    @task
    def tell(number: int) -> None:
        assert ended[number + 1].wait(30)
        current_state()["log"].append(number)
        ended[number].set()

    state = committed(log=["begin"])
    parallel(state, [partial(tell, number) for number in range(4)], policies={"log": "append"})
    assert state["log"] == ["begin", 0, 1, 2, 3]
