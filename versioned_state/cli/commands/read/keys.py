"""``vstate keys``: the keys of a state, or of a value in it. Layer: cli."""

from __future__ import annotations

from typing import Any

import click

from versioned_state.cli.shared.place import explained, is_path, parse_place, paths_below
from versioned_state.cli.shared.settings import Settings, json_option, place_argument, verb
from versioned_state.errors import StateError, UnknownRevisionError
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value
from versioned_state.values.paths.path import Index, Namespace, StatePath


@verb("keys", example="vstate keys main:prefs")
@place_argument(default="HEAD", metavar="[[REV:]PATH]")
@click.argument("prefix", default="", metavar="[PREFIX]")
@json_option
@click.pass_obj
def keys(settings: Settings, place: str, prefix: str, *, as_json: bool) -> None:
    """List the keys of the dict, list or namespace at PATH in REV (default: HEAD).

    Without PATH, list those of the state and its namespaces.

    REV alone is a revision: vstate keys main. With PREFIX, only keys that begin with it, such as user/. Keys are shown
    as paths for vstate get.

    With --json: one object a line, with the key itself, its path and its namespaces.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        rev, path = _place(repository, place)
        with explained(repository, "vstate keys", rev, path):
            snapshot = repository.snapshot(rev, describe=True)
            for found in paths_below(snapshot, path, prefix):
                if as_json:
                    output.json({"key": json_value(_key(found)), "path": str(found), "namespaces": _namespaces(found)})
                else:
                    output.print(str(found))


def _place(repository: Repository, text: str) -> tuple[str, str]:
    """Return the revision and path. A single word is a revision if there is one of that name, else a path."""
    rev, path = parse_place(text)
    if rev is not None:
        return rev, path
    try:
        repository.commit(text)
    except UnknownRevisionError:
        if is_path(repository, text):
            return "HEAD", text
        repository.commit("HEAD")  # the better error if there is no commit at all
        hint = "vstate keys lists the keys, vstate status branches and tags"
        raise StateError(f"{text!r} is neither a path in HEAD nor a revision", hint=hint) from None
    return text, ""


def _key(path: StatePath) -> Any:
    step = path.steps[-1]
    assert not isinstance(step, Namespace)
    return step.index if isinstance(step, Index) else step.key


def _namespaces(path: StatePath) -> list[str]:
    return [step.name for step in path.steps if isinstance(step, Namespace)]
