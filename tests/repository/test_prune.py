"""Pruned history agrees with a naive model.

Every function treats the cut as an end, and all that is reachable stays whole.
"""

from __future__ import annotations

import itertools
import random
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from tests.support.histories import Clock, make_graph, numbered
from tests.support.stores import swap_store
from versioned_state import Commit, Memory, Repository, Versioned
from versioned_state.errors import (
    CorruptRefError,
    InvalidArgumentError,
    MissingObjectError,
    StoreBusyError,
    UnknownRevisionError,
)
from versioned_state.objects.keys import SHALLOW, object_key
from versioned_state.objects.store import Staging
from versioned_state.repository.database import Publication
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.maintenance.prune import logged_commits, prune
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.storage import Cache, Counting, Fault, Faulty, KVStore
from versioned_state.storage.wrappers.faulty import InjectedFaultError


def line(repository: Repository, size: int, *, branch: str = "main") -> list[Commit]:
    """So many commits on a branch, each with its number as the value of ``n``."""
    return numbered(Versioned(repository, branch=branch), range(size))


def collect(repository: Repository) -> int:
    """Delete the commits that no ref and no reflog reaches, as gc would. Return their number."""
    roots = []
    for ref in (ref for kind in ("branch", "tag") for ref in iter_refs(repository.store, kind, deleted=True)):
        roots += [repository.database.commits.read(ref.head)] if ref.head else []
        roots += logged_commits(repository.database, ref)
    kept = {commit.id for commit in graph.walk(roots, repository.database.commits.read)} | {ROOT_ID}
    gone = [
        a
        for a in repository.database.objects.iter_addresses("")
        if repository.database.commits.find(a) is not None and a.hex() not in kept
    ]
    repository.store.apply({}, {}, [object_key(address) for address in gone])
    return len(gone)


def ids(commits: object) -> list[str]:
    return [commit.id for commit in commits]  # type: ignore[attr-defined]


# Down to a commit


@pytest.mark.parametrize("shares", [False, True])
def test_down_to_a_commit_keeps_what_was_committed_since(*, shares: bool):
    repository = Repository(Memory())
    commits = line(repository, 6)
    if shares:  # the way of a plan that reads all refs
        Versioned(repository, branch="main").fork("other").close()
    later = line(repository, 9)[-3:]
    report = repository.prune(down_to=commits[3], branches=["main", "other"], expire=timedelta(0))
    assert [each.at for each in report.branches] == [commits[3]] * (1 + shares)
    assert ids(repository.log("main"))[-3:] == ids(reversed(commits[3:]))
    assert later[-1] == repository.branches["main"]
    assert not repository.prune(down_to=commits[3], branches="main", expire=timedelta(0)).removed


def test_a_branch_without_the_commit_stays_as_it_is():
    repository = Repository(Memory())
    commits = line(repository, 5)
    others = line(repository, 4, branch="other")
    report = repository.prune(down_to=commits[2].id, branches="*", expire=timedelta(0))
    assert [(each.branch, each.kept) for each in report.branches] == [("main", 3)]
    assert ids(repository.log("other")) == ids(reversed(others))
    assert repository.prune(down_to=commits[2], keep_last=5, branches="*", expire=timedelta(0)).removed == 0
    with pytest.raises(UnknownRevisionError):
        repository.prune(down_to="nowhere")


def test_down_to_a_commit_that_others_have_pruned_leaves_the_branch_as_it_is():
    """Seed 1081658: ``retain`` chose a commit that others then pruned and collected.

    The record still said that the history ends there.
    """
    store = Memory()
    repository = Repository(store)
    commits = line(repository, 6)
    repository.prune(down_to=commits[2], branches="main", expire=timedelta(0))
    repository.prune(down_to=commits[4], branches="main", expire=timedelta(0))
    store.delete(object_key(commits[2].address))  # as gc does, before it drops the end of history
    repository = Repository(Counting(store))  # has none of the commits in memory
    assert not repository.prune(down_to=commits[2], branches="main", expire=timedelta(0)).removed
    assert ids(repository.log("main")) == ids(reversed(commits[4:]))
    with pytest.raises(UnknownRevisionError):
        repository.prune(down_to=commits[2].id, branches="main")


