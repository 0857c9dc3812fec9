"""``vstate import``: a file of messages, conversations or states becomes commits. Layer: cli.

The shape of the file is known before the store is opened, so most errors leave no trace. After that each commit is
complete, and the message of an error, or of Ctrl-C, says how far the import came.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from versioned_state.cli.importing.conversations import Conversation, conversation_in, single_conversation
from versioned_state.cli.importing.frameworks import FromOptions, import_from
from versioned_state.cli.importing.source import Item, Source, open_source
from versioned_state.cli.importing.writer import BranchNames, Writer, clean, state_from_json
from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.text import plural
from versioned_state.cli.shared import completion, store
from versioned_state.cli.shared.progress import progress_bar
from versioned_state.cli.shared.settings import Settings, literal_option, program, verb
from versioned_state.cli.shared.values import read_forms
from versioned_state.errors import StateError
from versioned_state.integrations.importing.run import FRAMEWORKS
from versioned_state.repository.repository import Repository
from versioned_state.storage.url import redact

_STEP = 16  # commits between two updates of the progress bar: an update costs about as much as a commit


@dataclass(frozen=True)
class _Options:
    """The options of the command line."""

    branch: str
    branch_prefix: str | None
    name_key: str | None
    messages_key: str | None
    message_key: str | None
    key: str | None
    author: str | None
    per_item: bool
    append: bool
    literal: bool


@dataclass(frozen=True)
class _Plan:
    """The work, its branches, and the part that is done after a number of commits: 0 to 1, or None if unknown."""

    run: Callable[[Writer], None]
    branches: list[tuple[str, Conversation | None]]
    fraction: Callable[[int], float | None]


@verb("import", example="vstate --store ./agent-state import conversations.jsonl.gz")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=completion.file)
@click.option(
    "-b",
    "--branch",
    metavar="NAME",
    help="The branch of a single conversation, or of --per-item.  [default: the current one, or main]",
)
@click.option(
    "--branch-prefix",
    metavar="TEXT",
    help="The prefix of the branches of several conversations.  [default: the file's name]",
)
@click.option("--name-key", metavar="FIELD", help="Name these branches by this field instead of numbers.")
@click.option(
    "--messages-key",
    metavar="FIELD",
    help="The field of a conversation that holds its messages.  [default: found by its shape]",
)
@click.option(
    "--message-key",
    metavar="FIELD",
    help="The field of an item that is the message of its commit.  [default: a summary]",
)
@click.option("--key", metavar="KEY", help="The key of the state for the messages.  [default: messages]")
@click.option("--author", metavar="NAME", help="The author of the commits.  [default: none]")
@click.option(
    "--per-item", is_flag=True, help="Commit each item or line as one whole state or, with --key, as one value."
)
@click.option("--append", is_flag=True, help="Add to branches that exist, whatever they hold.")
@literal_option
@click.option(
    "--from",
    "framework",
    type=click.Choice(FRAMEWORKS),
    help="Import what a framework has stored: FILE is its database, URL or folder.",
)
@click.option("--dry-run", is_flag=True, help="With --from: read everything, and only print what would be imported.")
@click.option("--keep-going", is_flag=True, help="With --from: continue with the next thread after an error.")
@click.option(
    "--allow-pickle", is_flag=True, help="With --from: unpickle what is pickled in FILE, which may run any program."
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="ID",
    help="With --from agentscope: the names of this user's files begin with ID_.",
)
@click.option("--json", "as_json", is_flag=True, help="With --from: print JSON.")
@click.pass_obj
def import_(settings: Settings, /, files: tuple[str, ...], framework: str | None, **options: Any) -> None:
    """Import each FILE, or standard input for -, into the store, which is created if necessary (default: ./.vstate).

    FILE is JSON or JSON lines, plain or compressed with gzip, bzip2 or xz. A list of messages becomes one branch with a
    commit for each message. A list of conversations, which are lists of messages or objects with one, becomes a branch
    for each; their other fields become keys of the state. With --per-item, the whole state that vstate export writes is
    read back. A value is read as vstate get --json prints it, {"$Decimal": "2.5"} as a Decimal; --literal takes it as
    it stands.

    With several FILEs, each single conversation becomes a branch that has the name of its file.

    Run it again after an interrupt, or when the file has grown: a branch that has the first messages of its
    conversation gets the rest.

    With --from, FILE is what a framework has stored: the SQLite file or PostgreSQL URL of LangGraph's checkpoints, the
    SQLite file of sessions of the OpenAI Agents SDK or of Google's ADK, or AgentScope's folder of JSON sessions. Each
    thread becomes the branch that the adapter of that framework reads. FILE is only read, and at the end compared with
    the store.
    """
    chosen_from = FromOptions(**{name: options.pop(name) for name in FromOptions.__dataclass_fields__})
    _check_fitting(framework, of_files=options, of_frameworks=asdict(chosen_from))
    if framework is not None:
        import_from(settings, framework, files, chosen_from)
        return
    url = store.locate(settings.store, to_write=True)
    several = len(files) > 1
    if several and options["branch"] and not (options["per_item"] or options["append"]):
        raise click.UsageError(
            "--branch names one branch: with several files, give --branch-prefix, --per-item or --append"
        )
    own_names = several and not options["branch"] and not options["per_item"]
    options["branch"] = options["branch"] or settings.current_branch(url) or "main"
    chosen = _Options(**options)
    signer = store.read_signer(settings.sign_key)
    start = time.monotonic()
    _check_readable(files)
    written = _Written()
    taken: set[str] = set()
    convert = None if chosen.literal else state_from_json if chosen.per_item and chosen.key is None else read_forms
    with ExitStack() as stack:
        repository = None
        for file in files:
            with open_source(file, convert) as source:
                named = replace(chosen, branch=_branch_of(source.name, chosen, taken)) if own_names else chosen
                plan = _plan(source, named)
                if repository is None:  # the shape of the first file is known before a store is created
                    repository = stack.enter_context(store.writing(url, settings.key_file))
                    repository.signer = signer
                _write(settings, repository, plan, named, written)
    _say_done(settings, written, time.monotonic() - start)


def _check_fitting(framework: str | None, *, of_files: dict[str, Any], of_frameworks: dict[str, Any]) -> None:
    """Raise ``click.UsageError`` if an option was given that is for the other kind of import."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in (of_frameworks if framework is None else of_files) and (
            context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
        ):
            raise click.UsageError(
                f"{parameter.opts[-1]} is for --from"
                if framework is None
                else f"{parameter.opts[-1]} is not for --from"
            )
    if framework != "agentscope" and of_frameworks["users"]:
        raise click.UsageError("--user is for --from agentscope")


