"""`EventSourced`: a value by replaying events, with commits as snapshots, on one handle and on several."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.support.handles import cold
from tests.support.interrupts import Interrupt, Trace
from versioned_state import EventSourced, Live, Memory, Versioned, parallel, task
from versioned_state.errors import (
    HandleClosedError,
    InvalidArgumentError,
    MergeConflictError,
    ReplayMismatchError,
    UnknownRevisionError,
)
from versioned_state.storage import Counting
from versioned_state.storage.testing.writers import run_together


def add(total, event):
    return total + event


def noted(value, event):
    """Change the argument and the event, as such functions often do."""
    value["seen"].append(event["name"])
    value["count"] = value.get("count", 0) + 1
    event["name"] = "changed"
    return value


def pay(balance, amount):
    if balance + amount < 0:
        raise ValueError("not covered")
    return balance + amount


def total_of(state, **options):
    return EventSourced(state, add, initial=0, **options)


def notes_of(state):
    return EventSourced(state, noted, initial={"seen": []})


class Calls:
    """An `apply` that counts its calls."""

    def __init__(self, apply=add):
        self.count = 0
        self.apply = apply

    def __call__(self, value, event):
        self.count += 1
        return self.apply(value, event)


KINDS = {
    "versioned": Versioned,
    "namespace": lambda: Versioned().namespace("a/b").namespace("c"),
    "live": Live,
    "namespace of live": lambda: Live().namespace("agent"),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_the_value_follows_from_the_events(make):
    state = make()
    total = total_of(state)
    assert total.value == 0
    for amount in (1, 2, 3):
        total.append(amount)
        assert total.value == sum(state["events"])
    assert list(total.events) == state["events"] == [1, 2, 3]
    assert [total.replay(until=count) for count in range(4)] == [0, 1, 3, 6]
    assert total.replay() == 6
    total.check()
    assert total_of(state).value == 6
    assert repr(total) == "<EventSourced events: 3 events>"


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_function_that_changes_its_arguments_corrupts_nothing(make):
    state = make()
    initial: dict[str, Any] = {"seen": []}
    notes = EventSourced(state, noted, initial=initial)
    event = {"name": "a"}
    notes.append(event)
    event["name"] = "of the caller"
    value = notes.value
    value["seen"].append("of the caller")
    notes.append({"name": "b"})
    assert notes.value == {"seen": ["a", "b"], "count": 2}
    assert initial == {"seen": []}
    assert list(notes.events) == [{"name": "a"}, {"name": "b"}]
    assert notes.replay() == notes.replay() == notes.value
    notes.check()


def test_a_commit_keeps_the_value_and_a_reopened_state_replays_what_came_later():
    state = Versioned(Memory())
    total = total_of(state)
    for amount in range(10):
        total.append(amount)
    commit = state.commit("ten")
    assert state["events.snapshot"] == {"position": 10, "version": 1, "value": 45}
    assert state.checkout(commit)["events.snapshot"]["value"] == 45
    apply = Calls()
    again = EventSourced(Versioned(state.repository), apply, initial=0)
    assert again.value == 45
    assert apply.count == 0
    again.append(5)
    assert again.value == again.value == 50
    assert apply.count == 1


def test_an_event_that_cannot_be_applied_is_not_appended():
    state = Versioned(Memory())

    balance = EventSourced(state, pay, initial=10)
    with pytest.raises(ValueError, match="not covered"):
        balance.append(-20)
    assert balance.value == 10
    assert not balance.events
    balance.append(-10)
    assert balance.value == 0


def test_a_function_that_fails_with_half_of_its_changes_made_leaves_the_value():
    def half(value, event):
        value["n"] += 1
        if event == "bad":
            raise ValueError(event)
        return value

    state = Versioned(Memory())
    source = EventSourced(state, half, initial={"n": 0})
    source.append("good")
    with pytest.raises(ValueError, match="bad"):
        source.append("bad")
    assert source.value == {"n": 1}


def test_replay_until_a_commit_or_a_time():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    state = Versioned(Memory(), clock=lambda: int(now.timestamp() * 1_000_000))
    total = total_of(state)
    commits = []
    for amount in (1, 2, 3):
        total.append(amount)
        commits.append(state.commit(f"round {amount}"))
        now += timedelta(hours=1)
    assert [total.replay(until=commit) for commit in commits] == [1, 3, 6]
    assert total.replay(until="HEAD~1") == 3
    assert total.replay(until=commits[0].id) == 1
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    assert total.replay(until=begin - timedelta(hours=1)) == 0
    assert total.replay(until=begin + timedelta(hours=1)) == 3
    assert total.replay(until=datetime(2030, 1, 1, tzinfo=UTC)) == 6
    with pytest.raises(UnknownRevisionError):
        total.replay(until="no such branch")
    for bad in (4, -1, 1.5, True):
        with pytest.raises(InvalidArgumentError):
            total.replay(until=bad)
    with pytest.raises(InvalidArgumentError, match="Live"):
        total_of(Live()).replay(until="HEAD")


@pytest.mark.parametrize("arguments", [{"state": {}}, {"apply": 3}, {"version": "1"}])
def test_bad_arguments_are_refused(arguments):
    given = {"state": Live(), "apply": add, **arguments}
    with pytest.raises(InvalidArgumentError):
        EventSourced(given.pop("state"), given.pop("apply"), **given)


# What is taken back


def test_events_that_are_taken_back_take_the_value_along():
    state = Versioned(Memory())
    total = total_of(state)
    total.append(1)
    first = state.commit("one")
    total.append(2)
    assert total.value == 3
    state.discard()
    assert total.value == 1
    total.append(4)
    assert total.value == 5
    state.commit("two")
    state.undo()
    assert total.value == 1
    state.redo()
    assert total.value == 5
    state.reset(first)
    total.append(7)
    assert total.value == 8
    with suppress(ZeroDivisionError), state.transaction("t"):
        total.append(100)
        assert total.value == 108
        raise ZeroDivisionError
    assert total.value == 8
    total.append(100)
    assert total.value == 108
    assert total.replay() == 108


def test_in_tasks():
    @task
    def pay(amount, fail, state):
        total = total_of(state)
        total.append(amount)
        if fail:
            raise ZeroDivisionError
        return total.value

    state = Versioned(Memory())
    assert pay(1, False, state=state) == 1
    with pytest.raises(ZeroDivisionError):
        pay(2, True, state=state)
    assert pay(4, False, state=state) == 5
    assert total_of(state).value == 5
    assert state["events.snapshot"]["value"] == 5


def test_a_list_that_was_emptied_begins_again():
    state = Versioned(Memory())
    total = total_of(state)
    total.append(1)
    state.commit("one")
    state.sequence("events").clear()
    assert total.value == 0
    state.commit("none")
    assert "events.snapshot" not in state
    total.append(2)
    del state["events"]
    assert total.value == 0


# Several writers


def test_events_of_two_handles_are_all_kept():
    store = Memory()
    first = Versioned(store)
    ours = total_of(first)
    ours.append(1)
    first.commit("one")
    second = Versioned(store)
    theirs = total_of(second)
    theirs.append(10)
    theirs.append(20)
    second.commit("theirs")
    ours.append(100)
    assert ours.value == 101
    first.commit("ours")
    assert list(ours.events) == [1, 10, 20, 100]
    assert ours.value == 131
    assert first["events.snapshot"]["value"] == 131
    ours.check()
    second.refresh()
    assert theirs.value == 131
    ours.append(1000)
    theirs.append(2000)
    second.commit("theirs")
    first.refresh()
    assert list(ours.events)[-2:] == [2000, 1000]
    assert ours.value == 3131
    first.commit("ours")
    assert first["events.snapshot"]["position"] == 6


def test_a_value_in_parts_is_never_merged_by_them():
    store = Memory()
    first, second = Versioned(store), Versioned(store)
    ours, theirs = notes_of(first), notes_of(second)
    ours.append({"name": "a"})
    first.commit("ours")
    theirs.append({"name": "b"})
    second.commit("theirs")
    assert theirs.value == second["events.snapshot"]["value"] == {"seen": ["a", "b"], "count": 2}


def test_a_merge_of_branches_replays_both_sides():
    state = Versioned(Memory())
    notes = notes_of(state)
    for name in "abc":
        notes.append({"name": name})
    state.commit("base")
    fork = state.fork("side")
    beside = notes_of(fork)
    for number in range(3):
        beside.append({"name": f"fork {number}"})
        fork.commit()
        notes.append({"name": f"main {number}"})
        state.commit()
    apply = Calls(noted)
    notes = EventSourced(state, apply, initial={"seen": []})
    state.merge("side")
    assert apply.count == 6, "from the last value that both have"
    value = notes.value
    assert value["seen"] == [each["name"] for each in notes.events]
    assert sorted(value["seen"]) == sorted(
        ["a", "b", "c", *(f"{side} {number}" for side in ("main", "fork") for number in range(3))]
    )
    assert state["events.snapshot"]["value"] == value
    notes.check()


def test_without_it_a_merge_of_events_is_a_conflict_as_of_any_list():
    store = Memory()
    first = Versioned(store)
    ours = total_of(first)
    ours.append(1)
    first.commit("ours")
    second = Versioned(store)
    second["events"].append(10)
    ours.append(2)
    first.commit("ours")
    with pytest.raises(MergeConflictError):
        second.commit("theirs")
    second.discard()


def test_an_event_that_the_merged_value_does_not_allow_refuses_the_commit():
    store = Memory()
    first = Versioned(store)
    ours = EventSourced(first, pay, initial=10)
    ours.append(0)
    first.commit("opened")
    second = Versioned(store)
    theirs = EventSourced(second, pay, initial=10)
    theirs.append(-8)
    second.commit("theirs")
    ours.append(-8)
    with pytest.raises(ValueError, match="not covered"):
        first.commit("ours")
    assert list(Versioned(store)["events"]) == [0, -8]
    first.discard()
    first.refresh()
    assert ours.value == 2


def test_parallel_tasks_append_on_forks():
    state = Versioned(Memory())
    total = total_of(state)
    total.append(1)
    state.commit("one")
    parallel(state, [partial(pay_in, 10), partial(pay_in, 100)])
    assert total.value == 111
    total.check()


@task
def pay_in(amount, state):
    total_of(state).append(amount)


# The check


def test_the_check_names_the_first_event_at_which_the_function_differs():
    state = Versioned(Memory())
    total = total_of(state)
    for amount in range(1, 21):
        total.append(amount)
        state.commit(f"round {amount}")

    def other(value, event):
        return value + (0 if event == 13 else event)

    total.check()
    changed = EventSourced(state, other, initial=0)
    with pytest.raises(ReplayMismatchError, match=r"from event 12 on .*: 197, not 210") as caught:
        changed.check()
    assert (caught.value.key, caught.value.index, caught.value.replayed, caught.value.kept) == ("events", 12, 197, 210)
    assert changed.value == 210, "the value that was kept is used"
    counted_up = EventSourced(state, other, initial=0, version=2)
    assert counted_up.value == 197
    counted_up.append(1)
    state.commit("with the new function")
    counted_up.check()
    assert state["events.snapshot"] == {"position": 21, "version": 2, "value": 198}


def test_the_check_finds_events_that_were_edited():
    state = Versioned(Memory())
    total = total_of(state)
    for amount in (1, 2, 3):
        total.append(amount)
    state.commit("three")
    state["events"][1] = 50
    with pytest.raises(ReplayMismatchError) as caught:
        total.check()
    assert caught.value.index == 1
    state.discard()
    total.check()
    other = Versioned(state.repository)  # whoever knows nothing of the value edits the events, and commits
    other["events"][0] = 70
    other.commit()
    state.refresh()
    with pytest.raises(ReplayMismatchError, match=r"from event 0 on .*: 75, not 6") as caught:
        total.check()
    assert caught.value.index == 0
    other["events"][0] = 1
    other["events.snapshot"]["value"] = 7
    other.commit()
    state.refresh()
    with pytest.raises(ReplayMismatchError, match=r"at its end .*: 6, not 7") as caught:
        total.check()
    assert caught.value.index is None
    other["events.snapshot"]["value"] = 6
    other.commit()
    state.refresh()
    state.sequence("events").pop()
    with pytest.raises(ReplayMismatchError, match="made of 3 events, and there are 2"):
        total.check()
    assert total.value == 3
    state.discard()
    state["events.snapshot"] = "something else"
    state.commit("overwritten")
    assert total.value == 6
    assert total_of(Versioned(state.repository)).value == 6


# What it costs


def reads(count):
    """The store's requests after that many events: for a cold value, and for a warm append, commit and value."""
    store = Counting(Memory())
    state = Versioned(store)
    total = total_of(state)
    state.sequence("events").extend(range(count))
    total.append(1)
    state.commit("many")
    state = Versioned(cold(store))
    store.reset()
    apply = Calls()
    warm = EventSourced(state, apply, initial=0)
    assert warm.value == sum(range(count)) + 1
    asked = [store.reset().round_trips]
    for _ in range(3):
        warm.append(1)
        assert warm.value
        asked.append(store.reset().round_trips)
        state.commit()
        asked.append(store.reset().round_trips)
    assert apply.count <= 2 * 3, "each event when it is appended, and when it is committed"
    return asked


