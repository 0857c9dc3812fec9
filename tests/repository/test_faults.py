"""Every public operation, failing or crashing at its first store call, its second, and so on until it completes.

Afterwards a store that is opened anew holds the state from before or the one from after, and never anything else. On a
failure, what was staged is still there, references still hold, and the same call again does what the first one should
have done, once.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.exact import exact
from tests.support.handles import RollbackWantedError
from tests.support.long_runs import first
from tests.support.outage import Outage
from tests.support.stores import memory_of
from versioned_state import Memory, OnMoved, Repository, Versioned
from versioned_state.errors import CommitInDoubtError, StorageError
from versioned_state.storage import Fault, Faulty, InjectedCrash, KVStore

MESSAGES = [{"n": n, "text": f"message {n} " * (n % 8)} for n in range(200)]


@dataclass(frozen=True)
class Operation:
    """What is done over a store that holds ``prepare``'s, by a handle that has staged ``stage``'s."""

    act: Callable[[Versioned], Any]
    stage: Callable[[Versioned], Any] = lambda state: None
    others: Callable[[KVStore], Any] = lambda store: None


def prepare(store: KVStore) -> None:
    """Three rounds on main, one on side, a tag."""
    state = Versioned(store, clock=itertools.count(1).__next__)
    state["messages"] = MESSAGES[:150]
    state["prefs"] = {"theme": "dark", "deep": [{"x": [1]}]}
    state["step"] = 0
    state.commit("one")
    state["step"] = 1
    state.commit("two")
    state.repository.tags.create("v1")
    state.repository.branches.create("side")
    state["messages"].append("three")
    state["gone"] = 1
    state.commit("three")


def stage(state: Versioned) -> None:
    state["messages"].append({"role": "user", "content": "x" * 200})
    state["messages"][3]["n"] = "changed"
    state["prefs"]["deep"][0]["x"].append(2)
    state["new"] = [{"n": n} for n in range(100)]
    state["step"] = 2
    del state["gone"]


def others(store: KVStore) -> None:
    """What another handle commits meanwhile, to keys of its own."""
    other = Versioned(store, clock=itertools.count(100).__next__)
    other["theirs"] = [1, {"a": "x" * 300}]
    other.commit("theirs one")
    other["large"] = MESSAGES
    other.commit("theirs two")


def _transaction(state: Versioned) -> Any:
    with state.transaction("four"):
        state["messages"].append("in the transaction")
        state["prefs"]["theme"] = "light"


def _failing_transaction(state: Versioned) -> Any:
    held = state["messages"]
    before = exact(state.copy())
    with suppress(RollbackWantedError), state.transaction("four"):
        state["messages"].append("in the transaction")
        state["prefs"] = {}
        del state["step"]
        raise RollbackWantedError
    assert exact(state.copy()) == before
    assert state["messages"] is held


def edit_sequence(state: Versioned) -> None:
    sequence = state.sequence("messages")
    del sequence[70:73]
    sequence.insert(20, {"inserted": 1})
    sequence[40]["n"] = "changed"
    state["step"] = 2


def other_messages(store: KVStore) -> None:
    """What another handle commits meanwhile, elsewhere in the list."""
    other = Versioned(store, clock=itertools.count(100).__next__)
    other["messages"][5]["n"] = "theirs"
    del other["messages"][120]
    other.commit("theirs")


def _failing_edits(state: Versioned) -> Any:
    held = state.sequence("messages")[40]
    before = exact(state.checkout("HEAD").copy()), exact(list(state.sequence("messages")))
    with suppress(RollbackWantedError), state.transaction("four"):
        held["n"] = "changed in vain"
        del state.sequence("messages")[100:]
        raise RollbackWantedError
    assert (exact(state.checkout("HEAD").copy()), exact(list(state.sequence("messages")))) == before
    assert held["n"] == "changed"
    assert state.sequence("messages")[40] is held


def _read_all(state: Versioned) -> Any:
    snapshot = state.checkout("main~1")
    return exact(snapshot.copy()), snapshot.at("messages[149].text"), len(snapshot), list(snapshot.iter_keys("m"))


OPERATIONS: dict[str, Operation] = {
    "commit": Operation(lambda s: s.commit("four").message, stage),
    "commit with allow_empty": Operation(lambda s: s.commit("four", allow_empty=True).message),
    "commit on a moved branch": Operation(lambda s: s.commit("four").message, stage, others),
    "commit, replacing": Operation(lambda s: s.commit("four", on_moved=OnMoved.REPLACE).message, stage, others),
    "commit without a message": Operation(lambda s: s.commit().message, stage),
    "commit of what a sequence appended": Operation(
        lambda s: s.commit("four").message, lambda s: s.sequence("messages").extend("ab")
    ),
    "commit of what a sequence edited": Operation(lambda s: s.commit("four").message, edit_sequence),
    "commit of what a sequence edited, on a moved branch": Operation(
        lambda s: s.commit("four").message, edit_sequence, other_messages
    ),
    "refresh under a sequence": Operation(lambda s: s.refresh().message, edit_sequence, other_messages),
    "transaction of a sequence that fails": Operation(_failing_edits, edit_sequence),
    "pop from a sequence": Operation(lambda s: exact(s.sequence("messages").pop(75)), edit_sequence),
    "remove from a sequence": Operation(lambda s: s.sequence("messages").remove("three")),
    "assign to a sequence": Operation(
        lambda s: s.sequence("messages").__setitem__(slice(100, 110, 3), list("abcd")), edit_sequence
    ),
    "refresh": Operation(lambda s: s.refresh().message, lambda s: s["prefs"].update(ours=1), others),
    "reset": Operation(lambda s: s.reset("v1~1").message, stage),
    "reset to where it is": Operation(lambda s: s.reset("HEAD").message, stage),
    "discard": Operation(lambda s: s.discard(), stage),
    "transaction": Operation(_transaction, stage),
    "transaction on a moved branch": Operation(_transaction, stage, others),
    "transaction that fails": Operation(_failing_transaction, stage),
    "create a branch": Operation(lambda s: s.repository.branches.create("new", "v1").message, stage),
    "delete a branch": Operation(lambda s: s.repository.branches.delete("side").message, stage),
    "create a tag": Operation(lambda s: s.repository.tags.create("v2", "main").message),
    "delete a tag": Operation(lambda s: s.repository.tags.delete("v1").message),
    "fork": Operation(lambda s: s.fork("new", at="v1").head.message, stage),
    "status": Operation(lambda s: str(s.status()), stage),
    "diff": Operation(lambda s: str(s.diff("v1", "main")), stage),
    "log": Operation(lambda s: [commit.message for commit in s.log()], stage),
    "reflog": Operation(lambda s: [position.action for position in s.repository.reflog("main")], stage),
    "checkout and read": Operation(_read_all, stage),
    "load a value": Operation(lambda s: exact(s["prefs"])),
    "load everything": Operation(lambda s: exact(s.copy())),
    "keys": Operation(lambda s: (list(s), len(s), "step" in s, list(s.iter_keys("me"))), stage),
    "read a sequence": Operation(
        lambda s: (len(s.sequence("messages")), s.sequence("messages")[100:103], s.sequence("messages")[-1])
    ),
    "release": Operation(lambda s: (s["prefs"], s.release("prefs"))[1]),
    "branches": Operation(lambda s: (sorted(s.repository.branches), sorted(s.repository.tags))),
    "merge base": Operation(lambda s: s.repository.merge_base("main", "v1").message),
}


def see(store: KVStore) -> Any:
    """All that one finds on opening a store: of each branch and tag, its commits and the content of each."""
    return _seen(frozenset(store.items()))


@functools.lru_cache(maxsize=16)
def _seen(held: frozenset[tuple[str, bytes]]) -> Any:
    """``see``, read once for all runs of an operation that leave the same bytes."""
    store = memory_of(dict(held))
    repository = Repository(store)
    found, read = {}, {}
    for refs in (repository.branches, repository.tags):
        for name in refs:
            line = list(repository.log(refs[name]))
            for commit in line:
                if commit.id not in read:
                    read[commit.id] = commit.message, exact(repository.snapshot(commit).copy())
            found[name] = [read[commit.id] for commit in line]
    return found


@functools.cache
def _prepared() -> Memory:
    store = Memory()
    prepare(store)
    return store


def begin(operation: Operation, *, outage: int = 1) -> tuple[Memory, Faulty, Versioned]:
    """A store, the faults before it, and a handle that has staged what the operation is about."""
    store = memory_of(dict(_prepared().items()))
    faulty = Outage(store, calls=outage)
    state = Versioned(faulty, clock=itertools.count(1000).__next__)
    operation.stage(state)
    operation.others(store)
    return store, faulty, state


@functools.cache
def finished(name: str) -> tuple[Any, Any, Any, Any]:
    """Of an operation without faults: the stored data before and after, the result, and what the handle holds then."""
    operation = OPERATIONS[name]
    store, _, state = begin(operation)
    before = see(store)
    result = operation.act(state)
    return before, see(store), result, exact(state.copy())


@pytest.mark.parametrize(
    ("fault", "outage"),
    first(4, [*((fault, 1) for fault in Fault), (Fault.BEFORE, 4), (Fault.AFTER, 4), (Fault.PARTIAL, 4)]),
    ids=str,
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_failure_changes_nothing_or_is_made_good_by_doing_it_again(name, fault, outage, long_run):
    operation = OPERATIONS[name]
    before, after, result, content = finished(name)
    _, _, state = begin(operation)
    changes, staged = str(state.status()), {key: exact(value) for key, value in state.items()}
    # Everyday every reply is lost alone, and every other call fails alone; of longer outages a sample begins here.
    for k in itertools.count(1, 1 if long_run else 3 if outage > 1 else 1 if fault is Fault.AFTER else 2):
        store, faulty, state = begin(operation, outage=outage)
        held = {key[1:].decode(): slot.value for key, slot in state._worktree._entries.items()}
        faulty.arm(k, fault=fault)
        failed = False
        try:
            assert operation.act(state) == result
        except StorageError as error:
            failed = True
            if name.startswith("commit") and not isinstance(error, CommitInDoubtError):
                assert see(store) == before, "the caller knows whether there is a commit"
        fired = faulty.fired
        faulty.arm(None)

        seen = see(store)
        assert seen in (before, after), k
        if failed:
            if "reset" not in name and name != "discard":
                # Be it that the failed call was done, and has taken in what others did: what was staged is there still.
                for key in ("messages", "prefs", "new", "step"):
                    assert exact(state.get(key)) == staged.get(key, ("NoneType", None)), (k, key)
                if seen == before:
                    assert str(state.status()) == changes, k
            assert operation.act(state) == result, k
            seen = see(store)
        assert seen == after, k
        assert exact(state.copy()) == content, k
        for key, value in held.items():
            assert key not in state or state[key] is value or not isinstance(value, (list, dict)), (k, key)
        assert_clean(state, store)
        if not fired:
            break


def assert_clean(state: Versioned, store: KVStore) -> None:
    """Handle and store agree: what status says is the difference, and a commit of it reads back as what is held."""
    state["last"] = ["x"]
    commit = state.commit("last")
    assert exact(Repository(store).snapshot(commit).copy()) == exact(state.copy())
    assert not state.status()
    assert Repository(store).branches["main"] == commit


# One that dies after a call leaves what one leaves that dies before the next.
@pytest.mark.parametrize("fault", first(2, [Fault.BEFORE, Fault.PARTIAL, Fault.AFTER]), ids=lambda fault: fault.value)
@pytest.mark.parametrize("name", OPERATIONS)
def test_after_a_crash_the_store_holds_what_was_before_or_what_came_after(name, fault):
    operation = OPERATIONS[name]
    before, after, _, _ = finished(name)
    for k in itertools.count(1):
        store, faulty, state = begin(operation)
        faulty.arm(k, fault=fault, crash=True)
        with suppress(InjectedCrash):
            operation.act(state)
        assert see(store) in (before, after), k
        assert_clean(Versioned(store), store)
        if not faulty.fired:
            break


@pytest.mark.parametrize("crash", [False, True], ids=["fails", "crashes"])
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_opening_an_empty_store(fault, crash):
    for k in itertools.count(1):
        store = Memory()
        faulty = Faulty(store, at=k, fault=fault, crash=crash)
        with suppress(StorageError, InjectedCrash):
            Versioned(faulty)
        fired = faulty.fired
        assert see(store) == {}
        if not crash:
            faulty.arm(None)
            assert list(Versioned(faulty)) == []
        assert_clean(Versioned(store), store)
        if not fired:
            break


@pytest.mark.parametrize("crash", [False, True], ids=["fails", "crashes"])
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_the_first_commit(fault, crash):
    for k in itertools.count(1):
        store = Memory()
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["a"] = [1]
        faulty.arm(k, fault=fault, crash=crash)
        with suppress(StorageError, InjectedCrash):
            state.commit("first")
        fired = faulty.fired
        assert see(store) in ({}, {"main": [("first", exact({"a": [1]}))]})
        if not crash:
            faulty.arm(None)
            state["a"].append(2)
            state.commit("second")
            seen = see(store)["main"]
            assert seen[0][1] == exact({"a": [1, 2]})
            assert [message for message, _ in seen] in (["second", "first"], ["second"])
        assert_clean(Versioned(store), store)
        if not fired:
            break


def test_opening_a_store_that_is_there():
    store = Memory()
    prepare(store)
    expected = see(store)
    for fault in Fault:
        for k in itertools.count(1):
            faulty = Faulty(store, at=k, fault=fault)
            with suppress(StorageError):
                assert exact(Versioned(faulty).copy()) == expected["main"][0][1]
            assert see(store) == expected
            if not faulty.fired:
                break


def test_a_lost_reply_is_noticed_even_if_others_went_on_since():
    """The commit is found below what others put on top of it, and is not repeated."""
    for k in range(1, 4):
        store, faulty, state = begin(Operation(lambda s: None, stage))
        faulty.arm(k, fault=Fault.AFTER)
        with suppress(StorageError):
            state.commit("four")
        faulty.arm(None)
        landed = len(see(store)["main"]) == 4
        others(store)
        state["messages"].append("since")
        state.commit("five")
        messages = [message for message, _ in see(store)["main"]]
        assert messages.count("four") == landed
        assert messages[0] == "five"
        assert state["messages"][-1] == "since"
        assert_clean(state, store)


def test_many_failures_in_a_row():
    """Every second call fails, for ever: what gets through is still right."""
    store = Memory()
    faulty = Faulty(store)
    state = Versioned(faulty)
    state["list"] = []
    rounds = 0
    for n in range(200):
        state["list"].append(n)
        faulty.arm(1 + n % 5, fault=list(Fault)[n % 3])
        with suppress(StorageError):
            state.commit(str(n))
            rounds += 1
        faulty.arm(None)
        head = Repository(store).snapshot("main")["list"] if "main" in Repository(store).branches else []
        assert head == list(range(len(head)))
        assert len(head) >= rounds
    state.commit("end")
    assert Repository(store).snapshot("main")["list"] == list(range(200))
    lengths = [len(Repository(store).snapshot(commit)["list"]) for commit in Repository(store).log("main")]
    assert lengths == sorted(set(lengths), reverse=True), "no round is there twice"


def test_random_failures_over_many_rounds(long_run):
    for seed in range(3000 if long_run else 12):
        fail_at_random(seed)


def fail_at_random(seed: int) -> None:
    """A writer over a store that fails now and then, beside one over a store that does not.

    Whatever fails: what the first one holds is what it was given, in the objects in which it was given; of the other's
    keys it sees what was committed once, and never goes back; no round of either is there twice, or lost.
    """
    rng = random.Random(seed)
    store = Memory()
    faulty = Outage(store)
    other = Versioned(store, clock=itertools.count(10**6).__next__)
    other["theirs"], other["list of theirs"] = 0, []
    other.commit("their 0")
    state = Versioned(faulty, clock=itertools.count(1).__next__)
    mine: dict[str, Any] = {"list": [], "large": [{"n": n, "x": "y" * 50} for n in range(150)], "dict": {}}
    state.update(mine)
    state.commit("mine")
    content, seen = exact(mine), 0
    for step in range(25):
        given = step + 1
        mine["list"].append(given)
        mine["large"][rng.randrange(150)]["n"] = given
        mine["dict"][f"k{rng.randrange(9)}"] = [given]
        content = exact(mine)
        if rng.random() < 0.4:
            other["theirs"] += 1
            other["list of theirs"].append(other["theirs"])
            other.commit(f"their {other['theirs']}")
        faulty.length = rng.choice((1, 1, 2, 5))
        faulty.arm(rng.choice((None, 1, 1, 2, 3, 4, 6)), fault=rng.choice(list(Fault)))
        with suppress(StorageError):
            match rng.randrange(6):
                case 0:
                    state.refresh()
                case 1:
                    with suppress(RollbackWantedError), state.transaction():
                        state["list"].append("never")
                        state["dict"] = {}
                        raise RollbackWantedError
                case 2:
                    str(state.status()), state.copy()
                case _:
                    state.commit(f"step {step} {given}")
        faulty.arm(None)
        assert exact({key: state[key] for key in mine}) == content, (seed, step)
        assert all(state[key] is value for key, value in mine.items()), (seed, step)
        assert seen <= state["theirs"] <= other["theirs"], (seed, step)
        assert state["list of theirs"] == list(range(1, state["theirs"] + 1)), (seed, step)
        seen = state["theirs"]
    state.commit("end")
    other.refresh()
    line = list(Repository(store).log("main"))
    assert line == list(Repository(store).log("main", first_parent=True))
    lists = [Repository(store).snapshot(commit).get("list", []) for commit in line]
    assert all(len(new) >= len(old) and new[: len(old)] == old for new, old in itertools.pairwise(lists)), seed
    messages = [commit.message for commit in line]
    assert len(set(messages)) == len(messages), (seed, "a round is there twice")
    assert [int(text.split()[1]) for text in reversed(messages) if text.startswith("their")] == list(
        range(other["theirs"] + 1)
    )
    assert exact({key: other[key] for key in mine}) == content
    assert_clean(state, store)
