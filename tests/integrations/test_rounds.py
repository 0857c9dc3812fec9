"""Programs observed from outside: OpenTelemetry's spans and LangChain's callbacks become rounds of conversations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel

from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, StorageError
from versioned_state.integrations.langchain import RoundCallback
from versioned_state.integrations.opentelemetry import RoundRecorder
from versioned_state.integrations.rounds import Round, RoundLog
from versioned_state.storage import Counting
from versioned_state.storage.wrapper import Wrapper


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "parts": [{"type": "text", "content": text}]}


def kept(log: RoundLog | RoundRecorder | RoundCallback, conversation: str) -> Any:
    return log.repository.snapshot(log.branch(conversation))


@contextmanager
def recording(place: Any, **options: Any) -> Iterator[tuple[RoundRecorder, Tracer]]:
    recorder, provider = RoundRecorder(place, **options), TracerProvider()
    provider.add_span_processor(recorder)
    try:
        yield recorder, provider.get_tracer("test")
    finally:
        provider.shutdown()


class Failing(Wrapper):
    fails = False

    def apply(self, *args: Any, **options: Any) -> bool:
        if self.fails:
            raise StorageError("the disk is full")
        return super().apply(*args, **options)


# Rounds


def test_a_round_stores_what_is_new_in_the_conversation() -> None:
    store = Counting(Memory())
    log = RoundLog(store, "x")
    said = [user(f"{number} {'word ' * 50}") for number in range(300)]
    log.record(Round("c", "chat", inputs=said))
    before = store.counts.bytes_written
    log.record(Round("c", "chat", inputs=said, outputs=[assistant("yes")]))
    assert kept(log, "c")["messages"] == [*said, assistant("yes")]
    assert store.counts.bytes_written - before < 3_000
    log.record(Round("c", "chat", inputs=[*said, {**assistant("yes"), "finish_reason": "stop"}, user("and?")]))
    assert kept(log, "c")["messages"] == [*said, assistant("yes"), user("and?")]


def test_a_history_that_the_program_rewrites_is_rewritten() -> None:
    log = RoundLog(Memory(), "x")
    log.record(Round("c", "chat", inputs=[user("a"), user("b"), user("c")]))
    log.record(Round("c", "chat", inputs=[user("a summary"), user("c")]))
    assert kept(log, "c")["messages"] == [user("a summary"), user("c")]
    log.record(Round("c", "chat", inputs=[]))
    assert kept(log, "c")["messages"] == []


def test_rounds_of_others_on_the_branch_are_seen() -> None:
    store = Memory()
    ours, theirs = RoundLog(store, "x"), RoundLog(store, "x")
    ours.record(Round("c", "chat", inputs=[user("a"), user("b")]))
    theirs.record(Round("c", "chat", inputs=[user("a"), user("other")]))
    ours.record(Round("c", "chat", inputs=[user("a"), user("b"), user("c")]))
    assert kept(ours, "c")["messages"] == [user("a"), user("b"), user("c")]
    ours.record(Round("c", "chat", outputs=[assistant("only the answer")]))
    assert len(kept(ours, "c")["messages"]) == 4


def test_many_threads_record_at_once_and_nothing_is_lost() -> None:
    logs = [RoundLog(Memory(), "x")] * 2
    logs.append(RoundLog(logs[0].repository, "x"))

    def work(number: int) -> None:
        for step in range(20):
            logs[number].record(Round("c", "execute_tool", tool={"name": f"{number}-{step}"}))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    names = [each["name"] for each in kept(logs[0], "c")["tools"]]
    assert sorted(names) == sorted(f"{number}-{step}" for number in range(3) for step in range(20))


def test_rounds_of_a_state_go_to_its_branch() -> None:
    state = Versioned(Memory(), branch="agent")
    state["plan"] = ["look"]
    log = RoundLog(state, "x")
    log.record(Round("c", "chat", inputs=[user("hi")]))
    state.commit("planned")  # merges with the round
    assert state["plan"] == ["look"]
    assert state.namespace("rounds")["messages"] == [user("hi")]
    assert log.branch("c") == "agent"


def test_a_place_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="list is neither a store nor a repository"):
        RoundLog([], "x")  # type: ignore[arg-type]


# OpenTelemetry


def test_an_instrumented_program_has_a_history_without_a_change_of_its_code() -> None:
    repository = Repository(Memory())
    recorder, provider = RoundRecorder(repository), TracerProvider()
    provider.add_span_processor(recorder)
    spans = [Instrumentation(InstrumentationSettings(tracer_provider=provider))]
    planner = Agent(TestModel(), name="planner", capabilities=spans, instructions="Be brief.")

    def weather(city: str) -> str:
        return f"sunny in {city}"

    planner.tool_plain(weather)
    first = asyncio.run(planner.run("Weather in Rome?"))
    asyncio.run(planner.run("And now?", message_history=first.all_messages()))
    assert recorder.force_flush()
    (branch,) = repository.branches
    assert [commit.message for commit in repository.log(branch)][::-1] == [
        *("chat test", "execute_tool weather", "chat test", "invoke_agent planner"),
        *("chat test", "invoke_agent planner"),
    ]
    snapshot = repository.snapshot(branch)
    roles = [message["role"] for message in snapshot["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert snapshot["system"] == [{"type": "text", "content": "Be brief."}]
    (call,) = snapshot["tools"]
    assert (call["name"], call["arguments"], call["result"]) == ("weather", {"city": "a"}, "sunny in a")
    chat = next(commit for commit in repository.log(branch) if commit.message == "chat test")
    assert chat.meta["model"] == "test"
    assert chat.meta["outcome"] == "success"
    assert chat.meta["seconds"] > 0
    assert any("Rome" in str(hit) for hit in repository.grep("Rome", branch))
    provider.shutdown()


def test_an_agent_that_another_one_calls_has_messages_of_its_own() -> None:
    with recording(Memory()) as (recorder, tracer):
        with tracer.start_as_current_span("run", attributes={"gen_ai.conversation.id": "c"}):
            attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "boss"}
            with tracer.start_as_current_span("invoke_agent boss", attributes=attributes):
                with tracer.start_as_current_span("plain work"):
                    helper = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
                    with tracer.start_as_current_span("invoke_agent helper", attributes=helper):
                        chat(tracer, [user("helper, look")], [assistant("seen")])
                chat(tracer, [user("boss")], [assistant("done")])
        recorder.force_flush()
        snapshot = kept(recorder, "c")
        assert snapshot["messages"] == [user("boss"), assistant("done")]
        assert snapshot.namespace("helper")["messages"] == [user("helper, look"), assistant("seen")]


def chat(tracer: Tracer, inputs: Any, outputs: Any, **more: Any) -> None:
    attributes = {"gen_ai.operation.name": "chat", **more}
    with tracer.start_as_current_span("chat", attributes=attributes) as span:
        span.set_attribute("gen_ai.input.messages", json.dumps(inputs))
        span.set_attribute("gen_ai.output.messages", json.dumps(outputs))


def test_messages_are_found_wherever_instrumentations_put_them() -> None:
    conversation = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c"}
    with recording(Memory()) as (recorder, tracer):
        with tracer.start_as_current_span("chat", attributes=conversation) as span:
            span.add_event("gen_ai.user.message", {"content": "by event", "gen_ai.system": "openai"})
            span.add_event("gen_ai.choice", {"message": json.dumps({"content": "yes"}), "index": 0})
        recorder.force_flush()
        assert kept(recorder, "c")["messages"] == [
            {"role": "user", "content": "by event"},
            {"role": "assistant", "message": {"content": "yes"}, "index": 0},
        ]
        numbered = {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "by number",
            "gen_ai.completion.0.content": "so",
        }
        with tracer.start_as_current_span("chat", attributes={**conversation, **numbered}):
            pass
        recorder.force_flush()
        assert kept(recorder, "c")["messages"] == [{"role": "user", "content": "by number"}, {"content": "so"}]
        with tracer.start_as_current_span("chat", attributes=conversation) as span:
            details = {"gen_ai.input.messages": json.dumps([user("in details")]), "gen_ai.output.messages": "[]"}
            span.add_event("gen_ai.client.inference.operation.details", details)
        recorder.force_flush()
        assert kept(recorder, "c")["messages"] == [user("in details")]


def test_a_span_without_content_is_a_commit_that_says_how_it_ended() -> None:
    with recording(Memory()) as (recorder, tracer):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": "c"}
        with tracer.start_as_current_span("chat m", attributes=attributes) as span:
            span.set_status(Status(StatusCode.ERROR, "overloaded"))
        with tracer.start_as_current_span("GET /"):
            pass  # not a part of any conversation
        recorder.force_flush()
        (commit,) = recorder.repository.log(recorder.branch("c"))
        assert (commit.message, commit.meta["model"], commit.meta["outcome"]) == ("chat m", "m", "failure")
        assert list(recorder.repository.branches) == [recorder.branch("c")]


def test_content_is_left_out_if_it_is_not_wanted() -> None:
    with recording(Memory(), content=False) as (recorder, tracer):
        chat(tracer, [user("secret")], [assistant("secret")], **{"gen_ai.conversation.id": "c"})
        arguments = {"gen_ai.tool.call.arguments": '{"key": "secret"}', "gen_ai.conversation.id": "c"}
        with tracer.start_as_current_span(
            "execute_tool t", attributes={"gen_ai.operation.name": "execute_tool", **arguments}
        ):
            pass
        recorder.force_flush()
        assert list(kept(recorder, "c")) == []
        assert len(list(recorder.repository.log(recorder.branch("c")))) == 2


def test_a_span_that_outlives_the_one_around_it_belongs_to_its_conversation() -> None:
    with recording(Memory()) as (recorder, tracer):
        outer = tracer.start_span("run", attributes={"gen_ai.conversation.id": "c"})
        inner = tracer.start_span(
            "chat", context=set_span_in_context(outer), attributes={"gen_ai.operation.name": "chat"}
        )
        outer.end()
        inner.end()
        recorder.force_flush()
        assert len(list(recorder.repository.log(recorder.branch("c")))) == 1


@pytest.mark.parametrize("text", ["", "[", '{"a"', "x" * 100_000, "\u202e\x00", "[[[[" * 2_000])
def test_whatever_a_span_has_in_it_is_recorded(text: str) -> None:
    with recording(Memory()) as (recorder, tracer):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": text, "gen_ai.output.messages": text}
        with tracer.start_as_current_span(text, attributes=attributes):
            pass
        assert recorder.force_flush()
        (branch,) = recorder.repository.branches
        assert len(list(recorder.repository.log(branch))) == 1


def test_a_store_that_fails_costs_the_spans_and_not_the_program(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing(Memory())
    with recording(store) as (recorder, tracer):
        store.fails = True
        chat(tracer, [user("lost")], [], **{"gen_ai.conversation.id": "c"})
        recorder.force_flush()
        assert "1 of 1 spans were not recorded: the disk is full" in caplog.text
        store.fails = False
        chat(tracer, [user("kept")], [], **{"gen_ai.conversation.id": "c"})
        recorder.force_flush()
        assert kept(recorder, "c")["messages"] == [user("kept")]


def test_a_span_that_cannot_be_recorded_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with recording(Memory()) as (recorder, tracer):
        chat(tracer, [user("first")], [], **{"gen_ai.conversation.id": "c", "gen_ai.request.model": "m" * 1_000_000})
        chat(tracer, [user("second")], [], **{"gen_ai.conversation.id": "c"})
        recorder.force_flush()
        assert "1 of 2 spans were not recorded" in caplog.text
        assert kept(recorder, "c")["messages"] == [user("second")]


def test_shutdown_records_what_has_ended_and_closes_a_store_of_its_own(tmp_path: Path) -> None:
    with recording(str(tmp_path / "store")) as (recorder, tracer):
        chat(tracer, [user("hi")], [], **{"gen_ai.conversation.id": "c"})
    with Disk(tmp_path / "store") as store:
        assert Repository(store).snapshot(recorder.branch("c"))["messages"] == [user("hi")]


# LangChain


def tell_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def fail() -> str:
    """Fail."""
    raise OSError("no network")


weather, broken = tool("weather")(tell_weather), tool("broken")(fail)


def model(*answers: str) -> FakeMessagesListChatModel:
    return FakeMessagesListChatModel(responses=[AIMessage(each) for each in answers])


def test_the_calls_of_a_langchain_program_are_rounds() -> None:
    callback = RoundCallback(Memory())
    chatting = model("Let me look.", "It is sunny.")

    def turn(text: str) -> Any:
        said = [HumanMessage(text)]
        said.append(chatting.invoke(said))
        said.append(ToolMessage(weather.invoke({"city": "Rome"}), tool_call_id="t"))
        return chatting.invoke(said)

    config: Any = {"callbacks": [callback], "metadata": {"thread_id": "c"}}
    RunnableLambda(turn).invoke("Weather?", config=config)
    snapshot = kept(callback, "c")
    assert [(each["role"], each["content"]) for each in snapshot["messages"]] == [
        ("user", "Weather?"),
        ("assistant", "Let me look."),
        ("tool", "sunny in Rome"),
        ("assistant", "It is sunny."),
    ]
    assert snapshot["tools"] == [{"name": "weather", "arguments": {"city": "Rome"}, "result": "sunny in Rome"}]
    assert [commit.message for commit in callback.repository.log(callback.branch("c"))][::-1] == [
        "chat FakeMessagesListChatModel",
        "execute_tool weather",
        "chat FakeMessagesListChatModel",
    ]


def test_a_failed_tool_is_a_round_and_its_error_goes_on() -> None:
    callback = RoundCallback(Memory())
    with pytest.raises(OSError, match="no network"):
        broken.invoke({}, config={"callbacks": [callback], "metadata": {"thread_id": "c"}})
    (commit,) = callback.repository.log(callback.branch("c"))
    assert (commit.meta["outcome"], commit.meta["error"]) == ("failure", "OSError")
    assert kept(callback, "c")["tools"] == [{"name": "broken", "arguments": {}, "error": "OSError('no network')"}]


def test_conversations_without_a_name_are_named_after_their_outermost_run() -> None:
    callback = RoundCallback(Memory())
    chain = RunnableLambda(lambda text: [HumanMessage(text)]) | model("a", "b")
    for text in ("one", "two"):
        chain.invoke(text, config={"callbacks": [callback]})
    found = sorted(kept_of(callback, branch) for branch in callback.repository.branches)
    assert found == [["one", "a"], ["two", "b"]]


def kept_of(callback: RoundCallback, branch: str) -> list[str]:
    return [each["content"] for each in callback.repository.snapshot(branch)["messages"]]


def test_an_asynchronous_program_is_recorded_too() -> None:
    callback = RoundCallback(Memory())
    asyncio.run(model("yes").ainvoke("Sure?", config={"callbacks": [callback], "metadata": {"session_id": "c"}}))
    assert [each["content"] for each in kept(callback, "c")["messages"]] == ["Sure?", "yes"]


def test_a_store_that_fails_costs_the_round_and_not_the_chain(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing(Memory())
    callback = RoundCallback(store)
    store.fails = True
    assert model("yes").invoke("Sure?", config={"callbacks": [callback]}).content == "yes"
    assert "a round was not recorded: the disk is full" in caplog.text
