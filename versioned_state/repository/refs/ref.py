"""Refs, which are names for commits: their records, the rules for names, and how a ref moves. Layer: repository.

A ref moves only by compare-and-set, in one batch with the objects that it needs. A second key, the birth record, states
that the ref was created, so that a lost ref is not mistaken for one that never existed. A deleted ref keeps its record,
without a head, for its reflog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple

import msgpack

from versioned_state.arguments import string
from versioned_state.errors import CorruptRefError, InvalidArgumentError, UnsafeStoreError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import REFS, RefKind, birth_key, due_key, gone_key, read_ref_key, recent_key, ref_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.objects.store import Staging
from versioned_state.records import dataclass, field, replace
from versioned_state.repository.history.commit import EARLIEST, ROOT_ADDRESS, Commit
from versioned_state.repository.refs.gc_fence import GcFence
from versioned_state.repository.refs.shared import write_shared
from versioned_state.storage import KVStore
from versioned_state.values.cells import has_surrogate

YEAR_ONE: Final = 1 - EARLIEST
"""Added to a time for a place in an index: above 0 for every time that a commit can have."""

WINDOW: Final = 300 * 1_000_000
"""How far ahead of its last change a branch may be in the index.

A branch in steady use is moved there once in this time, and a listing by the last change reads the branches in steady
use, about as many as the store has sessions at work.
"""

_LOOKS: Final = 3
"""How often the record of a ref with the mark of its creation is read: others may delete and create it meanwhile."""

_NO_MORE: Final = (None, 0, 0)
"""The last fields of a record that are left out."""

BORN: Final = b"\x01"
"""The value of every birth record."""

# Names are shown in terminals and logs, so they have no control characters: ASCII, C1, line ends, direction of text.
_BAD_NAME: Final = re.compile(
    r"[\x00-\x20\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069~^:?*\[\\]|\.\.|@\{|//|^[-/]|/$|^(?:HEAD|@)$"
)

_WILD: Final = re.compile(r"[*?\[]")

_pack = msgpack.Packer().pack  # made once, since making a packer takes longer than packing a record


@dataclass(slots=True)
class Ref:
    """The record of a ref, as it was read.

    Attributes:
        head: the address of the commit, or None if the ref was deleted.
        log: the address of its last log entry, or None.
        stored: the bytes of the record, which the next move expects, or None if there is no record yet.
        sweeps: the number of batches that gc had deleted by then; see ``GcFence``.
        bound: the ``Place`` in the index of branches by their last change or, if it was deleted, in that of deleted
            branches; 0 if it is in neither.
        moved: when the head was moved to a commit that existed already, or None if the head is newer than the last such
            move.
        ttl: how long after its last change the branch expires; 0 if it does not.
        due: the time in the index of branches that expire, which is that of the end or earlier; 0 if it is not there.

    All times are in microseconds; ``due`` counts from the year 1.
    """

    kind: RefKind
    name: str
    head: Address | None
    log: Address | None
    stored: bytes | None
    sweeps: int = 0
    bound: int = 0
    moved: int | None = None
    ttl: int = 0
    due: int = 0

    def changed(self, head: Commit) -> int:
        """Return when the head moved last, given the commit that it is."""
        return head.time if self.moved is None else self.moved


class Place(NamedTuple):
    """The place of a branch in the index by the last change: twice a time, and 1 more if the change may be earlier.

    Not every commit moves its branch in the index, since that would make each commit a tenth slower. After a pause the
    place is exact. The next commit moves it ``WINDOW`` ahead, and commits within that time do not move it. So the place
    of a branch is never before its last change, and a listing of the newest branches need not read those with an
    earlier place.
    """

    bound: int

    @classmethod
    def at(cls, time: int) -> Place:
        """Return the exact place for a time."""
        return cls((time + YEAR_ONE) * 2)

    @property
    def latest(self) -> int:
        """The latest time that the last change can have."""
        return self.bound // 2 - YEAR_ONE

    @property
    def earliest(self) -> int:
        """The earliest one."""
        return self.latest - WINDOW if self.bound % 2 else self.latest

    def after(self, changed: int) -> Place:
        """Return the place after a change at this time."""
        behind = self.latest - changed
        if self.bound and 0 <= behind <= WINDOW * (self.bound % 2):
            return self
        if self.bound and 0 < -behind <= WINDOW:
            return Place(Place.at(changed + WINDOW).bound + 1)
        return Place.at(changed)


def may_be_name(name: str) -> bool:
    """Return whether a ref may have this name, read from a commit or a record that anybody may have written."""
    return not has_surrogate(name) and len(name.encode()) <= 255


def check_name(kind: RefKind, name: str) -> None:
    """Raise ``InvalidArgumentError`` for a name that a new ref must not have. The rules are nearly git's.

    Only new names are checked: older stores have names with control characters beyond ASCII.
    """
    if type(name) is not str:
        string(f"the name of a {kind}", name)
    if len(name) > 255 or not _is_good(name):
        raise InvalidArgumentError(
            f"bad name for a {kind}: {name!r}",
            hint="1 to 255 bytes, without blanks, control characters (also those that turn the direction of text), "
            "~ ^ : ? * [ \\ .. @{ //, and with no / at either end",
        )


@lru_cache(256)
def _is_good(name: str) -> bool:
    return (
        bool(name)
        and len(name.encode("utf-8", "surrogatepass")) <= 255
        and not _BAD_NAME.search(name)
        and not has_surrogate(name)
    )


@dataclass(slots=True, eq=False)
class BatchPart:
    """Conditions and records that join the batch that moves a ref. Never changed.

    Attributes:
        expected, puts, deletes: as for ``KVStore.apply``.
        keep: the commits and log entries that the records make reachable, for gc.
    """

    expected: Mapping[str, bytes | None] = field(default_factory=dict)
    puts: Mapping[str, bytes] = field(default_factory=dict)
    keep: tuple[Address, ...] = ()
    deletes: tuple[str, ...] = ()

    def joined(self, other: BatchPart) -> BatchPart:
        """Return both parts as one."""
        if other is NOTHING or self is NOTHING:
            return self if other is NOTHING else other
        return BatchPart(
            {**self.expected, **other.expected},
            {**self.puts, **other.puts},
            self.keep + other.keep,
            self.deletes + other.deletes,
        )


NOTHING: Final = BatchPart()


def write_ref(
    kind: RefKind,
    name: str,
    head: Address | None,
    log: Address | None,
    *,
    bound: int = 0,
    moved: int | None = None,
    ttl: int = 0,
    due: int = 0,
) -> bytes:
    """Return the record of a ref: its fields, and a checksum over these and the key.

    The last fields are in it only if they are needed.
    """
    fields = [name, head, bound, log]
    if ttl:
        fields += (moved, ttl, due)
    elif moved is not None:
        fields.append(moved)
    body: bytes = _pack(fields)
    return write_record(ref_key(kind, name), body)


def read_ref(store: KVStore, kind: RefKind, name: str) -> Ref:
    """Return the ref of that name, without head and record if it does not exist.

    Raises:
        CorruptRefError: the record is damaged, or gone although the ref was created.
    """
    return read_refs(store, [(kind, name)])[0]


def read_refs(store: KVStore, names: Iterable[tuple[RefKind, str]]) -> list[Ref]:
    """Return the refs of these kinds and names, in one call of the store, as ``read_ref`` does."""
    wanted = list(names)
    found = store.get_many([key for each in wanted for key in (ref_key(*each), birth_key(*each))])
    refs = []
    for kind, name in wanted:
        stored = found.get(ref_key(kind, name))
        if stored is None and birth_key(kind, name) in found:
            stored = _read_again(store, kind, name)
        refs.append(Ref(kind, name, None, None, None) if stored is None else parse_ref(kind, name, stored))
    return refs


def _read_again(store: KVStore, kind: RefKind, name: str) -> bytes | None:
    """Read the record of a ref again after only its birth record was found, or None if both are gone by now.

    Reading several keys is not a snapshot: the ref may have been created between the two reads.
    """
    for _ in range(_LOOKS):
        stored = store.get(ref_key(kind, name))
        if stored is not None or store.get(birth_key(kind, name)) is None:
            return stored
    raise CorruptRefError(name, f"the {kind} was created, and its record is gone")


def parse_ref(kind: RefKind, name: str, stored: bytes) -> Ref:
    """Return the ref in a record. Raises ``CorruptRefError``."""
    key = ref_key(kind, name)
    try:
        named, head, bound, log, *rest = msgpack.unpackb(read_record(key, stored))
        moved, ttl, due = (*rest, *_NO_MORE[len(rest) :]) if rest else _NO_MORE
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptRefError(name, f"its record is damaged: {error}") from error
    if (
        named != name
        or not (head is None or (type(head) is bytes and len(head) == ADDRESS_SIZE))
        or not (log is None or (type(log) is bytes and len(log) == ADDRESS_SIZE))
        or not (type(bound) is type(ttl) is type(due) is int and (moved is None or type(moved) is int))
    ):
        raise CorruptRefError(name, "its record is not that of this ref")
    head, log = None if head is None else Address(head), None if log is None else Address(log)
    return Ref(kind, name, head, log, stored, 0, bound, moved, ttl, due)


def after_move(
    ref: Ref,
    head: Address | None,
    log: Address | None,
    *,
    changed: int,
    is_new: bool,
    indexed: bool,
    ttl: int | None = None,
) -> Ref:
    """Return the ref after a move, with the bytes of its record.

    Args:
        changed: the time of the move.
        is_new: whether the head is a new commit, made at that time.
        indexed: whether the store has the indexes.
        ttl: how long the branch lives from now on, or None for as long as before.
    """
    indexed = indexed and ref.kind == "branch"
    lives = ref.ttl if ttl is None else ttl
    moved = None if is_new or head is None else changed
    bound = Place(ref.bound if ref.head is not None and head is not None else 0).after(changed).bound if indexed else 0
    due = 0
    if lives and indexed and head is not None:
        end = changed + lives + YEAR_ONE
        due = ref.due if lives == ref.ttl and 0 < ref.due <= end else end
    lives = lives if head is not None else 0
    stored = write_ref(ref.kind, ref.name, head, log, bound=bound, moved=moved, ttl=lives, due=due)
    return Ref(ref.kind, ref.name, head, log, stored, ref.sweeps, bound, moved, lives, due)


def batch_of(before: Ref, after: Ref) -> BatchPart:
    """Return the batch that replaces one record of a ref by another.

    It also has the ref's places in the indexes, and the record of its birth.
    """
    key = ref_key(before.kind, before.name)
    assert after.stored is not None
    puts = {key: after.stored}
    deletes: tuple[str, ...] = ()
    if before.stored is None:
        puts[birth_key(before.kind, before.name)] = BORN
    if before.bound != after.bound or (before.head is None) != (after.head is None):
        if before.bound:
            deletes = (_place_key(before),)
        if after.bound:
            puts[_place_key(after)] = b""
    if before.due != after.due:
        if before.due:
            deletes += (due_key(before.due, before.name),)
        if after.due:
            puts[due_key(after.due, before.name)] = b""
    keep: tuple[Address, ...] = ()
    for address in (after.head, after.log):
        if address is not None and address not in (before.head, before.log):
            keep += (address,)
    return BatchPart({key: before.stored}, puts, keep, deletes)


def move_ref(
    fence: GcFence,
    before: Ref,
    after: Ref,
    *,
    staging: Staging,
    secure: Callable[[int], None] = lambda _: None,
    part: BatchPart = NOTHING,
) -> Ref | None:
    """Replace the record of a ref, as it was read, in one batch with the objects that the new one needs.

    This is safe beside gc. Returns the ref as it is then, or None if another writer moved it in between. The objects
    may then be stored all the same.

    Args:
        after: see ``after_move``.
        staging: has the objects, with the new log entry.
        secure: see ``GcFence.apply``.
        part: goes into the same batch. None is returned also if one of its conditions does not hold.
    """
    batch = batch_of(before, after)
    if part is not NOTHING:
        batch = batch.joined(part)
    sweeps = fence.apply(batch.expected, batch.puts, batch.deletes, staging=staging, keep=batch.keep, secure=secure)
    return None if sweeps is None else after if sweeps == after.sweeps else replace(after, sweeps=sweeps)


def rename_ref(
    fence: GcFence, source: Ref, target: Ref, *, gone: Ref, staging: Staging, part: BatchPart = NOTHING
) -> bool:
    """Give ``target``, which has no head, the head and the log of ``source``, and delete ``source``, in one batch.

    Returns False, with nothing changed, if another writer moved either in between.

    Args:
        gone: ``source`` as it is then, whose last log entry is new, and staged.
        part: goes into the same batch.
    """
    placed = renamed(source, target)
    batch = batch_of(source, gone).joined(batch_of(target, placed)).joined(part)
    if source.head not in (None, ROOT_ADDRESS):
        # the reflog of the old name leads to it too
        batch = batch.joined(BatchPart(puts=write_shared(source.head, [target.name])))
    # Before and after the batch, one of the two names leads to everything except the new entry. But gc may read the new
    # name before the batch and the old name after it.
    keep = [address for address in (source.head, source.log, gone.log) if address is not None]
    return (
        fence.apply(batch.expected, batch.puts, batch.deletes, staging=staging, keep=keep, since=source.sweeps)
        is not None
    )


def _place_key(ref: Ref) -> str:
    """Return the key of a branch in the index that it is in."""
    return (recent_key if ref.head is not None else gone_key)(ref.bound, ref.name)


def keys_of(ref: Ref) -> list[str]:
    """Return all keys that a ref has in the store."""
    keys = [ref_key(ref.kind, ref.name), birth_key(ref.kind, ref.name)]
    keys += [_place_key(ref)] if ref.bound else []
    return [*keys, due_key(ref.due, ref.name)] if ref.due else keys


def renamed(source: Ref, target: Ref) -> Ref:
    """Return the record of ``source`` under the name of ``target``, which has no head."""
    return rewritten(replace(source, name=target.name), source.head, source.log)


def rewritten(ref: Ref, head: Address | None, log: Address | None) -> Ref:
    """Return the ref with another head and log, and all else as it was."""
    r = ref
    stored = write_ref(r.kind, r.name, head, log, bound=r.bound, moved=r.moved, ttl=r.ttl, due=r.due)
    return replace(ref, head=head, log=log, stored=stored)


def iter_refs(store: KVStore, kind: RefKind, prefix: str = "", *, deleted: bool = False) -> Iterator[Ref]:
    """Yield the refs of a kind, with ``deleted`` deleted ones too, in the order of the store.

    Cost: reads the refs that it lists.

    Raises:
        CorruptRefError: a record is damaged; at the end, a ref that was created is gone.
    """
    start, born = ref_key(kind, ""), birth_key(kind, "")
    listed = set()
    for key, stored in store.items(start + prefix):
        ref = parse_ref(kind, key[len(start) :], stored)
        listed.add(ref.name)
        if deleted or ref.head is not None:
            yield ref
    # Last, so that a caller that takes only a few refs does not wait for it.
    for key in store.keys(born + prefix):
        name = key[len(born) :]
        if name not in listed:  # created since the first listing, or lost, which raises
            read_ref(store, kind, name)


def check_ref_kinds(store: KVStore) -> None:
    """Raise ``UnsafeStoreError`` if the store has a ref that is neither a branch nor a tag.

    What such a ref leads to is not known here. Cost: few keys, whatever their number, if the store keeps them in order.
    """
    after = None
    while page := store.page(REFS, after=after, limit=1):
        try:
            kind, _ = read_ref_key(page[0])
        except ValueError:
            raise UnsafeStoreError(
                f"the store has a ref of a kind that this release does not have: {page[0]}",
                remains="nothing was deleted",
                hint="use the release that wrote it",
            ) from None
        after = f"{REFS}{kind}{chr(ord('/') + 1)}"  # behind every ref of this kind


def literal_in(pattern: str) -> str:
    """Return the text that all names begin with that match a pattern of ``fnmatch``."""
    return _WILD.split(pattern, maxsplit=1)[0]


def match_refs(store: KVStore, patterns: Iterable[str], *, deleted: bool = False) -> Iterator[Ref]:
    """Yield the branches that match any of some patterns with ``*`` and ``?``, each once.

    With ``deleted``, deleted branches are among them. Cost: a read for a pattern that is a name, a listing of what
    begins like it for any other. Raises as ``iter_refs``.
    """
    seen: set[str] = set()
    for pattern in patterns:
        literal = literal_in(pattern)
        found = (
            [read_ref(store, "branch", pattern)]
            if literal == pattern
            else iter_refs(store, "branch", literal, deleted=deleted)
        )
        for ref in found:
            there = ref.stored is not None and (deleted or ref.head is not None)
            if there and ref.name not in seen and fnmatchcase(ref.name, pattern):
                seen.add(ref.name)
                yield ref
