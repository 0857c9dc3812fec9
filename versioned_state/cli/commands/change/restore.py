"""``vstate restore``: one value as it was in another commit. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, tell_made
from versioned_state.cli.shared.hints import message_of
from versioned_state.cli.shared.place import explained, parse_place, value_at
from versioned_state.cli.shared.settings import Settings, place_argument, verb
from versioned_state.errors import PickleRefusedError, StateError, UnknownPathError


@verb("restore", "Bring one value back from another commit.", example="vstate restore HEAD~5:plan")
@place_argument(metavar="[REV:]PATH")
@click.option("--from", "rev", metavar="REV", shell_complete=completion.revision, help="The commit that has the value, if not REV:.")
@message_option
@author_option
@click.pass_obj
def restore(settings: Settings, place: str, *, rev: str | None, message: str, author: str | None) -> None:
    """Commit the value at PATH as it was in REV, and leave everything else as it is. If REV has nothing there, the value is removed."""
    named, path = parse_place(place)
    if (named is None) == (rev is None) or not path:
        raise click.UsageError("restore takes REV:PATH, such as HEAD~1:plan, or PATH --from REV")
    source = named or rev or ""
    with handle(settings, author) as state:
        with explained(state.repository, "vstate restore", "HEAD", path):
            try:
                state.restore(path, source)
            except PickleRefusedError as error:
                hint = f"vstate never unpickles; in Python: state.restore({path!r}, at={source!r})"
                raise StateError(message_of(error), hint=hint) from error
            except UnknownPathError:
                value_at(state.repository.snapshot("HEAD", describe=True), path)  # raises with the paths near it
                raise
        head = state.commit(message or f"restore {path} from {source}")
        tell_made(settings.output, state, head, nothing=f"{path} is the same in {source}: no commit")
