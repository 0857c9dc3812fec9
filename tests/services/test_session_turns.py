"""Turns of the session service: failures, other processes, files, older stores, users, and what turns cost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.event_loop import steps_of
from tests.support.services.history_contract import text as said
from tests.support.services.memory_contract import texts_of
from tests.support.services.service_changes import look, take_turn
from tests.support.services.session_contract import all_of
from versioned_state import Disk, Memory, Repository
from versioned_state.agents.workspace import files_of
from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    InvalidArgumentError,
    QuotaExceededError,
    ServiceNotStartedError,
    StorageError,
)
from versioned_state.services import SessionService
from versioned_state.services.agent_state import StateService
from versioned_state.services.memory import MemoryService
from versioned_state.services.sandbox import SandboxService
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.services.users import read_export
from versioned_state.storage import Counting
from versioned_state.storage.wrapper import Wrapper
from versioned_state.storage.wrappers.faulty import Fault, Faulty

# Failures


@pytest.mark.parametrize("fault", Fault)
def test_a_turn_over_a_store_that_fails_is_there_whole_or_not_at_all(fault: Fault) -> None:
    async def attempt(at: int) -> bool:
        store = Memory()
        async with SessionService.over(store) as service:
            await take_turn(service, "first")
            before = await look(service)
            await take_turn(service, "second")
            after = await look(service)
            await service.undo("u", "s")
        faulty = Faulty(store, fault=fault)
        async with SessionService.over(faulty) as service, SessionService.over(store) as other:
            faulty.at = faulty.calls + at
            error = None
            try:
                await take_turn(service, "second")
            except StorageError as caught:
                error = caught
            faulty.at = None
            found = await look(other)
            assert found in (
                [before, after] if isinstance(error, CommitInDoubtError) else [before] if error else [after]
            )
            await take_turn(service, "third")
            assert (await all_of(other)).messages == ["first", *(["second"] if found == after else []), "third"]
            return faulty.fired

    assert steps_of(attempt) > 3


WRITER = """
    import asyncio, sys
    from versioned_state.services import SessionService

    def said(text):
        return {"role": "user", "content": [{"type": "text", "text": text}]}

    async def lane(service, name):
        for number in range(10_000):
            async with service.turn("u", "s") as turn:
                turn.append([said(f"{name}.{number}"), said(f"answer to {name}.{number}")])
                turn.state[name] = number
                turn.remember(said(f"fact {name}.{number}"))
            print(f"{name}.{number}", flush=True)

    async def main(path):
        async with SessionService.over(path) as service:
            await asyncio.gather(*(lane(service, f"{sys.argv[2]}{number}") for number in range(2)))

    asyncio.run(main(sys.argv[1]))
