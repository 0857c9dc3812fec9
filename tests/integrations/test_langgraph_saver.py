"""``VersionedSaver``: LangGraph's own tests of a saver on each store, and what they leave open."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, Interrupt, Send, interrupt

from tests.support import store_openers
from tests.support.langgraph_threads import check_steps, config, put, put_steps
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.integrations.langgraph import VersionedSaver, lines
from versioned_state.storage import Counting

CONFORMANCE = 81
"""The tests that langgraph-checkpoint-conformance 0.0.2 has."""

PLACES = [
    pytest.param(lambda request, folder: Memory, id="memory"),
    pytest.param(lambda request, folder: lambda: Disk(folder / "store"), id="disk"),
    pytest.param(store_openers.redis, id="redis"),
    pytest.param(store_openers.postgres, id="postgres"),
]


@pytest.mark.every_case
@pytest.mark.parametrize("place", PLACES)
def test_it_passes_langgraphs_conformance_suite(place: Any, request: pytest.FixtureRequest, tmp_path: Path):
    opened = place(request, tmp_path)

    @checkpointer_test(name="VersionedSaver")  # type: ignore[untyped-decorator]
    async def saver() -> AsyncIterator[VersionedSaver]:
        with opened() as store, VersionedSaver(store) as saver:
            yield saver

    report = asyncio.run(validate(saver))
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert not failures
    assert sum(result.tests_passed for result in report.results.values()) >= CONFORMANCE


@pytest.fixture
def saver() -> Iterator[VersionedSaver]:
    with VersionedSaver(Memory()) as saver:
        yield saver


def got(saver: VersionedSaver, at: dict[str, Any]) -> CheckpointTuple:
    found = saver.get_tuple(at)
    assert found is not None
    return found


def ids(saver: VersionedSaver, at: dict[str, Any] | None, **options: Any) -> list[str]:
    return [each.checkpoint["id"] for each in saver.list(at, **options)]


# Values


def test_messages_are_data_by_path(saver: VersionedSaver):
    first = put(saver, config(), {"messages": [HumanMessage("hi", id="a")]})
    put(saver, first, {"messages": [HumanMessage("hi", id="a"), AIMessage("hello", id="b")]})
    branch = saver.branch("1")
    assert [str(change.path) for change in saver.repository.diff(f"{branch}~1", branch)] == ["messages[1]"]
    assert saver.repository.blame("messages[1]", branch)[0].commit == saver.repository.branches[branch]
    assert [str(match.path) for match in saver.repository.grep("hello", branch)] == ["messages[1].content"]


@pytest.mark.parametrize("place", [Memory, lambda: None])
def test_values_of_the_framework_come_back_as_they_were(place: Callable[[], Any], tmp_path: Path):
    values = {
        "messages": [
            HumanMessage("hi"),
            AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}]),
            ToolMessage("1", tool_call_id="c"),
        ],
        "sends": (Send("node", {"a": 1}), Send("node", [HumanMessage("x")])),
        "interrupt": [Interrupt(value={"ask": "really?"}, id="i")],
        "command": Command(goto="x", update={"a": 1}),
        "delta": _DeltaSnapshot([1, 2]),
        "set": {1, 2},
        "bytes": b"\0\xff",
        "none": None,
        "__start__": {"nested": [[1, [2.5, "x"]], {}]},
    }
    with VersionedSaver(place() or tmp_path / "store") as saver:
        put(saver, config(), values)
        found = got(saver, config()).checkpoint["channel_values"]
        assert found == values
        assert [type(each) for each in found.values()] == [type(values[key]) for key in found]


class Mine:
    """A class that no store trusts."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mine) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


class Wrapped(HumanMessage):  # type: ignore[misc]
    """A message of the program's own."""


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(
            lambda: [HumanMessage("a"), Wrapped("b"), {"deep": [Wrapped("c")]}], id="a message of the program's own"
        ),
        pytest.param(lambda: {"by key": Wrapped("d")}, id="in a dict"),
        pytest.param(lambda: Wrapped("e"), id="alone"),
    ],
)
def test_a_value_of_a_class_that_is_not_trusted_comes_back_too(saver: VersionedSaver, value: Callable[[], Any]):
    at = put(saver, config(), {"value": value(), "other": [HumanMessage("plain")]})
    saver.put_writes(at, [("value", value())], "task")
    found = got(saver, config())
    assert found.checkpoint["channel_values"]["value"] == value()
    assert found.pending_writes == [("task", "value", value())]
    assert saver.repository.snapshot(saver.branch("1")).at("other[0].content") == "plain"


