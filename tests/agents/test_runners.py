"""The runners among the examples: over chat completions, and over a model that writes code."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from chat_completions import chat_runner, said, weather
from openai.types.chat import ChatCompletion
from scripted_model import code_runner, script

from versioned_state import (
    ActionEvent,
    Agent,
    Call,
    ErrorEvent,
    FailEvent,
    Live,
    OutputEvent,
    TaskFailed,
    TaskStartEvent,
    Versioned,
    events,
    task,
)

Runner = Callable[[Call], Any]


def asking(runner: Runner) -> Any:
    agent = Agent("answerer", runner=runner)

    @agent.task
    def answer(question: str) -> str:  # type: ignore[empty-body]
        """Answer a question."""

    return answer


# Chat completions


class Replies:
    """Speaks the shape of chat completions, and notes what it was asked."""

    def __init__(self, *replies: Any) -> None:
        self.replies = iter(replies)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, **asked: Any) -> Any:
        self.asked.append(json.loads(json.dumps(asked)))  # as it would be sent
        return next(self.replies)


def as_object(completion: dict[str, Any]) -> Any:
    """A completion as OpenAI's library gives it."""
    choices = [{"index": 0, "finish_reason": "stop", **choice} for choice in completion["choices"]]
    return ChatCompletion.model_validate(
        {"id": "1", "created": 1, "model": "m", "object": "chat.completion", "choices": choices}
    )


