"""Patterns of paths: ``messages``, ``users.*.score``, ``**.log``. Layer: values.

A pattern is written as a path is. ``*``, or ``[*]``, stands for any one step; ``**`` for any number of them, none
included.
"""

from __future__ import annotations

from typing import Final, Literal

from versioned_state.errors import InvalidPathError
from versioned_state.records import dataclass
from versioned_state.values.paths.path import StatePath, Step, parse_step

_ANY: Final = "*"
_DEEP: Final = "**"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that matches paths. ``text`` is the pattern as its author wrote it."""

    text: str
    steps: tuple[Step | Literal["*", "**"], ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Return the pattern that a string shows. Raises ``InvalidPathError``."""
        steps: list[Step | Literal["*", "**"]] = []
        position = 0
        while position < len(text):
            start = position + 1 if steps and text[position] == "." else position
            if text.startswith("**", start):
                steps.append("**")
                position = start + 2
            elif text.startswith("*", start) or text.startswith("[*]", position):
                steps.append("*")
                position = start + (1 if text[start] == "*" else 3)
            else:
                step, position = parse_step(text, position, first=not steps)
                steps.append(step)
        if not steps:
            raise InvalidPathError(text, 0, "it is empty")
        return cls(text, tuple(steps))

    def matches(self, path: StatePath) -> bool:
        """Return whether the pattern matches a whole path."""
        return len(self.steps) in self._reached(path)

    def may_match_below(self, path: StatePath) -> bool:
        """Return whether the pattern matches a path, or could match one below it."""
        return bool(self._reached(path))

    def _reached(self, path: StatePath) -> set[int]:
        """Return the numbers of steps of the pattern that the path can use up."""
        reached = self._skip({0})
        for step in path.steps:
            after = set()
            for index in reached:
                if index < len(self.steps):
                    expected = self.steps[index]
                    if expected == _DEEP:
                        after.add(index)
                    elif expected in (_ANY, step):
                        after.add(index + 1)
            reached = self._skip(after)
        return reached

    def _skip(self, reached: set[int]) -> set[int]:
        """Add the positions that are reached because ``**`` may match no step."""
        for index in sorted(reached):
            while index < len(self.steps) and self.steps[index] == _DEEP:
                index += 1  # noqa: PLW2901 - a walk on from there
                reached.add(index)
        return reached

    def __str__(self) -> str:
        return self.text
