"""``VersionedChatStore`` and ``VersionedDBChatStore``: chat stores of LlamaIndex whose keys are branches.

Needs the extra ``llama-index``.

Layer: integrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeVar

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from versioned_state.arguments import string
from versioned_state.integrations.adapter import Place, off_the_loop
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.message_log import MESSAGES, MessageLog
from versioned_state.integrations.model_adapter import ModelAdapter
from versioned_state.off_loop import off_loop
from versioned_state.repository.names.branch_name import branch_name

if TYPE_CHECKING:
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.state.sequence import StateSequence
    from versioned_state.state.versioned import Versioned

T = TypeVar("T")

check_version("llama_index")

_PREFIX: Final = "llama-index"


class _Kept(ModelAdapter):
    """The base of both stores: an object of LlamaIndex over a repository."""

    _log: MessageLog = PrivateAttr()

    def __init__(self, place: Place, **data: Any) -> None:
        super().__init__(place, **data)
        self._log = MessageLog(self._adapter.writers)

    def branch(self, key: str) -> str:
        """Return the name of a key's branch in the repository."""
        return branch_name(_PREFIX, string("key", key))


class VersionedChatStore(_Kept, BaseChatStore):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A chat store of LlamaIndex: a key's messages are the list ``messages`` of a branch, and each change is a commit.

    ::

        from versioned_state.integrations.llama_index import VersionedChatStore

        chat_store = VersionedChatStore("./agent-state")
        memory = ChatMemoryBuffer.from_defaults(chat_store=chat_store, chat_store_key="user-123")

    A message is kept as the dict that LlamaIndex makes of it for JSON, as in its stores in databases. To add one costs
    the message. Any number of threads and processes may use one store. What is deleted stays in history until it is
    purged.

    Args:
        place: as for ``Adapter``.
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, as each component of LlamaIndex does."""
        return "VersionedChatStore"

    # The interface of chat stores

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the messages. Those at the beginning that stay as they are cost nothing in the store."""
        given = [_data(message) for message in messages]
        self._log.change(self.branch(key), partial(_replace, given), thread=key)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages, oldest first."""
        return _messages(self._log.read(self.branch(key)))

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Append a message, or insert it before another one, as ``SimpleChatStore`` does."""
        data = _data(message)

        def add(kept: StateSequence) -> None:
            kept.insert(len(kept) if idx is None else idx, data)

        self._log.change(self.branch(key), add, thread=key)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete the messages and the key, and return them. Returns None if there is no such key."""
        found = self._log.delete(self.branch(key))
        return None if found is None else _messages(found.get(MESSAGES, []))

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete a message and return it. Returns None if there is none."""

        def delete(kept: StateSequence) -> Any:
            return kept.pop(idx) if -len(kept) <= idx < len(kept) else None

        found = self._log.change(self.branch(key), delete)
        return None if found is None else ChatMessage.model_validate(found)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the last message and return it. Returns None if there is none."""
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        """List the keys, by name. Cost: the branches, and a read of each whose key is longer than 63 bytes."""
        return self._log.threads(f"{_PREFIX}/")

    aset_messages = off_the_loop(set_messages)
    aget_messages = off_the_loop(get_messages)
    async_add_message = off_the_loop(add_message)
    adelete_messages = off_the_loop(delete_messages)
    adelete_message = off_the_loop(delete_message)
    adelete_last_message = off_the_loop(delete_last_message)
    aget_keys = off_the_loop(get_keys)


class VersionedDBChatStore(_Kept, AsyncDBChatStore):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """The store of a LlamaIndex ``Memory``: a branch with the lists ``messages`` and, for the oldest, ``archived``.

    ::

        from versioned_state.integrations.llama_index import VersionedDBChatStore

        store = VersionedDBChatStore("./agent-state")
        memory = Memory.from_defaults(session_id="user-123", chat_store=store)

    The active messages of a key are those that a ``VersionedChatStore`` over the same repository has under it. The rest
    is as in that class. Archiving is one commit.

    Args:
        place: as for ``Adapter``.
    """

    @classmethod
    def class_name(cls) -> str:
        return "VersionedDBChatStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages of a status, or the archived ones and then the active ones, oldest first.

        Cost: the messages that it returns.

        Args:
            limit: at most this many, the first ones after ``offset``.
        """

        def read(snapshot: Snapshot) -> list[Any]:
            kept = [snapshot.sequence(name) for name in _keys(status)]
            wanted = range(sum(map(len, kept)))[offset or 0 :][:limit]
            found: list[Any] = []
            start = 0  # of a list, among all messages
            for each in kept:
                found += each[max(wanted.start - start, 0) : max(wanted.stop - start, 0)]
                start += len(each)
            return found

        return _messages(await off_loop(lambda: self._log.at_head(self.branch(key), read, [])))

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Return the number of messages. Cost: O(log n)."""

        def count(snapshot: Snapshot) -> int:
            return sum(len(snapshot.sequence(name)) for name in _keys(status))

        return await off_loop(lambda: self._log.at_head(self.branch(key), count, 0))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Append a message."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append messages: all of them or none."""
        given = [_data(message) for message in messages]

        def add(state: Versioned) -> tuple[None, str]:
            state.sequence(_KEYS[status]).extend(given)
            return None, f"{_KEYS[status]} +{len(given)}"

        await self._edit(key, add)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replace all messages of a key by these."""
        given = [_data(message) for message in messages]

        def replace(state: Versioned) -> tuple[None, str]:
            for each, name in _KEYS.items():
                _replace(given if each is status else [], state.sequence(name))
            return None, f"{len(given)} messages set"

        await self._edit(key, replace)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete a message and return it: the one at an index of all messages, archived ones first.

        Returns None if there is none.
        """

        def delete(state: Versioned) -> tuple[Any, str]:
            at = idx
            for name in _keys(None):
                kept = state.sequence(name)
                if 0 <= at < len(kept):
                    return kept.pop(at), f"{name} -1"
                at -= len(kept)
            return None, ""

        found = await self._edit(key, delete)
        return None if found is None else ChatMessage.model_validate(found)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete the messages of a status, or all, with the key."""
        if status is None:
            await off_loop(partial(self._log.delete, self.branch(key)))
        else:
            await self._edit(key, lambda state: (state.sequence(_KEYS[status]).clear(), f"{_KEYS[status]} deleted"))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Delete the oldest ``n`` active messages and return them."""
        return _messages(await self._edit(key, lambda state: (_taken(state, n), f"messages -{n}")))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest ``n`` active messages and return them."""

        def archive(state: Versioned) -> tuple[list[Any], str]:
            taken = _taken(state, n)
            state.sequence(_KEYS[MessageStatus.ARCHIVED]).extend(taken)
            return taken, f"messages archived: {len(taken)}"

        return _messages(await self._edit(key, archive))

    async def get_keys(self) -> list[str]:
        """List the keys, by name. Cost: as ``VersionedChatStore.get_keys``."""
        return await off_loop(partial(self._log.threads, f"{_PREFIX}/"))

    async def _edit(self, key: str, edit: Callable[[Versioned], tuple[T, str]]) -> T:
        return await off_loop(lambda: self._log.edit(self.branch(key), edit, thread=key))


_KEYS: Final = {MessageStatus.ARCHIVED: "archived", MessageStatus.ACTIVE: MESSAGES}
"""The key of the list of each status, oldest messages first."""


def _keys(status: MessageStatus | None) -> list[str]:
    return list(_KEYS.values()) if status is None else [_KEYS[status]]


def _taken(state: Versioned, n: int) -> list[Any]:
    """Remove the oldest active messages, and return them."""
    kept = state.sequence(MESSAGES)
    taken: list[Any] = kept[: max(n, 0)]
    del kept[: max(n, 0)]
    return taken


def _replace(given: list[Any], kept: StateSequence) -> None:
    """Set the messages of a list. Those at its beginning that stay are not written again."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(kept, given, strict=False)))
    kept[same:] = given[same:]


def _data(message: ChatMessage) -> dict[str, Any]:
    data: dict[str, Any] = message.model_dump(mode="json")
    return data


def _messages(found: Iterable[Any]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(data) for data in found]
