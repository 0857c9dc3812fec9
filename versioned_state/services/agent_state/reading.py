"""Reading a session without a handle: its rounds, the content of a round. Layer: services."""

from __future__ import annotations

from typing import Any, Final

from versioned_state.repository.database import Database
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.services.agent_state.rounds import Rounds, rounds_of
from versioned_state.services.calls.heads import at_listed, iter_sessions
from versioned_state.services.calls.spending import current_spend
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.values.cells import pack_text
from versioned_state.values.codec.files import FileTree
from versioned_state.values.containers import container_of
from versioned_state.values.keys import user_key
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find

_FILES: Final = pack_text(f"versioned_state.{FileTree.__name__}")


def rounds_at(database: Database, head: Commit) -> Rounds:
    """Return the rounds that a session has at a head."""
    return rounds_of(_nodes(database), head.tree)


def readable_rounds(database: Database, head: Commit) -> list[int]:
    """Return the rounds of a session whose state can be read, without those that ``prune`` cut off.

    Cost: O(log n) reads if it cut any.
    """
    rounds = rounds_at(database, head)
    if not rounds or not database.commits.shallow:
        return list(rounds)
    heights = {number: head.height if number == rounds.current else rounds.height(number) or 0 for number in rounds}
    least = graph.descend(head, min(heights.values()), database.commits.read).height
    return [number for number, height in heights.items() if height >= least]


def has_rounds(database: Database, head: Commit) -> bool:
    """Return whether a session has a round at a head. Without one it is not listed."""
    return bool(rounds_at(database, head))


def count_sessions(repository: Repository, prefix: str, *, but: str) -> int:
    """Count the sessions with a round whose branches begin with ``prefix``, except one branch.

    Cost: reads the head of each.
    """
    database = repository.database
    others = (info for info in iter_sessions(repository, prefix) if info.name != but)
    return sum(at_listed(database, info, lambda head: has_rounds(database, head), absent=False) for info in others)


def commit_of(database: Database, head: Commit, number: int | None) -> Commit | None:
    """Return the last commit of a round, by default of the highest one that ``prune`` has left, or None.

    Cost: O(log n) reads.

    After a squash or a rebase, it reads history from the head down to the round.
    """
    rounds = rounds_at(database, head)
    if number is None:
        latest = rounds.latest
        number = latest if latest == rounds.current else max(readable_rounds(database, head), default=None)
    if number is None:
        return None
    height = rounds.height(number)
    if height is None:
        return None
    if number == rounds.current:
        return head
    commit = graph.descend(head, min(height, head.height), database.commits.read)
    if commit.height > height:
        return None  # its history was pruned
    if commit.height == height and rounds_at(database, commit).current == number:
        return commit
    line = (each for each in graph.first_parents(head, database.commits.read) if each.id != ROOT_ID)
    return next((each for each in line if rounds_at(database, each).current == number), None)


def content_of(repository: Repository, commit: Commit) -> dict[str, Any]:
    """Read the state of a round as a new dict, without the files of its sandboxes. Cost: reads all of it."""
    database = repository.database
    snapshot = Snapshot(
        database.objects, commit.tree, database.policy, commit=commit, cache=database.nodes, spend=current_spend()
    )
    if has_files(_nodes(database), commit.tree):
        return {key: snapshot[key] for key in snapshot if key != FILES_KEY}
    return snapshot.copy()


def files_of(repository: Repository, commit: Commit) -> FileTree | None:
    """Read the files of a session's sandboxes, if it has any. Cost: reads all of them."""
    database = repository.database
    if not has_files(_nodes(database), commit.tree):
        return None
    found = Snapshot(database.objects, commit.tree, database.policy, commit=commit, cache=database.nodes)[FILES_KEY]
    assert isinstance(found, FileTree)
    return found


def has_files(nodes: Nodes, tree: Tree) -> bool:
    """Return whether the root of a commit has the files of sandboxes. Reads none of them."""
    cell = find(nodes, tree, user_key(FILES_KEY)) if tree.count else None
    found = None if cell is None else container_of(nodes, cell)
    return found is not None and found.head is not None and found.head.name == _FILES


def _nodes(database: Database) -> Nodes:
    return Nodes(database.objects, cache=database.nodes)