def test_it_costs_the_new_events_whatever_came_before():
    few, many = reads(100), reads(20_000)
    assert all(more <= less + 3 for less, more in zip(few, many, strict=True)), (few, many)
    assert sum(many) <= sum(few) + 8, (few, many)


def test_a_large_value_is_not_written_by_every_commit():
    store = Counting(Memory())
    state = Versioned(store)
    apply: Any = lambda value, event: {**value, event: "seen " * 20}  # noqa: E731
    seen: EventSourced[Any] = EventSourced(state, apply, initial={})
    for number in range(200):
        seen.append(f"page {number}")
    state.commit("many")
    store.reset()
    for number in range(20):
        seen.append(f"more {number}")
        state.commit()
    assert state["events.snapshot"]["position"] == 200
    assert store.reset().bytes_written < 40_000
    assert len(EventSourced(Versioned(state.repository), apply, initial={}).value) == 220
    for number in range(110):
        seen.append(f"still more {number}")
    state.commit()
    assert state["events.snapshot"]["position"] == 330
    seen.check()


# Any order

STEPS = ["append", "commit", "refresh", "discard", "undo", "value"]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(STEPS),
            st.integers(0, 99),
        )
    )
)
def test_any_order_of_calls_agrees_with_replaying_the_list(steps):
    store = Memory()
    opened = Versioned(store)
    opened["begun"] = True
    opened.commit("begun")
    handles = [opened, Versioned(store), Versioned(store)]
    sources: list[Any] = [EventSourced(each, lambda value, event: [*value, event], initial=[]) for each in handles]
    for which, step, number in steps:
        state, source = handles[which], sources[which]
        if step == "append":
            source.append(number)
        elif step == "value":
            assert source.value == list(source.events)
        elif step == "undo":
            with suppress(Exception):
                state.undo()
        else:
            with suppress(MergeConflictError):
                getattr(state, step)()
        assert source.replay() == list(state.sequence("events"))
    for state, source in zip(handles, sources, strict=True):
        assert source.value == list(source.events)
        with suppress(MergeConflictError):
            state.commit("end")
            source.check()
        state.discard()


