"""``Reading``: objects and records read from a store in which anything may be damaged. Layer: objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from versioned_state.errors import (
    CorruptObjectError,
    CorruptRefError,
    CorruptStoreError,
    MissingObjectError,
    StateError,
)
from versioned_state.objects.address import Address
from versioned_state.objects.envelope import MAX_SEGMENT
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import grouped, segments_named, verified, verified_whole
from versioned_state.storage import KVStore

DAMAGE: Final = (CorruptStoreError, CorruptObjectError, CorruptRefError)
"""The errors that mean damage, and not that the store cannot be reached."""


class Reading:
    """Reads of a store in which anything may be damaged."""

    def __init__(self, store: KVStore) -> None:
        self._store = store

    def values(self, keys: Collection[str]) -> dict[str, bytes | StateError]:
        """Return the values of the keys that exist, and for a value that the store cannot read its error."""
        try:
            return {**self._store.get_many(keys)}
        except DAMAGE:
            pass
        found: dict[str, bytes | StateError] = {}
        for key in keys:  # one by one, to find the damaged values
            try:
                value = self._store.get(key)
                if value is not None:
                    found[key] = value
            except DAMAGE as error:
                found[key] = error
        return found

    def objects(self, addresses: Iterable[Address]) -> tuple[dict[Address, bytes], dict[Address, list[StateError]]]:
        """Return the raw bytes of the objects that are sound, and the errors of the others.

        An error is a ``MissingObjectError`` or a ``CorruptObjectError`` that names the object, or one of its segments;
        or the store's own error for the object.
        """
        raws: dict[Address, bytes] = {}
        errors: dict[Address, list[StateError]] = {}
        in_segments: dict[Address, list[Address]] = {}
        wanted = list(dict.fromkeys(addresses))
        stored = self._stored(wanted)
        for address in wanted:
            try:
                value = _value(address, stored)
                names = segments_named(address, value)
                if names:
                    in_segments[address] = names
                else:
                    raws[address] = verified(address, value)
            except (MissingObjectError, *DAMAGE) as error:
                errors[address] = [error]
        for group in grouped(in_segments):
            self._join(group, stored, raws, errors)
        return raws, errors

    def _join(
        self,
        group: Mapping[Address, list[Address]],
        envelopes: Mapping[Address, bytes | StateError],
        raws: dict[Address, bytes],
        errors: dict[Address, list[StateError]],
    ) -> None:
        names = list(dict.fromkeys(name for each in group.values() for name in each))
        stored = self._stored(names)
        segments: dict[Address, bytes] = {}
        bad: dict[Address, StateError] = {}
        for name in names:
            try:
                segments[name] = verified(name, _value(name, stored), limit=MAX_SEGMENT)
            except (MissingObjectError, *DAMAGE) as error:
                bad[name] = error
        for address, each in group.items():
            found = [bad[name] for name in dict.fromkeys(each) if name in bad]
            try:
                if not found:
                    raws[address] = verified_whole(address, _value(address, envelopes), each, segments)
            except CorruptObjectError as error:
                found.append(error)
            if found:
                errors[address] = found

    def _stored(self, addresses: Iterable[Address]) -> dict[Address, bytes | StateError]:
        keys = {object_key(address): address for address in addresses}
        return {keys[key]: value for key, value in self.values(keys).items()} if keys else {}


def _value(address: Address, stored: Mapping[Address, bytes | StateError]) -> bytes:
    value = stored.get(address)
    if value is None:
        raise MissingObjectError(address.hex())
    if isinstance(value, StateError):
        raise value
    return value
