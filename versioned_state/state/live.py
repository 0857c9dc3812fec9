"""``Live``: a state of this process, without commits, and its lists. Layer: state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from versioned_state.arguments import count
from versioned_state.state.aio.caller import HandleLock, locked, ready
from versioned_state.state.sequence import StateSequence, as_list
from versioned_state.state.state import State
from versioned_state.state.worktree.key_order import KeyOrder
from versioned_state.values.keys import key_range, namespace_prefix, user_key

if TYPE_CHECKING:
    from versioned_state.repository.ledger import LiveLedger


class Live(State):
    """A state within this process: any Python object under string keys, no commits, nothing stored.

    >>> state = Live()
    >>> state["connection"] = object()
    """

    def __init__(self) -> None:
        self._lock = HandleLock()
        self._values: dict[str, Any] = {}
        self._order: KeyOrder[str] = KeyOrder(self._values)
        self._namespaces: dict[str, Live] = {}
        self._outermost: Live | None = None  # for a namespace: the state that it is a part of
        self._names: tuple[str, ...] = ()  # for a namespace: its name, after those of the namespaces around it
        self._events: dict[str, Any] = {}  # the events of tasks, by name; kept for the layer above
        self._last_event = 0  # the time of the last event
        self._ledger: LiveLedger | None = None

    @locked
    def __getitem__(self, key: str) -> Any:
        user_key(key)
        return self._values[key]

    @locked
    def __setitem__(self, key: str, value: Any) -> None:
        user_key(key)
        self._order.touch(key)
        self._values[key] = value

    @locked
    def __delitem__(self, key: str) -> None:
        user_key(key)
        if key in self._values:
            self._order.touch(key)
        del self._values[key]

    @locked
    def __contains__(self, key: object) -> bool:
        return type(key) is str and key in self._values

    @locked
    def __len__(self) -> int:
        return len(self._values)

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
        keys = self._order.keys()
        first, last = (bisect_left(keys, bound, key=user_key) for bound in (low, high))
        if most is not None and most < last - first:
            first, last = (last - most, last) if reverse else (first, first + most)
        return iter(keys[first:last][::-1] if reverse else keys[first:last])

    def _last_key(self) -> str | None:
        keys = self._order.keys()
        return keys[-1] if keys else None

    @locked
    def _previews(self, limit: int) -> Iterator[tuple[str, str]]:
        from versioned_state.repository.views.render import one_line

        return iter([(key, one_line(self._values[key])) for key in self._order.keys()[:limit]])

    @locked
    def namespace(self, name: str) -> Live:
        namespace_prefix(name)
        space = self._namespaces.setdefault(name, Live())
        space._outermost = self._root
        space._names = (*self._names, name)
        return space

    @locked
    def namespaces(self) -> list[str]:
        return sorted(name for name, space in self._namespaces.items() if space or space.namespaces())

    @locked
    def sequence(self, key: str) -> LiveSequence:
        user_key(key)
        return LiveSequence(self, key)

    def release(self, key: str) -> bool:
        """Return False if the key exists: its value is stored nowhere else, so it cannot be released."""
        user_key(key)
        return key not in self

    @property
    def _root(self) -> Live:
        """The state that this is a namespace of, or this one."""
        return self if self._outermost is None else self._outermost

    def _effect_ledger(self) -> LiveLedger:
        """Return the ledger of effects, which is made at its first use and shared by all namespaces."""
        root = self._root
        with ready(root._lock):
            if root._ledger is None:
                from versioned_state.repository.ledger import LiveLedger

                root._ledger = LiveLedger()
            return root._ledger

    def __repr__(self) -> str:
        return f"<Live with {len(self)} key{'' if len(self) == 1 else 's'}>"


class LiveSequence(StateSequence):
    """A ``StateSequence`` over a ``Live`` state, whose lists are always loaded."""

    def __init__(self, state: Live, key: str) -> None:
        self._state = state
        self._name = key
        self._lock = state._lock
        self._check()

    def _check_open(self) -> None:
        self._state._check_open()

    def _live(self) -> list[Any]:
        return as_list(self._state.get(self._name, []))

    def _on_loaded(self, live: list[Any], change: Callable[..., Any], *arguments: Any) -> Any:
        result = change(live, *arguments)
        if live and self._name not in self._state:
            self._state[self._name] = live
        return result

    def _load(self) -> list[Any]:
        return self._live()
