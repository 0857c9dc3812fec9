"""LlamaIndex: ``VersionedDBChatStore`` beside ``SQLAlchemyChatStore`` over SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS
from benchmarks.frameworks.threads import Framework, adapter, never_closed, parts


def _theirs(folder: Path) -> Any:
    from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

    return SQLAlchemyChatStore(
        table_name="messages", async_database_uri=f"sqlite+aiosqlite:///{folder / 'messages.db'}"
    )


async def _put(store: Any, thread: str, step: int, texts: list[str]) -> None:
    from llama_index.core.llms import ChatMessage

    await store.add_message(thread, ChatMessage(texts[-1], role="assistant" if step % 2 else "user"))


async def _get(store: Any, thread: str) -> list[str]:
    return [message.content for message in await store.get_messages(thread)]


async def _count(store: Any, thread: str) -> int:
    found: int = await store.count_messages(thread)
    return found


async def _some(store: Any, thread: str) -> list[str]:
    return [message.content for message in await store.get_messages(thread, limit=10, offset=5)]


async def _delete(store: Any, thread: str) -> None:
    await store.delete_messages(thread)


PARTS: Final = parts(
    Framework(
        "SQLAlchemyChatStore",
        {OURS: adapter("llama_index.VersionedDBChatStore"), THEIRS: never_closed(_theirs)},
        _put,
        _get,
        reads={"get 10 from the 6th on": _some, "count_messages": _count},
        delete=_delete,
    )
)
