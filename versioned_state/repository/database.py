"""The database beneath a repository: its store, format, commits and refs, and the one way to move a ref.

Layer: repository.

``Repository`` is the public class. Code that works on a store (gc, purge, a handle on a branch) takes a ``Database``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from versioned_state.errors import (
    FormatError,
    InvalidArgumentError,
    MissingObjectError,
    NotAStoreError,
    ReadOnlyError,
    StateError,
    StoreNotFoundError,
    WrongKeyError,
)
from versioned_state.objects.address import Address
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import FORMAT, GC, SHALLOW, RefKind, object_key
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.records import replace
from versioned_state.repository.caches import caches_of
from versioned_state.repository.format import FORMAT_VERSION, read_format, write_format
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import (
    EARLIEST,
    LATEST,
    ROOT_ADDRESS,
    ROOT_RAW,
    Commit,
    new_commit,
    read_commit,
    system_clock,
)
from versioned_state.repository.history.reader import CommitReader
from versioned_state.repository.refs.gc_fence import FencedBatch, GcFence
from versioned_state.repository.refs.ref import (
    NOTHING,
    BatchPart,
    Ref,
    after_move,
    batch_of,
    move_ref,
    read_refs,
)
from versioned_state.repository.refs.reflog import LogEntry, Reflog, read_entry, write_entry
from versioned_state.repository.refs.shared import write_shared
from versioned_state.storage import KVStore
from versioned_state.values.codec.pickles import PickleMode, PicklePolicy
from versioned_state.values.codec.trust import TrustedClasses, TrustedModules
from versioned_state.values.encode.inline import encode_data, plain_cell
from versioned_state.values.trees.tree import Tree

if TYPE_CHECKING:
    from versioned_state.repository.history.signing import Signer

T = TypeVar("T")

_NEAR_HEADS: Final = 8


class Database:
    """Commits and refs over one ``KVStore``.

    Safe for many threads. Opening an empty store makes it a database, in one small write.

    Args:
        store: the store.
        pickle, pickle_key: when values that are not data are pickled and unpickled.
        classes: modules whose classes the values of the store may have.
        author: the author of commits and log entries, unless a call names another; ``""`` means None in both.
        signer: signs every new commit.
        clock: microseconds since 1970.
        stamp: the stamp of the commits of all handles: see ``refs.stamps``.

    Attributes:
        objects: verified reads from the store.
        commits: commits by address.
        fence: the fence between gc and writers.
        policy: ``pickle`` and ``pickle_key``, applied to this store.
        nodes: the cache of tree nodes of this store, which handles, diffs and snapshots of all its databases share: the
            next request of a session finds the end of its list there, and successive commits share most nodes. This
            cache and that of commits are emptied as soon as a database finds that gc or purge deleted something.
        format_version: that of the store.
        stamps: the ids of the stamps of commits that the store is known to have.
        current_branch: the meaning of ``HEAD``. If it is None, see ``names.resolve.default_branch``.

    Raises:
        NotAStoreError, FormatError: the store is something else, or a newer release's. Nothing was changed.
        StoreNotFoundError: the store is empty, and open for reading only.
    """

    def __init__(
        self,
        store: KVStore,
        *,
        pickle: PickleMode = "own",
        pickle_key: bytes | None = None,
        classes: TrustedModules = (),
        author: str | None = None,
        signer: Signer | None = None,
        clock: Callable[[], int] | None = None,
        stamp: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.objects: Final = ObjectStore(store)
        trusted = TrustedClasses(classes) if classes != () else None
        self.policy: Final = PicklePolicy(pickle, private=store.private, key=pickle_key, classes=trusted)
        self.author: Final = author or None
        self.signer = signer
        self.clock: Final = clock or system_clock
        self._caches = caches_of(store)
        self.commits: Final = CommitReader(self.objects, self._caches.commits)
        self.fence: Final = GcFence(store, partial(_entry_changes, store, self.commits))
        self.nodes: Final = self._caches.nodes
        self.format_version: int = FORMAT_VERSION
        self.current_branch: str | None = None
        self.stamp: Final = stamp
        self.stamps: Final[set[str]] = set()
        self._open()

    @property
    def store(self) -> KVStore:
        return self.objects.kv

    # Opening

    def _open(self) -> None:
        found = self.store.get_many((FORMAT, SHALLOW, GC))
        stored = found.get(FORMAT)
        if stored is None:
            self._create()
            return
        self.format_version = read_format(stored)
        if self.format_version > FORMAT_VERSION:
            raise FormatError(self.format_version, FORMAT_VERSION)
        self.fence.version = self.format_version
        self.commits.take_shallow(found.get(SHALLOW))
        self.fence.learn(found.get(GC))
        self._caches.begin(self.fence.sweeps)

    def _create(self) -> None:
        root_key = object_key(ROOT_ADDRESS)
        # An interrupted creation leaves the root commit and nothing else.
        if any(key != root_key for key in islice(self.store.keys(), 2)):
            if FORMAT in self.store:  # another process created it meanwhile
                self._open()
                return
            from versioned_state.storage.wrappers.encrypted.keyring import KEYRING

            if KEYRING in self.store:
                raise WrongKeyError(
                    "the store is encrypted, and no key was given",
                    remains="it was not touched",
                    hint="open it with its key: encryption_key=, Encrypted(store, key), or vstate --key-file",
                )
            raise NotAStoreError(
                "the store holds keys, but no format record of ours",
                hint="it belongs to something else, or its format record was lost: restore it from a backup",
            )
        try:
            created = self.store.apply(
                {FORMAT: None}, {FORMAT: write_format(FORMAT_VERSION)}, objects={root_key: seal(ROOT_RAW)}
            )
        except ReadOnlyError as error:
            raise StoreNotFoundError("the store is empty, and is open for reading only") from error
        if created:
            self.fence.learn(None)
            self._caches.restart(0)  # the store may have been emptied, and have had content before
        else:
            self._open()

    def forget(self) -> None:
        """Empty the caches of commits and nodes, for all databases of this store object."""
        self._caches.forget()

    # Refs

    def ref(self, kind: RefKind, name: str) -> Ref:
        """Return the record of a ref.

        Raises ``CorruptRefError``, and ``InvalidArgumentError`` for a name that is not a string.
        """
        if type(name) is not str or kind not in ("branch", "tag"):
            raise InvalidArgumentError(
                f"a ref must be a branch or a tag, and its name a string: not {kind!r}, {name!r:.80}"
            )
        return self._refs([(kind, name)])[0]

    def refs(self, kind: RefKind, names: Iterable[str]) -> list[Ref]:
        """Return what ``ref`` does, for many refs. Cost: one call of the store."""
        return self._refs([(kind, name) for name in names])

    def refs_named(self, name: str) -> list[Ref]:
        """Return the records of the branch and of the tag of one name. Cost: one call of the store."""
        return self._refs([("branch", name), ("tag", name)])

    def _refs(self, wanted: list[tuple[RefKind, str]]) -> list[Ref]:
        # before the refs are read: all objects that a ref leads to existed after these sweeps
        sweeps = self.fence.sweeps
        if sweeps > self._caches.since:
            self._caches.advance(sweeps)
        found = read_refs(self.store, wanted)
        for ref in found:
            if ref.head is not None:
                self.fence.saw(ref.head, sweeps)
        return [replace(ref, sweeps=sweeps) for ref in found] if sweeps else found

    def read_head(self, kind: RefKind, name: str) -> tuple[Ref, Commit | None]:
        """Read a ref and the commit that it points to, or None.

        Cost: a read or two. Raises ``MissingObjectError`` and as ``ref``.

        The two reads are not a snapshot: if the ref moved in between, and gc or purge deleted the commit, both are read
        again.
        """
        ref = self.ref(kind, name)
        while ref.head is not None:
            try:
                return ref, self.commits.read(ref.head)
            except MissingObjectError:
                before, ref = ref, self.ref(kind, name)
                if ref.head == before.head:
                    raise
        return ref, None

    def unless_swept(self, call: Callable[[], T]) -> T:
        """Return the result of a call.

        If an object is missing that gc or purge has deleted, the call is repeated, without what was cached.
        """
        swept = None
        while True:
            try:
                return call()
            except MissingObjectError:
                before, swept = swept, self.fence.refresh().sweeps if self.fence.enabled else None
                if swept == before:
                    raise
                self.forget()
                self.commits.refresh_shallow()

    def reflog(self, ref: Ref) -> Reflog:
        """Return the past of a ref."""
        return Reflog(ref, self.commits.read, self.read_log, self.fence.expired)

    def read_log(self, address: Address) -> LogEntry:
        """Return the log entry at an address. Raises ``MissingObjectError`` or ``CorruptObjectError``."""
        return read_entry(address, self.objects.read(address))

    def iter_log(self, ref: Ref) -> Iterator[LogEntry]:
        """Yield the log entries of a ref, newest first, up to the first one that has expired and was collected."""
        log = ref.log
        while log is not None:
            try:
                entry = self.read_log(log)
            except MissingObjectError:
                return
            yield entry
            log = entry.previous

    def planned(self, branch: str, find: Callable[[], list[str]]) -> list[str]:
        """Return the branches that a call of many steps works on.

        They are those that ``find`` returns or, if the call is repeated, those that are left. Only a database that
        recognises repeated calls keeps the plan; this one does not.

        Args:
            branch: the branch for the plan. It belongs to the user of the call, and to no session.
        """
        return find()

    def end_plan(self, branch: str) -> None:
        """Drop the plan of a call that has ended."""

    def log_entry(self, ref: Ref, commit: Commit | None, *, action: str, author: str | None = None) -> bytes:
        """Return the raw bytes of the log entry for pointing a ref to a commit (None: to nothing) now."""
        return write_entry(ref, _address_of(commit), time=self.now(), author=author or self.author, action=action)

    def move(
        self,
        ref: Ref,
        commit: Commit | None,
        *,
        action: str = "",
        author: str | None = None,
        entry: bytes | None = None,
        part: BatchPart = NOTHING,
        ttl: int | None = None,
        origin: Sequence[str] = (),
    ) -> Ref | None:
        """Point a ref to another commit (None: delete it) and log the move, in one batch.

        Returns the new ref, or None if the ref was no longer as ``ref`` says, and nothing was changed.

        Args:
            entry: the bytes from ``log_entry``, instead of a new entry: they identify a move whose reply was lost.
            ttl: see ``publish``.
            part: a part of the same batch. If one of its conditions does not hold, the result is None too.
            origin: the name of the ref by which the commit was found, if there was one.
        """
        staging = Staging(self.objects)
        raw = self.log_entry(ref, commit, action=action, author=author) if entry is None else entry
        log = staging.add(raw)
        after = after_move(
            ref,
            _address_of(commit),
            log,
            changed=read_entry(log, raw).time,
            is_new=False,
            indexed=self.fence.enabled,
            ttl=ttl,
        )

        if commit is not None:
            part = part.joined(self._sharing(ref, [commit.address], origin))

        def secure(sweeps: int) -> None:
            if commit is not None and commit.address != ROOT_ADDRESS:
                self._secure_history(commit, ref, sweeps)

        return move_ref(self.fence, ref, after, staging=staging, secure=secure, part=part)

    def move_together(
        self,
        moves: Sequence[tuple[Ref, Commit | None]],
        *,
        action: str,
        origins: Mapping[str, Sequence[str]],
        part: BatchPart = NOTHING,
    ) -> bool:
        """Do ``move`` for many refs in one batch.

        Returns False if one of them was no longer as given, and nothing was changed.

        Args:
            origins: by the name of a ref, the names by which its commit was found.
            part: as for ``move``.
        """
        staging = Staging(self.objects)
        expected: dict[str, bytes | None] = {**part.expected}
        puts: dict[str, bytes] = {**part.puts}
        deletes: list[str] = [*part.deletes]
        keep: list[Address] = [*part.keep]
        for ref, commit in moves:
            raw = self.log_entry(ref, commit, action=action)
            log = staging.add(raw)
            time = read_entry(log, raw).time
            one = batch_of(
                ref, after_move(ref, _address_of(commit), log, changed=time, is_new=False, indexed=self.fence.enabled)
            )
            expected.update(one.expected)
            puts.update(one.puts)
            if commit is not None:
                puts.update(self._sharing(ref, [commit.address], origins.get(ref.name, ())).puts)
            deletes += one.deletes
            keep += one.keep

        def secure(sweeps: int) -> None:
            for ref, commit in moves:
                if commit is not None:
                    self._secure_history(commit, ref, sweeps)

        since = min(ref.sweeps for ref, _ in moves)
        return (
            self.fence.apply(expected, puts, deletes, staging=staging, keep=keep, since=since, secure=secure)
            is not None
        )

    def publish(self, publications: Sequence[Publication]) -> list[Ref] | None:
        """Move refs to staged commits, with all staged objects, in one batch.

        Returns the new refs, or None if a ref had moved or a condition of a part does not hold, and then no ref was
        changed.
        """
        one = publications[0]
        staging = one.staging
        after, batch, parents, since = self._sending(one)
        rest: list[tuple[Publication, Ref]] = []
        if publications[1:]:
            staging = Staging(self.objects)
            staging.take(one.staging)
            for each in publications[1:]:
                its_after, part, its_parents, its_since = self._sending(each)
                staging.take(each.staging)
                batch, parents, since = batch.joined(part), parents + its_parents, min(since, its_since)
                rest.append((each, its_after))

        def secure(sweeps: int) -> None:
            for each in publications:
                self._secure_staged(each.ref, each.commit, each.staging, sweeps)

        sweeps = self.fence.apply(
            batch.expected,
            batch.puts,
            batch.deletes,
            staging=staging,
            keep=batch.keep,
            instead_of=parents,
            since=since,
            secure=secure,
        )
        if sweeps is None:
            return None
        moved = [self._published(one.commit, after, sweeps)]
        for each, its_after in rest:
            moved.append(self._published(each.commit, its_after, sweeps))
        return moved

    def publish_each(self, publications: Sequence[Publication]) -> list[Ref | StateError | None]:
        """Do ``publish`` for several branches, each independently.

        Cost: one round trip, if the store sends batches together.

        Returns for each the new ref, or the error. None: the ref had moved, or only ``publish`` can find out; the ref
        was not changed.
        """
        sent = [self._sending(each) for each in publications]
        batches = [
            FencedBatch(batch.expected, batch.puts, batch.deletes, each.staging, since)
            for each, (_, batch, _, since) in zip(publications, sent, strict=True)
        ]
        return [
            self._published(each.commit, after, sweeps) if type(sweeps) is int else cast("StateError | None", sweeps)
            for each, (after, *_), sweeps in zip(publications, sent, self.fence.apply_each(batches), strict=True)
        ]

    def _sending(self, publication: Publication) -> tuple[Ref, BatchPart, tuple[Address, ...], int]:
        """Return the ref after a publication, the batch, the stored parents, and a number of ``sweeps``.

        All objects that the publication relies on existed at that number.
        """
        ref, commit, staging = publication.ref, publication.commit, publication.staging
        before = ref
        if publication.action is not None:
            log = staging.add(self.log_entry(ref, commit, action=publication.action, author=publication.author))
            before = replace(ref, log=log)
        after = self.after_commit(before, commit, ttl=publication.ttl)
        parents, since = self._relied_on(ref, commit, staging)
        batch = batch_of(ref, after)
        if publication.part is not NOTHING:
            batch = batch.joined(publication.part)
        if parents != (ref.head,):
            batch = batch.joined(self._sharing(ref, parents))
        return after, batch, parents, since

    def _published(self, commit: Commit, after: Ref, sweeps: int) -> Ref:
        """Return the ref of a commit that was published when this number of batches had been deleted."""
        if sweeps > self._caches.since:
            self._caches.advance(sweeps)
        self.fence.saw(commit.address, sweeps)
        self._caches.commits.keep(commit)
        return after if sweeps == after.sweeps else replace(after, sweeps=sweeps)

    def _relied_on(self, ref: Ref, commit: Commit, staging: Staging) -> tuple[tuple[Address, ...], int]:
        """Return the stored parents of a staged commit, and a number of ``sweeps``.

        All objects that the commit relies on existed at that number.
        """
        # Lowered for good: if the branch has moved, its next record is read later, and says nothing of what was staged
        # before.
        since = ref.sweeps if staging.since is None or ref.sweeps < staging.since else staging.since
        staging.since = since
        parents = commit.parent_addresses
        if parents != (ref.head,):  # not a plain commit on the head
            parents = _stored_parents(commit, staging)[1]
            others = [parent for parent in parents if parent not in (ref.head, ROOT_ADDRESS)]
            since = min([since, *map(self.fence.known_at, others)])
        return parents, since

    def _sharing(self, ref: Ref, addresses: Iterable[Address], origin: Sequence[str] = ()) -> BatchPart:
        """Return the records that say that a ref will lead to existing commits, for ``refs/own_line``."""
        strange = [address for address in addresses if address not in (ROOT_ADDRESS, ref.head)]
        if not strange or not self.fence.enabled:
            return NOTHING
        puts: dict[str, bytes] = {}
        for address in strange:
            puts |= write_shared(address, [ref.name, *origin])
        return BatchPart(puts=puts)

    def _secure_staged(self, ref: Ref, commit: Commit, staging: Staging, sweeps: int) -> None:
        """Make sure that all objects that a staged commit leads to are stored or staged. Raises ``MissingObjectError``.

        Args:
            sweeps: the number of batches that were deleted by now; so in ``_secure_history``.
        """
        from versioned_state.repository.refs.reupload import reupload_tree

        made, parents = _stored_parents(commit, staging)
        for parent in parents:
            self._secure_history(self.commits.read_stored(parent), ref, sweeps)
        own = {each.address: each for each in made}
        for each in made:
            stored = (own.get(parent) or self.commits.read_stored(parent) for parent in each.parent_addresses)
            reupload_tree(self.objects, each, list(stored), staging)

    def after_commit(self, ref: Ref, commit: Commit, *, ttl: int | None = None) -> Ref:
        """Return the ref after a move to a new commit that adds no log entry. See ``publish``."""
        return after_move(
            ref, commit.address, ref.log, changed=commit.time, is_new=True, indexed=self.fence.enabled, ttl=ttl
        )

    def _secure_history(self, commit: Commit, ref: Ref, sweeps: int) -> None:
        """Make sure, before a ref is moved to a commit, that all objects that it leads to are stored.

        Raises ``MissingObjectError``.
        """
        address = commit.address
        if address in (ROOT_ADDRESS, ref.head) or self.fence.knows(address, sweeps) or not sweeps:
            return
        from versioned_state.repository.refs.reupload import reupload_history

        # History may have been pruned before gc ran; the shallow commits in memory would still lead to the deleted
        # commits.
        self.commits.refresh_shallow()
        heads = self.fence.known_heads(_NEAR_HEADS, sweeps)
        if ref.head is not None:
            heads.insert(0, ref.head)
        near = []
        for head in heads:
            # known by an old record of gc: then the batch is tried again with the new record
            with suppress(MissingObjectError):
                near.append(self.commits.read(head))
        reupload_history(self.objects, self.commits.read(address), near, self.commits.read)

    # Commits

    def write_commit(
        self,
        tree: Tree,
        parents: tuple[Commit, ...],
        *,
        staging: Staging,
        message: str,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        tag: str | None = None,
    ) -> Commit:
        """Stage a commit. Moving a ref to it stores it, in one batch with the tag of the name ``tag``, if given."""

        def read(address: Address) -> Commit:
            return (
                read_commit(address, staging.read(address)) if address in staging else self.commits.read_stored(address)
            )

        commit, raw = new_commit(
            tree,
            parents,
            time=self.now(),
            author=author or self.author,
            message=message,
            meta_cell=self.meta_cell(meta) if meta else None,
            jump=graph.jump_of(parents[0], read),
            tag=tag,
            sign=None if self.signer is None else self.signer.sign,
        )
        staging.add(raw, commit.address)
        return commit

    def now(self) -> int:
        """Return the time by the clock. Raises ``InvalidArgumentError`` if it is not a time."""
        now = self.clock()
        if type(now) is not int or not EARLIEST <= now <= LATEST:
            raise InvalidArgumentError(
                f"the clock gave {now!r}, not an int of microseconds between the years 1 and 9999"
            )
        return now

    def meta_cell(self, meta: Mapping[str, Any]) -> bytes:
        """Return the stored form of a commit's meta.

        Raises ``InvalidArgumentError`` or ``UnserializableValueError``: meta takes data only.
        """
        cell = plain_cell(meta) if type(meta) is dict else None
        if cell is not None:
            return cell
        if not isinstance(meta, Mapping) or any(  # type: ignore[redundant-expr]
            type(key) is not str for key in meta
        ):
            raise InvalidArgumentError("meta must be a dict with string keys")
        return encode_data(meta, "meta", "meta")


class Publication(NamedTuple):
    """A ref to move to a staged commit.

    Attributes:
        staging: the objects that the commit needs.
        part: a part of the same batch.
        ttl: the branch expires that long after its last change, in microseconds; None: as before.
        action, author: for the reflog, if the commit is not a child of the head.
    """

    ref: Ref
    commit: Commit
    staging: Staging
    part: BatchPart = NOTHING
    ttl: int | None = None
    action: str | None = None
    author: str | None = None


def _entry_changes(
    store: KVStore,
    commits: CommitReader,
    indexed: tuple[str, ...],
    expected: Mapping[str, bytes | None],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    staging: Staging,
) -> tuple[dict[str, bytes], list[str]]:
    """Return the changes of the index of meta that belong to a batch.

    Only a store with such an index loads the module.
    """
    # A function of the module: a method would make a circle of references, which keeps a store open that nobody else
    # refers to.
    from versioned_state.repository.refs.meta_index import entry_changes

    return entry_changes(store, commits, indexed, expected, puts, deletes, staging)


def _address_of(commit: Commit | None) -> Address | None:
    return None if commit is None else commit.address


def _stored_parents(commit: Commit, staging: Staging) -> tuple[list[Commit], tuple[Address, ...]]:
    """Return a commit to be published, with its staged ancestors, and those of their parents that are stored."""
    made = {commit.address: commit}
    stored: set[Address] = set()
    pending = [commit]
    while pending:
        for address in pending.pop().parent_addresses:
            if address not in staging:
                stored.add(address)
            elif address not in made:
                made[address] = read_commit(address, staging.read(address))
                pending.append(made[address])
    return list(made.values()), tuple(stored)


def backoff(attempt: int) -> None:
    """Wait before the next attempt on a contended branch.

    The time is random, so that writers spread, and grows with the attempts up to 50 ms.
    """
    import random

    time.sleep(random.uniform(0, min(0.05, 0.0005 * 2**attempt)))  # noqa: S311 - spreading, not secrecy
