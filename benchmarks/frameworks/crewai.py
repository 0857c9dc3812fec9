"""CrewAI: ``VersionedFlowPersistence`` beside ``SQLiteFlowPersistence``, which keeps a row for each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS
from benchmarks.frameworks.threads import Framework, adapter, never_closed, parts


def _theirs(folder: Path) -> Any:
    from crewai.flow.persistence.sqlite import SQLiteFlowPersistence

    return SQLiteFlowPersistence(str(folder / "flows.db"))


async def _put(persistence: Any, thread: str, step: int, texts: list[str]) -> None:
    persistence.save_state(thread, f"step {step % 5}", {"id": thread, "messages": list(texts)})


async def _get(persistence: Any, thread: str) -> list[str]:
    found: list[str] = persistence.load_state(thread)["messages"]
    return found


PARTS: Final = parts(
    Framework(
        "SQLiteFlowPersistence",
        {OURS: adapter("crewai.VersionedFlowPersistence"), THEIRS: never_closed(_theirs)},
        _put,
        _get,
        is_log=False,
        has_history=True,
    )
)
