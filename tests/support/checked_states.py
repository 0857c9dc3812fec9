"""A state with each commit held against a model of Python values: built from scratch, read anew, by its difference."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.support.exact import clone, exact
from tests.support.reference_trees import assert_canonical
from tests.support.segments import assert_forms
from versioned_state import Commit, Memory, Repository, Versioned

Model = dict[str, Any]


def root_from_scratch(model: Model) -> str:
    """Return the root of a state with these values that was built in one commit."""
    state = Versioned(Memory(), pickle="refuse")
    state.update(clone(model))
    return state.commit(allow_empty=True).root


def assert_same(found: Model, expected: Model) -> None:
    """The two have the same keys, in any order, and exactly the same values."""
    assert sorted(found) == sorted(expected)
    for key, value in expected.items():
        assert exact(found[key]) == exact(value), f"{key}: {found[key]!r}\n is not {value!r}"


class Checked:
    """A state and its model. ``step`` changes both alike, ``commit`` compares.

    Args:
        warm: how often the handle is kept from one commit to the next; a fresh one loads the values anew.

    Attributes:
        deep: the most levels that a tree of each kind has had.
    """

    def __init__(self, model: Model, rng: random.Random, *, warm: float = 1.0) -> None:
        self.store = Memory()
        self.model = clone(model)
        self.rng = rng
        self._warm = warm
        self._commits = 0
        self.deep: dict[Any, int] = {}
        self.state = Versioned(self.store, pickle="refuse")
        self.state.update(clone(model))
        self.commit(allow_empty=True)

    def step(self, change: Callable[[Any], None]) -> None:
        """Carry out a change on the state, and on the model. It gets either, and must do the same to both."""
        change(self.state)
        change(self.model)

    def commit(self, *, changes: int | None = None, allow_empty: bool = False) -> None:
        """Commit, and compare: the root, the content read anew, the difference.

        ``changes``: how many the difference has at most.
        """
        before = self.state.head
        commit = self.state.commit(allow_empty=allow_empty)
        self.check(before, commit, changes=changes)
        if self.rng.random() >= self._warm:
            self.state = Versioned(self.store, pickle="refuse")

    def finish(self) -> None:
        """Compare the whole store: each object has the form that its content asks for, and ``fsck`` finds nothing."""
        assert_forms(self.store)
        report = Repository(self.store).fsck()
        assert report.ok, report

    def check(self, before: Commit | None, commit: Commit, *, changes: int | None = None) -> None:
        assert not self.state.status(), "nothing is left to commit"
        repository = Repository(self.store)
        assert_same(dict(repository.snapshot(commit.id)), self.model)
        assert commit.root == root_from_scratch(self.model)
        self._commits += 1
        if self._commits % 4 == 0 and commit.tree.count:
            for code, levels in assert_canonical(self.store, commit.tree).items():
                self.deep[code] = max(self.deep.get(code, 0), levels)
        if before is not None and before.id != commit.id:
            difference = repository.diff(before.id, commit.id)
            assert changes is None or len(difference) <= changes, (
                f"{len(difference)} changes, not {changes}:\n{difference}"
            )
            if self._commits % 4 == 1:
                old = Versioned(Memory(), pickle="refuse")
                old.update(dict(repository.snapshot(before.id)))
                old.commit(allow_empty=True)
                old.apply(difference)
                assert_same(dict(old), self.model)
