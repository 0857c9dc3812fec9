"""Tasks that are coroutines: off the event loop, cancelled at every call of the store, timed out, closed."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

import versioned_state
from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.event_loop import times_out_after
from tests.support.handles import committed
from tests.support.watched_stores import Watched
from versioned_state import Live, Memory, Versioned, checkpoint, current_state, emit, events, task
from versioned_state.agents.events.classes import ActionEvent, TaskStartEvent
from versioned_state.errors import NoTaskError, TransactionError
from versioned_state.state.versioned import Namespace


def kinds(state: Any) -> list[str]:
    return [type(event).__name__ for event in events(state)]


@task
async def walk(*steps: int) -> int:
    state = current_state()
    for step in steps:
        state.setdefault("steps", []).append(step)
        await asyncio.sleep(0)
        assert current_state() is state
    return len(steps)


async def test_a_coroutine_is_a_round():
    for state in (Versioned(), Live()):
        assert await walk(1, 2, state=state) == 2
        assert state["steps"] == [1, 2]
        assert kinds(state) == ["TaskStartEvent", "SuccessEvent"]
    assert await walk(1) == 1


async def test_a_store_url_is_opened_and_closed(tmp_path: Path):
    await walk(1, state=f"disk:{tmp_path}")
    await walk(2, state=f"disk:{tmp_path}")
    with versioned_state.open(f"disk:{tmp_path}") as state:
        assert state["steps"] == [1, 2]


async def test_the_store_is_asked_off_the_event_loop():
    threads: set[int] = set()
    here = threading.get_ident()
    for k in itertools.count(1):
        store = ActsBeforeCall(Memory(), lambda: threads.add(threading.get_ident()))
        state = committed(store, steps=[])
        store.arm(k)
        await walk(1, state=state)
        with pytest.raises(ZeroDivisionError):
            await fail(state=state)
        assert here not in threads
        if not store.fired:
            break
    assert k > 2


@task
async def fail() -> None:
    current_state()["broken"] = True
    await asyncio.sleep(0)
    raise ZeroDivisionError


async def test_a_cancelled_call_is_restored_and_recorded():
    state = Versioned()
    state["steps"] = steps = [0]
    state.commit()
    begun = asyncio.Event()

    @task
    async def wait() -> None:
        current_state()["steps"].append(1)
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.ensure_future(wait(state=state))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert steps == [0]
    assert state["steps"] is steps
    assert state.head.meta["outcome"] == "cancelled"
    assert not state.status()
    await walk(1, state=state)


async def test_a_timeout_within_the_call_and_around_it():
    begun = asyncio.Event()

    @task
    async def slow(*, inside: bool) -> None:
        current_state()["x"] = 1
        if not inside:
            begun.set()
        async with asyncio.timeout(0 if inside else None):
            await asyncio.Event().wait()

    state = Versioned()
    with pytest.raises(TimeoutError):
        await slow(inside=True, state=state)
    assert state.head.meta["outcome"] == "timeout"
    with pytest.raises(TimeoutError):
        async with times_out_after(begun):
            await slow(inside=False, state=state)
    assert state.head.meta["outcome"] == "cancelled"
    assert not state


async def test_a_call_cancelled_at_any_call_of_the_store_has_happened_or_not():
    loop = asyncio.get_running_loop()
    outcomes = set()
    running: list[asyncio.Future[int]] = []

    def cancel() -> None:
        done = threading.Event()
        loop.call_soon_threadsafe(running[-1].cancel)
        loop.call_soon_threadsafe(done.set)
        assert done.wait(10)

    for k in itertools.count(1):
        store = ActsBeforeCall(Memory(), cancel)
        state = Versioned(store)
        steps: list[int] = []
        state["steps"] = steps
        state["before"] = 1
        state.commit()
        other = Versioned(state.repository)
        other["other"] = k
        other.commit()
        state["before"] = 2
        store.arm(k)
        running.append(asyncio.ensure_future(walk(1, 2, state=state)))
        try:
            assert await running[-1] == 2
            cancelled = False
        except asyncio.CancelledError:
            cancelled = True
        store.arm(None)
        assert state["steps"] is steps
        outcome = state.head.meta.get("outcome")
        outcomes.add(outcome)
        if outcome == "success":
            assert steps == [1, 2]
            assert not state.status()
        else:
            assert cancelled
            assert outcome in ("cancelled", None)
            assert steps == []
            assert str(state.status()) == "~ before: 1 -> 2"
        await walk(3, state=state)
        assert steps[-1] == 3
        assert state["other"] == k
        assert state.checkout("HEAD")["before"] == 2
        if not cancelled:
            break
    assert k > 2
    assert "success" in outcomes


async def test_a_coroutine_that_is_closed_is_restored():
    state = Versioned()
    begun = asyncio.Event()

    @task
    async def wait() -> None:
        current_state()["x"] = 1
        begun.set()
        await asyncio.Event().wait()

    coroutine: Any = wait(state=state)
    waiting: Any = coroutine.send(None)  # as a loop would drive it
    while not begun.is_set():
        await asyncio.wait([waiting])
        waiting = coroutine.send(None)
    coroutine.close()
    assert not state
    assert state.head.meta["outcome"] == "closed"
    await walk(1, state=state)


async def test_nested_coroutines_commit_with_the_outermost():
    @task
    async def outer() -> int:
        state = current_state()
        state["plan"] = 1
        done = await walk(1, 2)
        checkpoint("middle")
        return done + await walk(3)

    state = Versioned()
    assert await outer(state=state) == 3
    assert state.namespace("walk")["steps"] == [1, 2, 3]
    assert state.head.height == 2


async def test_two_nested_calls_at_once_on_one_handle_are_refused():
    @task
    async def outer() -> list[Any]:
        return list(await asyncio.gather(walk(1, 2), walk(3), return_exceptions=True))

    state = Versioned()
    first, second = await outer(state=state)
    assert first == 2
    assert isinstance(second, TransactionError)
    assert state.namespace("walk")["steps"] == [1, 2]


async def test_calls_on_handles_of_their_own_run_side_by_side():
    one, two = Versioned(), Versioned()
    assert await asyncio.gather(walk(1, state=one), walk(2, 3, state=two)) == [1, 2]  # type: ignore[comparison-overlap]
    assert (one["steps"], two["steps"]) == ([1], [2, 3])


async def test_a_call_belongs_to_its_own_task():
    begun, go = asyncio.Event(), asyncio.Event()

    @task
    async def hold() -> None:
        current_state()["x"] = 1
        begun.set()
        await go.wait()

    state = Versioned()
    holding = asyncio.ensure_future(hold(state=state))
    await begun.wait()
    with pytest.raises(NoTaskError):
        current_state()
    with pytest.raises(TransactionError, match="runs on this handle"):
        state.commit()
    go.set()
    await holding
    assert state["x"] == 1


# Generators


@task
def count(n: int) -> Any:
    state = current_state()
    for at in range(n):
        state["at"] = at
        emit(ActionEvent(code=str(at)))
        sent = yield at
        if sent is not None:
            state["sent"] = sent
    return n


@task
async def count_slowly(n: int) -> Any:
    state = current_state()
    for at in range(n):
        state["at"] = at
        await asyncio.sleep(0)
        sent = yield at
        if sent is not None:
            state["sent"] = sent


def test_a_generator_that_is_taken_to_its_end_commits():
    state = Versioned()
    assert list(count(3, state=state)) == [0, 1, 2]
    assert state["at"] == 2
    assert state.head.height == 1
    assert events(state)[-1].result == 3
    assert list(count(3)) == [0, 1, 2]


def test_a_coroutine_and_a_generator_have_the_name_of_the_task():
    @task
    async def later() -> None:
        await asyncio.sleep(0)

    @task
    def numbers() -> Any:
        yield 1

    running: Any = later()
    assert (running.__name__, running.__qualname__) == ("later", later.__qualname__)
    running.close()
    assert numbers().__name__ == "numbers"


def test_a_generator_does_nothing_before_its_first_value():
    state = Versioned()
    generator = count(3, state=state)
    del generator
    assert state.head.height == 0


def test_a_generator_that_is_closed_early_is_restored():
    state = Versioned()
    for _ in count(3, state=state):
        break
    assert not state
    assert state.head.meta["outcome"] == "closed"
    assert kinds(state) == ["TaskStartEvent", "ActionEvent", "ErrorEvent"]
    generator = count(3, state=state)
    next(generator)
    del generator
    assert state.head.height == 2
    assert list(count(1, state=state)) == [0]


def test_between_two_steps_the_caller_is_outside_of_the_task():
    state = Versioned()
    generator = count(2, state=state)
    next(generator)
    with pytest.raises(NoTaskError):
        current_state()
    with pytest.raises(TransactionError, match="runs on this handle"):
        list(count(1, state=state))
    with pytest.raises(TransactionError):
        state.commit()
    assert generator.send("hello") == 1
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert stopped.value.value == 2
    assert dict(state) == {"at": 1, "sent": "hello"}


def test_an_exception_thrown_into_a_generator_is_its_own_to_handle():
    @task
    def careful() -> Any:
        try:
            yield 1
        except ValueError:
            current_state()["caught"] = True
            yield 2

    state = Versioned()
    generator = careful(state=state)
    next(generator)
    assert generator.throw(ValueError()) == 2
    assert list(generator) == []
    assert state["caught"] is True
    generator = careful(state=state)
    next(generator)
    with pytest.raises(KeyError):
        generator.throw(KeyError())
    assert state.head.meta["outcome"] == "failure"


def test_a_generator_may_go_on_in_another_thread():
    state = Versioned()
    generator = count(2, state=state)
    next(generator)
    rest: list[int] = []
    thread = threading.Thread(target=lambda: rest.extend(generator))
    thread.start()
    thread.join()
    assert rest == [1]
    assert state["at"] == 1
    assert state.head.meta["outcome"] == "success"


def test_a_generator_with_a_key_yields_nothing_the_second_time():
    state = Versioned()
    assert list(count(2, state=state, key="k")) == [0, 1]
    generator = count(2, state=state, key="k")
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert stopped.value.value == 2


async def test_an_async_generator_that_is_taken_to_its_end_commits():
    for state in (Versioned(), Live()):
        assert [at async for at in count_slowly(3, state=state)] == [0, 1, 2]
        assert state["at"] == 2
    assert [at async for at in count_slowly(3)] == [0, 1, 2]


async def test_an_async_generator_that_is_closed_early_is_restored():
    state = Versioned()
    generator = count_slowly(3, state=state)
    assert await anext(generator) == 0
    with pytest.raises(NoTaskError):
        current_state()
    with pytest.raises(TransactionError):
        await walk(1, state=state)
    await generator.aclose()
    assert not state
    assert state.head.meta["outcome"] == "closed"
    generator = count_slowly(3, state=state)
    await anext(generator)
    assert await generator.asend("hello") == 1
    with pytest.raises(KeyError):
        await generator.athrow(KeyError())
    assert not state
    assert [at async for at in count_slowly(1, state=state)] == [0]


# Changes between two steps


@task
def fill(n: int) -> Generator[int]:
    state = current_state()
    try:
        for at in range(n):
            state["at"] = at
            yield at
    finally:
        state["filled"] = True


@task
async def fill_slowly(n: int) -> AsyncGenerator[int]:
    state = current_state()
    try:
        for at in range(n):
            state["at"] = at
            yield at
            await asyncio.sleep(0)
    finally:
        state["filled"] = True


def paused(state: Versioned | Namespace, *, slow: bool) -> tuple[Callable[[], object], Callable[[], object]]:
    """A generator's call between two steps: the functions that take it to its end, or close it."""
    if not slow:
        generator = fill(3, state=state)
        next(generator)
        return lambda: list(generator), generator.close
    loop, steps = asyncio.new_event_loop(), fill_slowly(3, state=state)

    async def rest() -> None:
        async for _ in steps:
            pass

    def until_done(coroutine: Coroutine[Any, Any, None]) -> None:
        loop.run_until_complete(coroutine)
        loop.close()

    loop.run_until_complete(anext(steps))
    return lambda: until_done(rest()), lambda: until_done(steps.aclose())


