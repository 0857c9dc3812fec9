"""The options that every command takes, and the output and the repository that a command gets from them. Layer: cli.

Nothing of the engine is imported until a command opens a store: ``--help`` and ``--version`` need none of it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from versioned_state.cli.shared import completion
from versioned_state.errors import StateError, UnknownRevisionError
from versioned_state.records import dataclass

if TYPE_CHECKING:
    from versioned_state.cli.render.output import ColorMode, Output
    from versioned_state.repository.repository import Repository

_STEPS: Final = re.compile(r"[~^@:]|\.\.")
"""Characters of a revision with steps, of a range, or of a place; few names have them."""

_HEAD: Final = re.compile(r"(HEAD|@(?=\{|$))")

_COUNT: Final = re.compile(r"-\d{1,9}")


@dataclass(slots=True)
class Settings:
    """The values of the common options.

    They may come before the command or after it. An option after it takes precedence.
    """

    store: str | None = None
    branch: str | None = None
    key_file: str | None = None
    sign_key: str | None = None
    color: ColorMode = "auto"
    pager: bool = True
    debug: bool = False
    only_reads: bool = False
    is_endless: bool = False  # Ctrl-C is the usual end of the command
    _output: Output | None = None

    @property
    def output(self) -> Output:
        """The output, which is made when it is first used: after all options were read."""
        if self._output is None:
            from versioned_state.cli.render.output import Output

            self._output = Output(color=self.color, pager=self.pager)
        return self._output

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        """Open the repository of the store for reading."""
        from versioned_state.cli.shared import store

        with store.reading(self.store, self.key_file) as repository, _near(repository):
            repository.current_branch = self.current_branch()
            yield repository

    @contextmanager
    def changing(self) -> Iterator[Repository]:
        """Open the repository of the store, which must exist, for writing."""
        from versioned_state.cli.shared import store

        with store.changing(self.store, self.key_file) as repository, _near(repository):
            repository.current_branch = self.current_branch()
            repository.signer = store.read_signer(self.sign_key)
            yield repository

    def current_branch(self, url: str | None = None) -> str | None:
        """Return the branch that ``HEAD`` means, by ``--branch``, ``VSTATE_BRANCH`` or the last ``switch``, or None."""
        from versioned_state.cli.shared import current, store

        return self.branch or os.environ.get("VSTATE_BRANCH") or current.chosen(url or store.locate(self.store))


@contextmanager
def _near(repository: Repository) -> Iterator[None]:
    """Add similar names to the error for an unknown one: a lookup by exact name does not, since it costs one read."""
    try:
        yield
    except UnknownRevisionError as error:
        branch = repository.current_branch
        if branch is not None and _HEAD.match(error.revision) and branch not in repository.branches:
            raise _no_branch(repository, branch) from error  # the user chose the branch, and did not type HEAD
        if not error.near and not error.deleted and not _STEPS.search(error.revision):
            error.near = _similar(repository, error.revision)
            if error.revision in error.near:
                raise _other_kind(repository, error.revision) from error
        raise


def _similar(repository: Repository, name: str) -> tuple[str, ...]:
    from versioned_state.repository.names.resolve import similar_refs

    return tuple(similar_refs(repository.database, name))


def _other_kind(repository: Repository, name: str) -> StateError:
    """Return the error for a tag instead of a branch, or the other way round."""
    kind, wanted = ("tag", "branch") if name in repository.tags else ("branch", "tag")
    hint = f"vstate {kind} lists them, and vstate {kind} -d {quote(name)} deletes it"
    return StateError(f"{name} is a {kind}, not a {wanted}", remains="nothing was changed", hint=hint)


def _no_branch(repository: Repository, branch: str) -> StateError:
    if branch in repository.tags:
        hint = f"vstate switch -c NAME {quote(branch)} begins a branch there"
        return StateError(f"{branch} is a tag, not a branch", remains="nothing was changed", hint=hint)
    from versioned_state.repository.names.resolve import comes_back

    near, ref = _similar(repository, branch), repository.database.ref("branch", branch)
    if ref.stored is not None and comes_back(repository.database, ref):
        hint = (
            f"vstate branch {quote(branch)} {quote(branch + '@{1}')} brings it back, vstate switch chooses another one"
        )
    elif near:
        hint = f"did you mean {', '.join(near)}? vstate switch chooses a branch"
    else:
        hint = "vstate branch lists the branches, vstate switch chooses one"
    return StateError(f"there is no branch {branch!r}", remains="nothing was changed", hint=hint)


def program() -> str:
    """Return the command that calls this program again: its name if the shell finds it, else its path."""
    import shutil
    from pathlib import Path

    called = Path(sys.argv[0])
    if shutil.which("vstate") or called.name != "vstate":
        return "vstate"
    return quote(min(os.path.relpath(called), str(called.absolute()), key=len))


def _setter(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def set_it(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(context.ensure_object(Settings), name, value)

    return set_it


def _options(*, hidden: bool) -> list[click.Option]:
    def option(flags: str, text: str, name: str, **more: Any) -> click.Option:
        # A name of its own, so that a command may have an argument of the same name.
        return click.Option(
            [f"common_{name}", *flags.split()],
            help=text,
            callback=_setter(name),
            expose_value=False,
            hidden=hidden,
            default=None,
            **more,
        )

    return [
        option(
            "--store",
            "The store: a folder or a URL. "
            "Default: $VSTATE_STORE, or the .vstate of this folder or the nearest one above it.",
            "store",
            metavar="PATH",
            shell_complete=completion.store,
        ),
        option(
            "-b --branch",
            "The branch that HEAD means. Default: $VSTATE_BRANCH, or the branch of vstate switch.",
            "branch",
            metavar="NAME",
            shell_complete=completion.branch,
        ),
        option(
            "--key-file", "A file with the key of an encrypted store. Default: $VSTATE_KEY_FILE.", "key_file", **_FILE
        ),
        option(
            "--sign-key",
            "A file with the private key that signs commits. Default: $VSTATE_SIGN_KEY.",
            "sign_key",
            **_FILE,
        ),
        option(
            "--color",
            "When to use colours; auto respects $NO_COLOR.  [default: auto]",
            "color",
            type=click.Choice(["auto", "always", "never"]),
        ),
        option("--pager/--no-pager", "Page long output on a terminal.  [default: pager]", "pager", is_flag=True),
        option("--debug", "Show the traceback of an error.", "debug", is_flag=True, flag_value=True),
    ]


_FILE: Final[dict[str, Any]] = {"metavar": "PATH", "shell_complete": completion.file}


class Verb(click.Command):
    """A command. It takes the common options too, ``-5`` for ``-n 5``, and shows an example below its help."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {flag for param in self.params for flag in param.opts}
        self.params.extend(option for option in _options(hidden=True) if own.isdisjoint(option.opts))
        self.epilog: str = f"\b\nExample:\n  {example}\n\nvstate --help shows the options that every command takes."

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.ensure_object(Settings).only_reads = ".commands.read." in self.callback.__module__
        try:
            return super().parse_args(context, self._with_counts(args))
        except click.UsageError as error:
            error.ctx = error.ctx or context  # click names no command where an option lacks its value
            raise

    def _with_counts(self, args: list[str]) -> list[str]:
        """Return the arguments with ``-n 5`` for each ``-5``, as git has it, if the command takes ``-n``."""
        values = {
            flag: param.nargs
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for flag in param.opts
        }
        if "-n" not in values:
            return args
        rewritten: list[str] = []
        rest = iter(args)
        for arg in rest:
            if _COUNT.fullmatch(arg):
                rewritten += ["-n", arg[1:]]
                continue
            rewritten.append(arg)
            if arg == "--":
                break
            rewritten += [value for _, value in zip(range(values.get(arg, 0)), rest, strict=False)]
        return [*rewritten, *rest]


