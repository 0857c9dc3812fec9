"""``VersionedMemory``: the working memory of an agent of AgentScope, a branch.

Needs the extra ``agentscope``. Layer: integrations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

from agentscope.memory import MemoryBase
from agentscope.message import Msg

from versioned_state.arguments import string
from versioned_state.integrations.adapter import Adapter, Place
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.message_log import MESSAGES, MessageLog
from versioned_state.off_loop import off_loop
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.sequence import StateSequence
from versioned_state.state.versioned import Versioned

check_version("agentscope")

T = TypeVar("T")

_PREFIX: Final = "agentscope"
_MARKS: Final = "marks"
"""The key of the marks of a message, if it has any."""

_SUMMARY: Final = "summary"
"""The key of the summary of the messages that were compressed."""


class VersionedMemory(MemoryBase, Adapter):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A memory of AgentScope: its messages are the list ``messages`` of a branch, and each change of them is a commit.

    ::

        from versioned_state.integrations.agentscope import VersionedMemory

        memory = VersionedMemory("./agent-state", "session-1")
        agent = ReActAgent("Friday", prompt, model, formatter, memory=memory)

    Messages are kept as the dicts that AgentScope makes of them, with their marks. Any number of tasks, threads and
    processes may use one memory: hand them one ``Repository``, or the path or URL to each. Messages that were deleted
    stay in the history of the branch.

    Unlike a memory in memory, this one needs no session to be saved and loaded with. A session that saves its agent has
    its summary only.

    Args:
        place: as for ``Adapter``.
        session_id: any text.
        user_id: the user of the session, if ids of sessions are not unique without.
    """

    def __init__(self, place: Place, session_id: str, user_id: str = "") -> None:
        MemoryBase.__init__(self)
        Adapter.__init__(self, place)
        self.session_id: str = string("session_id", session_id)
        self.user_id: str = string("user_id", user_id)
        self._log = MessageLog(self.writers)

    def branch(self, session_id: str | None = None, user_id: str | None = None) -> str:
        """Return the name of the branch in the repository of a session, by default of this one and of this user."""
        user = self.user_id if user_id is None else string("user_id", user_id)
        return branch_name(_PREFIX, user, self.session_id if session_id is None else string("session_id", session_id))

    async def add(
        self,
        memories: Msg | list[Msg] | None,
        marks: str | list[str] | None = None,
        allow_duplicates: bool = False,  # noqa: FBT001, FBT002 - as in InMemoryMemory
        **kwargs: Any,
    ) -> None:
        """Append messages, in one commit, each with these marks.

        Args:
            allow_duplicates: also append those whose id the memory already has. Otherwise the call reads all messages.
        """
        wanted = _texts("marks", marks)
        given = [
            {**each.to_dict(), _INVOCATION: each.invocation_id}
            for each in ([memories] if isinstance(memories, Msg) else memories or ())
        ]
        given = [_message(each, wanted) for each in given]

        def append(messages: StateSequence) -> None:
            there = set() if allow_duplicates else {message["id"] for message in messages}
            messages.extend(message for message in given if message["id"] not in there)

        if given:
            await self._change(append)

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
        """Remove the messages with these ids, in one commit. Returns how many there were."""
        return await self._remove(lambda message: message["id"] in msg_ids)

    async def delete_by_mark(self, mark: str | list[str], *args: Any, **kwargs: Any) -> int:
        """Remove the messages with one of these marks, in one commit. Returns how many there were."""
        wanted = _texts("mark", mark)
        return await self._remove(lambda message: not _without(message, wanted))

    async def size(self) -> int:
        """Return the number of messages."""
        return await self._read(lambda snapshot: len(snapshot.sequence(MESSAGES)), 0)

    async def clear(self) -> None:
        """Remove all messages. The history keeps them, and the summary stays."""
        await self._remove(lambda _: True)

    async def get_memory(
        self,
        mark: str | None = None,
        exclude_mark: str | None = None,
        prepend_summary: bool = True,  # noqa: FBT001, FBT002 - as in the base class
        **kwargs: Any,
    ) -> list[Msg]:
        """Return the messages, oldest first: all, or those with a mark, or without one.

        Args:
            prepend_summary: begin with a message that has the summary, if there is one.
        """
        with_mark, without_mark = (
            _texts("mark", mark, several=False),
            _texts("exclude_mark", exclude_mark, several=False),
        )

        def read(snapshot: Snapshot) -> tuple[str, list[dict[str, Any]]]:
            return snapshot.get(_SUMMARY, ""), snapshot.get(MESSAGES, [])

        nothing: tuple[str, list[dict[str, Any]]] = ("", [])
        self._compressed_summary, kept = await self._read(read, nothing)
        found = [
            Msg.from_dict(message)
            for message in kept
            if (not with_mark or not _without(message, with_mark)) and _without(message, without_mark)
        ]
        if prepend_summary and self._compressed_summary:
            return [Msg("user", self._compressed_summary, "user"), *found]
        return found

    async def update_compressed_summary(self, summary: str) -> None:
        """Keep a summary of the messages that were compressed."""
        text = string("summary", summary)

        def update(state: Versioned) -> tuple[None, str]:
            state[_SUMMARY] = text
            return None, "summary"

        await off_loop(lambda: self._log.edit(self.branch(), update))
        self._compressed_summary = text

    async def update_messages_mark(
        self, new_mark: str | None, old_mark: str | None = None, msg_ids: list[str] | None = None
    ) -> int:
        """Add, replace or remove a mark, in one commit. Returns how many messages were changed.

        Args:
            new_mark: the mark that messages get. None removes ``old_mark``.
            old_mark: change the messages with this mark only, and take it from them.
            msg_ids: change the messages with these ids only.
        """
        new, old = _texts("new_mark", new_mark, several=False), _texts("old_mark", old_mark, several=False)

        def update(messages: StateSequence) -> int:
            changed = 0
            for at, message in enumerate(list(messages)):
                marks = message.get(_MARKS, [])
                if (msg_ids is not None and message["id"] not in msg_ids) or not set(old) <= set(marks):
                    continue
                kept = [each for each in marks if each not in old]
                kept += [each for each in new if each not in kept]
                if kept != marks:
                    messages[at] = _message(message, kept)
                    changed += 1
            return changed

        return await self._change(update, "marks")

    async def _remove(self, is_wanted: Callable[[dict[str, Any]], bool]) -> int:
        def remove(messages: StateSequence) -> int:
            there = [at for at, message in enumerate(messages) if is_wanted(message)]
            for at in reversed(there):
                del messages[at]
            return len(there)

        return await self._change(remove)

    async def _change(self, change: Callable[[StateSequence], T], message: str = "") -> T:
        branch = self.branch()
        return await off_loop(lambda: self._log.change(branch, change, message))

    async def _read(self, read: Callable[[Snapshot], T], absent: T) -> T:
        return await off_loop(partial(self._log.at_head, self.branch(), read, absent))


_INVOCATION: Final = "invocation_id"
"""A field of messages that AgentScope leaves out of its dicts, and takes from them."""


def _message(message: dict[str, Any], marks: list[str]) -> dict[str, Any]:
    """Return a message with these marks and no others."""
    kept = {
        name: value for name, value in message.items() if name != _MARKS and (name != _INVOCATION or value is not None)
    }
    return {**kept, _MARKS: list(marks)} if marks else kept


def _without(message: dict[str, Any], marks: Collection[str]) -> bool:
    return not set(marks) & set(message.get(_MARKS, ()))


def _texts(name: str, value: Any, *, several: bool = True) -> list[str]:
    """Return marks as a list. Raises ``TypeError``, as AgentScope's memories do."""
    found = [] if value is None else [value] if isinstance(value, str) else value
    if (
        not isinstance(found, list)
        or (found is value and not several)
        or not all(isinstance(each, str) for each in found)
    ):
        raise TypeError(
            f"{name} must be a string{' or a list of strings' if several else ''}, or None, not {type(value).__name__}"
        )
    return found
