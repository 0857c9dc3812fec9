"""Moves of branches and tags at random, for tests that compare an answer from records with one from a scan."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from tests.support.histories import Clock
from versioned_state import Commit, Repository, Versioned
from versioned_state.errors import StateError
from versioned_state.repository.history.commit import ROOT_ID

LONG_AGO_S = 40 * 86_400
"""After this many seconds the entries of a reflog have expired."""


def one_move(repository: Repository, clock: Clock, rng: random.Random) -> None:
    names = sorted(repository.branches)
    name = rng.choice([*names, f"b{rng.randrange(6)}"])
    state = Versioned(repository, branch=name)
    other = rng.choice(names) if names else name
    new = f"b{rng.randrange(6)}"

    def commit() -> None:
        for _ in range(rng.randrange(1, 4)):
            state[f"k{rng.randrange(30)}"] = rng.random()
            state.commit()

    def tagged() -> None:
        state["t"] = rng.random()
        state.commit(tag=f"t{rng.randrange(6)}")

    def together() -> None:
        second = Versioned(repository, branch=other)
        state["both"] = second["both"] = rng.random()
        repository.commit_together([state, second], "both")

    def drop() -> None:
        repository.branches.delete(name, force=rng.random() < 0.7)
        repository.tags.delete(f"t{rng.randrange(6)}")

    def back() -> None:
        repository.branches.delete(name, force=True)
        if rng.random() < 0.5:
            clock.sleep(LONG_AGO_S)
            repository.gc()
        state["back"] = rng.random()
        state.commit()

    places: list[str | Commit] = [other, f"{other}~1", f"{other}~2"]
    if other in names:
        places.append(repository.branches[other])
    place = rng.choice(places)
    moves: list[Callable[[], object]] = [
        *([commit] * 7),
        tagged,
        together,
        lambda: repository.branches.create(new, place),
        lambda: repository.branches.create(new, ROOT_ID),
        lambda: state.merge(other, policies={"**": "ours"}),
        lambda: state.cherry_pick(other, policies={"**": "theirs"}),
        lambda: state.rebase(other, policies={"**": "theirs"}),
        lambda: state.reset(rng.choice(["HEAD~1", other, "HEAD@{1}"])),
        lambda: repository.tags.create(f"t{rng.randrange(6)}", place),
        lambda: repository.branches.rename(name, new),
        drop,
        back,
        state.undo,
        lambda: repository.gc(expire=timedelta(0)),
        lambda: repository.prune(keep_last=2, branches=name),
        lambda: repository.purge(branches=name) if rng.random() < 0.3 else None,
        lambda: clock.sleep(LONG_AGO_S),
    ]
    with suppress(StateError):
        rng.choice(moves)()
