"""Registrations that end with a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from versioned_state.values.typed import registry

_TABLES: tuple[dict[Any, Any], ...] = (registry._registered, registry._by_name, registry._upgrades)


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget, at the end of the block, the types that were registered within."""
    before = [dict(table) for table in _TABLES]
    try:
        yield
    finally:
        for table, entries in zip(_TABLES, before, strict=True):
            table.clear()
            table.update(entries)


def forget(cls: type) -> None:
    """Forget the registration of a type."""
    layout = registry._registered.pop(id(cls))
    for name in [name for name, each in registry._by_name.items() if each is layout]:
        del registry._by_name[name]
