"""However ``parallel`` ends, no fork of it stays: interrupts at every line, cancellation, stores that fail, kill -9."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.handles import committed
from tests.support.interrupts import Interrupt, Trace
from tests.support.outage import Outage
from tests.support.processes import start
from tests.support.watched_stores import Watched
from versioned_state import Disk, Memory, Repository, Versioned, current_state, parallel, task
from versioned_state.errors import StateError
from versioned_state.repository.maintenance.owner import Owner
from versioned_state.storage import Counting

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:coroutine:RuntimeWarning"),  # what an interrupt left
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@task
def note(name: str) -> None:
    current_state()[name] = 1


@task
async def meet(name: str) -> None:
    current_state()[name] = 1
    await asyncio.sleep(0)


def made(store: Any = None) -> Versioned:
    return committed(Memory() if store is None else store, n=0)


def in_threads(state: Versioned) -> None:
    parallel(state, [partial(note, "a"), partial(note, "b")])


def in_a_loop(state: Versioned) -> None:
    async def run() -> None:
        await parallel(state, [partial(meet, "a"), partial(meet, "b")])

    asyncio.run(run())


def in_processes(state: Versioned) -> None:
    parallel(state, [partial(note, "a")], executor="processes")


def branches(state: Versioned) -> list[str]:
    return list(Repository(state.repository.store).branches)


def chosen(trace: Trace, *, rounds: int) -> list[int]:
    """The lines to interrupt at: those of the module itself, and some of the others."""
    own = [at for at, (file, _) in enumerate(trace.lines, 1) if file.endswith("agents/parallel.py")]
    return sorted(
        {
            *own[:: max(len(own) // (2 * rounds), 1)],
            *own[-rounds:],
            *random.Random(rounds).sample(range(1, trace.count), rounds),
        }
    )


@pytest.mark.parametrize("run", [in_threads, in_a_loop])
def test_an_interrupt_at_any_line_leaves_no_branch(run: Callable[[Versioned], None], *, long_run: bool):
    counting = Trace()
    counting.run(partial(run, made()))
    for at in chosen(counting, rounds=600 if long_run else 15):
        state = made()
        trace = Trace(at)
        with suppress(Interrupt, asyncio.CancelledError):
            trace.run(partial(run, state))
        if run is in_a_loop and branches(state) != ["main"]:
            in_threads(state)  # the signal came between the lines of asyncio's own clean-up: the next call does it
        assert branches(state) == ["main"], (at, trace.hit)
        assert dict(state) in ({"n": 0}, {"n": 0, "a": 1, "b": 1}), (at, trace.hit)
        assert not state.status()
        in_threads(state)
        assert dict(state) == {"n": 0, "a": 1, "b": 1}
        assert branches(state) == ["main"]
    gc.collect()  # the coroutines that an interrupt left warn here, and not in another test


def test_an_interrupt_of_processes_leaves_no_branch(tmp_path: Path, *, long_run: bool):
    counting = Trace()
    counting.run(partial(in_processes, made(Disk(tmp_path / "counted"))))
    own = [at for at, (file, _) in enumerate(counting.lines, 1) if file.endswith("agents/parallel.py")]
    for at in own[:: 1 if long_run else len(own) // 3]:
        state = made(Disk(tmp_path / str(at)))
        with suppress(Interrupt):
            Trace(at).run(partial(in_processes, state))
        assert branches(state) == ["main"], at


@pytest.mark.parametrize("kind", ["cancel", "cancel twice", "close the loop"])
def test_a_task_that_is_cancelled_at_any_time_leaves_no_branch(kind: str):
    for turns in itertools.count():
        store = Watched(Memory())
        on_a_loop: list[str] = []  # the calls on the thread of the event loop, which waits meanwhile
        store.before = lambda call: on_a_loop.append(call) if asyncio._get_running_loop() else None  # noqa: B023
        state = made(store)
        loop = asyncio.new_event_loop()
        running = loop.create_task(parallel(state, [partial(meet, "a"), partial(meet, "b")]))
        for _ in range(turns):
            loop.run_until_complete(asyncio.sleep(0.0003))
        has_ended = running.done()
        if kind == "close the loop":
            running._log_destroy_pending = False  # type: ignore[attr-defined]
            loop.close()
            running.get_coro().close()
            state.get("n")  # waits for a call that is under way in the background
        else:
            for _ in kind.split():
                running.cancel()
                loop.run_until_complete(asyncio.sleep(0))
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(running)
            loop.close()
            assert branches(state) == ["main"], turns
            assert "apply" not in on_a_loop, turns
        in_threads(state)
        assert branches(state) == ["main"], turns
        if has_ended:
            return


@pytest.mark.parametrize("calls", [1, 1_000])
def test_a_store_that_fails_at_any_call_has_no_branch_after_the_next_one(calls: int):
    for at in itertools.count(1):
        store = Outage(Memory(), calls=calls)
        state = made(store)
        store.calls, store.at = 0, at
        with suppress(StateError, BaseExceptionGroup):
            in_threads(state)
        fired, store.at = store.fired, None
        with suppress(StateError):
            state.discard()
        in_threads(state)
        assert dict(state) == {"n": 0, "a": 1, "b": 1}
        assert branches(state) == ["main"], at
        if not fired:
            return


def test_what_a_killed_process_leaves_is_deleted_by_the_next_call_and_nothing_else_is(tmp_path: Path):
    program = """
        import os, sys, time
        from functools import partial
        from versioned_state import Disk, Versioned, current_state, parallel, task

        @task
        def wait():
            current_state()["there"] = 1
            os.write(1, b"begun\\n")
            time.sleep(60)

        state = Versioned(Disk(sys.argv[1]))
        state["n"] = 0
        state.commit()
        parallel(state, [wait, wait])
    """
    mine = Owner()
    others = ["parallel", "parallel/mine", "parallel/0123456789ab/0", f"parallel/{mine.id.hex()}/0", "parallelism/0"]
    with start(program, tmp_path) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
            state = Versioned(Disk(tmp_path))
            in_threads(state)
            forks = [name for name in state.repository.branches if name != "main"]
            assert len(forks) == 2  # those of the other process, which runs
            for name in others:
                state.repository.branches.create(name)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    in_threads(state)
    assert set(state.repository.branches) == {"main", *others}
    mine.end()
    in_threads(state)
    assert set(state.repository.branches) == {"main", *others} - {f"parallel/{mine.id.hex()}/0"}


def test_deleted_forks_cost_the_next_calls_little_and_hide_none_that_was_left():
    store = Counting(Memory())
    state = made(store)

    def fork() -> str:
        owner = Owner()
        owner.end()
        return f"parallel/{owner.id.hex()}/0"

    def cost_after(count: int) -> int:
        for _ in range(count):
            name = fork()
            forks.create(name)
            forks.delete(name, force=True)
        before = store.counts.bytes_read
        in_threads(state)
        return store.counts.bytes_read - before

    forks = state.repository.branches
    assert 1.2 * cost_after(300) > cost_after(500)
    left = fork()
    forks.create(left)
    for _ in range(80):
        if left not in forks:
            break
        in_threads(state)
    assert left not in forks
