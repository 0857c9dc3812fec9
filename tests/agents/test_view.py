"""``view`` returns a state as text within a budget, newest first, and mentions what it leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.handles import cold, committed
from versioned_state import Live, Memory, Versioned, current_state, task, view
from versioned_state.errors import InvalidArgumentError
from versioned_state.storage import Counting


@task
def book(city: str) -> None:
    current_state().setdefault("trips", []).append(city)


def a_state() -> Versioned:
    state = Versioned()
    state["prefs"] = {"theme": "dark"}
    state.namespace("worker")["name"] = "one"
    state.commit("begin")
    book("Rome", state=state)
    book("Oslo", state=state)
    return state


def test_the_newest_keys_come_first_and_events_are_hidden():
    state = a_state()
    lines = view(state).splitlines()
    assert lines[0] == f"main at {state.head.short}, book('Oslo'): trips +1"
    assert lines[1:] == ["trips = ['Rome', 'Oslo']", "prefs = {'theme': 'dark'}", "@worker.name = 'one'"]
    state["new"] = 1
    assert view(state).splitlines()[1] == "new = 1"


def test_full_is_in_order_and_shows_values_as_a_whole():
    state = a_state()
    state["long"] = "word " * 200
    assert [line.partition(" = ")[0] for line in view(state, focus="full").splitlines()[1:]] == [
        "long",
        "prefs",
        "trips",
        "@worker.name",
    ]
    assert "word " * 200 in view(state, focus="full")
    assert "word " * 200 not in view(state)


def test_snapshots_namespaces_and_live_states():
    state = a_state()
    first = state.checkout("HEAD~2")
    assert view(first, focus="full").splitlines()[1:] == ["prefs = {'theme': 'dark'}", "@worker.name = 'one'"]
    assert view(state.checkout("HEAD")).splitlines()[1:] == view(state).splitlines()[1:]
    assert view(state.namespace("worker")).splitlines()[1:] == ["name = 'one'"]
    assert view(first.namespace("worker")).splitlines()[1:] == ["name = 'one'"]
    live = Live()
    live["connection"] = object
    live.namespace("worker")["n"] = 1
    assert view(live).splitlines() == ["Live with 1 key", "connection = <class 'object'>", "@worker.n = 1"]
    assert view(Live()).splitlines()[1:] == ["no keys"]
    assert view(Versioned()).splitlines()[1:] == ["no keys"]


@pytest.mark.parametrize("focus", ["recent", "full"])
@pytest.mark.parametrize("budget", [1, 10, 60, 200, 1000, 5000])
def test_the_text_fits_the_budget_and_says_what_it_leaves_out(focus: Any, budget: int):
    state = Versioned()
    for n in range(200):
        state[f"key{n:03}"] = ["x" * 30] * n
    state.commit("all")
    for each in (state, state.checkout("HEAD")):
        text = view(each, focus, budget)
        assert len(text) <= budget
        if budget >= 200:
            left = 200 - sum(" = " in line for line in text.splitlines())
            assert text.endswith(f"… {left} more keys") or left == 0


def test_a_long_list_shows_its_newest_elements_whether_loaded_or_not():
    state = committed(log=[f"entry {n}" for n in range(10_000)])
    other = Versioned(state.repository)
    for each in (state, other, state.checkout("HEAD")):
        text = view(each, budget=1000).splitlines()[1]
        assert text.startswith("log = [… ")
        assert text.endswith("'entry 9999']")
        assert " before, " in text
    other.sequence("log").append("last")
    assert view(other, budget=1000).splitlines()[1].endswith("'entry 9999', 'last']")


def test_a_view_of_a_large_list_reads_what_it_shows():
    reads = []
    for count in (1_000, 20_000):
        store = Counting(Memory())
        state = committed(store, log=[f"entry {n} " + "x" * 50 for n in range(count)])
        state = Versioned(cold(store))
        store.reset()
        view(state)
        reads.append(store.counts.objects_read)
    assert reads[1] - reads[0] <= 4


def test_no_control_character_reaches_the_text():
    state = Versioned()
    state["a\x1b[2J"] = "b\x1b[2J"
    state.commit("c\x1b[2J")
    assert view(state).replace("\n", "").isprintable()
    assert view(state.checkout("HEAD")).replace("\n", "").isprintable()


def test_bad_arguments():
    with pytest.raises(InvalidArgumentError, match="focus"):
        view(Versioned(), focus="other")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="budget"):
        view(Versioned(), budget=0)
    with pytest.raises(InvalidArgumentError, match="view\\(\\) shows"):
        view({})  # type: ignore[arg-type]
