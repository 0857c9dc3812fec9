"""An interrupt at any line of a task's call: the call has happened or not, and the state goes on.

Each case makes one call on a fresh state under a trace that raises at the k-th line of the library, for one k after the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.interrupts import Interrupt, Timeout, Trace
from versioned_state import Memory, Repository, Versioned, checkpoint, current_state, emit, events, task
from versioned_state.agents.call import current_call
from versioned_state.errors import StateError

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),  # one that was made and not begun
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_SAMPLES = 12


@dataclass
class Note:
    text: str


@task
def inner(n: int) -> int:
    current_state()["n"] = n
    emit(Note("inner"))
    return n


@task
def walk(*steps: int, at: int | None = None, fail: bool = False) -> int:
    state = current_state()
    for step in steps:
        state["steps"].append(step)
        if step == at:
            checkpoint("middle")
    emit(Note("walked"))
    inner(len(steps))
    if fail:
        raise ValueError("lost")
    return len(steps)


@task
def generate(*steps: int) -> Any:
    for step in steps:
        current_state()["steps"].append(step)
        yield step


CALLS: dict[str, Callable[[Versioned], object]] = {
    "success": lambda state: walk(1, 2, state=state),
    "failure": lambda state: walk(1, 2, fail=True, state=state),
    "checkpoint": lambda state: walk(1, 2, at=1, state=state),
    "key": lambda state: walk(1, 2, state=state, key="k"),
    "generator": lambda state: list(generate(1, 2, state=state)),
}


@pytest.mark.parametrize("error", [Interrupt, Timeout], ids=lambda error: error.__name__)
@pytest.mark.parametrize("moved", [False, True], ids=["plain", "moved"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_happened_or_not(name: str, moved: bool, error: type[BaseException], long_run: bool):  # noqa: FBT001
    trace = Trace()
    with suppress(ValueError):
        trace.run(lambda: CALLS[name](make(moved=moved)))
    first = hash((name, moved)) % 7 + 1
    step = 1 if long_run else max(trace.count // _SAMPLES, 1)
    for k in range(first, trace.count + 1, step):
        state = make(moved=moved)
        steps = state["steps"]
        # of a timeout in the code of a type the codec makes its own error
        with suppress(error, ValueError, StateError):
            Trace(k, error).run(lambda state=state: CALLS[name](state))  # type: ignore[misc]
        check(state, steps, name, f"at line {k}")


def make(*, moved: bool) -> Versioned:
    repository = Repository(Memory())
    state = Versioned(repository)
    state["steps"] = [0]
    state["staged"] = "old"
    state.commit("begin")
    if moved:
        other = Versioned(repository)
        other["theirs"] = 1
        other.commit("theirs")
    state["staged"] = "new"
    return state


def check(state: Versioned, steps: list[int], name: str, where: str) -> None:
    assert current_call() is None, where
    assert not state._transactions.open or state.status() is not None, where
    landed = [commit for commit in state.log() if commit.meta.get("task")]
    outcomes = {commit.meta.get("outcome") for commit in landed}
    assert state["steps"] is steps, where
    assert steps in ([0], [0, 1], [0, 1, 2]), where
    if "success" in outcomes:
        assert steps == [0, 1, 2], where
        assert not state.status(), where
    elif steps == [0]:
        assert str(state.status()) == "~ staged = 'old' -> 'new'", where
        assert not state.namespace("inner"), where
    else:
        assert steps == [0, 1], where
        assert any(commit.message == "middle" for commit in landed), where
        assert not state.status(), where
    before = list(steps)
    assert walk(7, state=state) == 1, where
    assert steps == [*before, 7], where
    stored = state.checkout("HEAD")
    assert stored["steps"] == steps, where
    assert stored["staged"] == "new", where
    names = [type(event).__name__ for event in events(state)]
    assert names[-6:] == ["TaskStartEvent", "Note", "TaskStartEvent", "Note", "SuccessEvent", "SuccessEvent"], where
    times = [event.timestamp for event in events(state)]
    assert times == sorted(times), where
