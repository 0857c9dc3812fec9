"""Branches are erased at their own cost: what goes, what stays, what others do meanwhile, and what a failure leaves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.damage import damage
from tests.support.garbage import assert_whole, contents
from tests.support.histories import Clock
from tests.support.interrupts import Interrupt, Trace
from tests.support.personal_data import SECRET, holds
from tests.support.stores import memory_of
from tests.support.worlds import World, is_fast, reached
from versioned_state import Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import StateError, UnfinishedPurgeError
from versioned_state.objects.address import Role
from versioned_state.objects.keys import GC, KEEPER_PAGES, KEEPERS, MOVED, address_in
from versioned_state.repository.history.keepers import KeeperSet, groups_of
from versioned_state.repository.history.reach import Reference
from versioned_state.repository.maintenance.gc.keeper_table import read_table
from versioned_state.repository.maintenance.gc.marking import Marking
from versioned_state.repository.refs.gc_fence import read_gc_record
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.storage import Counting, Fault, Faulty
from versioned_state.storage.wrapper import Wrapper
from versioned_state.storage.wrappers.faulty import InjectedFaultError

NOW = timedelta(0)
LONG = [f"{SECRET} {n}" for n in range(60)]
PROMPT = [f"You are a helpful assistant; rule {n}" for n in range(60)]


pytestmark = pytest.mark.usefixtures("no_sign_of_life")


def filled(store: KVStore | None = None) -> Repository:
    """Sessions of two users and a plain branch, then a gc."""
    repository = Repository(Memory() if store is None else store, clock=Clock())
    for name in ("alice/1", "alice/2", "bob/1", "main"):
        state = Versioned(repository, branch=name)
        state["prompt"] = PROMPT
        for n in range(3):
            state["said"] = [*LONG, name, n] if name.startswith("alice") else [name, n] * 40
            state.commit()
    repository.gc()
    return repository


def test_a_session_goes_with_its_objects_and_its_name():
    repository = filled()
    others = {name: each for name, each in contents(repository.store).items() if name != "alice/1"}
    repository.notes.update("alice/1", {"about": SECRET})
    dry = repository.purge(branches="alice/1", dry_run=True)
    assert dry.branches == ("alice/1",)
    assert "alice/1" in repository.branches
    report = repository.purge(branches="alice/1")
    assert is_fast(report)
    assert report.branches == ("alice/1",)
    assert report.collected is not None
    assert report.collected.freed >= 6
    assert contents(repository.store) == others
    assert not any("alice/1" in key for key, _ in repository.store.items())
    assert not list(repository.notes)
    assert repository.fsck().ok
    thorough = repository.gc(expire=NOW)
    assert thorough.freed == 0, "nothing of it is left"


def test_all_sessions_of_a_user_go_also_if_they_share_commits():
    repository = filled()
    repository.branches.create("alice/3", "alice/1")
    state = Versioned(repository, branch="alice/3")
    state["said"].append("more")
    state.commit()
    repository.gc()
    report = repository.purge(branches="alice/*")
    assert is_fast(report)
    assert set(report.branches) == {"alice/1", "alice/2", "alice/3"}
    assert not holds(repository.store)
    assert repository.fsck().ok
    assert repository.gc(expire=NOW).freed == 0


def test_without_a_gc_before_it_the_whole_store_is_read():
    repository = Repository(Memory(), clock=Clock())
    state = Versioned(repository, branch="alice/1")
    state["said"] = LONG
    state.commit()
    assert not is_fast(repository.purge(branches="alice/1"))
    assert not holds(repository.store)


@pytest.mark.parametrize("before_gc", [True, False])
@pytest.mark.parametrize("how", ["fork", "tag", "merge", "reflog", "rename"])
def test_a_branch_whose_commits_others_lead_to_is_erased_at_its_own_cost(how, before_gc):
    repository = filled()
    state = Versioned(repository, branch="bob/1")
    if how == "fork":
        repository.branches.create("carol", "alice/1~1")
    elif how == "tag":
        repository.tags.create("kept", "alice/1")
    elif how == "merge":
        state.merge("alice/1", policies={"**": "theirs"})
    elif how == "reflog":
        state.reset("alice/1")
        state.undo()
    else:
        repository.branches.rename("alice/1", "carol")
        repository.branches.create("alice/1", "main")
        repository.branches.delete("alice/1", force=True)
    if before_gc:
        repository.gc()
    before = contents(repository.store)
    report = repository.purge(branches="alice/1")
    assert is_fast(report)
    assert report.branches == ("alice/1",)
    assert len(report.shared) == (2 if how == "rename" else 1)
    after = contents(repository.store)
    assert after == {name: each for name, each in before.items() if name != "alice/1"}
    assert repository.fsck().ok


def test_equal_content_of_others_stays_whenever_they_got_it():
    repository = filled()
    with_it = Versioned(repository, branch="bob/2")  # since the gc
    with_it["said"] = [*LONG, "alice/1", 2]
    with_it.commit()
    # since the gc, with content that others had then, and with some of its own
    new = Versioned(repository, branch="alice/9")
    new["prompt"], new["said"], new["mine"] = PROMPT, ["main", 2] * 40, LONG[::-1]
    new.commit()
    assert is_fast(repository.purge(branches="alice/1"))
    report = repository.purge(branches="alice/9")
    assert is_fast(report)
    assert report.collected is not None
    assert report.collected.kept > 0
    assert any("equal content" in each for each in report.unreached)
    assert_whole(repository.store)
    assert Repository(repository.store).snapshot("bob/2")["said"] == [*LONG, "alice/1", 2]
    assert Repository(repository.store).snapshot("main")["prompt"] == PROMPT
    assert LONG[-1] + LONG[-2] not in str(contents(repository.store))


def test_a_branch_that_comes_back_says_again_that_it_moved():
    """Another process knew that it had said so, and what it said was erased with the branch."""
    repository = filled()
    elsewhere = Repository(repository.store, clock=Clock())
    state = Versioned(elsewhere, branch="bob/1")
    state["said"].append(1)
    state.commit()
    assert is_fast(repository.purge(branches="bob/1"))
    again = Versioned(elsewhere, branch="bob/1")
    again["said"] = [*LONG, "alice/1", 2]
    again.commit()
    assert [key for key in repository.store.keys(MOVED) if key.endswith("/branch/bob/1")]
    assert is_fast(repository.purge(branches="alice/1"))
    assert_whole(repository.store)


def test_the_keepers_of_an_erased_branch_are_nobody_s():
    repository = filled()
    table = read_table(repository.store)
    assert table is not None
    addresses = [address_in(key) for key in repository.store.keys("o/")]
    hers = {address for address, keeper in table.find(addresses).items() if keeper == table.id("branch/alice/1")}
    assert len(hers) > 5
    repository.purge(branches="alice/1")
    after = read_table(repository.store)
    assert after is not None
    assert not after.find(hers)
    assert len(after.find(addresses)) == len(table.find(addresses)) - len(hers)


def naive_keepers(repository: Repository) -> dict[bytes, str]:
    """The keeper of each object, from a walk for each ref."""
    led: dict[bytes, set[str]] = {}
    for ref in (ref for kind in ("branch", "tag") for ref in iter_refs(repository.store, kind, deleted=True)):
        starts = [Reference(ref.head, Role.COMMIT)] if ref.head else []
        starts += [Reference(ref.log, Role.LOG_ENTRY)] if ref.log else []
        for address in reached(
            repository.database.objects, starts, shallow=repository.database.commits.refresh_shallow(), expired=0
        ):
            led.setdefault(address, set()).add(f"{ref.kind}/{ref.name}")
    found: dict[bytes, str] = {}
    for object_, names in led.items():
        common = [group for group in groups_of(min(names)) if all(name.startswith(group) for name in names)]
        found[object_] = names.pop() if len(names) == 1 else (common or [""])[0]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_keepers_are_those_that_a_walk_for_each_ref_finds(seed, monkeypatch, long_run):
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 3)
    for each in range(40 if long_run else 1):
        world = World(seed + 100 * each)
        for step in range(80):
            world.step()
            if step % 8:
                continue
            repository = Repository(world.store)
            with KeeperSet(in_memory=20 if step % 16 else 10_000) as seen:
                marking = Marking(repository.database, seen, None)
                with suppress(StateError):
                    marking.mark_refs()
                    found = {address: seen.keepers.names[keeper] for address, keeper in seen.iter_keepers()}
                    assert len(found) == len(seen)
                    expected = naive_keepers(repository)
                    assert {address: found.get(address) for address in expected} == {
                        **expected,
                        **_root(found, expected),
                    }


def _root(found: dict[bytes, str], expected: dict[bytes, str]) -> dict[bytes, str]:
    """The empty root commit is everyone's."""
    from versioned_state.repository.history.commit import ROOT_ADDRESS

    assert found[ROOT_ADDRESS] == ""
    return {ROOT_ADDRESS: ""} if ROOT_ADDRESS in expected else {}


