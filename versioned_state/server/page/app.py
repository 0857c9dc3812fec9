"""The page as an ASGI application: its table of routes, and a request on its way to a view and back. Layer: server.

::

    guard ── route ── a place among 4 ── off the event loop: the view, within 5 s, then its template ── at most 1 MiB

A view is a function of a repository that returns a dict. A template shows it; a script gets the same dict as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from versioned_state.errors import (
    AmbiguousRevisionError,
    BranchMovedError,
    CorruptObjectError,
    CorruptRefError,
    CorruptStoreError,
    InvalidArgumentError,
    LimitExceededError,
    MissingObjectError,
    RefExistsError,
    StateError,
    StorageError,
    UnknownPathError,
    UnknownRevisionError,
)
from versioned_state.off_loop import off_loop
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown.text import Budget
from versioned_state.server.page import static
from versioned_state.server.page.guard import POLICY, Access, Guard, Viewer
from versioned_state.server.page.links import Links
from versioned_state.server.page.live import Live
from versioned_state.server.page.render import pieces, render
from versioned_state.server.page.views.blame import blame as blame_view
from versioned_state.server.page.views.chat import chat as chat_view
from versioned_state.server.page.views.commit import commit as commit_view
from versioned_state.server.page.views.compare import compare as compare_view
from versioned_state.server.page.views.diff import diff as diff_view
from versioned_state.server.page.views.edit import VERBS, confirm, perform
from versioned_state.server.page.views.events import events as events_view
from versioned_state.server.page.views.history import history as history_view
from versioned_state.server.page.views.log import jump, log as log_view
from versioned_state.server.page.views.reads import only_reading
from versioned_state.server.page.views.search import search as search_view
from versioned_state.server.page.views.sessions import sessions as sessions_view
from versioned_state.server.page.views.state import raw as raw_value, state as state_view
from versioned_state.services.calls.deadline import LateError, set_deadline

logger: Final = logging.getLogger("versioned_state.server")

LARGEST: Final = 1 << 20
"""Bytes of a page."""

AT_ONCE: Final = 4
"""Requests of one viewer that are worked on at once; others wait."""

_AS_IT_COMES: Final = {"vary": "Accept", "x-accel-buffering": "no"}
"""Headers of a page that is sent while it is made: a proxy must not wait for its end."""

_BRANCH_OF_COMMIT: Final = "on"
"""The parameter that names the branch by which a viewer who may not see all came to a commit."""


@dataclass
class Ask:
    """A request of a viewer, for a view.

    Attributes:
        path, query: the parameters of the path, and those of the query, each once.
        parts: the parts of the path, each unquoted by itself, so that a name may have a ``/``.
        form: the fields of a POST.
        writer: the repository by which ``edit`` writes; None if the page only reads.
    """

    repository: Repository
    viewer: Viewer
    link: Links
    path: Mapping[str, Any]
    query: Mapping[str, str]
    parts: Sequence[str]
    form: Mapping[str, str]
    settings: Settings
    writer: Repository | None = None
    budget: Budget = field(default_factory=Budget)

    def sees(self, branch: str) -> bool:
        """Return whether the viewer may see a branch of this name."""
        return branch.startswith(self.viewer.prefix)

    def branch(self, name: str) -> str:
        """Return the name of a branch that the viewer may see.

        Raises ``UnknownRevisionError`` for any other, as if it did not exist.
        """
        if not self.sees(name) or name not in self.repository.branches:
            raise UnknownRevisionError(name, reason="there is no such branch")
        return name

    def commit(self, rev: str) -> Commit:
        """Return the commit of a revision that the viewer may see. Raises ``UnknownRevisionError``."""
        if not self.viewer.prefix:
            return self.repository.commit(rev)
        missing = UnknownRevisionError(rev, reason="there is no such branch, or no such commit in this one")
        if self.sees(rev) and rev in self.repository.branches:
            return self.repository.branches[rev]
        return self.commit_of(rev, self.query.get(_BRANCH_OF_COMMIT, ""), missing)

    def commit_of(self, id: str, on: str, missing: StateError) -> Commit:
        """Return the commit of an id that leads to the head of a branch visible to the viewer, or raise ``missing``."""
        if len(id) != len(ROOT_ID) or not self.sees(on) or on not in self.repository.branches:
            raise missing
        try:
            found = self.repository.commit(id)
        except (UnknownRevisionError, InvalidArgumentError):
            raise missing from None
        if found.id != ROOT_ID and not graph.is_ancestor(
            found, self.repository.branches[on], self.repository.database.commits.read
        ):
            raise missing
        return found


@dataclass(frozen=True)
class Settings:
    """The settings of a page.

    Attributes:
        prefix: of all its paths.
        edit: whether it offers changes of branches.
        read_timeout: seconds that a page may take.
        author: of the commits that ``edit`` makes, unless the form names another.
        store: the name of the store, for the head of each page.
        sign_in_form: whether a viewer signs in by a token that is typed in, and can sign out.
        tls: whether browsers come by HTTPS, as by a proxy in front.
    """

    prefix: str = ""
    edit: bool = False
    read_timeout: float = 5.0
    author: str = ""
    store: str = ""
    sign_in_form: bool = False
    tls: bool = False


@dataclass(frozen=True)
class Shown:
    """The result of a view: the template that shows it, and its data."""

    template: str
    data: dict[str, Any]
    status: HTTPStatus = HTTPStatus.OK


@dataclass(frozen=True)
class Streamed:
    """What a view finds while its page is sent: ``rows`` of its data is an iterator, and ``end`` says how it ended."""

    template: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Whole:
    """A value as it is, for a browser to save."""

    kind: str
    content: bytes


@dataclass(frozen=True)
class Elsewhere:
    """The answer is at another address."""

    address: str


Result = Shown | Streamed | Whole | Elsewhere


@dataclass(frozen=True)
class Row:
    """A row of the table of routes: a path, its method, and what answers.

    Attributes:
        edits: whether it changes a branch, so that it exists with ``edit`` only.
    """

    path: str
    run: Callable[[Ask], Result]
    method: str = "GET"
    edits: bool = False


def _sessions(ask: Ask) -> Result:
    query = ask.query
    data = sessions_view(
        ask.repository,
        ask.budget,
        scope=ask.viewer.prefix,
        prefix=query.get("prefix", ""),
        q=query.get("q", ""),
        by=query.get("by", "changed"),
        after=query.get("after") or None,
        where=query.get("where", ""),
    )
    return Shown("sessions", data)


def _log(ask: Ask) -> Result:
    branch = ask.branch(ask.path["name"])
    to = ask.query.get("to", "")
    if to:
        return Elsewhere(ask.link.log(branch, after=jump(ask.repository, branch, to=to).id))
    cursor = ask.query.get("after", "")
    if ask.viewer.prefix and cursor:
        for id in cursor.split("."):
            ask.commit_of(id, branch, UnknownRevisionError(id, reason="this session has no such commit"))
    return Shown("log", log_view(ask.repository, ask.budget, branch, cursor=cursor))


def _commit(ask: Ask) -> Result:
    return Shown("commit", commit_view(ask.repository, ask.budget, ask.commit(ask.path["id"])))


def _state(ask: Ask) -> Result:
    found = ask.commit(ask.path["id"])
    return Shown(
        "state",
        state_view(ask.repository, ask.budget, found, path=ask.query.get("path", ""), start=_number(ask, "start")),
    )


def _raw(ask: Ask) -> Result:
    return Whole(*raw_value(ask.repository, ask.commit(ask.path["id"]), ask.query.get("path", "")))


def _number(ask: Ask, name: str) -> int:
    """Return a number of the query, 0 if there is none."""
    text = ask.query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _diff(ask: Ask) -> Result:
    ends = split_range(ask.path["range"])
    if ends is None:
        raise InvalidArgumentError("a diff is of two commits: /diff/A..B")
    a, b = map(ask.commit, ends)
    names = tuple(each.short if end == each.id else end for end, each in zip(ends, (a, b), strict=True))
    return Shown(
        "diff", diff_view(ask.repository, ask.budget, a, b, path=ask.query.get("path", ""), names=(names[0], names[1]))
    )


def _blame(ask: Ask) -> Result:
    found, path, at = ask.commit(ask.path["rev"]), ask.query.get("path", ""), ask.query.get("at", "")
    data = blame_view(
        ask.repository,
        ask.budget,
        found,
        path=path,
        skip=_number(ask, "skip"),
        at=_number(ask, "at") if at else None,
        longer=bool(ask.query.get("longer")),
    )
    return Shown("blame", data)


def _history(ask: Ask) -> Result:
    found, path = ask.commit(ask.path["rev"]), ask.query.get("path", "")
    if not path:
        return Elsewhere(ask.link.state(found.id))
    return Shown("history", history_view(ask.repository, ask.budget, found, path, longer=bool(ask.query.get("longer"))))


def _chat(ask: Ask) -> Result:
    found = ask.commit(ask.path["rev"])
    return Shown(
        "chat", chat_view(ask.repository, ask.budget, found, path=ask.query.get("path", ""), skip=_number(ask, "skip"))
    )


def _events(ask: Ask) -> Result:
    found = ask.commit(ask.path["rev"])
    return Shown(
        "events", events_view(ask.repository, ask.budget, found, skip=_number(ask, "skip"), scope=ask.viewer.prefix)
    )


def _search(ask: Ask) -> Result:
    found = ask.commit(ask.path["rev"])
    return Streamed(
        "search",
        search_view(ask.repository, ask.budget, found, q=ask.query.get("q", ""), path=ask.query.get("path", "")),
    )


def _compare_form(ask: Ask) -> Result:
    return Elsewhere(ask.link.compare(ask.query.get("a", "") or "HEAD", ask.query.get("b", "") or "HEAD"))


def _compare(ask: Ask) -> Result:
    # Each name is quoted as a whole, so that it may have a slash; a proxy may have unquoted them.
    given = ask.parts[1:]
    splits = [("/".join(given[:at]), "/".join(given[at:])) for at in range(1, len(given))]
    if not splits:
        raise InvalidArgumentError("a comparison is of two branches or commits: /compare/A/B")
    for a, b in splits[:-1]:
        if a in ask.repository.branches and b in ask.repository.branches:
            break
    else:
        a, b = splits[-1] if len(splits) == 1 else splits[0]
    first, second = ask.commit(a), ask.commit(b)
    names = tuple(each.short if name == each.id else name for name, each in ((a, first), (b, second)))
    longer = bool(ask.query.get("longer"))
    return Shown(
        "compare", compare_view(ask.repository, ask.budget, first, second, names=(names[0], names[1]), longer=longer)
    )


def _verb(ask: Ask) -> tuple[str, str]:
    """Return the name of what is to be done, and the branch."""
    if ask.path["verb"] not in VERBS:
        raise HTTPException(404)
    return ask.path["verb"], ask.branch(ask.path["name"])


def _edit(ask: Ask) -> Result:
    verb, branch = _verb(ask)
    return Shown("edit", confirm(ask.repository, ask.budget, verb, branch, ask.query, author=ask.settings.author))


def _perform(ask: Ask) -> Result:
    verb, branch = _verb(ask)
    assert ask.writer is not None
    found = perform(ask.writer, verb, branch, ask.form)
    created = ask.form.get("name", "") if verb == "branch" else branch
    return Elsewhere(ask.link.log(created) if found is None else ask.link.commit(found.id, on=branch))


ROUTES: Final[list[Row]] = [
    Row("/", _sessions),
    Row("/b/{name:path}", _log),
    Row("/c/{id}", _commit),
    Row("/c/{id}/state", _state),
    Row("/c/{id}/raw", _raw),
    Row("/diff/{range:path}", _diff),
    Row("/blame/{rev:path}", _blame),
    Row("/history/{rev:path}", _history),
    Row("/chat/{rev:path}", _chat),
    Row("/events/{rev:path}", _events),
    Row("/compare", _compare_form),
    Row("/compare/{pair:path}", _compare),
    Row("/search/{rev:path}", _search),
    Row("/edit/{verb}/{name:path}", _edit, edits=True),
    Row("/edit/{verb}/{name:path}", _perform, method="POST", edits=True),
]
"""Every path that a view answers.

