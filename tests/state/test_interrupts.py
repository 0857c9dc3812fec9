"""An interrupt at any line of any call leaves a handle that sees every change and undoes nobody's.

Each case runs one call on a fresh handle under a trace that raises at the k-th line of the library, for one k after the
other. Then it goes on as an agent would: it changes values through the references that it holds, looks at ``status()``,
and commits.
"""

from __future__ import annotations

import copy
import gc
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from types import FrameType
from typing import Any, ClassVar

import pytest

from tests.support.dice import dice
from tests.support.handles import RollbackWantedError, committed
from tests.support.interrupts import Interrupt, Timeout, Trace, in_finalizer
from tests.support.lossy import Lossy
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import CommitInDoubtError, MergeConflictError, StateError
from versioned_state.state.branch.branch_handle import BranchHandle

# handles that an interrupt left are dropped with changes
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

_HANDLE_LINES = 3
_OTHER_LINES = 1


class Note:
    """An object of an agent: stored by pickle, live by identity."""

    def __init__(self) -> None:
        self.words = ["one"]
        self.count = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]


def _content() -> dict[str, Any]:
    return {
        "list": [{"n": index, "text": "x" * 30} for index in range(40)],
        "dict": {f"k{index}": [index] for index in range(5)},
        "big": {f"key {index}": "value " * 5 for index in range(30)},
        "text": "\n".join(f"line {index} of a long text" for index in range(120)),
        "note": Note(),
        "set": {1, 2, 3},
        "tail": [{"n": index, "text": "y" * 30} for index in range(40)],
        "gone": [1, 2, 3],
        "small": 1,
    }


_BASE = Memory()


def _base() -> Memory:
    """Return a copy of a store with three commits on main, and a branch "side" off the second."""
    if not _BASE._objects:
        repository = Repository(_BASE)
        state = Versioned(repository)
        state.update(_content())
        state.namespace("team")["plan"] = {"steps": ["a", "b"]}
        state.commit("one")
        state["list"].append({"n": "second"})
        state["dict"]["second"] = [2]
        state.commit("two")
        side = state.fork("side")
        side["list"][5]["n"] = "side"
        side["side"] = [1]
        side.namespace("team")["plan"]["side"] = 1
        side.commit("on the side")
        state["list"].append({"n": "third"})
        state["big"]["third"] = "3"
        state.namespace("team")["plan"]["steps"].append("third")
        state.commit("three")
    store = Memory()
    store._objects = dict(_BASE._objects)
    store._mutable = dict(_BASE._mutable)
    store._ordered = list(_BASE._ordered)
    return store


@dataclass
class World:
    """A handle, with references to what it holds, and another writer."""

    CHANGED: ClassVar = ("list", "dict", "note", "set", "big")

    moved: bool = False
    dirty: bool = True

    def __post_init__(self) -> None:
        self.store = Lossy(_base())
        self.repository = Repository(self.store)
        self.second = Versioned(self.repository)
        self.second_list = self.second["list"]
        self.state = Versioned(self.repository)
        self.plan = self.state.namespace("team")
        self.held = {key: self.state[key] for key in ("list", "dict", "big", "note", "set", "gone")}
        self.held_plan = self.plan["plan"]
        self.extra: Any = None
        if self.moved:
            other = Versioned(self.repository)
            other["list"][3]["n"] = "theirs"
            other["dict"]["theirs"] = ["acknowledged"]
            other["theirs"] = "acknowledged"
            other["set"].add("theirs")
            other["big"]["key 3"] = "theirs"
            other.namespace("team")["plan"]["theirs"] = True
            other["tail"].insert(0, "theirs")
            other.commit("theirs")
        if self.dirty:
            self.held["list"].append("ours")
            self.held["dict"]["ours"] = [1]
            self.held["note"].words.append("ours")
            self.held["set"].add("ours")
            self.state["ours"] = {"new": [1]}
            self.held["ours"] = self.state["ours"]
            self.state["text"] = self.state["text"].replace("line 7 ", "ours 7 ")
            self.held_plan["steps"].append("ours")
            self.state.sequence("tail").extend(["ours 1", "ours 2"])

    def content(self) -> dict[str, Any]:
        """A deep copy of what the state holds now. The list of the sequence is not loaded."""
        found = {key: copy.deepcopy(self.state[key]) for key in self.state if key != "tail"}
        if "tail" in self.state:
            found["tail"] = list(self.state.sequence("tail"))
        found["/plan"] = copy.deepcopy(dict(self.plan))
        return found

    def references(self) -> list[str]:
        """Held references that are not what the state holds any more."""
        lost = [key for key, value in self.held.items() if key in self.state and self.state[key] is not value]
        if "plan" in self.plan and self.plan["plan"] is not self.held_plan:
            lost.append("plan")
        return lost

    def change(self) -> None:
        """What an agent does next: through the references that it holds, and otherwise."""
        self.held["list"].append("after")
        self.held["dict"]["after"] = [1]
        self.held["note"].words.append("after")
        self.held["set"].add("after")
        self.held["big"]["after"] = "1"
        self.held_plan["after"] = [1]
        self.state.sequence("tail").append("after")
        self.state["after"] = {"n": 1}


