"""The session history service under failures: store faults, hangs, cancellation, other processes, kill -9, expiry."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes, store_openers
from tests.support.event_loop import steps_of
from tests.support.services.clock import Clock
from tests.support.services.history_contract import text, texts
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import CommitInDoubtError, QuotaExceededError, SessionNotFoundError, StorageError
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import RedisSessionHistoryService, SessionHistoryService
from versioned_state.services.users import export_user, read_export
from versioned_state.storage.wrappers.faulty import Fault, Faulty


def named() -> Session:
    return Session(id="s", user_id="u")


async def kept(store: Any) -> list[str]:
    async with SessionHistoryService.over(store) as service:
        return texts(await service.get_session("u", "s"))


# Faults of the store


async def made_once(faulty: Faulty, at: int, call: Awaitable[None]) -> BaseException | None:
    """Make a call while its call of the store with this number fails, if there is one. Return the error."""
    faulty.at = faulty.calls + at
    try:
        await call
    except StorageError as error:
        return error
    finally:
        faulty.at = None
    return None


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("opened", ["cold", "warm"])
def test_an_append_to_a_store_that_fails_happens_or_does_not(fault: Fault, opened: str) -> None:
    async def attempt(at: int) -> bool:
        store = Memory()
        async with SessionHistoryService.over(store) as service:
            await service.append_message(await service.create_session("u", "s"), text("first"))
        faulty = Faulty(store, fault=fault)
        async with SessionHistoryService.over(faulty) as service:
            if opened == "warm":
                await service.append_message(named(), text("warm"))
            session = named()
            error = await made_once(faulty, at, service.append_message(session, text("second")))
            found = await kept(store)
            assert texts(session) == ([] if error else ["second"])
            assert isinstance(error, CommitInDoubtError) or ("second" in found) == (error is None)
            await service.append_message(session, text("third"))
            assert await kept(store) == [*found, "third"]
            return faulty.fired

    assert steps_of(attempt) > 1


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize(
    "name", ["create_session", "get_session", "delete_session", "list_sessions", "delete_user_sessions"]
)
def test_a_call_to_a_store_that_fails_can_be_made_again(name: str, fault: Fault) -> None:
    arguments = {"create_session": ("u", "new"), "get_session": ("u", "new"), "delete_session": ("u", "s")}.get(
        name, ("u",)
    )
    left = {"create_session": ["new", "s"], "get_session": ["new", "s"], "list_sessions": ["s"]}.get(name, [])

    async def attempt(at: int) -> bool:
        store = Memory()
        async with SessionHistoryService.over(store) as service:
            await service.append_message(await service.create_session("u", "s"), text("first"))
        faulty = Faulty(store, fault=fault)
        async with SessionHistoryService.over(faulty) as service:
            if await made_once(faulty, at, getattr(service, name)(*arguments)):
                await getattr(service, name)(*arguments)
            assert [each.id for each in await service.list_sessions("u")] == left
            return faulty.fired

    assert steps_of(attempt) > 1


# Cancellation


def test_a_cancelled_append_is_stored_with_its_session_object_or_not_at_all() -> None:
    async def attempt(turns: int) -> bool:
        """Cancel after this many turns of the loop. Return whether the call had not ended by then."""
        store = Memory()
        async with SessionHistoryService.over(store) as service:
            await service.create_session("u", "s")
            session = named()
            call = asyncio.ensure_future(service.append_message(session, [text("a"), text("b")]))
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns > 3:
                await asyncio.sleep(0.0002 * (turns - 3))
            ended = call.done()
            call.cancel()
            try:
                await call
                assert texts(session) == ["a", "b"]
            except asyncio.CancelledError:
                pass
            assert texts(session) == texts(await service.get_session("u", "s"))
            assert texts(session) in ([], ["a", "b"])
            await service.append_message(session, text("c"))
            assert texts(session) == texts(await service.get_session("u", "s"))
            return not ended

    assert steps_of(attempt, first=0)


def test_a_redis_client_is_refused() -> None:
    with pytest.raises(ValueError, match="redis_client"):
        RedisSessionHistoryService(redis_client=object())


# Threads and processes


def disk(request: pytest.FixtureRequest, folder: Path) -> store_openers.Opener:
    return lambda: Disk(folder / "store")


@pytest.mark.parametrize(
    "opener", [disk, store_openers.redis, store_openers.postgres], ids=["disk", "redis", "postgres"]
)
def test_processes_that_append_at_once_keep_every_message(
    request: pytest.FixtureRequest, tmp_path: Path, opener: Any
) -> None:
    opened = opener(request, tmp_path)

    async def client(number: int) -> None:
        store = opened()
        async with SessionHistoryService.over(store) as service:
            await service.get_session("u", "s")  # each of them may be the first
            await asyncio.gather(*(service.append_message(named(), text(f"{number}.{n}")) for n in range(100)))
        store.close()

    processes.join(*(processes.fork(lambda number=number: asyncio.run(client(number))) for number in range(4)))  # type: ignore[misc]
    store = opened()
    found = asyncio.run(kept(store))
    assert sorted(found) == sorted(f"{number}.{n}" for number in range(4) for n in range(100))
    assert Repository(store).fsck().ok
    store.close()


WRITER = """
    import asyncio, sys
    from versioned_state.services.session_history import SessionHistoryService
    from versioned_state.services.schemas.session import Session

    async def main():
        async with SessionHistoryService.over(sys.argv[1]) as service:
            session = await service.get_session("u", "s")
            async def write(lane):
                for n in range(100_000):
                    message = {"content": [{"type": "text", "text": f"{lane}.{n}"}]}
                    await service.append_message(Session(id="s", user_id="u"), message)
                    print(f"{lane}.{n}", flush=True)
            await asyncio.gather(*(write(lane) for lane in range(4)))

    asyncio.run(main())
