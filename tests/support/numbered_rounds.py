"""Rounds whose content follows from their number, and the check of a store after a failure."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.exact import exact
from versioned_state import Commit, Disk, KVStore, Repository, Versioned
from versioned_state.objects.keys import address_in
from versioned_state.storage import DiskCache

_KEPT = 40  # messages; what a round writes and reads does not grow with their number


@dataclass(frozen=True)
class Kind:
    """A kind of store that is files in a folder."""

    name: str
    open: Callable[..., KVStore]
    file: str

    def __str__(self) -> str:
        return self.name


DISK = Kind("disk", Disk, "store.sqlite3")
DISK_CACHE = Kind("disk cache", DiskCache, "cache.db")
KINDS = (DISK, DISK_CACHE)


def message(n: int) -> dict[str, Any]:
    return {"n": n, "role": "user" if n % 2 else "assistant", "content": f"{'word ' * (n * 7 % 60)}{n}"}


def content(n: int) -> dict[str, Any]:
    """Return the state after round `n`, of which the first is 1."""
    if n == 0:
        return {}
    return {
        "by digit": {str(first % 10): n - (n - first) % 10 for first in range(1, min(n, 10) + 1)},
        "messages": [message(each) for each in range(max(1, n - _KEPT + 1), n + 1)],
        "step": n,
    }


def change(state: Versioned, n: int) -> None:
    """Make round `n` on the state that the round before it left. Commits nothing."""
    messages = state.setdefault("messages", [])
    messages.append(message(n))
    del messages[:-_KEPT]
    state.setdefault("by digit", {})[str(n % 10)] = n
    state["step"] = n


def play(state: Versioned, n: int) -> Commit:
    """Round `n`, committed."""
    change(state, n)
    return state.commit(f"round {n}", meta={"n": n})


def check_history(repository: Repository, *, least: int = 0, read: Iterable[int] = ()) -> list[Commit]:
    """Check that the branch is rounds n, n-1, … 1, each the parent of the next, and the newest and `read` are right.

    Returns them, oldest first. n is at least `least`.
    """
    line = list(repository.log("main"))[::-1] if "main" in repository.branches else []
    if line and not line[0].parents:
        del line[0]  # the root, which all stores share
    assert [commit.meta["n"] for commit in line] == list(range(1, len(line) + 1))
    assert len(line) >= least
    for parent, commit in pairwise(line):
        assert commit.parents == (parent.id,)
    for n in {len(line), *read}:
        if n:
            assert exact(repository.snapshot(line[n - 1]).copy()) == exact(content(n)), n
    return line


def check_objects(repository: Repository) -> int:
    """Check that every object of the store matches its address, and return how many there are."""
    count = 0
    for key in repository.store.keys("o/"):
        repository.database.objects.read(address_in(key))
        count += 1
    return count


def copy_files(source: Path, target: Path, kind: Kind) -> None:
    """The files of a live store, as a power cut would leave them."""
    target.mkdir()
    # By another process: to close a descriptor of the file here would drop the locks on it.
    subprocess.run(["cp", source / kind.file, source / f"{kind.file}-wal", target], check=True)
