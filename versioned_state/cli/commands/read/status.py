"""``vstate status``: the size, branches and tags of a store. Layer: cli."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.rows import Cells, fit_rows
from versioned_state.cli.render.text import age, first_line, head_json, plural, size
from versioned_state.cli.shared.settings import Settings, json_option, limit_option, verb
from versioned_state.errors import StorageError
from versioned_state.objects.keys import OBJECTS
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.mapping import Refs
from versioned_state.repository.repository import Repository
from versioned_state.storage import Disk, Encrypted, Wrapper
from versioned_state.values import accelerator

_OBJECTS_COUNTED: Final = 1_000_000
"""Counting objects lists their keys, about a million a second; more than these are not counted."""


@verb("status", example="vstate status -n 50")
@limit_option("Show at most COUNT branches and COUNT tags.", default=20, show_default=True)
@click.option(
    "-v", "--verbose", is_flag=True, help="Also show the version of Python, and whether the accelerator is active."
)
@json_option
@click.pass_obj
def status(settings: Settings, limit: int, *, verbose: bool, as_json: bool) -> None:
    """Show the size and format of the store, and its branches and tags with their heads.

    A star marks the current branch, which vstate switch chooses. With --json: one object, with all branches and tags.
    """
    output = settings.output
    with settings.reading() as repository:
        facts = _facts(repository)
        if verbose:
            facts |= {"python": platform.python_version(), "accelerator": accelerator.status}
        if as_json:
            for name, refs in (("branches", repository.branches), ("tags", repository.tags)):
                facts[name] = [_ref_json(name, head) for name, head in _heads(refs)]
            output.json(facts)
        else:
            chosen = repository.current_branch
            if chosen is not None and chosen not in repository.branches:
                chosen += " (there is no such branch)"
            _print_facts(output, facts, len(repository.branches), len(repository.tags), chosen=chosen)
            _print_refs(output, repository.branches, limit, default=facts["current_branch"])
            _print_refs(output, repository.tags, limit)


def _facts(repository: Repository) -> dict[str, Any]:
    store, encrypted = repository.store, False
    while isinstance(store, Wrapper):
        encrypted |= isinstance(store, Encrypted)
        store = store.store
    disk = store if isinstance(store, Disk) else None
    counted = sum(1 for _ in islice(repository.store.keys(OBJECTS), _OBJECTS_COUNTED + 1))
    return {
        "store": str(disk.path.absolute()) if disk else repr(store)[1:-1],
        "encrypted": encrypted,
        "format": repository.database.format_version,
        "objects": min(counted, _OBJECTS_COUNTED),
        "objects_are_more": counted > _OBJECTS_COUNTED,
        "bytes_used": disk.size() if disk else None,
        "bytes_on_disk": _bytes_on_disk(disk.path) if disk else None,
        "size_limit": disk.size_limit if disk else None,
        "current_branch": repository.default_branch(),
    }


def _bytes_on_disk(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # a writer has merged its log into the store meanwhile
            continue
    return total


def _heads(refs: Refs) -> Iterator[tuple[str, Commit | StorageError]]:
    """Yield each ref with its commit, or with the error of reading it: a damaged ref must not hide the others."""
    for name in refs:
        try:
            yield name, refs[name]
        except StorageError as error:
            yield name, error


def _ref_json(name: str, head: Commit | StorageError) -> dict[str, Any]:
    if isinstance(head, StorageError):
        return {"name": name, "error": str(head)}
    return {"name": name, **head_json(head)}


def _print_facts(output: Output, facts: dict[str, Any], branches: int, tags: int, *, chosen: str | None) -> None:
    rows = {"store": facts["store"] + (", encrypted" if facts["encrypted"] else ""), "format": str(facts["format"])}
    if facts["bytes_used"] is not None:
        limit = "no limit" if facts["size_limit"] is None else f"limit {size(facts['size_limit'])}"
        rows["size"] = f"{size(facts['bytes_on_disk'])} on disk, {size(facts['bytes_used'])} in use, {limit}"
    rows["objects"] = f"{facts['objects']:,}" + (" and more" if facts["objects_are_more"] else "")
    rows["refs"] = f"{plural(branches, 'branch', 'branches')}, {plural(tags, 'tag')}"
    if chosen is not None:
        rows["current"] = chosen
    rows |= {name: facts[name] for name in ("python", "accelerator") if name in facts}
    width = max(map(len, rows)) + 2
    for name, value in rows.items():
        output.print(Span(f"{name:<{width}}", "title"), value)


def _print_refs(output: Output, refs: Refs, limit: int, *, default: str = "") -> None:
    rows = list(islice(_heads(refs), limit))
    if not rows:
        return
    output.print()
    variants = [partial(_cells, default=default, details=count) for count in (2, 1, 0)]
    for line in fit_rows(rows, variants, output.columns):
        output.crop(*line)
    more = len(refs) - len(rows)
    if more > 0:
        output.print(f"  and {more:,} more; -n shows more of them")


def _cells(row: tuple[str, Commit | StorageError], *, default: str, details: int) -> Cells:
    name, head = row
    named = Span(f"{'*' if name == default else ' '} {name}", "ref")
    if isinstance(head, StorageError):
        return [named, Span(f"damaged: {head}", "error")]
    count = plural(head.height, "commit") if details > 1 else ""
    when = Span(age(head), "time") if details else ""
    return [named, Span(head.short, "id"), count, when, first_line(head.message)]
