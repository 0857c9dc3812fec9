"""States that are filled until the store is full, and the check of the commits acknowledged by then."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.numbered_rounds import Kind, check_objects
from versioned_state import Repository, Versioned
from versioned_state.errors import StorageFullError


def fill(state: Versioned) -> int:
    """Commit texts that do not compress until one finds no room, and return how many there are."""
    dice = random.Random(1)
    log = state.setdefault("log", [])
    while True:
        n = len(log) + 1
        log.append({"n": n, "text": dice.randbytes(3000).hex()})
        try:
            state.commit(f"round {n}", meta={"n": n})
        except StorageFullError:
            assert len(state.status()) == 1, "what was staged is still there"
            return n - 1
        assert n < 5000, "it never fills up"


def check(kind: Kind, place: Path, state: Versioned, count: int) -> None:
    """Exactly the acknowledged commits are there, on this handle and for a new opener."""
    assert state.head.meta["n"] == count
    for repository in (state.repository, Repository(kind.open(place))):
        assert [commit.meta["n"] for commit in repository.log("main") if commit.parents] == list(range(count, 0, -1))
        assert [each["n"] for each in repository.snapshot("main")["log"]] == list(range(1, count + 1))
        check_objects(repository)
        if repository is not state.repository:
            repository.close()