# In every reading function


@pytest.fixture(params=["before gc", "after gc", "in another repository", "in one that was open"])
def cut(request: pytest.FixtureRequest) -> tuple[Repository, list[Commit]]:
    """A hundred rounds on main, cut to the last ten: read before and after the rest was collected, and by others."""
    store = Memory()
    repository = Repository(store, clock=Clock())
    commits = line(repository, 100)
    open_already = Repository(store)
    assert ids(open_already.log()) == ids(reversed(commits))
    report = prune(repository.database, keep_last=10)
    assert (report.kept, report.removed, report.dry_run) == (10, 90, False)
    assert [(each.branch, each.at, each.kept) for each in report.branches] == [("main", commits[90], 10)]
    if request.param != "before gc":
        assert collect(repository) == 90
    if request.param == "in another repository":
        repository = Repository(store)
    if request.param == "in one that was open":
        open_already.database.forget()
        repository = open_already
    return repository, commits


def test_the_log_ends_there(cut):
    repository, commits = cut
    assert ids(repository.log()) == ids(reversed(commits[90:]))
    assert ids(repository.log(first_parent=True)) == ids(reversed(commits[90:]))
    assert ids(repository.log(include_root=True)) == ids(reversed(commits[90:]))
    assert [commit.shallow for commit in repository.log()] == [False] * 9 + [True]
    assert repository.parents(commits[91]) == [commits[90]]
    list(repository.log())
    assert repository.parents(repository.commit(commits[90])) == []


def test_revisions_beyond_it_say_so(cut):
    repository, commits = cut
    assert repository.commit("main~9") == commits[90]
    for n in (10, 50, 99, 100):
        with pytest.raises(UnknownRevisionError, match=f"older history was pruned: it ends at {commits[90].short}"):
            repository.commit(f"main~{n}")
    with pytest.raises(UnknownRevisionError, match="older history was pruned"):
        repository.commit("main~9^")
    with pytest.raises(UnknownRevisionError, match="older history was pruned"):
        graph.ancestor_at(repository.commit("main"), 5, repository.database.commits.read)


def test_the_reflog_ends_there(cut):
    repository, commits = cut
    assert [position.commit.id for position in repository.reflog("main")] == ids(reversed(commits[90:]))
    assert repository.commit("main@{9}") == commits[90]
    with pytest.raises(UnknownRevisionError):
        repository.commit("main@{10}")


def test_ancestry_ends_there(cut):
    repository, commits = cut
    head = repository.commit("main")
    for old in commits[90:]:
        assert graph.is_ancestor(old, head, repository.database.commits.read)
    if SHALLOW in repository.store and len(repository.database.commits.shallow):
        for old in commits[:90]:
            assert not graph.is_ancestor(old, head, repository.database.commits.read)


def test_what_goes_on_from_there_is_history_as_ever(cut):
    repository, commits = cut
    more = line(repository, 70)
    assert ids(repository.log()) == ids(reversed([*commits[90:], *more]))
    for n in range(80):
        assert repository.commit(f"main~{n}") == [*commits[90:], *more][-1 - n]
    with pytest.raises(UnknownRevisionError, match="older history was pruned"):
        repository.commit("main~80")
    assert repository.merge_base(commits[95], more[3]) == commits[95]
    assert repository.snapshot("main~75").copy() == {"n": 94}
    repository.branches.create("other", commits[92])
    assert repository.merge_base("main", "other") == commits[92]


def test_two_branches_whose_base_was_cut_are_not_merged_over_the_empty_state():
    repository = Repository(Memory(), clock=Clock())
    base = line(repository, 20)[-1]
    repository.branches.create("side")
    ours, theirs = line(repository, 30)[-1], line(repository, 30, branch="side")[-1]
    assert repository.merge_base("main", "side") == base
    prune(repository.database, keep_last=5)
    assert (
        next(
            graph.iter_merge_bases(
                repository.commit(ours), repository.commit(theirs), repository.database.commits.read
            ),
            None,
        )
        is None
    )
    with pytest.raises(UnknownRevisionError, match="older history was pruned"):
        repository.merge_base("main", "side")