# Others at the same time

Act = Callable[[KVStore], Any]


def commits_there(store: KVStore) -> None:
    state = Versioned(Repository(store, clock=Clock(1_800_000_000_000_000)), branch="alice/1")
    state["late"] = [*LONG, "late"]
    state.commit()


def forks_there(store: KVStore) -> None:
    Repository(store, clock=Clock(1_800_000_000_000_000)).branches.create("carol", "alice/1~1")


def commits_and_forks(store: KVStore) -> None:
    commits_there(store)
    Repository(store, clock=Clock(1_900_000_000_000_000)).branches.create("carol", "alice/1")


def commits_the_same(store: KVStore) -> None:
    state = Versioned(Repository(store, clock=Clock(1_800_000_000_000_000)), branch="bob/1")
    state["said"] = [*LONG, "alice/1", 2]
    state.commit()


def commits_all_of_it(store: KVStore) -> None:
    state = Versioned(Repository(store, clock=Clock(1_800_000_000_000_000)), branch="bob/1")
    for n in range(3):
        state["said"] = [*LONG, "alice/1", n]
        state.commit()


def begins_again(store: KVStore) -> None:
    """A new branch of that name, if the other one is gone, with content that is being deleted."""
    state = Versioned(Repository(store, clock=Clock(1_800_000_000_000_000)), branch="alice/1")
    state["prompt"], state["said"] = PROMPT, [*LONG, "alice/1", 2]
    state.commit()


