"""``vstate ui``: history and state in a browser. Layer: cli."""

from __future__ import annotations

from typing import Any

import click

from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import MissingDependencyError


@verb("ui", example="vstate ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8421,
    show_default=True,
    metavar="PORT",
    help="The port; 0 is any free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Another name by which a browser may reach the page.",
)
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@click.option("--edit", is_flag=True, help="Offer restore, undo, branch, note and tag.")
@click.option(
    "--read-timeout",
    type=click.FloatRange(min=0, min_open=True, max=600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a page may take.",
)
@click.pass_obj
def ui(
    settings: Settings,
    /,
    *,
    port: int,
    host: str,
    allow_hosts: tuple[str, ...],
    no_browser: bool,
    edit: bool,
    read_timeout: float,
) -> None:
    """Show sessions, log, changes and states in a browser, until Ctrl-C.

    The link signs one browser in, once. The page only reads, unless --edit is given; it never deletes, and never
    unpickles. It is for this machine: to reach it from another one, forward the port by ssh.
    """
    from versioned_state.cli.shared import store
    from versioned_state.cli.shared.handle import user
    from versioned_state.storage.url import redact

    try:
        from versioned_state.server.page.app import Settings as PageSettings
        from versioned_state.server.page.run import Options, serve
    except ModuleNotFoundError as error:
        raise MissingDependencyError("vstate ui", extra="ui") from error

    output, settings.is_endless = settings.output, True

    def ready(url: str) -> None:
        output.note(f"the page is at {url}")
        output.note("the link signs one browser in, once, within five minutes; Ctrl-C ends the page")
        if not no_browser:
            click.launch(url)

    page: dict[str, Any] = {
        "edit": edit,
        "read_timeout": read_timeout,
        "store": redact(store.locate(settings.store)),
        "author": user(),
    }
    with settings.changing() if edit else settings.reading() as repository:
        serve(repository, Options(host, port, allow_hosts, PageSettings(**page)), ready=ready)
