"""Lanes: calls that are done together, each with a result of its own, and the workers that do them."""

from __future__ import annotations

from asyncio import gather, get_running_loop, run, wait_for, wrap_future
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures.thread import _WorkItem
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from itertools import count
from threading import Event, Thread, get_ident
from time import thread_time
from typing import Any

import pytest

from tests.support import processes
from tests.support.interrupts import Interrupt, Trace
from tests.support.services.gate import until
from versioned_state.errors import LimitExceededError, StoreBusyError
from versioned_state.services.calls.lanes import Lanes, LanesClosedError
from versioned_state.services.calls.turn import ALONE, Steps, callers


class Adder:
    """Notes which items were done together."""

    def __init__(self) -> None:
        self.together: list[list[int]] = []

    def double(self, items: list[int]) -> list[int | BaseException]:
        self.together.append(items)
        if 13 in items:
            raise LookupError("all of them")
        return [ValueError("odd") if item % 2 else item * 2 for item in items]

    def other(self, items: list[int]) -> list[int | BaseException]:
        self.together.append(items)
        return [*items]


def held(lanes: Lanes, lane: str) -> tuple[Event, Future[bool]]:
    """A lane that is busy until the event is set."""
    let_go = Event()
    return let_go, lanes.submit(lane, lambda: let_go.wait(20))


def test_items_in_a_row_are_done_together_and_others_in_their_order():
    lanes, adder = Lanes(2), Adder()
    let_go, busy = held(lanes, "a")
    first = [lanes.submit_item("a", n, adder.double) for n in (2, 3, 4)]
    between = lanes.submit("a", lambda: adder.together.append([]))
    second = [lanes.submit_item("a", n, adder.double) for n in (6, 8)]
    third = lanes.submit_item("a", 9, adder.other)
    assert lanes.submit_item("b", 10, adder.double).result(20) == 20  # no other lane waits
    let_go.set()
    assert third.result(20) == 9
    assert adder.together == [[10], [2, 3, 4], [], [6, 8], [9]]
    assert [first[0].result(), first[2].result(), *(each.result() for each in second)] == [4, 8, 12, 16]
    with pytest.raises(ValueError, match="odd"):
        first[1].result()
    assert between.done()
    assert busy.result()
    lanes.close()


def test_an_item_that_is_cancelled_first_is_left_out_and_an_error_of_all_reaches_all():
    lanes, adder = Lanes(2), Adder()
    let_go, _ = held(lanes, "a")
    futures = [lanes.submit_item("a", n, adder.double) for n in (2, 4, 6)]
    lanes.submit_item("a", 1, adder.other)
    failing = [lanes.submit_item("a", n, adder.double) for n in (13, 2)]
    assert futures[1].cancel()
    let_go.set()
    lanes.close()
    assert adder.together == [[2, 6], [1], [13, 2]]
    assert (futures[0].result(), futures[2].result()) == (4, 12)
    with pytest.raises(CancelledError):
        futures[1].result()
    for each in failing:
        with pytest.raises(LookupError):
            each.result()
    with pytest.raises(LanesClosedError):
        lanes.submit_item("a", 2, adder.double)


NAME: ContextVar[str] = ContextVar("name")


@pytest.mark.parametrize("in_steps", [False, True])
def test_items_of_which_one_cannot_be_done_are_done_each_by_itself_and_in_its_own_context(*, in_steps: bool):
    seen: list[tuple[list[int], list[str], str]] = []
    lanes = Lanes(2, lambda asked: asked)

    def note(items: list[int]) -> list[int]:
        seen.append((items, [context[NAME] for context in callers()], NAME.get()))
        if 13 in items:
            raise LimitExceededError("a value", limit=12)
        return items

    def steps(items: list[int]) -> Steps[list[int]]:
        yield 0
        yield ALONE
        return note(items)

    def submit(item: int) -> Future[int]:
        NAME.set(f"of {item}")
        return lanes.submit_item_steps("a", item, steps) if in_steps else lanes.submit_item("a", item, note)

    let_go, _ = held(lanes, "a")
    futures = [submit(item) for item in (1, 13, 3)]
    let_go.set()
    lanes.close()
    assert seen == [
        ([1, 13, 3], ["of 1", "of 13", "of 3"], "of 1"),
        ([1], [], "of 1"),
        ([13], [], "of 13"),
        ([3], [], "of 3"),
    ]
    assert (futures[0].result(), futures[2].result()) == (1, 3)
    with pytest.raises(LimitExceededError):
        futures[1].result()


