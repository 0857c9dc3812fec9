"""Sessions of Google ADK over a store.

The contract is written from its interface; ADK's own services in memory and in SQLite pass it too.

These tests run in an environment that has google-adk: ``scripts/test --long`` makes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.platform import time as platform_time
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from tests.support import processes
from tests.support.importing import import_into
from tests.support.killed_writers import assert_kept
from tests.support.stores import OneCondition
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, UnsupportedByStoreError
from versioned_state.integrations.google_adk import VersionedSessionService

Service = Any
ANN: dict[str, Any] = {"app_name": "trips", "user_id": "ann"}


@pytest.fixture(params=["ours", "ours on disk", "theirs in memory", "theirs in SQLite"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    if request.param == "theirs in memory":
        yield InMemorySessionService()
    elif request.param == "theirs in SQLite":
        yield SqliteSessionService(str(tmp_path / "sqlite.db"))
    else:
        with VersionedSessionService(Memory() if request.param == "ours" else tmp_path / "store") as ours:
            yield ours


def said(text: str, invocation: str = "i", **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta={key.replace("__", ":"): value for key, value in delta.items()})
    return Event(invocation_id=invocation, author="user", content=content, actions=actions)


def texts(session: Any) -> list[str]:
    return [event.content.parts[0].text for event in session.events]


# The contract of session services


async def test_a_session_is_read_as_it_was_made(service):
    made = await service.create_session(**ANN, state={"city": "Rome", "deep": {"list": [1, None, {"a": 2.5}]}})
    assert made.id
    assert made.events == []
    assert made.state == {"city": "Rome", "deep": {"list": [1, None, {"a": 2.5}]}}
    assert await service.get_session(**ANN, session_id=made.id) == made


async def test_a_session_that_is_not_there_is_none_and_takes_no_event(service):
    assert await service.get_session(**ANN, session_id="s") is None
    await service.delete_session(**ANN, session_id="s")
    made = await service.create_session(**ANN, session_id="s")
    await service.delete_session(**ANN, session_id="s")
    assert await service.get_session(**ANN, session_id="s") is None
    with pytest.raises(SessionNotFoundError):
        await service.append_event(made, said("hi"))
    assert await service.get_session(**ANN, session_id="s") is None


async def test_an_id_is_taken_once_and_its_blanks_do_not_count(service):
    await service.create_session(**ANN, session_id=" s ", state={"n": 1})
    for id in ("s", " s"):
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**ANN, session_id=id, state={"n": 2, "app:n": 2})
    found = await service.get_session(**ANN, session_id="s")
    assert (found.id, found.state) == ("s", {"n": 1})
    other = await service.create_session(app_name="trips", user_id="bob", session_id="s")
    assert other.state == {}


async def test_an_event_is_read_as_it_was_appended(service):
    session = await service.create_session(**ANN)
    event = Event(
        invocation_id="i",
        author="agent",
        content=types.Content(role="model", parts=[types.Part.from_bytes(data=b"\x00\xff", mime_type="image/png")]),
        actions=EventActions(artifact_delta={"file": 0}, transfer_to_agent="other", escalate=True),
        turn_complete=True,
        long_running_tool_ids={"tool"},
        error_code="code",
        grounding_metadata=types.GroundingMetadata(web_search_queries=["Rome"]),
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1),
        custom_metadata={"key": ["value", 1]},
    )
    assert await service.append_event(session, event) == event
    assert await service.append_event(session, said("ä\U0001f600")) == session.events[1]
    assert session.last_update_time == session.events[1].timestamp
    assert await service.get_session(**ANN, session_id=session.id) == session


async def test_the_states_of_sessions_users_and_apps_are_kept_apart(service):
    one = await service.create_session(**ANN, session_id="one", state={"app:a": 1, "user:u": 1, "s": 1})
    assert one.state == {"app:a": 1, "user:u": 1, "s": 1}
    await service.append_event(one, said("hi", app__b=2, user__v=2, t=2))
    both = {"app:a": 1, "app:b": 2, "user:u": 1, "user:v": 2}
    assert one.state == (await service.get_session(**ANN, session_id="one")).state == {**both, "s": 1, "t": 2}
    assert (await service.create_session(**ANN, session_id="two")).state == both
    bob = await service.create_session(app_name="trips", user_id="bob", session_id="one")
    assert bob.state == {"app:a": 1, "app:b": 2}
    other = await service.create_session(app_name="other", user_id="ann", session_id="one")
    assert other.state == {}
    assert await service.get_user_state(**ANN) == {"u": 1, "v": 2}
    assert await service.get_user_state(app_name="trips", user_id="nobody") == {}
    listed = (await service.list_sessions(app_name="trips")).sessions
    assert {(each.user_id, each.id): each.state for each in listed} == {
        ("ann", "one"): {**both, "s": 1, "t": 2},
        ("ann", "two"): both,
        ("bob", "one"): bob.state,
    }


async def test_a_value_takes_the_place_of_another_and_none_is_a_value(service):
    session = await service.create_session(
        **ANN, session_id="s", state={"deep": {"a": 1, "b": 2}, "flag": False, "user:x": 1, "app:x": 1}
    )
    await service.append_event(session, said("hi", deep={"a": 3}, user__x={"y": [True]}))
    expected = {"deep": {"a": 3}, "flag": False, "user:x": {"y": [True]}, "app:x": 1}
    assert session.state == (await service.get_session(**ANN, session_id="s")).state == expected
    if not isinstance(service, SqliteSessionService):  # which removes the key
        await service.append_event(session, said("hi", deep=None, user__x=None))
        assert (
            session.state
            == (await service.get_session(**ANN, session_id="s")).state
            == {**expected, "deep": None, "user:x": None}
        )


async def test_temporary_state_is_of_the_handle_only(service):
    session = await service.create_session(**ANN, session_id="s", state={"temp:no": 1})
    await service.append_event(session, said("hi", temp__k="v", kept=1))
    assert session.state == {"temp:k": "v", "kept": 1}
    found = await service.get_session(**ANN, session_id="s")
    assert found.state == found.events[0].actions.state_delta == {"kept": 1}


async def test_a_partial_event_is_not_stored(service):
    session = await service.create_session(**ANN, session_id="s")
    await service.append_event(session, Event(author="agent", partial=True, actions=EventActions(state_delta={"n": 1})))
    found = await service.get_session(**ANN, session_id="s")
    assert (found.events, found.state, session.events, session.state) == ([], {}, [], {})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"num_recent_events": 3}, [3, 4, 5]),
        ({"num_recent_events": 9}, [1, 2, 3, 4, 5]),
        ({"num_recent_events": 0}, []),
        ({"after_timestamp": 4.0}, [4, 5]),
        ({"after_timestamp": 50.0}, []),
        ({"after_timestamp": 2.0, "num_recent_events": 3}, [3, 4, 5]),
        ({"after_timestamp": 4.0, "num_recent_events": 3}, [4, 5]),
    ],
)
async def test_a_configuration_chooses_events(service, config, expected):
    session = await service.create_session(**ANN, session_id="s")
    for number in range(1, 6):
        await service.append_event(session, Event(author="user", timestamp=number))
    found = await service.get_session(**ANN, session_id="s", config=GetSessionConfig(**config))
    assert [event.timestamp for event in found.events] == expected
    assert found.last_update_time == 5


async def test_a_session_without_events_was_updated_when_it_was_made(service):
    times = {"a": 200.5, "b": 100.25}
    for id, time in times.items():
        platform_time.set_time_provider(lambda time=time: time)
        assert (await service.create_session(**ANN, session_id=id)).last_update_time == time
    platform_time.set_time_provider(lambda: 300.0)
    for id, time in times.items():
        assert (await service.get_session(**ANN, session_id=id)).last_update_time == time
    listed = (await service.list_sessions(**ANN)).sessions
    assert {each.id: each.last_update_time for each in listed} == times


async def test_sessions_are_listed_without_events_and_the_latest_last(service):
    assert (await service.list_sessions(app_name="trips")).sessions == []
    for number, id in enumerate(["b", "c", "a"]):
        session = await service.create_session(**ANN, session_id=id, state={"id": id})
        await service.append_event(session, Event(author="user", timestamp=1000 - number))
    await service.create_session(app_name="tripsters", user_id="ann")
    listed = (await service.list_sessions(**ANN)).sessions
    assert [each.state["id"] for each in listed] == ([each.id for each in listed])
    assert [each.events for each in listed] == [[], [], []]
    if not isinstance(service, SqliteSessionService):  # which does not order them, as its base class says it must
        assert [each.id for each in listed] == ["a", "c", "b"]
    assert (await service.list_sessions(app_name="trips", user_id="bob")).sessions == []


async def test_what_is_read_is_the_callers_own(service):
    session = await service.create_session(**ANN, session_id="s", state={"list": [1], "app:list": [1]})
    await service.append_event(session, said("hi"))
    for _ in range(2):
        found = await service.get_session(**ANN, session_id="s")
        assert (found.state, texts(found)) == ({"list": [1], "app:list": [1]}, ["hi"])
        found.state["list"].append(2)
        found.state["app:list"].append(2)
        found.events[0].content.parts[0].text = "changed"


class Guide(BaseLlm):  # type: ignore[misc, unused-ignore]
    """A model that books a room, and then says so."""

    async def generate_content_async(self, llm_request: Any, stream: Any = None) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts[-1]
        part = types.Part(text="Booked.")
        if last.text:
            part = types.Part(function_call=types.FunctionCall(name="book", args={"city": "Rome"}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def book(city: str, tool_context: Any) -> dict[str, Any]:
    """Book a room."""
    tool_context.state["booked"] = city
    tool_context.state["user:trips"] = tool_context.state.get("user:trips", 0) + 1
    return {"price": 80}


async def test_a_runner_talks_in_sessions(service):
    agent = LlmAgent(name="guide", model=Guide(model="scripted"), tools=[book])
    runner = Runner(app_name="trips", agent=agent, session_service=service)
    for id in ("one", "two"):
        await service.create_session(**ANN, session_id=id)
        message = types.Content(role="user", parts=[types.Part(text="A room in Rome, please.")])
        async for _ in runner.run_async(user_id="ann", session_id=id, new_message=message):
            pass
    found = await service.get_session(**ANN, session_id="two")
    assert len(found.events) == 4
    assert found.events[2].get_function_responses()[0].response == {"price": 80}
    assert found.state == {"booked": "Rome", "user:trips": 2}


# Ours


@pytest.fixture
def ours() -> VersionedSessionService:
    return VersionedSessionService(Memory())


async def test_a_session_that_has_moved_on_takes_no_event(ours):
    one = await ours.create_session(**ANN, session_id="s")
    two = await ours.get_session(**ANN, session_id="s")
    assert two is not None
    await ours.append_event(one, said("one", n=1))
    with pytest.raises(StaleSessionError, match=r"'s'.* modified in storage .*read it again"):
        await ours.append_event(two, said("two", n=2, app__n=2))
    again = await ours.get_session(**ANN, session_id="s")
    assert again is not None
    assert (texts(again), again.state) == (["one"], {"n": 1})
    await ours.append_event(again, said("two"))
    assert texts(await ours.get_session(**ANN, session_id="s")) == ["one", "two"]


async def test_a_session_that_came_as_json_is_stale_if_others_have_written(ours):
    one = await ours.create_session(**ANN, session_id="s")
    await ours.append_event(one, said("one"))
    copies = [type(one).model_validate_json(one.model_dump_json()) for _ in range(2)]
    await ours.append_event(copies[0], said("two"))
    with pytest.raises(StaleSessionError):
        await ours.append_event(copies[1], said("three"))
    assert texts(await ours.get_session(**ANN, session_id="s")) == ["one", "two"]


async def test_an_event_that_comes_again_is_stored_once(ours):
    one = await ours.create_session(**ANN, session_id="s")
    two = await ours.get_session(**ANN, session_id="s")
    assert two is not None
    event = said("hi", n=1)
    for session in (one, one, two):
        assert await ours.append_event(session, event) == event
        assert texts(session) == ["hi"]
    assert texts(await ours.get_session(**ANN, session_id="s")) == ["hi"]


async def test_an_event_that_is_not_stored_changes_none_of_the_three_states():
    ours = VersionedSessionService(OneCondition())
    session = await ours.create_session(**ANN, session_id="s")
    await ours.append_event(session, said("hi", n=1))
    with pytest.raises(UnsupportedByStoreError):
        await ours.append_event(session, said("no", n=2, app__n=2, user__n=2))
    found = await ours.get_session(**ANN, session_id="s")
    assert found is not None
    assert (texts(found), found.state) == (["hi"], {"n": 1})


async def test_the_history_of_a_session_says_what_each_event_changed(ours):
    session = await ours.create_session(**ANN, session_id="s", state={"city": "Rome"})
    await ours.append_event(session, said("To Oslo,\nplease.", city="Oslo", user__home="Paris"))
    call = types.Content(role="model", parts=[types.Part(function_call=types.FunctionCall(name="book", args={}))])
    await ours.append_event(session, Event(author="guide", content=call))
    repository, branch = ours.repository, ours.branch("trips", "ann", "s")
    assert branch == "google-adk/trips/ann/s"
    assert [commit.message for commit in repository.log(branch)] == [
        "guide: book(…)",
        "user: To Oslo, please.",
        "session",
    ]
    diff = str(repository.diff(f"{branch}~2", f"{branch}~1")).splitlines()
    assert "~ state.city = 'Rome' -> 'Oslo'" in diff
    assert str(repository.diff(f"{branch}~1", branch)).startswith(
        "+ events[1] = {'content': {'parts': [{'function_call': "
    )
    assert [str(match.path) for match in repository.grep("To Oslo", branch)] == ["events[0].content.parts[0].text"]
    assert repository.snapshot(ours.branch("trips", "ann"))["state"] == {"home": "Paris"}


async def test_a_fork_has_what_was_there_before_an_invocation(ours):
    session = await ours.create_session(**ANN, session_id="s", state={"n": 0, "app:a": 1})
    for number in range(1, 4):
        await ours.append_event(session, said(f"question {number}", f"i{number}", n=number, user__n=number))
        await ours.append_event(session, said(f"answer {number}", f"i{number}"))
    whole = await ours.fork_session(**ANN, source_session_id="s")
    assert whole.id != "s"
    assert (whole.events, whole.state) == (session.events, session.state)
    fork = await ours.fork_session(**ANN, source_session_id="s", fork_before_invocation_id="i2", session_id="fork")
    assert fork == await ours.get_session(**ANN, session_id="fork")
    assert (fork.id, texts(fork)) == ("fork", ["question 1", "answer 1"])
    assert fork.state == {"n": 1, "app:a": 1, "user:n": 3}
    await ours.append_event(fork, said("another question", "j", n=9))
    assert await ours.get_session(**ANN, session_id="s") == session
    again = await ours.fork_session(**ANN, source_session_id="fork", fork_before_invocation_id="j")
    assert texts(again) == ["question 1", "answer 1"]
    empty = await ours.fork_session(**ANN, source_session_id="fork", fork_before_invocation_id="i1")
    assert (empty.events, empty.state["n"]) == ([], 0)
    assert {each.id for each in (await ours.list_sessions(**ANN)).sessions} == {
        "s",
        whole.id,
        "fork",
        again.id,
        empty.id,
    }


async def test_a_fork_needs_a_session_an_invocation_and_a_new_id(ours):
    with pytest.raises(SessionNotFoundError):
        await ours.fork_session(**ANN, source_session_id="s")
    session = await ours.create_session(**ANN, session_id="s")
    await ours.append_event(session, said("hi"))
    with pytest.raises(InvalidArgumentError, match="no invocation 'nowhere'"):
        await ours.fork_session(**ANN, source_session_id="s", fork_before_invocation_id="nowhere")
    with pytest.raises(AlreadyExistsError):
        await ours.fork_session(**ANN, source_session_id="s", session_id="s")
    assert [each.id for each in (await ours.list_sessions(**ANN)).sessions] == ["s"]


async def test_a_fork_finds_the_events_that_came_with_one_commit(ours):
    session = await ours.create_session(**ANN, session_id="s")
    events = [said(letter, letter, last=letter).model_dump(mode="json", exclude_none=True) for letter in "abc"]
    with Versioned(ours.repository, branch=ours.branch(**ANN, session_id="s")) as state:
        state["events"] = events
        state["state"] = {"last": "c"}
        state.commit("three at once")
    fork = await ours.fork_session(**ANN, source_session_id=session.id, fork_before_invocation_id="c")
    assert (texts(fork), fork.state) == (["a", "b"], {"last": "b"})


@pytest.mark.parametrize("text", ["", "a/b", "..", "\ud800\0", "é" * 300])
async def test_any_text_is_an_id(ours, text):
    ids: dict[str, Any] = {"app_name": text, "user_id": text}
    session = await ours.create_session(**ids, session_id=f"x{text}")
    await ours.append_event(session, said("hi", user__n=1))
    found = await ours.get_session(**ids, session_id=f"x{text}")
    assert found == session
    for listed in (await ours.list_sessions(**ids), await ours.list_sessions(app_name=text)):
        assert [(each.app_name, each.user_id, each.id) for each in listed.sessions] == [(text, text, f"x{text}")]


async def test_an_event_costs_its_bytes_in_a_session_of_any_length():
    store = Memory()
    ours = VersionedSessionService(store)
    session = await ours.create_session(**ANN, session_id="s")
    for number in range(300):
        await ours.append_event(session, said(f"message {number} " * 20))
    before = sum(len(key) + len(store.get(key) or b"") for key in store.keys(""))
    await ours.append_event(session, said("one more"))
    assert sum(len(key) + len(store.get(key) or b"") for key in store.keys("")) - before < 5_000


async def test_sessions_that_change_one_state_at_once_are_never_stale(tmp_path):
    with VersionedSessionService(tmp_path / "store") as one, VersionedSessionService(tmp_path / "store") as two:

        async def talk(service: VersionedSessionService, id: str) -> None:
            session = await service.create_session(**ANN, session_id=id, state={f"user:{id}": 0})
            for number in range(1, 4):
                delta: dict[str, Any] = {f"app__{id}": number, f"user__{id}": number}
                await service.append_event(session, said("hi", **delta))

        await asyncio.gather(
            *(talk(service, f"{at} {number}") for at, service in enumerate((one, two)) for number in range(4))
        )
        expected = {f"{scope}:{at} {number}": 3 for scope in ("app", "user") for at in range(2) for number in range(4)}
        assert (await one.create_session(**ANN)).state == expected


def append(path: Path, times: int, writer: int) -> None:
    async def work() -> None:
        with VersionedSessionService(path) as service:
            for number in range(times):
                while True:
                    session = await service.get_session(
                        **ANN, session_id="s", config=GetSessionConfig(num_recent_events=1)
                    )
                    assert session is not None
                    delta: dict[str, Any] = {f"{scope}__{writer}": number for scope in ("app", "user")}
                    try:
                        await service.append_event(session, said(f"{writer} {number}", **delta))
                    except StaleSessionError:
                        continue
                    break

    asyncio.run(work())


@pytest.mark.parametrize("times", [6, pytest.param(100, marks=pytest.mark.long)])
def test_processes_that_append_at_once_lose_and_mix_nothing(tmp_path, times):
    async def begin() -> None:
        with VersionedSessionService(tmp_path / "store") as service:
            await service.create_session(**ANN, session_id="s")

    asyncio.run(begin())
    processes.join(*[processes.fork(partial(append, tmp_path / "store", times, writer)) for writer in range(4)])

    async def look() -> None:
        with VersionedSessionService(Repository(Disk(tmp_path / "store"))) as service:
            session = await service.get_session(**ANN, session_id="s")
            assert session is not None
            for writer in range(4):
                assert [text for text in texts(session) if text.startswith(f"{writer} ")] == [
                    f"{writer} {n}" for n in range(times)
                ]
                assert session.state[f"app:{writer}"] == session.state[f"user:{writer}"] == times - 1
            assert len(session.events) == 4 * times

    asyncio.run(look())


@pytest.mark.long
def test_what_was_appended_before_a_kill_is_there(tmp_path):
    program = """
    import asyncio, sys
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from versioned_state.integrations.google_adk import VersionedSessionService

    async def work():
        ids = {"app_name": "trips", "user_id": "ann", "session_id": "s"}
        with VersionedSessionService(sys.argv[1]) as service:
            session = await service.get_session(**ids) or await service.create_session(**ids)
            for number in range(int(sys.argv[2]), 10_000):
                actions = EventActions(state_delta={"n": number, "app:n": number, "user:n": number})
                await service.append_event(session, Event(author=str(number), actions=actions))
                print(number, flush=True)

    asyncio.run(work())
    """

    def numbers() -> list[int]:
        with VersionedSessionService(tmp_path / "store") as service:
            session = asyncio.run(service.get_session(**ANN, session_id="s"))
            found = [int(event.author) for event in session.events] if session else []
            if session and found:
                assert session.state == {"n": found[-1], "app:n": found[-1], "user:n": found[-1]}
        return found

    assert_kept(program, tmp_path / "store", numbers, rounds=10)


# Imported from ADK's own databases


@pytest.mark.parametrize("kind", [SqliteSessionService, DatabaseSessionService])
async def test_imported_sessions_are_those_of_adk_and_go_on(kind: Any, tmp_path: Path):
    path = tmp_path / "adk.db"
    theirs = kind(str(path)) if kind is SqliteSessionService else kind(f"sqlite+aiosqlite:///{path}")
    began: dict[str, Any] = {"user:plan": "pro", "app:seen": 0, "lang": "en"}
    await theirs.create_session(**ANN, session_id="empty")
    session = await theirs.create_session(**ANN, session_id="s/1", state=began)
    for number in range(5):
        called = types.Part(function_call=types.FunctionCall(name="book", args={"city": "Rome"}, id=f"c{number}"))
        content = types.Content(role="model", parts=[types.Part(text=f"word {number}"), called])
        actions = EventActions(state_delta={"step": number, "app:seen": number, "temp:x": 1})
        event = Event(
            invocation_id=f"i{number}",
            author="guide",
            content=content,
            actions=actions,
            long_running_tool_ids={f"c{number}"},
        )
        await theirs.append_event(session, event)
    wanted = {name: await theirs.get_session(**ANN, session_id=name) for name in ("empty", "s/1")}

    store = Memory()
    report = import_into(store, "adk", path)
    assert all(each.verified for each in report.threads)
    with VersionedSessionService(store) as ours:
        listed = (await ours.list_sessions(**ANN)).sessions
        assert sorted(each.id for each in listed) == ["empty", "s/1"]
        for name, one in wanted.items():
            found = await ours.get_session(**ANN, session_id=name)
            assert found is not None
            assert (found.events, found.state) == (one.events, one.state)
            assert found.last_update_time == pytest.approx(one.last_update_time, abs=0.01)
        assert await ours.get_user_state(**ANN) == {"plan": "pro"}
        session = await ours.get_session(**ANN, session_id="s/1")
        assert session is not None
        await ours.append_event(session, said("and on", "i5", step=5, user__plan="free"))
        again = await ours.get_session(**ANN, session_id="s/1")
        assert again is not None
        assert texts(again)[-2:] == ["word 4", "and on"]
        assert (again.state["step"], again.state["user:plan"], again.state["app:seen"]) == (5, "free", 4)
        fork = await ours.fork_session(**ANN, source_session_id="s/1", fork_before_invocation_id="i3")
        assert (len(fork.events), fork.state["step"]) == (3, 2)
