"""``vstate rm``: values removed, committed. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits
from versioned_state.cli.shared.place import explained, namespace_path, paths_below
from versioned_state.cli.shared.settings import Settings, parse_text, verb
from versioned_state.errors import InvalidArgumentError, UnknownPathError
from versioned_state.repository.views.render import are_fields, short_name
from versioned_state.state.edits.restore import remove_at
from versioned_state.state.state import State, value_at
from versioned_state.state.versioned import Versioned
from versioned_state.values.paths.path import Index, Key, StatePath
from versioned_state.values.typed.tagged import Tagged


@verb("rm", example="vstate rm draft 'messages[3]' -m 'Forget the draft'")
@click.argument("paths", nargs=-1, required=True, type=parse_text, metavar="PATH...", shell_complete=completion.path)
@message_option("remove PATH")
@author_option
@click.pass_obj
def rm(settings: Settings, paths: tuple[str, ...], *, message: str, author: str | None) -> None:
    """Remove the value at each PATH from the current branch, and commit that: all of them or none.

    PATH is a key, a part of a value such as prefs.theme or messages[3], or a namespace such as @worker. Indices are
    those before the command. History keeps the values: vstate restore brings one back, vstate purge erases it from
    history too.
    """
    with handle(settings, author) as state:
        for path in _in_order(state, paths):
            _check(state, path)
            remove_at(state, path)
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        head = state.commit(message or f"remove {paths[0]}{more}")
        print_commits(settings.output, state, head, nothing="nothing was there: no commit")


def _in_order(state: Versioned, paths: tuple[str, ...]) -> list[StatePath]:
    """Return the paths, each once, those of a namespace's keys for a namespace, and a list's last element first."""
    found: dict[StatePath, None] = {}
    repository = state.repository
    for text in paths:
        with explained(repository, "vstate rm", "HEAD", text):
            snapshot = repository.snapshot("HEAD", describe=True)
            if namespace_path(text) is not None:
                below = list(paths_below(snapshot, text))
                if not below:
                    raise UnknownPathError(text, at="HEAD")
                found.update(dict.fromkeys(below))
                continue
            path = StatePath.parse(text)
            snapshot.cell_at(path)  # raises if nothing is there
            found[_from_the_start(state, path)] = None
    kept = [
        path
        for path in found
        if not any(StatePath(path.steps[:length]) in found for length in range(1, len(path.steps)))
    ]
    return sorted(
        kept, key=lambda path: [step.index if isinstance(step, Index) else -1 for step in path.steps], reverse=True
    )


def _from_the_start(state: State, path: StatePath) -> StatePath:
    """Return the path with indices that count from the start of their list."""
    steps = list(path.steps)
    for position, step in enumerate(steps):
        if isinstance(step, Index) and step.index < 0:
            held = value_at(state, StatePath(tuple(steps[:position])))
            held = held.fields if type(held) is Tagged else held
            steps[position] = Index(step.index + len(held))
    return StatePath(tuple(steps))


def _check(state: State, path: StatePath) -> None:
    """Raise ``InvalidArgumentError`` for a field of an instance, which would be read as one of an older class."""
    if len(path.steps) < 2 or not isinstance(path.steps[-1], Key | Index):
        return
    above = StatePath(path.steps[:-1])
    container = value_at(state, above)
    if type(container) is Tagged and are_fields(container.fields):
        raise InvalidArgumentError(
            f"{path} is a field of a {short_name(container.name)}, which cannot be without it",
            hint=f"vstate set '{path}' null empties it",
        )
