"""Checkpoints and histories of Microsoft Agent Framework over a store.

The contract is written from its protocols; its own pass it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    FileCheckpointStorage,
    FileHistoryProvider,
    InMemoryCheckpointStorage,
    Message,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    WorkflowEvent,
    WorkflowMessage,
    handler,
)

from tests.support import processes
from tests.support.killed_writers import assert_kept
from versioned_state import Disk, Memory, Repository
from versioned_state.errors import InvalidArgumentError
from versioned_state.integrations.agent_framework import VersionedCheckpointStorage, VersionedHistoryProvider

pytestmark = pytest.mark.filterwarnings("ignore:.*FileHistoryProvider is experimental")

Storage = Any
History = Any


@dataclass
class Plan:
    """A class of a program."""

    goal: str
    steps: list[str] = field(default_factory=list)


def checkpoint(
    number: int = 0, *, workflow: str = "trip", previous: WorkflowCheckpoint | None = None, **fields: Any
) -> WorkflowCheckpoint:
    time = datetime(2026, 11, 23, tzinfo=UTC) + timedelta(minutes=number)
    return WorkflowCheckpoint(
        workflow_name=workflow,
        graph_signature_hash="hash",
        previous_checkpoint_id=previous.checkpoint_id if previous else None,
        timestamp=time.isoformat(),
        iteration_count=number,
        **{"state": {"number": number}, **fields},
    )


@pytest.fixture(params=["ours", "ours on disk", "theirs in memory", "theirs in files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "theirs in memory":
        yield InMemoryCheckpointStorage()
    elif request.param == "theirs in files":
        yield FileCheckpointStorage(tmp_path / "files", allowed_checkpoint_types=[f"{__name__}:Plan"])
    else:
        with VersionedCheckpointStorage(
            Memory() if request.param == "ours" else tmp_path / "store", classes=__name__
        ) as ours:
            yield ours


# The contract of checkpoint storages


async def test_a_checkpoint_is_loaded_as_it_was_saved(storage):
    saved = checkpoint(
        3,
        state={
            "n": 1,
            "none": None,
            "deep": {"list": [1, {"a": 2.5}]},
            "plan": Plan("Rome", ["train"]),
            "when": datetime(2026, 5, 1, tzinfo=UTC),
        },
        messages={"next": [WorkflowMessage(data="hi", source_id="start", target_id="next")]},
        metadata={"superstep": 3},
    )
    assert await storage.save(saved) == saved.checkpoint_id
    loaded = await storage.load(saved.checkpoint_id)
    assert loaded == saved
    assert type(loaded.state["plan"]) is Plan


@pytest.mark.parametrize(
    "value",
    [
        (1, "two"),
        frozenset({1, 2}),
        {1, 2},
        b"\x00\xff",
        {"nested": (1, (2, 3))},
        10**30,
        float("inf"),
        "ä\U0001f600",
        "",
        [[]],
    ],
)
async def test_values_keep_their_types(storage, value):
    saved = checkpoint(state={"value": value, "list": [value]})
    await storage.save(saved)
    loaded = await storage.load(saved.checkpoint_id)
    assert loaded.state == saved.state
    assert type(loaded.state["value"]) is type(value)


async def test_objects_of_the_framework_come_back(storage):
    call = Content.from_function_call("c", "pay", arguments={"amount": 3})
    said = Message("assistant", ["hi", call], author_name="guide", message_id="m")
    response = AgentResponse(messages=[said], response_id="r", value={"a": 1})
    event = WorkflowEvent.request_info(
        request_id="r", source_executor_id="pay", request_data=Plan("Rome"), response_type=bool
    )
    saved = checkpoint(
        state={"_executor_state": {"guide": {"cache": [said], "response": response}}},
        messages={"pay": [WorkflowMessage(data=said, source_id="guide", original_request_info_event=event)]},
        pending_request_info_events={"r": event},
    )
    await storage.save(saved)
    loaded = await storage.load(saved.checkpoint_id)
    kept = loaded.state["_executor_state"]["guide"]
    assert type(kept["response"]) is AgentResponse
    assert kept["response"].to_dict() == response.to_dict()
    assert kept["cache"][0].to_dict() == loaded.messages["pay"][0].data.to_dict() == said.to_dict()
    assert vars(kept["cache"][0].contents[1]) == vars(call)
    for each in (loaded.pending_request_info_events["r"], loaded.messages["pay"][0].original_request_info_event):
        assert vars(each) == vars(event)


async def test_what_is_loaded_is_the_callers_own(storage):
    saved = checkpoint(
        state={"deep": {"value": "original"}},
        messages={"a": [WorkflowMessage(data="original", source_id="x")]},
        metadata={"deep": {"value": "original"}},
    )
    await storage.save(saved)
    saved.state["deep"]["value"] = "changed"
    latest = await storage.get_latest(workflow_name="trip")
    (listed,) = await storage.list_checkpoints(workflow_name="trip")
    for each in (await storage.load(saved.checkpoint_id), latest, listed):
        assert each.state["deep"]["value"] == "original"
        each.state["deep"]["value"] = each.metadata["deep"]["value"] = each.messages["a"][0].data = "changed"
    again = await storage.load(saved.checkpoint_id)
    assert again.state["deep"] == again.metadata["deep"] == {"value": "original"}
    assert again.messages["a"][0].data == "original"


async def test_checkpoints_are_listed_by_workflow(storage):
    trip = [checkpoint(number) for number in range(3)]
    other = checkpoint(workflow="other")
    for each in (trip[0], other, *trip[1:]):
        await storage.save(each)
    assert {each.checkpoint_id for each in await storage.list_checkpoints(workflow_name="trip")} == {
        each.checkpoint_id for each in trip
    }
    assert sorted(await storage.list_checkpoint_ids(workflow_name="trip")) == sorted(
        each.checkpoint_id for each in trip
    )
    assert await storage.list_checkpoint_ids(workflow_name="other") == [other.checkpoint_id]
    assert (
        await storage.list_checkpoints(workflow_name="nowhere")
        == await storage.list_checkpoint_ids(workflow_name="nowhere")
        == []
    )


async def test_the_latest_is_that_of_the_latest_time(storage):
    assert await storage.get_latest(workflow_name="trip") is None
    for number in (1, 3, 2):
        await storage.save(checkpoint(number))
    await storage.save(checkpoint(9, workflow="other"))
    latest = await storage.get_latest(workflow_name="trip")
    assert latest.iteration_count == 3


async def test_a_deleted_checkpoint_is_gone(storage):
    first = checkpoint(1)
    second = checkpoint(2, previous=first)
    await storage.save(first)
    await storage.save(second)
    assert await storage.delete(first.checkpoint_id) is True
    assert await storage.delete(first.checkpoint_id) is False
    with pytest.raises(WorkflowCheckpointException):
        await storage.load(first.checkpoint_id)
    assert await storage.list_checkpoint_ids(workflow_name="trip") == [second.checkpoint_id]
    assert await storage.load(second.checkpoint_id) == second
    third = checkpoint(3, previous=first)
    await storage.save(third)
    assert await storage.load(third.checkpoint_id) == third


async def test_a_checkpoint_that_is_not_there_is_an_error(storage):
    with pytest.raises(WorkflowCheckpointException):
        await storage.load("nowhere")
    assert await storage.delete("nowhere") is False


async def test_a_checkpoint_is_saved_again(storage):
    saved = checkpoint(1)
    await storage.save(saved)
    await storage.save(saved)
    saved.state["number"] = 99
    await storage.save(saved)
    assert await storage.load(saved.checkpoint_id) == saved
    assert await storage.list_checkpoint_ids(workflow_name="trip") == [saved.checkpoint_id]


class Counting(Executor):  # type: ignore[misc, unused-ignore]
    """Counts messages, and hands each to the next executor."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.count = 0

    @handler  # type: ignore[untyped-decorator, unused-ignore]
    async def handle(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        self.count += 1
        if self.id == "last":
            await ctx.yield_output(message)
        else:
            await ctx.send_message(f"{message} {self.id}")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count, "plan": Plan(self.id)}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        assert type(state["plan"]) is Plan


