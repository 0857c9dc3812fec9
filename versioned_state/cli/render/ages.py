"""Ages on the command line: ``90d``, ``12h``. Layer: cli."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import click

_AGE: Final = re.compile(r"(\d{1,6}) ?(s|m|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(value: str | timedelta) -> timedelta:
    """Return the age of an argument: a number and a unit, which is s, m, h, d or w."""
    if isinstance(value, timedelta):  # a default
        return value
    match = _AGE.fullmatch(value.strip())
    if not match:
        raise click.BadParameter(f"{value!r} is not an age: write a number and s, m, h, d or w, such as 90d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
