"""A kind of operation."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class Dice(random.Random):
    """The random numbers of an operation, which prefers one branch and one session of the run.

    Attributes:
        hot: which of the branches, and of the sessions.
        heat: the probability that it is that one.
    """

    hot = 0
    heat = 0.0

    def place(self, names: Sequence[T]) -> T:
        """One of some names."""
        return names[self.hot % len(names)] if self.random() < self.heat else self.choice(names)


class Refused(Exception):  # noqa: N818 - it is not an error
    """An operation had nothing to work on."""


class Unknown(Exception):  # noqa: N818 - it is not an error
    """The client gave up, and the operation may still be done at any later time."""


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
