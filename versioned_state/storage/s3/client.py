"""``Client``: requests to S3 through obstore, with bounded retries and translated errors. Layer: storage.

A request is sent again, with the same bytes and condition, until the server gives a final answer. That is safe for
reads, for removals, and for conditional writes whose body identifies its writer (if one is refused, ``Cells`` finds out
whose write is stored). The driver's own retries are off, because they hide that a request was sent twice.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from versioned_state.errors import (
    InvalidArgumentError,
    MissingDependencyError,
    ReadOnlyError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreNotFoundError,
    UnknownOutcomeError,
    UnreachableStoreError,
    UnsafeStoreError,
)

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import ClientConfig, S3Config

T = TypeVar("T")

# The most names that S3 returns in one page of a listing.
PAGE: Final = 1000

FORK_HINT: Final = 'start processes that use S3 with the start method "spawn" or "forkserver"'

_driver_pid: int | None = None

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")


class Outcome(Enum):
    """The reason why a request failed, with the text of the error as its value."""

    REFUSED = "its condition does not hold"
    CONFLICT = "another write of the same key was under way"
    MISSING = "the key does not exist"
    NO_BUCKET = "the bucket does not exist"
    DENIED = "the credentials do not permit this"
    FULL = "there is no room"
    INVALID = "the server rejects the request"
    BUSY = "the server answers that clients must slow down"
    NOT_SENT = "the server cannot be reached"
    LOST = "the server did not answer"


_BY_CODE: Final = {
    "NoSuchBucket": Outcome.NO_BUCKET,
    "SlowDown": Outcome.BUSY,
    "RequestTimeout": Outcome.LOST,
    **dict.fromkeys(("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"), Outcome.FULL),
}
_BY_STATUS: Final = {
    304: Outcome.REFUSED,
    401: Outcome.DENIED,
    403: Outcome.DENIED,
    404: Outcome.MISSING,
    408: Outcome.LOST,
    409: Outcome.CONFLICT,
    412: Outcome.REFUSED,
    429: Outcome.BUSY,
    501: Outcome.INVALID,
    507: Outcome.FULL,
}

# Final answers: the same request would get the same answer again.
_FINAL: Final = frozenset(
    (Outcome.NO_BUCKET, Outcome.DENIED, Outcome.FULL, Outcome.INVALID, Outcome.MISSING, Outcome.REFUSED)
)


@dataclass(frozen=True, slots=True)
class Found:
    """A stored S3 object."""

    etag: str
    body: bytes


class Put(NamedTuple):
    """The result of a conditional write: the new ETag, or None if it was refused.

    ``lost``: an earlier sending was not answered, so the write may have been refused because of itself.
    """

    etag: str | None
    lost: bool


class Listed(NamedTuple):
    """One entry of a listing. The name is relative to the store's prefix."""

    name: str
    size: int


