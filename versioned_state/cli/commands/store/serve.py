"""``vstate serve``: the services over HTTP. Layer: cli."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import MissingDependencyError

_LONGEST: Final = 86400


def _duration(text: str | float) -> float:
    """Return a number of seconds up to a day."""
    try:
        number = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number of seconds") from None
    if not 0 < number <= _LONGEST:  # nan is in no range
        raise click.BadParameter(f"{text} is not in the range 0<x<={_LONGEST}")
    return number


def _seconds(flag: str, default: float, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(flag, type=_duration, default=default, show_default=True, metavar="SECONDS", help=text)


@verb("serve", "Offer states, histories and memories over HTTP.", example="vstate --store redis://localhost serve --tokens tokens.json")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8420, show_default=True, metavar="PORT", help="The port; 0 is any free one.")
@click.option(
    "--tokens",
    required=True,
    metavar="FILE",
    shell_complete=completion.file,
    help='The tokens, as JSON: {"TOKEN": {"user": "alice", "scopes": ["read", "write"]}}. The user "*" is every user.',
)
@click.option(
    "--max-body", type=click.IntRange(min=1), default=16 << 20, show_default=True, metavar="BYTES", help="The largest body of a request."
)
@click.option(
    "--max-requests", type=click.IntRange(min=1), default=256, show_default=True, metavar="COUNT", help="The most requests at once."
)
@click.option(
    "--max-bodies",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="The most bytes of the bodies of all requests at once.  [default: four times --max-body]",
)
@click.option(
    "--max-answers",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="The most bytes of all answers at once, until they are read.  [default: four times --max-body]",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="The most connections at once.  [default: 256 fewer than the files that the process may open]",
)
@click.option(
    "--handle-bytes",
    type=click.IntRange(min=0),
    default=64 << 20,
    show_default=True,
    metavar="BYTES",
    help="The memory for open sessions of states, of histories and of memories, each.",
)
@click.option(
    "--cache-bytes",
    type=click.IntRange(min=0),
    default=64 << 20,
    show_default=True,
    metavar="BYTES",
    help="The cache of a store across a network.",
)
@_seconds("--timeout", 30, "How long a call may take, and the body of a request.")
@_seconds("--head-timeout", 10, "How long the head of a request may take.")
@_seconds("--idle-timeout", 60, "How long a connection may be idle.")
@_seconds("--grace", 30, "How long accepted requests may take after SIGTERM or Ctrl-C. A second signal quits.")
@click.option(
    "--page", is_flag=True, help="Show history in a browser, under /ui: to a token with the scope read, the sessions of its user."
)
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", help="Another name by which browsers may reach the page.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The lowest level that is logged.",
)
@click.pass_obj
def serve(settings: Settings, /, *, host: str, port: int, tokens: str, log_level: str, **options: Any) -> None:
    """Offer the states, histories and memories of many users over HTTP, until SIGTERM or Ctrl-C.

    Any store but one in memory will do. It is created if it does not exist. Several servers may share one on Redis or PostgreSQL. Clients
    use versioned_state.services.RemoteStateService and its like, or HTTP: /openapi.json has the API. The log is on stderr, a line of
    JSON for each request, without ids or content. SIGHUP reads the tokens again. There is no TLS: put a proxy in front to serve other
    machines. With --page, browsers must name the host exactly: --allow-host has the name by which they reach the proxy.
    """
    from versioned_state.cli.shared import store

    try:
        from versioned_state.server.limits import Limits
        from versioned_state.server.log import JsonLines
        from versioned_state.server.run import Options, serve as run
        from versioned_state.server.tokens import Tokens

        if options["page"]:
            import versioned_state.server.page.beside  # noqa: F401 - the error names another extra
    except ModuleNotFoundError as error:
        raise MissingDependencyError("vstate serve", extra="ui" if error.name == "jinja2" else "server") from error

    output = settings.output
    timeout = options["timeout"]
    limits = Limits(
        max_body=options["max_body"],
        max_requests=options["max_requests"],
        max_bodies=options["max_bodies"] or 0,
        max_answers=options["max_answers"] or 0,
        max_connections=options["max_connections"] or 0,
        handle_bytes=options["handle_bytes"],
        head_timeout=options["head_timeout"],
        body_timeout=timeout,
        send_timeout=timeout,
        idle_timeout=options["idle_timeout"],
        call_timeout=timeout,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("versioned_state", log_level.upper()), ("uvicorn.error", "WARNING"), ("asyncio", "WARNING")):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False

    def ready(url: str) -> None:
        output.note(f"serving on {url}")

    Tokens.read(tokens)  # before a store is created for nothing
    with store.serving(settings.store, settings.key_file, cache_bytes=options["cache_bytes"]) as served:
        run(served, Options(tokens, host, port, limits, options["grace"], options["page"], options["allow_hosts"]), ready=ready)
