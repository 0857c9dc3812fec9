"""Many operations of all kinds leave memory and open files flat, in process and over HTTP."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from contextlib import AsyncExitStack
from typing import Any

import pytest

from benchmarks.services_soak import AT_ONCE, files, megabytes, operation, run
from tests.support.servers.redis import RedisServer
from tests.support.services.served import ALL
from tests.support.services.zygote import Zygote
from versioned_state import Repository
from versioned_state.services import RemoteMemoryService, RemoteSessionHistoryService, RemoteStateService
from versioned_state.services.agent_state import StateService
from versioned_state.services.memory import MemoryService
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.storage import Cache

pytestmark = pytest.mark.long

SMALL = 1 << 20
"""Bytes of each cache: all of them are full soon, and whatever grows then is a leak."""


async def test_in_process(redis_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        store = stack.enter_context(Cache(redis_server.fresh_store(), SMALL))
        repository = Repository(store)
        repository.database.nodes.max_bytes = SMALL
        kinds: tuple[Any, ...] = (StateService, SessionHistoryService, MemoryService)
        services: list[Any] = [
            await stack.enter_async_context(kind.over(repository, handle_bytes=SMALL)) for kind in kinds
        ]
        stack.callback(tracemalloc.stop)
        tracemalloc.start()
        taken = []
        for start in range(0, 14_400, 4_800):
            await run(lambda number: operation(services, number), range(start, start + 4_800))
            gc.collect()
            taken.append((tracemalloc.get_traced_memory()[0], files(os.getpid())))
        memory, opened = zip(*taken[1:], strict=True)
        assert memory[1] < memory[0] + 1_000_000  # 200 bytes an operation
        assert opened[1] <= taken[0][1] + 32


async def test_over_http(zygote: Zygote, redis_server: RedisServer) -> None:
    url = redis_server.fresh_url()
    options = ("--cache-bytes", str(SMALL), "--handle-bytes", str(SMALL), "--log-level", "error")
    kinds: tuple[Any, ...] = (RemoteStateService, RemoteSessionHistoryService, RemoteMemoryService)
    with zygote.serve(url, *options) as server:
        async with AsyncExitStack() as stack:
            made = [kind(server.url, ALL, connections=AT_ONCE) for kind in kinds]
            services: list[Any] = [await stack.enter_async_context(each) for each in made]
            await run(lambda number: operation(services, number), range(12_800))
            memory, opened = megabytes(server.pid), files(server.pid)
            await run(lambda number: operation(services, number), range(12_800, 20_800))
            # the connections of threads that had nothing to do before, at the most
            assert files(server.pid) <= opened + 32
            assert megabytes(server.pid) < memory + 20  # the cache of decoded nodes, of 16 MiB, may not have been full
        async with asyncio.timeout(60):
            while files(server.pid) > opened:  # noqa: ASYNC110 - another process closes them
                await asyncio.sleep(0.05)
