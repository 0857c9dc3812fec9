"""``vstate ui`` as a process: the page of one user on this machine. Layer: server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import uvicorn

from versioned_state.repository.repository import Repository
from versioned_state.server.page.app import Page, Settings
from versioned_state.server.page.guard import OneViewer, hosts_of
from versioned_state.server.run import listen

_GRACE_S: Final = 1
"""Seconds that pages under way have to finish after Ctrl-C."""


@dataclass(frozen=True)
class Options:
    """The options of ``vstate ui``.

    Attributes:
        allow_hosts: further names by which a browser may reach the page, with or without a port.
    """

    host: str = "127.0.0.1"
    port: int = 8421
    allow_hosts: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)


def serve(repository: Repository, options: Options, *, ready: Callable[[str], None]) -> None:
    """Serve the page until a signal. The repository is not closed.

    Args:
        ready: called with the address that signs a browser in, once requests are accepted.

    Raises:
        InvalidArgumentError: the address cannot be used.
    """
    listener = listen(options.host, options.port)
    try:
        port = listener.getsockname()[1]
        access = OneViewer(port)
        page = Page(repository, access, hosts_of(options.host, port, options.allow_hosts), options.settings)
        config = uvicorn.Config(
            page.application(),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE_S,
            server_header=False,
            proxy_headers=False,
        )
        _Process(config, page, lambda: ready(f"http://{_shown(options.host)}:{port}{access.link()}")).run(
            sockets=[listener]
        )
    finally:
        listener.close()


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - the address to show for it
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


class _Process(uvicorn.Server):
    """uvicorn that says when it is ready, and ends open streams before it waits for requests."""

    def __init__(self, config: uvicorn.Config, page: Page, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._page = page
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._page.end()
        await super().shutdown(sockets)
