"""What the session history service's calls cost: the same in short and long sessions, with few and many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any

import pytest

from tests.support.services.gate import until
from tests.support.services.history_contract import text, texts
from versioned_state import Memory, Repository, Versioned, branch_name
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.storage import Counting
from versioned_state.storage.wrappers.counting import Counts

SHORT, LONG = 100, 5_000


async def stored(messages: int) -> Counting:
    """A store with one session of that many messages."""
    store = Counting(Memory())
    async with SessionHistoryService.over(store) as service:
        session = await service.create_session("u", "s")
        await service.append_message(
            session, [{"id": f"msg_{n}", **text(f"message number {n}")} for n in range(messages)]
        )
    return store


def known(words: str) -> dict[str, Any]:
    """A message whose id is the same in each run: by the content of messages, trees have more or fewer nodes."""
    return {"id": f"msg_{words}", **text(words)}


async def counted(store: Counting, call: Awaitable[object]) -> Counts:
    store.reset()
    await call
    return store.reset()


async def test_an_append_is_one_batch_of_what_is_appended() -> None:
    written = {}
    for size in (SHORT, LONG):
        store = await stored(size)
        async with SessionHistoryService.over(store) as service:
            session = Session(id="s", user_id="u")
            cold = await counted(store, service.append_message(session, known("cold")))
            warm = await counted(store, service.append_message(session, known("warm")))
        assert (warm.round_trips, warm.applies, warm.objects_read) == (1, 1, 0)
        assert cold.applies == 1
        assert cold.round_trips <= 10  # two reads and a path of the list
        written[size] = warm.bytes_written
        assert max(cold.objects_written, warm.objects_written) <= 6
    assert written[LONG] < 3 * written[SHORT] < 3_000


async def test_appends_that_wait_are_one_commit() -> None:
    store = await stored(SHORT)
    async with SessionHistoryService.over(store) as service:
        session, branch, let_go = Session(id="s", user_id="u"), service.branch("u", "s"), Event()
        busy = asyncio.ensure_future(service.run_in_turn(branch, lambda: let_go.wait(20)))
        calls = [asyncio.ensure_future(service.append_message(session, text(str(n)))) for n in range(60)]
        lanes: Any = service._lanes
        await until(lambda: len(lanes._waiting.get(branch, ())) == 60)
        let_go.set()
        assert (await counted(store, asyncio.gather(busy, *calls))).applies == 1
        assert texts(session) == [str(n) for n in range(60)]
        assert [commit.message for commit in service.repository.log(branch)] == [
            "messages +60",
            f"messages +{SHORT}",
            "session created",
        ]


async def test_the_request_of_a_stateless_server_does_not_grow_with_the_session() -> None:
    costs = {}
    for size in (SHORT, LONG):
        store = await stored(size)
        async with SessionHistoryService.over(store) as service:
            for _ in range(2):
                store.reset()
                session = await service.get_session("u", "s", last=20)
                assert session is not None
                read = store.counts
                assert len(texts(session)) == 20
                await service.append_message(session, [known("question"), known("answer")])
                costs[size] = read, store.reset()
    for size in (SHORT, LONG):
        read, whole = costs[size]
        assert read.round_trips <= 6
        assert read.bytes_read < 3_000
        assert whole.applies == 1
        assert whole.round_trips <= read.round_trips + 1  # the handle of the last append is still there
        assert whole.bytes_written < 3_000


async def test_the_last_messages_are_read_together_however_large_they_are() -> None:
    store = Counting(Memory())
    async with SessionHistoryService.over(store) as service:
        session = await service.create_session("u", "s")
        await service.append_message(session, [text(f"{n} " + "words " * 1_000) for n in range(100)])
    async with SessionHistoryService.over(store) as service:
        assert (await counted(store, service.get_session("u", "s", last=20))).round_trips <= 6


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda service: service.append_message(Session(id="s", user_id="u"), text("hi")), 5),
        (lambda service: service.get_session("u", "s"), 4),
        (lambda service: service.get_session("u", "missing"), 6),
        (lambda service: service.create_session("u", "s"), 4),
        (lambda service: service.create_session("u", "new"), 4),
        (lambda service: service.delete_session("u", "s"), 5),
        (lambda service: service.list_sessions("u"), 4),
        (lambda service: service.list_sessions("u", limit=1), 4),
    ],
)
def test_no_call_grows_with_the_sessions(call: Callable[[Any], Awaitable[object]], most: int) -> None:
    def others(store: Counting, count: int) -> None:
        with Versioned(Repository(store), branch="template") as template:
            template["messages"] = []
            template.commit("session created")
            branches = template.repository.branches
            for n in range(count):
                branches.create(f"%messages/{branch_name(f'v{n}', 's')}", template.head)

    async def cost(count: int) -> Counts:
        store = Counting(Memory())
        others(store, count)
        async with SessionHistoryService.over(store) as service:
            await service.create_session("u", "s")
        async with SessionHistoryService.over(store) as service:
            return await counted(store, call(service))

    few, many = asyncio.run(cost(10)), asyncio.run(cost(1_000))
    assert few.round_trips == many.round_trips <= most
    assert many.objects_read <= few.objects_read + 1


async def test_a_session_that_stays_open_does_not_keep_its_messages_in_memory() -> None:
    async with SessionHistoryService.over(Memory()) as service:
        session = await service.create_session("u", "s")
        for n in range(30):
            await service.append_message(session, text(str(n)))
            await service.get_session("u", "s", last=5)
        await service.append_message(session, [text(str(n)) for n in range(100)])
        handles: Any = service._handles
        (state,) = handles._idle.values()
        assert not state._worktree.is_live(b"kmessages")
        assert not state._worktree._tracked.lists  # nor those of the last append, which the next one would compare


@pytest.mark.long
def test_three_thousand_idle_sessions_take_little_memory() -> None:
    import tracemalloc

    async def run() -> int:
        async with SessionHistoryService.over(Memory()) as service:

            async def one(n: int) -> None:
                session = await service.create_session("u", f"s{n}")
                await service.append_message(session, text("hi"))

            for n in range(300):
                await one(n)
            before = tracemalloc.get_traced_memory()[0]
            for at in range(300, 3_300, 100):
                await asyncio.gather(*(one(at + n) for n in range(100)))
            return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        assert asyncio.run(run()) < 30_000_000  # the store is in this memory as well
    finally:
        tracemalloc.stop()
