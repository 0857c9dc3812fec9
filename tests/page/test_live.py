"""Live pages: viewers get each commit once, one poll of a branch serves all, and streams end before the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.page import HOST, Site
from tests.support.services.gate import until
from tests.support.services.sent import scope_of
from tests.support.services.served import ALL, Served, write_tokens
from versioned_state import Disk, Memory, Repository, Versioned, branch_name
from versioned_state.server.page import live

pytestmark = pytest.mark.every_case

EVENT = Callable[[], Awaitable[dict[str, Any]]]


class Stream:
    """A stream of the page in this process."""

    def __init__(self, application: Any, path: str, headers: dict[str, str]) -> None:
        name, _, query = path.partition("?")
        sent = [(key.encode(), text.encode()) for key, text in headers.items()]
        self._scope = scope_of("GET", name, query.encode(), sent)
        self._gone = asyncio.Event()
        self._chunks: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.task = asyncio.create_task(application(self._scope, self._receive, self._chunks.put))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def begin(self) -> int:
        status: int = (await self._chunks.get())["status"]
        if status == 200:
            assert (await self._chunks.get())["body"] == b"retry: 1000\n\n"
        return status

    async def next(self) -> dict[str, Any] | None:
        """The next event, or None at the end."""
        chunk = await self._chunks.get()
        if not chunk.get("more_body"):
            return None
        if chunk["body"] == b":\n\n":
            return await self.next()
        lines = dict(line.split(": ", 1) for line in chunk["body"].decode().strip().split("\n"))
        data = json.loads(lines["data"])
        assert lines.get("id") == data["id"] or data["id"] is None
        return {"event": lines.get("event", "message"), **data}

    async def close(self) -> None:
        self._gone.set()
        with suppress(asyncio.CancelledError):
            await self.task


class Viewers:
    """A signed-in page, and its streams."""

    def __init__(self, repository: Repository) -> None:
        self.site = Site(repository)
        answer = self.site.access.sign_in({"once": self.site.access.link().partition("=")[2]}, "GET")
        assert answer is not None
        self.headers = {"host": HOST, "sec-fetch-site": "same-origin", "cookie": answer.partition(";")[0]}

    async def open(self, path: str, status: int = 200, last: str = "") -> Stream:
        stream = Stream(self.site.application, path, {**self.headers, "last-event-id": last})
        assert await stream.begin() == status
        return stream


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERVAL_S", 0.005)
    monkeypatch.setattr(live, "BACKGROUND_S", 0.005)


@pytest.fixture
def state() -> Versioned:
    state = Versioned(Memory())
    for number in range(3):
        state["n"] = number
        state.commit(f"round {number}")
    return state


def commit(state: Versioned, message: str) -> str:
    state["n"] = message
    return state.commit(message).id


def followers() -> int:
    return sum("_follow" in str(task.get_coro()) for task in asyncio.all_tasks())


async def test_fifty_viewers_get_each_commit_once_by_one_poll(state):
    viewers = Viewers(state.repository)
    streams = [await viewers.open(f"/live/main?after={state.head.id}") for _ in range(50)]
    assert followers() == 1
    ids = [commit(state, "a\nb\u2028c \udc80 <script>"), commit(state, "second")]
    for stream in streams:
        events = [await stream.next(), await stream.next()]
        assert [event and event["id"] for event in events] == ids
        assert events[0] is not None
        assert (events[0]["message"], events[0]["changes"], events[0]["round"]) == ("a", 1, 4)
    for stream in streams:
        await stream.close()
    await until(lambda: followers() == 0)  # nobody looks: nothing is polled, once a poll that has begun has ended


async def test_a_stream_goes_on_behind_the_last_event(state):
    first = state.repository.commit("main~2").id
    head = state.head.id

    viewers = Viewers(state.repository)
    for path, last in ((f"/live/main?after={first}", ""), ("/live/main", first)):
        back = await viewers.open(path, last=last)
        found = [await back.next(), await back.next()]
        assert [event and event["message"] for event in found] == ["round 1", "round 2"]
        await back.close()
    stays = await viewers.open(f"/live/main?after={head}")
    ids = [commit(state, str(number)) for number in range(5)]
    assert [(await stays.next() or {})["id"] for _ in ids] == ids
    kept = await viewers.open("/live/main", last=ids[1])
    assert [(await kept.next() or {})["id"] for _ in ids[2:]] == ids[2:]
    for strange in ("0" * 48, "main", "x", "--", head[:12]):
        other = await viewers.open(f"/live/main?after={strange}")
        await other.close()


async def test_an_undo_a_deletion_and_a_creation_are_told(state):
    viewers = Viewers(state.repository)
    stream = await viewers.open(f"/live/main?after={state.head.id}")
    state.undo()
    back = await stream.next()
    assert (back or {})["event"] == "moved"
    assert (back or {})["id"] == state.head.id
    state.repository.branches.delete("main", force=True)
    assert await stream.next() == {"event": "moved", "id": None}
    state.repository.branches.create("main", at="main@{1}")
    assert (await stream.next() or {})["id"] == state.repository.branches["main"].id


async def test_a_store_that_fails_for_a_while_ends_nothing(state):
    from versioned_state.storage import Fault, Faulty

    faulty = Faulty(state.repository.store)

    viewers = Viewers(Repository(faulty))
    stream = await viewers.open(f"/live/main?after={state.head.id}")
    for failing in range(1, 8):
        faulty.arm(failing, fault=Fault.BEFORE)
        one = commit(state, f"{failing}")
        assert (await stream.next() or {})["id"] == one


async def test_streams_end_when_the_page_does_and_none_begins(state):
    viewers = Viewers(state.repository)
    streams = [await viewers.open("/live/main") for _ in range(50)]
    await viewers.site.page.end()
    assert [await stream.next() for stream in streams] == [None] * 50
    await asyncio.gather(*(stream.task for stream in streams))
    await until(lambda: followers() == 0)
    await viewers.open("/live/main", 503)


def test_a_viewer_who_reads_nothing_is_let_go(state, monkeypatch):
    monkeypatch.setattr(live, "_WAITING", 3)
    seat = live._Seat(is_behind=False)
    for number in range(9):
        seat.give(b"%d" % number)
    waiting = [seat.waiting.get_nowait() for _ in range(seat.waiting.qsize())]
    assert None in waiting
    assert len(waiting) <= 4


async def test_what_is_not_there_and_what_is_not_for_a_viewer_has_no_stream(state):
    from versioned_state.server.page.beside import Beside
    from versioned_state.server.tokens import Grant, Tokens

    theirs = branch_name("bob", "x")
    state.repository.branches.create(theirs, at="main")

    viewers = Viewers(state.repository)
    for name in ("nothing", "", "main/", "%00"):
        await viewers.open(f"/live/{name}", 404)
    tokens = Tokens({name: Grant(name, frozenset({"read"})) for name in ("alice", "bob")})
    both = Beside(lambda *_: asyncio.sleep(0), state.repository, lambda: tokens, "127.0.0.1", 8421)
    for who, status in (("alice", 404), ("bob", 200)):
        stream = Stream(both, f"/ui/live/{theirs}", {**viewers.headers, "cookie": f"vstate-token={who}"})
        assert await stream.begin() == status
    await both.end()


def test_a_server_ends_at_once_with_fifty_streams_open(tmp_path: Path):
    with Versioned(Disk(tmp_path / "s")) as state:
        commit(state, "first")
    with Served(str(tmp_path / "s"), write_tokens(tmp_path), "--page") as server:

        async def main() -> None:
            headers = {"authorization": f"Bearer {ALL}"}
            limits = httpx.Limits(max_connections=100)
            async with httpx.AsyncClient(base_url=server.url, headers=headers, limits=limits, timeout=30) as client:

                async def follow() -> list[str]:
                    found = []
                    async with client.stream("GET", "/ui/live/main") as answer:
                        assert answer.status_code == 200
                        begun.release()
                        with suppress(httpx.RemoteProtocolError):
                            async for line in answer.aiter_lines():
                                found += [line] if line.startswith("id: ") else []
                                if found:
                                    begun.release()
                    return found

                begun = asyncio.Semaphore(0)
                tasks = [asyncio.create_task(follow()) for _ in range(50)]
                for _ in tasks:
                    await begun.acquire()
                with Versioned(Disk(tmp_path / "s")) as state:
                    one = commit(state, "second")
                for _ in tasks:
                    await begun.acquire()
                server.terminate()
                assert {line for task in tasks for line in await task} == {f"id: {one}"}

        asyncio.run(main())
        assert server.process.wait(timeout=15) == 0, "it has 30 s for what is under way: it did not wait for streams"
