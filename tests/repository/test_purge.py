"""What was purged is in no commit, no reflog, no object and no byte of a file; all else is as it was, in commits of the same shape."""

from __future__ import annotations

import itertools
import random
import sqlite3
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.histories import Clock
from versioned_state import Cache, Commit, Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import BranchMovedError, InvalidArgumentError, MissingObjectError, StoreBusyError, UnsafeStoreError
from versioned_state.objects.address import Address
from versioned_state.objects.envelope import unseal
from versioned_state.objects.keys import CUTS, object_key
from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.history.signing import Signer
from versioned_state.repository.maintenance.prune import prune
from versioned_state.repository.maintenance.purge import PurgeReport, purge
from versioned_state.storage import Counting, DiskCache, Encrypted, Fault, Faulty
from versioned_state.storage.wrappers.faulty import InjectedCrash, InjectedFaultError

SECRET = "Alice Example, 17 Chestnut Row"
LONG = "\n".join(f"{n}: {SECRET} said something long {n * 7919}" for n in range(400))


def objects_of(store: KVStore) -> dict[str, bytes]:
    """All objects, decompressed."""
    return {key: unseal(stored) for key, stored in store.items("o/")}


def holds(store: KVStore, text: str = SECRET) -> bool:
    """Whether any object or record has it."""
    word = text.encode()
    return any(word in raw for raw in objects_of(store).values()) or any(word in value for _, value in store.items())


def agent(repository: Repository) -> dict[str, Commit]:
    """A history that mentions a person in every way: early and late, in branches, tags, deleted branches and what was reset."""
    state = Versioned(repository)
    made = {}
    state["n"] = 0
    made["before"] = state.commit("begin")
    repository.tags.create("before")
    state["users"] = {"alice": {"who": SECRET, "long": LONG}, "bob": {"who": "Bob"}}
    made["added"] = state.commit("a person comes")
    repository.branches.create("side")
    state["users"]["alice"]["age"] = 30
    state["n"] = 1
    made["lost"] = state.commit("to be reset")
    state.reset("main~1")
    state["notes"] = ["nothing personal"] * 300
    made["noted"] = state.commit("notes")
    del state["users"]["alice"]
    made["gone"] = state.commit("the person leaves")
    repository.tags.create("late")
    side = Versioned(repository, branch="side")
    side["users"]["alice"]["who"] += " (side)"
    made["side"] = side.commit("on the side")
    repository.branches.create("deleted", "side")
    repository.branches.delete("deleted")
    return made


def test_nothing_of_it_is_left_and_all_else_is():
    store = Memory()
    repository = Repository(store, clock=Clock())
    made = agent(repository)
    assert holds(store)
    before = {name: repository.snapshot(commit).copy() for name, commit in made.items()}
    report = purge(repository, "users.alice")
    assert not holds(store)
    assert report.paths == ("users.alice",)
    assert report.refs == ("branch deleted", "branch main", "branch side", "tag late")
    assert set(report.commits) == {commit.id for name, commit in made.items() if name != "before"}
    assert set(report.holding) == {made[name].id for name in ("added", "lost", "noted", "side")}
    repository = Repository(store, clock=Clock())
    for name, content in before.items():
        content.get("users", {}).pop("alice", None)
        old = made[name]
        new = repository.read(report.commits.get(old.id, old.id))
        assert repository.snapshot(new).copy() == content
        assert (new.time, new.author, new.message, new.generation, new.height) == (
            old.time,
            old.author,
            old.message,
            old.generation,
            old.height,
        )
        assert new.parents == tuple(report.commits.get(parent, parent) for parent in old.parents)
    assert repository.tags["before"] == made["before"]
    for id in report.commits:
        assert object_key(Address(bytes.fromhex(id))) not in store
    # The reflog leads to what stands for the old commits.
    assert [position.action for position in repository.reflog("main")] == ["commit", "commit", "reset", "commit", "commit", "commit"]
    assert repository.commit("main@{3}").id == report.commits[made["lost"].id]
    assert repository.commit("deleted@{1}").id == report.commits[made["side"].id]


def test_it_is_as_if_it_had_never_been_there():
    """Trees are canonical, so a history that never held it has the same roots."""
    store, never = Memory(), Memory()
    for place, users in ((store, True), (never, False)):
        state = Versioned(place, clock=Clock())
        for n in range(30):
            state["n"] = n
            state["users"] = {f"u{m}": {"text": f"{m} " * m} for m in range(n * 3) if users or m != 7}
            state.commit(str(n))
    repository = Repository(store)
    purge(repository, "users.u7")
    assert [(c.root, c.time) for c in repository.log()] == [(c.root, c.time) for c in Repository(never).log()]


