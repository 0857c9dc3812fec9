"""The keyring of an encrypted store: its one record that is not encrypted. Layer: storage.

It has the names of the keys that open the store. It holds the store's salt and, for each key in use, the key's id and
the key of the entries' names, wrapped with that key. It never holds a key itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from versioned_state.errors import CorruptStoreError, FormatError

KEYRING: Final = "encryption"
"""The record's key in the store. The names of encrypted objects and entries start with ``o/`` or ``e/``."""

VERSION: Final = 1

_MAGIC: Final = b"versioned-state encryption\n"
SALT_SIZE: Final = 32
"""In bytes, which are random for each store."""


@dataclass(frozen=True)
class Keyring:
    """The salt of the store, and the key of the entries' names wrapped with each key in use, by that key's id."""

    salt: bytes
    wrapped: Mapping[bytes, bytes]

    @classmethod
    def read(cls, stored: bytes) -> Self:
        """Return the keyring in a record.

        Raises ``FormatError`` for a newer release's record, ``CorruptStoreError`` for a damaged one.
        """
        try:
            if not stored.startswith(_MAGIC):
                raise ValueError("it does not begin as one")
            record = json.loads(stored[len(_MAGIC) :])
            version = record["version"]
            if type(version) is not int or version < 1:
                raise ValueError("it has no version")
            if version > VERSION:
                raise FormatError(version, VERSION)
            return cls(
                bytes.fromhex(record["salt"]),
                {bytes.fromhex(id): bytes.fromhex(key) for id, key in record["keys"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CorruptStoreError(
                f"the keyring of the encrypted store, under {KEYRING!r}, is damaged: {error}",
                remains="nothing was changed",
                hint="restore that record from a backup: without it no key opens the store",
            ) from error

    def write(self) -> bytes:
        keys = {id.hex(): wrapped.hex() for id, wrapped in sorted(self.wrapped.items())}
        return _MAGIC + json.dumps({"version": VERSION, "salt": self.salt.hex(), "keys": keys}).encode()
