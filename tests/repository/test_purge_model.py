"""Purge against a naive model: every commit without the purged path, in a history of the same shape."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, strategies as st

from tests.support.histories import Clock
from tests.support.personal_data import LONG, SECRET
from versioned_state import Memory, Repository, Versioned
from versioned_state.objects.address import Address
from versioned_state.objects.keys import object_key
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.maintenance.purge.purge import purge

Naive = dict[str, tuple[dict[str, Any], tuple[str, ...]]]
"""Content and parents of each commit, in the order in which they were made."""


def make_history(rng: random.Random, repository: Repository) -> Naive:
    """Rounds at random on two branches, resets and tags, in some of which a person comes and goes."""
    naive: Naive = {}
    states = {name: Versioned(repository, branch=name) for name in ("main", "side")}
    for n in range(rng.randint(1, 15)):
        name = rng.choice(["main", "side"])
        state = states[name]
        match rng.randrange(6):
            case 0:
                state["users"] = {
                    name: {"deep": {"list": [SECRET] * rng.randrange(40), "n": n}} for name in ("alice", "bob")
                }
            case 1:
                state.setdefault("users", {})["alice"] = {"deep": {"list": [LONG, SECRET, n]}}
            case 2:
                state["other"] = {"n": n, "users": {"carol": n}}
            case 3:
                state.setdefault("users", {}).pop("alice", None)
            case 4 if state.head.height > 1:
                state.reset(f"{name}~1")
                continue
            case _:
                repository.tags.create(f"t{n}", state.head)
                continue
        commit = state.commit(str(n))
        naive[commit.id] = (repository.snapshot(commit).copy(), commit.parents)
    return naive


def less(content: dict[str, Any], steps: tuple[str, ...]) -> dict[str, Any]:
    head, *rest = steps
    if head not in content or (rest and not isinstance(content[head], dict)):
        return content
    if not rest:
        return {key: value for key, value in content.items() if key != head}
    return {key: less(value, tuple(rest)) if key == head else value for key, value in content.items()}


@given(
    seed=st.integers(0, 2**32), at=st.sampled_from([("users", "alice"), ("users",), ("users", "alice", "deep", "list")])
)
def test_against_a_naive_model(seed: int, at: tuple[str, ...]):
    store = Memory()
    repository = Repository(store, clock=Clock())
    naive = make_history(random.Random(seed), repository)
    report = purge(repository.database, ".".join(at))
    fresh = Repository(store)
    assert fresh.fsck().findings == ()
    affected: dict[str, bool] = {ROOT_ID: False}
    for id, (content, parents) in naive.items():
        affected[id] = less(content, at) != content or any(affected[parent] for parent in parents)
        new = report.commits.get(id, id)
        assert (new != id) == affected[id]
        assert fresh.snapshot(fresh.commit(new)).copy() == less(content, at)
        assert fresh.commit(new).parents == tuple(report.commits.get(parent, parent) for parent in parents)
        assert (object_key(Address(bytes.fromhex(id))) in store) == (not affected[id])
    assert set(report.commits) == {id for id, is_affected in affected.items() if is_affected}
