"""The ledger of effects: which effects were begun, and their results. Layer: repository.

It is outside of the history, in mutable keys that change only by compare-and-set, so no reset, undo or fork forgets an
effect. A record is written before the effect is carried out and again after it::

    nothing ── begin ──> begun, by an owner ── record ──> done, with the result
       ^                  │      │     ^
       └──── withdraw ────┘    leave   │ begin
                                 v     │
                                in doubt ── settle ──> done

A record whose owner has died is in doubt too. The ledger never guesses: callers find out what happened.
``docs/design/019-effects.md`` goes through the failures.
"""

from __future__ import annotations

import copy
import dataclasses
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgpack

from versioned_state.arguments import string
from versioned_state.errors import (
    CorruptObjectError,
    EffectInDoubtError,
    InvalidArgumentError,
    LimitExceededError,
    StoreBusyError,
    UnknownEffectError,
)
from versioned_state.objects.keys import EFFECTS, effect_key
from versioned_state.objects.record import read_record, replace_record, write_record
from versioned_state.repository.maintenance.owner import OWNER_SIZE, Life, Owner, life_of
from versioned_state.repository.refs.cell_parts import MAX_CELL, MAX_PARTS, join_parts, split_cell
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.encode.inline import InlineEncoder

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.storage import KVStore
    from versioned_state.values.codec.pickles import PicklePolicy

MAX_RESULT: Final = MAX_CELL
"""The most bytes of a packed result."""

EffectStatus = Literal["in doubt", "done"]

