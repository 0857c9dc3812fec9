"""The commits of a branch that no other ref leads to, known without a scan of all refs. Layer: repository.

Another ref leads to a commit because it was pointed at that commit or merged it, which leaves a record under ``shared_key``; or because it
was pointed at a later one. A branch has no later ones if it made the commit after its last log entry, since from then on it was moved by
commits alone. ``docs/design/021-many-branches.md`` has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from versioned_state.objects.address import Address
from versioned_state.objects.keys import shared_key
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.refs.ref import Ref

_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class OwnLine:
    """The part of a branch's line that the branch alone leads to.

    Attributes:
        commits: the newest first; none of them is a merge.
        base: the commit below: the one that the branch was moved to last, which its reflog names; or the empty root commit; None if history
            was pruned above it.
        named: when the reflog named the base, in microseconds; None if it does not, as with the root commit.
    """

    commits: tuple[Commit, ...]
    base: Commit | None
    named: int | None


def find_own_line(database: Database, ref: Ref) -> OwnLine | None:
    """The line of a branch, if no other ref leads to any commit of it; None if one may. Cost: reads those commits, and a few records."""
    if ref.head is None or ref.tagged or not database.fence.enabled:
        return None
    end: Address = ROOT_ADDRESS
    named = None
    if ref.log is not None:
        entry = database.read_log(ref.log)
        if entry.new is None:
            return None
        end, named = entry.new, entry.time
    commits: list[Commit] = []
    base = None
    for commit in graph.first_parents(database.commits.read(ref.head), database.commits.read):
        if commit.address == end:
            base = commit
            break
        if commit.address == ROOT_ADDRESS or len(commit.parent_addresses) > 1:
            return None
        commits.append(commit)
    if _any_shared(database, (commit.address for commit in commits)):
        return None
    return OwnLine(tuple(commits), base, named)


def is_shared(database: Database, ref: Ref) -> bool:
    """Whether any ref but this one may lead to its head. Cost: a read or two."""
    if ref.tagged or ref.head is None or not database.fence.enabled:
        return True
    if ref.log is not None and database.read_log(ref.log).new == ref.head:
        return True  # the branch may have left later commits, and another ref may have been pointed at these
    return _any_shared(database, [ref.head])


def _any_shared(database: Database, addresses: Iterable[Address]) -> bool:
    keys = map(shared_key, addresses)
    while some := list(islice(keys, _AT_ONCE)):
        if database.store.get_many(some):
            return True
    return False