def merges(store: KVStore) -> None:
    state = Versioned(Repository(store, clock=Clock(1_800_000_000_000_000)), branch="bob/1")
    state.merge("alice/1", policies={"**": "theirs"})


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("act", [commits_there, forks_there, commits_and_forks, commits_the_same, begins_again, merges])
def test_others_between_any_two_calls(act: Act, small, monkeypatch):
    if small:
        monkeypatch.setattr("versioned_state.repository.maintenance.purge.reclaim._AT_ONCE", 4)
    prepared = dict(filled().store.items())
    for k in itertools.count(1):
        store = memory_of(prepared)
        # knows the head all the time
        handle = Versioned(Repository(store, clock=Clock(1_850_000_000_000_000)), branch="alice/1")
        late: list[int] = []

        def others(store=store, late=late) -> None:
            with suppress(StateError):
                act(store)
                late.append(1)

        between = ActsBeforeCall(store, others, at=k)
        Repository(between, clock=Clock(1_750_000_000_000_000)).purge(branches="alice/1")
        assert_whole(store)
        found = contents(store)
        assert {"alice/2", "bob/1", "main"} <= found.keys(), k
        if between.calls < k:
            break
        with suppress(StateError):  # onto a branch that is gone, or is another one now
            handle["n"] = 1
            handle.commit()
        assert_whole(store)
    assert k > 15


def test_a_head_that_others_have_published_already_is_forked_meanwhile():
    """A commit to the branch comes before the plan is made, and a fork of that commit after it."""
    prepared = dict(filled().store.items())
    for first, second in itertools.product(range(3, 9), range(3, 15)):
        store = memory_of(prepared)

        def fork(store=store) -> None:
            with suppress(StateError):
                Repository(store, clock=Clock(1_900_000_000_000_000)).branches.create("carol", "alice/1")

        def commit(store=store) -> None:
            with suppress(StateError):
                commits_there(store)

        inner = ActsBeforeCall(store, fork, at=first + second)
        outer = ActsBeforeCall(inner, commit, at=first)
        Repository(outer, clock=Clock(1_750_000_000_000_000)).purge(branches="alice/1")
        assert_whole(store)


