"""``Link``, the way to one Redis server: connections, what is sent again after a failure and what is not, and errors in our words.

Commands go out in batches, one round trip each. redis-py does the connecting and the protocol; its own retries are off, because
it cannot know which of our batches may be sent twice.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import finalize

from versioned_state.errors import InvalidArgumentError, MissingDependencyError, StorageError, StoreClosedError
from versioned_state.storage.redis.errors import PASSING, code, no_connection, refusal, unknown_outcome

if TYPE_CHECKING:
    from redis.connection import ConnectionPool

Command = Sequence[bytes | str | int]

# Sockets count in C's types. This is eleven days.
_LONGEST_TIMEOUT_S = 1_000_000.0

_DB_PATH = re.compile(r"/?|/[0-9]+/?")
_FALSE = ("", "0", "f", "false", "n", "no")

# A pause is drawn from twice the range of the one before, up to this: writers that were cut off together come back apart.
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


class _AgainError(Exception):
    """The batch was surely not done, and may be sent again; ``error`` is for the caller if there is no time left for that."""

    def __init__(self, error: StorageError, cause: Exception, *, connecting: bool = False, at_once: bool = False) -> None:
        super().__init__(error)
        self.error, self.cause, self.connecting, self.at_once = error, cause, connecting, at_once


class _ScriptUnknownError(Exception):
    """The server does not know a script that the batch runs, and so did nothing of it."""


class Link:
    """Connections to the server at ``url``, for any number of threads, and for forked children.

    ``options`` are further ones of redis-py's connections. ``scripts`` are loaded where the server does not know them.
    ``timeout``: seconds to wait for an answer; after that long nothing is sent again either.
    """

    def __init__(self, url: str, *, timeout: float, options: Mapping[str, Any], scripts: Sequence[str]) -> None:
        try:
            import redis
        except ImportError as error:
            raise MissingDependencyError("Redis", extra="redis") from error
        self._redis = redis.exceptions
        if not timeout > 0:
            raise InvalidArgumentError(f"timeout must be more than 0: {timeout}")
        self.timeout = min(timeout, _LONGEST_TIMEOUT_S)
        self._options = _connection_options(url, options, self.timeout)
        self._scripts: list[Command] = [("SCRIPT", "LOAD", script) for script in scripts]
        self.place = _place(self._options)
        # The pool of one process, to one address. A fork may happen while another thread holds the pool's lock, so a child
        # takes none of what it inherited. Each of the three is replaced as a whole, never changed.
        self._home: tuple[int, tuple[str, int] | None, ConnectionPool] | None = None
        self._route: tuple[str, int] | None = None
        self._closed = False
        self._pools: list[ConnectionPool] = []
        # A store that is forgotten is closed when it is collected, or at exit.
        self._finalizer = finalize(self, _disconnect, self._pools)

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` after ``close()``."""
        if self._closed:
            raise StoreClosedError("the store is closed")

    def close(self) -> None:
        """Close what is idle now, and what is in use as it comes back. Idempotent."""
        self._closed = True
        _disconnect(self._pools)

    def run(self, commands: Sequence[Command], *, repeatable: bool = True, done: int | None = None, patient: bool = True) -> list[Any]:
        """The replies to ``commands``, sent in one batch and answered in their order; the first that is an error is raised.

        What surely did not take effect is sent again, with pauses, until ``timeout`` is over, and so is a ``repeatable`` batch: one
        that may take effect more than once. Of any other a lost reply raises ``UnknownOutcomeError``; all but its last command must
        be repeatable all the same, and a last reply of ``done`` says that all is well, whatever was said before. Where a server
        cannot be reached at all, only the ``patient`` wait.
        """
        deadline = time.monotonic() + self.timeout
        pause = _FIRST_PAUSE_S
        loads: list[Command] = []
        while True:
            self.check_open()
            try:
                return self._attempt([*loads, *commands], repeatable=repeatable, done=done)[len(loads) :]
            except _ScriptUnknownError:
                # The server was restarted, or is another one since a failover.
                if loads:
                    raise StorageError(f"{self.place} does not keep the scripts that it is given", remains="nothing was written") from None
                loads = self._scripts
            except _AgainError as again:
                wait = 0.0 if again.at_once and pause == _FIRST_PAUSE_S else random.uniform(pause / 2, pause)  # noqa: S311 - no secret
                if time.monotonic() + wait > deadline or (again.connecting and not patient):
                    raise again.error from again.cause
                time.sleep(wait)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _attempt(self, commands: Sequence[Command], *, repeatable: bool, done: int | None) -> list[Any]:
        pool = self._pool()
        connection = self._connect(pool)
        replies: list[Any] = []
        try:
            self._exchange(connection, commands, replies)
        except (self._redis.BusyLoadingError, self._redis.AuthenticationError) as error:
            # An answer, although redis-py takes it for a loss of the connection. What came after it was not read.
            if repeatable or len(replies) == len(commands) - 1:
                raise self._refused(error, pool) from error
            raise unknown_outcome(error, self.place) from error
        except (self._redis.ConnectionError, self._redis.TimeoutError, self._redis.InvalidResponse) as error:
            if repeatable:
                raise _AgainError(no_connection(error, self.place), error) from error
            raise unknown_outcome(error, self.place) from error
        finally:
            if len(replies) < len(commands):
                connection.disconnect()
            pool.release(connection)
            if self._closed:  # only now that it is given back: close() ended the idle ones, perhaps a moment before
                pool.disconnect(inuse_connections=False)
        if done is None or replies[-1] != done:
            for reply in replies:
                if isinstance(reply, self._redis.ResponseError):
                    raise self._refused(reply, pool) from reply
        return replies

    def _connect(self, pool: ConnectionPool) -> Any:
        try:
            return pool.get_connection()
        except Exception as error:
            # The server that a Cluster sent us to may be gone; the one that we were given knows where its data is now.
            self._route = None
            lost = isinstance(error, (self._redis.ConnectionError, self._redis.TimeoutError))
            if lost and not isinstance(error, self._redis.AuthenticationError):
                raise _AgainError(no_connection(error, self.place), error, connecting=True) from error
            if isinstance(error, self._redis.InvalidResponse):
                raise no_connection(error, self.place) from error
            raise refusal(error, self.place) from error

    def _exchange(self, connection: Any, commands: Sequence[Command], replies: list[Any]) -> None:
        try:
            connection.send_packed_command(connection.pack_commands(commands))
        except (self._redis.ConnectionError, self._redis.TimeoutError) as error:
            # The end of the last command was not handed over, so the server cannot have run that one.
            raise _AgainError(no_connection(error, self.place), error) from error
        while len(replies) < len(commands):
            try:
                replies.append(connection.read_response())
            except self._redis.ResponseError as error:
                replies.append(error)

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
        """What to raise for an error that the server answered a command with. It did nothing of that command."""
        word = code(error)
        if word == "NOSCRIPT" or isinstance(error, self._redis.NoScriptError):
            return _ScriptUnknownError()
        if word == "MOVED":
            # The way of a Redis Cluster to say that another of its servers has the keys, all of which are in one slot.
            self._route = (error.host or self._options.get("host", "localhost"), int(error.port))
        elif word == "READONLY":
            # A primary that was demoted. A new connection may lead to the one that took its place.
            self._route = None
            pool.disconnect(inuse_connections=False)
        translated = refusal(error, self.place)
        if word in PASSING and isinstance(translated, StorageError):
            return _AgainError(translated, error, at_once=word == "MOVED")
        return translated


