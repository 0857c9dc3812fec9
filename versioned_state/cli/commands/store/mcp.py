"""``vstate mcp``: the tools for a model, by the Model Context Protocol. Layer: cli."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.settings import Settings, parse_text, verb
from versioned_state.errors import InvalidArgumentError, MissingDependencyError

if TYPE_CHECKING:
    from versioned_state.integrations.tools.state_tools import StateTools

_CLIENTS = ("claude", "cursor", "vscode", "codex")


@verb("mcp", example="vstate --store ./agent-state mcp --write --redact 'users.*.card'")
@click.option(
    "--prefix",
    metavar="PREFIX",
    type=parse_text,
    help="Show the branches that begin with PREFIX too.  [default: those below the branch]",
)
@click.option("--write", is_flag=True, help="Offer tools that set values and mark commits.")
@click.option("--branches", is_flag=True, help="Offer tools that make and merge branches.")
@click.option("--undo", is_flag=True, help="Offer a tool that commits earlier content again.")
@click.option(
    "--redact",
    multiple=True,
    metavar="PATTERN",
    type=parse_text,
    help="Never show values at these paths, such as users.*.card.",
)
@click.option(
    "--max-chars",
    type=click.IntRange(min=500),
    default=8000,
    show_default=True,
    metavar="COUNT",
    help="The length of an answer.",
)
@click.option(
    "--author", default="model", show_default=True, metavar="NAME", type=parse_text, help="The author of the commits."
)
@click.option(
    "--http", is_flag=True, help="Serve many clients over HTTP, at /mcp, instead of one over stdin and stdout."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="With --http: the address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8422,
    show_default=True,
    metavar="PORT",
    help="With --http: the port.",
)
@click.option(
    "--tokens",
    metavar="FILE",
    shell_complete=completion.file,
    help="With --http: the tokens, as for vstate serve, of the user *.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="With --http: another Host to accept, as behind a proxy.",
)
@click.option("--config", type=click.Choice(_CLIENTS), help="Print the configuration of a client instead, as JSON.")
@click.pass_obj
def mcp(
    settings: Settings,
    /,
    *,
    http: bool,
    host: str,
    port: int,
    tokens: str | None,
    hosts: tuple[str, ...],
    config: str | None,
    **options: Any,
) -> None:
    """Offer a model tools to look at the current branch: values, log, diff, blame, search, branches, events.

    By default they only read.

    The client starts this command and speaks to it over stdin and stdout. --config prints what to add to its
    configuration.
    """
    if config is not None:
        click.echo(_config(settings, config))
        return
    if http and tokens is None:
        raise click.UsageError("--http needs --tokens FILE")
    if tokens is not None and not http:
        raise click.UsageError("--tokens is for --http")
    logging.getLogger().setLevel(logging.WARNING)  # the SDK logs the texts of refusals below it
    with _tools(settings, **options) as tools:
        try:
            from versioned_state.integrations.tools.mcp import serve_stdio
        except ModuleNotFoundError as error:
            raise MissingDependencyError("vstate mcp", extra="mcp") from error
        if http:
            _serve_http(settings, tools, host, port, str(tokens), hosts)
        else:
            asyncio.run(serve_stdio(tools))


@contextmanager
def _tools(settings: Settings, **options: Any) -> Iterator[StateTools]:
    from versioned_state.integrations.tools.state_tools import StateTools
    from versioned_state.repository.repository import Repository
    from versioned_state.state.versioned import Versioned
    from versioned_state.storage import ReadOnly

    may_write = options["write"] or options["branches"] or options["undo"]
    with (settings.changing if may_write else settings.reading)() as repository:
        repository.commit("HEAD")  # a handle on a branch that does not exist would begin it
        name = repository.default_branch()
        state = Versioned(repository if may_write else Repository(ReadOnly(repository.store)), branch=name)
        yield StateTools(state, **options)


def _config(settings: Settings, client: str) -> str:
    """Return a client's configuration: this command line without --config, with a store that any folder leads to."""
    from versioned_state.cli.shared.store import locate
    from versioned_state.integrations.tools.mcp_config import CONFIGS

    arguments = [each for each in sys.argv[1:] if not each.startswith("--config=")]
    if "--config" in arguments:
        at = arguments.index("--config")
        del arguments[at : at + 2]
    place = locate(settings.store)
    # a client starts the command in a folder of its own; a URL in the environment may have a password
    if "://" not in place:
        arguments = [each for each in arguments if not each.startswith("--store=")]
        if "--store" in arguments:
            at = arguments.index("--store")
            del arguments[at : at + 2]
        scheme, colon, path = place.rpartition(":")
        arguments = ["--store", f"{scheme}{colon}{Path(path).absolute()}", *arguments]
    elif settings.store is None:
        settings.output.note("the client needs VSTATE_STORE in its environment")
    return CONFIGS[client]("vstate", arguments)


def _serve_http(
    settings: Settings, tools: StateTools, host: str, port: int, tokens: str, hosts: tuple[str, ...]
) -> None:
    import uvicorn

    from versioned_state.integrations.tools.mcp import http_app
    from versioned_state.server.tokens import Tokens

    read = Tokens.read(tokens)
    if any(not name or "/" in name for name in hosts):
        raise InvalidArgumentError(
            "--allow-host takes a host, such as state.example.com", remains="nothing was started"
        )
    names = {f"{host}:{port}", *((f"localhost:{port}",) if host in ("127.0.0.1", "::1") else ()), *hosts}
    settings.output.note(f"serving on http://{host}:{port}/mcp")
    uvicorn.run(http_app(tools, read, hosts=sorted(names)), host=host, port=port, log_level="warning", access_log=False)
