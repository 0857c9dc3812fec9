"""Sealing the values and names of an encrypted store, and the id of a key. Layer: storage.

Sealing is deterministic: equal values under one name and key give equal bytes, so a compare-and-set works on encrypted
bytes.
Everything sealed is authenticated: bytes that no holder of the key wrote raise ``ValueError``, and so does a value that
was moved to another name. (``wrap`` alone is not deterministic.)
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from typing import Final

from versioned_state.errors import MissingDependencyError
from versioned_state.storage.base import OBJECT_PREFIX

KEY_SIZE: Final = 32
ID_SIZE: Final = 4
NAME_KEY_SIZE: Final = 64
"""In bytes: AES-256-SIV needs two keys of 256 bits."""

ENTRY_PREFIX: Final = "e/"

BUCKET_LETTERS: Final = 3
"""The number of first letters of their keys by which objects share a bucket.

With 3, resolving an abbreviated id lists 1/4096 of the objects. Fewer letters would list more; more letters would
reveal more about which addresses begin alike.
"""

_INFO: Final = b"versioned-state encrypted store 1"
_NONCE_SIZE: Final = 12
_BUCKET_SIZE: Final = 2
_HEADER_SIZE: Final = ID_SIZE + _NONCE_SIZE
SEAL_SIZE: Final = _HEADER_SIZE + 16
"""How many bytes longer a sealed value is: its header and the tag of GCM."""

_ID_START: Final = len(OBJECT_PREFIX) + 2 * _BUCKET_SIZE
_ID_END: Final = _ID_START + 2 * ID_SIZE
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})+")


class Cipher:
    """One key, in one store: values under AES-256-GCM, names of objects under AES-256-SIV (RFC 5297).

    Threads may share it.

    ``salt`` belongs to the store, so one key gives different bytes and a different ``id`` in every store.
    """

    def __init__(self, key: bytes, salt: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError as error:
            raise MissingDependencyError("Encrypted", extra="encrypted") from error
        self._invalid = InvalidTag
        sizes = (ID_SIZE, 32, 32, 32, NAME_KEY_SIZE, 32)
        derived = HKDF(SHA256(), sum(sizes), salt, _INFO).derive(key)
        parts: list[bytes] = []
        for size in sizes:
            parts.append(derived[:size])
            derived = derived[size:]
        self.id: bytes
        self.id, values, self._nonces, wrapping, names, self._buckets = parts
        self._values = AESGCM(values)
        self._wrapping = AESGCM(wrapping)
        self._names = AESSIV(names)

    # Values

    def seal(self, key: str, value: bytes) -> bytes:
        """Return the stored bytes of a value: the key's id, a nonce, and the sealed value with its tag.

        They are 32 bytes more than the value.

        The nonce is a function of name and value. After 2³² values the chance that two of them share a nonce is 2⁻³³,
        the same as with random nonces.
        """
        name = key.encode()
        nonce = hmac.digest(self._nonces, len(name).to_bytes(4, "big") + name + value, "sha256")[:_NONCE_SIZE]
        return self.id + nonce + self._values.encrypt(nonce, value, self.id + name)

    def open(self, key: str, stored: bytes) -> bytes:
        """Return the value in stored bytes.

        Raises ``ValueError`` unless they were sealed with this key for this name.
        """
        try:
            return self._values.decrypt(stored[ID_SIZE:_HEADER_SIZE], stored[_HEADER_SIZE:], self.id + key.encode())
        except (self._invalid, ValueError) as error:
            raise ValueError("no holder of the key wrote it there") from error

    # Names of objects

    def object_name(self, key: str) -> str:
        """Return the name under which the object ``key`` is stored: bucket, id and sealed key.

        It has 47 bytes in hex for an address of 24.
        """
        text = key[len(OBJECT_PREFIX) :]
        # The bytes of an address are half as long as its digits.
        plain = b"\x01" + bytes.fromhex(text) if _HEX.fullmatch(text) else b"\0" + text.encode()
        return self._bucket(text) + self._names.encrypt(plain, None).hex()

    def object_key(self, name: str) -> str:
        """Return the key of the object that is stored under ``name``. Raises ``ValueError``."""
        try:
            plain = self._names.decrypt(bytes.fromhex(name[_ID_END:]), None)
        except self._invalid as error:
            raise ValueError("not the name of an object") from error
        key = OBJECT_PREFIX + (plain[1:].hex() if plain[0] else plain[1:].decode())
        if self.object_name(key) != name:  # a second spelling, or another bucket: the object would be listed twice
            raise ValueError("not the name of an object")
        return key

    def listing(self, prefix: str) -> str:
        """Return a beginning of the stored names of all objects whose key starts with ``prefix``, and of few others."""
        text = prefix[len(OBJECT_PREFIX) :]
        return self._bucket(text) if len(text) >= BUCKET_LETTERS else OBJECT_PREFIX

    def _bucket(self, text: str) -> str:
        bucket = hmac.digest(self._buckets, text[:BUCKET_LETTERS].encode(), "sha256")[:_BUCKET_SIZE]
        # The bucket comes first, because a store may spread objects by the first bytes of their keys, and all share the
        # id.
        return OBJECT_PREFIX + (bucket + self.id).hex()

    # The key of entries' names

    def wrap(self, name_key: bytes) -> bytes:
        """Seal ``name_key`` with this key."""
        nonce = secrets.token_bytes(_NONCE_SIZE)
        return nonce + self._wrapping.encrypt(nonce, name_key, None)

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return the key in ``wrapped``. Raises ``ValueError``."""
        try:
            return self._wrapping.decrypt(wrapped[:_NONCE_SIZE], wrapped[_NONCE_SIZE:], None)
        except self._invalid as error:
            raise ValueError("the wrapped key is damaged") from error


def id_in(name: str) -> str:
    """Return the id, in hex, of the key that sealed the object's stored name ``name``.

    Any text if ``name`` is not a stored name.
    """
    return name[_ID_START:_ID_END]


class EntryNames:
    """The stored names of mutable keys. Each part between slashes is sealed on its own, so that a folder can be listed.

    Equal parts in different folders are sealed differently. ``name_key`` belongs to the store and outlives a change of
    keys, because all writers that compare-and-set an entry must use one name for it.
    """

    def __init__(self, name_key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self._invalid = InvalidTag
        self._names = AESSIV(name_key)

    def name(self, key: str) -> str:
        """Return the name under which the entry ``key`` is stored: each part with 16 bytes more, in base64."""
        sealed = []
        before = 0
        for part in key.split("/"):
            raw = self._names.encrypt(part.encode(), [key[:before].encode()])
            sealed.append(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())
            before += len(part) + 1
        return ENTRY_PREFIX + "/".join(sealed)

    def key(self, name: str) -> str:
        """Return the key of the entry that is stored under ``name``. Raises ``ValueError``."""
        key = ""
        for number, part in enumerate(name[len(ENTRY_PREFIX) :].split("/")):
            before = key + "/" if number else ""
            try:
                raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
                key = before + self._names.decrypt(raw, [before.encode()]).decode()
            except self._invalid as error:
                raise ValueError("not the name of an entry") from error
        if self.name(key) != name:  # base64 allows several spellings
            raise ValueError("not the name of an entry")
        return key

    def listing(self, prefix: str) -> str:
        """Return the beginning of the stored names of all entries whose key starts with ``prefix``.

        It is the name of their folder.
        """
        folder, slash, _ = prefix.rpartition("/")
        return self.name(folder) + "/" if slash else ENTRY_PREFIX
