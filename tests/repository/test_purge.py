"""Purged content is in no commit, reflog, object or file.

Everything else is as before, in commits of the same shape.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.handles import committed
from tests.support.histories import Clock, numbered
from tests.support.personal_data import SECRET, agent, holds
from tests.support.stores import OneCondition
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, StateError, UnmergedBranchError, UnsafeStoreError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import SHALLOW, object_key
from versioned_state.objects.store import Staging
from versioned_state.repository.database import Publication
from versioned_state.repository.maintenance.prune import prune
from versioned_state.repository.maintenance.purge.purge import purge


def test_nothing_of_it_is_left_and_all_else_is():
    store = Memory()
    repository = Repository(store, clock=Clock())
    made = agent(repository)
    assert holds(store)
    before = {name: repository.snapshot(commit).copy() for name, commit in made.items()}
    report = purge(repository.database, "users.alice")
    assert not holds(store)
    assert report.paths == ("users.alice",)
    assert report.refs == ("branch deleted", "branch main", "branch side", "tag late")
    assert set(report.commits) == {commit.id for name, commit in made.items() if name != "before"}
    assert set(report.holding) == {made[name].id for name in ("added", "lost", "noted", "side")}
    repository = Repository(store, clock=Clock())
    for name, content in before.items():
        content.get("users", {}).pop("alice", None)
        old = made[name]
        new = repository.commit(report.commits.get(old.id, old.id))
        assert repository.snapshot(new).copy() == content
        assert (new.time, new.author, new.message, new.generation, new.height) == (
            old.time,
            old.author,
            old.message,
            old.generation,
            old.height,
        )
        assert new.parents == tuple(report.commits.get(parent, parent) for parent in old.parents)
    assert repository.tags["before"] == made["before"]
    for id in report.commits:
        assert object_key(Address(bytes.fromhex(id))) not in store
    # The reflog leads to what stands for the old commits.
    assert [position.action for position in repository.reflog("main")] == [
        "commit",
        "commit",
        "reset",
        "commit",
        "commit",
        "commit",
    ]
    assert repository.commit("main@{3}").id == report.commits[made["lost"].id]
    assert repository.commit("deleted@{1}").id == report.commits[made["side"].id]


def test_it_is_as_if_it_had_never_been_there():
    """Trees are canonical, so a history that never held it has the same roots."""
    store, never = Memory(), Memory()
    for place, users in ((store, True), (never, False)):
        state = Versioned(place, clock=Clock())
        for n in range(30):
            state["n"] = n
            state["users"] = {f"u{m}": {"text": f"{m} " * m} for m in range(n * 3) if users or m != 7}
            state.commit(str(n))
    repository = Repository(store)
    purge(repository.database, "users.u7")
    assert [(c.root, c.time) for c in repository.log()] == [(c.root, c.time) for c in Repository(never).log()]


def test_a_dry_run_writes_nothing():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    before = dict(store.items())
    dry = purge(repository.database, "users.alice", dry_run=True)
    assert dict(store.items()) == before
    wet = purge(repository.database, "users.alice")
    assert set(dry.commits) == set(wet.commits)
    assert (dry.holding, dry.refs, dry.paths, dry.collected, dry.dry_run) == (
        wet.holding,
        wet.refs,
        wet.paths,
        None,
        True,
    )
    assert wet.collected is not None
    assert wet.collected.freed > 0


def test_what_was_never_there_changes_no_id():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    heads = {name: commit.id for name, commit in repository.branches.items()}
    report = purge(repository.database, "users.carol", "nothing.at.all")
    assert (report.commits, report.refs, report.paths) == ({}, (), ())
    assert {name: commit.id for name, commit in repository.branches.items()} == heads


def test_words_in_messages_authors_and_meta():
    store = Memory()
    repository = Repository(store, clock=Clock())
    state = Versioned(repository, author="Alice")
    state["x"] = 1
    first = state.commit("Alice begins", meta={"by": ["Alice", 1], "Alice": "yes"})
    state["x"] = 2
    state.commit("Bob goes on", author="Bob")
    state.reset("main~1")
    report = purge(repository.database, "users.Alice")
    assert first.id in report.mentions
    assert holds(store, "Alice")
    report = purge(repository.database, replace={"Alice": "A."})
    assert not holds(store, "Alice")
    new = repository.commit("main")
    assert (new.message, new.author, new.meta) == ("A. begins", "A.", {"by": ["A.", 1], "A.": "yes"})
    assert report.mentions == ()
    assert {position.commit.message for position in repository.reflog("main") if position.commit} == {
        "A. begins",
        "Bob goes on",
    }


@pytest.mark.parametrize("expired", [False, True])
def test_words_in_the_message_of_a_tag_and_in_a_reflog(expired):
    store = Memory()
    repository = Repository(store, clock=Clock())
    state = Versioned(repository)
    state["x"] = 1
    state.commit("one")
    repository.tags.create("v1", message="what Alice said", author="Alice")
    state["x"] = 2
    state.commit("two")
    state.reset("HEAD~1")
    if expired:
        repository.gc(expire=timedelta(0))
    report = purge(repository.database, replace={"Alice": "A."})
    annotation = repository.tags.annotation("v1")
    assert annotation is not None
    assert (annotation.message, annotation.author) == ("what A. said", "A.")
    assert not report.mentions
    assert not holds(store, "Alice")


@pytest.mark.parametrize("is_left", [False, True])
def test_the_name_of_the_tag_that_a_commit_was_made_with(is_left):
    store = Memory()
    repository = Repository(store, clock=Clock())
    state = Versioned(repository, branch="b")
    for n in range(4):
        state["x"] = n
        made = state.commit(tag=f"Alice-{n}")
        repository.tags.delete(f"Alice-{n}") if n < 3 or not is_left else None
    repository.gc(expire=timedelta(0))
    assert made.id in purge(repository.database, "users.Alice").mentions
    report = purge(repository.database, replace={"Alice": "A."})
    assert len(report.holding) == 4
    assert report.mentions == (("tag Alice-3",) if is_left else ())
    assert holds(store, "Alice") == is_left, "in the record of the tag alone"
    assert repository.prune(keep_last=1, branches="b").removed == (0 if is_left else 3)
    if is_left:
        assert repository.tags["Alice-3"] == repository.branches["b"]
        repository.branches.delete("b")
    else:
        with pytest.raises(UnmergedBranchError):
            repository.branches.delete("b")
    assert repository.fsck().ok


def test_the_name_of_a_branch_that_is_gone_is_not_kept_by_others():
    store = Memory()
    repository = Repository(store, clock=Clock())
    committed(repository, x=1)
    repository.branches.create("Alice", "main")
    repository.branches.create("Bob", "main")
    repository.branches.create("Alice-2", "Bob")
    for name in ("Alice", "Alice-2"):
        repository.branches.delete(name)
    repository.gc(expire=timedelta(0))
    purge(repository.database, replace={"Alice": "A."})
    assert not holds(store, "Alice")
    repository.branches.delete("Bob")


def test_a_ref_that_is_named_so_is_pointed_out():
    repository = Repository(Memory(), clock=Clock())
    agent(repository)
    repository.branches.create("user/alice")
    assert "branch user/alice" in purge(repository.database, "users.alice").mentions


@pytest.mark.parametrize("gone", ["delete", "rename"])
def test_what_is_left_of_a_ref_that_was_named_so_is_pointed_out(gone):
    store = Memory()
    state = committed(store, users={"alice": SECRET})
    branches = state.repository.branches
    branches.create("try/alice")
    branches.delete("try/alice") if gone == "delete" else branches.rename("try/alice", "try/x")
    assert "deleted branch try/alice" in state.repository.purge("users.alice").mentions
    state.repository.purge(branches="try/*")
    assert not any("alice" in key for key, _ in store.items())


def test_a_merge_policy_of_the_path_is_pointed_out():
    state = committed(users={"alice": {"visits": 1}})
    state.repository.set_merge_policy("users.alice.visits", "sum")
    assert state.repository.purge("users.alice").mentions == ("merge policy users.alice.visits",)


@pytest.mark.parametrize("move", ["reset", "create"])
def test_what_was_never_purged_can_be_gone_back_to(move):
    state = Versioned()
    repository = state.repository
    numbered(state, range(3))
    repository.branches.create("side")
    state["junk"] = 1
    state.commit()
    state.reset("HEAD~1")
    repository.gc(expire=timedelta(0))
    side = Versioned(repository, branch="side")
    side["alice"] = SECRET
    side.commit()
    repository.purge("alice")
    if move == "reset":
        state.reset("HEAD~1")
        assert state["n"] == 1
    else:
        assert repository.branches.create("again", "main~1").message == "1"


def test_merges_and_cuts_keep_their_shape():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    main, side = repository.commit("main"), repository.commit("side")
    staging = Staging(repository.database.objects)
    merged = repository.database.write_commit(side.tree, (main, side), staging=staging, message="merged")
    assert repository.database.publish([Publication(repository.database.ref("branch", "main"), merged, staging)])
    state = Versioned(repository)
    for n in range(40):
        state["n"] = 100 + n
        state.commit(str(n))
    report = purge(repository.database, "users.alice")
    assert not holds(store)
    assert repository.commit(report.commits[merged.id]).parents == (report.commits[main.id], report.commits[side.id])
    for n in range(40):
        assert repository.commit(f"main~{n}").message == str(39 - n)


def test_the_last_entry_of_a_reflog_may_name_a_commit_that_is_gone():
    store = Memory()
    state = Versioned(store)
    for n in range(3):
        state.update(n=n, secret=SECRET)
        state.commit()
    state.rollback()
    numbered(state, range(3), key="m")
    state.fork("other")
    state.repository.prune(keep_last=2, expire=timedelta(0), gc=True)
    Repository(store).purge("secret", branches="other")
    repository = Repository(store)
    assert list(repository.branches) == ["main"]
    assert repository.snapshot().copy() == {"m": 2, "n": 1}
    assert [position.commit for position in repository.reflog("main")] == list(repository.log())
    assert repository.fsck().ok


@pytest.mark.parametrize("collected", [False, True])
def test_history_that_was_cut_stays_cut(collected):
    store = Memory()
    repository = Repository(store, clock=Clock())
    state = Versioned(repository)
    for n in range(40):
        state["users"] = {"alice": f"{SECRET} {n}", "bob": n}
        state.commit(str(n))
    prune(repository.database, keep_last=10, gc=collected, expire=timedelta(0))
    report = purge(repository.database, "users.alice")
    assert not holds(store)
    assert len(report.commits) == 10
    for each in (repository, Repository(store)):
        assert [commit.message for commit in each.log()] == [str(n) for n in range(39, 29, -1)]
        assert [commit.shallow for commit in each.log()] == [False] * 9 + [True]
        assert len(each.database.commits.shallow) == 1
        assert each.fsck().findings == ()
    state = Versioned(Repository(store))
    for n in range(40):
        state["users"]["bob"] = n
        state.commit(f"more {n}")
    assert state.repository.commit("main~45").message == "34"
    assert SHALLOW in store


@pytest.mark.parametrize("arguments", [((), {}), (("a",), {"prefixes": [""]}), ((), {"replace": {"": "x"}})])
def test_what_makes_no_sense_is_refused(arguments: Any):
    paths, options = arguments
    with pytest.raises(InvalidArgumentError):
        purge(Repository(Memory()).database, *paths, **options)


def test_where_gc_cannot_run_nothing_is_changed():
    store = OneCondition()
    repository = Repository(store)
    committed(repository, alice=SECRET)
    before = dict(store.items())
    with pytest.raises(UnsafeStoreError):
        purge(repository.database, "alice")
    assert dict(store.items()) == before
    assert len(purge(repository.database, "alice", dry_run=True).commits) == 1


def test_another_repository_that_knows_of_the_purge_answers_nothing_from_memory():
    store = Memory()
    repository = Repository(store)
    state = Versioned(repository)
    state["small"], state["large"] = SECRET, [f"{SECRET} {n}" for n in range(2000)]
    first = state.commit().id
    assert repository.snapshot(first)["small"] == SECRET
    other = Versioned(repository, branch="other")
    other["n"] = 1
    other.commit()
    Repository(store).purge("small", "large")
    other["n"] = 2
    other.commit()  # learns that something was deleted
    other.refresh()
    for key in ("small", "large"):
        with pytest.raises(StateError):
            repository.snapshot(first)[key]


@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.reset("HEAD~27"),
        lambda state: state.squash("HEAD~27"),
        lambda state: state.fork("idea", at="HEAD~27"),
        lambda state: state.repository.tags.create("v1", "main~27"),
    ],
)
def test_a_process_that_remembers_a_head_from_before_the_purge_moves_refs(call):
    store = Memory()
    purging, other = Repository(store), Repository(store)
    state = Versioned(purging)
    for n in range(60):
        state.update(n=n, secret=SECRET)
        state.commit()
    with state.fork("garbage") as garbage:
        garbage["n"] = "x" * 3000
        garbage.commit()
    purging.branches.delete("garbage", force=True)
    purging.gc(expire=timedelta(0))
    last = Versioned(other)
    last["n"] = "last"
    assert last.commit() == other.commit("main")  # which reads it, and keeps it in memory
    purging.purge("secret")
    call(Versioned(other))
    assert Repository(store).fsck().ok
