"""``vstate export``: a whole state as JSON. Layer: cli."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TextIO

import click

from versioned_state.cli.render.output import to_json
from versioned_state.cli.render.text import size
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.place import NOTE, entries, explained, revision_and_path, value_at
from versioned_state.cli.shared.settings import Settings, place_argument, verb
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.snapshot import Snapshot


@verb("export", example="vstate export main -o state.json")
@place_argument(default="HEAD", metavar="[REV[:PATH]]")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    help="Write to FILE, which is replaced once everything is written.",
    shell_complete=completion.file,
)
@click.option("--compact", is_flag=True, help="Write one line.")
@click.pass_obj
def export(settings: Settings, place: str, *, target: str | None, compact: bool) -> None:
    """Write the state at REV (default: HEAD), or the value at PATH in it, as JSON.

    A type that JSON does not have becomes {"$type": ...}, objects too: nothing is unpickled. Namespaces are under
    "$namespaces", the note of the commit, if it has one and no PATH is given, under "$note". vstate import --per-item
    reads it back, except objects.
    """
    output = settings.output
    rev, path = revision_and_path(place)
    with settings.reading() as repository, explained(repository, "vstate export", rev, path):
        snapshot = repository.snapshot(rev, describe=True)
        note = None if path or snapshot.commit is None else repository.notes.get(snapshot.commit)
        beside = {} if note is None else {NOTE: json_value(note)}
        if path:
            lines = iter(to_json(value_at(snapshot, path, json_value), indent=None if compact else 2).split("\n"))
        elif compact:
            lines = iter([to_json({**value_at(snapshot, path, json_value), **beside}, indent=None)])
        else:
            lines = _state_lines(snapshot, beside)
        if target is None or target == "-":
            for line in lines:
                output.print(line)
        else:
            output.note(f"wrote {size(_write(Path(target), lines))} to {target}")


def _state_lines(snapshot: Snapshot, beside: Mapping[str, object]) -> Iterator[str]:
    """Yield a whole state, key by key, and the data beside it. At most one value is in memory."""
    last = "{"
    for key, value in chain(entries(snapshot, json_value), beside.items()):
        yield last
        *lines, last = to_json({key: value}, indent=2).split("\n")[1:-1]
        yield from lines
        last += ","
    yield last.removesuffix(",")
    yield "}"


def _write(target: Path, lines: Iterable[str]) -> int:
    """Write a file whole or not at all, and return its size. A pipe or a device is written to directly."""
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as file:
            return _write_lines(file, lines)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            written = _write_lines(file, lines)
        unfinished.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return written


def _write_lines(file: TextIO, lines: Iterable[str]) -> int:
    written = 0
    for line in lines:
        written += len(line.encode()) + 1
        file.write(line + "\n")
    return written
