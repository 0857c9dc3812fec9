"""``scripts/bench services soak``: memory and open files over many operations, here and in ``vstate serve``.

The store is on Redis. Idle sessions are measured too.

The caches are small, so that they are full soon: whatever still grows then is a leak.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import Any, Final

from benchmarks import arguments, report
from benchmarks.servers import on_redis
from benchmarks.services_http import MESSAGE, Client, server
from versioned_state import Repository
from versioned_state.services.agent_state import StateService
from versioned_state.services.memory import MemoryService
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.storage import open_store
from versioned_state.storage.wrappers.cache import Cache

OPERATIONS: Final = 20_000
EVERY: Final = 2_000
SESSIONS: Final = 10_000
LENGTHS: Final = (20, 200)
SMALL: Final = 2 << 20
AT_ONCE: Final = 8


def main(given: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    options = arguments.parser(
        "services soak",
        "Memory and files of services over time.",
        quick="few operations",
        parts=("process", "http", "idle"),
    ).parse_args(given)
    share = 20 if options.quick else 1
    every, count = EVERY // share, SESSIONS // share
    with on_redis() as (folder, url):
        if options.part in (None, "process"):
            _print("in this process", asyncio.run(_in_process(f"{url}?prefix=process", every)))
        if options.part in (None, "http"):
            _print("vstate serve", _over_http(folder, f"{url}?prefix=http", every))
        if options.part in (None, "idle"):
            rows = []
            for length in LENGTHS:
                here = asyncio.run(_idle(f"{url}?prefix=i{length}", count, length))
                served = _idle_over_http(folder, f"{url}?prefix=h{length}", count, length)
                rows += [[f"{length}, in this process", f"{here:.0f}"], [f"{length}, over HTTP", f"{served:.0f}"]]
            report.print_table([f"{count:,} idle sessions; messages of each", "MB more"], rows)
    return 0


def _print(place: str, rows: list[list[str]]) -> None:
    report.print_table([f"{place}: operations", "memory, MB", "open files"], rows)


async def operation(services: Sequence[Any], number: int) -> None:
    """The operation of a number: of every kind some, on 50 users with 4 sessions each."""
    states, history, memories = services
    user, id, turn = f"u{number % 50}", f"s{number % 200 // 50}", number // 1600
    session = Session(id=id, user_id=user)
    match number // 200 % 8:
        case 0:
            await history.create_session(user, id, last=0)
        case 1 | 2:
            await history.append_message(session, MESSAGE)
        case 3:
            await history.get_session(user, id, 5)
        case 4:
            await states.save_state(
                user, {"messages": [MESSAGE | {"n": n} for n in range(20 + turn)], "turn": turn}, id
            )
        case 5:
            await states.export_state(user, id)
        case 6:
            await memories.add_memory(user, [MESSAGE], id)
        case 7 if turn % 3 == 2:
            await asyncio.gather(
                history.delete_session(user, id), states.delete_state(user, id), memories.delete_memory(user, id)
            )
        case _:
            await memories.search_memory(user, [MESSAGE], {"rank": "bm25", "top_k": 3})


async def run(operate: Callable[[int], Any], numbers: Iterable[int]) -> None:
    """Operations, a few at once."""
    waiting = iter(numbers)

    async def some() -> None:
        for number in waiting:
            await operate(number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def _soaked(services: Sequence[Any], pid: int, every: int) -> list[list[str]]:
    """The memory and the open files of a process, again and again while the services work."""
    rows = []
    for start in range(0, every * (OPERATIONS // EVERY), every):
        await run(lambda number: operation(services, number), range(start, start + every))
        gc.collect()
        rows.append([f"{start + every:,}", f"{megabytes(pid):.1f}", str(files(pid))])
    return rows


async def _in_process(url: str, every: int) -> list[list[str]]:
    async with AsyncExitStack() as stack:
        store = stack.enter_context(Cache(open_store(url), SMALL))
        repository = Repository(store)
        repository.database.nodes.max_bytes = SMALL
        kinds = (StateService, SessionHistoryService, MemoryService)
        services: list[Any] = [
            await stack.enter_async_context(kind.over(repository, handle_bytes=SMALL)) for kind in kinds
        ]
        return await _soaked(services, os.getpid(), every)


def _over_http(folder: Path, url: str, every: int) -> list[list[str]]:
    from versioned_state.services import RemoteMemoryService, RemoteSessionHistoryService, RemoteStateService

    async def work(address: str, pid: int) -> list[list[str]]:
        async with AsyncExitStack() as stack:
            kinds: tuple[Any, ...] = (RemoteStateService, RemoteSessionHistoryService, RemoteMemoryService)
            services: list[Any] = [
                await stack.enter_async_context(kind(address, "token", connections=AT_ONCE)) for kind in kinds
            ]
            return await _soaked(services, pid, every)

    with server(folder, url, "--cache-bytes", str(SMALL), "--handle-bytes", str(SMALL), user="*") as (address, pid):
        return asyncio.run(work(address, pid))


async def _idle(url: str, count: int, length: int) -> float:
    """The megabytes that a process has grown by after it made so many sessions."""
    messages = [MESSAGE | {"id": f"m{number}"} for number in range(length)]
    async with SessionHistoryService.over(url) as service:

        async def make(number: int) -> None:
            session = await service.create_session(f"u{number}", "s")
            await service.append_message(session, messages)

        await make(-1)
        gc.collect()
        before = megabytes(os.getpid())
        await run(make, range(count))
        gc.collect()
        return megabytes(os.getpid()) - before


def _idle_over_http(folder: Path, url: str, count: int, length: int) -> float:
    messages = [MESSAGE | {"id": f"m{number}"} for number in range(length)]
    with server(folder, url) as (address, pid), ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as threads:
        clients = [stack.enter_context(closing(Client(address))) for _ in range(AT_ONCE)]

        def make(client: Client, numbers: Iterable[int]) -> None:
            for number in numbers:
                client.ask("POST", f"/v1/history/sessions?session_id=s{number}")
                client.ask("POST", f"/v1/history/messages?session_id=s{number}", messages)

        make(clients[0], [-1])
        before = megabytes(pid)
        list(threads.map(make, clients, [range(start, count, AT_ONCE) for start in range(AT_ONCE)]))
        return megabytes(pid) - before


def megabytes(pid: int) -> float:
    """The memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def files(pid: int) -> int:
    """The open files of a process."""
    return len([*Path(f"/proc/{pid}/fd").iterdir()])
