"""The index of refs by a key of meta: a listing finds by it just what it finds without, whatever moves the refs."""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import msgpack
import pytest

from tests.support import store_openers
from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.stores import OneCondition
from versioned_state import Cache, Disk, Memory, Repository, Versioned
from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    LimitExceededError,
    ReadOnlyError,
    StateError,
    StorageError,
    StoreClosedError,
    UnsupportedByStoreError,
)
from versioned_state.objects.keys import GC, META
from versioned_state.objects.record import read_record
from versioned_state.repository.refs.gc_fence import GcFence, GcRecord
from versioned_state.services.agent_state import StateService
from versioned_state.storage import Counting, Encrypted, Fault, Faulty, ReadOnly, Tiered

RUNS = ("r0", "r1", 0, 1, 2, True, None, "", "\ud800", 2**70)


def assert_right(store, runs=RUNS, keys=("run", "step")):
    """The index finds what a listing of all refs finds, and has no entry too many."""
    repository = Repository(store)
    searchable = repository.database.fence.record.searchable
    entries = 0
    for refs in (repository.branches, repository.tags):
        every = list(refs.iter_info())
        entries += sum(key in each.meta for each in every for key in searchable)
        for key in keys:
            for run in runs:
                expected = [
                    each.name
                    for each in every
                    if key in each.meta and type(each.meta[key]) is type(run) and each.meta[key] == run
                ]
                for reverse in (False, True):
                    found = [each.name for each in refs.iter_info(where={key: run}, reverse=reverse)]
                    assert found == expected[:: -1 if reverse else 1], (key, run)
                newest = [each.name for each in refs.iter_info(where={key: run}, by="changed")]
                assert sorted(newest) == sorted(expected), (key, run)
    assert len(list(store.keys(META))) == entries
    assert repository.fsck().findings == ()


def work(store, rng, steps, repository=None):
    """Move refs in every way that there is."""
    repository = repository or Repository(store)
    handle = Versioned(repository)
    names = [f"b/{n}" for n in range(4)]
    tags = [f"t/{n}" for n in range(4)]

    def commit():
        handle["n"] = rng.random()
        handle.commit(
            meta={"run": rng.choice(RUNS), "step": rng.randrange(3)}, tag=rng.choice([None, f"c/{rng.random()}"])
        )

    acts = [
        commit,
        commit,
        lambda: repository.branches.create(rng.choice(names), "main"),
        lambda: repository.branches.delete(rng.choice(names), force=True),
        lambda: repository.branches.rename(rng.choice(names), rng.choice(names)),
        lambda: repository.tags.create(
            rng.choice(tags), f"main~{rng.randrange(3)}", message=rng.choice([None, "annotated"])
        ),
        lambda: repository.tags.delete(rng.choice(tags)),
        lambda: repository.tags.delete_many(prefix=rng.choice(["t/", "copy/", "c/0.1"])),
        lambda: repository.tags.copy("t/", "copy/"),
        lambda: handle.reset("HEAD~1"),
        handle.undo,
        lambda: handle.fork(rng.choice(names)).close(),
        lambda: repository.gc(expire=timedelta(0)),
        lambda: repository.prune(keep_last=3),
        lambda: repository.purge(branches=rng.choice(names)),
        lambda: repository.purge(replace={"r1": "r0"}),
        lambda: repository.purge("n"),
        handle.refresh,
        lambda: Versioned(repository, branch=rng.choice(names), ttl_seconds=0.000001).commit(
            "lives shortly", allow_empty=True
        ),
        repository.expire,
    ]
    for _ in range(steps):
        with suppress(StateError):
            rng.choice(acts)()
    with suppress(StateError):
        commit()


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_is_found_without_it(seed, long_run):
    store = Memory()
    rng = random.Random(seed)
    work(store, rng, 10)
    Repository(store).index_meta("run")
    assert_right(store)
    for _ in range(20 if long_run else 2):
        work(store, rng, 12)
        assert_right(store)
    Repository(store).index_meta("step")
    work(store, rng, 12)
    assert_right(store)


LOCAL: dict[str, Any] = {
    "disk": Disk,
    "encrypted": lambda folder: Encrypted(Disk(folder), b"k" * 32),
    "cached": lambda folder: Cache(Memory()),
    "tiered": lambda folder: Tiered(Memory(), Memory(), Memory()),
}


