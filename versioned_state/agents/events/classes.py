"""The events that calls of tasks emit by themselves, and common events of agents. Layer: agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from versioned_state.values.typed.registry import register


class Event:
    """The base of the events here. An event of your own needs no base: any dataclass or pydantic model is one.

    Attributes:
        timestamp: when it was emitted, UTC. This and the others are None until then.
        agent_name: the name of the agent whose task emitted it, or an empty string.
        full_namespace: the names of the running calls, outermost first, joined with ``/``.
        commit_hash: the id of the commit that the agent saw; None in a ``Live`` state.
    """

    timestamp: datetime | None = None
    agent_name: str | None = None
    full_namespace: str | None = None
    commit_hash: str | None = None


@dataclass(kw_only=True)
class TaskStartEvent(Event):
    """A call of a task began."""

    task_name: str
    inputs: dict[str, Any] = field(default_factory=dict)
    message: str = ""


@dataclass(kw_only=True)
class ActionEvent(Event):
    """An agent thought, and acts by code."""

    thinking: str = ""
    code: str = ""


@dataclass(kw_only=True)
class OutputEvent(Event):
    """An action printed or returned something."""

    parts: list[Any] = field(default_factory=list)


@dataclass(kw_only=True)
class SuccessEvent(Event):
    """A call of a task ended well."""

    result: Any = None


@dataclass(kw_only=True)
class FailEvent(Event):
    """A call of a task gave up: it raised ``TaskFailed``."""

    message: str = ""


@dataclass(kw_only=True)
class ClarifyEvent(Event):
    """A call of a task needs an answer first: it raised ``TaskClarify``."""

    message: str = ""


@dataclass(kw_only=True)
class ErrorEvent(Event):
    """A call of a task ended by an exception, whose ``repr`` is ``error``."""

    error: str
    recoverable: bool = False


@dataclass(kw_only=True)
class TransitionEvent(Event):
    """A state machine went from one state to another; ``machine`` is its key in the state of ``StateMachine``."""

    machine: str
    from_state: Any
    event: Any
    to_state: Any


for _cls in (TaskStartEvent, ActionEvent, OutputEvent, SuccessEvent, FailEvent, ClarifyEvent, ErrorEvent, TransitionEvent):
    register(_cls, _cls.__name__)
