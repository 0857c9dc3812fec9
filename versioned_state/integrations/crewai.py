"""``VersionedProvider`` and ``VersionedFlowPersistence`` for CrewAI: checkpoints, and the states of flows.

Needs the extra ``crewai``.

Layer: integrations.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from crewai.flow.persistence.base import FlowPersistence
from crewai.state.provider.json_provider import JsonProvider
from pydantic import BaseModel, PrivateAttr
from pydantic_core import to_jsonable_python

from versioned_state.arguments import count, string
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.integrations.adapter import Place, off_the_loop
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.message_log import MessageLog
from versioned_state.integrations.model_adapter import ModelAdapter
from versioned_state.repository.names.branch_name import branch_name

if TYPE_CHECKING:
    from crewai.flow.async_feedback.types import PendingFeedbackContext

check_version("crewai")

_CHECKPOINTS: Final = "crewai"
_FLOWS: Final = "crewai-flow"

_STATE: Final = "state"
_METHOD: Final = "method"
_PENDING: Final = "pending"
"""The key of the feedback that a flow waits for: its context, and the state at that time."""


class VersionedProvider(ModelAdapter, JsonProvider):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A provider of CrewAI's checkpoints: each is a commit with a tag, its parent the checkpoint that it follows.

    ::

        from versioned_state.integrations.crewai import VersionedProvider

        provider = VersionedProvider("./agent-state")
        crew = Crew(agents=agents, tasks=tasks, checkpoint=CheckpointConfig(location="trips", provider=provider))

    The location names a group of checkpoints, such as those of one crew. A checkpoint stores what is new since its
    parent. CrewAI accepts its own two providers only, so this class counts as its provider of JSON files; and it
    restores from files only, which ``export`` makes. A removed checkpoint stays in the history of those that follow it.
    S3 cannot hold checkpoints, as it makes no tag with a commit.

    Args:
        place: as for ``Adapter``.
    """

    _files: TemporaryDirectory[str] | None = PrivateAttr(default=None)

    def branch(self, location: str, branch: str = "main") -> str:
        """Return the name of the branch in the repository of one of CrewAI's branches at a location."""
        return branch_name(_CHECKPOINTS, string("location", location), string("branch", branch))

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Store a checkpoint. Returns its name: the location, ``#`` and the id.

        Raises:
            InvalidArgumentError: the data is not a JSON object.
        """
        values = json.loads(data)
        if not isinstance(values, dict):
            raise InvalidArgumentError("a checkpoint of CrewAI must be a JSON object")
        checkpoint_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}_{uuid4().hex[:8]}"
        meta = {"checkpoint": checkpoint_id, "location": location, "branch": branch}
        self._adapter.checkpoints.commit(
            self.branch(location, branch),
            values,
            message=str(values.get("trigger") or "checkpoint"),
            meta=meta,
            tag=_tag(location, checkpoint_id),
            after=None if parent_id is None else _tag(location, parent_id),
        )
        return f"{location}#{checkpoint_id}"

    acheckpoint = off_the_loop(checkpoint)

    def prune(self, location: str, max_keep: int, *, branch: str = "main") -> int:
        """Remove the checkpoints of a branch except the newest ones.

        Returns how many were removed. Cost: reads the heads of all.
        """
        keep = count("max_keep", max_keep)
        tags = self.repository.tags.iter_info(
            prefix=branch_name(_CHECKPOINTS, location) + "/", by="changed", where={"branch": branch}
        )
        old = [info.name for info in tags][keep:]
        self.repository.tags.delete_many(old)
        return len(old)

    def extract_id(self, location: str) -> str:
        return self._parts(location)[1]

    def from_checkpoint(self, location: str) -> str:
        """Return the JSON of a checkpoint.

        Raises:
            UnknownRevisionError: there is no checkpoint of that name.
        """
        commit = self._adapter.checkpoints.find(_tag(*self._parts(location)))
        if commit is None:
            raise UnknownRevisionError(location)
        return json.dumps(dict(self.repository.snapshot(commit)))

    afrom_checkpoint = off_the_loop(from_checkpoint)

    def export(self, location: str) -> str:
        """Write a checkpoint to a file, and return its path, for ``CheckpointConfig(restore_from=…)``.

        ``close`` removes the file.

        Raises:
            UnknownRevisionError: there is no checkpoint of that name.
        """
        data = self.from_checkpoint(location)
        if self._files is None:
            self._files = TemporaryDirectory(prefix="versioned-state-")
        # CrewAI takes the id from the name of the file
        path = Path(self._files.name) / f"{self.extract_id(location)}_p-none.json"
        path.write_text(data, encoding="utf-8")
        return str(path)

    def close(self) -> None:
        """Close the store, if this object opened it, and remove exported files."""
        super().close()
        if self._files is not None:
            self._files.cleanup()
            self._files = None

    def _parts(self, location: str) -> tuple[str, str]:
        """Return the location and the id that the name of a checkpoint stands for."""
        where, mark, checkpoint_id = string("location", location).rpartition("#")
        if not mark:
            raise InvalidArgumentError(
                f"{location!r:.80} is not the name of a checkpoint", hint="checkpoint() returns it: LOCATION#ID"
            )
        return where, checkpoint_id


class VersionedFlowPersistence(ModelAdapter, FlowPersistence):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A persistence of CrewAI's flows: a flow is a branch, and each method that has ended is a commit.

    ::

        from versioned_state.integrations.crewai import VersionedFlowPersistence

        @persist(VersionedFlowPersistence("./agent-state"))
        class Trip(Flow[TripState]): ...

    The state of a flow is the dict ``state`` of its branch, in the form that it has in JSON, as with CrewAI's own
    persistence. Feedback that a flow waits for lies beside it, and both are stored in one step. Any number of threads
    and processes may use one store.

    Args:
        place: as for ``Adapter``.
    """

    persistence_type: str = "VersionedFlowPersistence"
    _log: MessageLog = PrivateAttr()

    def __init__(self, place: Place, **fields: Any) -> None:
        super().__init__(place, **fields)
        self._log = MessageLog(self._adapter.writers)

    def branch(self, flow_uuid: str) -> str:
        """Return the name of a flow's branch in the repository."""
        return branch_name(_FLOWS, string("flow_uuid", flow_uuid))

    def init_db(self) -> None:
        """Do nothing: a repository needs no tables."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """Store the state of a flow after one of its methods."""
        values = {_STATE: _as_json(state_data), _METHOD: method_name}
        self._update(flow_uuid, values, method_name)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the state of a flow that was stored last, or None if there is none."""
        found: dict[str, Any] | None = self._log.at_head(
            self.branch(flow_uuid), lambda snapshot: snapshot.get(_STATE), None
        )
        return found

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Store the state of a flow, and that it waits for feedback, in one step."""
        state = _as_json(state_data)
        pending = {"context": _as_json(context.to_dict()), _STATE: state}
        values = {_STATE: state, _METHOD: context.method_name, _PENDING: pending}
        self._update(flow_uuid, values, f"{context.method_name} waits for feedback")

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state of a flow when it began to wait for feedback, and the context. None if it does not wait."""
        from crewai.flow.async_feedback.types import PendingFeedbackContext

        found = self._log.at_head(self.branch(flow_uuid), lambda snapshot: snapshot.get(_PENDING), None)
        return None if found is None else (found[_STATE], PendingFeedbackContext.from_dict(found["context"]))

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Note that a flow no longer waits."""
        if self.load_pending_feedback(flow_uuid) is not None:
            self._log.edit(
                self.branch(flow_uuid), lambda state: (state.pop(_PENDING, None), "feedback came"), create=False
            )

    def _update(self, flow_uuid: str, values: dict[str, Any], message: str) -> None:
        self._log.edit(self.branch(flow_uuid), lambda state: (state.update(values), message))


def _tag(location: str, checkpoint_id: str) -> str:
    return branch_name(_CHECKPOINTS, string("location", location), checkpoint_id)


def _as_json(state: dict[str, Any] | BaseModel) -> dict[str, Any]:
    if not isinstance(state, dict | BaseModel):
        raise InvalidArgumentError(
            f"the state of a flow must be a dict or a model of pydantic, not {type(state).__name__}"
        )
    found: dict[str, Any] = to_jsonable_python(state, fallback=str)
    return found
