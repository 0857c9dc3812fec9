"""The store fails at each of its calls within a task's call, once or from then on. Processes race for a key."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.outage import Outage
from tests.support.processes import start
from versioned_state import Disk, Memory, Versioned, checkpoint, current_state, emit, events, task
from versioned_state.agents.events.classes import ActionEvent, SuccessEvent
from versioned_state.errors import StorageError
from versioned_state.storage import Fault, Faulty, KVStore

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # handles are dropped with changes


@task
def plain(number: int) -> int:
    current_state()["list"].append(number)
    emit(ActionEvent(code=str(number)))
    return number


@task
def halting(number: int) -> int:
    current_state()["list"].append(-number)
    checkpoint("half")
    current_state()["list"].append(number)
    return number


@task
def failing(number: int) -> int:
    current_state()["list"].append(number)
    raise ZeroDivisionError


@task
async def waiting(number: int) -> int:
    current_state()["list"].append(number)
    await asyncio.sleep(0)
    return number


@task
def stepping(number: int) -> Iterator[int]:
    current_state()["list"].append(number)
    yield number


CALLS: dict[str, Callable[[Any], object]] = {
    "plain": lambda state: plain(1, state=state),
    "coroutine": lambda state: asyncio.run(waiting(1, state=state)),
    "generator": lambda state: list(stepping(1, state=state)),
    "key": lambda state: plain(1, state=state, key="k"),
    "checkpoint": lambda state: halting(1, state=state),
    "fails": lambda state: failing(1, state=state),
}


def a_state(store: Any, *, moved: bool) -> tuple[Versioned, list[Any]]:
    """A handle on a branch, which another writer has moved on, and the list that it holds."""
    state = Versioned(store)
    held: list[Any] = ["base"]
    state["list"] = held
    state.commit("base")
    if moved:
        other = Versioned(store)
        other["theirs"] = 1
        other.commit("theirs")
        other.close()
    return state, held


def check(state: Versioned, held: list[Any], store: Memory, name: str, *, returned: bool) -> None:
    """Check that, once the store works again, the call happened or not, as the caller was told, and the next works."""
    state.refresh()
    assert state["list"] is held
    kept = copy.deepcopy(held)
    halves: list[list[Any]] = [["base"], ["base", -1]] if name == "checkpoint" else [["base"]]
    whole = [*halves[-1], 1]
    allowed = [whole] if returned and name != "fails" else halves if name == "fails" else [*halves, whole]
    assert kept in allowed
    succeeded = [commit for commit in state.log() if commit.meta.get("outcome") == "success"]
    assert len(succeeded) == (kept == whole)
    assert len(events(state, types=SuccessEvent)) == len(succeeded)
    if name == "key":
        assert plain(1, state=state, key="k") == 1
        assert held == ["base", 1]
        kept = ["base", 1]
    held.append("after")
    plain(2, state=state)
    assert held == [*kept, "after", 2]
    assert not state.status()
    with Versioned(store) as other:
        assert dict(other) == dict(state)
        stamps = [event.timestamp for event in events(other)]
        assert stamps == sorted(set(stamps))


class Gone(Outage):
    """A store that answers nothing from one call on, which it still carries out, or not."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store, calls=1_000)

    def _is_due(self) -> bool:
        if self.fired:
            self.fault = Fault.BEFORE
        return super()._is_due()


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(
    ("make", "fault"),
    [*((Faulty, fault) for fault in Fault), (Gone, Fault.BEFORE), (Gone, Fault.AFTER)],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.parametrize("name", CALLS)
def test_a_store_that_fails_at_any_call_or_from_it_on(
    name: str, make: Callable[[KVStore], Faulty], fault: Fault, *, moved: bool
):
    for at in itertools.count(1):
        store = Memory()
        faulty = make(store)
        state, held = a_state(faulty, moved=moved)
        faulty.arm(at, fault=fault)
        returned = False
        with suppress(StorageError, ZeroDivisionError):
            CALLS[name](state)
            returned = True
        has_fired = faulty.fired
        faulty.arm(None)
        check(state, held, store, name, returned=returned)
        state.close()
        if not has_fired:
            break
    assert at > 1


RACER = """
import sys
from versioned_state import Disk, Versioned, current_state, task

@task
def book(city: str) -> str:
    state = current_state()
    state["trips"] = [*state.get("trips", []), city]
    return f"{city} as trip {len(state['trips'])}"

state = Versioned(Disk(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    state.refresh()  # a result that the other one has recorded leaves this handle where it is
    print(book("Rome", state=state, key=str(number)), flush=True)
"""


def test_processes_that_race_for_a_key_commit_once(tmp_path: Path):
    with Versioned(Disk(tmp_path)) as state:
        state.commit("base", allow_empty=True)
    racers = [start(RACER, tmp_path) for _ in range(2)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    outputs = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        output, _ = racer.communicate(timeout=60)
        assert racer.returncode == 0
        outputs.append(output)
    assert outputs[0] == outputs[1] == "".join(f"Rome as trip {number}\n" for number in range(1, 11))
    with Versioned(Disk(tmp_path)) as state:
        assert state["trips"] == ["Rome"] * 10
        assert len(events(state, types=SuccessEvent)) == 10
