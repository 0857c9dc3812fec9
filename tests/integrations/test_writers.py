"""``Writers``: the handles that adapters write with, which stay open. What a new handle would do, they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.integrations.adapter import Adapter, Writers
from versioned_state.repository.committing import OnMoved
from versioned_state.state.branch import port
from versioned_state.storage import Counting, Faulty, InjectedFaultError


@pytest.fixture
def writers() -> Iterator[Writers]:
    with Adapter(Memory()) as adapter:
        yield adapter.writers


def append(writers: Writers, *items: Any, branch: str = "b") -> None:
    def edit(state: Versioned) -> None:
        state.sequence("items").extend(items)
        state.commit(on_moved=OnMoved.REFUSE)

    writers.write(branch, edit)


def items(writers: Writers, branch: str = "b") -> Any:
    return writers.repository.snapshot(branch)["items"]


def test_a_branch_that_stands_still_is_opened_once():
    store = Counting(Memory())
    writers = Writers(Repository(store))
    states: list[Versioned] = []
    for number in range(3):
        append(writers, number)
        writers.write("b", states.append)
    assert len({id(state) for state in states}) == 1
    store.reset()
    append(writers, 3)
    assert store.reset().round_trips == 2  # the record of the branch, and the commit


def test_a_value_that_was_written_is_the_callers_again(writers):
    item: dict[str, Any] = {"text": "hi"}
    append(writers, item)
    item["text"] = "changed"
    append(writers, "next")
    assert items(writers) == [{"text": "hi"}, "next"]


def test_a_value_that_was_read_is_the_callers_again(writers):
    append(writers, {"text": "hi"})

    def look(state: Versioned) -> Any:
        state["loaded"] = {"n": 1}
        state.commit(on_moved=OnMoved.REFUSE)
        return state["loaded"], state["items"][0]

    for value in writers.write("b", look):
        value.clear()
    append(writers, "next")
    assert items(writers) == [{"text": "hi"}, "next"]
    assert writers.repository.snapshot("b")["loaded"] == {"n": 1}


def test_changes_that_were_not_committed_are_lost(writers):
    append(writers, "one")
    for edit in (lambda state: state.sequence("items").append("no"), lambda state: state.update(other="no")):
        writers.write("b", edit)
    append(writers, "two")
    assert items(writers) == ["one", "two"]
    assert list(writers.repository.snapshot("b")) == ["items"]


def test_an_edit_that_raises_leaves_nothing_for_the_next(writers):
    append(writers, "one")

    def fail(state: Versioned) -> None:
        state.sequence("items").append("no")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writers.write("b", fail)
    append(writers, "two")
    assert items(writers) == ["one", "two"]


@pytest.mark.parametrize("move", ["commit", "reset", "delete", "create again", "purge"])
def test_a_function_never_sees_what_others_have_changed_since(writers, move):
    append(writers, "one")
    append(writers, "two")
    repository = writers.repository
    with Versioned(repository, branch="b") as other:
        if move == "commit":
            other["items"].append("three")
            other.commit()
        elif move == "reset":
            other.reset("HEAD~1")
        elif move == "purge":
            repository.purge("items")
        else:
            repository.branches.delete("b", force=True)
        if move == "create again":
            repository.branches.create("b", other.head)
    expected = {
        "commit": ["one", "two", "three"],
        "reset": ["one"],
        "delete": [],
        "create again": ["one", "two"],
        "purge": [],
    }[move]
    assert writers.write("b", lambda state: list(state.get("items", []))) == expected
    append(writers, "last")
    assert items(writers) == [*expected, "last"]


def test_branches_are_written_together_or_not_at_all(writers):
    def edit(states: list[Versioned]) -> None:
        for state in states:
            state["n"] = state.get("n", 0) + 1
        Repository.commit_together(states, on_moved=OnMoved.REFUSE)

    for number in range(1, 4):
        writers.write_together(["x", "y"], edit)
        with Versioned(writers.repository, branch="y") as other:  # the handle of one of the two is behind
            other["n"] *= 10
            other.commit()
        assert [writers.repository.snapshot(name)["n"] for name in "xy"] == [number, {1: 10, 2: 110, 3: 1110}[number]]


def test_a_closed_adapter_has_no_handles(tmp_path):
    states: list[Versioned] = []
    with Adapter(tmp_path / "store") as adapter:
        append(adapter.writers, 1)
        adapter.writers.write("b", states.append)
        assert not port.is_closed(states[0])
    assert port.is_closed(states[0])
    assert not list(tmp_path.rglob("*-wal"))  # no handle holds the store


@pytest.mark.parametrize("leaves", ["an error", "a change", "a branch that others moved"])
def test_a_handle_that_is_not_kept_is_closed(writers, leaves):
    states: list[Versioned] = []

    def edit(state: Versioned) -> None:
        states.append(state)
        if leaves == "a change":
            state["left"] = 1
        if leaves == "an error":
            raise ZeroDivisionError

    append(writers, "one")
    with suppress(ZeroDivisionError):
        writers.write("b", edit)
    if leaves == "a branch that others moved":
        assert not port.is_closed(states[0])
        append(Writers(writers.repository), "two")
        append(writers, "three")
    assert port.is_closed(states[0])


@pytest.mark.parametrize("at", [1, 2])
def test_no_handle_stays_open_if_one_of_two_branches_cannot_be_read(at):
    store = Faulty(Memory())
    writers = Writers(Repository(store))
    states: list[Versioned] = []
    for branch in "xy":
        append(writers, "one", branch=branch)
        writers.write(branch, states.append)
    store.arm(at)
    with pytest.raises(InjectedFaultError):
        writers.write_together("xy", lambda _: None)
    assert [port.is_closed(state) for state in states] == [True, at == 2]
