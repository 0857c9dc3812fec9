"""``vstate get``: one value. Layer: cli."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from versioned_state.cli.render.output import Output
from versioned_state.cli.render.text import value_lines
from versioned_state.cli.shared.place import explained, path_in, value_at
from versioned_state.cli.shared.settings import Settings, json_option, place_argument, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value, plain_value


@verb("get", example="vstate get main~3:messages[17].content")
@place_argument(metavar="[REV:]PATH")
@click.option("--raw", is_flag=True, help="Print text or bytes exactly as stored, control characters included.")
@click.option("--plain", is_flag=True, help="Print JSON without types, as jq reads it best.")
@json_option
@click.pass_obj
def get(settings: Settings, place: str, *, raw: bool, plain: bool, as_json: bool) -> None:
    """Show the value at PATH in REV (default: HEAD). REV: alone shows the whole state.

    A string is printed as text, a date or time in ISO 8601, any other value as Python writes it. Control characters are
    escaped, in a pipe too, unless --raw is given.

    With --json: one JSON value; a type that JSON does not have becomes {"$type": ...}, which vstate set, merge --set,
    import and apply
    read back. With --plain: an instance is its fields, a date its ISO text, a tuple or set a list, NaN null, and
    nothing says so.
    """
    if raw + plain + as_json > 1:
        raise click.UsageError("--raw, --plain and --json exclude each other")
    rev, path = path_in(place)
    output, convert = settings.output, plain_value if plain else json_value if as_json else None
    with (
        settings.reading() as repository,
        output.paged(unless=convert is not None or raw),
        explained(repository, "vstate get", rev, path),
    ):
        print_value(output, repository, rev, path, raw=raw, convert=convert)


def print_value(
    output: Output,
    repository: Repository,
    rev: str,
    path: str,
    *,
    raw: bool = False,
    convert: Callable[[Any], Any] | None = None,
) -> None:
    """Print the value at a path, or the whole state for an empty one: as text, or as the JSON made by ``convert``."""
    snapshot = repository.snapshot(rev, describe=True)
    if convert is not None:
        output.json(value_at(snapshot, path, convert))
        return
    value = value_at(snapshot, path)
    if raw:
        output.write_bytes(_raw(value))
    elif type(value) is str:
        output.text(value)
    else:
        for line in value_lines(value, output.width):
            output.print(line)


def _raw(value: object) -> bytes:
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    raise InvalidArgumentError(
        f"--raw takes text or bytes, and this is a value of type {type(value).__name__}", hint="--json shows any value"
    )
