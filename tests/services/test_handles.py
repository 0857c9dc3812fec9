"""The handles that services keep: bounded by number and by bytes, the least recently used go first."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.services.agent_state import StateService
from versioned_state.services.calls.handles import Handles
from versioned_state.services.memory import MemoryService
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.storage.testing.writers import run_together


class _Opened:
    """Handles of branches of one repository, and how often each was opened."""

    def __init__(self, *, limit: int = 100, max_bytes: int = 1 << 30) -> None:
        self._repository = Repository(Memory())
        self.opened: list[str] = []
        self.handles = Handles(limit, max_bytes, self._open)

    def _open(self, branch: str) -> Versioned:
        self.opened.append(branch)
        return Versioned(self._repository, branch=branch)

    def use(self, *branches: str) -> list[str]:
        """Use the handles one by one. Return the branches that had to be opened."""
        self.opened.clear()
        for branch in branches:
            with self.handles.handle(branch) as state:
                state["n"] = state.get("n", 0) + 1
                state.commit()
        return list(self.opened)


def test_the_least_recently_used_handle_is_closed_first():
    by_number, by_bytes = _Opened(limit=3), _Opened(max_bytes=120_000)  # one takes a little more than 32,000
    for opened in (by_number, by_bytes):
        assert opened.use("a", "b", "c") == ["a", "b", "c"]
        assert opened.use("a", "b", "c") == []
        assert opened.use("a", "d") == ["d"]
        assert opened.use("c", "d", "a") == []
        assert opened.use("b") == ["b"]
        opened.handles.close()
        assert opened.use("a") == ["a"]


def test_a_handle_that_is_larger_than_the_bound_is_closed_after_its_call_and_others_stay():
    opened = _Opened(max_bytes=300_000)
    opened.use("small")
    with opened.handles.handle("large") as state:
        state["text"] = "x" * 2_000_000
        state.commit()
    assert opened.use("large") == ["large"]
    assert opened.use("small") == ["small"]  # the room was needed for the large one


def test_a_handle_in_use_is_neither_closed_nor_given_twice():
    opened = _Opened(limit=1, max_bytes=50_000)
    with opened.handles.handle("a") as first, opened.handles.handle("a") as second:
        assert first is not second
        opened.use("b", "c", "d")
        opened.handles.forget("a")
        for state in (first, second):
            state["x"] = 1
            assert state["x"] == 1
            state.discard()
    assert opened.use("a") == []


def test_threads_that_use_handles_at_once_leave_the_count_of_bytes_exact():
    opened = _Opened(limit=5, max_bytes=250_000)

    def work(seed: int) -> None:
        for n in range(25):
            branch = f"b{(seed * 7 + n * 5) % 9}"
            if n % 8 == 7:
                opened.handles.forget(branch)
            with opened.handles.handle(branch) as state:
                assert state.branch == branch

    run_together(partial(work, seed) for seed in range(4))
    handles = opened.handles
    assert handles._idle.keys() == handles._sizes.keys()
    assert handles._bytes == sum(handles._sizes.values()) <= 250_000
    handles.close()
    assert (handles._bytes, handles._sizes) == (0, {})


async def _save_text(service: Any, user: str, size: int) -> None:
    await service.save_state(user, {"text": user * size})  # the handle holds a large text itself


async def _save_messages(service: Any, user: str, size: int) -> None:
    await service.save_state(
        user, {"messages": [{"id": f"{user} {n}", "text": f"{n} " * 5} for n in range(size // 50)]}
    )


async def _append(service: Any, user: str, size: int) -> None:
    session = await service.create_session(user, "s")
    await service.append_message(session, [{"id": f"{n}", "role": "user"} for n in range(size // 100)])


async def _add(service: Any, user: str, size: int) -> None:
    await service.add_memory(user, [{"id": f"{n}", "role": "user"} for n in range(size // 400)])


@pytest.mark.parametrize(
    ("service_of", "call", "size"),
    [
        (StateService, _save_text, 10_000),
        (StateService, _save_text, 100_000),
        *(
            pytest.param(service, call, size, marks=() if size < 50_000 and call is not _add else pytest.mark.long)
            for service, call in (
                (StateService, _save_messages),
                (SessionHistoryService, _append),
                (MemoryService, _add),
            )
            for size in (10_000, 100_000)
        ),
    ],
)
async def test_open_sessions_take_the_memory_that_they_may_whatever_their_size(
    service_of: Any, call: Callable[[Any, str, int], Awaitable[None]], size: int
) -> None:
    bound = 500_000
    repository = Repository(Memory())
    tracemalloc.start()
    try:
        async with service_of.over(repository, handle_bytes=bound) as service:
            for n in range(3 * bound // (size + 40_000)):
                await call(service, f"u{n}", size)
            handles = service._handles
            assert handles is not None
            assert handles._idle  # of each size some have room
            repository.database.nodes.clear()
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            handles.close()
            gc.collect()
            assert before - tracemalloc.get_traced_memory()[0] < 1.5 * bound
    finally:
        tracemalloc.stop()
