"""Typed values made from unpacked bytes. Layer: values.

MessagePack unpacks a typed value as a list of a head and the data. After all bytes are unpacked, a walk turns these
lists into values.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple, cast

import msgpack

from versioned_state.errors import LimitExceededError, MissingDependencyError
from versioned_state.values.cells import MAX_DEPTH, MAX_NESTING
from versioned_state.values.decode.objects import read_typed
from versioned_state.values.typed.layout import Layout
from versioned_state.values.typed.older import OlderForms
from versioned_state.values.typed.reflection import inherits
from versioned_state.values.typed.registry import Classes, find_layout
from versioned_state.values.typed.tagged import Tagged

PENDING: Final = object()
"""Stands for a value that refers to objects that are not fetched yet."""

_UNKNOWN: Final = object()
_SCALARS: Final = frozenset({str, int, float, bool, type(None), bytes})
_only_scalars = _SCALARS.issuperset


class Head(NamedTuple):
    """The name and notes of a typed value, which precede its data."""

    name: Any
    notes: Any


class TypedReader:
    """The typed values of one read. Not for two threads at once.

    Args:
        classes: the classes whose values become instances.
        describes: whether the values are only shown. One of pandas is then shown as ``Tagged`` if pandas is not
            installed; else it is an error, since a ``Tagged`` does not do as a table.

    Attributes:
        heads: how many heads were read whose values are not made yet.
        made: by id, the lists and dicts within a value whose typed values are made already.
        older: records values that were stored in an older form, for those who write them again.
    """

    def __init__(self, classes: Classes, *, describes: bool = False) -> None:
        self.heads: int = 0
        self.made: dict[int, Any] = {}
        self.older: OlderForms | None = None
        self._classes: Classes = classes
        self._describes = describes
        self._layouts: dict[str, Layout | object | None] = {}
        self._known: dict[bytes, Head] = {}
        self._members: dict[tuple[str, str], Enum] = {}

    def clear(self) -> None:
        """Forget the layouts of this read: a class may be defined again before the next one."""
        self.made.clear()
        self._layouts.clear()
        self._known.clear()
        self._members.clear()

    def known_head(self, payload: bytes) -> Any:
        """Return a head that was read before, or None."""
        head = self._known.get(payload)
        if head is not None:
            self.heads += 1
        return head

    def head(self, payload: bytes, parts: Any) -> Any:
        if type(parts) is not list or not 1 <= len(parts) <= 3:
            raise ValueError("a typed value without a head")
        if len(parts) == 3:  # a key
            return self.value(parts[0], parts[2], parts[1])
        self.heads += 1
        head = Head(parts[0], parts[1] if len(parts) == 2 else None)
        # nothing in it that can change
        if head.notes is None or (type(head.notes) is dict and "fields" not in head.notes):
            self._known[payload] = head
        return head

    def resolved(self, value: Any, depth: int = 0) -> Any:
        """Return the value in which every list that begins with a head is replaced by its typed value."""
        cls = type(value)
        if depth > MAX_NESTING:
            raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH)
        # an object may contain itself, and a large list would be walked once for each list around it
        if id(value) in self.made:
            return value
        if cls is list:
            if value and type(value[0]) is Head:
                head, data = value
                return self.value(head.name, self.resolved(data, depth + 1), head.notes)
            keys: Any = range(len(value))
            parts: Any = value
        elif cls is dict:
            if Head in map(type, value):
                raise ValueError("the head of a typed value as a key")
            keys, parts = list(value), value.values()
        elif cls is Head:
            raise ValueError("the head of a typed value alone")
        elif cls is msgpack.Timestamp:
            raise ValueError("a MessagePack timestamp, which is not a type of this format")
        else:
            return value
        if not _only_scalars(map(type, parts)):
            for key in keys:
                part = value[key]
                if type(part) not in _SCALARS:
                    value[key] = self.resolved(part, depth + 1)
        return value

    def value(self, name: Any, data: Any, notes: Any) -> Any:
        if data is PENDING:
            return PENDING
        if type(data) is str and type(name) is str and notes is None:  # most often a member of an Enum
            member = self._members.get((name, data))
            if member is not None:
                return member
        value, same = self.make(name, data, notes)
        if same and inherits(type(value), Enum):
            self._members[name, data] = value
        if not same:
            self.note_older(value, Tagged(name, data if type(data) is not dict else dict(data), notes))
        return value

    def make(self, name: Any, data: Any, notes: Any) -> tuple[Any, bool]:
        """Return the value of a record, and whether it would be stored in the same form again."""
        if type(name) is not str or not name or (notes is not None and type(notes) is not dict):
            raise ValueError("a typed value without a name, or with notes of another kind")
        layout = self._layouts.get(name, _UNKNOWN)
        if layout is _UNKNOWN:
            layout = self._layouts[name] = find_layout(name, self._classes)
        value, same = read_typed(cast("Layout | None", layout), name, data, notes)
        if type(value) is Tagged and not self._describes and name.startswith("pandas."):
            from versioned_state.values.tables.layouts import missing_extra

            if (extra := missing_extra(name)) is not None:
                raise MissingDependencyError(f"reading a {name}", extra=extra)
        return value, same

    def note_older(self, value: Any, stored: Tagged) -> None:
        """Record a value that was just made from an older form."""
        if self.older is not None:
            self.older.add(value, stored)