"""


def test_what_a_killed_process_was_told_is_stored_is_stored_and_others_go_on(tmp_path: Path) -> None:
    url = f"disk:{tmp_path / 'store'}"

    async def run() -> None:
        async with SessionHistoryService.over(url) as service:
            session = await service.create_session("u", "s")
            process = processes.start(WRITER, url)
            assert process.stdout is not None
            said = [process.stdout.readline().strip() for _ in range(30)]
            await service.append_message(session, text("beside"))
            os.kill(process.pid, signal.SIGKILL)
            said += process.communicate(timeout=20)[0].split("\n")[:-1]
            await service.append_message(session, text("after"))
            found = texts(await service.get_session("u", "s"))
        assert set(said) <= set(found)
        assert len(found) == len(set(found))
        assert found[-1] == "after"
        assert "beside" in found
        for lane in range(4):
            mine = [int(each.partition(".")[2]) for each in found if each.startswith(f"{lane}.")]
            assert mine == list(range(len(mine)))

    asyncio.run(run())
    assert Repository(Disk(tmp_path / "store")).fsck().ok


# Time to live, and what users do by hand


async def test_a_session_whose_time_is_over_is_gone_whether_or_not_it_was_removed() -> None:
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    async with (
        SessionHistoryService.over(repository, ttl_seconds=60) as service,
        SessionHistoryService.over(repository) as other,
    ):
        for name, ttl in (("default", None), ("long", 600.0), ("ever", 0)):
            session = await service.create_session("u", name, ttl_seconds=ttl)
            await service.append_message(session, text("hi"))
        clock.wait(50)
        await other.append_message(Session(id="default", user_id="u"), text("renewed"))
        clock.wait(50)
        assert texts(await service.get_session("u", "default")) == ["hi", "renewed"]
        # its handle does not know of the renewal
        await service.append_message(Session(id="default", user_id="u"), text("again"))
        assert texts(await other.get_session("u", "default")) == ["hi", "renewed", "again"]
        clock.wait(70)
        assert [each.id for each in await service.list_sessions("u")] == ["ever", "long"]
        for each in (service, other):
            with pytest.raises(SessionNotFoundError):
                await each.append_message(Session(id="default", user_id="u"), text("late"))
        fresh = await service.get_session("u", "default")  # it was not deleted, so it is created again
        assert fresh is not None
        assert texts(fresh) == []
        await service.append_message(fresh, text("new"))
        assert texts(await other.get_session("u", "default")) == ["new"]
        await service.append_message(Session(id="long", user_id="u"), text("for ever"), ttl_seconds=0)
        clock.wait(10_000)
        repository.expire()
        assert [each.id for each in await other.list_sessions("u")] == ["ever", "long"]
        with pytest.raises(SessionNotFoundError):
            await service.append_message(fresh, text("late"))
        assert texts(await service.create_session("u", "default")) == []


async def test_the_history_of_a_session_is_that_of_its_branch() -> None:
    async with SessionHistoryService.over(Memory()) as service:
        session = await service.create_session("alice", "trip")
        await service.append_message(session, text("Rome?"))
        await service.append_message(session, text("Oslo?"))
        repository, branch = service.repository, service.branch("alice", "trip")
        assert [commit.message for commit in repository.log(branch)][:3] == [
            "messages +1",
            "messages +1",
            "session created",
        ]
        (change,) = repository.diff(f"{branch}~1", branch).changes
        assert str(change.path) == "messages[1]"
        assert repository.snapshot(branch).at("messages[1].content[0].text") == "Oslo?"
        with Versioned(repository, branch=branch) as state:
            state.undo()
        assert texts(await service.get_session("alice", "trip")) == ["Rome?"]
        await service.append_message(session, text("Bergen?"))
        with Versioned(repository, branch=branch) as state:
            state["messages"][0]["content"][0]["text"] = "edited"
            state["messages"].append({"role": "robot"})
            state["title"] = "by hand"
            state.commit()
            what_if = state.fork(service.branch("alice", "what if"))
            what_if.close()
        found = await service.get_session("alice", "trip")
        assert found is not None
        assert texts(found) == ["edited", "Bergen?", ""]
        assert found.messages[2] == {"role": "robot"}
        await service.append_message(Session(id="what if", user_id="alice"), text("Tromsø?"))
        assert texts(await service.get_session("alice", "what if"))[-1] == "Tromsø?"
        assert [each.id for each in await service.list_sessions("alice")] == ["trip", "what if"]
        long = await service.create_session("alice", "x" * 300)
        for fork in ("z", "y" * 300):  # the session with the longer id does not know it
            repository.branches.create(service.branch("alice", fork), at=service.branch("alice", long.id))
        assert sorted(each.id for each in await service.list_sessions("alice")) == ["trip", "what if", long.id, "z"]


async def test_a_user_is_erased_with_proof_and_exported_with_ids_of_any_length(tmp_path: Path) -> None:
    async with SessionHistoryService.over(Memory()) as service, SessionHistoryService.over(service.repository) as other:
        long = "x" * 300
        for user, name in (("u", "s"), ("u", long), ("v", "s")):
            await service.append_message(await service.create_session(user, name), text(f"{user} said so"))
        await service.delete_session("u", "s")
        await other.append_message(Session(id=long, user_id="u"), text("from elsewhere"))
        export_user(service.repository, "u", tmp_path / "export")
        records = list(read_export(tmp_path / "export"))
        assert [(each.kind, each.session_id) for each in records] == [("messages", long)]
        assert records[0].content["messages"][0]["content"][0]["text"] == "u said so"
        erased = await service.delete_user("u")
        assert erased.is_complete
        assert sorted(erased.branches) == sorted(service.branch("u", each) for each in ("s", long))
        for each in (service, other):
            with pytest.raises(SessionNotFoundError):
                await each.append_message(Session(id=long, user_id="u"), text("late"))
        assert texts(await other.create_session("u", long)) == []
        await service.append_message(Session(id=long, user_id="u"), text("anew"))
        assert texts(await other.get_session("u", long)) == ["anew"]
        assert texts(await other.get_session("v", "s")) == ["v said so"]


async def test_quotas_refuse_what_is_beyond_them_and_nothing_else() -> None:
    async with SessionHistoryService.over(Memory(), max_message_bytes=1_000, max_messages=3, max_sessions=2) as service:
        session = await service.create_session("u", "s")
        with pytest.raises(QuotaExceededError, match="size of a message"):
            await service.append_message(session, [text("small"), text("x" * 2_000)])
        given = [[text("1")], [text("2a"), text("2b"), text("2c")], [text("3")], [text("4")], [text("5")]]
        outcomes = await asyncio.gather(
            *(service.append_message(session, each) for each in given), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [
            type(None),
            QuotaExceededError,
            type(None),
            type(None),
            QuotaExceededError,
        ]
        assert texts(session) == texts(await service.get_session("u", "s")) == ["1", "3", "4"]
        async with SessionHistoryService.over(service.repository) as other:
            await other.delete_session("u", "s")
            await other.create_session("u", "s")
        await service.append_message(session, text("5"))  # its handle does not know that there is room
        await service.create_session("u", "t")
        for call in (service.create_session("u", "v"), service.get_session("u", "v")):
            with pytest.raises(QuotaExceededError, match="number of sessions"):
                await call
        await service.create_session("u", "t")
        await service.delete_session("u", "t")
        await service.create_session("u", "v")
        assert [each.id for each in await service.list_sessions("u")] == ["s", "v"]
    for name in ("max_message_bytes", "max_messages", "max_sessions"):
        with pytest.raises(ValueError, match=name):
            SessionHistoryService.over(Memory(), **{name: -1})


async def test_equal_histories_of_two_users_are_stored_once() -> None:
    store = Memory()
    messages = [{"id": f"msg_{n}", **text(f"{n} " + "words " * 100)} for n in range(1_000)]
    async with SessionHistoryService.over(store) as service:
        sizes = []
        for user in ("u", "v"):
            await service.append_message(await service.create_session(user, "s"), messages)
            sizes.append(sum(len(value) for _, value in store.items()))
        assert sizes[1] - sizes[0] < sizes[0] / 10


async def test_an_append_costs_no_wall_of_time_while_gc_runs_beside() -> None:
    store = Memory()
    async with SessionHistoryService.over(store) as service:
        session = await service.create_session("u", "s")
        stop = threading.Event()

        def collect() -> None:
            while not stop.is_set():
                Repository(store).gc()
                time.sleep(0.001)

        collector = threading.Thread(target=collect)
        collector.start()
        try:
            for n in range(40):
                await service.append_message(session, text(str(n)))
                if n % 10 == 9:
                    await service.delete_session("u", "s")
                    session = await service.create_session("u", "s")
        finally:
            stop.set()
            collector.join()
        await service.append_message(session, text("last"))
        assert texts(await service.get_session("u", "s")) == ["last"]
        assert service.repository.fsck().ok
