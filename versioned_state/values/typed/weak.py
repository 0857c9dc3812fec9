"""Weak references in fields: stored as the name of the field that holds the same object, never as the object. Layer: values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ReferenceType, ref

from versioned_state.values.typed.layout import NotPlainDataError

Weak = Mapping[str, str | None]
"""The fields that are weak references, each with the field that holds what it refers to; None if no field does, or nothing lives there."""


def has_weak(fields: Mapping[str, Any]) -> bool:
    """Whether a field is a weak reference."""
    return ReferenceType in map(type, fields.values())


def weak_in(fields: Mapping[str, Any]) -> dict[str, str | None]:
    """The fields that are weak references, by name."""
    return {name: _holder(fields, fields[name]()) for name in sorted(fields) if type(fields[name]) is ReferenceType}


def _holder(fields: Mapping[str, Any], target: Any) -> str | None:
    return None if target is None else min((name for name, held in fields.items() if held is target), default=None)


def weak_noted(notes: Mapping[str, Any]) -> Weak:
    """The weak references in the notes. Raises ``NotPlainDataError``."""
    weak = notes.get("weak", {})
    if type(weak) is not dict or not all(type(name) is str and (holder is None or type(holder) is str) for name, holder in weak.items()):
        raise NotPlainDataError("the weak references are not fields")
    return weak


def revived(weak: Weak, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Make the weak references again. One to an object that these fields do not hold is dead: the object is not part of the value."""
    return {name: _reference_to(None if holder is None else fields.get(holder)) for name, holder in weak.items()}


def _reference_to(target: Any) -> Any:
    try:
        return ref(_Gone() if target is None else target)
    except TypeError:  # the present class does not support weak references
        return ref(_Gone())


class _Gone:
    """An object that is freed at once, for a dead reference."""

    __slots__ = ("__weakref__",)
