"""A handle whose head was reset away, or purged, and collected, goes on as it would if the head were still there."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.exact import exact
from tests.support.handles import committed
from tests.support.long_runs import first
from versioned_state import Memory, OnMoved, Repository, Versioned
from versioned_state.errors import BranchMovedError, MergeConflictError, MissingObjectError, UnknownRevisionError

NOW = timedelta(0)


def value(rng: random.Random) -> Any:
    """Of every size and form: inline, packed, a tree, a text."""
    return rng.choice(
        [
            rng.randrange(100),
            {"n": rng.randrange(100), "tags": ["a", "b"]},
            [{"n": n, "text": "x" * 50} for n in range(rng.choice([3, 40, 300]))],
            {f"k{n}": "v" * 30 for n in range(rng.choice([20, 300]))},
            "\n".join(f"line {rng.randrange(1000)} of a text" for _ in range(rng.choice([5, 500]))),
        ]
    )


def mutate(rng: random.Random, state: Versioned, keys: list[str]) -> None:
    """Change some of these keys: in place, by assignment, by deletion, by appending to what is not loaded."""
    for key in keys:
        match rng.randrange(5):
            case 0:
                state[key] = value(rng)
            case 1 if key in state:
                del state[key]
            case 2 if key in state and isinstance(state[key], list):
                state[key].insert(rng.randrange(len(state[key]) + 1), {"new": rng.random()})
            case 3 if key in state and isinstance(state[key], dict):
                state[key]["new"] = rng.random()
            case 4 if key.startswith("long"):
                state.sequence(key).append(rng.random())
            case _:
                state[f"{key}/new"] = value(rng)


def begin(rng: random.Random, store: Memory) -> tuple[Versioned, list[str]]:
    state = Versioned(store)
    keys = [f"key{n:02}" for n in range(30)] + [f"long{n}" for n in range(4)]
    state["stays"] = 0
    state.commit("first")
    state.update({key: value(rng) for key in keys})
    state.update({f"long{n}": [n] * 400 for n in range(4)})
    state.commit("second")
    return state, keys


def moved(store: Memory, rng: random.Random, keys: list[str], *, gone: bool) -> Versioned:
    """Another handle undoes the head, and makes one that differs at these keys.

    If ``gone``, gc collects the old one.
    """
    other = Versioned(Repository(store))
    before = other.checkout("HEAD").copy()
    other.reset("HEAD~1")
    other.update(before)
    mutate(rng, other, keys)
    other.commit("instead")
    if gone:
        other.repository.gc(expire=NOW)
    return other


def outcome(seed: int, call: Callable[[Versioned], object], *, gone: bool, overlap: bool) -> Any:
    rng = random.Random(seed)
    store = Memory()
    _, keys = begin(rng, store)
    state = Versioned(Repository(store))
    loaded = {key: state[key] for key in rng.sample(keys[:30], 12)}
    rng.shuffle(keys)
    ours = keys[:10]
    theirs = keys[8:18] if overlap else keys[10:18]
    mutate(rng, state, ours)
    moved(store, rng, theirs, gone=gone)
    try:
        call(state)
    except MergeConflictError as error:
        return {str(conflict.path).split("[")[0].split(".")[0] for conflict in error.conflicts}
    found = dict(state)
    assert len(state) == len(found)
    for key, held_value in loaded.items():
        if key not in ours and type(found.get(key)) is type(held_value) in (list, dict):
            assert found[key] is held_value, key
    if call is commit:
        assert not state.status()
        assert exact(dict(state.checkout("HEAD"))) == exact(found)
        assert state.repository.fsck().ok
    else:
        state.discard()
        assert exact(dict(state)) == exact(dict(state.checkout("HEAD")))
    return found


def refresh(state: Versioned) -> None:
    state.refresh()


def commit(state: Versioned) -> None:
    state.commit("ours")


@pytest.mark.parametrize("call", [refresh, commit])
@pytest.mark.parametrize("seed", first(4, range(25)))
def test_it_ends_where_it_would_if_nothing_were_gone(seed, call):
    expected = outcome(seed, call, gone=False, overlap=False)
    found = outcome(seed, call, gone=True, overlap=False)
    assert exact(found) == exact(expected)


@pytest.mark.parametrize("seed", first(4, range(25)))
def test_where_both_changed_a_value_it_conflicts_at_the_least_where_it_would_otherwise(seed):
    """What was there before may be gone, so what could be merged by its parts may conflict as a whole."""
    expected = outcome(seed, commit, gone=False, overlap=True)
    found = outcome(seed, commit, gone=True, overlap=True)
    if isinstance(found, dict):
        assert exact(found) == exact(expected)
    elif isinstance(expected, set):
        assert expected <= found


def small(rng_seed: int = 1) -> tuple[Memory, Versioned]:
    """A handle with a change of its own, whose head is gone."""
    rng = random.Random(rng_seed)
    store = Memory()
    _, keys = begin(rng, store)
    state = Versioned(Repository(store))
    state["key00"] = "ours"
    moved(store, rng, keys[5:10], gone=True)
    return store, state


def test_a_commit_that_must_not_merge_is_refused():
    _, state = small()
    with pytest.raises(BranchMovedError):
        state.commit(on_moved=OnMoved.REFUSE)
    assert state["key00"] == "ours"


@pytest.mark.parametrize(
    "call", [lambda state: state.reset("main"), lambda state: state.switch("main"), lambda state: state.switch("side")]
)
def test_it_can_be_put_elsewhere(call):
    store, state = small()
    Repository(store).branches.create("side", "main~1")
    state.discard()
    state["key01"]
    call(state)
    assert exact(dict(state)) == exact(dict(state.checkout("HEAD")))
    assert state.head == state.repository.branches[state.branch]
    state["key01"] = 1
    state.discard()
    assert exact(dict(state)) == exact(dict(state.checkout("HEAD")))


@pytest.mark.parametrize("how", ["reset away", "purged"])
@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.fork("side"),
        lambda state: state.switch("side", create=True),
        lambda state: state.squash("HEAD~2"),
    ],
)
def test_a_call_that_needs_the_head_says_that_the_branch_has_moved(how, call):
    """The store needs no repair, as it would if an object were missing."""
    state = Versioned()
    for n in range(4):
        state["n"], state["secret"] = n, n * 2
        state.commit()
    other = Repository(state.repository.store)
    if how == "purged":
        other.purge("secret")
    else:
        Versioned(other).reset("HEAD~2")
        other.gc(expire=NOW)
    head = state.head
    with pytest.raises(BranchMovedError, match="nothing was changed") as caught:
        call(state)
    assert (caught.value.expected, caught.value.actual) == (head.id, other.commit("main").id)
    assert "refresh()" in caught.value.hint
    assert state.head == head
    assert list(other.branches) == ["main"]
    state.refresh()
    state["n"] = "new"
    state.commit()
    state.fork("side")
    assert other.fsck().ok


def test_what_conflicts_can_be_settled():
    store, state = small()
    committed(Repository(store), key00="theirs")
    with pytest.raises(MergeConflictError) as caught:
        state.commit("ours")
    assert [str(conflict.path) for conflict in caught.value.conflicts] == ["key00"]
    assert state["key00"] == "ours"
    caught.value.merge.resolve("key00", "both")
    assert caught.value.merge.commit().message == "ours"
    assert Versioned(store)["key00"] == "both"


@pytest.mark.parametrize("own", [True, False])
def test_a_handle_goes_on_after_a_purge(own):
    """Whatever it has loaded, changed or removed, it does not bring back what was purged."""
    store = Memory()
    begun = Versioned(store)
    begun.update({f"key{n}": f"value {n}" * 10 for n in range(100)})
    begun["users"] = {"alice": "secret" * 100, "bob": "b" * 400}
    begun["log"] = ["x" * 50] * 200
    begun.commit("second")
    state = Versioned(Repository(store))
    users = state["users"]
    state["step"] = 1
    state.sequence("log").append("more")
    del state["key7"]
    (state.repository if own else Repository(store)).purge("users.alice")
    state.commit("third")
    assert users is state["users"]
    assert users == {"bob": "b" * 400}
    assert [state["step"], len(state["log"]), "key7" in state] == [1, 201, False]
    assert state.repository.fsck().ok
    users["carol"] = "c"
    state.commit("fourth")
    state.repository.purge("users.alice")
    assert not any(
        b"secret" in raw
        for raw in (
            state.repository.database.objects.read(a) for a in state.repository.database.objects.iter_addresses("")
        )
    )


@pytest.mark.parametrize("call", [lambda state: list(state.log()), lambda state: state.blame("a")])
def test_after_a_purge_the_error_of_an_old_commit_says_that_refresh_leads_on(call):
    state = committed(a=[1], secret=1)
    state["b"] = "x" * 3000
    state.commit()
    state.repository.purge("secret")
    with pytest.raises(MissingObjectError) as raised:
        call(state)
    assert "refresh()" in raised.value.hint
    state.refresh()
    call(state)


@pytest.mark.parametrize(
    "call", [lambda state: state.undo(), lambda state: state.reset("HEAD~1"), lambda state: state.revert("HEAD")]
)
def test_a_branch_that_goes_on_and_is_deleted_within_a_call_misses_no_object(call):
    """The record of the branch may name a commit that gc deletes before anybody reads it."""
    at = 0
    while True:
        at += 1
        store = Memory()
        other = Versioned(store)
        for n in range(3):
            other[f"key{n}"] = n
            other.commit()

        def act(other: Versioned = other) -> None:
            other.repository.branches.delete("main", force=True)
            other.repository.gc(expire=NOW)

        acting = ActsBeforeCall(store, act)
        state = Versioned(acting)
        other["new"] = 1
        other.commit()  # the handle has not read this one
        acting.calls, acting.at = 0, at
        with suppress(BranchMovedError, UnknownRevisionError):
            call(state)
        if not acting.fired:
            break
    assert at > 1
