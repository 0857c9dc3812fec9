"""Time limits of connections, beneath ASGI, which sees a request only after its head has arrived. Layer: server."""

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
"""Files that are kept free for the store, and for connections that are accepted only to be closed."""

_LINGER_S = 2.0
"""Seconds for which the rest of a refused body is read and dropped: a client that is cut off may not see the answer."""


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 whose clients must send the head of a request in time, and read the response in time.

    Otherwise a client could keep its connection for ever by sending a byte now and then, or by never reading.
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
            transport.abort()  # without an answer, which would cost a thousand times as much as the request
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
        # A client that reads a little now and then gets no more time than one that reads nothing, because its answer
        # takes memory.
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
        """Set the deadline for the head that the client has begun, or for the rest of a refused body."""
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
    """Return how many connections the process has files for, besides the files of its store."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(_MOST_CONNECTIONS, files - min(_FILES_KEPT, files // 2))


def guarded(limits: Limits) -> Any:
    """Return the protocol of a server for uvicorn, which calls it for each connection."""
    return partial(GuardedProtocol, limits)
