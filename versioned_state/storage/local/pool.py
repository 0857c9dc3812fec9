"""`Pool`, the open connections of one `Disk`, each used by one thread at a time.

It grows to as many as there are threads at work at once, and carries none across a fork: SQLite keeps
locks and shared memory per process, so a child that used, or merely closed, an inherited connection
could delete the WAL under its parent. Before a fork all connections are therefore closed; parent and
child open their own when they next need one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Lock
from weakref import WeakSet

from versioned_state.errors import StoreClosedError
from versioned_state.storage.local.sqlite_file import Connection

# How long a fork waits for calls of other threads to end. Beyond that the child may inherit a
# connection in use, which it leaves alone.
_FORK_PATIENCE_S = 30.0


class Pool:
    """Hands out connections made by `connect`. `writing` is held by the one thread that writes."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._opening = Lock()
        # One at a time: of two that close at once each would see the other and leave the WAL to it.
        self._closing = Lock()
        self._closed = False
        # list.append/pop and set.add/discard are atomic, so taking and giving back needs no lock.
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self.writing = Lock()
        _pools.add(self)

    def take(self) -> Connection:
        """A connection for this thread alone, until `give` or `discard`."""
        self.check_open()
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._opening:
            self.check_open()
            connection = self._connect()
            self._open.add(connection)
        return connection

    def give(self, connection: Connection) -> None:
        """Take back a connection that is fit for use."""
        self._idle.append(connection)
        if self._closed:
            self._close_idle()

    def discard(self, connection: Connection) -> None:
        """Take back a connection that is not."""
        with self._closing:
            connection.close()
        self._open.discard(connection)

    def close(self) -> None:
        """Close what is idle now, and what is in use as it comes back. Idempotent."""
        self._closed = True
        # Whoever was opening a connection meanwhile gives it back to a closed pool.
        self._close_idle()

    def check_open(self) -> None:
        """Raise `StoreClosedError` after `close()`."""
        if self._closed:
            raise StoreClosedError("the store is closed")

    def _close_idle(self) -> None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self.discard(connection)

    def before_fork(self) -> None:
        self._opening.acquire()
        deadline = time.monotonic() + _FORK_PATIENCE_S
        self._close_idle()
        while self._open and time.monotonic() < deadline:
            time.sleep(0.001)
            self._close_idle()

    def after_fork_in_parent(self) -> None:
        self._opening.release()

    def after_fork_in_child(self) -> None:
        # The threads that held these locks do not exist here.
        self._opening = Lock()
        self._closing = Lock()
        self.writing = Lock()
        _inherited.extend(self._open)  # or they would be closed now
        self._open = set()


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
