"""Searches with bounds: ``diff(deadline=)``, ``log(deadline=)``, ``branches.search``, and coroutines that read."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.views import bounds, lists
from versioned_state.storage import Counting


class Clock:
    """A clock that goes a second further at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(bounds, "time", clock)
    monkeypatch.setattr(lists, "time", clock)
    return clock


@pytest.fixture
def state() -> Versioned:
    state = Versioned(Counting(Memory()))
    for n in range(20):
        state.update({f"k{key:03}": key + n for key in range(50)}, n=n)
        if n % 5 == 0:
            state["rare"] = n
        state.commit(f"c{n}")
    return state


# diff


def test_a_diff_with_time_enough_is_whole(state):
    whole = state.diff("HEAD~1", "HEAD")
    assert whole.complete
    for diff in (state.diff("HEAD~1", "HEAD", deadline=1000), state.repository.diff("HEAD~1", "HEAD", deadline=1000.5)):
        assert list(map(str, diff)) == list(map(str, whole))
        assert diff.complete
        assert diff.deadline >= 1000


def test_a_late_diff_has_the_first_changes_and_says_so(state, clock):
    whole = list(map(str, state.diff("HEAD~1", "HEAD")))
    counts = set()
    for seconds in (0, 1, 5, 20):
        diff = Repository(state.repository.store).diff("main~1", "main", deadline=seconds)
        found = list(map(str, diff))
        assert found == whole[: len(found)]
        assert not diff.complete
        assert len(found) < len(whole)
        assert all(change.new == change.old + 1 for change in diff), "values are read without a deadline"
        counts.add(len(found))
    assert len(counts) > 2
    assert not state.diff("HEAD~1", deadline=2).complete
    state["k000"] = "x"
    assert str(state.diff("HEAD", deadline=50)[0].path) == "k000"


def test_a_diff_that_the_limit_ends_is_not_complete(state):
    assert not state.diff("HEAD~1", "HEAD", limit=3).complete
    assert state.diff("HEAD~1", "HEAD", limit=51).complete
    assert state.diff("HEAD", "HEAD", deadline=0).complete
    assert not state.diff("HEAD~1", "HEAD", deadline=1000, limit=3).under("k001").more


# log


def test_a_log_says_whether_it_was_ended(state):
    log = state.log(path="rare")
    assert [commit.message for commit in log] == ["c15", "c10", "c5", "c0"]
    assert log.complete
    log = state.log(path="rare", limit=2)
    assert [commit.message for commit in log] == ["c15", "c10"]
    assert not log.complete
    log = state.repository.log("main", deadline=1000)
    assert len(list(log)) == 20
    assert log.complete
    assert "c19" in log._repr_html_()
    assert not list(state.log(limit=0))
    log = state.log(limit=30)
    assert len(list(log)) == 20
    assert log.complete


def test_a_late_log_has_the_first_commits(state, clock):
    log = state.log(path="rare", deadline=7)
    assert [commit.message for commit in log] == ["c15"]
    assert not log.complete
    log = state.log(deadline=0)
    assert [commit.message for commit in log] == ["c19"], "one commit is examined at least"
    assert not log.complete


@pytest.mark.parametrize("deadline", [-1, "1", float("nan"), True])
def test_wrong_deadlines(state, deadline):
    for call in (lambda: state.log(deadline=deadline), lambda: state.diff("HEAD~1", "HEAD", deadline=deadline)):
        with pytest.raises(InvalidArgumentError):
            call()


def test_deadlines_by_the_real_clock(state):
    start = time.monotonic()
    assert not state.repository.diff("main~1", "main", deadline=0).complete
    assert not state.repository.diff("main~1", "main", deadline=0).more
    assert time.monotonic() - start < 60


# branches.search


@pytest.fixture
def branches() -> Repository:
    repository = Repository(Memory())
    with Versioned(repository) as state:
        state["n"] = 1
        head = state.commit()
    for name in ("Alice/1", "alice/2", "bob/1", "bob/alice", "x!y-z]", "straße"):
        repository.branches.create(name, head)
    return repository


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("alice", ["Alice/1", "alice/2", "bob/alice"]),
        ("ALICE/", ["Alice/1", "alice/2"]),
        ("/1", ["Alice/1", "bob/1"]),
        ("x!y-z]", ["x!y-z]"]),
        ("!", ["x!y-z]"]),
        ("-", ["x!y-z]"]),
        ("]", ["x!y-z]"]),
        ("*", []),
        ("[a-z]", []),
        ("?", []),
        ("STRAß", ["straße"]),
        ("", ["Alice/1", "alice/2", "bob/1", "bob/alice", "main", "straße", "x!y-z]"]),
    ],
)
def test_branches_by_a_text_in_any_case(branches, text, names):
    found = branches.branches.search(text)
    assert [each.name for each in found] == names
    assert found.complete
    pages: list[str] = []
    while True:
        page = branches.branches.search(text, limit=1, after=pages[-1] if pages else None)
        pages += [each.name for each in page]
        if page.complete:
            break
    assert pages == names


def test_wrong_arguments_of_a_search(branches):
    wrong: list[Callable[[], object]] = [
        lambda: branches.branches.search(3),
        lambda: branches.branches.search("a", limit=-1),
        lambda: branches.branches.search("a", after=3),
    ]
    for call in wrong:
        with pytest.raises(InvalidArgumentError):
            call()
    assert not branches.branches.search("alice", limit=0).complete
    assert branches.branches.search("nobody", limit=0).complete


# aio


async def test_each_call_that_reads_has_a_twin(state):
    repository = state.repository

    aio = repository.aio
    assert [commit.message async for commit in aio.log("main", limit=2)] == ["c19", "c18"]
    assert [change.new async for change in aio.history("rare", "main")] == [15, 10, 5, 0]
    assert [position.commit async for position in aio.reflog("main")] == list(repository.log("main"))
    state["text"] = "one\nneedle\n"
    await state.aio.commit()
    assert [str(match.path) async for match in aio.grep("needle", "main")] == ["text"]
    found = await aio.bisect("main~15", "main", lambda past: past["n"] >= 12)
    assert found.commit.message == "c12"
    assert (await aio.diff("main~1", "main", limit=1)).limit == 1
    with pytest.raises(InvalidArgumentError):
        async for _ in aio.log("main", limit=-1):
            pass
