"""Instances that were read from an older form: until they change, they are stored in that form again. Layer: values.

A class may have gained or lost fields, moved, or got a new version since an instance was stored. The instance is made
for the present class, so encoding it again would give another cell although nobody changed it. Its stored cell is
therefore kept, with its fingerprint.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from versioned_state.errors import StateError
from versioned_state.values.typed.tagged import Tagged


class OlderForms:
    """The stored forms of instances, by identity, while the instances live. Not for two threads at once.

    Args:
        fingerprint: returns a fingerprint of the content of a value, or None if it has none.
        encode: returns the inline cell of a value.
    """

    def __init__(self, fingerprint: Callable[[Any], Any], encode: Callable[[Any], bytes]) -> None:
        self._fingerprint = fingerprint
        self._encode = encode
        self._known: dict[int, tuple[Callable[[], Any], bytes, Any]] = {}
        self._room = 64  # the number of entries at which those of dead instances are removed

    def add(self, value: Any, stored: Tagged) -> None:
        """Remember the stored form that an instance was just made from."""
        try:
            cell = self._encode(stored)
        except StateError:  # it contains an object that cannot be pickled again
            return
        fingerprint = self._fingerprint(value)
        if fingerprint is None:
            return
        if len(self._known) >= self._room:
            self._known = {key: known for key, known in self._known.items() if _is_held(known[0])}
            self._room = max(64, 2 * len(self._known))
        try:
            held: Callable[[], Any] = weakref.ref(value)
        except TypeError:  # an instance without weak references is kept alive until the table is full
            held = partial(_itself, value)
        self._known[id(value)] = (held, cell, fingerprint)

    def cell_of(self, value: Any) -> bytes | None:
        """Return the inline cell of an instance that has not changed since it was read, or None for any other value."""
        known = self._known.get(id(value))
        if known is None or known[0]() is not value:
            return None
        if self._fingerprint(value) != known[2]:
            del self._known[id(value)]
            return None
        return known[1]


def _itself(value: Any) -> Any:
    return value


def _is_held(held: Callable[[], Any]) -> bool:
    """Return whether anyone else refers to an instance."""
    value = held()
    # Referred to by ``value``, by the argument of ``getrefcount`` and, without weak references, by ``held``.
    return value is not None and sys.getrefcount(value) > (3 if isinstance(held, partial) else 2)
