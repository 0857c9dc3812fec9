"""The Chromium that the machine has, and the page served to it by a real server in this process."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from versioned_state import Repository

HOW: Final = "apt-get install chromium, or VSTATE_CHROMIUM=PATH"

ARGUMENTS: Final = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage"),
]
"""Without the flags for the network, Chromium looks for its own hosts at each start."""


def find() -> str | None:
    """The program, or None."""
    named = os.environ.get("VSTATE_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def served(repository: Repository, **settings: Any) -> Iterator[tuple[str, str]]:
    """Serve the page, and give its address and the link that signs a browser in."""
    import uvicorn

    from versioned_state.server.page.app import Page, Settings
    from versioned_state.server.page.guard import OneViewer, hosts_of

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    access = OneViewer(port)
    page = Page(repository, access, hosts_of("127.0.0.1", port), Settings(**settings))
    server = uvicorn.Server(
        uvicorn.Config(page.application(), lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()  # the socket listens: what comes before the server has begun waits in it
    try:
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}{access.link()}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
