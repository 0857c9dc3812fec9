"""A schema: each kind of rule, what is judged, at which cost, in merges, and when read."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Annotated, Any, ForwardRef, Literal, NewType, NotRequired, Protocol, TypedDict, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, RootModel, field_validator, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tests.support.handles import committed
from versioned_state import Disk, Memory, Schema, Versioned, task
from versioned_state.errors import HandleClosedError, InvalidArgumentError, MergeConflictError, SchemaError
from versioned_state.storage import Counting
from versioned_state.storage.testing.writers import run_together


class Colour(Enum):
    RED = "red"


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant"]
    content: str
    tokens: int = 0


@dataclass
class Trip:
    city: str
    nights: int = 1
    legs: list[Trip] = field(default_factory=list)


@pydantic_dataclass
class Stay:
    nights: Annotated[int, Field(gt=0)]


class Prefs(TypedDict):
    theme: str
    size: NotRequired[int]


class Range(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Range:
        assert self.low <= self.high, "low is above high"
        return self


class Named(BaseModel):
    name: str = Field(alias="fullName")

    @field_validator("name")
    @classmethod
    def capital(cls, name: str) -> str:
        if not name[:1].isupper():
            raise ValueError("a name begins with a capital")
        return name


class Tags(RootModel[list[str]]):
    pass


UserId = NewType("UserId", int)
T = TypeVar("T")


class Settings(BaseModel):
    name: str
    messages: list[Message] = []
    trip: Trip | None = None
    prefs: dict[str, str] = {"theme": "dark"}
    scores: dict[str, float] = {}


def refused(state: Versioned) -> SchemaError:
    """The error of a commit, which leaves everything as it is."""
    head, before = state.head, str(state.status())
    with pytest.raises(SchemaError) as caught:
        state.commit()
    assert state.head == head
    assert str(state.status()) == before
    assert caught.value.path in str(caught.value)
    assert caught.value.rule in str(caught.value)
    assert "still there" in caught.value.remains
    return caught.value


VALUES: list[tuple[Any, list[Any], list[Any]]] = [
    (int, [1, 10**30], ["1", True, 1.0, None]),
    (float, [1.0, 1, float("nan")], [True, "1"]),
    (str, [""], [b"", 1]),
    (bytes, [b"a"], ["a", bytearray(b"a")]),
    (bool, [True], [1]),
    (None, [None], [0]),
    (object, [1, None], []),
    (dt.date, [dt.date(2026, 1, 1)], [dt.datetime(2026, 1, 1), "2026-01-01"]),
    (UUID, [UUID(int=1)], [str(UUID(int=1))]),
    (Colour, [Colour.RED], ["red"]),
    (list, [[], [1, "a"]], [(), "ab"]),
    (list[int], [[1]], [["1"], [True], (1,)]),
    (list[list[int]], [[[1]]], [[["a"]]]),
    (Sequence[int], [[1], (1,), deque([1])], ["12", [1.5]]),
    (set[int], [{1}], [{"a"}, [1]]),
    (tuple[int, str], [(1, "a")], [(1,), (1, 2), [1, "a"]]),
    (tuple[int, ...], [(), (1, 2)], [("a",)]),
    (dict[str, int], [{}, {"a": 1}], [{"a": "1"}, {1: 1}, []]),
    (Mapping[str, Any], [{"a": 1}], [[1]]),
    (Literal["a", 1], ["a", 1], ["b", True]),
    (int | None, [1, None], ["1"]),
    (list[int] | dict[str, int], [[1], {"a": 1}], [["a"], {"a": "b"}]),
    (UserId, [1], ["1"]),
    (T, [1], []),
    (
        Trip,
        [Trip("Rome"), {"city": "Rome"}, {"city": "Rome", "legs": [{"city": "Oslo"}]}],
        [{"nights": 1}, {"city": 1}, "Rome"],
    ),
    (Trip, [], [Trip("Rome", legs=[Trip(3)])]),  # type: ignore[arg-type]
    (Prefs, [{"theme": "dark"}, {"theme": "a", "size": 1, "more": 1}], [{}, {"theme": "a", "size": "b"}]),
    (
        Message,
        [{"role": "user", "content": ""}, Message(role="user", content="")],
        [{"role": "user"}, {"role": "user", "content": "", "x": 1}],
    ),
    (Stay, [{"nights": 1}, Stay(nights=1)], [{"nights": 0}, {"nights": "1"}]),
    (Range, [{"low": 1, "high": 2}], [{"low": 2, "high": 1}, {"low": "1", "high": 2}]),
    (Named, [{"name": "Ann"}], [{"name": "ann"}, {}]),
    (Tags, [Tags(["a"]), ["a"]], [[1], "a"]),
    (PositiveInt, [1], [0, "1"]),
    (Annotated[str, "documentation"], ["a"], [1]),
    (Annotated[list[int], Field(min_length=1, max_length=2)], [[1], [1, 2]], [[], [1, 2, 3], ["a"]]),
    (Annotated[str, Field(pattern="^a")], ["ab"], ["b", 1]),
    (lambda value: value > 1, [2], [1]),
    (partial(max, 1), [2], ["a"]),
]


CASES = [(shape, value, True) for shape, good, _ in VALUES for value in good] + [
    (shape, value, False) for shape, _, bad in VALUES for value in bad
]


@pytest.mark.parametrize(("shape", "value", "is_valid"), CASES)
def test_values_are_judged_as_they_are(shape, value, is_valid):
    state = Versioned(schema={"x": shape, "in.*": shape})
    for place in ({"x": value}, {"in": {"k": value}}):
        state.update(place)
        if is_valid:
            state.commit()
            Schema({"x": shape, "in.*": shape}).check(state)
        else:
            assert refused(state).path.startswith(("x", "in.k"))
            with pytest.raises(SchemaError):
                Schema({"x": shape, "in.*": shape}).check(state)
            state.discard()


def settings() -> Versioned:
    state = Versioned(schema=Settings)
    state.update(name="a", messages=[{"role": "user", "content": "hi"}], trip=Trip("Rome"), scores={"a": 1.0})
    state.commit()
    return state


EDITS: list[tuple[Any, str, str]] = [
    (lambda state: state.update(name=1), "name", "str"),
    (lambda state: state.pop("name"), "name", "required"),
    (lambda state: state["messages"].append({"role": "user", "content": 1}), "messages[1].content", "str"),
    (
        lambda state: state["messages"].insert(0, {"role": "robot", "content": ""}),
        "messages[0].role",
        "Literal['user', 'assistant']",
    ),
    (lambda state: state["messages"][0].pop("content"), "messages[0].content", "required"),
    (lambda state: state["messages"][0].update(more=1), "messages[0].more", "no other keys"),
    (lambda state: setattr(state["trip"], "city", 3), "trip.city", "str"),
    (lambda state: state["trip"].legs.append(Trip(3)), "trip.legs[0].city", "str"),  # type: ignore[arg-type]
    (lambda state: state["scores"].update({2: 1.0}), "scores{2}", "str"),
    (lambda state: state["scores"].update(b="1"), "scores.b", "float"),
    (lambda state: state.update(prefs={"theme": 1}), "prefs.theme", "str"),
]


@pytest.mark.parametrize(("edit", "path", "rule"), EDITS, ids=[path for _, path, _ in EDITS])
def test_an_edit_in_place_is_refused_by_path_and_rule(edit, path, rule):
    state = settings()
    edit(state)
    error = refused(state)
    assert (error.path, error.rule) == (path, rule)
    state.discard()
    assert not state.status()


def test_a_first_commit_has_the_required_keys_and_other_keys_are_allowed():
    state = Versioned(schema=Settings)
    state["other"] = 1
    assert refused(state).path == "name"
    state.namespace("worker")["name"] = 1  # another state's
    state["name"] = "a"
    state.commit()
    state["other"] = object
    state.commit()


def test_commits_of_nothing_but_engine_keys_and_namespaces_need_no_keys():
    state = Versioned(schema=Settings)
    state.namespace("worker")["a"] = 1
    state.commit()

    @task
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(state=Versioned(state.repository, schema=Settings))


def test_what_was_there_before_the_schema_refuses_only_its_own_change():
    store = Memory()
    committed(store, name=1, messages=[{"role": "robot"}, {"role": "user", "content": "a"}])
    state = Versioned(store, schema=Settings)
    state["messages"][1]["content"] = "b"
    state["messages"].append({"role": "user", "content": "c"})
    state.commit()
    with pytest.raises(SchemaError, match="messages"):
        Schema(Settings).check(state)
    state["messages"][0]["role"] = "machine"
    assert refused(state).path == "messages[0].role"


def test_validators_and_constraints_see_the_whole_of_their_part():
    state = Versioned(schema={"r": list[Range], "n": Annotated[list[int], Field(min_length=2)]})
    state["r"], state["n"] = [{"low": 1, "high": 5}], [1, 2]
    state.commit()
    state["r"][0]["low"] = 7
    error = refused(state)
    assert (error.path, "low is above high" in str(error)) == ("r[0]", True)
    state["r"][0]["low"] = 2
    state["n"].pop()
    assert refused(state).rule == "min_length=2"


def test_a_function_of_the_whole_state_reads_what_it_likes():
    def balanced(state: Mapping[str, Any]) -> None:
        if sum(state["accounts"].values()):
            raise ValueError("the accounts do not balance")

    state = Versioned(schema=balanced)
    state["accounts"] = {"a": 1, "b": -1}
    state.commit()
    state["accounts"]["a"] = 2
    error = refused(state)
    assert (error.path, "balanced" in error.rule, "do not balance" in str(error)) == ("", True, True)


def test_a_fault_of_a_function_is_not_a_refusal():
    state = Versioned(schema={"a": lambda value: value.missing})
    state["a"] = 1
    with pytest.raises(AttributeError):
        state.commit()
    assert state["a"] == 1
    assert state.status()


@pytest.mark.parametrize("count", [1000, 20_000])
def test_a_check_costs_what_changed(count):
    """One of many elements, an entry, a field: a handful of reads, whatever the size."""
    store = Counting(Memory())
    fill = Versioned(store)
    fill["name"] = "a"
    fill["messages"] = [{"role": "user", "content": f"message {index}"} for index in range(count)]
    fill["scores"] = {f"s{index}": 1.5 for index in range(count)}
    fill.commit()
    reads = {}
    for schema in (None, Settings):
        state = Versioned(store, schema=schema)
        messages, scores = state["messages"], state["scores"]
        messages[count // 2]["content"] = f"changed {schema}"
        messages.append({"role": "user", "content": "new"})
        scores["s7"] = 2.5
        store.reset()
        state.commit()
        reads[schema] = store.counts.objects_read
    assert reads[Settings] - reads[None] <= 16


def test_merges_repeated_commits_and_moved_branches_are_checked():
    state = Versioned(schema={"a": int, "**": lambda value: value != "bad"})
    state["a"] = 1
    state.commit()
    other = Versioned(state.repository).fork("other", at=state.head)  # without the schema
    other["a"] = "text"
    other.commit()
    state["b"] = 1
    state.commit()
    head = state.head
    for move in (state.merge, state.cherry_pick):
        with pytest.raises(SchemaError):
            move("other")
        assert state.head == head
        assert state["a"] == 1
    committed(state.repository, a="text")
    state["c"] = 1
    state.commit()  # the other's change was there: it is not ours to answer for
    assert state["a"] == "text"
    fork = state.fork("fork")
    fork["a"] = "other"
    refused(fork)
    fork.discard()


def test_a_merge_that_makes_an_invalid_whole_is_refused():
    state = Versioned(schema={"r": Range})
    state["r"] = {"low": 1, "high": 9}
    state.commit()
    other = Versioned(state.repository, schema={"r": Range})
    other["r"]["low"] = 6
    other.commit()
    state["r"]["high"] = 4
    with pytest.raises(SchemaError, match="low is above high"):
        state.commit()
    assert state["r"] == {"low": 1, "high": 4}
    assert Versioned(state.repository)["r"] == {"low": 6, "high": 9}


def test_a_conflict_comes_before_the_schema():
    store = Memory()
    state, other = Versioned(store, schema={"a": int}), Versioned(store)
    other["a"] = 1
    other.commit()
    state["a"] = 2
    with pytest.raises(MergeConflictError):
        state.commit()


def test_transactions_and_commits_of_some_keys():
    state = Versioned(schema={"a": int})
    with pytest.raises(SchemaError), state.transaction():
        state["a"] = "1"
    assert "a" not in state
    state["a"], state["b"] = "1", 1
    state.commit(keys=["b"])
    with pytest.raises(SchemaError):
        state.commit(keys=["a"])
    assert str(state.status()) == "+ a = '1'"


def test_reads_are_checked_if_asked():
    store = Counting(Memory())
    old = Versioned(store)
    old.update(a="1", b=[1] * 3000, ok=1)
    old.namespace("w")["a"] = "x"
    old.commit()
    schema = {"a": int, "b.*": int, "@w.a": int}
    assert Versioned(store, schema=schema)["a"] == "1"
    state = Versioned(store, schema=schema, check_reads=True)
    for read in (lambda: state["a"], lambda: state.at("a"), lambda: state.get("a"), lambda: state.namespace("w")["a"]):
        with pytest.raises(SchemaError):
            read()
    past = state.checkout("HEAD")
    for read in (lambda: past["a"], lambda: past.at("a"), lambda: past.namespace("w")["a"]):
        with pytest.raises(SchemaError):
            read()
    assert past.at("b[3]") == past["ok"] == state["ok"] == 1
    state["a"] = 2
    assert state["a"] == 2
    state["b"][5] = 7
    state.commit()
    store.reset()
    assert state["b"][5] == 7
    assert store.counts.objects_read <= 12, "judged by what changed"
    old.refresh()
    old["b"].append("x")
    old.commit()
    state.refresh()
    with pytest.raises(SchemaError, match=r"b\[3000\]"):
        _ = state["b"]
    lazy = Versioned(store, schema=schema, check_reads=True).sequence("b")
    assert lazy[5] == 7
    with pytest.raises(SchemaError):
        _ = lazy[-1]


def test_a_function_of_the_whole_is_asked_once_a_head_when_read():
    asked = []
    state = Versioned(schema=lambda whole: asked.append(dict(whole)), check_reads=True)
    state["a"], state["b"] = 1, 2
    state.commit()
    del asked[:]
    assert [state["a"], state["b"], state["a"]] == [1, 2, 1]
    assert asked == [{"a": 1, "b": 2}]


class Unready(BaseModel):
    other: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037


class Plain(Protocol):
    def run(self) -> None: ...


@pytest.mark.parametrize(
    "shape",
    [
        1,
        "a",
        int,
        list[int],
        {"": int},
        {1: int},
        {"a": 3},
        {"a": "int"},
        {"a": ForwardRef("Nowhere")},
        Unready,
        {"a": Plain},
    ],
)
def test_what_is_not_a_schema_is_refused_at_once(shape):
    with pytest.raises((InvalidArgumentError, ValueError)) as caught:
        Versioned(schema=shape)
    assert isinstance(caught.value, InvalidArgumentError)


def test_check_reads_needs_a_schema():
    with pytest.raises(InvalidArgumentError):
        Versioned(check_reads=True)


def test_opening_takes_a_schema(tmp_path):
    import versioned_state

    Disk(tmp_path / "s").close()
    with versioned_state.open(tmp_path / "s", schema={"a": int}) as state:
        state["a"] = "1"
        refused(state)
        state.discard()


PROGRAM = """
import sys
sys.modules["pydantic"] = None
from dataclasses import dataclass
from versioned_state import Schema, Versioned
from versioned_state.errors import MissingDependencyError, SchemaError

