"""The check whether a value is referred to from outside of the worktree, by reference counts. Layer: state.

A value that only the worktree refers to cannot change unseen, so it need not be kept for comparison. On a Python
without exact reference counts, every value counts as held.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain
from typing import Any, Final
from weakref import getweakrefcount

from versioned_state.state.worktree.entries import IMMUTABLE
from versioned_state.state.worktree.lists.pieces import Element
from versioned_state.values.typed.registry import FunctionLayout, layout_of

_MOST_PARTS: Final = 10_000
"""The parts of a value that are examined. A larger value counts as held, since comparing it costs no more."""

_count: Final[Callable[[Any], int] | None] = (
    getattr(sys, "getrefcount", None)
    if getattr(sys, "_is_gil_enabled", lambda: True)() and sys.implementation.name == "cpython"
    else None
)


def is_held(element: Element) -> bool:
    """Return whether other code may refer to the value of an element, or to a part of it.

    Cost: each part that is not immutable.
    """
    if type(element.value) in IMMUTABLE:
        return False
    return _count is None or _is_held(element, _count)


def are_held(elements: Sequence[Element]) -> list[bool]:
    """Return ``is_held`` for each element.

    Faster than single calls if the values themselves are held, as just after a read, and if all are dicts of immutable
    values.
    """
    count = _count
    if count is None:
        return list(map(is_held, elements))
    if _are_flat([element.value for element in elements]):
        return [count(element.value) > _ALONE for element in elements]
    return [
        (type(element.value) in _CONTAINERS and count(element.value) > _ALONE) or is_held(element)
        for element in elements
    ]


def _are_flat(values: list[Any]) -> bool:
    """Return whether all values are dicts of immutable keys and values, of which no part can be held.

    Most messages are.
    """
    if not _only_dicts(map(type, values)):
        return False
    return _only_immutable(map(type, chain.from_iterable(map(dict.values, values)))) and _only_immutable(
        map(type, chain.from_iterable(values))
    )


def _is_held(element: Element, count: Callable[[Any], int]) -> bool:
    if not _is_countable(type(element.value)) or count(element.value) > _ALONE or getweakrefcount(element.value):
        return True
    rows = [gc.get_referents(element.value)]
    seen = 0
    while rows:
        row = rows.pop()
        seen += len(row)
        if seen > _MOST_PARTS:
            return True
        while row:
            # The list refers to the part, and so do its container and this call.
            cls = type(row[-1])
            if (
                cls in IMMUTABLE
                or issubclass(cls, _SHARED)
                or (cls is tuple and IMMUTABLE.issuperset(map(type, row[-1])))
            ):
                row.pop()
            elif not _is_countable(cls) or count(row[-1]) > _ALONE + 1 or getweakrefcount(row[-1]):
                return True
            else:
                parts = gc.get_referents(row.pop())
                if parts:
                    rows.append(parts)
    return False


def _is_countable(cls: type) -> bool:
    """Return whether ``gc`` sees all references from a class's instances, and only a reference to one can reach it."""
    return cls in _CONTAINERS or type(layout_of(cls)) not in _UNCOUNTABLE


_only_dicts: Final = frozenset({dict}).issuperset
_only_immutable: Final = IMMUTABLE.issuperset
_CONTAINERS: Final = frozenset({dict, list, tuple, set, frozenset})
_UNCOUNTABLE: Final = frozenset({type(None), FunctionLayout})
_SHARED: Final = (type, Enum)
"""Classes whose instances many values refer to, and no code changes."""


def _count_alone(count: Callable[[Any], int]) -> int:
    element = Element({})
    return count(element.value)


_ALONE: Final = 0 if _count is None else _count_alone(_count)
"""The reference count of the value of an element that nothing else refers to."""
