"""Records: the values of mutable keys, each with a checksum over key and value, so that no record passes for another.

Layer: objects.

A record changes by compare-and-set only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from versioned_state.errors import UnknownOutcomeError, UnreachableStoreError

if TYPE_CHECKING:
    from versioned_state.storage import KVStore

_CHECKSUM_SIZE: Final = 8

_SENDINGS: Final = 3
"""How often one write is sent if its reply is lost. The store retries within each."""


def write_record(key: str, body: bytes) -> bytes:
    """Return the stored bytes of a record."""
    return body + _checksum(key, body)


def read_record(key: str, stored: bytes) -> bytes:
    """Return the body of a stored record. Raises ``ValueError`` if it is damaged, or another key's."""
    body = stored[:-_CHECKSUM_SIZE]
    if stored[-_CHECKSUM_SIZE:] != _checksum(key, body):
        raise ValueError("it does not match its checksum")
    return body


def _checksum(key: str, body: bytes) -> bytes:
    return blake3(key.encode() + b"\0" + body).digest(length=_CHECKSUM_SIZE)


def replace_record(store: KVStore, name: str, before: bytes | None, after: bytes | None) -> bool:
    """Replace the record under a key of the store (None: no record), if it has not changed since it was read.

    Returns whether it did.

    A lost reply does no harm: the record is read back and the write repeated, which is safe because the write has a
    condition.

    Raises:
        UnknownOutcomeError: each reply was lost. Any other ``StorageError``: nothing was changed.
    """
    expected = {name: before}
    puts = {} if after is None else {name: after}
    deletes = (name,) if after is None else ()
    lost: UnknownOutcomeError | None = None
    for sending in range(_SENDINGS):
        if sending:
            time.sleep(0.01 * sending)
        try:
            if store.apply(expected, puts, deletes):
                return True
            # An earlier attempt may have written it.
            return lost is not None and store.get(name) == puts.get(name)
        except UnreachableStoreError as error:
            if isinstance(error, UnknownOutcomeError):
                lost = error
            elif lost is None:
                raise
    assert lost is not None
    raise lost
