"""Right calls: mypy and pyright find nothing here, and see the types that ``assert_type`` names.

``test_calls.py`` runs it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict, assert_type

import pydantic

from versioned_state import (
    ActionEvent,
    Agent,
    Commit,
    Live,
    Outcome,
    SuccessEvent,
    Versioned,
    current_state,
    effect,
    emit,
    events,
    parallel,
    task,
)
from versioned_state.agents.tasks.task import BoundTask


@dataclass
class Receipt:
    order: str
    amount: int


@dataclass
class Booked:
    city: str


@task
def book(city: str, nights: int = 1) -> str:
    emit(ActionEvent(code=city))
    emit(Booked(city))
    return city * nights


@task(name="think", on_unstorable="restore")
async def think(topic: str) -> int:
    await asyncio.sleep(0)
    return len(topic)


@task
def count(to: int) -> Iterator[int]:
    yield from range(to)


@task
async def tick(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


@task
def note(state: Versioned, text: str) -> int:  # the task fills in its state
    state["note"] = text
    return len(text)


agent = Agent("guide", runner=lambda call: f"{call.inputs['city']}!")


@agent.task
def advise(city: str) -> str | None:
    """Bring an umbrella to"""


@agent.task(name="other")
def warn(state: Live, city: str) -> str:
    state["city"] = city
    return city


class Planner:
    @task
    def plan(self, city: str) -> list[str]:
        current_state()["plan"] = [city]
        return [city]

    @task
    async def wait(self, seconds: float) -> float:
        await asyncio.sleep(0)
        return seconds


def pay(order: str, amount: int, *, currency: str = "EUR") -> Receipt:
    return Receipt(order, amount)


async def send(text: str) -> bool:
    await asyncio.sleep(0)
    return bool(text)


def charge(amount: int, idempotency_key: str) -> int:
    return amount + len(idempotency_key)


def was_paid(key: str, order: str, amount: int) -> bool:
    return False


def refund(receipt: Receipt) -> None:
    receipt.amount = 0


@dataclass
class App:
    goal: str = ""
    steps: list[str] = field(default_factory=list)

    def first(self) -> str:
        return self.steps[0]


class Model(pydantic.BaseModel):
    score: float = 0.5


class Keys(TypedDict):
    goal: str
    steps: list[str]


def calls(state: Versioned) -> None:
    assert_type(book("Rome"), str)
    assert_type(book("Rome", nights=2), str)
    assert_type(book("Rome", state=state), str)
    assert_type(book("Rome", 2, state=state, key="k1", on_event=print), str)
    assert_type(book.on(state)("Rome", nights=2), str)
    assert_type(book.on(state, key="k2", on_event=print)(city="Rome"), str)
    assert_type(book.on(state.namespace("part"))("Rome"), str)
    assert_type(book.on(Live())("Rome"), str)
    assert_type(count(3, state=state), Iterator[int])
    assert_type(count.on(state)(3), Iterator[int])
    assert_type(note("hi", state=state), int)
    assert_type(note.on(state)("hi"), int)
    assert_type(advise("Rome", state=state), str | None)
    assert_type(warn.on(Live())("Rome"), str)


def methods(state: Versioned) -> None:
    planner = Planner()
    assert_type(planner.plan("Rome", state=state), list[str])
    assert_type(planner.plan.on(state)("Rome"), list[str])
    bound: BoundTask[..., list[str]] = planner.plan
    assert bound.on(state)(city="Oslo") == ["Oslo"]


def streams(state: Versioned) -> None:
    assert_type(book.on(state).stream("Rome", nights=2), Generator[Any, None, None])
    assert_type(book.stream("Rome", state=state), Generator[Any, None, None])
    assert_type(Planner().plan.stream("Rome", state=state), Generator[Any, None, None])


def read(state: Versioned) -> None:
    actions = events(state, types=ActionEvent)
    assert_type(actions[0], ActionEvent)
    assert_type(actions[:2], list[ActionEvent])
    assert_type(next(actions), ActionEvent)
    assert_type([each.code for each in actions], list[str])
    assert_type(state.checkout(actions[-1].commit_hash).commit, Commit | None)
    assert_type(events(state, types=Booked)[0].city, str)
    for each in events(state, types=(ActionEvent, SuccessEvent)):
        assert each.agent_name is not None
    assert_type(events(state)[0], Any)


def outcomes(state: Versioned) -> None:
    state.commit()
    done = parallel(state, [partial(book, "Rome"), partial(book, "Oslo")])
    assert_type(done, list[Outcome[str]])
    assert_type(done[0].value, str | None)
    assert_type(done[0].commit, Commit | None)


def acts(state: Versioned) -> None:
    assert_type(effect("pay:1", pay, "o1", 40, state=state), Receipt)
    assert_type(effect("pay:2", partial(pay, "o1", 40, currency="USD"), state=state), Receipt)
    assert_type(
        effect("pay:3", pay, "o1", 40, state=state, on_rollback=refund, not_done_on=ValueError, scope="branch"), Receipt
    )
    assert_type(effect("charge:1", charge, 60, state=state, idempotent=True), int)

    @task
    def act() -> None:
        assert_type(effect("pay:4", pay, "o1", amount=40), Receipt)
        assert_type(effect("pay:5", pay, "o1", 40, check=was_paid), Receipt)
        assert_type(effect("pay:6", pay, "o1", 40, arguments="any"), Receipt)

    act(state=state)


def views(state: Versioned) -> None:
    app = state.typed(App)
    assert_type(app, App)
    app.goal = "Rome"
    app.steps.append("book")
    assert_type(app.first(), str)
    assert_type(state.typed(Model).score, float)
    keys = state.typed(Keys)
    assert_type(keys["steps"], list[str])
    assert_type(state.checkout(state.commit()).typed(App).goal, str)


async def awaited(state: Versioned) -> None:
    assert_type(await think("Rome", state=state), int)
    assert_type(await think.on(state)("Rome"), int)
    assert_type(await Planner().wait.on(state)(0.5), float)
    assert_type(tick(2, state=state), AsyncIterator[int])
    assert [number async for number in tick.on(state)(2)] == [0, 1]
    stream = think.on(state).stream("Rome")
    assert_type(stream, AsyncGenerator[Any, None])
    assert len([event async for event in stream]) == 2
    done = parallel(state, [partial(think, "Rome"), partial(think, "Oslo")])
    assert [each.value for each in await assert_type(done, Coroutine[Any, Any, list[Outcome[int]]])] == [4, 4]
    assert_type(await effect("send:1", send, "hi", state=state), bool)
    assert_type(await state.aio.commit("the end"), Commit)


def main() -> None:
    state = Versioned()
    state["trip"] = "Rome"
    for part in (calls, methods, streams, outcomes, read, acts, views):
        part(state)
    asyncio.run(awaited(state))
