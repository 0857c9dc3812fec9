"""``Namespace``: the keys of a ``Versioned`` state under a name. Layer: state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.state.keyspace import KeySpace
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import namespace_prefix

if TYPE_CHECKING:
    from versioned_state.state.aio.twins import KeySpaceAio
    from versioned_state.state.versioned import Versioned


class Namespace(KeySpace):
    """A state of its own within a ``Versioned`` one, whose handle it shares: its changes are committed with the state's."""

    def __init__(self, state: Versioned, prefix: bytes, name: str) -> None:
        super().__init__(prefix, state._lock)
        self._state = state
        self._name = name

    @property
    def state(self) -> Versioned:
        """The state that this is a namespace of."""
        return self._state

    @property
    def name(self) -> str:
        """The name, after those of the namespaces around it: ``outer/inner``."""
        return self._name

    def _check_open(self) -> None:
        self._state._check_open()

    @property
    def _worktree(self) -> Worktree:
        return self._state._worktree

    @property
    def aio(self) -> KeySpaceAio[Namespace]:
        """The calls that ask the store, as coroutines that run them off the event loop."""
        from versioned_state.state.aio.twins import KeySpaceAio

        return KeySpaceAio(self, self._lock)

    def namespace(self, name: str) -> Namespace:
        return Namespace(self._state, self._prefix + namespace_prefix(name), f"{self._name}/{name}")

    def __repr__(self) -> str:
        return f"<Namespace {self.name} of {self.state!r}>"
