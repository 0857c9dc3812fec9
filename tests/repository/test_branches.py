"""Branches and tags: what deleting refuses, renaming keeps, tags say, and what each of it costs."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial

import pytest

from tests.support.histories import Clock, ancestors, make_graph
from tests.support.outage import Outage
from versioned_state import Commit, KVStore, Memory, Repository, Versioned
from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    LimitExceededError,
    MissingObjectError,
    RefExistsError,
    StorageError,
    UnknownRevisionError,
    UnmergedBranchError,
)
from versioned_state.objects.keys import address_in, ref_key
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.storage import Counting, Fault, Wrapper
from versioned_state.storage.testing.writers import run_together


def rounds(repository: Repository, branch: str, *messages: str) -> Commit:
    """Make a commit on a branch for each message. Return the last one."""
    state = Versioned(repository, branch=branch)
    for message in messages:
        state[f"{branch} {message}"] = message
        state.commit(message)
    return state.head


@pytest.fixture
def repository() -> Repository:
    """``main`` has m0 to m4, ``side`` s0 and s1 on top of m2, and ``gone`` the same commit as ``main~1``."""
    repository = Repository(Memory(), clock=Clock(), author="agent")
    rounds(repository, "main", *(f"m{n}" for n in range(5)))
    repository.branches.create("side", "main~2")
    rounds(repository, "side", "s0", "s1")
    repository.branches.create("gone", "main~1")
    return repository


def moves(repository: Repository, name: str) -> list[tuple[str, str | None]]:
    return [(p.action, None if p.commit is None else p.commit.message) for p in repository.reflog(name)]


class Busy(Wrapper):
    """A store in which others are at work: ``meanwhile(n)`` is called before the n-th batch that moves a ref."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.meanwhile: Callable[[int], object] = lambda _: None
        self._batches = 0

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        assert self.max_expected is None or len(expected) <= self.max_expected
        if any(key.startswith("ref/") for key in puts):
            self._batches += 1
            self.meanwhile(self._batches)
        return self.store.apply(expected, puts, deletes, objects=objects)


