"""Transactions: who may enter one, the order in which they end, and what remains of those that are left otherwise."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from math import inf
from threading import Event, Thread

import pytest

from tests.support.handles import RollbackWantedError, committed, two
from tests.support.lossy import Lossy
from versioned_state import Versioned
from versioned_state.errors import MergeConflictError, StorageError, TransactionError
from versioned_state.repository.history.commit import ROOT_ID

# One commit or none


def test_a_transaction_is_one_round():
    state = Versioned()
    state["a"] = [1]
    with state.transaction("all of it", author="me", meta={"k": 1}) as inner:
        assert inner is state
        state["a"].append(2)
        state["b"] = 1
    assert (state.head.message, state.head.author, dict(state.head.meta)) == ("all of it", "me", {"k": 1})
    assert state.head.generation == 1
    with state.transaction("nothing"):
        pass
    assert state.head.generation == 1


def test_a_transaction_that_fails_is_undone_and_what_was_staged_before_is_there_still():
    state = committed(a=[1])
    state["a"].append("before")
    state["staged"] = staged = {"k": 1}
    state.sequence("seq").append("before")
    before = str(state.status())
    with suppress(RollbackWantedError), state.transaction("never"):
        state["a"].append("inside")
        state["staged"] = 5
        state["new"] = 1
        state.sequence("seq").append("inside")
        del state["a"]
        raise RollbackWantedError
    assert dict(state) == {"a": [1, "before"], "staged": {"k": 1}, "seq": ["before"]}
    assert state["staged"] is staged
    assert str(state.status()) == before
    assert state.commit().generation == 2


@pytest.mark.parametrize("looked_at", [True, False])
@pytest.mark.parametrize("by", ["rollback", "discard"])
def test_a_key_that_was_deleted_and_begun_anew_as_a_sequence_is_undone(by, looked_at):
    state = committed(a=[1])
    with suppress(RollbackWantedError), state.transaction() if by == "rollback" else nullcontext():
        del state["a"]
        state.sequence("a").append(2)
        if looked_at:
            assert dict(state) == {"a": [2]}
        raise RollbackWantedError
    if by == "discard":
        state.discard()
    assert (list(state), len(state), dict(state)) == (["a"], 1, {"a": [1]})
    assert not state.status()


def test_transactions_within_one_another():
    state = Versioned()
    with state.transaction("outer"):
        state["a"] = 1
        with state.transaction("inner"):
            state["b"] = 2
        assert state.head.id == ROOT_ID, "the outer one commits"
        with suppress(RollbackWantedError), state.transaction("inner"):
            state["a"] = 5
            state["c"] = 3
            raise RollbackWantedError
        assert dict(state) == {"a": 1, "b": 2}
    assert dict(state.checkout("HEAD")) == {"a": 1, "b": 2}
    assert state.head.message == "outer"


def test_what_cannot_be_undone_is_refused_within_a_transaction():
    state = committed(a=1)
    with state.transaction("t"):
        state["a"] = 2
        for call in (state.commit, state.refresh, state.discard, lambda: state.reset("HEAD")):
            with pytest.raises(TransactionError, match="transaction"):
                call()
        assert len(state.status()) == 1
    assert state.head.message == "t"
    state.discard()


def test_a_transaction_whose_commit_conflicts_is_undone():
    a, b = two(x=1, y=[1])
    held = b["y"]
    a["x"] = 2
    a.commit()

    def work() -> None:
        with b.transaction():
            b["x"] = 3
            b["y"].append(2)

    with pytest.raises(MergeConflictError):
        work()
    assert dict(b) == {"x": 1, "y": [1]}
    assert b["y"] is held
    assert not b.status()


# Owners, order, and blocks that never end


@pytest.fixture
def state() -> Versioned:
    state = Versioned()
    state["n"] = 0
    state["log"] = []
    state.commit("base")
    return state


async def test_another_task_may_not_enter_one(state: Versioned) -> None:
    refused = []

    async def first(entered: asyncio.Event, tried: asyncio.Event) -> None:
        with state.transaction("book the hotel"):
            state["a"] = "booked"
            entered.set()
            await tried.wait()

    async def second(entered: asyncio.Event, tried: asyncio.Event) -> None:
        await entered.wait()
        for attempt in (lambda: state.transaction("pay").__enter__(), state.commit):
            with pytest.raises(TransactionError, match="another task") as info:
                attempt()
            refused.append(info.value)
        tried.set()

    entered, tried = asyncio.Event(), asyncio.Event()
    await asyncio.gather(first(entered, tried), second(entered, tried))
    assert len(refused) == 2
    assert state.head.message == "book the hotel"
    assert state.checkout("HEAD")["a"] == "booked"


def test_what_another_task_writes_meanwhile_belongs_to_it(state: Versioned) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError), state.transaction():
            await asyncio.create_task(write())

    async def write() -> None:
        state["b"] = 1
        state["log"].append("b")
        1 / 0  # noqa: B018

    asyncio.run(main())
    assert dict(state) == {"n": 0, "log": []}
    assert not state.status()


async def test_one_task_may_enter_them_within_each_other(state: Versioned) -> None:
    with state.transaction("outer"):
        state["n"] = 1
        with pytest.raises(ZeroDivisionError), state.transaction("inner"):
            state["n"] = 2 // len(state["log"])
        await asyncio.sleep(0)
        state["log"].append("after")
    assert state.checkout("HEAD")["n"] == 1
    assert state.checkout("HEAD")["log"] == ["after"]


def test_another_thread_may_not_enter_one(state: Versioned) -> None:
    refused: list[TransactionError] = []

    def attempt() -> None:
        for call in (lambda: state.transaction("pay").__enter__(), state.commit):
            try:
                call()
            except TransactionError as error:
                refused.append(error)

    with state.transaction("mine"):
        state["n"] = 1
        thread = Thread(target=attempt)
        thread.start()
        thread.join()
    assert [("another thread" in str(error)) for error in refused] == [True, True]
    assert state.head.message == "mine"


async def test_a_thread_without_a_loop_is_told_from_a_task(state: Versioned) -> None:
    entered, leave = Event(), Event()

    def hold() -> None:
        with state.transaction("thread"):
            state["n"] = 1
            entered.set()
            leave.wait(10)

    thread = Thread(target=hold)
    thread.start()
    entered.wait(10)

    with pytest.raises(TransactionError, match="another thread"), state.transaction("task"):
        raise AssertionError("it was entered")
    leave.set()
    thread.join()
    assert state.head.message == "thread"


def _steps(state: Versioned, name: str) -> Iterator[None]:
    with state.transaction(name):
        state[name] = 1
        yield
        state["log"].append(name)


def test_those_left_in_the_wrong_order_are_all_rolled_back(state: Versioned) -> None:
    head = state.head
    state["before"] = "staged"
    outer, inner = _steps(state, "outer"), _steps(state, "inner")
    next(outer)
    next(inner)
    with pytest.raises(TransactionError, match="wrong order"):
        next(outer)
    assert dict(state) == {"n": 0, "log": [], "before": "staged"}
    with pytest.raises(TransactionError, match="wrong order"):
        next(inner)  # what it wrote since is rolled back too
    assert state.head == head
    assert [str(change.path) for change in state.status()] == ["before"]
    with state.transaction("later"):
        state["n"] = 5
    assert state.checkout("HEAD")["n"] == 5


def test_generators_in_the_right_order(state: Versioned) -> None:
    outer, inner = _steps(state, "outer"), _steps(state, "inner")
    next(outer)
    next(inner)
    assert list(inner) == []
    assert list(outer) == []
    assert state.checkout("HEAD")["log"] == ["inner", "outer"]
    assert state.head.message == "outer"


def test_a_generator_that_is_dropped_rolls_back(state: Versioned) -> None:
    steps = _steps(state, "dropped")
    next(steps)
    del steps
    gc.collect()
    assert "dropped" not in state
    state["n"] = 1
    state.commit("goes on")
    assert "dropped" not in state.checkout("HEAD")


def test_a_block_that_an_interrupt_kept_from_ending_is_rolled_back_by_the_next_call(state: Versioned) -> None:
    """What a ``with`` statement leaves if its ``__exit__`` is interrupted before its first line: nobody holds it."""
    transaction = state.transaction("interrupted")
    end = transaction.__exit__
    transaction.__enter__()
    state["log"].append("lost")
    state["n"] = 7
    del end
    assert dict(state) == {"n": 0, "log": []}
    state["n"] = 1
    assert state.commit("goes on").message == "goes on"


def test_an_exit_stack_ends_one(state: Versioned) -> None:
    with ExitStack() as stack:
        stack.enter_context(state.transaction("by the stack"))
        state["n"] = 3
        gc.collect()
        assert state["n"] == 3
    assert state.head.message == "by the stack"


def test_a_transaction_whose_end_failed_with_the_store_is_rolled_back_by_the_next_call() -> None:
    store = Lossy()
    with Versioned(store) as first:
        first.update({f"key {number}": number for number in range(3_000)}, log=[])
        first.commit()
    state = Versioned(store)
    assert state["log"] == []
    with suppress(StorageError), ExitStack() as stack:
        stack.enter_context(state.transaction("never"))
        state["log"].append("lost")
        store.silent = inf
    store.silent = 0
    assert state["log"] == []
    state["log"].append("kept")
    state.commit("goes on")
    assert state.checkout("HEAD")["log"] == ["kept"]


def test_a_transaction_that_the_store_committed_is_not_rolled_back_by_the_next_call() -> None:
    store = Lossy()
    state = committed(store, n=0)
    state["n"] = 1
    with suppress(StorageError), state.transaction("made"):
        state["n"] = 2
        store.lose("reply", silent=1, error=KeyboardInterrupt())
    store.silent = 0
    assert (state["n"], state.head.message) == (2, "made")
    assert not state.status()


def test_one_transaction_as_a_decorator(state: Versioned) -> None:
    @state.transaction("decorated")
    def count() -> None:
        state["n"] += 1

    count()
    count()
    assert state["n"] == 2
    assert [commit.message for commit in state.log(limit=2)] == ["decorated", "decorated"]
