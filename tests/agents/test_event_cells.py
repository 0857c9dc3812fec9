"""The events that calls emit by themselves are stored as instances of their classes would be, though none is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from versioned_state import Versioned, events, task
from versioned_state.agents.events.classes import ClarifyEvent, ErrorEvent, FailEvent, SuccessEvent, TaskStartEvent
from versioned_state.agents.events.entries import event_cell, start_cell
from versioned_state.values.encode.inline import plain_cell


@dataclass
class Trip:
    """A typed value."""

    city: str
    days: list[int]


class Session:
    """An ordinary class, whose instances have an identity."""

    def __init__(self) -> None:
        self.user = "ann"


SESSION = Session()

VALUES: list[Any] = [
    None,
    7,
    1 << 70,
    "text",
    "\ud800",
    b"bytes",
    (1, 2),
    {1: "one", "b": {2, 3}},
    [float("inf"), -0.0],
    datetime(2026, 1, 1, tzinfo=UTC),
    Trip("Rome", [1, 2]),
    [SESSION, SESSION],
    {"deep": {"deeper": [SESSION, {"again": SESSION}]}},
    "long " * 500,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_their_cells_are_those_of_instances(value: Any):
    encode = Versioned()._worktree.encode_inline
    for cls, fields in (
        (TaskStartEvent, {"inputs": {"value": value, "other": 1}, "message": "Plan it.", "task_name": "plan"}),
        (SuccessEvent, {"result": value}),
        (ErrorEvent, {"error": "ValueError()", "recoverable": False}),
        (FailEvent, {"message": "no"}),
        (ClarifyEvent, {"message": "which?"}),
    ):
        assert event_cell(cls, encode(fields, "fields")) == encode(cls(**fields), "an event")


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_the_quick_cell_of_a_start_is_that_of_an_instance(value: Any):
    encode = Versioned()._worktree.encode_inline
    plain = 0
    for inputs in ({}, {"value": value}, {"other": 1, "value": value}):
        for message in ("", "Plan it.", "a line " * 40, "\ud800"):
            cell = start_cell(inputs, message, "plan")
            instance = TaskStartEvent(inputs=inputs, message=message, task_name="plan")
            assert cell is None or cell == encode(instance, "an event")
            plain += cell is not None
    assert plain == (3 if plain_cell(value) is None else 9)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_listeners_and_the_log_have_equal_ones(value: Any):
    @task
    def give(value: Any) -> Any:
        return value

    state = Versioned()
    heard: list[Any] = []
    give(value, state=state, on_event=heard.append)
    started, succeeded = events(state)
    assert [type(event) for event in heard] == [TaskStartEvent, SuccessEvent]
    assert [event.timestamp for event in heard] == [started.timestamp, succeeded.timestamp]
    if "Session" not in repr(value):  # whose instances are equal to themselves alone
        assert heard == [started, succeeded]
        assert started.inputs == {"value": value}
        assert succeeded.result == value
