"""A round costs what changed, a read what is read: counted in objects and bytes, so no machine is too slow for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.handles import committed
from tests.support.strategies import make_large
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.storage import Counting, Counts


def messages(count: int) -> list[dict[str, Any]]:
    rng = random.Random(1)
    words = "the agent said that it would look at the file and then call the tool again with other arguments".split()
    return [
        {"role": rng.choice(("user", "assistant")), "content": " ".join(rng.choices(words, k=60)), "n": n}
        for n in range(count)
    ]


def cost(work: Callable[[], Any], store: Counting) -> Counts:
    store.reset()
    work()
    return store.counts


def appended(count: int, *, lazily: bool = False, fresh: bool = False) -> Counts:
    """Return the cost of a commit that appends two messages to ``count`` others."""
    store = Counting(Memory())
    state = Versioned(store)
    more = messages(count + 2)
    state["messages"] = more[:count]
    state.commit()
    if fresh or lazily:
        state = Versioned(store)
    if lazily:
        state.sequence("messages").extend(more[count:])
    else:
        state["messages"].extend(more[count:])
    return cost(state.commit, store)


PATH = 14
"""Nodes from the root of a list to its end, of which the last ones may be in some segments each."""


@pytest.mark.parametrize("fresh", [False, True], ids=["given", "loaded"])
def test_appending_two_messages(fresh):
    costs = {count: appended(count, fresh=fresh) for count in (10, 100, 1_000, 10_000)}
    for count, counts in costs.items():
        assert counts.objects_written <= 8, count
        assert counts.bytes_written <= (3_000 if count < 1_000 else 8_000), count
        assert counts.objects_read <= PATH
        assert counts.applies == 1
    assert costs[10_000].bytes_written <= 3 * costs[100].bytes_written + 3_000


def test_appending_by_a_sequence_reads_one_path():
    for count in (100, 1_000, 10_000):
        counts = appended(count, lazily=True)
        assert counts.objects_read <= PATH
        assert counts.objects_written <= 8
        assert counts.bytes_written <= 8_000


def test_a_hundred_rounds_cost_a_hundred_times_one():
    """On average, over the good and the bad places for a cut."""
    store = Counting(Memory())
    state = Versioned(store)
    more = messages(1_200)
    state["messages"] = more[:1_000]
    state["step"] = 0
    state.commit()
    store.reset()
    for n in range(100):
        state["messages"].extend(more[1_000 + 2 * n : 1_002 + 2 * n])
        state["step"] = n
        state.commit()
    counts = store.counts
    assert counts.applies == 100
    assert counts.bytes_written < 100 * 5_000
    assert counts.objects_written < 100 * 6
    assert counts.objects_read == 0


def keyed(count: int) -> tuple[Counting, Versioned]:
    store = Counting(Memory())
    state = Versioned(store)
    for n in range(count):
        state[f"user/{n:06}"] = {"name": f"name {n}", "n": n}
    state.commit()
    return store, Versioned(store)


@pytest.mark.parametrize("count", [100, 10_000])
def test_changing_one_key_of_many(count):
    store, state = keyed(count)
    key = f"user/{count // 2:06}"
    counts = cost(lambda: state[key], store)
    assert counts.round_trips <= 5
    state[key]["n"] = -1
    counts = cost(state.commit, store)
    assert counts.objects_written <= 7
    assert counts.bytes_written <= 4_000
    assert counts.objects_read <= 5
    counts = cost(lambda: str(Repository(store).diff("HEAD~1", "HEAD")), store)
    assert counts.objects_read <= 20


@pytest.mark.parametrize("count", [100, 10_000])
def test_reading_one_key_or_a_range_of_many(count):
    store, _ = keyed(count)
    snapshot = Repository(store).snapshot("main")
    assert cost(lambda: snapshot["user/000050"], store).objects_read <= 6
    counts = cost(lambda: list(snapshot.iter_keys("user/00005")), store)
    assert counts.objects_read <= 12
    assert cost(lambda: len(snapshot), store).objects_read <= 12
    assert cost(lambda: "nothing" in snapshot, store).objects_read <= 6


def test_many_equal_states_are_stored_once():
    store = Counting(Memory())
    repository = Repository(store)
    value = make_large("list", 4_000, 1)
    first = Versioned(repository, branch="s0")
    first["messages"] = value
    first.commit()
    before = sum(1 for _ in store.keys("o/"))
    for n in range(1, 20):
        state = Versioned(repository, branch=f"s{n}")
        state["messages"] = value
        assert state.commit().root == first.head.root
    assert sum(1 for _ in store.keys("o/")) <= before + 19, "a commit each"
    counts = cost(lambda: repository.branches.create("copy", "s3"), store)
    assert counts.bytes_written < 500, "a branch costs a ref"


def test_one_number_of_a_large_array():
    store = Counting(Memory())
    state = committed(store, array=np.random.default_rng(1).random(1_000_000))
    state["array"][500_000] = -1.0
    counts = cost(state.commit, store)
    assert counts.bytes_written <= 130_000
    assert counts.objects_written <= 20


@pytest.fixture(scope="module")
def histories() -> dict[int, Counting]:
    """Stores with 10 and with 1,000 commits of the same shape."""
    stores = {}
    for rounds in (10, 1_000):
        store = stores[rounds] = Counting(Memory())
        state = Versioned(store)
        state["messages"], state["prefs"] = [], {"theme": "dark"}
        for n in range(rounds):
            state["messages"].append({"n": n})
            state.commit(str(n))
    return stores


WORK: dict[str, Callable[[Counting], Any]] = {
    "opening": Versioned,
    "opening a repository": Repository,
    "a point read": lambda store: Versioned(store)["prefs"],
    "the first page of the log": lambda store: list(Versioned(store).log(limit=5)),
    "a checkout": lambda store: Versioned(store).checkout("HEAD")["prefs"],
    "a checkout of one before": lambda store: Versioned(store).checkout("HEAD~1")["prefs"],
    "a commit": lambda store: (
        state := Versioned(store),
        state.__setitem__("x", store.counts.gets),
        state.commit("x", allow_empty=True),
    ),
    "creating a branch": lambda store: Repository(store).branches.create(f"b{store.counts.gets}{id(object())}", "HEAD"),
    "a refresh": lambda store: Versioned(store).refresh(),
    "a diff with the one before": lambda store: str(Repository(store).diff("HEAD~1", "HEAD")),
}


@pytest.mark.parametrize("name", WORK)
def test_what_does_not_grow_with_the_number_of_commits(name, histories):
    few, many = (cost(lambda store=store: WORK[name](store), store) for store in histories.values())  # type: ignore[misc]
    assert many.round_trips <= few.round_trips + 3
    assert many.objects_read <= few.objects_read + 3
    assert many.listings == 0
    assert many.bytes_read <= few.bytes_read + 3_000


def test_a_far_ancestor_is_found_in_few_reads(histories):
    store = histories[1_000]
    repository = Repository(store)
    for revision in ("main~500", "main~900", "main~3", "main~777"):
        counts = cost(lambda revision=revision: repository.commit(revision), store)  # type: ignore[misc]
        assert counts.round_trips <= 45
        assert counts.listings == 0


def test_an_abbreviated_id_is_found_without_a_scan(histories):
    store = histories[1_000]
    repository = Repository(store)
    id = repository.commit("main~500").id
    counts = cost(lambda: Repository(store).commit(id[:10]), store)
    assert counts.objects_read <= 4
    assert counts.listings == 1


def test_status_with_nothing_changed_reads_and_writes_nothing():
    store, state = keyed(300)
    state.copy()
    counts = cost(state.status, store)
    assert counts.round_trips == 0
    assert cost(state.commit, store).round_trips == 0


def test_a_commit_is_one_batch_and_small_rounds_are_few_rows(tmp_path):
    with Versioned(Counting(Disk(tmp_path / "store"))) as state:
        store = state.repository.store
        assert isinstance(store, Counting)
        state["step"] = 0
        state["messages"] = []
        state.commit()
        for n in range(20):
            state["step"] = n
            state["messages"].append({"role": "user", "content": f"message {n}"})
            counts = cost(state.commit, store)
            assert counts.round_trips == counts.applies == 1
            assert counts.objects_written <= 3


def test_forty_keys_watched_cost_what_changed():
    store = Counting(Memory())
    state = Versioned(store)
    for n in range(40):
        state[f"list {n}"] = messages(50)
    state.commit()
    state["list 7"].append("new")
    counts = cost(state.commit, store)
    assert counts.objects_written <= 6
    assert counts.bytes_written <= 8_000
