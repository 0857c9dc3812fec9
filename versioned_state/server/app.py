"""The application: a request on its way to a service, and back. Layer: server.

::

    id ── the head: 400, 431 ── 401 ── 413 ── 503 ── which operation: 404, 405 ── 404: the one answer
       ── 403, 406, 415, 400, 422 ── the body: 413, 503, 408 ── 400, 413, 422 ── the service ── log

The one answer, for a session of another user and for one that does not exist, comes before all refusals that would
distinguish the two. A body is read only for an operation that has one and that the token allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from blake3 import blake3
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from versioned_state.errors import InvalidArgumentError, LimitExceededError, StateError, UnknownOutcomeError
from versioned_state.off_loop import Threads
from versioned_state.server import exactly_once
from versioned_state.server.answers import (
    LARGE,
    Answer,
    RefusalError,
    absent,
    answer,
    forbidden,
    is_large,
    late,
    malformed,
    refusal_of,
    refuse,
    unauthorized,
)
from versioned_state.server.limits import (
    Bodies,
    Body,
    DisconnectedError,
    Limits,
    Room,
    Share,
    check_head,
    declared_length,
    no_room,
    room_for_answers,
    room_for_requests,
)
from versioned_state.server.log import RequestLog, request_id
from versioned_state.server.openapi import document
from versioned_state.server.operations import OPERATIONS, Call, Operation, Services
from versioned_state.server.requests import arguments_of, split_query
from versioned_state.server.tokens import EVERY_USER, Grant, Tokens
from versioned_state.services.calls.deadline import check_deadline, set_deadline
from versioned_state.services.calls.spending import set_spend
from versioned_state.services.remote import bodies
from versioned_state.services.remote.retries import LONGEST_AGE_S
from versioned_state.values.encode.walks import footprint

KEY_HEADER: Final = "idempotency-key"
AGE_HEADER: Final = "idempotency-age"

_OPEN: Final = frozenset({"/health", "/openapi.json"})

_ON_LOOP: Final = {bodies.JSON: 1 << 14, bodies.NATIVE: 1 << 12}
"""The largest body that is decoded on the event loop: in 5 ms at most, whatever it holds. Three bytes may be a set."""

_THREADS: Final = 4
"""More threads would not be faster, because one runs at a time.

