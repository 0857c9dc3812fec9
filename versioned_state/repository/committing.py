"""The interface of states that the repository commits several at once. Layer: repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, Self, TypeVar

from versioned_state.arguments import one_of

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.merging.policies import Policy


class OnMoved(Enum):
    """The choice for a commit whose branch has moved since the handle last saw it.

    ``OnMoved("refuse")`` is ``OnMoved.REFUSE``.
    """

    MERGE = "merge"
    """Merge our changes by path onto the new head; ``MergeConflictError`` if both sides changed the same path."""
    REFUSE = "refuse"
    """Raise ``BranchMovedError``."""
    REPLACE = "replace"
    """Make the new head the parent and our content, as it is, the state."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        one_of("on_moved", value, [member.value for member in cls])
        raise AssertionError  # it is none of them


OnMovedOption = OnMoved | Literal["merge", "refuse", "replace"]
"""How callers give it: the member, or its value."""


class Committing(Protocol):
    """A state over a branch: ``Versioned``.

    Only the repository calls the methods. Other code calls ``commit_together``.
    """

    def __commit_together__(
        self,
        states: Sequence[Self],
        message: str,
        author: str | None,
        meta: Mapping[str, Any] | None,
        on_moved: OnMovedOption,
        policies: Mapping[str, Policy],
        tags: Sequence[str | None],
        /,
    ) -> list[Commit]:
        """Commit the changes of states of one class. See ``Repository.commit_together``."""
        ...

    async def __run_together__(self, states: Sequence[Self], call: Callable[[], list[Commit]], /) -> list[Commit]:
        """Run a call that commits these states off the event loop."""
        ...


C = TypeVar("C", bound=Committing)


def all_of_one_class(states: Sequence[object]) -> bool:
    """Return whether states can be committed together: they are ``Committing``, and of one class."""
    return hasattr(states[0], "__commit_together__") and all(type(state) is type(states[0]) for state in states)
