"""``vstate restore``: one value as it was in another commit. Layer: cli."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits
from versioned_state.cli.shared.hints import message_of
from versioned_state.cli.shared.place import explained, is_path, is_revision, parse_place, value_at
from versioned_state.cli.shared.settings import Settings, name_option, place_argument, verb
from versioned_state.errors import InvalidArgumentError, PickleRefusedError, StateError, UnknownPathError
from versioned_state.repository.repository import Repository


@verb("restore", example="vstate restore HEAD~5:plan")
@place_argument(metavar="[REV:]PATH", default="", required=False)
@click.argument("paths", nargs=-1, metavar="[REV | FILE...]", shell_complete=completion.revision)
@click.option(
    "--from",
    "rev",
    metavar="REV",
    shell_complete=completion.revision,
    help="The commit that has the value, if not REV:.",
)
@click.option(
    "--files",
    "folder",
    metavar="DIR",
    shell_complete=completion.file,
    help="Write the files of a commit into DIR instead.",
)
@click.option("--overwrite", is_flag=True, help="With --files: replace files in DIR whose content no commit has.")
@name_option
@message_option("restore PATH from REV")
@author_option
@click.pass_obj
def restore(
    settings: Settings,
    place: str,
    paths: tuple[str, ...],
    *,
    rev: str | None,
    folder: str | None,
    overwrite: bool,
    name: str,
    message: str,
    author: str | None,
) -> None:
    """Commit the value at PATH as it was in REV, and leave everything else as it is.

    If REV has nothing there, the value is removed.

    REV:PATH may also be written as two arguments, in either order: vstate restore plan HEAD~5.

    With --files DIR: vstate restore --files DIR [REV] [FILE...] writes the files that REV (default: HEAD) has of a
    workspace into DIR: all of them, or those named. Nothing is committed, and no file with content of its own is
    replaced unless --overwrite says so.
    """
    if folder is not None:
        if rev is not None and place:
            paths, place = (place, *paths), rev
        _restore_files(settings, Path(folder), place or rev or "HEAD", paths, name, overwrite=overwrite)
        return
    if len(paths) > 1 or overwrite:
        raise click.UsageError("several paths, and --overwrite, are for --files DIR")
    named, path = parse_place(place)
    if sum((named is not None, rev is not None, bool(paths))) != 1 or not path:
        raise click.UsageError(
            "restore takes REV:PATH, such as HEAD~1:plan, or PATH REV; several paths are for --files DIR"
        )
    source = named or rev or ""
    with handle(settings, author) as state:
        if paths:
            path, source = _path_and_revision(state.repository, place, paths[0])
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
        print_commits(settings.output, state, head, nothing=f"{path} is the same in {source}: no commit")


def _path_and_revision(repository: Repository, one: str, other: str) -> tuple[str, str]:
    """Return which of two arguments is the path, and which is the revision.

    Raises:
        InvalidArgumentError: either may be both.
        UnknownRevisionError: neither is a revision.
    """
    # A path may have been deleted since, so it is looked for where the other argument points.
    found = [
        (path, rev)
        for path, rev in ((one, other), (other, one))
        if is_revision(repository, rev) and is_path(repository, path, rev)
    ]
    if len(found) > 1:
        hint = f"vstate restore {quote(f'{other}:{one}')}, or vstate restore {quote(f'{one}:{other}')}"
        raise InvalidArgumentError(f"{one} and {other} are a path and a revision each", hint=hint)
    return found[0] if found else (other, one) if is_revision(repository, one) else (one, other)


def _restore_files(
    settings: Settings, folder: Path, rev: str, paths: tuple[str, ...], name: str, *, overwrite: bool
) -> None:
    from versioned_state.agents.workspace.workspace import restore_into
    from versioned_state.cli.commands.read.files import files_at
    from versioned_state.cli.render.text import plural

    with settings.reading() as repository:
        if not folder.exists():
            files_at(repository, rev, name)  # raises if the commit has none
        count = restore_into(repository, folder, repository.commit(rev), paths, name=name, overwrite=overwrite)
        wrote = f"wrote {plural(count, 'file')} into {folder}"
        settings.output.note(wrote if count else f"the files in {folder} are the same: none was written")
