"""``Live``: the commits of a branch as they are made, as server-sent events. One poll of a branch serves all viewers.

Layer: server.

::

    GET /live/NAME   id: COMMIT      data: {"id": …, "message": …, "changes": …, "round": …, "author": …, "time": …}
                     event: moved    the branch was moved to a commit that it had, or was deleted; no data of a commit

A stream begins behind the commit in ``Last-Event-ID``, or in ``after``, or else at the head.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from versioned_state.errors import MissingObjectError, StateError, StorageError
from versioned_state.off_loop import off_loop
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.history.graph import only_in
from versioned_state.repository.names.watching import Watch
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown.commits import facts
from versioned_state.repository.shown.text import Budget
from versioned_state.server.page.guard import Viewer
from versioned_state.services.calls.deadline import LateError, set_deadline

logger: Final = logging.getLogger("versioned_state.server")

INTERVAL_S: Final = 0.5
"""Between two polls of a branch that somebody looks at."""

BACKGROUND_S: Final = 2.0
"""The same, if all of its viewers said that they do not (``background=1``)."""

_PING_S: Final = 15.0
"""Seconds between pings of a stream: a proxy ends a silent connection, and only a write shows that one is broken."""

_KEPT: Final = 100
"""The last commits of a branch that are kept for viewers who come back, and the most that one gets at once."""

_WAITING: Final = 4 * _KEPT
"""Events that may wait for a slow viewer. Then its stream ends; the browser comes back, and says how far it was."""

_STREAMS: Final = 256
"""Streams that are open at once."""

_READ_S: Final = 5.0
"""For the reads of one poll."""

_CHANGES: Final = 100
"""Changes of a commit that are counted."""


class Live:
    """The streams of a page.

    Args:
        repository: one that only reads.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._branches: dict[str, _Branch] = {}
        self._streams = 0
        self._ended = False

    @property
    def route(self) -> Route:
        return Route("/live/{name:path}", self.answer)

    async def answer(self, request: Request) -> Response:
        """Begin a stream. 404 for a branch that is not there, or that the viewer may not see."""
        viewer: Viewer = request.scope["versioned_state.viewer"]
        name = request.path_params["name"]
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        if self._ended or self._streams >= _STREAMS:
            return PlainTextResponse("There are too many streams.", 503, headers={"retry-after": "5"})
        if not name.startswith(viewer.prefix) or not await off_loop(lambda: name in self._repository.branches):
            return PlainTextResponse("There is no such branch.", 404)
        stream = self._stream(name, after, is_behind=request.query_params.get("background") == "1")
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def end(self) -> None:
        """End all streams, and begin no others: a server that ends waits for its answers, and these go on for ever."""
        self._ended = True
        for branch in self._branches.values():
            branch.end()

    async def _stream(self, name: str, after: str, *, is_behind: bool) -> AsyncIterator[bytes]:
        branch = self._branches.get(name)
        if branch is None or branch.is_over:
            branch = self._branches[name] = _Branch(self._repository, name)
        seat = _Seat(is_behind=is_behind)
        branch.seats.add(seat)
        self._streams += 1
        try:
            yield b"retry: 1000\n\n"
            await branch.begun()
            for event in await branch.missed(after, seat):
                yield event
            while not self._ended and (waiting := await seat.waiting.get()) is not None:
                yield waiting
        finally:
            self._streams -= 1
            branch.seats.discard(seat)
            if not branch.seats:
                branch.end()
                if self._branches.get(name) is branch:
                    del self._branches[name]


class _Seat:
    """A viewer of a branch, with the events that wait for it. None among them is the end."""

    def __init__(self, *, is_behind: bool) -> None:
        self.is_behind = is_behind
        self.waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def give(self, event: bytes | None) -> None:
        if event is None or self.waiting.qsize() >= _WAITING:
            self.clear()
            event = None
        self.waiting.put_nowait(event)

    def clear(self) -> None:
        while not self.waiting.empty():
            self.waiting.get_nowait()


