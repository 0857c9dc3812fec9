"""A store with two branches of a trip for tests of the command line, and its refs and contents as they are stored."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from tests.support.examples import MINUTE, START
from versioned_state import Commit, Disk, Repository, Versioned


def make_fork(path: Path) -> None:
    """Two branches of a trip that changed the same and other places.

    ::

        begin ── answer ──┬── spend less      main     budget.limit 700, a message "cheaper"
                          └── more ── notes   what-if  budget.limit 900, a message "grander"; notes
    """
    with Repository(Disk(path), clock=count(START, MINUTE).__next__) as repository:
        state = Versioned(repository, author="planner")
        state["messages"] = [{"role": "user", "content": "A weekend in Lisbon, please."}]
        state["budget"] = {"limit": 600, "spent": 0}
        state["notes"] = "Lisbon\nby slow train\nquiet"
        state.commit("begin")
        state["messages"].append({"role": "assistant", "content": "With pleasure."})
        state["budget"]["spent"] = 98
        state.commit("answer")
        other = state.fork("what-if")
        other["budget"]["limit"] = 900
        other["messages"].append({"role": "user", "content": "grander"})
        other.commit("more", author="dreamer")
        other["notes"] = "Lisbon\nby fast train\nquiet"
        other.commit("notes", author="dreamer")
        state["budget"]["limit"] = 700
        state["messages"].append({"role": "user", "content": "cheaper"})
        state.commit("spend less")


def heads(path: Path) -> dict[str, str]:
    with Repository(Disk(path, read_only=True), pickle="refuse") as repository:
        return {name: head.id for refs in (repository.branches, repository.tags) for name, head in refs.items()}


def state_of(path: Path, rev: str = "main", *, describe: bool = False) -> dict[str, Any]:
    with Repository(Disk(path, read_only=True), pickle="refuse") as repository:
        return repository.snapshot(rev, describe=describe).copy()


def head_of(path: Path, rev: str = "main") -> Commit:
    with Repository(Disk(path, read_only=True), pickle="refuse") as repository:
        return repository.commit(rev)