def test_an_instance_that_holds_one_comes_back_as_from_langgraphs_own_savers(saver: VersionedSaver):
    value = ToolMessage("x", tool_call_id="c", artifact={"held": Wrapped("c")})
    put(saver, config(), {"value": value})
    serde = JsonPlusSerializer()
    assert got(saver, config()).checkpoint["channel_values"]["value"] == serde.loads_typed(serde.dumps_typed(value))


def test_arrays_come_back(saver: VersionedSaver):
    values = {"array": np.arange(3), "inside": [np.zeros(2), {"deep": np.arange(6.0).reshape(2, 3)}]}
    found = got(saver, put(saver, config(), values)).checkpoint["channel_values"]
    np.testing.assert_array_equal(found["array"], values["array"])
    np.testing.assert_array_equal(found["inside"][1]["deep"], np.arange(6.0).reshape(2, 3))


def test_a_list_that_contains_itself_comes_back_as_from_langgraphs_own_savers(saver: VersionedSaver):
    around: list[Any] = [1]
    around.append(around)
    with pytest.raises((ValueError, TypeError, RecursionError)):
        JsonPlusSerializer().dumps_typed(around)
    with pytest.raises((ValueError, TypeError, RecursionError)):
        put(saver, config(), {"around": around})
    assert saver.get_tuple(config()) is None


def test_classes_of_a_trusted_module_are_data():
    with VersionedSaver(Memory(), classes=__name__) as saver:
        put(saver, config(), {"value": [Mine(3)]})
        assert got(saver, config()).checkpoint["channel_values"]["value"] == [Mine(3)]
        assert saver.repository.snapshot(saver.branch("1")).at("value[0].x") == 3


def test_a_serializer_of_the_users_own_packs_every_value():
    class Reversed(JsonPlusSerializer):  # type: ignore[misc]
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            kind, raw = super().dumps_typed(obj)
            return kind, raw[::-1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return super().loads_typed((data[0], data[1][::-1]))

    with VersionedSaver(Memory(), serde=Reversed()) as saver:
        at = put(saver, config(), {"secret": "the plain text"})
        saver.put_writes(at, [("secret", "the other plain text")], "task")
        found = got(saver, config())
        assert found.checkpoint["channel_values"] == {"secret": "the plain text"}
        assert found.pending_writes == [("task", "secret", "the other plain text")]
        assert not list(saver.repository.grep("plain text", saver.branch("1")))


def test_objects_of_the_caller_are_never_changed(saver: VersionedSaver):
    messages = [HumanMessage("hi", id="a")]
    values = {"messages": messages, "nested": {"list": [1]}}
    first = put(saver, config(), values)
    values["nested"]["list"].append(2)  # type: ignore[index]
    second = put(saver, first, values)
    put(saver, first, {"other": 1})  # time travel
    assert values == {"messages": messages, "nested": {"list": [1, 2]}}
    got(saver, second).checkpoint["channel_values"]["nested"]["list"].append(3)
    assert got(saver, second).checkpoint["channel_values"]["nested"] == {"list": [1, 2]}
    assert got(saver, first).checkpoint["channel_values"]["nested"] == {"list": [1]}


def test_metadata_of_any_kind_and_size_come_back(saver: VersionedSaver):
    odd: dict[str, Any] = {"checkpoint_id": "theirs", "checkpoint": [1], "metadata": "too"}
    at = put(saver, config(), {"a": 1}, **odd)
    assert {key: got(saver, at).metadata[key] for key in odd} == odd
    large = put(saver, at, {"a": 1}, writes=["x" * 100_000], message=HumanMessage("m"))
    assert got(saver, large).metadata["writes"] == ["x" * 100_000]
    assert ids(saver, config(), filter={"writes": ["x" * 100_000]}) == [large["configurable"]["checkpoint_id"]]
    after = put(saver, large, {"a": 1})
    assert "writes" not in got(saver, after).metadata
    assert list(saver.repository.snapshot(saver.branch("1")).namespaces()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "%", "x" * 300, "日本", "with\0nul", "fork", "main"])
