"""``VersionedChatStore``: a chat store of LlamaIndex whose keys are branches. Needs the extra ``llama-index``. Layer: integrations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Self

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store.base import BaseChatStore

from versioned_state.arguments import string
from versioned_state.integrations.adapter import Adapter, Place
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.message_log import MessageLog
from versioned_state.off_loop import off_loop
from versioned_state.repository.names.branch_name import branch_name

if TYPE_CHECKING:
    from versioned_state.repository.repository import Repository
    from versioned_state.state.sequence import StateSequence

check_version("llama_index")

_PREFIX: Final = "llama-index"


class VersionedChatStore(BaseChatStore):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A chat store of LlamaIndex: the messages of a key are the list ``messages`` of a branch, and each change of them is a commit.

    ::

        from versioned_state.integrations.llama_index import VersionedChatStore

        chat_store = VersionedChatStore("./agent-state")
        memory = ChatMemoryBuffer.from_defaults(chat_store=chat_store, chat_store_key="user-123")

    A message is kept as the dict that LlamaIndex makes of it for JSON, as in its stores in databases. To add one costs the message. Any
    number of threads and processes may use one store. What is deleted stays in history until it is purged.

    Args:
        place: as for ``Adapter``.
    """

    _adapter: Adapter = PrivateAttr()
    _log: MessageLog = PrivateAttr()

    def __init__(self, place: Place, **data: Any) -> None:
        super().__init__(**data)
        self._adapter = Adapter(place)
        self._log = MessageLog(self._adapter.repository)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, as each component of LlamaIndex does."""
        return "VersionedChatStore"

    @property
    def repository(self) -> Repository:
        """Everything that the store keeps, for ``log``, ``diff``, ``blame`` and the command line."""
        return self._adapter.repository

    def branch(self, key: str) -> str:
        """Return the name of a key's branch in the repository."""
        return branch_name(_PREFIX, string("key", key))

    def close(self) -> None:
        """Close the store, if this object opened it."""
        self._adapter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The interface of chat stores

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the messages. Those at the beginning that stay as they are cost nothing in the store."""
        given = [_data(message) for message in messages]

        def replace(kept: StateSequence) -> None:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(kept, given, strict=False)))
            kept[same:] = given[same:]

        self._log.change(self.branch(key), replace, thread=key)

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
        return None if found is None else _messages(found)

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

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        await off_loop(partial(self.set_messages, key, messages))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        return await off_loop(partial(self.get_messages, key))

    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        await off_loop(partial(self.add_message, key, message, idx))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        return await off_loop(partial(self.delete_messages, key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        return await off_loop(partial(self.delete_message, key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        return await off_loop(partial(self.delete_last_message, key))

    async def aget_keys(self) -> list[str]:
        return await off_loop(self.get_keys)


def _data(message: ChatMessage) -> dict[str, Any]:
    data: dict[str, Any] = message.model_dump(mode="json")
    return data


def _messages(found: Iterable[Any]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(data) for data in found]
