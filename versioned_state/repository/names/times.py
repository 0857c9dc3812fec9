"""Times as people write them: ``2026-11-21``, ``yesterday``, ``2 hours ago``, ``3d``. Layer: repository.

The one parser for filters, for ``main@{…}`` and for the options of ``vstate``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import system_clock

When = datetime | date | str | int
"""An instant: a datetime, microseconds since 1970, or a text.

A text is ISO 8601, ``now``, or an age such as ``2 hours ago``. An instant without a time zone is in UTC. A date is its
whole day, and so are ``today`` and ``yesterday``.
"""

EXAMPLES: Final = "2026-11-21, 2026-11-21T12:00 (UTC, unless it ends with +01:00), yesterday, 2 hours ago, or 3d"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}
# A capital letter is refused: 1M may be meant as a month, and m is a minute.
_AGE: Final = re.compile(
    r"(?P<count>[0-9]{1,6}|an?|last)[ .]*"
    r"(?P<unit>s|m|h|d|w|y|(?:sec|min|hr)s?|(?:second|minute|hour|day|week|month|year)s?)(?P<ago>[ .]+ago)?"
)


def instants(when: When, clock: Callable[[], int] = system_clock) -> tuple[int, int]:
    """Return the first and the last microsecond since 1970 of a time. Raises ``InvalidArgumentError``.

    Args:
        clock: the present in microseconds since 1970, for a text that depends on it.
    """
    if type(when) is int:
        return when, when
    if isinstance(when, str):
        when = parse_time(when, clock)
    if isinstance(when, datetime):
        at = _microseconds(when)
        return at, at
    if isinstance(when, date):
        start = _microseconds(datetime(when.year, when.month, when.day, tzinfo=UTC))
        return start, start + timedelta(days=1) // _MICROSECOND - 1
    raise InvalidArgumentError(
        f"a time must be a datetime, a date, a string or microseconds, not {type(when).__name__}"
    )


def parse_time(text: str, clock: Callable[[], int]) -> datetime | date:
    """Return the time that a text names. A month of an age has 30 days, a year 365. Raises ``InvalidArgumentError``."""
    for cls in (date, datetime):
        try:
            return cls.fromisoformat(text)
        except ValueError:
            continue
    words = text.strip()
    days, age = {"today": 0, "yesterday": 1}.get(words), _age_of(words)
    if days is None and age is None:
        raise InvalidArgumentError(f"{text!r} is not a date or time", hint=f"such as {EXAMPLES}")
    now = _EPOCH + timedelta(microseconds=clock())
    if days is not None:
        return now.date() - timedelta(days=days)
    try:
        return now - (age or timedelta())
    except OverflowError:  # an age of thousands of years
        return datetime.min.replace(tzinfo=UTC)


def _age_of(words: str) -> timedelta | None:
    if words == "now":
        return timedelta()
    found = _AGE.fullmatch(words)
    if found is None or (
        found["count"] == "last" and (found["ago"] or not found["unit"].startswith(("week", "month", "year")))
    ):
        return None
    unit = "mo" if found["unit"].startswith("mo") else found["unit"][0]
    return timedelta(seconds=_SECONDS[unit] * (int(found["count"]) if found["count"].isdecimal() else 1))


def _microseconds(at: datetime) -> int:
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
