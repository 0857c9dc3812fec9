"""``VersionedConversationStore``: conversations of pydantic-ai, each a branch.

Needs the extra ``pydantic-ai``. Layer: integrations.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, overload

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from versioned_state.arguments import string
from versioned_state.errors import UnknownRevisionError
from versioned_state.integrations.adapter import Adapter, Place, check_trusted
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.message_log import MESSAGES
from versioned_state.off_loop import off_loop
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.names.listing import Order
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.services.calls.heads import at_head, head_of, unless_erased
from versioned_state.state.versioned import Versioned
from versioned_state.values.codec.trust import TrustedModules

if TYPE_CHECKING:
    from pydantic_ai.conversation import Conversation

check_version("pydantic_ai")

_PREFIX: Final = "pydantic-ai"
_CLASSES: Final = ("pydantic_ai", "genai_prices")
_IDS: Final = "ids"
"""The key of the ids of entries, one for each message."""

_LEFT: Final = "left"
"""The key of the histories that a conversation has left, by the id of their last entry.

Each has the number of entries that it shares with the present history, and those that follow.
"""

_RECORD: Final = "record"
"""The key of the record, without what the other keys have."""

_KNOWN: Final = 10_000
"""Entries whose conversation is kept in memory.

An entry does not say where it is, and to search for it reads all conversations.
"""


class VersionedConversationStore(Adapter, ConversationStore):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A conversation store of pydantic-ai: a conversation is a branch with a list ``messages``, each save a commit.

    ::

        from versioned_state.integrations.pydantic_ai import VersionedConversationStore

        store = VersionedConversationStore("./agent-state")
        conversation = await store.load("trip") or Conversation(conversation_id="trip")
        result = await agent.run("A room in Rome, please.", conversation=conversation)
        await store.save(result)

    A save costs the messages that are new. Any number of threads and processes may use one store. If two save one
    conversation at once, one of them gets ``ConversationConflict``. A deleted conversation stays in the reflog for 30
    days; ``repository.purge`` erases it.

    Args:
        place: as for ``Adapter``.
        classes: modules of your own classes that messages hold, such as results of tools; those of pydantic-ai need not
            be named.

    Raises:
        InvalidArgumentError: the place is a ``Repository`` that reads no classes of pydantic-ai.
    """

    def __init__(self, place: Place, *, classes: TrustedModules = ()) -> None:
        super().__init__(place, classes=classes, own=_CLASSES)
        check_trusted(self.repository, _CLASSES[:1])
        self._homes = _Homes()

    @overload
    def branch(self, conversation_id: str) -> str: ...
    @overload
    def branch(
        self, conversation_id: str, *, expected_revision: str | None, **options: Any
    ) -> Coroutine[Any, Any, Conversation]: ...
    def branch(self, conversation_id: str, **options: Any) -> str | Coroutine[Any, Any, Conversation]:
        """Return the name of a conversation's branch in the repository.

        With ``expected_revision``, continue the conversation from an earlier message: pydantic-ai's own call of this
        name, a coroutine.
        """
        return super().branch(conversation_id, **options) if options else self._name(conversation_id)

    def _name(self, conversation_id: str) -> str:
        return branch_name(_PREFIX, string("conversation_id", conversation_id))

    # What pydantic-ai builds its calls on

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await off_loop(partial(self._read_at, self._name(conversation_id)))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the stored records, or those with a scope, newest first, at most ``limit``.

        Cost: the heads that it passes over.
        """

        def read() -> list[ConversationRecord]:
            found: list[ConversationRecord] = []
            for branch in self._branches(by="changed"):
                if limit is not None and len(found) >= limit:
                    break
                record = self._read_at(branch)
                if record is not None and (scope is None or record.scope == scope):
                    found.append(record)
            return sorted(found, key=lambda record: record.updated_at, reverse=True)

        return await off_loop(read)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries: both, or neither."""
        entries = list(new_entries)
        await off_loop(lambda: self._write(record, entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation: its record and its entries.

        Forks of it keep theirs. The reflog has it until it expires.
        """
        branch = self._name(conversation_id)

        def check(_: object, head: Commit) -> None:
            record = self._record(branch, head)
            if record is None or record.revision != expected_revision:
                raise ConversationConflict(conversation_id)

        def delete() -> None:
            try:
                unless_erased(lambda: self.repository.branches.remove(branch, check))
            except UnknownRevisionError:
                raise ConversationConflict(conversation_id) from None

        await off_loop(delete)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return the entry with an id. Raises ``KeyError`` if there is none. Cost: as ``read_history``."""
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to one, oldest first, or only the last ``limit`` of them.

        Raises ``KeyError`` if there is no such entry.

        Cost: of a conversation that was read lately, the entries; of any other, a search of all conversations.
        """
        if head_id is None or limit == 0:
            return []
        return await off_loop(lambda: self._history(head_id, limit))

    # Reading

    def _branches(self, *, by: Order = "name") -> Iterator[str]:
        return (info.name for info in self.repository.branches.iter_info(prefix=f"{_PREFIX}/", by=by))

    def _read_at(self, branch: str) -> ConversationRecord | None:
        return at_head(self.repository.database, branch, partial(self._record, branch), None)

    def _record(self, branch: str, head: Commit) -> ConversationRecord | None:
        """Return the record of a commit, or None if a commit that this class did not make has none."""
        snapshot = self.repository.snapshot(head)
        record: ConversationRecord | None = snapshot.get(_RECORD)
        if record is None:
            return None
        ids = snapshot.sequence(_IDS)
        record = replace(record, head_id=ids[-1] if ids else None, branches=list(snapshot.get(_LEFT, ())))
        self._homes.add(branch, [*record.branches, *ids[-1:]])
        return record

    def _history(self, entry_id: str, limit: int | None) -> list[ConversationEntry]:
        for branch in self._where(entry_id):
            line = at_head(
                self.repository.database,
                branch,
                lambda head: _line_of(self.repository.snapshot(head), entry_id, limit),
                None,
            )
            if line is not None:
                self._homes.add(branch, [entry_id])
                return line
        raise KeyError(entry_id)

    def _where(self, entry_id: str) -> Iterator[str]:
        """Iterate over the branches that may have an entry, first that in which it was seen last."""
        home = self._homes.get(entry_id)
        if home is not None:
            yield home
        yield from self._branches()

    # Writing

    def _write(self, record: ConversationRecord, new: list[ConversationEntry], expected: str | None) -> None:
        branch = self._name(record.conversation_id)
        line, base = _new_line(record.head_id, new)

        def commit(state: Versioned) -> None:
            stored = None if state.head.id == ROOT_ID else self._record(branch, state.head)
            if (None if stored is None else stored.revision) != expected:
                raise ConversationConflict(record.conversation_id)
            source = None
            if stored is None or base != stored.head_id or record.branches != stored.branches:
                source = self._rewrite(state, record, base)
            state.sequence(_IDS).extend(entry.id for entry in line)
            state.sequence(MESSAGES).extend(entry.message for entry in line)
            state[_RECORD] = replace(record, head_id=None, branches=[])
            message = f"messages +{len(line)}" if line else "record"
            state.commit(message, on_moved=OnMoved.REFUSE, parent=source if stored is None else None)

        self.writers.write(branch, commit)
        self._homes.add(branch, [entry.id for entry in line])

    def _rewrite(self, state: Versioned, record: ConversationRecord, base: str | None) -> Commit | None:
        """Set the messages to those up to an entry, and the histories that were left.

        Returns the commit that has the entry.
        """
        own = self.repository.snapshot(state.head)
        source, kept = state.head, [] if base is None else _line_of(own, base)
        # an entry of another conversation: this one is its fork
        for branch in () if kept is not None else self._where(base or ""):
            found = head_of(self.repository.database, branch)
            kept = None if found is None else _line_of(self.repository.snapshot(found), base or "")
            if found is not None and kept is not None:
                source = found
                break
        left = {tip: _line_of(own, tip) for tip in record.branches}
        if kept is None or None in left.values():
            raise ConversationConflict(record.conversation_id)  # a delete or another rewrite has released the entry
        ids = [entry.id for entry in kept]
        state[_IDS], state[MESSAGES] = ids, [entry.message for entry in kept]
        state.pop(_LEFT, None)
        if left:
            state[_LEFT] = {tip: _after(ids, line or []) for tip, line in left.items()}
        return None if source.id == ROOT_ID else source


# Lines of entries


def _new_line(head_id: str | None, new: list[ConversationEntry]) -> tuple[list[ConversationEntry], str | None]:
    """Return the new entries that lead to a head, oldest first, and the id of the entry that they follow."""
    entries = {entry.id: entry for entry in new}
    line = []
    while head_id is not None and head_id in entries:
        line.append(entries.pop(head_id))
        head_id = line[-1].parent_id
    return line[::-1], head_id


def _line_of(snapshot: Snapshot, entry_id: str, limit: int | None = None) -> list[ConversationEntry] | None:
    """Return the entries of a conversation up to one, oldest first, or only the last ones.

    None if it does not have that entry.
    """
    kept, messages = snapshot.sequence(_IDS), snapshot.sequence(MESSAGES)
    if kept and kept[-1] == entry_id:
        start = 0 if limit is None else max(len(kept) - limit, 0)
        return _entries(kept[max(start - 1, 0) :], messages[start:])
    ids = list(kept)
    for left in (None, *snapshot.get(_LEFT, {}).values()):
        line = ids if left is None else [*ids[: left["shared"]], *left["ids"]]
        if entry_id in line:
            end = line.index(entry_id) + 1
            start = 0 if limit is None else max(end - limit, 0)
            all_messages = messages if left is None else [*messages[: left["shared"]], *left["messages"]]
            return _entries(line[max(start - 1, 0) : end], all_messages[start:end])
    return None


def _entries(ids: list[str], messages: list[Any]) -> list[ConversationEntry]:
    """Return entries of these messages. The ids have one more at the beginning if an entry precedes the first one."""
    before = [None, *ids][: len(messages)] if len(ids) == len(messages) else ids[:-1]
    own = ids[-len(messages) :] if messages else []
    return [
        ConversationEntry(id=id, parent_id=parent, message=each)
        for id, parent, each in zip(own, before, messages, strict=True)
    ]


def _after(ids: list[str], line: list[ConversationEntry]) -> dict[str, Any]:
    """Return what a history has beyond the entries that it shares with the present one."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].id, zip(ids, line, strict=False)))
    return {
        "shared": shared,
        "ids": [entry.id for entry in line[shared:]],
        "messages": [entry.message for entry in line[shared:]],
    }


class _Homes:
    """The conversation of each of the entries that were seen last. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._branches: OrderedDict[str, str] = OrderedDict()

    def add(self, branch: str, entries: Iterable[str]) -> None:
        with self._lock:
            for entry in entries:
                self._branches[entry] = branch
                self._branches.move_to_end(entry)
            while len(self._branches) > _KNOWN:
                self._branches.popitem(last=False)

    def get(self, entry: str) -> str | None:
        with self._lock:
            return self._branches.get(entry)
