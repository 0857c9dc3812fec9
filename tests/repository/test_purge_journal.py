"""A purge that has begun to erase keeps its report: any error carries it, and a repeated purge reports all of it."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
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
from tests.support.purges import LONG, PURGES_OF, filled
from tests.support.stores import memory_of
from versioned_state import Disk, KVStore, Repository, Versioned, effects
from versioned_state.errors import CorruptObjectError, StateError, StoreBusyError, UnfinishedPurgeError
from versioned_state.objects.keys import KEEPERS, PURGES
from versioned_state.repository.maintenance.gc import collector as gc_module
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.storage import Fault, Faulty
from versioned_state.storage.wrapper import Wrapper
from versioned_state.storage.wrappers.faulty import InjectedCrash, InjectedFaultError

NOW = timedelta(0)


pytestmark = pytest.mark.usefixtures("no_sign_of_life")


PREPARED = dict(filled().store.items())

SETS = ("commits", "holding", "refs", "branches", "effects", "shared", "paths")


def findings(report: PurgeReport) -> dict[str, Any]:
    """What a report says was erased. The latest shared commits stand for all of them."""
    found = {name: sorted(getattr(report, name)) for name in SETS}
    return {**found, "commits": dict(report.commits)}


def has_erased(store: KVStore) -> bool:
    """Whether anything was erased."""
    repository = Repository(store)
    return contents(store) != contents(memory_of(PREPARED)) or effects(repository)[0].key == ""


def later() -> Clock:
    return Clock(1_750_000_000_000_000)


def assert_ended(store: KVStore) -> None:
    """No journal is left, and a purge is over for everybody."""
    assert not list(store.keys(PURGES))
    assert_whole(store)


@pytest.mark.parametrize(
    ("fault", "crash"), [(Fault.BEFORE, False), (Fault.AFTER, False), (Fault.PARTIAL, False), (Fault.AFTER, True)]
)
@pytest.mark.parametrize("name", PURGES_OF)
def test_no_failure_loses_the_report(name, fault: Fault, crash, monkeypatch, long_run):
    if name == "a fork":  # in several batches
        monkeypatch.setattr("versioned_state.repository.maintenance.purge.reclaim._AT_ONCE", 5)
    purge = PURGES_OF[name]
    probe = memory_of(PREPARED)
    counting = Faulty(probe)
    whole = Repository(counting, clock=later())
    counting.arm(None)
    expected = findings(purge(whole))
    assert any(expected.values())
    after = contents(probe)
    secret = holds(probe)
    unfinished = 0
    # Of a purge that reads the whole store, another part of the calls for each kind of failure; of branches at their
    # own cost, all.
    step = 1 if long_run or name in ("branches", "a fork", "branches and effects") else 11
    for k in itertools.count(1 + list(Fault).index(fault) * 3 % step, step):
        store = memory_of(PREPARED)
        faulty = Faulty(store)
        repository = Repository(faulty, clock=later())
        faulty.arm(k, fault=fault, crash=crash)
        done: PurgeReport | None = None
        carried: PurgeReport | None = None
        cause: BaseException | None = None
        try:
            done = purge(repository)
        except UnfinishedPurgeError as error:
            carried, cause = error.report, error.__cause__
            unfinished += bool(error.remains)
        except InjectedFaultError:
            assert not has_erased(store)
        except InjectedCrash:
            if k == counting.calls:
                continue  # it had finished: only the reply to the last write was lost
        fired = faulty.fired
        report = purge(Repository(store, clock=Clock(1_760_000_000_000_000)))
        again = findings(report)
        if done is not None:
            assert findings(done) == expected, k
        else:
            assert again | {"shared": ()} == expected | {"shared": ()}, k
            assert set(expected["shared"]) <= set(again["shared"]), k
        if carried is not None:
            assert isinstance(cause, InjectedFaultError), k
            assert all(set(findings(carried)[key]) <= set(again[key]) for key in SETS), k
        assert contents(store) == after, k
        assert holds(store) == secret, k
        assert_ended(store)
        if not fired:
            break
    assert crash or unfinished or step == 1


def test_a_journal_says_nothing_to_others():
    """It holds names and paths only for those who repeat the purge."""
    for purge in PURGES_OF.values():
        seen: list[bytes] = []

        class Watching(Wrapper):
            def apply(self, expected: Any, puts: Any, deletes: Any = (), *, objects: Any = None) -> bool:
                seen.extend(value for key, value in puts.items() if key.startswith(PURGES))  # noqa: B023
                return super().apply(expected, puts, deletes, objects=objects)

        purge(Repository(Watching(memory_of(PREPARED)), clock=later()))
        assert seen
        assert not any(word in value for value in seen for word in (b"alice", b"mail", b"users", b"main"))


def test_only_the_same_purge_takes_up_a_journal_and_others_name_it():
    store = memory_of(PREPARED)
    faulty = Faulty(store)
    repository = Repository(faulty, clock=later())
    faulty.arm(36, fault=Fault.AFTER, crash=True)
    with pytest.raises(InjectedCrash):
        repository.purge("users.alice")
    (key,) = store.keys(PURGES)
    assert Repository(store).fsck().ok
    other = Repository(store, clock=Clock(1_760_000_000_000_000)).purge(branches="bob/1")
    assert other.branches == ("bob/1",)
    assert any("a purge that began at 2025-06-15" in place for place in other.unreached)
    assert list(store.keys(PURGES)) == [key]
    again = Repository(store, clock=Clock(1_770_000_000_000_000)).purge("users.alice")
    assert again.paths == ("users.alice",)
    assert_ended(store)
    assert not any("purge that began" in place for place in again.unreached)


def test_a_damaged_journal_is_named_and_holds_up_nothing():
    store = memory_of(PREPARED)
    faulty = Faulty(store)
    repository = Repository(faulty, clock=later())
    faulty.arm(45, fault=Fault.AFTER)
    with pytest.raises(UnfinishedPurgeError):
        repository.purge("users.alice")
    (key,) = store.keys(PURGES)
    damage(store, key)
    (finding,) = Repository(store).fsck().findings
    assert (finding.problem, finding.what, finding.id) == ("corrupt", "journal", key)
    report = Repository(store, clock=Clock(1_760_000_000_000_000)).purge("users.alice")
    assert any("its journal is damaged" in place for place in report.unreached)
    assert_ended(store)


@pytest.mark.parametrize("name", PURGES_OF)
def test_an_interrupt_at_any_line_loses_no_report(name, long_run):
    purge = PURGES_OF[name]
    probe = memory_of(PREPARED)
    trace = Trace()
    trace.run(lambda: purge(Repository(probe, clock=later())))
    after, secret = contents(probe), holds(probe)
    for at in range(1, trace.count, 11 if long_run else max(trace.count // 8, 1)):
        store = memory_of(PREPARED)
        with suppress(Interrupt):
            Trace(at).run(lambda store=store: purge(Repository(store, clock=later())))  # type: ignore[misc]
        begun = bool(list(store.keys(PURGES)))
        erased = has_erased(store)
        report = purge(Repository(store, clock=Clock(1_760_000_000_000_000)))
        assert begun or not erased or contents(store) == after, at
        if begun:
            assert report.branches or report.paths or report.effects, at
        assert contents(store) == after, at
        assert holds(store) == secret, at
        assert_ended(store)


@pytest.mark.parametrize("name", PURGES_OF)
def test_beside_a_gc_nothing_is_erased_or_the_error_has_the_report(name, long_run):
    """A gc of another process begins before each call of the purge, and stays at work."""
    purge = PURGES_OF[name]
    probe = memory_of(PREPARED)
    expected = findings(purge(Repository(probe, clock=later())))
    unfinished = 0
    for k in itertools.count(1, 1 if long_run or name in ("branches", "a fork") else 11):
        store = memory_of(PREPARED)
        working: list[gc_module.Collector] = []

        def begins(store: KVStore = store, working: list[gc_module.Collector] = working) -> None:
            other = gc_module.Collector(Repository(store, clock=later()).database)
            with suppress(StoreBusyError):
                other.begin(marks=True)
                working.append(other)

        between = ActsBeforeCall(store, begins, at=k)
        try:
            purge(Repository(between, clock=later()))
        except UnfinishedPurgeError as error:
            unfinished += bool(error.report.branches or error.report.paths or error.report.effects)
        except StoreBusyError:
            assert contents(store) == contents(memory_of(PREPARED))
        done = between.calls < k
        for other in working:
            other.give_up()
        again = findings(purge(Repository(store, clock=later())))
        if working and again["branches"] + again["paths"] + again["effects"]:
            assert again | {"shared": ()} == expected | {"shared": ()}, k
        assert_ended(store)
        if done:
            break
    assert unfinished or "branches" in name or name == "a fork"


@pytest.mark.parametrize("name", PURGES_OF)
def test_a_branch_of_the_same_name_between_two_attempts(name, monkeypatch, long_run):
    """The branch is created again after an interrupted purge.

    The repeated purge erases the new branch and the rest of the old one.
    """
    monkeypatch.setattr("versioned_state.repository.maintenance.purge.reclaim._AT_ONCE", 5)
    purge = PURGES_OF[name]
    for k in itertools.count(5, 1 if name == "branches" else 5 if long_run else 16):
        store = memory_of(PREPARED)
        faulty = Faulty(store)
        repository = Repository(faulty, clock=later())
        faulty.arm(k, fault=Fault.AFTER, crash=True)
        with suppress(InjectedCrash):
            purge(repository)
        state = Versioned(Repository(store, clock=Clock(1_755_000_000_000_000)), branch="alice/1")
        state["said"] = [*LONG, "again"]
        state.commit()
        report = purge(Repository(store, clock=Clock(1_760_000_000_000_000)))
        assert_ended(store)
        if "branches" in name or name == "all of it":
            assert "alice/1" in report.branches
            assert "alice/1" not in Repository(store).branches
            assert "again" not in str(contents(store))
            assert Repository(store, clock=Clock(1_770_000_000_000_000)).gc().freed == 0, k
        if not faulty.fired:
            break


def test_two_processes_that_do_the_same_purge_both_report_all_of_it(long_run):
    purge = PURGES_OF["all of it"]
    probe = memory_of(PREPARED)
    after = (purge(Repository(probe, clock=later())), contents(probe))[1]
    for k in itertools.count(1, 1 if long_run else 17):
        store = memory_of(PREPARED)
        reports: list[PurgeReport] = []

        def same(store: KVStore = store, reports: list[PurgeReport] = reports) -> None:
            with suppress(StateError):
                reports.append(purge(Repository(store, clock=later())))

        between = ActsBeforeCall(store, same, at=k)
        try:
            reports.append(purge(Repository(between, clock=later())))
        except UnfinishedPurgeError as error:
            reports.append(error.report)
            reports.append(purge(Repository(store, clock=Clock(1_760_000_000_000_000))))
        except StateError:
            pass
        assert {"alice/1", "alice/2", "alice/fork"} == {name for report in reports for name in report.branches}, k
        assert contents(store) == after
        assert_ended(store)
        if between.calls < k:
            break


def test_a_branch_that_others_delete_and_collect_meanwhile_costs_no_report(monkeypatch, long_run):
    """Above all between two reads of the search for mentions, after everything was erased."""
    monkeypatch.setattr("versioned_state.repository.caches._COMMITS_KEPT", 1)
    prepared = memory_of(PREPARED)
    state = Versioned(Repository(prepared, clock=later()), branch="other")
    for n in range(8):
        state["n"] = n
        state.commit(meta={"n": n})
    overtaken = 0
    for k in itertools.count(1, 1 if long_run else 3):
        store = memory_of(dict(prepared.items()))
        freed: list[int] = []
        clock = later()  # one for both: by one that is far off, the gc of the purge would be taken for dead

        def deletes(store: KVStore = store, freed: list[int] = freed, clock: Clock = clock) -> None:
            other = Repository(store, clock=clock)
            other.branches.delete("other", force=True)
            with suppress(StoreBusyError):
                freed.append(other.gc(expire=NOW).freed)

        between = ActsBeforeCall(store, deletes, at=k)
        report = Repository(between, clock=clock).purge("users.alice")
        assert report.paths == ("users.alice",), k
        assert_ended(store)
        overtaken += any(freed)
        if between.calls < k:
            break
    assert overtaken > 5


def test_an_effect_that_is_damaged_is_named_before_anything_is_erased():
    store = memory_of(PREPARED)
    (key,) = store.keys("effect/")
    store.set(key, b"damaged")
    before = dict(store.items())
    with pytest.raises(CorruptObjectError, match=key):
        Repository(store, clock=later()).purge("users.alice", effects="*")
    assert dict(store.items()) == before


@pytest.mark.parametrize("name", ["a path", "branches", "all of it"])
def test_the_error_of_a_callback_carries_the_report(name):
    def fails(step: str, count: int, total: int | None) -> None:
        if step == "collecting":
            raise ZeroDivisionError

    repository = Repository(memory_of(PREPARED), clock=later())
    if name == "a path":
        with pytest.raises(
            UnfinishedPurgeError, match=r"ZeroDivisionError.*no ref leads to the data any more"
        ) as caught:
            repository.purge("users.alice", progress=fails)
        assert caught.value.report.paths == ("users.alice",)
    report = repository.purge("users.alice")
    assert report.paths == ("users.alice",)
    assert not list(repository.store.keys(PURGES))


def test_a_dry_run_after_a_purge_that_was_cut_off_reports_what_that_one_has_erased():
    store = memory_of(PREPARED)
    del_table = Repository(store)
    del_table.store.delete(KEEPERS)
    faulty = Faulty(store)
    repository = Repository(faulty, clock=later())
    expected = findings(Repository(memory_of(dict(store.items())), clock=later()).purge("users.alice"))
    faulty.arm(40, fault=Fault.AFTER)
    with pytest.raises(UnfinishedPurgeError):
        repository.purge("users.alice")
    before = dict(store.items())
    dry = Repository(store, clock=later()).purge("users.alice", dry_run=True)
    assert dict(store.items()) == before
    assert (list(dry.commits), dry.paths) == (list(expected["commits"]), ("users.alice",))


CHILD = """
import sys
from versioned_state import Disk, Repository
from tests.support.purges import PURGES_OF, KilledAtCall
repository = Repository(KilledAtCall(Disk(sys.argv[1]), int(sys.argv[3])))
print(PURGES_OF[sys.argv[2]](repository).branches)
"""


@pytest.mark.parametrize("name", ["branches", "all of it"])
def test_a_purge_that_is_killed_is_finished_and_reported_by_another_process(name, tmp_path: Path, long_run):
    probe = memory_of(PREPARED)
    expected = findings(PURGES_OF[name](Repository(probe, clock=later())))
    calls = {"branches": (16,), "all of it": (60,)}[name]
    for at in range(5, 120, 3) if long_run else calls:
        folder = tmp_path / f"{at}"
        with Disk(folder) as disk:
            disk.set_many(PREPARED)
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(folder), name, str(at)], check=False, cwd=Path(__file__).parents[2]
        )
        assert done.returncode in (-signal.SIGKILL, 0)
        with Disk(folder) as disk:
            report = PURGES_OF[name](Repository(disk))
            assert_ended(disk)
            if done.returncode or report.branches:
                assert findings(report) | {"shared": ()} == expected | {"shared": ()}, at
            assert contents(disk) == contents(probe)
            for file in folder.iterdir():
                if file.is_file() and name == "all of it":
                    assert SECRET.encode() not in file.read_bytes(), at


def test_a_report_and_a_journal_have_the_same_findings():
    names = {each.name for each in fields(PurgeReport)}
    assert set(SETS) <= names
