"""To gc, purge, fsck and writers, segments are objects that a leaf needs, and no reader trusts an envelope's names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st
from zstandard import ZstdCompressor

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.damage import flipped
from tests.support.garbage import assert_whole
from tests.support.handles import committed
from tests.support.segments import assert_forms, in_segments, own_bytes
from versioned_state import Cache, Disk, KVStore, Memory, Repository, StateError, Versioned
from versioned_state.errors import CorruptObjectError, MissingObjectError, StorageError
from versioned_state.objects.address import Address, address_of
from versioned_state.objects.envelope import MAX_SEGMENT, Segmented, seal, segments_in
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.repository.database import Publication
from versioned_state.storage import Tiered
from versioned_state.values.cells import Code, pack
from versioned_state.values.trees.edit import edit_map, splice_cells
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.references import tree_cell, tree_of
from versioned_state.values.trees.tree import iter_items

NOW = timedelta(0)
SECRET = "Chestnut Street 44"


def message(number: int) -> str:
    return f"{number}: " + random.Random(number).randbytes(60).hex()


def messages(count: int) -> list[str]:
    return [message(number) for number in range(count)]


FIRST = 47
"""Elements with which a list begins: a small list is not a tree.

The last leaf of these is in segments, and stays open for a while.
"""


def grown(store: KVStore, rounds: int = 12, *, branch: str = "main") -> Versioned:
    """A list that grew by an element in each commit."""
    state = Versioned(store, branch=branch)
    state["log"] = messages(FIRST)
    state.commit()
    for number in range(FIRST, FIRST + rounds):
        state["log"].append(message(number))
        state.commit()
    return state


def all_segments(store: KVStore) -> set[str]:
    return {object_key(name) for _, names in in_segments(store) for name in names}


# Gc


@pytest.mark.parametrize(
    "make", [Memory, lambda: Cache(Memory()), lambda: Tiered(Memory(), Memory())], ids=["memory", "cache", "tiered"]
)
def test_gc_keeps_the_segments_of_reachable_leaves_and_no_others(make):
    store = make()
    state = grown(store)
    kept = list(state["log"])
    state.repository.branches.create("side")
    side = grown(store, 5, branch="other")
    side["log"].extend(message(n) for n in range(900, 920))
    side.commit()
    assert all_segments(store)
    state.repository.branches.delete("other", force=True)
    report = state.repository.gc(expire=NOW)
    assert report.freed > 0
    assert_whole(store)
    assert_forms(store)
    assert set(all_segments(store)) == {key for key, value in store.items("o/") if own_bytes(value)[:1] == b"\x15"}
    assert report.kept == sum(1 for _ in store.keys("o/"))
    assert Versioned(Repository(store))["log"] == kept


def test_gc_with_a_time_limit_marks_segments_too():
    store = Memory()
    state = grown(store, 30)
    grown(store, 4, branch="gone")
    state.repository.branches.delete("gone", force=True)
    while not state.repository.gc(expire=NOW, time_limit=1e-6).finished:
        pass
    assert_whole(store)
    assert Versioned(store)["log"] == messages(FIRST + 30)


def test_garbage_that_has_lost_its_segments_does_no_harm_to_who_commits_it_again():
    """A gc deleted some segments and died before the leaf that needs them: the writer finds that leaf in its place."""
    store = Memory()
    state = grown(store, 0)
    shared = set(store.keys("o/"))
    other = Versioned(state.repository, branch="other")
    other["log"] = messages(FIRST + 9)
    other.commit()
    torn = {key: store.get(key) or b"" for key, _ in in_segments(store) if key not in shared}
    assert torn
    assert all_segments(store) - shared
    state.repository.branches.delete("other", force=True)
    state.repository.gc(expire=NOW)
    assert not torn.keys() & set(store.keys("o/"))
    store.set_many(torn)
    assert Repository(store).stats().total.objects == sum(1 for _ in store.keys("o/"))
    assert_whole(store)
    again = Versioned(Repository(store))
    again["log"].extend(messages(FIRST + 9)[FIRST:])
    again.commit()
    assert_forms(store)
    assert Versioned(Repository(store))["log"] == messages(FIRST + 9)
    Repository(store).gc(expire=NOW)
    assert_whole(store)


def interleaved(
    act: Callable[[KVStore], None], work: Callable[[Versioned], None], *, cached: bool
) -> Iterator[KVStore]:
    """The stores after the work of a handle, with somebody acting before its first call, its second, and so on."""
    at = 1
    while True:
        store = Memory()
        grown(store, 9)
        between = ActsBeforeCall(store, partial(act, store))
        state = Versioned(Cache(between) if cached else between)
        assert len(state["log"]) == FIRST + 9
        between.arm(at)
        # What was given up may be gone for good; it may never be torn.
        with suppress(MissingObjectError):
            work(state)
        yield store
        if not between.fired:
            return
        at += 1


def drop_and_collect(store: KVStore) -> None:
    """Another writer empties the list, and all that it was is collected."""
    other = Versioned(Repository(store))
    other["log"] = []
    other.commit("emptied")
    other.repository.prune(keep_last=1)
    other.repository.gc(expire=NOW)


@pytest.mark.parametrize("cached", [False, True])
def test_a_writer_beside_gc_leaves_no_leaf_without_its_segments(cached):
    def work(state: Versioned) -> None:
        state["log"].append(message(100))
        state.commit(policies={"**": "ours"})
        state["log"].extend(message(n) for n in range(101, 104))
        state.commit(policies={"**": "ours"})

    runs = 0
    for store in interleaved(drop_and_collect, work, cached=cached):
        runs += 1
        assert_whole(store)
        found = Versioned(Repository(store))["log"]
        assert found == [] or found[-1] == message(103)
        Repository(store).gc(expire=NOW)
        assert_whole(store)
    assert runs >= 3


def branch_anew(store: KVStore) -> None:
    """The branch is deleted and collected, and its content made again by somebody else."""
    repository = Repository(store)
    repository.branches.delete("main", force=True)
    repository.gc(expire=NOW)
    again = Versioned(repository, branch="again")
    again["log"] = messages(FIRST + 9)
    again.commit()


@pytest.mark.parametrize("cached", [False, True])
def test_content_that_was_collected_and_made_again_is_whole(cached):
    def work(state: Versioned) -> None:
        state["log"].append(message(FIRST + 9))
        with suppress(StateError):
            state.commit()
        reader = Versioned(state.repository, branch="again")
        if "log" in reader:
            assert reader["log"] == messages(FIRST + 9)
            reader["log"].append(message(FIRST + 9))
            reader.commit()

    for store in interleaved(branch_anew, work, cached=cached):
        assert_whole(store)


def test_a_leaf_that_is_open_again_does_not_count_on_the_segments_that_it_once_had():
    """They went with the versions of the leaf that had them, once it was complete and history was cut."""
    store = Memory()
    state = grown(store, 0)
    number = FIRST
    while list(in_segments(store))[-1:] and number < FIRST + 120:
        state["log"].append(message(number))
        state.commit()
        number += 1
        Repository(store).prune(keep_last=1)
        Repository(store).gc(expire=NOW)
    assert not list(in_segments(store)), "the last leaf is complete"
    state["other"] = 1
    state.commit("in step with gc again")
    state["log"].pop()
    state.commit()
    assert list(in_segments(store))
    assert_whole(store)
    assert Versioned(Repository(store))["log"] == messages(number - 1)


def test_a_commit_that_continues_a_leaf_of_a_collected_one_brings_its_segments():
    """As a cherry-pick does from a branch that others delete before it is published."""
    store = Memory()
    grown(store, 0, branch="main")
    repository = Repository(Cache(store))
    side = Versioned(repository, branch="side")
    side["log"] = ["of the side", *messages(FIRST + 6)]
    side.commit()
    assert Repository(repository.store).snapshot("side")["log"] == side["log"]
    database = repository.database
    ref = database.ref("branch", "main")
    staging = Staging(database.objects)
    nodes = Nodes(staging, staging=staging)
    (cell,) = [cell for key, cell in iter_items(nodes, side.head.tree) if key.endswith(b"log")]
    tree = tree_of(cell, Code.LIST_TREE)
    assert tree is not None
    longer = splice_cells(nodes, tree, [(tree.count, tree.count, [pack(message(FIRST + 6))])])
    root = edit_map(nodes, database.commits.read(ref.head).tree, {b"klog": tree_cell(Code.LIST_TREE, longer)})  # type: ignore[arg-type]
    known = {
        name for raw in staging.staged().values() if isinstance(raw, Segmented) for name, _ in raw.segments
    } - staging.staged().keys()
    assert known, "the leaf counts on segments that are stored"
    commit = database.write_commit(root, (database.commits.read(ref.head),), staging=staging, message="picked")  # type: ignore[arg-type]
    others = Repository(store)
    others.branches.delete("side", force=True)
    others.gc(expire=NOW)
    assert not all(object_key(name) in store for name in known)
    assert database.publish([Publication(ref, commit, staging)]) is not None
    assert_whole(store)
    assert Repository(store).snapshot("main")["log"] == ["of the side", *messages(FIRST + 7)]


def test_a_branch_at_a_collected_commit_brings_segments_that_only_a_cache_has():
    store = Memory()
    dropped = grown(store, 5).head
    repository = Repository(Cache(store))
    for commit in repository.log(dropped):
        repository.database.objects.read(Address(bytes.fromhex(commit.id)))
        assert repository.snapshot(commit).copy() is not None
    others = Repository(store)
    others.branches.delete("main", force=True)
    others.gc(expire=NOW)
    assert not list(in_segments(store))
    repository.branches.create("back", dropped)
    assert list(in_segments(store))
    assert_whole(store)
    assert Repository(store).snapshot("back")["log"] == messages(FIRST + 5)


@pytest.mark.parametrize("reclaims", [False, True])
def test_a_cache_with_the_older_form_of_a_node_misleads_nobody_who_deletes(monkeypatch, reclaims):
    """An older release stored open nodes whole. Such a node was deleted, and stored again in segments."""
    store = Memory()
    monkeypatch.setattr("versioned_state.values.trees.segments.LEAF_IN_SEGMENTS", 1 << 30)
    grown(store, 0, branch="old")
    monkeypatch.undo()
    cached = Repository(Cache(store))
    assert cached.snapshot("old")["log"] == messages(FIRST)
    assert not all_segments(store)
    Repository(store).branches.delete("old", force=True)
    Repository(store).gc(expire=NOW)
    carol = Versioned(Repository(store), branch="carol")
    carol["log"] = [*messages(FIRST), "of carol"]
    carol.commit()
    Repository(store).gc(expire=NOW)
    grown(store, 0, branch="alice")
    assert all_segments(store)
    if reclaims:
        cached.purge(branches="carol")
    else:
        cached.branches.delete("carol", force=True)
        cached.gc(expire=NOW)
    assert_whole(store)
    assert Versioned(Repository(store), branch="alice")["log"] == messages(FIRST)


# Purge


@given(st.lists(st.sampled_from(("plain", "secret")), min_size=8, max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_no_segment_keeps_what_was_purged(kinds, rng):
    store = Memory()
    state = Versioned(store)
    state["log"] = [{"text": message(number), "by": "nobody"} for number in range(50)]
    state["other"] = messages(50)
    for number, kind in enumerate(kinds):
        state["log"].append({"text": message(number), "by": SECRET if kind == "secret" else "nobody"})
        state["other"].append(message(number) + (f" {SECRET}" if kind == "secret" and rng.random() < 0.5 else ""))
        state.commit()
    state["other"] = [each.replace(SECRET, "") for each in state["other"]]
    state.commit("taken out, and still in history")
    state.repository.purge("log", "other")
    for _, stored in store.items("o/"):
        assert SECRET.encode() not in own_bytes(stored)
    assert_whole(store)


def test_purge_of_part_of_each_element_leaves_the_rest_in_segments():
    store = Memory()
    state = Versioned(store)
    state["users"] = {"log": messages(FIRST)}
    for number in range(FIRST, FIRST + 20):
        state["users"]["log"].append(message(number))
        state["users"]["alice"] = SECRET
        state.commit()
    state.repository.purge("users.alice")
    assert all(SECRET.encode() not in own_bytes(stored) for _, stored in store.items("o/"))
    assert assert_forms(store) > 5
    assert_whole(store)
    assert Versioned(Repository(store))["users"] == {"log": messages(FIRST + 20)}


@pytest.mark.parametrize("moved", [False, True])
def test_a_branch_that_is_erased_at_its_own_cost_takes_its_segments_along_and_no_others(moved):
    store = Memory()
    repository = Repository(store)
    for name, end in (("alice/1", SECRET), ("bob/1", "bye")):
        state = Versioned(repository, branch=name)
        state["log"] = messages(FIRST)
        state.commit()
        for text in [message(n) for n in range(900, 906)] + [f"{end} {message(n)}" for n in range(910, 914)]:
            state["log"].append(text)
            state.commit()
    repository.gc()
    kept = list(Versioned(repository, branch="bob/1")["log"])
    if moved:
        state["log"].append(message(5))
        state.commit()
        kept.append(message(5))
    shared = all_segments(store)
    report = repository.purge(branches="alice/1")
    assert report.branches == ("alice/1",)
    assert report.mentions == ()
    assert "the next gc" in " ".join(report.unreached), "it did not read the whole store"
    assert all_segments(store) < shared
    assert all(SECRET.encode() not in own_bytes(stored) for _, stored in store.items("o/"))
    assert Versioned(Repository(store), branch="bob/1")["log"] == kept
    assert_whole(store)
    assert repository.gc(dry_run=True).freed == 0, "nothing of it was left"


# Fsck


def test_fsck_names_each_segment_that_is_missing_or_damaged_once():
    store = Memory()
    grown(store, 12)
    key, names = max(in_segments(store), key=lambda found: len(found[1]))
    assert len(names) >= 2
    stored = store.get(object_key(names[0])) or b""
    store.delete(object_key(names[0]))
    store.set(object_key(names[0]), seal(b"\x15" + flipped(own_bytes(stored))[1:]))
    store.delete(object_key(names[1]))
    findings = Repository(store).fsck().findings
    assert sorted((finding.problem, finding.what, finding.id) for finding in findings) == sorted(
        [("corrupt", "segment", names[0].hex()), ("missing", "segment", names[1].hex())]
    )
    assert all(finding.commit and finding.named_by for finding in findings)
    with pytest.raises(MissingObjectError) as missing:
        ObjectStore(store).read(Address(bytes.fromhex(key[2:])))
    assert missing.value.id == names[1].hex()
    store.set(object_key(names[1]), seal(b"\x15?"))
    with pytest.raises(CorruptObjectError, match="do not match") as corrupt:
        ObjectStore(store).read(Address(bytes.fromhex(key[2:])))
    assert corrupt.value.id == names[0].hex()


def test_fsck_counts_every_object_of_a_sound_store(tmp_path):
    with Disk(tmp_path / "s") as store:
        state = grown(store, 20)
        done: list[tuple[int, int | None]] = []
        report = state.repository.fsck(progress=lambda count, total: done.append((count, total)))
        assert report.ok
        assert done[-1] == (report.objects, report.objects)
        assert report.objects == sum(1 for _ in store.keys("o/"))
        assert report.dangling == 0


# Hostile envelopes


def planted(*envelopes: tuple[Address, bytes]) -> Memory:
    store = Memory()
    for address, stored in envelopes:
        store.set(object_key(address), stored)
    return store


def named(names: list[Address], rest: bytes = b"\x10\x90", *, head: int = 2, form: int = 2) -> bytes:
    return bytes((form, len(names), head)) + b"".join(names) + rest


A, B = address_of(b"\x10a"), address_of(b"\x15b")
BOMB = b"\x01" + ZstdCompressor().compress(b"\x15" + bytes(1 << 20))


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        (planted((A, named([A]))), "in segments"),
        (planted((A, named([B])), (B, named([A]))), "in segments"),
        (planted((A, named([B])), (B, named([B]))), "in segments"),
        (planted((A, named([B])), (B, seal(b"\x14chunk"))), "is not a segment"),
        (planted((A, named([B], b"\x14x")), (B, seal(b"\x15b"))), "not stored in segments"),
        (planted((A, named([B], head=9)), (B, seal(b"\x15b"))), "not stored in segments"),
        (planted((A, named([B], head=0)), (B, seal(b"\x15b"))), "not stored in segments"),
        (planted((A, named([B])), (B, b"\0\x15" + bytes(MAX_SEGMENT))), "limit"),
        (planted((A, named([B] * 255)), (B, BOMB)), "limit"),
        (planted((A, named([B] * 255)), (B, seal(b"\x15" + random.Random(1).randbytes(MAX_SEGMENT - 1)))), "limit"),
        (planted((A, named([B])), (B, b"")), "empty"),
        (planted((A, named([B])), (B, b"\x07x")), "does not know"),
        (planted((A, b"\x02")), "does not name"),
        (planted((A, b"\x03\x02\x01" + B)), "does not name"),
        (planted((A, named([]))), "does not name"),
        (planted((A, named([B], b"rest", form=3)), (B, seal(b"\x15b"))), "decompress"),
        (planted((A, named([B])), (B, seal(b"\x15b"))), "do not match"),
        (planted((A, named([B])), (B, seal(b"\x15c"))), "do not match"),
    ],
)
def test_no_reader_follows_an_envelope_that_lies(store, problem):
    objects = ObjectStore(store)
    for read in (lambda: objects.read(A), lambda: objects.read_many([A])):
        with pytest.raises(CorruptObjectError, match=problem):
            read()
    Versioned(other := Memory()).commit("a store", allow_empty=True)
    other.set_many(dict(store.items()))
    found = Repository(other).fsck().findings
    assert A.hex() in {finding.id for finding in found}
    assert all(finding.problem == "corrupt" for finding in found)
    with pytest.raises(StorageError):
        Repository(other).stats()


def test_a_segment_is_of_no_use_by_itself():
    """A reader that expects a leaf, a chunk or a commit is not given a segment."""
    raw = Segmented(b"\x10\x91" + b"\xa4abcd", 2, ((address_of(b"\x15\xa4abcd"), 5),), 7)
    store = planted((address_of(raw), seal(raw)), *((name, seal(part)) for name, part in raw.parts()))
    assert ObjectStore(store).read(address_of(raw)) == b"\x10\x91\xa4abcd"
    assert segments_in(store.get(object_key(address_of(raw))) or b"") == [raw.segments[0][0]]
    committed(store := Memory(), log=messages(FIRST))
    segment = next(iter(all_segments(store)))
    assert ObjectStore(store).read(Address(bytes.fromhex(segment[2:])))[0] == 0x15
