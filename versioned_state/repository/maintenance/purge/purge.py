"""``purge``: erase some paths or branches from history, and then from the store. Layer: repository.

It rewrites every commit that holds the data, and every later one (``rewrite``), and moves the refs. Then it collects garbage, and rewrites
a ``Disk`` so that no free page and no log holds the bytes. Every step leaves a sound store. After an interrupt, run the purge again: it
does not touch the commits that it has rewritten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from versioned_state.errors import InvalidArgumentError, MissingObjectError, StoreBusyError, UnsafeStoreError
from versioned_state.repository.ledger import erase_effects
from versioned_state.repository.maintenance.gc.collector import GcReport, collect
from versioned_state.repository.maintenance.purge.mentions import iter_mentions
from versioned_state.repository.maintenance.purge.reclaim import Reclaimed, reclaim
from versioned_state.repository.maintenance.purge.rewrite import Passes, Progress, RewritePass, SweptError
from versioned_state.storage import Disk, KVStore, Memory
from versioned_state.storage.wrappers.tiered import backends
from versioned_state.values.changes.removal import target_of, target_of_prefix
from versioned_state.values.paths.path import StatePath

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_ATTEMPTS: Final = 1000
_NEVER: Final = timedelta(days=365_000)

BEYOND: Final = (
    "backups, copies of the folder, snapshots of the file system, and what other stores pulled or imported",
    "blocks of the disk that the file system no longer uses, above all on an SSD",
    "the memory of other processes, and caches there, until they are closed",
    "handles whose head is an old commit: until they find the branch moved, they may send objects that hold the data; then purge again",
    "pickled objects, sets and values of registered types that hold it inside: purge the key above them",
)
"""Places that a purge cannot reach, whatever the store."""


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The result of a purge, or of a dry run.

    Attributes:
        commits: the new id of each rewritten commit, by its old id; in a dry run the new ids are empty.
        holding: the old ids of the commits that held some of the data; the others come after one of these.
        refs: the branches and tags whose head or reflog was rewritten, as ``branch main``.
        branches: the branches that were erased, deleted ones too.
        effects: the keys of the effects whose keys and results were erased.
        shared: the present ids of the commits of these branches that other refs or their reflogs lead to: they stay.
        paths: the paths that were found.
        mentions: places that contain a word of the paths: commits, by their present ids, whose message, author, meta or tag has one; refs,
            deleted ones too, by their name; merge policies by their pattern; effects by their key or result. A purge leaves these alone,
            except for the words of ``replace``. Empty if branches were erased at their own cost.
        unreached: places that may still hold the data, in sentences.
        collected: the report of gc; None in a dry run. If branches were erased at their own cost, it counts only their objects.
        dry_run: whether nothing was changed.
    """

    commits: Mapping[str, str]
    holding: tuple[str, ...]
    refs: tuple[str, ...]
    branches: tuple[str, ...]
    effects: tuple[str, ...]
    shared: tuple[str, ...]
    paths: tuple[str, ...]
    mentions: tuple[str, ...]
    unreached: tuple[str, ...]
    collected: GcReport | None
    dry_run: bool


RECLAIMING: Final = (
    "garbage from before, such as objects of commits that failed or whose reflog has expired: the next gc deletes it",
    "in a Disk, parts of pages away from which SQLite has moved bytes: purge with thorough=True rewrites the file",
    "names of the branches in messages, notes, effects and records of others: purge with thorough=True looks for mentions",
)
"""Places that a purge does not reach if it erases branches at their own cost."""