The guard stands in front of all of them, of ``/login`` and ``/static``, and of what does not exist.
"""


class Page:
    """The page over a repository.

    Args:
        repository: the commits to show. Views get a reading one over the same store; only ``settings.edit`` writes by
            this one.
        access: who may look.
        hosts: the values of ``Host`` that are served.
    """

    def __init__(
        self,
        repository: Repository,
        access: Access,
        hosts: frozenset[str],
        settings: Settings | None = None,
    ) -> None:
        self.repository: Final = only_reading(repository)
        self.settings: Final = Settings() if settings is None else settings
        self._writer = repository if self.settings.edit else None
        self.link: Final = Links(self.settings.prefix)
        self._access = access
        self._hosts = hosts
        self._live = Live(self.repository)
        self._places: dict[str, asyncio.Semaphore] = {}

    def application(self) -> ASGIApp:
        """Return the application: the guard, and behind it the routes."""
        rows = [row for row in ROUTES if self.settings.edit or not row.edits]
        routes = [Route("/static/{hash}/{name}", self._static), self._live.route]
        routes += [Route(row.path, partial(self._answer, row), methods=[row.method]) for row in rows]
        prefix = self.settings.prefix
        routes = [Route(prefix + route.path, route.endpoint, methods=list(route.methods or ())) for route in routes]
        inner = Starlette(routes=routes, exception_handlers={HTTPException: self._not_found})
        inner.router.redirect_slashes = False
        return Guard(
            inner,
            self._access,
            self._hosts,
            self.refusal,
            prefix,
            allows_posts=self.settings.edit,
            tls=self.settings.tls,
        )

    async def end(self) -> None:
        """End the streams that are open, so that the server need not wait for them."""
        await self._live.end()

    # A request

    async def _answer(self, row: Row, request: Request) -> Response:
        scope = request.scope
        viewer: Viewer = scope["versioned_state.viewer"]
        raw_path = (
            scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace").removeprefix(self.settings.prefix)
        )
        ask = Ask(
            self.repository,
            viewer,
            Links(self.settings.prefix),
            request.path_params,
            _first_of_each(request),
            [unquote(part, errors="surrogatepass") for part in raw_path.split("/")[1:]],
            scope.get("versioned_state.form", {}),
            self.settings,
            self._writer,
        )
        as_json = request.headers.get("accept") == "application/json"
        async with self._place(viewer):
            return await off_loop(partial(self._run, row, ask, as_json=as_json))

    @asynccontextmanager
    async def _place(self, viewer: Viewer) -> AsyncIterator[None]:
        places = self._places.setdefault(viewer.key, asyncio.Semaphore(AT_ONCE))
        async with places:
            yield

    def _run(self, row: Row, ask: Ask, *, as_json: bool) -> Response:
        set_deadline(self.settings.read_timeout)
        try:
            on = ask.query.get(_BRANCH_OF_COMMIT, "")
            ask.link.on = on if on and ask.sees(on) and on in ask.repository.branches else ""
            result = row.run(ask)
            if isinstance(result, Streamed) and as_json:
                rows = list(result.data["rows"])
                result = Shown(result.template, {**result.data, "rows": rows, "end": asdict(result.data["end"])})
            if isinstance(result, Shown):
                return self._shown(ask, result, as_json=as_json)
            if isinstance(result, Streamed):
                return StreamingResponse(self._streamed(ask, result), media_type="text/html", headers=_AS_IT_COMES)
        except HTTPException:
            return self._shown(ask, _nowhere(HTTPStatus.NOT_FOUND), as_json=as_json)
        except (StateError, LateError) as error:
            return self._failed(ask, error, as_json=as_json)
        except Exception:
            logger.exception("the page failed at %s", row.path, extra={"event": "page", "path": row.path})
            problem = _problem(
                HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong here", "The log of the server says where.", ""
            )
            return self._shown(ask, problem, as_json=as_json)
        if isinstance(result, Elsewhere):
            return RedirectResponse(result.address, HTTPStatus.SEE_OTHER)
        return _saved(result)

    async def _streamed(self, ask: Ask, found: Streamed) -> AsyncIterator[bytes]:
        """Yield a page as its rows are found. Without scripts too, a browser shows what it has."""
        ready: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def render_all() -> None:
            set_deadline(self.settings.read_timeout)
            data = {**found.data, "left_out": False}
            for piece in pieces(
                found.template, link=ask.link, settings=self.settings, viewer=ask.viewer, static=static, **data
            ):
                loop.call_soon_threadsafe(ready.put_nowait, piece)

        async with self._place(ask.viewer):
            work = asyncio.ensure_future(off_loop(render_all))
            work.add_done_callback(lambda _: ready.put_nowait(None))
            try:
                there: list[str | None] = [""]
                while there[-1] is not None:
                    there = [await ready.get()]
                    while not ready.empty():
                        there.append(ready.get_nowait())
                    yield "".join(filter(None, there)).encode("utf-8", "replace")
            finally:
                await work

    def _failed(self, ask: Ask, error: Exception, *, as_json: bool) -> Response:
        problem = problem_of(error, self.settings.read_timeout)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.warning("%s", type(error).__name__, extra={"event": "page", "error": type(error).__name__})
        return self._shown(ask, problem, as_json=as_json)

    def _shown(self, ask: Ask, shown: Shown, *, as_json: bool) -> Response:
        data = {**shown.data, "left_out": ask.budget.left_out}
        if as_json:
            body = json.dumps(data, ensure_ascii=True).encode()
            return Response(body, shown.status, media_type="application/json", headers={"vary": "Accept"})
        ask.link.on = ask.link.on or data.get("branch", "")
        text = self._render(shown.template, ask.viewer, data, ask.link)
        body = text.encode("utf-8", "replace")
        if len(body) > LARGEST:
            problem = _problem(
                HTTPStatus.INTERNAL_SERVER_ERROR, "This page is too large", f"It has {len(body):,} bytes.", ""
            )
            return Response(
                self._render(problem.template, ask.viewer, problem.data), problem.status, media_type="text/html"
            )
        return Response(body, shown.status, media_type="text/html", headers={"vary": "Accept"})

    def _render(self, template: str, viewer: Viewer | None, data: dict[str, Any], link: Links | None = None) -> str:
        return render(template, link=link or self.link, settings=self.settings, viewer=viewer, static=static, **data)

    def refusal(self, status: HTTPStatus, reason: str) -> Response:
        """Return the page of a request that the guard refuses: it may ask for nothing else, so its style is within."""
        data = {
            "title": status.phrase,
            "status": int(status),
            "reason": reason,
            "style": static.content("page.css").decode(),
        }
        text = self._render("refused", None, data)
        policy = POLICY.replace("style-src 'self'", f"style-src '{static.style_hash()}'")
        return Response(text, status, media_type="text/html", headers={"content-security-policy": policy})

    async def _static(self, request: Request) -> Response:
        found = static.find(request.path_params["hash"], request.path_params["name"])
        if found is None:
            return await self._not_found(request, HTTPException(404))
        return Response(
            found[0], media_type=found[1], headers={"cache-control": "private, max-age=31536000, immutable"}
        )

    async def _not_found(self, request: Request, error: Exception) -> Response:
        status = HTTPStatus(error.status_code if isinstance(error, HTTPException) else 500)
        problem = _nowhere(status)
        return Response(
            self._render(problem.template, request.scope.get("versioned_state.viewer"), problem.data),
            status,
            media_type="text/html",
        )


def _first_of_each(request: Request) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        query.setdefault(name, text)
    return query


def _saved(whole: Whole) -> Response:
    """Return a value as it is: never as a document that could act, whatever it holds."""
    kind = "text/plain; charset=utf-8" if whole.kind == "text" else "application/octet-stream"
    headers = {
        "content-disposition": f'attachment; filename="value.{"txt" if whole.kind == "text" else "bin"}"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Response(whole.content, headers={**headers, "content-type": kind})


def _problem(status: HTTPStatus, title: str, what: str, hint: str, *, name: str = "") -> Shown:
    return Shown(
        "problem",
        {"title": title, "status": int(status), "what": what, "hint": hint, "name": name, "left_out": False},
        status,
    )


def _nowhere(status: HTTPStatus) -> Shown:
    return _problem(status, "There is no such page", "The address leads nowhere.", "Begin at the list of sessions.")


def problem_of(error: Exception, seconds: float) -> Shown:
    """Return the page that shows an error."""
    what, hint = (error.what, error.hint) if isinstance(error, StateError) else ("", "")
    match error:
        case LateError():
            what = f"It took more than {seconds:g} s, and was ended. Nothing was changed."
            return _problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "This took too long",
                what,
                "A narrower path or range takes less; --read-timeout gives more time.",
            )
        case UnknownRevisionError() | AmbiguousRevisionError():
            return _problem(HTTPStatus.NOT_FOUND, "There is no such commit or branch", str(error), hint)
        case UnknownPathError():
            return _problem(HTTPStatus.NOT_FOUND, "Nothing is there", what, hint)
        case CorruptObjectError() | MissingObjectError() | CorruptRefError() | CorruptStoreError():
            hint = "vstate fsck names every damaged object, and what depends on it."
            return _problem(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "This part of the store is damaged",
                str(error),
                hint,
                name=type(error).__name__,
            )
        case BranchMovedError() | RefExistsError():
            return _problem(HTTPStatus.CONFLICT, "Somebody was faster", str(error), hint)
        case LimitExceededError():
            return _problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "This is more than a page shows", str(error), hint)
        case InvalidArgumentError():
            return _problem(HTTPStatus.BAD_REQUEST, "This cannot be done", what, hint)
        case StorageError():
            return _problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The store does not answer",
                str(error),
                hint or "Try again in a moment.",
            )
        case _:
            return _problem(HTTPStatus.BAD_REQUEST, "This cannot be done", str(error), hint)