class _ActsBeforeEnd(Wrapper):
    """Lets writers act before each batch that would end a reclaiming which has erased its branches."""

    def __init__(self, store: KVStore, acts: list[Act]) -> None:
        super().__init__(store)
        self._acts = acts
        self._is_erased = False

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        if self._is_erased and self._acts and GC in puts and read_gc_record(puts[GC]).owner is None:
            self._acts.pop(0)(self.store)
        done = super().apply(expected, puts, deletes, objects=objects)
        self._is_erased |= done and KEEPERS in puts and GC in puts
        return done


@pytest.mark.parametrize("left", [1, 2])
def test_a_purge_that_has_nothing_left_to_delete_is_over_for_everybody(left, monkeypatch):
    prepared = dict(filled().store.items())
    probe = memory_of(prepared)
    freed = Repository(probe, clock=Clock(1_750_000_000_000_000)).purge(branches="alice/1").collected
    assert freed is not None
    commits = 3  # with the keys of their notes and of the record that others share them
    monkeypatch.setattr(
        "versioned_state.repository.maintenance.purge.reclaim._AT_ONCE", freed.freed + 2 * commits - left
    )
    store = memory_of(prepared)
    acts: list[Act] = [commits_all_of_it, commits_there]
    repository = Repository(_ActsBeforeEnd(store, acts), clock=Clock(1_750_000_000_000_000))
    repository.purge(branches="alice/1")
    assert not acts
    assert read_gc_record(store.get(GC)).owner is None
    assert_whole(store)


# Failures


@pytest.mark.parametrize("fault", Fault)
def test_every_call_of_the_store_may_fail(fault: Fault, monkeypatch):
    monkeypatch.setattr("versioned_state.repository.maintenance.purge.reclaim._AT_ONCE", 6)
    prepared = dict(filled().store.items())
    others = {name: each for name, each in contents(filled().store).items() if not name.startswith("alice")}
    for k in itertools.count(1):
        store = memory_of(prepared)
        faulty = Faulty(store)
        repository = Repository(faulty, clock=Clock(1_750_000_000_000_000))
        faulty.arm(k, fault=fault)
        with suppress(InjectedFaultError, UnfinishedPurgeError):
            repository.purge(branches="alice/*")
        assert_whole(store)
        left = [name for name in Repository(store).branches if name.startswith("alice")]
        assert left in ([], ["alice/1", "alice/2"])
        assert {name: each for name, each in contents(store).items() if not name.startswith("alice")} == others
        if faulty.fired:
            Repository(store, clock=Clock(1_860_000_000_000_000)).purge(branches="alice/*")
        assert not holds(store), k
        if not faulty.fired:
            break
    assert k > 15


@pytest.mark.parametrize("offset", range(3))
def test_an_interrupt_at_any_line_leaves_all_branches_or_none(offset, long_run):
    prepared = dict(filled().store.items())

    def run(at: int) -> tuple[Trace, KVStore]:
        store = memory_of(prepared)
        repository = Repository(store, clock=Clock(1_750_000_000_000_000))
        trace = Trace(at)
        with suppress(Interrupt):
            trace.run(lambda: repository.purge(branches="alice/*"))
        return trace, store

    count = run(0)[0].count
    assert count > 1000
    for at in range(1 + offset, count, 3 if long_run else 401):
        _, store = run(at)
        assert_whole(store)
        assert [name for name in Repository(store).branches if name.startswith("alice")] in ([], ["alice/1", "alice/2"])
        Repository(store, clock=Clock(1_860_000_000_000_000)).purge(branches="alice/*")
        assert not holds(store), at


