"""``Namespace``: the keys of a ``Versioned`` state under a name. Layer: state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.state.keyspace import KeySpace
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import namespace_prefix

if TYPE_CHECKING:
    from versioned_state.state.versioned import Versioned


class Namespace(KeySpace):
    """A state of its own within a ``Versioned`` one, whose handle it shares: its changes are committed with the state's."""

    def __init__(self, state: Versioned, prefix: bytes, name: str) -> None:
        super().__init__(prefix, state._lock)
        self.state = state
        self.name = name

    def _check_open(self) -> None:
        self.state._check_open()

    @property
    def _worktree(self) -> Worktree:
        return self.state._worktree

    def namespace(self, name: str) -> Namespace:
        return Namespace(self.state, self._prefix + namespace_prefix(name), f"{self.name}/{name}")

    def __repr__(self) -> str:
        return f"<Namespace {self.name} of {self.state!r}>"
