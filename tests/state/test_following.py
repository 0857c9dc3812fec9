"""Live values of any kind follow the head through anything: no change is lost, nothing held is detached in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.support.handles import RollbackWantedError, committed
from tests.support.registrations import forgotten
from versioned_state import Memory, Versioned, register

MOVES: dict[str, Callable[[Versioned], object]] = {
    "refresh": lambda state: state.refresh(),
    "commit": lambda state: state.commit("mine"),
}


def moved_under(value: Any, theirs: Any) -> Versioned:
    """A handle whose ``value``, and a list beside it, another writer has changed."""
    state = committed(Memory(), value=value, z=[1])
    other = Versioned(state.repository)
    other["value"] = theirs
    other["z"].append(2)
    other.commit()
    state["mine"] = 1
    return state


class Locked(dict[str, Any]):
    """Cannot be changed in place."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("locked")

    clear = update = None  # type: ignore[assignment]


class Interrupting:
    """Ctrl-C, while it is read."""

    armed = False

    def __init__(self, n: int = 0) -> None:
        self.n = n


def _read(data: int) -> Interrupting:
    if Interrupting.armed:
        Interrupting.armed = False
        raise KeyboardInterrupt
    return Interrupting(data)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with forgotten():
        register(Locked, "test.Locked", dict, Locked)
        register(Interrupting, "test.Interrupting", lambda value: value.n, _read)
        yield


@pytest.mark.parametrize("move", MOVES)
def test_what_cannot_be_mended_in_place_is_let_go(move):
    buffer = bytearray(b"abc")
    state = moved_under(buffer, bytearray(b"longer"))
    with memoryview(buffer):  # as a socket call holds one: it cannot be resized
        MOVES[move](state)
    assert [state["value"], state["z"], buffer] == [b"longer", [1, 2], b"abc"]
    locked = moved_under(Locked(a=1), Locked(a=2))
    MOVES[move](locked)
    assert [locked["value"], locked["z"]] == [{"a": 2}, [1, 2]]
    state["z"].append(3)
    state.commit()
    assert Versioned(state.repository)["z"] == [1, 2, 3]


@pytest.mark.parametrize("move", MOVES)
def test_an_interrupt_while_values_follow_loses_nothing(move):
    state = moved_under(Interrupting(1), Interrupting(2))
    held = state["z"]
    Interrupting.armed = True
    with pytest.raises(KeyboardInterrupt):
        MOVES[move](state)
    held.insert(0, 9)
    state.commit()
    again = Versioned(state.repository)
    assert [again["z"], again["mine"], again["value"].n] == [[9, 1, 2], 1, 2]
    assert state["z"] is held


@pytest.mark.parametrize("way", ["refresh", "commit", "merge", "switch"])
def test_a_list_stays_where_an_element_of_it_stands_elsewhere_too(way):
    state = Versioned(Memory())
    user = {"name": "x"}
    state["current"], state["users"] = user, [user]
    users = state["users"]
    state.commit()
    other = state.fork("dev") if way in ("merge", "switch") else Versioned(state.repository)
    other["current"]["name"] = "y"
    other.commit()
    match way:
        case "commit":
            state["mine"] = 1
            state.commit()
        case "refresh":
            state.refresh()
        case _:
            getattr(state, way)("dev")
    assert state["users"] is users
    assert [state["current"], users] == [{"name": "y"}, [{"name": "x"}]]
    users.append({"name": "new"})
    assert [str(change.path) for change in state.status()] == ["users[1]"]


def test_an_object_that_is_twice_in_a_list():
    state = Versioned(Memory())
    twice = {"n": 1}
    held = state["l"] = [{"p": 1}, twice, {"q": 0}, twice, {"q": 1}]
    state.commit()
    other = Versioned(state.repository)
    for index, key in ((0, "p"), (1, "n"), (4, "q")):
        other["l"][index][key] = 5
    other.commit()
    state.refresh()
    assert state["l"] is held
    assert held == [{"p": 5}, {"n": 5}, {"q": 0}, {"n": 1}, {"q": 5}]


@pytest.mark.parametrize(
    ("ours", "theirs"), [({1}, {True, 5}), ({(1, "a")}, {(1.0, "a")}), ({0.0}, {-0.0}), ({"a", 2}, {"a", 3})]
)
def test_a_set_whose_elements_became_equal_ones_of_another_type(ours, theirs):
    state = Versioned(Memory())
    held = state["d"] = {"tags": ours, "log": []}
    state.commit()
    other = Versioned(state.repository)
    other["d"]["tags"] = theirs
    other.commit()
    state.refresh()
    assert state["d"] is held
    assert sorted(map(repr, held["tags"])) == sorted(map(repr, theirs))
    held["log"].append("x")
    assert [str(change.path) for change in state.status()] == ["d.log[0]"]


def test_a_failed_transaction_restores_all_that_it_can():
    state = Versioned()
    buffer = state["a"] = bytearray(b"abc")
    state["z"] = [1]
    state.commit()

    with suppress(RollbackWantedError), state.transaction():
        state["a"] += b"more"
        state["z"].append(2)
        view = memoryview(buffer)
        raise RollbackWantedError
    assert [bytes(state["a"]), state["z"]] == [b"abc", [1]]
    view.release()


def test_a_transaction_where_something_is_staged_that_cannot_be_stored():
    state = Versioned()
    lock = state["lock"] = threading.Lock()
    assert state.commit(skip_unserializable=True).skipped == ("lock",)
    with state.transaction(skip_unserializable=True):
        state["a"] = 1
    assert state.checkout("HEAD").copy() == {"a": 1}

    with suppress(RollbackWantedError), state.transaction(skip_unserializable=True):
        state["a"], state["lock"] = 2, 3
        raise RollbackWantedError
    assert state["a"] == 1
    assert state["lock"] is lock


def test_what_a_skipped_value_replaced_comes_back():
    state = Versioned()
    held = state["a"] = [1]
    state.commit()
    state["a"] = threading.Lock()
    state["b"] = 1
    assert state.commit(skip_unserializable=True).skipped == ("a",)
    state.discard()
    assert state["a"] is held
    assert state["b"] == 1


def test_nothing_appended_is_no_list():
    state = Versioned()
    state.sequence("log").extend([])
    assert "log" not in state
    assert dict(state) == {}
    state.sequence("log").append(1)
    assert dict(state) == {"log": [1]}


# Lists that are not loaded, and what becomes of them


def test_what_a_failed_transaction_appended_does_not_come_back():
    begun = committed(l=[1])
    state = Versioned(begun.repository)
    state.sequence("l").append(2)

    with suppress(RollbackWantedError), state.transaction():
        assert state["l"] == [1, 2]
        del state["l"]
        state.sequence("l").append(9)
        raise RollbackWantedError
    assert state["l"] == [1, 2]
    state.commit()
    assert state.release("l")
    assert state["l"] == [1, 2]


def test_a_new_list_that_was_begun_anew_in_a_failed_transaction_is_listed():
    state = Versioned()
    state.sequence("l").append(1)

    with suppress(RollbackWantedError), state.transaction():
        state["l"] = [5]
        del state["l"]
        state.sequence("l").append(1)
        raise RollbackWantedError
    assert ["l" in state, len(state), list(state), state["l"]] == [True, 1, ["l"], [1]]


def test_a_list_that_two_began_alike_is_listed_once():
    state = Versioned()
    committed(state.repository, m=[1])
    state.sequence("m").append(1)
    state.refresh()
    assert [list(state), len(state), state["m"]] == [["m"], 1, [1]]
