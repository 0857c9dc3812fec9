"""``vstate init``: create a store. Layer: cli."""

from __future__ import annotations

import os

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.shared import completion, store
from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import NotAStoreError, StoreNotFoundError
from versioned_state.storage.url import redact


@verb("init", example="vstate init && vstate set plan '[]'")
@click.argument("path", required=False, metavar="[PATH]", shell_complete=completion.store)
@click.pass_obj
def init(settings: Settings, path: str | None) -> None:
    """Create an empty store at PATH, a folder or a URL (default: ./.vstate).

    Commands in this folder and below it find ./.vstate.

    A store that exists stays as it is. --key-file creates an encrypted store.
    """
    url = os.path.expanduser(path or settings.store or os.environ.get("VSTATE_STORE") or store.DEFAULT)  # noqa: PTH111 - may be a URL
    with_key = settings.key_file
    try:
        with store.reading(url, with_key):
            exists = True
    except (StoreNotFoundError, NotAStoreError):
        exists = False
    with store.writing(url, with_key):
        settings.output.print(
            "there is a store already: " if exists else "created the store ", Span(redact(url), "path")
        )
