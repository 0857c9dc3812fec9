"""Checkpoints and flows of CrewAI over a store.

The contract is written from its interfaces, and CrewAI's own pass it too.

These tests run in an environment that has crewai: ``scripts/test --long`` makes one.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

import pytest
from crewai import Agent, Crew, Task
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from crewai.llms.base_llm import BaseLLM
from crewai.state.checkpoint_config import CheckpointConfig
from crewai.state.provider.json_provider import JsonProvider
from pydantic import BaseModel

from tests.support import processes
from tests.support.killed_writers import assert_kept
from tests.support.stores import OneCondition
from versioned_state import Disk, Memory, Repository
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError, UnsupportedByStoreError
from versioned_state.integrations.crewai import VersionedFlowPersistence, VersionedProvider

# The contract of checkpoint providers


@pytest.fixture(params=["ours", "ours on disk", "theirs in files"])  # theirs in SQLite needs SQLite 3.45
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "theirs in files":
        yield JsonProvider()
    else:
        with VersionedProvider(Memory() if request.param == "ours" else tmp_path / "store") as ours:
            yield ours


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


def data(number: int, **more: Any) -> str:
    return json.dumps(
        {"entities": [{"entity_type": "crew", "tasks": [{"output": "ä" * 3}] * 3}], "number": number, **more}
    )


def test_a_checkpoint_is_read_as_it_was_written(provider, location):
    first = provider.checkpoint(data(1, gone=True), location)
    second = provider.checkpoint(
        data(2, nothing=None, deep={"a": [1.5, True]}), location, parent_id=provider.extract_id(first)
    )
    assert first != second
    assert json.loads(provider.from_checkpoint(first)) == json.loads(data(1, gone=True))
    assert json.loads(provider.from_checkpoint(second)) == json.loads(data(2, nothing=None, deep={"a": [1.5, True]}))


async def test_checkpoints_have_coroutines(provider, location):
    name = await provider.acheckpoint(data(1), location, branch="other")
    assert json.loads(await provider.afrom_checkpoint(name)) == json.loads(data(1))


def test_the_newest_of_a_branch_are_kept(provider, location):
    other = provider.checkpoint(data(0), location, branch="other")
    names = [provider.checkpoint(data(number), location) for number in range(5)]
    assert provider.prune(location, 2) == 3
    assert provider.prune(location, 2) == 0
    for name in (other, *names[3:]):
        assert provider.from_checkpoint(name)
    for name in names[:3]:
        with pytest.raises((KeyError, FileNotFoundError)):
            provider.from_checkpoint(name)
    assert provider.prune(location, 0) == 2


class Scripted(BaseLLM):  # type: ignore[misc, unused-ignore]
    """A model that answers with the number of its call."""

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        calls.append(messages)
        return f"Thought: I now can give a great answer\nFinal Answer: answer {len(calls)}"


calls: list[Any] = []


def crew(checkpoint: Any = None) -> Any:
    guide = Agent(role="guide", goal="plan", backstory="", llm=Scripted(model="scripted"))
    tasks = [Task(description=f"task {number}", expected_output="a line", agent=guide) for number in range(3)]
    return Crew(agents=[guide], tasks=tasks, checkpoint=checkpoint)


def test_a_crew_resumes_from_a_checkpoint(tmp_path):
    calls.clear()
    with VersionedProvider(tmp_path / "store") as provider:
        config = CheckpointConfig(location="trips", provider=provider)
        assert config.provider is provider
        assert crew(config).kickoff().raw == "answer 3"
        branch = provider.branch("trips")
        checkpoints = list(provider.repository.log(branch))
        assert [commit.message for commit in checkpoints] == ["task_completed"] * 3
        middle = provider.export(f"trips#{checkpoints[1].meta['checkpoint']}")
        restored = Crew.from_checkpoint(CheckpointConfig(location="trips", provider=provider, restore_from=middle))
        for agent in restored.agents:
            agent.llm = Scripted(model="scripted")
        restored.checkpoint = config
        assert restored.kickoff().raw == "answer 4"
        assert [task.output.raw for task in restored.tasks] == ["answer 1", "answer 2", "answer 4"]
        line = list(provider.repository.log(branch))
        assert line[1:] == checkpoints[1:]
        assert line[0] != checkpoints[0]
        assert "answer 4" in str(provider.repository.diff(checkpoints[0], line[0]))
    assert not Path(middle).exists()


def test_a_diff_of_two_checkpoints_says_what_changed():
    provider = VersionedProvider(Memory())
    first = provider.checkpoint(data(1), "trips")
    provider.checkpoint(data(2, trigger="task_completed"), "trips", parent_id=provider.extract_id(first))
    repository, branch = provider.repository, provider.branch("trips")
    assert branch == "crewai/trips/main"
    assert [commit.message for commit in repository.log(branch)] == ["task_completed", "checkpoint"]
    assert str(repository.diff(f"{branch}~1", branch)).splitlines() == [
        "~ number = 1 -> 2",
        "+ trigger = 'task_completed'",
    ]
    provider.checkpoint(data(9), "trips", parent_id=provider.extract_id(first), branch="fork/1")
    assert len(list(repository.log(provider.branch("trips", "fork/1")))) == 2


def test_a_checkpoint_that_is_not_there_is_named(tmp_path):
    provider = VersionedProvider(tmp_path / "store")
    with pytest.raises(UnknownRevisionError, match="trips#nowhere"):
        provider.from_checkpoint("trips#nowhere")
    with pytest.raises(InvalidArgumentError, match="LOCATION#ID"):
        provider.export("trips")
    with pytest.raises(InvalidArgumentError, match="JSON object"):
        provider.checkpoint("[1]", "trips")
    with pytest.raises(UnsupportedByStoreError):
        VersionedProvider(OneCondition()).checkpoint(data(1), "trips")
    assert list(provider.repository.branches) == []
    provider.close()


@pytest.mark.parametrize("text", ["", "a/b", "..", "\ud800\0", "é" * 300, "a#b"])
def test_any_text_is_a_location_and_a_branch(text):
    provider = VersionedProvider(Memory())
    name = provider.checkpoint(data(1), text, branch=text)
    assert json.loads(provider.from_checkpoint(name)) == json.loads(data(1))
    assert provider.prune(text, 0, branch=text) == 1


def test_a_copy_uses_the_same_store():
    for each in (VersionedProvider(Memory()), VersionedFlowPersistence(Memory())):
        assert copy.deepcopy(each).repository is each.repository
        assert each.model_copy(deep=True).repository is each.model_copy().repository is each.repository


# The contract of flow persistence


class Trip(BaseModel):
    id: str = "f"
    city: str = ""
    days: list[int] = []


@pytest.fixture(params=["ours", "ours on disk", "theirs in SQLite"])
def persistence(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "theirs in SQLite":
        yield SQLiteFlowPersistence(str(tmp_path / "flows.db"))
    else:
        with VersionedFlowPersistence(Memory() if request.param == "ours" else tmp_path / "store") as ours:
            yield ours


def test_the_state_that_was_saved_last_is_loaded(persistence):
    assert persistence.load_state("f") is None
    persistence.init_db()
    persistence.save_state("f", "one", {"id": "f", "n": 1, "gone": True})
    persistence.save_state("g", "one", {"id": "g"})
    persistence.save_state("f", "two", {"id": "f", "n": 2, "models": [Trip(city="Rome")], "set": {1}, "tuple": (1, 2)})
    assert persistence.load_state("f") == {
        "id": "f",
        "n": 2,
        "models": [{"id": "f", "city": "Rome", "days": []}],
        "set": [1],
        "tuple": [1, 2],
    }
    persistence.save_state("f", "three", Trip(city="Oslo", days=[1]))
    assert persistence.load_state("f") == {"id": "f", "city": "Oslo", "days": [1]}
    assert persistence.load_state("g") == {"id": "g"}


def test_what_is_no_state_is_refused(persistence):
    with pytest.raises(ValueError, match="state"):
        persistence.save_state("f", "one", ["no"])
    assert persistence.load_state("f") is None


def test_a_flow_waits_for_feedback(persistence):
    context = PendingFeedbackContext(
        flow_id="f", flow_class="app.Trip", method_name="review", method_output={"draft": 1}, message="OK?"
    )
    assert persistence.load_pending_feedback("f") is None
    persistence.clear_pending_feedback("f")
    persistence.save_pending_feedback("f", context, Trip(city="Rome"))
    state, found = persistence.load_pending_feedback("f")
    assert (state, found) == ({"id": "f", "city": "Rome", "days": []}, context)
    persistence.save_state("f", "other", Trip(city="Oslo"))
    assert persistence.load_pending_feedback("f")[0]["city"] == "Rome"
    persistence.clear_pending_feedback("f")
    assert persistence.load_pending_feedback("f") is None
    assert persistence.load_state("f") == {"id": "f", "city": "Oslo", "days": []}


def flow(persistence: Any) -> Any:
    @persist(persistence)
    class Planning(Flow[Trip]):  # type: ignore[misc, unused-ignore]
        @start()  # type: ignore[untyped-decorator, unused-ignore]
        def search(self) -> str:
            self.state.city = self.state.city or "Rome"
            return "found"

        @listen(search)  # type: ignore[untyped-decorator, unused-ignore]
        def book(self, found: str) -> str:
            self.state.days.append(len(self.state.days))
            return f"{found} {self.state.days}"

    return Planning(persistence=persistence)


def test_a_flow_goes_on_where_it_was(persistence):
    first = flow(persistence)
    assert first.kickoff() == "found [0]"
    assert persistence.load_state(first.state.id)["days"] == [0]
    assert flow(persistence).kickoff(inputs={"id": first.state.id}) == "found [0, 1]"


def test_the_log_of_a_flow_has_its_methods():
    persistence = VersionedFlowPersistence(Memory())
    made = flow(persistence)
    made.kickoff()
    repository, branch = persistence.repository, persistence.branch(made.state.id)
    assert [commit.message for commit in repository.log(branch)] == ["book", "search"]
    assert "+ state.days[0] = 0" in str(repository.diff(f"{branch}~1", branch))


def write(path: Path, times: int, writer: int) -> None:
    with VersionedProvider(path) as provider, VersionedFlowPersistence(path) as flows:
        parent = None
        for number in range(times):
            name = provider.checkpoint(data(number, writer=writer), "trips", parent_id=parent)
            parent = provider.extract_id(name)
            flows.save_state("f", f"{writer} {number}", {"writer": writer, "number": number})


@pytest.mark.parametrize("times", [6, pytest.param(100, marks=pytest.mark.long)])
def test_processes_that_write_at_once_lose_and_mix_nothing(tmp_path, times):
    processes.join(*[processes.fork(partial(write, tmp_path / "store", times, writer)) for writer in range(4)])
    repository = Repository(Disk(tmp_path / "store"))
    commits = [info.head for info in repository.tags.iter_info(prefix="crewai/")]
    assert len(commits) == 4 * times
    for writer in range(4):
        mine = [commit for commit in commits if repository.snapshot(commit)["writer"] == writer]
        last = max(mine, key=lambda commit: repository.snapshot(commit)["number"])
        assert [repository.snapshot(commit)["number"] for commit in repository.log(last)] == list(range(times))[::-1]
    states = [repository.snapshot(commit) for commit in repository.log("crewai-flow/f")]
    assert all(each["method"] == "{writer} {number}".format(**each["state"]) for each in states)
    assert len({each["method"] for each in states}) == 4 * times


@pytest.mark.long
def test_what_was_saved_before_a_kill_is_there(tmp_path):
    program = """
    import sys
    from versioned_state.integrations.crewai import VersionedFlowPersistence

    with VersionedFlowPersistence(sys.argv[1]) as flows:
        for number in range(int(sys.argv[2]), 10_000):
            flows.save_state("f", "method", {"numbers": list(range(number + 1))})
            print(number, flush=True)
    """

    def numbers() -> list[int]:
        with VersionedFlowPersistence(tmp_path / "store") as flows:
            found: list[int] = (flows.load_state("f") or {"numbers": []})["numbers"]
        return found

    assert_kept(program, tmp_path / "store", numbers, rounds=5)


async def test_coroutines_leave_the_loop_free(tmp_path):
    with VersionedProvider(tmp_path / "store") as provider:
        names = await asyncio.gather(*(provider.acheckpoint(data(number), "trips") for number in range(5)))
        found = await asyncio.gather(*map(provider.afrom_checkpoint, names))
        assert [json.loads(each)["number"] for each in found] == list(range(5))
