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


_Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def _seconds(flag: str, default: float, text: str) -> _Option:
    return click.option(flag, type=_duration, default=default, show_default=True, metavar="SECONDS", help=text)


def _limit(flag: str, default: int | None, text: str, metavar: str = "BYTES", least: int = 1) -> _Option:
    return click.option(
        flag, type=click.IntRange(min=least), default=default, show_default=True, metavar=metavar, help=text
    )


@verb("serve", example="vstate --store redis://localhost serve --tokens tokens.json")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8420,
    show_default=True,
    metavar="PORT",
    help="The port; 0 is any free one.",
)
@click.option(
    "--tokens",
    required=True,
    metavar="FILE",
    shell_complete=completion.file,
    help='The tokens, as JSON: {"TOKEN": {"user": "alice", "scopes": ["read", "write"]}}. The user "*" is every user.',
)
@_limit("--max-body", 16 << 20, "The largest body of a request.")
@_limit("--max-requests", 256, "The most requests at once.", metavar="COUNT")
@_limit("--max-bodies", None, "The most bytes of the bodies of all requests at once.  [default: four times --max-body]")
@_limit(
    "--max-answers",
    None,
    "The most bytes of all answers at once, until they are read.  [default: four times --max-body]",
)
@_limit(
    "--max-connections",
    None,
    "The most connections at once.  [default: 256 fewer than the files that the process may open]",
    metavar="COUNT",
)
@_limit(
    "--handle-bytes", 64 << 20, "The memory for open sessions of states, of histories and of memories, each.", least=0
)
@_limit("--cache-bytes", 64 << 20, "The cache of a store across a network.", least=0)
@_seconds("--timeout", 30, "How long a call may take, and the body of a request.")
@_seconds("--head-timeout", 10, "How long the head of a request may take.")
@_seconds("--idle-timeout", 60, "How long a connection may be idle.")
@_seconds("--grace", 30, "How long accepted requests may take after SIGTERM or Ctrl-C. A second signal quits.")
@click.option(
    "--page",
    is_flag=True,
    help="Show history in a browser, under /ui: to a token with the scope read, the sessions of its user.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Another name by which browsers may reach the page.",
)
@click.option(
    "--behind-tls", is_flag=True, help="Browsers reach the page by HTTPS alone: its cookie and its forms are for HTTPS."
)
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

    Any store but one in memory will do. It is created if it does not exist. Several servers may share one on Redis or
    PostgreSQL. Clients use versioned_state.services.RemoteStateService and its like, or HTTP: /openapi.json has the
    API. The log is on stderr, a line of JSON for each request, without ids or content. SIGHUP reads the tokens again.
    There is no TLS: put a proxy in front to serve other machines. With --page, browsers must name the host exactly:
    --allow-host has the name by which they reach the proxy, and --behind-tls says that it has TLS; no header of a
    request is believed in that.
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
    limits = Limits(
        **{
            name: options[name] or 0
            for name in ("max_body", "max_requests", "max_bodies", "max_answers", "max_connections", "handle_bytes")
        },
        **{name: options[name] for name in ("head_timeout", "idle_timeout")},
        **dict.fromkeys(("body_timeout", "send_timeout", "call_timeout"), options["timeout"]),
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
        run(
            served,
            Options(
                tokens,
                host,
                port,
                limits,
                options["grace"],
                options["page"],
                options["allow_hosts"],
                options["behind_tls"],
            ),
            ready=ready,
        )