class Client:
    """One bucket and prefix. Safe for threads, but not for a forked child."""

    def __init__(self, bucket: str, prefix: str, *, timeout: float, options: dict[str, Any]) -> None:
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import S3Store
        except ImportError as error:
            raise MissingDependencyError("S3", extra="s3") from error
        _check_fork()
        self._driver = obstore
        self._failures = (exceptions.BaseError, FileNotFoundError)
        self._timeout = timeout
        self._prefix = f"{prefix}/" if prefix else ""
        self.place: Final = f"s3://{bucket}/{prefix}"
        check_options(options)
        provider = options.pop("credential_provider", None)
        # A request that hangs leaves time for two more, which find out whether it was done.
        limits: dict[str, Any] = {
            "timeout": f"{timeout / 3 * 1000:.0f}ms",
            "connect_timeout": f"{min(5.0, timeout / 3) * 1000:.0f}ms",
        }
        if str(options.get("endpoint", "")).startswith("http://"):
            limits["allow_http"] = "true"
        # Limits in config= leave the environment's settings in force; client_options= replaces both.
        client = options.pop("client_options", None)
        try:
            self._store = S3Store(
                bucket,
                # Every server supports single DELETE requests.
                config=cast("S3Config", {"disable_bulk_delete": "true", **({} if client else limits), **options}),
                client_options=cast("ClientConfig", {**limits, "allow_http": "allow_http" in limits, **client})
                if client
                else None,
                retry_config={"max_retries": 0},
                credential_provider=provider,
            )
        except (*self._failures, ValueError, TypeError) as error:
            # The driver's message may repeat an option, and with it a secret.
            told = not any(
                isinstance(value, str) and len(value) > 3 and value in str(error) for value in options.values()
            )
            reason = str(error).partition("\n")[0] if told else f"one of {', '.join(sorted(options))}"
            raise InvalidArgumentError(f"{self.place}: the driver rejects its options: {reason}") from (
                error if told else None
            )

    def get(self, name: str) -> Found | None:
        """Return one object, or None if there is none."""

        def read() -> Found:
            answer = self._driver.get(self._store, self._prefix + name)
            return Found(self._etag(answer.meta["e_tag"]), bytes(answer.bytes()))

        found, _ = self._send(read, refusals=(Outcome.MISSING,))
        return found

    def put(self, name: str, body: bytes, *, etag: str | None) -> Put:
        """Replace the object that has this ETag, or with None create it.

        The write is refused if another object is stored.

        An update whose object is missing counts as refused too.
        """
        mode: PutMode = "create" if etag is None else {"e_tag": etag}

        def write() -> str:
            answer = self._driver.put(self._store, self._prefix + name, body, mode=mode, use_multipart=False)
            return self._etag(answer["e_tag"])

        return Put(*self._send(write, refusals=(Outcome.REFUSED, Outcome.MISSING), writes=True))

    def remove(self, name: str) -> None:
        """Remove an object without a condition. Only for objects that are never replaced."""
        self._send(lambda: self._driver.delete(self._store, self._prefix + name), refusals=(Outcome.MISSING,))

    def page(self, folder: str, after: str) -> list[Listed]:
        """Return the next objects of a folder, by name: ``PAGE`` of them, or fewer on the last page."""
        start = self._prefix + after if after else None

        def read() -> list[Listed]:
            pages = self._driver.list(self._store, self._prefix + folder, offset=start, chunk_size=PAGE)
            return [Listed(found["path"][len(self._prefix) :], found["size"]) for found in next(pages, ())]

        found, _ = self._send(read)
        return found or []

    def _send(
        self, request: Callable[[], T], *, refusals: tuple[Outcome, ...] = (), writes: bool = False
    ) -> tuple[T | None, bool]:
        """Send a request until the answer is final.

        Returns its result (None: refused), and whether a sending was not answered.
        """
        start = time.monotonic()
        lost = False
        attempt = 0
        while True:
            try:
                return request(), lost
            except self._failures as error:
                outcome, detail = _outcome(error)
                if outcome in refusals:
                    return None, lost
                lost = lost or outcome is Outcome.LOST
                waited = time.monotonic() - start
                # An address where nothing listens is more often wrong than about to be served, so it is tried for less
                # long.
                if outcome in _FINAL or waited > (self._timeout / 3 if outcome is Outcome.NOT_SENT else self._timeout):
                    raise self._error(outcome, detail, writes=writes, lost=lost) from error
            if attempt or outcome is not Outcome.LOST:
                pause(attempt)
            attempt += 1

    def _etag(self, etag: str | None) -> str:
        if not etag:
            raise UnsafeStoreError(f"{self.place}: the server returns no ETags, which conditional writes need")
        return etag

    def _error(self, outcome: Outcome, detail: str, *, writes: bool, lost: bool) -> StateError:
        what = f"{self.place}: {outcome.value}{f' ({detail})' if detail else ''}"
        if writes and lost:
            return UnknownOutcomeError(what, remains="it is not known whether the write was done")
        remains = "nothing was written" if writes else ""
        if outcome is Outcome.NO_BUCKET:
            return StoreNotFoundError(
                what, remains=remains, hint="create the bucket first; this library does not create it"
            )
        if outcome is Outcome.FULL:
            return StorageFullError(what, remains=remains)
        if outcome is Outcome.BUSY or outcome is Outcome.CONFLICT:
            return StoreBusyError(what, remains=remains)
        if outcome is Outcome.DENIED and writes and "AccessDenied" in detail:
            return ReadOnlyError(
                what,
                remains=remains,
                hint="a writer needs s3:PutObject, s3:GetObject, s3:ListBucket and s3:DeleteObject",
            )
        if outcome is Outcome.DENIED:
            return StorageError(what, hint="check the credentials; a reader needs s3:GetObject and s3:ListBucket")
        if outcome is Outcome.NOT_SENT or outcome is Outcome.LOST:
            return UnreachableStoreError(what, remains=remains, hint="check endpoint= and the network")
        return StorageError(what, remains=remains, hint="check region= and endpoint=")


def _check_fork() -> None:
    """Raise ``StorageError`` in a forked child of a process that used the driver.

    The driver's threads are gone there, and a request would hang.
    """
    global _driver_pid  # noqa: PLW0603 - the driver's threads belong to the process too
    if _driver_pid is None:
        _driver_pid = os.getpid()
    if _driver_pid != os.getpid():
        raise StorageError(
            "this process was forked from one that used S3; the S3 driver does not work after a fork", hint=FORK_HINT
        )


def pause(attempt: int) -> None:
    """Wait before another attempt: for a random time, so that writers spread, from a range that grows to 2 s."""
    time.sleep(random.uniform(0, min(2.0, 0.02 * 2 ** min(attempt, 10))))  # noqa: S311 - spreading, not secrecy


def check_options(options: dict[str, Any]) -> None:
    """Raise ``InvalidArgumentError`` for options that make the driver panic, or that a message must not show."""
    for name, value in options.items():
        if isinstance(value, str) and not value.isprintable():
            raise InvalidArgumentError(
                f"option {name} contains a control character, perhaps the end of the line that it was read from"
            )
    endpoint = options.get("endpoint")
    if endpoint is not None:
        url = urlsplit(endpoint) if isinstance(endpoint, str) else None
        if url is None or url.scheme not in ("http", "https") or "@" in url.netloc:
            raise InvalidArgumentError(
                "endpoint must be a URL without a user name or password, such as https://s3.example.org"
            )


def _outcome(error: Exception) -> tuple[Outcome, str]:
    """Return the outcome behind an error of the driver, and the server's name for it.

    An unknown error counts as lost, the worst case.

    The driver's types tell neither a conflict (409) from a refusal (412) nor a missing bucket from a missing key. Its
    message, which quotes the server, does.
    """
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    number = int(status[1]) if status else 0
    name = code[1] if code else ""
    if "169.254.169.254" in text or "/latest/api/token" in text:
        # Without credentials the driver requests the role of the machine.
        return Outcome.DENIED, "no credentials were found"
    if "kind: Builder" in text:
        return Outcome.INVALID, "an endpoint without TLS requires http:// in endpoint=, or AWS_ALLOW_HTTP=true"
    if number == 0 and "kind: Connect" in text:
        return Outcome.NOT_SENT, ""
    other = Outcome.INVALID if 300 <= number < 500 else Outcome.LOST
    return _BY_CODE.get(name) or _BY_STATUS.get(number, other), f"{number or ''} {name}".strip()
