"""The foundation of the services: beginning and end, lanes, cancellation, handles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event, get_ident
from typing import Any, TypeVar

import pytest

from tests.support.services.gate import Gate, until
from versioned_state import Memory
from versioned_state.errors import InvalidArgumentError, ServiceNotStartedError, StorageError, StoreClosedError
from versioned_state.services import store_service
from versioned_state.services.store_service import StoreService
from versioned_state.state.versioned import Versioned
from versioned_state.storage import Disk, KVStore, open_store

T = TypeVar("T")


class Counters(StoreService):
    """Counts up a number for each session: the smallest service."""

    kind = "%counters"

    async def on(self, branch: str, function: Callable[[Versioned], T]) -> T:
        def call() -> T:
            with self._accepted[1].handle(branch) as state:
                return function(state)

        return await self.run_in_turn(branch, call)

    async def count(self, user: str, session: str) -> int:
        def step(state: Versioned) -> int:
            state.refresh()
            state["n"] = state.get("n", 0) + 1
            state.commit()
            return int(state["n"])

        return await self.on(self.branch(user, session), step)


async def test_a_service_over_a_url_opens_at_start_and_closes_at_stop(tmp_path: Path) -> None:
    service = Counters(f"disk:{tmp_path / 'store'}")
    assert not await service.health()
    assert not (tmp_path / "store").exists()
    with pytest.raises(RuntimeError, match="the Counters is not started"):
        await service.count("a", "b")
    await service.start()
    await service.start()
    assert await service.health()
    assert await service.count("a", "b") == 1
    await service.stop()
    await service.stop()
    assert not await service.health()
    with pytest.raises(ServiceNotStartedError, match="was stopped"):
        await service.count("a", "b")
    with pytest.raises(ServiceNotStartedError):
        _ = service.repository
    async with service:
        assert await service.count("a", "b") == 2
        assert list(service.repository.branches) == [service.branch("a", "b")]


async def test_a_start_that_is_cancelled_leaves_no_store_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = Event(), Event()
    opened: list[KVStore] = []

    def slowly(*args: Any, **options: Any) -> KVStore:
        begun.set()
        assert go_on.wait(20)
        opened.append(open_store(*args, **options))
        return opened[-1]

    monkeypatch.setattr(store_service, "open_store", slowly)
    service = Counters.over(f"disk:{tmp_path / 'store'}")

    async def use() -> None:
        async with service:
            raise AssertionError

    task = asyncio.ensure_future(use())
    await until(begun.is_set)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(StoreClosedError):
        opened[0].get("k")
    with pytest.raises(ServiceNotStartedError):
        await service.count("u", "s")
    async with Counters.over(tmp_path / "store") as again:
        assert await again.count("u", "s") == 1


async def test_a_service_in_memory_needs_no_start_and_keeps_its_content() -> None:
    service = Counters()
    assert await service.count("a", "b") == 1
    assert not await service.health()
    await service.start()
    assert await service.health()
    assert await service.count("a", "b") == 2
    await service.stop()
    with pytest.raises(RuntimeError):
        await service.count("a", "b")
    async with service:
        assert await service.count("a", "b") == 3


async def test_a_store_that_was_handed_in_stays_open(tmp_path: Path) -> None:
    with Disk(tmp_path / "store") as store:
        async with Counters.over(store) as service:
            assert await service.count("a", "b") == 1
        assert any(store.keys("ref/"))


async def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"store must be a KVStore, .*, not int"):
        Counters(7)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("not a store")
    service = Counters(tmp_path / "file")
    with pytest.raises(StorageError):
        await service.start()
    assert not await service.health()


async def test_all_concurrent_calls_on_one_session_count() -> None:
    async with Counters() as service:
        counts = await asyncio.gather(*(service.count("a", "b") for _ in range(100)))
    assert counts == list(range(1, 101))


async def test_a_slow_session_holds_up_neither_the_loop_nor_another_session() -> None:
    async with Counters() as service:
        let_go = Event()
        threads: set[int] = set()

        def wait(state: Versioned) -> None:
            threads.add(get_ident())
            assert let_go.wait(20)

        slow = asyncio.ensure_future(service.on(service.branch("a", "slow"), wait))
        behind = asyncio.ensure_future(service.count("a", "slow"))
        assert await service.count("a", "quick") == 1
        assert not slow.done()
        assert not behind.done()
        assert get_ident() not in threads
        let_go.set()
        await slow
        assert await behind == 1


async def test_a_cancelled_call_ends_if_it_has_begun_and_is_dropped_if_not() -> None:
    gate = Gate(Memory())
    async with Counters(gate) as service:
        await service.count("a", "b")
        gate.open.clear()
        gate.reached.clear()
        begun = asyncio.ensure_future(service.count("a", "b"))
        await until(gate.reached.is_set)
        waiting = asyncio.ensure_future(service.count("a", "b"))
        await asyncio.sleep(0)
        waiting.cancel()
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not begun.done()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert await service.count("a", "b") == 3


async def test_stop_finishes_the_accepted_calls_and_refuses_others() -> None:
    gate = Gate(Memory())
    service = Counters(gate)
    await service.start()
    gate.open.clear()
    accepted = [asyncio.ensure_future(service.count("a", str(n % 3))) for n in range(9)]
    await until(gate.reached.is_set)
    stopping = asyncio.ensure_future(service.stop())
    await until(lambda: not service._started)
    with pytest.raises(ServiceNotStartedError):
        await service.count("a", "late")
    assert not stopping.done()
    gate.open.set()
    await stopping
    assert sorted(await asyncio.gather(*accepted)) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_store_that_hangs_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(Memory())
    async with Counters(gate) as service:
        assert await service.health()
        gate.open.clear()
        with monkeypatch.context() as hasty:
            hasty.setattr("versioned_state.services.store_service._HEALTH_S", 0.05)
            assert not await service.health()
            assert not await service.health()
        gate.open.set()
        await until(lambda: not service._probe._waiting)  # type: ignore[union-attr]
        assert await service.health()


async def test_a_service_with_much_to_do_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("versioned_state.services.store_service._HEALTH_S", 10)
    async with Counters(threads=1) as service:
        let_go = Event()
        busy = asyncio.ensure_future(service.run_in_turn("busy", lambda: let_go.wait(20)))
        assert await service.health()
        let_go.set()
        assert await busy


async def test_the_handle_of_a_failed_call_is_not_used_again() -> None:
    async with Counters(handles=2) as service:
        branch = service.branch("a", "b")

        def fail(state: Versioned) -> None:
            state["n"] = 1000
            raise LookupError("no")

        await service.count("a", "b")
        with pytest.raises(LookupError):
            await service.on(branch, fail)
        assert await service.count("a", "b") == 2
        for number in range(5):
            await service.count("a", str(number))
        assert service._handles is not None
        assert len(service._handles._idle) == 2


def test_calls_of_several_event_loops_share_the_lanes() -> None:
    service = Counters()

    async def twice() -> list[int]:
        return [await service.count("a", "b"), await service.count("a", "b")]

    assert asyncio.run(twice()) == [1, 2]
    assert asyncio.run(twice()) == [3, 4]
    asyncio.run(service.stop())
