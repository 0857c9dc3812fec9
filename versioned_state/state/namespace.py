"""``Namespace``: the keys of a ``Versioned`` state under a name. Layer: state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from versioned_state.state.locking import locked
from versioned_state.state.sequence import StateSequence
from versioned_state.state.state import State
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import USER, namespace_prefix, user_key

if TYPE_CHECKING:
    from versioned_state.state.versioned import Versioned


class Namespace(State):
    """A state of its own within a ``Versioned`` one. It shares the state's handle: its changes are committed with the state's."""

    def __init__(self, state: Versioned, prefix: bytes, name: str) -> None:
        self.state = state
        self.name = name
        self._prefix = prefix
        self._lock = state._lock
        self._start = prefix + USER

    def _check_open(self) -> None:
        self.state._check_open()

    @property
    def _worktree(self) -> Worktree:
        return self.state._worktree

    @locked
    def __getitem__(self, key: str) -> Any:
        return self.state._get(self._prefix + user_key(key), key)

    @locked
    def __setitem__(self, key: str, value: Any) -> None:
        self._worktree.set(self._prefix + user_key(key), value)

    @locked
    def __delitem__(self, key: str) -> None:
        try:
            self._worktree.delete(self._prefix + user_key(key))
        except KeyError:
            raise KeyError(key) from None

    @locked
    def __contains__(self, key: object) -> bool:
        return type(key) is str and self._prefix + user_key(key) in self._worktree

    @locked
    def __iter__(self) -> Iterator[str]:
        return self.state._keys(self._start, "")

    @locked
    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        """As ``Versioned.iter_keys``."""
        return self.state._keys(self._start, prefix)

    @locked
    def __len__(self) -> int:
        return self._worktree.count(self._start, self._start + b"\xff")

    @locked
    def sequence(self, key: str) -> StateSequence:
        """As ``Versioned.sequence``."""
        return StateSequence(self._worktree, self._prefix + user_key(key), self._lock, self.state._check_open)

    @locked
    def release(self, key: str) -> bool:
        """As ``Versioned.release``."""
        return self._worktree.release(self._prefix + user_key(key))

    def namespace(self, name: str) -> Namespace:
        return Namespace(self.state, self._prefix + namespace_prefix(name), f"{self.name}/{name}")

    def __repr__(self) -> str:
        return f"<Namespace {self.name} of {self.state!r}>"
