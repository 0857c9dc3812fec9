"""Agents: names of tasks, runners of tasks without a body, and the stream of a call's events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from versioned_state import Agent, Call, Live, Versioned, current_state, emit, events, task
from versioned_state.agents.events.classes import ActionEvent, ErrorEvent, SuccessEvent, TaskStartEvent
from versioned_state.errors import InvalidArgumentError


def echo(call: Call) -> Any:
    call.emit(ActionEvent(thinking=call.documentation, code=str(call.types)))
    call.state["inputs"] = call.inputs
    call.checkpoint("acted")
    return call.name, call.agent


planner = Agent("planner", runner=echo)


@planner.task
def plan(city: str, *, nights: int = 2) -> list[str]:  # type: ignore[empty-body]
    """Plan a trip.

    To a city.
    """


@planner.task
def with_dots(city: str) -> None: ...


@planner.task(name="renamed")
def with_body(city: str) -> str:
    current_state()["city"] = city
    return city.upper()


def test_a_task_without_a_body_is_run_by_the_runner():
    state = Versioned()
    result: Any = plan("Rome", state=state)
    assert result == ("plan", "planner")
    assert state["inputs"] == {"city": "Rome", "nights": 2}
    assert state.head.meta["agent"] == "planner"
    assert state.head.height == 2
    action = events(state, types=ActionEvent)[0]
    assert action.thinking == "Plan a trip.\n\nTo a city."
    assert action.code == str({"city": str, "nights": int, "return": list[str]})
    assert (action.agent_name, action.full_namespace) == ("planner", "planner")
    assert with_dots("Oslo") == ("with_dots", "planner")


def test_a_task_with_a_body_runs_itself():
    state = Versioned()
    assert with_body("Rome", state=state) == "ROME"
    assert state.head.meta["task"] == "renamed"
    assert state.head.message == "renamed('Rome'): city added"


@pytest.mark.parametrize("agent", [None, Agent("lonely")])
def test_empty_without_a_runner_is_a_type_error_at_the_call(agent: Agent | None):
    make: Any = task if agent is None else agent.task

    def do_nothing() -> None:
        """Do nothing."""

    def return_none() -> None:
        return None

    nothing, returns_none = make(do_nothing), make(return_none)
    state = Versioned()
    with pytest.raises(TypeError, match="no body"):
        nothing(state=state)
    assert returns_none(state=state) is None


def test_what_does_something_is_not_empty_though_its_source_cannot_be_had():
    names: dict[str, Any] = {}
    exec("def pair(a, b): return a, b\ndef seven(): return 7\ndef nothing(): pass\nasync def wait(): 'Wait.'", names)
    assert task(names["pair"])(1, 2) == (1, 2)
    assert task(names["seven"])() == 7
    assert task(lambda: None)() is None
    for name in ("nothing", "wait"):
        with pytest.raises(TypeError, match="no body"):
            task(names[name])()


async def test_a_runner_may_be_a_coroutine_function():
    async def think(call: Call) -> str:
        await asyncio.sleep(0)
        call.state["thought"] = call.name
        return call.name

    agent = Agent("thinker", runner=think)

    @agent.task
    def later() -> str: ...  # type: ignore[empty-body]

    @planner.task
    async def by_function() -> str: ...  # type: ignore[empty-body]

    state = Versioned()
    running: Any = later(state=state)
    assert await running == "later"
    assert state["thought"] == "later"
    result: Any = await by_function()
    assert result == ("by_function", "planner")


def test_nested_calls_work_in_the_namespace_of_their_agent():
    @task
    def outer() -> None:
        plan("Rome")
        with_body("Oslo")

    state = Versioned()
    outer(state=state)
    assert dict(state.namespace("planner")) == {"city": "Oslo", "inputs": {"city": "Rome", "nights": 2}}
    assert {event.full_namespace for event in events(state)} == {"outer", "outer/planner"}


@pytest.mark.parametrize("name", ["", "a/b", "a\0b", 1])
def test_a_bad_name_is_refused(name: Any):
    with pytest.raises(InvalidArgumentError, match="the name of an agent"):
        Agent(name)
    with pytest.raises(InvalidArgumentError, match="runner must be a function"):
        Agent("a", runner=1)  # type: ignore[arg-type]


# Streams


@task
def talk(*words: str) -> int:
    for word in words:
        current_state()["said"] = word
        emit(ActionEvent(code=word))
        if word == "stop":
            raise ValueError(word)
    return len(words)


def test_a_stream_gives_the_events_as_they_happen():
    state = Versioned()
    stream = talk.stream("a", "b", state=state)
    assert state.head.height == 0
    assert next(stream) == TaskStartEvent(task_name="talk", inputs={"words": ("a", "b")})
    assert next(stream) == ActionEvent(code="a")
    assert state["said"] == "a", "the call waits for its reader"
    rest = list(stream)
    assert rest == [ActionEvent(code="b"), SuccessEvent(result=2)]
    assert list(events(state))[2:] == rest
    assert rest[-1].timestamp == events(state)[-1].timestamp


def test_an_exception_is_raised_after_the_last_event():
    seen: list[Any] = []
    state = Live()
    stream = talk.stream("a", "stop", state=state, on_event=seen.append)
    given: list[Any] = []
    with pytest.raises(ValueError, match="stop"):
        given.extend(event for event in stream)
    assert seen[-1] == ErrorEvent(error="ValueError('stop')")
    assert len(seen) == 4


def test_who_stops_early_closes_the_call():
    state = Versioned()
    for event in talk.stream("a", "b", "c", state=state):
        if isinstance(event, ActionEvent):
            break
    assert not state
    assert state.head.meta["outcome"] == "closed"
    assert talk("d", state=state) == 1


def test_a_stream_of_a_method_and_of_a_generator():
    class Talker:
        @task
        def count(self, n: int) -> Any:
            yield from range(n)
            emit(ActionEvent(code="end"))

    assert [type(event).__name__ for event in Talker().count.stream(2)] == [
        "TaskStartEvent",
        "ActionEvent",
        "SuccessEvent",
    ]


async def test_a_stream_of_a_coroutine_is_asynchronous():
    @task
    async def slowly(*words: str) -> int:
        for word in words:
            current_state()["said"] = word
            emit(ActionEvent(code=word))
            await asyncio.sleep(0)
            if word == "stop":
                raise ValueError(word)
        return len(words)

    state = Versioned()
    given = [event async for event in slowly.stream("a", state=state)]
    assert given == list(events(state))
    with pytest.raises(ValueError, match="stop"):
        [event async for event in slowly.stream("stop", state=state)]
    stream = slowly.stream("b", "c", "d", state=state)
    async for event in stream:
        if isinstance(event, ActionEvent):
            break
    await stream.aclose()
    assert state["said"] == "a"
    assert state.head.meta["outcome"] == "cancelled"
