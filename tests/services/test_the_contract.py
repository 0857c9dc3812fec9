"""Every sentence of the contract of AgentScope Runtime's services, and the test that proves it.

Most are in the suites of tests/support/services, which each store and HTTP pass (tests/services,
tests/server/test_contracts.py), or beside them: `PROOFS` names them. The sentences that none of those says on every
store are the tests of this module.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from tests.support.services.memory_contract import said, texts_of
from tests.support.services.served import ALL
from tests.support.services.zygote import Zygote
from versioned_state import Memory, Versioned
from versioned_state.services import RemoteMemoryService, RemoteSessionHistoryService, RemoteStateService
from versioned_state.services.agent_state import InMemoryStateService, RedisStateService, StateService
from versioned_state.services.base import ServiceWithLifecycleManager
from versioned_state.services.memory import InMemoryMemoryService, MemoryService, RedisMemoryService
from versioned_state.services.schemas.agent_schemas import Message, TextContent
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import (
    InMemorySessionHistoryService,
    RedisSessionHistoryService,
    SessionHistoryService,
)

pytestmark = pytest.mark.every_case

TESTS: Final = Path(__file__).parents[1]
STATES, HISTORIES, MEMORIES = (f"support/services/{name}_contract.py" for name in ("state", "history", "memory"))
HERE: Final = "services/test_the_contract.py"

PROOFS: Final[dict[str, tuple[str, ...]]] = {
    # All services
    "start(), stop(), health() -> bool, async with": (f"{HERE}::test_the_life_of_a_service",),
    "a call on a service that is not started raises RuntimeError": (
        f"{HERE}::test_a_call_on_a_service_that_is_not_started",
    ),
    "in-memory services may be used without start": (f"{HERE}::test_in_memory_no_start_is_needed",),
    # StateService
    "save_state(...) -> int, export_state(...) -> dict | None": (
        f"{STATES}::test_the_document",
        f"{HERE}::test_the_calls_of_the_contract",
    ),
    "list_sessions": (f"{STATES}::test_ids_of_any_characters_are_one_to_one",),
    "list_rounds": (f"{STATES}::test_rounds_count_up_and_the_latest_is_the_highest",),
    "delete_state": (
        f"{STATES}::test_a_deleted_round_is_gone_and_the_others_stay",
        f"{STATES}::test_without_rounds_numbering_begins_at_1",
    ),
    "a falsy session_id is 'default'": (f"{STATES}::test_a_falsy_session_is_the_default_one",),
    "an automatic round_id is the highest plus one, or 1": (
        f"{STATES}::test_rounds_count_up_and_the_latest_is_the_highest",
    ),
    "rounds are sparse; after saving 10 then 3, export gives 10 and the next is 11": (
        f"{STATES}::test_rounds_count_up_and_the_latest_is_the_highest",
    ),
    "an explicit round may be overwritten; the old commit stays in history": (
        f"{HERE}::test_a_round_that_is_replaced_stays_in_history",
    ),
    "a missing user, session or round gives None": (f"{STATES}::test_what_is_missing_is_none",),
    "what is exported is a copy": (f"{STATES}::test_what_goes_in_and_out_is_a_copy",),
    "types come back as they were": (f"{STATES}::test_types_come_back_as_they_were",),
    "a session is a branch, a round a commit: diff, log and checkout": (
        f"{HERE}::test_the_history_of_every_session",
        "services/test_state_branches.py::test_rounds_are_commits_with_the_keys_of_the_state",
    ),
    "equal content is stored once": (
        "services/test_state_branches.py::test_equal_content_is_stored_once_for_all_users",
    ),
    "no expiry by default; ttl_seconds= is explicit": (f"{HERE}::test_nothing_expires_unless_it_is_asked_for",),
    "4 clients x 100 concurrent saves: all of them": (
        f"{STATES}::test_all_concurrent_saves_are_rounds_of_their_own",
        "services/test_state_concurrency.py::test_processes_on_one_session_keep_all_rounds",
    ),
    # SessionHistoryService
    "create_session, get_session, delete_session, list_sessions, append_message": (
        f"{HISTORIES}::test_a_session_is_created_appended_to_and_read",
        f"{HERE}::test_the_calls_of_the_contract",
    ),
    "the id is stripped": (f"{HISTORIES}::test_an_id_is_stripped_and_a_blank_one_is_a_new_one",),
    "a blank id gives a uuid": (f"{HERE}::test_a_blank_id_is_a_uuid",),
    "create of an existing id keeps its history": (f"{HISTORIES}::test_creating_a_session_again_keeps_its_history",),
    "list_sessions omits messages": (f"{HISTORIES}::test_sessions_are_listed_without_messages_and_by_the_page",),
    "delete of a missing one is no error": (f"{HISTORIES}::test_a_deleted_session_is_none_until_it_is_created_again",),
    "a missing session is created by get_session; create_missing=": (
        f"{HISTORIES}::test_a_missing_session_is_created_or_none",
    ),
    "a deleted session is None": (f"{HISTORIES}::test_a_deleted_session_is_none_until_it_is_created_again",),
    "append_message also extends the session object": (f"{HISTORIES}::test_a_session_is_created_appended_to_and_read",),
    "dicts are normalised to Message": (f"{HISTORIES}::test_messages_come_back_as_they_were",),
    "invalid input raises and appends nothing": (f"{HISTORIES}::test_an_invalid_message_appends_nothing",),
    "an append costs the message, not the history": (
        "services/test_session_history_costs.py::test_an_append_is_one_batch_of_what_is_appended",
        "services/test_session_history_costs.py::test_the_request_of_a_stateless_server_does_not_grow_with_the_session",
    ),
    "400 concurrent appends": (f"{HISTORIES}::test_a_hundred_appends_at_once_from_each_of_four_clients_keep_all",),
    # MemoryService
    "add_memory, search_memory, list_memory, delete_memory": (
        f"{MEMORIES}::test_the_document",
        f"{HERE}::test_the_calls_of_the_contract",
    ),
    "the last message of the query, its text, case-insensitive keywords, any of them": (f"{MEMORIES}::test_keywords",),
    "in chronological order per session; filters={'top_k': n}": (f"{MEMORIES}::test_keywords",),
    "an index in the process for Memory, SQLite FTS5 for Disk": (
        "services/test_memory_indexes.py::test_all_indexes_rank_as_a_scan_does",
        "services/test_memory_indexes.py::test_a_search_reads_what_it_finds_and_not_all",
    ),
    "ranking is an option": (f"{MEMORIES}::test_ranked_search_gives_the_best_first",),
    "sessions sorted by id, page_num 1, page_size 10 by default; out of range gives []": (f"{MEMORIES}::test_pages",),
    "delete of a missing user is no error": (f"{MEMORIES}::test_what_is_deleted_is_not_found",),
    # Message
    "the fields of a Message": (
        f"{HERE}::test_the_fields_of_a_message",
        "services/test_schemas.py::test_a_message_has_an_id_and_defaults",
    ),
    # SandboxService
    "connect(session_id, user_id=None, env_types=None, tools=None), also sandbox_types=; keyed by the pair": (
        "services/test_sandbox_service.py::test_a_session_gets_the_types_that_it_asks_for_in_their_order",
        "services/test_sandbox_service.py::test_sessions_share_nothing",
    ),
    "release(session_id, user_id=None) -> bool": (
        "services/test_sandbox_service.py::test_released_sandboxes_are_closed_with_their_processes_and_folder",
    ),
    "a second connect returns the same sandboxes": (
        "services/test_sandbox_service.py::test_a_second_connect_returns_the_same_and_adds_what_is_missing",
    ),
    "types inferred from tools": ("services/test_sandbox_service.py::test_types_follow_from_tools",),
    "stop() releases all": ("services/test_sandbox_service.py::test_stop_releases_all",),
    # The rest
    "the services take any KVStore": (f"{HERE}::test_the_classes_of_the_contract",),
    "an adapter can implement the abstract classes": (f"{HERE}::test_an_adapter_implements_what_it_can",),
}


@pytest.mark.parametrize("sentence", PROOFS)
def test_the_proof_is_there(sentence: str) -> None:
    for proof in PROOFS[sentence]:
        file, _, name = proof.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text("utf-8"), proof


@dataclass(frozen=True, slots=True)
class Kind:
    """Services over one store, and a user whom no other test has."""

    states: Callable[..., Any]
    histories: Callable[..., Any]
    memories: Callable[..., Any]
    user: str
    name: str

    @property
    def all(self) -> tuple[Callable[..., Any], ...]:
        return self.states, self.histories, self.memories


@pytest.fixture(scope="module")
def server_url(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zygote.serve(f"disk:{tmp_path_factory.mktemp('server') / 'store'}", "--log-level", "error") as server:
        yield server.url


@pytest.fixture(params=["memory", "disk", "redis", "postgres", "http"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    def made(services: tuple[Any, Any, Any], opener: Callable[[Any], Callable[..., Any]], name: str) -> Kind:
        states, histories, memories = map(opener, services)
        return Kind(states, histories, memories, uuid4().hex, name)

    place: Any
    match request.param:
        case "http":
            url = request.getfixturevalue("server_url")
            remote = (RemoteStateService, RemoteSessionHistoryService, RemoteMemoryService)
            return made(remote, lambda service: partial(service, url, ALL), "http")
        case "redis":
            place = request.getfixturevalue("redis_server").fresh_url()
        case "postgres":
            place = request.getfixturevalue("postgres_server").fresh_url()
        case "disk":
            place = f"disk:{tmp_path / 'store'}"
        case _:
            place = Memory()
    return made(
        (StateService, SessionHistoryService, MemoryService),
        lambda service: partial(service.over, place),
        request.param,
    )


async def test_the_life_of_a_service(kind: Kind) -> None:
    for opened in kind.all:
        service = opened()
        assert isinstance(service, ServiceWithLifecycleManager)
        assert await service.health() is False
        await service.start()
        await service.start()
        assert await service.health() is True
        await service.stop()
        await service.stop()
        assert await service.health() is False
        async with service as entered:
            assert entered is service
            assert await service.health() is True
        assert await service.health() is False


def calls(kind: Kind, states: Any, histories: Any, memories: Any) -> list[Any]:
    """One call of each name in the contract."""
    session = Session(id="s", user_id=kind.user)
    return [
        *(states.save_state(kind.user, {}), states.export_state(kind.user)),
        *(states.list_sessions(kind.user), states.list_rounds(kind.user), states.delete_state(kind.user)),
        *(
            histories.create_session(kind.user),
            histories.get_session(kind.user, "s"),
            histories.delete_session(kind.user, "s"),
        ),
        *(histories.list_sessions(kind.user), histories.append_message(session, said("hi"))),
        *(memories.add_memory(kind.user, [said("hi")]), memories.search_memory(kind.user, [said("hi")])),
        *(memories.list_memory(kind.user), memories.delete_memory(kind.user)),
    ]


async def test_a_call_on_a_service_that_is_not_started(kind: Kind) -> None:
    services = [opened() for opened in kind.all]
    if kind.name != "memory":
        for call in calls(kind, *services):
            with pytest.raises(RuntimeError, match="is not started"):
                await call
    for service in services:
        await service.start()
        await service.stop()
    for call in calls(kind, *services):
        with pytest.raises(RuntimeError, match="was stopped"):
            await call


async def test_in_memory_no_start_is_needed() -> None:
    kind = Kind(InMemoryStateService, InMemorySessionHistoryService, InMemoryMemoryService, "u", "memory")
    states, histories, memories = (opened() for opened in kind.all)
    for call in calls(kind, states, histories, memories):
        if "append_message" in repr(call):
            await histories.create_session("u", "s")
        await call
    for service in (states, histories, memories):
        assert await service.health() is False, "before start"
        await service.stop()


def test_the_calls_of_the_contract(kind: Kind) -> None:
    states, histories, memories = (opened() for opened in kind.all)
    contract: dict[Any, list[str]] = {
        states.save_state: ["user_id", "state", "session_id", "round_id"],
        states.export_state: ["user_id", "session_id", "round_id"],
        histories.create_session: ["user_id", "session_id"],
        histories.get_session: ["user_id", "session_id"],
        histories.delete_session: ["user_id", "session_id"],
        histories.list_sessions: ["user_id"],
        histories.append_message: ["session", "message"],
        memories.add_memory: ["user_id", "messages", "session_id"],
        memories.search_memory: ["user_id", "messages", "filters"],
        memories.list_memory: ["user_id", "filters"],
        memories.delete_memory: ["user_id", "session_id"],
    }
    for call, names in contract.items():
        parameters = inspect.signature(call).parameters
        assert list(parameters)[: len(names)] == names
        assert all(each.default is not each.empty for name, each in parameters.items() if name not in names), call
        assert inspect.iscoroutinefunction(call)


def test_the_classes_of_the_contract() -> None:
    for abstract, in_memory, on_redis in (
        (StateService, InMemoryStateService, RedisStateService),
        (SessionHistoryService, InMemorySessionHistoryService, RedisSessionHistoryService),
        (MemoryService, InMemoryMemoryService, RedisMemoryService),
    ):
        assert issubclass(in_memory, abstract)
        assert issubclass(on_redis, abstract)
        assert isinstance(on_redis(), abstract)
        assert isinstance(on_redis(redis_url="redis://elsewhere:6379/1"), abstract)
        assert isinstance(abstract.over(Memory()), abstract)


async def test_a_round_that_is_replaced_stays_in_history(kind: Kind) -> None:
    async with kind.states() as states:
        for mood in ("calm", "glad", "tired"):
            assert await states.save_state(kind.user, {"mood": mood}, "s", round_id=3) == 3
        assert await states.list_rounds(kind.user, "s") == [3]
        assert await states.export_state(kind.user, "s", 3) == {"mood": "tired"}
        if kind.name != "http":
            log = states.repository.log(states.branch(kind.user, "s"))
            assert [states.repository.snapshot(commit)["mood"] for commit in log] == ["tired", "glad", "calm"]


async def test_the_history_of_every_session(kind: Kind) -> None:
    if kind.name == "http":  # history is for those who have the store
        assert not hasattr(kind.states(), "repository")
        return
    async with kind.states() as states, kind.histories() as histories, kind.memories() as memories:
        await states.save_state(kind.user, {"mood": "calm", "steps": [1]}, "s")
        await states.save_state(kind.user, {"mood": "calm", "steps": [1, 2]}, "s")
        branch = states.branch(kind.user, "s")
        assert str(states.repository.diff(f"{branch}~1", branch)) == "+ steps[1] = 2"
        assert [commit.meta["round"] for commit in states.repository.log(branch)] == [2, 1]
        assert states.repository.snapshot(f"{branch}~1")["steps"] == [1]
        with Versioned(states.repository, branch=branch) as state:
            state.undo()
        assert await states.export_state(kind.user, "s") == {"mood": "calm", "steps": [1]}

        session = await histories.create_session(kind.user, "s")
        await histories.append_message(session, said("first"))
        await histories.append_message(session, said("second"))
        branch = histories.branch(kind.user, "s")
        assert [str(change.path) for change in histories.repository.diff(f"{branch}~1", branch)] == ["messages[1]"]
        assert histories.repository.snapshot(f"{branch}~1").at("messages[0].content[0].text") == "first"

        await memories.add_memory(kind.user, [said("first")])
        await memories.add_memory(kind.user, [said("second")])
        branch = memories.branch(kind.user)
        with Versioned(memories.repository, branch=branch) as state:
            state.undo()
        assert texts_of(await memories.list_memory(kind.user)) == ["first"]
        assert texts_of(await memories.search_memory(kind.user, [said("first second")])) == ["first"]


async def test_nothing_expires_unless_it_is_asked_for(kind: Kind) -> None:
    async with kind.states() as states, kind.histories() as histories:
        for session_id, seconds in (("lasting", None), ("later", 3600), ("short", 0.2)):
            await states.save_state(kind.user, {}, session_id, ttl_seconds=seconds)
            await histories.create_session(kind.user, session_id, ttl_seconds=seconds)
        await histories.append_message(await histories.create_session(kind.user, "lasting"), said("hi"))
        if kind.name != "http":
            for service in (states, histories):
                expiries = {each.name: each.expires for each in service.repository.branches.iter_info()}
                assert expiries[service.branch(kind.user, "lasting")] is None
                assert expiries[service.branch(kind.user, "later")] is not None
        async with asyncio.timeout(20):
            for service in (states, histories):
                while len(await service.list_sessions(kind.user)) == 3:  # noqa: ASYNC110 - it ends by the clock alone
                    await asyncio.sleep(0.01)
        assert await states.export_state(kind.user, "short") is None
        assert await states.list_sessions(kind.user) == ["lasting", "later"]
        assert [each.id for each in await histories.list_sessions(kind.user)] == ["lasting", "later"]


async def test_a_blank_id_is_a_uuid(kind: Kind) -> None:
    async with kind.histories() as histories:
        for blank in (None, "", " \t"):
            session = await histories.create_session(kind.user, blank)
            assert str(UUID(session.id)) == session.id


def test_the_fields_of_a_message() -> None:
    message = Message()
    assert message.id.startswith("msg_")
    assert str(UUID(message.id.removeprefix("msg_"))) in message.id
    assert message.type == "message"
    names = "id type role content status metadata usage code message sequence_number object error".split()
    assert set(Message.model_fields) == set(names)
    assert TextContent(text="hi").type == "text"
    for role in ("assistant", "system", "user", "tool"):
        assert Message(role=role).role == role


async def test_an_adapter_implements_what_it_can() -> None:
    class Adapter(StateService):
        def __init__(self) -> None:
            self.saved: dict[str, dict[str, Any]] = {}

        async def health(self) -> bool:
            return True

        async def save_state(
            self,
            user_id: str,
            state: dict[str, Any],
            session_id: str | None = None,
            round_id: int | None = None,
            ttl_seconds: float | None = None,
        ) -> int:
            self.saved[user_id] = state
            return 1

        async def export_state(
            self, user_id: str, session_id: str | None = None, round_id: int | None = None
        ) -> dict[str, Any] | None:
            return self.saved.get(user_id)

    async with Adapter() as adapter:  # start and stop have nothing to do
        assert await adapter.save_state("u", {"n": 1}) == 1
        assert await adapter.export_state("u") == {"n": 1}
        for call in (adapter.list_sessions("u"), adapter.list_rounds("u"), adapter.delete_state("u")):
            with pytest.raises(NotImplementedError, match="Adapter"):
                await call

    class Remembering(MemoryService):
        kept: list[Any]

        async def health(self) -> bool:
            return True

        async def add_memory(self, user_id: str, messages: list[Any], session_id: str | None = None) -> None:
            self.kept = messages

        async def search_memory(self, user_id: str, messages: list[Any], filters: Any = None) -> list[Message]:
            return self.kept

        async def list_memory(self, user_id: str, filters: Any = None) -> list[Message]:
            return self.kept

        async def delete_memory(self, user_id: str, session_id: str | None = None) -> None:
            self.kept = []

    async with Remembering() as memories:
        message = said("hi")
        await memories.add_memory("u", [message])
        assert await memories.search_memory("u", [message]) == [message]
