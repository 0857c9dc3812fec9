"""Ages on the command line: ``90d``, ``2 weeks``, or the time that lies so far back. Layer: cli."""

from __future__ import annotations

from datetime import timedelta

import click

from versioned_state.cli.render import text
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.names.times import instants


def parse_age(value: str | timedelta) -> timedelta:
    """Return the age of an argument: a number and a unit, or the time since a date."""
    if isinstance(value, timedelta):  # a default
        return value
    now = text.now()
    try:
        since, _ = instants(value, lambda: now)
    except InvalidArgumentError:
        raise click.BadParameter(
            f"{value!r} is not an age: write a number and a unit, such as 90d or '2 weeks'"
        ) from None
    if since > now:
        raise click.BadParameter(f"{value!r} lies in the future")
    return timedelta(microseconds=now - since)
