"""``Lock``: the lock of a branch as a ``with`` block: one handle at a time, an expiry, a fence against late commits.

Layer: state.

::

    enter ── take the record ── refresh ── the block, each commit only if the token is the newest ── release

Taking the record does not need the lock of the handle, so other threads and tasks can use the handle while one waits.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import ReferenceType, ref

from versioned_state.arguments import seconds
from versioned_state.errors import (
    STAGED,
    FencedError,
    InvalidArgumentError,
    LockTimeoutError,
    StorageError,
    TransactionError,
    UnsupportedByStoreError,
)
from versioned_state.objects.keys import lock_key
from versioned_state.repository.maintenance.owner import Owner
from versioned_state.repository.refs.lock_record import LockRecord, forget_seen, is_over, put_lock, read_lock
from versioned_state.repository.refs.ref import NOTHING, BatchPart
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch.hooks import Hook
from versioned_state.state.branch.transactions import Block, current_worker

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.history.commit import Commit
    from versioned_state.state.branch.port import BranchState

_CONDITIONS: Final = 3
"""The conditions of a commit under a lock: the branch, the lock, and gc's record."""

_POLL_S: Final = 0.05
"""The longest time between two reads of a lock that others hold."""

_YIELD_S: Final = 0.1
"""How long the last holder's process leaves the lock to those waiting for it: each of them reads it in that time."""

_RENEW_AT: Final = 3
"""A commit renews the lock if more than a third of its time has passed."""


class Holding:
    """A lock that is held, or is being taken.

    Attributes:
        database, branch: the branch of the lock.
        record: the record as this holder last wrote it, or found it with its own token.
        renewed: the record with which a batch under way replaces it; None if there is no such batch.
        since: when the record was written, by this process's clock.
        worker: the thread and the task in the block. Their nested blocks change nothing.
        block: dead as soon as the block can no longer end; None if that is not known.
    """

    __slots__ = (
        "__weakref__",
        "_process",
        "block",
        "branch",
        "database",
        "owner",
        "record",
        "renewed",
        "since",
        "worker",
    )

    def __init__(self, database: Database, branch: str, block: ReferenceType[Any] | None) -> None:
        self.database: Final = database
        self.branch: Final = branch
        self.owner: Final = Owner()
        self._process = os.getpid()
        self.record: LockRecord = LockRecord()
        self.renewed: LockRecord | None = None
        self.since: float = 0.0
        self.worker: Final = current_worker()
        self.block: Final = block

    @property
    def is_abandoned(self) -> bool:
        return self.block is not None and self.block() is None

    def _is_ours(self, record: LockRecord) -> bool:
        return record.held and (record.token, record.owner) == (self.record.token, self.owner.id)

    def take(self, before: LockRecord, ttl: int) -> bool:
        """Take a lock that is free, or whose time to live is over. Returns False if another holder was first."""
        since = time.monotonic()
        fields = {
            "token": before.token + 1,
            "owner": self.owner.id,
            "held": True,
            "ttl": ttl,
            "beat": 0,
            "wanted": False,
        }
        mine = before.but(self.branch, time=self.database.now(), **fields)
        self.record = mine  # before the request, because the reply may be lost
        if not put_lock(self.database.store, self.branch, before, mine):
            return False
        self.since = since
        forget_seen(self.database, self.branch)
        return True

    def beat(self) -> LockRecord:
        """Return the record that renews the lock."""
        return self.record.but(self.branch, beat=self.record.beat + 1, time=self.database.now())

    def renew(self) -> None:
        """Renew the lock. Raises ``FencedError``."""
        while True:
            since = time.monotonic()
            record = self.beat()
            if put_lock(self.database.store, self.branch, self.record, record):
                self.record, self.since, self.renewed = record, since, None
                return
            self.find(remains="nothing was changed")

    def find(self, *, remains: str) -> None:
        """Read the record again: a caller that waits for the lock may have changed it.

        Raises ``FencedError`` if the lock is lost.
        """
        found = read_lock(self.database.store, self.branch)
        if not self._is_ours(found):
            raise FencedError(
                self.branch, self.record.token, None if found.stored is None else found.token, remains=remains
            )
        self.record, self.renewed = found, None

    def release(self) -> None:
        """Release the lock, if it is still held. If the store fails, the lock ends with its time to live."""
        if os.getpid() != self._process:
            return  # a forked child leaves the block too, but the lock belongs to its parent
        self.owner.end()
        if not self.record.token:
            return  # it was never requested
        with suppress(StorageError):
            found = self.record
            while not put_lock(self.database.store, self.branch, found, found.but(self.branch, held=False)):
                found = read_lock(self.database.store, self.branch)
                if not self._is_ours(found):
                    return