def _write(settings: Settings, repository: Repository, plan: _Plan, options: _Options, written: _Written) -> None:
    """Carry out the plan of one file. If that fails, say how far it came."""
    counter = _CommitCounter(plan)
    writer = Writer(
        repository,
        key=options.key or "messages",
        author=options.author,
        append=options.append or options.branch in written.branches,  # with --per-item, that of the file before
        message_key=options.message_key,
        told=counter,
    )
    try:
        with progress_bar(settings.output) as counter.show:
            for branch, conversation in plan.branches:
                writer.check_free(branch, conversation)
            plan.run(writer)
    except BaseException:
        with suppress(StateError):  # the store may be what failed
            writer.recount()
        written.add(writer)
        _say_how_far(settings.output, written)
        raise
    written.add(writer)


@dataclass
class _Written:
    """All that the files so far became."""

    branches: list[str] = field(default_factory=list)
    commits: int = 0
    skipped: int = 0
    complete: bool = True

    def add(self, writer: Writer) -> None:
        """Add what one file became."""
        self.branches += [branch for branch in writer.branches if branch not in self.branches[-1:]]
        self.commits += writer.commits
        self.skipped += writer.skipped
        self.complete = writer.complete


def _check_readable(files: tuple[str, ...]) -> None:
    """Raise ``OSError`` if one of the files cannot be opened: before the first of them becomes commits."""
    if files.count("-") > 1:
        raise click.UsageError("standard input can be read once")
    for file in files if len(files) > 1 else ():
        if file != "-":
            open(file, "rb").close()  # noqa: PTH123 - the path as it was given, for errors to show


