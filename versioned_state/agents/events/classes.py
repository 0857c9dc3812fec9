"""The events that calls of tasks emit by themselves, and common events of agents. Layer: agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from versioned_state.values.typed.registry import register


class Event:
    """The base of the events here. An event of your own needs no base: any dataclass or pydantic model is one.

    The attributes are None until it is emitted. Their types are those of an event that was emitted on a state with
    commits.

    Attributes:
        timestamp: when it was emitted, UTC.
        agent_name: the name of the agent whose task emitted it, or an empty string.
        full_namespace: the names of the running calls, outermost first, joined with ``/``.
        commit_hash: the id of the commit that the agent saw; None in a ``Live`` state.
    """

    timestamp: datetime = cast("Any", None)
    agent_name: str = cast("Any", None)
    full_namespace: str = cast("Any", None)
    commit_hash: str = cast("Any", None)


@dataclass(kw_only=True)
class TaskStartEvent(Event):
    """The beginning of a call of a task."""

    task_name: str
    inputs: dict[str, Any] = field(default_factory=dict)
    message: str = ""


@dataclass(kw_only=True)
class ActionEvent(Event):
    """The thinking of an agent, and the code by which it acts."""

    thinking: str = ""
    code: str = ""


@dataclass(kw_only=True)
class OutputEvent(Event):
    """The output of an action: its prints or its results."""

    parts: list[Any] = field(default_factory=list)


@dataclass(kw_only=True)
class SuccessEvent(Event):
    """The end of a call of a task that returned."""

    result: Any = None


@dataclass(kw_only=True)
class FailEvent(Event):
    """The end of a call of a task that raised ``TaskFailed``."""

    message: str = ""


@dataclass(kw_only=True)
class ClarifyEvent(Event):
    """The end of a call of a task that raised ``TaskClarify``, because it needs an answer first."""

    message: str = ""


@dataclass(kw_only=True)
class ErrorEvent(Event):
    """The end of a call of a task that raised another exception, whose ``repr`` is ``error``."""

    error: str
    recoverable: bool = False


@dataclass(kw_only=True)
class TransitionEvent(Event):
    """The transition of a state machine from one state to another. ``machine`` is the key of the machine's value."""

    machine: str
    from_state: Any
    event: Any
    to_state: Any


for _cls in (
    TaskStartEvent,
    ActionEvent,
    OutputEvent,
    SuccessEvent,
    FailEvent,
    ClarifyEvent,
    ErrorEvent,
    TransitionEvent,
):
    register(_cls, _cls.__name__)
