"""Handles for tests of merges, moves and gc: two on one branch, a conflicting merge, and a commit that tries again."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.errors import MissingObjectError
from versioned_state.storage import Counting, Counts


class RollbackWantedError(Exception):
    """Raised by a test in a transaction, which is then rolled back."""


def cold(store: KVStore) -> Repository:
    """A repository over a store whose caches are empty, as those of another process are."""
    repository = Repository(store)
    repository.database.forget()
    return repository


def committed(store: KVStore | Repository | None = None, /, **values: Any) -> Versioned:
    """A state whose first commit holds the values."""
    state = Versioned(store)
    state.update(values)
    state.commit()
    return state


def asked(store: KVStore, act: Callable[[Repository], object], *, clock: Callable[[], int] | None = None) -> Counts:
    """Return what a call asks of a store, on a repository that was opened before."""
    counting = Counting(store)
    repository = Repository(counting, clock=clock)
    counting.reset()
    act(repository)
    return counting.counts


def two(**values: Any) -> tuple[Versioned, Versioned]:
    """Two handles on one branch, whose first commit holds copies of the values."""
    repository = Repository(Memory(), clock=itertools.count(1).__next__)
    ours = Versioned(repository)
    ours.update(copy.deepcopy(values))
    ours.commit("base")
    return ours, Versioned(repository)


def two_branches(store: KVStore | None = None) -> tuple[Versioned, Versioned]:
    """Handles on the branches ``a`` and ``b``, which hold the list [1] under ``n``."""
    repository = Repository(store)
    a, b = Versioned(repository, branch="a"), Versioned(repository, branch="b")
    a["n"], b["n"] = [1], [1]
    repository.commit_together([a, b], "first")
    return a, b


def lists_of(store: KVStore) -> list[list[int]]:
    """Return the lists that these two branches hold in the store."""
    repository = Repository(store)
    return [repository.snapshot(name)["n"] for name in "ab"]


def insist(handle: Versioned) -> None:
    """Commit, and try again if a gc collected the objects that were sent ahead: the next attempt encodes them anew."""
    for _ in range(20):
        with suppress(MissingObjectError):
            handle.commit("at last")
            return
    raise AssertionError("it is collected each time")


def commits_on(store: KVStore) -> Repository:
    """Commits on ``main`` and on ``side``, each of which has changes of its own."""
    repository = Repository(store)
    state = Versioned(repository)
    state.update(
        n=0, words=["a"], notes={"text": "line 1\nline 2"}, many=[{"i": i, "text": "x" * 50} for i in range(300)]
    )
    state.commit("base", author="me")
    side = state.fork("side")
    for round_ in range(3):
        state["n"] += 1
        state["words"].append(f"w{round_}")
        state.commit(f"round {round_}", author="me")
    side["many"][150]["text"] = "changed"
    side["side"] = [1]
    side.commit("aside")
    return repository
