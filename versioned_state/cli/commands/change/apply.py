"""``vstate apply``: a patch, made by ``vstate diff --patch``, becomes a commit. Layer: cli."""

from __future__ import annotations

import json
from typing import Any

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits
from versioned_state.cli.shared.settings import Settings, literal_option, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.views.json_form import literal as literal_json

_HINT = "vstate diff A B --patch writes one"


@verb("apply", example="vstate diff main~1 main --patch | vstate --store ./other apply -")
@click.argument("file", metavar="FILE", shell_complete=completion.file)
@literal_option
@message_option("a summary of the changes")
@author_option
@click.pass_obj
def apply(settings: Settings, file: str, *, literal: bool, message: str, author: str | None) -> None:
    """Commit the changes of the patch in FILE, or in standard input for -, on the current branch: all of them or none.

    The old value of each change must still be there. vstate cherry-pick merges a commit of the same store by path
    instead.

    The lines that vstate diff --json prints are a patch too, and a value may be all that vstate get --json prints, such
    as {"$Decimal": "2.5"}.
    """
    patch = _read(file)
    if literal:
        patch = [_literal(entry) for entry in patch]
    with handle(settings, author) as state:
        try:
            state.apply(patch)
        except InvalidArgumentError as error:
            error.hint = error.hint or _HINT
            raise
        print_commits(settings.output, state, state.commit(message), nothing="the patch changes nothing: no commit")


def _literal(entry: Any) -> Any:
    """Return an entry with its sides as they are, except for the cells that a patch has."""
    if type(entry) is not dict:
        return entry
    return {key: literal_json(part, but_cells=True) if key in ("old", "new") else part for key, part in entry.items()}


def _read(path: str) -> Any:
    name = "standard input" if path == "-" else path
    try:
        with click.open_file(path, encoding="utf-8") as file:
            text = file.read()
        lines = [line for line in text.splitlines() if line.strip()]
        if lines and lines[0].startswith("{"):
            return [json.loads(line) for line in lines]
        patch = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} is not a patch: it is not JSON", hint=_HINT) from error
    if not isinstance(patch, list):
        raise InvalidArgumentError(f"{name} is not a patch: a patch is a list of changes", hint=_HINT)
    return patch
