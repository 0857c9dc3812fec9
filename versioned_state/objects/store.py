"""Objects by address over a ``KVStore``: reads are verified, writes are staged first. Layer: objects.

``ObjectStore`` reads objects in one call of the store, and one more if some are stored in segments. ``KeptObjects``
keeps each object that it has read. ``Staging`` is one writer's overlay of objects that are not yet in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from versioned_state.errors import CorruptObjectError, MissingObjectError
from versioned_state.objects.address import Address, address_of, is_address_of
from versioned_state.objects.envelope import (
    IN_SEGMENTS,
    MAX_OBJECT,
    Segmented,
    join,
    seal,
    segments_in,
    unseal,
    unseal_segment,
)
from versioned_state.objects.keys import OBJECTS, address_in
from versioned_state.storage import KVStore

GetMany = Callable[[Iterable[str]], Mapping[str, bytes]]
"""``KVStore.get_many``."""

_SEGMENTS_AT_ONCE: Final = 512
"""Segments that are read, and held, at once, so that envelopes which name any number of them cannot fill the memory."""

_OBJECT_BYTES: Final = 150
"""Approximate bytes of memory of a staged object besides its own bytes."""


class Reader(Protocol):
    """A source of objects."""

    def read(self, address: Address) -> bytes:
        """Return the raw bytes, kind first. Raises ``MissingObjectError`` or ``CorruptObjectError``."""
        ...

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        """Return what ``read`` does for several objects, in one call of the store. All of them must exist."""
        ...


class ObjectStore:
    """Verified reads of objects from a ``KVStore``. Holds no object, so it may be shared by handles and threads.

    Attributes:
        from_memory: whether the last read returned an object that may not be in the store now. Only a subclass for one
            handle does that.
    """

    from_memory = False

    def __init__(self, kv: KVStore) -> None:
        self.kv = kv

    def read(self, address: Address) -> bytes:
        stored = self.kv.get("o/" + address.hex())
        if stored is None:
            raise MissingObjectError(address.hex())
        if stored[:1] in IN_SEGMENTS:
            return joined({address: stored}, self.kv.get_many)[address]
        return verified(address, stored)

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        return read_objects(self.kv.get_many, addresses)

    def iter_addresses(self, prefix: str) -> Iterator[Address]:
        """Yield the addresses whose hex digits begin with ``prefix``, in the order of the store.

        Lists one range of keys.
        """
        return map(address_in, self.kv.keys(OBJECTS + prefix))


class KeptObjects:
    """A reader that keeps in memory each object that it has read."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: dict[Address, bytes] = {}

    def read(self, address: Address) -> bytes:
        raw = self._kept.get(address)
        if raw is None:
            raw = self._kept[address] = self._reader.read(address)
        return raw

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        wanted = list(addresses)
        self._kept.update(self._reader.read_many([address for address in wanted if address not in self._kept]))
        return {address: self._kept[address] for address in wanted}


