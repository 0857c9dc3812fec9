"""Event logs, rounds, histories, workspaces and merges at every size at which their trees change, with small nodes.

The trees of the engine's own keys are held against the rules of the format, item by item (``reference_trees``); what
they have, against plain Python values.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.checked_states import assert_same, root_from_scratch
from tests.support.reference_trees import assert_canonical
from tests.support.segments import assert_forms
from tests.support.workspaces import lay, tree_of
from versioned_state import (
    Commit,
    KVStore,
    Memory,
    Repository,
    Versioned,
    Workspace,
    checkpoint,
    emit,
    events,
    register,
    task,
)
from versioned_state.agents.events.entries import EVENTS
from versioned_state.services.agent_state import StateService
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.values.cells import Code
from versioned_state.values.keys import OLDER_ROUNDS
from versioned_state.values.series import parts_of, series_of
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import find, iter_items

pytestmark = pytest.mark.usefixtures("small_tree_nodes")


@register
@dataclass
class Happened:
    """An event."""

    number: int
    note: str


@task
def act(numbers: list[int], stops: int, state: Versioned) -> None:
    for at, number in enumerate(numbers):
        emit(Happened(number, "note " * (number % 7)))
        if at == stops:
            checkpoint("in the middle")
    state["count"] = state.get("count", 0) + len(numbers)


def assert_series(store: KVStore, commit: Commit) -> int:
    """The log of a commit has the parts of one that was written at once. Returns how many levels its tree has."""
    repository = Repository(store)
    nodes = Nodes(repository.snapshot(commit.id)._reader)
    cell = find(nodes, commit.tree, EVENTS)
    parts = parts_of(cell)
    entries = {key[1:].decode(): each for part in parts for key, each in iter_items(nodes, part.tree)}
    fresh = Versioned(Memory())._worktree._nodes
    assert series_of(fresh, None).extended(fresh, entries).cell == cell
    return nodes.get(Shape.MAP, parts.complete.tree.top).level + 1


def test_an_event_log_grows_by_single_events_and_by_several():
    for seed, most in ((1, 1), (2, 5)):
        rng = random.Random(seed)
        store = Memory()
        state = Versioned(store)
        told: list[int] = []
        levels = 0
        while len(told) < 60:
            numbers = list(range(len(told), len(told) + rng.randrange(1, most + 1)))
            act(numbers, rng.choice([-1, -1, 0]), state=state)
            told += numbers
            if rng.random() < 0.3:
                state = Versioned(store)
            if len(told) % 3 == 0 or rng.random() < 0.2:
                found = [event.number for event in events(Repository(store).snapshot("main"), types=Happened)]
                assert found == told
                assert [event.number for event in events(state, types=Happened, reverse=True, limit=7)] == told[::-1][
                    :7
                ]
                assert state["count"] == len(told)
                assert_canonical(store, state.head.tree)
                levels = max(levels, assert_series(store, state.head))
        assert levels >= 4
        assert_forms(store)
        assert Repository(store).fsck().ok


def test_logs_of_two_branches_are_merged():
    store = Memory()
    state = Versioned(store)
    act(list(range(20)), -1, state=state)
    told = set(range(20))
    for turn in range(8):
        fork = state.fork(f"fork-{turn}")
        act([1000 + turn], -1, state=state)
        act([2000 + turn, 3000 + turn], -1, state=fork)
        state.merge(f"fork-{turn}", policies={"count": "ours"})
        told |= {1000 + turn, 2000 + turn, 3000 + turn}
        found = [event.number for event in events(Repository(store).snapshot("main"), types=Happened)]
        assert sorted(found) == sorted(told)
        assert_canonical(store, state.head.tree)
        assert_series(store, state.head)


@pytest.mark.parametrize("kind", ["in a row", "uneven", "any order"])
async def test_rounds_of_a_session(kind: str):
    rng = random.Random(kind)
    numbers = list(range(70)) if kind == "in a row" else rng.sample(range(10_000), 70)
    if kind == "uneven":
        numbers.sort()
    store = Memory()
    model: dict[int, Any] = {}
    messages: list[Any] = []
    levels = 0
    async with StateService.over(Repository(store)) as service:
        for turn, number in enumerate(numbers):
            messages.append({"n": number, "text": "word " * (turn % 5)})
            if turn % 9 == 8:
                del messages[rng.randrange(len(messages))]
            value = {"messages": [dict(each) for each in messages], "turn": turn}
            await service.save_state("u", value, round_id=number)
            model[number] = value
            if turn % 13 == 12:
                gone = rng.choice([each for each in model if each != number])
                await service.delete_state("u", None, gone)
                del model[gone]
            assert await service.list_rounds("u") == sorted(model)
            if turn % 5 == 0:
                picked = rng.choice(list(model))
                async with StateService.over(Repository(store)) as fresh:
                    assert await fresh.list_rounds("u") == sorted(model)
                    assert await fresh.export_state("u", None, picked) == model[picked]
                    assert await fresh.export_state("u") == model[max(model)]
                head = Repository(store).snapshot(service.branch("u")).commit
                assert head is not None
                found = assert_canonical(store, head.tree)
                nodes = Nodes(Repository(store).snapshot(head.id)._reader)
                if find(nodes, head.tree, OLDER_ROUNDS) is not None:
                    levels = max(levels, found[Code.DICT_TREE])
        for number in numbers:
            expected = model.get(number)
            assert await service.export_state("u", None, number) == expected
    assert levels >= (0 if kind == "in a row" else 4), levels
    assert Repository(store).fsck().ok


async def test_the_messages_of_a_session():
    store = Memory()
    model: list[str] = []
    rng = random.Random(3)
    async with SessionHistoryService.over(Repository(store)) as service:
        session = await service.create_session("u", "s")
        for turn in range(70):
            some = [
                f"message {turn} {index} " + "word " * rng.randrange(4) for index in range(rng.choice([1, 1, 2, 5]))
            ]
            await service.append_message(
                session, [{"role": "user", "content": [{"type": "text", "text": each}]} for each in some]
            )
            model += some
            if turn % 4 == 0:
                async with SessionHistoryService.over(Repository(store)) as fresh:
                    found = await fresh.get_session("u", "s")
                    assert found is not None
                    assert [text_of(each) for each in found.messages] == model
                    last = await fresh.get_session("u", "s", 3)
                    assert last is not None
                    assert [text_of(each) for each in last.messages] == model[-3:]
                head = Repository(store).snapshot(service.branch("u", "s")).commit
                assert head is not None
                assert_canonical(store, head.tree)
    assert_forms(store)
    assert Repository(store).fsck().ok


def text_of(message: Any) -> str:
    content = message.content if hasattr(message, "content") else message["content"]
    return (
        content if isinstance(content, str) else "".join(getattr(part, "text", "") or part["text"] for part in content)
    )


def test_a_workspace_grows_and_shrinks_file_by_file(tmp_path: Path):
    store = Memory()
    folder = tmp_path / "files"
    state = Versioned(store)
    workspace = Workspace(state, folder)
    rng = random.Random(5)
    model: dict[str, Any] = {}
    kept: list[tuple[str, dict[str, Any]]] = []
    levels = 0
    for turn in range(80):
        size = len(model)
        if turn < 45 or rng.random() < 0.2:
            name = rng.choice(["a", "m", "z"]) + f"{turn:03}/{rng.choice('xyz')}{turn}.txt"
            model[name] = 0o644, f"line {turn}\n".encode() * rng.randrange(30)
        elif size:
            del model[rng.choice(sorted(model))]
        if size and rng.random() < 0.4:
            name = rng.choice(sorted(model) or ["one"])
            model[name] = 0o644, f"changed {turn}\n".encode() * rng.randrange(1, 9)
        lay(folder, model)
        state.commit(f"turn {turn}", allow_empty=True)
        assert not workspace.status()
        if turn % 4 == 0:
            found = assert_canonical(store, state.head.tree)
            levels = max(levels, found.get(Code.DICT_TREE, 0))
            kept.append((state.head.id, dict(model)))
    assert levels >= 4
    for at, expected in rng.sample(kept, 6):
        state.reset(at)
        assert tree_of(folder) == expected
    state.close()


MERGED: dict[str, Any] = {
    "list": (
        lambda size: [{"number": n, "in": "a list"} for n in range(size)],
        lambda v: v.insert(0, "ours"),
        lambda v: v.append("theirs"),
    ),
    "list, inside": (
        lambda size: [{"number": n, "in": "a list"} for n in range(size)],
        lambda v: v[0].update(ours=1) if v else v.append("ours"),
        lambda v: v.__delitem__(-1) if len(v) > 4 else None,
    ),
    "dict": (
        lambda size: {f"key {n:03}": n for n in range(size)},
        lambda v: v.update({f"a {n}": n for n in range(3)}),
        lambda v: v.update({"key 001x": "theirs", "z": 1}),
    ),
    "set": (
        lambda size: {f"element {n}" for n in range(size)},
        lambda v: v.add("ours"),
        lambda v: v.discard("element 1"),
    ),
}


@pytest.mark.parametrize("kind", MERGED)
def test_both_sides_of_a_merge_at_every_size(kind: str):
    make, ours, theirs = MERGED[kind]
    for size in [*range(2, 12), *range(12, 70, 3)]:
        store = Memory()
        state = Versioned(store)
        state["v"], state["by"] = make(size), {"n": 1}
        state.commit()
        fork = state.fork("fork") if size % 2 else Versioned(state.fork("fork").repository, branch="fork")
        ours(state["v"])
        theirs(fork["v"])
        fork["their"] = 1
        state.commit(allow_empty=True)
        fork.commit()
        state.merge("fork")
        model = {"v": make(size), "by": {"n": 1}, "their": 1}
        ours(model["v"])
        theirs(model["v"])
        if kind == "dict":
            model["v"] = {key: model["v"][key] for key in state["v"]}  # the order of keys is for the tests of merges
        assert_same(dict(Repository(store).snapshot("main")), model)
        assert_same(dict(state), model)
        assert state.head.root == root_from_scratch(model)
        assert_canonical(store, state.head.tree)
        state["v"] = state["v"]
        assert not state.status()


def test_commits_onto_a_branch_that_has_moved_are_those_of_one_writer():
    """Two handles append to one list in turn, each from a head that the other has moved."""
    store = Memory()
    first, second = Versioned(store), Versioned(store)
    first["log"], first["other"] = [], []
    first.commit()
    second.refresh()
    model: dict[str, Any] = {"log": [], "other": []}
    for turn in range(60):
        mine, theirs = (first, second) if turn % 2 else (second, first)
        theirs.refresh()
        mine["log"].append({"number": turn, "by": "one"})
        theirs.sequence("other").insert(0, {"number": turn, "by": "two"})
        mine.commit()
        theirs.commit()
        model["log"].append({"number": turn, "by": "one"})
        model["other"].insert(0, {"number": turn, "by": "two"})
        assert_same(dict(Repository(store).snapshot("main")), model)
        assert Repository(store).snapshot("main").commit.root == root_from_scratch(model)  # type: ignore[union-attr]
        assert list(theirs["log"]) == model["log"]
        if turn % 7 == 0:
            mine.refresh()
