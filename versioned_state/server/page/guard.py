"""The guard of the page: the checks that every request passes first, and the headers of every answer. Layer: server.

::

    Host: 421 ── Sec-Fetch-Site: 403 ── method: 405 ── POST: Origin: 403 ── who: 401
      ── POST: size: 413, form token: 403 ── the route

It stands in front of the routes, and so of every path, those that do not exist included: a list of guarded paths would
have a hole in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from secrets import compare_digest, token_urlsafe
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from blake3 import blake3
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from versioned_state.server.tokens import EVERY_USER, Tokens

MAX_FORM: Final = 1 << 16
"""Bytes of the largest form: a note."""

LOGIN: Final = "/login"
"""The one path that a viewer without a cookie may ask for. All other checks hold for it too."""

LOGOUT: Final = "/logout"
"""Where a form signs out, if ``Access`` has that."""

_ONCE_S: Final = 300.0
"""Seconds for which the link that signs a browser in is valid."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send the forms of the page with "Origin: null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_OF_SCHEMES: Final = ("80", "443")
"""The ports that a browser leaves out of ``Host``."""


def hosts_of(host: str, port: int, allowed: Iterable[str] = ()) -> frozenset[str]:
    """Return the exact values of ``Host`` under which a page is served, with a name's port or else the page's."""
    found = set()
    own = _bracketed(host)
    for name in (*(_LOOPBACK if own in _LOOPBACK else {own}), *map(_bracketed, allowed)):
        bare, colon, given = ("", "", "") if name.endswith("]") else name.rpartition(":")
        bare, given = (bare, given) if colon else (name, str(port))
        found.add(f"{bare}:{given}")
        if given in _OF_SCHEMES:
            found.add(bare)
    return frozenset(found)


