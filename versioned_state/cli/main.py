"""``vstate``: the group of all commands, and how errors end it. Layer: cli.

Exit codes: 0 success; 1 the command failed, or ``diff --exit-code`` found changes, ``grep`` found nothing, or
``bisect`` could not name one commit; 2 the command line was not understood; 130 Ctrl-C.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from versioned_state.cli.commands import catalog
from versioned_state.cli.shared.settings import Settings, Verbs
from versioned_state.errors import StateError

_NO_COMMAND: Final = re.compile(r"No such command '([^']*)'")
_EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((\S+)")


class Main(Verbs):
    """The group of all commands. It imports a command when it is needed, and turns errors into messages."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command line and exit.

        An error is one line, with a hint if there is a way out. Only --debug shows a traceback.
        """
        settings = Settings()
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, obj=settings, **kwargs)
        except Exception as error:
            if settings.debug:
                raise
            code = _report(settings, error)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, context: click.Context) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()
        except OSError as error:
            _discard_buffered_output()
            if isinstance(error, BrokenPipeError):  # the reader has seen enough, as in `vstate log | head`
                return 0
            raise
        return result

    def list_commands(self, context: click.Context) -> list[str]:
        return catalog.names()

    def get_command(self, context: click.Context, cmd_name: str) -> click.Command | None:
        return catalog.load(cmd_name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, catalog.names()))
        for title, rows in catalog.sections():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=summary)
            for _, rows in catalog.sections()
            for name, summary in rows
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, context, incomplete)


def _discard_buffered_output() -> None:
    """Keep the rest of stdout's buffer from raising again when Python exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(settings: Settings, error: Exception) -> int:
    """Print an error, and return the exit code."""
    output = settings.output
    match error:
        case click.exceptions.Abort():
            if not settings.is_endless:
                output.error("interrupted")
            return 130
        case click.UsageError():
            message = " ".join(error.format_message().removesuffix(".").split())
            if not message[:2].isupper():  # not REV:PATH, NAME or the like
                message = message[:1].lower() + message[1:]
            output.error(message, _hint_of_usage(error))
            return error.exit_code
        case StateError():
            from versioned_state.cli.shared.hints import hint_of, message_of

            output.error(message_of(error, only_reads=settings.only_reads), hint_of(error))
        case OSError():
            reason = error.strerror or str(error)
            output.error(
                f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason
            )
        case MemoryError():
            output.error("out of memory")
        case _:
            output.error(
                f"{type(error).__name__}: {error}", "this should not happen; vstate --debug shows where it did"
            )
    return 1


def _hint_of_usage(error: click.UsageError) -> str:
    """Return a hint: for a command that only git has or that is misspelt, for an extra argument, or else ``--help``."""
    message = error.message
    if unknown := _NO_COMMAND.match(message):
        if unknown[1] in catalog.ELSEWHERE:
            return catalog.ELSEWHERE[unknown[1]]
        from difflib import get_close_matches

        if near := get_close_matches(unknown[1], catalog.names(), n=3):
            return f"did you mean {', '.join(near)}?"
    command = error.ctx.command if error.ctx else None
    if (
        command is not None
        and (extra := _EXTRA.match(message))
        and any("--path" in param.opts for param in command.params)
    ):
        return f"--path {extra[1].strip(',)')} names a path; or write it as REV:PATH"
    path = error.ctx.command_path if error.ctx else "vstate"
    return f"{path} --help shows how it is used"


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value:
        from importlib.metadata import PackageNotFoundError, version

        from versioned_state.repository.format import FORMAT_VERSION

        try:
            number = version("versioned-state")
        except PackageNotFoundError:
            number = "(not installed)"
        click.echo(f"vstate {number}, store format {FORMAT_VERSION}")
        context.exit()


@click.group(
    "vstate",
    cls=Main,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nRevisions:\n  main, v1, HEAD, main~3, main^2, main@{2},\n"
    "  main@{2026-11-01}, main@{2 hours ago}, main@{step=5} (meta),\n"
    "  :/text (of a message), or 4 digits or more of an id.\n"
    'Paths:\n  messages[17].content, prefs["a.b"], @namespace.key.\n  REV:PATH is a path in a revision.\n\n'
    "\b\nExample:\n  vstate --store ./agent-state log --stat",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def vstate(context: click.Context) -> None:
    """Git for the state of AI agents: look at what an agent knew, commit by commit.

    No command executes stored data, and nothing is unpickled without import --allow-pickle.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run ``vstate``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: vstate log >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as the process lives
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for a terminal that knows only ASCII
    vstate.main(prog_name="vstate")


if __name__ == "__main__":
    main()