def test_ids_of_any_text_are_kept_apart(saver: VersionedSaver, name: str):
    others = ["a", "a/fork", "x" * 301]
    for thread in [*others, name]:
        for namespace in ["", name] if name else [""]:
            at = put(saver, config(thread, namespace=namespace), {"is": [thread, namespace]})
            saver.put_writes(at, [("is", [thread, namespace])], name or "task")
    for thread in [*others, name]:
        for namespace in ["", name] if name else [""]:
            found = got(saver, config(thread, namespace=namespace))
            assert found.checkpoint["channel_values"]["is"] == [thread, namespace]
            assert found.pending_writes == [(name or "task", "is", [thread, namespace])]
    listed = {
        (each.config["configurable"]["thread_id"], each.config["configurable"]["checkpoint_ns"])
        for each in saver.list(None)
    }
    assert listed == {(thread, namespace) for thread in [*others, name] for namespace in {"", name}}
    saver.delete_thread(name)
    assert not list(saver.list({"configurable": {"thread_id": name}}))
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {*others} - {name}


# Writes


def test_writes_may_come_before_their_checkpoint(saver: VersionedSaver):
    id = str(uuid6())
    saver.put_writes(config(id=id), [("a", 1), ("b", HumanMessage("x"))], "task", "path")
    assert saver.get_tuple(config(id=id)) is None
    assert saver.get_tuple(config()) is None
    put(saver, config(), {"a": 0}, id=id)
    assert got(saver, config()).pending_writes == [("task", "a", 1), ("task", "b", HumanMessage("x"))]


def test_a_repeated_write_stays_and_a_special_one_is_replaced(saver: VersionedSaver):
    at = put(saver, config())
    saver.put_writes(at, [("a", 1), (ERROR, "first")], "task")
    saver.put_writes(at, [("a", 2), (ERROR, "second")], "task")
    saver.put_writes(at, [], "other")
    assert got(saver, at).pending_writes == [("task", ERROR, "second"), ("task", "a", 1)]


def test_writes_are_in_the_order_of_a_run(saver: VersionedSaver):
    at = put(saver, config())
    saver.put_writes(at, [("a", 3)], "a task", "~2")
    saver.put_writes(at, [("a", 1), ("a", 2)], "z task", "~1")
    saver.put_writes(at, [("a", 0)], "m task")
    assert [value for _, _, value in got(saver, at).pending_writes or []] == [0, 1, 2, 3]


# Time travel, and two writers


def test_going_back_makes_a_fork_and_loses_nothing(saver: VersionedSaver):
    first = put(saver, config(), {"n": 1})
    second = put(saver, first, {"n": 2})
    third = put(saver, second, {"n": 3})
    other = put(saver, first, {"n": 20})
    assert got(saver, config()).checkpoint["channel_values"] == {"n": 20}
    assert got(saver, config()).parent_config == first
    assert [got(saver, each).checkpoint["channel_values"]["n"] for each in (first, second, third, other)] == [
        1,
        2,
        3,
        20,
    ]
    assert [each.checkpoint["channel_values"]["n"] for each in saver.list(config())] == [20, 3, 2, 1]
    again = put(saver, third, {"n": 4})
    assert got(saver, config()).checkpoint["channel_values"] == {"n": 4}
    assert [each.checkpoint["channel_values"]["n"] for each in saver.list(config())] == [4, 20, 3, 2, 1]
    assert got(saver, again).parent_config == third
    log = [
        commit.meta["checkpoint_id"]
        for commit in saver.repository.log(saver.branch("1"))
        if "checkpoint_id" in commit.meta
    ]
    assert log == [each["configurable"]["checkpoint_id"] for each in (again, third, second, first)]
    saver.repository.gc()
    assert [each.checkpoint["channel_values"]["n"] for each in VersionedSaver(saver.repository).list(config())] == [
        4,
        20,
        3,
        2,
        1,
    ]


def test_a_checkpoint_that_is_older_than_the_newest_does_not_become_it(saver: VersionedSaver):
    early, late = sorted(str(uuid6()) for _ in range(2))
    put(saver, config(), {"n": "late"}, id=late)
    put(saver, config(), {"n": "early"}, id=early)
    assert got(saver, config()).checkpoint["id"] == late
    assert ids(saver, config()) == [late, early]