def _disconnect(pools: Sequence[ConnectionPool]) -> None:
    for pool in pools:
        if pool.pid == os.getpid():  # a child leaves what it inherited alone
            pool.disconnect(inuse_connections=False)


def _connection_options(url: str, more: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """What redis-py's pool is made with, out of the URL's parts and options."""
    from redis.backoff import NoBackoff
    from redis.connection import parse_url
    from redis.retry import Retry

    try:
        parts = urlsplit(url)
        _ = parts.port
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        db_path = parts.path if parts.scheme != "unix" else ""
        bad = not _DB_PATH.fullmatch(db_path)  # redis-py would take what is no number for database 0
    except (ValueError, AttributeError, TypeError):
        bad = True
    if bad:
        # Not chained: the parser's message may quote a piece of a password.
        raise InvalidArgumentError(
            "not a URL of Redis: it has the form redis://[user:password@]host[:port][/db], rediss://... or unix:///path",
            hint="percent-encode what is special in a password; a database is a number",
        )
    options |= more
    if str(options.pop("decode_responses", False)).lower() not in _FALSE:
        raise InvalidArgumentError("decode_responses would turn stored bytes into text; a store needs them as they are")
    if options.pop("protocol", 2) not in (2, 3):
        raise InvalidArgumentError("protocol must be 2 or 3")
    for wait in ("socket_timeout", "socket_connect_timeout"):
        options.setdefault(wait, timeout)
    return {
        **options,
        "max_connections": options.get("max_connections") or 100,
        "protocol": 2,  # has all that is needed, and no messages that nobody asked for
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
    }


def _place(options: Mapping[str, Any]) -> str:
    """The server and its database as a URL, without user, password and options."""
    from redis.connection import SSLConnection

    db = options.get("db", 0)
    if "path" in options:
        return f"unix://{options['path']}" + (f"?db={db}" if db else "")
    kind = options.get("connection_class")
    scheme = "rediss" if isinstance(kind, type) and issubclass(kind, SSLConnection) else "redis"
    host = options.get("host", "localhost")
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}/{db}"
