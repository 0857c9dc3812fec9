"""``scripts/bench services``: saves of state for many users, beside AgentScope Runtime's own service on the same Redis.

The runtime is taken from a folder beside the environment; see ``benchmarks/sides/agentscope_runtime.py``. Each save
hands over the whole state, made anew, as an agent's ``state_dict()`` does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from benchmarks import arguments, data, report
from benchmarks.measure import ms
from benchmarks.servers import in_processes, on_redis, started
from benchmarks.sides import agentscope_runtime
from benchmarks.sides.service_floor import ServiceFloor
from versioned_state import Repository
from versioned_state.services.agent_state import RedisStateService, StateService
from versioned_state.storage import Redis

MESSAGES: Final = 200
MORE: Final = 100
SESSIONS: Final = (1, 8, 100)
SIZES: Final = (10, 1_000, 100_000)
_OURS: Final = "here"
_THEIRS: Final = "AgentScope Runtime"
_FLOOR: Final = "the floor"
CLIENTS: Final = 4
SAVES: Final = 100


def main(given: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    parser = arguments.parser(
        "services",
        "Saves of states for many users, on Redis.",
        quick="few saves",
        parts=("saves", "sizes", "contention"),
        turns=5,
    )
    parser.add_argument("--sizes", type=arguments.numbers, default=SIZES, metavar="N,N")
    options = parser.parse_args(given)
    turns, sizes = (1, (10, 100)) if options.quick else (options.turns, options.sizes)
    theirs = agentscope_runtime.load("agent_state.redis_state_service", "RedisStateService")
    if theirs is None:
        print(f"agentscope-runtime is not in {agentscope_runtime.FOLDER}: scripts/bench services puts it there")
    with on_redis() as (_, url):
        sides: dict[str, type[Any]] = {_OURS: RedisStateService} | ({} if theirs is None else {_THEIRS: theirs})
        if options.part in (None, "saves"):
            rows = [
                _saves(sides | {_FLOOR: ServiceFloor}, url, sessions, turns, quick=options.quick)
                for sessions in SESSIONS
            ]
            columns = [
                *(f"{side}, saves/s" for side in sides),
                "ratio",
                "of turns",
                *(f"{side}, KB a save" for side in sides),
                "",
            ]
            columns += ["the floor, saves/s", "its ratio"]
            report.print_table([f"{MESSAGES} messages, 2 more a save: sessions at once", *columns], rows)
            print(
                "the floor: the state packed, one EVALSHA of 1 KB in a pipeline of up to 16. "
                "It finds no change, and makes no commit"
            )
            rows = [[f"{sessions}", *_floors(url, sessions, turns, quick=options.quick)] for sessions in SESSIONS]
            report.print_table(["the floor, without a service: callers at once", *_FLOORS], rows)
        if options.part in (None, "sizes"):
            rows = [[f"{size:,}", ms(_among(url, size))] for size in sizes]
            report.print_table(["sessions in the store", "read a session, save a round"], rows)
        if options.part in (None, "contention"):
            rows = [[side, f"{_contend(service, url):,} of {CLIENTS * SAVES}"] for side, service in sides.items()]
            report.print_table([f"{CLIENTS} processes, {SAVES} saves at once each", "rounds kept"], rows)
    return 0


def _state(messages: list[dict[str, Any]], turn: int) -> dict[str, Any]:
    """A state as ``state_dict()`` gives it: new containers each time."""
    return {
        "memory": {"content": [dict(message) for message in messages]},
        "name": "assistant",
        "sys_prompt": "You are a helpful assistant.",
        "toolkit": {"active_groups": []},
        "turn": turn,
    }


class _Agents:
    """Agents that each save after two more messages."""

    def __init__(self, service: Any, sessions: int) -> None:
        self._service = service
        loaded = data.load()
        count = MESSAGES + MORE
        # no two sessions share a message
        self._all = [loaded.messages(count, start=number * count) for number in range(sessions)]
        self._turn = 0

    async def save(self, rounds: int) -> None:
        """So many saves of each, all agents at once."""
        await asyncio.gather(*(self._save(number, rounds) for number in range(len(self._all))))
        self._turn += rounds

    async def _save(self, number: int, rounds: int) -> None:
        for turn in range(self._turn, self._turn + rounds):
            messages = self._all[number][: MESSAGES + 2 * turn]
            await self._service.save_state(f"user-{number}", _state(messages, turn), session_id="trip")


def _saves(sides: dict[str, type[Any]], url: str, sessions: int, turns: int, *, quick: bool) -> list[str]:
    import redis

    client = redis.Redis.from_url(url)
    rounds = 2 if quick else max(2, 40 // sessions)

    async def measure() -> tuple[dict[str, list[float]], dict[str, float]]:
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        stored: dict[str, float] = dict.fromkeys(sides, 0)
        for turn in range(turns):
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                client.flushall()
                async with started(sides[side], url) as service:
                    agents = _Agents(service, sessions)
                    await agents.save(1)
                    before = _bytes(client)
                    gc.collect()
                    start = time.perf_counter()
                    await agents.save(rounds)
                    seconds[side].append((time.perf_counter() - start) / sessions / rounds)
                    stored[side] += (_bytes(client) - before) / sessions / rounds / turns
        return seconds, stored

    seconds, stored = asyncio.run(measure())
    del stored[_FLOOR]
    *rates, floor = [f"{1 / statistics.median(each):,.0f}" for each in seconds.values()]
    sizes = [f"{each / 1000:.1f}" for each in stored.values()]
    if len(stored) == 1:
        return [f"{sessions}", *rates, "", "", *sizes, "", floor, ""]
    ratios, of_floor = (
        [b / a for a, b in zip(seconds[side], seconds[_THEIRS], strict=True)] for side in (_OURS, _FLOOR)
    )
    spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
    smaller = f"1/{stored[_THEIRS] / stored[_OURS]:.0f}"
    return [
        *(f"{sessions}", *rates, f"{statistics.median(ratios):.1f}", spread, *sizes, smaller),
        *(floor, f"{statistics.median(of_floor):.1f}"),
    ]


_FLOORS: Final = (
    "EVALSHA of 1 KB on a thread, calls/s",
    "SET of 1 KB by redis.asyncio",
    "the state as JSON, SET by redis.asyncio",
)


def _floors(url: str, callers: int, turns: int, *, quick: bool) -> list[str]:
    """The calls a second of what any service on Redis does at the least, by as many callers at once."""
    import redis
    import redis.asyncio

    client = redis.Redis.from_url(url)
    script = client.script_load("return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])")
    value, state = os.urandom(1024), _state(data.load().messages(MESSAGES), 0)
    calls = 2 if quick else max(2, 400 // callers)

    async def measure() -> list[str]:
        loop = asyncio.get_running_loop()
        connection = redis.asyncio.Redis.from_url(url)
        with ThreadPoolExecutor(1) as thread:
            ways: list[Callable[[int], Awaitable[object]]] = [
                lambda number: loop.run_in_executor(thread, client.evalsha, script, 1, f"h{number}", "field", value),
                lambda number: connection.set(f"s{number}", value),
                lambda number: connection.set(f"j{number}", json.dumps(state)),
            ]
            found: list[list[float]] = [[] for _ in ways]

            async def call(way: Callable[[int], Awaitable[object]], number: int) -> None:
                for _ in range(calls):
                    await way(number)

            for _ in range(turns):
                for way, seconds in zip(ways, found, strict=True):
                    await asyncio.gather(*(way(number) for number in range(callers)))  # connects
                    start = time.perf_counter()
                    await asyncio.gather(*(call(way, number) for number in range(callers)))
                    seconds.append((time.perf_counter() - start) / callers / calls)
        await connection.aclose()
        return [f"{1 / statistics.median(seconds):,.0f}" for seconds in found]

    return asyncio.run(measure())


def _bytes(client: Any) -> int:
    """What all keys take in the server's memory."""
    return sum(client.memory_usage(key, samples=0) or 0 for key in client.keys("*"))