_ATTEMPTS: Final = 1000
"""Writers that may come first before a write gives up. Each of them has changed the record."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Facts(NamedTuple):
    """The facts in the record of an effect besides its outcome. A purge erases them.

    Attributes:
        arguments: a hash of the arguments, or None if they are not compared.
        branch: the branch of the state that it was carried out for, or None.
        height: the height of the head that this state was at, or None.
        on_rollback: the name of the function that rolls it back, ``module:function``, or None.
    """

    arguments: bytes | None = None
    branch: str | None = None
    height: int | None = None
    on_rollback: str | None = None


NO_FACTS: Final = Facts()


@dataclass(frozen=True, slots=True)
class Entry:
    """The record of one effect.

    Attributes:
        key: the effect's key, or None if a purge erased it.
        since: when it was begun, in microseconds since 1970.
        owner: the id of the owner that began it, empty if that one left it in doubt, or None if it is done.
        parts: the cell of the result, in envelopes, or none if a purge erased it.
        stored: the bytes of the record, which the next write expects.
        facts: see ``Facts``.
    """

    key: str | None
    since: int
    owner: bytes | None
    parts: tuple[bytes, ...] = ()
    stored: bytes = b""
    facts: Facts = NO_FACTS

    @property
    def done(self) -> bool:
        """Whether the effect has happened."""
        return self.owner is None

    @property
    def erased(self) -> bool:
        """Whether the effect has happened, and a purge erased its result."""
        return self.done and not self.parts

    @property
    def running(self) -> bool:
        """Whether the owner is known to be still at work, in this process or in another one on this machine."""
        return self.owner is not None and life_of(self.owner) is Life.RUNS

    @property
    def begun(self) -> datetime:
        """When the effect was begun, in UTC."""
        return _EPOCH + timedelta(microseconds=self.since)

    def result(self, policy: PicklePolicy | None) -> Any:
        """Return the result: a new copy at each call. Without a policy, objects are shown as ``ObjectInfo``.

        Raises:
            PickleRefusedError: it holds an object, and the policy refuses to unpickle.
            CorruptObjectError: it does not decode.
        """
        try:
            cell = join_parts(self.parts)
        except ValueError as error:
            raise CorruptObjectError(
                self.key or "(an erased effect)", f"the result of the effect is damaged: {error}"
            ) from error
        return decode_inline(cell, policy)


@dataclass(frozen=True)
class EffectRecord:
    """An effect in the ledger.

    Attributes:
        key: its full key; ``""`` if a purge erased it.
        status: ``"done"``, or ``"in doubt"``: it was begun, and the ledger does not have its outcome. It may still be
            running.
        since: when it was begun, in UTC.
        branch: the branch of the state that it was carried out for, or None if that is not known.
        on_rollback: the name of the function that rolls it back, or None.
    """

    key: str
    status: EffectStatus
    since: datetime
    _read: Callable[[], Any] = field(repr=False, compare=False)
    branch: str | None = None
    on_rollback: str | None = None

    @property
    def result(self) -> Any:
        """The result, a new copy at each access, or None if there is none, or a purge erased it.

        ``ObjectInfo`` stands for an object that may not be unpickled.
        """
        return self._read()


class Ledger:
    """The effects of one store. Safe for many threads and processes. Raises ``StorageError`` if the store fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _store(self) -> KVStore:
        return self._database.store

    # Reading

    def find(self, key: str) -> Entry | None:
        """Return the record of an effect, or None. Cost: one read. Raises ``CorruptObjectError``."""
        check_effect_key(key)
        name = effect_key(key)
        stored = self._store.get(name)
        return None if stored is None else read_entry(name, stored)

    def records(self) -> list[EffectRecord]:
        """Return all effects, oldest first.

        Cost: reads the ledger. Raises ``CorruptObjectError`` for a damaged record; ``fsck`` names it.
        """
        entries = sorted(
            (entry for _, entry in iter_entries(self._store)), key=lambda entry: (entry.since, entry.key or "")
        )
        return list(map(self.shown, entries))

    def shown(self, entry: Entry) -> EffectRecord:
        """Return the effect of a record, for callers."""
        status: EffectStatus = "done" if entry.done else "in doubt"
        facts = entry.facts
        return EffectRecord(
            entry.key or "", status, entry.begun, partial(self._shown, entry), facts.branch, facts.on_rollback
        )

    def result(self, entry: Entry) -> Any:
        """Return a copy of the result of an effect that is done. Raises as ``Entry.result``."""
        return entry.result(self._database.policy)

    def _shown(self, entry: Entry) -> Any:
        """Return the result of an effect, if it has one. An object that may not be unpickled is described."""
        if not entry.parts:
            return None
        return self.result(entry) if self._database.policy.allowed else entry.result(None)

    # An effect, step by step

    def draft(self, key: str, owner: Owner, *, since: int | None = None, facts: Facts = NO_FACTS) -> Entry:
        """Return the record that ``begin`` writes, begun now, or at the time given in microseconds.

        Nothing is written yet.
        """
        return _entry(key, self._database.now() if since is None else since, owner.id, facts=facts)

    def begin(self, key: str, draft: Entry, *, instead_of: Entry | None = None) -> bool:
        """Record that an effect is about to be carried out.

        Returns False if the present record is not ``instead_of`` (None: no record).

        Raises:
            StorageError: nothing was begun. After an ``UnknownOutcomeError`` the record may turn up all the same, and
                is then in doubt.
        """
        return self._replace(key, instead_of, draft)

    def record(self, key: str, begun: Entry, result: Any) -> Entry | None:
        """Record that an effect has happened, with its result.

        Returns None, or the record of another result that was recorded first.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: the result cannot be stored; the record is
                as it was.
            StorageError: the store failed; the record may be as it was.
        """
        done = _entry(key, begun.since, None, self._parts(key, result), facts=begun.facts)
        found: Entry | None = begun
        for _ in range(_ATTEMPTS):
            if self._replace(key, found, done):
                return None
            # It was settled, forgotten or purged meanwhile, or begun again by a caller that took this one for dead.
            found = self.find(key)
            if found is not None and found.done:
                return found
        raise _busy(key)

    def leave(self, key: str, begun: Entry) -> bool:
        """Record that the owner of an effect has given it up, in doubt. Returns False if the record has changed."""
        return self._replace(key, begun, _entry(key, begun.since, b"", facts=begun.facts))

    def withdraw(self, key: str, begun: Entry, *, restore: Entry | None = None) -> bool:
        """Record that an effect did not happen: remove its record, or put back ``restore``.

        Returns False if the record has changed.
        """
        return self._replace(key, begun, restore)

    # Settling effects in doubt by hand

    def settle(self, key: str, result: Any = None) -> None:
        """Record that an effect in doubt has happened, with this result.

        Raises:
            UnknownEffectError: there is no such effect. Nothing was changed.
            InvalidArgumentError: it has a result. Nothing was changed.
        """
        for _ in range(_ATTEMPTS):
            found = self.find(key)
            if found is None:
                raise UnknownEffectError(key)
            if found.done and not found.erased:
                raise InvalidArgumentError(
                    f"effect {key!r} is not in doubt: it is done, and has a result",
                    hint="forget it first, if the next try is to carry it out again",
                )
            if self._replace(key, found, _entry(key, found.since, None, self._parts(key, result), facts=found.facts)):
                return
        raise _busy(key)

    def forget(self, key: str) -> None:
        """Remove an effect, done or in doubt, even if its record is damaged: the next call carries it out again.

        Raises:
            UnknownEffectError: there is no such effect. Nothing was changed.
            EffectInDoubtError: it is running right now. Nothing was changed.
        """
        check_effect_key(key)
        name = effect_key(key)
        for _ in range(_ATTEMPTS):
            stored = self._store.get(name)
            if stored is None:
                raise UnknownEffectError(key)
            with suppress(CorruptObjectError):
                found = read_entry(name, stored)
                if found.running:
                    error = EffectInDoubtError(key, found.begun, reason=RUNNING)
                    error.remains = "nothing was changed"
                    raise error
            if replace_record(self._store, name, stored, None):
                return
        raise _busy(key)

    # Writing

    def _parts(self, key: str, result: Any) -> tuple[bytes, ...]:
        path = f"the result of effect {key!r}"
        cell = InlineEncoder(self._database.policy).encode_inline(result, path)
        if len(cell) > MAX_RESULT:
            raise LimitExceededError(f"{path}, {len(cell)} bytes,", limit=MAX_RESULT)
        return split_cell(cell)

    def _replace(self, key: str, before: Entry | None, after: Entry | None) -> bool:
        stored = [None if entry is None else entry.stored for entry in (before, after)]
        return replace_record(self._store, effect_key(key), *stored)


