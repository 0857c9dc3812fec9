"""Named records: data beside the history, which comes before its commit, or belongs to no commit. Layer: repository.

A record lies whole in one mutable key of the store, and refers to nothing: gc has nothing to keep for it, and its
deletion leaves nothing. It belongs to the branch whose name, perhaps followed by a slash and more, it has, and goes
with that branch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import msgpack

from versioned_state.arguments import check_text, count, string
from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    LimitExceededError,
    StoreBusyError,
    UnknownRecordError,
)
from versioned_state.objects.keys import RECORDS, record_key
from versioned_state.objects.record import read_record, replace_record, write_record
from versioned_state.repository.refs.cell_parts import MAX_CELL, MAX_PARTS, join_parts, split_cell
from versioned_state.repository.refs.ref import NOTHING, BatchPart, iter_refs, literal_in
from versioned_state.values.cells import has_surrogate
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.encode.inline import encode_data

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.storage import KVStore
    from versioned_state.values.codec.pickles import PicklePolicy

MAX_NAME: Final = 1000
"""Bytes of the name of a record. PostgreSQL's index takes keys of some 2,700 bytes."""

_only_bytes: Final = frozenset({bytes}).issuperset

_ATTEMPTS: Final = 1000
_AT_ONCE: Final = 256


class Records(MutableMapping[str, dict[str, Any]]):
    """The named records of a store: for a name, a dict of data of up to 256 MiB. Iteration yields the names.

    A name is a text of up to 1,000 bytes. A record whose name is that of a branch, or begins with it and a slash, goes
    with the branch: if it is deleted, expires or is purged, and under its new name if it is renamed; of ``a`` and
    ``a/b`` it belongs to the longer one. A dict that was read is a copy. Safe for many threads and processes. Cost: a
    read or a write of the whole record, one request each.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"<Records in {self._store!r}>"

    @property
    def _store(self) -> KVStore:
        return self._database.store

    def __getitem__(self, name: str) -> dict[str, Any]:
        key = _key(name)
        stored = self._store.get(key)
        if stored is None:
            raise UnknownRecordError(name)
        return self._read(key, stored)

    def __contains__(self, name: object) -> bool:
        return type(name) is str and self._store.get(_key(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(RECORDS) for key in self._store.keys(RECORDS))

    def __len__(self) -> int:
        return sum(1 for _ in self._store.keys(RECORDS))

    def items(self) -> ItemsView[str, dict[str, Any]]:
        """Return names and records, read some hundred at a time as they are taken."""
        return _Items(self)

    def iter_items(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the records whose name begins with a prefix, in the order of their names.

        Cost: a request for each 256 of them, or one for all up to ``limit``.

        Args:
            after: begin after this name.
            limit: at most this many.
        """
        string("prefix", prefix)
        check_text("after", after)
        left = None if limit is None else count("limit", limit)
        return self._pages(prefix, None if after is None else record_key(after), left)

    def _pages(self, prefix: str, after: str | None, left: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
        while left is None or left:
            size = _AT_ONCE if left is None else left
            page = self._store.page_items(record_key(prefix), after=after, limit=size)
            there = {key: stored for key, stored in page.items() if stored is not None}  # the others were deleted since
            for key, stored in there.items():
                yield key.removeprefix(RECORDS), self._read(key, stored)
            if len(page) < size:
                return
            after = next(reversed(page))
            left = None if left is None else left - len(there)

    def get_many(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return those of some records that exist, by name, in the given order. Cost: one request."""
        keys = {_key(name): name for name in _names(names)}
        found = self._store.get_many(keys) if keys else {}
        return {name: self._read(key, found[key]) for key, name in keys.items() if key in found}

    # Writing

    def __setitem__(self, name: str, values: Mapping[str, Any]) -> None:
        self.update({name: values})

    def update(self, records: Mapping[str, Mapping[str, Any]] = {}, /, **more: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Write several records whole: all of them, or none. Cost: one request.

        Raises:
            InvalidArgumentError, UnserializableValueError, LimitExceededError: a record is a dict of data with string
                keys. Nothing was changed.
            UnknownOutcomeError: the store's reply was lost. The same call again does no harm.
        """
        given: Any = records
        if not isinstance(given, Mapping):
            raise InvalidArgumentError("records.update takes a mapping of names to dicts")
        puts = {
            key: write_named(key, values)
            for key, values in ((_key(name), values) for name, values in {**given, **more}.items())
        }
        if puts:
            self._store.apply({}, puts)

    def setdefault(self, name: str, default: Mapping[str, Any] = {}) -> dict[str, Any]:
        """Write a record unless there is one of that name, in one atomic step, and return the stored record."""
        key = _key(name)
        new = write_named(key, default)
        for _ in range(_ATTEMPTS):
            if replace_record(self._store, key, None, new):
                return self._read(key, new)
            stored = self._store.get(key)
            if stored is not None:
                return self._read(key, stored)
        raise _busy(name)

    def create(self, name: str, values: Mapping[str, Any]) -> bool:
        """Write a record unless there is one of that name, in one atomic step. Returns whether it was written.

        Cost: one request. Raises as ``update``.
        """
        key = _key(name)
        return replace_record(self._store, key, None, write_named(key, values))

    def edit(
        self, name: str, change: Callable[[dict[str, Any] | None], Mapping[str, Any] | None]
    ) -> dict[str, Any] | None:
        """Replace a record by the result of a function of it, in one atomic step beside other writers.

        Returns the new record.

        Cost: a read and a write, and both again for each writer who came first.

        Args:
            change: called with the record, or None if there is none, perhaps several times. Returns the new one, or
                None to delete it.
        """
        key = _key(name)
        for _ in range(_ATTEMPTS):
            stored = self._store.get(key)
            after = change(None if stored is None else self._read(key, stored))
            new = None if after is None else write_named(key, after)
            if new == stored or replace_record(self._store, key, stored, new):
                return None if new is None else self._read(key, new)
        raise _busy(name)

    def __delitem__(self, name: str) -> None:
        key = _key(name)
        for _ in range(_ATTEMPTS):
            stored = self._store.get(key)
            if stored is None:
                raise UnknownRecordError(name)
            if replace_record(self._store, key, stored, None):
                return
        raise _busy(name)

    def delete_many(self, names: Iterable[str] = (), *, prefix: str | None = None) -> list[str]:
        """Delete the records with these names, and those whose name begins with the prefix: all or none.

        Returns their names.

        A name without a record is left out. Cost: one listing or read, and one write.
        """
        wanted = [_key(name) for name in _names(names)]
        found = [key for key in wanted if key in self._store.get_many(wanted)] if wanted else []
        if prefix is not None:
            string("prefix", prefix)
            found += self._store.keys(record_key(prefix))
        found = list(dict.fromkeys(found))
        if found:
            self._store.delete_many(found)
        return [key.removeprefix(RECORDS) for key in found]

    def clear(self) -> None:
        """Delete all records."""
        self.delete_many(prefix="")

    def _read(self, key: str, stored: bytes) -> dict[str, Any]:
        return read_named(key, stored, self._database.policy)


class _Items(ItemsView[str, dict[str, Any]]):
    def __init__(self, records: Records) -> None:
        super().__init__(records)
        self._records = records

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return self._records.iter_items()


def may_be_record(name: str) -> bool:
    """Return whether a record may have this name, with a slash and more behind it."""
    return not has_surrogate(name) and len(name.encode()) < MAX_NAME


def _key(name: str) -> str:
    string("the name of a record", name, empty=False)
    if has_surrogate(name) or len(name.encode()) > MAX_NAME:
        raise InvalidArgumentError(
            f"bad name for a record: {name!r:.80}",
            hint=f"1 to {MAX_NAME:,} bytes, without lone surrogates; branch_name() makes any text one",
        )
    return record_key(name)


def _names(names: Iterable[str]) -> Iterable[str]:
    if isinstance(names, str):
        raise InvalidArgumentError(
            "names must be an iterable of names, not one text", hint="prefix= takes the beginning of names"
        )
    return names


def _busy(name: str) -> StoreBusyError:
    return StoreBusyError(f"others keep changing the record {name!r}", hint="try again")


# The bytes of a record


def write_named(key: str, values: Mapping[str, Any]) -> bytes:
    """Return the stored bytes of a record. Raises as ``Records.update``."""
    given: Any = values
    if not isinstance(given, Mapping) or any(type(each) is not str for each in given):
        raise InvalidArgumentError("a record must be a dict with string keys")
    path = f"the record {key.removeprefix(RECORDS)!r}"
    cell = encode_data(values, path, "a record")
    if len(cell) > MAX_CELL:
        raise LimitExceededError(f"{path}, {len(cell)} bytes,", limit=MAX_CELL, remains="nothing was changed")
    body: bytes = msgpack.packb(split_cell(cell))
    return write_record(key, body)


def read_named(key: str, stored: bytes, policy: PicklePolicy | None = None) -> dict[str, Any]:
    """Return the content of a record. Raises ``CorruptObjectError``."""
    try:
        parts = msgpack.unpackb(read_record(key, stored))
        if type(parts) is not list or len(parts) > MAX_PARTS or not _only_bytes(map(type, parts)):
            raise ValueError("its parts are not parts")
        cell = join_parts(parts)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(key, f"the record is damaged: {error}") from error
    found = decode_inline(cell, policy)
    if type(found) is not dict:
        raise CorruptObjectError(key, "the record is damaged: it is not a dict")
    return found


def iter_named(store: KVStore) -> Iterator[tuple[str, str, bytes]]:
    """Yield the name, the key and the bytes of each record."""
    for key, stored in store.items(RECORDS):
        yield key.removeprefix(RECORDS), key, stored


# Records of branches


def keys_of_branch(store: KVStore, branch: str) -> list[str]:
    """Return the keys of the records that belong to a branch.

    Cost: a listing and a read, and another listing if there are any.
    """
    keys = list(store.keys(record_key(branch + "/")))
    own = [record_key(branch)] if record_key(branch) in store else []
    inner = [ref.name for ref in iter_refs(store, "branch", branch + "/")] if keys else []
    if not inner:
        return own + keys
    theirs = tuple(record_key(name + "/") for name in inner)
    exact = set(map(record_key, inner))
    return [*own, *(key for key in keys if key not in exact and not key.startswith(theirs))]


def moved_with_branch(store: KVStore, old: str, new: str) -> BatchPart:
    """Return the part of a batch that gives the records of a branch the name that the branch is to have.

    Raises ``LimitExceededError``.
    """
    keys = keys_of_branch(store, old)
    if not keys:
        return NOTHING
    found = store.get_many(keys)
    puts = {}
    for key, stored in found.items():
        name = new + key.removeprefix(record_key(old))
        if len(name.encode()) > MAX_NAME:
            raise LimitExceededError(
                f"the name of a record of the branch, {name!r:.80},", limit=MAX_NAME, remains="nothing was changed"
            )
        puts[record_key(name)] = write_record(record_key(name), read_record(key, stored))
    return BatchPart(expected=found, puts=puts, deletes=tuple(found))


def find_erased(store: KVStore, patterns: Collection[str]) -> list[str]:
    """Return the names of the records that go with the branches that match some patterns.

    A record is found whether its branch exists or not.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        literal = literal_in(pattern)
        keys = list(store.keys(record_key(literal)))
        live = {ref.name for ref in iter_refs(store, "branch", literal)} if keys else set()
        for key in keys:
            name = key.removeprefix(RECORDS)
            owners = (name[:end] for end in range(len(name), 0, -1) if end == len(name) or name[end] == "/")
            owner = next((each for each in owners if each in live or _matches(each, patterns)), None)
            if owner is not None and _matches(owner, patterns):
                found[name] = None
    return list(found)


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def erase_named(store: KVStore, names: Sequence[str]) -> None:
    """Delete some records, and overwrite their bytes in a ``Disk``."""
    if names:
        from versioned_state.storage import Disk
        from versioned_state.storage.wrappers.tiered import backends

        with ExitStack() as stack:
            for backend in backends(store):
                if isinstance(backend, Disk):
                    stack.enter_context(backend.overwriting())
            store.delete_many(map(record_key, names))
