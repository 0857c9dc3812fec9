"""``VersionedCheckpointStorage`` and ``VersionedHistoryProvider`` for Microsoft Agent Framework.

Needs the extra ``agent-framework``.

Layer: integrations.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    HistoryProvider,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
)

from versioned_state.arguments import count, string
from versioned_state.errors import RefExistsError, StateError, UnknownRevisionError
from versioned_state.integrations.adapter import Adapter, Place, check_trusted
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.message_log import MessageLog
from versioned_state.off_loop import off_loop
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.values.codec.trust import TrustedModules
from versioned_state.values.typed.registry import register
from versioned_state.values.typed.tagged import Tagged

if TYPE_CHECKING:
    from versioned_state.state.sequence import StateSequence

check_version("agent_framework")

_CHECKPOINTS: Final = "agent-framework"
_HISTORIES: Final = "agent-framework-history"
_CLASSES: Final = ("agent_framework", "agent_framework_orchestrations", "openai")

_IN_META: Final = {
    "workflow": "workflow_name",
    "checkpoint": "checkpoint_id",
    "previous": "previous_checkpoint_id",
    "time": "timestamp",
}
"""The fields of a checkpoint in the meta of its commit: those that are new in each, so a diff shows the others."""

_IN_STATE: Final = (
    "graph_signature_hash",
    "iteration_count",
    "messages",
    "metadata",
    "pending_request_info_events",
    "state",
    "version",
)


class VersionedCheckpointStorage(Adapter):
    """A checkpoint storage of Microsoft Agent Framework: a checkpoint is a commit, a workflow the branch of its latest.

    ::

        from versioned_state.integrations.agent_framework import VersionedCheckpointStorage

        storage = VersionedCheckpointStorage("./agent-state")
        workflow = WorkflowBuilder(start_executor=start, checkpoint_storage=storage).build()

    The parent of a checkpoint is the previous one, so the log of a workflow is the line of its latest run, and a diff
    shows what a step changed. Each checkpoint has a tag. A save stores what is new since the previous checkpoint. Any
    number of processes and machines may use one storage. A deleted checkpoint stays in the history of those that follow
    it. S3 cannot hold checkpoints, as it makes no tag with a commit.

    Args:
        place: as for ``Adapter``.
        classes: modules of your own classes in states and messages, such as ``"my_app.models"``.

    Raises:
        InvalidArgumentError: the place is a ``Repository`` that reads no classes of Agent Framework.
    """

    def __init__(self, place: Place, *, classes: TrustedModules = ()) -> None:
        super().__init__(place, classes=classes, own=_CLASSES)
        check_trusted(self.repository, _CLASSES[:1])

    def branch(self, workflow_name: str) -> str:
        """Return the name of a workflow's branch in the repository."""
        return branch_name(_CHECKPOINTS, string("workflow_name", workflow_name))

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint, and return its id. One with the id of another takes its place.

        Raises:
            WorkflowCheckpointException: a value cannot be stored; the error names its path. Nothing was stored.
        """
        await off_loop(partial(self._save, checkpoint))
        found: str = checkpoint.checkpoint_id
        return found

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint.

        Raises:
            WorkflowCheckpointException: there is none of that id, or it has values of classes whose module must be
                named first.
        """

        def load() -> WorkflowCheckpoint:
            commit = self.checkpoints.find(_tag(checkpoint_id))
            if commit is None:
                raise WorkflowCheckpointException(f"there is no checkpoint {checkpoint_id!r:.80}")
            return self._checkpoint(commit)

        return await off_loop(load)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, in the order in which they were saved.

        Cost: reads the heads of all checkpoints.
        """
        return await off_loop(lambda: [self._checkpoint(commit) for commit in self._commits(workflow_name)])

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint. Returns whether there was one."""

        def delete() -> bool:
            try:
                self.repository.tags.delete(_tag(checkpoint_id))
            except UnknownRevisionError:
                return False
            return True

        return await off_loop(delete)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint of a workflow with the latest time, or None if it has none.

        Cost: reads the heads of all checkpoints.
        """

        def latest() -> WorkflowCheckpoint | None:
            found = self._commits(workflow_name)
            return (
                self._checkpoint(max(found, key=lambda commit: datetime.fromisoformat(commit.meta["time"])))
                if found
                else None
            )

        return await off_loop(latest)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints, in the order in which they were saved.

        Cost: reads the heads of all checkpoints.
        """
        return await off_loop(lambda: [str(commit.meta["checkpoint"]) for commit in self._commits(workflow_name)])

    def _commits(self, workflow_name: str) -> list[Commit]:
        tags = self.repository.tags.iter_info(
            prefix=f"{_CHECKPOINTS}/",
            by="changed",
            reverse=True,
            where={"workflow": string("workflow_name", workflow_name)},
        )
        return [info.head for info in tags]

    def _save(self, checkpoint: WorkflowCheckpoint) -> None:
        tag, previous = _tag(checkpoint.checkpoint_id), checkpoint.previous_checkpoint_id
        while True:
            try:
                self.checkpoints.commit(
                    self.branch(checkpoint.workflow_name),
                    {name: getattr(checkpoint, name) for name in _IN_STATE},
                    message=f"iteration {checkpoint.iteration_count}",
                    meta={key: getattr(checkpoint, name) for key, name in _IN_META.items()},
                    tag=tag,
                    after=None if previous is None else _tag(previous),
                )
            except RefExistsError:
                self.repository.tags.delete_many([tag])  # saved again, under the same id
            except StateError as error:
                raise WorkflowCheckpointException(
                    f"the checkpoint {checkpoint.checkpoint_id!r:.80} was not stored: {error}"
                ) from error
            else:
                return

    def _checkpoint(self, commit: Commit) -> WorkflowCheckpoint:
        fields = dict(self.repository.snapshot(commit))
        unknown = sorted(_unknown_classes(fields))
        if unknown:
            raise WorkflowCheckpointException(
                f"the checkpoint {commit.meta['checkpoint']!r:.80} has values of {', '.join(unknown)}, "
                "which are not read: "
                "VersionedCheckpointStorage(…, "
                f"classes={sorted({name.partition(':')[0] for name in unknown})}) reads them"
            )
        return WorkflowCheckpoint(**fields, **{name: commit.meta[key] for key, name in _IN_META.items()})


