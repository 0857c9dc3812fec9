"""How one call resolves conflicts. Layer: state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.merging.policies import Policy

if TYPE_CHECKING:
    from versioned_state.repository.merging.merge import Resolutions

UNCHANGED: Final = "nothing was changed"
"""The usual ``remains`` of an error."""


@dataclass(slots=True)
class Resolving:
    """How one call resolves conflicts: its policies, the resolutions by hand, and a function that runs the call again with more of them.

    The errors of the call say ``remains``.
    """

    policies: Mapping[str, Policy] = field(default_factory=dict)
    resolutions: Resolutions = ()
    again: Callable[[Resolutions], Commit] | None = None
    remains: str = UNCHANGED
