"""``Pool``, the open connections of one store on SQLite, each used by one call at a time. Layer: storage.

It grows to as many connections as there are concurrent calls. A connection is taken in one atomic step, and recorded
with the call that uses it: if an interrupted call leaves a connection in use, perhaps within a transaction, the next
call that needs one closes it.

No connection crosses a fork: SQLite keeps locks and shared memory per process, so a child that used, or merely closed,
an inherited connection could delete the WAL of its parent. Before a fork all connections are therefore closed; parent
and child open their own when they next need one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from weakref import WeakSet

from versioned_state.storage.backend import raise_closed
from versioned_state.storage.call_lock import CallLock, is_running
from versioned_state.storage.local.sqlite_file import Connection

# A fork waits for calls of other threads to end. Beyond that the child may inherit a connection in use, which it leaves
# alone.
_FORK_PATIENCE_S = 30.0


class Pool:
    """Connections made by ``connect``, lent to one call at a time. The one call that writes holds ``writing``."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._opening = CallLock()
        # If two connections closed at the same time, each would see the other and leave the WAL to it.
        self._closing = CallLock()
        self.writing: CallLock = CallLock()
        self._writer: Connection | None = None
        self._closed = False
        self._forking = False
        self._connections: list[Connection] = []
        # The call that uses a connection. dict.setdefault takes the connection in one step, pop gives it back in one.
        self._users: dict[Connection, FrameType] = {}
        _pools.add(self)

    def take(self) -> Connection:
        """Return a connection for the calling function alone, until it calls ``give`` or ``discard``, or ends."""
        return self._take(sys._getframe(1))

    def take_writer(self) -> Connection:
        """Return a connection as ``take`` does, for the one call that writes: it holds ``writing``."""
        if self._writer is not None:
            self._reclaim()  # the write before this one was interrupted, and its transaction may be open
        connection = self._writer = self._take(sys._getframe(1))
        return connection

    def _take(self, user: FrameType) -> Connection:
        if self._closed:
            raise_closed()
        for connection in self._connections:
            if self._users.setdefault(connection, user) is user:
                return connection
        self._reclaim()
        while True:
            with self._opening:
                if self._closed:
                    raise_closed()
                if not self._forking:
                    connection = self._connect()
                    self._users[connection] = user  # first, so that nobody else takes it
                    self._connections.append(connection)
                    return connection
            time.sleep(0.001)  # without the lock, which the fork waits for

    def give(self, connection: Connection) -> None:
        """Take back a connection that can be used again."""
        if connection is self._writer:
            self._writer = None
        self._users.pop(connection, None)
        if self._closed:
            self._close_idle()

    def discard(self, connection: Connection) -> None:
        """Take back a connection that cannot be used again, and close it."""
        with self._closing:
            connection.close()
        with suppress(ValueError):
            self._connections.remove(connection)
        if connection is self._writer:
            self._writer = None
        self._users.pop(connection, None)

    def close(self) -> None:
        """Close the idle connections now, and those in use when they come back. Idempotent."""
        self._closed = True
        # A call that is opening a connection meanwhile gives it back to a closed pool.
        self._close_idle()
        self._reclaim()

    def _close_idle(self) -> None:
        # The caller's frame, not this one: a frame that its own variable refers to outlives its call, and with it the
        # frames of all callers. A finalizer's may be within ``sqlite3.connect``, whose connection then cannot be
        # closed.
        user = sys._getframe(1)
        for connection in tuple(self._connections):
            if self._users.setdefault(connection, user) is user:
                self.discard(connection)

    def _reclaim(self) -> None:
        """Close the connections of calls that have ended without giving them back."""
        for connection, user in tuple(self._users.items()):
            # A call gives its connection back before it ends, so an entry of a call that has ended is a leftover.
            if not is_running(user) and self._users.get(connection) is user:
                self.discard(connection)

    def before_fork(self) -> None:
        self._forking = True
        with self._opening:
            pass  # a call that was opening a connection has it now
        deadline = time.monotonic() + _FORK_PATIENCE_S
        self._close_idle()
        self._reclaim()
        while self._connections and time.monotonic() < deadline:
            time.sleep(0.001)
            self._close_idle()

    def after_fork_in_parent(self) -> None:
        self._forking = False

    def after_fork_in_child(self) -> None:
        # The threads that held these locks do not exist here.
        self._opening = CallLock()
        self._closing = CallLock()
        self.writing = CallLock()
        self._forking = False
        self._writer = None
        _inherited.extend(self._connections)  # or they would be closed now
        self._connections = []
        self._users = {}


_pools: WeakSet[Pool] = WeakSet()
_forking: list[Pool] = []
_inherited: list[Connection] = []


def _before_fork() -> None:
    _forking[:] = _pools
    for pool in _forking:
        pool.before_fork()


def _after_fork_in_parent() -> None:
    for pool in _forking:
        pool.after_fork_in_parent()
    _forking.clear()


def _after_fork_in_child() -> None:
    for pool in _forking:
        pool.after_fork_in_child()
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
