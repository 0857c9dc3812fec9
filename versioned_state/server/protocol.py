"""Connections that cost nothing for long: time limits beneath ASGI, which sees requests only once their head is there. Layer: server."""

from __future__ import annotations

import asyncio
import sys
from functools import cache, partial
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from versioned_state.server.limits import Limits

if sys.platform != "win32":
    import resource

_MOST_CONNECTIONS: Final = 65_536
_FILES_KEPT: Final = 256
"""Files that are not for connections: those of the store, and connections that are accepted to be closed."""

_LINGER_S = 2.0
"""How long the rest of a body is read, and dropped, after its request was refused: a client that is cut off may not see the answer."""


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 whose clients must send the head of a request in time, and read the response in time.

    A client that sends a byte now and then would otherwise keep its connection for ever; so would one that never reads.
    """

    def __init__(self, limits: Limits, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._most = limits.max_connections or most_connections()
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.abort()  # without an answer, which would take a thousand times what it takes to ask
            return
        transport.set_write_buffer_limits(high=0)  # writing is paused until the client has read all that was sent
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._stop_writing_timer()
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self._limits.send_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        # A client that reads a piece now and then has no more time than one that reads nothing: an answer takes memory.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self._stop_writing_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self._stop_writing_timer()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_writing_timer(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _watch(self) -> None:
        """Set the time by which the client must have sent the head that it began, or the rest of a body that was refused."""
        seconds: float | None = None
        if self.conn.their_state is h11.IDLE:
            if self.conn.trailing_data[0] or self.cycle is None:
                seconds = self._limits.head_timeout
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._unset_keepalive_if_required()
            seconds = _LINGER_S
        if seconds is None:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None
        elif self._reading is None:
            self._reading = self.loop.call_later(seconds, self.transport.abort)


@cache
def most_connections() -> int:
    """The connections for which the process has files: without files for its store, no request could be answered."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(_MOST_CONNECTIONS, files - min(_FILES_KEPT, files // 2))


def guarded(limits: Limits) -> Any:
    """The protocol of a server, as uvicorn takes it: something that makes one for each connection."""
    return partial(GuardedProtocol, limits)