def test_an_error_of_all_reaches_each_as_a_copy():
    lanes = Lanes(2)

    def fails(items: list[int]) -> list[int]:
        raise StoreBusyError("busy", remains="", hint="")

    let_go, _ = held(lanes, "a")
    futures = [lanes.submit_item("a", item, fails) for item in range(3)]
    let_go.set()
    lanes.close()
    errors = {id(each.exception()) for each in futures}
    assert len(errors) == 3
    assert {type(each.exception()) for each in futures} == {StoreBusyError}


def test_at_most_so_many_items_are_done_together():
    lanes, adder = Lanes(1), Adder()
    let_go, _ = held(lanes, "a")
    futures = [lanes.submit_item("a", 2 * n, adder.double) for n in range(200)]
    let_go.set()
    lanes.close()
    assert [each.result() for each in futures] == [4 * n for n in range(200)]
    assert max(map(len, adder.together)) == 64
    assert len(adder.together) == 4


def test_a_function_that_forgets_a_result_fails():
    lanes = Lanes(1)

    def forgets(items: list[int]) -> list[int]:
        return items[1:]

    with pytest.raises(AssertionError, match="a result for each item"):
        lanes.submit_item("a", 1, forgets).result(20)
    lanes.close()


def test_a_forked_process_has_threads_of_its_own_and_none_of_the_calls():
    lanes = Lanes(2)
    let_go, busy = held(lanes, "a")

    def child() -> None:
        assert lanes.submit("a", lambda: 1).result(20) == 1
        lanes.close()

    processes.join(processes.fork(child))
    let_go.set()
    assert busy.result(20)
    assert lanes.submit("a", lambda: 2).result(20) == 2
    lanes.close()


# Functions in steps