def _bracketed(name: str) -> str:
    name = name.lower()
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who may look.

    Attributes:
        key: the same for all requests of this viewer.
        prefix: only branches whose names begin with it are shown; ``""`` shows all.
        form_token: what each form must carry.
    """

    key: str
    prefix: str = ""
    form_token: str = ""


class Access(Protocol):
    """How viewers sign in, and by what they are recognised."""

    def viewer(self, headers: Headers) -> Viewer | None:
        """Return the viewer of a request, or None."""

    def sign_in(self, fields: dict[str, str], method: str) -> str | None:
        """Return the ``Set-Cookie`` header for a request to ``LOGIN``, or None if it does not sign in."""

    def sign_out(self) -> str | None:
        """Return the ``Set-Cookie`` header that removes the cookie, or None if nobody signs out of this page."""


class OneViewer:
    """Access of the user who started the page: one secret, which dies with the process, and a link for one sign-in.

    Cookies ignore ports, so another server on this host gets this one too. Its name has the port, and so they do not
    overwrite each other.
    """

    def __init__(self, port: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.cookie: Final = f"vstate-{port}"
        self._secret = token_urlsafe(32)
        self._once: str | None = token_urlsafe(32)
        self._clock = clock
        self._until = clock() + _ONCE_S
        self._viewer = Viewer("", form_token=_form_token(self._secret))

    def link(self) -> str:
        """Return the path and query that sign a browser in, once."""
        return f"{LOGIN}?once={self._once}"

    def viewer(self, headers: Headers) -> Viewer | None:
        given = _cookie(headers, self.cookie)
        return self._viewer if given is not None and _same(given, self._secret) else None

    def sign_in(self, fields: dict[str, str], method: str) -> str | None:
        once = self._once
        if method != "GET" or once is None or self._clock() > self._until or not _same(fields.get("once", ""), once):
            return None
        self._once = None
        return f"{self.cookie}={self._secret}; HttpOnly; SameSite=Strict; Path=/"

    def sign_out(self) -> str | None:
        return None  # the link signs in once: nobody could come back


class TokenViewers:
    """Access by the bearer tokens of ``vstate serve``: a token with the scope ``read`` shows the sessions of its user.

    A browser sends the token as a cookie, which it gets for the token that was typed into the form: no process has to
    remember who signed in, and a token that is taken out of the file ends its sessions.

    Args:
        path: of the page: the cookie is for nothing else.
        tls: whether browsers come by HTTPS: then the cookie is for HTTPS alone. With its name, browsers let no page of
            HTTP set it either.
    """

    def __init__(
        self, tokens: Callable[[], Tokens], path: str, prefix_of: Callable[[str], str], *, tls: bool = False
    ) -> None:
        self._tokens = tokens
        self.cookie: Final = "__Secure-vstate-token" if tls else "vstate-token"
        self._attributes = f"{'Secure; ' if tls else ''}HttpOnly; SameSite=Strict; Path={path}"
        self._prefix_of = prefix_of

    def viewer(self, headers: Headers) -> Viewer | None:
        authorization = headers.get("authorization")
        if authorization is None:
            given = _cookie(headers, self.cookie)
            authorization = "" if given is None else f"Bearer {given}"
        grant = self._tokens().grant(authorization)
        if grant is None or "read" not in grant.scopes:
            return None
        prefix = "" if grant.user == EVERY_USER else self._prefix_of(grant.user) + "/"
        return Viewer(grant.user, prefix, _form_token(authorization))

    def sign_in(self, fields: dict[str, str], method: str) -> str | None:
        token = fields.get("token", "").strip()
        if method != "POST" or self.viewer(Headers({"authorization": f"Bearer {token}"})) is None:
            return None
        return f"{self.cookie}={token}; {self._attributes}"

    def sign_out(self) -> str | None:
        return f"{self.cookie}=; Max-Age=0; {self._attributes}"


def _form_token(secret: str) -> str:
    return blake3(secret.encode(), derive_key_context="versioned-state 2026 page form").hexdigest()[:32]


def _same(a: str, b: str) -> bool:
    return compare_digest(a.encode("utf-8", "replace"), b.encode("utf-8", "replace"))


def _cookie(headers: Headers, name: str) -> str | None:
    # As browsers send them, not as the standard has them: an odd cookie of another server on this host must not hide
    # ours.
    return cookie_parser("; ".join(headers.getlist("cookie"))).get(name)


@dataclass
class Guard:
    """Checks requests, and gives those that pass to the application.

    The scope then has ``versioned_state.viewer``, and for a POST its fields as ``versioned_state.form``.

    Attributes:
        hosts: the values of ``Host`` that are served, each with its port unless that is the scheme's own.
        prefix: of all paths, such as ``/ui``.
        refuse: makes the page that says why a request was refused: of a status and a reason.
        allows_posts: whether any route takes a form.
        tls: whether browsers come by HTTPS, so that forms do.
    """

    app: ASGIApp
    access: Access
    hosts: frozenset[str]
    refuse: Callable[[HTTPStatus, str], Response]
    prefix: str = ""
    allows_posts: bool = False
    tls: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), text.encode()) for name, text in _HEADERS.items() if name.encode() not in given),
                ]
            await send(message)

        refusal = await self._check(scope, Headers(scope=scope), receive)
        answer: ASGIApp = self.app if refusal is None else refusal
        await answer(scope, receive, with_headers)

    async def _check(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """Return the answer to a request that goes no further, or None for one that passes."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return self.refuse(
                HTTPStatus.MISDIRECTED_REQUEST, "This server does not serve the host that the request names."
            )
        sites = headers.getlist("sec-fetch-site")
        if any(site not in ("same-origin", "none") for site in sites):
            return self.refuse(HTTPStatus.FORBIDDEN, "The request comes from another site.")
        method, is_login = scope["method"], scope["path"] == self.prefix + LOGIN
        if method not in ("GET", "HEAD", "POST"):
            return self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, "The page is read by GET.")
        if method == "POST" and not self._is_own(headers, hosts[0]):
            return self.refuse(HTTPStatus.FORBIDDEN, "The form comes from another page.")
        if is_login:
            return await self._sign_in(scope, method, receive)
        viewer = self.access.viewer(headers)
        if viewer is None:
            return self.refuse(HTTPStatus.UNAUTHORIZED, "")
        scope["versioned_state.viewer"] = viewer
        if method == "POST":
            form = await _read_form(receive)
            if form is None:
                return self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
            if not _same(form.get("token", ""), viewer.form_token):
                return self.refuse(
                    HTTPStatus.FORBIDDEN, "The form is not from this page, or the server was started again since."
                )
            if scope["path"] == self.prefix + LOGOUT and (cookie := self.access.sign_out()) is not None:
                return self._see(cookie)
            if not self.allows_posts:
                return self.refuse(
                    HTTPStatus.METHOD_NOT_ALLOWED, "This page only reads: vstate ui --edit begins one that changes."
                )
            scope["versioned_state.form"] = form
        return None

    def _is_own(self, headers: Headers, host: str) -> bool:
        origins = headers.getlist("origin")
        schemes = ("https",) if self.tls else ("http", "https")
        return len(origins) == 1 and origins[0].lower() in [f"{scheme}://{host}".lower() for scheme in schemes]

    async def _sign_in(self, scope: Scope, method: str, receive: Receive) -> Response:
        form = await _read_form(receive) if method == "POST" else _fields(scope["query_string"])
        cookie = None if form is None else self.access.sign_in(form, method)
        if cookie is None:
            reason = (
                ""
                if method == "GET" and not form
                else "The link or the token does not sign in: a link does so once, for five minutes."
            )
            return self.refuse(HTTPStatus.UNAUTHORIZED, reason)
        return self._see(cookie)

    def _see(self, cookie: str) -> Response:
        """Return the answer that leads to the first page, with a cookie."""
        return Response(status_code=HTTPStatus.SEE_OTHER, headers={"location": self.prefix + "/", "set-cookie": cookie})


async def _read_form(receive: Receive) -> dict[str, str] | None:
    """Return the fields of a form, or None if it is too large."""
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return {}
        body += message.get("body", b"")
        if len(body) > MAX_FORM:
            return None
        more = message.get("more_body", False)
    return _fields(body)


def _fields(raw: bytes) -> dict[str, str]:
    """Return the fields of a query or a form: the first of each name."""
    fields: dict[str, str] = {}
    try:
        pairs: Iterable[tuple[Any, Any]] = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
        for name, text in pairs:
            fields.setdefault(name, text)
    except ValueError:
        return {}
    return fields
