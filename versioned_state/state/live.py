"""``Live``: a state of this process, without commits. Layer: state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from versioned_state.state.state import State
from versioned_state.values.keys import namespace_prefix, user_key


class Live(State):
    """A state that remembers within this process: any Python object under string keys, no commits, nothing stored.

    >>> state = Live()
    >>> state["connection"] = object()
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._namespaces: dict[str, Live] = {}

    def __getitem__(self, key: str) -> Any:
        user_key(key)
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        user_key(key)
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def namespace(self, name: str) -> Live:
        namespace_prefix(name)
        return self._namespaces.setdefault(name, Live())

    def __repr__(self) -> str:
        return f"<Live with {len(self)} keys>"
