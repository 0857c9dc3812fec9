"""References stay valid as the head moves: instances are mended in place, and frozen ones replaced in their holders."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.support.exact import exact
from tests.support.interrupts import Interrupt, Timeout, Trace
from tests.support.typed_classes import (
    Both,
    Fixed,
    Groups,
    History,
    Loose,
    Message,
    Model,
    Names,
    Open,
    Place,
    Plain,
    Point,
    Prefs,
    Recent,
    Slim,
    Slots,
    Step,
    Strict,
    Tags,
    ToolError,
    Visit,
)
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import StateError
from versioned_state.storage.testing.writers import run_together

# handles that an interrupt left are dropped with changes
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def put(value: Any, name: str, held: Any) -> Any:
    setattr(value, name, held)


def drop(value: Any, name: str) -> Any:
    delattr(value, name)


MUTABLE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "dataclass": (lambda: Message("user", ["a"]), lambda v: v.content.append("b")),
    "dataclass, a field": (lambda: Message("user", "a"), lambda v: put(v, "role", "tool")),
    "dataclass, a field more": (lambda: Message("user", "a"), lambda v: put(v, "new", [1])),
    "dataclass, a field less": (lambda: Message("user", "a"), lambda v: drop(v, "role")),
    "dataclass with slots": (lambda: Step(1, ["a"]), lambda v: v.result.append("b")),
    "model": (lambda: Model(name="a", parts=[1]), lambda v: (put(v, "name", "b"), v.parts.append(2))),
    "model, private": (lambda: Model(name="a"), lambda v: (v._seen.append(1), put(v, "_note", "n"))),
    "model, extra": (lambda: Open.model_validate({"a": [1]}), lambda v: (v.a.append(2), put(v, "b", 1))),
    "model, fields given": (Open, lambda v: put(v, "name", "")),
    "root model": (lambda: Names([1]), lambda v: v.root.append(2)),
    "attrs": (lambda: Visit("Rome", [1]), lambda v: (v.stops.append(2), put(v, "city", "Oslo"))),
    "attrs without slots": (lambda: Loose([1]), lambda v: v.held.append(2)),
    "ordinary": (lambda: Plain(a=[1], b=Plain(c=1)), lambda v: (v.a.append(2), put(v.b, "c", 2))),
    "slots": (lambda: Slots(a=[1]), lambda v: (v.a.append(2), put(v, "b", 1))),
    "both": (lambda: Both(a=[1], c=1), lambda v: (drop(v, "a"), put(v, "d", 1))),
    "list subclass": (
        lambda: History([1, [2]], title="a"),
        lambda v: (v[1].append(3), v.append(4), put(v, "title", "b")),
    ),
    "dict subclass": (lambda: Prefs(a=[1]), lambda v: (v["a"].append(2), v.update(b=1), put(v, "owner", "me"))),
    "defaultdict subclass": (lambda: Groups(list, a=[1]), lambda v: (v["a"].append(2), v["b"].append(1))),
    "deque subclass": (lambda: Recent([1, [2]]), lambda v: (v[1].append(3), v.appendleft(0))),
    "set subclass": (lambda: Tags({1, 2}), lambda v: (v.add(3), v.discard(1))),
}
FROZEN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "frozen dataclass": (lambda: Point([1]), lambda v: Point([1, 2])),
    "frozen with slots": (lambda: Slim([1]), lambda v: Slim([1], "b")),
    "frozen attrs": (lambda: Fixed(1), lambda v: Fixed(2)),
    "frozen model": (lambda: Strict(n=1), lambda v: Strict(n=2)),
    "NamedTuple": (lambda: Place("Rome"), lambda v: v._replace(city="Oslo")),
}
MOVES: list[Callable[[Versioned], object]] = []


def _move(move: Callable[[Versioned], object]) -> Callable[[Versioned], object]:
    MOVES.append(move)
    return move


@_move
def reset(state: Versioned) -> None:
    state.reset("second")


@_move
def merge(state: Versioned) -> None:
    state["mine"] = 1
    state.commit("mine")
    state.merge("second")


@_move
def refresh(state: Versioned) -> None:
    _theirs(state)
    state.refresh()


@_move
def commit(state: Versioned) -> None:
    _theirs(state)
    state["mine"] = 1
    state.commit("on a moved branch")


@_move
def undo(state: Versioned) -> None:
    state.reset("second")
    state.reset("first")
    state.undo()


@_move
def switch(state: Versioned) -> None:
    state.switch("second")


@_move
def failed_transaction(state: Versioned) -> None:
    state.reset("second")
    with suppress(ZeroDivisionError), state.transaction():
        state["value"] = "gone"
        raise ZeroDivisionError


def _theirs(state: Versioned) -> None:
    other = Versioned(state.repository, branch="main")
    other.reset("second")
    other.close()


def prepared(first: Any, second: Any) -> Versioned:
    """A state at the first value, whose branch ``second`` has the second one."""
    repository = Repository(Memory())
    state = Versioned(repository)
    state["value"] = first
    state.commit("first")
    repository.branches.create("first")
    repository.branches.create("second")
    other = Versioned(repository, branch="second")
    other["value"] = second
    other.commit("second")
    other.close()
    return state


WRAPS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda v: {"in": v},
    "in a list": lambda v: {"in": v, "list": [1, {"x": 1}] * 3},
    "in a large one": lambda v: {"in": v, "large": [f"{n}" + "x" * 50 for n in range(300)]},
}


@pytest.mark.parametrize("loaded", [False, True], ids=["given", "loaded"])
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
@pytest.mark.parametrize("kind", MUTABLE)
def test_an_instance_keeps_its_identity_and_sees_the_new_fields(kind, move, loaded):
    make, change = MUTABLE[kind]
    second, other = make(), make()
    change(second)
    change(other)
    state = prepared([make(), {"in": make()}], [second, {"in": other}])
    if loaded:
        state = Versioned(state.repository)
    value = state["value"]
    held, inner = value[0], value[1]["in"]
    move(state)
    assert state["value"] is value
    assert value[0] is held
    assert exact(held) == exact(second)
    assert value[1]["in"] is inner
    assert exact(inner) == exact(second)
    assert not state.status()
    before = exact(held)
    with suppress(AttributeError):  # what it deletes is gone by now
        change(held)
    assert bool(state.status()) == (exact(held) != before), "it is watched as before"
    assert exact(state.checkout(state.commit())["value"][0]) == exact(held)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
@pytest.mark.parametrize("kind", FROZEN)
def test_a_frozen_one_is_replaced_in_what_holds_it(kind, move):
    make, change = FROZEN[kind]
    second = change(make())
    state = prepared({"in": [make(), 1], "agent": Plain(at=make())}, {"in": [second, 1], "agent": Plain(at=second)})
    value = state["value"]
    holders, agent, frozen = value["in"], value["agent"], value["in"][0]
    before = exact(frozen)
    move(state)
    assert state["value"] is value
    assert value["in"] is holders
    assert value["agent"] is agent
    assert exact(holders[0]) == exact(agent.at) == exact(second)
    assert exact(frozen) == before, "whoever holds the old one has what he had"
    assert not state.status()


@pytest.mark.parametrize("wrap", WRAPS)
def test_large_fields_are_mended_in_place_too(wrap):
    first = WRAPS[wrap](Message("user", [f"{n} " + "x" * 60 for n in range(300)], [Plain(n=n) for n in range(200)]))
    state = prepared(first, first)
    other = Versioned(state.repository, branch="second")
    other["value"]["in"].content.insert(0, "new")
    other["value"]["in"].tags[150].n = "changed"
    other.commit()
    held, tags, one = state["value"]["in"], state["value"]["in"].tags, state["value"]["in"].tags[150]
    content = held.content
    state.merge("second")
    assert [held is state["value"]["in"], held.content is content, held.tags is tags, tags[150] is one] == [True] * 4
    assert (content[0], len(content), one.n) == ("new", 301, "changed")


def test_an_exception_is_replaced_in_what_holds_it():
    state = prepared([ToolError("a", 1)], [ToolError("b", 2)])
    holder = state["value"]
    state.reset("second")
    assert state["value"] is holder
    assert (holder[0].code, holder[0].args) == (2, ("b: 2",))


# Interrupts


def content() -> dict[str, Any]:
    return {
        "messages": [Message("user", f"{n}", [n]) for n in range(12)],
        "agent": Plain(plan=["a"], memory=Slots(a=[1], b=Step(1)), model=Model(name="m", parts=[1])),
        "history": History([Point(n) for n in range(4)], title="t"),
        "large": Message("user", ["x" * 60 + str(n) for n in range(80)]),
    }


def edit(state: Any, mark: str) -> None:
    state["messages"][3].content = mark
    state["messages"].append(Message("tool", mark))
    state["agent"].plan.append(mark)
    state["agent"].memory.b.number = mark
    state["agent"].model.parts.append(mark)
    state["history"].title = mark
    state["history"][1] = Point(mark)
    state["large"].content[40] = mark


def _commit(state: Versioned) -> None:
    state.commit("call")


CALLS: dict[str, Callable[[Versioned], object]] = {
    "commit": _commit,
    "status": lambda state: list(state.status()),
    "discard": lambda state: state.discard(),
    "refresh": lambda state: state.refresh(),
    "reset": lambda state: state.reset("first"),
    "checkout": lambda state: state.checkout("first").copy(),
}


def handle(call: str) -> Versioned:
    repository = Repository(Memory())
    state = Versioned(repository)
    state.update(content())
    state.commit("begin")
    repository.branches.create("first")
    edit(state, "second")
    state.commit("second")
    state = Versioned(repository)
    for key in state:
        state[key]
    if call in ("commit", "refresh"):
        theirs = Versioned(repository)
        theirs["messages"][7].tags.append("theirs")
        theirs["agent"].memory.a.append("theirs")
        theirs.commit("theirs")
    if call not in ("refresh", "reset"):
        state["messages"][0].tags.append("mine")
        state["agent"].model.name = "mine"
    return state


@pytest.mark.parametrize("error", [Interrupt, Timeout])
@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_line_loses_no_change(call, error, long_run):
    counted = Trace()
    state = handle(call)
    counted.run(lambda: CALLS[call](state))
    step = 1 if long_run else max(1, counted.count // 15)
    for at in range(1, counted.count + 1, step):
        state = handle(call)
        held = {key: state[key] for key in state}
        trace = Trace(at, error)
        # one of a value that is read names the value, and has the other for its cause
        with suppress(error, StateError):
            trace.run(lambda state=state: CALLS[call](state))  # type: ignore[misc]
        agent, messages = held["agent"], held["messages"]
        agent.plan.append("after")
        messages[2].content = "after"
        held["large"].content.append("after")
        held["history"].title = "after"
        paths = [str(change.path) for change in state.status()]
        assert {"messages[2].content", "history"} <= set(paths), trace.hit
        state.commit("after")
        assert exact(dict(Versioned(state.repository))) == exact(held), trace.hit
        past = state.checkout("HEAD")
        assert [past.at("agent.plan[-1]"), past.at("large.content[-1]"), past.at("messages[2].content")] == [
            "after"
        ] * 3, trace.hit
        if call == "commit":
            assert past.at("messages[0].tags[-1]") == "mine", trace.hit
            assert "theirs" in past.at("messages[7].tags"), trace.hit


# Threads


def test_handles_in_threads_merge_their_changes_of_one_instance():
    repository = Repository(Memory())
    state = Versioned(repository)
    state["agent"] = Plain(**{f"f{n}": [] for n in range(4)})
    # Lists are merged by content: of equal elements one could stand for another.
    state["notes"] = [Message("user", str(n), [0]) for n in range(8)]
    state.commit()

    def work(number: int) -> None:
        mine = Versioned(repository)
        for round_ in range(10):
            getattr(mine["agent"], f"f{number}").append(round_)
            mine["notes"][number].tags.append(round_)
            mine.commit(f"{number} {round_}")

    run_together(partial(work, number) for number in range(4))
    state.refresh()
    assert [getattr(state["agent"], f"f{n}") for n in range(4)] == [list(range(10))] * 4
    assert [note.tags[1:] for note in state["notes"][:4]] == [list(range(10))] * 4


def test_threads_that_read_and_write_one_handle():
    state = Versioned()
    state["notes"] = [Message("user", str(n)) for n in range(50)]
    state.commit()

    def read() -> None:
        for _ in range(30):
            assert len(state.checkout("HEAD")["notes"]) >= 50
            assert state["notes"][0].role == "user"
            state.status()

    def write() -> None:
        for n in range(15):
            state[f"new{n}"] = Message("user", [n])
            state.commit()

    run_together([read, read, read, write])
