"""``vstate completion``: the script that lets a shell complete commands, options, names and paths. Layer: cli."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from versioned_state.cli.shared.settings import verb


@verb("completion", example='eval "$(vstate completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    bash and zsh: put the example into ~/.bashrc or ~/.zshrc. fish: vstate completion fish >
    ~/.config/fish/completions/vstate.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "vstate", "_VSTATE_COMPLETE").source())
