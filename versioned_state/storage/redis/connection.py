"""``Link``: the connections to one Redis server, the retries after a failure, and the translation of errors.

Layer: storage.

A batch of commands is one round trip. redis-py connects and speaks the protocol. Its own retries are off, because it
cannot know which of our batches may be sent twice.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit
from weakref import finalize

from versioned_state.arguments import one_of, seconds
from versioned_state.errors import (
    InvalidArgumentError,
    MissingDependencyError,
    StateError,
    StorageError,
    StoreClosedError,
)
from versioned_state.storage.redis.errors import PASSING, code, no_connection, refusal, unknown_outcome

if TYPE_CHECKING:
    from redis.connection import ConnectionPool

Command = Sequence[bytes | str | int]

# Eleven days: a larger timeout overflows the C types of a socket.
_LONGEST_TIMEOUT_S = 1_000_000.0

_DB_PATH = re.compile(r"/?|/[0-9]+/?")
_FALSE = ("", "0", "f", "false", "n", "no")

# The range of the random pause doubles with each attempt, up to the longest, so that writers that were cut off together
# do not all come back at once.
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


class _AgainError(Exception):
    """The batch had no effect and may be sent again. If no time is left for that, the caller gets ``error``."""

    def __init__(
        self, error: StorageError, cause: Exception, *, connecting: bool = False, at_once: bool = False
    ) -> None:
        super().__init__(error)
        self.error, self.cause, self.connecting, self.at_once = error, cause, connecting, at_once


class _ScriptUnknownError(Exception):
    """The server does not know a script of the batch, so the batch had no effect."""


class Link:
    """Connections to the server at ``url``, for any number of threads and for forked children.

    ``options`` are passed to redis-py's connections. ``scripts`` are loaded if the server does not know them.
    ``timeout`` is how many seconds to wait for an answer, and for how long a batch is retried.
    """

    def __init__(self, url: str, *, timeout: float, options: Mapping[str, Any], scripts: Sequence[str]) -> None:
        try:
            import redis
        except ImportError as error:
            raise MissingDependencyError("Redis", extra="redis") from error
        self._redis = redis.exceptions
        self._pack = _packer()
        self.timeout: Final = min(seconds("timeout", timeout, above=True, endless=True), _LONGEST_TIMEOUT_S)
        self._options = _connection_options(url, options, self.timeout)
        self._scripts: list[Command] = [("SCRIPT", "LOAD", script) for script in scripts]
        self.place: Final = _place(self._options)
        # Process, address and pool. A fork may happen while another thread holds the pool's lock, so a child makes a
        # pool of its own. The tuple is replaced as a whole, never changed.
        self._home: tuple[int, tuple[str, int] | None, ConnectionPool] | None = None
        self._route: tuple[str, int] | None = None
        self._closed = False
        self._pools: list[ConnectionPool] = []
        # Closes a store that its owner did not close, when it is collected or at exit.
        self._finalizer = finalize(self, _disconnect, self._pools)

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` after ``close()``."""
        if self._closed:
            raise StoreClosedError

    def close(self) -> None:
        """Close idle connections now, and each connection in use when it is given back. Idempotent."""
        self._closed = True
        _disconnect(self._pools)

    def run(
        self, commands: Sequence[Command], *, repeatable: bool = True, done: int | None = None, patient: bool = True
    ) -> list[Any]:
        """Send ``commands`` in one batch and return their replies in order, or raise the first reply that is an error.

        A batch that had no effect is sent again, with pauses, until ``timeout`` is over. So is a ``repeatable`` batch,
        which may take effect more than once. If the reply to any other batch is lost, ``UnknownOutcomeError`` is
        raised; all its commands but the last must be repeatable too. If the last reply equals ``done``, errors in
        earlier replies are ignored. Only a ``patient`` call waits for a server that cannot be reached.
        """
        deadline = time.monotonic() + self.timeout
        pause = _FIRST_PAUSE_S
        loads: list[Command] = []
        while True:
            self.check_open()
            try:
                return self._attempt([*loads, *commands], repeatable=repeatable, done=done)[len(loads) :]
            except _ScriptUnknownError:
                # The server was restarted, or a failover put another one in its place.
                if loads:
                    raise self._without_scripts() from None
                loads = self._scripts
            except _AgainError as again:
                pause = _pause(again, pause, deadline, patient=patient)

    def run_each(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one batch.

        For each its reply, or the error that ``run`` raises for it if it is not repeatable.

        Those that had no effect are sent again together, so that all of them take no longer than one.
        """
        deadline = time.monotonic() + self.timeout
        pause = _FIRST_PAUSE_S
        loads: list[Command] = []
        replies: list[Any] = [None] * len(commands)
        left = [*range(len(commands))]
        while left:
            try:
                self.check_open()
                found = self._attempt_each([*loads, *(commands[number] for number in left)])[len(loads) :]
            except _AgainError as again:
                found = [again] * len(left)
            except StateError as error:
                found = [copy(error) for _ in left]
            for number, reply in zip(left, found, strict=True):
                replies[number] = reply
            left = [number for number in left if isinstance(replies[number], _AgainError | _ScriptUnknownError)]
            unknown = [number for number in left if isinstance(replies[number], _ScriptUnknownError)]
            if unknown and not loads:
                loads = self._scripts
                continue
            for number in unknown:
                replies[number] = self._without_scripts()
                left.remove(number)
            if left:
                try:
                    pause = _pause(replies[left[0]], pause, deadline, patient=True)
                except StorageError:
                    for number in left:
                        refused = replies[number]
                        replies[number] = copy(refused.error)  # each is raised in a call of its own
                        replies[number].__cause__ = refused.cause
                    break
        return replies

    def _without_scripts(self) -> StorageError:
        return StorageError(f"{self.place} does not keep the scripts that it loads", remains="nothing was written")

    def _attempt_each(self, commands: Sequence[Command]) -> list[Any]:
        pool = self._pool()
        connection = self._connect(pool)
        replies: list[Any] = []
        try:
            self._exchange(connection, commands, replies)
        except (
            _AgainError,
            self._redis.ConnectionError,
            self._redis.TimeoutError,
            self._redis.InvalidResponse,
        ) as error:
            # The server may have run any of those without a reply, even if not all of them were sent.
            cause = error.cause if isinstance(error, _AgainError) else error
            while len(replies) < len(commands):
                replies.append(unknown_outcome(cause, self.place))
                replies[-1].__cause__ = cause
            connection.disconnect()
        finally:
            self._give_back(connection, pool, whole=len(replies) == len(commands))
        for number, reply in enumerate(replies):
            if isinstance(reply, self._redis.ResponseError):
                replies[number] = self._refused(reply, pool)
                replies[number].__cause__ = reply
        return replies

    def _attempt(self, commands: Sequence[Command], *, repeatable: bool, done: int | None) -> list[Any]:
        pool = self._pool()
        connection = self._connect(pool)
        replies: list[Any] = []
        try:
            self._exchange(connection, commands, replies)
        except (self._redis.BusyLoadingError, self._redis.AuthenticationError) as error:
            # redis-py treats this answer as a loss of the connection: it did not read the replies after it.
            if repeatable or len(replies) == len(commands) - 1:
                raise self._refused(error, pool) from error
            raise unknown_outcome(error, self.place) from error
        except (self._redis.ConnectionError, self._redis.TimeoutError, self._redis.InvalidResponse) as error:
            if repeatable:
                raise _AgainError(no_connection(error, self.place), error) from error
            raise unknown_outcome(error, self.place) from error
        finally:
            self._give_back(connection, pool, whole=len(replies) == len(commands))
        if done is None or replies[-1] != done:
            for reply in replies:
                if isinstance(reply, self._redis.ResponseError):
                    raise self._refused(reply, pool) from reply
        return replies

    def _give_back(self, connection: Any, pool: ConnectionPool, *, whole: bool) -> None:
        """Give back a connection, of which replies may be left to read unless the exchange was ``whole``."""
        if not whole:
            connection.disconnect()
        pool.release(connection)
        if self._closed:  # close() may have ended the idle connections just before this one was given back
            pool.disconnect(inuse_connections=False)

    def _connect(self, pool: ConnectionPool) -> Any:
        try:
            return pool.get_connection()
        except Exception as error:
            # The Cluster's server that MOVED named may be gone; the server in the URL answers where the keys are now.
            self._route = None
            lost = isinstance(error, (self._redis.ConnectionError, self._redis.TimeoutError))
            if lost and not isinstance(error, self._redis.AuthenticationError):
                raise _AgainError(no_connection(error, self.place), error, connecting=True) from error
            if isinstance(error, self._redis.InvalidResponse):
                raise no_connection(error, self.place) from error
            raise refusal(error, self.place) from error

    def _exchange(self, connection: Any, commands: Sequence[Command], replies: list[Any]) -> None:
        try:
            # In one piece: each piece is a call of the system, during which another thread takes its turn.
            connection.send_packed_command([b"".join(self._packed(connection, commands))])
        except (self._redis.ConnectionError, self._redis.TimeoutError) as error:
            # The last command was not sent whole, so the server cannot have run it.
            raise _AgainError(no_connection(error, self.place), error) from error
        while len(replies) < len(commands):
            try:
                replies.append(connection.read_response())
            except self._redis.ResponseError as error:
                replies.append(error)

    def _packed(self, connection: Any, commands: Sequence[Command]) -> Iterable[bytes]:
        pack = self._pack
        packed: Iterable[bytes] = connection.pack_commands(commands) if pack is None else map(pack, commands)
        return packed

    def _pool(self) -> ConnectionPool:
        home, route = self._home, self._route
        if home is not None and home[0] == os.getpid() and home[1] == route:
            return home[2]
        from redis.connection import Connection, ConnectionPool, UnixDomainSocketConnection

        options = dict(self._options)
        if route is not None:
            options["host"], options["port"] = route
            if options.pop("path", None) is not None or options.get("connection_class") is UnixDomainSocketConnection:
                options["connection_class"] = Connection
        pool = ConnectionPool(**options)
        if home is not None and home[0] == os.getpid():
            home[2].disconnect(inuse_connections=False)
        self._home = (os.getpid(), route, pool)
        self._pools[:] = [pool]
        return pool

    def _refused(self, error: Any, pool: ConnectionPool) -> Exception:
        """Return the exception for an error reply. A command that is answered with an error had no effect."""
        word = code(error)
        if word == "NOSCRIPT" or isinstance(error, self._redis.NoScriptError):
            return _ScriptUnknownError()
        if word == "MOVED":
            # Another server of the Redis Cluster has the keys; all of them are in one slot.
            self._route = (error.host or self._options.get("host", "localhost"), int(error.port))
        elif word == "READONLY":
            # The primary was demoted. A new connection may lead to its successor.
            self._route = None
            pool.disconnect(inuse_connections=False)
        translated = refusal(error, self.place)
        if word in PASSING and isinstance(translated, StorageError):
            return _AgainError(translated, error, at_once=word == "MOVED")
        return translated


def _packer() -> Callable[[Command], bytes] | None:
    """Return the packer of hiredis, or None if it is not installed.

    redis-py's own packer first does what only commands of users need.
    """
    try:
        from hiredis import pack_command
    except ImportError:
        return None
    return cast("Callable[[Command], bytes]", pack_command)


def _pause(again: _AgainError, pause: float, deadline: float, *, patient: bool) -> float:
    """Wait before another attempt, and return the longest pause before the next one.

    Raises the error if no time is left.
    """
    wait = 0.0 if again.at_once and pause == _FIRST_PAUSE_S else random.uniform(pause / 2, pause)  # noqa: S311 - no secret
    if time.monotonic() + wait > deadline or (again.connecting and not patient):
        raise again.error from again.cause
    time.sleep(wait)
    return min(2 * pause, _LONGEST_PAUSE_S)


def _disconnect(pools: Sequence[ConnectionPool]) -> None:
    for pool in pools:
        if pool.pid == os.getpid():  # a forked child must not close its parent's connections
            pool.disconnect(inuse_connections=False)


def _connection_options(url: str, more: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Return the arguments for redis-py's pool, from the URL and the options."""
    from redis.backoff import NoBackoff
    from redis.connection import parse_url
    from redis.retry import Retry

    try:
        parts = urlsplit(url)
        _ = parts.port
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        db_path = parts.path if parts.scheme != "unix" else ""
        bad = not _DB_PATH.fullmatch(db_path)  # redis-py would read any other path as database 0
    except (ValueError, AttributeError, TypeError):
        bad = True
    if bad:
        # Not chained: the parser's message may quote part of a password.
        raise InvalidArgumentError(
            "not a Redis URL, which has the form redis://[user:password@]host[:port][/db], rediss://... or unix:///path",
            hint="percent-encode special characters in a password; a database is a number",
        )
    options |= more
    if str(options.pop("decode_responses", False)).lower() not in _FALSE:
        raise InvalidArgumentError("decode_responses is not supported: a store needs the stored bytes as they are")
    one_of("protocol", options.pop("protocol", 2), (2, 3))
    for wait in ("socket_timeout", "socket_connect_timeout"):
        options.setdefault(wait, timeout)
    return {
        **options,
        "max_connections": options.get("max_connections") or 100,
        "protocol": 2,  # protocol 3 adds push messages, which nothing here needs
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
    }


def _place(options: Mapping[str, Any]) -> str:
    """Return the URL of the server and its database, without user, password and options."""
    from redis.connection import SSLConnection

    db = options.get("db", 0)
    if "path" in options:
        return f"unix://{options['path']}" + (f"?db={db}" if db else "")
    kind = options.get("connection_class")
    scheme = "rediss" if isinstance(kind, type) and issubclass(kind, SSLConnection) else "redis"
    host = options.get("host", "localhost")
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}/{db}"
