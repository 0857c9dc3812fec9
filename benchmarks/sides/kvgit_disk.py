"""kvgit on disk: a ``Repo`` over its ``Disk`` store, a worktree on a branch a session.

A change inside a value is not seen, so the value is assigned again each round.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from kvgit import Repo
from kvgit.kv.disk import Disk

from benchmarks.sides.base import AssignedSession, Session, Side


class KvgitSession(AssignedSession):
    """A worktree."""

    def commit(self) -> str:
        self.stored.commit()
        return str(self.stored.head)

    def diff(self, old: str, new: str) -> list[str]:
        found = self.stored.repo.diff(old, new)
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
