"""One workload of every kind of call, whose result must be the same over every store."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from typing import Any

from tests.support.exact import exact
from tests.support.mutations import mutate, sample
from tests.support.strategies import make_large
from versioned_state import KVStore, Repository, Versioned


def work(store: KVStore) -> list[Any]:
    """Make commits of every kind of edit, and return all that can be seen of them."""
    clock = itertools.count(1)
    repository = Repository(store, clock=lambda: next(clock), pickle="refuse")
    state = Versioned(repository)
    rng = random.Random(3)
    state["value"] = sample(rng, 40)
    state["large"] = make_large("nested", 600, 1)
    seen: list[Any] = [state.commit("first").id]
    for n in range(6):
        mutate(random.Random(n), state["large"])
        state.sequence("log").append({"n": n})
        state.namespace("n")["step"] = n
        seen.append(state.commit(str(n)).id)
    repository.branches.create("side", "HEAD~2")
    other = Versioned(repository, branch="side")
    other["value"]["text"] += "more\n"
    seen.append(other.commit("side").id)
    ours, theirs = Versioned(repository), Versioned(repository)
    theirs["theirs"] = 1
    theirs.commit("theirs")
    ours["ours"] = 1
    seen.append(ours.commit("ours").id)
    with suppress(ZeroDivisionError), ours.transaction():
        ours["value"].clear()
        ours["large"] = 1 / 0
    seen += [exact(ours.copy()), str(repository.diff("side", "main")), [commit.id for commit in repository.log("main")]]
    ours.reset("side")
    again = Repository(store)
    seen += [
        list(again.branches),
        exact(again.snapshot("main").copy()),
        [position.action for position in again.reflog("main")],
    ]
    seen.append(again.commit("main~3").id)
    return seen
