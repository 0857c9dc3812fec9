"""``HeldObjects``: the objects that a handle reads. Layer: state."""

from __future__ import annotations

from collections.abc import Iterable

from versioned_state.objects.address import Address
from versioned_state.objects.store import ObjectStore
from versioned_state.state.aio.caller import StoreNeeded, current_caller
from versioned_state.storage import KVStore


class HeldObjects(ObjectStore):
    """Verified reads for one handle.

    Objects that a background call has read stay in memory until it ends: its steps need not wait.

    Attributes:
        beside: objects that are not in the store: those of migrated roots, until they are committed.
        from_memory: whether the last read returned one of either kind.
        is_sealed: whether a read from the store raises ``StoreNeeded``, for a step that must not wait for the store.
    """

    from_memory: bool

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.beside: dict[Address, bytes] = {}
        self.is_sealed = False

    @property
    def kv(self) -> KVStore:  # type: ignore[override] # read from the repository's each time
        return self._objects.kv

    def read(self, address: Address) -> bytes:
        self.from_memory = True
        if self.beside and (own := self.beside.get(address)) is not None:
            return own
        caller = current_caller()
        if caller is None:
            if self.is_sealed:
                raise StoreNeeded
            self.from_memory = False
            return self._objects.read(address)
        raw = caller.objects.get(address)
        if raw is None:
            if caller.is_sealed or self.is_sealed:
                raise StoreNeeded
            self.from_memory = False
            raw = caller.objects[address] = self._objects.read(address)
        return raw

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        self.from_memory = bool(self.beside)
        if self.beside:
            wanted = list(addresses)
            own = {address: self.beside[address] for address in wanted if address in self.beside}
            return own | self._read_many([address for address in wanted if address not in own])
        return self._read_many(addresses)

    def _read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        caller = current_caller()
        if caller is None and not self.is_sealed:
            return self._objects.read_many(addresses)
        wanted = list(addresses)
        held = {} if caller is None else caller.objects
        missing = [address for address in wanted if address not in held]
        self.from_memory = self.from_memory or len(missing) < len(wanted)
        if missing:
            if caller is None or caller.is_sealed or self.is_sealed:
                raise StoreNeeded
            held.update(self._objects.read_many(missing))
        return {address: held[address] for address in wanted}