With a few, a short body does not wait for the end of a long one.
"""

_CHARSETS: Final = frozenset({"", "utf-8", "utf8", "us-ascii"})

_LEAST_ANSWER: Final = 1024
"""Bytes of the answer to a write, apart from the names in it: the number of a round, or a session without messages."""
_BYTES_OF_A_NAME: Final = 12
"""The most bytes that a character of a name takes: in JSON, both halves of a surrogate pair may be escaped."""


@dataclass
class Server:
    """The shared state of the requests of an application.

    Attributes:
        tokens: may be replaced at any time.
        off_loop: threads for bodies and answers, which take more than a moment and never wait for a store. If the store
            hangs, the threads of the services wait for it.
        under_way: calls on the services, those that were answered with 504 among them.
    """

    services: Services
    tokens: Tokens
    limits: Limits = field(default_factory=Limits)
    under_way: set[asyncio.Task[Any]] = field(default_factory=set)
    bodies: Bodies = field(init=False)
    answers: Room = field(init=False)
    slots: Room = field(init=False)
    off_loop: Threads = field(default_factory=lambda: Threads(_THREADS, "versioned-state-bodies"))
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A large body may take seventy times its size as a value.

    That is known only after reading, so they are read one by one.
    """
    _writes: dict[tuple[str, str], tuple[asyncio.Task[Any], str]] = field(default_factory=dict)
    """The writes that are under way, each with its fingerprint, by user and id."""

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.limits)
        self.answers = room_for_answers(self.limits)
        self.slots = room_for_requests(self.limits)

    @property
    def requests(self) -> int:
        """The requests that are under way, and the calls that continue although their clients were answered."""
        return self.slots.size - self.slots.free

    def check_room(self) -> None:
        """Raise ``RefusalError`` if the server has no room for another request."""
        if not self.slots.free:
            raise no_room("the server has as many requests under way as it may have")

    def end(self) -> None:
        """Wait only a moment for bodies that are on their way.

        Requests that have arrived are carried out, and no others.
        """
        self.bodies.end()

    def application(self) -> Starlette:
        """Return the ASGI application. Its lifespan starts and stops the services."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with self.services:
                yield
                if self.under_way:
                    await asyncio.wait(self.under_way)

        by_path: dict[str, dict[str, Operation]] = {}
        for operation in OPERATIONS:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        routes = [Route(path, self._endpoint(methods), methods=list(methods)) for path, methods in by_path.items()]
        routes += [Route("/health", self._health), Route("/openapi.json", self._openapi)]
        application = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _no_operation})
        application.router.redirect_slashes = False
        application.add_middleware(_Guard, server=self)
        return application

    async def _health(self, _: Request) -> Response:
        healthy = await self.services.health()
        body = bodies.encode_json({"status": "ok" if healthy else "the store does not answer"})
        return Response(body, 200 if healthy else 503, media_type=bodies.JSON)

    async def _openapi(self, _: Request) -> Response:
        return Response(bodies.encode_json(document()), media_type=bodies.JSON)

    def _endpoint(self, methods: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            return await self._perform(methods[method], request)

        return endpoint

    async def _perform(self, operation: Operation, request: Request) -> Response:
        """Carry out an operation for a request with a valid token and size. Raises ``RefusalError``."""
        grant: Grant = request.scope["versioned_state.grant"]
        query = split_query(request.scope["query_string"])
        users = query.get("user_id", [])
        if not all(map(grant.covers, users)):
            raise absent()
        user_id = users[0] if users else "" if grant.user == EVERY_USER else grant.user
        services = self.services.of_sessions if operation.of_sessions else self.services
        call = Call(services, user_id, next(iter(query.get("session_id", ())), None), self.off_loop)
        scope, shares = request.scope, request.scope["versioned_state.shares"]

        @asynccontextmanager
        async def one_answer() -> AsyncIterator[None]:
            """Refuse a session that does not exist with the one answer, whatever else is wrong."""
            try:
                yield
            except RefusalError:
                is_named = (users or grant.user != EVERY_USER) and (
                    operation.session != "required" or call.session_id is not None
                )
                if operation.exists is not None and is_named and not await operation.exists(call):
                    raise absent() from None
                raise

        async with one_answer():
            accepted = self._check(operation, grant, request)
            kind = _kind_of_body(operation, request.headers)
            arguments = arguments_of(query, operation.parameters)
            call.arguments = {name: value for name, value in arguments.items() if name not in ("user_id", "session_id")}
            if not users and grant.user == EVERY_USER:
                raise malformed("the token is for every user, so the request needs the parameter user_id")
            operation.check_session(call)
        body = await self.bodies.read(
            request.receive, user_id, scope["versioned_state.declared"], operation.most_body(self.limits)
        )
        shares.append(body.share)
        scope["versioned_state.received"] = len(body.content)
        slot, room = Share(self.slots, user_id), Share(self.answers, user_id)
        shares += slot, room
        slot.take(1)
        async with one_answer():
            read = partial(_read_body, operation, call, kind, request.headers, body)
            if len(body.content) <= _ON_LOOP.get(kind, 0):
                read()
            else:
                async with self._reading if len(body.content) > LARGE else nullcontext():
                    await self.off_loop(read)
            body.content = b""  # otherwise it would be in memory twice
        if operation.scope == "write" and operation.result is not None:
            # Before the write: if the answer found no room afterwards, it would say that nothing was changed.
            names = len(call.user_id) + len(call.session_id or "")
            room.take(min(_LEAST_ANSWER + _BYTES_OF_A_NAME * names, self.answers.size))
        value = await self._call(operation, call, request, slot, body.share, room)

        def write() -> Answer:
            return answer(operation.document(value), accepted)

        answered = await self.off_loop(write) if is_large(value) else write()
        room.take(len(answered.body))
        room.keep(len(answered.body))
        return answered

    @staticmethod
    def _check(operation: Operation, grant: Grant, request: Request) -> list[str]:
        """Return the media types that the client accepts.

        Raises ``RefusalError`` if there are none, or if the token lacks the scope.
        """
        if operation.scope not in grant.scopes:
            raise forbidden(operation.scope)
        try:
            accepted = bodies.acceptable(", ".join(request.headers.getlist("accept")))
        except InvalidArgumentError as error:
            raise RefusalError(400, error) from None
        if not accepted:
            raise malformed(f"an answer is {bodies.JSON} or {bodies.NATIVE}, and the request accepts neither", 406)
        return accepted

    async def _call(self, operation: Operation, call: Call, asked: Request, *shares: Share) -> Any:
        """Return the result of an operation, which continues, with its shares, if its client does not wait.

        Raises ``RefusalError``.
        """
        request = _written(operation, call, asked.headers)
        name = None if request is None else (call.user_id, request.id)
        task, fingerprint = (None, "") if name is None else self._writes.get(name, (None, ""))
        if task is not None and fingerprint != call.fingerprint:
            raise exactly_once.conflict()
        if task is None:
            task = asyncio.ensure_future(_run(operation, call, request, self.limits.call_timeout, shares[-1]))
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)
            for share in shares:
                share.belongs_to(task)
            if name is not None:
                # The client may repeat it before it has ended: both then wait for this one.
                self._writes[name] = task, call.fingerprint
                task.add_done_callback(lambda _: self._writes.pop(name))
        done, _ = await asyncio.wait((task,), timeout=self.limits.call_timeout)
        if done:
            return task.result()
        task.add_done_callback(_ignore)
        if operation.scope == "read":
            task.cancel()  # if it waits for its turn; one that has begun checks its deadline
            raise late()
        raise late(
            UnknownOutcomeError,
            remains="the write continues",
            hint="repeat it with its Idempotency-Key: it is done once",
        )


async def _run(
    operation: Operation, call: Call, request: exactly_once.Request | None, seconds: float, room: Share
) -> Any:
    exactly_once.REQUEST.set(request)
    if operation.scope == "read":
        set_deadline(seconds)

    spent = 0

    def spend(size: int) -> None:
        nonlocal spent
        check_deadline()
        spent += size
        room.take(spent)

    if operation.result is not None:
        set_spend(spend)
    try:
        return await operation.run(call)
    except exactly_once.RepeatedError as error:
        error.request.check_same(error.done.fingerprint)
        return await operation.repeated(call, error.done)


def _ignore(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # it was answered already


def _written(operation: Operation, call: Call, headers: Headers) -> exactly_once.Request | None:
    """Return the identity of a write, if its client gave it one.

    With the same key, a write of another kind or session is another write.

    Raises ``RefusalError``.
    """
    key, age = headers.get(KEY_HEADER), headers.get(AGE_HEADER)
    if key is None or operation.scope != "write":
        return None
    if not 1 <= len(key) <= 128 or not key.isascii() or not key.isprintable():
        raise malformed("the Idempotency-Key must be 1 to 128 ASCII characters", 400)
    if age is not None and not (age.isascii() and age.isdecimal() and len(age) <= 9 and int(age) <= LONGEST_AGE_S):
        raise malformed(f"the Idempotency-Age must be a number of seconds up to {LONGEST_AGE_S}", 400)
    parts = "\0".join((operation.name, key, call.session_id or ""))
    id = blake3(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return exactly_once.Request(id, call.fingerprint, None if age is None else float(age))


def _read_body(operation: Operation, call: Call, kind: str, headers: Headers, body: Body) -> None:
    """Set the body of a call and, if the request has a key, its fingerprint. Raises ``RefusalError``."""
    call.body = _body_of(operation, kind, body)
    if KEY_HEADER in headers:
        arguments = repr(sorted(call.arguments.items())).encode("utf-8", "surrogatepass")
        call.fingerprint = blake3(blake3(arguments).digest() + body.content).hexdigest()[:16]


def _kind_of_body(operation: Operation, headers: Headers) -> str:
    """Return the media type of a request's body, empty if the operation has none.

    Raises ``RefusalError`` for an unsupported one.
    """
    if operation.body is None:
        if headers.get("content-length", "0").strip("0"):
            raise malformed("this operation takes no body", 400)
        return ""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise malformed("the body has a Content-Encoding, and must be sent without one", 415)
    declared = headers.get("content-type", "")
    kind = bodies.media_type(declared)
    if kind not in _ON_LOOP:
        raise malformed(f"the Content-Type of a body must be {bodies.JSON} or {bodies.NATIVE}", 415)
    if kind == bodies.JSON and bodies.charset(declared) not in _CHARSETS:
        raise malformed(f"{bodies.JSON} must be UTF-8, and its Content-Type names another charset", 415)
    return kind


def _body_of(operation: Operation, kind: str, body: Body) -> Any:
    """Return the value of a request's body. Raises ``RefusalError``."""
    content = body.content
    if operation.body is None:
        return None
    try:
        value = bodies.decode(content) if kind == bodies.NATIVE else bodies.decode_json(content)
    except LimitExceededError as error:
        raise RefusalError(422, error) from None
    except StateError as error:
        raise RefusalError(400, error) from None
    value = operation.checked_body(value)
    if len(content) > LARGE:
        body.share.take(footprint(value))
    return value


