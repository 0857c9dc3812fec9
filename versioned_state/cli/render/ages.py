"""Ages on the command line: ``90d``, ``12h``. Layer: cli."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

import click

_AGE: Final = re.compile(r"(\d{1,6}) ?(s|m|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """A number and a unit: s, m, h, d or w."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _AGE.fullmatch(str(value).strip())
        if not match:
            self.fail(f"{value!r} is not an age: write a number and s, m, h, d or w, such as 90d", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


AGE: Final = Age()
