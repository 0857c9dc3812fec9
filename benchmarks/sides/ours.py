"""This library, through its public API only: a ``Versioned`` over ``Disk``, plain values changed in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.sides.base import Session, Side
from versioned_state import Disk, Repository, Versioned

_CHECKED = 3
"""Branches of a store that are checked when a workload is done with it."""


class OurSession(Session):
    """A branch."""

    def __init__(self, state: Versioned) -> None:
        self.state = state

    def put(self, key: str, value: Any) -> None:
        self.state[key] = value

    def get(self, key: str) -> Any:
        return self.state[key]

    def mutated(self, key: str) -> None:
        """Nothing: the commit finds the change."""

    def commit(self) -> str:
        return self.state.commit().id

    def diff(self, old: str, new: str) -> list[str]:
        return [str(change.path) for change in self.state.diff(old, new)]

    def close(self) -> None:
        self.state.close()


class SequenceSession(OurSession):
    """A branch whose lists are appended to through the lazy handle, and never loaded."""

    def extend(self, key: str, items: Iterable[Any]) -> None:
        self.state.sequence(key).extend(items)


class Ours(Side):
    """A repository over a ``Disk`` with its default durability. The branches' handles share it and its store."""

    name = "ours"

    def __init__(self, folder: Path) -> None:
        self.repository = Repository(self._open(folder))

    def _open(self, folder: Path) -> Disk:
        return Disk(folder)

    def session(self, name: str) -> Session:
        return OurSession(Versioned(self.repository, branch=name))

    def check(self) -> None:
        """The heads of the first branches are what their content gives if it is stored at once."""
        from tests.support.oracle import Oracle

        oracle = Oracle(share=1.0, seed=0)
        for branch in itertools.islice(self.repository.branches.values(), _CHECKED):
            oracle.check(self.repository.database, branch)
        if oracle.found or oracle.aside:
            raise RuntimeError(f"the store was written wrongly: {[*oracle.found, *oracle.aside][:3]}")

    def close(self) -> None:
        self.repository.close()

    def settings(self) -> dict[str, str]:
        self.close()
        try:
            release = version("versioned-state")
        except PackageNotFoundError:
            release = "from its source"
        return {
            "version": f"versioned-state {release}",
            "store": "Disk, default durability (process: WAL, synchronous=NORMAL)",
            "use": "plain values changed in place, detection on",
        }


class OursSequence(Ours):
    """The same store, its lists used through ``state.sequence(key)``."""

    name = "ours (sequence)"

    def session(self, name: str) -> Session:
        return SequenceSession(Versioned(self.repository, branch=name))


class OursPower(Ours):
    """A ``Disk`` that syncs every commit."""

    name = "ours (power)"

    def _open(self, folder: Path) -> Disk:
        return Disk(folder, durability="power")