CHANGES: dict[str, Callable[[Versioned], object]] = {
    "assign": lambda state: state.__setitem__("mine", 1),
    "assign again": lambda state: state.__setitem__("n", 1),
    "delete": lambda state: state.__delitem__("n"),
    "setdefault": lambda state: state.setdefault("mine", []),
    "update": lambda state: state.update(mine=1, n=2),
    "pop": lambda state: state.pop("n"),
    "clear": lambda state: state.clear(),
    "namespace": lambda state: state.namespace("inner").__setitem__("mine", 1),
    "append": lambda state: state.sequence("list").append(4),
    "append to a new one": lambda state: state.sequence("mine").append(4),
    "insert": lambda state: state.sequence("list").insert(0, 4),
    "sequence delete": lambda state: state.sequence("list").__delitem__(0),
    "append to a loaded one": lambda state: (state.sequence("list") if state["list"] else state.sequence("")).append(4),
    "sort": lambda state: state.sequence("list").sort(reverse=True),
    "reverse": lambda state: state.sequence("list").reverse(),
    "restore": lambda state: state.restore("list[0]", "main~1"),
    "apply": lambda state: state.apply(state.repository.diff("main~1", "main~2")),
}


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_between_two_steps_the_handle_refuses_what_the_call_would_undo(name: str, *, slow: bool):
    change = CHANGES[name]
    state = committed(n=0, list=[0, 1])
    state.update(list=[3, 2, 1])
    state.commit()
    state["again"] = 1
    state.commit()
    before = dict(state)
    end, close = paused(state, slow=slow)
    with pytest.raises(TransactionError, match="which would undo it") as caught:
        change(state)
    assert caught.value.remains == "nothing was changed"
    assert "close it" in caught.value.hint
    assert dict(state) == before | {"at": 0}
    close()
    assert dict(state) == before
    change(state)
    state.discard()
    end, close = paused(state, slow=slow)
    with pytest.raises(TransactionError):
        change(state)
    end()
    assert dict(state) == before | {"at": 2, "filled": True}
    change(state)
    state.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("slow", [False, True])
