"""Cases of which an everyday run takes some: the others take the same paths with other values, and run in the long run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """The first ``count`` of these cases for every run, the others for the long one. A tuple is a case of several parameters."""
    return [case if number < count else _long(case) for number, case in enumerate(cases)]


def _long(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