"""


def test_a_killed_process_leaves_whole_turns_and_others_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with SessionService.over(f"disk:{tmp_path / 'store'}") as service:
            running = [processes.start(WRITER, tmp_path / "store", name) for name in "ab"]
            told: list[str] = []
            for each in running:
                assert each.stdout is not None
                told += [each.stdout.readline().strip() for _ in range(4)]
            await take_turn(service, "beside")
            for each in running:
                os.kill(each.pid, signal.SIGKILL)
                told += each.communicate(timeout=20)[0].split("\n")[:-1]
            await take_turn(service, "after")
            whole = await all_of(service)
        state, messages = whole.state, whole.messages
        assert state is not None
        assert messages is not None
        assert set(told) <= set(messages)
        assert len(messages) == len(set(messages))
        for name in ("a0", "a1", "b0", "b1"):
            asked = [each for each in messages if each.startswith(f"{name}.")]
            assert asked == [f"{name}.{number}" for number in range(len(asked))]
            # the state and the messages of a turn are there together, or neither
            assert state.get(name, -1) == len(asked) - 1
            assert all(messages[messages.index(each) + 1] == f"answer to {each}" for each in asked)
            assert sum(each.startswith(f"fact {name}.") for each in whole.memory) == len(asked)
        assert whole.commits == len(messages) - sum(each.startswith("answer") for each in messages)

    asyncio.run(run())
    assert Repository(Disk(tmp_path / "store")).fsck().ok


async def test_a_turn_of_a_session_that_is_deleted_meanwhile_begins_none_anew() -> None:
    async with SessionService.over(Memory()) as service:
        await take_turn(service, "first")
        with pytest.raises(Exception, match="nothing of the turn was committed"):  # noqa: PT012 - the end of the block raises
            async with service.turn("u", "s") as turn:
                turn.append(said("late"))
                await service.delete_session("u", "s")
        assert turn.commit is None
        assert (await all_of(service)).commits == 0


@pytest.mark.parametrize("turns", [1, 40, 70])
async def test_a_turn_whose_head_was_pruned_and_collected_meanwhile_is_committed_or_must_be_run_again(
    turns: int,
) -> None:
    """Committed where its changes need nothing of that head that is not in memory.

    The ids of messages decide where values are cut.
    """
    store = Memory()
    async with SessionService.over(store) as service, SessionService.over(Wrapper(store)) as other:
        for number in range(turns):
            await take_turn(other, f"{number} {random.randbytes(30).hex()}")
        failure: BranchMovedError | None = None
        try:
            async with service.turn("u", "s") as turn:
                turn.append(said("mine"))
                turn.state["mine"] = 1
                await take_turn(other, "theirs")
                Repository(Wrapper(store)).prune(keep_last=1, expire=timedelta(), gc=True)
        except BranchMovedError as error:
            failure = error
        if failure is not None:
            assert (failure.remains, failure.hint) == ("nothing of the turn was committed", "run the turn again")
        assert (turn.commit is None) == (failure is not None)
        assert ("mine" in (await service.state.export_state("u", "s") or {})) == (failure is None)
        await take_turn(service, "again")
        messages = (await all_of(other)).messages
        assert messages is not None
        assert messages[turns:] == ["theirs", *(["mine"] if failure is None else []), "again"]


async def test_a_turn_of_a_stopped_service_leaves_nothing() -> None:
    service = SessionService.over(Memory())
    async with service:
        await take_turn(service, "first")
        turn = service.turn("u", "s")
        await turn.__aenter__()
        turn.append(said("late"))
    with pytest.raises(ServiceNotStartedError):
        await turn.__aexit__(None, None, None)
    with pytest.raises(ServiceNotStartedError):
        async with service.turn("u", "s"):
            pass
    async with service:
        assert (await all_of(service)).messages == ["first"]


# Bounds


async def test_bounds_of_state_messages_and_sessions() -> None:
    service = SessionService.over(
        Memory(), max_state_bytes=1000, max_message_bytes=500, max_messages_per_session=4, max_rounds=9
    )
    async with service:
        for wrong in ({"state": "x" * 2000}, {"message": "x" * 1000}):
            with pytest.raises(QuotaExceededError):  # noqa: PT012 - the end of the block raises
                async with service.turn("u", "s") as turn:
                    turn.state["n"] = wrong.get("state")
                    turn.append(said(wrong.get("message", "short")))
        assert (await all_of(service)).commits == 0
        for number in range(4):
            async with service.turn("u", "s") as turn:
                turn.append([{"id": f"{number}{part}", **said(f"{number}{part}")} for part in "abc"])
        assert (await all_of(service)).messages == ["2c", "3a", "3b", "3c"]
        async with service.turn("u", "s") as turn:  # one that has left, and one that is there
            turn.append([{"id": "0a", **said("0a")}, {"id": "3b", **said("3b")}])
        assert (await all_of(service)).messages == ["2c", "3a", "3b", "3c"]
        await service.undo("u", "s")
        assert (await all_of(service)).messages == ["1c", "2a", "2b", "2c"]
    with pytest.raises(TypeError, match="nonsense"):
        SessionService.over(Memory(), nonsense=1)


async def test_an_undo_beyond_pruned_history_says_so_and_changes_nothing() -> None:
    async with SessionService.over(Memory()) as service:
        for text in ("first", "second", "third"):
            await take_turn(service, text)
        service.repository.prune(keep_last=2)
        for turns, message in (
            (3, r"has 2 turns, not 3; older history was pruned"),
            (2, r"before turn \w+ is not there; older history was pruned"),
        ):
            with pytest.raises(InvalidArgumentError, match=message):
                await service.undo("u", "s", turns=turns)
        assert (await all_of(service)).messages == ["first", "second", "third"]
        await service.undo("u", "s")
        assert (await all_of(service)).messages == ["first", "second"]
        with pytest.raises(InvalidArgumentError, match="older history was pruned"):
            await service.undo("u", "s")


async def test_a_session_expires_and_begins_anew() -> None:
    async with SessionService.over(Memory(), ttl_seconds=0.05) as service:
        await take_turn(service, "first")
        while await service.log("u", "s"):  # noqa: ASYNC110 - it ends by the clock alone
            await asyncio.sleep(0.01)
        assert (await all_of(service)).messages is None
        async with service.turn("u", "s", ttl_seconds=0) as turn:
            assert dict(turn.state) == {}
            turn.append(said("anew"))
        await asyncio.sleep(0.06)
        assert (await all_of(service)).messages == ["anew"]


# Files


async def test_the_files_of_a_workspace_are_in_the_commit_of_a_turn(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    async with SessionService.over(Memory()) as service:

        async def turn(text: str, *, fails: bool = False) -> None:
            async with service.turn("u", "s", workspace=folder) as turn:
                turn.state["n"] = text
                (folder / "notes.txt").write_text(text)
                assert FILES_KEY not in turn.state
                if fails:
                    raise ZeroDivisionError

        for text in ("one", "two"):
            await turn(text)
        with pytest.raises(ZeroDivisionError):
            await turn("three", fails=True)
        assert (folder / "notes.txt").read_text() == "two"
        head, before = await service.log("u", "s")
        for commit, text in ((head, "two"), (before, "one")):
            snapshot = service.repository.snapshot(commit)
            assert dict(files_of(snapshot, FILES_KEY)) == {"notes.txt": text.encode()}
            assert snapshot["n"] == text
        assert await service.state.export_state("u", "s") == {"n": "two"}
        async with service.turn("u", "s") as plain:
            assert dict(plain.state) == {"n": "two"}
            with pytest.raises(InvalidArgumentError, match="files"):
                plain.state[FILES_KEY] = 1
            plain.state["m"] = 1
        assert dict(files_of(service.repository.snapshot(service.branch("u", "s")), FILES_KEY)) == {"notes.txt": b"two"}
        await service.undo("u", "s", turns=2)
        async with service.turn("u", "s", workspace=folder):
            pass
        assert (folder / "notes.txt").read_text() == "one"


async def test_the_files_of_a_sandbox_are_in_the_commit_of_a_turn() -> None:
    async with SessionService.over(Memory()) as service:
        sandboxes = SandboxService(service.state)
        (files,) = sandboxes.connect("s", "u", ["filesystem"])
        try:
            files.write_file("notes.txt", "one")
            await take_turn(service, "first")
            files.write_file("notes.txt", "two")
            await take_turn(service, "second")
        finally:
            sandboxes.release("s", "u")
        found = [
            dict(files_of(service.repository.snapshot(commit), FILES_KEY)) for commit in await service.log("u", "s")
        ]
        assert found == [{"notes.txt": b"two"}, {"notes.txt": b"one"}]
        assert (await all_of(service)).messages == ["first", "second"]


# Older stores


async def separate(store: Any, user: str = "u", session: str = "s", count: int = 3) -> None:
    """Write a session with the separate services."""
    async with (
        StateService.over(store) as states,
        SessionHistoryService.over(store) as histories,
        MemoryService.over(store) as memories,
    ):
        await states.save_state(user, {"n": 1}, session)
        made = await histories.create_session(user, session)
        await histories.append_message(made, [{"id": f"m{number}", **said(f"m{number}")} for number in range(count)])
        await memories.add_memory(user, [said("an older fact")], session)


@pytest.mark.parametrize("first", ["turn", "read", "append", "fork", "list"])
@pytest.mark.parametrize("session", ["s", "x" * 300])
async def test_it_opens_what_the_separate_services_have_written(first: str, session: str) -> None:
    store = Memory()
    await separate(store, session=session)
    async with SessionService.over(store) as service:
        if first == "turn":
            async with service.turn("u", session) as turn:
                assert dict(turn.state) == {"n": 1}
        elif first == "append":
            found = await service.history.get_session("u", session, last=0)
            assert found is not None
            await service.history.append_message(found, {"id": "m1", **said("m1")})
        elif first == "fork":
            await service.fork("u", session, to="copy")
            assert (await all_of(service, session="copy")).messages == ["m0", "m1", "m2"]
        elif first == "list":
            assert [each.id for each in await service.history.list_sessions("u")] == [session]
        async with service.turn("u", session) as turn:
            turn.append([{"id": "m2", **said("m2")}, said("new")])
            turn.state["n"] += 1
            turn.remember(said("a newer fact"))
        whole = await all_of(service, session=session)
        assert (whole.state, whole.messages) == ({"n": 2}, ["m0", "m1", "m2", "new"])
        assert texts_of(await service.memory.search_memory("u", [said("fact")])) == ["an older fact", "a newer fact"]
        await service.undo("u", session)
        whole = await all_of(service, session=session)
        assert (whole.state, whole.messages, whole.memory) == ({"n": 1}, ["m0", "m1", "m2"], ["an older fact"])
        await service.memory.delete_memory("u", session)
        assert (await all_of(service, session=session)).memory == []
    async with SessionHistoryService.over(store, create_missing=False) as histories:
        assert await histories.get_session("u", session) is None  # moved, so that nobody writes beside it


def test_a_crash_while_an_older_session_is_taken_in_loses_nothing_and_takes_nothing_twice() -> None:
    async def attempt(at: int) -> bool:
        store = Memory()
        await separate(store, count=5)
        faulty = Faulty(store, at=at, fault=Fault.AFTER)
        with suppress(StorageError):
            async with SessionService.over(faulty) as service:
                await service.history.get_session("u", "s")
        async with SessionService.over(store) as service:
            assert (await all_of(service)).messages == [f"m{number}" for number in range(5)]
        return faulty.fired

    assert steps_of(attempt) > 5


# Users


async def test_all_of_a_user_is_exported_and_erased(tmp_path: Path) -> None:
    store = Disk(tmp_path / "store")
    async with SessionService.over(store) as service:
        await take_turn(service, "secret")
        await take_turn(service, "of another", user="v")
        assert len(await service.memory.search_memory("u", [said("fact")])) == 1
        await service.state.export_user("u", tmp_path / "export")
        kinds = {each.kind: each.content for each in read_export(tmp_path / "export")}
        assert kinds["state"]["n"] == "secret"
        assert texts_in(kinds["messages"]) == ["secret"]
        assert texts_in(kinds["memory"]) == ["fact secret"]
        report = await service.delete_user("u")
        assert report.is_complete
        assert (await all_of(service)).commits == 0
        assert (await all_of(service, "v")).messages == ["of another"]
    store.close()
    raw = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert b"secret" not in raw


def texts_in(content: Any) -> list[str]:
    return [each["content"][0]["text"] for each in content]


# Costs


async def test_a_turn_asks_the_store_no_more_often_than_a_save_and_an_append_together() -> None:
    store, apart = Counting(Memory()), Counting(Memory())
    async with (
        SessionService.over(store) as service,
        StateService.over(apart) as states,
        SessionHistoryService.over(apart) as histories,
    ):

        async def turn(user: str, number: int) -> None:
            async with service.turn(user, "s") as turn:
                turn.state["n"] = number
                turn.append(said(f"{number}"))

        async def separately(user: str, number: int) -> None:
            session = await histories.get_session(user, "s", last=0)
            assert session is not None
            state = await states.export_state(user, "s") or {}
            await states.save_state(user, {**state, "n": number}, "s")
            await histories.append_message(session, said(f"{number}"))

        cost = {}
        for work, counting in ((turn, store), (separately, apart)):
            for number in range(3):
                await asyncio.gather(*(work(f"u{user}", number) for user in range(20)))
            counting.reset()
            for number in range(3, 6):
                await asyncio.gather(*(work(f"u{user}", number) for user in range(20)))
            cost[work] = counting.reset()
        assert cost[turn].round_trips <= cost[separately].round_trips
        assert cost[turn].applies <= cost[separately].applies / 2


async def test_a_turn_costs_the_same_in_a_short_and_in_a_long_session() -> None:
    read, asked, written = {}, {}, {}
    for size in (100, 5_000):
        store = Counting(Memory())
        async with SessionService.over(store) as service, service.turn("u", "s") as turn:
            turn.append([{"id": f"{number:08}", **said(f"message {number}")} for number in range(size)])
            turn.state["big"] = [f"value {number}" for number in range(size)]
        async with SessionService.over(store) as service:
            store.reset()
            async with service.turn("u", "s") as turn:
                turn.append([{"id": "new", **said("new")}, {"id": "newer", **said("newer")}])
                turn.state["n"] = 1
            counts = store.reset()
            read[size], asked[size], written[size] = counts.bytes_read, counts.round_trips, counts.bytes_written
    assert asked[5_000] <= 12
    assert written[5_000] < 4 * written[100] < 16_000
    assert read[5_000] < 4 * max(read[100], 4_000)