def _branch_of(name: str, options: _Options, taken: set[str]) -> str:
    """Return the branch for the only conversation of one of several files: prefix and file name, no name twice."""
    prefix = options.branch_prefix or ""
    stem = clean(_stem(name)) or "import"
    named = next(each for each in chain([stem], (f"{stem}-{again}" for again in count(2))) if each not in taken)
    taken.add(named)
    return clean(f"{prefix}{'' if not prefix or prefix[-1] in '-_/' else '/'}{named}")


def _plan(source: Source, options: _Options) -> _Plan:
    """Return the plan for a file. A file that is in memory is checked as a whole.

    Raises:
        InvalidArgumentError: its shape is not that of the options.
    """
    if options.per_item:
        items = list(source.items) if source.in_memory else source.items
        total = len(items) if isinstance(items, list) else None
        return _Plan(
            lambda writer: writer.write_states(options.branch, (item.value for item in items), options.key),
            [(options.branch, None)],
            _fraction(source, total),
        )
    single, rest = single_conversation(source, options.messages_key)
    if single is not None:
        return _Plan(
            lambda writer: writer.write_conversation(options.branch, single),
            [(options.branch, single)],
            _fraction(source, single.length),
        )
    pairs = _name(source, options, list(rest) if source.in_memory else rest)
    named = list(pairs) if source.in_memory else []
    total = sum(conversation.length or 0 for _, conversation in named) if named else None

    def run(writer: Writer) -> None:
        for branch, conversation in named or pairs:
            writer.write_conversation(branch, conversation)

    return _Plan(run, list(named), _fraction(source, total))


def _name(source: Source, options: _Options, items: list[Item] | Iterator[Item]) -> Iterator[tuple[str, Conversation]]:
    """Yield each conversation with the name of its branch."""
    prefix = _stem(source.name) if options.branch_prefix is None else options.branch_prefix
    names = BranchNames(prefix, name_key=options.name_key, expected=len(items) if isinstance(items, list) else None)
    for index, item in enumerate(items):
        conversation = conversation_in(source, item, options.messages_key)
        yield names.name(index, conversation), conversation


def _stem(name: str) -> str:
    """Return the name of a file without folders and endings: ``tau_airline`` for ``data/tau_airline.json.xz``."""
    return Path(name).name.removeprefix(".").partition(".")[0] or "import"


def _fraction(source: Source, total: int | None) -> Callable[[int], float | None]:
    return (lambda commits: commits / total) if total else (lambda _: source.fraction())


# Progress and results


class _CommitCounter:
    """Counts commits, and updates the progress bar every few of them."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._start = time.monotonic()
        self._commits = 0
        self.show: Callable[..., None] | None = None

    def __call__(self) -> None:
        self._commits += 1
        if self.show is None or self._commits % _STEP:
            return
        done = self._plan.fraction(self._commits)
        part = left = ""
        if done:
            part = f"{done:4.0%} "
            left = f" {timedelta(seconds=round((time.monotonic() - self._start) * (1 - done) / done))}"
        self.show("importing", done or 0.0, 1.0, f"{part}{self._commits:,} commits{left}")


def _say_done(settings: Settings, writer: _Written, seconds: float) -> None:
    branches = writer.branches
    which = branches[0] if len(branches) == 1 else f"{len(branches):,} branches, {branches[0]} to {branches[-1]}"
    there = f" ({writer.skipped:,} were there already)" if writer.skipped else ""
    settings.output.note(f"imported {plural(writer.commits, 'commit')} onto {which}, in {seconds:.1f} s{there}")
    named = f" --store {shlex.quote(redact(settings.store))}" if settings.store else ""
    settings.output.note(Span(f"see: {program()}{named} log {shlex.quote(branches[0])}", "hint"))


def _say_how_far(output: Output, writer: _Written) -> None:
    if not writer.commits:
        output.note("nothing was imported")
        return
    last = "" if writer.complete else f"; {writer.branches[-1]} is not complete"
    onto = plural(len(writer.branches), "branch", "branches")
    output.note(f"imported so far, and kept: {plural(writer.commits, 'commit')} on {onto}{last}")