def test_finding_an_ancestor_above_a_cut_stays_a_matter_of_few_reads():
    store = Counting(Memory())
    repository = Repository(store, clock=Clock())
    state = Versioned(repository)
    for _ in range(600):
        state.commit(allow_empty=True)
    prune(repository.database, keep_last=300)
    collect(repository)
    for _ in range(500):
        state.commit(allow_empty=True)
    for count in (1, 10, 400, 777, 799):
        fresh = Repository(store)
        store.reset()
        assert fresh.commit(f"main~{count}").height == 1100 - count
        assert store.counts.round_trips <= 70
        with pytest.raises(UnknownRevisionError):
            fresh.commit("main~800")


# What stays


def test_another_branch_keeps_everything_before_it_whole():
    repository = Repository(Memory(), clock=Clock())
    old = line(repository, 30)
    repository.branches.create("keep", old[14])
    report = prune(repository.database, keep_last=5, branches="main")
    assert (report.kept, report.removed) == (20, 10)
    assert collect(repository) == 10
    assert ids(repository.log("keep")) == ids(reversed(old[:15]))
    assert ids(repository.log("main")) == ids(reversed(old[25:]))


def test_a_branch_that_reaches_the_cut_itself_keeps_it_from_being_made():
    repository = Repository(Memory(), clock=Clock())
    old = line(repository, 30)
    repository.branches.create("keep", old[27])
    report = prune(repository.database, keep_last=5, branches="main")
    assert (report.branches, report.removed) == ((), 0)
    assert ids(repository.log("main")) == ids(reversed(old))


@pytest.mark.parametrize("keep_tagged", [True, False])
def test_tags(keep_tagged):
    repository = Repository(Memory(), clock=Clock())
    old = line(repository, 30)
    repository.tags.create("v1", old[9])
    repository.tags.create("v2", old[27])
    repository.branches.create("apart", ROOT_ID)
    apart = line(repository, 10, branch="apart")
    repository.tags.create("v3", apart[4])
    report = prune(repository.database, keep_last=5, branches="main", keep_tagged=keep_tagged, expire=timedelta(0))
    assert ids(repository.log("v3")) == ids(reversed(apart[:5]))
    assert repository.snapshot("v1").copy() == {"n": 9}
    if keep_tagged:
        assert report.removed == 0  # v2 reaches all of it
        assert ids(repository.log("v1")) == ids(reversed(old[:10]))
    else:
        assert report.removed == 30 - 5 - 1
        assert ids(repository.log("v1")) == [old[9].id]
        assert ids(repository.log("main")) == ids(reversed(old[25:]))
        assert ids(repository.log("v2")) == ids(reversed(old[25:28]))


def test_a_reflog_keeps_what_it_names_until_it_expires():
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    line(repository, 10)
    repository.branches.create("gone")
    lost = line(repository, 10, branch="gone")
    repository.branches.delete("gone", force=True)
    assert prune(repository.database, keep_last=2).removed == 0
    assert ids(repository.log(lost[-1]))[:10] == ids(reversed(lost))
    clock.now += 10_000_000
    report = prune(repository.database, keep_last=2, expire=timedelta(seconds=5))
    assert report.removed == 8


def test_rounds_that_are_young_enough_stay():
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    commits = line(repository, 20)  # a second apart
    report = prune(
        repository.database, older_than=timedelta(microseconds=clock.now + 1_000_000 - commits[12].time), keep_last=3
    )
    assert ids(repository.log()) == ids(reversed(commits[12:]))
    assert report.kept == 8
    assert prune(repository.database, older_than=timedelta(0)).kept == 1


