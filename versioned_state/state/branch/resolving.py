"""The resolution of conflicts in one call: policies, resolutions by hand, and running the call again with them. Layer: state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.merging.policies import Policy
from versioned_state.state.aio.caller import ready

if TYPE_CHECKING:
    from versioned_state.repository.merging.merge import Resolutions
    from versioned_state.state.calls.operations import BranchOperations

UNCHANGED: Final = "nothing was changed"
"""The usual ``remains`` of an error."""


@dataclass(slots=True)
class Resolving:
    """The policies and resolutions of one call, and a function that runs the call again with more resolutions.

    ``remains`` is for the errors of the call.
    """

    policies: Mapping[str, Policy] = field(default_factory=dict)
    resolutions: Resolutions = ()
    again: Callable[[Resolutions], Commit] | None = None
    remains: str = UNCHANGED


class Resolvable:
    """A call on a state that may have conflicts. Not a closure, because a closure that refers to itself would keep the state alive."""

    __slots__ = ("_branch", "_remains", "_run", "_state", "policies")

    def __init__(self, state: BranchOperations, run: Callable[[Resolving], Commit], policies: dict[str, Policy], remains: str) -> None:
        self.policies = policies
        self._state = state
        self._branch = state._handle.position.branch
        self._run = run
        self._remains = remains

    def again(self, resolutions: Resolutions) -> Commit:
        state = self._state
        with ready(state._lock):
            state._check_open()
            state._transactions.refuse("merge.commit")
            if state.branch != self._branch:
                raise InvalidArgumentError(f"the merge was on {self._branch!r}, and the state is on {state.branch!r} now")
            state._handle.resolve_doubt()
            commit = self._run(Resolving(self.policies, resolutions, self.again, self._remains))
            state._handle.tell_hooks()
            return commit
