"""Maintenance costs in proportion to what there is: store calls and objects at one size and at four times it.

No clock is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from itertools import islice

import pytest

from tests.support.handles import asked, committed
from tests.support.stores import memory_of
from versioned_state import Memory, Repository, Versioned
from versioned_state.repository.history.signing import Signer
from versioned_state.storage import Counting, KVStore

NOW = timedelta(0)
SMALL = 40
SIGNER = Signer.generate()


def line(count: int) -> KVStore:
    """A branch of many commits."""
    store = Memory()
    state = Versioned(store)
    state["other"] = {"secret": 1}
    for number in range(count):
        state["number"] = [number] * 50
        state.commit(str(number))
    return store


def branches(count: int) -> KVStore:
    """Many branches with a commit each."""
    store = line(3)
    repository = Repository(store)
    for number in range(count):
        repository.branches.create(f"branch-{number}")
        state = Versioned(repository, branch=f"branch-{number}")
        state["own"] = [number] * 50
        state.commit()
    return store


def deleted(count: int) -> KVStore:
    """Many deleted branches, whose reflogs keep their commits."""
    store = branches(count)
    repository = Repository(store)
    for number in range(count):
        repository.branches.delete(f"branch-{number}", force=True)
    return store


def moves(count: int) -> KVStore:
    """One branch that was reset and committed to again and again: a long reflog."""
    store = line(3)
    state = Versioned(store)
    for number in range(count):
        state["number"] = [number] * 60
        state.commit(str(number))
        state.reset("HEAD~1")
    return store


def merges(count: int) -> KVStore:
    """A history of merges."""
    store = line(3)
    state = Versioned(store)
    for number in range(count):
        side = state.fork(f"side-{number}")
        side[f"side-{number}"] = number
        side.commit()
        state["number"] = [number]
        state.commit()
        state.merge(f"side-{number}")
        state.repository.branches.delete(f"side-{number}")
    return store


def wide(count: int) -> KVStore:
    """A state of many keys, each changed once."""
    store = Memory()
    state = Versioned(store)
    for number in range(count):
        state.update({f"key-{number}-{part}": "x" * 300 for part in range(3)})
        state.commit()
    return store


SHAPES: dict[str, Callable[[int], KVStore]] = {
    each.__name__: each for each in (line, branches, deleted, moves, merges, wide)
}

CALLS: dict[str, Callable[[Repository], object]] = {
    "gc": lambda repository: repository.gc(expire=NOW),
    "gc, nothing expired": lambda repository: repository.gc(),
    "gc, dry": lambda repository: repository.gc(expire=NOW, dry_run=True),
    "fsck": lambda repository: repository.fsck(),
    "prune": lambda repository: repository.prune(keep_last=2, gc=True, expire=NOW),
    "prune, dry": lambda repository: repository.prune(keep_last=2, dry_run=True),
    "purge": lambda repository: repository.purge("other.secret"),
    "purge, dry": lambda repository: repository.purge("other.secret", dry_run=True),
    "purge of a branch": lambda repository: repository.purge(branches="branch-1"),
    "stats": lambda repository: repository.stats(),
    "verify": lambda repository: repository.verify(keys=[SIGNER.public_key]),
    "blame": lambda repository: repository.blame(),
    "history": lambda repository: list(repository.history("number")),
    "log of a path": lambda repository: list(repository.log(path="number")),
}


pytestmark = pytest.mark.usefixtures("no_sign_of_life")


@cache
def prepared(shape: str, count: int) -> dict[str, bytes]:
    return dict(SHAPES[shape](count).items())


def cost(shape: str, count: int, call: str) -> tuple[int, int, int]:
    counts = asked(memory_of(prepared(shape, count)), CALLS[call])
    return counts.objects_read, counts.objects_written, counts.round_trips


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_as_much_costs_at_most_four_times_as_much(shape, call):
    small, large = cost(shape, SMALL, call), cost(shape, 4 * SMALL, call)
    # of the store: a higher tree has longer paths
    growth = len(prepared(shape, 4 * SMALL)) / len(prepared(shape, SMALL))
    for what, few, many in zip(("objects read", "objects written", "round trips"), small, large, strict=True):
        assert many <= 1.2 * growth * few + 60, (what, few, many)


def test_the_log_of_a_path_reads_no_further_than_what_is_taken():
    store = Memory()
    state = Versioned(store)
    for number in range(600):
        state["often"] = number
        state["seldom"] = number // 100
        state.commit()
    takes: list[Callable[[Repository], list[object]]] = [
        lambda repository: list(islice(repository.history("often"), 3)),
        lambda repository: list(repository.log(path="often", limit=3)),
    ]
    for take in takes:
        counting = Counting(store)
        repository = Repository(counting)
        counting.reset()
        assert len(take(repository)) == 3
        assert counting.counts.objects_read <= 15
    counting = Counting(store)
    repository = Repository(counting)
    counting.reset()
    assert len(list(islice(repository.history("seldom"), 1))) == 1
    # A hundred commits, and at most as many that were read ahead; but in half as many calls.
    assert counting.counts.objects_read <= 200
    assert counting.counts.round_trips <= 55


def test_a_gc_of_what_is_garbage_costs_what_is_kept():
    """Deleting needs the keys of garbage, and not its bytes."""
    store = Memory()
    state = committed(store, kept=1)
    reads = []
    for count in (200, 800):
        state["dropped"] = [{"number": number, "text": "x" * 100} for number in range(count)]
        state.commit()
        state.reset("HEAD~1")
        Repository(store).gc(expire=NOW)
        counting = Counting(store)
        reads.append(counting)
        Repository(counting).gc(expire=NOW)
    assert reads[1].counts.objects_read <= reads[0].counts.objects_read + 2
