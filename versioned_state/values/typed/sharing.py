"""The parts of a value that must be stored as objects, because an object in them is at two places. Layer: values.

Data is read back as a tree. So if a value contains itself, or if an instance of an ordinary class is at two places, the
smallest part that holds all these places is pickled, which preserves the sharing. Dataclasses, models, lists and dicts
are values: two places come back as two copies. Within an ordinary instance, however, the sharing of lists, dicts and
sets is preserved too: its class may rely on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from versioned_state.values.cells import MAX_DEPTH
from versioned_state.values.codec.scalars import WRITERS
from versioned_state.values.typed.enums import EnumLayout
from versioned_state.values.typed.layout import Layout
from versioned_state.values.typed.registry import layout_of
from versioned_state.values.typed.tagged import Tagged

_SCALARS: Final = frozenset({*WRITERS, float, bool, type(None)})
_CONTAINERS: Final = frozenset({list, dict, tuple, set, frozenset})
_MUTABLE: Final = frozenset({list, dict, set})
_are_str = frozenset({str}).issuperset


class _Place:
    """A part on the path from the value to the present part of the walk."""

    __slots__ = ("at_end", "depth", "holds_identity", "in_ordinary", "outermost", "parent", "up", "value")

    def __init__(self, value: Any, parent: _Place | None, *, typed: bool, ordinary: bool) -> None:
        self.value = value
        self.parent = parent
        self.up = parent  # or a place further up, when all between are at their end
        self.outermost: Any = value if typed else None  # the outermost typed value on the path
        if parent is not None and parent.outermost is not None:
            self.outermost = parent.outermost
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.in_ordinary: bool = ordinary or (parent is not None and parent.in_ordinary)
        self.holds_identity = ordinary
        self.at_end = False


def find_shared(value: Any) -> dict[int, Any]:
    """Return the parts, by id, to store as objects. Cost: about a microsecond for each part that is not a scalar."""
    walk = _Walk()
    walk.run(value)
    return walk.shared


def find_reasons(value: Any) -> dict[int, str]:
    """Return by id the reason why each part must be stored as an object."""
    walk = _Walk(MAX_DEPTH)
    walk.run(value)
    return {**dict.fromkeys(walk.deep, f"what it holds is nested deeper than {MAX_DEPTH}"), **walk.reasons}


def find_deep(value: Any, limit: int) -> dict[int, Any]:
    """Return by id the outermost instances around nesting beyond ``limit``: a long chain is stored as an object."""
    walk = _Walk(limit)
    walk.run(value)
    return walk.deep


class _Walk:
    """One walk over a value.

    Attributes:
        shared: the parts that were found.
        reasons: why each must be stored as an object.
        deep: the outermost instances around parts that are deeper than the limit.
    """

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self.deep: dict[int, Any] = {}
        self.shared: dict[int, Any] = {}
        self.reasons: dict[int, str] = {}
        self._first: dict[int, _Place] = {}
        self._leaves: dict[int, _Place] = {}  # instances without parts of their own: the place that holds each
        self._layouts: dict[type, Layout | None] = dict.fromkeys((*_CONTAINERS, Tagged))  # of types with parts
        self._scalars = set(_SCALARS)
        self._kept: list[Any] = []  # keeps the parts that are made for the walk alive, so that no id is reused

    def run(self, value: Any) -> None:
        if not self._has_parts(type(value)):
            return
        root = self._enter(value, None)
        stack = [(root, self._parts(value))]
        while stack:
            place, parts = stack[-1]
            below = self._next(place, parts)
            if below is not None:
                stack.append((self._enter(below, place), self._parts(below)))
                continue
            stack.pop()
            place.at_end = True
            if place.parent is not None and place.holds_identity:
                place.parent.holds_identity = True

    def _next(self, place: _Place, parts: Iterator[Any]) -> Any:
        """Return the next part of a place to walk into, or None after the last one."""
        first, layouts, scalars = self._first, self._layouts, self._scalars
        for part in parts:
            cls = type(part)
            if cls in scalars:
                continue
            known = first.get(id(part))
            if known is not None:
                common = _common(known)
                if not known.at_end or known.holds_identity or (cls in _MUTABLE and common.in_ordinary):
                    self._note_shared(common, part, contains_itself=common is known)
                continue
            if not self._has_parts(cls):
                continue
            layout = layouts[cls]
            if layout is not None and place.depth + 1 < self._limit and self._is_leaf(part, layout):
                if layout.has_identity:
                    self._note_leaf(part, place)
                continue
            return part
        return None

    def _is_leaf(self, part: Any, layout: Layout) -> bool:
        """Return whether an instance has no parts, or does not show them because it is stored as an object."""
        try:
            return self._scalars.issuperset(map(type, layout.parts(part)))
        except Exception:  # noqa: BLE001 - code of the value's own type; encoding it gives the error its path
            return True

    def _has_parts(self, cls: type) -> bool:
        if cls not in self._layouts:
            layout = layout_of(cls)
            if layout is None or type(layout) is EnumLayout:
                self._scalars.add(cls)
                return False
            self._layouts[cls] = layout
        return True

    def _note_leaf(self, part: Any, place: _Place) -> None:
        place.holds_identity = True
        other = self._leaves.get(id(part))
        if other is None:
            self._leaves[id(part)] = place
        else:
            self._note_shared(_common(other), part)

    def _enter(self, value: Any, parent: _Place | None) -> _Place:
        layout = self._layouts[type(value)]
        ordinary = layout is not None and layout.has_identity
        place = self._first[id(value)] = _Place(value, parent, typed=layout is not None, ordinary=ordinary)
        self._kept.append(value)
        if place.depth >= self._limit:
            outermost = place.outermost
            if outermost is not None:
                self.deep[id(outermost)] = outermost
        return place

    def _note_shared(self, common: _Place, part: Any, *, contains_itself: bool = False) -> None:
        self.shared[id(common.value)] = common.value
        one = f"one {type(part).__qualname__} in it is at two places"
        self.reasons.setdefault(id(common.value), "it contains itself" if contains_itself else one)

    def _parts(self, value: Any) -> Iterator[Any]:
        cls = type(value)
        layout = self._layouts[cls]
        parts: Any
        if layout is not None:
            try:
                parts = layout.parts(value)
            except Exception:  # noqa: BLE001 - the same
                return iter(())
            self._kept.append(parts)
        elif cls is dict:
            parts = value.values() if _are_str(map(type, value)) else [*value, *value.values()]
        elif cls is Tagged:
            parts = (value.fields,)
        else:
            parts = value
        return iter(()) if self._scalars.issuperset(map(type, parts)) else iter(parts)


def _common(known: _Place) -> _Place:
    """Return the deepest part that contains both a place and the present one.

    The places that are not at their end are on the present path.

    Cost: constant on average, since the way up is remembered (union-find), however long a chain is and however many
    refer to one part.
    """
    passed = []
    place = known
    while place.at_end:
        passed.append(place)
        assert place.up is not None
        place = place.up
    for each in passed:
        each.up = place
    return place
