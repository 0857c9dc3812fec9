"""``vstate apply``: a patch, made by ``vstate diff --patch``, becomes a commit. Layer: cli."""

from __future__ import annotations

import json
from typing import Any

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits
from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import InvalidArgumentError

_HINT = "vstate diff A B --patch writes one"


@verb("apply", "Commit the changes of a patch.", example="vstate diff main~1 main --patch | vstate --store ./other apply -")
@click.argument("file", metavar="FILE", shell_complete=completion.file)
@message_option("a summary of the changes")
@author_option
@click.pass_obj
def apply(settings: Settings, file: str, *, message: str, author: str | None) -> None:
    """Commit the changes of the patch in FILE, or in standard input for -, on the current branch: all of them or none.

    The old value of each change must still be there. vstate cherry-pick merges a commit of the same store by path instead.
    """
    patch = _read(file)
    with handle(settings, author) as state:
        try:
            state.apply(patch)
        except InvalidArgumentError as error:
            error.hint = error.hint or _HINT
            raise
        print_commits(settings.output, state, state.commit(message), nothing="the patch changes nothing: no commit")


def _read(path: str) -> Any:
    name = "standard input" if path == "-" else path
    try:
        with click.open_file(path, encoding="utf-8") as file:
            patch = json.load(file)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} is not a patch: it is not JSON", hint=_HINT) from error
    if not isinstance(patch, list):
        raise InvalidArgumentError(f"{name} is not a patch: a patch is a list of changes", hint=_HINT)
    return patch
