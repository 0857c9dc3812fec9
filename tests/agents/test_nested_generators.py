"""A nested call beside its caller, such as a generator's, restores its own namespace if it fails or is closed early."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.support.exact import exact
from versioned_state import Versioned, checkpoint, current_state, emit, events, task
from versioned_state.errors import TransactionError, UnserializableValueError
from versioned_state.state.state import State


class LostError(Exception):
    pass


@task
def produce(count: int = 3, *, fails: bool = False) -> Iterator[int]:
    state = current_state()
    found = state.setdefault("found", [])
    for number in range(count):
        found.append(number)
        state["last"] = [number]
        yield number
    if fails:
        raise LostError


@task
def consume(number: int, *, fails: bool = False) -> None:
    current_state()["number"] = number
    if fails:
        raise LostError


def outer(state: Versioned, body: Callable[[State], object]) -> None:
    @task
    def outermost() -> None:
        body(current_state())

    outermost(state=state)


def content(state: Versioned) -> dict[str, Any]:
    found = {name: exact(state.namespace(name).copy()) for name in state.namespaces()}
    return {"": exact(state.copy()), **found}


def made() -> Versioned:
    state = Versioned()
    state.update({"words": ["one"], "gone": 1, "far": [{"n": n} for n in range(300)]})
    state.namespace("produce")["found"] = ["before"]
    state.commit()
    return state


def close(steps: Any) -> None:
    steps.close()


def fail(steps: Any) -> None:
    with pytest.raises(LostError):
        list(steps)


@pytest.mark.parametrize("end", [close, fail], ids=lambda end: end.__name__)
def test_what_the_caller_wrote_meanwhile_stays(end: Callable[[Any], None]):
    state = made()
    state.release("far")
    words, found = state["words"], state.namespace("produce")["found"]

    def body(own: State) -> None:
        own["early"] = [0]
        steps: Any = produce(fails=True)
        next(steps)
        words.append("two")
        own["early"].append(1)
        own["new"] = {"a": [1]}
        del own["gone"]
        own.sequence("far").append({"n": "far"})
        own.namespace("notes")["note"] = "kept"
        next(steps)
        own["new"]["a"].append(2)
        end(steps)
        assert words == ["one", "two"]
        assert own["new"] == {"a": [1, 2]}
        own["new"]["a"].append(3)

    outer(state, body)
    past = state.checkout("HEAD")
    for seen in (state, past):
        assert seen["early"] == [0, 1]
        assert seen["new"] == {"a": [1, 2, 3]}
        assert seen["words"] == ["one", "two"]
        assert "gone" not in seen
        assert (len(seen["far"]), seen["far"][-1]) == (301, {"n": "far"})
        assert seen.namespace("notes")["note"] == "kept"
        assert seen.namespace("produce").copy() == {"found": ["before"]}
    assert state["words"] is words
    assert state.namespace("produce")["found"] is found
    assert not state.status()


def test_the_failure_of_the_call_around_it_restores_both():
    state = made()
    before, words = content(state), state["words"]

    def body(own: State) -> None:
        own["words"].append("two")
        steps: Any = produce()
        next(steps)
        own["words"] = ["another"]
        steps.close()
        own["words"].append("three")
        raise LostError

    with pytest.raises(LostError):
        outer(state, body)
    assert content(state) == before
    assert state["words"] is words
    assert not state.status()


def test_a_checkpoint_of_the_generator_is_what_is_restored():
    @task
    def halting() -> Iterator[int]:
        current_state()["n"] = [1]
        checkpoint("half")
        current_state()["n"].append(2)
        yield 1

    def body(own: State) -> None:
        own["first"] = 1
        steps: Any = halting()
        next(steps)
        own["second"] = [2]
        steps.close()
        own["second"].append(3)

    state = made()
    outer(state, body)
    assert state.namespace("halting").copy() == {"n": [1]}
    assert (state["first"], state["second"]) == (1, [2, 3])
    assert state.checkout("HEAD").copy() == state.copy()
    assert not state.status()


def test_one_object_in_both_keeps_what_the_caller_did_to_it():
    shared = [1]

    @task
    def share(given: list[int]) -> Iterator[int]:
        current_state()["shared"] = given
        yield 1

    def body(own: State) -> None:
        own["shared"] = shared
        steps: Any = share(shared)
        next(steps)
        shared.append(2)
        steps.close()

    state = made()
    outer(state, body)
    assert state["shared"] is shared
    assert shared == [1, 2]
    assert "share" not in state.namespaces()


def test_values_that_cannot_be_stored():
    @task
    def keep() -> Iterator[int]:
        current_state()["lock"] = threading.Lock()
        yield 1

    def body(own: State) -> None:
        own["bad"] = bad = threading.Lock()
        steps: Any = keep()
        next(steps)
        own["good"] = 1
        steps.close()
        assert own["bad"] is bad
        del own["bad"]

    state = made()
    outer(state, body)
    assert state["good"] == 1
    assert "keep" not in state.namespaces()

    @task
    def leaving() -> None:
        list(keep())

    with pytest.raises(UnserializableValueError):
        leaving(state=state)


def test_events_say_how_it_ended():
    state = made()
    outer(state, lambda own: next(produce()))
    assert [type(event).__name__ for event in events(state, namespace="outermost/produce")] == [
        "TaskStartEvent",
        "ErrorEvent",
    ]


def test_a_function_that_fails_restores_what_it_did_wherever():
    """Nothing else ran meanwhile: every change since its start is its own."""

    @task
    def meddle(words: list[str]) -> None:
        words.append("two")
        raise LostError

    def body(own: State) -> None:
        own["words"].append("before")
        with suppress(LostError):
            meddle(own["words"])

    state = made()
    outer(state, body)
    assert state["words"] == ["one", "before"]


# Other calls between two steps


def test_a_suspended_generator_and_other_calls_beside_it():
    def body(own: State) -> None:
        for number in produce():
            consume(number)
            with suppress(LostError):
                consume(7, fails=True)
            with state.transaction():
                own["seen"] = [*own.get("seen", []), number]

    state = made()
    outer(state, body)
    assert content(state) == {
        "": exact({**state.copy(), "seen": [0, 1, 2]}),
        "consume": exact({"number": 2}),
        "produce": exact({"found": ["before", 0, 1, 2], "last": [2]}),
    }


@task
def other(count: int) -> Iterator[int]:
    current_state()["count"] = count
    yield from range(count)


def test_two_generators_end_in_any_order():
    def body(own: State) -> None:
        first: Any = produce(5)
        second: Any = other(2)
        next(first)
        next(second)
        assert list(first) == [1, 2, 3, 4]
        own["between"] = 1
        second.close()
        third: Any = produce(5)
        fourth: Any = other(2)
        next(third)
        next(fourth)
        third.close()
        assert list(fourth) == [1]

    state = made()
    outer(state, body)
    assert state.namespace("produce")["found"] == ["before", 0, 1, 2, 3, 4]
    assert state.namespace("other").copy() == {"count": 2}
    assert state["between"] == 1


def test_calls_on_the_same_keys_are_refused_and_commits_too():
    def body(own: State) -> None:
        steps: Any = produce()
        next(steps)
        with pytest.raises(TransactionError, match="'produce'"):
            next(produce())
        with pytest.raises(TransactionError, match="'produce'") as raised:
            checkpoint()
        assert "close" in raised.value.hint
        own["after"] = 1
        steps.close()
        checkpoint("now")

    state = made()
    outer(state, body)
    assert state["after"] == 1
    assert [commit.message for commit in state.log(limit=2)][1] == "now"


def test_a_generator_that_is_left_open_fails_the_call_around_it():
    state = made()
    before = content(state)
    left: list[Any] = []

    def body(own: State) -> None:
        own["n"] = 1
        left.append(produce())
        next(left[0])

    with pytest.raises(TransactionError, match="a task ended within which a task has not") as raised:
        outer(state, body)
    assert "close it" in raised.value.hint
    assert content(state) == before
    left[0].close()
    assert content(state) == before
    assert not state.status()
    assert list(produce(1, state=state)) == [0]


def test_nobody_else_may_come_between_the_steps_of_the_outermost():
    state = made()
    steps: Any = produce(state=state.namespace("mine"))
    next(steps)
    state["mine"] = [1]
    with pytest.raises(TransactionError, match="parallel"):
        consume(1, state=state)
    steps.close()
    assert state["mine"] == [1]
    assert not state.namespace("mine")
    assert str(state.status()) == "+ mine = [1]"
    assert state.head.meta["outcome"] == "closed"


# Coroutines


async def test_an_asynchronous_generator_and_its_caller():
    @task
    async def stream() -> AsyncIterator[int]:
        for number in range(5):
            current_state()["n"] = [number]
            await asyncio.sleep(0)
            yield number

    @task
    async def reads() -> None:
        own = current_state()
        steps: Any = stream()
        async for number in steps:
            own.setdefault("read", []).append(number)
            consume(number)
            if number == 2:
                break
        await steps.aclose()

    state = made()
    await reads(state=state)
    assert state["read"] == [0, 1, 2]
    assert state.namespace("consume")["number"] == 2
    assert "stream" not in state.namespaces()


async def test_a_coroutine_in_a_task_of_its_own_restores_its_namespace():
    go = asyncio.Event()

    @task
    async def work(words: list[str]) -> None:
        current_state()["n"] = 1
        words.append("theirs")
        await go.wait()
        raise LostError

    @task
    async def beside(*, alone: bool) -> None:
        own = current_state()
        running: Any = work(own["words"])
        if alone:
            go.set()
        else:
            running = asyncio.ensure_future(running)
            await asyncio.sleep(0)
            while "work" not in state.namespaces():  # noqa: ASYNC110 - its start is off the loop
                await asyncio.sleep(0)
            own["words"].append("ours")
            own["new"] = 1
            go.set()
        with suppress(LostError):
            await running

    state = made()
    await beside(alone=False, state=state)
    assert (state["words"], state["new"]) == (["one", "theirs", "ours"], 1)
    assert "work" not in state.namespaces()
    go.clear()
    await beside(alone=True, state=state)
    assert state["words"] == ["one", "theirs", "ours"]
    assert "work" not in state.namespaces()


# At random, against dicts

NAMES = "abc"
Lists = dict[str, list[int]]


class AtRandom:
    """A call with suspended generators beside it, and what a model says of each namespace."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.state = Versioned()
        self.model: dict[str, Lists] = {name: {} for name in ("", *NAMES)}
        self.running: dict[str, tuple[Any, Lists]] = {}
        for name in self.model:
            for key in "xyz":
                if self.chance.random() < 0.6:
                    self.space(name)[key] = list(range(self.chance.choice([2, 400])))
                    self.model[name][key] = list(self.space(name)[key])
        self.state.commit(allow_empty=True)
        self.write("")

    def space(self, name: str) -> State:
        return self.state.namespace(name) if name else self.state

    def write(self, name: str) -> None:
        space, lists = self.space(name), self.model[name]
        for _ in range(self.chance.randrange(3)):
            key = self.chance.choice("xyz")
            match self.chance.randrange(4):
                case 0:
                    space[key] = [self.chance.randrange(9)]
                    lists[key] = list(space[key])
                case 1 if key in lists:
                    space[key].append(7)
                    lists[key].append(7)
                case 2 if key in lists:
                    del space[key], lists[key]
                case 3 if key in lists:
                    space.sequence(key).append(8)
                    lists[key].append(8)

    def begin(self, name: str) -> None:
        @task(name=name)
        def walk() -> Iterator[None]:
            while self.chance.random() > 0.2:
                self.write(name)
                emit(LostError(name))
                yield
                if self.chance.random() < 0.2:
                    raise LostError

        self.running[name] = walk(), {key: list(value) for key, value in self.model[name].items()}

    def step(self) -> None:
        name = self.chance.choice(NAMES)
        if name not in self.running:
            self.begin(name)
        steps, saved = self.running[name]
        try:
            if self.chance.random() < 0.2:
                self.end(name)
            else:
                next(steps)
        except StopIteration:
            del self.running[name]
        except LostError:
            self.model[name] = saved
            del self.running[name]

    def end(self, name: str) -> None:
        steps, self.model[name] = self.running.pop(name)
        steps.close()

    def seen(self, state: Any) -> dict[str, Lists]:
        return {name: (state.namespace(name) if name else state).copy() for name in self.model}


def test_any_order_of_steps_writes_and_ends_leaves_what_a_model_says(long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(1500 if long_run else 15):
        this = AtRandom(seed)

        def body(_own: State, this: AtRandom = this, seed: int = seed) -> None:
            for _step in range(25):
                this.write("")
                this.step()
                assert this.seen(this.state) == this.model, seed
            for name in list(this.running):
                this.end(name)

        outer(this.state, body)
        assert this.seen(this.state) == this.seen(this.state.checkout("HEAD")) == this.model, seed
        assert not this.state.status(), seed
