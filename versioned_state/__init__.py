"""git for the state of AI agents.

A state is a dict of plain Python values; every round is a commit; any past commit is a read-only view; mutations in place are always
seen; and a round costs what changed, not what there is.

>>> from versioned_state import Versioned
>>> state = Versioned()
>>> state["messages"] = [{"role": "user", "content": "hi"}]
>>> first = state.commit("round 1")
>>> state["messages"].append({"role": "assistant", "content": "hello"})
>>> print(state.status())
+ messages[1] = {'role': 'assistant', 'content': 'hello'}
>>> second = state.commit("round 2")
>>> len(state.checkout(first)["messages"])
1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.agents.agent import Agent
    from versioned_state.agents.call import Call
    from versioned_state.agents.effects import Happened, effect, effects, forget_effect, settle_effect
    from versioned_state.agents.events.classes import (
        ActionEvent,
        ClarifyEvent,
        ErrorEvent,
        FailEvent,
        OutputEvent,
        SuccessEvent,
        TaskStartEvent,
        TransitionEvent,
    )
    from versioned_state.agents.events.log import events
    from versioned_state.agents.parallel import Outcome, parallel
    from versioned_state.agents.patterns.event_sourcing import EventSourced
    from versioned_state.agents.patterns.state_machine import StateMachine
    from versioned_state.agents.tasks.outcome import TaskClarify, TaskFailed
    from versioned_state.agents.tasks.task import checkpoint, current_state, emit, task
    from versioned_state.agents.view import view
    from versioned_state.agents.workspace.workspace import Workspace, files_of
    from versioned_state.errors import StateError
    from versioned_state.repository.committing import OnMoved
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.history.signing import Signer
    from versioned_state.repository.inspect.bisect import Skip
    from versioned_state.repository.ledger import EffectRecord
    from versioned_state.repository.merging.merge import MISSING, Conflict, Merge
    from versioned_state.repository.names.branch_name import branch_name
    from versioned_state.repository.repository import Repository
    from versioned_state.repository.views.change import Change
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.state.aio.open import open_async
    from versioned_state.state.live import Live
    from versioned_state.state.open import open as open  # noqa: A004 - read as versioned_state.open; the alias exports it
    from versioned_state.state.sequence import StateSequence
    from versioned_state.state.shape.bounded import Bounded
    from versioned_state.state.shape.migrations import Migrations
    from versioned_state.state.shape.schema import Schema
    from versioned_state.state.state import State
    from versioned_state.state.versioned import Versioned
    from versioned_state.storage import Cache, Disk, KVStore, Memory, open_store
    from versioned_state.values.codec.pickles import ObjectInfo
    from versioned_state.values.paths.path import StatePath
    from versioned_state.values.typed.registry import register
    from versioned_state.values.typed.tagged import Tagged

# Without `open`, which is read as versioned_state.open: a star import must not replace the builtin.
__all__ = [
    "MISSING",
    "ActionEvent",
    "Agent",
    "Bounded",
    "Cache",
    "Call",
    "Change",
    "ClarifyEvent",
    "Commit",
    "Conflict",
    "Diff",
    "Disk",
    "EffectRecord",
    "ErrorEvent",
    "EventSourced",
    "FailEvent",
    "Happened",
    "KVStore",
    "Live",
    "Memory",
    "Merge",
    "Migrations",
    "ObjectInfo",
    "OnMoved",
    "Outcome",
    "OutputEvent",
    "Repository",
    "Schema",
    "Signer",
    "Skip",
    "Snapshot",
    "State",
    "StateError",
    "StateMachine",
    "StatePath",
    "StateSequence",
    "SuccessEvent",
    "Tagged",
    "TaskClarify",
    "TaskFailed",
    "TaskStartEvent",
    "TransitionEvent",
    "Versioned",
    "Workspace",
    "branch_name",
    "checkpoint",
    "current_state",
    "effect",
    "effects",
    "emit",
    "events",
    "files_of",
    "forget_effect",
    "open_async",
    "open_store",
    "parallel",
    "register",
    "settle_effect",
    "task",
    "view",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "errors": "errors",
        "storage": "storage",
        "StateError": "errors",
        "view": "agents.view",
        "Workspace": "agents.workspace.workspace",
        "files_of": "agents.workspace.workspace",
        "parallel": "agents.parallel",
        "Outcome": "agents.parallel",
        "Agent": "agents.agent",
        "Call": "agents.call",
        "ErrorEvent": "agents.events.classes",
        "ClarifyEvent": "agents.events.classes",
        "FailEvent": "agents.events.classes",
        "SuccessEvent": "agents.events.classes",
        "OutputEvent": "agents.events.classes",
        "ActionEvent": "agents.events.classes",
        "TaskStartEvent": "agents.events.classes",
        "TransitionEvent": "agents.events.classes",
        "EventSourced": "agents.patterns.event_sourcing",
        "StateMachine": "agents.patterns.state_machine",
        "TaskClarify": "agents.tasks.outcome",
        "TaskFailed": "agents.tasks.outcome",
        "events": "agents.events.log",
        "emit": "agents.tasks.task",
        "checkpoint": "agents.tasks.task",
        "current_state": "agents.tasks.task",
        "task": "agents.tasks.task",
        "Happened": "agents.effects",
        "effect": "agents.effects",
        "effects": "agents.effects",
        "forget_effect": "agents.effects",
        "settle_effect": "agents.effects",
        "Commit": "repository.history.commit",
        "Signer": "repository.history.signing",
        "Skip": "repository.inspect.bisect",
        "EffectRecord": "repository.ledger",
        "MISSING": "repository.merging.merge",
        "Conflict": "repository.merging.merge",
        "Merge": "repository.merging.merge",
        "branch_name": "repository.names.branch_name",
        "Repository": "repository.repository",
        "Change": "repository.views.change",
        "Diff": "repository.views.diff",
        "Snapshot": "repository.views.snapshot",
        "OnMoved": "repository.committing",
        "Live": "state.live",
        "open": "state.open",
        "open_async": "state.aio.open",
        "StateSequence": "state.sequence",
        "Bounded": "state.shape.bounded",
        "Migrations": "state.shape.migrations",
        "Schema": "state.shape.schema",
        "State": "state.state",
        "Versioned": "state.versioned",
        "Cache": "storage",
        "Disk": "storage",
        "KVStore": "storage",
        "Memory": "storage",
        "open_store": "storage",
        "ObjectInfo": "values.codec.pickles",
        "Tagged": "values.typed.tagged",
        "register": "values.typed.registry",
        "StatePath": "values.paths.path",
    },
)