def test_a_checkpoint_that_is_put_again_is_replaced(saver: VersionedSaver):
    first = put(saver, config(), {"n": 1})
    second = put(saver, first, {"n": 2})
    for at, before in ((second, first), (first, config())):
        put(saver, before, {"n": "again"}, id=at["configurable"]["checkpoint_id"])
        assert got(saver, at).checkpoint["channel_values"] == {"n": "again"}
    assert len(ids(saver, config())) == 2
    assert ids(VersionedSaver(saver.repository), config()) == ids(saver, config())


def test_a_commit_of_the_users_own_on_the_branch_is_no_checkpoint(saver: VersionedSaver):
    first = put(saver, config(), {"n": 1})
    state = Versioned(saver.repository, branch=saver.branch("1"))
    state["n"] = 5
    state.commit("by hand")
    assert got(saver, config()).config == first
    second = put(saver, first, {"n": 2})
    assert [each.config for each in saver.list(config())] == [second, first]


def test_a_checkpoint_has_the_channels_that_it_was_given_and_no_others(saver: VersionedSaver):
    other = VersionedSaver(saver.repository)
    at = config()
    given: list[dict[str, Any]] = [
        {"a": 1, "b": 2},
        {"b": 2, "c": 3},
        {},
        {"a": [1]},
        {"d": "x" * 9},
        {"a": 1, "d": "x" * 9},
        {"e": None},
    ]
    for number, values in enumerate(given):
        at = put(other if number == 3 else saver, at, values, extra="long" * 30_000 if number == 4 else "")
        assert got(saver, at).checkpoint["channel_values"] == values
        if number == 5:
            state = Versioned(saver.repository, branch=saver.branch("1"))
            state["by hand"] = 1
            state.commit("by hand")
    assert [each.checkpoint["channel_values"] for each in saver.list(config())] == given[::-1]
    assert saver.repository.snapshot(saver.branch("1")).namespaces() == []


def test_threads_of_this_process_that_write_one_thread_are_not_mixed(saver: VersionedSaver):
    def write(name: str) -> None:
        put_steps(saver, name, 12)

    with ThreadPoolExecutor(3) as writers:
        list(writers.map(write, "abc"))
    check_steps(saver, dict.fromkeys("abc", 12))


# Requests


def test_what_a_call_asks_of_the_store():
    store = Counting(Memory())
    with VersionedSaver(store) as saver:

        def requests(call: Callable[..., Any], *given: Any) -> int:
            store.reset()
            call(*given)
            return store.counts.round_trips

        put(saver, config("0"), {"n": 0})  # reads the root commit, which every store has
        at = config()
        for expected in (2, 1, 1):
            assert requests(put, saver, at, {"n": expected}) == expected
            at = got(saver, config()).config
            assert requests(saver.put_writes, at, [("n", expected)], "task") == 1
        assert requests(saver.get_tuple, config()) == 3
        assert requests(saver.delete_thread, "1") == 4
        assert saver.get_tuple(config()) is None


def test_more_threads_than_handles_are_not_mixed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "_HANDLES", 4)
    store = Memory()
    with VersionedSaver(store) as saver:
        threads = [f"thread {number}" for number in range(9)]
        ends = {thread: config(thread) for thread in threads}
        for step in range(3):
            for thread in threads:
                long = [HumanMessage(f"{thread}, message {n} " * 20, id=f"{n}") for n in range(80 + step)]
                values = {"messages": long, f"{thread}, step {step}": step}
                ends[thread] = put(saver, ends[thread], values, step=step)
                assert got(saver, config(thread)).checkpoint["channel_values"] == values
        for thread in threads:
            found = list(saver.list(config(thread)))
            assert [each.metadata["step"] for each in found] == [2, 1, 0]
            assert all(f"{thread}, step {2 - at}" in each.checkpoint["channel_values"] for at, each in enumerate(found))
            assert [len(each.checkpoint["channel_values"]) for each in found] == [2, 2, 2]
    assert Repository(store).fsck().ok


