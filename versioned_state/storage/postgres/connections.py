"""``Connections``, the open connections of one ``Postgres`` store, and what becomes of a call whose connection fails.

A pool of its own: psycopg_pool connects in threads of its own and tells a caller who waits for a connection
only that there is none, not that the password is wrong or the database missing; it also knows nothing of
forks (docs/design/009-postgresql.md). Only ``Postgres`` imports this module, which needs psycopg.
"""

from __future__ import annotations

import os
import random
import re
import select
import time
from collections.abc import Callable, Generator
from itertools import count
from threading import BoundedSemaphore
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from versioned_state.errors import (
    CorruptStoreError,
    InvalidArgumentError,
    LimitExceededError,
    ReadOnlyError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreClosedError,
    StoreNotFoundError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.storage.postgres.schema import MAX_VALUE

T = TypeVar("T")

# An idle connection is not used again after this: firewalls forget silent ones after 5 minutes or so, and a
# write on one that is gone has an outcome that nobody knows.
_MAX_IDLE_S = 240.0

# The waits between attempts grow from the first to the second, each with jitter.
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5

# Two writers in each other's way; the server undid one of them.
_CONFLICTS = {"40001", "40P01"}
# The server ends, is not yet there, or ended a connection that lay idle.
_CLOSED_BY_SERVER = {"57P01", "57P02", "57P03", "57P05", "25P03"}
_STARTING = "57P03"

# The login is refused before there is a code to tell by: the client library passes on the server's text alone.
# In another language than English it counts as a server that cannot be reached, text included.
_REFUSALS = (
    (re.compile(r'database "[^"]*" does not exist|no such database'), "3D000"),
    (
        re.compile(r'authentication failed|no password supplied|no pg_hba\.conf entry|role "[^"]*" does not exist|not permitted to log in'),
        "28000",
    ),
    (re.compile(r"permission denied for database"), "42501"),
    (re.compile(r"starting up|shutting down|in recovery mode|not yet accepting connections"), _STARTING),
    (re.compile(r"too many clients|too many connections|connection slots are reserved|no more connections allowed"), "53300"),
)

# What links of a parent process are put into after a fork, so that nothing closes them here: that would tell the
# server goodbye on the parent's own connection.
_inherited: list[object] = []


class Silence(psycopg.OperationalError):
    """The server said nothing, and took nothing, for the whole timeout."""


class Link(psycopg.Connection[TupleRow]):
    """A connection on which no wait is longer than ``patience`` seconds of silence."""

    patience: float
    home: _Home
    given_back: float

    # Set right before the message that may make a write last. If the connection is lost earlier, it was not done.
    deciding = False

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        return super().wait(_bounded(gen, self.patience), *args, **options)

    def is_usable(self) -> bool:
        """Whether nothing came in while it lay idle: what a server says then is that it closes the connection."""
        if time.monotonic() - self.given_back > _MAX_IDLE_S:
            return False
        idle = select.poll()
        idle.register(self.fileno(), select.POLLIN)
        return not idle.poll(0)


def _bounded(gen: Generator[Any, Any, T], patience: float) -> Generator[Any, Any, T]:
    """``gen``, an exchange with the server, until it has been silent for too long. psycopg resumes it every 0.1 s, ready or not."""
    heard = time.monotonic()
    try:
        waits_for = next(gen)
        while True:
            ready = yield waits_for
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > patience:
                raise Silence(f"no answer for {patience:g} s")
            waits_for = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


class _Home:
    """The connections of one process."""

    def __init__(self, limit: int) -> None:
        self.pid = os.getpid()
        self.places = BoundedSemaphore(limit)
        # list.append and pop are atomic, so giving and taking need no lock. The last one given is the next one taken.
        self.idle: list[Link] = []


class Connections:
    """Hands out connections to ``url``, at most ``limit`` at once in each process, and repeats what may be repeated.

    ``timeout``, in seconds, bounds each of: the wait for a free connection, for one to open (at least 2 s), for
    the server's next sign of life, and the time in which attempts are repeated.

    A fork is safe: the child opens connections of its own and leaves those of its parent alone.
    """

    def __init__(self, url: str, *, timeout: float, limit: int) -> None:
        options = _parse(url)
        shown = {name: str(options[name]) for name in ("user", "host", "port", "dbname") if options.get(name)}
        self.name = _name(**shown)
        self.timeout = timeout
        options.setdefault("connect_timeout", max(1, round(timeout)))
        options.setdefault("fallback_application_name", "versioned-state")
        self._options = options
        self._limit = limit
        self._home = _Home(limit)
        self._closed = False

    def read(self, work: Callable[[Link], T]) -> T:
        """What ``work`` returns, which reads: it is done again on a new connection as long as the server goes away."""
        return self._repeat(work, repeatable=True)

    def write(self, work: Callable[[Link], T], *, repeatable: bool) -> T:
        """What ``work`` returns, which writes in one transaction and sets ``deciding`` on its connection before it commits.

        It is done again where it surely was not done, or is ``repeatable``: where to do it twice is as good as once.
        """
        return self._repeat(work, repeatable=repeatable)

    def once(self, work: Callable[[Link], T]) -> T:
        """What ``work`` returns; a server that is not there is not waited for, unless it is starting at this moment."""
        return self._repeat(work, repeatable=True, patient=False)

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` after ``close()``."""
        if self._closed:
            raise StoreClosedError("the store is closed")

    def close(self) -> None:
        """Close what is idle now, and what is in use as it comes back. Idempotent."""
        self._closed = True
        self._close_idle(self._home)

    def _repeat(self, work: Callable[[Link], T], *, repeatable: bool, patient: bool = True) -> T:
        give_up = time.monotonic() + self.timeout
        pause = _FIRST_PAUSE_S
        for attempt in count(1):
            link = None
            try:
                link = self._take()
                return work(link)
            except psycopg.Error as error:
                failure, transient = self._judge(error, link, repeatable=repeatable, patient=patient)
                # After silence on a connection there is one more: that used up the time, and may be all that is wrong.
                once_more = attempt == 1 and link is not None
                if not transient or (time.monotonic() + pause > give_up and not once_more):
                    raise failure from error
            finally:
                if link is not None:
                    self._give(link)
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that writers which met part; no secret
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise AssertionError  # count() has no end

    def _judge(self, error: psycopg.Error, link: Link | None, *, repeatable: bool, patient: bool) -> tuple[StateError, bool]:
        """What to raise for ``error``, and whether another attempt may do."""
        code = _code(error)
        lost = link is None or link.closed or isinstance(error, Silence) or code in _CLOSED_BY_SERVER or code.startswith("08")
        if lost and link is not None and link.deciding and not repeatable:
            # Even with a farewell from the server: it may come after the commit.
            message = f"{self.name}: the connection failed during a write, which was done as a whole or not at all: {_text(error)}"
            return UnknownOutcomeError(message, hint="read what was written, then decide whether to repeat it"), False
        remains = "objects may have been stored" if lost and link is not None and link.deciding else "nothing was written"
        failure = _translate(code, f"{self.name}: {_text(error)}", remains, lost=lost)
        if code in _CONFLICTS or code == _STARTING:
            return failure, True
        return failure, patient and (isinstance(failure, UnreachableStoreError) or code == "53300")

    def _take(self) -> Link:
        self.check_open()
        home = self._home
        if home.pid != os.getpid():
            _inherited.append(home)
            home = self._home = _Home(self._limit)
        if not home.places.acquire(timeout=self.timeout):
            raise StoreBusyError(f"{self.name}: all {self._limit} connections are in use", remains="nothing was written")
        try:
            link = self._idle_or_new(home)
        except BaseException:
            home.places.release()
            raise
        link.deciding = False
        return link

    def _idle_or_new(self, home: _Home) -> Link:
        while home.idle:
            try:
                link = home.idle.pop()
            except IndexError:
                break
            if link.is_usable():
                return link
            link.close()
        # No prepared statements: PgBouncer before 1.21 loses them between transactions, and they save 12 us of 87.
        link = Link.connect(autocommit=True, prepare_threshold=None, **self._options)
        link.patience = self.timeout
        link.home = home
        return link

    def _give(self, link: Link) -> None:
        home = link.home
        if home.pid != os.getpid():
            _inherited.append(link)
            return
        # Anything but idle is in the middle of something: closing it makes the server roll that back.
        if link.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            link.given_back = time.monotonic()
            home.idle.append(link)
        else:
            link.close()
        home.places.release()
        if self._closed:
            self._close_idle(home)

    def _close_idle(self, home: _Home) -> None:
        if home.pid != os.getpid():
            _inherited.append(home)
            return
        while True:
            try:
                link = home.idle.pop()
            except IndexError:
                return
            link.close()


def _parse(url: str) -> dict[str, Any]:
    """The driver's options in a URL. ``InvalidArgumentError`` if a password may stand where it would be shown."""
    place = url.partition("//")[2].partition("?")[0]
    authority, _, path = place.partition("/")
    try:
        options: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        options = {}  # the driver's message quotes the part that it does not understand, which may be the password
    # libpq ends a password at the first @ or /, and takes the rest for hosts, ports and a database.
    ports = str(options.get("port") or "").split(",")
    if not options or authority.count("@") > 1 or "@" in path or not all(port.isdecimal() or not port for port in ports):
        raise InvalidArgumentError(
            "this is not a URL for PostgreSQL that can be read; it is not shown, as it may hold a password",
            hint="postgresql://USER@HOST:PORT/DATABASE; in a password, write %40 for @, %2F for /, %25 for %, and so on",
        )
    return options


def _translate(code: str, what: str, remains: str, *, lost: bool) -> StateError:
    """An error of the driver as one of ours."""
    if code in {"53300", "40001", "40P01", "55P03", "57014"}:
        # Too many connections, writers in each other's way, a lock that was not free in time, a statement cut short.
        return StoreBusyError(what, remains=remains)
    if code == "53100":
        return StorageFullError(what, remains=remains)
    if code == "25006":
        return ReadOnlyError(what, remains=remains, hint="this is a replica, or the role's transactions are read-only by default")
    if code == "42501":
        return StorageError(what, remains=remains, hint="docs/operations.md lists the rights that a role needs")
    if code == "3D000":
        return StoreNotFoundError(what, remains=remains, hint="create the database first: createdb NAME")
    if code in {"3F000", "42P01", "42883"}:
        return StoreNotFoundError(what, remains=remains, hint="the store's tables were there when it was opened, and are gone")
    if code in {"28000", "28P01"}:
        return StorageError(what, remains=remains, hint="check user and password, and the server's pg_hba.conf")
    if code == "54000":
        return LimitExceededError(what, limit=MAX_VALUE)
    if code in {"XX001", "XX002"}:
        return CorruptStoreError(what, remains=remains, hint="restore it from a backup or another copy")
    if lost:
        return UnreachableStoreError(what, remains=remains)
    return StorageError(what, remains=remains)


def _code(error: psycopg.Error) -> str:
    """The SQLSTATE of an error, or the empty string if there is none."""
    if error.sqlstate:
        return error.sqlstate
    text = str(error)
    return next((code for pattern, code in _REFUSALS if pattern.search(text)), "")


def _text(error: psycopg.Error) -> str:
    """One line of what the driver says; it never holds a password, but what a server adds below may hold values."""
    return error.diag.message_primary or str(error).strip().partition("\n")[0] or type(error).__name__


def _name(user: str = "", host: str = "", port: str = "", dbname: str = "") -> str:
    """The URL without its password."""
    return f"postgresql://{user}{'@' if user else ''}{host}{':' if port else ''}{port}{'/' if dbname else ''}{dbname}"