def stored(snapshot: Any) -> dict[str, Any]:
    found = {key: snapshot[key] for key in snapshot}
    found["/plan"] = dict(snapshot.namespace("team"))
    return found


@dataclass(frozen=True)
class Case:
    """One call, and the handle that it is made on.

    Attributes:
        parts: the call may be half done, as a loop of calls would be.
        replaces: it may take the place of live values by others.
    """

    call: Callable[[World], object]
    moved: bool = False
    dirty: bool = True
    parts: bool = False
    replaces: bool = False
    prepare: Callable[[World], object] | None = None
    fails: bool = False

    def world(self) -> World:
        world = World(moved=self.moved, dirty=self.dirty)
        if self.prepare is not None:
            self.prepare(world)
        return world

    def run(self, world: World) -> None:
        try:
            self.call(world)
        except StateError:
            if not self.fails:
                raise


class Signal(Trace):
    """Raises the error of a signal handler in the handle's own code, and Ctrl-C beneath it.

    There, any Exception that comes out of the code of a type means that its value cannot be stored or read.
    """

    def error_in(self, file: str) -> type[BaseException]:
        return self.error if "/state/" in file else Interrupt


def problems(
    case: Case, at: int, after: dict[str, Any], error: type[BaseException] = Interrupt
) -> tuple[str, list[str]]:
    """Where the interrupt came, and what is wrong then."""
    world = case.world()
    before = world.content()
    trace = Signal(at, error)
    with suppress(Interrupt, Timeout):
        trace.run(lambda: case.run(world))
    try:
        return trace.hit, _go_on(case, world, before, after) if trace.hit else []
    except Exception as failure:  # noqa: BLE001 - what is wrong then
        return trace.hit, [repr(failure)]
    finally:
        world.state.close()


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def _go_on(case: Case, world: World, before: dict[str, Any], after: dict[str, Any]) -> list[str]:  # noqa: C901 - one check after the other
    """Do what an agent does next. Return what is wrong then."""
    wrong = []
    state = world.state
    now = world.content()
    if now != before and now != after and not case.parts:
        wrong.append(f"half done: {_differing(now, before)} are not as before, {_differing(now, after)} not as after")
    if not case.replaces and world.references():
        wrong.append(f"references lost: {world.references()}")
        return wrong
    if case.replaces:
        for key in world.held:
            if key in state:
                world.held[key] = state[key]
    for key in world.held:
        if key not in state and key in world.CHANGED:
            state[key] = world.held[key]
    world.held_plan = world.plan.setdefault("plan", world.held_plan)
    world.change()
    expected = world.content()
    wrong += [f"the change of {key} was taken back" for key in world.CHANGED if expected[key] != world.held[key]]
    committed = stored(state.checkout(state.head))
    differing = set(_differing(expected, committed))
    shown = {
        "/plan" if str(change.path).startswith("@") else str(change.path).split("[")[0].split(".")[0]
        for change in state.status()
    }
    if differing != shown:
        wrong.append(f"status shows {sorted(shown)}, and {sorted(differing)} differ")
    try:
        _resolved(world)
    except MergeConflictError as error:
        wrong.append(f"conflict: {error}")
        return wrong
    live = world.content()
    kept = stored(world.repository.snapshot(world.state.branch))
    if kept != live:
        wrong.append(f"stored is not what is live: {_differing(kept, live)}")
    if state.status():
        wrong.append(f"left over after the commit: {state.status()}")
    if case.moved:
        if (
            kept.get("theirs") != "acknowledged"
            or kept["dict"].get("theirs") != ["acknowledged"]
            or kept["list"][3]["n"] != "theirs"
        ):
            wrong.append("the other writer's commit was undone")
        if kept["tail"][0] != "theirs" or "theirs" not in kept["set"] or kept["big"]["key 3"] != "theirs":
            wrong.append("the other writer's commit was undone in part")
    else:
        if live != expected:
            wrong.append(f"the commit changed what is live: {_differing(expected, live)}")
    marks = Counter(element for element in kept["tail"] if isinstance(element, str))
    if any(count > 1 for count in marks.values()) or marks["after"] != 1:
        wrong.append(f"appended elements are stored {dict(marks)}")
    counts = Counter(element for element in kept["list"] if isinstance(element, str))
    if any(count > 1 for count in counts.values()):
        wrong.append(f"list has {dict(counts)}")
    if state.branch == "main":
        world.second.refresh()
        if world.second["list"] is not world.second_list or world.second["list"] != kept["list"]:
            wrong.append("the second handle does not follow")
    return wrong


