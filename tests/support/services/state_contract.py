"""`StateServiceContract`: the promises of a state service, whatever is beneath.

A backend's test subclasses it and has a fixture `opened`, which gives a function that makes a service over one and the
same store.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from versioned_state.errors import InvalidArgumentError, LimitExceededError, StateError
from versioned_state.services.agent_state import StateService

Opened = Callable[[], StateService]

HOSTILE_IDS = [
    *("", " ", "/", "..", "a/b", "../../etc", "\0", "\r\nX: y", "a\nb", "\ud800", "\udcff", "é", "x" * 300),
    *("%", "%h", "%hab", "%2F", "a&b=c", "a+b", "#", "?", "*", "@", "HEAD"),
    "default",
]
"""Ids of any characters, among them those with a meaning in names of branches, in URLs and in HTTP."""


@dataclass
class Mood:
    name: str
    since: int


class StateServiceContract:
    async def test_the_document(self, opened: Opened) -> None:
        async with opened() as service:
            round_id = await service.save_state(user_id="User1", session_id="TestSession", state={"memory": ["hi"]})
            assert round_id == 1
            assert await service.export_state(user_id="User1", session_id="TestSession") == {"memory": ["hi"]}
            assert await service.health()

    async def test_rounds_count_up_and_the_latest_is_the_highest(self, opened: Opened) -> None:
        async with opened() as service:
            assert [await service.save_state("u", {"n": n}) for n in range(3)] == [1, 2, 3]
            assert await service.save_state("u", {"n": 10}, round_id=10) == 10
            assert await service.save_state("u", {"n": "three"}, round_id=3) == 3
            assert await service.export_state("u") == {"n": 10}
            assert await service.save_state("u", {"n": 11}) == 11
            assert await service.list_rounds("u") == [1, 2, 3, 10, 11]
            contents = [await service.export_state("u", None, each) for each in (1, 2, 3, 10, 11)]
            assert contents == [{"n": 0}, {"n": 1}, {"n": "three"}, {"n": 10}, {"n": 11}]

    async def test_a_falsy_session_is_the_default_one(self, opened: Opened) -> None:
        async with opened() as service:
            for number, session in enumerate((None, "", "default"), 1):
                assert await service.save_state("u", {"n": number}, session_id=session) == number
            assert await service.list_sessions("u") == ["default"]
            assert await service.export_state("u", "") == await service.export_state("u", "default") == {"n": 3}

    async def test_what_is_missing_is_none(self, opened: Opened) -> None:
        async with opened() as service:
            await service.save_state("u", {}, "s")
            assert await service.export_state("nobody") is None
            assert await service.export_state("u", "other") is None
            assert await service.export_state("u", "s", 2) is None
            assert await service.export_state("u", "s", -1) is None
            assert await service.export_state("u", "s", 10**30) is None
            assert await service.export_state("u", "s") == {}
            assert await service.list_sessions("nobody") == []
            assert await service.list_rounds("nobody", "s") == []
            for call in (
                service.delete_state("nobody"),
                service.delete_state("u", "s", 7),
                service.delete_state("u", "other", 7),
            ):
                await call
            assert await service.list_rounds("u", "s") == [1]

    async def test_types_come_back_as_they_were(self, opened: Opened) -> None:
        state: dict[str, Any] = {
            "tuple": (1, (2, [3])),
            "ints": {1: "a", "1": "c", (1, 2): None, None: 0},
            "set": {1, 2},
            "numbers": [1, 1.0, True, -0.0, 2**80, Decimal("1.10"), 1 + 2j],
            "bytes": [b"\0\xff", bytearray(b"x")],
            "text": "\udcff\0é",
            "when": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "none": None,
            "": {"": []},
            "long": "x" * 100_000,
            "order": {"b": 1, "a": 2},
        }
        async with opened() as service:
            await service.save_state("u", state)
            back = await service.export_state("u")
            assert back == state
            assert back is not None
            assert repr(back["numbers"]) == repr(state["numbers"])
            assert [type(each) for each in back["bytes"]] == [bytes, bytearray]
            assert [type(key) for key in back["ints"]] == [type(key) for key in state["ints"]]
            assert list(back["order"]) == ["b", "a"]
            await service.save_state("u", {"nan": math.nan})
            exported = await service.export_state("u")
            assert exported is not None
            assert math.isnan(exported["nan"])

    async def test_what_goes_in_and_out_is_a_copy(self, opened: Opened) -> None:
        async with opened() as service:
            state = {"messages": [{"text": "hi"}]}
            saving = asyncio.ensure_future(service.save_state("u", state))
            await asyncio.sleep(0)
            state["messages"][0]["text"] = "changed while it is saved"
            await saving
            exported = await service.export_state("u")
            assert exported == {"messages": [{"text": "hi"}]}
            exported["messages"].append("mine")
            assert await service.export_state("u") == {"messages": [{"text": "hi"}]}
            state["messages"].append({"text": "more"})
            assert await service.save_state("u", state) == 2
            assert await service.export_state("u") == state
            assert await service.export_state("u", None, 1) == {"messages": [{"text": "hi"}]}

    async def test_a_state_replaces_the_one_before(self, opened: Opened) -> None:
        async with opened() as service:
            await service.save_state("u", {"a": 1, "b": {"c": 2, "d": 3}})
            await service.save_state("u", {"b": {"c": 2}, "e": 4})
            assert await service.export_state("u") == {"b": {"c": 2}, "e": 4}
            assert await service.save_state("u", {"b": {"c": 2}, "e": 4}) == 3  # the same again is a round too
            await service.save_state("u", {})
            assert await service.export_state("u") == {}
            assert await service.list_rounds("u") == [1, 2, 3, 4]

    @pytest.mark.parametrize("state", [None, [], "text", 1, {1: 2}, {("a",): 1}, {None: 1}, {b"k": 1}], ids=repr)
    async def test_no_state_that_is_not_a_dict_with_string_keys(self, opened: Opened, state: Any) -> None:
        async with opened() as service:
            await service.save_state("u", {"n": 1})
            with pytest.raises(InvalidArgumentError, match="nothing was saved"):
                await service.save_state("u", state)
            assert await service.list_rounds("u") == [1]
            assert await service.save_state("u", {"n": 2}) == 2

    async def test_a_value_that_cannot_be_stored_saves_nothing(self, opened: Opened) -> None:
        async with opened() as service:
            await service.save_state("u", {"n": 1})
            deep: list[Any] = []
            for _ in range(200):
                deep = [deep]
            for bad in (threading.Lock(), deep):
                with pytest.raises(StateError, match="bad"):
                    await service.save_state("u", {"n": 2, "bad": bad})
            assert await service.export_state("u") == {"n": 1}
            assert await service.save_state("u", {"n": 2}) == 2
            assert await service.export_state("u") == {"n": 2}

    @pytest.mark.parametrize("number", [-1, True, False, "1", 1.0, b"1", 2**63], ids=repr)
    async def test_a_number_that_no_round_can_have(self, opened: Opened, number: Any) -> None:
        async with opened() as service:
            with pytest.raises((InvalidArgumentError, LimitExceededError), match="round_id"):
                await service.save_state("u", {}, round_id=number)
            assert await service.list_sessions("u") == []
            if type(number) is not int:
                for call in (service.export_state("u", None, number), service.delete_state("u", None, number)):
                    with pytest.raises(InvalidArgumentError, match="round_id"):
                        await call

    async def test_round_0_and_a_large_one(self, opened: Opened) -> None:
        async with opened() as service:
            assert await service.save_state("u", {"n": 0}, round_id=0) == 0
            assert await service.export_state("u", None, 0) == await service.export_state("u") == {"n": 0}
            assert await service.save_state("u", {"n": 1}) == 1
            assert await service.save_state("u", {"n": 2}, round_id=2**63 - 1) == 2**63 - 1
            assert await service.list_rounds("u") == [0, 1, 2**63 - 1]
            with pytest.raises(LimitExceededError):
                await service.save_state("u", {"n": 3})
            assert await service.export_state("u") == {"n": 2}

    async def test_ids_of_any_characters_are_one_to_one(self, opened: Opened) -> None:
        async with opened() as service:
            for number, id in enumerate(HOSTILE_IDS):
                await service.save_state(id, {"n": number}, session_id=id)
                await service.save_state("u", {"n": number}, session_id=id)
            for number, id in enumerate(HOSTILE_IDS):
                # The empty one is "default", which comes last.
                expected = {"n": len(HOSTILE_IDS) - 1} if not id else {"n": number}
                assert await service.export_state("u", id) == expected
                assert await service.export_state(id, id) == (expected if id else {"n": 0})
                assert await service.list_sessions(id) == [id or "default"]
            assert await service.list_sessions("u") == sorted(filter(None, HOSTILE_IDS))
            assert await service.save_state("a_b", {"n": 1}, "c") == await service.save_state("a", {"n": 2}, "b_c") == 1

    @pytest.mark.parametrize("id", [None, 1, b"u", ("u",)], ids=repr)
    async def test_ids_are_strings(self, opened: Opened, id: Any) -> None:
        async with opened() as service:
            for call in (
                service.save_state(id, {}),
                service.export_state(id),
                service.list_sessions(id),
                service.list_rounds(id),
            ):
                with pytest.raises(InvalidArgumentError, match="user_id must be a string"):
                    await call
            with pytest.raises(InvalidArgumentError, match="user_id must be a string"):
                await service.delete_state(id)
            if id is not None:
                with pytest.raises(InvalidArgumentError, match="session_id must be a string"):
                    await service.save_state("u", {}, session_id=id)

    async def test_a_deleted_round_is_gone_and_the_others_stay(self, opened: Opened) -> None:
        async with opened() as service:
            for number in (1, 2, 10, 3):
                await service.save_state("u", {"n": number, "only": {number}}, round_id=number)
            await service.delete_state("u", None, 2)
            await service.delete_state("u", None, 2)
            assert await service.list_rounds("u") == [1, 3, 10]
            assert await service.export_state("u", None, 2) is None
            assert [await service.export_state("u", None, n) for n in (1, 3, 10)] == [
                {"n": n, "only": {n}} for n in (1, 3, 10)
            ]
            await service.delete_state("u", None, 3)  # the one that was saved last
            await service.delete_state("u", None, 10)
            assert await service.export_state("u") == {"n": 1, "only": {1}}
            assert await service.save_state("u", {"n": "two"}) == 2
            assert await service.list_rounds("u") == [1, 2]

    async def test_without_rounds_numbering_begins_at_1(self, opened: Opened) -> None:
        async with opened() as service:
            await service.save_state("u", {"n": 7}, round_id=7)
            await service.delete_state("u", None, 7)
            assert await service.export_state("u") is None
            assert await service.list_sessions("u") == []
            assert await service.list_rounds("u") == []
            assert await service.save_state("u", {"n": 1}) == 1
            await service.save_state("u", {"n": 2})
            await service.save_state("u", {"other": True}, "s")
            await service.delete_state("u")
            assert await service.export_state("u") is None
            assert await service.list_sessions("u") == ["s"]
            assert await service.save_state("u", {"m": 1}) == 1
            assert await service.export_state("u") == {"m": 1}

    async def test_another_service_over_the_store_sees_it(self, opened: Opened) -> None:
        async with opened() as one, opened() as other:
            assert await one.save_state("u", {"n": 1}) == 1
            assert await other.save_state("u", {"n": 2}) == 2
            assert await one.export_state("u") == {"n": 2}
            assert await one.save_state("u", {"n": 3, "k": [1]}) == 3
            assert await other.save_state("u", {"n": 3, "k": [2]}) == 4
            await one.delete_state("u")
            assert await other.export_state("u") is None
            assert await other.save_state("u", {"n": 5}) == 1
            await one.delete_state("u", None, 1)
            assert await other.save_state("u", {"n": 6}) == 1
            assert await one.export_state("u", None, 1) == {"n": 6}

    async def test_all_concurrent_saves_are_rounds_of_their_own(self, opened: Opened, long_run: bool) -> None:  # noqa: FBT001 - a fixture
        clients, saves = 4, 100 if long_run else 25
        services = [opened() for _ in range(clients)]
        for service in services:
            await service.start()
        calls = [
            service.save_state("u", {"from": n, "save": m}) for m in range(saves) for n, service in enumerate(services)
        ]
        rounds = await asyncio.gather(*calls)
        assert sorted(rounds) == list(range(1, clients * saves + 1))
        assert await services[0].list_rounds("u") == sorted(rounds)
        found = [await services[1].export_state("u", None, number) for number in rounds]
        assert found == [{"from": n, "save": m} for m in range(saves) for n in range(clients)]
        for service in services:
            await service.stop()

    async def test_a_state_stays_over_a_restart(self, opened: Opened) -> None:
        service = opened()
        async with service:
            await service.save_state("u", {"n": 1})
        async with service:
            assert await service.export_state("u") == {"n": 1}


class TypedStates:
    """Instances as values, over stores that only this user can write to: beside `StateServiceContract`."""

    async def test_instances_are_data(self, opened: Opened) -> None:
        async with opened() as service:
            mood = Mood("calm", 1)
            await service.save_state("u", {"mood": mood, "all": [mood, Mood("glad", 2)]})
            mood.name = "changed"
            assert await service.export_state("u") == {
                "mood": Mood("calm", 1),
                "all": [Mood("calm", 1), Mood("glad", 2)],
            }
