"""``vstate``: the group of all commands, and what becomes of errors. Layer: cli.

Exit codes: 0 all is well, 1 the command failed (or ``diff --exit-code`` found changes, ``grep`` nothing, or ``bisect`` not the one
round), 2 it was not understood, 130 Ctrl-C.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import sys
from typing import Any, NoReturn

import click

from versioned_state.cli.commands.change.apply import apply
from versioned_state.cli.commands.change.import_ import import_
from versioned_state.cli.commands.change.merge import merge
from versioned_state.cli.commands.change.picks import cherry_pick, revert
from versioned_state.cli.commands.change.rebase import rebase
from versioned_state.cli.commands.change.reset import reset
from versioned_state.cli.commands.change.restore import restore
from versioned_state.cli.commands.change.squash import squash
from versioned_state.cli.commands.change.switch import switch
from versioned_state.cli.commands.change.undo import redo, undo
from versioned_state.cli.commands.names.branch import branch
from versioned_state.cli.commands.names.policy import policy
from versioned_state.cli.commands.names.reflog import reflog
from versioned_state.cli.commands.names.sign import sign
from versioned_state.cli.commands.names.tag import tag
from versioned_state.cli.commands.names.verify import verify
from versioned_state.cli.commands.read.bisect import bisect
from versioned_state.cli.commands.read.blame import blame
from versioned_state.cli.commands.read.diff import diff
from versioned_state.cli.commands.read.export import export
from versioned_state.cli.commands.read.get import get
from versioned_state.cli.commands.read.grep import grep
from versioned_state.cli.commands.read.history import history
from versioned_state.cli.commands.read.keys import keys
from versioned_state.cli.commands.read.log import log
from versioned_state.cli.commands.read.show import show
from versioned_state.cli.commands.read.stats import stats
from versioned_state.cli.commands.read.status import status
from versioned_state.cli.commands.store.completion import completion
from versioned_state.cli.commands.store.fsck import fsck
from versioned_state.cli.commands.store.gc import gc
from versioned_state.cli.commands.store.prune import prune
from versioned_state.cli.commands.store.purge import purge
from versioned_state.cli.demo.demo import demo
from versioned_state.cli.shared.hints import hint_of, message_of
from versioned_state.cli.shared.settings import Settings, Verbs
from versioned_state.errors import StateError
from versioned_state.repository.format import FORMAT_VERSION


class Main(Verbs):
    """The group of all commands. Every way out of it is here."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command line and exit. Errors are one line, and a hint where there is a way out; never a traceback unless --debug."""
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
            _drop_what_cannot_be_written()
            if isinstance(error, BrokenPipeError):  # whoever read from us has seen enough, as in `vstate log | head`
                return 0
            raise
        return result

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which one comes to need them


def _drop_what_cannot_be_written() -> None:
    """Make sure that what is still in the buffer of stdout does not raise again when Python exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(settings: Settings, error: Exception) -> int:
    """Print an error; the exit code."""
    output = settings.output
    match error:
        case click.exceptions.Abort():
            output.error("interrupted")
            return 130
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else "vstate"
            message = error.format_message().removesuffix(".")
            output.error(message[:1].lower() + message[1:], f"{path} --help shows how it is used")
            return error.exit_code
        case StateError():
            output.error(message_of(error), hint_of(error))
        case OSError():
            reason = error.strerror or str(error)
            output.error(f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason)
        case MemoryError():
            output.error("out of memory")
        case _:
            output.error(f"{type(error).__name__}: {error}", "this should not happen; vstate --debug shows where it did")
    return 1


def _version() -> str:
    try:
        return importlib.metadata.version("versioned-state")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value:
        click.echo(f"vstate {_version()}, store format {FORMAT_VERSION}")
        context.exit()


@click.group(
    "vstate",
    cls=Main,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nRevisions: main, v1, HEAD, main~3, main^2, main@{2}, main@{2026-11-01}, or 4 digits or more of an id.\n"
    'Paths: messages[17].content, prefs["a.b"], @namespace.key.\n\n\b\nExample:\n  vstate --store ./agent-state log --stat',
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version and exit.")
@click.pass_context
def vstate(context: click.Context) -> None:
    """Git for the state of AI agents: look at what an agent knew, round by round.

    No command executes what is in a store: nothing is ever unpickled.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    log,
    show,
    diff,
    get,
    keys,
    blame,
    history,
    status,
    grep,
    bisect,
    branch,
    tag,
    switch,
    merge,
    cherry_pick,
    revert,
    rebase,
    squash,
    reset,
    undo,
    redo,
    reflog,
    restore,
    apply,
    policy,
    sign,
    verify,
    import_,
    export,
    gc,
    fsck,
    prune,
    purge,
    stats,
    demo,
    completion,
):
    vstate.add_command(command)


def main() -> None:
    """The entry point of ``vstate``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: vstate log >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as the process lives
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for a terminal that knows only ASCII
    vstate.main(prog_name="vstate")


if __name__ == "__main__":
    main()