def parse_text(value: str) -> str:
    """Return an argument as text in UTF-8, also in a locale in which Python decodes its bytes as lone surrogates."""
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise click.BadParameter("it is not text in UTF-8") from None


class Verbs(click.Group):
    """The group of the commands, with the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_options(hidden=False))


def verb(name: str, *, example: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, with a typical command line. Its summary for ``vstate --help`` is in the catalog."""
    return click.command(name, cls=Verb, example=example)


json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


html_option: Final = click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write one page that needs no server.",
)
literal_option: Final = click.option(
    "--literal", is_flag=True, help='Take objects such as {"$Decimal": "2.5"} as they stand.'
)


name_option: Final = click.option(
    "--name", default="workspace", show_default=True, metavar="KEY", help="The key of the state that has the files."
)


full_option: Final = click.option("--full", is_flag=True, help="Show whole values, and every change.")


def limit_option(text: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``-n COUNT``, which may also be written ``-COUNT``."""
    return click.option("-n", "--limit", type=click.IntRange(min=0), metavar="COUNT", help=text, **options)


def path_option(text: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--path PATH``, which the shell completes."""
    return click.option("--path", type=parse_text, metavar="PATH", help=text, shell_complete=completion.path, **options)


def revision_argument(
    name: str = "rev", *, required: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an argument that names a revision, for which the shell completes branches and tags."""
    shown = options.pop("metavar", name.upper() if required else f"[{name.upper()}]")
    return click.argument(
        name, type=parse_text, metavar=shown, required=required, shell_complete=completion.revision, **options
    )


def place_argument(
    name: str = "place", *, metavar: str, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an argument for ``REV:PATH`` or one of them: a path if ``metavar`` has ``[REV:]PATH``, else a revision."""
    complete = completion.path_or_place if "[REV:]PATH" in metavar else completion.revision_or_place
    return click.argument(name, type=parse_text, metavar=metavar, shell_complete=complete, **options)
