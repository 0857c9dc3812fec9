"""What every kind of state is: a mutable mapping with string keys in sorted order, and namespaces. Layer: state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Self


class State(MutableMapping[str, Any]):
    """A dict of plain values under string keys. Iteration is in the order of the keys. ``|`` gives a plain dict.

    Tasks take any of them: ``Live``, ``Versioned``, or a namespace of either.
    """

    @abstractmethod
    def namespace(self, name: str) -> State:
        """The part of the state under a name, as a state of its own. Its keys never meet those of another, or of this one."""

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ior__(self, other: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Self:
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        """The keys and live values as a plain dict; the values are not copied."""
        return dict(self.items())

    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with ``prefix``, in order."""
        return (key for key in self if key.startswith(prefix))
