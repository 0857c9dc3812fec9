"""git for the state of AI agents.

A state is a dict of plain Python values; every round is a commit; any past commit is a read-only view; mutations in
place are always seen; and a round costs what changed, not what there is.

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
    from versioned_state.agents.agent import Agent as Agent
    from versioned_state.agents.call import Call as Call
    from versioned_state.agents.effects import (
        Happened as Happened,
        effect as effect,
        effects as effects,
        forget_effect as forget_effect,
        settle_effect as settle_effect,
    )
    from versioned_state.agents.events.classes import (
        ActionEvent as ActionEvent,
        ClarifyEvent as ClarifyEvent,
        ErrorEvent as ErrorEvent,
        FailEvent as FailEvent,
        OutputEvent as OutputEvent,
        SuccessEvent as SuccessEvent,
        TaskStartEvent as TaskStartEvent,
        TransitionEvent as TransitionEvent,
    )
    from versioned_state.agents.events.log import events as events
    from versioned_state.agents.parallel import Outcome as Outcome, parallel as parallel
    from versioned_state.agents.patterns.event_sourcing import EventSourced as EventSourced
    from versioned_state.agents.patterns.state_machine import StateMachine as StateMachine
    from versioned_state.agents.rollback import RolledBack as RolledBack, roll_back_effects as roll_back_effects
    from versioned_state.agents.tasks.round import TaskClarify as TaskClarify, TaskFailed as TaskFailed
    from versioned_state.agents.tasks.task import (
        checkpoint as checkpoint,
        current_state as current_state,
        emit as emit,
        task as task,
    )
    from versioned_state.agents.view import view as view
    from versioned_state.agents.workspace.workspace import Workspace as Workspace, files_of as files_of
    from versioned_state.errors import StateError as StateError
    from versioned_state.repository.committing import OnMoved as OnMoved
    from versioned_state.repository.history.commit import Commit as Commit
    from versioned_state.repository.history.signing import Signer as Signer
    from versioned_state.repository.inspect.bisect import Skip as Skip
    from versioned_state.repository.ledger import EffectRecord as EffectRecord
    from versioned_state.repository.merging.merge import MISSING as MISSING, Conflict as Conflict, Merge as Merge
    from versioned_state.repository.names.branch_name import branch_name as branch_name
    from versioned_state.repository.repository import Repository as Repository
    from versioned_state.repository.views.change import Change as Change
    from versioned_state.repository.views.diff import Diff as Diff
    from versioned_state.repository.views.snapshot import Snapshot as Snapshot
    from versioned_state.state.live import Live as Live
    from versioned_state.state.open import (
        open as open,  # noqa: A004 - read as versioned_state.open
        open_async as open_async,
    )
    from versioned_state.state.sequence import StateSequence as StateSequence
    from versioned_state.state.shape.bounded import Bounded as Bounded
    from versioned_state.state.shape.migrations import Migrations as Migrations
    from versioned_state.state.shape.schema import Schema as Schema
    from versioned_state.state.state import State as State
    from versioned_state.state.versioned import Versioned as Versioned
    from versioned_state.storage import (
        Cache as Cache,
        Disk as Disk,
        KVStore as KVStore,
        Memory as Memory,
        open_store as open_store,
    )
    from versioned_state.values.codec.pickles import ObjectInfo as ObjectInfo
    from versioned_state.values.paths.path import StatePath as StatePath
    from versioned_state.values.typed.registry import register as register, register_module as register_module
    from versioned_state.values.typed.tagged import Tagged as Tagged
    from versioned_state.values.typed.why import explain as explain, is_data as is_data

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "agents.agent": "Agent",
            "agents.call": "Call",
            "agents.effects": "Happened effect effects forget_effect settle_effect",
            "agents.rollback": "RolledBack roll_back_effects",
            "agents.events.classes": "ActionEvent ClarifyEvent ErrorEvent FailEvent OutputEvent SuccessEvent "
            "TaskStartEvent TransitionEvent",
            "agents.events.log": "events",
            "agents.parallel": "Outcome parallel",
            "agents.patterns.event_sourcing": "EventSourced",
            "agents.patterns.state_machine": "StateMachine",
            "agents.tasks.round": "TaskClarify TaskFailed",
            "agents.tasks.task": "checkpoint current_state emit task",
            "agents.view": "view",
            "agents.workspace.workspace": "Workspace files_of",
            "errors": "StateError errors",
            "repository.history.commit": "Commit",
            "repository.history.signing": "Signer",
            "repository.inspect.bisect": "Skip",
            "repository.committing": "OnMoved",
            "repository.ledger": "EffectRecord",
            "repository.merging.merge": "MISSING Conflict Merge",
            "repository.names.branch_name": "branch_name",
            "repository.repository": "Repository",
            "repository.views.change": "Change",
            "repository.views.diff": "Diff",
            "repository.views.snapshot": "Snapshot",
            "state.live": "Live",
            "state.open": "open open_async",
            "state.sequence": "StateSequence",
            "state.shape.bounded": "Bounded",
            "state.shape.migrations": "Migrations",
            "state.shape.schema": "Schema",
            "state.state": "State",
            "state.versioned": "Versioned",
            "storage": "Cache Disk KVStore Memory open_store storage",
            "values.codec.pickles": "ObjectInfo",
            "values.paths.path": "StatePath",
            "values.typed.registry": "register register_module",
            "values.typed.tagged": "Tagged",
            "values.typed.why": "explain is_data",
        },
        unlisted="errors open storage",
    )
