"""Events that are kept with a state that is given, outside of a task and within one."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

import pytest

from versioned_state import Live, Memory, Repository, Versioned, emit, events, task
from versioned_state.errors import HandleClosedError, InvalidArgumentError, NoTaskError, UnserializableValueError


@dataclass
class Booked:
    city: str


@pytest.fixture
def state() -> Versioned:
    return Versioned(Memory())


def cities(state: Any) -> list[str]:
    return [event.city for event in events(state, types=Booked)]


def test_an_event_outside_of_a_task_lands_with_the_next_commit(state: Versioned) -> None:
    emit(Booked("Rome"), state=state)
    assert cities(state) == ["Rome"]
    assert cities(state.checkout("HEAD")) == []
    commit = state.commit("even if nothing else has changed")
    assert cities(state.checkout("HEAD")) == ["Rome"]
    assert state.commit() == commit
    (event,) = events(state)
    assert (event.agent_name, event.full_namespace) == ("", "")
    assert event.commit_hash == commit.parents[0]


def test_it_is_kept_with_its_present_content(state: Versioned) -> None:
    event = Booked("Rome")
    emit(event, state=state)
    event.city = "Oslo"
    state["n"] = 1
    state.commit()
    assert cities(state) == ["Rome"]


def test_discard_does_not_take_it_back(state: Versioned) -> None:
    emit(Booked("Rome"), state=state)
    state["n"] = 1
    state.discard()
    assert "n" not in state
    state.commit()
    assert cities(Versioned(state.repository)) == ["Rome"]


def test_namespaces_and_states_in_memory_keep_events_too(state: Versioned) -> None:
    emit(Booked("Rome"), state=state.namespace("trip"))
    state.commit()
    assert cities(state.namespace("trip")) == ["Rome"]
    live = Live()
    emit(Booked("Oslo"), state=live)
    assert cities(live) == ["Oslo"]


def test_within_a_task_it_belongs_to_the_call_and_its_listeners(state: Versioned) -> None:
    seen: list[Any] = []

    @task
    def book(city: str, *, state: Any = None) -> None:
        emit(Booked(city), state=state)
        raise ValueError("sold out")

    with pytest.raises(ValueError, match="sold out"):
        book("Rome", state=state, on_event=seen.append)
    assert [type(event).__name__ for event in seen] == ["TaskStartEvent", "Booked", "ErrorEvent"]
    assert cities(state) == ["Rome"]  # it happened, though the task failed


def test_within_a_task_another_state_may_be_given(state: Versioned) -> None:
    other = Versioned(Repository(Memory()))

    @task
    def book(city: str) -> None:
        emit(Booked(city), state=other)

    book("Rome", state=state)
    assert (cities(state), cities(other)) == ([], ["Rome"])


def test_what_cannot_be_kept_is_refused_and_nothing_is_kept(state: Versioned) -> None:
    for bad in ("text", {"a": 1}, 5):
        with pytest.raises(InvalidArgumentError, match="an event must be an instance of a class of yours"):
            emit(bad, state=state)
    with pytest.raises(InvalidArgumentError, match="state must be a Versioned, a Namespace or a Live, not Memory"):
        emit(Booked("Rome"), state=Memory())  # type: ignore[arg-type]
    with pytest.raises(UnserializableValueError):
        emit(Booked(Lock()), state=state)  # type: ignore[arg-type]
    with pytest.raises(NoTaskError, match="pass the state as state="):
        emit(Booked("Rome"))
    assert list(events(state)) == []
    state.close()
    with pytest.raises(HandleClosedError):
        emit(Booked("Rome"), state=state)
