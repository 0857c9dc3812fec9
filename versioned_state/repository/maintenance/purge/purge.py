"""``purge``: erase some paths or branches from history, and then from the store. Layer: repository.

It rewrites every commit that holds the data, and every later one (``rewrite``), and moves the refs. Then it collects
garbage, and rewrites a ``Disk`` so that no free page and no log holds the bytes. Every step leaves a sound store. A
purge that is cut off leaves a journal of what it has erased (``journal``): run it again, and it does the rest, and
reports all of it. It does not touch the commits that were rewritten.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from versioned_state.errors import (
    InvalidArgumentError,
    MissingObjectError,
    StateError,
    StorageError,
    StoreBusyError,
    UnfinishedPurgeError,
    UnsafeStoreError,
)
from versioned_state.repository.ledger import erase_effects
from versioned_state.repository.maintenance.gc.collector import Collector, GcReport, collect
from versioned_state.repository.maintenance.purge.journal import Journal
from versioned_state.repository.maintenance.purge.mentions import iter_mentions
from versioned_state.repository.maintenance.purge.reclaim import Reclaimed, reclaim
from versioned_state.repository.maintenance.purge.rewrite import Passes, Progress, RewritePass, SweptError
from versioned_state.repository.refs.named_records import erase_named, find_erased
from versioned_state.repository.refs.ref import match_refs
from versioned_state.storage import Disk, KVStore, Memory
from versioned_state.storage.wrappers.tiered import backends
from versioned_state.values.changes.removal import Target, target_of, target_of_prefix
from versioned_state.values.paths.path import StatePath

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_ATTEMPTS: Final = 1000
_LOOKS: Final = 20
"""Searches for mentions that gc may overtake."""

_NEVER: Final = timedelta(days=365_000)

BEYOND: Final = (
    "backups, copies of the folder, snapshots of the file system, and what other stores pulled or imported",
    "blocks of the disk that the file system no longer uses, above all on an SSD",
    "the memory of other processes, and caches there, until they are closed",
    (
        "handles whose head is an old commit: until they find the branch moved, "
        "they may send objects that hold the data; then purge again"
    ),
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
        records: the names of the records (``Repository.records``) that were erased with the branches.
        shared: the present ids of the commits of these branches that other refs or their reflogs lead to: they stay. If
            the branches were erased at their own cost, only the latest of these commits; those before them stay too.
        paths: the paths that were found.
        mentions: places that contain a word of the paths: commits, by their present ids, whose message, author, meta or
            tag has one; refs, deleted ones too, by their name; merge policies by their pattern; effects by their key or
            result; records. A purge leaves these alone, except for the words of ``replace``. Empty if branches were
            erased at their own cost.
        unreached: places that may still hold the data, in sentences.
        collected: the report of gc, or None in a dry run. If branches were erased at their own cost, it counts only
            their objects.
        dry_run: whether nothing was changed.
    """

    commits: Mapping[str, str]
    holding: tuple[str, ...]
    refs: tuple[str, ...]
    branches: tuple[str, ...]
    effects: tuple[str, ...]
    records: tuple[str, ...]
    shared: tuple[str, ...]
    paths: tuple[str, ...]
    mentions: tuple[str, ...]
    unreached: tuple[str, ...]
    collected: GcReport | None
    dry_run: bool


