"""Limits of requests: their number, the size of their bodies and answers, and their time. Layer: server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from starlette.types import Message, Receive, Scope

from versioned_state.arguments import count, seconds
from versioned_state.errors import InvalidArgumentError, LimitExceededError, StoreBusyError
from versioned_state.errors.base import UNCHANGED
from versioned_state.server.answers import (
    RETRY_S,
    RefusalError,
    malformed,
    too_large,
    too_large_an_answer,
    too_many_parts,
)
from versioned_state.services.store_service import HANDLE_BYTES

MAX_HEAD: Final = 1 << 16
"""The largest head of a request, in bytes: its path, its query and its headers."""

MAX_BODY_OF_A_READ: Final = 1 << 20
"""The largest body of a request that only reads, in bytes: a query, or filters."""

_LAST_BODIES_S: Final = 1.0
"""Seconds for which a stopping server waits for bodies that are on their way."""

_BODIES: Final = 4
"""The default number of bodies of the largest size that have room at once, as requests and as answers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server.

    The requests of one user take no more of any room than they leave to others: see ``Room``.

    Attributes:
        max_body: the largest body of a request, in bytes. That of a request that only reads is at most
            ``MAX_BODY_OF_A_READ``.
        max_requests: how many requests may be under way at once. Others are refused with 503.
        max_bodies: bytes of the bodies of all requests that are under way. A request beyond them is refused with 503,
            before its body is read. A body of many small parts counts as the memory that they take. At least
            ``max_body``; 0 means four times that.
        max_answers: bytes of all answers that are under way, about as stored, from the time at which they are read
            until their clients have them. An answer without room is refused with 503, and one that is larger than all
            room with 422. While it is read, it takes three to ten times its size in memory. At least ``max_body``; 0
            means four times that.
        max_connections: how many connections may be open at once. Others are closed. 0 means about as many as the
            process may have files.
        handle_bytes: approximate bytes of memory for the open sessions of each service; see ``StoreService``.
        head_timeout: seconds within which the head of a request must arrive.
        body_timeout: seconds within which its body must arrive.
        send_timeout: seconds within which the client must read an answer that does not fit into the connection.
        idle_timeout: seconds after which a connection without a request is closed.
        call_timeout: seconds after which a call on the store is answered with 504. A write continues, and a read ends.
    """

    max_body: int = 16 << 20
    max_requests: int = 256
    max_bodies: int = 0
    max_answers: int = 0
    max_connections: int = 0
    handle_bytes: int = HANDLE_BYTES
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    send_timeout: float = 30.0
    idle_timeout: float = 60.0
    call_timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_body", "max_requests"):
            count(name, getattr(self, name), least=1)
        for name in ("max_bodies", "max_answers", "max_connections", "handle_bytes"):
            count(name, getattr(self, name))
        for name in ("max_bodies", "max_answers"):
            if 0 < getattr(self, name) < self.max_body:
                raise InvalidArgumentError(f"{name} is less than max_body, so the largest body would have no room")
        for name in ("head_timeout", "body_timeout", "send_timeout", "idle_timeout", "call_timeout"):
            seconds(name, getattr(self, name), above=True)


def check_head(scope: Scope) -> None:
    """Raise ``RefusalError`` for a head that is too large, or that two servers could read as two different requests."""
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names and b"content-length" in names:
        both = InvalidArgumentError("the request must not have both a Content-Length and a Transfer-Encoding")
        raise RefusalError(400, both, connection="close")
    size = (
        len(scope["raw_path"])
        + len(scope["query_string"])
        + sum(len(name) + len(value) for name, value in scope["headers"])
    )
    if size > MAX_HEAD:
        error = LimitExceededError("the size of a request's head", limit=MAX_HEAD, remains=UNCHANGED)
        raise RefusalError(431, error, connection="close")


def room_for_requests(limits: Limits) -> Room:
    """Return the room for requests that are under way."""
    return Room(
        limits.max_requests, "requests", lambda _: no_room("the server has as many requests under way as it may have")
    )


def room_for_answers(limits: Limits) -> Room:
    """Return the room for the answers of requests that are under way."""
    return Room(limits.max_answers or _BODIES * limits.max_body, "answers", too_large_an_answer)


class DisconnectedError(Exception):
    """The client disconnected before its request was complete."""


def declared_length(header: str | None, limits: Limits) -> int:
    """Return the length of a body by its Content-Length, or 0 if it has none.

    Raises ``RefusalError`` if it is too large.
    """
    length = int(header[:20]) if header is not None and header.isdecimal() else 0
    if length > limits.max_body:
        raise too_large(limits.max_body)
    return length


class Room:
    """Room that the requests under way share, such as bytes of memory. Safe for many threads.

    One request may take all that is free. Several requests of one user together take at most as much as they leave
    free: half of the room if no other user has any, a third each if two users want all. So some is always left for one
    more user.

    Args:
        size: the size of the room.
        what: the things in it, such as "answers".
        refusal: makes the refusal of a request that is larger than the room.
    """

    free: int

    def __init__(self, size: int, what: str, refusal: Callable[[int], RefusalError]) -> None:
        self.size = self.free = size
        self.what = what
        self.refusal = refusal
        self.lock: Final = Lock()
        self.of_users: dict[str, int] = {}


class Share:
    """The part of a room that one request of a user has. Safe for many threads."""

    def __init__(self, room: Room, user: str) -> None:
        self._room = room
        self._user = user
        self._call: asyncio.Task[Any] | None = None
        self.taken: int = 0

    def take(self, size: int) -> None:
        """Take room for at least this many bytes in all. Raises ``RefusalError`` if there is none."""
        self.add(max(size - self.taken, 0))

    def add(self, more: int) -> None:
        """Take room for this many more bytes. Raises ``RefusalError`` if there is none."""
        if not more:
            return
        room = self._room
        with room.lock:
            theirs, left = room.of_users.get(self._user, 0), room.free - more
            has_room = left >= 0
            if has_room and (theirs == self.taken or theirs + more <= left):
                room.free = left
                room.of_users[self._user] = theirs + more
                self.taken += more
                return
        if self.taken + more > room.size:
            raise room.refusal(room.size)
        whose = "the user" if has_room else "the server"
        raise no_room(
            f"{whose} has as many {room.what} under way as {'one user may have' if has_room else 'it may have'}"
        )

    def keep(self, size: int) -> None:
        """Give back the room beyond this many bytes."""
        room = self._room
        with room.lock:
            back = max(self.taken - size, 0)
            self.taken -= back
            room.free += back
            left = room.of_users.get(self._user, 0) - back
            if left > 0:
                room.of_users[self._user] = left
            else:
                room.of_users.pop(self._user, None)

    def belongs_to(self, call: asyncio.Task[Any]) -> None:
        """Keep the request's share until the call ends, also after its client was answered."""
        self._call = call

    def free(self) -> None:
        """Give back all the room, now or when the call ends. A second call does nothing."""
        if self._call is not None and not self._call.done():
            self._call.add_done_callback(lambda _: self.free())
            return
        self.keep(0)


