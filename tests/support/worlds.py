"""A store that lives through everything at random: branches with equal content, forks, merges, deletions, gc, prune and purge."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tests.support.exact import exact
from tests.support.garbage import assert_whole
from tests.support.histories import Clock
from tests.support.strategies import make_large
from versioned_state import Cache, Commit, KVStore, Memory, Repository, Versioned
from versioned_state.errors import StateError
from versioned_state.repository.maintenance.purge.purge import PurgeReport


def is_fast(report: PurgeReport) -> bool:
    """Whether branches were erased at their own cost: a gc of the whole store knows the bytes."""
    return report.collected is not None and report.collected.kept_bytes is None


NAMES = ("u/1", "u/2", "u/x/1", "u/x/2", "v/1", "v/2", "w")
PATTERNS = (*NAMES, "u/*", "u/x/*", "v*", "?/1", "*")
VALUES = tuple(
    make_large(kind, size, seed) for seed, (kind, size) in enumerate([("list", 120), ("dict", 80), ("text", 1500), ("nested", 40)])
)
"""Few, so that branches have equal content, and what was erased comes back all the time."""


class World:
    """A store, two repositories over it that stay open, and handles that may be far behind."""

    def __init__(self, seed: int, store: KVStore | None = None) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.store = Memory() if store is None else store
        self.repositories = [Repository(self.store, clock=self.clock), Repository(Cache(self.store), clock=self.clock)]
        self.handles: dict[str, Versioned] = {}
        self.known: dict[str, Any] = {}
        self.commits: list[Commit] = []
        self.fast = self.slow = self.freed = 0

    def handle(self, name: str) -> Versioned:
        if name not in self.handles or self.rng.random() < 0.3:
            with suppress(StateError):
                self.handles[name] = Versioned(self.rng.choice(self.repositories), branch=name)
        return self.handles[name]

    def step(self) -> None:
        rng = self.rng
        name, other = rng.choice(NAMES), rng.choice(NAMES)
        repository = rng.choice(self.repositories)
        state = self.handle(name)

        def commit() -> None:
            for _ in range(rng.randrange(1, 4)):
                state[rng.choice("abcd")] = rng.choice(VALUES)
                if rng.random() < 0.3:
                    grown = state.setdefault("grown", [])
                    grown += [f"the same message {n} in every branch" for n in range(len(grown), len(grown) + rng.randrange(1, 30))]
                if rng.random() < 0.4:
                    state["n"] = rng.randrange(6)
                made = state.commit(tag=f"{rng.choice('ut')}/{rng.randrange(3)}" if rng.random() < 0.1 else None)
                self.commits.append(made)
                self.known[made.id] = exact(dict(state))

        def come_back() -> None:
            repository.branches.create(name, rng.choice(self.commits) if self.commits else "HEAD")

        def purge() -> None:
            self.purge(repository, rng.choice(PATTERNS[:-1]))

        moves: list[Callable[[], object]] = [
            *([commit] * 16),
            *([purge] * 6),
            *([lambda: repository.gc(expire=timedelta(seconds=50))] * 3),
            come_back,
            lambda: repository.branches.create(name, other),
            lambda: repository.branches.create(name, f"{other}@{{1}}"),
            lambda: state.merge(other, policies={"**": "ours"}),
            lambda: state.cherry_pick(other, policies={"**": "theirs"}),
            lambda: state.rebase(other, policies={"**": "theirs"}),
            lambda: state.reset(rng.choice(["HEAD~1", other, "HEAD@{1}"])),
            lambda: state.restore("a", at=other),
            lambda: repository.tags.create(f"{rng.choice('ut')}/{rng.randrange(3)}", other),
            lambda: repository.tags.delete(f"{rng.choice('ut')}/{rng.randrange(3)}"),
            lambda: repository.notes.update(other, {"x": 1}),
            lambda: repository.branches.rename(name, other),
            lambda: repository.branches.delete(name, force=True),
            state.undo,
            state.discard,
            state.refresh,
            lambda: repository.gc(expire=timedelta(seconds=rng.choice([0, 50, 10_000]))),
            lambda: repository.gc(expire=timedelta(seconds=rng.choice([0, 50])), time_limit=rng.choice([1e-9, 0.002, 10])),
            lambda: repository.prune(keep_last=rng.randrange(1, 4), branches=name, expire=timedelta(seconds=rng.choice([0, 10_000]))),
            lambda: repository.purge("b") if rng.random() < 0.2 else None,
        ]
        with suppress(StateError):
            rng.choice(moves)()
        if rng.random() < 0.05:
            with suppress(StateError):  # the head of a handle that is far behind may be gone
                state.discard()

    def purge(self, repository: Repository, pattern: str) -> None:
        before = set(self.store.keys("o/"))
        dry = repository.purge(branches=pattern, dry_run=True)
        report = repository.purge(branches=pattern)
        if is_fast(report):
            assert set(dry.branches) == set(report.branches)
            self.fast += 1
            self.freed += len(before - set(self.store.keys("o/")))
        else:
            self.slow += 1
        gone = Repository(self.store)
        assert not {*report.branches} & {*gone.branches, *gone.branches.deleted()}

    def check(self) -> None:
        assert_whole(self.store)
        repository = Repository(self.store)
        for refs in (repository.branches, repository.tags):
            for commit in refs.values():
                if commit.id in self.known:
                    assert exact(repository.snapshot(commit).copy()) == self.known[commit.id]
