"""What a request may cost: the size of its body, the time that it takes to arrive, and how many there are at once. Layer: server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.types import Message, Receive

from versioned_state.errors import InvalidArgumentError, StoreBusyError
from versioned_state.server.answers import RETRY_S, RefusalError, too_large


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server.

    Attributes:
        max_body: bytes of a request's body.
        max_requests: requests that are under way at once; others are refused with 503.
        head_timeout: seconds in which the head of a request has to arrive.
        body_timeout: seconds in which its body has to arrive.
        send_timeout: seconds in which the client has to read on.
        idle_timeout: seconds after which a connection without a request is closed.
        call_timeout: seconds after which a call on the store is answered with 504; the call itself goes on.
    """

    max_body: int = 16 << 20
    max_requests: int = 256
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    send_timeout: float = 30.0
    idle_timeout: float = 60.0
    call_timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_body", "max_requests"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} is an int from 1 up", remains="nothing was started")
        for name in ("head_timeout", "body_timeout", "send_timeout", "idle_timeout", "call_timeout"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < float("inf"):
                raise InvalidArgumentError(f"{name} is a number of seconds above 0", remains="nothing was started")


class DisconnectedError(Exception):
    """The client went away before its request was complete."""


async def read_body(receive: Receive, declared: str | None, limits: Limits) -> bytes:
    """The body of a request.

    Raises ``RefusalError`` if it is too large, as soon as that is known, or too slow, and ``DisconnectedError``.

    Args:
        declared: its Content-Length.
    """
    if declared is not None and declared.isdecimal() and int(declared[:20]) > limits.max_body:
        raise too_large(limits.max_body)
    pieces: list[bytes] = []
    size = 0
    try:
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
                    pieces.append(piece)
                more = message.get("more_body", False)
    except TimeoutError:
        error = InvalidArgumentError(f"the body did not arrive within {limits.body_timeout:g} s", remains="nothing was changed")
        raise RefusalError(408, error, connection="close") from None
    return b"".join(pieces)


def too_many() -> RefusalError:
    """More requests are under way than the server takes."""
    error = StoreBusyError("the server has as many requests as it takes", remains="nothing was changed", hint="try again")
    return RefusalError(503, error, retry_after=str(RETRY_S))