class LockHook(Hook):
    """The hook that adds the condition of a lock to the commits and moves of a handle."""

    def __init__(self) -> None:
        self._holding: ReferenceType[Holding] | None = None  # weak: the block refers to it

    @property
    def holding(self) -> Holding | None:
        """The lock that the handle has."""
        holding = None if self._holding is None else self._holding()
        return None if holding is None or holding.is_abandoned else holding

    @holding.setter
    def holding(self, holding: Holding | None) -> None:
        self._holding = None if holding is None else ref(holding)

    def batch_part(self) -> BatchPart:
        holding = self.holding
        if holding is None:
            return NOTHING
        key, record = lock_key(holding.branch), holding.record
        if (time.monotonic() - holding.since) * 1_000_000 * _RENEW_AT < record.ttl:
            return BatchPart({key: record.stored})
        renewed = holding.renewed = holding.beat()
        assert renewed.stored is not None, "it is to be written"
        return BatchPart({key: record.stored}, {key: renewed.stored})

    def batch_refused(self) -> None:
        holding = self.holding
        if holding is not None:
            holding.find(remains=STAGED)

    def moved(self, before: Commit, after: Commit) -> None:
        holding = self.holding
        if holding is not None and holding.renewed is not None:
            # If it was not written after all, the store refuses the next batch, which then reads the record again.
            holding.record, holding.renewed, holding.since = holding.renewed, None, time.monotonic()


