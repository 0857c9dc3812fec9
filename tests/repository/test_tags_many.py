"""Many tags are read, deleted and copied at once, and made together with their commits."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.support.outage import Outage
from tests.support.stores import OneCondition
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import (
    STAGED,
    InvalidArgumentError,
    ReadOnlyError,
    RefExistsError,
    StateError,
    StoreClosedError,
    UnsupportedByStoreError,
)
from versioned_state.storage import Counting, ReadOnly
from versioned_state.storage.wrappers.faulty import Fault, Faulty


def tagged(store, count=6):
    state = Versioned(store)
    made = {}
    for n in range(count):
        state["n"] = n
        commit = state.commit()
        made[f"t/{n:04}"] = state.repository.tags.create(f"t/{n:04}", commit)
    return state, made


def test_several_are_read_in_two_calls():
    store = Counting(Memory())
    _, made = tagged(store, 40)
    repository = Repository(store)
    store.reset()
    assert repository.tags.get_many([*reversed(made), "none", "t/0001"]) == made
    assert list(repository.tags.get_many(["t/0003", "t/0001"])) == ["t/0003", "t/0001"]
    assert store.counts.round_trips <= 3, "the second call reads no commit again"
    assert repository.tags.get_many([]) == {}


def test_a_thousand_are_deleted_in_one_batch():
    store = Counting(Memory())
    state, made = tagged(store, 3)
    tags = state.repository.tags
    tags.copy("t/", "copy/")
    for n in range(1000):
        tags.create(f"many/{n:04}", made["t/0001"])
    store.reset()
    assert len(tags.delete_many(prefix="many/")) == 1000
    assert store.counts.applies == 1
    assert store.counts.round_trips <= 4
    assert sorted(tags) == [*(f"copy/{n:04}" for n in range(3)), *made]
    assert [each.commit for each in state.repository.reflog("many/0007", kind="tag")] == [None, made["t/0001"]]
    assert tags.create("many/0007", "many/0007@{1}") == made["t/0001"]
    assert state.repository.fsck().ok


def test_deletion_by_name_and_by_prefix():
    state, _ = tagged(Memory())
    tags = state.repository.tags
    assert tags.delete_many(["t/0001", "none", "t/0001"]) == ["t/0001"]
    assert tags.delete_many(["t/0000"], prefix="t/0000") == ["t/0000"]
    assert tags.delete_many() == []
    assert tags.delete_many(prefix="x") == []
    assert tags.delete_many(prefix="") == [f"t/{n:04}" for n in range(2, 6)]
    assert list(tags) == []


def test_a_copy_leads_to_the_same_commits_and_keeps_them():
    store = Counting(Memory())
    state, made = tagged(store)
    repository = state.repository
    store.reset()
    assert repository.tags.copy("t/", "thread/2/") == {
        name.replace("t/", "thread/2/"): commit for name, commit in made.items()
    }
    assert store.counts.applies == 1
    assert repository.tags["thread/2/0003"] == made["t/0003"]
    assert repository.tags.copy("none", "x") == {}
    with pytest.raises(RefExistsError):
        repository.tags.copy("t/", "thread/2/")
    repository.tags.delete_many(["thread/2/0000"])
    with pytest.raises(RefExistsError):
        repository.tags.copy("t/", "thread/2/")
    assert "thread/2/0000" not in repository.tags
    assert repository.tags.copy("t/0000", "thread/2/0000") == {"thread/2/0000": made["t/0000"]}
    with pytest.raises(InvalidArgumentError):
        repository.tags.copy("t/", "a b/")
    repository.tags.delete_many(prefix="t/")
    repository.branches.delete("main", force=True)
    repository.gc()
    assert {name: repository.snapshot(name)["n"] for name in repository.tags} == {
        f"thread/2/{n:04}": n for n in range(6)
    }


def test_a_store_of_one_condition_a_batch():
    state, _ = tagged(OneCondition())
    tags = state.repository.tags
    with pytest.raises(UnsupportedByStoreError):
        tags.copy("t/", "u/")
    assert tags.copy("t/0001", "u/0001")
    assert len(tags.delete_many(prefix="t/")) == 6
    assert list(tags) == ["u/0001"]


def test_wrong_arguments_closed_and_read_only():
    store = Memory()
    state, made = tagged(store)
    tags = state.repository.tags
    for call in (
        lambda: tags.get_many("t/0001"),
        lambda: tags.delete_many("t/0001"),
        lambda: tags.delete_many(prefix=3),
        lambda: tags.copy(None, ""),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    reader = Repository(ReadOnly(store)).tags
    assert reader.get_many(made) == made
    for call in (lambda: reader.delete_many(prefix=""), lambda: reader.copy("t/", "u/")):
        with pytest.raises(ReadOnlyError):
            call()
    assert dict(tags) == made
    state.repository.close()
    for call in (lambda: tags.get_many(["a"]), lambda: tags.delete_many(prefix=""), lambda: tags.copy("", "x")):
        with pytest.raises(StoreClosedError):
            call()


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("call", ["delete", "copy"])
def test_a_failure_at_any_call_leaves_all_or_none(call, fault):
    for at in range(1, 15):
        store = Memory()
        _, made = tagged(store)
        faulty = Faulty(store, at=10_000, fault=fault)
        tags = Repository(faulty).tags
        faulty.calls, faulty.at = 0, at
        failed = True
        with suppress(StateError):
            if call == "delete":
                assert tags.delete_many(prefix="t/") == list(made)
            else:
                tags.copy("t/", "u/")
            failed = False
        found = set(Repository(store).tags)
        before, after = set(made), set() if call == "delete" else {*made, *(name.replace("t/", "u/") for name in made)}
        assert found in (before, after)
        if not failed:
            assert found == after
        if not faulty.fired:
            return
    pytest.fail("the call never went through without a fault")


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("call", ["delete", "copy"])
def test_a_call_after_a_lost_reply_completes_it(call, fault):
    store = Outage(Memory(), calls=3)
    state, made = tagged(store)
    tags = state.repository.tags
    run = (lambda: tags.delete_many(prefix="t/")) if call == "delete" else (lambda: tags.copy("t/", "u/"))
    for at in range(1, 8):
        store.calls, store.at, store.fault, store.fired = 0, at, fault, False
        with suppress(StateError):
            run()
    store.at = 10_000
    with suppress(RefExistsError):
        run()
    assert dict(Repository(store.store).tags) == (
        {} if call == "delete" else {**made, **{name.replace("t/", "u/"): commit for name, commit in made.items()}}
    )


# Commits together


def two(store):
    states = [Versioned(store, branch=branch) for branch in "ab"]
    for state in states:
        state["n"] = 1
    return states


def test_commits_together_have_their_tags():
    store = Counting(Memory())
    a, b = two(store)
    repository = a.repository
    store.reset()
    first, second = Repository.commit_together([a, b], tags=["ta", "tb"])
    assert store.counts.applies == 1
    assert (repository.tags["ta"], repository.tags["tb"]) == (first, second)
    b["n"] = 2
    commits = Repository.commit_together([a, b], tags=["ta2", None])
    assert commits == [first, b.head]
    assert sorted(repository.tags) == ["ta", "ta2", "tb"]
    assert repository.tags["ta2"] == first
    assert repository.fsck().ok


def test_a_tag_that_exists_refuses_all_of_them():
    a, b = two(Memory())
    a.repository.tags.create("taken", a.repository.commit(a.head))
    with pytest.raises(RefExistsError) as caught:
        Repository.commit_together([a, b], tags=["new", "taken"])
    assert caught.value.remains == STAGED
    assert list(a.repository.branches) == []
    assert list(a.repository.tags) == ["taken"]
    assert a.status()
    assert b.status()
    assert len(Repository.commit_together([a, b], tags=["new", "other"])) == 2


@pytest.mark.parametrize("tags", [["one"], ["same", "same"], "ab", ["a b", None], [3, None]])
def test_wrong_tags_commit_nothing(tags):
    a, b = two(Memory())
    with pytest.raises(InvalidArgumentError):
        Repository.commit_together([a, b], tags=tags)
    assert list(a.repository.branches) == []
    assert a.status()


def test_tags_of_commits_together_on_a_store_of_one_condition():
    a, b = two(OneCondition())
    with pytest.raises(UnsupportedByStoreError):
        Repository.commit_together([a, b], tags=["ta", "tb"])
    assert a.status()


async def test_tags_of_commits_together_awaited():
    a, b = two(Memory())
    commits = await a.repository.aio.commit_together([a, b], tags=["ta", "tb"])
    assert [a.repository.tags[name] for name in ("ta", "tb")] == commits
