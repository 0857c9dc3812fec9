"""``RemoteService``: a service that another process offers: its connections and its errors. Layer: services.

::

    call ── accepted ── lane of the session ── thread: request ──┬── answer
                                 ▲                               ├── refused for lack of room: again
                                 └── after a pause, the same id ─┴── the reply was lost: again; a write is done once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Lock
from typing import Any, ClassVar, Final, Literal, TypeVar
from urllib.parse import quote_from_bytes, urlsplit
from uuid import uuid4

from versioned_state.arguments import count, one_of, seconds
from versioned_state.errors import (
    InvalidArgumentError,
    LimitExceededError,
    MissingDependencyError,
    ServiceNotStartedError,
    SessionNotFoundError,
    StateError,
    StorageError,
    StoreBusyError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.off_loop import off_loop, result_of, running_loop
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.services.base import ServiceWithLifecycleManager, as_id
from versioned_state.services.calls.lanes import Lanes, LanesClosedError
from versioned_state.services.remote import bodies
from versioned_state.services.remote.errors import error_of
from versioned_state.services.remote.retries import Retries, retry_after
from versioned_state.values.typed.registry import Classes

try:
    import httpx
except ImportError as _missing:
    raise MissingDependencyError("a remote service", extra="client") from _missing

T = TypeVar("T")

Method = Literal["GET", "POST", "DELETE"]

_HEALTH_S: Final = 2.0
_LONGEST_QUERY: Final = 60_000
"""The largest query that a server accepts in the head of a request, with room for the headers of a proxy."""
_REFUSED: Final = frozenset({429, 503})
"""Statuses of requests that were refused before anything was done."""
_LATE: Final = frozenset({502, 504})
"""Statuses of requests of unknown outcome: the store, or the instance behind a balancer, did not answer."""


class RemoteService(ServiceWithLifecycleManager):
    """A service of another process, which ``vstate serve`` offers over HTTP, as the class of the same calls.

    Values come back exactly as they were, and errors as the same classes. A request whose reply is lost is sent again,
    perhaps to another instance behind the same URL, and a write is still done once. The calls on one session are sent
    one after another, in the order in which they were made. A call that is cancelled before it has begun is dropped,
    and one that has begun ends first. Calls are coroutines of any event loop.

    Args:
        url: the URL of the server, such as ``http://127.0.0.1:8420``.
        token: the bearer token. It is sent with every request, in clear text unless the URL is ``https://``.
        timeout: seconds that a server has for one answer, and for which a request that is refused for lack of room is
            sent again.
        attempts: how often a request is sent at most, besides those refusals.
        connections: how many requests may be under way at once. Others wait.
        classes: the classes of which instances are made from answers, besides ``register``-ed ones. ``"loaded"`` means
            those that this process has imported. Instances of other classes become ``Tagged``.
    """

    lane_of: ClassVar[str] = ""
    root: ClassVar[str] = "/v1"
    """The beginning of the paths of its operations, in place of ``/v1``."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = 40.0,
        attempts: int = 5,
        connections: int = 32,
        classes: Classes = "registered",
    ) -> None:
        self._url = _checked_url(url)
        if type(token) is not str or not token.isascii() or not token.isprintable() or not token or " " in token:
            raise InvalidArgumentError("the token of a server must be ASCII text without spaces")
        seconds("timeout", timeout, above=True)
        count("attempts", attempts, least=1)
        count("connections", connections, least=1)
        one_of("classes", classes, ("registered", "loaded"))
        self._token = token
        self._timeout = float(timeout)
        self._attempts = attempts
        self._connections = connections
        self._classes: Classes = classes
        self._turn = Lock()  # of start and stop
        self._client: httpx.Client | None = None
        self._lanes: Lanes | None = None
        self._stopped = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._url}>"

    # Beginning and end

    async def start(self) -> None:
        """Get ready. Nothing is sent: ``health`` finds out whether the server answers."""
        await off_loop(self._start)

    async def stop(self) -> None:
        """Refuse new calls, finish the accepted ones, and close the connections."""
        await off_loop(self._stop)

    async def health(self) -> bool:
        """Return whether the service is started, and the server and its store answer within two seconds.

        Never raises.
        """
        lanes, client = self._lanes, self._client
        if lanes is None or client is None:
            return False
        return await lanes.answers(lambda: client.get("/health", timeout=_HEALTH_S).status_code == 200, _HEALTH_S)

    def _start(self) -> None:
        with self._turn:
            if self._client is not None:
                return
            self._client = httpx.Client(
                base_url=self._url,
                timeout=self._timeout,
                limits=httpx.Limits(
                    max_connections=self._connections,
                    max_keepalive_connections=self._connections,
                    keepalive_expiry=30.0,
                ),
                headers={"Authorization": f"Bearer {self._token}", "Accept": bodies.NATIVE},
                trust_env=False,
            )
            self._lanes = Lanes(self._connections)
            self._stopped = False

    def _stop(self) -> None:
        with self._turn:
            lanes, client = self._lanes, self._client
            self._stopped = True
            if lanes is None or client is None:
                return
            try:
                lanes.close()
            finally:
                self._lanes = self._client = None
                client.close()

    # Calls

    async def _call(
        self,
        method: Method,
        path: str,
        user_id: str,
        session_id: str | None = None,
        *,
        body: Any = None,
        absent: Callable[[], T] | None = None,
        reads: bool = False,
        **parameters: object,
    ) -> Any:
        """Call the server.

        Returns the value of the answer, or None. Encodes the body before it returns to the event loop.

        Args:
            body: the value of the body, or None without one.
            absent: the result if there is no such session. Without it, the call raises ``SessionNotFoundError``.
            reads: whether a POST only reads.
            parameters: the parameters of the query. Those that are None are left out.
        """
        running_loop()
        as_id("user_id", user_id)
        as_id("session_id", session_id or "")
        lane = f"{self.lane_of}/{branch_name(user_id, session_id or '')}"
        query = _query({"user_id": user_id, "session_id": session_id, **parameters})
        if len(query) > _LONGEST_QUERY:
            raise LimitExceededError("the length of the ids of a call, percent-encoded", limit=_LONGEST_QUERY)
        content = None if body is None else bodies.encode(body)
        path = path.replace("/v1", self.root, 1)
        write = method != "GET" and not reads
        return await self._run(lane, lambda: self._send(method, path + query, content, write=write, absent=absent))

    async def _run(self, lane: str, function: Callable[[], T]) -> T:
        lanes = self._lanes
        try:
            if lanes is None:
                raise LanesClosedError
            future: Future[T] = lanes.submit(lane, function)
        except LanesClosedError:
            raise ServiceNotStartedError(type(self).__name__, stopped=self._stopped) from None
        return await result_of(future)

    def _send(
        self, method: Method, target: str, content: bytes | None, *, write: bool, absent: Callable[[], T] | None
    ) -> Any:
        """Send a request until there is an answer. Runs on a thread."""
        client = self._client
        assert client is not None
        headers = {} if content is None else {"Content-Type": bodies.NATIVE}
        if write:
            headers["Idempotency-Key"] = uuid4().hex
        retries, in_doubt = Retries(self._attempts, self._timeout), False
        while True:
            crowded, after = False, 0.0
            try:
                response = client.request(method, target, content=content, headers=headers)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                failure: StorageError = UnreachableStoreError(
                    f"the server at {self._url} cannot be reached: {error}", remains="nothing was changed"
                )
                failure.__cause__ = error
            except httpx.RequestError as error:  # also for a body that cannot be decoded
                in_doubt = in_doubt or write
                failure = UnreachableStoreError(f"the server at {self._url} did not answer: {type(error).__name__}")
                failure.__cause__ = error
            else:
                if response.status_code not in _REFUSED and response.status_code not in _LATE:
                    return self._value(response, absent)
                in_doubt = in_doubt or (write and response.status_code in _LATE)
                failure = self._failure(response)
                crowded = isinstance(failure, StoreBusyError)
                after = retry_after(response.headers.get("retry-after"))
            if not retries.again(crowded=crowded, after=after):
                break
            if write:
                headers["Idempotency-Age"] = str(retries.age)
        if in_doubt:
            raise UnknownOutcomeError(
                f"the server at {self._url} was asked {retries.made} times, "
                "and did not answer whether the write was done",
                remains="it was done once, or not",
                hint="read it back before you write it again",
            ) from failure
        raise failure

    def _failure(self, response: httpx.Response) -> StorageError:
        error = _error(response)
        if isinstance(error, StorageError):
            return error
        if response.status_code in _REFUSED and error is None:
            return StoreBusyError(f"the server at {self._url} has no room: {response.status_code}")
        return UnreachableStoreError(
            f"the server at {self._url} answered with {response.status_code}", hint="try again"
        )

    def _value(self, response: httpx.Response, absent: Callable[[], T] | None) -> Any:
        """Return the value of an answer, or raise its error."""
        if response.status_code == 204:
            return None
        if response.status_code == 200:
            kind = bodies.media_type(response.headers.get("content-type", ""))
            try:
                if kind == bodies.NATIVE:
                    return bodies.decode(response.content, classes=self._classes)
            except InvalidArgumentError as error:
                raise StorageError(f"the server at {self._url} sent a malformed answer") from error
            raise StorageError(
                f"the server at {self._url} answered as {kind or 'nothing'}", hint="perhaps it is not vstate serve"
            )
        said = _error(response)
        if absent is not None and isinstance(said, SessionNotFoundError):
            return absent()
        if said is not None:
            raise said
        raise StorageError(
            f"the server at {self._url} answered with {response.status_code}", hint="perhaps it is not vstate serve"
        )


def _error(response: httpx.Response) -> StateError | None:
    """Return the error of an answer that is not a success, or None if it names no known error."""
    if bodies.media_type(response.headers.get("content-type", "")) != bodies.JSON:
        return None
    try:
        return error_of(bodies.decode_json(response.content))
    except InvalidArgumentError:
        return None


def _checked_url(url: object) -> str:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        _ = parts and parts.port
    except ValueError:
        parts = None
    if (
        parts is None
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or parts.username
    ):
        shown = f"{url!r:.60}" if parts is None or not parts.username else "a URL with a user"
        raise InvalidArgumentError(
            f"{shown} is not the URL of a server",
            hint="such as http://127.0.0.1:8420; the token is an argument",
        )
    assert isinstance(url, str)
    return url.rstrip("/")


def _query(parameters: Mapping[str, object]) -> str:
    """Return a query that preserves ids of any characters, also lone surrogates, which no URL library accepts."""
    given = [(name, str(value)) for name, value in parameters.items() if value is not None]
    return "?" + "&".join(
        f"{name}={quote_from_bytes(value.encode('utf-8', 'surrogatepass'), safe='')}" for name, value in given
    )