class LiveLedger(Ledger):
    """The effects of a ``Live`` state. Results are kept as Python objects, not as bytes.

    A result is deep-copied; an object that cannot be copied is returned itself.
    """

    def __init__(self) -> None:
        from versioned_state.repository.database import Database
        from versioned_state.storage import Memory

        super().__init__(Database(Memory()))
        self._results: dict[bytes, Any] = {}

    def result(self, entry: Entry) -> Any:
        return _copied(self._results[entry.parts[0]])

    def _parts(self, key: str, result: Any) -> tuple[bytes, ...]:
        token = secrets.token_bytes(8)
        self._results[token] = _copied(result)
        return (token,)


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever the code of its class raises
        return value


RUNNING: Final = "it is being carried out right now"
"""Why an effect is in doubt whose owner is at work."""


def check_effect_key(key: str) -> None:
    """Raise ``InvalidArgumentError`` unless this can be the key of an effect."""
    string("the key of an effect", key, empty=False)


# The bytes of a record


def _entry(
    key: str, since: int, owner: bytes | None, parts: tuple[bytes, ...] = (), *, facts: Facts = NO_FACTS
) -> Entry:
    """Return the record of an effect, with its bytes."""
    return _with_bytes(effect_key(key), Entry(key, since, owner, parts, facts=facts))


def _with_bytes(name: str, entry: Entry) -> Entry:
    fields: list[object] = [entry.key, entry.since, entry.owner, entry.parts]
    if entry.facts != NO_FACTS:  # as records were before there were facts
        fields.append(entry.facts)
    body: bytes = msgpack.packb(fields, unicode_errors="surrogatepass")
    return dataclasses.replace(entry, stored=write_record(name, body))


def read_entry(name: str, stored: bytes) -> Entry:
    """Return the record under a key of the store. Raises ``CorruptObjectError``."""
    try:
        key, since, owner, parts, *more = msgpack.unpackb(read_record(name, stored), unicode_errors="surrogatepass")
        if key is not None and (type(key) is not str or effect_key(key) != name):
            raise ValueError("it is not the record of this effect")
        if type(since) is not int or not (owner is None or (type(owner) is bytes and len(owner) in (0, OWNER_SIZE))):
            raise ValueError("a field of another type")
        if type(parts) is not list or any(type(part) is not bytes for part in parts) or (parts and owner is not None):
            raise ValueError("a field of another type")
        if len(parts) > MAX_PARTS:
            raise ValueError(f"a result of {len(parts)} parts")
        entry = Entry(key, since, owner, tuple(parts), stored, _facts(more))
        _ = entry.begun
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise CorruptObjectError(name, f"the record of an effect is damaged: {error}") from error
    return entry


_FACTS: Final = (bytes, str, int, str)
"""The types of ``Facts``."""


def _facts(more: list[Any]) -> Facts:
    """Return the facts of a record, which are its last field, if it has any. Raises ``ValueError``."""
    if not more:
        return NO_FACTS
    facts = Facts(*more[0])
    if len(more) > 1 or any(
        value is not None and type(value) is not kind for value, kind in zip(facts, _FACTS, strict=True)
    ):
        raise ValueError("a field of another type")
    return facts


def check_entry(name: str, stored: bytes) -> None:
    """Raise ``CorruptObjectError`` unless a record and its result decode. Nothing is unpickled."""
    entry = read_entry(name, stored)
    if entry.parts:
        entry.result(None)


def iter_entries(store: KVStore) -> Iterator[tuple[str, Entry]]:
    """Yield the records of a store, each with its key in the store. Raises ``CorruptObjectError``."""
    for name, stored in store.items(EFFECTS):
        yield name, read_entry(name, stored)


# For purge


def erase_effects(store: KVStore, patterns: Collection[str], *, dry_run: bool = False) -> list[str]:
    """Erase the keys and results of the effects whose key matches a pattern, and return the keys.

    They stay done, or in doubt. Cost: a listing.
    """
    erased = []
    for name, entry in iter_entries(store) if patterns else ():
        found: Entry | None = entry
        while (
            found is not None and found.key is not None and any(fnmatchcase(found.key, pattern) for pattern in patterns)
        ):
            if dry_run or replace_record(
                store, name, found.stored, _with_bytes(name, Entry(None, found.since, found.owner)).stored
            ):
                erased.append(found.key)
                break
            stored = store.get(name)  # it has changed since it was listed
            found = None if stored is None else read_entry(name, stored)
    return sorted(erased)


def _busy(key: str) -> StoreBusyError:
    return StoreBusyError(f"others keep changing effect {key!r}", remains="this call changed nothing", hint="try again")
