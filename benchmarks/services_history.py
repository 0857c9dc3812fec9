"""``scripts/bench services history``: appends to histories, beside AgentScope Runtime's own service on the same Redis.

Each turn runs both sides, in alternating order; the figures are medians of the turns.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks import arguments, data, report
from benchmarks.measure import ms, timed_call
from benchmarks.servers import in_processes, on_redis, started
from benchmarks.sides import agentscope_runtime
from versioned_state.services.session_history import RedisSessionHistoryService, SessionHistoryService
from versioned_state.storage import Disk, Redis

HERE: Final = "here"
THEIRS: Final = "AgentScope Runtime"
MESSAGES: Final = 200
SESSIONS: Final = (1, 8, 100)
LENGTHS: Final = (100, 1_000, 10_000, 100_000)
NUMBERS: Final = (10, 1_000, 100_000)
LAST: Final = 20
CLIENTS: Final = 4
APPENDS: Final = 100


def main(given: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    options = arguments.parser(
        "services history",
        "Appends to histories, on Redis.",
        quick="few appends and short histories",
        parts=("appends", "request", "sessions", "together", "contention"),
        turns=5,
    ).parse_args(given)
    quick, turns = options.quick, 1 if options.quick else options.turns
    theirs = agentscope_runtime.load("session_history.redis_session_history_service", "RedisSessionHistoryService")
    if theirs is None:
        print(f"agentscope-runtime is not in {agentscope_runtime.FOLDER}: scripts/bench services puts it there")
    sides: dict[str, type[Any]] = {HERE: RedisSessionHistoryService} | ({} if theirs is None else {THEIRS: theirs})

    def wants(part: str) -> bool:
        return options.part in (None, part)

    with on_redis() as (folder, url):
        if wants("appends"):
            rows = [asyncio.run(_appends(sides, url, sessions, turns, quick=quick)) for sessions in SESSIONS]
            columns = [
                *(f"{side}, appends/s" for side in sides),
                "ratio",
                "of turns",
                *(f"{side}, KB sent" for side in sides),
                "",
            ]
            report.print_table([f"sessions of {MESSAGES} messages at once", *columns], rows)
        if wants("request"):
            rows = [
                asyncio.run(_requests(sides, url, folder, length, quick=quick))
                for length in (LENGTHS[:1] if quick else LENGTHS)
            ]
            columns = [f"{HERE}, Redis", f"{HERE}, Disk", *(f"{side}, Redis" for side in list(sides)[1:])]
            report.print_table([f"messages: read the last {LAST}, append 2", *columns], rows)
        if wants("sessions"):
            rows = [
                [f"{number:,}", ms(asyncio.run(_among(url, number)))] for number in (NUMBERS[:1] if quick else NUMBERS)
            ]
            report.print_table(["sessions in the store", f"read the last {LAST}, append 2"], rows)
        if wants("together"):
            rows = [
                [side, f"{asyncio.run(_together(service, url, quick=quick)):,.0f}"] for side, service in sides.items()
            ]
            report.print_table(["appends at once to one session", "appends/s"], rows)
        if wants("contention"):
            rows = [[side, f"{_contend(service, url):,} of {CLIENTS * APPENDS}"] for side, service in sides.items()]
            report.print_table([f"{CLIENTS} processes, {APPENDS} appends at once each", "messages kept"], rows)
    return 0


def _messages(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    """Messages of about 250 characters, as people and models write them."""
    return [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in _texts(count, start)]


@cache
def _texts(count: int, start: int) -> list[tuple[str, str]]:
    return [(each["role"], (each["content"] or "")[:250]) for each in data.load().messages(count, start=start)]


async def _filled(service: Any, user: str, session_id: str, count: int) -> Any:
    session = await service.create_session(user, session_id)
    for start in range(0, count, 1_000):
        await service.append_message(session, _messages(min(1_000, count - start), start=start))
    return session


async def _appends(sides: dict[str, type[Any]], url: str, sessions: int, turns: int, *, quick: bool) -> list[str]:
    """Append to some sessions at once, each message as soon as the one before is stored."""
    import redis

    client = redis.Redis.from_url(url)
    count = 2 if quick else max(4, 120 // sessions)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    sent: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(turns):
        for side in list(sides)[:: 1 if turn % 2 else -1]:
            client.flushall()
            async with started(sides[side], url) as service:
                opened = [await _filled(service, f"user-{number}", "trip", MESSAGES) for number in range(sessions)]
                messages = _messages(count, start=MESSAGES)

                async def converse(session: Any, service: Any = service, messages: list[Any] = messages) -> None:
                    for message in messages:
                        await service.append_message(session, message)

                gc.collect()
                before, start = _traffic(client), time.perf_counter()
                await asyncio.gather(*map(converse, opened))
                seconds[side].append((time.perf_counter() - start) / sessions / count)
                sent[side].append((_traffic(client) - before) / sessions / count)
    rates = [f"{1 / statistics.median(each):,.0f}" for each in seconds.values()]
    sizes = [f"{statistics.median(each) / 1000:.1f}" for each in sent.values()]
    if len(sides) == 1:
        return [f"{sessions}", *rates, "", "", *sizes, ""]
    ratios = sorted(theirs / ours for ours, theirs in zip(seconds[HERE], seconds[THEIRS], strict=True))
    smaller = statistics.median(sent[THEIRS]) / statistics.median(sent[HERE])
    return [
        f"{sessions}",
        *rates,
        f"{statistics.median(ratios):.1f}",
        f"{ratios[0]:.1f} to {ratios[-1]:.1f}",
        *sizes,
        f"1/{smaller:.0f}",
    ]


def _traffic(client: Any) -> int:
    """The bytes that the server has got and given."""
    stats = client.info("stats")
    return int(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])


async def _requests(sides: dict[str, type[Any]], url: str, folder: Path, length: int, *, quick: bool) -> list[str]:
    """The request of a stateless server on a session of some length."""
    cells = [f"{length:,}"]
    for store in (Redis(url, prefix=f"request-{length}"), Disk(folder / f"request-{length}")):
        async with SessionHistoryService.over(store) as service:
            await _filled(service, "u", "s", length)

            async def ask(service: Any = service) -> None:
                session = await service.get_session("u", "s", last=LAST)
                await service.append_message(session, _messages(2))

            cells.append(ms(await _median(ask, 5 if quick else 100)))
        store.close()
    if THEIRS not in sides:
        return cells
    if length > 10_000:
        return [*cells, ""]
    async with started(sides[THEIRS], url) as theirs:
        await _filled(theirs, "u", f"s{length}", length)

        async def ask_theirs() -> None:
            session = await theirs.get_session("u", f"s{length}")
            await theirs.append_message(session, _messages(2))

        return [*cells, ms(await _median(ask_theirs, 5))]


async def _among(url: str, number: int) -> float:
    """The same request among some number of sessions, each request on another one."""
    with Redis(url, prefix=f"among-{number}") as store:
        async with SessionHistoryService.over(store) as service:

            async def fill(each: int) -> None:
                session = await service.create_session(f"user-{each // 10}", f"s{each}")
                await service.append_message(session, _messages(LAST))

            for start in range(0, number, 500):
                await asyncio.gather(*(fill(each) for each in range(start, min(start + 500, number))))
        async with SessionHistoryService.over(store) as service:
            numbers = iter(range(10_000))

            async def ask() -> None:
                each = (number // 2 + next(numbers)) % number
                session = await service.get_session(f"user-{each // 10}", f"s{each}", last=LAST)
                assert session is not None
                await service.append_message(session, _messages(2))

            return await _median(ask, min(number, 100))


async def _median(ask: Any, times: int) -> float:
    return statistics.median([await timed_call(ask) for _ in range(times)])


async def _together(service: type[Any], url: str, *, quick: bool) -> float:
    """Appends in a second to one session of 200 messages, all under way at once."""
    count = 20 if quick else 200
    async with started(service, url) as own:
        session = await _filled(own, "u", "together", MESSAGES)
        start = time.perf_counter()
        await asyncio.gather(*(own.append_message(session, message) for message in _messages(count)))
        return count / (time.perf_counter() - start)


def _contend(service: type[Any], url: str) -> int:
    """How many messages are kept of those that several processes append to one session at once."""
    import redis

    redis.Redis.from_url(url).flushall()

    async def create() -> None:
        async with started(service, url) as own:
            await own.create_session("u", "s")

    async def kept() -> int:
        async with started(service, url) as own:
            session = await own.get_session("u", "s")
        return len({(message.metadata["client"], message.metadata["n"]) for message in session.messages})

    asyncio.run(create())
    in_processes(_client, CLIENTS, service, url)
    return asyncio.run(kept())


def _client(service: type[Any], url: str, number: int) -> None:
    async def append() -> None:
        async with started(service, url) as own:
            session = await own.get_session("u", "s")
            await asyncio.gather(
                *(own.append_message(session, {"metadata": {"client": number, "n": n}}) for n in range(APPENDS))
            )

    asyncio.run(append())
