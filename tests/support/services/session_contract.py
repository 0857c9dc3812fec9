"""`SessionServiceContract`: the promises of a session service, in process and over HTTP.

A test subclasses it and has a fixture `opened`, which gives a function that makes a service over one and the same
store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.support.services.history_contract import STRIPPED_IDS, texts
from tests.support.services.memory_contract import said, texts_of
from versioned_state.errors import (
    HandleClosedError,
    IdempotencyConflictError,
    InvalidArgumentError,
    MergeConflictError,
    PickleRefusedError,
    RefExistsError,
    SessionNotFoundError,
    UnserializableValueError,
)
from versioned_state.services import SessionService

Opened = Callable[..., SessionService]


@dataclass
class All:
    """All that a session has."""

    state: dict[str, Any] | None
    messages: list[str] | None
    memory: list[str]
    commits: int


async def all_of(service: SessionService, user: str = "u", session: str = "s") -> All:
    """Return all that a session has, and the memory of its user."""
    found = {each.id for each in await service.history.list_sessions(user)}
    history = await service.history.get_session(user, session) if session in found else None
    return All(
        await service.state.export_state(user, session),
        None if history is None else texts(history),
        texts_of(await service.memory.list_memory(user, {"page_size": 1000})),
        len(await service.log(user, session)),
    )


class SessionServiceContract:
    async def test_a_turn_is_one_commit_of_state_messages_and_memory(self, opened: Opened) -> None:
        async with opened() as service:
            async with service.turn("u", "s") as turn:
                assert dict(turn.state) == {}
                turn.append(said("To Rome!"))
                turn.append([said("When?", role="assistant"), said("In May.")])
                turn.state["trip"] = {"city": "Rome", "cost": Decimal("2.50"), "days": (1, 2)}
                turn.state["when"] = datetime(2026, 5, 1, tzinfo=UTC)
                turn.remember(said("alice likes Rome"))
            first = turn.commit
            assert first is not None
            assert [commit.id for commit in await service.log("u", "s")] == [first.id]
            assert first.meta["round"] == 1
            whole = await all_of(service)
            assert whole.messages == ["To Rome!", "When?", "In May."]
            assert whole.memory == ["alice likes Rome"]
            assert texts_of(await service.memory.search_memory("u", [said("rome")], {"rank": "bm25"})) == [
                "alice likes Rome"
            ]

            async with service.turn("u", "s", message="a second one") as turn:
                trip = turn.state["trip"]
                assert trip == {"city": "Rome", "cost": Decimal("2.50"), "days": (1, 2)}
                trip["city"] = "Oslo"
                trip["guests"] = ["bob"]
                del turn.state["when"]
            assert turn.commit is not None
            assert turn.commit.message == "a second one"
            assert turn.commit.parents == (first.id,)
            assert await service.state.export_state("u", "s") == {
                "trip": {"city": "Oslo", "cost": Decimal("2.50"), "days": (1, 2), "guests": ["bob"]}
            }
            assert (await service.state.export_state("u", "s", 1) or {})["trip"]["city"] == "Rome"
            assert await service.state.list_rounds("u", "s") == [1, 2]
            assert len(await service.log("u", "s", limit=1)) == 1

    async def test_what_a_caller_keeps_of_a_turn_is_not_in_the_next_one(self, opened: Opened) -> None:
        async with opened() as service:
            async with service.turn("u", "s") as turn:
                turn.state["list"] = kept = [1]
                message = said("one")
                turn.append(message)
                message.role = "system"
            kept.append(2)
            async with service.turn("u", "s") as turn:
                again = turn.state["list"]
                assert again == [1]
            again.append(3)
            async with service.turn("u", "s") as turn:
                turn.state["n"] = 1
            whole = await all_of(service)
            assert whole.state == {"list": [1], "n": 1}
            session = await service.history.get_session("u", "s")
            assert session is not None
            assert [getattr(each, "role", None) for each in session.messages] == ["user"]

    @pytest.mark.parametrize("end", ["error", "cancelled", "not stored", "not a message"])
    async def test_nothing_is_left_of_a_turn_that_fails(self, opened: Opened, end: str) -> None:
        async with opened() as service:
            async with service.turn("u", "s") as turn:
                turn.state["n"] = {"a": 1}
                turn.append(said("one"))
            before = await all_of(service)

            async def fail() -> None:
                async with service.turn("u", "s") as turn:
                    turn.state["n"]["a"] = 2
                    turn.state["m"] = 1
                    turn.append(said("two"))
                    turn.remember(said("two"))
                    if end == "error":
                        raise ZeroDivisionError
                    if end == "cancelled":
                        began.set()
                        await asyncio.Event().wait()
                    if end == "not stored":
                        turn.state["x"] = (number for number in range(3))
                    if end == "not a message":
                        turn.append({"role": 1})

            began = asyncio.Event()
            task = asyncio.create_task(fail())
            if end == "cancelled":
                await began.wait()
                task.cancel()
            with pytest.raises(
                (
                    ZeroDivisionError,
                    asyncio.CancelledError,
                    PickleRefusedError,
                    UnserializableValueError,
                    InvalidArgumentError,
                )
            ):
                await task
            assert await all_of(service) == before
            async with service.turn("u", "s") as turn:
                assert dict(turn.state) == {"n": {"a": 1}}
                turn.append(said("three"))
            assert (await all_of(service)).messages == ["one", "three"]

    async def test_a_message_is_there_once_by_its_id(self, opened: Opened) -> None:
        async with opened() as service:
            one, two = said("one"), said("two")
            async with service.turn("u", "s") as turn:
                turn.append([one, one])
                turn.append(two)
            first = turn.commit
            async with service.turn("u", "s") as turn:
                turn.append(one)
            assert turn.commit == first or (
                turn.commit is not None and first is not None and turn.commit.id == first.id
            )
            assert (await all_of(service)).messages == ["one", "two"]

            other = said("other")
            other.id = one.id
            before = await all_of(service)
            with pytest.raises(IdempotencyConflictError) as caught:  # noqa: PT012 - the end of the block raises
                async with service.turn("u", "s") as turn:
                    turn.state["n"] = 1
                    turn.append([said("three"), other])
            assert one.id in str(caught.value)
            assert turn.commit is None
            assert await all_of(service) == before

            session = await service.history.get_session("u", "s")
            assert session is not None
            await service.history.append_message(session, one)
            with pytest.raises(IdempotencyConflictError):
                await service.history.append_message(session, other)
            assert (await all_of(service)).messages == ["one", "two"]

    async def test_a_turn_without_changes_makes_no_commit(self, opened: Opened) -> None:
        async with opened() as service:
            async with service.turn("u", "s") as turn:
                assert "n" not in turn.state
            async with service.turn("u", "s") as turn:
                turn.state["n"] = [1]
            async with service.turn("u", "s") as again:
                assert again.state["n"] == [1]
            assert again.commit is not None
            assert turn.commit is not None
            assert again.commit.id == turn.commit.id

    async def test_undo_takes_back_all_of_the_last_turns(self, opened: Opened) -> None:
        async with opened() as service:
            seen = []
            for number in range(4):
                async with service.turn("u", "s") as turn:
                    turn.state["n"] = number
                    turn.append(said(f"m{number}"))
                    turn.remember(said(f"fact{number}"))
                assert turn.commit is not None
                seen.append((turn.commit.id, await all_of(service)))
            head = await service.undo("u", "s")
            assert head is not None
            assert (head.id, await all_of(service)) == seen[2]
            assert texts_of(await service.memory.search_memory("u", [said("fact3 fact2")])) == ["fact2"]
            head = await service.undo("u", "s", turns=2)
            assert head is not None
            assert (head.id, await all_of(service)) == seen[0]
            with pytest.raises(InvalidArgumentError, match="1 turn, not 2"):
                await service.undo("u", "s", 2)
            async with service.turn("u", "s") as turn:
                assert turn.state["n"] == 0
                turn.state["n"] = 5
            assert turn.commit is not None
            assert turn.commit.meta["round"] == 2
            assert await service.undo("u", "s", turns=2) is None
            assert await all_of(service) == All(None, None, [], 0)
            with pytest.raises(SessionNotFoundError):
                await service.undo("u", "s")
            async with service.turn("u", "s") as turn:
                assert dict(turn.state) == {}
                turn.append(said("anew"))
            assert (await all_of(service)).messages == ["anew"]
            for wrong in (0, -1, True, "1"):
                with pytest.raises(InvalidArgumentError, match="turns"):
                    await service.undo("u", "s", wrong)  # type: ignore[arg-type]

    async def test_a_fork_has_all_of_the_session_and_goes_its_own_way(self, opened: Opened) -> None:
        async with opened() as service:
            async with service.turn("u", "s") as turn:
                turn.state["n"] = 1
                turn.append(said("one"))
                turn.remember(said("fact"))
            copy = await service.fork("u", "s")
            assert copy != "s"
            assert await service.fork("u", "s", to="other") == "other"
            with pytest.raises(RefExistsError):
                await service.fork("u", "s", to="other")
            async with service.turn("u", copy) as turn:
                turn.state["n"] += 1
                turn.append(said("two"))
                turn.remember(said("fact of the copy"))
            assert (
                await service.state.export_state("u", "s") == await service.state.export_state("u", "other") == {"n": 1}
            )
            assert await service.state.export_state("u", copy) == {"n": 2}
            assert len(await service.log("u", copy)) == 2
            assert texts_of(await service.memory.search_memory("u", [said("fact")])) == ["fact", "fact of the copy"]
            assert sorted(each.id for each in await service.history.list_sessions("u")) == sorted(["s", copy, "other"])
            assert await service.undo("u", copy) is not None
            assert texts_of(await service.memory.search_memory("u", [said("fact")], {"rank": "bm25"})) == ["fact"]
            with pytest.raises(SessionNotFoundError):
                await service.fork("u", "nobody")

    async def test_turns_at_once_are_merged_by_path_and_keep_the_messages_of_both(self, opened: Opened) -> None:
        async with opened() as service:
            async with service.turn("u", "s") as turn:
                turn.state["plan"] = {"city": "Rome", "days": 3}

            async def change(number: int) -> None:
                async with service.turn("u", "s") as turn:
                    await ready.wait()
                    turn.append([said(f"{number} a"), said(f"{number} b")])
                    turn.state["plan"][f"by {number}"] = number
                    turn.remember(said(f"fact {number}"))

            ready = asyncio.Barrier(6)
            await asyncio.gather(*(change(number) for number in range(6)))
            whole = await all_of(service)
            assert whole.state == {
                "plan": {"city": "Rome", "days": 3, **{f"by {number}": number for number in range(6)}}
            }
            assert whole.messages is not None
            pairs = [whole.messages[at : at + 2] for at in range(0, 12, 2)]
            assert sorted(pairs) == [[f"{number} a", f"{number} b"] for number in range(6)]
            assert sorted(whole.memory) == [f"fact {number}" for number in range(6)]
            assert await service.state.list_rounds("u", "s") == list(range(1, 8))
            assert whole.commits == 7

    async def test_of_two_turns_that_change_one_part_the_later_one_fails_whole(self, opened: Opened) -> None:
        async with opened() as service:
            async with service.turn("u", "s") as turn:
                turn.state["n"] = 0
            with pytest.raises(MergeConflictError):  # noqa: PT012 - the end of the block raises
                async with service.turn("u", "s") as late:
                    async with service.turn("u", "s") as turn:
                        turn.state["n"] = 1
                        turn.append(said("first"))
                    late.state["n"] = 2
                    late.append(said("late"))
            whole = await all_of(service)
            assert (whole.state, whole.messages, whole.commits) == ({"n": 1}, ["first"], 2)

    async def test_the_services_work_on_the_same_session(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.history.create_session("u", "s")
            await service.history.append_message(session, said("one"))
            await service.state.save_state("u", {"n": 1}, "s")
            await service.memory.add_memory("u", [said("fact")], "s")
            async with service.turn("u", "s") as turn:
                assert dict(turn.state) == {"n": 1}
                turn.state["n"] = 2
                turn.append(said("two"))
            await service.state.save_state("u", {"m": 3}, "s")
            assert await all_of(service) == All({"m": 3}, ["one", "two"], ["fact"], 6)
            assert await service.undo("u", "s") is not None
            assert await all_of(service) == All({"n": 2}, ["one", "two"], ["fact"], 5)
            await service.memory.delete_memory("u", "s")
            assert (await all_of(service)).memory == []
            await service.delete_session("u", "s")
            assert await all_of(service) == All(None, None, [], 0)
            await service.delete_session("u", "s")

    async def test_wrong_calls(self, opened: Opened) -> None:
        async with opened() as service:
            for user, session in (("u", ""), ("u", None), (1, "s")):
                with pytest.raises(InvalidArgumentError):
                    service.turn(user, session)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError, match="ttl_seconds"):
                service.turn("u", "s", ttl_seconds=-1)
            turn = service.turn("u", "s")
            with pytest.raises(HandleClosedError):
                _ = turn.state
            with pytest.raises(HandleClosedError):
                turn.append(said("early"))
            async with turn:
                turn.state["n"] = 1
                state = turn.state
            with pytest.raises(HandleClosedError):
                turn.remember(said("late"))
            with pytest.raises(HandleClosedError):
                state["n"] = 2
            with pytest.raises(InvalidArgumentError, match="one block"):
                async with turn:
                    pass
            assert await service.log("u", "nobody") == []
            assert (await all_of(service)).state == {"n": 1}

    async def test_ids_of_any_characters(self, opened: Opened) -> None:
        async with opened() as service:
            for id in STRIPPED_IDS:
                async with service.turn(id, id) as turn:
                    turn.state["id"] = id
                    turn.append(said("words"))
                    turn.remember(said("fact"))
                assert await service.fork(id, id, to=id + "2") == id + "2"
            for id in STRIPPED_IDS:
                assert await service.state.export_state(id, id) == {"id": id}
                assert id in [each.id for each in await service.history.list_sessions(id)]
                assert id in await service.state.list_sessions(id)
                assert len(await service.memory.search_memory(id, [said("fact")])) == 1