def test_what_was_merged_in_stays_as_far_back_as_the_rounds_go():
    repository = Repository(Memory(), clock=Clock())
    old = line(repository, 20)
    repository.branches.create("side", old[17])
    side = line(repository, 3, branch="side")
    staging = Staging(repository.database.objects)
    merged = repository.database.write_commit(old[-1].tree, (old[-1], side[-1]), staging=staging, message="merge")
    assert repository.database.publish([Publication(repository.database.ref("branch", "main"), merged, staging)])
    repository.branches.delete("side", force=True)
    prune(repository.database, keep_last=2, expire=timedelta(0))
    # 20, the floor, is of generation 20; the side's commits are 19 to 21.
    assert set(ids(repository.log())) == {merged.id, side[2].id, old[19].id}
    assert [
        commit.shallow for commit in (repository.commit(side[2]), repository.commit(old[19]), repository.commit(merged))
    ] == [
        True,
        True,
        False,
    ]


def test_a_dry_run_changes_nothing():
    repository = Repository(Memory(), clock=Clock())
    commits = line(repository, 20)
    dry = prune(repository.database, keep_last=5, dry_run=True)
    assert SHALLOW not in repository.store
    assert ids(repository.log()) == ids(reversed(commits))
    wet = prune(repository.database, keep_last=5)
    assert (dry.branches, dry.kept, dry.removed, dry.dry_run) == (wet.branches, wet.kept, wet.removed, True)


def test_pruning_again_takes_what_came_since():
    repository = Repository(Memory(), clock=Clock())
    line(repository, 20)
    assert prune(repository.database, keep_last=5).removed == 15
    assert prune(repository.database, keep_last=5).removed == 0
    collect(repository)
    line(repository, 20)
    assert prune(repository.database, keep_last=5).removed == 20
    collect(repository)
    assert len(list(repository.log())) == 5
    line(repository, 20)
    assert prune(repository.database, keep_last=5).removed == 20
    repository.gc(expire=timedelta(0))
    assert len(repository.database.commits.shallow) == 1  # those of commits that were collected are gone


@pytest.mark.parametrize("options", [{}, {"keep_last": 0}, {"keep_last": -1}, {"older_than": timedelta(-1)}])
def test_a_retention_that_makes_no_sense_is_refused(options):
    with pytest.raises(InvalidArgumentError):
        prune(Repository(Memory()).database, **options)


def test_branches_are_chosen_by_pattern():
    repository = Repository(Memory(), clock=Clock())
    for name in ("main", "user/a", "user/b", "other"):
        repository.branches.create(name, ROOT_ID)
        line(repository, 10, branch=name)
    prune(repository.database, keep_last=2, branches=["user/*", "oth?r"])
    assert [len(list(repository.log(name))) for name in ("main", "user/a", "user/b", "other")] == [10, 2, 2, 2]


# The record


def test_a_damaged_record_is_an_error_and_no_history_without_cuts():
    store = Memory()
    repository = Repository(store, clock=Clock())
    line(repository, 20)
    prune(repository.database, keep_last=5)
    stored = store.get(SHALLOW)
    assert stored is not None
    for index in range(len(stored)):
        store.set(SHALLOW, stored[:index] + bytes((stored[index] ^ 1,)) + stored[index + 1 :])
        with pytest.raises(CorruptRefError):
            Repository(store)
    store.set(SHALLOW, b"")
    with pytest.raises(CorruptRefError):
        Repository(store)


def test_two_that_prune_at_once_both_have_their_way():
    store = Memory()
    first, second = Repository(store, clock=Clock()), Repository(store, clock=Clock())
    a, b = line(first, 20, branch="a"), line(first, 20, branch="b")

    class Meddling(Counting):
        """The other one prunes between the plan and its publication."""

        done = False

        def apply(self, expected, puts, deletes=(), *, objects=None):
            if not self.done and SHALLOW in puts:
                self.done = True
                prune(second.database, keep_last=3, branches="b")
            return super().apply(expected, puts, deletes, objects=objects)

    swap_store(first, Meddling(store))
    prune(first.database, keep_last=4, branches="a")
    for repository in (first, Repository(store)):
        assert ids(repository.log("a")) == ids(reversed(a[-4:]))
        assert ids(repository.log("b")) == ids(reversed(b[-3:]))


