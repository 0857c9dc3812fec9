"""Handles for tests of merges, moves and gc: two on one branch, the merge in a conflict, and a commit that tries again."""

from __future__ import annotations

import copy
import itertools
from contextlib import suppress
from typing import Any

from versioned_state import Memory, Merge, Repository, Versioned
from versioned_state.errors import (
    MergeConflictError,
    MissingObjectError,
)


class RollbackWantedError(Exception):
    """Raised by a test in a transaction, which is then rolled back."""


def two(**values: Any) -> tuple[Versioned, Versioned]:
    """Two handles on one branch, whose first commit holds copies of the values."""
    repository = Repository(Memory(), clock=itertools.count(1).__next__)
    ours = Versioned(repository)
    ours.update(copy.deepcopy(values))
    ours.commit("base")
    return ours, Versioned(repository)


def merge_of(error: MergeConflictError) -> Merge:
    return error.merge


def insist(handle: Versioned) -> None:
    """Commit, and try again if a gc collected the objects that were sent ahead: the next attempt encodes them anew."""
    for _ in range(20):
        with suppress(MissingObjectError):
            handle.commit("at last")
            return
    raise AssertionError("it is collected each time")
