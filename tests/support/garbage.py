"""A store with garbage beside reachable objects, and the content that a gc must not change."""

from __future__ import annotations

import functools
import itertools
import random
from datetime import timedelta
from typing import Any

from tests.support.exact import exact
from tests.support.strategies import make_large
from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.objects.keys import GC
from versioned_state.repository.refs.gc_fence import GcRecord

NOW = timedelta(0)
MINUTE_US = 60_000_000


def prepare(store: KVStore) -> dict[str, str]:
    """Make a branch, a tag on it and garbage in an empty store. Return the ids of some commits."""
    held, ids = _prepared()
    store.set_many(held)
    return dict(ids)


@functools.cache
def _prepared() -> tuple[dict[str, bytes], dict[str, str]]:
    """Return what ``prepare`` puts into a store, made once."""
    store = Memory()
    state = Versioned(store, clock=itertools.count(1_000_000).__next__)
    state["messages"] = make_large("list", 200, 1)
    state["prefs"] = {"theme": "dark"}
    ids = {"first": state.commit("first").id}
    state.repository.tags.create("v1")
    state["messages"].append({"n": 1})
    ids["second"] = state.commit("second").id
    state["other"] = make_large("nested", 200, 2)
    state["blob"] = random.Random(1).randbytes(100_000)
    ids["dropped"] = state.commit("dropped").id
    state.reset(ids["second"])
    state.repository.branches.create("side")
    side = Versioned(state.repository, branch="side")
    side["garbage"] = make_large("dict", 250, 3)
    ids["side"] = side.commit("side").id
    state.repository.branches.delete("side", force=True)
    return dict(store.items()), ids


def contents(store: KVStore) -> dict[str, Any]:
    """Of each branch and tag, its commits and their contents, all of it read."""
    repository = Repository(store)
    return {
        name: [(commit.id, exact(repository.snapshot(commit).copy())) for commit in repository.log(refs[name])]
        for refs in (repository.branches, repository.tags)
        for name in refs
    }


def assert_whole(store: KVStore) -> None:
    report = Repository(store).fsck()
    assert report.ok, "\n".join(map(str, report.findings))


def recommit(store: KVStore) -> None:
    """Commit the dropped content again: its objects may be there as garbage."""
    state = Versioned(store, branch="again")
    state["messages"] = [*make_large("list", 200, 1), {"n": 1}]
    state["other"] = make_large("nested", 200, 2)
    state["blob"] = random.Random(1).randbytes(100_000)
    state["garbage"] = make_large("dict", 250, 3)
    state.commit("again")
    assert exact(Repository(store).snapshot("again")["garbage"]) == exact(make_large("dict", 250, 3))


def append(store: KVStore) -> None:
    state = Versioned(store)
    state["messages"].append("between")
    state.commit("between")


def set_gc_record(store: KVStore, **fields: object) -> None:
    """Write a record of gc with these fields, as of another process that is at work."""
    stored = GcRecord().but(**fields).stored
    assert stored is not None
    store.set(GC, stored)
