"""Revisions by meaning: ``:/text`` and ``REV@{key=value}``, from Python."""

from __future__ import annotations

import pytest

from versioned_state import Versioned
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.repository.names.syntax import split_range


@pytest.fixture
def state() -> Versioned:
    made = Versioned()
    for step in range(6):
        made["step"] = step
        made.commit(f"step {step}: ~2.. done", meta={"step": step, "user": {"id": str(step % 2)}, "a.b": step})
    return made


@pytest.mark.parametrize(
    ("rev", "step"),
    [
        (":/step", 5),
        (":/step 3", 3),
        (":/step 2: ~2.. done", 2),
        ("main@{step=4}", 4),
        ("HEAD@{step=4}~1", 3),
        ("@{step=0}", 0),
        ("main~2@{user.id=0}", 2),
        ("main@{user.id=0}", 4),
        ("main@{a.b=1}", 1),
        ("main@{2}@{user.id=0}", 2),
    ],
)
def test_the_newest_commit_is_found(state: Versioned, rev: str, step: int):
    assert state.checkout(rev)["step"] == step
    assert state.repository.commit(rev).meta["step"] == step


@pytest.mark.parametrize(
    ("rev", "reason"),
    [
        (":/", "a text of the message belongs behind"),
        (":/step 9", "'step 9' in its message"),
        ("main@{step=9}", "step=9 in its meta"),
        ("main@{step=}", "step= in its meta"),
        ("main@{nothing=1}", "nothing=1"),
        ("main@{=1}", "neither a number"),
        ("main~3@{step=5}", "no commit up to"),
        ("nothing@{step=5}", "nothing"),
    ],
)
def test_what_is_not_there_is_unknown(state: Versioned, rev: str, reason: str):
    with pytest.raises(UnknownRevisionError, match=reason):
        state.repository.commit(rev)


def test_another_branch_is_searched_by_its_name_only(state: Versioned):
    with state.fork("idea") as idea:
        idea["step"] = 9
        idea.commit("an idea", meta={"step": 9})
    with pytest.raises(UnknownRevisionError):
        state.repository.commit(":/an idea")
    assert state.repository.commit("idea@{step=9}") == state.repository.commit("idea")


def test_ranges(state: Versioned):
    assert [commit.meta["step"] for commit in state.log("main@{step=3}..main@{step=5}")] == [5, 4]
    assert split_range(":/a..b") is None
    assert split_range("main..:/a..b") == ("main", ":/a..b")
    assert [commit.meta["step"] for commit in state.log(":/step 2: ~2.. done", limit=1)] == [2]
    with pytest.raises(InvalidArgumentError, match="not a range"):
        split_range("a..b..c")


def test_an_empty_store_and_a_pruned_one(state: Versioned):
    with pytest.raises(UnknownRevisionError, match="no commits yet"):
        Versioned().repository.commit(":/text")
    state.repository.prune(keep_last=2)
    with pytest.raises(UnknownRevisionError, match=r"step=1 in its meta; .*pruned"):
        state.repository.commit("main@{step=1}")
