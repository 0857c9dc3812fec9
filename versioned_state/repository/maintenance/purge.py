"""Purge: history is rewritten so that no commit, reflog or object holds the data of some paths or branches. Layer: repository.

Every commit that holds the data, and every later one, is made anew without it; refs and reflogs are moved over; then garbage is collected,
and a ``Disk`` is rewritten so that no free page and no log holds the bytes. Each step leaves a whole store, and a purge that was
interrupted is run again: commits that were rewritten are not touched again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from versioned_state.errors import CorruptObjectError, InvalidArgumentError, MissingObjectError, StoreBusyError, UnsafeStoreError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import RefKind, lock_key, note_key, ref_key
from versioned_state.objects.record import replace_record
from versioned_state.objects.store import Staging
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, ROOT_ID, Commit, with_address
from versioned_state.repository.history.shallow import ShallowCommit
from versioned_state.repository.ledger import erase_effects
from versioned_state.repository.maintenance.gc import GcReport, collect
from versioned_state.repository.maintenance.mentions import iter_mentions
from versioned_state.repository.maintenance.reclaim import Reclaimed, reclaim
from versioned_state.repository.refs.notes import iter_notes, read_note, write_note
from versioned_state.repository.refs.ref import Ref, iter_refs, keys_of, rewritten
from versioned_state.repository.refs.reflog import LogEntry, read_entry, write_entry
from versioned_state.repository.refs.shared import carry_shared
from versioned_state.storage import Disk, KVStore, Memory
from versioned_state.storage.wrappers.tiered import backends
from versioned_state.values.changes.removal import Remover, Target, target_of, target_of_prefix
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Nodes

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

Progress = Callable[[str, int, int | None], None]
"""Called with the current step, how much of it is done, and the total, or None if that is not known."""

_KINDS: Final[tuple[RefKind, ...]] = ("branch", "tag")
_FLUSH_AT: Final = 4 * 1024 * 1024
_REFS_A_BATCH: Final = 500
_ATTEMPTS: Final = 1000
_NEVER: Final = timedelta(days=365_000)
_ANEW: Final = "0" * 48
"""Stands for the new id of a commit in a dry run."""
_STAGED_DRY: Final = 4096
"""Objects after which a dry run drops the objects that it would have written: nothing reads them."""

BEYOND: Final = (
    "backups, copies of the folder, snapshots of the file system, and what other stores pulled or imported",
    "blocks of the disk that the file system has given up, above all on an SSD",
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
        shared: commits of these, by the ids that they have now, that other refs or their reflogs lead to: they stay.
        paths: the paths that were found.
        mentions: commits, by the ids that they have now, whose message, author, meta or tag has a word of the paths: a purge leaves
            those alone, unless ``replace`` says what to put there. And refs, deleted ones too, whose name has one, merge policies whose
            pattern has, and effects whose key or result has. Empty if branches were erased at their own cost.
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
"""Places that a purge does not reach that erases branches at the cost of these alone."""


class _SweptError(Exception):
    """Gc deleted something while commits were made anew, so that some of the new objects may be gone."""


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
        thorough: read, collect and rewrite the whole store, also if only branches are to be erased. If not, branches to whose commits
            nobody else led at the last gc, or leads now, are erased at their own cost: see ``reclaim.reclaim``. ``unreached`` says what
            may be left.
        dry_run: only report.
        progress: see ``Progress``.

    Raises:
        InvalidPathError, InvalidArgumentError: no path, or a bad one. Nothing was changed.
        UnsafeStoreError: gc cannot run over this store, so nothing could be erased. Nothing was changed.
        StoreBusyError: another gc, writers or a reader would not let it finish. Run it again.
        StorageError: the store failed. Some refs may be rewritten, and the others are as they were. Run it again.
    """
    prefixes = tuple(prefixes)
    patterns = (branches,) if isinstance(branches, str) else tuple(branches)
    keys = (effects,) if isinstance(effects, str) else tuple(effects)
    told = progress or (lambda *_: None)
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
    done = _Done()
    for _ in range(_ATTEMPTS):
        with suppress(_SweptError):
            one = _Pass(database, targets, patterns, words, told, clean=done.clean, dry_run=dry_run)
            try:
                one.rewrite()
            except MissingObjectError:
                # Gc may have deleted the commits of a log entry that has expired since it was read.
                one.check_swept()
                raise
            done.add(one)
            if dry_run or not one.publish():
                break
    else:
        raise StoreBusyError("writers and gc keep changing the store", remains="part of it may not be rewritten yet", hint="run it again")
    collected = None if dry_run else _erase(database, told)
    return PurgeReport(
        commits=dict.fromkeys(done.commits, "") if dry_run else done.commits,
        holding=tuple(done.holding),
        refs=tuple(done.refs),
        branches=tuple(done.branches),
        effects=tuple(erased),
        shared=tuple(done.shared),
        paths=tuple(sorted(done.paths)),
        mentions=tuple(iter_mentions(database, [*(target.word for target in targets), *done.branches, *words])),
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


class _Done:
    """The result of all passes: a later pass rewrites what other writers committed meanwhile.

    ``clean`` has the ids of commits that hold none of the data and come after none that does: no pass looks into them again.
    """

    def __init__(self) -> None:
        self.clean: set[str] = {ROOT_ID}
        self.commits: dict[str, str] = {}
        self.holding: dict[str, None] = {}
        self.refs: dict[str, None] = {}
        self.branches: dict[str, None] = {}
        self.shared: list[str] = []
        self.paths: set[str] = set()

    def add(self, one: _Pass) -> None:
        self.commits.update(one.renamed)
        self.holding.update(dict.fromkeys(one.holding))
        self.refs.update(dict.fromkeys(f"{ref.kind} {ref.name}" for ref, _, _ in one.moves))
        self.branches.update(dict.fromkeys(ref.name for ref in one.erased))
        # Once a branch is gone, no later pass finds what it shared.
        self.shared = [one.renamed.get(id, id) for id in (*self.shared, *one.shared)]
        self.paths |= one.paths


class _Pass:
    """One rewriting of everything that is reachable now."""

    def __init__(
        self,
        database: Database,
        targets: Sequence[Target],
        patterns: Sequence[str],
        words: Mapping[str, str],
        progress: Progress,
        *,
        clean: set[str],
        dry_run: bool,
    ) -> None:
        self._database = database
        self._patterns = patterns
        self._rewrites = bool(targets or words)
        self._words = words
        self._progress = progress
        self._clean = clean
        self._dry = dry_run
        # Publication notices whatever gc deletes from here on.
        self._sweeps = database.fence.refresh().sweeps
        self._staging = Staging(database.objects, flush_at=None if dry_run else _FLUSH_AT)
        self._nodes = Nodes(self._staging, staging=self._staging)
        self._remover = Remover(self._nodes, targets)
        self._shallow: dict[bytes, ShallowCommit] = {}
        self.renamed: dict[str, str] = {}
        self.holding: list[str] = []
        self.paths: set[str] = set()
        self.moves: list[tuple[Ref, Address | None, Address | None]] = []
        self.erased: list[Ref] = []
        self._left: set[str] = set()  # the names of all other refs
        self._untagged: list[Address] = []  # commits made anew that named a tag, and no longer do
        self.shared: list[str] = []
        self._carried: dict[str, bytes] = {}

    def rewrite(self) -> None:
        """Make commits and log entries anew, and note which refs are to move. No reachable object is changed."""
        database = self._database
        database.commits.refresh_shallow()
        every = [ref for kind in _KINDS for ref in iter_refs(database.store, kind, deleted=True)]
        logs = {(ref.kind, ref.name): list(_iter_log(database, ref)) for ref in every}
        self.erased = [ref for ref in every if ref.kind == "branch" and any(fnmatchcase(ref.name, pattern) for pattern in self._patterns)]
        refs = [ref for ref in every if ref not in self.erased]
        self._left = {ref.name for ref in refs}
        # Only addresses are held, children before parents: a commit is read again when its turn comes.
        addresses = [commit.address for commit in graph.walk(self._named(refs, logs), database.commits.read)]
        if self.erased:
            kept = {*addresses} - {ROOT_ADDRESS}
            # A branch may be erased because it is damaged: it is read as far as it can be.
            with suppress(MissingObjectError, CorruptObjectError):
                for commit in graph.walk(self._named(self.erased, logs, damaged=True), database.commits.read):
                    self.shared += [commit.id] if commit.address in kept else []
        for count, address in enumerate(reversed(addresses) if self._rewrites else ()):
            self._progress("rewriting", count, len(addresses))
            if address.hex() not in self._clean:
                self._rewrite_commit(database.commits.read(address))
        for ref in refs:
            head = self._now(ref.head)
            log = self._rewrite_log(ref, logs[ref.kind, ref.name])
            if (head, log) != (ref.head, ref.log):
                self.moves.append((ref, head, log))

    def _named(self, refs: Iterable[Ref], logs: Mapping[tuple[RefKind, str], list[LogEntry]], *, damaged: bool = False) -> list[Commit]:
        """The commits that some refs and their reflogs name; of ``damaged`` refs, the commits that can be read."""
        named: dict[Address | None, None] = {}
        for ref in refs:
            entries = logs[ref.kind, ref.name]
            named.update(dict.fromkeys((ref.head, *(address for entry in entries for address in (entry.old, entry.new)))))
        found = []
        for address in named:
            try:
                found += [] if address is None else [self._database.commits.read(address)]
            except (MissingObjectError, CorruptObjectError):
                if not damaged:
                    raise
        return found

    def check_swept(self) -> None:
        """Raise ``_SweptError`` if gc deleted anything since this pass began."""
        if self._database.fence.refresh().sweeps != self._sweeps:
            raise _SweptError

    def _now(self, address: Address | None) -> Address | None:
        return None if address is None else self._rewritten(address)

    def _rewritten(self, address: Address) -> Address:
        new = self.renamed.get(address.hex())
        return address if new is None else Address(bytes.fromhex(new))

    def _rewrite_commit(self, commit: Commit) -> None:
        stored = self._database.commits.read_stored(commit.address)
        found = set(self._remover.paths_in(stored.tree))
        texts = self._replaced(stored.author), self._replaced(stored.message), self._replaced_meta(stored)
        self.paths |= found
        tag = stored.tag if stored.tag == self._replaced(stored.tag) else None
        if found or texts != (stored.author, stored.message, stored.meta_cell) or tag != stored.tag:
            self.holding.append(commit.id)
        elif not any(parent in self.renamed for parent in commit.parents):
            self._clean.add(commit.id)
            return
        if self._dry:
            self.renamed[commit.id] = _ANEW
            if len(self._staging) > _STAGED_DRY:
                self._staging = Staging(self._database.objects)
                self._nodes.bind(self._staging)
            return
        author, message, meta = texts
        # Every commit has one counterpart, so generation, height and jump stay the same.
        new, raw = with_address(
            dataclasses.replace(
                stored,
                tree=self._remover.without(stored.tree) if found else stored.tree,
                parent_addresses=tuple(self._rewritten(parent) for parent in stored.parent_addresses),
                jump_address=None if stored.jump_address is None else self._now(stored.jump_address),
                author=author,
                message=message or "",
                meta_cell=meta,
                tag=tag,
            )
        )
        self._staging.add(raw)
        self.renamed[commit.id] = new.id
        self._clean.add(new.id)
        self._untagged += [new.address] if tag != stored.tag else []
        shallow = self._database.commits.shallow.get(commit.address)
        if shallow is not None:
            self._shallow[new.address] = shallow

    def _replaced(self, text: str | None) -> str | None:
        if text is not None:
            for word, other in self._words.items():
                text = text.replace(word, other)
        return text

    def _replaced_meta(self, commit: Commit) -> bytes | None:
        if not self._words or commit.meta_cell is None:
            return commit.meta_cell
        meta = commit.meta
        new = _replaced_in(meta, self._replaced)
        return commit.meta_cell if new == meta else self._database.meta_cell(new)

    def _rewrite_log(self, ref: Ref, entries: list[LogEntry]) -> Address | None:
        """The last entry of the rewritten reflog: the same one if it names no rewritten commit."""
        if not any(self._is_stale(entry) for entry in entries):
            return ref.log
        if self._dry:
            return Address(bytes.fromhex(_ANEW))
        log = None
        for entry in reversed(entries):
            at = dataclasses.replace(ref, head=self._now(entry.old), log=log)
            author, action = self._replaced(entry.author), self._replaced(entry.action) or ""
            log = self._staging.add(write_entry(at, self._now(entry.new), time=entry.time, author=author, action=action))
        return log

    def _is_stale(self, entry: LogEntry) -> bool:
        now = self._now(entry.old), self._now(entry.new), self._replaced(entry.author), self._replaced(entry.action)
        return now != (entry.old, entry.new, entry.author, entry.action)

    def publish(self) -> bool:
        """Move and erase refs in large batches; whether there were any, so that another pass has to look again."""
        self._carry_records()
        if not self.moves and not self.erased:
            return False
        self._publish_cuts()
        for start in range(0, len(self.moves), _REFS_A_BATCH):
            batch = self.moves[start : start + _REFS_A_BATCH]
            expected = {ref_key(ref.kind, ref.name): ref.stored for ref, _, _ in batch}
            puts = {ref_key(ref.kind, ref.name): _bytes(rewritten(ref, head, log)) for ref, head, log in batch}
            keep = [address for _, head, log in batch for address in (head, log) if address is not None]
            # If one ref was moved meanwhile, none of the batch is; the next pass does it again.
            self._database.fence.apply(expected, puts, staging=self._staging, keep=keep, since=self._sweeps, secure=_swept)
        for start in range(0, len(self.erased), _REFS_A_BATCH):
            gone = self.erased[start : start + _REFS_A_BATCH]
            expected = {ref_key(ref.kind, ref.name): ref.stored for ref in gone}
            keys = [key for ref in gone for key in (*keys_of(ref), lock_key(ref.name))]
            self._database.fence.apply(expected, {}, keys, staging=self._staging, keep=(), since=self._sweeps, secure=_swept)
        self._carry_records()
        return True

    def _carry_records(self) -> None:
        """Give each rewritten commit the records of the old one, with words replaced in notes. Gc removes the old records.

        It is done before the refs move, so that a purge that is interrupted loses no note, and after that for notes that others changed.
        """
        store = self._database.store
        if self.renamed or self.erased or self._words:
            carry_shared(store, self._rewritten, left=self._left, untagged=self._untagged)
        for address, key, stored in iter_notes(store) if self.renamed or self._words else ():
            note = read_note(key, stored)
            new_key = note_key(self._rewritten(address))
            new = write_note(new_key, _replaced_in(note, self._replaced) if self._words else note)
            if (new_key, new) != (key, stored):
                found = store.get(new_key)
                if found != new and (new_key == key or found is None or self._carried.get(new_key) == found):
                    replace_record(store, new_key, stored if new_key == key else found, new)
                self._carried[new_key] = new

    def _publish_cuts(self) -> None:
        """Make history end at a rewritten commit if it ended at the old one, before any ref leads to it."""
        database = self._database
        while not self._shallow.keys() <= database.commits.shallow.keys():
            database.commits.add_cuts(database.commits.refresh_shallow(), self._shallow)


def _bytes(ref: Ref) -> bytes:
    assert ref.stored is not None
    return ref.stored


def _swept() -> None:
    raise _SweptError


def _iter_log(database: Database, ref: Ref) -> Iterator[LogEntry]:
    """The entries of a reflog that have not expired, newest first; the commits of the others may be gone."""
    expired = database.fence.record.expired
    log = ref.log
    while log is not None:
        try:
            entry = read_entry(log, database.objects.read(log))
        except MissingObjectError:
            return
        if entry.time < expired:
            if log == ref.log:
                # gc keeps the last entry of a ref whatever its age, with a tag's message in it, but not the commit before the move.
                yield dataclasses.replace(entry, old=None, previous=None)
            return
        yield entry
        log = entry.previous


def _replaced_in(value: Any, replaced: Callable[[str], str | None]) -> Any:
    if type(value) is str:
        return replaced(value)
    if type(value) is dict:
        return {_replaced_in(key, replaced): _replaced_in(item, replaced) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_replaced_in(item, replaced) for item in value)
    return value


def _erase(database: Database, progress: Progress) -> GcReport:
    """Collect everything that is not reachable, and rewrite the files that may hold it."""
    collected = collect(database, expire=_NEVER, progress=lambda count, total: progress("collecting", count, total))
    database.forget()
    database.store.drop_derived()
    files = [store for store in backends(database.store) if isinstance(store, Disk)]
    if files:
        progress("compacting", 0, None)
        # Free pages and the log still hold what gc deleted, now or before.
        return dataclasses.replace(collected, compacted=sum(store.compact(secure=True) for store in files))
    return collected


def _kept_by(store: KVStore) -> Iterator[str]:
    """What these kinds of store keep of deleted values."""
    for backend in backends(store):
        if not isinstance(backend, Disk | Memory):
            yield f"what {type(backend).__name__} keeps of deleted values by itself: logs, replicas, free pages, old versions, dumps"
