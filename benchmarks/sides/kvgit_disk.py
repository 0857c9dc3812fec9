"""kvgit on disk: a ``Repo`` over its ``Disk`` store, a worktree on a branch a session.

A change inside a value is not seen, so the value is assigned again each round. The application keeps the live value, as
a careful user of it would: reading it back from the worktree each round would add a decode of the whole value.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from kvgit import Repo, Worktree
from kvgit.kv.disk import Disk

from benchmarks.sides.base import Session, Side


class KvgitSession(Session):
    """A worktree, and the live values of the application beside it."""

    def __init__(self, worktree: Worktree) -> None:
        self.worktree = worktree
        self.live: dict[str, Any] = {}

    def put(self, key: str, value: Any) -> None:
        self.live[key] = value
        self.worktree[key] = value

    def get(self, key: str) -> Any:
        if key not in self.live:
            self.live[key] = self.worktree[key]
        return self.live[key]

    def mutated(self, key: str) -> None:
        self.worktree[key] = self.live[key]

    def commit(self) -> str:
        self.worktree.commit()
        return str(self.worktree.head)

    def diff(self, old: str, new: str) -> list[str]:
        found = self.worktree.repo.diff(old, new)
        return [*found.added, *found.removed, *found.modified]


class Kvgit(Side):
    """A repository with kvgit's defaults: pickle codec, 32 MB of cache, diskcache below."""

    name = "kvgit"

    def __init__(self, folder: Path) -> None:
        self.repo = Repo(Disk(str(folder)))

    def session(self, name: str) -> Session:
        return KvgitSession(self.repo.worktree(name, create=True))

    def close(self) -> None:
        self.repo.close()

    def settings(self) -> dict[str, str]:
        self.close()
        return {
            "version": f"kvgit {version('kvgit')}, diskcache {version('diskcache')}",
            "store": "Disk (diskcache: WAL, synchronous=NORMAL, values over 32 KB in files of their own, unsynced)",
            "use": "a branch a session; the changed value is assigned again each round; codec pickle",
        }
