"""``KeySpace``: the keys of a handle under one prefix of its root, as a dict. Layer: state.

The empty prefix is that of ``Versioned`` itself, and the others are those of its namespaces.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from versioned_state.arguments import count
from versioned_state.errors import LimitExceededError
from versioned_state.state.aio.caller import HandleLock, locked
from versioned_state.state.aio.twins import HandleAio
from versioned_state.state.state import State
from versioned_state.twins import awaitable
from versioned_state.values.cells import decoded_text
from versioned_state.values.keys import NAMESPACE, USER, key_range, user_key

if TYPE_CHECKING:
    from versioned_state.state.sequence import StateSequence
    from versioned_state.state.worktree.worktree import Worktree
    from versioned_state.values.paths.path import StatePath

_NONE: Final = object()

_AFTER: Final = b"\xff"
"""Follows every key of a range: no UTF-8 has this byte."""


class KeySpace(State):
    """A mapping over the live values of a worktree. Its keys are a range of root keys (see ``values.keys``).

    Args:
        prefix: the beginning of the root keys of the space.
        lock: the lock of the handle.
    """

    _prefix: bytes
    _low: bytes
    _high: bytes
    _lock: HandleLock

    def __init__(self, prefix: bytes, lock: HandleLock) -> None:
        # Not assigned one by one, each through ``__setattr__`` of a state: a server makes a handle for each request.
        low = prefix + USER
        vars(self).update(_prefix=prefix, _low=low, _high=low + _AFTER, _lock=lock)

    @property
    @abstractmethod
    def _worktree(self) -> Worktree:
        """The live values of the handle."""

    def _check_change(self, key: bytes) -> None:
        """Raise ``TransactionError`` if a paused call would undo a change under a root key."""

    def __getitem__(self, key: str) -> Any:
        if self._lock.leases and (value := self._loaded(key)) is not _NONE:
            return value
        return self._get(key)

    def _loaded(self, key: object) -> Any:
        """Return a key's value if it is loaded, for a read during a call of ``aio`` by this thread's event loop."""
        if self._lock.is_leased_here and type(key) is str:
            with suppress(AttributeError):  # if that call closes the state
                return self._worktree.loaded(self._prefix + user_key(key), _NONE)
        return _NONE

    @locked
    def _get(self, key: str) -> Any:
        try:
            return self._worktree.get(self._prefix + user_key(key))
        except KeyError:
            raise KeyError(key) from None

    @locked
    def __setitem__(self, key: str, value: Any) -> None:
        root_key = self._prefix + user_key(key)
        self._check_change(root_key)
        self._worktree.set(root_key, value)

    @locked
    def __delitem__(self, key: str) -> None:
        root_key = self._prefix + user_key(key)
        self._check_change(root_key)
        try:
            self._worktree.delete(root_key)
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        if self._lock.leases:
            with suppress(LimitExceededError):
                if self._loaded(key) is not _NONE:
                    return True
        return self._has(key)

    @locked
    def _has(self, key: object) -> bool:
        try:
            return type(key) is str and self._prefix + user_key(key) in self._worktree
        except LimitExceededError:
            return False  # no state has a key of that length

    @locked
    def __len__(self) -> int:
        return self._worktree.keys.count(self._low, self._high)

    @locked
    def iter_keys(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[str]:
        low, high = key_range(prefix, start, end)
        most = None if limit is None else count("limit", limit)
        # A list: the keys as they are now, even if the state changes during the iteration.
        found = list(self._worktree.keys.between(self._prefix + low, self._prefix + high, reverse=reverse, limit=most))
        return map(self._key_of, found)

    @locked
    def _last_key(self) -> str | None:
        root_key = self._worktree.keys.last(self._low, self._high)
        return None if root_key is None else self._key_of(root_key)

    def _key_of(self, root_key: bytes) -> str:
        return decoded_text(root_key[len(self._low) :])

    @locked
    def _previews(self, limit: int) -> Iterator[tuple[str, str]]:
        keys = self._worktree.keys.between(self._low, self._high, limit=limit)
        return iter([(self._key_of(key), self._worktree.preview(key)) for key in keys])

    @locked
    def namespaces(self) -> list[str]:
        start = self._prefix + NAMESPACE
        end = start + _AFTER
        names: list[str] = []
        first = start
        while (found := next(self._worktree.keys.between(first, end, limit=1), None)) is not None:
            name = found[len(start) :].partition(b"\0")[0]
            names.append(decoded_text(name))
            first = start + name + b"\x01"  # after every key of this name
        return names

    @locked
    def sequence(self, key: str) -> StateSequence:
        from versioned_state.state.sequence import StateSequence

        return StateSequence(self, self._prefix + user_key(key))

    @locked
    def release(self, key: str) -> bool:
        return self._worktree.release(self._prefix + user_key(key))


K = TypeVar("K", bound="KeySpace")


class KeySpaceAio(HandleAio[K]):
    """The awaitable twins of a namespace's calls."""

    sequence: Final = awaitable(lambda: KeySpace.sequence)

    @overload
    async def load(self, path: str | StatePath, /) -> Any: ...
    @overload
    async def load(self, *paths: str | StatePath) -> list[Any]: ...
    async def load(self, *paths: str | StatePath) -> Any:
        """Load the keys that paths begin with, so that later reads do not wait.

        Returns the live value of one path, or a list.

        Raises:
            UnknownPathError: nothing is at one of the paths. The keys before it are loaded.
        """
        values = await self.run(lambda: [self.of.at(path) for path in paths])
        return values[0] if len(paths) == 1 else values