class _Branch:
    """A branch that is followed: one task polls it, and gives what it finds to all seats."""

    def __init__(self, repository: Repository, name: str) -> None:
        self.seats: set[_Seat] = set()
        self.is_over = False
        self._repository, self._name = repository, name
        self._last: Commit | None = None  # the head up to which the seats have all events
        self._newest: Commit | None = None
        self._kept: deque[tuple[str, bytes]] = deque(maxlen=_KEPT)
        self._ready = asyncio.Event()
        self._task = asyncio.create_task(self._follow())

    async def begun(self) -> None:
        await self._ready.wait()

    async def missed(self, after: str, seat: _Seat) -> list[bytes]:
        """Return the events behind a commit, up to the point from which on the seat gets them by itself."""
        seat.clear()
        last = self._last
        ids = [id for id, _ in self._kept]
        if not after or last is None or after == last.id:
            return []
        if after in ids:
            return [event for _, event in islice(self._kept, ids.index(after) + 1, None)]
        # it may be of another branch, or gone: then the stream begins at the head
        with suppress(StateError, LateError):
            return [event for _, event in await off_loop(partial(self._since, after, last))]
        return []

    def end(self) -> None:
        self.is_over = True
        self._task.cancel()
        self._give(None)

    def _give(self, event: bytes | None) -> None:
        for seat in tuple(self.seats):
            seat.give(event)

    async def _follow(self) -> None:
        watch = None
        pinged = time.monotonic()
        while True:
            try:
                if watch is None:
                    begun = await off_loop(self._begin)
                    watch, self._newest = begun
                    self._last = self._newest
                    self._ready.set()
                head, events = await off_loop(partial(self._poll, watch))
                self._last = head
                for id, event in events:
                    self._kept.append((id, event))
                    self._give(event)
            except (StorageError, LateError) as error:
                # The store may be back at the next poll; nothing is lost.
                logger.warning("%s", type(error).__name__, extra={"event": "live", "error": type(error).__name__})
            except Exception:
                logger.exception("a followed branch failed", extra={"event": "live"})
                self._ready.set()
                self.end()
            if time.monotonic() - pinged > _PING_S:
                pinged = time.monotonic()
                self._give(b":\n\n")
            await asyncio.sleep(BACKGROUND_S if all(seat.is_behind for seat in self.seats) else INTERVAL_S)

    # Off the event loop

    def _begin(self) -> tuple[Watch, Commit | None]:
        set_deadline(_READ_S)
        watch = self._repository.watch(branches=[self._name], timeout=0)
        return watch, self._repository.branches.get(self._name)

    def _poll(self, watch: Watch) -> tuple[Commit | None, list[tuple[str, bytes]]]:
        """Return the head, and the events of the moves since the head that the seats have last heard of."""
        set_deadline(_READ_S)
        for move in watch:
            self._newest = move.head  # kept, if what follows fails
        last, head = self._last, self._newest
        if head == last:
            return head, []
        if head is None:
            return head, [("", _event({"id": None}, kind="moved"))]
        return head, self._since(None if last is None else last.id, head)

    def _since(self, after: str | None, head: Commit) -> list[tuple[str, bytes]]:
        """Return the events of the commits that lead to a head and not to the one before, oldest first.

        Of many, only the newest.

        If there are none, the branch went back, or was created again, and that is the event.
        """
        read = self._repository.database.commits.read
        found = () if after is None else only_in(head, [self._repository.commit(after)], read)
        new = [commit for commit in islice(found, _KEPT) if commit.id != ROOT_ID]
        events = [(commit.id, _event(self._shown(commit), id=commit.id)) for commit in reversed(new)]
        return events or [(head.id, _event({"id": head.id}, kind="moved", id=head.id))]

    def _shown(self, commit: Commit) -> dict[str, Any]:
        shown = facts(commit, Budget())
        changes: int | None = None
        with suppress(MissingObjectError, LateError):  # its parent was pruned
            diff = self._repository.diff(
                commit.parents[0] if commit.parents else ROOT_ID, commit.id, limit=_CHANGES, deadline=0.5
            )
            changes = len(diff)
        return {
            "id": commit.id,
            "message": shown["message"],
            "changes": changes,
            "round": commit.height,
            "author": shown["author"],
            "time": commit.time // 1000,
        }


def _event(data: dict[str, Any], *, kind: str = "", id: str = "") -> bytes:
    lines = [f"event: {kind}"] if kind else []
    lines += [f"id: {id}"] if id else []
    # ASCII, so that no character of a message ends a line
    return ("\n".join([*lines, f"data: {json.dumps(data)}"]) + "\n\n").encode()
