"""``SessionHooks``: the parts that join the saves of a session, such as the files of its sandboxes. Layer: services.

::

    save_state ── the handle of the session's branch ── each hook of the session joins it ── commit ── each hook leaves
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import Final

from versioned_state.state.versioned import Versioned

FILES_KEY: Final = "workspace"
"""The key of a session's state with the files of its sandboxes: a ``FileTree``, not a part of the saved dict."""

Join = Callable[[Versioned], AbstractContextManager[object]]
"""Joins a handle of the session until the block ends, as a ``Workspace`` does. Called on the thread of the save."""


class SessionHooks:
    """The hooks of sessions, by branch, in the order in which they were added. Safe for many threads."""

    def __init__(self) -> None:
        self._joins: dict[str, list[Join]] = {}
        self._lock = Lock()

    def add(self, branch: str, join: Join) -> None:
        """Have ``join`` take part in each save of the session from now on."""
        with self._lock:
            self._joins[branch] = [*self._joins.get(branch, ()), join]

    def remove(self, branch: str, join: Join) -> None:
        """Have ``join`` take part in no later save. A save under way ends with it. Does nothing if it was not added."""
        with self._lock:
            left = [each for each in self._joins.pop(branch, ()) if each is not join]
            if left:
                self._joins[branch] = left

    def has(self, branch: str) -> bool:
        """Return whether the saves of the session have hooks."""
        return branch in self._joins

    @contextmanager
    def joined(self, branch: str, state: Versioned) -> Iterator[None]:
        """Run the block in which a save changes and commits the handle, which the hooks of the session join meanwhile.

        Raises the error of a hook that fails to join. The earlier hooks have left by then, and nothing was changed.
        """
        with ExitStack() as stack:
            for join in self._joins.get(branch, ()):
                stack.enter_context(join(state))
            yield
