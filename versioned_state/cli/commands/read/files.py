"""``vstate files``: the files that a commit has of a workspace. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from versioned_state.agents.workspace.content import Content, in_batches
from versioned_state.agents.workspace.entries import data_of, why_no_entry
from versioned_state.cli.render.git_patch import mode_of, quoted
from versioned_state.cli.shared.settings import Settings, json_option, name_option, revision_argument, verb
from versioned_state.errors import StateError, UnknownPathError, WorkspaceError
from versioned_state.repository.repository import Repository
from versioned_state.values.codec.files import Folder, Symlink
from versioned_state.values.keys import user_key
from versioned_state.values.trees.nodes import Nodes

_NAME_HINT: Final = "--name says under which key the files are"


@verb("files", example="vstate files main~3 --long")
@revision_argument("rev", default="HEAD")
@click.option("--long", "-l", "is_long", is_flag=True, help="Show the mode and the size in bytes of each.")
@name_option
@json_option
@click.pass_obj
def files(settings: Settings, rev: str, *, is_long: bool, name: str, as_json: bool) -> None:
    """List the files that the commit REV (default: HEAD) has, in the order of their paths, as git ls-tree does.

    With --json: one object a line, with path, mode, size and, of a link, its target.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        for path, entry in files_at(repository, rev, name):
            mode, size = mode_of(entry), _size(entry)
            if as_json:
                target = {"target": entry.target} if isinstance(entry, Symlink) else {}
                output.json({"path": path, "mode": mode, "size": size, **target})
            else:
                shown = quoted(path) + (f" -> {quoted(entry.target)}" if isinstance(entry, Symlink) and is_long else "")
                output.print(f"{mode} {'-' if size is None else size:>9} {shown}" if is_long else shown)


def files_at(repository: Repository, rev: str, name: str) -> Iterator[tuple[str, Any]]:
    """Return the paths and entries of a commit.

    Raises ``UnknownPathError`` if it has no files, ``StateError`` if the value is not files.
    """
    commit = repository.commit(rev)
    nodes = Nodes(repository.database.objects)
    try:
        content = Content.of(nodes, commit.tree, user_key(name))
    except WorkspaceError as error:
        raise StateError(f"{name} in {commit.short} is not the files of a workspace", hint=_NAME_HINT) from error
    if content.cell is None:
        raise UnknownPathError(name, at=commit.short, hint=_NAME_HINT)
    return in_batches(nodes, dict(content.items()))


def _size(entry: Any) -> int | None:
    """Return the bytes of a file, or None for anything else."""
    return None if isinstance(entry, Symlink | Folder) or why_no_entry(entry) else len(data_of(entry)[0])
