"""Copies of values: of their containers, or of everything in them that may change. Layer: agents."""

from __future__ import annotations

import copy
import sys
from operator import is_
from typing import Any, Final

from versioned_state.errors import LimitExceededError

ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


def copied(value: Any) -> Any:
    """Return a value with new lists, dicts, tuples, sets and bytearrays, including those of subclasses.

    Cost: the containers.

    Any other object in it stays the same one.

    Raises:
        LimitExceededError: a container holds itself, or the value is nested too deeply.
    """
    try:
        return value if type(value) in ATOMS else _copied(value)
    except RecursionError:
        raise LimitExceededError(
            "the depth of a state, one of whose containers may hold itself,", limit=sys.getrecursionlimit()
        ) from None


def _copied(value: Any) -> Any:
    cls = type(value)
    if cls in ATOMS:
        return value
    if cls is dict:
        twin = value.copy()
        if not ATOMS.issuperset(map(type, twin.values())):
            for key, each in twin.items():
                if type(each) not in ATOMS:
                    twin[key] = _copied(each)
        return twin
    if cls is list:
        twin = value.copy()
        if not ATOMS.issuperset(map(type, twin)):
            twin = [each if type(each) in ATOMS else _copied(each) for each in twin]
        return twin
    if cls is tuple:
        return tuple([each if type(each) in ATOMS else _copied(each) for each in value])
    return _copied_otherwise(value)


def _copied_otherwise(value: Any) -> Any:
    if isinstance(value, set | bytearray):
        return copy.copy(value)
    if isinstance(value, dict):
        entries = copy.copy(value)
        for key, each in list(entries.items()):
            dict.__setitem__(entries, key, _copied(each))
        return entries
    if isinstance(value, list):
        elements = copy.copy(value)
        list.__setitem__(elements, slice(None), [_copied(each) for each in elements])
        return elements
    if isinstance(value, tuple):
        parts = [_copied(each) for each in value]
        return value if all(map(is_, parts, value)) else tuple.__new__(type(value), parts)
    return value


class _NotPlainError(Exception):
    """A part of a value that others may change, and that cannot be copied here."""


def captured(value: Any) -> Any:
    """Return a copy that nobody else can change, or None if the value is not plain.

    A plain value is made of exact lists, dicts and immutable values alone.
    """
    try:
        return _captured(value)
    except (_NotPlainError, RecursionError):
        return None


def captured_whole(value: Any) -> Any:
    """Return a copy as ``captured`` does, of any value.

    Only an instance whose type cannot be copied stays the same one.

    Raises ``LimitExceededError`` if the value is nested too deeply.
    """
    twin = value if type(value) in ATOMS else captured(value)
    if twin is not None or value is None:
        return twin
    try:
        return copy.deepcopy(value)  # in one call, so that an instance at two places stays one
    except Exception:  # noqa: BLE001 - code of the value's own types. Encoding it raises the error with its path
        return copied(value)


def _captured(value: Any) -> Any:
    cls = type(value)
    if cls in ATOMS:
        return value
    if cls is dict:
        if not ATOMS.issuperset(map(type, value)):
            raise _NotPlainError
        twin = value.copy()
        for key, each in twin.items():
            if type(each) not in ATOMS:
                twin[key] = _captured(each)
        return twin
    if cls is list:
        return [each if type(each) in ATOMS else _captured(each) for each in value]
    raise _NotPlainError