class Staging:
    """One writer's new objects over a store. Not for two threads at once.

    ``add`` hashes and keeps an object; ``sealed`` gives the objects for the batch that publishes them.

    Args:
        flush_at: the number of raw bytes from which staged objects are stored ahead of the commit, so that a large
            commit is not held in memory twice. If the commit is not made, they are garbage. None: never, for objects
            that must leave no trace.
        since: see the attribute.

    Attributes:
        store: the store beneath.
        since: the staged objects lead to others that are not staged here. This is the lowest number of gc's ``sweeps``
            (see ``GcFence``) at which these were known to be stored. It is fixed when the objects are encoded, and a
            ref that is read later does not raise it. None: these are objects of the ref that is moved. -1: they were
            not known to be stored.
    """

    def __init__(self, store: ObjectStore, *, flush_at: int | None = None, since: int | None = None) -> None:
        self.store: Final = store
        self._flush_at = flush_at
        self._staged: dict[Address, bytes] = {}
        self._sent: set[Address] = set()
        self._size = 0
        self.since = since

    @property
    def held_bytes(self) -> int:
        """Approximate bytes of memory that the staged objects take. Cost: O(1)."""
        return self._size + _OBJECT_BYTES * len(self._staged)

    def __len__(self) -> int:
        return len(self._staged)

    def __contains__(self, address: bytes) -> bool:
        return address in self._staged

    def add(self, raw: bytes, address: Address | None = None) -> Address:
        """Stage an object. Returns its address. Cost: one hash, unless the caller has computed the address already."""
        if address is None:
            address = address_of(raw)
        if address not in self._staged:
            self._staged[address] = raw
            self._size += len(raw)
            if self._flush_at is not None and self._size >= self._flush_at:
                self.store.kv.apply({}, {}, objects=self.sealed())
                self._staged.clear()
                self._sent.clear()
                self._size = 0
        return address

    def include(self, other: Staging) -> None:
        """Add the objects of another staging over the same store."""
        for address, raw in other._staged.items():
            self.add(raw, address)
        self.rely_on(other.since)

    def take(self, other: Staging) -> None:
        """Stage also the objects that another staging has staged."""
        self._staged.update(other._staged)
        self.rely_on(other.since)

    def rely_on(self, since: int | None) -> None:
        """Lower ``since`` to this number, if it is lower."""
        if since is not None and (self.since is None or since < self.since):
            self.since = since

    def read(self, address: Address) -> bytes:
        raw = self._staged.get(address)
        return self.store.read(address) if raw is None else raw

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        staged = self._staged
        if not staged:
            return self.store.read_many(addresses)
        here: dict[Address, bytes] = {}
        rest = []
        for address in addresses:
            raw = staged.get(address)
            if raw is None:
                rest.append(address)
            else:
                here[address] = raw
        here.update(self.store.read_many(rest))
        return here

    def addresses(self) -> Collection[Address]:
        """Return the addresses of the staged objects that were not stored ahead."""
        return self._staged.keys()

    def staged(self) -> dict[Address, bytes]:
        """Return the raw bytes of the staged objects, by address. Those that were stored ahead are not among them."""
        return dict(self._staged)

    def sealed(self) -> dict[str, bytes]:
        """Return the staged objects that were not sent yet, as keys and stored bytes."""
        sent = self._sent
        return {"o/" + address.hex(): seal(raw) for address, raw in self._staged.items() if address not in sent}

    def sent(self) -> None:
        """Note that the store has the staged objects: a batch that is tried again takes only later ones."""
        self._sent.update(self._staged)

    def distrust(self) -> None:
        """Note that objects that are not staged here may be gone.

        The tree shares them with a commit that may be unreachable by now. They are read, and sent again, before the
        commit is published. Cost: reading the nodes that differ from the parents' trees.
        """
        self.rely_on(-1)

    def resend(self) -> None:
        """Note that gc may have deleted objects that were sent: the next batch takes all of them again.

        The batch also takes the segments of staged objects that were in the store already, such as those of an extended
        leaf.
        """
        self._sent.clear()
        for raw in list(self._staged.values()):
            if type(raw) is Segmented:
                self._staged.update((address, part) for address, part in raw.parts() if address not in self._staged)


class Overlaid:
    """A reader of a staging and, for objects that the staging does not have, of another reader of the same store."""

    def __init__(self, first: Staging, second: Reader) -> None:
        self._first = first
        self._second = second

    def read(self, address: Address) -> bytes:
        return self._first.read(address) if address in self._first else self._second.read(address)

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        return {address: self.read(address) for address in addresses}