def test_a_dry_run_writes_nothing():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    before = dict(store.items())
    dry = purge(repository, "users.alice", dry_run=True)
    assert dict(store.items()) == before
    wet = purge(repository, "users.alice")
    assert set(dry.commits) == set(wet.commits)
    assert (dry.holding, dry.refs, dry.paths, dry.collected, dry.dry_run) == (wet.holding, wet.refs, wet.paths, None, True)
    assert wet.collected is not None
    assert wet.collected.freed > 0


def test_what_was_never_there_changes_no_id():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    heads = {name: commit.id for name, commit in repository.branches.items()}
    report = purge(repository, "users.carol", "nothing.at.all")
    assert (report.commits, report.refs, report.paths) == ({}, (), ())
    assert {name: commit.id for name, commit in repository.branches.items()} == heads


def test_words_in_messages_authors_and_meta():
    store = Memory()
    repository = Repository(store, clock=Clock())
    state = Versioned(repository, author="Alice")
    state["x"] = 1
    first = state.commit("Alice begins", meta={"by": ["Alice", 1], "Alice": "yes"})
    state["x"] = 2
    state.commit("Bob goes on", author="Bob")
    state.reset("main~1")
    report = purge(repository, "users.Alice")
    assert first.id in report.mentions
    assert holds(store, "Alice")
    report = purge(repository, replace={"Alice": "A."})
    assert not holds(store, "Alice")
    new = repository.commit("main")
    assert (new.message, new.author, new.meta) == ("A. begins", "A.", {"by": ["A.", 1], "A.": "yes"})
    assert report.mentions == ()
    assert {position.commit.message for position in repository.reflog("main") if position.commit} == {"A. begins", "Bob goes on"}


@pytest.mark.parametrize("expired", [False, True])
def test_words_in_the_message_of_a_tag_and_in_a_reflog(expired):
    store = Memory()
    repository = Repository(store, clock=Clock())
    state = Versioned(repository)
    state["x"] = 1
    state.commit("one")
    repository.tags.create("v1", message="what Alice said", author="Alice")
    state["x"] = 2
    state.commit("two")
    state.reset("HEAD~1")
    if expired:
        repository.gc(expire=timedelta(0))
    report = purge(repository, replace={"Alice": "A."})
    annotation = repository.tags.annotation("v1")
    assert annotation is not None
    assert (annotation.message, annotation.author) == ("what A. said", "A.")
    assert not report.mentions
    assert not holds(store, "Alice")


def test_a_ref_that_is_named_so_is_pointed_out():
    repository = Repository(Memory(), clock=Clock())
    agent(repository)
    repository.branches.create("user/alice")
    assert "branch user/alice" in purge(repository, "users.alice").mentions


@pytest.mark.parametrize("gone", ["delete", "rename"])
def test_what_is_left_of_a_ref_that_was_named_so_is_pointed_out(gone):
    store = Memory()
    state = Versioned(store)
    state["users"] = {"alice": SECRET}
    state.commit()
    branches = state.repository.branches
    branches.create("try/alice")
    branches.delete("try/alice") if gone == "delete" else branches.rename("try/alice", "try/x")
    assert "deleted branch try/alice" in state.repository.purge("users.alice").mentions
    state.repository.purge(branches="try/*")
    assert not any("alice" in key for key, _ in store.items())


def test_a_merge_policy_of_the_path_is_pointed_out():
    state = Versioned()
    state["users"] = {"alice": {"visits": 1}}
    state.commit()
    state.repository.set_merge_policy("users.alice.visits", "sum")
    assert state.repository.purge("users.alice").mentions == ("merge policy users.alice.visits",)


@pytest.mark.parametrize("move", ["reset", "create"])
def test_what_was_never_purged_can_be_gone_back_to(move):
    state = Versioned()
    repository = state.repository
    for n in range(3):
        state["n"] = n
        state.commit()
    repository.branches.create("side")
    state["junk"] = 1
    state.commit()
    state.reset("HEAD~1")
    repository.gc(expire=timedelta(0))
    side = Versioned(repository, branch="side")
    side["alice"] = SECRET
    side.commit()
    repository.purge("alice")
    if move == "reset":
        state.reset("HEAD~1")
        assert state["n"] == 1
    else:
        assert repository.branches.create("again", "main~1").message == "n"


