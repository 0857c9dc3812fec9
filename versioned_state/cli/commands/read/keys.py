"""``vstate keys``: the keys of a state. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterator

import click

from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.values.paths.path import StatePath


@verb("keys", "List the keys of a state.", example="vstate keys main user/")
@revision_argument("rev", default="HEAD")
@click.argument("prefix", default="", metavar="[PREFIX]")
@json_option
@click.pass_obj
def keys(settings: Settings, rev: str, prefix: str, *, as_json: bool) -> None:
    """List the keys of the state at REV (default: HEAD), and of its namespaces; with PREFIX, those that begin with it.

    Keys are shown as vstate get takes them: one that is no identifier as ["so"], one in a namespace as @name.key. With --json:
    one object a line, with the key itself, its path and its namespaces.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        for namespaces, key in _iter_keys(repository.snapshot(rev, describe=True), prefix, ()):
            path = StatePath()
            for name in namespaces:
                path = path.namespace(name)
            path = path.key(key)
            if as_json:
                output.json({"key": key, "path": str(path), "namespaces": list(namespaces)})
            else:
                output.print(str(path))


def _iter_keys(snapshot: Snapshot, prefix: str, namespaces: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key in snapshot.iter_keys(prefix):
        yield namespaces, key
    for name in snapshot.namespaces():
        yield from _iter_keys(snapshot.namespace(name), prefix, (*namespaces, name))
