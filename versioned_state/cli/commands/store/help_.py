"""``vstate help``: how a command is used. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.settings import verb


@verb("help", example="vstate help log")
@click.argument("name", metavar="[COMMAND]", required=False, shell_complete=completion.command)
@click.pass_context
def help_(context: click.Context, name: str | None) -> None:
    """Show how COMMAND is used, as vstate COMMAND --help does, or without one the commands there are."""
    root = context.find_root()
    if name is None:
        click.echo(root.get_help())
        return
    assert isinstance(root.command, click.Group)
    command = root.command.get_command(root, name)
    if command is None:
        root.fail(f"No such command {name!r}.")
    with click.Context(command, info_name=name, parent=root) as inner:
        click.echo(command.get_help(inner))
