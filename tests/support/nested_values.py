"""Values nested to a chosen depth, in one kind of container or another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def nest(wrap: Callable[[Any], Any], depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: [v],
    "tuple": lambda v: (v,),
    "dict": lambda v: {"k": v},
    "frozenset": lambda v: frozenset([v]),
    "large list": lambda v: [v, "x" * 3000, "y" * 3000],
    "large dict": lambda v: {"k": v, **{f"k{n}": "x" * 100 for n in range(60)}},
    "mixed": lambda v: [({"k": v},)],
}
