"""Stamps: what made a commit, such as the version of the code and the model, kept once for all commits that it made.

Layer: repository.

The meta of a commit has the id of its stamp under ``STAMP``. The stamp lies under that id, a hash of its content, in a
record that the first commit with it puts in its batch. It names no object, and nothing deletes it. ``purge(replace=…)``
rewrites its words in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from string import hexdigits
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from blake3 import blake3

from versioned_state.errors import InvalidArgumentError
from versioned_state.objects.keys import STAMPS, stamp_key
from versioned_state.repository.history.commit import Commit, meta_values
from versioned_state.repository.refs.named_records import read_named, write_named
from versioned_state.repository.refs.ref import NOTHING, BatchPart

if TYPE_CHECKING:
    from versioned_state.storage import KVStore

STAMP: Final = "stamp"
"""The key of the meta of a commit that has the id of its stamp."""

_ID_SIZE: Final = 12

StampSource = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""How callers give it: a dict of data, or a function that returns one and is called for each commit."""


class Stamp:
    """The stamp of the commits of one handle. Not for two threads at once.

    Args:
        source: the stamp.
        kept: the ids of stamps that the store is known to have.

    Raises ``InvalidArgumentError`` and ``UnserializableValueError``: it must be a dict of data with string keys.
    """

    def __init__(self, source: StampSource, kept: set[str]) -> None:
        check_stamp(source)
        self.source = source
        self._kept = kept
        self._new: dict[str, dict[str, bytes]] = {}  # by id, the records that the next batch puts

    def on(self, meta: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the meta of a commit that is about to be written, with its stamp. Raises as the class.

        A commit that is repeated elsewhere, as by a rebase, keeps the stamp that it has.
        """
        if meta is not None and STAMP in meta:
            if _is_id(meta[STAMP]):
                return meta
            raise InvalidArgumentError(
                f"meta has the key {STAMP!r}, where the id of the stamp of this state goes",
                hint="give it another key, or no stamp=",
            )
        record = written(self.source() if callable(self.source) else self.source)
        if record is None:
            return meta
        id, key, value = record
        if id not in self._kept:
            self._new[id] = {key: value}
        return {**(meta or {}), STAMP: id}

    def part(self) -> BatchPart:
        """Return the part of the batch that publishes the commits since the last one."""
        return (
            BatchPart(puts={key: value for each in self._new.values() for key, value in each.items()})
            if self._new
            else NOTHING
        )

    def made(self) -> None:
        """Note that the batch was done."""
        self._kept.update(self._new)
        self._new = {}


def check_stamp(source: Any) -> None:
    """Raise as ``Stamp`` if this cannot be the source of a stamp. A function is not called."""
    if not callable(source):
        written(source)


def written(values: Any) -> tuple[str, str, bytes] | None:
    """Return the id, the key and the bytes of a stamp, or None for an empty one. Raises as ``Stamp``."""
    if not isinstance(values, Mapping) or any(type(key) is not str for key in values):
        raise InvalidArgumentError(f"a stamp must be a dict with string keys, not {type(values).__name__}")
    if not values:
        return None
    ordered = dict(sorted(values.items()))
    id = blake3(write_named("", ordered)).hexdigest(length=_ID_SIZE)
    return id, stamp_key(id), write_named(stamp_key(id), ordered)


def stamp_id(commit: Commit) -> str | None:
    """Return the id of the stamp of a commit, or None."""
    id = meta_values(commit, (STAMP,)).get(STAMP)
    return id if _is_id(id) else None


def _is_id(value: Any) -> TypeGuard[str]:
    return type(value) is str and len(value) == 2 * _ID_SIZE and all(char in hexdigits for char in value)


class Stamps:
    """The stamps of a store, each of which is read once."""

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._read: dict[str, dict[str, Any]] = {}

    def of(self, commit: Commit) -> dict[str, Any]:
        """Return the stamp of a commit, or an empty dict.

        Cost: a read, the first time. Raises ``CorruptObjectError``.
        """
        id = stamp_id(commit)
        if id is None:
            return {}
        if id not in self._read:
            stored = self._store.get(stamp_key(id))
            self._read[id] = {} if stored is None else read_named(stamp_key(id), stored)
        return dict(self._read[id])


def iter_stamps(store: KVStore) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the bytes of each stamp."""
    yield from store.items(STAMPS)
