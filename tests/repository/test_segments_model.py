"""Long sequences live through all that deletes: gc, also in slices, prune, purge, expiry, and any of these cut off."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.exact import exact
from tests.support.segments import in_segments
from tests.support.worlds import NAMES, PATTERNS, World
from versioned_state import Cache, Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import StateError
from versioned_state.storage import Fault, Faulty
from versioned_state.storage.wrappers.faulty import InjectedCrash

NOW = timedelta(0)


pytestmark = pytest.mark.usefixtures("small_gc")


def message(topic: str, number: int) -> str:
    return f"{topic} {number}: " + random.Random(f"{topic}{number}").randbytes(40).hex()


class Conversations(World):
    """Branches with long lists of few topics, so that they share segments, whole leaves, and inner nodes."""

    def live(self, *, alone: bool = True) -> None:
        """Take one more step. ``alone`` says whether it is not within another one."""
        kind = self.rng.random()
        with suppress(StateError, InjectedCrash):
            if kind < 0.4:
                self.talk()
            elif kind < 0.5 and alone:
                at, fault = self.rng.randrange(1, 60), self.rng.choice(list(Fault))
                self.delete(Faulty(self.store, at=at, fault=fault, crash=self.rng.random() < 0.5))
            elif kind < 0.6 and alone:
                between = ActsBeforeCall(self.store, lambda: self.live(alone=False), at=self.rng.randrange(1, 40))
                self.delete(Cache(between) if self.rng.random() < 0.3 else between)
            else:
                self.step()

    def talk(self) -> None:
        rng = self.rng
        state = self.handle(rng.choice(NAMES))
        said = state.setdefault("deep", {"log": []})["log"] if rng.random() < 0.3 else state.setdefault("log", [])
        topic = rng.choice("pq")
        for _ in range(rng.randrange(1, 4)):
            kind, count = rng.random(), len(said)
            if kind < 0.7 or not count:
                more = (
                    rng.choice([1, 1, 2, 5, 40, 600 if rng.random() < 0.1 else 60]) if count else rng.choice([50, 300])
                )
                said.extend(message(topic, number) for number in range(count, count + more))
            elif kind < 0.85:
                del said[-rng.randrange(1, 20) :]
            elif kind < 0.95:
                said.insert(rng.randrange(count), [message("x", number) for number in range(rng.randrange(60))])
            else:
                said.clear()
            made = state.commit()
            self.commits.append(made)
            self.known[made.id] = exact(dict(state))

    def delete(self, store: KVStore) -> None:
        rng = self.rng
        repository = Repository(store, clock=self.clock)
        kind = rng.randrange(5)
        if kind == 0:
            repository.gc(expire=NOW, force=True)
        elif kind == 1:
            for _ in range(3):
                repository.gc(expire=NOW, time_limit=0.001, force=True)
        elif kind == 2:
            repository.prune(keep_last=1, branches=rng.choice(NAMES), gc=True, expire=NOW)
        elif kind == 3:
            short = Versioned(repository, branch="short", ttl_seconds=1)
            short["log"] = [message("p", number) for number in range(rng.choice([50, 70]))]
            short.commit()
            repository.expire()
        else:
            repository.purge(branches=rng.choice(PATTERNS[:-1]))


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_every_state_can_be_read_after_each_step(kind, tmp_path, long_run):
    found = 0
    for seed in range(100 if long_run else 3):
        with Disk(tmp_path / str(seed)) if kind == "disk" else Memory() as store:
            world = Conversations(seed, store)
            for number in range(110 if long_run else 60):
                world.live()
                if long_run or not number % 6:
                    world.check()
            world.check()
            found += sum(1 for _ in in_segments(store))
    assert found
