"""The state service beside other tasks, threads and (killed) processes, with cancellation and a failing store."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import start
from tests.support.servers.redis import RedisServer
from tests.support.services.gate import Gate, until
from tests.support.watched_stores import Watched
from versioned_state import Memory
from versioned_state.errors import BranchMovedError, UnreachableStoreError
from versioned_state.services.agent_state import InMemoryStateService, StateService
from versioned_state.storage.testing.writers import run_together

SAVER = """
import asyncio, sys
from versioned_state.services.agent_state import StateService

async def main(url, name, count):
    async with StateService.over(url) as service:
        async def save(n):
            number = await service.save_state("u", {"from": name, "n": n, "more": list(range(n))}, "s")
            print(number, flush=True)
        if count:
            await asyncio.gather(*map(save, range(count)))
        while not count:  # until it is killed
            await asyncio.gather(*map(save, range(3)))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture(params=["disk", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return f"disk:{tmp_path / 'store'}"
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.fresh_url()


async def contents(service: StateService, count: int) -> list[tuple[str, int]]:
    assert await service.list_rounds("u", "s") == list(range(1, count + 1))
    found = [await service.export_state("u", "s", number) for number in range(1, count + 1)]
    assert all(each is not None and each["more"] == list(range(each["n"])) for each in found)
    return sorted((each["from"], each["n"]) for each in found if each is not None)


def test_processes_on_one_session_keep_all_rounds(url: str, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    names = "abc" if long_run else "ab"
    processes = [start(SAVER, url, name, 10) for name in names]
    told = [int(line) for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert [process.returncode for process in processes] == [0] * len(names)
    assert sorted(told) == list(range(1, 10 * len(names) + 1))

    async def check() -> None:
        async with StateService.over(url) as service:
            assert await contents(service, 10 * len(names)) == [(name, n) for name in names for n in range(10)]

    asyncio.run(check())


def test_what_a_killed_process_was_told_is_there(url: str) -> None:
    killed, other = start(SAVER, url, "a", 0), start(SAVER, url, "b", 40)
    assert killed.stdout is not None
    told = [int(killed.stdout.readline()) for _ in range(20)]
    os.kill(killed.pid, signal.SIGKILL)
    told += [int(line) for line in killed.communicate(timeout=20)[0].split("\n")[:-1]]
    told += map(int, other.communicate(timeout=60)[0].split())

    async def check() -> None:
        async with StateService.over(url) as service:
            rounds = await service.list_rounds("u", "s")
            assert rounds == list(range(1, len(rounds) + 1))
            assert set(told) <= set(rounds)
            assert len(rounds) <= len(told) + 3  # three were under way
            assert await service.save_state("u", {}, "s") == len(rounds) + 1
            assert service.repository.fsck().ok

    asyncio.run(check())


def test_threads_with_loops_of_their_own_share_a_service() -> None:
    service = InMemoryStateService()

    async def save(name: str) -> None:
        for n in range(20):
            await service.save_state("u", {"from": name, "n": n, "more": list(range(n))}, "s")
            await service.save_state(name, {"n": n})

    run_together(partial(asyncio.run, save(name)) for name in "abcd")

    async def check() -> None:
        assert await contents(service, 80) == [(name, n) for name in "abcd" for n in range(20)]
        assert [await service.list_rounds(name) for name in "abcd"] == [list(range(1, 21))] * 4
        await service.stop()

    asyncio.run(check())


async def test_a_store_that_hangs_holds_up_neither_the_loop_nor_reads_of_others() -> None:
    gate = Gate(Memory())
    async with StateService.over(gate) as service:
        await service.save_state("u", {"n": 0})
        await service.save_state("quiet", {"n": 0})
        gate.open.clear()
        saves = [asyncio.ensure_future(service.save_state("u", {"n": n})) for n in range(1, 4)]
        assert await service.export_state("quiet") == {"n": 0}
        assert not any(each.done() for each in saves)
        saves[2].cancel()  # it has not begun
        await asyncio.sleep(0)
        gate.open.set()
        assert await asyncio.gather(*saves[:2]) == [2, 3]
        with pytest.raises(asyncio.CancelledError):
            await saves[2]
        assert await service.export_state("u") == {"n": 2}


async def test_a_store_that_fails_loses_nothing_and_the_next_save_works() -> None:
    store, failing = Watched(Memory()), False

    def fail(call: str) -> None:
        if failing and call == "apply":
            raise UnreachableStoreError("no connection", remains="")

    store.before = fail
    async with StateService.over(store) as service:
        messages = [f"message {n} " * 30 for n in range(100)]
        await service.save_state("u", {"messages": list(messages)})
        for n in range(3):
            failing = True
            with pytest.raises(UnreachableStoreError):
                await service.save_state("u", {"messages": [*messages, n, n]})
            failing = False
            assert await service.list_rounds("u") == list(range(1, n + 2))
            messages.append(f"one more {n}")
            assert await service.save_state("u", {"messages": list(messages)}) == n + 2
            assert await service.export_state("u") == {"messages": messages}
        assert service.repository.fsck().ok


async def test_a_state_that_changes_while_its_session_is_erased_is_not_saved_with_the_change() -> None:
    gate = Gate(Memory())
    async with StateService.over(gate) as one, StateService.over(gate.store) as other:
        state: dict[str, Any] = {"messages": [f"message {n} " * 30 for n in range(100)]}
        for number in (1, 2):
            state["round"] = number
            await one.save_state("u", state)
        await other.delete_user("u")  # with what the next save would share
        state["round"] = 3
        gate.open.clear()
        gate.reached.clear()
        saving = asyncio.ensure_future(one.save_state("u", state))
        await until(gate.reached.is_set)
        state["round"] = "after the call"
        gate.open.set()
        with pytest.raises(BranchMovedError, match="nothing was saved"):
            await saving
        assert await other.export_state("u") is None
        assert await one.save_state("u", state) == 1
        assert await other.export_state("u") == state


async def test_a_session_deleted_between_two_saves_begins_anew() -> None:
    store = Memory()
    async with StateService.over(store) as one, StateService.over(store) as other:
        messages = [f"message {n} " * 30 for n in range(100)]
        for n in range(3):
            for round_id in (1, 2):
                assert await one.save_state("u", {"messages": [*messages, n, round_id]}) == round_id
            if n == 1:
                await other.delete_user("u")  # with what the next save would share
            else:
                await other.delete_state("u")
        assert await one.save_state("u", {"messages": [*messages, "last"]}) == 1
        assert await other.export_state("u") == {"messages": [*messages, "last"]}
        assert one.repository.fsck().ok
