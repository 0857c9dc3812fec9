"""The commits of a branch that no other ref leads to, known without a scan of all refs. Layer: repository.

Another ref can lead to a commit in three ways: it is the tag that the commit names; it was pointed at that commit or
merged it, which leaves a record under ``shared_key``; or it was pointed at a later commit. A commit that a branch made
after its last log entry has no later commits elsewhere, since from then on only commits moved the branch.
``docs/design/021-many-branches.md`` has the proof.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from versioned_state.objects.address import Address
from versioned_state.objects.keys import REF_KINDS, shared_key
from versioned_state.records import dataclass
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit
from versioned_state.repository.refs.ref import Ref, may_be_name, read_refs
from versioned_state.repository.refs.shared import read_shared

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class OwnLine:
    """The part of a branch's line that the branch alone leads to.

    Attributes:
        commits: the newest first; none of them is a merge. Tags that were made with them lead to some.
        tagged: the number in ``commits`` of the newest one with such a tag, which leads to those below; else how many
            there are.
        base: the commit below: the one that the branch was moved to last, which its reflog names; or the empty root
            commit; None if history was pruned above it.
        named: when the reflog named the base, in microseconds, or None if it does not, as with the root commit.
    """

    commits: tuple[Commit, ...]
    tagged: int
    base: Commit | None
    named: int | None


def find_own_line(database: Database, ref: Ref) -> OwnLine | None:
    """Return the line of a branch, if no other ref but tags of its own leads to any commit of it, or None if one may.

    Cost: reads those commits, and a few records.
    """
    if ref.head is None or not database.fence.enabled:
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
    tagged = len(commits)
    numbered = enumerate(commits)
    while some := list(islice(numbered, _AT_ONCE)):
        if database.store.get_many([shared_key(commit.address) for _, commit in some]):
            return None
        named_tags = [
            (number, commit, commit.tag)
            for number, commit in some
            if commit.tag is not None and may_be_name(commit.tag)
        ]
        tags = read_refs(database.store, [("tag", name) for *_, name in named_tags]) if named_tags else []
        for (number, commit, _), tag in zip(named_tags, tags, strict=True):
            if tag.head == commit.address:
                tagged = min(tagged, number)
            elif tag.stored is not None:
                return None  # the reflog of the tag may lead to the commit
    return OwnLine(tuple(commits), tagged, base, named)


def find_sharers(database: Database, ref: Ref, head: Commit) -> list[Ref] | None:
    """Return the refs that probably lead to the head of a branch, or None if only the branch itself does.

    The list may lack a ref that leads there, or be empty. Cost: a few reads.
    """
    if not database.fence.enabled:
        return []
    key = shared_key(head.address)
    stored = database.store.get(key)
    names = [] if stored is None else read_shared(key, stored)
    names += [] if head.tag is None else [head.tag]
    found = (
        read_refs(
            database.store, [(kind, name) for name in dict.fromkeys(filter(may_be_name, names)) for kind in REF_KINDS]
        )
        if names
        else []
    )
    others = [each for each in found if each.head is not None and (each.kind, each.name) != ("branch", ref.name)]
    # If the branch was moved to its head, it may have left later commits, and another ref may have been pointed at
    # these.
    was_moved = ref.log is not None and database.read_log(ref.log).new == ref.head
    own_tag = any(each.kind == "tag" and each.name == head.tag and each.head == head.address for each in others)
    return others if stored is not None or was_moved or own_tag else None
