"""The check of a store finds trees that a faulty writer cut wrongly, and says in which commit and value they are."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.canonical_form import (
    EARLIER_LEAVES,
    LONG,
    flaws_of,
    keeping_replaced_nodes,
    message,
    with_doubled_elements,
)
from tests.support.crafted_stores import HOSTILE, craft
from tests.support.handles import committed
from tests.support.small_nodes import small_nodes
from versioned_state import Commit, Disk, KVStore, Memory, Repository, Versioned, emit, events, task
from versioned_state.errors import CorruptObjectError
from versioned_state.repository.maintenance.fsck import check
from versioned_state.repository.maintenance.fsck_report import Finding
from versioned_state.storage import Wrapper
from versioned_state.values.canonical import Known

pytestmark = pytest.mark.no_oracle("writes trees with a fault on purpose")


def uncanonical(repository: Repository) -> tuple[Finding, ...]:
    report = repository.fsck()
    assert not report.ok
    assert {finding.problem for finding in report.findings} == {"not canonical"}
    return report.findings


def is_flawed(store: KVStore, id: str, known: Known) -> bool:
    try:
        return bool(flaws_of(store, id, known))
    except CorruptObjectError:  # the keys of a map are not in order
        return True


def out_of_order(repository: Repository) -> set[str]:
    """The paths of the maps that have keys twice, all in the head."""
    report = repository.fsck()
    found = [finding for finding in report.findings if "keys are not in order" in finding.error]
    assert found
    assert {finding.commit or finding.id for finding in found} == {repository.branches["main"].id}
    assert not report.ok
    return {finding.path for finding in found}


def test_a_store_with_leaves_of_another_size_is_read_and_changed_correctly(tmp_path):
    """Checkouts from before the first release wrote leaves of a quarter of the size (docs/operations.md)."""
    store = Disk(tmp_path)
    messages: list[Any] = [message(number) for number in range(300)]
    with small_nodes(EARLIER_LEAVES):
        state = Versioned(store)
        state.update(messages=messages.copy(), tuple=tuple(range(9000)), set=set(map(str, range(3000))))
        state["map"] = {str(n): n for n in range(900)}
        state.commit()
        assert state.repository.fsck().ok
    expected = state.copy()
    state = Versioned(Wrapper(store))
    assert {finding.path for finding in uncanonical(state.repository)} == {"messages", "tuple", "set"}
    assert dict(state) == expected
    rng = random.Random(1)
    for number in range(30):
        at = rng.randrange(5, len(messages))
        new = [[], [message(number)], messages[at : at + 2]][number % 3]
        end = at + rng.choice([0, 1, 9])
        for each in (state["messages"], messages):
            each[at:end] = new
            each.append(message(number))
        if number % 10 == 5:
            with Versioned(Wrapper(store)) as other:
                other["messages"].insert(0, "theirs")
                other.commit()
            messages.insert(0, "theirs")
        state.commit()
        assert Versioned(Wrapper(store))["messages"] == state["messages"] == messages
    assert {finding.path for finding in uncanonical(state.repository)} == {"messages", "tuple", "set"}


@pytest.mark.usefixtures("earlier_leaves")
def test_a_list_with_elements_that_were_stored_twice():
    store = Memory()
    state = committed(store, agent={"memory": {"messages": [message(number) for number in range(LONG)]}})
    clean = state.head
    assert state.repository.fsck().ok
    with keeping_replaced_nodes():
        state["agent"]["memory"]["messages"].append(message(LONG))
        doubled = state.commit()
    assert len(state.checkout(doubled)["agent"]["memory"]["messages"]) == LONG + 37
    found = uncanonical(state.repository)
    assert {finding.path for finding in found} == {"agent.memory.messages"}
    assert {finding.commit for finding in found} == {doubled.id}
    assert all("36 elements from 19,096 on" in finding.error for finding in found)
    assert all(finding.named_by for finding in found)
    # A commit after it, which shares the nodes, brings no finding of its own; the commit before it has none.
    state["other"] = 1
    state.commit()
    assert len(uncanonical(state.repository)) == len(found)
    assert flaws_of(store, clean.id) == []


def documented(name: str) -> Any:
    """A function of the page on operations."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    (block,) = [block for block in page.split("```") if block.startswith("python\n") and f"def {name}(" in block]
    names: dict[str, Any] = {}
    exec(block.removeprefix("python\n"), names)
    return names[name]


@pytest.mark.usefixtures("earlier_leaves")
def test_the_documented_repair_gives_the_list_without_doubled_elements():
    state, sound = with_doubled_elements(Memory())
    with keeping_replaced_nodes():
        state["messages"] += [message(LONG + 1), message(LONG + 2)]
        state.commit()
    repaired = Versioned(state.repository)
    commit = documented("repair")(repaired, "messages", sound)
    assert repaired.checkout(commit)["messages"] == [message(number) for number in range(LONG + 3)]
    assert flaws_of(repaired.repository.store, commit.id) == []
    assert commit.id not in {finding.commit for finding in uncanonical(repaired.repository)}


def with_a_doubled_key() -> tuple[Versioned, Commit]:
    """A state with keys in a map that were stored twice by its last commit, and the commit before."""
    state = Versioned(Memory())
    state.update({f"{number:06}": number for number in range(500)})
    state.commit()
    known: Known = {}
    with keeping_replaced_nodes():
        for number in range(500, 3000):
            before = state.head
            state[f"{number:06}"] = number
            if is_flawed(state.repository.store, state.commit().id, known):
                return state, before
    raise AssertionError("nothing was stored twice")


def test_a_map_with_keys_that_were_stored_twice():
    state, _ = with_a_doubled_key()
    assert out_of_order(state.repository) == {""}


@dataclass
class Happened:
    number: int


@task
def happen(count: int) -> None:
    for number in range(count):
        emit(Happened(number))


def test_an_event_log_with_entries_that_were_stored_twice():
    store = Memory()
    state = Versioned(store)
    known: Known = {}
    with keeping_replaced_nodes():
        # A call's id decides where its node ends: one call in 200 meets the fault, whatever came before it.
        while not is_flawed(store, state.head.id, known):
            happen(5, state=state)
    assert out_of_order(state.repository) == {"@engine.events"}
    with pytest.raises(CorruptObjectError, match="not in order"):
        list(events(state))


@pytest.mark.usefixtures("earlier_leaves")
def test_a_node_is_found_whichever_place_is_read_first():
    """The open node is right in the commit before and wrong in this one: on two branches, either may be read first."""
    state, before = with_doubled_elements(Memory())
    doubled = state.head
    for first, last in ((before, doubled), (doubled, before)):
        for name, head in (("a", first), ("z", last)):
            if name in state.repository.branches:
                state.repository.branches.delete(name)
            state.repository.branches.create(name, head)
        assert {finding.path for finding in uncanonical(state.repository)} == {"messages"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tree_is_checked_node_by_node(name: str):
    """It names a few nodes any number of times: each is looked at once, and the tree is found not to be canonical."""
    report = check(craft(HOSTILE[name]))
    assert not report.ok
    assert report.objects < 100


@pytest.mark.usefixtures("earlier_leaves")
def test_the_check_says_the_same_if_its_addresses_do_not_fit_into_memory():
    state, _ = with_doubled_elements(Memory())
    few, all_ = check(state.repository.store, in_memory=5), check(state.repository.store)
    assert few.findings == all_.findings
    assert few.objects == all_.objects
    assert not few.ok
