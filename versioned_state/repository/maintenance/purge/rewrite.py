"""``RewritePass`` rewrites all commits, reflogs and refs without some data.

``Passes`` adds up those of a purge. Layer: repository.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from versioned_state.errors import CorruptObjectError, MissingObjectError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import KEEPERS, REF_KINDS, RefKind, lock_key, note_key, ref_key
from versioned_state.objects.record import replace_record
from versioned_state.objects.store import Staging
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, ROOT_ID, Commit, with_address
from versioned_state.repository.history.shallow import ShallowCommit
from versioned_state.repository.maintenance.purge.journal import Findings
from versioned_state.repository.refs.named_records import iter_named, read_named, write_named
from versioned_state.repository.refs.notes import iter_notes, read_note, write_note
from versioned_state.repository.refs.ref import Ref, iter_refs, keys_of, rewritten
from versioned_state.repository.refs.reflog import LogEntry, write_entry
from versioned_state.repository.refs.shared import carry_shared
from versioned_state.repository.refs.stamps import iter_stamps
from versioned_state.values.changes.removal import Remover, Target
from versioned_state.values.trees.nodes import Nodes

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

Progress = Callable[[str, int, int | None], None]
"""Called with the current step, how much of it is done, and the total, or None if that is not known."""

_FLUSH_AT: Final = 4 * 1024 * 1024
_REFS_A_BATCH: Final = 500
_ANEW: Final = "0" * 48
"""Stands for the new id of a commit in a dry run."""
_STAGED_DRY: Final = 4096
"""Objects after which a dry run drops the objects that it would have written: nothing reads them."""


class SweptError(Exception):
    """Gc deleted something while commits were rewritten, so some of the new objects may be gone."""


class Passes:
    """The results of all passes: a later pass rewrites the commits that other writers made during an earlier one.

    ``clean`` has the ids of commits that hold none of the data and have no ancestor that does: no pass reads them
    again.
    """

    def __init__(self) -> None:
        self.clean: set[str] = {ROOT_ID}
        self.findings: Findings = Findings()

    def add(self, rewriting: RewritePass) -> None:
        found = self.findings
        found.commits.update(rewriting.renamed)
        found.holding.update(dict.fromkeys(rewriting.holding))
        found.refs.update(dict.fromkeys(f"{ref.kind} {ref.name}" for ref, _, _ in rewriting.moves))
        found.branches.update(dict.fromkeys(ref.name for ref in rewriting.erased))
        # Once a branch is gone, no later pass finds what it shared.
        found.shared = dict.fromkeys(rewriting.renamed.get(id, id) for id in (*found.shared, *rewriting.shared))
        found.paths.update(dict.fromkeys(rewriting.paths))


class RewritePass:
    """One rewrite of everything that is reachable now."""

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
        # ``publish`` notices if gc deletes anything from here on.
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
        self._untagged: list[Address] = []  # rewritten commits that named a tag, and no longer do
        self.shared: list[str] = []
        self._carried: dict[str, bytes] = {}

    def rewrite(self) -> None:
        """Rewrite commits and log entries, and collect the refs to move. Changes no reachable object."""
        database = self._database
        database.commits.refresh_shallow()
        every = [ref for kind in REF_KINDS for ref in iter_refs(database.store, kind, deleted=True)]
        logs = {(ref.kind, ref.name): list(_iter_log(database, ref)) for ref in every}
        self.erased = [
            ref
            for ref in every
            if ref.kind == "branch" and any(fnmatchcase(ref.name, pattern) for pattern in self._patterns)
        ]
        refs = [ref for ref in every if ref not in self.erased]
        self._left = {ref.name for ref in refs}
        # Only addresses are kept in memory, children before parents: a commit is read again when it is rewritten.
        addresses = [commit.address for commit in graph.walk(self._named(refs, logs), database.commits.read)]
        if self.erased:
            kept = {*addresses} - {ROOT_ADDRESS}
            # A branch may be erased because it is damaged: read as much of it as possible.
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

    def _named(
        self, refs: Iterable[Ref], logs: Mapping[tuple[RefKind, str], list[LogEntry]], *, damaged: bool = False
    ) -> list[Commit]:
        """Return the commits that some refs and their reflogs name.

        Of ``damaged`` refs, only those that can be read.
        """
        named: dict[Address | None, None] = {}
        expired = self._database.fence.record.expired  # the commits that an older entry names may be gone
        for ref in refs:
            entries = [entry for entry in logs[ref.kind, ref.name] if entry.time >= expired]
            named.update(
                dict.fromkeys((ref.head, *(address for entry in entries for address in (entry.old, entry.new))))
            )
        found = []
        for address in named:
            try:
                found += [] if address is None else [self._database.commits.read(address)]
            except (MissingObjectError, CorruptObjectError):
                if not damaged:
                    raise
        return found

    def check_swept(self) -> None:
        """Raise ``SweptError`` if gc deleted anything since this pass began."""
        if self._database.fence.refresh().sweeps != self._sweeps:
            raise SweptError

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
        """Rewrite a reflog. Returns its last entry, which stays the same if the reflog names no rewritten commit."""
        if not any(self._is_stale(entry) for entry in entries):
            return ref.log
        if self._dry:
            return Address(bytes.fromhex(_ANEW))
        log = None
        for entry in reversed(entries):
            at = dataclasses.replace(ref, head=self._now(entry.old), log=log)
            author, action = self._replaced(entry.author), self._replaced(entry.action) or ""
            log = self._staging.add(
                write_entry(at, self._now(entry.new), time=entry.time, author=author, action=action)
            )
        return log

    def _is_stale(self, entry: LogEntry) -> bool:
        now = self._now(entry.old), self._now(entry.new), self._replaced(entry.author), self._replaced(entry.action)
        return now != (entry.old, entry.new, entry.author, entry.action)

    def publish(self) -> bool:
        """Move and erase refs in large batches. Returns whether there were any: then another pass must follow."""
        self._carry_records()
        if not self.moves and not self.erased:
            return False
        self._publish_cuts()
        for start in range(0, len(self.moves), _REFS_A_BATCH):
            batch = self.moves[start : start + _REFS_A_BATCH]
            expected = {ref_key(ref.kind, ref.name): ref.stored for ref, _, _ in batch}
            puts = {ref_key(ref.kind, ref.name): _bytes(rewritten(ref, head, log)) for ref, head, log in batch}
            keep = [address for _, head, log in batch for address in (head, log) if address is not None]
            # If another writer moved one of these refs, the batch moves none; the next pass tries again.
            self._database.fence.apply(
                expected, puts, staging=self._staging, keep=keep, since=self._sweeps, secure=_swept
            )
        for start in range(0, len(self.erased), _REFS_A_BATCH):
            gone = self.erased[start : start + _REFS_A_BATCH]
            expected = {ref_key(ref.kind, ref.name): ref.stored for ref in gone}
            # The table of keepers relies on these refs. The gc that follows makes a new one.
            keys = [KEEPERS, *(key for ref in gone for key in (*keys_of(ref), lock_key(ref.name)))]
            self._database.fence.apply(
                expected, {}, keys, staging=self._staging, keep=(), since=self._sweeps, secure=_swept
            )
        self._carry_records()
        return True

    def _carry_records(self) -> None:
        """Copy the records of each old commit to its rewritten commit, with words replaced in notes.

        Gc removes the old records.

        This runs before the refs move, so that an interrupted purge loses no note, and again afterwards for notes that
        others changed.
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
        named = ((key, stored) for _, key, stored in iter_named(store))
        for key, stored in chain(named, iter_stamps(store)) if self._words else ():
            replaced = write_named(key, _replaced_in(read_named(key, stored), self._replaced))
            if replaced != stored:
                replace_record(store, key, stored, replaced)

    def _publish_cuts(self) -> None:
        """Make history end at a rewritten commit if it ended at the old one.

        Call this before any ref leads to the new commit.
        """
        database = self._database
        while not self._shallow.keys() <= database.commits.shallow.keys():
            database.commits.add_cuts(database.commits.refresh_shallow(), self._shallow)


def _bytes(ref: Ref) -> bytes:
    assert ref.stored is not None
    return ref.stored


def _swept(_: int) -> None:
    raise SweptError


def _iter_log(database: Database, ref: Ref) -> Iterator[LogEntry]:
    """Yield the entries of a reflog that have not expired, newest first. The commits of expired entries may be gone."""
    expired = database.fence.record.expired
    for number, entry in enumerate(database.iter_log(ref)):
        if entry.time < expired:
            if number == 0:
                # gc keeps the last entry of a ref at any age, since it may hold a tag's message, but not the commits
                # that it names.
                yield dataclasses.replace(entry, old=None, previous=None)
            return
        yield entry


def _replaced_in(value: Any, replaced: Callable[[str], str | None]) -> Any:
    if type(value) is str:
        return replaced(value)
    if type(value) is dict:
        return {_replaced_in(key, replaced): _replaced_in(item, replaced) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_replaced_in(item, replaced) for item in value)
    return value