# Interrupts, tasks, handles


def test_an_interrupt_at_any_line_leaves_value_and_events_agreeing():
    def begin():
        state = Versioned(Memory())
        total = total_of(state)
        total.append(1)
        state.commit("one")
        total.append(10)
        return state, total

    def go(state, total):
        total.append(100)
        assert total.value == 111
        state.commit("more")

    go(*begin())
    lines = Trace()
    lines.run(partial(go, *begin()))
    firsts = {
        place: at
        for at, place in reversed(list(enumerate(lines.lines, 1)))
        if Path(place[0]).name == "event_sourcing.py"
    }
    for at in sorted(firsts.values()):
        state, total = begin()
        trace = Trace(at)
        with suppress(Interrupt):
            trace.run(partial(go, state, total))
        assert total.value in (11, 111), trace.hit
        assert total.value == sum(total.events), trace.hit
        total.append(1000)
        state.commit("after")
        assert state["events.snapshot"]["value"] == total.value == sum(Versioned(state.repository)["events"]), trace.hit
        total.check()


async def test_in_asyncio():
    state = Versioned(Memory())
    total = total_of(state)
    total.append(1)
    saving = asyncio.create_task(state.aio.commit("one"))
    await asyncio.sleep(0)
    total.append(10)
    await saving
    assert total.value == 11
    await state.aio.commit("two")
    assert total_of(Versioned(state.repository)).value == 11


@pytest.mark.usefixtures("without_collector")
def test_a_state_with_events_is_freed_at_once():
    state = Versioned(Memory())
    total_of(state).append(1)
    state.commit()
    gone = weakref.ref(state)
    del state
    assert gone() is None


def test_a_closed_state_and_other_threads():
    state = Versioned()
    total = total_of(state)
    run_together(lambda: [total.append(1) for _ in range(25)] for _ in range(4))
    assert total.value == 100
    state.commit()
    total.check()
    state.close()
    for call in (lambda: total.value, lambda: total.append(1), total.replay, total.check, lambda: total_of(state)):
        with pytest.raises(HandleClosedError):
            call()
    assert repr(total) == "<EventSourced events>"


def test_two_values_of_one_state():
    state = Versioned(Memory())
    total, notes = total_of(state, key="payments"), notes_of(state)
    total.append(3)
    notes.append({"name": "a"})
    state.commit()
    assert list(state) == ["events", "events.snapshot", "payments", "payments.snapshot"]
    again = Versioned(state.repository)
    assert (total_of(again, key="payments").value, notes_of(again).value["count"]) == (3, 1)
