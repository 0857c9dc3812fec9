"""CrewAI: ``VersionedFlowPersistence`` beside ``SQLiteFlowPersistence``, which keeps a row for each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS
from benchmarks.frameworks.threads import Framework, parts


@contextmanager
def _ours(folder: Path) -> Iterator[Any]:
    from versioned_state.integrations.crewai import VersionedFlowPersistence

    with VersionedFlowPersistence(folder) as persistence:
        yield persistence


@contextmanager
def _theirs(folder: Path) -> Iterator[Any]:
    from crewai.flow.persistence.sqlite import SQLiteFlowPersistence

    yield SQLiteFlowPersistence(str(folder / "flows.db"))


async def _put(persistence: Any, thread: str, step: int, texts: list[str]) -> None:
    persistence.save_state(thread, f"step {step % 5}", {"id": thread, "messages": list(texts)})


async def _get(persistence: Any, thread: str) -> list[str]:
    found: list[str] = persistence.load_state(thread)["messages"]
    return found


PARTS: Final = parts(
    Framework("SQLiteFlowPersistence", {OURS: _ours, THEIRS: _theirs}, _put, _get, is_log=False, has_history=True)
)
