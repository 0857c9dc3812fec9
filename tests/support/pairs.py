"""What tests of merges and of moves begin with."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from versioned_state import Memory, Merge, Repository, Versioned
from versioned_state.errors import (
    MergeConflictError,
)


def two(**values: Any) -> tuple[Versioned, Versioned]:
    repository = Repository(Memory(), clock=itertools.count(1).__next__)
    ours = Versioned(repository)
    ours.update(copy.deepcopy(values))
    ours.commit("base")
    return ours, Versioned(repository)


def merge_of(error: MergeConflictError) -> Merge:
    assert error.merge is not None
    return error.merge