def test_a_thread_that_others_erase_meanwhile_begins_anew():
    store = Memory()
    with VersionedSaver(store) as saver:
        long = [HumanMessage(f"message {n} " * 20, id=str(n)) for n in range(100)]
        at = put(saver, config(), {"messages": long})
        other = Repository(store)
        other.branches.delete_with_inner(saver.branch("1"))
        other.gc(expire=timedelta(0))
        put(saver, config("2"), {"n": 1})  # the saver learns of the sweep
        at = put(saver, at, {"messages": long}, step=1)
        found = saver.get_tuple(config())
        assert found is not None
        assert found.config == at
        assert found.checkpoint["channel_values"] == {"messages": long}
    assert Repository(store).fsck().ok


# Listing


def test_a_listing_reads_the_writes_of_its_checkpoints_together():
    store = Counting(Memory())
    with VersionedSaver(store) as saver:
        at = config()
        for step in range(40):
            at = put(saver, at, {"n": step}, step=step)
            saver.put_writes(at, [("n", step)], f"task {step}")
        known = ids(saver, config())

        def requests(limit: int) -> int:
            store.reset()
            found = list(saver.list(config(), limit=limit))
            assert [each.checkpoint["id"] for each in found] == known[:limit]
            assert [each.pending_writes for each in found] == [
                [(f"task {39 - at}", "n", 39 - at)] for at in range(limit)
            ]
            return store.counts.round_trips

        assert requests(5) == requests(30) == requests(40) <= 4


@pytest.mark.parametrize("tasks", [1, 3, 9])
@pytest.mark.parametrize(
    "names", [[f"{n:02}" for n in range(12)], ["a", "a/b", "a.b", "a b", "A", "%", "ä", "z" * 200, "\ud800", "..", "0"]]
)
def test_a_listing_has_the_writes_that_each_checkpoint_has(saver: VersionedSaver, names: list[str], tasks: int):
    """Of one checkpoint many, of the next none, and the ids do not sort as they are stored."""
    at = config()
    for number, id in enumerate(sorted(names)):
        at = put(saver, at, id=id)
        for task in range(tasks if number % 3 else 0):
            saver.put_writes(at, [("a", (number, task)), ("b", task)], f"t{task}", f"~{task}")
    put(saver, config(id=at["configurable"]["checkpoint_id"], namespace="inner"), id="1")
    for limit in (1, 2, 5, None):
        for before in (None, config(id=sorted(names)[6])):
            found = list(saver.list(config(), limit=limit, before=before))
            assert found
            for each in found:
                assert each.pending_writes == got(saver, each.config).pending_writes
                assert len(each.pending_writes or ()) == 2 * (
                    tasks if sorted(names).index(each.checkpoint["id"]) % 3 else 0
                )


def test_a_filter_finds_metadata_beside_an_id_of_their_own(saver: VersionedSaver):
    own = put(saver, config(), checkpoint_id="mine", parent_checkpoint_id=1, checkpoint="c", after=1)
    put(saver, own, after=2)
    metadata = {"checkpoint_id": "mine", "parent_checkpoint_id": 1, "checkpoint": "c", "after": 1}
    for key, value in metadata.items():
        (found,) = saver.list(config(), filter={key: value})
        assert {key: found.metadata[key] for key in metadata} == metadata


def test_a_filter_compares_as_python_does(saver: VersionedSaver):
    at = config()
    metadata: list[dict[str, Any]] = [
        {"x": 1},
        {"x": 1.0},
        {"x": True},
        {"x": "1"},
        {"x": None},
        {},
        {"x": [1]},
        {"x": {"a": 1}},
        {"x": float("inf")},
        {"x": 10**400},
        {"y": 1},
    ]
    for each in metadata:
        at = put(saver, at, **each)
    for wanted in (
        {"x": 1},
        {"x": True},
        {"x": 1.0},
        {"x": "1"},
        {"x": None},
        {"x": [1]},
        {"x": {"a": 1}},
        {"x": 2},
        {"x": float("inf")},
        {"x": float("nan")},
        {"x": 10**400},
        {"source": "loop", "y": 1},
    ):
        expected = [
            each
            for each in metadata
            if all({"source": "loop", **each}.get(key) == value for key, value in wanted.items())
        ]
        assert len(ids(saver, config(), filter=wanted)) == len(expected), wanted