@dataclass
class Trip:
    city: str

state = Versioned(schema={"trip": Trip, "names": list[str]})
state["trip"], state["names"] = Trip("Rome"), ["a"]
state.commit()
state["names"].append(1)
try:
    state.commit()
except SchemaError as error:
    print(error.path)
state.discard()
from typing import Annotated
class Regex:
    def __get_pydantic_core_schema__(self, *_): ...
try:
    Schema({"a": Annotated[str, Regex()]})
except MissingDependencyError as error:
    print(error.extra)
"""


def test_types_and_dataclasses_need_no_pydantic():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["names[1]", "pydantic"]


def test_commits_together_are_checked_and_none_is_made():
    store = Memory()
    first, second = (Versioned(store, branch=branch, schema={"a": int}) for branch in ("x", "y"))
    first["a"], second["a"] = 1, "2"
    with pytest.raises(SchemaError):
        first.repository.commit_together([first, second], "both")
    assert list(first.repository.branches) == []
    second["a"] = 2
    first.repository.commit_together([first, second], "both")
    assert Versioned(store, branch="y")["a"] == 2


def test_a_task_that_breaks_the_schema_is_rolled_back_and_recorded():
    state = Versioned(schema={"a": int})
    state["a"] = 1
    state.commit()

    @task
    def work(state: Any) -> None:
        state["b"] = 2
        state["a"] = "text"

    with pytest.raises(SchemaError) as caught:
        work(state=state)
    assert caught.value.path == "a"
    assert dict(state) == {"a": 1}
    assert state.head.meta["outcome"] == "failure"
    assert dict(state.checkout("HEAD")) == {"a": 1}


def test_threads_that_share_a_handle_are_checked_one_by_one():
    state = Versioned(schema={"**": int})

    def work(name: int) -> None:
        for index in range(20):
            state[f"k{name}"] = index
            state.commit()

    run_together(partial(work, name) for name in range(4))
    state["bad"] = "x"
    assert refused(state).path == "bad"


def test_a_closed_state_and_an_empty_one():
    state = Versioned(schema=Settings, check_reads=True)
    assert state.commit() == state.head, "nothing was changed"
    with pytest.raises(SchemaError, match="name"):
        Schema(Settings).check(state)
    state.close()
    with pytest.raises(HandleClosedError):
        state.commit()


def test_check_reads_holds_for_the_sequence_of_a_checkout():
    store = Memory()
    committed(store, n=[*range(1000), "x"])
    items = Versioned(store, schema={"n.*": int}, check_reads=True).checkout("HEAD").sequence("n")
    assert items[:3] == [0, 1, 2]
    assert items[999::-300] == [999, 699, 399, 99]
    for read in (lambda: items[-1], lambda: items[990:], lambda: list(items), lambda: items[::-500]):
        with pytest.raises(SchemaError) as caught:
            read()
        assert caught.value.path == "n[1000]"


class Later:
    async def __call__(self, _: Any) -> bool:
        return False


async def later(_: Any) -> bool:
    return False


@pytest.mark.parametrize("function", [later, partial(later), Later()])
def test_an_asynchronous_function_which_would_refuse_nothing_is_refused(function):
    for schema in (function, {"n": function}):
        with pytest.raises(InvalidArgumentError, match="a plain function"):
            Versioned(schema=schema)
