"""The caches of a store: decoded nodes and commits, for all databases over it in this process. Layer: repository.

A server that makes a handle for each request finds the nodes of the request before. Only what was read and verified
through this store object, or written through it, is here: never a decoded value, which depends on what a handle may
unpickle. So handles with other options may share the caches, and a wrapper, such as one with a key, has its own.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from threading import RLock
from typing import Final
from weakref import WeakSet

from versioned_state.objects.address import Address
from versioned_state.repository.history.commit import Commit
from versioned_state.storage import KVStore
from versioned_state.storage.kept import kept_for
from versioned_state.values.trees.nodes import NodeCache

_COMMITS_KEPT: Final = 1024


class CommitCache:
    """The most recently used commits, as they were made, by address. Safe for many threads.

    Attributes:
        clears: how often the cache was emptied.
    """

    def __init__(self) -> None:
        self.clears: int = 0
        self._lock = RLock()
        self._commits: OrderedDict[bytes, Commit] = OrderedDict()

    def get(self, address: Address) -> Commit | None:
        """Return a commit, or None. Marks it as used."""
        with self._lock:
            commit = self._commits.get(address)
            if commit is not None:
                self._commits.move_to_end(address)
            return commit

    def get_many(self, addresses: Iterable[Address]) -> dict[Address, Commit]:
        """Return those of some commits that are here. Marks them as used."""
        found = {}
        with self._lock:
            commits = self._commits
            for address in addresses:
                commit = commits.get(address)
                if commit is not None:
                    commits.move_to_end(address)
                    found[address] = commit
        return found

    def keep(self, commit: Commit, clears: int | None = None) -> None:
        """Add a commit. Does nothing if the cache was emptied since ``clears`` was read, before the commit was."""
        self.keep_many((commit,), clears)

    def keep_many(self, commits: Iterable[Commit], clears: int | None = None) -> None:
        """Do ``keep`` for some commits."""
        with self._lock:
            if clears is None or clears == self.clears:
                kept = self._commits
                for commit in commits:
                    kept[commit.address] = commit
                while len(kept) > _COMMITS_KEPT:
                    kept.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self.clears += 1
            self._commits.clear()

    def renew(self) -> None:
        """Begin anew in a forked process: another thread of the parent may have held the lock."""
        self._lock = RLock()
        self.clear()


class StoreCaches:
    """The caches of one store. Safe for many threads. A forked process begins with empty ones.

    Attributes:
        nodes: decoded nodes, up to 16 MiB.
        commits: the last 1,024 commits.
        since: the number of gc's ``sweeps`` after which all of it existed; see ``advance``.
    """

    def __init__(self) -> None:
        self.nodes: Final = NodeCache()
        self.commits: Final = CommitCache()
        self.since: int = 0
        _all.add(self)

    def begin(self, sweeps: int) -> None:
        """Note the number of ``sweeps`` that a new database has read.

        A lower one than before means that the store was replaced.
        """
        if sweeps < self.since:
            self.restart(sweeps)
        else:
            self.advance(sweeps)

    def restart(self, sweeps: int) -> None:
        """Empty the caches, and count from this number of ``sweeps`` on."""
        self.forget()
        self.nodes.since = self.since = sweeps

    def advance(self, sweeps: int) -> None:
        """Empty the caches if gc or purge has deleted something since they were last emptied.

        A cached node may name deleted segments.

        Args:
            sweeps: as a database has read it. One that has not read it for long may still have an older number, and
                changes nothing.
        """
        if sweeps > self.since:
            self.commits.clear()
            self.nodes.advance(sweeps)
            self.since = sweeps

    def forget(self) -> None:
        """Empty the caches."""
        self.commits.clear()
        self.nodes.clear()


def caches_of(store: KVStore) -> StoreCaches:
    """Return the caches of a store. They are released when it is closed or collected."""
    return kept_for(store, StoreCaches)


_all: Final[WeakSet[StoreCaches]] = WeakSet()


def _renew() -> None:
    for caches in list(_all):
        caches.nodes.renew()
        caches.commits.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
