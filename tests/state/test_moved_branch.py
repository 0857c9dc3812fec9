"""Several handles on one branch: a commit on a branch that has moved merges, conflicts, refuses or replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.handles import two
from versioned_state import OnMoved, Repository, Versioned
from versioned_state.errors import BranchMovedError, MergeConflictError
from versioned_state.repository.merging.merge import MISSING
from versioned_state.state.branch.publisher import MovedError

CONFLICTS: dict[str, tuple[Callable[[Versioned], Any], Callable[[Versioned], Any], tuple[Any, Any, Any]]] = {
    "both changed": (lambda s: s["x"].append(2), lambda s: s["x"].append(3), ([1], [1, 3], [1, 2])),
    "ours removed": (lambda s: s["x"].append(2), lambda s: s.__delitem__("x"), ([1], MISSING, [1, 2])),
    "theirs removed": (lambda s: s.__delitem__("x"), lambda s: s["x"].append(3), ([1], [1, 3], MISSING)),
    "both added": (lambda s: s.__setitem__("n", 1), lambda s: s.__setitem__("n", 2), (MISSING, 2, 1)),
    "type only": (lambda s: s.__setitem__("x", (1,)), lambda s: s.__setitem__("x", {1}), ([1], {1}, (1,))),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_the_same_key_is_a_conflict_and_nothing_is_lost(name):
    theirs, ours, sides = CONFLICTS[name]
    a, b = two(x=[1], y=[1])
    theirs(a)
    a["y"].append("theirs")
    head = a.commit()
    ours(b)
    b["z"] = "staged"
    before = (b.copy(), str(b.status()), b.head)
    for call in (b.commit, b.refresh, lambda: b.commit(on_moved=OnMoved.MERGE)):
        with pytest.raises(MergeConflictError, match="main") as caught:
            call()
        (conflict,) = caught.value.conflicts
        assert (conflict.base, conflict.ours, conflict.theirs) == sides
        assert str(conflict.path) in str(caught.value)
        assert (b.copy(), str(b.status()), b.head) == before
    assert a.repository.branches["main"] == head
    # The way out that the hint names.
    b.discard()
    b.refresh()
    assert dict(b) == dict(a)


def test_refusing_to_merge():
    a, b = two(x=1)
    a["x"] = 2
    a.commit()
    b["y"] = 1
    with pytest.raises(BranchMovedError) as caught:
        b.commit(on_moved=OnMoved.REFUSE)
    assert (caught.value.branch, caught.value.actual) == ("main", a.head.id)
    assert dict(b) == {"x": 1, "y": 1}
    assert len(b.status()) == 1
    b.refresh()
    assert b.commit(on_moved=OnMoved.REFUSE).parents == (a.head.id,)
    assert dict(b) == {"x": 2, "y": 1}


def test_a_record_that_moved_to_where_it_was_has_not_moved():
    a, b = two(x=1)
    head = a.head
    a.reset("HEAD~1")
    a.reset(head)
    b["y"] = 1
    assert b.commit(on_moved=OnMoved.REFUSE).parents == (head.id,)
    repository = Repository()
    state = Versioned(repository)
    repository.branches.create("main", state.head)
    state["a"] = 1
    assert state.reset(state.head) == state.head
    state["a"] = 1
    assert state.commit(on_moved=OnMoved.REFUSE).generation == 1


def test_replacing():
    a, b = two(x=[1], y=1)
    a["x"].append("theirs")
    a["theirs"] = 1
    theirs = a.commit()
    b["y"] = 2
    ours = b.commit(on_moved=OnMoved.REPLACE)
    assert ours.parents == (theirs.id,)
    assert dict(b) == {"x": [1], "y": 2} == dict(b.checkout(ours))
    assert not b.status()


@pytest.mark.parametrize("on_moved", OnMoved)
def test_on_moved_by_its_value(on_moved):
    results: list[dict[str, Any] | None] = []
    for given in (on_moved, on_moved.value):
        a = Versioned()
        b = Versioned(a.repository)
        a["theirs"] = b["ours"] = 1
        a.commit()
        try:
            b.commit(on_moved=given)
        except BranchMovedError:
            results.append(None)
        else:
            results.append(dict(b.checkout("HEAD")))
    assert (
        results[0]
        == results[1]
        == {"merge": {"theirs": 1, "ours": 1}, "refuse": None, "replace": {"ours": 1}}[on_moved.value]
    )


def test_an_unknown_keyword_names_the_public_call():
    state: Any = Versioned()
    with pytest.raises(TypeError, match=r"^Versioned\.commit\(\) got an unexpected keyword argument 'colour'"):
        state.commit(colour="red")
    with (
        pytest.raises(TypeError, match=r"^Versioned\.transaction\(\) got an unexpected keyword argument 'colour'"),
        state.transaction(colour=1),
    ):
        pass


def test_a_branch_that_was_deleted_meanwhile_is_no_state_to_merge_with():
    a, b = two(x=1)
    a.repository.branches.delete("main", force=True)
    b["y"] = 1
    with pytest.raises(BranchMovedError):
        b.commit("again")
    a.repository.branches.create("main", b.head)
    b.commit("again")
    assert dict(Versioned(a.repository)) == {"x": 1, "y": 1}


def test_a_conflict_is_raised_without_the_failed_attempt_before_it():
    a, b = two(x=1)
    a["x"] = 2
    a.commit()
    b["x"] = 3
    with pytest.raises(MergeConflictError) as caught:
        b.commit()
    assert not isinstance(caught.value.__context__, MovedError)
