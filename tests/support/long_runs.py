"""Cases of which an everyday run has some. The others run the same code with other values, in the long run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the first ``count`` of these cases for every run, the others for the long one.

    A tuple is a case of several parameters.
    """
    return [case if number < count else _long(case) for number, case in enumerate(cases)]


def _long(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
