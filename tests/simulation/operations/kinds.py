"""A kind of operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Refused(Exception):
    """An operation had nothing to work on."""


@dataclass(frozen=True)
class Kind:
    """Attributes:
    run: carries it out.
    weight: how often it comes.
    always: whether every run has it.
    """

    run: Callable[..., Any]
    weight: int = 1
    always: bool = False


def table(*kinds: tuple[Callable[..., Any], int] | Callable[..., Any], always: tuple[str, ...] = ()) -> dict[str, Kind]:
    """A table of operations by name."""
    found = {}
    for each in kinds:
        run, weight = each if isinstance(each, tuple) else (each, 1)
        name = run.__name__
        found[name] = Kind(run, weight, name in always)
    return found