def test_a_filter_may_be_a_path(saver: VersionedSaver):
    metadata: dict[str, Any] = {"user": {"access-level": "nested", "a": {"b": 1}}, "with.dot": 3}
    put(saver, config(), **metadata)
    fitting: list[dict[str, Any]] = [{key: value} for key, value in metadata.items()]
    for wanted in (*fitting, {"user.access-level": "nested"}, {"user.a.b": 1}):
        assert len(ids(saver, config(), filter=wanted)) == 1, wanted
    for wanted in ({"user.access-level": "other"}, {"user.a.b.c": 1}, {"none.at.all": 1}):
        assert ids(saver, config(), filter=wanted) == [], wanted


def test_before_and_limit_page_through_a_thread_with_forks(saver: VersionedSaver):
    at = [put(saver, config(), {"n": 0})]
    for number in range(1, 40):
        at.append(put(saver, at[number // 2 if number % 7 == 0 else -1], {"n": number}))
    every = ids(saver, config())
    assert every == [each["configurable"]["checkpoint_id"] for each in reversed(at)]
    for reader in (saver, VersionedSaver(saver.repository)):
        pages: list[str] = []
        before = None
        while page := ids(reader, config(), before=before, limit=7):
            pages += page
            before = config(id=page[-1])
        assert pages == every
    assert ids(saver, config(), limit=0) == []
    assert ids(saver, config(id=every[5])) == [every[5]]
    assert ids(saver, config(id=every[5]), before=config(id=every[5])) == []


def test_another_process_is_seen(saver: VersionedSaver):
    other = VersionedSaver(saver.repository)
    first = put(saver, config(), {"n": 1})
    assert ids(other, config()) == ids(saver, config())
    second = put(other, first, {"n": 2})
    put(other, first, {"n": 3})
    assert ids(saver, config()) == ids(other, config())
    assert len(ids(saver, config())) == 3
    other.prune(["1"])
    assert len(ids(saver, config())) == 1
    assert saver.get_tuple(second) is None
    other.delete_thread("1")
    assert ids(saver, config()) == []
    assert saver.get_tuple(config()) is None
    put(saver, config(), {"n": 4})
    assert got(other, config()).checkpoint["channel_values"] == {"n": 4}


def test_a_deletion_in_the_middle_by_another_process_is_seen(saver: VersionedSaver):
    first = put(saver, config(), {"n": 1})
    second = put(saver, first, {"n": 2}, run_id="gone")
    third = put(saver, second, {"n": 3})
    assert len(ids(saver, config())) == 3
    VersionedSaver(saver.repository).delete_for_runs(["gone"])
    assert [each.config for each in saver.list(config())] == [third, first]
    assert saver.get_tuple(second) is None


# Deleting and copying


def test_what_is_left_of_a_run_keeps_its_content_and_its_order(saver: VersionedSaver):
    at = [put(saver, config(), {"n": [0]}, run_id="a")]
    for number in range(1, 6):
        at.append(put(saver, at[-1], {"n": list(range(number + 1))}, run_id="ab"[number % 2]))
    fork = put(saver, at[2], {"n": "fork"}, run_id="a")
    saver.put_writes(at[1], [("n", 1)], "task")
    saver.put_writes(at[2], [("n", 2)], "task")
    saver.delete_for_runs(["b"])
    left = [fork, at[4], at[2], at[0]]
    assert [each.config for each in saver.list(config())] == left
    assert [got(saver, each).checkpoint["channel_values"]["n"] for each in left] == [
        "fork",
        [0, 1, 2, 3, 4],
        [0, 1, 2],
        [0],
    ]
    assert saver.get_tuple(at[1]) is None
    assert got(saver, at[2]).pending_writes == [("task", "n", 2)]
    assert not [name for name in saver.repository.records if at[1]["configurable"]["checkpoint_id"] in name]
    assert put(saver, fork, {"n": 9})["configurable"]["checkpoint_id"] == ids(saver, config())[0]
    saver.delete_for_runs(["a", "none"])
    assert len(ids(saver, config())) == 1
    assert saver.repository.fsck().ok


def test_prune_keeps_what_a_delta_channel_is_made_of(saver: VersionedSaver):
    at = [
        put(saver, config(), {"log": _DeltaSnapshot(["old"])}),
    ]
    at.append(put(saver, at[-1], {"log": _DeltaSnapshot(["a"])}, counters_since_delta_snapshot={"log": (0, 0)}))
    for number in range(3):
        saver.put_writes(at[-1], [("log", f"w{number}")], "task")
        at.append(put(saver, at[-1], {"n": number}, counters_since_delta_snapshot={"log": (number + 1, number + 1)}))
    before = saver.get_delta_channel_history(config=at[-1], channels=["log", "none"])
    assert before["log"] == {
        "seed": _DeltaSnapshot(["a"]),
        "writes": [("task", "log", f"w{number}") for number in range(3)],
    }
    assert before["none"] == {"writes": []}
    saver.prune(["1"])
    assert [each.config for each in saver.list(config())] == at[:0:-1]
    assert saver.get_delta_channel_history(config=config(), channels=["log"])["log"] == before["log"]
    assert asyncio.run(saver.aget_delta_channel_history(config=config(), channels=["log"]))["log"] == before["log"]


def test_parents_that_form_a_circle_are_walked_once(saver: VersionedSaver):
    first, second = sorted(str(uuid6()) for _ in range(2))
    put(saver, config(), {"n": 1}, id=first)
    put(saver, config(id=first), {"n": 2}, id=second)
    put(saver, config(id=second), {"n": 1}, id=first)
    assert saver.get_delta_channel_history(config=config(), channels=["log"]) == {"log": {"writes": []}}
    assert ids(saver, config()) == [second, first]


def test_prune_refuses_an_unknown_strategy(saver: VersionedSaver):
    at = put(saver, config())
    with pytest.raises(InvalidArgumentError, match="keep_latest"):
        saver.prune(["1"], strategy="some")
    assert saver.get_tuple(at)


def test_a_copy_has_everything_and_goes_its_own_way(saver: VersionedSaver):
    first = put(saver, config(), {"n": 1})
    second = put(saver, first, {"n": 2})
    put(saver, first, {"n": 3})
    put(saver, config(namespace="sub:" + "x" * 80), {"n": "sub"})
    saver.put_writes(second, [("n", 5)], "task")
    objects = len(list(saver.repository.store.keys("object/")))
    saver.copy_thread("1", "2")
    assert ids(saver, config("2")) == ids(saver, config())
    assert len(list(saver.repository.store.keys("object/"))) < objects + 10  # the content is there once
    assert got(saver, config("2", second["configurable"]["checkpoint_id"])).pending_writes == [("task", "n", 5)]
    assert len(list(saver.list({"configurable": {"thread_id": "2"}}))) == 4
    put(saver, config("2", second["configurable"]["checkpoint_id"]), {"n": 4})
    assert len(ids(saver, config("2"))) == 4
    assert len(ids(saver, config())) == 3
    saver.copy_thread("2", "1")
    assert ids(saver, config("2")) == ids(saver, config())
    saver.delete_thread("2")
    assert len(list(saver.list({"configurable": {"thread_id": "1"}}))) == 5


def test_a_deleted_thread_leaves_nothing_and_begins_anew(saver: VersionedSaver):
    for namespace in ("", "sub"):
        at = put(saver, config(namespace=namespace), {"n": 1})
        saver.put_writes(at, [("n", 1)], "task")
    saver.put_writes(config(id="none"), [("n", 1)], "task")
    put(saver, config("10"), {"n": "other"})
    saver.delete_thread("1")
    assert list(saver.repository.branches) == [saver.branch("10")]
    assert not list(saver.repository.records)
    put(saver, config(), {"n": 2})
    assert len(ids(saver, config())) == 1
    assert not got(saver, config()).pending_writes
    saver.delete_thread("no such thread")


# Graphs


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    total: Annotated[int, operator.add]


def graph(saver: VersionedSaver, *, asking: bool = False) -> Any:
    def answer(state: State) -> dict[str, Any]:
        text = f"answer {len(state['messages'])}"
        if asking:
            text += f" {interrupt('really?')}"
        return {"messages": [AIMessage(text, id=f"a{len(state['messages'])}")], "total": 1}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def test_a_graph_goes_on_and_back(saver: VersionedSaver):
    chat, at = graph(saver), {"configurable": {"thread_id": "42"}}
    for number in range(3):
        chat.invoke({"messages": [HumanMessage(f"question {number}", id=f"q{number}")], "total": 0}, at)
    assert [message.content for message in chat.get_state(at).values["messages"]][-2:] == ["question 2", "answer 5"]
    history = list(chat.get_state_history(at))
    early = next(each for each in history if len(each.values.get("messages", [])) == 2 and not each.next)
    chat.invoke({"messages": [HumanMessage("what if", id="w")], "total": 10}, early.config)
    assert [message.content for message in chat.get_state(at).values["messages"]] == [
        "question 0",
        "answer 1",
        "what if",
        "answer 3",
    ]
    assert chat.get_state(at).values["total"] == 12
    assert len(list(chat.get_state_history(at))) == len(history) + 3
    assert [
        str(change.path)
        for change in saver.repository.diff(f"{saver.branch('42')}~1", saver.branch("42"))
        if "messages" in str(change.path)
    ] == ["messages[3]"]


def test_a_graph_waits_for_an_answer_and_another_process_gives_it(tmp_path: Path):
    at = {"configurable": {"thread_id": "42"}}
    with VersionedSaver(tmp_path / "store") as saver:
        asked = graph(saver, asking=True).invoke({"messages": [HumanMessage("hi", id="q")], "total": 0}, at)
        assert asked["__interrupt__"][0].value == "really?"
    with VersionedSaver(tmp_path / "store") as saver:
        done = graph(saver, asking=True).invoke(Command(resume="yes"), at)
    assert done["messages"][-1].content == "answer 1 yes"


def test_a_graph_of_coroutines_leaves_the_loop_free(saver: VersionedSaver):
    async def run() -> Any:
        chat, at = graph(saver), {"configurable": {"thread_id": "42"}}
        await asyncio.gather(
            *(
                chat.ainvoke(
                    {"messages": [HumanMessage("hi", id="q")], "total": 0}, {"configurable": {"thread_id": str(n)}}
                )
                for n in range(4)
            )
        )
        await chat.ainvoke({"messages": [HumanMessage("hi", id="q")], "total": 0}, at)
        return [each async for each in saver.alist(at)], await chat.aget_state(at)

    listed, state = asyncio.run(run())
    assert len(listed) == 3
    assert state.values["messages"][-1].content == "answer 1"


def test_a_subgraph_has_a_branch_of_its_own(saver: VersionedSaver):
    inner = StateGraph(State)
    inner.add_node(
        "inner", lambda state: {"messages": [AIMessage("from within", id="i")], "total": interrupt("go on?")}
    )
    inner.add_edge(START, "inner")
    outer = StateGraph(State)
    outer.add_node("sub", inner.compile())
    outer.add_edge(START, "sub")
    chat, at = outer.compile(checkpointer=saver), {"configurable": {"thread_id": "42"}}
    chat.invoke({"messages": [HumanMessage("hi", id="q")], "total": 0}, at)
    namespaces = {each.config["configurable"]["checkpoint_ns"] for each in saver.list(at)}
    assert len(namespaces) == 2
    assert all(saver.branch("42", each) in saver.repository.branches for each in namespaces)
    assert chat.invoke(Command(resume=7), at)["total"] == 7


def test_the_next_version_follows_that_of_another_saver(saver: VersionedSaver):
    assert [saver.get_next_version(each, None) for each in (None, 1, 41)] == [1, 2, 42]
    first = "00000000000000000000000000000003.0.123"
    assert saver.get_next_version(first, None) > first
    assert int(saver.get_next_version(first, None).split(".")[0]) == 4


def test_a_clone_with_an_allowlist_works_on_the_same_threads(saver: VersionedSaver):
    put(saver, config(), {"n": Wrapped("x")})
    clone = saver.with_allowlist([(__name__, "Wrapped")])
    assert got(clone, config()).checkpoint["channel_values"]["n"] == Wrapped("x")
    put(clone, config(), {"n": 2})
    assert len(ids(saver, config())) == 2


def test_a_saver_over_a_repository_leaves_it_open():
    repository = Repository(Memory())
    with VersionedSaver(repository) as saver:
        put(saver, config(), {"n": 1})
    assert VersionedSaver(repository).get_tuple(config())