def read_objects(get_many: GetMany, addresses: Iterable[Address]) -> dict[Address, bytes]:
    """Return the raw bytes of objects, verified. Raises ``MissingObjectError`` or ``CorruptObjectError``."""
    keys = {"o/" + address.hex(): address for address in addresses}
    if not keys:
        return {}
    found = get_many(keys)
    if len(found) < len(keys):
        missing = next(address for key, address in keys.items() if key not in found)
        raise MissingObjectError(missing.hex())
    # One by one, on this thread. Measured on opening a store and reading 1,000 messages (254 leaves): having 60 % of
    # them decompressed on another thread meanwhile, in one call without the GIL, gained 4 % in one run and lost 3 % in
    # the next.
    raws: dict[Address, bytes] = {}
    in_segments: dict[Address, bytes] = {}
    for key, stored in found.items():
        address = keys[key]
        if stored[:1] in IN_SEGMENTS:
            in_segments[address] = stored
        else:
            raws[address] = verified(address, stored)
    if in_segments:
        raws.update(joined(in_segments, get_many))
    return raws


def joined(found: Mapping[Address, bytes], get_many: GetMany) -> dict[Address, bytes]:
    """Return the raw bytes of objects that are stored in segments, verified.

    Cost: one call of the store for about 500 segments.

    Raises:
        MissingObjectError, CorruptObjectError: the object, or the segment, that is missing or damaged.
    """
    raws: dict[Address, bytes] = {}
    for group in grouped({address: segments_named(address, stored) for address, stored in found.items()}):
        _join(found, group, get_many, raws)
    return raws


def grouped(segments: Mapping[Address, list[Address]]) -> Iterator[dict[Address, list[Address]]]:
    """Yield objects that are stored in segments, each with its own, in groups whose segments fit in memory."""
    group: dict[Address, list[Address]] = {}
    count = 0
    for address, names in segments.items():
        if group and count + len(names) > _SEGMENTS_AT_ONCE:
            yield group
            group, count = {}, 0
        group[address] = names
        count += len(names)
    if group:
        yield group


def _join(
    found: Mapping[Address, bytes],
    group: Mapping[Address, list[Address]],
    get_many: GetMany,
    raws: dict[Address, bytes],
) -> None:
    keys = {"o/" + name.hex(): name for names in group.values() for name in names}
    stored = get_many(keys)
    if len(stored) < len(keys):
        raise MissingObjectError(next(name for key, name in keys.items() if key not in stored).hex())
    # Versions of one leaf share most of their segments, so each is decompressed once. The hash of the leaf shows a
    # damaged segment.
    segments: dict[Address, bytes] = {}
    for key, value in stored.items():
        name = keys[key]
        try:
            segments[name] = unseal_segment(value)
        except ValueError as error:
            raise CorruptObjectError(name.hex(), str(error)) from error
    for address, names in group.items():
        raws[address] = verified_whole(address, found[address], names, segments)


def verified_whole(
    address: Address, stored: bytes, names: list[Address], segments: Mapping[Address, bytes]
) -> Segmented:
    """Return the raw bytes of an object that is stored in segments, checked against its address.

    Raises ``CorruptObjectError``.

    Args:
        names: the segments that the envelope names.
        segments: the raw bytes of each, which need not be verified.
    """
    try:
        raw = join(stored, names, segments)
    except ValueError as error:
        raise CorruptObjectError(address.hex(), str(error)) from error
    if not is_address_of(address, raw):
        for name in names:
            if not is_address_of(name, segments[name]):
                raise CorruptObjectError(name.hex(), "its bytes do not match its address")
        raise CorruptObjectError(address.hex(), "its bytes do not match its address")
    return raw


def segments_named(address: Address, stored: bytes) -> list[Address]:
    """Return the segments that the envelope of an object names, or none if it is stored whole.

    Raises ``CorruptObjectError``.
    """
    try:
        return segments_in(stored)
    except ValueError as error:
        raise CorruptObjectError(address.hex(), str(error)) from error


def verified(address: Address, stored: bytes, *, limit: int = MAX_OBJECT) -> bytes:
    """Return the raw bytes of an object that is stored whole, checked against its address.

    Raises ``CorruptObjectError``.
    """
    try:
        raw = unseal(stored, limit=limit)
    except ValueError as error:
        raise CorruptObjectError(address.hex(), str(error)) from error
    if not is_address_of(address, raw):
        raise CorruptObjectError(address.hex(), "its bytes do not match its address")
    return raw