def _among(url: str, size: int) -> float:
    """The median seconds in which a server that knows nothing yet reads one of so many sessions and saves a round."""
    store = Redis(url, prefix=f"among-{size}")
    with store:
        repository = Repository(store)

        async def fill() -> None:
            async with StateService.over(repository) as service:
                state = {"messages": data.load().messages(20)}
                for start in range(0, size, 1000):
                    calls = (
                        service.save_state(f"user-{n // 10}", state, f"s{n}")
                        for n in range(start, min(start + 1000, size))
                    )
                    await asyncio.gather(*calls)

        async def ask(number: int) -> float:
            start = time.perf_counter()
            async with RedisStateService(url + f"?prefix=among-{size}", cache_bytes=0) as service:
                opened = time.perf_counter()
                user, session = f"user-{number // 10}", f"s{number}"
                state = await service.export_state(user, session)
                assert state is not None
                state["messages"].append({"role": "user", "content": str(start)})
                await service.save_state(user, state, session)
                return time.perf_counter() - opened

        asyncio.run(fill())
        return statistics.median(asyncio.run(ask((size // 2 + n) % size)) for n in range(25))


def _contend(service: type[Any], url: str) -> int:
    """How many rounds are kept of the saves of several processes on one session."""
    import redis

    redis.Redis.from_url(url).flushall()
    in_processes(_client, CLIENTS, service, url)

    async def kept() -> int:
        async with started(service, url) as reader:
            found = [await reader.export_state("u", "s", number) for number in range(1, CLIENTS * SAVES + 1)]
        return len({(each["client"], each["save"]) for each in found if each is not None})

    return asyncio.run(kept())


def _client(service: type[Any], url: str, number: int) -> None:
    async def save() -> None:
        async with started(service, url) as own:
            await asyncio.gather(*(own.save_state("u", {"client": number, "save": n}, "s") for n in range(SAVES)))

    asyncio.run(save())
