"""``vstate get``: one value. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.render.text import value_lines
from versioned_state.cli.shared.place import split_place, value_at
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.views.render import json_value


@verb("get", "Show one value.", example="vstate get main~3:messages[17].content")
@click.argument("place", metavar="[REV:]PATH")
@click.option("--raw", is_flag=True, help="Print a text or bytes exactly as they are, control characters included.")
@json_option
@click.pass_obj
def get(settings: Settings, place: str, *, raw: bool, as_json: bool) -> None:
    """Show the value at PATH in REV (default: HEAD). REV: alone shows the whole state.

    A text is printed as text, anything else as a Python literal; control characters are written out, also in a pipe, unless
    --raw is given. With --json: one JSON value; what JSON has no type for shows as {"$type": ...}.
    """
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    output = settings.output
    rev, path = split_place(place)
    with settings.reading() as repository, output.paged(unless=as_json or raw):
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
        f"--raw takes a text or bytes, and this is a value of type {type(value).__name__}", hint="--json shows any value"
    )
