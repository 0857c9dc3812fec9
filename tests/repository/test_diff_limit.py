"""A diff with a limit: the first changes, at the cost of these."""

from __future__ import annotations

from functools import cache

import pytest

from versioned_state import Repository, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.storage import Counting, Memory


@cache
def apart() -> Versioned:
    """Two commits that differ in a hundred keys, two hundred entries of a dict and three hundred elements of a list."""
    state = Versioned()

    def fill(by: int) -> None:
        for number in range(100):
            state[f"k{number:04}"] = number + by
        state["table"] = {f"e{number}": {"n": number + by} for number in range(200)}
        state["zlist"] = [{"n": number, "by": by} for number in range(300)]
        state["zlist"].insert(0, {"new": by})

    fill(0)
    state.commit("before")
    fill(1)
    state.commit("after")
    return state


@pytest.mark.parametrize("limit", [0, 1, 50, 100, 101, 300, 301, 600, 601, 602, 1_000, 2**70])
def test_a_limited_diff_is_the_beginning_of_the_whole(limit: int) -> None:
    state = apart()
    whole = state.diff("HEAD~1", "HEAD")
    assert not whole.more
    for diff in (
        state.diff("HEAD~1", "HEAD", limit=limit),
        state.repository.diff("HEAD~1", "HEAD", limit=limit),
        state.diff("HEAD~1", limit=limit),
    ):
        assert [str(change) for change in diff] == [str(change) for change in whole[:limit]]
        assert diff.more is (len(whole) > limit)
        assert bool(diff)
        assert diff.limit == min(limit, 2**63 - 2)
        assert str(diff).endswith("… and more changes") is diff.more
        assert (" and more" in repr(diff)) is diff.more
        assert ("and more: these are the first" in diff._repr_html_()) is diff.more
    same = state.diff("HEAD", "HEAD", limit=limit)
    assert not same
    assert not same.more


@pytest.mark.parametrize("path", ["table", "table.e7", "zlist", "k0003", ""])
def test_a_limited_diff_narrows_to_the_first_changes_of_a_path(path: str) -> None:
    state = apart()
    whole = state.diff("HEAD~1", "HEAD").under(path) if path else state.diff("HEAD~1", "HEAD")
    for use in (False, True):
        diff = state.diff("HEAD~1", "HEAD", limit=20)
        if use:
            _ = diff.changes  # which ends before the path
        found = diff.under(path) if path else diff
        assert [str(change) for change in found] == [str(change) for change in whole[:20]]
        assert found.more is (len(whole) > 20)


def test_a_limited_diff_costs_what_it_has() -> None:
    def reads(size: int, limit: int | None = None) -> int:
        counting = Counting(Memory())
        state = Versioned(Repository(counting))
        for by in (0, 1):
            state["table"] = {str(n): {"n": n + by} for n in range(size)}
            state.commit()
        found = Repository(counting).diff("main~1", "main", limit=limit)
        before = counting.counts.objects_read
        assert len(found) == (size if limit is None else limit)
        return counting.counts.objects_read - before

    few = reads(10_000, limit=20)
    assert reads(10_000) > 3 * few
    assert few < 300


def test_a_patch_has_all_changes_or_is_refused() -> None:
    state = apart()
    with pytest.raises(InvalidArgumentError, match="a patch has every change"):
        state.diff("HEAD~1", "HEAD", limit=5).to_patch()
    assert len(state.diff("HEAD~1", "HEAD", limit=1_000).to_patch()) > 300
    with pytest.raises(InvalidArgumentError):
        state.diff("HEAD~1", "HEAD", limit=-1)
