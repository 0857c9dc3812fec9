"""The locks of branches: one record each, with a token that grows whenever the lock changes hands. Layer: repository.

::

    free ── take ──> held ── renew ──> held ── release ──> free
                      │
                      └── its time is over ── take ──> held, with the next token

A record by itself does not keep others from writing. Each commit of the holder has the condition that the record is as
the holder left it, so a late commit is refused. That makes it safe to guess whether a holder is still alive: a wrong
guess costs that holder a failed commit.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import msgpack

from versioned_state.errors import CorruptObjectError, CorruptRefError
from versioned_state.objects.keys import LOCKS, lock_key
from versioned_state.objects.record import read_record, replace_record, write_record
from versioned_state.repository.maintenance.owner import OWNER_SIZE, Life, life_of

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.storage import KVStore

_SKEW_US: Final = 60_000_000
"""By how much the clocks of two machines may differ.

It only matters to a caller who finds the lock of a holder that died before.
"""


@dataclass(frozen=True, slots=True)
class LockRecord:
    """The record of one lock.

    Attributes:
        token: how often the lock was taken.
        owner: the id of the owner that holds it, or held it last; see ``maintenance.owner``.
        held: whether the owner has it.
        ttl: for how long it holds after each beat, in microseconds.
        beat: how often the owner has renewed it.
        time: when the owner last wrote the record, in microseconds since 1970.
        wanted: whether another caller waits for it.
        stored: the bytes of the record, which the next write expects, or None if there is no record.
    """

    token: int = 0
    owner: bytes = b""
    held: bool = False
    ttl: int = 0
    beat: int = 0
    time: int = 0
    wanted: bool = False
    stored: bytes | None = field(default=None, compare=False)

    def but(self, branch: str, **changes: object) -> LockRecord:
        """Return the record with these fields changed, and its bytes."""
        changed: LockRecord = replace(self, **changes)  # type: ignore[arg-type]
        fields = [changed.token, changed.owner, changed.held, changed.ttl, changed.beat, changed.time, changed.wanted]
        body: bytes = msgpack.packb(fields)
        return replace(changed, stored=write_record(lock_key(branch), body))


def parse_lock(key: str, stored: bytes | None) -> LockRecord:
    """Return the record in these bytes, under a key of the store. Raises ``CorruptObjectError``."""
    if stored is None:
        return LockRecord()
    try:
        token, owner, held, ttl, beat, written, wanted = msgpack.unpackb(read_record(key, stored))
        if not all(type(number) is int and number >= 0 for number in (token, ttl, beat)) or type(written) is not int:
            raise ValueError("a number of another type")
        if type(held) is not bool or type(wanted) is not bool or type(owner) is not bytes or len(owner) != OWNER_SIZE:
            raise ValueError("a field of another type")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(key, f"the record of a lock is damaged: {error}") from error
    return LockRecord(token, owner, held, ttl, beat, written, wanted, stored)


def read_lock(store: KVStore, branch: str) -> LockRecord:
    """Return the record of a branch's lock. Raises ``CorruptObjectError``."""
    key = lock_key(branch)
    return parse_lock(key, store.get(key))


def put_lock(store: KVStore, branch: str, before: LockRecord, after: LockRecord) -> bool:
    """Replace a record if it is as it was read. Raises as ``replace_record``."""
    return replace_record(store, lock_key(branch), before.stored, after.stored)


def is_over(database: Database, branch: str, record: LockRecord) -> bool:
    """Return whether the time of a holder is over, as far as this process can know.

    It is over if the holder has died on this machine; if this process has seen the record unchanged for the time to
    live, by its own clock; or if the record is far older than that by the clocks of the two machines.
    """
    seen = _seen.setdefault(database, {})
    now = time.monotonic()
    sign = record.token, record.beat
    known, since = seen.get(branch, (None, 0.0))
    if known != sign:
        since = now
        seen[branch] = sign, since
    if life_of(record.owner) is Life.ENDED or (now - since) * 1_000_000 >= record.ttl:
        return True
    return database.now() - record.time > record.ttl + _SKEW_US


def forget_seen(database: Database, branch: str) -> None:
    """Forget the observed record of a lock that was taken or is free."""
    _seen.get(database, {}).pop(branch, None)


_seen: Final[WeakKeyDictionary[Database, dict[str, tuple[tuple[int, int], float]]]] = WeakKeyDictionary()
"""For each branch whose lock this process waits for, the token and the beat that it saw, and since when."""


def remove_unused_locks(database: Database) -> None:
    """Remove the records of free locks of branches that do not exist. Cost: reads each lock."""
    for key, stored in database.store.items(LOCKS):
        branch = key.removeprefix(LOCKS)
        with suppress(CorruptObjectError, CorruptRefError):  # fsck reports these
            record = parse_lock(key, stored)
            if not record.held and database.ref("branch", branch).head is None:
                remove_lock(database.store, branch, stored)


def remove_lock(store: KVStore, branch: str, stored: bytes | None) -> None:
    """Remove the record of a branch that is gone, even if it is damaged, unless it has changed since it was read."""
    if stored is not None:
        replace_record(store, lock_key(branch), stored, None)
