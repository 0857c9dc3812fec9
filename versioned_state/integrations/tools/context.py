"""The context of the tools of one program: its state, the part that a model may see, and the bounds of an answer.

Layer: integrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final, TypeVar

from versioned_state.errors import InvalidPathError, StateError, UnknownPathError
from versioned_state.integrations.tools.scope import Scope
from versioned_state.integrations.tools.text import Redaction, ToolError, Values, cut
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.views.render import one_line
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.versioned import Versioned

T = TypeVar("T")

CLIENT: Final[ContextVar[str]] = ContextVar("versioned_state_tool_client", default="")
"""The name of the program that calls a tool."""

_SHOWN: Final = 120
"""Characters of a value beside another one."""

_SECONDS: Final = 5.0
"""The time after which one call stops, and says so."""


class Deadline:
    """The end of one call's time."""

    def __init__(self) -> None:
        self._end = monotonic() + _SECONDS
        self.passed: bool = False

    def within(self, parts: Iterable[T]) -> Iterator[T]:
        """Yield parts until the time is over."""
        for part in parts:
            yield part
            if monotonic() > self._end:
                self.passed = True
                return


@dataclass(slots=True)
class Context:
    """The state, and the limits, of the tools of one program.

    Attributes:
        state: the program's handle, which follows what the tools commit.
        scope: what the model may see.
        redaction: the paths whose values it never sees.
        max_chars: the most characters of an answer.
        author: the author of the tools' commits.
        sticky: whether one model alone uses the tools, and may continue on another branch.
    """

    state: Versioned
    scope: Scope
    redaction: Redaction
    max_chars: int
    author: str
    sticky: bool = True

    def shared(self) -> Context:
        """Return the context for many clients at once."""
        return replace(self, sticky=False)

    def meta(self, tool: str) -> dict[str, Any]:
        """Return the meta of a commit by a tool."""
        return {"mcp": {"client": CLIENT.get(), "tool": tool}}

    def snapshot(self, rev: str) -> tuple[Commit, Snapshot]:
        """Return the commit of a revision, and its state."""
        commit = self.scope.commit(rev)
        return commit, self.scope.repository.snapshot(commit, describe=True)

    def values(self, snapshot: Snapshot) -> Values:
        """Return the values of a snapshot as text."""
        return Values(snapshot.new_nodes(), self.redaction)

    def shown(self, value: Any) -> str:
        """Return a decoded value on one line."""
        return one_line(value, width=_SHOWN)

    def deadline(self) -> Deadline:
        """Begin the time of one call."""
        return Deadline()

    def found(self, read: Callable[[], T], path: str, rev: str) -> T:
        """Return the value at a path. Raises ``ToolError`` if nothing is there."""
        try:
            return read()
        except UnknownPathError as error:
            near = f"; {error.hint}" if error.hint.startswith("the list has") else "; state_outline shows what is there"
            raise ToolError(f"there is nothing at {cut(path, 200)} in {cut(rev, 80)}{near}") from None
        except InvalidPathError as error:
            raise ToolError(error.what) from None

    def switch(self, branch: str) -> None:
        """Continue on another branch of the scope. Raises ``ToolError`` if other clients share the tools."""
        if not self.sticky:
            raise ToolError(
                "this server has no branch of yours: call state_branch without switch, and name the branch as rev"
            )
        self.scope = self.scope.on(branch)

    def refresh(self) -> None:
        """Bring a commit of the tools into the program's state, unless it has changes that conflict with it."""
        if self.state.branch == self.scope.branch:
            with suppress(StateError):
                self.state.refresh()
