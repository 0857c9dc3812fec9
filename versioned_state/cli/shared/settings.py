"""The options that every command takes, and what a command gets from them: its output and its repository. Layer: cli."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import click

from versioned_state.cli.render.output import ColorMode, Output
from versioned_state.cli.shared import current, store
from versioned_state.errors import UnknownRevisionError
from versioned_state.repository.repository import Repository

_STEPS: Final = re.compile(r"[~^@]|\.\.")
"""What no name has, or few have: a revision with steps, or a range."""

_NEAR: Final = 1000
"""Branches and tags that are looked at for names that come close: enough to help, and never a scan of a service."""


@dataclass
class Settings:
    """What the options say. They may stand before the command or behind it; behind it wins."""

    store: str | None = None
    branch: str | None = None
    key_file: str | None = None
    sign_key: str | None = None
    color: ColorMode = "auto"
    pager: bool = True
    debug: bool = False

    @cached_property
    def output(self) -> Output:
        return Output(color=self.color, pager=self.pager)

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        """The repository of the store, for reading."""
        with store.reading(self.store, self.key_file) as repository, _near(repository):
            repository.current_branch = self.current_branch()
            yield repository

    @contextmanager
    def changing(self) -> Iterator[Repository]:
        """The repository of the store, which must be there, for writing."""
        with store.changing(self.store, self.key_file) as repository, _near(repository):
            repository.current_branch = self.current_branch()
            repository.signer = store.read_signer(self.sign_key)
            yield repository

    def current_branch(self, url: str | None = None) -> str | None:
        """The branch that ``HEAD`` means: of ``--branch``, of ``VSTATE_BRANCH``, or of the last ``switch``; None: nobody chose one."""
        return self.branch or os.environ.get("VSTATE_BRANCH") or current.chosen(url or store.locate(self.store))


@contextmanager
def _near(repository: Repository) -> Iterator[None]:
    """Find what comes close to a name that there is not: a lookup by exact name does not, since it costs one read."""
    try:
        yield
    except UnknownRevisionError as error:
        if not error.near and not error.deleted and not _STEPS.search(error.revision):
            names = islice(chain(repository.branches, repository.tags), _NEAR)
            error.near = tuple(get_close_matches(error.revision, names, n=4))
        raise


def program() -> str:
    """How this program is called again: by its name where the shell finds it, or else by its path."""
    called = Path(sys.argv[0])
    if shutil.which("vstate") or called.name != "vstate":
        return "vstate"
    return shlex.quote(min(os.path.relpath(called), str(called.absolute()), key=len))


def _setter(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def set_it(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(context.ensure_object(Settings), name, value)

    return set_it


def _options(*, hidden: bool) -> list[click.Option]:
    def option(flags: str, text: str, name: str, **more: Any) -> click.Option:
        # A name of its own, so that a command may have an argument of the same name.
        return click.Option(
            [f"common_{name}", *flags.split()], help=text, callback=_setter(name), expose_value=False, hidden=hidden, default=None, **more
        )

    return [
        option("--store", "The store: a folder or a URL. Else $VSTATE_STORE, else ./.vstate.", "store", metavar="PATH"),
        option(
            "-b --branch",
            "The branch that HEAD means. Else $VSTATE_BRANCH, else that of vstate switch.",
            "branch",
            metavar="NAME",
            shell_complete=complete_branch,
        ),
        option("--key-file", "A file with the key of an encrypted store. Else $VSTATE_KEY_FILE.", "key_file", metavar="PATH"),
        option("--sign-key", "A file with the private key that signs commits. Else $VSTATE_SIGN_KEY.", "sign_key", metavar="PATH"),
        option("--color", "When to use colours; auto heeds $NO_COLOR.", "color", type=click.Choice(["auto", "always", "never"])),
        option("--pager/--no-pager", "Page long output on a terminal.", "pager", is_flag=True),
        option("--debug", "Show the traceback of an error.", "debug", is_flag=True, flag_value=True),
    ]


class Verb(click.Command):
    """A command. It takes the common options too, and shows an example under its help."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {flag for param in self.params for flag in param.opts}
        self.params += [option for option in _options(hidden=True) if own.isdisjoint(option.opts)]
        self.epilog = f"\b\nExample:\n  {example}\n\nvstate --help shows the options that every command takes."


class Verbs(click.Group):
    """The group of the commands, with the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _options(hidden=False)


def verb(name: str, summary: str, *, example: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command: what it does in a few words, and a command line that shows what it is for."""
    return click.command(name, cls=Verb, short_help=summary, example=example)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


full_option = click.option("--full", is_flag=True, help="Show whole values, not their beginnings.")


def revision_argument(name: str = "rev", *, required: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An argument that names a revision; the shell completes branches and tags."""
    shown = name.upper() if required else f"[{name.upper()}]"
    return click.argument(name, metavar=shown, required=required, shell_complete=complete_revision, **options)


def complete_revision(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Branches and tags, for the shell; of a range, the end that is being typed."""
    before, dots, name = incomplete.rpartition("..")
    found = _complete(context, name, lambda repository: (repository.branches, repository.tags))
    return [before + dots + each for each in found]


def complete_branch(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Branches, for the shell."""
    return _complete(context, incomplete, lambda repository: (repository.branches,))


def complete_tag(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Tags, for the shell."""
    return _complete(context, incomplete, lambda repository: (repository.tags,))


def _complete(context: click.Context, incomplete: str, refs_of: Callable[[Repository], Iterable[Iterable[str]]]) -> list[str]:
    # Whatever is wrong with the store, the shell must not see a traceback between two keys, nor what would drive the terminal.
    try:
        with context.find_root().ensure_object(Settings).reading() as repository:
            return [name for refs in refs_of(repository) for name in refs if name.startswith(incomplete) and name.isprintable()]
    except Exception:  # noqa: BLE001
        return []
