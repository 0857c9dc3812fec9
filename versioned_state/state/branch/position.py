"""``HandlePosition``: where a handle stands. Layer: state."""

from __future__ import annotations

from typing import NamedTuple

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.ref import Ref


class HandlePosition(NamedTuple):
    """The branch of a handle, the last record of the branch that it saw, and the head. One assignment moves a handle."""

    branch: str
    ref: Ref
    head: Commit
