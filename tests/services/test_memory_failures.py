"""The memory service under failures: other processes, kill -9, a store that hangs, a message that cannot be stored."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.event_loop import steps_of
from tests.support.services.gate import Gate, until
from tests.support.services.memory_contract import said, texts_of
from versioned_state import Disk, Memory, Repository
from versioned_state.errors import StateError, StorageError
from versioned_state.services.memory import MemoryService
from versioned_state.storage.wrappers.faulty import Fault, Faulty

RANKED = {"rank": "bm25"}


async def search(service: MemoryService, query: str, **filters: Any) -> list[str]:
    return texts_of(await service.search_memory("u", [said(query)], filters or None))


ADD_AND_SEARCH = """
    import asyncio, sys
    from versioned_state.services.memory import MemoryService

    def said(text):
        return {"role": "user", "content": [{"type": "text", "text": text}]}

    async def main(path, name):
        async with MemoryService.over(path) as service:
            for number in range(int(sys.argv[3])):
                await service.add_memory("u", [said(f"apple {name} {number}")], f"s{number % 3}")
                found = await service.search_memory("u", [said(f"apple {name}")], {"rank": "bm25"})
                assert len(found) > number
                print(number, flush=True)

    asyncio.run(main(*sys.argv[1:3]))
"""


def test_processes_add_and_search_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Disk(path).close()
    running = [processes.start(ADD_AND_SEARCH, path, name, 8) for name in ("a", "b", "c")]
    for each in running:
        _, errors = each.communicate(timeout=60)
        assert each.returncode == 0, errors

    async def run() -> None:
        async with MemoryService.over(path) as service:
            assert len(await search(service, "apple")) == len(await search(service, "apple", **RANKED)) == 24

    asyncio.run(run())


def test_a_killed_process_leaves_its_messages_and_a_good_index(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Disk(path).close()
    seen = 0
    for name in "abc":
        victim = processes.start(ADD_AND_SEARCH, path, name, 10_000)
        assert victim.stdout is not None
        for _ in range(5):
            assert victim.stdout.readline()
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
        seen += 5

        async def check() -> int:
            async with MemoryService.over(path) as service:
                found = await search(service, "apple")
                assert sorted(await search(service, "apple", **RANKED)) == sorted(found)
                assert len(await service.list_memory("u", {"page_size": 10**6})) == len(found)
                return len(found)

        assert asyncio.run(check()) >= seen


async def test_a_message_that_cannot_be_stored_fails_alone() -> None:
    gate = Gate(Memory())
    async with MemoryService.over(Repository(gate, pickle="refuse")) as service:
        await service.add_memory("u", [said("first")])
        gate.open.clear()
        gate.reached.clear()
        first = asyncio.ensure_future(service.add_memory("u", [said("second")]))
        await until(gate.reached.is_set)
        bad = said("third")
        bad.metadata = {"lock": object()}
        calls = [
            asyncio.ensure_future(service.add_memory("u", [each])) for each in (said("fourth"), bad, said("fifth"))
        ]
        await asyncio.sleep(0.01)
        gate.open.set()
        await first
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, StateError) for result in results] == [False, True, False]
        assert texts_of(await service.list_memory("u")) == ["first", "second", "fourth", "fifth"]


@pytest.mark.parametrize("fault", Fault)
def test_an_addition_to_a_store_that_fails_happens_or_does_not(fault: Fault) -> None:
    async def attempt(at: int) -> bool:
        """Add a message while the call of the store with this number fails. Return whether there was such a call."""
        store = Memory()
        faulty = Faulty(store, fault=fault)
        failed = False
        async with MemoryService.over(faulty) as service:
            for number in range(8):  # the eighth makes segments of the index into one
                await service.add_memory("u", [said(f"apple {number}")])
            faulty.at = faulty.calls + at
            try:
                await service.add_memory("u", [said("apple last")])
            except StorageError:
                failed = True
            reached, faulty.at = faulty.calls >= faulty.at, None
            await service.add_memory("u", [said("after")])
        async with MemoryService.over(store) as service:
            found = await search(service, "apple")
            assert sorted(await search(service, "apple", **RANKED)) == sorted(found)
            assert found[:8] == [f"apple {number}" for number in range(8)]
            assert found[8:] in ([], ["apple last"])
            assert failed or found[8:] == ["apple last"]
            assert await search(service, "after") == ["after"]
        return reached

    assert steps_of(attempt) > 1