def _transaction(world: World, *, fails: bool = False, nested: bool = False) -> None:
    with world.state.transaction("t"):
        world.held["list"].append("in t")
        world.state["small"] = 2
        world.state["gone"] = [9]
        world.state["gone"] = world.held["gone"]
        world.plan["t"] = 1
        if nested:
            try:
                with world.state.transaction("inner"):
                    world.held["list"].append("inner")
                    world.state["inner"] = 1
                    if fails:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        elif fails:
            raise ZeroDivisionError


def _failing(world: World) -> None:
    with suppress(ZeroDivisionError):
        _transaction(world, fails=True)


def _in_doubt(world: World) -> None:
    """Leave a commit in doubt: the store has it, its reply was lost, and then the store could not be asked."""
    world.store.lose("reply", silent=2)
    with suppress(CommitInDoubtError):
        world.state.commit("in doubt")
    world.store.silent = 0
    world.held["list"].append("since")


def _replaced(world: World) -> None:
    world.state["gone"] = "x"
    del world.state["big"]


def _undo_prepared(world: World) -> None:
    world.state.undo()


def _resolved(world: World) -> None:
    """Commit, and settle by hand what conflicts."""
    try:
        world.state.commit("c")
    except MergeConflictError as error:
        assert error.merge is not None  # noqa: PT017 - it is, of a commit
        for conflict in error.conflicts:
            error.merge.resolve(conflict.path, ["acknowledged"])
        error.merge.commit()


def _apply_prepared(world: World) -> None:
    commits = list(world.state.log(limit=3))
    world.state.reset(commits[2])
    world.extra = world.repository.diff(commits[2], commits[1]).to_patch()


def _ahead(world: World) -> None:
    ahead = world.state.fork("ahead")
    ahead["list"][7]["n"] = "ahead"
    ahead["ahead"] = [1]
    ahead.commit("ahead")


def _edit_sequence(world: World) -> None:
    """Edits in the middle, and an element that is held and changed in place."""
    tail = world.state.sequence("tail")
    del tail[10:13]
    tail.insert(20, "inserted")
    world.extra = tail[25]
    world.extra["changed"] = "in place"


def _edited_in_doubt(world: World) -> None:
    _in_doubt(world)
    _edit_sequence(world)


