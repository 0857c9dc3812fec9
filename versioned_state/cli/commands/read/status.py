"""``vstate status``: what a store holds. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from versioned_state.cli.render.output import Line, Output, Span, columns, padded
from versioned_state.cli.render.text import age, first_line, iso_time, plural, size
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.errors import StorageError
from versioned_state.objects.keys import OBJECTS
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branches import Refs
from versioned_state.repository.repository import Repository
from versioned_state.storage import Disk, Encrypted, Wrapper

_OBJECTS_COUNTED: Final = 1_000_000
"""Counting objects lists their keys, about a million a second; beyond this they are not counted out."""


@verb("status", "Show what the store holds: size, branches, tags.", example="vstate status -n 50")
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=20, show_default=True, metavar="COUNT", help="Show so many branches and tags."
)
@json_option
@click.pass_obj
def status(settings: Settings, limit: int, *, as_json: bool) -> None:
    """Show what the store holds: its size and format, and its branches and tags with their heads.

    The current branch has a star, whether it was chosen (vstate switch) or not. With --json: one object, with all branches and tags.
    """
    output = settings.output
    with settings.reading() as repository:
        facts = _facts(repository)
        if as_json:
            for name, refs in (("branches", repository.branches), ("tags", repository.tags)):
                facts[name] = [_ref_json(name, head) for name, head in _heads(refs)]
            output.json(facts)
        else:
            _print_facts(output, facts, len(repository.branches), len(repository.tags))
            _print_refs(output, repository.branches, limit, default=repository.default_branch())
            _print_refs(output, repository.tags, limit)


def _facts(repository: Repository) -> dict[str, Any]:
    store, encrypted = repository.store, False
    while isinstance(store, Wrapper):
        encrypted |= isinstance(store, Encrypted)
        store = store.store
    disk = store if isinstance(store, Disk) else None
    counted = sum(1 for _ in islice(repository.store.keys(OBJECTS), _OBJECTS_COUNTED + 1))
    return {
        "store": str(disk.path.absolute()) if disk else repr(store).strip("<>"),
        "encrypted": encrypted,
        "format": repository.database.format_version,
        "objects": min(counted, _OBJECTS_COUNTED),
        "objects_are_more": counted > _OBJECTS_COUNTED,
        "bytes_used": disk.size() if disk else None,
        "bytes_on_disk": _bytes_on_disk(disk.path) if disk else None,
        "size_limit": disk.size_limit if disk else None,
        "current_branch": repository.current_branch,
    }


def _bytes_on_disk(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # a writer folded its log in meanwhile
            continue
    return total


def _heads(refs: Refs) -> Iterator[tuple[str, Commit | StorageError]]:
    """Each ref with its commit, or with why that cannot be read: one that is damaged must not hide the others."""
    for name in refs:
        try:
            yield name, refs[name]
        except StorageError as error:
            yield name, error


def _ref_json(name: str, head: Commit | StorageError) -> dict[str, Any]:
    if isinstance(head, StorageError):
        return {"name": name, "error": str(head)}
    return {"name": name, "commit": head.id, "rounds": head.height, "time": iso_time(head), "message": head.message}


def _print_facts(output: Output, facts: dict[str, Any], branches: int, tags: int) -> None:
    rows = {"store": facts["store"] + (", encrypted" if facts["encrypted"] else ""), "format": str(facts["format"])}
    if facts["bytes_used"] is not None:
        limit = "no limit" if facts["size_limit"] is None else f"limit {size(facts['size_limit'])}"
        rows["size"] = f"{size(facts['bytes_on_disk'])} on disk, {size(facts['bytes_used'])} in use, {limit}"
    rows["objects"] = f"{facts['objects']:,}" + (" and more" if facts["objects_are_more"] else "")
    rows["refs"] = f"{plural(branches, 'branch', 'branches')}, {plural(tags, 'tag')}"
    if facts["current_branch"] is not None:
        rows["current"] = facts["current_branch"]
    for name, value in rows.items():
        output.print(Span(f"{name:<9}", "title"), value)


def _print_refs(output: Output, refs: Refs, limit: int, *, default: str = "") -> None:
    rows = list(islice(_heads(refs), limit))
    if not rows:
        return
    output.print()
    width = max(columns(name) for name, _ in rows)
    told = {name: (plural(head.height, "round"), age(head)) for name, head in rows if isinstance(head, Commit)}
    rounds_width, age_width = (max((len(each[column]) for each in told.values()), default=0) for column in (0, 1))
    for name, head in rows:
        line: Line = ["* " if name == default else "  ", Span(padded(name, width), "ref"), "  "]
        if isinstance(head, StorageError):
            line += [Span(f"damaged: {head}", "error")]
        else:
            rounds, when = told[name]
            line += [
                Span(head.short, "id"),
                f"  {rounds:>{rounds_width}}  ",
                Span(f"{when:<{age_width}}", "time"),
                "  ",
                first_line(head.message),
            ]
        output.crop(*line)
    more = len(refs) - len(rows)
    if more > 0:
        output.print(f"  and {more:,} more; -n shows more of them")
