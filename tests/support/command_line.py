"""A command line run in this process: its result, the checks of its errors, and the folder of snapshots."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SNAPSHOTS = Path(__file__).parents[1] / "cli" / "snapshots"

_PYTHON = re.compile(
    r"^(?:error|hint): .*(?:\b\w+\(\)|\b[a-z_]+\([^ )]*['=,]|\b[a-z]+_[a-z_]+\b|\w=(?:['\"{[]|True|None))", re.MULTILINE
)


@dataclass
class Result:
    """The output of a command line, and its exit code."""

    stdout: str
    stderr: str
    code: int

    @property
    def objects(self) -> list[Any]:
        """The values of a line of JSON each that were printed."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def shown(self, command: str) -> str:
        """Return all of it as one text, for a snapshot."""
        parts = [f"$ {command}\n", self.stdout]
        if self.stderr:
            parts.append(f"--- stderr\n{self.stderr}")
        if self.code:
            parts.append(f"--- exit {self.code}\n")
        return "".join(parts)


Vstate = Callable[..., Result]


def speaks_python(stderr: str) -> bool:
    """Return whether an error or a hint contains a call, an argument or a name of Python, except after "in Python:"."""
    return _PYTHON.search(re.sub(r"in Python: .*|\S+://\S+", "", stderr)) is not None


def assert_error(result: Result, *words: str, code: int = 1) -> None:
    """Assert that stderr is one line of an error with these words, and at most one line of a hint."""
    first, *rest = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert len(rest) <= 1
    assert all(line.startswith("hint: ") for line in rest)
    for word in words:
        assert word in result.stderr
    assert result.code == code