def test_one_that_is_always_overtaken_gives_up():
    store = Memory()
    repository = Repository(store, clock=Clock())
    line(repository, 20)

    class Overtaken(Counting):
        def apply(self, expected, puts, deletes=(), *, objects=None):
            return False

    swap_store(repository, Overtaken(store))
    with pytest.raises(StoreBusyError):
        prune(repository.database, keep_last=4)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_it_may_fail_anywhere_and_be_run_again(fault: Fault):
    for k in itertools.count(1):
        store = Memory()
        commits = line(Repository(store, clock=Clock()), 12)
        faulty = Faulty(store)
        repository = Repository(faulty, clock=Clock())
        faulty.arm(k, fault=fault)
        try:
            prune(repository.database, keep_last=5)
        except InjectedFaultError:
            assert len(list(Repository(store).log())) in (5, 12)
            prune(repository.database, keep_last=5)
        assert ids(Repository(store).log()) == ids(reversed(commits[-5:]))
        if not faulty.fired:
            return


# Against a naive model


def reach(parents: dict[str, list[str]], starts: list[str]) -> set[str]:
    seen: set[str] = set()
    pending = list(starts)
    while pending:
        id = pending.pop()
        if id not in seen:
            seen.add(id)
            pending += parents[id]
    return seen


@given(
    seed=st.integers(0, 2**32), keep=st.integers(1, 12), merges=st.sampled_from([0, 0.2, 0.5]), rounds=st.integers(1, 3)
)
def test_against_a_naive_model(seed: int, keep: int, merges: float, rounds: int):
    rng = random.Random(seed)
    store: KVStore = Memory()
    repository = Repository(store, clock=Clock())
    commits = make_graph(repository, 40, merges=merges, seed=seed)
    parents = {commit.id: list(commit.parents) for commit in commits}
    heads = {}
    for name in ("a", "b", "kept"):
        heads[name] = rng.choice(commits)
        repository.branches.create(name, heads[name])
    tag = rng.choice(commits)
    repository.tags.create("t", tag)
    for name in rng.sample(["a", "b"], rounds % 3):
        prune(repository.database, keep_last=rng.randint(keep, 15), branches=name, expire=timedelta(0))
        collect(repository)
    prune(repository.database, keep_last=keep, branches=["a", "b"], expire=timedelta(0))
    before = {commit.id: ids(repository.log(commit)) for commit in (heads["a"], heads["b"], heads["kept"], tag)}
    collect(Repository(store))
    repository = Repository(store, clock=Clock())
    assert repository.fsck().findings == ()

    whole = reach(parents, [heads["kept"].id, tag.id])
    for commit in (heads["kept"], tag):
        assert set(ids(repository.log(commit, include_root=True))) == reach(parents, [commit.id])
    for name in ("a", "b"):
        head = heads[name]
        assert ids(repository.log(name)) == before[head.id]
        rounds_left = list(repository.log(name, first_parent=True))
        naive = [head.id]
        while parents[naive[-1]]:
            naive.append(parents[naive[-1]][0])
        naive = naive[:-1]
        # At least what was asked for is there, in its order; beyond it only what somebody else keeps.
        assert ids(rounds_left)[:keep] == naive[:keep]
        assert ids(rounds_left) == naive[: len(rounds_left)]
        others = whole | reach(parents, [heads["b" if name == "a" else "a"].id])
        assert all(commit.id in others for commit in rounds_left[keep:])
        for commit in repository.log(name):
            assert repository.database.commits.read_stored(commit.address).parents == tuple(parents[commit.id])
            for parent in commit.parents:
                assert parent in parents[commit.id]
            assert all(earlier in repository.log(name, include_root=True) for earlier in repository.parents(commit))
        for count in range(len(rounds_left)):
            assert repository.commit(f"{name}~{count}") == rounds_left[count]
        if rounds_left and rounds_left[-1].shallow:
            with pytest.raises(UnknownRevisionError):
                repository.commit(f"{name}~{len(rounds_left)}")
    # Naive ancestry and merge bases over what is left.
    left = {id: list(repository.commit(id).parents) for id in {*before[heads["a"].id], *before[heads["b"].id], ROOT_ID}}
    some = [repository.commit(id) for id in left]
    for _ in range(30):
        x, y = rng.choice(some), rng.choice(some)
        over_x, over_y = reach(left, [x.id]), reach(left, [y.id])
        assert graph.is_ancestor(x, y, repository.database.commits.read) == (x.id in over_y)
        base = next(graph.iter_merge_bases(x, y, repository.database.commits.read), None)
        common = over_x & over_y
        best = {id for id in common if not any(other != id and id in reach(left, [other]) for other in common)}
        assert (base is None and not best) or (base is not None and base.id in best)