@pytest.mark.parametrize("name", [*LOCAL, "redis", "postgres"])
def test_over_other_stores(name, tmp_path, request):
    with ExitStack() as stack:
        opened = LOCAL[name](tmp_path) if name in LOCAL else getattr(store_openers, name)(request, tmp_path)()
        store = stack.enter_context(opened)
        rng = random.Random(name)
        work(store, rng, 6)
        Repository(store).index_meta("run")
        work(store, rng, 12)
        assert_right(store, RUNS[:3])


def filled(store, count=40):
    state = Versioned(store)
    for n in range(count):
        state["n"] = n
        state.commit(meta={"run": f"r{n % 8}"}, tag=f"t/{n:03}")
    return state.repository


def test_a_listing_reads_what_it_finds():
    counts = []
    for size in (64, 640):
        store = Memory()
        state = Versioned(store)
        with state.repository:
            for n in range(size):
                state["n"] = n
                state.commit(meta={"run": "many"}, tag=f"t/{n:04}")
            for n in range(3):
                state["n"] = -n
                state.commit(meta={"run": "few"}, tag=f"few/{n}")
            state.repository.index_meta("run")
            counting = Counting(store)
            repository = Repository(counting)
            for listing in (
                {"where": {"run": "few"}},
                {"where": {"run": "few"}, "by": "changed"},
                {"where": {"run": "few"}, "by": "changed", "limit": 2},
                {"where": {"run": "none"}},
            ):
                counting.reset()
                list(repository.tags.iter_info(**listing))
                counts.append((size, listing, counting.counts))
    half = len(counts) // 2
    for (_, listing, small), (_, _, large) in zip(counts[:half], counts[half:], strict=True):
        assert small.round_trips == large.round_trips <= 3, listing
        assert abs(small.bytes_read - large.bytes_read) < 50, listing


def test_pages_prefixes_and_patterns():
    store = Memory()
    repository = filled(store)
    repository.index_meta("run")
    tags = repository.tags
    expected = [f"t/{n:03}" for n in range(40) if n % 8 == 3]
    pages, after = [], None
    while some := list(tags.iter_info(where={"run": "r3"}, limit=2, after=after)):
        pages += [each.name for each in some]
        after = some[-1].cursor
    assert pages == expected
    pages, after = [], None
    while some := list(tags.iter_info(where={"run": "r3"}, limit=2, after=after, by="changed")):
        pages += [each.name for each in some]
        after = some[-1].cursor
    assert pages == expected[::-1]
    assert [each.name for each in tags.iter_info(where={"run": "r3"}, prefix="t/01")] == ["t/011", "t/019"]
    assert [each.name for each in tags.iter_info(where={"run": "r3"}, like=["*9", "*1"])] == ["t/011", "t/019"]
    assert list(tags.iter_info(where={"run": "r3", "other": 1})) == []
    assert list(tags.iter_info(where={"run": 3})) == list(tags.iter_info(where={"run": ["r3"]})) == []


def test_a_value_of_another_type_is_found_without_the_index():
    state = Versioned()
    for number, run in enumerate((1.5, -0.0, [1], {"a": 1})):
        state["n"] = number
        state.commit(meta={"run": run}, tag=f"t{number}")
    state.repository.index_meta("run")
    for run, name in ((1.5, "t0"), (0.0, "t1"), ([1], "t2"), ({"a": 1}, "t3")):
        assert [each.name for each in state.repository.tags.iter_info(where={"run": run})] == [name]


def test_a_commit_with_the_same_value_writes_no_more():
    store = Counting(Memory())
    state = Versioned(store)
    state["n"] = 0
    state.commit(meta={"run": "a", "note": 0})

    def cost(n):
        state["n"] = n
        store.reset()
        state.commit(meta={"run": "a", "note": n})
        return store.counts

    plain = cost(1)
    state.repository.index_meta("run")
    assert cost(2).round_trips == plain.round_trips == 1
    keys = set(store.keys(META))
    cost(3)
    assert set(store.keys(META)) == keys
    store.reset()
    state.repository.index_meta("run")
    assert (store.counts.round_trips, store.counts.bytes_written) == (1, 0), "an index that is there costs a read"


def test_others_move_refs_between_any_two_calls():
    for at in itertools.count(1):
        store = Memory()
        repository = filled(store, 6)
        rng = random.Random(at)
        other = Versioned(store)
        other["unseen"] = 1  # staged by a program that does not know of the index yet

        def act(store=store, other=other, rng=rng):
            other.commit(meta={"run": rng.choice(("r1", "new"))}, tag=f"t/by-{rng.random()}")
            Repository(store).tags.delete("t/001")
            Repository(store).tags.create("t/001", "t/002")

        between = ActsBeforeCall(store, act, at=at)
        repository = Repository(between)
        repository.index_meta("run")
        if not between.fired:
            assert at > 6
            break
        assert_right(store, ("r1", "r2", "new"))


