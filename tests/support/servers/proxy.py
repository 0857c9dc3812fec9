"""`Proxy`, which cuts or holds connections to a server, whatever their protocol.

A *request* is what a client sends until the server answers: a direction that turns. So `requests` counts round trips.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import Literal, Self

Address = tuple[str, int] | str | Path
"""Host and port, or the path of a Unix socket."""


@dataclass(frozen=True)
class Fault:
    """The fault of request number `at` from now, over all connections. `passing` bytes still get through."""

    kind: Literal["cut request", "cut reply", "hold request", "hold reply"]
    at: int = 1
    passing: int = 0


class Proxy:
    """Listens at `address`, a port of 127.0.0.1 or a Unix socket at `listen`, and forwards to the server at `target`.

    Faults are armed one at a time and go off once. Arm one when connections are quiet: what a client sends when it
    connects are requests too. `cut reply` cuts once the server has begun to answer, so it has then seen enough of the
    request to do so.
    """

    def __init__(self, target: Address, *, listen: str | Path | None = None) -> None:
        self._target = target
        self._changed = Condition()
        self._fault: Fault | None = None
        self._until = 0
        self._links: list[_Link] = []
        self._closed = False
        self.requests = 0
        """Requests that began since the start; a test may set it to 0."""
        self.fired = 0
        """Faults that went off."""
        self.accepting = True
        """Whether new connections get through; otherwise they are closed at once."""
        if listen is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port: int = self._listener.getsockname()[1]
        else:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(listen))
            self._listener.listen()
        self._accepter = Thread(target=self._accept, daemon=True)
        self._accepter.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def arm(self, fault: Fault) -> None:
        """Let `fault` happen once. It replaces an earlier one."""
        with self._changed:
            self._fault, self._until = fault, fault.at

    def disarm(self) -> None:
        """Drop the armed fault, and release held requests."""
        with self._changed:
            self._fault = None
            for link in self._links:
                link.fault = None
            self._changed.notify_all()

    def cut_all(self) -> None:
        """Cut every connection there is now. New ones are accepted."""
        with self._changed:
            links = tuple(self._links)
        for link in links:
            link.cut()

    def close(self) -> None:
        """Cut everything and stop listening. Idempotent."""
        self._closed = True
        self.disarm()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepter.join()
        self.cut_all()
        for link in tuple(self._links):
            link.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = _connect(self._target) if self.accepting else None
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            with self._changed:
                self._links = [link for link in self._links if not link.ended]
                self._links.append(_Link(self, client, server))

    def begin_request(self) -> Fault | None:
        """Count a request that begins, and return the fault that it meets, if any."""
        with self._changed:
            self.requests += 1
            fault = self._fault
            if fault is None:
                return None
            self._until -= 1
            if self._until:
                return None
            self._fault = None
            self.fired += 1
            return fault

    def hold(self, link: _Link) -> None:
        """Wait until `disarm`, or until the connection is cut."""
        with self._changed:
            self._changed.wait_for(lambda: link.fault is None or link.ended)

    def wake(self) -> None:
        """Let those that hold look again."""
        with self._changed:
            self._changed.notify_all()


class _Link:
    """One connection through the proxy: two sockets and a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.fault: Fault | None = None
        self.ended = False
        self._proxy, self._client, self._server = proxy, client, server
        self._asking = False  # whether the last bytes came from the client
        self._threads = [Thread(target=pump, daemon=True) for pump in (self._requests, self._replies)]
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        self.ended = True
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._proxy.wake()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _requests(self) -> None:
        with suppress(OSError), self._client:
            while not self.ended and (data := self._client.recv(1 << 16)):
                if not self._asking:
                    self._asking = True
                    self.fault = self._proxy.begin_request()
                data = self._meet("request", data, self._server)
                self._server.sendall(data)
        self.cut()

    def _replies(self) -> None:
        with suppress(OSError), self._server:
            while not self.ended and (data := self._server.recv(1 << 16)):
                data = self._meet("reply", data, self._client)
                self._asking = False
                self._client.sendall(data)
        self.cut()

    def _meet(self, what: str, data: bytes, to: socket.socket) -> bytes:
        """Return the part of `data` that is still to be sent after the fault of this request."""
        fault = self.fault
        if fault is None or not fault.kind.endswith(what):
            return data
        passing = data[: fault.passing]
        if len(passing) < fault.passing:
            self.fault = Fault(fault.kind, passing=fault.passing - len(passing))
            return data
        to.sendall(passing)
        if fault.kind.startswith("cut"):
            self.cut()
        else:
            self._proxy.hold(self)
        return b"" if self.ended else data[len(passing) :]


def _connect(address: Address) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=None)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.connect(str(address))
    except OSError:
        server.close()
        raise
    return server