@pytest.mark.parametrize("what", ["table lost", "page lost", "page damaged", "gc record lost", "moved is another ref"])
def test_a_damaged_table_is_not_relied_on(what):
    repository = filled()
    store = repository.store
    state = Versioned(repository, branch="bob/1")
    state["said"] = [*LONG, "alice/1", 2]
    state.commit()
    page = next(store.keys(KEEPER_PAGES))
    if what == "table lost":
        store.delete(KEEPERS)
    elif what == "page lost":
        store.delete_many(list(store.keys(KEEPER_PAGES)))
    elif what == "page damaged":
        damage(store, page)
    elif what == "gc record lost":
        store.delete(GC)
    else:
        (row,) = store.keys(MOVED)
        store.delete(row)
        store.set(row[:-1] + "2", b"")
    assert not is_fast(Repository(store, clock=Clock(1_750_000_000_000_000)).purge(branches="alice/1"))
    assert_whole(store)
    assert "alice/1" not in Repository(store).branches
    assert is_fast(Repository(store, clock=Clock(1_760_000_000_000_000)).purge(branches="alice/2")), (
        "the gc of the purge made a new one"
    )


def test_a_full_store_is_collected_without_a_table(tmp_path: Path):
    with Disk(tmp_path / "store", size_limit=400_000) as store:
        repository = Repository(store)
        state = Versioned(repository)
        rng = random.Random(1)
        with suppress(StateError):
            for n in range(3000):
                state[f"k{n}"] = rng.randbytes(200)
                state.commit()
        state.discard()
        assert repository.gc(expire=NOW).finished
        assert repository.fsck().ok


# A gc in slices


def test_refs_that_move_between_the_slices_of_a_gc_count_as_moved(monkeypatch):
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 4)
    repository = filled()
    first = read_table(repository.store)
    assert first is not None
    for n in itertools.count():
        if repository.gc(time_limit=1e-9).finished:
            break
        state = Versioned(repository, branch="bob/1")
        state["said"] = [*LONG, "alice/1", n % 3]
        state.commit()
    assert n > 5
    table = read_table(repository.store)
    assert table is not None
    assert table.marking > first.marking
    assert [key for key in repository.store.keys(MOVED) if key.endswith("/branch/bob/1")]
    assert is_fast(repository.purge(branches="alice/1"))
    assert_whole(repository.store)
    assert_whole(repository.store)


# Cost, and the bytes on disk


def calls_of_a_purge(sessions: int, commits: int, *, moved: bool) -> int:
    store = Counting(Memory())
    repository = Repository(store, clock=Clock())
    for n in range(sessions):
        state = Versioned(repository, branch=f"u{n % 7}/s{n}")
        for number in range(commits if n == 3 else 2):
            state["said"] = [n, number] * 50
            state.commit()
    repository.gc()
    if moved:
        for n in (3, 5):
            state = Versioned(repository, branch=f"u{n}/s{n}")
            state["more"] = n
            state.commit()
    repository.purge(branches="u6/s6")  # the modules that it needs
    repository = Repository(store, clock=Clock(1_800_000_000_000_000))
    store.reset()
    report = repository.purge(branches="u3/s3")
    calls = store.counts.round_trips
    assert is_fast(report)
    assert report.collected is not None
    assert report.collected.freed >= commits
    assert_whole(store)
    return calls


@pytest.mark.parametrize("moved", [False, True])
def test_a_purge_of_one_branch_costs_the_same_among_many(moved):
    few, many = calls_of_a_purge(10, 4, moved=moved), calls_of_a_purge(200, 4, moved=moved)
    assert many <= few + 3, "a page of the table for each read of objects at most"
    assert many <= 40


def test_no_byte_of_the_files_has_it_and_the_other_pages_are_as_they_were(tmp_path: Path):
    folder = tmp_path / "store"
    with Disk(folder) as store:
        repository = filled(store)
        size = store.size()
        report = repository.purge(branches="alice/*")
        assert is_fast(report)
        assert not holds(store)
        assert store.size() <= size
        for file in folder.iterdir():
            data = file.read_bytes()
            assert SECRET.encode() not in data, file.name
            assert b"alice/1" not in data, file.name
        assert any("parts of pages" in each for each in report.unreached)
        thorough = repository.purge(branches="bob/*", thorough=True)
        assert not is_fast(thorough)
        assert not any("parts of pages" in each for each in thorough.unreached)
        assert repository.fsck().ok
