"""``vstate get``: one value. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.render.output import Output
from versioned_state.cli.render.text import value_lines
from versioned_state.cli.shared.place import explained, path_in, value_at
from versioned_state.cli.shared.settings import Settings, json_option, place_argument, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.render import json_value


@verb("get", "Show one value.", example="vstate get main~3:messages[17].content")
@place_argument(metavar="[REV:]PATH")
@click.option("--raw", is_flag=True, help="Print text or bytes exactly as stored, control characters included.")
@json_option
@click.pass_obj
def get(settings: Settings, place: str, *, raw: bool, as_json: bool) -> None:
    """Show the value at PATH in REV (default: HEAD). REV: alone shows the whole state.

    A string is printed as text, any other value as a Python literal. Control characters are escaped, in a pipe too, unless
    --raw is given. With --json: one JSON value; a type that JSON does not have becomes {"$type": ...}.
    """
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    rev, path = path_in(place)
    with settings.reading() as repository, settings.output.paged(unless=as_json or raw), explained(repository, "vstate get", rev, path):
        print_value(settings.output, repository, rev, path, raw=raw, as_json=as_json)


def print_value(output: Output, repository: Repository, rev: str, path: str, *, raw: bool = False, as_json: bool = False) -> None:
    """Print the value at a path, or the whole state for an empty one."""
    snapshot = repository.snapshot(rev, describe=True)
    if as_json:
        output.json(value_at(snapshot, path, json_value))
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