async def _no_operation(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = "the server has no such path" if error.status_code == 404 else f"{error.detail}"
    headers = {name.replace("-", "_"): value for name, value in (error.headers or {}).items()}
    return refuse(
        RefusalError(error.status_code, InvalidArgumentError(what, hint="/openapi.json has the API"), **headers)
    )


class _Guard:
    """The outermost layer of a request: its id, its token, its body, its errors, its line in the log."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        log = RequestLog(scope, request_id(headers.get("x-request-id")), send)
        try:
            await self._answer(scope, headers, receive, log)
        except DisconnectedError:
            log.disconnected()
        except Exception as error:  # noqa: BLE001 - every failure is answered, and the log has it
            refusal = refusal_of(error)
            log.failed(error, refusal)
            if not log.status:
                await refuse(refusal)(scope, receive, log.send)
        finally:
            log.write()

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, log: RequestLog) -> None:
        server = self._server
        check_head(scope)
        if scope["path"] in _OPEN:
            await self._app(scope, receive, log.send)
            return
        authorizations = headers.getlist("authorization")
        if len(authorizations) > 1:
            raise malformed(f"the request has {len(authorizations)} Authorization headers", 400)
        grant = server.tokens.grant("".join(authorizations))
        if grant is None:
            raise unauthorized()
        scope["versioned_state.grant"] = grant
        scope["versioned_state.declared"] = declared_length(headers.get("content-length"), server.limits)
        server.check_room()
        shares: list[Share] = []
        scope["versioned_state.shares"] = shares
        try:
            await self._app(scope, receive, log.send)
        finally:
            log.received = scope.get("versioned_state.received", 0)
            for share in shares:
                share.free()
