"""What events cost does not depend on the length of the log: adding one, and reading some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count as count_from
from os import urandom
from random import Random
from typing import Any

import pytest

from versioned_state import Memory, Versioned, emit, events, task
from versioned_state.agents.events.entries import EVENTS, entry_cell, name_of
from versioned_state.storage import Counting
from versioned_state.storage.wrappers.counting import Counts

SMALL, LARGE = 100, 20_000
DEEPER = 8
"""Objects on the path to an entry that a log of 20,000 may have more than one of 100."""

START = datetime(2026, 1, 1, tzinfo=UTC)
AFTER = START + timedelta(days=1)
NAMESPACES = ("planner", "planner/worker", "planner/worker/helper", "writer")


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of calls, their times, and the seconds that they take decide where the nodes of a log end."""
    monkeypatch.setattr("versioned_state.agents.call.urandom", Random(1).randbytes)
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)


def clock() -> Callable[[], int]:
    return count_from(int(AFTER.timestamp()) * 1_000_000, 1_000).__next__


@dataclass
class Step:
    """What most events of the logs are."""

    number: int


@dataclass
class Last:
    """What the last event of a log is."""

    text: str


TEXTS = Random(2)


@task
def tell(count: int = 1, size: int = 0) -> None:
    for _ in range(count):
        emit(Last(TEXTS.randbytes(size // 2).hex()))


def a_log(length: int) -> Memory:
    """A store whose log has ``length`` events, one a millisecond. They are staged as a call does it, in one commit."""
    store = Memory()
    state = Versioned(store, clock=clock())
    cells = [state._worktree.encode_inline(Step(number), "an event") for number in range(128)]
    cells.append(state._worktree.encode_inline(Last("the last"), "an event"))
    start = int(START.timestamp()) * 1_000_000
    for number in range(length):
        cell = cells[-1] if number == length - 1 else cells[number % 128]
        entry = entry_cell(cell, state.head.address, NAMESPACES[number % 4], "", "")
        state._handle.pending.add(EVENTS, name_of(start + number * 1000, f"{number:08x}"), entry)
    state.commit("many events")
    state.close()
    return store


@pytest.fixture(scope="module")
def logs() -> dict[int, Memory]:
    return {length: a_log(length) for length in (SMALL, LARGE)}


def counted(store: Memory, work: Callable[[Versioned], object]) -> Counts:
    """What some calls cost the store, on a branch of their own, through a handle that has read nothing yet."""
    counting = Counting(store)
    branch = urandom(8).hex()
    Versioned(store).fork(branch).close()
    with Versioned(counting, branch=branch, clock=clock()) as state:
        counting.reset()
        work(state)
        return counting.counts


def test_an_event_into_a_long_log_costs_no_more_than_a_deeper_path(logs: dict[int, Memory]):
    small, large = (counted(logs[length], lambda state: tell(state=state)) for length in (SMALL, LARGE))
    assert small.objects_written
    assert large.objects_read <= small.objects_read + DEEPER
    assert large.objects_written <= small.objects_written + 4
    assert large.round_trips <= small.round_trips + DEEPER


@pytest.mark.parametrize("length", [SMALL, LARGE])
def test_an_event_takes_few_bytes_beside_its_content(logs: dict[int, Memory], length: int):
    calls, more, size = 24, 4, 100

    def bytes_of(count: int) -> int:
        def work(state: Versioned) -> None:
            for _ in range(calls):
                tell(count, size, state=state)

        return counted(logs[length], work).bytes_written

    extra = (bytes_of(1 + more) - bytes_of(1)) / (calls * more)
    assert size / 2 < extra < size + 400


def test_most_calls_on_a_small_state_write_one_object():
    store = Counting(Memory())
    state = Versioned(store, clock=clock())
    state.update({"counter": 0, "prefs": {"theme": "dark"}, "plan": ["first", "second"]})
    state.commit()
    store.reset()
    calls = 60
    for number in range(calls):
        state["counter"] = number
        tell(0, state=state)
    assert len(events(state)) == 2 * calls
    assert store.counts.objects_written < 1.8 * calls


READS: dict[str, tuple[int, Callable[[Any], Iterable[Any]]]] = {
    "the oldest": (10, lambda state: events(state, limit=10)),
    "the newest": (10, lambda state: events(state, limit=10, reverse=True)),
    "the last by index": (1, lambda state: [events(state)[-1]]),
    "the first by index": (1, lambda state: [events(state)[0]]),
    "the first by next": (1, lambda state: [next(events(state, reverse=True))]),
    "since": (5, lambda state: events(state, since=events(state)[-5].timestamp)),
    "since, newest first": (5, lambda state: events(state, since=events(state)[-5].timestamp, reverse=True)),
    "the newest of a type": (1, lambda state: events(state, types=Last, limit=1, reverse=True)),
    "the oldest of two types": (10, lambda state: events(state, types=(Step, Last), limit=10)),
    "the newest of a namespace": (4, lambda state: events(state, namespace="planner", limit=4, reverse=True)),
    "the oldest of a namespace and below": (9, lambda state: events(state, namespace="planner/**", limit=9)),
    "a bool": (0, lambda state: [] if events(state) else [None]),
}


@pytest.mark.parametrize("name", READS)
def test_reading_some_events_costs_what_is_read(logs: dict[int, Memory], name: str):
    expected, read = READS[name]

    def take(state: Versioned) -> None:
        assert len(list(read(state))) == expected

    small, large = (counted(logs[length], take) for length in (SMALL, LARGE))
    assert large.objects_read <= small.objects_read + DEEPER
    assert large.round_trips <= small.round_trips + DEEPER


def test_nothing_is_read_before_an_event_is_taken(logs: dict[int, Memory]):
    counting = Counting(logs[LARGE])
    with Versioned(counting) as state:
        counting.reset()
        found = iter(events(state, types=Step, since=START, namespace="planner/**"))
        assert counting.counts == Counts()
        next(found)
        one = counting.counts.objects_read
        for _ in range(5):
            next(found)
        assert counting.counts.objects_read <= one + DEEPER


def test_all_events_are_read_a_node_at_a_time(logs: dict[int, Memory]):
    def take_all(state: Versioned) -> None:
        assert sum(1 for _ in events(state, reverse=True)) == LARGE

    counts = counted(logs[LARGE], take_all)
    assert counts.objects_read < LARGE / 5
    assert counts.round_trips < LARGE / 20