def workflow(storage: Storage) -> tuple[Any, list[Counting]]:
    first, middle, last = executors = [Counting("first"), Counting("middle"), Counting("last")]
    builder = WorkflowBuilder(name="trip", start_executor=first, checkpoint_storage=storage)
    return builder.add_edge(first, middle).add_edge(middle, last).build(), executors


async def test_a_workflow_resumes_from_a_checkpoint(storage):
    made, _ = workflow(storage)
    assert (await made.run("hi")).get_outputs() == ["hi first middle"]
    checkpoints = sorted(await storage.list_checkpoints(workflow_name="trip"), key=lambda each: each.timestamp)
    assert [each.previous_checkpoint_id for each in checkpoints] == [
        None,
        *(each.checkpoint_id for each in checkpoints[:-1]),
    ]
    again, executors = workflow(storage)
    middle = next(each for each in checkpoints if each.iteration_count == 1)
    assert (await again.run(checkpoint_id=middle.checkpoint_id)).get_outputs() == ["hi first middle"]
    assert [executor.count for executor in executors] == [1, 1, 1]


# Ours


async def test_the_log_of_a_workflow_is_its_latest_line():
    storage = VersionedCheckpointStorage(Memory())
    first = checkpoint(0, messages={"a": [WorkflowMessage(data="a room in Rome", source_id="x")]})
    second = checkpoint(1, previous=first, messages=first.messages)
    other = checkpoint(1, previous=first, messages=first.messages, state={"number": "other"})
    new_run = checkpoint(0)
    repository, branch = storage.repository, storage.branch("trip")
    for each, log in ((first, 1), (second, 2), (other, 2), (new_run, 1)):
        await storage.save(each)
        assert len(list(repository.log(branch))) == log
    assert await storage.load(second.checkpoint_id) == second
    tags = [f"agent-framework/{each.checkpoint_id}" for each in (first, second, other)]
    assert str(repository.diff(tags[0], tags[1])).splitlines() == [
        "~ iteration_count = 0 -> 1",
        "~ state.number = 0 -> 1",
    ]
    assert str(repository.diff(tags[1], tags[2])) == "~ state.number = 1 -> 'other'"
    assert [str(match.path) for match in repository.grep("Rome", tags[0])] == ["messages.a[0].data"]


