"""Effects within tasks: a call that fails is rolled back, and what it did in the outside world is not done again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from versioned_state import Live, Memory, Versioned, current_state, effect, effects, task
from versioned_state.errors import EffectInDoubtError


class Till:
    """The other side of an effect: it counts what was paid."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def pay(self, city: str) -> dict[str, Any]:
        self.paid.append(city)
        return {"city": city, "receipt": len(self.paid)}

    async def pay_later(self, city: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return self.pay(city)


till = Till()


@pytest.fixture(autouse=True)
def _empty() -> None:
    till.__init__()  # type: ignore[misc]


@task
def book(city: str, *, fails: bool = False) -> dict[str, Any]:
    state = current_state()
    state["trips"] = [*state.get("trips", []), city]
    state["receipt"] = effect(f"pay:{city}", till.pay, city)
    if fails:
        raise RuntimeError("after the payment")
    receipt: dict[str, Any] = state["receipt"]
    return receipt


@task
async def book_later(city: str, *, fails: bool = False) -> dict[str, Any]:
    current_state()["trips"] = [city]
    receipt = await effect(f"pay:{city}", till.pay_later, city)
    if fails:
        raise RuntimeError("after the payment")
    return receipt


@task
def plan(cities: list[str]) -> list[dict[str, Any]]:
    return [book(city) for city in cities]


@task
def steps(city: str) -> Iterator[Any]:
    yield effect(f"pay:{city}", till.pay, city)
    yield effect(f"pay:{city}", till.pay, city)


@task
async def steps_later(city: str) -> AsyncIterator[Any]:
    yield await effect(f"pay:{city}", till.pay_later, city)
    yield await effect(f"pay:{city}", till.pay_later, city)


@pytest.mark.parametrize("make", [Versioned, Live])
def test_a_task_that_fails_after_its_effect_is_repeated_without_it(make):
    state = make()
    with pytest.raises(RuntimeError):
        book("Rome", fails=True, state=state)
    if make is Versioned:
        assert "trips" not in state
    assert book("Rome", state=state) == {"city": "Rome", "receipt": 1}
    assert till.paid == ["Rome"]


async def test_a_coroutine_too():
    state = Versioned()

    with pytest.raises(RuntimeError):
        await book_later("Rome", fails=True, state=state)
    assert await book_later("Rome", state=state) == {"city": "Rome", "receipt": 1}
    steps_made = [step async for step in steps_later("Rome", state=state)]
    assert steps_made == [{"city": "Rome", "receipt": 1}] * 2
    assert till.paid == ["Rome"]
    assert list(steps("Rome", state=state)) == [{"city": "Rome", "receipt": 1}] * 2
    assert till.paid == ["Rome"]


def test_nested_tasks_on_a_namespace_share_the_ledger():
    store = Memory()
    state = Versioned(store)
    assert [each["receipt"] for each in plan(["Rome", "Oslo", "Rome"], state=state)] == [1, 2, 1]
    book("Rome", state=state.namespace("other"))
    with state.fork("what-if") as fork:
        book("Oslo", state=fork)
    assert till.paid == ["Rome", "Oslo"]
    assert [each.key for each in effects(state)] == ["pay:Rome", "pay:Oslo"]
    state.undo()
    plan(["Rome", "Oslo"], state=state)
    assert till.paid == ["Rome", "Oslo"]


def test_a_call_with_a_key_has_effects_of_its_own():
    state = Versioned()

    @task
    def order(city: str, *, fails: bool) -> Any:
        receipt = effect("pay", till.pay, city, scope="call")
        if fails:
            raise RuntimeError
        return receipt

    for key in ("order-1", "order-2"):
        with pytest.raises(RuntimeError):
            order("Rome", fails=True, state=state, key=key)
        order("Rome", fails=False, state=state, key=key)
        order("Rome", fails=False, state=state, key=key)
    assert till.paid == ["Rome", "Rome"]
    assert [each.key for each in effects(state)] == ["@call/order-1/pay", "@call/order-2/pay"]
    for _ in range(2):
        order("Bonn", fails=False, state=state)
    assert till.paid == ["Rome", "Rome", "Bonn", "Bonn"]


def test_a_call_without_a_state_acts_each_time():
    lock = threading.Lock()

    @task
    def twice() -> list[object]:
        return [effect("pay", pay) for _ in range(2)]

    def pay(idempotency_key: str = "") -> object:
        till.pay(idempotency_key)
        return lock

    @task
    def outer() -> list[object]:
        return twice()

    assert twice() == [lock, lock]
    assert outer() == [lock, lock]
    assert till.paid == ["pay"] * 4

    @task
    async def later() -> Any:
        return await effect("pay", till.pay_later, "Rome")

    assert asyncio.run(later())["city"] == "Rome"

    @task
    def with_its_own() -> Any:
        book("Rome", state=state)
        return book("Rome", state=state)

    state = Versioned()
    assert with_its_own()["receipt"] == 6
    assert till.paid[4:] == ["Rome", "Rome"]


def test_an_effect_in_doubt_fails_the_task_and_its_exception_says_so():
    state = Versioned()

    @task
    def buy() -> Any:
        current_state()["begun"] = True
        return effect("pay", fail)

    def fail() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        buy(state=state)
    assert any("in doubt" in note for note in caught.value.__notes__)
    with pytest.raises(EffectInDoubtError):
        buy(state=state)
    assert "begun" not in state
    assert [commit.meta["outcome"] for commit in state.log()] == ["failure", "failure"]
