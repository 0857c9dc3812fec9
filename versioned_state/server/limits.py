"""What requests may cost: the size of a body and the time that it takes, how many there are, and what they hold. Layer: server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Message, Receive

from versioned_state.errors import InvalidArgumentError, StoreBusyError
from versioned_state.server.answers import RETRY_S, RefusalError, too_large
from versioned_state.services.store_service import HANDLE_BYTES

_BODIES: Final = 4
"""The largest bodies that have room at once, unless ``max_bodies`` says otherwise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server.

    Attributes:
        max_body: bytes of a request's body.
        max_requests: requests that are under way at once; others are refused with 503.
        max_bodies: bytes of the bodies of all requests that are under way; a request beyond them is refused with 503, before its body is
            read. A body under way takes two to four times its size in memory. At least ``max_body``; 0: four times that.
        handle_bytes: of memory for the open sessions of each service, about; see ``StoreService``.
        head_timeout: seconds in which the head of a request has to arrive.
        body_timeout: seconds in which its body has to arrive.
        send_timeout: seconds in which the client has to read on.
        idle_timeout: seconds after which a connection without a request is closed.
        call_timeout: seconds after which a call on the store is answered with 504. A write goes on; a search ends, and a read that has not
            begun is dropped.
    """

    max_body: int = 16 << 20
    max_requests: int = 256
    max_bodies: int = 0
    handle_bytes: int = HANDLE_BYTES
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    send_timeout: float = 30.0
    idle_timeout: float = 60.0
    call_timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_body", "max_requests"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} is an int from 1 up", remains="nothing was started")
        for name in ("max_bodies", "handle_bytes"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                raise InvalidArgumentError(f"{name} is an int from 0 up", remains="nothing was started")
        if 0 < self.max_bodies < self.max_body:
            raise InvalidArgumentError("max_bodies is less than max_body, so the largest body has no room", remains="nothing was started")
        for name in ("head_timeout", "body_timeout", "send_timeout", "idle_timeout", "call_timeout"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < float("inf"):
                raise InvalidArgumentError(f"{name} is a number of seconds above 0", remains="nothing was started")


class DisconnectedError(Exception):
    """The client went away before its request was complete."""


def declared_length(header: str | None, limits: Limits) -> int:
    """The length of a body as its Content-Length says; 0 if it does not. Raises ``RefusalError`` if it is too large."""
    length = int(header[:20]) if header is not None and header.isdecimal() else 0
    if length > limits.max_body:
        raise too_large(limits.max_body)
    return length


class Bodies:
    """The room for the bodies of requests that are under way. For one event loop.

    A body whose length is declared has its room before a byte of it is read; another one takes room as it arrives.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free = limits.max_bodies or _BODIES * limits.max_body

    async def read(self, receive: Receive, declared: int) -> Body:
        """The body of a request; its room is taken until ``Body.free``.

        Raises ``RefusalError`` if it is too large, as soon as that is known, if there is no room for it, or if it is too slow; and
        ``DisconnectedError``.

        Args:
            declared: its length as far as it is known.
        """
        limits = self._limits
        body = Body(self)
        pieces: list[bytes] = []
        size = 0
        try:
            body.take(declared)
            async with asyncio.timeout(limits.body_timeout):
                more = True
                while more:
                    message: Message = await receive()
                    if message["type"] != "http.request":
                        raise DisconnectedError
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > limits.max_body:
                        raise too_large(limits.max_body)
                    if piece:
                        body.take(size)
                        pieces.append(piece)
                    more = message.get("more_body", False)
            body.content = b"".join(pieces)
        except TimeoutError:
            body.free()
            error = InvalidArgumentError(f"the body did not arrive within {limits.body_timeout:g} s", remains="nothing was changed")
            raise RefusalError(408, error, connection="close") from None
        except BaseException:
            body.free()
            raise
        return body


class Body:
    """The body of a request under way, and its room."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._taken = 0
        self._call: asyncio.Task[Any] | None = None
        self.content = b""

    def take(self, size: int) -> None:
        """Have room for so many bytes. Raises ``RefusalError`` if there is none."""
        more = max(size - self._taken, 0)
        if more > self._bodies._free:
            raise no_room("the server has as many bodies of requests as it takes")
        self._bodies._free -= more
        self._taken += more

    def belongs_to(self, call: asyncio.Task[Any]) -> None:
        """From now on it has its room as long as the call is under way, also after its client was answered."""
        self._call = call

    def free(self) -> None:
        """Give the room back, now or when the call ends. A second call does nothing."""
        if self._call is not None and not self._call.done():
            self._call.add_done_callback(lambda _: self.free())
            return
        self._bodies._free += self._taken
        self._taken = 0


def no_room(what: str) -> RefusalError:
    """More is under way than the server takes."""
    error = StoreBusyError(what, remains="nothing was changed", hint="try again")
    return RefusalError(503, error, retry_after=str(RETRY_S))
