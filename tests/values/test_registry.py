"""Values of types that are not built in are stored as a name and data, or as objects.

Registration gives a type a name of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pydantic
import pytest

from tests.support.exact import same
from tests.support.registrations import forget
from versioned_state import Memory, ObjectInfo, Repository, Tagged, Versioned, register
from versioned_state.errors import InvalidArgumentError, PickleRefusedError, StateError, UnserializableValueError


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Mode(enum.StrEnum):
    FAST = "fast"


@dataclass
class Note:
    text: str
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Money(Decimal):
    __slots__ = ()


class Lossy(Plain):
    def __getstate__(self) -> dict[str, Any]:
        return {}


OBJECTS: dict[str, Any] = {
    "an instance that says how it is pickled": Lossy(a=1),
    "defaultdict with a factory of its own": defaultdict(Plain, a=1),
    "type": Plain,
    "function": len,
    "subclass of a type of C": Money("1.10"),
    "an instance of a class without a name": type("Nobody", (Plain,), {})(a=1),
    "slice": slice(1),
    "SimpleNamespace": SimpleNamespace(a=1),
}


def commit_and_read(value: Any) -> Any:
    """The value as read by a snapshot of a store that refuses pickles."""
    repository = Repository(Memory(), pickle="refuse")
    state = Versioned(repository)
    state["value"] = value
    commit = state.commit()
    again = Versioned(Repository(repository.store, pickle="refuse"))
    assert same(again["value"], value)
    assert not again.status()
    return repository.snapshot(commit)["value"]


@pytest.mark.parametrize("filler", [0, 3000])
@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_no_data_is_an_object(name, filler):
    value = [OBJECTS[name], "x" * filler]
    repository = Repository(Memory())
    state = Versioned(repository)
    state["value"] = value
    commit = state.commit()
    described = repository.snapshot(commit, describe=True)["value"]
    assert isinstance(described[0], ObjectInfo)
    assert described[0].type_name.endswith(type(OBJECTS[name]).__qualname__)
    if name not in ("an instance that says how it is pickled", "an instance of a class without a name"):
        assert repository.snapshot(commit)["value"] == value or name.startswith("defaultdict")


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_is_refused_where_pickling_is(name):
    state = Versioned(pickle="refuse")
    state["value"] = {"at": [OBJECTS[name]]}
    with pytest.raises(PickleRefusedError, match=r"value\.at\[0\]"):
        state.commit()


class Model(pydantic.BaseModel):
    role: str
    parts: list[dict[str, int]] = []


REGISTERED: dict[str, Any] = {
    "dataclass": Note("a", ["b"]),
    "frozen dataclass with slots": Point(1.0, -0.0),
    "pydantic model": Model(role="user", parts=[{"a": 1}]),
    "Enum": Colour.BLUE,
    "IntEnum": Level.LOW,
    "IntFlag": Access.READ | Access.WRITE,
    "StrEnum": Mode.FAST,
}


@pytest.mark.parametrize("name", REGISTERED)
def test_ready_made_registration(name):
    value = REGISTERED[name]
    register(type(value), "test." + name)
    read = commit_and_read([value, {"deep": (value,)}, [value] * 500])
    assert read[0] == value
    assert type(read[0]) is type(value) is type(read[1]["deep"][0])


@pytest.mark.no_oracle("the registration changes within the test")
def test_registration_with_functions_of_ones_own():
    register(Plain, "plain", lambda plain: [plain.a], lambda data: Plain(a=data[0], restored=True))
    state = Versioned(pickle="refuse")
    state["value"] = Plain(a={1, 2})
    read = state.checkout(state.commit())["value"]
    assert (read.a, read.restored) == ({1, 2}, True)


def test_registered_types_within_each_other_and_as_keys():
    register(Note, "note")
    register(Point, "point")
    value = {Point(1.0, 2.0): Note("a", [Point(0.0, 0.0)]), (Point(1.0, 1.0),): [frozenset({Point(5.0, 5.0)})]}  # type: ignore[list-item]
    read = commit_and_read(value)
    assert same(read, value)


@pytest.mark.no_oracle("the registration changes within the test")
def test_an_unknown_name_reads_as_tagged_and_is_stored_again_as_it_was():
    register(Note, "note")
    repository = Repository(Memory(), pickle="refuse")
    state = Versioned(repository)
    state["value"] = {"notes": [Note("a", ["b"])] * 100, "one": Note("c")}
    commit = state.commit()
    forget(Note)

    other = Versioned(repository, branch="other")
    read = repository.snapshot(commit)["value"]
    assert read["one"] == Tagged("note", {"text": "c", "tags": []})
    other["value"] = read
    assert other.commit().root == commit.root
    read["one"].fields["text"] = "changed"
    assert [str(change.path) for change in other.status()] == ["value.one.text"]

    register(Note, "note")
    assert repository.snapshot(other.commit())["value"]["one"] == Note("changed")


def test_changes_of_a_registered_value_are_its_data_not_its_pickle():
    """Its own pickling may leave out what its registration keeps."""

    register(Lossy, "lossy", lambda value: value.a, lambda data: Lossy(a=data))
    for count in (1, 20, 2000):
        state = Versioned()
        state["values"] = [Lossy(a=1) for _ in range(count)]
        state.commit()
        state["values"][count // 2].a = 2
        assert len(state.status()) == 1, count


def test_a_class_of_the_same_qualified_name_in_another_module_does_not_take_the_name():
    register(Note, "note")
    other = dataclasses.make_dataclass("Note", [("text", str)])
    other.__module__ = "another.module"  # since Python 3.12, make_dataclass itself names the module that calls it
    with pytest.raises(InvalidArgumentError, match=f"registered for {Note.__module__}:Note") as caught:
        register(other, "note")
    assert "also=" in caught.value.hint
    reloaded = dataclasses.make_dataclass("Note", [("text", str)], namespace={"__module__": Note.__module__})
    assert register(reloaded, "note") is reloaded


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((Lossy,), "customises pickling by __getstate__; give to_data and from_data"),
        ((Money,), "it has state in C; give to_data and from_data"),
        ((Plain, "x", lambda value: value), "both"),
        ((Plain, "deque", id, Plain), "registered for collections:deque"),
        ((Plain, 5, id, Plain), "a string of one character or more, not 5"),
        ((Plain, "", id, Plain), "a string of one character or more, not ''"),
        ((dict, "x", dict, dict), "dict is data as it is"),
        ((Decimal, "x", str, Decimal), "Decimal is data as it is"),
        ((5, "x", id, Plain), "takes a type"),
    ],
)
def test_bad_registration(arguments, reason):
    with pytest.raises(InvalidArgumentError, match=reason):
        register(*arguments)


def test_a_name_alone_is_not_registered_and_the_error_says_how_to():
    with pytest.raises(InvalidArgumentError, match="takes a type, not 'note'") as caught:
        register("note")  # type: ignore[arg-type]
    assert "register(YourClass, 'note')" in caught.value.hint


@pytest.mark.parametrize("name", [5, None, b"x", ""])
def test_a_tagged_value_without_a_name(name):
    with pytest.raises(InvalidArgumentError, match="the name of a type must be a string"):
        Tagged(name, 1)


def test_to_data_that_fails_names_the_value():
    register(Plain, "plain", lambda plain: plain.missing, lambda data: Plain(a=data))
    state = Versioned()
    state["value"] = [1, {"at": Plain()}]
    with pytest.raises(UnserializableValueError, match=r"value\[1\]\.at of type .*Plain.*missing"):
        state.commit()


@pytest.mark.no_oracle("the registration changes within the test")
def test_from_data_that_fails_says_so_and_spoils_nothing_else():
    register(Plain, "plain", lambda plain: 1, lambda data: data.missing)
    state = Versioned()
    state["bad"] = Plain()
    state["good"] = 1
    past = state.checkout(state.commit())
    with pytest.raises(StateError, match="'plain' could not be read"):
        past["bad"]
    assert past["good"] == 1


def test_the_attributes_of_a_tagged_value_say_where_its_fields_are():
    tagged = Tagged("shop:Price", {"amount": 3})
    with pytest.raises(
        AttributeError, match=r"'amount': this shop:Price was read as Tagged, since .*; its fields are in \.fields"
    ):
        tagged.amount  # noqa: B018
    for change in (
        lambda: setattr(tagged, "amount", 4),
        lambda: setattr(tagged, "fields", {}),
        lambda: delattr(tagged, "name"),
    ):
        with pytest.raises(
            AttributeError, match=r"this shop:Price was read as Tagged, since .*; change its fields in \.fields"
        ):
            change()
    tagged.fields["amount"] = 4
    assert tagged == Tagged("shop:Price", {"amount": 4})
    assert copy.deepcopy(tagged) == tagged


class Framed:
    """An object that pickles its buffers out of band, as data frames do."""

    def __init__(self, *columns: np.ndarray[Any, Any]) -> None:
        self.columns = columns


def test_objects_that_share_buffers_share_bytes():
    columns = [np.random.default_rng(seed).random(20_000) for seed in range(3)]
    store = Memory()
    state = Versioned(store)
    state["frame"] = Framed(*columns)
    state.commit()
    before = _bytes(store)
    state["other"] = Framed(columns[0], columns[1], columns[2] + 1)
    commit = state.commit()
    assert _bytes(store) - before < 1.3 * columns[2].nbytes
    read = state.checkout(commit)["other"]
    assert same(list(read.columns), [columns[0], columns[1], columns[2] + 1])
    read.columns[0][0] = 5  # a writable buffer comes back writable


def test_a_change_in_a_buffer_of_an_object_is_seen():
    state = Versioned()
    state["frame"] = Framed(np.zeros(20_000))
    state.commit()
    state["frame"].columns[0][19_999] = 1
    assert state.status()
    assert state.checkout(state.commit())["frame"].columns[0][19_999] == 1


def _bytes(store: Memory) -> int:
    return sum(len(value) for _, value in store.items())
