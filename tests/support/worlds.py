"""A store that lives through all at random: branches with equal content, forks, merges, deletions, gc, prune, purge."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from tests.support.exact import exact
from tests.support.garbage import assert_whole
from tests.support.histories import Clock
from tests.support.strategies import make_large
from versioned_state import Cache, Commit, KVStore, Memory, Repository, Versioned
from versioned_state.errors import MissingObjectError, StateError
from versioned_state.objects.address import Address, Role
from versioned_state.objects.keys import REF_KINDS, object_key
from versioned_state.objects.store import Reader
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS
from versioned_state.repository.history.reach import Reference, followed, segments_of
from versioned_state.repository.history.shallow import Shallow
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.repository.refs.ref import Ref, iter_refs


def is_fast(report: PurgeReport) -> bool:
    """Return whether branches were erased at their own cost: a gc of the whole store knows the bytes."""
    return report.collected is not None and report.collected.kept_bytes is None


def reached(
    reader: Reader,
    starts: Iterable[Reference],
    *,
    shallow: Shallow = Shallow({}),  # noqa: B008 - it never changes
    expired: int | None = None,
    lenient: bool = False,
) -> dict[Address, Role]:
    """Return the objects that some references lead to, each read by itself, with their segments.

    ``lenient``: some may be missing.
    """
    found: dict[Address, Role] = {}
    pending = list(starts)
    while pending:
        each = pending.pop()
        if each.address in found:
            continue
        try:
            raw = reader.read(each.address)
        except MissingObjectError:
            if not lenient:
                raise
            continue
        found[each.address] = each.role
        found.update(dict.fromkeys(segments_of(raw), Role.SEGMENT))
        pending += followed(each, raw, shallow=shallow, expired=expired)
    return found


def led_to(store: KVStore, refs: Iterable[Ref], *, whole: bool = True) -> dict[Address, Role]:
    """Return the objects that some refs lead to.

    With ``whole``, those that have expired or were pruned are among them.
    """
    repository = Repository(store)
    shallow = Shallow({}) if whole else repository.database.commits.refresh_shallow()
    expired = 0 if whole else repository.database.fence.record.expired
    starts = [Reference(head, Role.COMMIT) for ref in refs if (head := ref.head) is not None]
    starts += [Reference(log, Role.LOG_ENTRY) for ref in refs if (log := ref.log) is not None]
    found = reached(repository.database.objects, starts, shallow=shallow, expired=expired, lenient=whole)
    found.pop(ROOT_ADDRESS, None)
    return found


def check_against_marking(store: KVStore, led: dict[Address, Role], report: PurgeReport) -> None:
    """Compare a purge of branches at their own cost with a marking of the whole store.

    What the branches led to is needed by others, or gone.
    """
    needed = led_to(store, [ref for kind in REF_KINDS for ref in iter_refs(store, kind, deleted=True)], whole=False)
    left = {address: role for address, role in led.items() if address not in needed and object_key(address) in store}
    assert Role.COMMIT not in left.values(), "no commit of theirs stays that nobody else leads to"
    assert report.collected is not None
    assert not left or report.collected.kept, "only equal content that others had at the last gc"
    repository = Repository(store)
    shared = graph.walk(map(repository.commit, report.shared), repository.database.commits.read)
    commits = {address for address, role in led.items() if role is Role.COMMIT and address in needed}
    assert commits == {commit.address for commit in shared} & commits


NAMES = ("u/1", "u/2", "u/x/1", "u/x/2", "v/1", "v/2", "w")
PATTERNS = (*NAMES, "u/*", "u/x/*", "v*", "?/1", "*")
VALUES = tuple(
    make_large(kind, size, seed)
    for seed, (kind, size) in enumerate([("list", 120), ("dict", 80), ("text", 1500), ("nested", 40)])
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
                    grown += [
                        f"the same message {n} in every branch"
                        for n in range(len(grown), len(grown) + rng.randrange(1, 30))
                    ]
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
            lambda: repository.gc(
                expire=timedelta(seconds=rng.choice([0, 50])), time_limit=rng.choice([1e-9, 0.002, 10])
            ),
            lambda: repository.prune(
                keep_last=rng.randrange(1, 4), branches=name, expire=timedelta(seconds=rng.choice([0, 10_000]))
            ),
            lambda: repository.purge("b") if rng.random() < 0.2 else None,
        ]
        with suppress(StateError):
            rng.choice(moves)()
        if rng.random() < 0.05:
            with suppress(StateError):  # the head of a handle that is far behind may be gone
                state.discard()

    def purge(self, repository: Repository, pattern: str) -> None:
        before = set(self.store.keys("o/"))
        erased = [ref for ref in iter_refs(self.store, "branch", deleted=True) if fnmatchcase(ref.name, pattern)]
        led = led_to(self.store, erased)
        dry = repository.purge(branches=pattern, dry_run=True)
        report = repository.purge(branches=pattern)
        if is_fast(report):
            assert (dry.branches, dry.shared) == (report.branches, report.shared)
            check_against_marking(self.store, led, report)
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
