"""`StateMachine`: declared transitions, each of them an event, on one handle and on several that race."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.interrupts import Interrupt, Trace
from versioned_state import (
    Live,
    Memory,
    Repository,
    StateMachine,
    TransitionEvent,
    Versioned,
    checkpoint,
    events,
    parallel,
    task,
)
from versioned_state.errors import (
    HandleClosedError,
    InvalidArgumentError,
    InvalidTransitionError,
    UncommittedChangesError,
    UnserializableValueError,
)
from versioned_state.storage.testing.writers import run_together

TRANSITIONS = {
    ("idle", "new_task"): "planning",
    ("planning", "plan_ready"): "executing",
    ("executing", "step_complete"): "executing",
    ("executing", "needs_input"): "waiting_feedback",
    ("waiting_feedback", "input_received"): "executing",
    ("executing", "task_complete"): "done",
}


def machine_on(state, key="agent"):
    return StateMachine(state, key, initial="idle", transitions=TRANSITIONS)


def told(state):
    """The transitions in the events of a state, as states joined by events."""
    return [f"{each.from_state} {each.event} {each.to_state}" for each in events(state, types=TransitionEvent)]


KINDS = {
    "versioned": Versioned,
    "namespace": lambda: Versioned().namespace("agent"),
    "live": Live,
    "namespace of live": lambda: Live().namespace("agent"),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_transitions_and_refusals(make):
    state = make()
    machine = machine_on(state)
    assert machine.current == "idle"
    assert "agent" not in state
    assert machine.allowed == ["new_task"]
    assert machine.transition("new_task") == state["agent"] == machine.current == "planning"
    with pytest.raises(ValueError, match=r"^Invalid transition: planning \+ done; nothing was changed") as caught:
        machine.transition("done")
    assert isinstance(caught.value, InvalidTransitionError)
    assert (caught.value.machine, caught.value.state, caught.value.event) == ("agent", "planning", "done")
    assert caught.value.allowed == ("plan_ready",)
    assert "allowed are plan_ready" in caught.value.hint
    machine.transition("plan_ready")
    assert told(state) == ["idle new_task planning", "planning plan_ready executing"]
    assert repr(machine) == "<StateMachine agent: executing>"


def test_the_value_and_its_events_are_committed_together():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    commit = state.commit("planned")
    assert state.checkout(commit)["agent"] == "planning"
    assert told(state.checkout(commit)) == ["idle new_task planning"]
    assert "agent" in str(state.diff(f"{commit.id}~1", commit))
    (event,) = events(state, types=TransitionEvent)
    assert (event.machine, event.agent_name, event.full_namespace) == ("agent", "", "")
    assert event.commit_hash == commit.parents[0]
    again = machine_on(Versioned(state.repository))
    assert again.current == "planning"


def test_a_transition_to_the_same_state_is_a_commit_of_its_event():
    state = Versioned(Memory())
    machine = machine_on(state)
    for event in ("new_task", "plan_ready"):
        machine.transition(event)
    state.commit("executing")
    machine.transition("step_complete")
    assert state.commit("a step").message == "a step"
    assert told(Versioned(state.repository))[-1] == "executing step_complete executing"


def test_enums_and_tuples_are_states_and_events():
    state = Versioned(Memory())
    machine = StateMachine(state, "light", initial=Light.RED, transitions={(Light.RED, (1, Turn.ON)): Light.GREEN})
    assert machine.transition((1, Turn.ON)) is Light.GREEN
    state.commit()
    again = Versioned(state.repository)
    assert again["light"] is Light.GREEN
    (event,) = events(again, types=TransitionEvent)
    assert event.event == (1, Turn.ON)
    with pytest.raises(InvalidTransitionError, match=r"Light.GREEN \+ Turn.ON; .*"):
        machine.transition(Turn.ON)


class Light(Enum):
    RED = "red"
    GREEN = "green"


class Turn(Enum):
    ON = 1


@pytest.mark.parametrize("value", ["unheard of", ["a", "list"], None, 3])
def test_a_stored_value_that_is_no_state_of_the_machine(value):
    state = Versioned(Memory())
    state["agent"] = value
    machine = machine_on(state)
    assert machine.current == value
    assert machine.allowed == []
    with pytest.raises(InvalidTransitionError) as caught:
        machine.transition("new_task")
    assert "is not a state of this machine, whose states are idle, planning" in caught.value.hint
    assert state["agent"] == value
    assert not events(state)


@pytest.mark.parametrize("event", [["unhashable"], {}, None, 1])
def test_an_event_that_nobody_declared(event):
    with pytest.raises(InvalidTransitionError, match="Invalid transition: idle"):
        machine_on(Versioned(Memory())).transition(event)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"state": {}}, "not dict"),
        ({"transitions": [("a", "b", "c")]}, "pairs of state and event"),
        ({"transitions": {"a": "b"}}, "pairs of state and event"),
        ({"transitions": {("a", "b"): []}}, "hashable"),
        ({"initial": ("a", [])}, "hashable"),
    ],
)
def test_bad_declarations_are_refused(arguments, message):
    given = {"state": Live(), "key": "m", "initial": "a", "transitions": {}, **arguments}
    with pytest.raises(InvalidArgumentError, match=message):
        StateMachine(given.pop("state"), given.pop("key"), **given)


def test_an_event_that_cannot_be_stored_changes_nothing():
    state = Versioned(Memory())
    event: Any = object.__new__(type("Local", (), {"__reduce_ex__": lambda *_: 1 / 0}))
    machine = StateMachine(state, "m", initial="a", transitions={("a", event): "b"})
    with pytest.raises(UnserializableValueError):
        machine.transition(event)
    assert machine.current == "a"
    assert not state.status()
    assert not events(state)


def test_within_a_task_on_a_state_without_commits():
    seen: list[Any] = []
    state = Live()
    work(False, state=state, on_event=seen.append)
    assert told(state)[0] == "idle new_task planning"
    assert [event.full_namespace for event in seen if isinstance(event, TransitionEvent)] == ["work"] * 3


def test_a_closed_state_and_other_threads():
    state = Versioned()
    machine = StateMachine(state, "n", initial=0, transitions={(number, "up"): number + 1 for number in range(100)})
    run_together(lambda: [machine.transition("up") for _ in range(25)] for _ in range(4))
    assert machine.current == 100
    assert len(told(state)) == 100
    state.commit()
    state.close()
    for call in (lambda: machine.current, lambda: machine.transition("up"), lambda: machine_on(state)):
        with pytest.raises(HandleClosedError):
            call()
    assert repr(machine) == "<StateMachine n>"


def test_many_transitions_and_many_machines_cost_what_changes():
    state = Versioned(Memory())
    machines = [StateMachine(state, f"m{number}", initial="a", transitions={("a", "go"): "a"}) for number in range(300)]
    for _ in range(2000):
        machines[0].transition("go")
    state.commit("many")
    assert len(told(Versioned(state.repository))) == 2000


# What is taken back


def test_discard_takes_transitions_and_events_back():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    state.commit("planning")
    machine.transition("plan_ready")
    machine.transition("step_complete")
    state.discard()
    assert machine.current == "planning"
    assert told(state) == ["idle new_task planning"]
    machine.transition("plan_ready")
    state.commit("executing")
    assert told(state)[1:] == ["planning plan_ready executing"]


def test_a_transaction_that_fails_takes_its_transitions_back():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    with suppress(ZeroDivisionError), state.transaction("t"):
        machine.transition("plan_ready")
        machine.transition("step_complete")
        raise ZeroDivisionError
    assert machine.current == "planning"
    assert told(state) == ["idle new_task planning"]
    with state.transaction("t"):
        machine.transition("plan_ready")
    assert told(Versioned(state.repository)) == ["idle new_task planning", "planning plan_ready executing"]


@task
def work(fail, *, state):
    machine = machine_on(state)
    machine.transition("new_task")
    machine.transition("plan_ready")
    machine.transition("step_complete")
    if fail == "after a checkpoint":
        checkpoint("half")
        machine.transition("step_complete")
        machine.transition("task_complete")
    if fail:
        raise ZeroDivisionError


def test_a_task_that_fails_leaves_machine_and_events_as_they_were():
    state = Versioned(Memory())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            work(True, state=state)
        assert machine_on(state).current == "idle"
        assert told(state) == []
    seen: list[Any] = []
    work(False, state=state, on_event=seen.append)
    assert (
        told(state)
        == told(Versioned(state.repository))
        == [
            "idle new_task planning",
            "planning plan_ready executing",
            "executing step_complete executing",
        ]
    )
    assert [type(event).__name__ for event in seen] == ["TaskStartEvent", *["TransitionEvent"] * 3, "SuccessEvent"]
    assert {event.full_namespace for event in seen} == {"work"}


def test_a_task_that_fails_after_a_checkpoint_keeps_the_transitions_up_to_there():
    state = Versioned(Memory())
    with pytest.raises(ZeroDivisionError):
        work("after a checkpoint", state=state)
    assert machine_on(state).current == "executing"
    assert told(state)[-1] == "executing step_complete executing"
    assert len(told(state)) == 3


def test_reset_undo_and_rollback_take_machine_and_events_along():
    state = Versioned(Memory())
    machine = machine_on(state)
    commits = []
    for event in ("new_task", "plan_ready", "step_complete"):
        machine.transition(event)
        commits.append(state.commit(event))
    machine.transition("step_complete")
    with pytest.raises(UncommittedChangesError, match="agent"):
        state.undo()
    state.reset("HEAD")
    assert len(told(state)) == 3
    machine.transition("step_complete")
    state.reset(commits[1])
    assert told(state) == told(state.checkout(commits[1]))
    state.commit("nothing is left of it")
    assert state.head == commits[1]
    state.rollback()
    assert machine.current == "planning"
    assert told(state) == ["idle new_task planning"]


def test_a_commit_of_other_keys_leaves_the_transition_staged_with_its_event():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    state["other"] = 1
    state.commit("other", keys=["other"])
    assert told(Versioned(state.repository)) == []
    assert told(state) == ["idle new_task planning"]
    state.commit("agent", keys=["agent"])
    assert told(Versioned(state.repository)) == ["idle new_task planning"]


def test_a_value_that_is_set_back_takes_the_transition_back_and_another_one_is_refused():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    state["agent"] = "idle"
    state.commit("set back", allow_empty=True)
    assert told(state) == []
    machine.transition("new_task")
    state["agent"] = "done"
    with pytest.raises(InvalidTransitionError) as caught:
        state.commit("set by hand")
    assert "only transition()" in caught.value.hint
    state.discard()


# Races


def raced():
    store = Memory()
    first = Versioned(store)
    first["other"] = 0
    first.commit("zero")
    second = Versioned(store)
    return first, second, machine_on(first), machine_on(second)


def test_of_two_that_take_the_same_transition_one_wins():
    first, second, one, two = raced()
    one.transition("new_task")
    first.commit("first")
    two.transition("new_task")
    second["other"] = 1
    with pytest.raises(
        InvalidTransitionError, match=r"^Invalid transition: planning \+ new_task; .*still there"
    ) as caught:
        second.commit("second")
    assert "in planning by now, not in idle" in caught.value.hint
    assert second["other"] == 1
    with pytest.raises(InvalidTransitionError):
        second.commit("again")
    second.discard()
    assert told(second) == []
    second.refresh()
    two.transition("plan_ready")
    second.commit("second")
    assert told(Versioned(first.repository)) == ["idle new_task planning", "planning plan_ready executing"]


def test_a_transition_to_the_same_state_does_not_come_after_the_end():
    first, second, one, two = raced()
    one.transition("new_task")
    one.transition("plan_ready")
    first.commit("executing")
    second.refresh()
    one.transition("task_complete")
    first.commit("done")
    two.transition("step_complete")
    with pytest.raises(InvalidTransitionError, match=r"done \+ step_complete"):
        second.commit("a step")
    with pytest.raises(InvalidTransitionError), second.transaction("t"):
        second["other"] = 2
    assert two.current == "executing"
    second.discard()


def test_transitions_to_different_states_race_in_the_same_way_and_no_policy_hides_it():
    first, second, one, two = raced()
    for event in ("new_task", "plan_ready"):
        one.transition(event)
    first.commit("executing")
    second.refresh()
    one.transition("needs_input")
    first.commit("waits")
    two.transition("task_complete")
    for policies in (None, {"agent": "ours"}, {"agent": "theirs"}):
        with pytest.raises(InvalidTransitionError, match=r"waiting_feedback \+ task_complete; nothing was committed"):
            second.commit("done", policies=policies)
    with pytest.raises(InvalidTransitionError, match=r"waiting_feedback \+ task_complete; nothing was changed"):
        second.refresh()
    assert two.current == "done"
    second.discard()
    second.refresh()
    assert two.current == "waiting_feedback"
    assert told(Versioned(first.repository))[-1] == "executing needs_input waiting_feedback"


def test_transitions_of_a_branch_are_merged_with_their_events():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    state.commit("planning")
    fork = state.fork("idea")
    machine_on(fork).transition("plan_ready")
    fork.commit("executing")
    state["other"] = 1
    state.commit("beside")
    state.merge("idea")
    assert machine.current == "executing"
    assert told(state) == ["idle new_task planning", "planning plan_ready executing"]


def test_a_merge_of_branches_that_took_the_same_transition_is_refused():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    state.commit("planning")
    fork = state.fork("idea")
    for each in (state, fork):
        machine_on(each).transition("plan_ready")
        each.commit("executing")
    with pytest.raises(InvalidTransitionError, match=r"executing \+ plan_ready; nothing was changed") as caught:
        state.merge("idea")
    assert (
        "both branches moved the machine: ours to executing, the other from planning to executing" in caught.value.hint
    )
    assert state.head.message == "executing"
    assert len(told(state)) == 2


@task
def claim_for(name, state):
    machine_on(state).transition("new_task")
    state["owner"] = name


def test_of_parallel_tasks_that_take_the_same_transition_one_lands():
    state = Versioned(Memory())
    machine_on(state)
    outcomes = parallel(state, [partial(claim_for, "a"), partial(claim_for, "a")], on_failure="return")
    assert [type(outcome.error) for outcome in outcomes] == [type(None), InvalidTransitionError]
    assert told(state) == ["idle new_task planning"]
    assert state["owner"] == "a"


def test_tasks_that_race_through_commits_of_others_fail_as_a_whole():
    first, second, one, _ = raced()

    @task
    def claim(state):
        machine_on(state).transition("new_task")
        if state is second:
            one.transition("new_task")
            first.commit("first")

    with pytest.raises(InvalidTransitionError):
        claim(state=second)
    assert machine_on(second).current == "planning", "the failure was recorded on the new head"
    assert told(Versioned(first.repository)) == ["idle new_task planning"]


def test_two_machines_of_one_key_share_what_is_not_committed():
    state = Versioned(Memory())
    machine_on(state).transition("new_task")
    machine_on(state).transition("plan_ready")
    machine_on(state, "other").transition("new_task")
    state.commit()
    assert len(told(Versioned(state.repository))) == 3
    assert len([hook for hook in state._handle.hooks.all if type(hook).__name__ == "TransitionHook"]) == 1


async def test_in_asyncio():
    state = Versioned(Memory())
    machine = machine_on(state)
    machine.transition("new_task")
    saving = asyncio.create_task(state.aio.commit("planning"))
    await asyncio.sleep(0)
    machine.transition("plan_ready")
    await saving
    await state.aio.commit("executing")
    assert told(Versioned(state.repository)) == ["idle new_task planning", "planning plan_ready executing"]


@pytest.mark.usefixtures("without_collector")
def test_a_state_with_a_machine_is_freed_at_once():
    store = Memory()
    state = Versioned(store)
    machine_on(state).transition("new_task")
    state.commit()
    gone = weakref.ref(state)
    del state
    assert gone() is None


def test_an_interrupt_at_any_line_leaves_machine_and_events_agreeing():
    def begin() -> tuple[Versioned, StateMachine]:
        state = Versioned(Memory())
        machine = machine_on(state)
        machine.transition("new_task")
        machine.transition("plan_ready")
        state.commit("executing")
        return state, machine

    def go(state: Versioned, machine: StateMachine) -> None:
        machine.transition("needs_input")
        state.commit("waits")

    go(*begin())
    lines = Trace()
    lines.run(partial(go, *begin()))
    firsts = {place: at for at, place in reversed(list(enumerate(lines.lines, 1))) if Path(place[0]).name in WATCHED}
    for at in sorted(firsts.values()):
        state, machine = begin()
        trace = Trace(at)
        with suppress(Interrupt):
            trace.run(partial(go, state, machine))
        state.commit("after")
        ends = told(Versioned(state.repository))[-1].split()
        assert ends[-1] == machine.current == Versioned(state.repository)["agent"], trace.hit
        follow = {"executing": "needs_input", "waiting_feedback": "input_received"}
        machine.transition(follow[machine.current])
        state.commit("goes on")
        assert told(Repository(state.repository.store).snapshot("main"))[-1].split()[-1] == machine.current, trace.hit


WATCHED = ("state_machine.py", "keeping.py", "pending.py", "operations.py")