async def test_a_step_stores_what_it_changed():
    store = Memory()
    storage = VersionedCheckpointStorage(store)
    history = [Message("user", [f"message {number} " * 20]) for number in range(300)]
    first = checkpoint(0, state={"history": history})
    await storage.save(first)
    before = sum(len(key) + len(store.get(key) or b"") for key in store.keys(""))
    await storage.save(checkpoint(1, previous=first, state={"history": [*history, Message("user", ["one more"])]}))
    assert sum(len(key) + len(store.get(key) or b"") for key in store.keys("")) - before < 5_000


async def test_a_class_that_was_not_named_is_named_by_the_error(tmp_path):
    with VersionedCheckpointStorage(tmp_path / "store", classes=[__name__]) as storage:
        saved = checkpoint(state={"plans": [Plan("Rome")]})
        await storage.save(saved)
    with (
        VersionedCheckpointStorage(tmp_path / "store") as storage,
        pytest.raises(WorkflowCheckpointException, match=rf"{__name__}:Plan.*classes=\['{__name__}'\]"),
    ):
        await storage.load(saved.checkpoint_id)


async def test_what_cannot_be_stored_is_an_error_of_the_framework_and_nothing_is_stored():
    storage = VersionedCheckpointStorage(Memory())
    with pytest.raises(WorkflowCheckpointException, match=r"state\.socket"):
        await storage.save(checkpoint(state={"socket": open}))
    assert list(storage.repository.branches) == list(storage.repository.tags) == []


def test_a_repository_must_read_the_classes():
    with pytest.raises(InvalidArgumentError, match="agent_framework"):
        VersionedCheckpointStorage(Repository(Memory(), pickle="refuse"))
    VersionedCheckpointStorage(Repository(Memory()))


@pytest.mark.parametrize("name", ["", "a/b", "..", "\ud800\0", "é" * 300])
async def test_any_text_is_a_name_and_an_id(name):
    storage = VersionedCheckpointStorage(Memory())
    saved = checkpoint(workflow=name)
    saved.checkpoint_id = name
    await storage.save(saved)
    assert await storage.load(name) == saved
    assert await storage.list_checkpoint_ids(workflow_name=name) == [name]


def save(path: Path, times: int, writer: int) -> None:
    async def work() -> None:
        with VersionedCheckpointStorage(path) as storage:
            previous = None
            for number in range(times):
                each = checkpoint(number, previous=previous, state={"writer": writer, "number": number})
                each.checkpoint_id = f"{writer} {number}"
                await storage.save(each)
                previous = each

    asyncio.run(work())


@pytest.mark.parametrize("times", [6, pytest.param(100, marks=pytest.mark.long)])
def test_processes_that_save_at_once_lose_and_mix_nothing(tmp_path, times):
    processes.join(*[processes.fork(partial(save, tmp_path / "store", times, writer)) for writer in range(4)])

    async def look() -> None:
        with VersionedCheckpointStorage(Repository(Disk(tmp_path / "store"))) as storage:
            found = {each.checkpoint_id: each for each in await storage.list_checkpoints(workflow_name="trip")}
            assert len(found) == 4 * times
            for each in found.values():
                assert each.checkpoint_id == "{writer} {number}".format(**each.state)
            for writer in range(4):
                line = list(storage.repository.log(f"agent-framework/{writer}%20{times - 1}"))
                assert [commit.meta["checkpoint"] for commit in line] == [
                    f"{writer} {number}" for number in reversed(range(times))
                ]

    asyncio.run(look())


