"""The OpenAI Agents SDK: ``VersionedSession`` beside ``SQLiteSession`` and ``AdvancedSQLiteSession``.

``SQLiteSession`` keeps no history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS
from benchmarks.frameworks.threads import Framework, parts

Open = Callable[[str], Any]
"""Returns the session of an id. Each keeps the last one, as a program does that serves one at a time."""


@contextmanager
def _ours(folder: Path) -> Iterator[Open]:
    from versioned_state import Disk, Repository
    from versioned_state.integrations.openai_agents import VersionedSession

    with Disk(folder) as store:
        repository = Repository(store)
        yield from _last(lambda id: VersionedSession(repository, id))


@contextmanager
def _theirs(folder: Path) -> Iterator[Open]:
    from agents import SQLiteSession

    yield from _last(lambda id: SQLiteSession(id, folder / "sessions.db"))


@contextmanager
def _advanced(folder: Path) -> Iterator[Open]:
    from agents.extensions.memory import AdvancedSQLiteSession

    yield from _last(
        lambda id: AdvancedSQLiteSession(session_id=id, db_path=folder / "sessions.db", create_tables=True)
    )


def _last(make: Open) -> Iterator[Open]:
    kept: dict[str, Any] = {}

    def session(id: str) -> Any:
        if id not in kept:
            for old in kept.values():
                old.close()
            kept.clear()
            kept[id] = make(id)
        return kept[id]

    yield session
    for each in kept.values():
        each.close()


async def _put(session: Open, thread: str, step: int, texts: list[str]) -> None:
    await session(thread).add_items([{"role": "assistant" if step % 2 else "user", "content": texts[-1]}])


async def _get(session: Open, thread: str) -> list[str]:
    return [item["content"] for item in await session(thread).get_items()]


async def _newest(session: Open, thread: str) -> list[str]:
    return [item["content"] for item in await session(thread).get_items(limit=10)]


async def _delete(session: Open, thread: str) -> None:
    await session(thread).clear_session()


def _beside(name: str, theirs: Any) -> Framework:
    return Framework(
        name, {OURS: _ours, THEIRS: theirs}, _put, _get, reads={"get, the newest 10": _newest}, delete=_delete
    )


PARTS: Final = {
    **parts(_beside("SQLiteSession", _theirs)),
    "advanced": parts(_beside("AdvancedSQLiteSession", _advanced))["conversation-200"],
}
