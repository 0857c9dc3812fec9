"""``vstate migrate``: branches brought to the newest version of their shape, by the migrations of a program.

Layer: cli.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from versioned_state.arguments import instance_of
from versioned_state.cli.render.changes import print_changes
from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, print_commits, user
from versioned_state.cli.shared.settings import Settings, full_option, json_option, parse_text, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.repository import Repository
from versioned_state.state.shape.migrations import Migrations, version_of
from versioned_state.state.versioned import Versioned
from versioned_state.values.trees.nodes import Nodes

_HINT: Final = (
    "MODULE:NAME names a Migrations of a module, such as agent.shape:migrations; "
    "the module is in this folder or installed"
)


@verb("migrate", example="vstate migrate agent.shape:migrations --dry-run")
@click.argument("migrations", type=parse_text, metavar="MODULE[:NAME]")
@click.argument("branches", nargs=-1, type=parse_text, metavar="[BRANCH]...", shell_complete=completion.branch)
@click.option("--dry-run", is_flag=True, help="Show the changes, and commit nothing.")
@click.option("--all", "every", is_flag=True, help="Migrate every branch.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if a branch was at an older version.")
@full_option
@author_option
@json_option
@click.pass_context
def migrate(
    context: click.Context,
    migrations: str,
    branches: tuple[str, ...],
    *,
    dry_run: bool,
    every: bool,
    exit_code: bool,
    full: bool,
    author: str | None,
    as_json: bool,
) -> None:
    """Commit what the migrations of a program make of each BRANCH (default: the current one).

    MODULE is imported, from this folder too, which runs its code; NAME is its Migrations (default: migrations). All
    branches are migrated before the first is committed: if a migration fails, nothing is changed. Objects are not
    unpickled, and instances are migrated as their fields unless the module registers their classes.

    With --json: one object a line, for each branch.
    """
    settings: Settings = context.obj
    if every and branches:
        raise click.UsageError("--all and BRANCH exclude each other")
    loaded = load_migrations(migrations)
    opened = settings.reading if dry_run else settings.changing
    with opened() as repository, settings.output.paged(unless=as_json or not dry_run):
        names = list(repository.branches) if every else list(branches) or [repository.default_branch()]
        states = [_open(repository, name, loaded, author) for name in dict.fromkeys(names)]
        outdated = [
            _migrate(settings.output, state, loaded, dry_run=dry_run, full=full, as_json=as_json) for state in states
        ]
    if exit_code and any(outdated):
        context.exit(1)


def load_migrations(text: str) -> Migrations:
    """Return the migrations that ``package.module:name`` names. Raises ``InvalidArgumentError``."""
    module_name, _, name = text.partition(":")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - as Python itself puts it there
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = import_module(module_name)
    except Exception as error:
        raise InvalidArgumentError(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}", hint=_HINT
        ) from error
    for part in (name or "migrations").split("."):
        found = getattr(found, part, None)
    return instance_of(f"{module_name}:{name or 'migrations'}", found, Migrations, hint=_HINT)


def _open(repository: Repository, branch: str, migrations: Migrations, author: str | None) -> Versioned:
    repository.commit(repository.branches[branch])  # raises if there is no such branch
    return Versioned(repository, branch=branch, author=author or user(), migrations=migrations)


def _migrate(
    output: Output, state: Versioned, migrations: Migrations, *, dry_run: bool, full: bool, as_json: bool
) -> bool:
    """Migrate one branch, and print that. Returns whether it was at an older version."""
    before = state.head
    version = version_of(Nodes(state.repository.database.objects), before.tree)
    changes = state.status()
    changes.read_all()
    if not dry_run:
        state.commit()
    if as_json:
        made = None if state.head == before else state.head.id
        shown = [change.to_json() for change in changes]
        output.json(
            {"branch": state.branch, "from": version, "to": migrations.version, "commit": made, "changes": shown}
        )
    elif version == migrations.version:
        output.print(Span(state.branch, "ref"), f" is at version {version} already")
    elif dry_run:
        output.print(Span(state.branch, "ref"), f": version {version} to {migrations.version}")
        print_changes(output, changes, stat=False, full=full)
    else:
        print_commits(output, state, state.head, nothing=f"{state.branch} has nothing to migrate")
    return version != migrations.version
