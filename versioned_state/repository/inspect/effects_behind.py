"""The effects that lie behind the head of a branch, since it was moved back past them, or forked before them.

Layer: repository.

::

    a ── b ── c        an effect of the round that made c, which began at b
         └─────────── undo: the head is b, and the effect has happened nevertheless
"""

from __future__ import annotations

from versioned_state.errors import MissingObjectError
from versioned_state.objects.address import Address
from versioned_state.repository.database import Database
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit
from versioned_state.repository.ledger import Entry, iter_entries
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.refs.reflog import LogEntry


def effects_behind(database: Database, ref: Ref, head: Commit) -> list[Entry]:
    """Return the records of the effects that lie behind a head, oldest first.

    They have happened, or may have, and the history of the head has no trace of them. Cost: 0 for a branch that only
    commits have moved. Otherwise it reads the reflog and the ledger.
    """
    moves = list(database.iter_log(ref))[::-1]
    if not moves:
        return []
    found = [
        entry
        for _, entry in iter_entries(database.store)
        if entry.facts.branch is not None and entry.facts.height is not None
    ]
    behind = [entry for entry in found if _is_behind(database, entry, ref, head, moves)]
    return sorted(behind, key=lambda entry: (entry.since, entry.key or ""))


def effects_after(database: Database, ref: Ref, head: Commit, point: Commit) -> list[Entry]:
    """Return the records of the effects of a branch that would lie behind it at an earlier commit, oldest first.

    The commit is in the history of the branch. Effects that lie behind the branch now are among the results. Cost:
    reads the reflog and the ledger.
    """
    found = {entry.key: entry for entry in effects_behind(database, ref, head)}
    for _, entry in iter_entries(database.store):
        height = entry.facts.height
        if entry.facts.branch == ref.name and height is not None and point.height <= height:
            found[entry.key] = entry
    return sorted(found.values(), key=lambda entry: (entry.since, entry.key or ""))


def _is_behind(database: Database, entry: Entry, ref: Ref, head: Commit, moves: list[LogEntry]) -> bool:
    """Return whether an effect lies behind a head, with the moves of its branch, oldest first."""
    begun = entry.facts.height
    assert begun is not None
    if entry.facts.branch != ref.name:
        first = moves[0]  # of a fork: its beginning
        if first.old is not None or first.new is None or entry.since >= first.time:
            return False
        point = _commit(database, first.new)
        return point is not None and point.height <= begun and _is_on(database, entry.facts.branch, point)
    move = next((each for each in moves if each.time > entry.since), None)
    if move is None:
        return False
    old, new = _commit(database, move.old), _commit(database, move.new)
    if old is not None and old.height > begun:
        # the commit of the round that the effect belongs to
        made = graph.descend(old, begun + 1, database.commits.read)
        return not (head.height >= made.height and graph.descend(head, made.height, database.commits.read) == made)
    return new is not None and new.height < begun


def _commit(database: Database, address: Address | None) -> Commit | None:
    """Return a commit, the empty root commit for None, or None if gc has collected it."""
    try:
        return database.commits.read(ROOT_ADDRESS if address is None else address)
    except MissingObjectError:
        return None


def _is_on(database: Database, branch: str | None, point: Commit) -> bool:
    """Return whether the history of a branch has a commit."""
    _, head = database.read_head("branch", branch or "")
    return (
        head is not None
        and head.height >= point.height
        and graph.descend(head, point.height, database.commits.read) == point
    )