def test_merges_and_cuts_keep_their_shape():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    main, side = repository.commit("main"), repository.commit("side")
    staging = Staging(repository.objects)
    merged = repository.write_commit(side.tree, (main, side), staging=staging, message="merged")
    assert repository.publish(repository.ref("branch", "main"), merged, staging)
    state = Versioned(repository)
    for n in range(40):
        state["n"] = 100 + n
        state.commit(str(n))
    report = purge(repository, "users.alice")
    assert not holds(store)
    assert repository.read(report.commits[merged.id]).parents == (report.commits[main.id], report.commits[side.id])
    for n in range(40):
        assert repository.commit(f"main~{n}").message == str(39 - n)


@pytest.mark.parametrize("collected", [False, True])
def test_history_that_was_cut_stays_cut(collected):
    store = Memory()
    repository = Repository(store, clock=Clock())
    state = Versioned(repository)
    for n in range(40):
        state["users"] = {"alice": f"{SECRET} {n}", "bob": n}
        state.commit(str(n))
    prune(repository, keep_last=10, gc=collected, expire=timedelta(0))
    report = purge(repository, "users.alice")
    assert not holds(store)
    assert len(report.commits) == 10
    for each in (repository, Repository(store)):
        assert [commit.message for commit in each.log()] == [str(n) for n in range(39, 29, -1)]
        assert [commit.cut for commit in each.log()] == [False] * 9 + [True]
        assert len(each.cuts) == 1
        assert each.fsck().findings == ()
    state = Versioned(Repository(store))
    for n in range(40):
        state["users"]["bob"] = n
        state.commit(f"more {n}")
    assert state.repository.commit("main~45").message == "34"
    assert CUTS in store


@pytest.mark.parametrize("arguments", [((), {}), (("a",), {"prefixes": [""]}), ((), {"replace": {"": "x"}})])
def test_what_makes_no_sense_is_refused(arguments: Any):
    paths, options = arguments
    with pytest.raises(InvalidArgumentError):
        purge(Repository(Memory()), *paths, **options)


def test_where_gc_cannot_run_nothing_is_changed():
    class OneCondition(Memory):
        max_expected = 1

    store = OneCondition()
    repository = Repository(store)
    state = Versioned(repository)
    state["alice"] = SECRET
    state.commit()
    before = dict(store.items())
    with pytest.raises(UnsafeStoreError):
        purge(repository, "alice")
    assert dict(store.items()) == before
    assert len(purge(repository, "alice", dry_run=True).commits) == 1


# Beside writers, and cut off