class VersionedHistoryProvider(HistoryProvider, Adapter):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A history provider of Microsoft Agent Framework: the messages of a session are the list ``messages`` of a branch.

    ::

        from versioned_state.integrations.agent_framework import VersionedHistoryProvider

        agent = Agent(client, context_providers=[VersionedHistoryProvider("./agent-state")])

    Messages are kept as the dicts that the framework makes of them. As by its other providers, what is saved again is
    not kept twice. Any number of tasks, threads and processes may save to one session.

    Args:
        place: as for ``Adapter``.
        source_id: the name of the provider among those of an agent.
        limit: the model gets this many messages, the newest ones. By default all.
        options: those of ``HistoryProvider``.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "versioned_state"

    def __init__(
        self, place: Place, source_id: str = DEFAULT_SOURCE_ID, *, limit: int | None = None, **options: Any
    ) -> None:
        HistoryProvider.__init__(self, source_id, **options)
        Adapter.__init__(self, place)
        self._last = None if limit is None else count("limit", limit)
        self._log = MessageLog(self.writers)

    def branch(self, session_id: str | None) -> str:
        """Return the name of a session's branch in the repository."""
        return branch_name(_HISTORIES, "" if session_id is None else string("session_id", session_id))

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the messages of a session, oldest first: all, or as many as ``limit`` says."""
        found = await off_loop(partial(self._log.read, self.branch(session_id), self._last))
        return [Message.from_dict(data) for data in found]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Append messages to a session, in one commit, except those with which it ends already."""
        given = [message.to_dict() for message in messages]

        def add(kept: StateSequence) -> None:
            last = kept[max(len(kept) - len(given), 0) :]
            kept.extend(given[_overlap(last, given) :])

        await off_loop(lambda: self._log.change(self.branch(session_id), add))


def _overlap(last: list[dict[str, Any]], given: list[dict[str, Any]]) -> int:
    """Return the number of the given messages with which a history already ends: a repeated run, or all over again.

    A single message of a user without an id is not taken for a repetition: people say "yes" twice.
    """
    for length in range(min(len(last), len(given)), 0, -1):
        same = last[len(last) - length :] == given[:length]
        if same and not (length == 1 and given[0].get("role") == "user" and not given[0].get("message_id")):
            return length
    return 0


def _tag(checkpoint_id: str) -> str:
    return branch_name(_CHECKPOINTS, string("checkpoint_id", checkpoint_id))


_ATOMS: Final = frozenset({str, bytes, int, float, bool, type(None)})
"""The types of most values, which have no parts."""


def _unknown_classes(value: Any) -> set[str]:
    """Return the names of the classes in a value that were not read as what they are."""
    found, rest, seen = set(), [value], set()
    while rest:
        each = rest.pop()
        if type(each) in _ATOMS or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Tagged):
            found.add(each.name)
        elif isinstance(each, Mapping):
            rest += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            rest += each
        elif not isinstance(each, str | bytes | int | float | type):
            rest += getattr(each, "__dict__", {}).values()
            rest += [getattr(each, name) for name in getattr(each, "__slots__", ()) if hasattr(each, name)]
    return found


# Classes of the framework that have a pickled form of their own: that form is data, and what makes it is the
# framework's.


def _event_data(event: WorkflowEvent[Any]) -> dict[str, Any]:
    """Return the fields of an event, with names instead of classes."""
    fields = {name: value for name, value in vars(event).items() if name != "__orig_class__"}
    names = {
        name: f"{value.__module__}:{value.__qualname__}" for name, value in fields.items() if isinstance(value, type)
    }
    return {**fields, **names, "classes": sorted(names)} if names else fields


def _event(fields: dict[str, Any]) -> WorkflowEvent[Any]:
    """Make an event of such fields. Its class must be in a loaded module, because nothing is imported."""
    for name in fields.pop("classes", ()):
        module, _, path = fields[name].partition(":")
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type):
            raise WorkflowCheckpointException(
                f"the class {fields[name]} of a request is not there: import {module} first"
            )
        fields[name] = found
    event = WorkflowEvent.__new__(WorkflowEvent)
    vars(event).update(fields)
    return event


_NO_CONTENT: Final = dict.fromkeys(vars(Content.from_text("")))
"""The fields of a content: some fifty, of which most are None. These are not kept, so that a diff shows the others."""


def _content_data(content: Content) -> dict[str, Any]:
    return {
        name: value for name, value in content.__getstate__().items() if value is not None or name not in _NO_CONTENT
    }


def _content(fields: dict[str, Any]) -> Content:
    return _restored(Content, {**_NO_CONTENT, **fields})


def _restored(cls: Any, fields: dict[str, Any]) -> Any:
    value = cls.__new__(cls)
    value.__setstate__(fields)
    return value


def _register() -> None:
    register(WorkflowEvent, to_data=_event_data, from_data=_event)
    register(Content, to_data=_content_data, from_data=_content)
    for cls in (AgentResponse, AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Message):
        register(cls, to_data=lambda value: value.__getstate__(), from_data=partial(_restored, cls))


_register()