def _edited_in_vain(world: World) -> None:
    with suppress(RollbackWantedError), world.state.transaction():
        tail = world.state.sequence("tail")
        tail.pop()
        world.extra["changed"] = "in vain"
        tail[3:6] = ["in vain"]
        raise RollbackWantedError


CASES: dict[str, Case] = {
    "first read": Case(lambda world: (world.state["text"], world.state["tail"][0], world.state["small"])),
    "get loaded": Case(lambda world: world.state["list"]),
    "set": Case(lambda world: world.state.__setitem__("gone", {"n": 1}), replaces=True),
    "set new": Case(lambda world: world.state.__setitem__("new", {"n": 1})),
    "delete": Case(lambda world: world.state.__delitem__("gone")),
    "delete tail": Case(lambda world: world.state.__delitem__("tail")),
    "delete unloaded": Case(lambda world: world.state.__delitem__("text")),
    "set after delete": Case(
        lambda world: world.state.__setitem__("gone", [5]),
        prepare=lambda world: world.state.__delitem__("gone"),
        replaces=True,
    ),
    "pop": Case(lambda world: world.state.pop("gone")),
    "popitem": Case(lambda world: world.state.popitem()),
    "setdefault": Case(lambda world: world.state.setdefault("fresh", []).append(1), parts=True),
    "update": Case(
        lambda world: world.state.update({"gone": [1], "fresh": [2], "small": 3}), parts=True, replaces=True
    ),
    "clear": Case(lambda world: world.state.clear(), parts=True, replaces=True),
    "release": Case(lambda world: world.state.release("gone"), replaces=True),
    "status": Case(lambda world: list(world.state.status())),
    "commit": Case(lambda world: world.state.commit("c")),
    "commit nothing": Case(lambda world: world.state.commit("c"), dirty=False),
    "commit moved": Case(lambda world: world.state.commit("c"), moved=True),
    "commit moved policy": Case(lambda world: world.state.commit("c", policies={"tail": "append"}), moved=True),
    "commit in doubt": Case(lambda world: world.state.commit("c"), prepare=_in_doubt),
    "discard in doubt": Case(lambda world: world.state.discard(), prepare=_in_doubt),
    "commit moved in doubt": Case(lambda world: world.state.commit("c"), moved=True, prepare=_in_doubt),
    "switch": Case(lambda world: world.state.switch("side"), dirty=False),
    "switch create": Case(lambda world: world.state.switch("made", create=True), dirty=False),
    "commit replace": Case(lambda world: world.state.commit("c", on_moved="replace")),
    "resolved merge": Case(
        _resolved, moved=True, prepare=lambda world: world.held["dict"].__setitem__("theirs", ["ours"])
    ),
    "discard": Case(lambda world: world.state.discard()),
    "discard replaced": Case(lambda world: world.state.discard(), prepare=_replaced, replaces=True),
    "reset": Case(lambda world: world.state.reset("HEAD~1")),
    "reset here": Case(lambda world: world.state.reset("HEAD")),
    "refresh": Case(lambda world: world.state.refresh(), moved=True),
    "undo": Case(lambda world: world.state.undo(), dirty=False),
    "redo": Case(lambda world: world.state.redo(), dirty=False, prepare=_undo_prepared),
    "rollback": Case(lambda world: world.state.rollback(2)),
    "merge": Case(lambda world: world.state.merge("side"), dirty=False),
    "merge moved": Case(lambda world: world.state.merge("side"), dirty=False, moved=True),
    "fast forward": Case(lambda world: world.state.merge("ahead"), dirty=False, prepare=_ahead),
    "cherry-pick": Case(lambda world: world.state.cherry_pick("side"), dirty=False),
    "revert": Case(lambda world: world.state.revert("HEAD"), dirty=False),
    "rebase": Case(lambda world: world.state.rebase("side"), dirty=False),
    "squash": Case(lambda world: world.state.squash("HEAD~2"), dirty=False),
    "fork": Case(lambda world: world.state.fork("forked")),
    "restore": Case(lambda world: world.state.restore("list[2]", "HEAD~1"), parts=True),
    "restore key": Case(lambda world: world.state.restore("dict", "HEAD~2"), replaces=True),
    "apply": Case(lambda world: world.state.apply(world.extra), prepare=_apply_prepared),
    "transaction": Case(_transaction, replaces=False),
    "transaction moved": Case(_transaction, moved=True),
    "transaction fails": Case(_failing),
    "nested": Case(lambda world: _transaction(world, nested=True)),
    "nested fails": Case(lambda world: _transaction(world, nested=True, fails=True)),
    "append": Case(lambda world: world.state.sequence("tail").append("once")),
    "extend": Case(lambda world: world.state.sequence("tail").extend(["a", "b"])),
    "sequence reads": Case(
        lambda world: (
            len(world.state.sequence("tail")),
            world.state.sequence("tail")[5:9],
            list(world.state.sequence("tail")),
        )
    ),
    "sequence insert": Case(lambda world: world.state.sequence("tail").insert(3, "once")),
    "sequence pop": Case(lambda world: world.state.sequence("tail").pop(7)),
    "sequence delete": Case(lambda world: world.state.sequence("tail").__delitem__(slice(2, 30, 3))),
    "sequence assign": Case(lambda world: world.state.sequence("tail").__setitem__(5, {"n": "once"})),
    "sequence assign slice": Case(
        lambda world: world.state.sequence("tail").__setitem__(slice(5, 9), ["once", {"n": "two"}])
    ),
    "sequence remove": Case(lambda world: world.state.sequence("tail").remove("ours 1")),
    "sequence clear": Case(lambda world: world.state.sequence("tail").clear()),
    "sequence reverse": Case(lambda world: world.state.sequence("tail").reverse()),
    "sequence sort": Case(lambda world: world.state.sequence("tail").sort(key=repr)),
    "sequence release": Case(
        lambda world: world.state.release("tail"), prepare=lambda world: world.state.sequence("tail")[5:9], dirty=False
    ),
    "sequence commit": Case(lambda world: world.state.commit("c"), prepare=_edit_sequence),
    "sequence commit moved": Case(lambda world: world.state.commit("c"), prepare=_edit_sequence, moved=True),
    "sequence commit in doubt": Case(lambda world: world.state.commit("c"), prepare=_edited_in_doubt),
    "sequence refresh": Case(lambda world: world.state.refresh(), prepare=_edit_sequence, moved=True),
    "sequence discard": Case(lambda world: world.state.discard(), prepare=_edit_sequence),
    "sequence transaction fails": Case(_edited_in_vain, prepare=_edit_sequence),
    "sequence new": Case(lambda world: world.state.sequence("fresh").append("x")),
    "sequence loaded": Case(lambda world: world.state.sequence("list").append({"x": 1})),
    "namespace": Case(
        lambda world: (world.plan.__setitem__("x", [1]), world.plan["plan"], world.plan.pop("x")), parts=True
    ),
    "namespace clear": Case(lambda world: world.plan.clear(), parts=True, replaces=True),
}


