"""``prune``, which ends the history of branches, so that older commits become garbage. Layer: repository.

Ids never change. Nothing is deleted here: a record names the commits at which history ends (``history/shallow``), and
``gc`` deletes the commits that nothing reaches any more::

    before    root ── 1 ── 2 ── 3 ── 4 ── 5  main
                           └─ 6 ── 7  side

    keep_last=2 for main             4 ── 5  main, shallow at 4; 3 is garbage
                      root ── 1 ── 2 ── 6 ── 7  side

A commit that a branch outside of the pattern, a tag or a reflog still reaches stays, with everything before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Final

from versioned_state.arguments import age, count
from versioned_state.errors import InvalidArgumentError, MissingObjectError, StoreBusyError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import REF_KINDS, ref_key
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, ROOT_ID, Commit
from versioned_state.repository.history.shallow import Shallow, ShallowCommit
from versioned_state.repository.maintenance.gc.collector import GcReport, collect
from versioned_state.repository.names.resolve import resolve
from versioned_state.repository.refs.own_line import find_own_line
from versioned_state.repository.refs.ref import Ref, iter_refs, match_refs
from versioned_state.repository.refs.reflog import DEFAULT_EXPIRE

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_ATTEMPTS: Final = 100
"""The most plans that another ``prune`` may overtake before this one gives up."""

_READ_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class PrunedBranch:
    """A pruned branch: the commit at which its history now ends, and how many commits (by first parents) it keeps."""

    branch: str
    at: Commit
    kept: int


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The result of a prune, or of a dry run.

    Attributes:
        branches: the branches that were pruned, without those whose older commits all stay because of other refs.
        kept: commits that the pruned branches still reach.
        removed: commits that are no longer reachable: garbage for ``gc``.
        dry_run: whether nothing was changed.
        collected: the report of gc, if it ran.
    """

    branches: tuple[PrunedBranch, ...]
    kept: int
    removed: int
    dry_run: bool
    collected: GcReport | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The commits that a prune makes shallow, and the report of it."""

    made: dict[bytes, ShallowCommit]
    report: PruneReport


def prune(
    database: Database,
    *,
    keep_last: int | None = None,
    older_than: timedelta | None = None,
    down_to: str | Commit | None = None,
    keep_tagged: bool = True,
    branches: str | Iterable[str] = "*",
    expire: timedelta | None = None,
    gc: bool = False,
    dry_run: bool = False,
) -> PruneReport:
    """End the history of branches, so that their older commits become garbage. Deletes nothing: ``gc`` does.

    A branch keeps the commits, by first parents, that are among its last ``keep_last`` or not older than
    ``older_than``, and those from its head down to ``down_to``; the head always stays. Merged commits stay as far back
    as those go. One compare-and-set publishes the change; writers are never in the way, and never held up. Cost: reads
    the commits of the pruned branches, and the tags that they were made with, if no other ref was ever pointed at one
    of them or merged it, and none is a merge; the store keeps that. Else it reads the records and heads of all refs,
    O(log n) commits of each line, and every commit of the lines that the pruned branches are part of; of all refs, if
    one of them has a merge.

    Args:
        keep_last: how many commits of a branch to keep, by first parents; 1 or more.
        older_than: the age, by their own time, from which commits may go.
        down_to: a revision: the oldest commit to keep, whatever was committed since. A branch without it, by first
            parents, stays as it is, also if others have pruned it meanwhile.
        keep_tagged: a tag keeps everything before it, as a branch outside of the pattern does. If not, each tag of the
            store keeps only its own commit, unless a branch outside of the pattern leads to it.
        branches: patterns with ``*`` and ``?`` of the branches to prune.
        expire: the age from which an entry of a reflog keeps nothing, as for ``gc``, and by default the same.
        gc: collect garbage right afterwards, with the same ``expire``.
        dry_run: only report.

    Raises:
        InvalidArgumentError: none of ``keep_last``, ``older_than``, ``down_to`` was given, or one is too small. Nothing
            was changed.
        UnknownRevisionError: ``down_to`` does not name a commit. Nothing was changed.
        StoreBusyError: others kept pruning at the same time. Nothing was changed.
    """
    if keep_last is None and older_than is None and down_to is None:
        raise InvalidArgumentError("prune needs keep_last, older_than or down_to")
    if keep_last is not None:
        keep_last = count("keep_last", keep_last, least=1)  # the head of a branch always stays
    if older_than is not None:
        age("older_than", older_than)
    expire = DEFAULT_EXPIRE if expire is None else age("expire", expire)
    patterns = (branches,) if isinstance(branches, str) else tuple(branches)
    now = database.clock()

    def look() -> tuple[Shallow, Plan]:
        shallow = database.commits.refresh_shallow()
        retention = Retention(
            keep_last=keep_last or 1,
            since=None if older_than is None else now - older_than // timedelta(microseconds=1),
            # A commit is only compared: others may have pruned and collected it, and then its branch stays as it is.
            down_to=down_to if down_to is None or isinstance(down_to, Commit) else resolve(database, down_to),
            keep_tagged=keep_tagged,
            patterns=patterns,
            # An earlier gc may have deleted what it took for expired, whatever ``expire`` is now.
            entries_since=max(now - expire // timedelta(microseconds=1), database.fence.record.expired),
        )
        return shallow, plan_of_own(database, retention, dry_run=dry_run) or plan_of_all(
            database, retention, dry_run=dry_run
        )

    for _ in range(_ATTEMPTS):
        shallow, plan = database.unless_swept(look)
        if dry_run:
            return plan.report
        if not plan.made or database.commits.add_cuts(shallow, plan.made):
            return replace(plan.report, collected=collect(database, expire=expire)) if gc else plan.report
    raise StoreBusyError("others keep pruning this store")


@dataclass(frozen=True, slots=True)
class Retention:
    """The requested retention, with times in microseconds."""

    keep_last: int
    since: int | None
    down_to: Commit | None
    keep_tagged: bool
    patterns: tuple[str, ...]
    entries_since: int

    def floor(self, head: Commit, read: graph.Read) -> tuple[Commit, int, bool]:
        """Return the oldest commit of a branch that stays, how many stay, and whether any before it goes."""
        kept = 0
        floor = head
        below = self.down_to is None
        for commit in graph.first_parents(head, read):
            if commit.id == ROOT_ID:
                return floor, kept, False
            if below and kept >= self.keep_last and (self.since is None or commit.time < self.since):
                return floor, kept, True
            floor = commit
            kept += 1
            below = below or commit == self.down_to
        return floor, kept, False

    def prunes(self, branch: str) -> bool:
        return any(fnmatchcase(branch, pattern) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class _Roots:
    """The heads that history is reached from.

    They are the pruned branches by name, the heads that keep all history, and the tags that keep only themselves.
    """

    pruned: dict[str, Commit]
    whole: list[Commit]
    tagged: list[Commit]
    before: set[Address]


def _roots(database: Database, retention: Retention) -> _Roots:
    read = database.commits.read
    pruned: dict[str, Commit] = {}
    tags: list[Commit] = []
    whole: list[Commit] = []
    refs = (ref for kind in REF_KINDS for ref in iter_refs(database.store, kind, deleted=True))
    while some := list(islice(refs, _READ_AT_ONCE)):
        heads = database.commits.read_many(ref.head for ref in some if ref.head is not None)
        for ref in some:
            whole += logged_commits(database, ref, since=retention.entries_since)
            if ref.head is None:
                continue
            if ref.kind == "branch" and retention.prunes(ref.name):
                pruned[ref.name] = heads[ref.head]
            else:
                (whole if ref.kind == "branch" else tags).append(heads[ref.head])
    if retention.keep_tagged:
        whole, tags = whole + tags, []
    if not tags:
        whole = _beside(whole, list(pruned.values()), read)
    untouched = {commit.address for commit in graph.walk(whole, read)} if tags else set()
    loose = [commit for commit in tags if commit.address not in untouched]
    before = {commit.address for commit in graph.walk([*pruned.values(), *loose], read)}
    return _Roots(pruned, whole, loose, before)


def _beside(heads: list[Commit], pruned: list[Commit], read: graph.Read) -> list[Commit]:
    """Return those of some heads that may lead to a commit of the pruned branches.

    The history of the others need not be read.

    Two lines without merges that share a commit end at the same one. Cost: O(log n) reads for each head.
    """
    if any(head.merge_height for head in pruned):
        return heads
    ends = {graph.descend(head, 1, read) for head in pruned}
    return [head for head in heads if head.merge_height or graph.descend(head, 1, read) in ends]


def plan_of_own(database: Database, retention: Retention, *, dry_run: bool) -> Plan | None:
    """Return the plan, or None if a ref other than the pruned branches may lead to the commits in question.

    Cost: reads those commits, and lists the branches with the text that the patterns begin with.
    """
    if not retention.keep_tagged and database.store.page(ref_key("tag", ""), limit=1):
        return None  # the history of all tags goes
    made: dict[bytes, ShallowCommit] = {}
    pruned = []
    kept = removed = 0
    bases: dict[Address, Commit] = {}
    for ref in match_refs(database.store, retention.patterns):
        line = find_own_line(database, ref)
        if line is None or (line.named is not None and line.base is not None and line.named < retention.entries_since):
            return None
        if line.base is not None and line.base.height:
            bases[line.base.address] = line.base
        if not line.commits:
            continue
        floor, length, more = retention.floor(line.commits[0], database.commits.read)
        own = [commit.address for commit in line.commits]
        below = own.index(floor.address) + 1 if floor.address in own else len(own)
        gone = max(line.tagged - below, 0)
        kept += len(own) - gone
        removed += gone
        if more and gone:
            made[floor.address] = ShallowCommit(floor.height, 0)
            pruned.append(PrunedBranch(ref.name, floor, length))
    kept += _history_of(list(bases.values()), database.commits.read)
    return Plan(made, PruneReport(tuple(pruned), kept, removed, dry_run))


def _history_of(commits: list[Commit], read: graph.Read) -> int:
    """Return how many commits lead to some commits, these included, without the empty root commit.

    Cost: O(log n) reads for one line.
    """
    if len(commits) == 1 and not commits[0].merge_height:
        return commits[0].height - max(graph.descend(commits[0], 0, read).height, 1) + 1
    return sum(1 for commit in graph.walk(commits, read) if commit.address != ROOT_ADDRESS)


def plan_of_all(database: Database, retention: Retention, *, dry_run: bool) -> Plan:
    """Return the plan, from the heads of all refs and everything that leads to them."""
    roots = _roots(database, retention)
    pruned, before = roots.pruned, roots.before
    whole = list(roots.whole)
    floors: dict[str, tuple[Commit, int]] = {}
    for name, head in pruned.items():
        floor, length, more = retention.floor(head, database.commits.read)
        if more:
            floors[name] = floor, length
        else:
            whole.append(head)
    untouched = {ROOT_ADDRESS, *(commit.address for commit in graph.walk(whole, database.commits.read))}
    within: dict[Address, Commit] = {}
    for name, (floor, _) in floors.items():
        within.update(_down_to(floor, pruned[name], database))
    within.update({commit.address: commit for commit in roots.tagged})

    made: dict[bytes, ShallowCommit] = {}
    for address, commit in within.items():
        parents = database.commits.read_stored(address).parent_addresses
        kept = [parent in commit.parent_addresses and (parent in untouched or parent in within) for parent in parents]
        # Without its first parent a commit would have the second one as its first, at another height.
        bits = sum(1 << index for index, keep in enumerate(kept) if keep) if kept and kept[0] else 0
        if bits != sum(1 << index for index, parent in enumerate(parents) if parent in commit.parent_addresses):
            made[address] = ShallowCommit(commit.height, bits)

    old = database.commits.shallow
    grafted = Shallow({**old, **made})

    def read_then(address: Address) -> Commit:
        return grafted.graft(database.commits.read_stored(address))

    heads = [read_then(commit.address) for commit in (*pruned.values(), *whole, *roots.tagged)]
    after = {commit.address for commit in graph.walk(heads, read_then)}
    made = {address: shallow for address, shallow in made.items() if address in after}
    report = PruneReport(
        branches=tuple(
            PrunedBranch(name, floor, length)
            for name, (floor, length) in floors.items()
            if floor.address in made or floor.address in old
        ),
        kept=len((before & after) - {ROOT_ADDRESS}),
        removed=len(before - after - {ROOT_ADDRESS}),
        dry_run=dry_run,
    )
    return Plan({address: cut for address, cut in made.items() if old.get(address) != cut}, report)


def _down_to(floor: Commit, head: Commit, database: Database) -> dict[Address, Commit]:
    """Return the commits that a branch keeps: down to the floor, and merged ones down to its generation."""
    found = {head.address: head}
    pending = [head]
    while pending:
        commit = pending.pop()
        if commit == floor:
            continue
        for parent in database.commits.parents(commit):
            if parent.address not in found and (parent == floor or parent.generation > floor.generation):
                found[parent.address] = parent
                pending.append(parent)
    return found


def logged_commits(database: Database, ref: Ref, *, since: int | None = None) -> Iterator[Commit]:
    """Yield the commits that the entries of a reflog name, newest first, down to a time in microseconds."""
    for entry in database.iter_log(ref):
        if since is not None and entry.time < since:
            return
        for address in (entry.new, entry.old):
            if address is not None:
                with suppress(MissingObjectError):
                    yield database.commits.read(address)
