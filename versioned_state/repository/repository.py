"""A repository: commits, branches and tags over one store, in git's vocabulary. Layer: repository.

It reads and moves refs; it holds no live values and loads none that it is not asked for.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import msgpack
from blake3 import blake3

from versioned_state.errors import (
    CorruptObjectError,
    FormatError,
    InvalidArgumentError,
    MissingObjectError,
    NotAStoreError,
    PickleRefusedError,
    ReadOnlyError,
    StoreNotFoundError,
    UnserializableValueError,
    WrongKeyError,
)
from versioned_state.objects.address import Address, Kind
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import CUTS, FORMAT, GC, RefKind, object_key
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.repository.arguments import check_text, count, integer
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import EARLIEST, LATEST, ROOT_ID, ROOT_RAW, Commit, new_commit, read_commit
from versioned_state.repository.history.shallow import Cuts, read_cuts
from versioned_state.repository.history.signing import Signer, Verification, verify
from versioned_state.repository.inspect.bisect import Bisection, bisect
from versioned_state.repository.inspect.blame import Blame, blame
from versioned_state.repository.inspect.grep import Match, grep
from versioned_state.repository.inspect.log_filters import Filters, select
from versioned_state.repository.inspect.path_log import Touch, iter_touches
from versioned_state.repository.inspect.stats import Stats, stats
from versioned_state.repository.maintenance.fsck import FsckReport, check
from versioned_state.repository.maintenance.gc import DEFAULT_EXPIRE, GcReport, Progress, collect
from versioned_state.repository.maintenance.prune import PruneReport, prune
from versioned_state.repository.maintenance.purge import Progress as PurgeProgress, PurgeReport, purge
from versioned_state.repository.merging.policies import PolicyName, read_policies, write_policy
from versioned_state.repository.names.branches import Branches, Tags
from versioned_state.repository.names.resolve import resolve
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.refs.gc_fence import Guard
from versioned_state.repository.refs.ref import Ref, move_ref, read_ref
from versioned_state.repository.refs.reflog import LogEntry, Position, iter_positions, read_entry, write_entry
from versioned_state.repository.refs.resend import resend_history, resend_tree
from versioned_state.repository.views.diff import Diff
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.storage import KVStore, Memory
from versioned_state.storage.url import redact
from versioned_state.storage.wrappers.encrypted.keyring import KEYRING
from versioned_state.values.codec.pickles import PickleMode, PicklePolicy
from versioned_state.values.encode import Encoder
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import NodeCache, Nodes
from versioned_state.values.trees.tree import Tree

if TYPE_CHECKING:
    from versioned_state.repository.history.signing import PublicKey

FORMAT_VERSION: Final = 1

_MAGIC: Final = b"versioned-state\n"
_COMMITS_KEPT: Final = 512
_NODES_KEPT: Final = 512
_NEAR_HEADS: Final = 8


class Repository:
    """Commits, branches and tags over one ``KVStore``. Safe for many threads.

    Args:
        store: where everything lies; memory if there is none. An empty one is made a repository, in one small write.
        pickle, pickle_key: when values that are not data are pickled and unpickled: ``"own"``, where the store is private. See
            ``docs/reference.md``.
        author: who commits, unless a call says otherwise.
        signer: signs every commit that is made through this repository; see ``signing``.
        clock: microseconds since 1970; for tests and imports.

    Raises:
        NotAStoreError, FormatError: the store is something else, or a newer release's. Nothing was changed.
        StoreNotFoundError: it is empty, and opened for reading.
    """

    def __init__(
        self,
        store: KVStore | None = None,
        *,
        pickle: PickleMode = "own",
        pickle_key: bytes | None = None,
        author: str | None = None,
        signer: Signer | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        check_text("author", author)
        given: Any = store
        if isinstance(given, str | os.PathLike):
            place = redact(os.fspath(given))
            hint = f"write versioned_state.open({place!r})" if "://" in place else f"write Disk({place!r})"
            raise InvalidArgumentError(f"{place!r} is no store", hint=hint)
        self.store: KVStore = Memory() if store is None else store
        self.author = author
        self.signer = signer
        self.objects = ObjectStore(self.store)
        self.policy = PicklePolicy(pickle, private=self.store.private, key=pickle_key)
        self.clock = clock or (lambda: time.time_ns() // 1000)
        self.current_branch: str | None = None  # what HEAD means; without one, see default_branch
        self.branches = Branches(self)
        self.tags = Tags(self)
        self.format_version = FORMAT_VERSION  # that of the store, once it is open
        self.cuts = Cuts({})  # as they were last read; see refresh_cuts
        self.guard = Guard(self.store)
        self._lock = RLock()
        self._commits: OrderedDict[bytes, Commit] = OrderedDict()
        self._nodes = NodeCache(_NODES_KEPT)  # shared by diffs and snapshots: neighbours have most of them in common
        self._open()

    # Opening

    def _open(self) -> None:
        found = self.store.get_many((FORMAT, CUTS, GC))
        stored = found.get(FORMAT)
        if stored is None:
            self._create()
            return
        self.format_version = read_format(stored)
        if self.format_version > FORMAT_VERSION:
            raise FormatError(self.format_version, FORMAT_VERSION)
        self.cuts = read_cuts(found.get(CUTS))
        self.guard.learn(found.get(GC))

    def _create(self) -> None:
        root_key = object_key(Address(bytes.fromhex(ROOT_ID)))
        # The root commit alone is what a creation leaves that was cut off.
        if any(key != root_key for key in islice(self.store.keys(), 2)):
            if FORMAT in self.store:  # another process created it since it was looked for
                self._open()
                return
            if KEYRING in self.store:
                raise WrongKeyError(
                    "the store is encrypted, and no key was given; it was not touched",
                    hint="open it with its key: encryption_key=, Encrypted(store, key), or vstate --key-file",
                )
            raise NotAStoreError(
                "the store holds keys, but no format record of ours; it was not touched",
                hint="it belongs to something else, or its format record was lost: restore it from a backup",
            )
        try:
            created = self.store.apply({FORMAT: None}, {FORMAT: _write_format(FORMAT_VERSION)}, objects={root_key: seal(ROOT_RAW)})
        except ReadOnlyError as error:
            raise StoreNotFoundError("the store is empty, and is open for reading only") from error
        if created:
            self.guard.learn(None)
        else:
            self._open()

    # Commits

    def commit_at(self, address: Address) -> Commit:
        """The commit at an address, with the parents that history still has. Cost: one read, or none if it was read lately."""
        try:
            return self.cuts.graft(self._stored_at(address))
        except MissingObjectError:
            # Another process may have cut history, and collected what is gone; the walk that asks reads the child again.
            self.refresh_cuts()
            raise

    def stored(self, id: str) -> Commit:
        """The commit with this full id as it was made, whether or not history was cut at it."""
        return self._stored_at(Address(bytes.fromhex(id)))

    def _stored_at(self, address: Address) -> Commit:
        commits = self._commits
        with self._lock:
            commit = commits.get(address)
            if commit is None:
                commit = read_commit(address, self.objects.read(address))
                self._remember(commit)
            else:
                commits.move_to_end(address)
            return commit

    def refresh_cuts(self) -> Cuts:
        """Where history is cut now. They are read when the repository is opened, and when a commit is missing."""
        stored = self.store.get(CUTS)
        if stored != self.cuts.stored:
            self.cuts = read_cuts(stored)
        return self.cuts

    def parents(self, commit: Commit) -> list[Commit]:
        """The parents of a commit that history still has: none where it was cut. Cost: one read for each."""
        return graph.parents_of(commit, self.read)

    def forget(self) -> None:
        """Let go of the commits and nodes that are kept in memory."""
        with self._lock:
            self._commits.clear()
            self._nodes.clear()

    def _remember(self, commit: Commit) -> None:
        self._commits[bytes.fromhex(commit.id)] = commit
        if len(self._commits) > _COMMITS_KEPT:
            self._commits.popitem(last=False)

    def read(self, id: str) -> Commit:
        """The commit with this full id. Raises ``MissingObjectError`` where there is none."""
        return self.commit_at(Address(bytes.fromhex(id)))

    def commit(self, rev: str | Commit, *, head: Commit | None = None, branch: str | None = None) -> Commit:
        """The commit that a revision means. Cost: some reads, whatever the length of history; ``@{…}`` walks the moves.

        Args:
            rev: see ``revisions``; a commit is passed through.
            head: what ``HEAD`` means, without one the head of ``branch``; without either, of ``default_branch()``.

        Raises:
            UnknownRevisionError: it names nothing; ``near`` holds refs and ids that come close.
            AmbiguousRevisionError: an abbreviated id of several commits.
        """
        return resolve(self, rev, head=head, branch=branch)

    def default_branch(self) -> str:
        """The current branch, where one was chosen; else ``main``, or the only branch where there is no ``main``."""
        if self.current_branch is not None:
            return self.current_branch
        if "main" in self.branches:
            return "main"
        names = list(islice(self.branches, 2))
        return names[0] if len(names) == 1 else "main"

    def find_commit(self, address: Address) -> Commit | None:
        """The commit at an address, or None where there is nothing, or another kind of object. Cost: one read, or none."""
        with self._lock:
            if address in self._commits:
                return self.commit_at(address)
        with suppress(MissingObjectError):
            raw = self.objects.read(address)
            if raw[:1] == bytes((Kind.COMMIT,)):
                return self.cuts.graft(read_commit(address, raw))
        return None

    # Log

    def log(
        self,
        rev: str | Commit = "HEAD",
        *,
        limit: int | None = None,
        first_parent: bool = False,
        include_root: bool = False,
        head: Commit | None = None,
        branch: str | None = None,
        **filters: Unpack[Filters],
    ) -> Iterator[Commit]:
        """Commits from a revision back, newest first, without the empty root commit. Cost: one read for each that is taken.

        Of a range ``A..B``, those that lead to B and not to A, as in git.

        Args:
            limit: no more than so many.
            first_parent: follow only the first parent of each commit.
            include_root: with the empty root commit.
            head, branch: what ``HEAD`` means; see ``commit``.
            filters: only those by this ``author``, made ``since`` then, and so on; see ``Filters``. Cost: one read for each commit that is
                looked at; ``path`` and ``changed`` also read what differs.

        Raises:
            InvalidArgumentError: a limit or filter that cannot be meant.
        """
        limit = None if limit is None else count("limit", limit)
        ends = split_range(rev) if isinstance(rev, str) else None
        if ends is not None:
            since, until = (self.commit(end, head=head, branch=branch) for end in ends)
            commits = graph.only_in(until, since, self.read, first_parent=first_parent)
        else:
            start = self.commit(rev, head=head, branch=branch)
            commits = graph.first_parents(start, self.read) if first_parent else graph.walk([start], self.read)
        chosen = commits if include_root else (commit for commit in commits if commit.id != ROOT_ID)
        return islice(select(self, chosen, filters, first_parent=first_parent) if filters else chosen, limit)

    def grep(self, pattern: str | re.Pattern[str], rev: str | Commit = "HEAD", *, path: str | StatePath = "") -> Iterator[Match]:
        """The lines of the strings of a state in which a regular expression is found, by path; see ``grep.grep``."""
        return grep(self, pattern, rev, path=path)

    def bisect(self, good: str | Commit, bad: str | Commit, is_bad: Callable[[Snapshot], object]) -> Bisection:
        """The first bad commit between a good one and a bad one, found in O(log n) questions; see ``bisect.bisect``."""
        if not callable(is_bad):
            raise InvalidArgumentError(f"bisect asks a function of a snapshot, not {type(is_bad).__name__}")
        return bisect(self, good, bad, is_bad)

    def blame(
        self, path: str | StatePath = "", rev: str | Commit = "HEAD", *, start: int | None = None, end: int | None = None
    ) -> list[Blame]:
        """Which commit each element, entry or line of the value at a path comes from; see ``blame.blame``."""
        for name, number in (("start", start), ("end", end)):
            if number is not None:
                integer(name, number)
        return blame(self.commit(rev), path, objects=self.objects, read=self.read, start=start, end=end)

    def history(self, path: str | StatePath, rev: str | Commit = "HEAD") -> Iterator[Touch]:
        """The commits that touched a path, newest first, with what was there before and after; see ``touches.iter_touches``."""
        return iter_touches(self.commit(rev), path, objects=self.objects, read=self.read)

    def merge_base(self, a: str | Commit, b: str | Commit) -> Commit:
        """A best common ancestor of two revisions; at the least the empty root commit.

        Raises:
            UnknownRevisionError: history was cut, and they have nothing in common any more.
        """
        return graph.merge_base(self.commit(a), self.commit(b), self.read)

    @property
    def merge_policies(self) -> dict[str, PolicyName]:
        """The merge policies that the repository keeps, by the pattern of a path: a dict of your own. Cost: one read."""
        return read_policies(self.store)

    def set_merge_policy(self, pattern: str, policy: PolicyName | None) -> None:
        """Keep what becomes of paths that both sides of a merge changed, for all who open the store; None: keep it no more.

        Raises:
            InvalidPathError, InvalidArgumentError: a pattern that does not parse, or no such policy.
        """
        write_policy(self.store, pattern, policy)

    def diff(self, a: str | Commit, b: str | Commit, *, internal: bool = False) -> Diff:
        """What changed from one revision to another, by path. Cost: what differs; nothing is unpickled.

        Args:
            internal: show the engine's own keys as well.
        """
        return Diff(self.objects, self.commit(a).tree, self.commit(b).tree, internal=internal, cache=self._nodes)

    def snapshot(self, rev: str | Commit = "HEAD", *, describe: bool = False) -> Snapshot:
        """A read-only view of a commit.

        Args:
            describe: show objects as ``ObjectInfo`` instead of unpickling them.
        """
        commit = self.commit(rev)
        return Snapshot(self.objects, commit.tree, self.policy, commit=commit, describe=describe, cache=self._nodes)

    # Refs

    def ref(self, kind: RefKind, name: str) -> Ref:
        """The record of a ref. Raises ``CorruptRefError``, and ``InvalidArgumentError`` for a name that is no string."""
        if type(name) is not str or kind not in ("branch", "tag"):
            raise InvalidArgumentError(f"a ref is a branch or a tag, and its name a string: not {kind!r}, {name!r:.80}")
        sweeps = self.guard.sweeps  # before the ref is read, so that what it leads to was there after them
        ref = read_ref(self.store, kind, name)
        if ref.head is not None:
            self.guard.saw(ref.head)
        return replace(ref, sweeps=sweeps) if sweeps else ref

    def reflog(self, name: str, *, kind: RefKind = "branch") -> Iterator[Position]:
        """Where a branch or tag has pointed, newest first, deleted ones included. Cost: one read for each that is taken."""
        return iter_positions(self.ref(kind, name), self.commit_at, self._read_log, self.guard.expired)

    def _read_log(self, address: Address) -> LogEntry:
        return read_entry(address, self.objects.read(address))

    def log_entry(self, ref: Ref, commit: Commit | None, *, action: str, author: str | None = None) -> bytes:
        """The raw bytes of the log entry for pointing a ref to a commit (None: to nothing) now."""
        return write_entry(ref, _address_of(commit), time=self.now(), author=author or self.author, action=action)

    def move(
        self, ref: Ref, commit: Commit | None, *, action: str = "", author: str | None = None, entry: bytes | None = None
    ) -> Ref | None:
        """Point a ref elsewhere (None: delete it) and write that down in its reflog, in one batch.

        Returns the ref as it is then; None where it no longer stood where ``ref`` says, and nothing was changed.

        Args:
            entry: what ``log_entry`` gave, instead of an entry made now: by it a move is known again whose reply was lost.
        """
        new = _address_of(commit)
        staging = Staging(self.objects)
        log = staging.add(self.log_entry(ref, commit, action=action, author=author) if entry is None else entry)

        def secure() -> None:
            if commit is not None and commit.id != ROOT_ID:
                self._secure_history(commit, ref)

        return move_ref(self.guard, ref, new, log=log, staging=staging, secure=secure)

    # Retention

    def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        keep_tagged: bool = True,
        branches: str | Iterable[str] = "*",
        expire: timedelta | None = None,
        gc: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        """Cut the history of branches down to what is to be kept; see ``repository.prune``. Deletes nothing, unless ``gc`` is asked for."""
        return prune(
            self,
            keep_last=keep_last,
            older_than=older_than,
            keep_tagged=keep_tagged,
            branches=branches,
            expire=expire,
            gc=gc,
            dry_run=dry_run,
        )

    def purge(
        self,
        *paths: str | StatePath,
        prefixes: Iterable[str] = (),
        branches: str | Iterable[str] = (),
        replace: Mapping[str, str] | None = None,
        dry_run: bool = False,
        progress: PurgeProgress | None = None,
    ) -> PurgeReport:
        """Rewrite history without what is at some paths or on some branches, and erase it; see ``repository.purge``."""
        return purge(self, *paths, prefixes=prefixes, branches=branches, replace=replace, dry_run=dry_run, progress=progress)

    def stats(self, rev: str | Commit = "HEAD", *, depth: int = 1, rounds: int = 100, top: int = 20) -> Stats:
        """What takes the room in the store; see ``repository.stats``."""
        return stats(self, rev, depth=depth, rounds=rounds, top=top)

    # Publishing

    def write_commit(
        self,
        tree: Tree,
        parents: tuple[Commit, ...],
        *,
        staging: Staging,
        message: str,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Commit:
        """Stage a commit; it is in the store once a ref was moved to it."""

        def read(id: str) -> Commit:
            address = Address(bytes.fromhex(id))
            return read_commit(address, staging.read(address)) if address in staging else self.stored(id)

        commit, raw = new_commit(
            tree,
            parents,
            time=self.now(),
            author=self.author if author is None else author,
            message=message,
            meta_cell=self.meta_cell(meta) if meta else None,
            jump=graph.jump_of(parents[0], read),
            sign=None if self.signer is None else self.signer.sign,
        )
        staging.add(raw)
        return commit

    def now(self) -> int:
        """What the clock says. Raises ``InvalidArgumentError`` where that is no time."""
        now = self.clock()
        if type(now) is not int or not EARLIEST <= now <= LATEST:
            raise InvalidArgumentError(f"the clock gave {now!r}, which is no int of microseconds between the years 1 and 9999")
        return now

    def meta_cell(self, meta: Mapping[str, Any]) -> bytes:
        """The stored form of a commit's meta. Raises ``InvalidArgumentError``, or ``UnserializableValueError`` for what is not data."""
        if not isinstance(meta, Mapping) or any(  # type: ignore[redundant-expr]
            type(key) is not str for key in meta
        ):
            raise InvalidArgumentError("meta is a dict with string keys")
        encoder = Encoder(Nodes(self.objects), PicklePolicy("refuse", private=False))
        try:
            return encoder.encode_inline(dict(meta), "meta")
        except PickleRefusedError as error:
            raise UnserializableValueError(error.path, error.type_name, "meta takes data only") from None

    def publish(self, ref: Ref, commit: Commit, staging: Staging, *, action: str | None = None, author: str | None = None) -> Ref | None:
        """Move a ref to a staged commit, with everything staged, in one batch. None: the ref had moved, and nothing else was changed.

        Args:
            action, author: where the commit is no child of the head: what the reflog is to say.
        """
        head, log = Address(bytes.fromhex(commit.id)), ref.log
        if action is not None:
            log = staging.add(self.log_entry(ref, commit, action=action, author=author))
        # What a staging relies on was there when the ref was read that it was first to move, or was sent since.
        since = staging.since = ref.sweeps if staging.since is None else min(ref.sweeps, staging.since)
        made = _made(commit, staging)
        parents = {Address(bytes.fromhex(id)) for each in made for id in each.parents} - {Address(bytes.fromhex(each.id)) for each in made}
        reachable = (ref.head, Address(bytes.fromhex(ROOT_ID)))
        if not all(parent in reachable or self.guard.knows(parent) for parent in parents):
            since = min(since, 0)  # known only if nothing was ever deleted

        def secure() -> None:
            for parent in parents:
                self._secure_history(self._stored_at(parent), ref)
            own = {each.id: each for each in made}
            for each in made:
                resend_tree(self.objects, each, [own.get(id) or self.stored(id) for id in each.parents], staging)

        moved = move_ref(self.guard, ref, head, log=log, staging=staging, parents=parents, since=since, secure=secure)
        if moved is not None:
            self.guard.saw(head)
            with self._lock:
                self._remember(commit)
        return moved

    def _secure_history(self, commit: Commit, ref: Ref) -> None:
        """See to it that a commit is there with all that it leads to, before a ref is moved to it. Raises ``MissingObjectError``."""
        address = Address(bytes.fromhex(commit.id))
        if commit.id == ROOT_ID or address == ref.head or self.guard.knows(address) or not self.guard.sweeps:
            return
        # Whoever collected may have cut history before: by what is in memory, it would still lead there.
        cuts = self.refresh_cuts()
        heads = self.guard.known_heads(_NEAR_HEADS) if ref.head is None else [ref.head, *self.guard.known_heads(_NEAR_HEADS)]
        near = []
        for head in heads:
            with suppress(MissingObjectError):  # known by an old record of gc's: then the batch is tried again with the new one
                near.append(self.commit_at(head))
        resend_history(self.objects, commit, near, cuts, self.read)

    # Keeping and forgetting

    def gc(
        self,
        *,
        expire: timedelta = DEFAULT_EXPIRE,
        dry_run: bool = False,
        compact: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> GcReport:
        """Delete every object that no branch, no tag and no move of theirs within the last ``expire`` leads to; see ``gc.collect``."""
        return collect(self, expire=expire, dry_run=dry_run, compact=compact, force=force, progress=progress)

    def fsck(self, *, progress: Progress | None = None) -> FsckReport:
        """Check every object, ref and record; see ``fsck.check``. Damage is reported, not raised."""
        return check(self.store, progress=progress)

    def verify(
        self, rev: str | Commit = "HEAD", *, keys: Iterable[PublicKey], limit: int | None = None, since: str | Commit | None = None
    ) -> Verification:
        """Check the signatures of a revision and all that came before it, against keys that you trust; see ``signing.verify``."""
        return verify(self, rev, keys=keys, limit=limit, since=since)

    def close(self) -> None:
        """Close the store. Calls after it raise ``StoreClosedError``."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _address_of(commit: Commit | None) -> Address | None:
    return None if commit is None else Address(bytes.fromhex(commit.id))


def _made(commit: Commit, staging: Staging) -> list[Commit]:
    """A commit that is about to be published, and those before it that are, too: they are staged as well."""
    made = {commit.id: commit}
    pending = [commit]
    while pending:
        for id in pending.pop().parents:
            address = Address(bytes.fromhex(id))
            if address in staging and id not in made:
                made[id] = read_commit(address, staging.read(address))
                pending.append(made[id])
    return list(made.values())


def backoff(attempt: int) -> None:
    """Wait before the next attempt on a contended branch: random, so that writers spread, and longer each time, to 50 ms."""
    time.sleep(random.uniform(0, min(0.05, 0.0005 * 2**attempt)))  # noqa: S311 - spreading, not secrecy


def _write_format(version: int) -> bytes:
    body: bytes = _MAGIC + msgpack.packb(version)
    return body + blake3(body).digest(length=8)


def read_format(stored: bytes) -> int:
    """The version in a format record. Raises ``NotAStoreError`` or ``CorruptObjectError``."""
    body, checksum = stored[:-8], stored[-8:]
    if not stored.startswith(_MAGIC):
        raise NotAStoreError("the store has a format record that is not ours; it was not touched")
    if blake3(body).digest(length=8) != checksum:
        raise CorruptObjectError(FORMAT, "the format record does not match its checksum")
    try:
        version = msgpack.unpackb(body[len(_MAGIC) :])
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptObjectError(FORMAT, f"the format record does not decode: {error}") from error
    if type(version) is not int:
        raise CorruptObjectError(FORMAT, "the format record holds no version")
    return version