def index(store):
    Repository(store).index_meta("run")


def test_the_index_is_begun_between_any_two_calls_of_a_writer(long_run):
    for at in itertools.count(1) if long_run else range(1, 60, 3):
        store = Memory()
        work(store, random.Random(1), 6)
        between = ActsBeforeCall(store, partial(index, store), at=at)
        work(store, random.Random(2), 12, Repository(between))
        if not between.fired:
            assert not long_run or at > 60
            break
        assert_right(store)


def test_saves_of_a_service_are_in_the_index():
    async def use(store):
        async with StateService.over(store) as service:
            service.repository.index_meta("round")
            for n in range(3):
                await asyncio.gather(*(service.save_state(f"user{each}", {"n": n}, "s") for each in range(n, 6)))
            return [service.branch(f"user{each}", "s") for each in range(6)]

    store = Memory()
    names = asyncio.run(use(store))
    for number, expected in ((1, names[:1]), (2, names[1:2]), (3, names[2:])):
        found = Repository(store).branches.iter_info(where={"round": number})
        assert [each.name for each in found if each.name in names] == expected
    assert_right(store, range(5), ("round",))


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_call_that_was_cut_off_goes_on(fault):
    for at in itertools.count(1):
        store = Memory()
        filled(store, 5)
        faulty = Faulty(store)
        repository = Repository(faulty)
        faulty.arm(at, fault=fault)
        try:
            repository.index_meta("run")
        except StorageError:
            pass
        else:
            if not faulty.fired:
                break
        state = Versioned(store)
        state["n"] = "after"
        state.commit(meta={"run": "r2"}, tag="late")
        assert [each.name for each in state.repository.tags.iter_info(where={"run": "r2"})] == ["late", "t/002"]
        Repository(store).index_meta("run")
        assert_right(store, ("r0", "r1", "r2"))
        assert len(list(store.keys(META))) == 7


def test_a_handle_from_before_the_index_keeps_it():
    store = Memory()
    older = [Versioned(store, branch=f"b{n}") for n in range(3)]
    for handle in older:
        handle["n"] = 1
        handle.commit(meta={"run": "a"})
    Repository(store).index_meta("run")
    for handle in older:
        handle["n"] = 2
        handle.commit(meta={"run": "b"})
        older[0].repository.commit_together(older)
    for handle, run in zip(older, "xyz", strict=True):
        handle["n"] = run
        handle.commit(meta={"run": run})
    assert_right(store, ("a", "b", "x", "y", "z"))
    (found,) = older[0].repository.branches.iter_info(where={"run": "y"})
    assert found.name == "b1"


def test_gc_keeps_the_index_and_drops_wrong_entries():
    store = Memory()
    repository = filled(store, 3)
    repository.index_meta("run")
    (entry, *_) = sorted(store.keys(META))
    prefix = entry.rpartition("/")[0]
    wrong = [f"{prefix}/none", "meta/00000000/0000000000000000/tag/t/001", f"{prefix.replace('/tag', '/branch')}/main"]
    for key in wrong:
        store.set(key, b"")
    assert_found = [each.name for each in repository.tags.iter_info(where={"run": "r0"})]
    assert assert_found == ["t/000"]
    assert repository.fsck().ok, "an entry too many is harmless"
    repository.gc(expire=timedelta(0))
    assert_right(store, ("r0", "r1", "r2"))
    assert not [key for key in wrong if key in store and key != f"{prefix}/t/000"]


def test_a_wrong_entry_that_becomes_right_beside_gc_stays():
    for at in itertools.count(1):
        store = Memory()
        repository = filled(store, 2)
        repository.index_meta("run")
        for entry in list(store.keys(META)):
            if entry.endswith("/tag/t/000"):
                store.set(entry.replace("t/000", "late"), b"")
        between = ActsBeforeCall(store, partial(Repository(store).tags.create, "late", "t/000"), at=at)
        Repository(between).gc(expire=timedelta(0))
        if not between.fired:
            break
        assert_right(store, ("r0", "r1"))


def test_fsck_finds_a_missing_entry():
    store = Memory()
    repository = filled(store, 3)
    repository.index_meta("run")
    gone = min(store.keys(META))
    store.delete(gone)
    (finding,) = repository.fsck().findings
    assert (finding.problem, finding.id) == ("missing", gone)


