"""Refs: names that point to commits; their records, the rules for names, and how a ref moves. Layer: repository.

A ref moves only by compare-and-set, in one batch with the objects that it needs. A second key, the birth record, says that the ref was
created, so that a lost ref is not taken for one that never existed. A deleted ref keeps its record, without a head, for its reflog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgpack

from versioned_state.errors import CorruptRefError, InvalidArgumentError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import RefKind, birth_key, ref_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.objects.store import Staging
from versioned_state.repository.refs.gc_fence import GcFence
from versioned_state.storage import KVStore

BORN: Final = b"\x01"
"""The value of every birth record."""

# Names are shown in terminals and logs, so they have no control characters: ASCII, C1, line ends, direction of text.
_BAD_NAME: Final = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069~^:?*\[\\]|\.\.|@\{|//|^[-/]|/$|^(?:HEAD|@)$")

_pack = msgpack.Packer().pack  # made once: that takes longer than packing a record


@dataclass(slots=True)
class Ref:
    """The record of a ref, as it was read.

    Attributes:
        head: the address of the commit; None if the ref was deleted.
        log: the address of its last log entry, or None.
        stored: the bytes of the record, which the next move expects; None if there is no record yet.
        sweeps: the number of batches that gc had deleted by then; see ``GcFence``.
    """

    kind: RefKind
    name: str
    head: Address | None
    log: Address | None
    stored: bytes | None
    sweeps: int = 0


def check_name(kind: RefKind, name: str) -> None:
    """Raise ``InvalidArgumentError`` for a name that a new ref must not have. The rules are nearly git's.

    Only new names are checked: older stores have names with control characters beyond ASCII.
    """
    if type(name) is not str:
        raise InvalidArgumentError(f"the name of a {kind} is a string, not {type(name).__name__}")
    if not name or len(name.encode("utf-8", "surrogatepass")) > 255 or _BAD_NAME.search(name) or has_surrogate(name):
        raise InvalidArgumentError(
            f"bad name for a {kind}: {name!r}",
            hint="1 to 255 bytes, without blanks, control characters (also those that turn the direction of text), "
            "~ ^ : ? * [ \\ .. @{ //, and with no / at either end",
        )


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What goes with a ref into the batch that moves it: conditions and records beside those of the ref.

    Attributes:
        expected, puts: as for ``KVStore.apply``.
        keep: the commits and log entries that the records make reachable, for gc.
    """

    expected: Mapping[str, bytes | None] = field(default_factory=dict)
    puts: Mapping[str, bytes] = field(default_factory=dict)
    keep: tuple[Address, ...] = ()

    def joined(self, other: BatchPart) -> BatchPart:
        """Both parts as one."""
        if other is NOTHING or self is NOTHING:
            return self if other is NOTHING else other
        return BatchPart({**self.expected, **other.expected}, {**self.puts, **other.puts}, self.keep + other.keep)


NOTHING: Final = BatchPart()


def has_surrogate(name: str) -> bool:
    """Whether a string has a lone surrogate, so that it does not encode."""
    return any("\ud800" <= char <= "\udfff" for char in name)


def write_ref(kind: RefKind, name: str, head: Address | None, log: Address | None) -> bytes:
    """The record of a ref: name, head, 0, last log entry, and a checksum over these and the key."""
    body: bytes = _pack([name, head, 0, log])
    return write_record(ref_key(kind, name), body)


def read_ref(store: KVStore, kind: RefKind, name: str) -> Ref:
    """The ref of that name; without head and record if it does not exist.

    Raises:
        CorruptRefError: the record is damaged, or gone although the ref was created.
    """
    key, born = ref_key(kind, name), birth_key(kind, name)
    found = store.get_many([key, born])
    stored = found.get(key)
    if stored is None:
        if born in found:
            raise CorruptRefError(name, f"the {kind} was created, and its record is gone")
        return Ref(kind, name, None, None, None)
    return parse_ref(kind, name, stored)


