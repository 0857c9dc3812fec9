"""``Encrypted``, which encrypts the values and keys that it keeps in another store. Layer: storage.

``cipher`` seals values and names. This module opens a store with the right key, reads and writes in as few round trips
as without encryption, and moves a store to another key beside readers and writers.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from versioned_state.errors import (
    CorruptObjectError,
    CorruptStoreError,
    InvalidArgumentError,
    NotAStoreError,
    ReadOnlyError,
    StoreNotFoundError,
    WrongKeyError,
)
from versioned_state.storage.backend import Backend, check_key
from versioned_state.storage.base import OBJECT_PREFIX, KVStore, is_object, may_list_objects
from versioned_state.storage.wrapper import Wrapper
from versioned_state.storage.wrappers.encrypted.cipher import (
    ENTRY_PREFIX,
    ID_SIZE,
    KEY_SIZE,
    NAME_KEY_SIZE,
    SEAL_SIZE,
    Cipher,
    EntryNames,
    id_in,
)
from versioned_state.storage.wrappers.encrypted.keyring import KEYRING, SALT_SIZE, Keyring

_BATCH: Final = 64
"""Values that ``reencrypt`` holds in memory at once: 256 KB for objects of 4 KB, 64 MB for the largest objects."""

_UNCHANGED: Final = "nothing was changed"


@dataclass(frozen=True)
class _Step:
    """A part of a listing.

    It has the beginning of the stored names, the key ids to skip, and whether objects may move meanwhile.
    """

    start: str
    skip: Collection[str] = ()
    moving: bool = False


class Encrypted(Backend, Wrapper):
    """Everything in ``store``, encrypted and authenticated with ``key``, 32 random bytes.

    An empty store becomes an encrypted one.

    Values are sealed with AES-256-GCM, each bound to its key in the store; keys are sealed with AES-256-SIV. A person
    who can write to the store cannot forge a value or swap two values: reading such a value raises
    ``CorruptObjectError`` or ``CorruptStoreError``. That person can delete values, and can restore older bytes of the
    same key, even of the whole store, unnoticed.

    The store still reveals: the number of objects and entries; the sizes of their values (plus 32 bytes each, after the
    engine's compression); when each is read and written; whether an object or entry has the same value as before; how
    many parts an entry's key has, how long they are, and which entries share a folder; which objects have keys with the
    same first 3 digits.

    New values are sealed with ``key``; ``old_keys`` open older values. To change the key, first give every process the
    new key as an old one; then make it the first everywhere; then run ``reencrypt()`` once. Without ``old_keys``, calls
    cost as many round trips as without encryption, except that reading a missing object costs one more. With them, a
    compare-and-set of a value under an old key costs two more. ``max_expected`` is that of ``store``.

    ``private`` is that of ``store``. A holder of the key wrote every value, but somebody else may have restored an
    older one. If others can write to the store, the caller still decides about unpickling (``pickle=``,
    ``pickle_key=``).

    Raises:
        WrongKeyError: none of the keys opens the store, or values are sealed with a key that was not given. Nothing was
            changed.
        NotAStoreError: the store holds values that are not encrypted; it was not touched.
        StoreNotFoundError: the store is empty and read-only.
    """

    def __init__(self, store: KVStore, key: bytes, *, old_keys: Iterable[bytes] = ()) -> None:
        keys = (key, *old_keys)
        for each in keys:
            if type(each) is not bytes or len(each) != KEY_SIZE:
                raise InvalidArgumentError(
                    f"the key of an encrypted store must be {KEY_SIZE} random bytes",
                    hint=f"make one with secrets.token_bytes({KEY_SIZE}), and keep it apart from the store",
                )
        super().__init__(store)
        while not self._unlock(keys):
            pass  # another process changed the keyring first; each failure means that one of them succeeded

    # Opening

    def _unlock(self, keys: tuple[bytes, ...]) -> bool:
        stored = self.store.get(KEYRING)
        if stored is None:
            return self._create(keys[0])
        ring = Keyring.read(stored)
        self._ciphers = {cipher.id: cipher for cipher in (Cipher(key, ring.salt) for key in keys)}
        self._cipher = next(iter(self._ciphers.values()))
        opener = next((cipher for id, cipher in self._ciphers.items() if id in ring.wrapped), None)
        if opener is None:
            raise WrongKeyError(
                "the store is encrypted with another key", hint="use the key that the store was made with"
            )
        self._check_ring(ring)
        try:
            name_key = opener.unwrap(ring.wrapped[opener.id])
            self._entries = EntryNames(name_key)
        except ValueError as error:
            raise CorruptStoreError(
                f"the keyring of the encrypted store is damaged: {error}", remains=_UNCHANGED
            ) from error
        if self._cipher.id in ring.wrapped:
            return True
        # The keyring must name a new key before the first write under it.
        added = replace(ring, wrapped={**ring.wrapped, self._cipher.id: self._cipher.wrap(name_key)})
        with suppress(ReadOnlyError):
            return self.store.compare_and_set(KEYRING, stored, added.write())
        return True

    def _create(self, key: bytes) -> bool:
        # If there are keys, another process may have made the keyring since it was looked up.
        if next(iter(self.store.keys()), None) is not None:
            if self.store.get(KEYRING) is not None:
                return False
            raise NotAStoreError(
                "the store holds values that are not encrypted",
                hint="open it without a key; only an empty store can become an encrypted one",
            )
        cipher = Cipher(key, salt := secrets.token_bytes(SALT_SIZE))
        ring = Keyring(salt, {cipher.id: cipher.wrap(secrets.token_bytes(NAME_KEY_SIZE))})
        try:
            self.store.compare_and_set(KEYRING, None, ring.write())
        except ReadOnlyError as error:
            raise StoreNotFoundError("the store is empty and read-only") from error
        return False  # read it back: another process may have made it first

    def _check_ring(self, ring: Keyring) -> None:
        unknown = [id.hex() for id in ring.wrapped if id not in self._ciphers]
        if unknown:
            raise WrongKeyError(
                f"the store is encrypted with a key that was not given (id {', '.join(unknown)})",
                hint="add it to old_keys; reencrypt() ends the use of old keys",
            )

    def _checked_ring(self, stored: bytes | None) -> tuple[bytes, Keyring]:
        if stored is None:
            raise CorruptStoreError(
                f"the keyring of the encrypted store, under {KEYRING!r}, is missing", hint="restore it from a backup"
            )
        ring = Keyring.read(stored)
        self._check_ring(ring)
        return stored, ring

    # Reading

    def _get(self, key: str) -> bytes | None:
        if is_object(key):
            if len(self._ciphers) > 1:
                return self._get_many((key,)).get(key)
            stored = self.store.get(self._cipher.object_name(key))
            return self._look_again((key,)).get(key) if stored is None else self._open(key, stored)
        stored = self.store.get(self._entries.name(key))
        return None if stored is None else self._open(key, stored)

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        names = {name: key for key in keys for name in self._stored_names(key)}
        found = {names[name]: self._open(names[name], stored) for name, stored in self.store.get_many(names).items()}
        absent = [key for key in keys if key not in found and is_object(key)]
        return found | self._look_again(absent) if absent else found

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int] | None:
        """Return the lengths by those of the sealed values, which are not opened.

        A value under an old key counts once.
        """
        names = {name: key for key in keys for name in self._stored_names(key)}
        sealed = self.store.sizes(names)
        return None if sealed is None else {names[name]: max(size - SEAL_SIZE, 0) for name, size in sealed.items()}

    def _look_again(self, keys: Collection[str]) -> dict[str, bytes]:
        # The object may be sealed with a key that was added since, which _checked_ring reports. Or it was moved from an
        # old name to a new one between the two reads; a copy precedes the deletion, so now it is found.
        names = {name: key for key in keys for name in self._stored_names(key)}
        stored = self.store.get_many([*names, KEYRING])
        self._checked_ring(stored.pop(KEYRING, None))
        return {names[name]: self._open(names[name], value) for name, value in stored.items()}

    def _keys(self, prefix: str) -> Iterator[str]:
        """Do as ``KVStore`` says.

        Listing entries costs as much as the prefix's folder. A prefix that ends with a slash is a folder.

        A prefix of objects with fewer than 3 digits costs a listing of all objects; a longer one costs 1/4096 of that.
        While old keys are in use, the objects listed under them are remembered, at about 100 bytes each.
        """
        steps = []
        if may_list_objects(prefix):
            # Old names first: an object that is moved meanwhile is then listed under its new name, if not under the
            # old.
            old, new = self._old_ciphers, self._cipher
            steps = [
                _Step(start, {new.id.hex()}, moving=True)
                for start in dict.fromkeys(cipher.listing(prefix) for cipher in old)
            ]
            steps.append(_Step(new.listing(prefix), {cipher.id.hex() for cipher in old}))
        if not prefix.startswith(OBJECT_PREFIX):
            steps.append(_Step(self._entries.listing(prefix)))
        # The first listing begins now, so that a closed store raises here; each of the others begins when the previous
        # one ends.
        return self._list(prefix, steps, self.store.keys(steps[0].start))

    def _list(self, prefix: str, steps: list[_Step], names: Iterator[str]) -> Iterator[str]:
        seen: set[str] = set()
        for number, step in enumerate(steps):
            for name in self.store.keys(step.start) if number else names:
                if step.skip and id_in(name) in step.skip:
                    continue
                key = self._key(name)
                if key.startswith(prefix) and key not in seen:
                    yield key
                    if step.moving:
                        seen.add(key)

    def __contains__(self, key: str) -> bool:
        check_key(key)
        names = self._stored_names(key)
        return names[0] in self.store if len(names) == 1 else self.get(key) is not None

    # Writing

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        seal, entry = self._cipher.seal, self._entries.name
        conditions = {entry(key): None if value is None else seal(key, value) for key, value in expected.items()}
        written = {entry(key): seal(key, value) for key, value in puts.items()}
        removed = [name for key in deletes for name in self._stored_names(key)]
        sealed = {self._cipher.object_name(key): seal(key, value) for key, value in objects.items()}
        if self.store.apply(conditions, written, removed, objects=sealed):
            return True
        while len(self._ciphers) > 1:
            # The expected value may be stored under an old key. Then the stored bytes become the condition.
            current = self.store.get_many(conditions)
            for key, value in expected.items():
                stored = current.get(entry(key))
                if (None if stored is None else self._open(key, stored)) != value:
                    return False
            if self.store.apply({name: current.get(name) for name in conditions}, written, removed):
                return True
        return False

    def _close(self) -> None:
        self.store.close()

    # Another key

    def reencrypt(self) -> int:
        """Seal every value under the first key, and return how many values were moved.

        The first key alone opens the store afterwards. Runs beside readers and writers that have all of these keys,
        with the new one first. After an interrupt, call it again. Objects move in batches, each copied before the old
        one is deleted; entries move one by one. The stored names of entries do not change, so a holder of an old key
        and an old copy of the store can still read them: if a key has leaked, copy the data into a new store instead.

        Raises:
            WrongKeyError: a value is sealed with a key that was not given; nothing was changed.
        """
        self._checked_ring(self.store.get(KEYRING))
        moved = self._move_objects()
        names = [name for name in self.store.keys(ENTRY_PREFIX) if self._move_entry(name)]
        while True:
            stored, ring = self._checked_ring(self.store.get(KEYRING))
            alone = replace(ring, wrapped={self._cipher.id: ring.wrapped[self._cipher.id]})
            if alone == ring or self.store.compare_and_set(KEYRING, stored, alone.write()):
                return moved + len(names)

    def _move_objects(self) -> int:
        moved = 0
        new = self._cipher.id.hex()
        names = (name for name in self.store.keys(OBJECT_PREFIX) if id_in(name) != new)
        while batch := list(islice(names, _BATCH)):
            found = [(self._key(name), stored) for name, stored in self.store.get_many(batch).items()]
            seal, name_of = self._cipher.seal, self._cipher.object_name
            self.store.apply(
                {}, {}, objects={name_of(key): seal(key, self._open(key, stored)) for key, stored in found}
            )
            # The copies are durable by now, so a reader that misses the old name finds the new one.
            self.store.delete_many(batch)
            moved += len(found)
        return moved

    def _move_entry(self, name: str) -> bool:
        key = self._key(name)
        while (stored := self.store.get(name)) is not None and not stored.startswith(self._cipher.id):
            if self.store.compare_and_set(name, stored, self._cipher.seal(key, self._open(key, stored))):
                return True
        return False

    # Names and values

    @property
    def _old_ciphers(self) -> tuple[Cipher, ...]:
        return tuple(self._ciphers.values())[1:]

    def _stored_names(self, key: str) -> list[str]:
        """Return the names under which a key may be stored.

        There is one for an entry, and one for each cipher for an object, that of the current cipher first.
        """
        if is_object(key):
            return [cipher.object_name(key) for cipher in self._ciphers.values()]
        return [self._entries.name(key)]

    def _cipher_of(self, id: bytes) -> Cipher:
        """Return the cipher with an id. Raises ``ValueError``."""
        cipher = self._ciphers.get(id)
        if cipher is None:
            self._checked_ring(self.store.get(KEYRING))  # a key that was added since is not damage
            raise ValueError("it names a key that is not in use")
        return cipher

    def _key(self, name: str) -> str:
        try:
            if not name.startswith(OBJECT_PREFIX):
                return self._entries.key(name)
            return self._cipher_of(bytes.fromhex(id_in(name))).object_key(name)
        except ValueError as error:
            raise CorruptStoreError(
                f"the encrypted store holds a name that no holder of its keys made: {name!r}"
            ) from error

    def _open(self, key: str, stored: bytes) -> bytes:
        try:
            return self._cipher_of(stored[:ID_SIZE]).open(key, stored)
        except ValueError as error:
            if is_object(key):
                raise CorruptObjectError(key[len(OBJECT_PREFIX) :], str(error)) from error
            raise CorruptStoreError(
                f"the value of {key!r} is damaged: {error}",
                hint="restore it from a backup",
            ) from error
