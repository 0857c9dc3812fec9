"""Notes: data that is attached to commits afterwards, in one mutable record a commit, outside of its hash.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    LimitExceededError,
    StateError,
    StoreBusyError,
    UnknownNoteError,
)
from versioned_state.objects.address import HEX_SIZE, Address, Kind
from versioned_state.objects.envelope import MAX_OBJECT, seal, unseal
from versioned_state.objects.keys import NOTES, commit_in, note_key
from versioned_state.objects.record import read_record, replace_record, write_record
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.resolve import resolve
from versioned_state.repository.refs.ref import BatchPart
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.encode.inline import encode_data

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.storage import KVStore

MAX_NOTE: Final = MAX_OBJECT - 1
"""Bytes of a note, packed: it is read and written whole."""

_ATTEMPTS: Final = 1000
"""The most writers that may come first before a write gives up. Each of them has changed the record."""


class Notes(MutableMapping[str | Commit, dict[str, Any]]):
    """The notes of a store: for a commit, or a revision, a dict of data.

    Iteration yields the ids of the commits that have one.

    A note does not change its commit, and goes with it: gc removes the notes of the commits that it deletes. Safe for
    many threads and
    processes. A dict that was read is a copy. Cost: one read for a note, one more for a revision that is not a commit
    or a full id; a write costs a read and a write. A note takes some 100 bytes beside its data.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"<Notes in {self._database.store!r}>"

    def __getitem__(self, rev: str | Commit) -> dict[str, Any]:
        address = self._address(rev)
        stored = self._store.get(note_key(address))
        if stored is None:
            raise UnknownNoteError(address.hex())
        return read_note(note_key(address), stored)

    def __setitem__(self, rev: str | Commit, values: Mapping[str, Any]) -> None:
        checked = _checked(values)
        self._change(self._existing(rev), lambda _: checked)

    def __delitem__(self, rev: str | Commit) -> None:
        address = self._address(rev)

        def nothing(found: dict[str, Any] | None) -> None:
            if found is None:
                raise UnknownNoteError(address.hex())

        self._change(address, nothing)

    def __contains__(self, rev: object) -> bool:
        return isinstance(rev, str | Commit) and self.get(rev) is not None

    def __iter__(self) -> Iterator[str]:
        return (commit_in(key).hex() for key in self._store.keys(NOTES))

    def __len__(self) -> int:
        return sum(1 for _ in self._store.keys(NOTES))

    def update(self, rev: str | Commit, values: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        """Add keys to the note of a commit, or begin one, and return the whole note.

        One atomic step: keys that others add meanwhile stay.

        Raises:
            UnknownRevisionError: there is no such commit.
            InvalidArgumentError, UnserializableValueError, LimitExceededError: a note is a dict of data with string
                keys, of up to 1 MiB.

            Nothing was changed then.
        """
        checked = _checked(values)
        changed = self._change(self._existing(rev), lambda found: {**(found or {}), **checked})
        assert changed is not None
        return changed

    def remove(self, rev: str | Commit, *keys: str) -> dict[str, Any]:
        """Remove keys from the note of a commit, and return the rest of it.

        One atomic step, as ``update``. A note without keys is gone.

        Raises:
            UnknownNoteError: the commit has no note, or its note lacks one of the keys. Nothing was changed.
        """
        address = self._address(rev)

        def without(found: dict[str, Any] | None) -> dict[str, Any] | None:
            for key in keys:
                if key not in (found or {}):
                    raise UnknownNoteError(address.hex(), None if found is None else key)
            return {key: value for key, value in (found or {}).items() if key not in keys} or None

        return self._change(address, without) or {}

    def of(self, commits: Iterable[Commit]) -> dict[str, dict[str, Any]]:
        """Return the notes of those commits that have one, by id. Cost: one call of the store."""
        keys = {note_key(commit.address): commit.id for commit in commits}
        return {keys[key]: read_note(key, stored) for key, stored in self._store.get_many(keys).items()}

    @property
    def _store(self) -> KVStore:
        return self._database.store

    def _address(self, rev: str | Commit) -> Address:
        if isinstance(rev, Commit):
            return rev.address
        if type(rev) is str and len(rev) == HEX_SIZE:
            try:
                return Address(bytes.fromhex(rev))
            except ValueError:
                pass  # a name of that length
        return resolve(self._database, rev).address

    def _existing(self, rev: str | Commit) -> Address:
        return rev.address if isinstance(rev, Commit) else resolve(self._database, rev).address

    def _change(
        self, address: Address, change: Callable[[dict[str, Any] | None], dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """Replace a note by what ``change`` makes of it, or remove it if that is None. Others may write meanwhile."""
        key = note_key(address)
        for _ in range(_ATTEMPTS):
            stored = self._store.get(key)
            after = change(None if stored is None else read_note(key, stored))
            if replace_record(self._store, key, stored, None if after is None else write_note(key, after)):
                return after
        raise StoreBusyError(f"others keep changing the note of {address.hex()}", hint="try again")


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    given: Any = values
    if not isinstance(given, Mapping) or any(type(key) is not str for key in given):
        raise InvalidArgumentError("a note must be a dict with string keys")
    return dict(values)


class CommitNote:
    """The note that a commit brings along, in the batch that publishes the commit. Raises as ``Notes.update``.

    Attributes:
        values: the note.
        commit: the commit of the last batch that it was part of, or None.
    """

    __slots__ = ("_content", "commit", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = _checked(values)
        self._content = _sealed(self.values)  # now, since the values may change before the commit is sent
        self.commit: Address | None = None

    def part(self, commit: Commit) -> BatchPart:
        """Return the note's share of the batch that publishes a commit."""
        self.commit = commit.address
        key = note_key(commit.address)
        return BatchPart(puts={key: write_record(key, self._content)})


def write_note(key: str, values: Mapping[str, Any]) -> bytes:
    """Return the record of a note. Raises ``UnserializableValueError`` or ``LimitExceededError``."""
    return write_record(key, _sealed(values))


def _sealed(values: Mapping[str, Any]) -> bytes:
    """Return the content of the record of a note. Raises as ``write_note``."""
    cell = encode_data(values, "note", "a note")
    if len(cell) > MAX_NOTE:
        raise LimitExceededError(f"a note of {len(cell)} bytes", limit=MAX_NOTE, remains="nothing was changed")
    return seal(bytes((Kind.CHUNK,)) + cell)


def read_note(key: str, stored: bytes) -> dict[str, Any]:
    """Return the note in a record. Raises ``CorruptObjectError``."""
    try:
        raw = unseal(read_record(key, stored))
        found = decode_inline(raw[1:])
        if raw[:1] != bytes((Kind.CHUNK,)) or type(found) is not dict:
            raise ValueError("it is not a dict")
    except (ValueError, StateError) as error:
        raise CorruptObjectError(key, f"the note is damaged: {error}") from error
    return found


def iter_notes(store: KVStore) -> Iterator[tuple[Address, str, bytes]]:
    """Yield the commit, the key and the record of each note."""
    for key, stored in store.items(NOTES):
        yield commit_in(key), key, stored