RECLAIMING: Final = (
    "garbage from before, such as objects of commits that failed or whose reflog has expired: the next gc deletes it",
    "in a Disk, parts of pages away from which SQLite has moved bytes: purge with thorough=True rewrites the file",
    (
        "names of the branches in messages, notes, effects and records of others: "
        "purge with thorough=True looks for mentions"
    ),
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
    """Rewrite history without the values at some paths, and erase them from the store.

    Rewritten and later commits get new ids.

    All branches, tags and reflogs are rewritten, those of deleted refs too. Commits that never held the data, and come
    after none that did, keep their ids. Time, author, message and meta stay; a rewritten commit loses its signature.
    Others may write meanwhile: their commits are rewritten too, and a handle whose head is an old commit merges onto
    the new head as onto any other. Cost: reads every commit once, and the paths in each tree; then a gc, and on
    ``Disk`` a copy of the store; of branches alone, see ``thorough``.

    Args:
        paths: keys (``alice``), parts of values (``users.alice``), or whole namespaces (``@alice``). An index means
            that element in each commit.
        prefixes: beginnings of keys of the state: ``user/alice/``.
        branches: patterns with ``*`` and ``?`` of branches to erase whole: head, reflog, name and records. Commits that
            other refs lead to stay. A handle on such a branch finds it gone. A damaged branch can be given up this way.
        effects: patterns of the keys of effects whose keys and results to erase. Only a hash of the key stays, so that
            none is repeated.
        replace: words to replace in messages, the strings of meta, notes and records, and authors, of reflogs too. A
            commit forgets a tag named so; it stays.
        thorough: read, collect and rewrite the whole store, also if only branches are to be erased. Otherwise branches
            are erased at their own cost, forks too, if a gc has finished before and, for each commit that others led to
            then, a ref is found that leads to it now: see ``reclaim.reclaim``. ``unreached`` names the places that may
            still hold their data.
        dry_run: only report.
        progress: called with the current step; see ``rewrite.Progress``.

    Raises:
        InvalidPathError, InvalidArgumentError: no path, or a bad one. Nothing was changed.
        UnsafeStoreError: gc cannot run over this store, so nothing could be erased. Nothing was changed.
        UnfinishedPurgeError: it failed after it had begun to erase: the store failed, or another gc, writers or a
            reader kept it from finishing. Its ``report`` has what was erased, and its message says what may be left.
            The same purge, run again, in any process, does the rest and reports all of it.
        StoreBusyError: another gc, or writers, kept it from beginning. Nothing was erased.
        StorageError: the store failed. Nothing was erased.
    """
    prefixes = tuple(prefixes)
    patterns = (branches,) if isinstance(branches, str) else tuple(branches)
    keys = (effects,) if isinstance(effects, str) else tuple(effects)
    targets = [*map(target_of, paths), *map(target_of_prefix, prefixes)]
    words = dict(replace or {})
    if not targets and not patterns and not keys and not words:
        raise InvalidArgumentError("purge needs a path, a branch, an effect, or a word to replace")
    if "" in words or "" in prefixes:
        raise InvalidArgumentError("an empty text is in everything")
    if not database.fence.enabled and not dry_run:
        raise UnsafeStoreError("gc cannot run over this store, so nothing could be erased")
    run = _Purge(database, targets, patterns, keys, words, progress or (lambda *_: None), dry_run=dry_run)
    if dry_run:
        return run.look(thorough=thorough)
    try:
        return run.erase(thorough=thorough)
    except Exception as error:
        run.journal.find_out()
        if not run.journal.is_begun:
            raise
        reason = error.what if isinstance(error, StateError) else repr(error)
        raise UnfinishedPurgeError(reason, report=run.report(), remains=run.left) from error


class _Purge:
    """A purge at work.

    Attributes:
        journal: what it has erased.
        left: what may still be in the store, for an error.
    """

    def __init__(
        self,
        database: Database,
        targets: Sequence[Target],
        patterns: Sequence[str],
        keys: Sequence[str],
        words: Mapping[str, str],
        progress: Progress,
        *,
        dry_run: bool,
    ) -> None:
        self._database = database
        self._targets = targets
        self._patterns = patterns
        self._keys = keys
        self._words = words
        self._progress = progress
        self._dry = dry_run
        self._collected: GcReport | None = None
        self._mentions: tuple[str, ...] = ()
        self._places: list[str] = []
        self.left = "an earlier attempt was cut off, and this one has not begun: the data may still be in the store"
        request = (sorted(target.name for target in targets), sorted(patterns), sorted(keys), sorted(words.items()))
        self.journal = Journal(database.store, request, database.now())

    def look(self, *, thorough: bool) -> PurgeReport:
        """Return the report of a dry run."""
        found = self.journal.findings
        found.effects.update(dict.fromkeys(erase_effects(self._database.store, self._keys, dry_run=True)))
        found.records.update(dict.fromkeys(find_erased(self._database.store, self._patterns)))
        if self._is_cheap(thorough=thorough):
            reclaimed = reclaim(self._database, self._patterns, None)
            if reclaimed is not None:
                found.branches.update(dict.fromkeys(reclaimed.branches))
                found.shared.update(dict.fromkeys(reclaimed.shared))
                return self._report_of(reclaimed)
        self._rewrite()
        self._mentions = self._find_mentions()
        return self.report()

    def erase(self, *, thorough: bool) -> PurgeReport:
        """Erase everything, and return the report."""
        cheap = self._reclaim() if self._is_cheap(thorough=thorough) else None
        if cheap is not None:
            report = self._report_of(cheap)
        else:
            # Each step is safe beside gc, but the last one cannot begin while a gc is at work.
            Collector(self._database).check_free()
            self._erase_effects()
            self._erase_records()
            self._rewrite()
            self._erase_records()  # those that were written since, while the branches were still there
            self._collect()
            self.left = "all of it is erased; only the search for mentions is missing"
            self._mentions = self._find_mentions()
            report = self.report()
        with suppress(StorageError):  # all is done; at worst a later purge says that this one has not finished
            self.journal.remove()
        return report

    # Branches at their own cost

    def _is_cheap(self, *, thorough: bool) -> bool:
        """Return whether branches alone are to be erased, and no earlier attempt left objects that only a gc finds."""
        return bool(self._patterns) and not (self._targets or self._words or thorough or self.journal.findings.owed)

    def _reclaim(self) -> Reclaimed | None:
        """Erase the branches at their own cost. None if this cannot be done."""
        store = self._database.store
        self.left = "some of the branches, or of their objects, may still be in the store"
        start = time.monotonic()
        reclaimed = reclaim(self._database, self._patterns, self.journal)
        if reclaimed is None:
            was_done = self.journal.is_begun and not self.journal.findings.owed
            if not was_done or next(match_refs(store, self._patterns, deleted=True), None) is not None:
                return None
            # An earlier attempt has erased the branches and their objects.
            reclaimed = Reclaimed((), (), GcReport(0, 0, None, 0, None, time.monotonic() - start))
        self._erase_effects()
        self._erase_records()
        self._database.forget()
        self.left = (
            "the branches and their objects are deleted, "
            "but search indexes and the log of the store may still hold their data"
        )
        store.drop_derived(list(self.journal.findings.branches))
        for backend in backends(store):
            if isinstance(backend, Disk):
                backend.truncate_log()
        return reclaimed

    def _report_of(self, reclaimed: Reclaimed) -> PurgeReport:
        found, collected = self.journal.findings, reclaimed.collected
        freed, kept = sum(found.freed.values()) or collected.freed, sum(found.kept.values()) or collected.kept
        left = (
            (f"objects of equal content that others had at the last gc as well ({kept} of these branches)",)
            if kept
            else ()
        )
        self._places += [*left, *RECLAIMING]
        if not self._dry:
            self._collected = replace(collected, refs=len(found.branches), freed=freed, kept=kept)
        return self.report()

    # All of history

    def _erase_effects(self) -> None:
        if not self._keys:
            return
        self.left = "some of the effects, and all else that was to be erased, may still be in the store"
        store = self._database.store
        found = erase_effects(store, self._keys, dry_run=True)
        if found:
            self.journal.findings.effects.update(dict.fromkeys(found))
            self.journal.save()
            self.journal.findings.effects.update(dict.fromkeys(erase_effects(store, self._keys)))

    def _erase_records(self) -> None:
        """Erase the records of the branches, and those of branches that were never begun."""
        found = find_erased(self._database.store, self._patterns)
        if found:
            self.left = (
                "some of the records of the branches, and all else that was to be erased, may still be in the store"
            )
            self.journal.findings.records.update(dict.fromkeys(found))
            self.journal.save()
            erase_named(self._database.store, found)

    def _rewrite(self) -> None:
        """Rewrite history without the data, or find what would be rewritten."""
        database, passes, found = self._database, Passes(), self.journal.findings
        for _ in range(_ATTEMPTS):
            with suppress(SweptError):
                rewriting = RewritePass(
                    database,
                    self._targets,
                    self._patterns,
                    self._words,
                    self._progress,
                    clean=passes.clean,
                    dry_run=self._dry,
                )
                try:
                    rewriting.rewrite()
                except MissingObjectError:
                    # Gc may have deleted the commits of a log entry that expired after it was read.
                    rewriting.check_swept()
                    raise
                passes.add(rewriting)
                found = self.journal.findings = self.journal.findings.joined(passes.findings)
                if self._dry:
                    return
                if rewriting.moves or rewriting.erased:
                    found.owed = True
                    self.journal.save()
                    self.left = "some branches, tags or reflogs may still lead to the data"
                if not rewriting.publish():
                    return
        raise StoreBusyError(
            "writers and gc keep changing the store", remains="part of it may not be rewritten yet", hint="run it again"
        )

    def _collect(self) -> None:
        """Delete all unreachable objects, and rewrite the files that may still hold their bytes."""
        database = self._database
        self.left = "no ref leads to the data any more, and its objects are still in the store, all or some of them"
        self._collected = collect(
            database, expire=_NEVER, progress=lambda count, total: self._progress("collecting", count, total)
        )
        self.left = (
            "its objects are deleted, and search indexes, or free pages and the log of the store, "
            "may still hold the data"
        )
        database.forget()
        database.store.drop_derived()
        files = [store for store in backends(database.store) if isinstance(store, Disk)]
        if files:
            self._progress("compacting", 0, None)
            # Free pages and the log still hold data that gc deleted, now or earlier.
            self._collected = replace(self._collected, compacted=sum(store.compact(secure=True) for store in files))

    def _find_mentions(self) -> tuple[str, ...]:
        """Return the places that contain a word.

        A gc of others may delete some of them meanwhile: then all are searched again.
        """
        words = [*(target.word for target in self._targets), *self.journal.findings.branches, *self._words]
        for _ in range(_LOOKS):
            sweeps = self._database.fence.refresh().sweeps
            try:
                return tuple(iter_mentions(self._database, words))
            except MissingObjectError:
                if self._database.fence.refresh().sweeps == sweeps:
                    raise
        raise StoreBusyError("gc keeps deleting what is searched for mentions", hint="run the purge again")

    # The report

    def report(self) -> PurgeReport:
        """Return the findings of this attempt and of earlier ones."""
        found, collected = self.journal.findings, self._collected
        if collected is not None and collected.kept_bytes is not None:
            collected = replace(collected, freed=collected.freed + sum(found.freed.values()))
        places = [*self._places, *_kept_by(self._database.store), *BEYOND]
        places += (
            ["what an earlier attempt of this purge found: its journal is damaged"] if self.journal.is_damaged else []
        )
        places += [
            f"the data of a purge that began at {each:%Y-%m-%d %H:%M} UTC and has not finished: run it again"
            for each in self.journal.others
        ]
        return PurgeReport(
            commits=dict.fromkeys(found.commits, "") if self._dry else dict(found.commits),
            holding=tuple(found.holding),
            refs=tuple(found.refs),
            branches=tuple(found.branches),
            effects=tuple(sorted(found.effects)),
            records=tuple(sorted(found.records)),
            shared=tuple(dict.fromkeys(found.commits.get(id, id) for id in found.shared)),
            paths=tuple(sorted(found.paths)),
            mentions=self._mentions,
            unreached=tuple(places),
            collected=collected,
            dry_run=self._dry,
        )


def _kept_by(store: KVStore) -> Iterator[str]:
    """Yield for each backend the places where it may keep deleted values by itself."""
    for backend in backends(store):
        if not isinstance(backend, Disk | Memory):
            yield (
                f"what {type(backend).__name__} keeps of deleted values by itself: "
                "logs, replicas, free pages, old versions, dumps"
            )
