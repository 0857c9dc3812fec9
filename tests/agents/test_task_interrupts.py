"""An interrupt at any line of a task's call loses nothing: the call commits or is rolled back, and the next one works.

Each case makes one call on a fresh handle under a trace that raises at the k-th line of the library, for one k after
the other, and then goes on as an agent would: through the references that it holds. Calls that are coroutines are
cancelled instead: ``test_tasks_async``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tests.support.dice import dice
from tests.support.interrupts import Interrupt, Timeout, Trace
from versioned_state import Memory, Versioned, checkpoint, current_state, emit, events, task
from versioned_state.agents.call import current_call
from versioned_state.agents.events.classes import ErrorEvent, SuccessEvent, TaskStartEvent
from versioned_state.errors import StateError

# left by an interrupt
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:coroutine:RuntimeWarning")

_PLACES = {"/agents/": 7, "/state/": 3, "": 2}
"""Lines to interrupt at in the everyday run, by the folder that they are in."""


@dataclass
class Note:
    text: str


class World:
    """A handle with a change that is not committed, and references to what it holds, on a branch that others moved."""

    def __init__(self, *, moved: bool) -> None:
        self.store = Memory()
        self.state = Versioned(self.store)
        self.list: list[Any] = [{"n": number} for number in range(30)]
        self.state["list"] = self.list
        self.state["dict"] = self.dict = {"inner": {"words": ["one"]}}
        self.words = self.dict["inner"]["words"]
        self.state.commit("base")
        if moved:
            with Versioned(self.store) as other:
                other["theirs"] = 1
                other.commit("theirs")
        self.words.append("staged")

    def content(self) -> Any:
        found = {key: copy.deepcopy(self.state[key]) for key in self.state if key != "theirs"}
        found["/step"] = copy.deepcopy(dict(self.state.namespace("step")))
        return found


def work() -> str:
    state = current_state()
    state["list"].append("worked")
    state["dict"]["inner"]["words"].append("worked")
    state["new"] = ["worked"]
    emit(Note("worked"))
    return "done"


@task
def plain() -> str:
    return work()


@task
def failing() -> None:
    work()
    raise ZeroDivisionError


@task
def halting(*, fails: bool = False) -> None:
    current_state()["list"].append("kept")
    checkpoint("half")
    work()
    if fails:
        raise ZeroDivisionError


@task
def step(*, fails: bool = False) -> int:
    current_state()["steps"] = [1]
    if fails:
        raise ZeroDivisionError
    return 1


@task
def nested(*, fails: bool = False) -> None:
    with suppress(ZeroDivisionError):
        step(fails=fails)
    work()


@task
def generator() -> Iterator[int]:
    work()
    yield 1
    current_state()["late"] = 1


@task(name="step")
def steps() -> Iterator[int]:
    current_state()["steps"] = [1]
    yield 1
    current_state()["steps"].append(2)


@task
def breaking_off() -> None:
    running: Any = steps()
    with closing(running):
        next(running)
        work()


def fails(world: World) -> None:
    with suppress(ZeroDivisionError):
        failing(state=world.state)


def halts(world: World) -> None:
    with suppress(ZeroDivisionError):
        halting(fails=True, state=world.state)


def closes(world: World) -> None:
    steps: Any = generator(state=world.state)
    next(steps)
    steps.close()


CASES: dict[str, Callable[[World], object]] = {
    "ends well": lambda world: plain(state=world.state),
    "fails": fails,
    "with a checkpoint": lambda world: halting(state=world.state),
    "fails behind a checkpoint": halts,
    "nested": lambda world: nested(state=world.state),
    "nested fails": lambda world: nested(fails=True, state=world.state),
    "nested generator closed": lambda world: breaking_off(state=world.state),
    "generator": lambda world: list(generator(state=world.state)),
    "generator closed": closes,
    "key": lambda world: plain(state=world.state, key="k"),
    "on a namespace": lambda world: step(state=world.state.namespace("step")),
}


def problems(name: str, at: int, allowed: list[Any], error: type[BaseException], *, moved: bool) -> list[str]:
    """What is wrong after an interrupt at the k-th line."""
    world = World(moved=moved)
    trace = Trace(at, error)
    with suppress(error, StateError):  # of a timeout in the code of a type the codec makes its own error
        trace.run(lambda: CASES[name](world))
    if not trace.hit:
        return []
    try:
        return [f"line {at}, {trace.hit}: {what}" for what in _go_on(world, name, allowed)]
    except Exception as failure:  # noqa: BLE001 - what is wrong then
        return [f"line {at}, {trace.hit}: {failure!r}"]
    finally:
        world.state.close()


def _go_on(world: World, name: str, allowed: list[Any]) -> Iterator[str]:
    state = world.state
    now = world.content()
    if current_call() is not None:
        yield "the call runs on"
    if now not in allowed:
        yield f"half done: {now}"
    succeeded = [commit for commit in state.log() if (commit.meta or {}).get("outcome") == "success"]
    if bool(succeeded) != (len(allowed) > 1 and now == allowed[-1]) and name != "fails behind a checkpoint":
        yield f"{len(succeeded)} commits of success, and the state is {now}"
    if (
        state["list"] is not world.list
        or state["dict"] is not world.dict
        or world.dict["inner"]["words"] is not world.words
    ):
        yield "a reference was lost"
    if name == "key":
        assert plain(state=state, key="k") == "done"
        if world.list.count("worked") != 1:
            yield f"the call with a key acted {world.list.count('worked')} times"
    world.words.append("after")
    before = world.content()
    nested(state=state)
    if world.words[-2:] != ["after", "worked"] or state.status():
        yield f"the next call: {world.words}, {list(state.status())}"
    if state["list"] != before["list"] + ["worked"]:
        yield "the next call took changes back"
    with Versioned(world.store) as other:
        if {key: other[key] for key in other} != {key: state[key] for key in state}:
            yield "what is stored is not what is live"
        yield from _wrong_events(other)
    if state._handle.pending.taken():
        yield "events were left behind"


def _wrong_events(state: Versioned) -> Iterator[str]:
    """The log has each event once: of a call that has committed, its start and its success."""
    found = list(events(state))
    last = [type(event).__name__ for event in found[-5:]]
    if last != ["TaskStartEvent", "TaskStartEvent", "SuccessEvent", "Note", "SuccessEvent"]:
        yield f"the next call told {last}"
    stamps = [event.timestamp for event in found]
    if stamps != sorted(set(stamps)):
        yield f"events twice, or not in order: {found}"
    starts, successes, errors = (
        sum(isinstance(event, cls) for event in found) for cls in (TaskStartEvent, SuccessEvent, ErrorEvent)
    )
    if successes + errors > starts:
        yield f"{starts} calls began, {successes} ended well and {errors} did not"


def contents(name: str, *, moved: bool) -> list[Any]:
    """The content before the call, at its checkpoint, and after it, without repetitions."""
    world = World(moved=moved)
    found = [world.content()]
    if "checkpoint" in name:
        found.append({**found[0], "list": [*found[0]["list"], "kept"]})
    CASES[name](world)
    after = world.content()
    world.state.close()
    return found if after in found else [*found, after]


def lines_of(name: str, *, moved: bool) -> list[tuple[str, int]]:
    world = World(moved=moved)
    trace = Trace()
    trace.run(lambda: CASES[name](world))
    world.state.close()
    return trace.lines


def chosen(lines: list[tuple[str, int]], dice: Random, *, every: bool) -> list[int]:
    """Which lines to interrupt at: all of them, or some of each folder."""
    if every:
        return list(range(1, len(lines) + 1))
    left = list(enumerate(lines, 1))
    found: list[int] = []
    for folder, most in _PLACES.items():
        here = [number for number, (file, _) in left if folder in file]
        left = [each for each in left if folder not in each[1][0]]
        found += dice.sample(here, min(most, len(here)))
    return sorted(found)


@pytest.mark.parametrize("error", [Interrupt, Timeout], ids=lambda error: error.__name__)
@pytest.mark.parametrize("moved", [False, True], ids=["plain", "moved"])
@pytest.mark.parametrize("name", CASES)
def test_an_interrupt_at_any_line_of_a_call_loses_nothing(
    name: str, *, moved: bool, error: type[BaseException], long_run: bool
):
    allowed = contents(name, moved=moved)
    lines = chosen(lines_of(name, moved=moved), dice(name, moved, error.__name__), every=long_run)
    lost = [what for at in lines for what in problems(name, at, allowed, error, moved=moved)]
    assert not lost, "\n".join(lost[:10])