def parse_ref(kind: RefKind, name: str, stored: bytes) -> Ref:
    """The ref in a record. Raises ``CorruptRefError``."""
    try:
        named, head, _, log = msgpack.unpackb(read_record(ref_key(kind, name), stored))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptRefError(name, f"its record is damaged: {error}") from error
    if named != name or any(a is not None and (type(a) is not bytes or len(a) != ADDRESS_SIZE) for a in (head, log)):
        raise CorruptRefError(name, "its record is not that of this ref")
    return Ref(kind, name, None if head is None else Address(head), None if log is None else Address(log), stored)


def move_ref(
    fence: GcFence,
    ref: Ref,
    head: Address | None,
    *,
    log: Address | None,
    staging: Staging,
    parents: Collection[Address] = (),
    since: int = 0,
    secure: Callable[[], None] = lambda: None,
    part: BatchPart = NOTHING,
) -> Ref | None:
    """Point a ref, as it was read, to another head, in one batch with the objects that it needs, safe beside gc.

    Returns the ref as it is then; None if somebody moved it in between. The objects may then be stored all the same.

    Args:
        staging: has the objects, with the new log entry.
        parents: commits that the head leads to.
        since, secure: see ``GcFence.apply``.
        part: goes into the same batch. None is returned also if one of its conditions does not hold.
    """
    key = ref_key(ref.kind, ref.name)
    stored = write_ref(ref.kind, ref.name, head, log)
    puts = {key: stored}
    if ref.stored is None:
        puts[birth_key(ref.kind, ref.name)] = BORN
    keep = [address for address in (head, log) if address is not None and address not in (ref.head, ref.log)]
    expected: dict[str, bytes | None] = {key: ref.stored}
    if part is not NOTHING:
        expected.update(part.expected)
        puts.update(part.puts)
        keep += part.keep
    sweeps = fence.apply(expected, puts, staging=staging, keep=keep, instead_of=parents, since=since, secure=secure)
    return None if sweeps is None else Ref(ref.kind, ref.name, head, log, stored, sweeps)


def rename_ref(fence: GcFence, source: Ref, target: Ref, *, log: Address, staging: Staging) -> bool:
    """Give ``target``, which has no head, the head and the log of ``source``, and delete ``source``, in one batch.

    False if somebody moved either in between; then nothing was changed.

    Args:
        log: the new last log entry of ``source``, staged.
    """
    names = {ref.name: ref_key(ref.kind, ref.name) for ref in (source, target)}
    puts = {
        names[source.name]: write_ref(source.kind, source.name, None, log),
        names[target.name]: write_ref(target.kind, target.name, source.head, source.log),
    }
    if target.stored is None:
        puts[birth_key(target.kind, target.name)] = BORN
    expected = {names[ref.name]: ref.stored for ref in (source, target)}
    # One of the two names leads to everything but the new entry, before the batch and after it. But gc may read the old name after the
    # batch and have read the new one before it.
    keep = [address for address in (source.head, source.log, log) if address is not None]
    return fence.apply(expected, puts, staging=staging, keep=keep, since=source.sweeps) is not None


def ref_at(ref: Ref, head: Address) -> Ref:
    """The ref after a move to a commit that adds no log entry."""
    return replace(ref, head=head, stored=write_ref(ref.kind, ref.name, head, ref.log))


def iter_refs(store: KVStore, kind: RefKind, prefix: str = "", *, deleted: bool = False) -> Iterator[Ref]:
    """The refs of a kind, in the order of the store; with ``deleted``, deleted refs too. Cost: reads the refs that it lists.

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
    # Last, so that whoever takes only a few refs does not wait for it.
    for key in store.keys(born + prefix):
        name = key[len(born) :]
        if name not in listed:  # created since the first listing, or lost, which raises
            read_ref(store, kind, name)
