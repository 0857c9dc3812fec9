"""Typed values in merges, blame, grep, history, policies and purge: all by path, to any depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.exact import exact
from tests.support.typed_classes import (
    History,
    Loose,
    Message,
    Model,
    Open,
    Part,
    Place,
    Plain,
    Point,
    Prefs,
    Recent,
    Slots,
    Step,
    Visit,
)
from versioned_state import Memory, Repository, Tagged, Versioned
from versioned_state.errors import MergeConflictError

LONG = [f"{n} " + "x" * 60 for n in range(200)]


def branches(base: Any, *changes: Callable[[Any], object]) -> list[Versioned]:
    """Handles on branches that begin with a value, each with its own change."""
    repository = Repository(Memory())
    begin = Versioned(repository)
    begin["value"] = base
    begin.commit("begin")
    handles = []
    for number, change in enumerate(changes):
        begin.repository.branches.create(f"b{number}")
        state = Versioned(repository, branch=f"b{number}")
        changed = change(state["value"])
        if changed is not None:
            state["value"] = changed
        state.commit(f"change {number}")
        handles.append(state)
    return handles


def _set(**attributes: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for name, held in attributes.items():
            setattr(value, name, held)

    return change


Change = Callable[[Any], Any]


def _add_part(model: Any) -> None:
    model.parts.append(2)
    model._seen.append(1)


BASES: dict[str, tuple[Callable[[], Any], Change, Change, str]] = {
    "dataclass": (lambda: Message("user", "a", ["t"]), _set(role="tool"), lambda v: v.tags.append("new"), ".role"),
    "model": (lambda: Model(name="a", parts=[1]), _set(name="b"), _add_part, ".name"),
    "model, extra": (lambda: Open.model_validate({"a": 1}), _set(b=1), _set(c=2), ".b"),
    "attrs": (lambda: Visit("Rome", [1]), _set(city="Oslo"), lambda v: v.stops.append(2), ".city"),
    "ordinary": (lambda: Plain(m=1), _set(z=1, zz=2, a=0), _set(za=3, b=1), ".a"),
    "slots": (lambda: Slots(a=1), _set(a=2), _set(b=3), ".a"),
    "large": (
        lambda: Message("user", list(LONG)),
        lambda v: v.content.insert(0, "first"),
        lambda v: v.content.append("last"),
        ".content[0]",
    ),
    "nested": (
        lambda: [Plain(m=Model(name="a", part=Part(text=[1])))],
        lambda v: _set(kind="x")(v[0].m.part),
        lambda v: v[0].m.part.text.append(2),
        "[0].m.part.kind",
    ),
    "NamedTuple": (lambda: Place("Rome", 1), lambda v: v._replace(city="Oslo"), lambda v: v._replace(at=2), ".city"),
    "frozen": (
        lambda: {"p": Point(1, 2)},
        lambda v: {"p": Point(5, v["p"].y)},
        lambda v: {"p": Point(v["p"].x, 6)},
        ".p.x",
    ),
    "list subclass": (lambda: History([1, 2, 3], title="t"), lambda v: v.insert(0, 0), lambda v: v.append(4), "[0]"),
    "list subclass and its attribute": (lambda: History([1], title="t"), _set(title="u"), lambda v: v.append(4), ""),
    "list subclass, all of it": (
        lambda: History([1], title="t"),
        lambda v: (v.append(2), _set(title="u")(v))[1],
        lambda _: None,
        "",
    ),
    "dict subclass": (lambda: Prefs(m=1), lambda v: v.update(z=1), lambda v: v.update(zz=2), ".z"),
    "deque": (lambda: Recent([1, 2]), lambda v: v.appendleft(0), lambda v: v.append(3), "[0]"),
}


@pytest.mark.parametrize("known", [True, False], ids=["with the class", "as Tagged"])
@pytest.mark.parametrize("kind", BASES)
def test_different_fields_are_merged_into_what_both_changes_give(kind, known):
    make, ours, theirs, _ = BASES[kind]
    first, _ = branches(make(), ours, theirs)
    expected = make()
    for change in (ours, theirs):
        changed = change(expected)
        expected = expected if changed is None else changed
    repository = Repository(first.repository.store, pickle="own" if known else "refuse")
    merging = Versioned(repository, branch="b0")
    live = merging["value"]
    merging.merge("b1")
    scratch = Versioned()
    scratch["value"] = expected
    assert merging.head.root == scratch.commit().root, "in the form in which it is written anew"
    if known:
        assert exact(Versioned(first.repository, branch="b0")["value"]) == exact(merging["value"])
    elif type(live) is Tagged:
        assert type(merging["value"]) is Tagged


@pytest.mark.parametrize("kind", BASES)
def test_paths_of_a_change_go_inside(kind):
    make, ours, _, path = BASES[kind]
    (state,) = branches(make(), ours)
    found = [str(change.path) for change in state.diff("HEAD~1")]
    assert f"value{path}" in found
    assert all(each.startswith("value") for each in found)
    patch = state.diff("HEAD~1").to_patch()
    other = Versioned()
    other["value"] = make()
    other.apply(patch)
    assert exact(other["value"]) == exact(state["value"])


@pytest.mark.parametrize(
    ("base", "path"),
    [
        (lambda: Message("user", "a"), "value.content"),
        (lambda: [1, {"in": Plain(content="a", other=Loose(1))}], "value[1].in.content"),
        (lambda: Message("user", [Step(1, Message("tool", "a"))], list(LONG)), "value.content[0].result.content"),
    ],
)
def test_one_field_on_both_sides_is_a_conflict_at_its_path(base, path):
    first, _ = branches(base(), lambda v: _deep(v, path, "ours"), lambda v: _deep(v, path, "theirs"))
    before = exact(first["value"])
    with pytest.raises(MergeConflictError) as caught:
        first.merge("b1")
    assert [(str(each.path), each.base, each.ours, each.theirs) for each in caught.value.conflicts] == [
        (path, "a", "ours", "theirs")
    ]
    assert exact(first["value"]) == before
    first.merge("b1", policies={path: "theirs"})
    assert first.checkout("HEAD").at(path) == "theirs"


def _deep(value: Any, path: str, new: Any) -> None:
    steps = path.removeprefix("value").replace("[", ".").replace("]", "").strip(".").split(".")
    for step in steps[:-1]:
        value = value[int(step)] if step.isdigit() else value[step] if type(value) is dict else getattr(value, step)
    setattr(value, steps[-1], new)


def test_policies_by_path_inside_of_instances():
    first, _ = branches(
        [Plain(count=1, log=["a"], best=3)],
        lambda v: _set(count=5, best=9, log=[*v[0].log, "ours"])(v[0]),
        lambda v: _set(count=2, best=4, log=[*v[0].log, "theirs"])(v[0]),
    )
    first.merge("b1", policies={"value[*].count": "sum", "value.**.log": "append", "value[0].best": "max"})
    merged = first["value"][0]
    assert (merged.count, merged.best, sorted(merged.log)) == (6, 9, ["a", "ours", "theirs"])


def test_another_class_on_one_side_is_a_conflict_of_the_whole():
    first, _ = branches(Message("user", "a"), lambda v: Plain(role="user", content="a", tags=[]), _set(content="b"))
    with pytest.raises(MergeConflictError) as caught:
        first.merge("b1")
    assert [str(each.path) for each in caught.value.conflicts] == ["value"]


@pytest.mark.parametrize("size", [1, 200])
def test_blame_history_and_grep_go_inside(size):
    state = Versioned()
    state["agent"] = agent = Plain(notes=[Message("user", f"note {n}") for n in range(size)], best=Point("needle", 1))
    state.commit("first")
    agent.notes[0].content = "needle two"
    state.commit("second")
    agent.notes.append(Message("tool", "last"))
    state.commit("third")
    assert [part.commit.message for part in state.blame("agent.notes[0].content")] == ["second"]
    assert [part.commit.message for part in state.blame("agent.notes[0].role")] == ["first"]
    assert [part.commit.message for part in state.blame("agent.best.x")] == ["first"]
    assert [touch.commit.message for touch in state.history("agent.notes[0].content")] == ["second", "first"]
    assert [commit.message for commit in state.log(path="agent.notes[0]")] == ["second", "first"]
    assert [str(match.path) for match in state.grep("needle")] == ["agent.best.x", "agent.notes[0].content"]
    assert [commit.message for commit in state.log(changed=Message("tool", "last"))] == ["third"]
    assert [str(match.path) for match in state.grep("needle", path="agent.notes")] == ["agent.notes[0].content"]


@pytest.mark.parametrize("size", [1, 200])
def test_a_field_is_purged_from_every_commit(size):
    state = Versioned()
    state["users"] = [Model(name=f"secret {n}", parts=[n]) for n in range(size)]
    state["one"] = Plain(name="secret", kept=Message("user", "secret no more"))
    state.commit("first")
    state["users"][0].parts.append("more")
    state.commit("second")
    repository = state.repository
    state.close()
    repository.purge("users[0].parts", "one.name")
    for commit in repository.log("main"):
        described = repository.snapshot(commit, describe=True)
        if "one" in described:
            assert "name" not in described["one"].fields
            assert [n for n, each in enumerate(described["users"]) if "parts" not in each.fields] == [0]
    again = Versioned(repository)
    assert again["one"].kept == Message("user", "secret no more")
    assert (again["users"][0].name, again["users"][0].parts) == ("secret 0", []), (
        "the default of a field that is not stored"
    )
    assert not again.status()


def test_restore_and_apply_reach_into_instances():
    state = Versioned()
    value: Any = {"agent": Plain(plan=["a"], at=Point(1, 2), place=Place("Rome")), "log": History([Step(1)], title="t")}
    state["value"] = value
    first = state.commit("first")
    value["agent"].plan.append("b")
    value["agent"].at = Point(7, 2)
    value["agent"].place = Place("Oslo")
    value["log"][0].result = "done"
    value["log"].append(Step(2))
    second = state.commit("second")
    agent, step = value["agent"], value["log"][0]
    for path in (
        "value.agent.at.x",
        "value.agent.place.city",
        "value.agent.plan[1]",
        "value.log[0].result",
        "value.log[1]",
    ):
        state.restore(path, at=first)
    assert exact(state["value"]) == exact(state.checkout(first)["value"])
    assert [value["agent"] is agent, value["log"][0] is step, agent.at] == [True, True, Point(1, 2)]
    state.apply(state.diff(first, second).to_patch())
    assert exact(state["value"]) == exact(state.checkout(second)["value"])
    assert [value["agent"] is agent, value["log"][0] is step, agent.place] == [True, True, Place("Oslo")]
    state.apply(state.diff(second, first))
    state.commit("third")
    assert state.head.root == first.root
