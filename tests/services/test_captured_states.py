"""Long new values: the loop captures them, a worker encodes them, and the state is saved as it was at the call."""

from __future__ import annotations

from asyncio import ensure_future, gather, sleep
from collections.abc import Callable
from copy import deepcopy
from threading import Event, Lock
from typing import Any

import pytest

from versioned_state import Memory, Repository
from versioned_state.agents.modules.containers import captured
from versioned_state.errors import LimitExceededError, UnserializableValueError
from versioned_state.services.agent_state import InMemoryStateService
from versioned_state.services.agent_state.session_handle import Session, SessionHandle, is_long
from versioned_state.services.session_history import SessionHistoryService

LONG = 9_000


class Note:
    """An instance, which no copy of containers captures."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note) and other.text == self.text

    __hash__ = None  # type: ignore[assignment]


def test_only_plain_values_are_captured() -> None:
    value = {"a": [1, {"b": ["c", None]}, b"d"], 2: {}}
    twin = captured(value)
    assert twin == value
    value["a"][1]["b"].append("later")  # type: ignore[index]
    assert twin == {"a": [1, {"b": ["c", None]}, b"d"], 2: {}}
    endless: list[Any] = []
    endless.append(endless)
    for other in (endless, Note("a"), [Note("a")], {(1, 2): 3}, [{1}], [(1,)], {"a": bytearray()}):
        assert captured(other) is None


def test_long_values_are_told_by_a_glance() -> None:
    assert all(
        map(
            is_long,
            ["x" * (1 << 18), b"x" * (1 << 18), [0] * LONG, dict.fromkeys(range(LONG)), {"a": {"b": [0] * LONG}}],
        )
    )
    assert not any(map(is_long, ["x" * 1000, [0] * 1000, {"a": {"b": [0] * 1000}}, {}, [], 1, Note("a")]))
    assert is_long([0] * 2 * LONG, LONG)
    assert not is_long([0] * (LONG + 1000), LONG)
    assert is_long({n: {"in": dict.fromkeys(range(90))} for n in range(100)})


async def test_a_dict_that_contains_itself_or_is_too_deep_is_saved_or_refused_whether_the_session_is_known_or_not() -> (
    None
):
    endless: dict[str, Any] = {"n": 1}
    endless.update(a=endless, b=endless)
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"in": deep}
    async with InMemoryStateService() as service:
        for number in range(1, 4):
            assert await service.save_state("u", {"endless": endless}) == number
            found = (await service.export_state("u") or {})["endless"]
            assert found["a"] is found["b"] is found
            with pytest.raises(LimitExceededError, match="depth"):
                await service.save_state("u", {"deep": deep})


def messages(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"message {n}"} for n in range(count)]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], Callable[[dict[str, Any]], object]]] = {
    "a new list": (lambda state: state.update(new=messages(LONG)), lambda state: state["new"][5].update(role="late")),
    "a list in a dict": (
        lambda state: state.update(new={"in": messages(LONG)}),
        lambda state: state["new"]["in"].clear(),
    ),
    "a list that grows": (lambda state: state["long"].extend(messages(LONG)), lambda state: state["long"].pop()),
    "a text that is replaced": (
        lambda state: state.update(text="other\n" * 60_000),
        lambda state: state.update(text="late"),
    ),
    "instances in a list": (
        lambda state: state.update(new=[Note(f"{n}") for n in range(LONG)]),
        lambda state: setattr(state["new"][7], "text", "late"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_state_is_saved_as_it_is_at_the_call_however_long_it_is(change: str) -> None:
    before, later = CHANGES[change]
    async with InMemoryStateService(threads=1) as service:
        state: dict[str, Any] = {"long": messages(LONG), "text": "line\n" * 60_000, "n": 1}
        await service.save_state("u", state)
        await service.save_state("u", state)
        let_go = Event()
        assert service._lanes is not None
        service._lanes.submit("busy", lambda: let_go.wait(20))  # no call begins before the state has changed
        before(state)
        state["n"] = 2
        expected = deepcopy(state)
        saves = [ensure_future(service.save_state("u", state))]
        await sleep(0)
        later(state)
        state["n"] = 3
        let_go.set()
        saves += [ensure_future(service.save_state("u", {"n": 4})), ensure_future(service.save_state("v", {"n": 5}))]
        assert await gather(*saves) == [3, 4, 1]
        assert await service.export_state("u", None, 3) == expected
        assert await service.export_state("u") == {"n": 4}
        assert service.repository.fsck().ok


async def test_instances_are_saved_as_they_are_at_the_call_if_no_handle_knows_the_session_or_it_is_busy() -> None:
    async with InMemoryStateService(threads=1) as service:
        note, lock = Note("a"), Lock()
        state: dict[str, Any] = {"note": note, "two": [note, note], "deep": ({"in": [note]}, {1}), "n": None}
        saves = []
        for number in range(3):
            note.text = f"{number}"
            saves.append(ensure_future(service.save_state("u", state)))
            await sleep(0)
        note.text = "late"
        assert await gather(*saves) == [1, 2, 3]
        for number in range(3):
            then = Note(f"{number}")
            found = await service.export_state("u", None, number + 1)
            assert found == {"note": then, "two": [then, then], "deep": ({"in": [then]}, {1}), "n": None}
            assert found["two"][0] is found["two"][1]
        with pytest.raises(UnserializableValueError, match=r"bad\[1\]"):
            await service.save_state("v", {"bad": [1, lock]})


async def test_instances_in_a_message_are_stored_as_they_are_at_the_call() -> None:
    async with SessionHistoryService.over(Memory()) as service:
        session = await service.create_session("u", "s")
        note = Note("a")
        call = ensure_future(
            service.append_message(session, {"role": "user", "content": [], "metadata": {"in": [note]}, "more": note})
        )
        await sleep(0)
        note.text = "late"
        await call
        found = (await service.get_session("u", "s")).messages[0].model_dump()  # type: ignore[union-attr]
        assert (found["metadata"], found["more"]) == ({"in": [Note("a")]}, Note("a"))


@pytest.mark.parametrize("change", ["a list that grows", "a text that is replaced"])
def test_the_loop_leaves_long_values_to_the_worker_and_both_encode_the_same(change: str) -> None:
    session = Session("u", "s", has_plain_name=True)
    state: dict[str, Any] = {"long": messages(LONG), "text": "line\n" * 60_000, "n": 1}
    handle = SessionHandle(Repository(Memory()), branch="u/s")
    handle.save(session, handle.encoded(state), None)
    CHANGES[change][0](state)
    del state["n"]
    encoded = handle.encoded(state, sealed=True)
    assert len(encoded.late) == 1
    handle.complete(encoded)
    assert not encoded.late
    whole = handle.encoded(state)
    assert encoded.equals(whole)
    assert sorted(encoded.changed) == sorted(whole.changed)


async def test_a_long_value_that_cannot_be_stored_is_refused_and_the_session_goes_on() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    async with InMemoryStateService() as service:
        await service.save_state("u", {"n": 1})
        await service.save_state("u", {"n": 2})
        with pytest.raises(LimitExceededError, match="nothing was saved"):
            await service.save_state("u", {"n": 3, "long": [*range(LONG), deep]})
        assert await service.save_state("u", {"n": 4}) == 3
        assert await service.list_rounds("u") == [1, 2, 3]