class Lock(Block):
    """A branch's lock: a ``with`` block for one holder at a time, among all handles, threads, processes and machines.

    See ``Versioned.lock``.
    """

    def __init__(self, state: BranchState, *, ttl: float, wait: float) -> None:
        super().__init__()
        self.state = state
        self._ttl = int(seconds("ttl", ttl, above=True) * 1_000_000)
        self._wait = seconds("wait", wait, endless=True)
        self._token = 0
        self._taking: Holding | None = None
        self._attempts = 0
        self._deadline = self._yields_until = 0.0

    def __repr__(self) -> str:
        return f"<Lock of {self.state.branch}, token {self._token}>"

    @property
    def token(self) -> int:
        """The number of this holding, greater than that of every earlier one.

        A service that keeps it can refuse a late request.
        """
        return self._token

    def renew(self) -> None:
        """Restart the time to live. Commits do that too.

        Raises:
            FencedError: the lock is lost.
            InvalidArgumentError: the caller is not in the block.
        """
        state = self.state
        with ready(state._lock):
            state._check_open()
            hook = _hook(state)
            holding = None if hook is None else hook.holding
        if holding is None or holding.record.token != self._token:
            raise InvalidArgumentError("renew() outside of the block of the lock")
        holding.renew()

    def __enter__(self) -> Self:
        try:
            holding = None
            if self.begin(self.reference):
                while (pause := self.attempt()) is not None:
                    time.sleep(pause)
                holding = self.attach()
            self.ends.append(partial(leave, self.state, holding))
            self.done()
        except BaseException:
            self.give_up()
            raise
        return self

    # Steps; between them the event loop of ``state.aio`` can run

    def begin(self, block: ReferenceType[Any] | None) -> bool:
        """Begin to take the lock.

        Returns False if this thread and task has it already. Raises as ``Versioned.lock``.
        """
        state = self.state
        with ready(state._lock):
            state._check_open()
            hook = _hook(state)
            held = None if hook is None else hook.holding
            if held is not None and held.worker == current_worker():
                self._token = held.record.token
                return False
            if state._transactions.open:
                owner = state._transactions.open[-1].owner
                hint = f"take the lock first, and begin {owner.block} in it"
                raise TransactionError(f"lock() within {owner.block}", hint=hint)
            database = state._handle.repository.database
            most = database.store.max_expected
            if most is not None and most < _CONDITIONS:
                raise UnsupportedByStoreError(
                    f"a commit under a lock has {_CONDITIONS} conditions, and this store allows {most} in a batch",
                    hint="use a store of another kind: a folder, PostgreSQL or Redis",
                )
            self._taking = Holding(database, state.branch, block)
            self._attempts = 0
            self._deadline = time.monotonic() + self._wait
            self._yields_until = 0.0
            return True

    def attempt(self) -> float | None:
        """Take the lock if possible.

        Returns None, or the seconds to wait before the next attempt. Raises ``LockTimeoutError``.
        """
        holding = self._taking
        assert holding is not None, "the taking has begun"
        database, branch = holding.database, holding.branch
        record = read_lock(database.store, branch)
        now = time.monotonic()
        if record.held and not is_over(database, branch, record):
            if not record.wanted and self._attempts:
                put_lock(database.store, branch, record, record.but(branch, wanted=True))
        elif not self._is_polite(holding, record, now) and holding.take(record, self._ttl):
            return None
        if now >= self._deadline:
            raise LockTimeoutError(branch, record.token, self._wait)
        self._attempts += 1
        longest = min(_POLL_S, 0.001 * 2 ** min(self._attempts, 10))
        return min(random.uniform(longest / 2, longest), max(self._deadline - now, 0.0))  # noqa: S311 - spreading, not secrecy

    def _is_polite(self, holding: Holding, record: LockRecord, now: float) -> bool:
        """Return whether to leave a free lock to others for a moment: this process had it last, and others wait."""
        if not record.wanted or record.owner[8:] != holding.owner.id[8:]:
            return False
        if not self._yields_until:
            self._yields_until = now + _YIELD_S
        return now < min(self._yields_until, self._deadline)

    def attach(self) -> Holding:
        """Bind the handle to the lock that was taken, and move to the head of the branch.

        Raises as ``Versioned.refresh``.
        """
        holding = self._taking
        assert holding is not None, "it was taken"
        state = self.state
        with ready(state._lock):
            state._check_open()
            hook = _hook(state)
            if hook is None:
                hook = LockHook()
                state._handle.hooks.add(hook, state.head)
            hook.holding = holding
            state.refresh()
        self._token = holding.record.token
        return holding

    def done(self) -> None:
        """Note that the block is entered: from now on its end releases the lock."""
        self._taking = None

    def give_up(self) -> None:
        """Release the lock that was perhaps taken, after a failure."""
        holding, self._taking = self._taking, None
        if holding is not None:
            leave(self.state, holding)


def leave(state: BranchState, holding: Holding | None, _error: object = None) -> None:
    """Leave the block, and release the lock unless this thread and task had it before.

    This is not a method: a block that refers to itself is not freed at once if its end never runs, and would keep the
    lock.
    """
    if holding is None:
        return
    try:
        with ready(state._lock):
            hook = _hook(state)
            if hook is not None and hook.holding in (holding, None):
                hook.holding = None
                state._handle.hooks.remove(hook)
    finally:
        holding.release()


def _hook(state: BranchState) -> LockHook | None:
    return next((hook for hook in state._handle.hooks.all if isinstance(hook, LockHook)), None)
