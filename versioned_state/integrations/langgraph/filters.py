"""Filters: fields of metadata and of items, and LangGraph's operators on them. Layer: integrations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError

_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether a value has some fields.

    A field is compared by ``{"$gt": 5}``, or must be equal. Raises ``InvalidArgumentError``.
    """
    return all(_is_like(field_of(value, key), each) for key, each in (wanted or {}).items())


def field_of(value: Mapping[str, Any], key: str) -> Any:
    """Return a field, by its name or by a path with dots, or None."""
    if key in value or "." not in key:
        return value.get(key)
    first, _, rest = key.partition(".")
    inner = value.get(first)
    return field_of(inner, rest) if isinstance(inner, Mapping) else None


def _is_like(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_holds(found, name, each) for name, each in wanted.items())
        return isinstance(found, dict) and all(_is_like(found.get(key), each) for key, each in wanted.items())
    if isinstance(wanted, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(wanted)
        return same and all(_is_like(one, other) for one, other in zip(found, wanted, strict=True))
    return bool(found == wanted)


def _holds(found: Any, name: str, wanted: Any) -> bool:
    if name == "$eq":
        return bool(found == wanted)
    if name == "$ne":
        return bool(found != wanted)
    compare = _ORDER.get(name)
    if compare is None:
        raise InvalidArgumentError(f"{name!r} is not an operator of a filter", hint="$eq, $ne, $gt, $gte, $lt or $lte")
    if isinstance(found, str) and isinstance(wanted, str):
        return compare(found, wanted)
    try:
        return compare(float(found), float(wanted))
    except (TypeError, ValueError):
        return False  # a field that is missing, or of another kind