# A repository that was open while another one cut and collected


MOVES = {
    "reset": lambda state: state.reset("HEAD~15"),
    "rollback": lambda state: state.rollback(15),
    "undo": lambda state: state.undo(15),
    "squash": lambda state: state.squash("HEAD~15"),
    "fork": lambda state: state.fork("old", at="HEAD~15"),
    "branch": lambda state: state.repository.branches.create("old", "main~15"),
    "tag": lambda state: state.repository.tags.create("old", "main~15"),
}


@pytest.mark.parametrize("rounds_since", [0, 3])
@pytest.mark.parametrize("move", MOVES)
def test_no_ref_is_moved_to_what_another_process_collected(move, rounds_since):
    store = Memory()
    state = Versioned(store)
    for n in range(20):
        state["n"] = [n] * 300
        state.commit(str(n))
    assert len(list(state.log())) == 20  # what was read is kept in memory
    Repository(store).prune(keep_last=3, gc=True)
    for n in range(rounds_since):
        state["m"] = n
        state.commit(f"since {n}")
    with pytest.raises((MissingObjectError, UnknownRevisionError)):
        MOVES[move](state)
    fresh = Repository(store)
    assert fresh.fsck().ok
    assert fresh.snapshot("main")["n"] == [19] * 300
    assert "old" not in {*fresh.branches, *fresh.tags}


def test_what_was_cut_under_a_handle_is_no_revision_of_its():
    state = Versioned()
    numbered(state, range(6))
    state.repository.prune(keep_last=1, gc=True)
    for ask in (state.checkout, state.reset, state.repository.commit):
        with pytest.raises(UnknownRevisionError, match="pruned"):
            ask("HEAD~1")


def test_entries_that_gc_took_for_expired_keep_nothing():
    repository = Repository(Memory(), clock=Clock())
    line(repository, 5)
    Versioned(repository).reset("HEAD~1")
    repository.gc(expire=timedelta(0))
    report = repository.prune(keep_last=1, dry_run=True)
    assert report.removed == Repository(repository.store).prune(keep_last=1, dry_run=True).removed > 0


def test_a_gc_of_another_process_may_have_taken_entries_for_expired_meanwhile():
    """The reflog names a commit that this process still has in its cache, without the parent."""
    store, clock = Memory(), Clock()
    first = Repository(store, clock=clock)
    line(first, 4)
    first.tags.create("first", "main~3")
    left = line(first, 3, branch="side")[-1]
    first.gc(expire=timedelta(0))
    other = Repository(Cache(store), clock=clock)
    assert next(iter(other.log("side"))) == left
    Versioned(first, branch="side").reset("side~2")
    first.gc(expire=timedelta(0))
    assert object_key(left.address) not in store
    assert other.prune(keep_last=1, branches="main", keep_tagged=False).removed > 0


@pytest.mark.parametrize(("rounds", "keep"), [(9, 1), (12, 2), (20, 3), (30, 5)])
def test_short_jumps_made_above_a_cut_are_in_order(rounds, keep):
    store = Memory()
    line(Repository(store), rounds)
    Repository(store).prune(keep_last=keep, gc=True)
    state = Versioned(store)
    for n in range(40):
        state["n"] = -n
        state.commit()
    assert state.repository.fsck().findings == ()
    for count in range(40 + keep):
        assert state.repository.commit(f"main~{count}").height == rounds + 40 - count
