"""The interface between workloads and sides: ``Side`` is a store in a folder, ``Session`` one line of history in it.

The protocol follows what an application does: it holds plain Python values, changes them in place, and commits.
``mutated`` is where
the sides differ: after ``get(key).append(...)`` ours sees the change by itself, every other side must be told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar


class Session(ABC):
    """One line of history: a branch, a thread, or a key of the root."""

    @abstractmethod
    def put(self, key: str, value: Any) -> None:
        """Stage ``value`` under ``key``; it is committed, with every change in place that follows, by ``commit``."""

    @abstractmethod
    def get(self, key: str) -> Any:
        """The value under ``key``, to read or to change in place, loaded unless this session holds it already."""

    @abstractmethod
    def mutated(self, key: str) -> None:
        """Tell the store, if its users have to, that the value under ``key`` was changed in place."""

    @abstractmethod
    def commit(self) -> str:
        """Commit with this side's default durability and return the commit's id, or an empty string if it has none."""

    def put_many(self, items: Mapping[str, Any]) -> None:
        """Stage a state of many keys."""
        for key, value in items.items():
            self.put(key, value)

    def extend(self, key: str, items: Iterable[Any]) -> None:
        """Append ``items`` to the list under ``key``, in place."""
        self.get(key).extend(items)
        self.mutated(key)

    def diff(self, old: str, new: str) -> list[str]:
        """The keys or paths that differ between two commits, if the side can tell."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most sides have nothing to let go of
        """Let go of the session; the store stays open."""


class AssignedSession(Session):
    """A mapping that sees no change inside a value, so that the value is assigned again, and the live values beside it.

    The application keeps the live value, as a careful user of it would: reading it back each round would decode all of
    it.
    """

    def __init__(self, stored: Any) -> None:
        self.stored = stored
        self.live: dict[str, Any] = {}

    def put(self, key: str, value: Any) -> None:
        self.live[key] = value
        self.stored[key] = value

    def get(self, key: str) -> Any:
        if key not in self.live:
            self.live[key] = self.stored[key]
        return self.live[key]

    def mutated(self, key: str) -> None:
        self.stored[key] = self.live[key]


class Side(ABC):
    """A store in ``folder``, opened by the constructor (and created if the folder is empty)."""

    name: ClassVar[str]

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def session(self, name: str) -> Session:
        """The line of history called ``name``; created if it is new."""

    def check(self) -> None:  # noqa: B027 - nothing is known of what other sides store
        """Stop the run if what the store holds was written wrongly. It is called outside of what is timed."""

    @abstractmethod
    def close(self) -> None:
        """Close cleanly: afterwards the folder holds everything that the side stores."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Version and the settings that matter for cost; closes the store."""
