"""An event may be of any class: it is kept and read as an instance of that class, with its stamps as attributes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import attrs
import pydantic
import pytest

from versioned_state import Live, Versioned, emit, events, task


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    number: int


class StampedModel(pydantic.BaseModel):
    timestamp: str
    commit_hash: int


@attrs.define(slots=True)
class Slotted:
    number: int


@attrs.frozen
class Frozen:
    number: int


class Pair(NamedTuple):
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class FrozenAndSlotted:
    number: int


@dataclass
class StampedDataclass:
    timestamp: int
    agent_name: str


class Comparable:
    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparable) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


class Bare:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


EVENTS = [
    Strict(number=1),
    StampedModel(timestamp="noon", commit_hash=3),
    Slotted(1),
    Frozen(1),
    Pair(1, "a"),
    FrozenAndSlotted(1),
    StampedDataclass(5, "mine"),
    Comparable(1),
    Bare(1),
]


@pytest.mark.parametrize("make", [Versioned, Live], ids=lambda make: make.__name__)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_of_any_class(event: Any, make: Any):
    @task
    def tell() -> None:
        emit(event)

    state, seen = make(), list[Any]()
    tell(state=state, on_event=seen.append)
    (found,) = events(state, types=type(event))
    (heard,) = (each for each in seen if isinstance(each, type(event)))
    for each in (found, heard):
        assert isinstance(each, type(event))
        if isinstance(event, Bare):
            assert each.number == event.number
        else:
            assert each == event
        assert each.full_namespace == "tell"
        if isinstance(event, StampedModel | StampedDataclass):  # a field of that name keeps its own value
            assert each.timestamp == event.timestamp
        else:
            assert isinstance(each.timestamp, datetime)
            assert each.commit_hash is None if make is Live else not state.checkout(each.commit_hash)