class Bodies:
    """The room for the bodies of requests that are under way. For one event loop.

    A body of declared length gets its room before a byte of it is read. Any other body takes room as it arrives.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.room: Final = Room(limits.max_bodies or _BODIES * limits.max_body, "bodies of requests", too_many_parts)
        self._timeouts: set[asyncio.Timeout] = set()
        self._is_ending = False

    def end(self) -> None:
        """Give the bodies that are on their way, and later ones, a second to arrive."""
        self._is_ending = True
        until = asyncio.get_running_loop().time() + _LAST_BODIES_S
        for each in [each for each in self._timeouts if not each.expired()]:  # an expired one cannot be extended
            each.reschedule(min(until, each.when() or until))

    async def read(self, receive: Receive, user: str, declared: int, most: int) -> Body:
        """Read the body of a request. Its room is taken until ``Share.free``.

        Raises ``DisconnectedError``, and ``RefusalError`` if the body is too large, as soon as that is known, if it has
        no room, or if it is too slow.

        Args:
            user: the sender.
            declared: the declared length, or 0.
            most: the largest length that is allowed.
        """
        if declared > most:
            raise _more_than(most)
        limits = self._limits
        body = Body(Share(self.room, user))
        pieces: list[bytes] = []
        size = 0
        timeout = asyncio.timeout(min(limits.body_timeout, _LAST_BODIES_S) if self._is_ending else limits.body_timeout)
        self._timeouts.add(timeout)
        try:
            body.share.take(declared)
            async with timeout:
                more = True
                while more:
                    message: Message = await receive()
                    if message["type"] != "http.request":
                        raise DisconnectedError
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > most:
                        raise _more_than(most)
                    if piece:
                        body.share.take(size)
                        pieces.append(piece)
                    more = message.get("more_body", False)
            body.content = b"".join(pieces)
        except TimeoutError:
            body.share.free()
            if self._is_ending:
                raise no_room("the server is stopping, and the body had not arrived", connection="close") from None
            error = InvalidArgumentError(f"the body did not arrive within {limits.body_timeout:g} s")
            raise RefusalError(408, error, connection="close") from None
        except BaseException:
            body.share.free()
            raise
        finally:
            self._timeouts.discard(timeout)
        return body


def _more_than(most: int) -> RefusalError:
    return too_large(most) if most else malformed("this operation takes no body", 400)


class Body:
    """The body of a request under way, and its room."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.content = b""


def no_room(what: str, **headers: str) -> RefusalError:
    """Return the refusal of a request for which the server has no room."""
    error = StoreBusyError(what, hint="try again")
    return RefusalError(503, error, retry_after=str(RETRY_S), **headers)
