"""A server as a process: its services, its socket, its signals. Layer: server."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.repository.database import Database
from versioned_state.repository.repository import Repository
from versioned_state.server.app import Server
from versioned_state.server.exactly_once import OnceDatabase
from versioned_state.server.limits import MAX_HEAD, Limits
from versioned_state.server.log import logger
from versioned_state.server.operations import Services
from versioned_state.server.protocol import guarded
from versioned_state.server.tokens import Tokens
from versioned_state.services.agent_state import VersionedStateService
from versioned_state.services.memory import VersionedMemoryService
from versioned_state.services.session import VersionedSessionService
from versioned_state.services.session.chat import ChatService
from versioned_state.services.session_history.session_history_service import VersionedSessionHistoryService
from versioned_state.services.store_service import HANDLE_BYTES
from versioned_state.storage import KVStore

_BACKLOG: Final = 2048
_ACCEPTED_AT_ONCE: Final = 32
"""Connections that asyncio accepts before it handles any of them. Until then, those beyond the limit take files."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a server.

    Attributes:
        host, port: the address to listen on. Port 0 means any free port.
        tokens: the file of tokens. It is read again on SIGHUP. If it is invalid then, the server keeps the old tokens.
        page: whether to serve the page too, under ``/ui``, for tokens with the scope ``read``: each for the sessions of
            its user.
        allow_hosts: further names by which browsers may reach the page.
        behind_tls: whether they reach it by HTTPS: then its cookie is for HTTPS alone.
        grace: seconds that requests have to finish after SIGTERM or Ctrl-C. One second later the process ends, whatever
            its threads do. A second signal ends it at once.
    """

    tokens: str
    host: str = "127.0.0.1"
    port: int = 8420
    limits: Limits = field(default_factory=Limits)
    grace: float = 30.0
    page: bool = False
    allow_hosts: tuple[str, ...] = ()
    behind_tls: bool = False


def services_over(store: KVStore, handle_bytes: int = HANDLE_BYTES) -> Services:
    """Return the services of a server over a store. Nothing is pickled, whatever the store, because others write to it.

    Args:
        handle_bytes: as for ``StoreService``, for each service.
    """
    repository = Repository.over(OnceDatabase(store, pickle="refuse"))
    return Services(
        state=VersionedStateService(repository, handle_bytes=handle_bytes),
        history=VersionedSessionHistoryService(repository, create_missing=False, handle_bytes=handle_bytes),
        # its sessions stay open in ``history``
        opening=VersionedSessionHistoryService(repository, create_missing=True, handles=0),
        memory=VersionedMemoryService(repository, handle_bytes=handle_bytes),
        sessions=VersionedSessionService(repository, create_missing=False, handle_bytes=handle_bytes),
        opening_sessions=ChatService(repository, create_missing=True, handles=0),
    )


def serve(store: KVStore, options: Options, *, ready: Callable[[str], None]) -> None:
    """Serve until a signal. Then accepted requests finish, and no others are accepted. The store is not closed.

    Args:
        ready: called with the URL as soon as requests are accepted.

    Raises:
        InvalidArgumentError: the file of tokens is invalid.
        StateError: the address cannot be used.
        StorageError: the store failed.
    """
    services = services_over(store, options.limits.handle_bytes)
    server = Server(services, Tokens.read(options.tokens), options.limits)
    listener = listen(options.host, options.port)
    try:
        application: ASGIApp = server.application()
        ends: list[Callable[[], Awaitable[None]]] = []
        if options.page:
            from versioned_state.server.page.beside import Beside

            port = listener.getsockname()[1]
            history = Repository.over(Database(store, pickle="refuse"))
            both = Beside(
                application,
                history,
                lambda: server.tokens,
                options.host,
                port,
                options.allow_hosts,
                tls=options.behind_tls,
            )
            application = both
            ends.append(both.end)
        config = uvicorn.Config(
            application,
            http=guarded(options.limits),
            ws="none",
            backlog=_ACCEPTED_AT_ONCE,
            h11_max_incomplete_event_size=2 * MAX_HEAD,  # so that a head just above the limit gets an answer
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_keep_alive=options.limits.idle_timeout,  # type: ignore[arg-type]
            timeout_graceful_shutdown=options.grace,  # type: ignore[arg-type]
            server_header=False,
            proxy_headers=False,
        )
        _Process(config, server, options, listener, ready, ends).run(sockets=[listener])
    finally:
        listener.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address. Raises ``InvalidArgumentError`` if it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError(f"cannot listen on {host}:{port}: {reason}", remains="nothing was started") from None
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Process(uvicorn.Server):
    """uvicorn with the signals of a service."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: Server,
        options: Options,
        listener: socket.socket,
        ready: Callable[[str], None],
        ends: list[Callable[[], Awaitable[None]]],
    ) -> None:
        super().__init__(config)
        self._ends = ends
        self._listener = listener
        self._server = server
        self._options = options
        self._ready = ready
        self._signals: SimpleQueue[int] = SimpleQueue()  # whose ``put`` a signal handler may call
        Thread(target=self._end_at_last, name="versioned-state-end", daemon=True).start()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listener.listen(_BACKLOG)  # asyncio has set it to the number that it accepts at once
            self._ready(_url(self._listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("stopping", extra={"event": "stopping"})
        self._server.end()
        for end in self._ends:  # of streams, for which uvicorn would wait as for any answer
            await end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        handlers: dict[signal.Signals, Any] = {signal.SIGINT: self.handle_exit, signal.SIGTERM: self.handle_exit}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._reload
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            _quit()
        self.should_exit = True
        self._signals.put(sig)

    def _end_at_last(self) -> None:
        """Wait for a signal, and end the process if it does not end by itself.

        This thread needs neither the event loop nor the store.

        A call on a store that hangs does not end, and Python does not end while the thread of that call runs. The call
        is then lost, as if the process had died.
        """
        self._signals.get()
        time.sleep(self._options.grace + 1)
        _quit()

    def _reload(self, sig: int, frame: FrameType | None) -> None:
        try:
            self._server.tokens = Tokens.read(self._options.tokens)
        except (StateError, OSError) as error:
            reason = error.what if isinstance(error, StateError) else error
            logger.error("the tokens stay as they were: %s", reason, extra={"event": "reload"})
        else:
            logger.info("read %d tokens", len(self._server.tokens), extra={"event": "reload"})


def _quit() -> None:
    """End the process now, without waiting for its threads, which may wait for a store for ever."""
    os._exit(1)