@pytest.mark.parametrize("collected", [False, True], ids=["by rewriting", "by reclaiming"])
def test_a_purge_leaves_no_name_and_no_value(collected, monkeypatch):
    store = Memory()
    state = Versioned(store, branch="users/alice")
    state["n"] = 1
    state.commit(meta={"run": "secret"})
    with Versioned(store) as other:
        other["n"] = 2
        other.commit(meta={"run": "secret"})
    repository = state.repository
    repository.index_meta("run")
    before = set(store.keys(META))
    if collected:
        repository.gc()  # it leaves a table of keepers, which lets a purge erase a branch without reading the others
        monkeypatch.delattr(GcFence, "apply")  # so that it must
    repository.purge(branches="users/*")
    monkeypatch.undo()
    assert not [key for key, _ in store.items() if "alice" in key]
    Repository(store).purge(replace={"secret": "gone"})
    assert not before & set(store.keys(META))
    assert_right(store, ("secret", "gone"))


def test_a_record_that_was_lost_ends_the_index():
    store = Memory()
    repository = filled(store, 3)
    repository.index_meta("run")
    store.set(GC, b"damaged")
    Repository(store).gc(force=True)
    fresh = Repository(store)
    assert fresh.database.fence.record.indexed == ()
    assert [each.name for each in fresh.tags.iter_info(where={"run": "r1"})] == ["t/001"]
    assert list(store.keys(META)) == []
    fresh.index_meta("run")
    assert_right(store, ("r0", "r1"))


def test_what_is_refused():
    with pytest.raises(UnsupportedByStoreError, match="one condition"):
        Repository(OneCondition()).index_meta("run")
    store = Memory()
    repository = filled(store, 1)
    for bad in (1, None, b"run", "\ud800", "k" * 1001):
        with pytest.raises(InvalidArgumentError):
            repository.index_meta(bad)
    with pytest.raises(ReadOnlyError):
        Repository(ReadOnly(store)).index_meta("run")
    assert GC not in store
    for n in range(16):
        repository.index_meta(str(n))
    with pytest.raises(LimitExceededError):
        repository.index_meta("one more")
    repository.index_meta("15")
    store.close()
    with pytest.raises(StoreClosedError):
        repository.index_meta("run")


def test_a_record_with_fields_of_other_types_is_damaged():
    from versioned_state.objects.record import write_record
    from versioned_state.repository.refs.gc_fence import read_gc_record

    plain = GcRecord(marking=3).but(indexed=("a", "b"), searchable=("a",))
    assert read_gc_record(plain.stored) == plain
    fields = msgpack.unpackb(read_record(GC, plain.stored or b""))
    later: Any
    for later in (
        [3, 1, [1], []],
        [3, 1, ["a"], [], 1],
        ["3", 1, ["a"], []],
        [3, 1, "a", []],
        [3, 1, ["a"], [None]],
        [3, 1, {}],
        [[]],
    ):
        stored = write_record(GC, msgpack.packb([*fields[:7], *later]))
        with pytest.raises(CorruptObjectError):
            read_gc_record(stored)


def test_an_empty_store_and_asyncio():
    async def use():
        repository = Repository(Memory())
        await repository.aio.index_meta("run")
        state = Versioned(repository)
        state["n"] = 1
        await state.aio.commit(meta={"run": "a"})
        return [each.name for each in repository.branches.iter_info(where={"run": "a"})]

    assert asyncio.run(use()) == ["main"]


@pytest.mark.every_case
@pytest.mark.parametrize("at", range(5, 12))
@pytest.mark.parametrize("act", ["moves", "expires later", "is purged of a value"])
def test_whatever_others_do_with_a_ref_while_the_index_is_made_it_is_in_it(at, act):
    store = Memory()
    handles = [Versioned(Repository(store), branch=f"b{n}") for n in range(3)]
    for handle in handles:
        handle["n"], handle["secret"] = 0, f"of {handle.branch}"
        handle.commit(meta={"run": "r0"})

    def others():
        if act == "moves":
            for handle in handles[:2]:
                handle["n"] = handle["n"] + 1
                handle.commit(meta={"run": "r0"})
        elif act == "is purged of a value":
            Repository(store).purge("secret")  # which moves the branches, and collects their old heads
        else:
            Versioned(Repository(store), branch="b1", ttl_seconds=1000).commit(meta={"run": "r0"}, allow_empty=True)

    Repository(ActsBeforeCall(store, others, at=at)).index_meta("run")
    assert_right(store, ("r0",), ("run",))
