"""``Connections``: the connection pool of one ``Postgres`` store, its retries, and the translation of errors.

Layer: storage.

psycopg_pool does not fit: it connects in background threads, so a caller finds out only that there is no connection,
not that the password is wrong or the database missing; and it is not safe across forks (docs/design/009-postgresql.md).
Only ``Postgres`` imports this module, which needs psycopg.
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
from typing import Any, Final, TypeVar

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format
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
from versioned_state.storage.postgres.byte_array import MAX_VALUE, ByteArray

T = TypeVar("T")
# A connection that was idle for longer is not used again: firewalls drop silent ones after about 5 minutes, and the
# outcome of a write on a dropped connection is unknown.
_MAX_IDLE_S = 240.0

# The pauses between attempts double from the first to the longest, each with jitter.
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5

# Two writers conflicted; the server rolled one of them back.
_CONFLICTS = {"40001", "40P01"}
# The server is stopping or starting, or ended an idle connection.
_CLOSED_BY_SERVER = {"57P01", "57P02", "57P03", "57P05", "25P03"}
_STARTING = "57P03"

# A refused login has no SQLSTATE: the client library passes on the server's text alone. If that text is not in English,
# the error is an UnreachableStoreError that quotes it.
_REFUSALS = (
    (re.compile(r'database "[^"]*" does not exist|no such database'), "3D000"),
    (
        re.compile(
            r"authentication failed|no password supplied|no pg_hba\.conf entry"
            r'|role "[^"]*" does not exist|not permitted to log in'
        ),
        "28000",
    ),
    (re.compile(r"permission denied for database"), "42501"),
    (re.compile(r"starting up|shutting down|in recovery mode|not yet accepting connections"), _STARTING),
    (
        re.compile(r"too many clients|too many connections|connection slots are reserved|no more connections allowed"),
        "53300",
    ),
)

# Keeps the parent's links alive after a fork: closing one in the child would end the parent's session on the server.
_inherited: list[object] = []


class Silence(psycopg.OperationalError):
    """The server sent nothing and accepted nothing for the whole timeout."""


class Link(psycopg.Connection[TupleRow]):
    """A connection that waits at most ``patience`` seconds for a silent server."""

    patience: float
    home: _ProcessLinks
    given_back: float

    # Set right before the message that may commit. If the connection is lost earlier, nothing was committed.
    deciding = False

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        return super().wait(_bounded(gen, self.patience), *args, **options)

    def is_usable(self) -> bool:
        """Return whether nothing arrived while the connection was idle.

        A server that sends something then has closed it.
        """
        if time.monotonic() - self.given_back > _MAX_IDLE_S:
            return False
        idle = select.poll()
        idle.register(self.fileno(), select.POLLIN)
        return not idle.poll(0)


def _bounded(gen: Generator[Any, Any, T], patience: float) -> Generator[Any, Any, T]:
    """Run ``gen``, an exchange with the server, and raise ``Silence`` after ``patience`` seconds.

    psycopg resumes it every 0.1 s, ready or not.
    """
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


class _ByteArrayDumper(Dumper):
    oid = 1001  # bytea[]
    format = Format.BINARY

    def dump(self, obj: ByteArray) -> bytes:
        return obj.binary()


class _ProcessLinks:
    """The connections of one process."""

    def __init__(self, limit: int) -> None:
        self.pid: Final = os.getpid()
        self.places: Final = BoundedSemaphore(limit)
        # list.append and pop are atomic, so no lock is needed. The link that was given back last is taken first.
        self.idle: list[Link] = []


class Connections:
    """Connections to ``url``, at most ``limit`` at once in each process, and retries of calls that may be retried.

    ``timeout``, in seconds, bounds each of these: the wait for a free connection, for a new one (at least 2 s), for the
    server's next message, and the time for retries.

    A fork is safe: the child opens connections of its own and leaves those of its parent alone.
    """

    def __init__(self, url: str, *, timeout: float, limit: int) -> None:
        options = _parse(url)
        shown = {name: str(options[name]) for name in ("user", "host", "port", "dbname") if options.get(name)}
        self.name: Final = _name(**shown)
        self.timeout = timeout
        options.setdefault("connect_timeout", max(1, round(timeout)))
        options.setdefault("fallback_application_name", "versioned-state")
        self._options = options
        self._limit = limit
        self._home = _ProcessLinks(limit)
        self._closed = False

    def read(self, work: Callable[[Link], T]) -> T:
        """Return the result of ``work``, which reads.

        If the connection is lost, ``work`` is called again on a new one.
        """
        return self._repeat(work, repeatable=True)

    def write(self, work: Callable[[Link], T], *, repeatable: bool) -> T:
        """Return the result of ``work``, which writes in one transaction.

        ``work`` sets ``deciding`` on its connection before it commits. It is called again if its transaction was not
        committed, or if it is ``repeatable``: if doing it twice is as good as once.
        """
        return self._repeat(work, repeatable=repeatable)

    def once(self, work: Callable[[Link], T]) -> T:
        """Return the result of ``work``. A server that cannot be reached is not waited for, unless it is starting."""
        return self._repeat(work, repeatable=True, patient=False)

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` after ``close()``."""
        if self._closed:
            raise StoreClosedError

    def close(self) -> None:
        """Close idle connections now, and each connection in use when it is given back. Idempotent."""
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
                # One more attempt after silence, which used up the time: perhaps only that connection was dead.
                once_more = attempt == 1 and link is not None
                if not transient or (time.monotonic() + pause > give_up and not once_more):
                    raise failure from error
            finally:
                if link is not None:
                    self._give(link)
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that writers that met spread out; not a secret
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise AssertionError  # count() has no end

    def _judge(
        self, error: psycopg.Error, link: Link | None, *, repeatable: bool, patient: bool
    ) -> tuple[StateError, bool]:
        """Return the exception for ``error``, and whether another attempt may succeed."""
        code = _code(error)
        lost = (
            link is None
            or link.closed
            or isinstance(error, Silence)
            or code in _CLOSED_BY_SERVER
            or code.startswith("08")
        )
        if lost and link is not None and link.deciding and not repeatable:
            # Even if the server announced the end of the connection: the commit may have come before.
            message = (
                f"{self.name}: the connection failed during a write, "
                f"which was done as a whole or not at all: {_text(error)}"
            )
            return UnknownOutcomeError(message, hint="read what was written, then decide whether to repeat it"), False
        remains = (
            "objects may have been stored" if lost and link is not None and link.deciding else "nothing was written"
        )
        failure = _translate(code, f"{self.name}: {_text(error)}", remains, lost=lost)
        if code in _CONFLICTS or code == _STARTING:
            return failure, True
        return failure, patient and (isinstance(failure, UnreachableStoreError) or code == "53300")

    def _take(self) -> Link:
        self.check_open()
        home = self._home
        if home.pid != os.getpid():
            _inherited.append(home)
            home = self._home = _ProcessLinks(self._limit)
        if not home.places.acquire(timeout=self.timeout):
            raise StoreBusyError(f"{self.name}: all {self._limit} connections are in use")
        try:
            link = self._idle_or_new(home)
        except BaseException:
            home.places.release()
            raise
        link.deciding = False
        return link

    def _idle_or_new(self, home: _ProcessLinks) -> Link:
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
        link.adapters.register_dumper(ByteArray, _ByteArrayDumper)
        link.patience = self.timeout
        link.home = home
        return link

    def _give(self, link: Link) -> None:
        home = link.home
        if home.pid != os.getpid():
            _inherited.append(link)
            return
        # A link that is not idle is within a transaction: closing it makes the server roll back.
        if link.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            link.given_back = time.monotonic()
            home.idle.append(link)
            self._close_unused(home, link.given_back)
        else:
            link.close()
        home.places.release()
        if self._closed:
            self._close_idle(home)

    def _close_unused(self, home: _ProcessLinks, now: float) -> None:
        """Close the connection that has been idle for longest, if that is too long: the last ones are taken first."""
        try:
            if now - home.idle[0].given_back <= _MAX_IDLE_S:
                return
            link = home.idle.pop(0)
        except IndexError:  # another thread has taken it meanwhile
            return
        if now - link.given_back > _MAX_IDLE_S:
            link.close()
        else:
            home.idle.append(link)

    def _close_idle(self, home: _ProcessLinks) -> None:
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
    """Return the driver's options in a URL.

    ``InvalidArgumentError`` for a URL whose password may be read as another part, and shown.
    """
    place = url.partition("//")[2].partition("?")[0]
    authority, _, path = place.partition("/")
    try:
        options: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        options = {}  # the driver's message quotes the part that it cannot parse, which may be the password
    # libpq ends a password at the first @ or /, and reads the rest as hosts, ports and a database.
    ports = str(options.get("port") or "").split(",")
    if (
        not options
        or authority.count("@") > 1
        or "@" in path
        or not all(port.isdecimal() or not port for port in ports)
    ):
        raise InvalidArgumentError(
            "malformed URL for PostgreSQL; it is not shown, because it may contain a password",
            hint="postgresql://USER@HOST:PORT/DATABASE; "
            "in a password, write %40 for @, %2F for /, %25 for %, and so on",
        )
    return options


