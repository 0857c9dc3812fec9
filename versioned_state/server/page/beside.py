"""The page beside the API of ``vstate serve``: under ``/ui``, for tokens, each for the sessions of its user.

Layer: server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.repository import Repository
from versioned_state.server.page.app import Page, Settings
from versioned_state.server.page.guard import TokenViewers, hosts_of
from versioned_state.server.tokens import Tokens

PREFIX: Final = "/ui"


class Beside:
    """The application of both: what is under ``/ui`` is the page, which only reads, and everything else the API.

    Args:
        tokens: the tokens as they are at a request.
        allow_hosts: names by which browsers reach it. One with a scheme's own port, as at a proxy, is named with
            ``:443`` or ``:80``.
        tls: whether browsers come by HTTPS. Whoever starts the server knows; a header of a request, which anybody can
            send, says nothing.
    """

    def __init__(
        self,
        api: ASGIApp,
        repository: Repository,
        tokens: Callable[[], Tokens],
        host: str,
        port: int,
        allow_hosts: Iterable[str] = (),
        *,
        tls: bool = False,
    ) -> None:
        self._api = api
        page = Page(
            repository,
            TokenViewers(tokens, PREFIX, branch_name, tls=tls),
            hosts_of(host, port, allow_hosts),
            Settings(prefix=PREFIX, sign_in_form=True, tls=tls),
        )
        self._page = page.application()
        self.end: Final = page.end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == PREFIX or path.startswith(PREFIX + "/")):
            await self._api(scope, receive, send)
        else:
            await self._page({**scope, "path": PREFIX + "/"} if path == PREFIX else scope, receive, send)
