"""Dice for tests that try some of many cases: in each run other ones, and in CI the same, as Hypothesis' examples are.

So a change is not blamed in CI for what another one did.
"""

from __future__ import annotations

import os
import random
from typing import Final

CI: Final = bool(os.environ.get("CI"))


def dice(*what: object) -> random.Random:
    """Return a generator of random numbers for a test, which ``what`` tells from all others."""
    return random.Random(repr(what) if CI else None)