def _translate(code: str, what: str, remains: str, *, lost: bool) -> StateError:
    """Return the library's error for an SQLSTATE."""
    if code in {"53300", "40001", "40P01", "55P03", "57014"}:
        # Too many connections, a conflict of two writers, a lock that was not free in time, a cancelled statement.
        return StoreBusyError(what, remains=remains)
    if code == "53100":
        return StorageFullError(what, remains=remains)
    if code == "25006":
        return ReadOnlyError(
            what, remains=remains, hint="this is a replica, or the role's transactions are read-only by default"
        )
    if code == "42501":
        return StorageError(what, remains=remains, hint="docs/operations.md lists the rights that a role needs")
    if code == "3D000":
        return StoreNotFoundError(what, remains=remains, hint="create the database first: createdb NAME")
    if code in {"3F000", "42P01", "42883"}:
        return StoreNotFoundError(what, remains=remains, hint="the store's tables were deleted after it was opened")
    if code in {"28000", "28P01"}:
        return StorageError(what, remains=remains, hint="check the user, the password and the server's pg_hba.conf")
    if code == "54000":
        return LimitExceededError(what, limit=MAX_VALUE)
    if code in {"XX001", "XX002"}:
        return CorruptStoreError(what, remains=remains, hint="restore it from a backup or another copy")
    if lost:
        return UnreachableStoreError(what, remains=remains)
    return StorageError(what, remains=remains)


def _code(error: psycopg.Error) -> str:
    """Return the SQLSTATE of an error, or the empty string if there is none."""
    if error.sqlstate:
        return error.sqlstate
    text = str(error)
    return next((code for pattern, code in _REFUSALS if pattern.search(text)), "")


def _text(error: psycopg.Error) -> str:
    """Return the first line of the driver's message.

    It never contains a password. The lines after it may contain values.
    """
    return error.diag.message_primary or str(error).strip().partition("\n")[0] or type(error).__name__


def _name(user: str = "", host: str = "", port: str = "", dbname: str = "") -> str:
    """Return the URL, without a password."""
    return f"postgresql://{user}{'@' if user else ''}{host}{':' if port else ''}{port}{'/' if dbname else ''}{dbname}"
