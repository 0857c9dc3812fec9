"""Stamps: what made a commit, kept once for all commits that it made."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.support.handles import committed
from versioned_state import Memory, Repository, Versioned, open, task  # noqa: A004 - the call that is tested
from versioned_state.errors import InvalidArgumentError, StateError, StorageError, UnserializableValueError
from versioned_state.objects.keys import STAMPS
from versioned_state.services.agent_state import StateService
from versioned_state.storage import Counting, Fault, Faulty

CODE = {"code": "3f9c2a1", "model": "large-2"}


def stamps(store):
    return list(store.keys(STAMPS))


def test_each_commit_refers_to_it_and_it_is_kept_once():
    store = Counting(Memory())
    state = Versioned(store, stamp=CODE)
    for n in range(5):
        state["n"] = n
        state.commit(meta={"step": n})
    assert len(stamps(store)) == 1
    assert [state.repository.stamp(commit) for commit in state.log()] == [CODE] * 5
    assert [commit.meta["step"] for commit in state.log()] == [4, 3, 2, 1, 0]
    assert {commit.meta["stamp"] for commit in state.log()} == {stamps(store)[0].removeprefix(STAMPS)}
    store.reset()
    state["n"] = "again"
    state.commit()
    assert store.counts.round_trips == 1
    again = Versioned(store, stamp=dict(reversed(CODE.items())))
    again["n"] = "once more"
    again.commit()
    assert len(stamps(store)) == 1, "the order of its keys makes no other stamp"


def test_without_one_nothing_is_added():
    store = Memory()
    state = Versioned(store, stamp={})
    state["n"] = 1
    assert state.commit().meta == {}
    assert stamps(store) == []
    assert state.repository.stamp() == {}


def test_a_function_is_called_for_each_commit():
    made = itertools.count()
    state = Versioned(stamp=lambda: {"model": f"m{next(made) // 2}", "temperature": 0.5})
    for n in range(4):
        state["n"] = n
        state.commit()
    assert [state.repository.stamp(f"HEAD~{n}")["model"] for n in range(4)] == ["m1", "m1", "m0", "m0"]


def test_every_commit_of_a_handle_has_it():
    state = Versioned(stamp=CODE)
    state["n"] = 0
    state.commit()
    fork = state.fork("fork")
    fork["f"] = 1
    fork.commit()
    state["n"] = 1
    with state.transaction("in a block"):
        state["n"] = 2
    state.merge("fork")
    state["n"] = 3
    state.commit()
    state.revert("HEAD")
    state.cherry_pick("HEAD~1")
    state.squash("HEAD~2")
    state["n"] = 4
    state.commit(parent="HEAD~1", tag="t", note={"a": 1})
    state.namespace("inner")["k"] = 1
    state.commit()

    @task
    def work(state):
        state["worked"] = True

    work(state=state)
    commits = [*state.log(), *state.repository.log("fork")]
    assert len(commits) > 6
    assert all(state.repository.stamp(commit) == CODE for commit in commits)
    assert state.repository.fsck().ok


def test_a_rebase_and_its_first_commit_bring_it():
    store = Memory()
    with Versioned(store) as state:
        state["a"] = 1
        state.commit()
        with state.fork("other") as other:
            other["b"] = 1
            other.commit()
        state["c"] = 1
        state.commit()
    with Versioned(store, branch="other", stamp=CODE) as other:
        other.rebase("main")
        assert other.repository.stamp("other") == CODE
    assert Repository(store).stamp("main") == {}


def test_a_repeated_commit_keeps_the_one_that_it_has():
    store = Memory()
    with Versioned(store, stamp={"code": "old"}) as state:
        state["a"] = 1
        state.commit()
        with state.fork("other") as other:
            other["b"] = 1
            other.commit()
    with Versioned(store, stamp=CODE) as state:
        state["c"] = 1
        state.commit()
        state.cherry_pick("other")
    assert Repository(store).stamp("main") == {"code": "old"}
    assert Repository(store).stamp("main~1") == CODE


def test_states_that_commit_together_have_their_own():
    store = Memory()
    repository = Repository(store)
    states = [Versioned(repository, branch=f"b{n}", stamp={"n": n}) for n in range(3)]
    for state in states:
        state["k"] = 1
    repository.commit_together(states)
    assert [repository.stamp(f"b{n}") for n in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_repository_gives_it_to_all_states_and_services(tmp_path: Path):
    async def save():
        async with StateService.over(repository) as service:
            await service.save_state("alice", {"mood": "calm"}, session_id="trip")
            return service.branch("alice", "trip")

    repository = Repository(Memory(), stamp=CODE)
    committed(repository, n=1)
    assert repository.stamp() == CODE
    assert repository.stamp(asyncio.run(save())) == CODE
    own = Versioned(repository, branch="own", stamp={"code": "mine"})
    own["n"] = 1
    own.commit()
    assert repository.stamp("own") == {"code": "mine"}
    with open(tmp_path / "s", stamp=CODE) as opened:
        opened["n"] = 1
        opened.commit()
        assert asyncio.run(opened.repository.aio.stamp()) == CODE


def test_a_log_finds_it():
    state: Versioned = Versioned(stamp=lambda: {"model": "new" if state.get("n", 0) > 2 else "old", "deep": {"a": 1}})
    for n in range(5):
        state["n"] = n
        state.commit(str(n))
    assert [commit.message for commit in state.log(stamp={"model": "new"})] == ["4", "3"]
    assert [commit.message for commit in state.log(stamp={"model": "old", "deep.a": 1}, limit=1)] == ["2"]
    assert not list(state.log(stamp={"model": "none"}))
    assert not list(state.log(stamp={"deep.a": True}))
    found = state.repository.bisect(
        "HEAD~4", "HEAD", lambda snapshot: state.repository.stamp(snapshot.commit or "")["model"] == "new"
    )
    assert found.commit.message == "3"


@pytest.mark.parametrize("bad", [[1], "text", 5, {1: 2}, {"a": object()}, {"a": lambda: 1}])
def test_what_is_no_stamp_is_refused(bad):
    for make in (Versioned, Repository):
        with pytest.raises((InvalidArgumentError, UnserializableValueError)):
            make(Memory(), stamp=bad)
    state = Versioned(stamp=lambda: bad)
    state["n"] = 1
    with pytest.raises((InvalidArgumentError, UnserializableValueError)):
        state.commit()
    assert state.status(), "what was staged stays"


def test_a_function_that_raises_leaves_the_changes():
    broken = [True]

    def made():
        if broken:
            raise RuntimeError("no model")
        return CODE

    state = Versioned(stamp=made)
    state["n"] = 1
    with pytest.raises(RuntimeError, match="no model"):
        state.commit()
    broken.clear()
    assert state.commit().meta["stamp"]
    assert state["n"] == 1


def test_meta_with_its_key_is_refused():
    state = Versioned(stamp=CODE)
    state["n"] = 1
    with pytest.raises(InvalidArgumentError, match="'stamp'"):
        state.commit(meta={"stamp": "mine"})
    assert state.status()
    state.commit()
    plain = Versioned()
    plain["n"] = 1
    assert plain.commit(meta={"stamp": "mine"}).meta == {"stamp": "mine"}
    assert plain.repository.stamp() == {}


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_commit_that_failed_brings_it_the_next_time(fault):
    for at in itertools.count(1):
        faulty = Faulty(Memory())
        state = Versioned(faulty, stamp=CODE)
        state["n"] = 1
        faulty.arm(at, fault=fault)
        try:
            state.commit()
        except StorageError:
            assert state.status() or fault is Fault.AFTER
        if not faulty.fired:
            break
        state["n"] = 2
        state.commit()
        fresh = Repository(faulty.store)
        assert all(fresh.stamp(commit) == CODE for commit in fresh.log("main"))


def test_maintenance_keeps_it_and_a_purge_erases_words_in_it():
    store = Memory()
    state = Versioned(store, stamp={"who": "alice smith", "model": "m"})
    for n in range(3):
        state["n"] = n
        state.commit()
    repository = Repository(store)
    repository.gc()
    repository.prune(keep_last=1, gc=True)
    assert repository.stamp()["who"] == "alice smith"
    repository.purge(replace={"alice": "someone"})
    assert Repository(store).stamp() == {"who": "someone smith", "model": "m"}
    assert not [key for key, value in store.items() if b"alice" in value]
    assert repository.fsck().ok


def test_fsck_finds_a_damaged_one():
    store = Memory()
    state = Versioned(store, stamp=CODE)
    state["n"] = 1
    state.commit()
    (key,) = stamps(store)
    store.set(key, b"damaged")
    (finding,) = Repository(store).fsck().findings
    assert (finding.problem, finding.id) == ("corrupt", key)
    with pytest.raises(StateError):
        Repository(store).stamp()
    store.delete(key)
    assert Repository(store).stamp() == {}