class OneCondition(Busy):
    """The same, which carries one condition a batch, as S3 does."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.max_expected = 1


# Deleting


def test_a_branch_that_nothing_else_leads_to_is_not_deleted(repository):
    head = repository.branches["side"]
    with pytest.raises(UnmergedBranchError, match="it was not deleted") as caught:
        repository.branches.delete("side")
    assert (caught.value.branch, caught.value.head) == ("side", head.id)
    assert repository.branches["side"] == head
    assert repository.branches.delete("side", force=True) == head
    assert "side" not in repository.branches


def test_a_dry_run_says_what_a_deletion_does(repository):
    head = repository.branches["main"]
    repository.branches.create("merged", "main~1")
    with pytest.raises(UnmergedBranchError):
        repository.branches.delete("main", dry_run=True)
    with pytest.raises(UnknownRevisionError):
        repository.branches.delete("nope", dry_run=True)
    assert repository.branches.delete("main", force=True, dry_run=True) == head
    assert repository.branches.delete("merged", dry_run=True).id == head.parents[0]
    assert {"main", "merged"} <= set(repository.branches)


def test_a_branch_that_something_leads_to_is_deleted(repository):
    assert repository.branches.delete("gone").message == "m3"
    repository.branches.create("copy", "side")
    repository.branches.delete("copy")
    repository.tags.create("kept", "side")
    repository.branches.delete("side")
    assert list(repository.branches) == ["main"]


def test_a_branch_that_was_merged_is_deleted(repository):
    state = Versioned(repository)
    state.merge("side")
    rounds(repository, "main", "m5", "m6")
    assert repository.branches.delete("side").message == "s1"


def test_the_last_branch_is_deleted_by_force_only():
    repository = Repository(Memory())
    head = rounds(repository, "main", "one")
    with pytest.raises(UnmergedBranchError):
        repository.branches.delete("main")
    repository.branches.delete("main", force=True)
    repository.branches.create("main", "main@{1}")
    assert repository.branches["main"] == head


def test_deleted_branches_are_listed_and_come_back(repository):
    head = repository.branches.delete("side", force=True)
    repository.branches.delete("gone")
    assert list(repository.branches.deleted()) == ["gone", "side"]
    with pytest.raises(UnknownRevisionError, match="it was deleted") as caught:
        repository.branches.delete("side")
    assert (caught.value.deleted, "create('side', at='side@{1}')" in caught.value.hint) == ("branch", True)
    assert repository.branches.create("side", "side@{1}") == head
    assert list(repository.branches.deleted()) == ["gone"]
    assert moves(repository, "side")[:3] == [("create", "s1"), ("delete", None), ("commit", "s1")]
    assert list(repository.tags.deleted()) == []


def test_deleting_what_main_has_does_not_look_at_other_branches():
    store = Memory()
    commits = make_graph(Repository(store), 1500, merges=0, seed=1)
    line = list(graph.first_parents(commits[-1], Repository(store).database.commits.read))
    repository = Repository(store)
    repository.branches.create("main", line[0])
    for n in range(100):
        repository.branches.create(f"b{n}", commits[-n - 1])
    repository.branches.create("old", line[-40])
    counting = Counting(store)
    Repository(counting).branches.delete("old")
    assert counting.counts.objects_read < 80, counting.counts


# Renaming


def test_a_branch_takes_its_reflog_along(repository):
    Versioned(repository, branch="side").reset("side~1")
    before = moves(repository, "side")
    assert repository.branches.rename("side", "what/if").message == "s0"
    assert sorted(repository.branches) == ["gone", "main", "what/if"]
    assert moves(repository, "what/if") == before
    assert repository.commit("what/if@{1}").message == "s1"
    assert moves(repository, "side") == [("rename to what/if", None), *before]
    assert list(repository.branches.deleted()) == ["side"]
    rounds(repository, "what/if", "s2")
    assert repository.fsck().ok


def test_a_rename_is_no_move_that_undo_would_stop_at(repository):
    repository.branches.rename("side", "other")
    state = Versioned(repository, branch="other")
    assert [state.undo().message for _ in range(2)] == ["s0", "m2"]


def test_main_can_be_renamed(repository):
    state = Versioned(repository)
    repository.branches.rename("main", "trunk")
    state["n"] = 1
    with pytest.raises(BranchMovedError, match="found nothing"):
        state.commit()
    state.discard()
    state.switch("trunk")
    state["n"] = 1
    assert state.commit().parents == (repository.commit("trunk~1").id,)


def test_a_name_that_is_taken_or_bad_is_refused(repository):
    before = {name: moves(repository, name) for name in ("main", "side", "gone")}
    for old, new, error in (
        ("side", "main", RefExistsError),
        ("side", "side", RefExistsError),
        ("nothing", "new", UnknownRevisionError),
        ("side", "a b", InvalidArgumentError),
        ("side", "HEAD", InvalidArgumentError),
    ):
        with pytest.raises(error):
            repository.branches.rename(old, new)
    assert {name: moves(repository, name) for name in ("main", "side", "gone")} == before
    assert list(repository.branches) == ["gone", "main", "side"]


CONTROLS = [
    "x\x85y",
    "\x9b31m",
    "\x80",
    "a\u2028b",
    "a\u2029b",
    "a\u202eb",
    "a\u202ab",
    "\u2066a\u2069",
    "\x07",
    "\x7f",
]


@pytest.mark.parametrize("name", CONTROLS)
def test_a_name_has_no_character_that_drives_a_terminal(repository, name):
    for make in (
        lambda: repository.branches.create(name),
        lambda: repository.branches.rename("side", name),
        lambda: repository.tags.create(name),
        lambda: Versioned(repository).fork(name),
        lambda: Versioned(repository).switch(name, create=True),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            make()
        assert "direction of text" in caught.value.hint
        assert name not in str(caught.value)
    assert list(repository.branches) == ["gone", "main", "side"]
    assert not repository.tags


@pytest.mark.parametrize("name", [name for name in CONTROLS if name > "\x80"])
def test_what_has_such_a_name_is_read_renamed_and_deleted(repository, name):
    head = repository.commit("side")
    for kind in ("branch", "tag"):
        assert repository.database.move(repository.database.ref(kind, name), head, action="create") is not None
    assert (
        repository.branches[name]
        == repository.tags[name]
        == repository.commit(name)
        == repository.commit(f"{name}@{{0}}")
        == head
    )
    assert name in {info.name for info in repository.branches.compare()}
    assert [commit.message for commit in repository.log(f"main..{name}")] == ["s1", "s0"]
    assert repository.tags.delete(name) == head
    assert repository.branches.rename(name, "plain") == head
    assert repository.database.move(repository.database.ref("branch", name), head, action="create") is not None
    assert repository.branches.delete(name) == head
    assert list(repository.branches) == ["gone", "main", "plain", "side"]


@pytest.mark.parametrize("name", ["é", "名前", "a\xa0b", "🙂", "user/1", "a.b-c_d"])
def test_other_letters_make_a_name(repository, name):
    assert repository.branches.create(name) == repository.commit(name)


def test_a_name_may_begin_with_another_and_a_slash(repository):
    repository.branches.create("side/one")
    repository.branches.create("side/one/two")
    assert list(repository.branches) == ["gone", "main", "side", "side/one", "side/one/two"]
    assert repository.branches["side"].message == "s1"


@pytest.mark.parametrize("wrap", [lambda store: store, OneCondition], ids=["at once", "in two steps"])
def test_what_was_deleted_under_the_new_name_is_kept_under_the_old_one(repository, wrap):
    rounds(repository, "gone", "g0")
    repository.branches.delete("gone", force=True)
    past = moves(repository, "side")
    Repository(wrap(repository.store), clock=Clock(2_000_000_000_000_000)).branches.rename("side", "gone")
    assert moves(repository, "gone") == past
    assert moves(repository, "side")[:3] == [("rename to gone", None), ("delete", None), ("commit", "g0")]
    assert repository.commit("side@{2}").message == "g0"
    for look_up in (repository.commit, repository.branches.__getitem__):
        with pytest.raises(UnknownRevisionError, match="deleted") as caught:
            look_up("side")
        assert (caught.value.deleted, "brings it back" in caught.value.hint) == ("", False), "side@{1} is no commit"
    repository.gc()
    assert repository.commit("side@{2}").message == "g0"
    assert repository.fsck().ok


def test_what_is_committed_while_a_branch_is_renamed_goes_along(repository):
    busy = Busy(repository.store)
    busy.meanwhile = lambda batch: batch == 1 and rounds(repository, "side", "meanwhile")
    assert Repository(busy).branches.rename("side", "other").message == "meanwhile"
    assert list(repository.branches) == ["gone", "main", "other"]


def test_a_name_that_is_taken_while_a_branch_is_renamed_stays_with_its_taker(repository):
    busy = Busy(repository.store)
    busy.meanwhile = lambda batch: batch == 1 and rounds(repository, "other", "meanwhile")
    with pytest.raises(RefExistsError):
        Repository(busy).branches.rename("side", "other")
    assert [repository.branches[name].message for name in ("side", "other")] == ["s1", "meanwhile"]


class DeletedBetween(Wrapper):
    """A store in which others delete a branch after each time that it was read."""

    def __init__(self, repository: Repository, branch: str) -> None:
        super().__init__(repository.store)
        self._repository, self._branch = repository, branch

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        found = self.store.get_many(wanted)
        if ref_key("branch", self._branch) in wanted and self._branch in self._repository.branches:
            self._repository.branches.delete(self._branch, force=True)
        return found


def test_a_branch_that_is_deleted_while_it_is_renamed_to_its_own_name_stays_deleted(repository):
    with pytest.raises(RefExistsError):
        Repository(DeletedBetween(repository, "side")).branches.rename("side", "side")
    assert "side" not in repository.branches
    assert repository.fsck().ok


def test_on_a_store_of_one_condition_nothing_that_is_committed_meanwhile_is_lost(repository):
    one = OneCondition(repository.store)
    one.meanwhile = lambda batch: batch in (2, 4) and rounds(repository, "side", f"meanwhile {batch}")
    Repository(one).branches.rename("side", "other")
    assert [commit.message for commit in repository.log("other", limit=3)] == ["meanwhile 4", "meanwhile 2", "s1"]
    assert "side" not in repository.branches


def test_on_a_store_of_one_condition_a_new_name_that_moves_on_is_left_to_its_mover(repository):
    def meanwhile(batch: int) -> None:
        if batch == 2:
            rounds(repository, "side", "on the old name")
            rounds(repository, "other", "on the new name")

    one = OneCondition(repository.store)
    one.meanwhile = meanwhile
    with pytest.raises(BranchMovedError) as caught:
        Repository(one).branches.rename("side", "other")
    assert caught.value.branch == "other"
    assert {name: repository.branches[name].message for name in ("side", "other")} == {
        "side": "on the old name",
        "other": "on the new name",
    }


@pytest.mark.parametrize("calls", [1, 4], ids=["once", "for a while"])
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_rename_that_fails_is_not_done_unless_the_reply_was_lost_and_the_same_call_finds_out(fault, calls):
    for call in itertools.count(1):
        store = Memory()
        plain = Repository(store)
        head = rounds(plain, "main", "one", "two")
        faulty = Outage(store, calls=calls)
        renaming = Repository(faulty)
        faulty.arm(call, fault=fault)
        try:
            renaming.branches.rename("main", "trunk")
        except StorageError:
            assert calls > 1 or list(plain.branches) == ["main"], call
            faulty.at = None
            assert renaming.branches.rename("main", "trunk") == head, call
        fired = faulty.fired
        assert list(plain.branches) == ["trunk"], call
        assert plain.branches["trunk"].message == "two"
        assert [p.commit.message for p in plain.reflog("trunk") if p.commit] == ["two", "one"]
        assert [p.action for p in plain.reflog("main")] == ["rename to trunk", "commit", "commit"]
        assert plain.fsck().ok
        if not fired:
            break
    assert call > 2


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_branch_that_is_brought_back_is_there_once_also_if_the_store_is_away_for_a_while(fault):
    """The same call finds out, though its revision has no commit once the branch is back."""
    for call in itertools.count(1):
        store = Memory()
        plain = Repository(store)
        head = rounds(plain, "side", "one", "two")
        plain.branches.delete("side", force=True)
        faulty = Outage(store, calls=4)
        creating = Repository(faulty)
        faulty.arm(call, fault=fault)
        try:
            creating.branches.create("side", "side@{1}")
        except StorageError:
            faulty.at = None
            assert creating.branches.create("side", "side@{1}") == head, call
        fired = faulty.fired
        assert [p.action for p in plain.reflog("side")] == ["create", "delete", "commit", "commit"], call
        if not fired:
            break
    assert call > 4


def test_a_rename_while_gc_is_at_work_loses_nothing(repository):
    other = Repository(repository.store)
    renamed: list[Commit] = []

    def progress(_looked: int, total: int | None) -> None:
        if total is None and not renamed:  # the refs were listed already
            renamed.append(other.branches.rename("side", "a"))

    repository.gc(progress=progress)
    assert repository.branches["a"] == renamed[0]
    assert moves(repository, "side")[0] == ("rename to a", None)
    assert repository.fsck().ok


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_done_to_names_every_commit_can_still_be_had(seed):
    rng = random.Random(seed)
    repository = Repository(Memory(), clock=Clock())
    names = ["main", "a", "b", "a/b"]
    heads: dict[str, str] = {}
    made: list[str] = []
    for n in range(60):
        name, other = rng.choice(names), rng.choice(names)
        live = name in heads
        match rng.choice(["commit", "commit", "create", "delete", "rename", "reset", "gc"]):
            case "commit":
                heads[name] = rounds(repository, name, f"round {n}").id
                made.append(heads[name])
            case "create" if made and not live:
                heads[name] = repository.branches.create(name, rng.choice(made)).id
            case "delete" if live:
                repository.branches.delete(name, force=True)
                del heads[name]
            case "rename" if live and other not in heads:
                repository.branches.rename(name, other)
                heads[other] = heads.pop(name)
            case "reset" if live:
                heads[name] = Versioned(repository, branch=name).reset(rng.choice(made)).id
            case "gc":
                repository.gc()
        assert {branch: head.id for branch, head in repository.branches.items()} == heads
    repository.gc()
    for id in made:
        assert dict(repository.snapshot(id))
    for name in names:
        list(repository.reflog(name))
    assert repository.fsck().ok
    repository.gc(expire=timedelta(0))
    repository.database.forget()
    kept = set().union(*(ancestors(repository, head) for head in repository.branches.values()))
    for id in set(made) - kept:
        with pytest.raises(MissingObjectError):
            repository.database.commits.read(address_in("o/" + id))


# Listing


def test_branches_are_listed_with_what_they_are_ahead_and_behind(repository):
    assert [
        (info.name, info.head.message, info.base, info.ahead, info.behind) for info in repository.branches.compare()
    ] == [
        ("gone", "m3", "main", 0, 1),
        ("main", "m4", "main", 0, 0),
        ("side", "s1", "main", 2, 2),
    ]
    assert [(info.name, info.base, info.ahead, info.behind) for info in repository.branches.compare("side~1")] == [
        ("gone", "side~1", 1, 1),
        ("main", "side~1", 2, 1),
        ("side", "side~1", 1, 0),
    ]
    with pytest.raises(UnknownRevisionError):
        next(repository.branches.compare("nothing"))


def test_without_a_default_branch_there_is_nothing_to_compare_with(repository):
    repository.branches.rename("main", "trunk")
    assert [(info.name, info.base, info.ahead, info.behind) for info in repository.branches.compare()] == [
        (name, None, None, None) for name in ("gone", "side", "trunk")
    ]


@pytest.mark.parametrize("seed", range(4))
def test_ahead_and_behind_are_what_naive_sets_say(seed):
    repository = Repository(Memory())
    commits = make_graph(repository, 80, merges=0.3, seed=seed)
    rng = random.Random(seed)
    for _ in range(60):
        a, b = rng.choice(commits), rng.choice(commits)
        ours, theirs = ancestors(repository, a) - {ROOT_ID}, ancestors(repository, b) - {ROOT_ID}
        assert graph.ahead_behind([a], b, repository.database.commits.read) == [
            (len(ours - theirs), len(theirs - ours))
        ]
        only = list(graph.only_in(a, [b], repository.database.commits.read))
        assert {commit.id for commit in only} - {ROOT_ID} == ours - theirs
        places = {commit.id: place for place, commit in enumerate(only)}
        assert all(places[commit.id] < places[id] for commit in only for id in commit.parents if id in places)
    heads = rng.choices(commits, k=30)
    sets = [ancestors(repository, head) - {ROOT_ID} for head in heads]
    assert graph.ahead_behind(heads, b, repository.database.commits.read) == [
        (len(each - theirs), len(theirs - each)) for each in sets
    ]
    assert graph.ahead_behind([], b, repository.database.commits.read) == []


def test_where_history_was_cut_the_rest_is_compared(repository):
    repository.branches.delete("gone")
    repository.prune(keep_last=1, branches="main", expire=timedelta(0))
    infos = {info.name: (info.ahead, info.behind) for info in repository.branches.compare()}
    assert infos == {"main": (0, 0), "side": (5, 1)}


def test_what_two_branches_share_is_not_read():
    store = Memory()
    repository = Repository(store)
    commits = make_graph(repository, 1500, merges=0, seed=2)
    tip = max(commits, key=lambda commit: commit.height)
    repository.branches.create("main", tip)
    repository.branches.create("side", f"{tip.id}~3")
    rounds(repository, "side", "one", "two")
    counting = Counting(store)
    [info] = [info for info in Repository(counting).branches.compare() if info.name == "side"]
    assert (info.ahead, info.behind) == (2, 3)
    assert counting.counts.objects_read < 30, counting.counts


# Tags


def test_a_tag_says_why_by_whom_and_when(repository):
    before = repository.database.clock()
    assert repository.tags.create("v1", "main~1", message="the good one\n\nas evaluated", author="me").message == "m3"
    repository.tags.create("v2", message="by the repository's author")
    repository.tags.create("plain")
    annotation = repository.tags.annotation("v1")
    assert (annotation.message, annotation.author) == ("the good one\n\nas evaluated", "me")
    assert annotation.time > before
    assert repository.tags.annotation("v2").author == "agent"
    assert repository.tags.annotation("plain") is None
    assert [
        (info.name, info.head.message, info.annotation and info.annotation.message)
        for info in repository.tags.iter_info()
    ] == [
        ("plain", "m4", None),
        ("v1", "m3", "the good one\n\nas evaluated"),
        ("v2", "m4", "by the repository's author"),
    ]
    with pytest.raises(UnknownRevisionError):
        repository.tags.annotation("v3")
    assert Repository(repository.store).tags.annotation("v1") == annotation


def test_a_tag_does_not_move(repository):
    repository.tags.create("v1", "main~1", message="first")
    with pytest.raises(RefExistsError):
        repository.tags.create("v1", "main", message="second")
    assert (repository.tags["v1"].message, repository.tags.annotation("v1").message) == ("m3", "first")


def test_a_tag_that_is_made_again_says_what_is_new(repository):
    repository.tags.create("v1", "main~1", message="first")
    repository.tags.delete("v1")
    with pytest.raises(UnknownRevisionError):
        repository.tags.annotation("v1")
    assert list(repository.tags.deleted()) == ["v1"]
    repository.tags.create("v1", "main")
    assert repository.tags.annotation("v1") is None
    repository.tags.delete("v1")
    repository.tags.create("v1", "v1@{3}", message="again")
    assert (repository.tags["v1"].message, repository.tags.annotation("v1").message) == ("m3", "again")
    assert [p.action for p in repository.reflog("v1", kind="tag")] == [
        "tag: again",
        "delete",
        "create",
        "delete",
        "tag: first",
    ]


def test_what_a_tag_says_does_not_expire(repository):
    repository.tags.create("v1", message="kept")
    for _ in range(2):
        repository.gc(expire=timedelta(0))
        assert repository.tags.annotation("v1").message == "kept"
    repository.prune(keep_last=1, expire=timedelta(0), gc=True)
    assert repository.tags.annotation("v1").message == "kept"
    assert repository.fsck().ok


@pytest.mark.parametrize("expired", [False, True])
def test_what_a_tag_says_survives_a_purge(repository, expired):
    repository.tags.create("v1", message="kept", author="me")
    if expired:
        repository.gc(expire=timedelta(0))
    before = repository.tags["v1"]
    repository.purge('["main m1"]')
    assert repository.tags["v1"] != before
    assert (repository.tags["v1"].message, repository.tags.annotation("v1").message) == ("m4", "kept")


@pytest.mark.parametrize("message", ["", " \n", b"bytes", 1])
def test_a_message_is_a_text_with_something_in_it(repository, message):
    with pytest.raises(InvalidArgumentError, match="message"):
        repository.tags.create("v1", message=message)
    assert "v1" not in repository.tags


def test_a_message_is_as_long_as_a_commits_and_takes_any_character(repository):
    repository.tags.create("v1", message="é" * 32_768)
    assert len(repository.tags.annotation("v1").message) == 32_768
    with pytest.raises(LimitExceededError):
        repository.tags.create("v2", message="é" * 32_768 + "x")
    repository.tags.create("v3", message="half \ud800 tag: of it")
    assert repository.tags.annotation("v3").message == "half \ud800 tag: of it"


@pytest.mark.parametrize("name", ["branches", "tags", "notes", "records"])
def test_threads_that_meet_at_the_first_use_get_one_object(name, monkeypatch):
    both = threading.Barrier(2)
    make = vars(Repository)[name]._make
    monkeypatch.setattr(vars(Repository)[name], "_make", lambda repository: (both.wait(5), make(repository))[1])
    repository = Repository()
    found = run_together([partial(getattr, repository, name)] * 2)
    assert found[0] is found[1] is getattr(repository, name)
