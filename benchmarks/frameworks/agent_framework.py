"""Microsoft Agent Framework: ``VersionedCheckpointStorage`` beside ``FileCheckpointStorage``.

``FileCheckpointStorage`` keeps a file for each checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS
from benchmarks.frameworks.threads import Framework, adapter, never_closed, parts


class _Storage:
    """A storage of checkpoints, and the last one of each workflow, which the next one follows."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.last: dict[str, str] = {}

    async def put(self, thread: str, step: int, texts: list[str]) -> None:
        from agent_framework import WorkflowCheckpoint

        saved = WorkflowCheckpoint(
            thread,
            "graph",
            previous_checkpoint_id=self.last.get(thread),
            state={"messages": list(texts)},
            iteration_count=step,
        )
        self.last[thread] = await self.storage.save(saved)

    async def get(self, thread: str) -> list[str]:
        found = await self.storage.load(self.last[thread])
        texts: list[str] = found.state["messages"]
        return texts


async def _latest(storage: _Storage, thread: str) -> Any:
    found = await storage.storage.get_latest(workflow_name=thread)
    return found.iteration_count, found.state


async def _ids(storage: _Storage, thread: str) -> int:
    return len(await storage.storage.list_checkpoint_ids(workflow_name=thread))


def _theirs(folder: Path) -> _Storage:
    from agent_framework import FileCheckpointStorage

    return _Storage(FileCheckpointStorage(folder))


PARTS: Final = parts(
    Framework(
        "FileCheckpointStorage",
        {OURS: adapter("agent_framework.VersionedCheckpointStorage", _Storage), THEIRS: never_closed(_theirs)},
        _Storage.put,
        _Storage.get,
        reads={"get_latest": _latest, "list_checkpoint_ids": _ids},
        is_log=False,
        has_history=True,
    )
)