class Meddling(Counting):
    """Something else happens before the call of that number."""

    def __init__(self, store: KVStore, at: int, act: Any) -> None:
        super().__init__(store)
        self.at, self.act, self.calls = at, act, 0

    def _count_down(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.act()

    def get(self, key):
        self._count_down()
        return super().get(key)

    def get_many(self, keys):
        self._count_down()
        return super().get_many(keys)

    def apply(self, expected, puts, deletes=(), *, objects=None):
        self._count_down()
        return super().apply(expected, puts, deletes, objects=objects)


def small(repository: Repository) -> None:
    state = Versioned(repository)
    for n in range(4):
        state["n"] = n
        state["users"] = {"alice": SECRET + str(n), "bob": n}
        state.commit(str(n))
    repository.branches.create("side", "main~2")
    state.reset("main~1")


def messages(repository: Repository, name: str = "main") -> list[str]:
    return [commit.message for commit in repository.log(name)]


def test_a_writer_that_comes_in_between_any_two_calls_loses_nothing_and_keeps_nothing():
    def writing(store: KVStore, which: str) -> Any:
        state = Versioned(Repository(store, clock=Clock()), branch=which)
        state["users"]

        def act() -> None:
            state["late"] = 1
            state.commit("late")
            if which == "main":
                state.repository.branches.create("another", "main")

        return act

    for which in ("main", "side"):
        for k in itertools.count(1):
            store = Memory()
            small(Repository(store, clock=Clock()))
            act = writing(store, which)
            repository = Repository(store, clock=Clock())
            meddling = Meddling(store, k, act)
            repository.store = repository.objects.kv = repository.guard._store = meddling
            purge(repository, "users.alice")
            if meddling.calls < k:
                break
            fresh = Repository(store)
            expected = ["late", "2", "1", "0"] if which == "main" else ["late", "1", "0"]
            assert messages(fresh, which) == expected, k
            assert fresh.snapshot(which)["late"] == 1
            for name in fresh.branches:
                assert all("alice" not in fresh.snapshot(commit)["users"] for commit in fresh.log(name)), (k, name)
            purge(fresh, "users.alice")
            assert not holds(store), k


def test_a_gc_that_comes_in_between_any_two_calls_takes_nothing_that_is_needed(monkeypatch):
    monkeypatch.setattr("versioned_state.repository.maintenance.purge._FLUSH_AT", 200)
    for k in itertools.count(1):
        store = Memory()
        small(Repository(store, clock=Clock()))
        repository = Repository(store, clock=Clock())
        garbage = Versioned(Repository(store, clock=Clock()))
        garbage["garbage"] = "x" * 1000
        garbage.commit()
        garbage.reset("main~1")
        collector = Repository(store, clock=Clock(1_700_000_060_000_000))

        def collect(collector: Repository = collector) -> None:
            with suppress(StoreBusyError):  # once the purge itself collects
                collector.gc(expire=timedelta(0))

        meddling = Meddling(store, k, collect)
        repository.store = repository.objects.kv = repository.guard._store = meddling
        purge(repository, "users.alice")
        assert not holds(store), k
        assert Repository(store).fsck().findings == (), k
        assert messages(Repository(store)) == ["2", "1", "0"]
        if meddling.calls < k:
            return


@pytest.mark.parametrize(
    ("fault", "crash"), [(Fault.BEFORE, False), (Fault.AFTER, False), (Fault.PARTIAL, False), (Fault.AFTER, True), (Fault.PARTIAL, True)]
)
def test_it_may_be_cut_off_anywhere_and_run_again(fault: Fault, crash):
    for k in itertools.count(1):
        store = Memory()
        small(Repository(store, clock=Clock()))
        faulty = Faulty(store)
        repository = Repository(faulty, clock=Clock())
        faulty.arm(k, fault=fault, crash=crash)
        try:
            purge(repository, "users.alice")
        except (InjectedFaultError, InjectedCrash):
            # Whole at any moment.
            between = Repository(store)
            assert messages(between) == ["2", "1", "0"]
            assert messages(between, "side") == ["1", "0"]
            assert [between.snapshot(commit)["users"]["bob"] for commit in between.log()] == [2, 1, 0]
        clock = Clock()
        clock.now += 3_600_000_000  # a gc that died is taken for dead by then
        purge(Repository(store, clock=clock), "users.alice")
        assert not holds(store), k
        assert messages(Repository(store)) == ["2", "1", "0"]
        assert Repository(store).fsck().findings == ()
        if not faulty.fired:
            return


def test_a_handle_that_stands_on_an_old_commit_goes_on():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    state = Versioned(Repository(store), branch="side")
    alice = state["users"]
    purge(repository, "users.alice")
    state["mine"] = 1
    state.commit("mine")
    assert state["users"] == {"bob": {"who": "Bob"}}
    assert state["users"] is alice
    # What it sent before it found the branch moved is garbage, and may hold what was purged: hence the advice to purge again.
    report = purge(Repository(store), "users.alice")
    assert report.commits == {}
    assert any("stand on an old commit" in text for text in report.unreached)
    assert not holds(store)


def test_what_was_read_of_it_before_is_not_shown_any_more():
    state = Versioned()
    state.update({f"key {n}": f"value {n}" * 10 for n in range(100)})
    state["alice"] = SECRET
    old = state.commit()
    repository = state.repository
    assert repository.snapshot(old)["alice"] == SECRET
    repository.purge("alice")
    with pytest.raises(MissingObjectError):
        repository.snapshot(old)["alice"]


# Whole branches


def sessions(repository: Repository) -> None:
    """A branch of a person's, forked from main, with a move that only its reflog knows, and one that was deleted."""
    state = Versioned(repository)
    state["n"] = 0
    state.commit("begin")
    with state.fork("alice/1") as hers:
        for n in range(3):
            hers["said"] = f"{SECRET} {n}"
            hers.commit(f"hers {n}")
        hers.reset("HEAD~1")
    repository.branches.create("alice/2", "alice/1")
    repository.branches.delete("alice/2")
    state["n"] = 1
    state.commit("end")


@pytest.mark.parametrize("patterns", ["alice/*", ["alice/1", "alice/2"]])
def test_a_branch_is_erased_whole(patterns):
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    untouched = [commit.id for commit in repository.log()]
    dry = repository.purge(branches=patterns, dry_run=True)
    assert holds(store)
    report = repository.purge(branches=patterns)
    assert set(report.branches) == set(dry.branches) == {"alice/1", "alice/2"}
    assert report.shared == dry.shared == (untouched[1],)
    assert report.commits == {}
    assert not holds(store)
    assert not any("alice" in key for key, _ in store.items())
    assert [commit.id for commit in repository.log()] == untouched
    assert repository.fsck().ok
    assert repository.purge(branches=patterns).branches == ()


def test_what_another_ref_leads_to_stays_and_is_named():
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    repository.tags.create("kept", "alice/1")
    report = repository.purge(branches="alice/1")
    kept = [commit.id for commit in repository.log("kept")]
    assert report.shared == tuple(kept)
    assert repository.snapshot("kept")["said"] == f"{SECRET} 1"
    assert repository.fsck().ok
    both = repository.purge("said", branches="alice/*")
    assert not holds(store)
    assert both.branches == ("alice/2",)
    assert set(both.shared) == {both.commits.get(id, id) for id in kept}


def test_a_branch_whose_head_is_lost_can_be_given_up():
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    head = repository.branches["alice/1"]
    store.delete(object_key(Address(bytes.fromhex(head.id))))
    fresh = Repository(store)
    assert not fresh.fsck().ok
    report = fresh.purge(branches="alice/*")
    assert set(report.branches) == {"alice/1", "alice/2"}
    assert fresh.fsck().ok
    assert messages(fresh) == ["end", "begin"]


def test_a_handle_on_an_erased_branch_finds_it_gone():
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    state = Versioned(Repository(store), branch="alice/1")
    state["mine"] = [1]
    repository.purge(branches="alice/*")
    for _ in range(2):
        with pytest.raises(BranchMovedError, match="alice/1"):
            state.commit("late")
    assert state["mine"] == [1]
    repository.purge(branches="alice/*")
    assert not holds(store)


def test_a_writer_on_a_branch_that_is_being_erased():
    for k in itertools.count(1):
        store = Memory()
        sessions(Repository(store, clock=Clock()))
        state = Versioned(Repository(store, clock=Clock()), branch="alice/1")
        repository = Repository(store, clock=Clock())

        def late(state=state) -> None:
            with suppress(BranchMovedError):
                state["late"] = 1
                state.commit("late")

        meddling = Meddling(store, k, late)
        repository.store = repository.objects.kv = repository.guard._store = meddling
        purge(repository, branches="alice/*")
        fresh = Repository(store)
        assert "alice/1" not in fresh.branches, k
        purge(fresh, branches="alice/*")
        assert not holds(store), k
        assert messages(fresh) == ["end", "begin"]
        assert fresh.fsck().ok
        if meddling.calls < k:
            return


@pytest.mark.parametrize("fault", Fault)
def test_erasing_a_branch_may_be_cut_off_anywhere_and_run_again(fault: Fault):
    for k in itertools.count(1):
        store = Memory()
        sessions(Repository(store, clock=Clock()))
        faulty = Faulty(store)
        repository = Repository(faulty, clock=Clock())
        faulty.arm(k, fault=fault)
        with suppress(InjectedFaultError):
            purge(repository, branches="alice/*")
        assert messages(Repository(store)) == ["end", "begin"]
        clock = Clock()
        clock.now += 3_600_000_000
        purge(Repository(store, clock=clock), branches="alice/*")
        assert not holds(store), k
        assert Repository(store).fsck().findings == ()
        if not faulty.fired:
            return


# The files themselves


def files_hold(folder: Path, *words: bytes) -> list[tuple[str, bytes]]:
    return [(file.name, word) for file in sorted(folder.iterdir()) for word in words if word in file.read_bytes()]


@pytest.mark.parametrize("wrapped", [False, True])
def test_no_byte_of_the_store_s_files_has_it(tmp_path: Path, wrapped):
    folder = tmp_path / "store"
    disk = Disk(folder)
    repository = Repository(Cache(disk) if wrapped else disk, clock=Clock())
    made = agent(repository)
    state = Versioned(repository)
    noise = random.Random(1)
    for n in range(60):  # free pages, rewritten pages, checkpoints
        state["users"]["alice"] = {"who": f"{SECRET} again", "long": LONG[: noise.randrange(len(LONG))]}
        state[f"k{n % 7}"] = noise.randbytes(3000).hex()
        state.commit(f"round {n}")
    # As text, as the values that hold it are compressed and stored, and under the addresses of those.
    planted = [SECRET.encode(), b"Chestnut"]
    for key, stored in disk.items("o/"):
        if SECRET.encode() in unseal(stored):
            planted += [bytes.fromhex(key[2:]), stored[:40], stored[len(stored) // 2 :][:24], stored[-24:]]
    for commit in (*made.values(), *repository.log()):
        if commit != made["before"]:
            planted.append(bytes.fromhex(commit.id))
    assert len(planted) > 200
    present = {word for _, word in files_hold(folder, *planted)}
    assert SECRET.encode() in present
    assert len(present) > len(planted) // 2
    reader = Disk(folder)  # another process would be the same to SQLite: a connection that is open, and idle
    reader.get("format")
    report = purge(repository, "users.alice")
    assert report.collected is not None
    assert report.collected.compacted is not None
    assert not holds(disk)
    left = files_hold(folder, *planted)
    # An address of 24 bytes, or the middle of a commit that shares its end with the new one, could be innocent: none is.
    assert [found for found in left if not _is_shared(found[1], disk)] == []
    reader.close()
    repository.close()
    assert [found for found in files_hold(folder, *planted) if not _is_shared(found[1], Disk(folder))] == []
    assert [file.name for file in folder.iterdir()] == ["store.sqlite3"]
    with Versioned(Disk(folder)) as again:
        assert again["users"] == {"bob": {"who": "Bob"}}
        assert len(list(again.log())) == 64


def _is_shared(word: bytes, store: KVStore) -> bool:
    """Whether what is there now, rightly, has the same bytes: the end of an object's envelope, say."""
    return any(word in stored for _, stored in store.items())


def test_a_reader_that_holds_the_log_is_waited_for_and_then_named(tmp_path: Path):
    disk = Disk(tmp_path / "store", timeout=0.2)
    repository = Repository(disk, clock=Clock())
    agent(repository)
    reader = sqlite3.connect(tmp_path / "store" / "store.sqlite3", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM objects").fetchall()
    with pytest.raises(StoreBusyError, match="reader"):
        purge(repository, "users.alice")
    reader.close()
    report = purge(repository, "users.alice")
    assert report.commits == {}
    assert files_hold(tmp_path / "store", SECRET.encode(), b"Chestnut") == []
    repository.close()


def test_an_encrypted_store_and_what_cannot_be_reached():
    store = Memory()
    repository = Repository(Encrypted(store, bytes(32)), clock=Clock())
    agent(repository)
    report: PurgeReport = purge(repository, "users.alice")
    assert not holds(repository.store)
    assert any("backups" in text for text in report.unreached)
    assert not any("Memory" in text for text in report.unreached)


def test_another_kind_of_store_is_named_for_what_it_keeps_by_itself(tmp_path: Path):
    with Repository(DiskCache(tmp_path / "store"), clock=Clock()) as repository:
        agent(repository)
        report = purge(repository, "users.alice")
        assert "DiskCache" in report.unreached[0]
        assert not holds(repository.store)


def test_a_signature_does_not_stay_on_what_was_not_signed():
    repository = Repository(Memory(), clock=Clock(), signer=Signer.generate())
    made = agent(repository)
    assert made["before"].signature is not None
    report = purge(repository, "users.alice")
    assert repository.read(made["before"].id).signature is not None
    assert {repository.read(new).signature for new in report.commits.values()} == {None}


# Against a naive model


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
                state["users"] = {name: {"deep": {"list": [SECRET] * rng.randrange(40), "n": n}} for name in ("alice", "bob")}
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


@given(seed=st.integers(0, 2**32), at=st.sampled_from([("users", "alice"), ("users",), ("users", "alice", "deep", "list")]))
def test_against_a_naive_model(seed: int, at: tuple[str, ...]):
    store = Memory()
    repository = Repository(store, clock=Clock())
    naive = make_history(random.Random(seed), repository)
    report = purge(repository, ".".join(at))
    fresh = Repository(store)
    assert fresh.fsck().findings == ()
    affected: dict[str, bool] = {ROOT_ID: False}
    for id, (content, parents) in naive.items():
        affected[id] = less(content, at) != content or any(affected[parent] for parent in parents)
        new = report.commits.get(id, id)
        assert (new != id) == affected[id]
        assert fresh.snapshot(fresh.read(new)).copy() == less(content, at)
        assert fresh.read(new).parents == tuple(report.commits.get(parent, parent) for parent in parents)
        assert (object_key(Address(bytes.fromhex(id))) in store) == (not affected[id])
    assert set(report.commits) == {id for id, is_affected in affected.items() if is_affected}
