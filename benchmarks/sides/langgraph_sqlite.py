"""LangGraph's SQLite saver, driven as its graph runtime drives it at the end of each superstep.

A session is a thread of a graph with one node; a key is a channel. A round raises the version of each written channel,
makes a checkpoint that holds the whole state, and calls ``put`` with a copy of it, the config of the checkpoint before
and the new versions. Left out, in the saver's favour: the runtime's second write per round (``put_writes``, the pending
writes of the node), which would cost another transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import Checkpoint, copy_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.sides.base import Session, Side

# A channel a key is how a graph's state is declared; for a state of very many keys one channel holds the dict of them
# all, because a channel each would add 50 bytes of version to every key in every checkpoint.
WIDE = "state"


class LangGraphSession(Session):
    """A thread with the runtime's state between supersteps: channels' values and versions, the last checkpoint's id."""

    def __init__(self, saver: SqliteSaver, thread: str) -> None:
        self.saver = saver
        self.config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self.values: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.step = -1
        self.written: set[str] = set()
        saved = saver.get_tuple(self.config)
        if saved is not None:
            self.config = saved.config
            self.values = saved.checkpoint["channel_values"]
            self.versions = dict(saved.checkpoint["channel_versions"])
            self.step = saved.metadata["step"]

    def put(self, key: str, value: Any) -> None:
        self.values[key] = value
        self.written.add(key)

    def put_many(self, items: Mapping[str, Any]) -> None:
        self.put(WIDE, dict(items))

    def get(self, key: str) -> Any:
        return self.values[key] if key in self.values else self.values[WIDE][key]

    def mutated(self, key: str) -> None:
        self.written.add(key if key in self.values else WIDE)

    def commit(self) -> str:
        self.step += 1
        new_versions = {key: self.saver.get_next_version(self.versions.get(key), None) for key in self.written}
        self.versions |= new_versions
        checkpoint = Checkpoint(
            v=4,
            ts=datetime.now(UTC).isoformat(),
            id=str(uuid6(clock_seq=self.step)),
            channel_values=self.values,
            channel_versions=self.versions,
            versions_seen={"agent": new_versions},
            updated_channels=sorted(self.written),
        )
        self.config = self.saver.put(
            self.config, copy_checkpoint(checkpoint), {"source": "loop", "step": self.step, "parents": {}}, new_versions
        )
        self.written.clear()
        return str(checkpoint["id"])


class LangGraph(Side):
    """A ``SqliteSaver`` on a file, with its own defaults."""

    name = "langgraph"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False)
        self.saver = SqliteSaver(self.connection)
        self.saver.setup()

    def session(self, name: str) -> Session:
        return LangGraphSession(self.saver, name)

    def close(self) -> None:
        self.connection.close()

    def settings(self) -> dict[str, str]:
        (journal,) = self.connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = self.connection.execute("PRAGMA synchronous").fetchone()
        self.close()
        level = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[synchronous]
        return {
            "version": f"langgraph-checkpoint-sqlite {version('langgraph-checkpoint-sqlite')}",
            "store": f"SqliteSaver on a file ({journal.upper()}, synchronous={level}: "
            f"{'syncs' if synchronous >= 2 else 'does not sync'})",
            "use": "a thread a session; a checkpoint of the whole state a round; without the runtime's put_writes",
        }