def test_between_two_steps_of_a_call_on_a_namespace_other_keys_may_change(*, slow: bool):
    state = committed(n=0)
    for close_early in (True, False):
        end, close = paused(state.namespace("inner"), slow=slow)
        state["n"] = state["n"] + 1
        state.namespace("other")["n"] = state["n"]
        for change in (
            lambda space: space.__setitem__("mine", 1),
            lambda space: space.namespace("deeper").update(mine=1),
        ):
            with pytest.raises(TransactionError, match="@inner"):
                change(state.namespace("inner"))
        (close if close_early else end)()
    assert (state["n"], state.namespace("other")["n"]) == (2, 2)
    assert dict(state.namespace("inner")) == {"at": 2, "filled": True}


async def test_on_event_and_nested_namespaces_of_coroutines():
    seen: list[Any] = []

    @task
    async def outer() -> None:
        await walk(1)

    state = Versioned()
    await outer(state=state, on_event=seen.append)
    assert seen == list(events(state))
    assert [event.full_namespace for event in events(state, types=TaskStartEvent)] == ["outer", "outer/walk"]


async def test_a_checkpoint_off_the_event_loop():
    """It is the call's, it is restored to, and no request of it is made on the thread of the loop."""
    store = Watched(Memory())
    state = Versioned(store)
    threads: set[int] = set()

    @task
    async def inner(*, fails: bool) -> None:
        own: Any = current_state()
        own["n"] = [1]
        store.before = lambda _: threads.add(threading.get_ident())
        commit: Any = await own.aio.run(lambda: checkpoint("half"))
        store.before = lambda _: None
        assert commit.meta["task"] == "inner"
        own["n"].append(2)
        if fails:
            raise ValueError

    @task
    async def outer() -> None:
        current_state()["outer"] = 1
        with pytest.raises(ValueError):
            await inner(fails=True)

    await inner(fails=False, state=state)
    assert state["n"] == [1, 2]
    await outer(state=state)
    assert (state["outer"], state.namespace("inner")["n"]) == (1, [1])
    assert threads
    assert threading.get_ident() not in threads