class Sender:
    """Notes what was sent together. What is below zero fails."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.open = Event()
        self.open.set()
        self.reached = Event()

    def send(self, asked: list[int]) -> list[int | Exception]:
        self.sent.append(asked)
        self.reached.set()
        assert self.open.wait(20)
        if 0 in asked:
            raise LookupError("nothing was sent")
        return [ValueError("below zero") if each < 0 else each * 10 for each in asked]


def sends(number: int) -> Callable[[], Steps[Any]]:
    """A function in steps that sends a number, and gives the answer."""

    def steps() -> Steps[Any]:
        answer = yield number
        return answer

    return steps


async def test_what_many_lanes_send_at_a_time_goes_in_one_round_trip() -> None:
    sender = Sender()
    lanes = Lanes(4, sender.send, together=True)
    sender.open.clear()
    first = wrap_future(lanes.submit_steps("0", sends(1)))
    await until(sender.reached.is_set)
    futures = [wrap_future(lanes.submit_steps(f"{n}", sends(n))) for n in range(2, 20)]
    sender.open.set()
    assert await first == 10
    assert await gather(*futures) == [10 * n for n in range(2, 20)]
    assert sorted(each for asked in sender.sent for each in asked) == list(range(1, 20))
    assert len(sender.sent) <= 4  # 16 at once at most
    lanes.close()


async def test_a_store_that_does_not_send_together_holds_up_no_other_lane() -> None:
    sender = Sender()
    lanes = Lanes(4, sender.send)
    sender.open.clear()
    futures = [wrap_future(lanes.submit_steps(f"{n}", sends(n))) for n in range(1, 4)]
    await until(lambda: len(sender.sent) == 3)  # though none has been answered
    sender.open.set()
    assert await gather(*futures) == [10, 20, 30]
    assert sorted(sender.sent) == [[1], [2], [3]]
    lanes.close()


async def test_each_lane_gets_its_own_error_and_all_get_that_of_the_round_trip() -> None:
    sender = Sender()
    lanes = Lanes(2, sender.send, together=True)

    def catches(number: int) -> Callable[[], Steps[str]]:
        def steps() -> Steps[str]:
            answer = yield number
            if number == 5:
                raise KeyError(number)
            return type(answer).__name__

        return steps

    sender.open.clear()
    held = wrap_future(lanes.submit_steps("held", sends(1)))
    await until(sender.reached.is_set)
    futures = [wrap_future(lanes.submit_steps(f"{n}", catches(n))) for n in (-2, 3, 5)]
    sender.open.set()
    assert await gather(*futures, return_exceptions=True) == ["ValueError", "int", futures[2].exception()]
    assert isinstance(futures[2].exception(), KeyError)
    assert await held == 10
    assert await wrap_future(lanes.submit_steps("a", catches(0))) == "LookupError"
    lanes.close()


async def test_a_lane_that_waits_for_the_store_goes_on_alone() -> None:
    sender = Sender()
    lanes = Lanes(4, sender.send, together=True)
    let_go = Event()

    def waits() -> Steps[int]:
        yield ALONE
        assert let_go.wait(20)
        answer: int = yield 7
        return answer

    sender.open.clear()
    held = wrap_future(lanes.submit_steps("held", sends(1)))
    await until(sender.reached.is_set)
    slow = wrap_future(lanes.submit_steps("slow", waits))
    behind = wrap_future(lanes.submit_steps("slow", sends(8)))
    others = [wrap_future(lanes.submit_steps(f"{n}", sends(n))) for n in (2, 3)]
    sender.open.set()
    assert await gather(held, *others) == [10, 20, 30]
    assert not slow.done()
    let_go.set()
    assert (await slow, await behind) == (70, 80)
    assert [7] in sender.sent
    lanes.close()


async def test_calls_behind_workers_that_hang_are_done_by_others() -> None:
    lanes = Lanes(4)
    let_go = Event()
    hanging = [wrap_future(lanes.submit(f"hangs {n}", lambda: let_go.wait(20))) for n in range(3)]
    for n in range(5):
        assert await wrap_future(lanes.submit(f"{n}", lambda: 1)) == 1
    let_go.set()
    assert await gather(*hanging) == [True] * 3
    assert await gather(*(wrap_future(lanes.submit(f"{n}", lambda: 2)) for n in range(50))) == [2] * 50
    lanes.close()
    assert (len(lanes._workers), lanes._sending, lanes._waiting) == (0, 0, {})


def test_calls_behind_those_of_a_loop_that_has_ended_are_done() -> None:
    lanes = Lanes(4)
    let_go = Event()

    async def leave() -> list[Future[bool]]:
        return [lanes.submit(f"hangs {n}", lambda: let_go.wait(20)) for n in range(3)]

    async def ask() -> int:
        return await wrap_future(lanes.submit("a", lambda: 1))

    left = run(leave())
    assert run(wait_for(ask(), 20)) == 1
    let_go.set()
    lanes.close()
    assert all(each.result() for each in left)


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "blocked"])
def test_calls_of_one_loop_do_not_wait_for_those_of_another_loop_that_ended_or_is_blocked(*, ends: bool) -> None:
    lanes = Lanes(4)
    began, submitted, let_go = Event(), Event(), Event()

    async def ask_and_leave() -> None:
        lanes.submit("hangs", lambda: let_go.wait(20))
        lanes.submit("a", lambda: 0)
        began.set()
        assert submitted.wait(20)
        assert ends or let_go.wait(20)

    async def ask() -> int:
        future = wrap_future(lanes.submit("b", lambda: 1))
        submitted.set()
        return await wait_for(future, 10)

    loop = Thread(target=run, args=(ask_and_leave(),))
    loop.start()
    assert began.wait(20)
    assert run(ask()) == 1
    let_go.set()
    loop.join(20)
    lanes.close()


class Startless(ThreadPoolExecutor):
    """Starts no thread while ``is_full``, as a system does that has as many as it takes."""

    is_full = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.is_full:
            # so it does: it puts the work before it starts the thread
            self._work_queue.put(_WorkItem(Future(), fn, args, kwargs))
            raise RuntimeError("can't start new thread")
        return super().submit(fn, *args, **kwargs)


async def test_calls_are_done_by_the_threads_that_there_are_if_the_system_starts_no_more() -> None:
    lanes = Lanes(4, lambda asked: asked, together=True)
    lanes._executor = executor = Startless(4)
    executor.is_full = True
    with pytest.raises(StoreBusyError, match="starts no thread"):
        lanes.submit("a", lambda: 1)
    executor.is_full = False
    let_go = Event()
    held = wrap_future(lanes.submit("held", lambda: let_go.wait(20)))

    def alone() -> Steps[Any]:
        yield ALONE
        answer = yield 3
        return answer

    executor.is_full = True
    waiting = [wrap_future(lanes.submit_steps(f"{n}", alone)) for n in range(4)]
    let_go.set()
    assert await wait_for(gather(held, *waiting), 20) == [True, 3, 3, 3, 3]
    executor.is_full = False
    assert await gather(*(wrap_future(lanes.submit(f"{n}", lambda: 2)) for n in range(20))) == [2] * 20
    lanes.close()
    assert (len(lanes._workers), lanes._waiting) == (0, {})


async def test_calls_that_wait_for_a_process_without_time_to_spare_are_all_done_by_one_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # whatever else the machine does
    monkeypatch.setattr("versioned_state.services.calls.lanes.process_time", count(0, 1000).__next__)
    monkeypatch.setattr("versioned_state.services.calls.lanes._AT_LAST_S", 1000)
    lanes = Lanes(8)

    def compute() -> int:
        until = thread_time() + 0.0005
        while thread_time() < until:
            pass
        return get_ident()

    let_go, _ = held(lanes, "held")  # until all of them are there, or the worker might end and begin again
    calls = [wrap_future(lanes.submit(f"{n}", compute)) for n in range(50)]
    let_go.set()
    assert len(set(await gather(*calls))) == 1
    lanes.close()


@pytest.mark.parametrize("where", ["new lane", "busy lane", "in a loop", "behind a worker that hangs"])
def test_an_interrupt_at_any_line_of_a_call_leaves_lanes_that_go_on_and_end(where: str) -> None:
    at = 0
    while True:
        at += 1
        lanes, ran = Lanes(4), list[int]()
        let_go, held_call = held(lanes, "busy" if where == "busy lane" else "other")
        trace = Trace(at)
        submit = partial(lanes.submit, "busy" if where == "busy lane" else "lane", partial(ran.append, 1))
        with suppress(Interrupt):
            if where in ("in a loop", "behind a worker that hangs"):
                run(traced_in_loop(lanes, trace, submit, hangs=where != "in a loop"))
            else:
                trace.run(submit)
        let_go.set()
        assert lanes.submit("busy" if where == "busy lane" else "lane", partial(ran.append, 2)).result(20) is None, (
            trace.hit
        )
        assert lanes.submit("third", lambda: 3).result(20) == 3, trace.hit
        ending = Thread(target=lanes.close, daemon=True)
        ending.start()
        ending.join(20)
        assert not ending.is_alive(), trace.hit
        assert held_call.result() is True
        assert ran in ([1, 2], [2]), trace.hit
        assert (len(lanes._workers), lanes._waiting) == (0, {}), trace.hit
        if not trace.hit:
            assert ran == [1, 2]
            return


async def traced_in_loop(lanes: Lanes, trace: Trace, submit: Callable[[], object], *, hangs: bool) -> None:
    """Submit a call under a trace on a loop, which goes on, and so looks after the calls that wait."""
    let_go = Event()
    hanging = [wrap_future(lanes.submit(f"hangs {n}", lambda: let_go.wait(20))) for n in range(2)] if hangs else []
    with suppress(Interrupt):
        trace.run(submit)
    if hangs:
        assert await wait_for(wrap_future(lanes.submit("a", lambda: 4)), 10) == 4, trace.hit
    let_go.set()
    await gather(*hanging)


def test_an_interrupt_of_a_loop_as_it_looks_after_calls_leaves_them_to_a_later_look() -> None:
    at = 2  # before that, the loop might as well not have called it
    while True:
        at += 1
        lanes = Lanes(3)
        let_go = Event()

        async def ask(lanes: Lanes, let_go: Event, trace: Trace) -> int:
            loop = get_running_loop()
            hanging = [wrap_future(lanes.submit(f"hangs {n}", lambda: let_go.wait(20))) for n in range(2)]
            for timer in loop._scheduled:  # type: ignore[attr-defined] # this look takes the place of the next one
                timer.cancel()
            with suppress(Interrupt):
                trace.run(partial(lanes._look, loop))
            answer = await wait_for(wrap_future(lanes.submit("a", lambda: 1)), 10)
            let_go.set()
            await gather(*hanging)
            return answer

        trace = Trace(at)
        assert run(ask(lanes, let_go, trace)) == 1, trace.hit
        lanes.close()
        assert (len(lanes._workers), lanes._waiting) == (0, {}), trace.hit
        if not trace.hit:
            return
