"""Instances inside instances are fingerprinted together, class by class: any change of them is seen, at its path."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

import pydantic
import pytest

from tests.support.counted_calls import calls_of
from versioned_state import Memory, Versioned, register


class Kind(enum.StrEnum):
    TEXT = "text"
    CALL = "call"


class Usage(pydantic.BaseModel):
    tokens: int = 0
    cached: int | None = None


@dataclass(slots=True)
class Place:
    x: int


@dataclass
class Part:
    kind: Kind
    text: str
    usage: Usage = field(default_factory=Usage)
    place: Place = field(default_factory=lambda: Place(0))


@dataclass
class Message:
    parts: list[Part]
    at: dt.datetime
    by: dict[str, Part] = field(default_factory=dict)
    reply: Message | None = None


class Boxed:
    def __init__(self, number: int) -> None:
        self.number = number


register(
    Boxed,
    "tests.Boxed",
    lambda boxed: [Usage(tokens=boxed.number), Usage(tokens=0)],
    lambda data: Boxed(data[0].tokens),
)


def message(number: int) -> Message:
    at = dt.datetime(2026, 11, 22, 7, number % 60, tzinfo=dt.UTC if number % 2 else ZoneInfo("Europe/Rome"))
    parts = [Part(Kind.TEXT, f"part {n} of {number}", Usage(tokens=n)) for n in range(3)]
    return Message(parts, at, {"first": Part(Kind.CALL, "call")}, Message([], at) if number % 3 else None)


CHANGES: dict[str, tuple[Callable[[Message], Any], str]] = {
    "text": (lambda m: setattr(m.parts[1], "text", "new"), ".parts[1].text"),
    "member of an Enum": (lambda m: setattr(m.parts[2], "kind", Kind.CALL), ".parts[2].kind"),
    "string for a member": (lambda m: setattr(m.parts[2], "kind", "text"), ".parts[2].kind"),
    "model in an instance": (lambda m: setattr(m.parts[0].usage, "tokens", 7), ".parts[0].usage.tokens"),
    "True for 1": (lambda m: setattr(m.parts[1].usage, "tokens", True), ".parts[1].usage.tokens"),
    "set of fields given": (lambda m: m.parts[0].usage.model_fields_set.clear(), ".parts[0].usage"),
    "slot": (lambda m: setattr(m.parts[0].place, "x", 1), ".parts[0].place.x"),
    "in a dict": (lambda m: setattr(m.by["first"], "text", "new"), ".by.first.text"),
    "time": (lambda m: setattr(m, "at", m.at + dt.timedelta(microseconds=1)), ".at"),
    "fold": (lambda m: setattr(m, "at", m.at.replace(fold=1)), ".at"),
    "time zone": (lambda m: setattr(m, "at", m.at.replace(tzinfo=dt.timezone(dt.timedelta(0), "UTC "))), ".at"),
    "no time zone": (lambda m: setattr(m, "at", m.at.replace(tzinfo=None)), ".at"),
    "new attribute": (lambda m: setattr(m.parts[0], "more", 1), ".parts[0].more"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_at_any_depth_is_seen(name: str):
    change, path = CHANGES[name]
    with Versioned(Memory()) as state:
        messages = state["m"] = [message(number) for number in range(130)]
        state.commit()
        for index in (0, 63, 64, 129):
            change(messages[index])
            assert [str(step.path) for step in state.status()] == [f"m[{index}]{path}"]
            state.commit()
            assert not state.status()


def test_one_instance_at_two_places_is_compared_at_both():
    with Versioned(Memory()) as state:
        usage = Usage(tokens=1)
        state["m"] = [Part(Kind.TEXT, "a", usage), Part(Kind.TEXT, "b", usage), Part(Kind.TEXT, "c", Usage(tokens=1))]
        state.commit()
        usage.tokens = 2
        assert [str(step.path) for step in state.status()] == ["m[0].usage.tokens", "m[1].usage.tokens"]
        state.commit()
        state["m"][1].usage = Usage(tokens=2)
        assert not state.status()


def test_two_instances_that_change_places_are_a_change():
    with Versioned(Memory()) as state:
        first, second = message(1), message(2)
        state["m"] = [first, second]
        state.commit()
        first.parts[0].usage, second.parts[0].usage = Usage(tokens=5), first.parts[0].usage
        first.parts[0], first.parts[1] = first.parts[1], first.parts[0]
        assert {str(step.path).partition(".")[0] for step in state.status()} == {"m[0]"}
        state.commit()


def test_an_instance_that_contains_itself_costs_what_it_holds():
    """It is not followed round and round down to the limit of depth: five million calls, where it takes thousands."""
    with Versioned(Memory()) as state:
        first, second = message(1), message(2)
        first.reply, second.reply = second, first
        state["m"] = first
        assert calls_of(state.commit) < 1_000_000
        assert calls_of(state.status) < 50_000
        assert not state.status()
        second.parts[0].text = "new"
        assert [str(step.path) for step in state.status()] == ["m"]
        assert calls_of(state.commit) < 50_000
        assert state.head.height == 2


def test_instances_that_are_made_for_packing_are_not_mixed_up():
    with Versioned(Memory()) as state:
        boxes = state["m"] = [Boxed(number) for number in range(200)]
        state.commit()
        assert not state.status()
        boxes[150].number = -1
        assert [str(step.path) for step in state.status()] == ["m[150][0].tokens"]
        state.commit()