@pytest.mark.long
def test_what_was_saved_before_a_kill_is_there(tmp_path):
    program = """
    import asyncio, sys
    from agent_framework import WorkflowCheckpoint
    from versioned_state.integrations.agent_framework import VersionedCheckpointStorage

    async def work():
        with VersionedCheckpointStorage(sys.argv[1]) as storage:
            for number in range(int(sys.argv[2]), 10_000):
                await storage.save(
                    WorkflowCheckpoint("w", "h", checkpoint_id=str(number), previous_checkpoint_id=str(number - 1))
                )
                print(number, flush=True)

    asyncio.run(work())
    """

    def numbers() -> list[int]:
        with VersionedCheckpointStorage(tmp_path / "store") as storage:
            ids = asyncio.run(storage.list_checkpoint_ids(workflow_name="w"))
            line = (
                [int(commit.meta["checkpoint"]) for commit in storage.repository.log(storage.branch("w"))]
                if ids
                else []
            )
            assert sorted(map(int, ids)) == line[::-1]
        return line[::-1]

    assert_kept(program, tmp_path / "store", numbers, rounds=15)


# Histories


@pytest.fixture(params=["ours", "theirs"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    return VersionedHistoryProvider(Memory()) if request.param == "ours" else FileHistoryProvider(tmp_path / "files")


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_messages_are_kept_by_session(history):
    assert await history.get_messages("s") == []
    await history.save_messages("s", [])
    await history.save_messages("s", [Message("user", ["a"]), Message("assistant", ["b"])])
    await history.save_messages("s", [Message("user", ["c"])])
    await history.save_messages("other", [Message("user", ["x"])])
    await history.save_messages(None, [Message("user", ["none"])])
    assert texts(await history.get_messages("s")) == ["a", "b", "c"]
    assert texts(await history.get_messages("other")) == ["x"]
    assert texts(await history.get_messages(None)) == ["none"]


@pytest.mark.parametrize(
    ("again", "expected"),
    [("ab", "ab"), ("abc", "abc"), ("bc", "abc"), ("b", "ab"), ("c", "abc"), ("a", "aba"), ("ba", "aba")],
)
async def test_what_is_saved_again_is_there_once(history, again, expected):
    def said(letters: str) -> list[Message]:
        return [Message("user" if letter == "a" else "assistant", [letter]) for letter in letters]

    await history.save_messages("s", said("ab"))
    await history.save_messages("s", said(again))
    assert texts(await history.get_messages("s")) == list(expected)


async def test_an_input_may_be_repeated(history):
    for _ in range(2):
        await history.save_messages("s", [Message("user", ["yes"])])
    assert texts(await history.get_messages("s")) == ["yes", "yes"]


async def test_messages_of_a_history_come_back_as_they_were(history):
    messages = [
        Message(
            "user",
            ["hi", Content.from_uri("https://example.com/rome.png", media_type="image/png")],
            message_id="m",
            author_name="Ann",
        ),
        Message(
            "assistant",
            [Content.from_function_call("c", "find", arguments='{"city": "Rome"}')],
            additional_properties={"n": 1},
        ),
        Message("tool", [Content.from_function_result("c", result="a room")]),
    ]
    await history.save_messages("s", messages)
    assert [message.to_dict() for message in await history.get_messages("s")] == [
        message.to_dict() for message in messages
    ]


class Client(BaseChatClient):  # type: ignore[misc, unused-ignore]
    """A model that answers with the number of messages that it gets."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        async def answer() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [str(len(messages))])], response_id="r")

        return answer()


async def test_an_agent_has_what_was_said(history):
    session = AgentSession(session_id="s")
    for _ in range(3):
        await Agent(Client(), context_providers=[history]).run("hi", session=session)
    assert texts(await history.get_messages("s")) == ["hi", "1", "hi", "3", "hi", "5"]


async def test_the_model_gets_the_newest_messages_up_to_a_limit(tmp_path):
    with VersionedHistoryProvider(tmp_path / "store", limit=2) as history:
        await history.save_messages("s", [Message("user", [letter]) for letter in "abc"])
        assert texts(await history.get_messages("s")) == ["b", "c"]
        repository, branch = history.repository, history.branch("s")
        assert [str(match.path) for match in repository.grep("^a$", branch)] == ["messages[0].contents[0].text"]
        assert [commit.message for commit in repository.log(branch)] == ["messages +3"]