def chosen(lines: list[tuple[str, int]], dice: Random, *, every: bool) -> list[int]:
    """Which lines to interrupt at: all of them, or a few places of the handle's own code and fewer beneath it."""
    if every:
        return list(range(1, len(lines) + 1))
    above: dict[tuple[str, int], list[int]] = {}
    beneath = []
    for number, place in enumerate(lines, 1):
        if "/state/" in place[0]:
            above.setdefault(place, []).append(number)
        else:
            beneath.append(number)
    places = dice.sample(list(above.values()), min(len(above), _HANDLE_LINES))
    return sorted([*map(dice.choice, places), *dice.sample(beneath, min(len(beneath), _OTHER_LINES))])


def lines_of(case: Case) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    world = case.world()
    trace = Trace()
    trace.run(lambda: case.run(world))
    content = world.content()
    world.state.close()
    return trace.lines, content


@pytest.mark.parametrize("name", CASES)
def test_an_interrupt_at_any_line_loses_nothing(name: str, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    case = CASES[name]
    lines_of(case)  # what is imported at first is imported
    lines, after = lines_of(case)
    lost = []
    draw = dice(name)
    for at in chosen(lines, draw, every=long_run):
        place, wrong = problems(case, at, after, draw.choice((Interrupt, Timeout)))
        lost += [f"line {at}, {place}: {what}" for what in wrong]
    assert not lost, "\n".join(lost[:10])


def test_a_commit_in_doubt_is_taken_in_once() -> None:
    """With policies that count the same change on both sides twice: none may be merged again after an interrupt."""

    def in_doubt() -> Versioned:
        store = Lossy(Memory())
        state = committed(store, log=["base"], n=1)
        state.repository.set_merge_policy("log", "append")
        state.repository.set_merge_policy("n", "sum")
        other = Versioned(state.repository)
        for each, name, amount in ((other, "theirs", 10), (state, "ours", 100)):
            each["log"].append(name)
            each["n"] += amount
        other.commit("theirs")
        store.lose("reply", silent=2)
        with suppress(CommitInDoubtError):
            state.commit("in doubt")
        store.silent = 0
        state["log"].append("since")
        state["n"] += 1_000
        return state

    code = BranchHandle.resolve_doubt.__code__
    own = {line for _, _, line in code.co_lines() if line is not None}
    trace = Trace()
    state = in_doubt()
    trace.run(lambda: state.commit("next"))
    expected = (["base", "theirs", "ours", "since"], 1_111)
    assert (state["log"], state["n"]) == expected
    ends = [number for number, (file, line) in enumerate(trace.lines, 1) if file == code.co_filename and line in own]
    for at in ends:
        state = in_doubt()
        with suppress(Interrupt):
            Trace(at).run(partial(state.commit, "next"))
        state.commit("again")
        assert (state["log"], state["n"]) == expected, at
        assert dict(state.checkout("HEAD")) == {"log": expected[0], "n": expected[1]}


def test_real_signals_lose_nothing(long_run: bool) -> None:  # noqa: FBT001 - a fixture
    # An interrupt goes nowhere in a callback of the collector, and the tests' own libraries have one.
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    try:
        _ring_at_any_time(20_000 if long_run else 400)
    finally:
        gc.callbacks[:] = callbacks


def _ring_at_any_time(rounds: int) -> None:
    def ring(_: int, frame: FrameType | None) -> None:
        if is_under_way and not in_finalizer(frame):
            raise Interrupt

    is_under_way = False  # or one that comes between a call and its handler would end the rounds
    interrupts = 0
    gc.collect()  # what is raised where a handle of another test is collected goes nowhere
    before = signal.signal(signal.SIGALRM, ring)
    repository = Repository(Memory())
    other = Versioned(repository)
    state = Versioned(repository)
    held: list[Any]
    state["list"] = held = [*({"n": index, "text": "x" * 50} for index in range(100))]
    state["note"] = note = Note()
    state.commit("base")
    appended, theirs = 0, 0
    draw = dice("signals")
    try:
        for number in range(rounds):
            if number % 5 == 0:
                other.refresh()
                theirs += 1
                other[f"theirs {theirs % 7}"] = theirs
                other.commit("theirs")
            try:
                is_under_way = True
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(2e-5, 2e-3))
                if number % 3:
                    state.commit(f"round {number}")
                else:
                    with state.transaction(f"round {number}"):
                        state["number"] = number
                is_under_way = False
            except Interrupt:
                is_under_way = False
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            appended += 1
            held.append(appended)
            note.count = appended
            if number % 50 == 49:
                del held[50:]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts
    state.commit("at last")
    assert state["list"] is held
    assert state["note"] is note
    stored_now = repository.snapshot("main")
    assert stored_now["list"] == held
    assert stored_now["note"].count == appended
    assert stored_now[f"theirs {theirs % 7}"] == theirs
    assert not state.status()