@pytest.mark.parametrize("form", [dict, as_object])
def test_a_chat_with_a_tool_ends_in_the_result_and_lives_in_the_state(form: Any):
    replies = Replies(form(said(weather={"city": "Rome"})), form(said("Sunny.")))
    state = Versioned()
    answer = asking(chat_runner(replies, model="m", tools=[weather]))
    assert answer("How is Rome?", state=state) == "Sunny."
    roles = [message["role"] for message in state["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert json.loads(state["messages"][2]["content"]) == "sun"
    assert replies.asked[0]["messages"] == [
        {"role": "user", "content": "Answer a question.\n\nquestion: 'How is Rome?'"}
    ]
    (tool,) = replies.asked[0]["tools"]
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    (action,) = events(state, types=ActionEvent)
    assert len(state.checkout(action.commit_hash)["messages"]) == 2
    assert list(events(state, types=OutputEvent)) == [OutputEvent(parts=["sun"])]
    assert [message["role"] for message in replies.asked[1]["messages"]] == roles[:3]


def test_a_second_call_goes_on_with_the_conversation():
    replies = Replies(said("one"), said("two"))
    answer = asking(chat_runner(replies, model="m"))
    for state in (Versioned(), Live()):
        replies.replies, replies.asked = iter([said("one"), said("two")]), []
        assert [answer("1?", state=state), answer("2?", state=state)] == ["one", "two"]
        assert len(replies.asked[1]["messages"]) == 3
        assert "tools" not in replies.asked[0]


@pytest.mark.parametrize(
    "call",
    [
        {"weather": {"city": "Nowhere"}},
        {"weather": {"town": "Rome"}},
        {"weather": ["Rome"]},
        {"weather": {}},
        {"unknown": {}},
    ],
)
def test_the_model_is_told_of_its_errors(call: Any):
    replies = Replies(said(**call), said("I do not know."))
    state = Versioned()
    assert asking(chat_runner(replies, model="m", tools=[weather]))("?", state=state) == "I do not know."
    assert "error" in state["messages"][2]["content"]


def test_a_result_that_is_no_string_is_read_as_json():
    agent = Agent("counter", runner=chat_runner(Replies(said("[1, 2]")), model="m"))

    @agent.task
    def numbers() -> list[int]: ...  # type: ignore[empty-body]

    assert numbers() == [1, 2]


def test_a_chat_without_an_end_fails():
    state = Versioned()
    replies = Replies(*(said(weather={"city": "Rome"}) for _ in range(100)))
    with pytest.raises(TaskFailed, match="20 rounds"):
        asking(chat_runner(replies, model="m", tools=[weather]))("?", state=state)
    assert isinstance(events(state)[-1], FailEvent)
    assert len(state["messages"]) == 40, "as at the last checkpoint"


def test_a_failing_server_leaves_the_last_answer():
    def fail(**_: Any) -> Any:
        raise ConnectionError("no answer")

    state = Versioned()
    with pytest.raises(ConnectionError):
        asking(chat_runner(fail, model="m"))("?", state=state)
    assert not state
    assert state.head.meta["outcome"] == "failure"


def test_a_task_is_a_tool_and_works_in_a_namespace_of_its_own(tmp_path: Path):
    @task
    def research(topic: str, pages: int = 1, state: Any = None) -> str:
        """Research a topic."""
        state["found"] = [topic] * pages
        return topic

    state = Versioned()
    elsewhere = tmp_path / "chosen by the model"
    replies = Replies(
        said(research={"topic": "trains", "state": str(elsewhere)}), said(research={"topic": "trains"}), said("done")
    )
    assert asking(chat_runner(replies, model="m", tools=[research]))("?", state=state) == "done"
    assert state.namespace("research")["found"] == ["trains"]
    assert not elsewhere.exists()
    assert "unknown arguments" in state["messages"][2]["content"]
    (tool,) = replies.asked[0]["tools"]
    assert list(tool["function"]["parameters"]["properties"]) == ["topic", "pages"]
    assert tool["function"]["parameters"]["required"] == ["topic"]
    assert {event.full_namespace for event in events(state, types=TaskStartEvent)} == {"answerer", "answerer/research"}


def test_after_a_failure_the_conversation_goes_on_without_the_unanswered_wish():
    def fail() -> None:
        """Fail."""
        raise ConnectionError

    state = Versioned()
    with pytest.raises(ConnectionError):
        asking(chat_runner(Replies(said(fail={})), model="m", tools=[fail]))("1?", state=state)
    assert state["messages"][-1]["tool_calls"]
    replies = Replies(said("fine"))
    assert asking(chat_runner(replies, model="m"))("2?", state=state) == "fine"
    assert [message["role"] for message in replies.asked[0]["messages"]] == ["user", "user"]


# A model that writes code


class Coder:
    """A model that gives these pieces of code, and notes what it was told before each."""

    def __init__(self, *code: str) -> None:
        self.code = iter(code)
        self.heard: list[str] = []

    def __call__(self, told: str) -> tuple[str, str]:
        self.heard.append(told)
        return "thinking", next(self.code)


def test_variables_are_the_state():
    answer = asking(code_runner(script(("", "n = state = 1"), ("", "finish(n + 1)"), ("", "finish(n + 2)"))))
    state = Versioned()
    assert answer("?", state=state) == 2
    assert answer("?", state=state) == 3
    assert dict(state) == {"n": 1, "state": 1}


@pytest.mark.parametrize("nested", [False, True])
def test_a_cursor_is_dropped_and_the_model_is_told_how_to_do_without(*, nested: bool):
    model = Coder(
        "cursor = question.execute('select 1')",
        "found = {'a': [question.execute('select 1')]}",
        "rows = question.execute('select 1').fetchall()\nfinish(rows)",
    )
    answer = asking(code_runner(model))

    @task
    def orchestrate(db: sqlite3.Connection) -> Any:
        return answer(db)

    state = Versioned()
    with closing(sqlite3.connect(":memory:")) as db:
        assert (orchestrate if nested else answer)(db, state=state) == [(1,)]
    assert dict(state.namespace("answerer") if nested else state) == {"rows": [(1,)]}
    assert [told.split()[0] for told in model.heard[1:]] == ["cursor", "found"]
    assert all("fetchall()" in told for told in model.heard[1:])
    assert [event.recoverable for event in events(state, types=ErrorEvent)] == [True, True]


def test_the_model_hears_output_and_errors():
    model = Coder("print('out')", "1 / 0", "unknown", "fail('cannot')")
    state = Versioned()
    with pytest.raises(TaskFailed, match="cannot"):
        asking(code_runner(model))("?", state=state)
    assert model.heard[1:] == [
        "out\n",
        "ZeroDivisionError('division by zero')",
        "NameError(\"name 'unknown' is not defined\")",
    ]
    assert [type(event).__name__ for event in events(state)][-2:] == ["ActionEvent", "FailEvent"]
    with pytest.raises(TaskFailed, match="2 rounds"):
        asking(code_runner(script(("", "1"), ("", "2")), rounds=2))("?")