def purge(
    database: Database,
    *paths: str | StatePath,
    prefixes: Iterable[str] = (),
    branches: str | Iterable[str] = (),
    effects: str | Iterable[str] = (),
    replace: Mapping[str, str] | None = None,
    thorough: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PurgeReport:
    """Rewrite history without the values at some paths, and erase them from the store. Rewritten and later commits get new ids.

    All branches, tags and reflogs are rewritten, those of deleted refs too. Commits that never held the data, and come after none that
    did, keep their ids. Time, author, message and meta stay; a rewritten commit loses its signature. Others may write meanwhile: their
    commits are rewritten too, and a handle whose head is an old commit merges onto the new head as onto any other. Cost: reads every
    commit once, and the paths in each tree; then a gc, and on ``Disk`` a copy of the store; of branches alone, see ``thorough``.

    Args:
        paths: keys (``alice``), parts of values (``users.alice``), or whole namespaces (``@alice``). An index means that element in each
            commit.
        prefixes: beginnings of keys of the state: ``user/alice/``.
        branches: patterns with ``*`` and ``?`` of branches to erase whole: head, reflog and name. Commits that other refs lead to stay. A
            handle on such a branch finds it gone. A damaged branch can be given up this way.
        effects: patterns of the keys of effects whose keys and results to erase. Only a hash of the key stays, so that none is repeated.
        replace: words to replace in messages, the strings of meta, and authors, of reflogs too. A commit forgets a tag named so; it stays.
        thorough: read, collect and rewrite the whole store, also if only branches are to be erased. Otherwise branches whose commits no
            other ref led to at the last gc, or leads to now, are erased at their own cost: see ``reclaim.reclaim``. ``unreached`` names
            the places that may still hold their data.
        dry_run: only report.
        progress: called with the current step; see ``rewrite.Progress``.

    Raises:
        InvalidPathError, InvalidArgumentError: no path, or a bad one. Nothing was changed.
        UnsafeStoreError: gc cannot run over this store, so nothing could be erased. Nothing was changed.
        StoreBusyError: another gc, writers or a reader kept it from finishing. Run it again.
        StorageError: the store failed. Some refs may have been rewritten; the others are unchanged. Run it again.
    """
    prefixes = tuple(prefixes)
    patterns = (branches,) if isinstance(branches, str) else tuple(branches)
    keys = (effects,) if isinstance(effects, str) else tuple(effects)
    report_progress = progress or (lambda *_: None)
    targets = [*map(target_of, paths), *map(target_of_prefix, prefixes)]
    words = dict(replace or {})
    if not targets and not patterns and not keys and not words:
        raise InvalidArgumentError("purge needs a path, a branch, an effect, or a word to replace", remains="nothing was changed")
    if "" in words or "" in prefixes:
        raise InvalidArgumentError("an empty text is in everything", remains="nothing was changed")
    if not database.fence.enabled and not dry_run:
        raise UnsafeStoreError("gc cannot run over this store, so nothing could be erased", remains="nothing was changed")
    erased = erase_effects(database.store, keys, dry_run=dry_run)
    if patterns and not (targets or words or thorough):
        reclaimed = reclaim(database, patterns, dry_run=dry_run)
        if reclaimed is not None:
            return _report_of(reclaimed, erased, database.store)
    passes = Passes()
    for _ in range(_ATTEMPTS):
        with suppress(SweptError):
            rewriting = RewritePass(database, targets, patterns, words, report_progress, clean=passes.clean, dry_run=dry_run)
            try:
                rewriting.rewrite()
            except MissingObjectError:
                # Gc may have deleted the commits of a log entry that expired after it was read.
                rewriting.check_swept()
                raise
            passes.add(rewriting)
            if dry_run or not rewriting.publish():
                break
    else:
        raise StoreBusyError("writers and gc keep changing the store", remains="part of it may not be rewritten yet", hint="run it again")
    collected = None if dry_run else _erase(database, report_progress)
    return PurgeReport(
        commits=dict.fromkeys(passes.commits, "") if dry_run else passes.commits,
        holding=tuple(passes.holding),
        refs=tuple(passes.refs),
        branches=tuple(passes.branches),
        effects=tuple(erased),
        shared=tuple(passes.shared),
        paths=tuple(sorted(passes.paths)),
        mentions=tuple(iter_mentions(database, [*(target.word for target in targets), *passes.branches, *words])),
        unreached=(*_kept_by(database.store), *BEYOND),
        collected=collected,
        dry_run=dry_run,
    )


def _report_of(reclaimed: Reclaimed, effects: Sequence[str], store: KVStore) -> PurgeReport:
    report = reclaimed.collected
    left = (f"objects of equal content that others had at the last gc as well ({report.kept} of these branches)",) if report.kept else ()
    return PurgeReport(
        commits={},
        holding=(),
        refs=(),
        branches=reclaimed.branches,
        effects=tuple(effects),
        shared=(),
        paths=(),
        mentions=(),
        unreached=(*left, *RECLAIMING, *_kept_by(store), *BEYOND),
        collected=None if report.dry_run else report,
        dry_run=report.dry_run,
    )


def _erase(database: Database, progress: Progress) -> GcReport:
    """Delete all unreachable objects, and rewrite the files that may still hold their bytes."""
    collected = collect(database, expire=_NEVER, progress=lambda count, total: progress("collecting", count, total))
    database.forget()
    database.store.drop_derived()
    files = [store for store in backends(database.store) if isinstance(store, Disk)]
    if files:
        progress("compacting", 0, None)
        # Free pages and the log still hold data that gc deleted, now or earlier.
        return dataclasses.replace(collected, compacted=sum(store.compact(secure=True) for store in files))
    return collected


def _kept_by(store: KVStore) -> Iterator[str]:
    """For each backend, the places where it may keep deleted values by itself."""
    for backend in backends(store):
        if not isinstance(backend, Disk | Memory):
            yield f"what {type(backend).__name__} keeps of deleted values by itself: logs, replicas, free pages, old versions, dumps"
