"""``vstate bisect``: the commit in which something went wrong. Layer: cli."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import click

from versioned_state.cli.render.changes import print_changes
from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.text import commit_json, commit_line, commit_lines, names_of, plural
from versioned_state.cli.shared.filters import stamp_test
from versioned_state.cli.shared.hints import not_json
from versioned_state.cli.shared.place import value_at
from versioned_state.cli.shared.settings import Settings, json_option, path_option, revision_argument, verb
from versioned_state.cli.shared.store import locate
from versioned_state.errors import InvalidArgumentError, StateError, UnknownPathError
from versioned_state.repository.inspect.bisect import Bisection, Skip
from versioned_state.repository.inspect.log_filters import has_meta
from versioned_state.repository.refs.stamps import Stamps
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.snapshot import Snapshot

Condition = Callable[[Snapshot], bool]
"""Whether a commit is bad."""

_GOOD, _SKIP = 0, 125
_ABORT = (126, 127)
"""Exit codes of a shell that cannot run a command, or does not find it."""


@verb("bisect", example="vstate bisect main~40 main --empty plan")
@revision_argument("good", required=True)
@revision_argument("bad", default="HEAD")
@click.option("--empty", metavar="PATH", help="A commit is bad if the value at PATH is empty.")
@click.option("--missing", metavar="PATH", help="A commit is bad if there is nothing at PATH.")
@click.option("--equals", nargs=2, metavar="PATH JSON", help="A commit is bad if PATH has that value.")
@click.option(
    "--stamp",
    metavar="KEY=VALUE",
    help="A commit is bad if it was made with this VALUE in the stamp of its program: model=large-2.",
)
@click.option("--run", "command", metavar="COMMAND", help="A commit is bad if this shell command fails.")
@path_option("Give the command of --run the value at PATH, not the whole state.")
@json_option
@click.pass_context
def bisect(  # noqa: PLR0913 - each is an option of its own
    context: click.Context,
    good: str,
    bad: str,
    *,
    empty: str | None,
    missing: str | None,
    equals: tuple[str, str] | None,
    stamp: str | None,
    command: str | None,
    path: str | None,
    as_json: bool,
) -> None:
    """Find the first bad commit after GOOD, up to BAD (default: HEAD), along first parents, in few steps.

    --run COMMAND gets the value at PATH as JSON on its standard input, or no input if there is nothing at PATH, and
    VSTATE_STORE and VSTATE_REV in its environment, for vstate get "$VSTATE_REV:plan". It exits with 0 for a good
    commit, with 125 for one that it cannot judge, and with any other code up to 124 for a bad one.

    Exits with 1 if skipped commits leave open which one was the first. With --json: one object.
    """
    settings: Settings = context.obj
    output = settings.output
    if sum(given is not None for given in (empty, missing, equals, stamp, command)) != 1:
        raise click.UsageError(
            "give one of --empty, --missing, --equals, --stamp and --run: it says which commits are bad"
        )
    if path is not None and command is None:
        raise click.UsageError("--path goes with --run")
    with settings.reading() as repository:
        if empty is not None:
            condition = _empty(empty)
        elif missing is not None:
            condition = _missing(missing)
        elif equals is not None:
            condition = _equals(*equals)
        elif stamp is not None:
            condition = _made_with(repository, stamp)
        else:
            assert command is not None
            condition = _runs(settings, command, path or "")
        found = repository.bisect(good, bad, _told(output, repository, condition))
        if as_json:
            output.json(_json(repository, found))
        else:
            _print(output, repository, found)
    if not found.is_certain:
        context.exit(1)


def _told(output: Output, repository: Repository, condition: Condition) -> Condition:
    """Return the condition, which prints each verdict too. It sees a view in which nothing is unpickled."""

    def is_bad(snapshot: Snapshot) -> bool:
        commit = snapshot.commit
        assert commit is not None
        line = commit_line(commit, {})
        try:
            bad = condition(repository.snapshot(commit, describe=True))
        except Skip:
            output.note(Span("skip  ", "dim"), *line)
            raise
        output.note(Span("bad   ", "removed") if bad else Span("good  ", "added"), *line)
        return bad

    return is_bad


# Conditions


def _empty(path: str) -> Condition:
    def is_empty(snapshot: Snapshot) -> bool:
        try:
            value = snapshot.at(path)
        except UnknownPathError:
            return False
        return hasattr(value, "__len__") and not len(value)

    return is_empty


def _missing(path: str) -> Condition:
    def is_missing(snapshot: Snapshot) -> bool:
        try:
            snapshot.cell_at(path)
        except UnknownPathError:
            return True
        return False

    return is_missing


def _equals(path: str, wanted: str) -> Condition:
    try:
        expected = _canonical(json.loads(wanted))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            not_json(wanted, error), hint="a string is written in quotes within quotes: '\"done\"'"
        ) from error

    def equals(snapshot: Snapshot) -> bool:
        try:
            return _canonical(json_value(snapshot.at(path))) == expected
        except UnknownPathError:
            return False

    return equals


def _made_with(repository: Repository, pair: str) -> Condition:
    stamps, wanted = Stamps(repository.store), stamp_test([pair])

    def is_made_with(snapshot: Snapshot) -> bool:
        assert snapshot.commit is not None
        stamp = stamps.of(snapshot.commit)
        return all(has_meta(stamp, key, test) for key, test in wanted.items())

    return is_made_with


def _canonical(value: Any) -> str:
    """Return JSON without the order of keys, in which 1 and true differ."""
    return json.dumps(value, sort_keys=True)


def _runs(settings: Settings, command: str, path: str) -> Condition:
    url = locate(settings.store)
    key = {"VSTATE_KEY_FILE": settings.key_file} if settings.key_file else {}

    def fails(snapshot: Snapshot) -> bool:
        assert snapshot.commit is not None
        try:
            given = json.dumps(value_at(snapshot, path, json_value)) + "\n"
        except UnknownPathError:
            given = ""
        # Its output goes to stderr: stdout is for the result.
        done = subprocess.run(  # noqa: S602 - the user's own command, as they would type it
            command,
            shell=True,
            check=False,
            input=given.encode(),
            stdout=2,
            env={**os.environ, **key, "VSTATE_STORE": url, "VSTATE_REV": snapshot.commit.id},
        )
        code = done.returncode
        if code == _SKIP:
            raise Skip
        if code in _ABORT or not 0 <= code < 128:
            raise StateError(
                f"the command could not be run, or was stopped (exit code {code})", remains="nothing was found"
            )
        return code != _GOOD

    return fails


# The result


def _print(output: Output, repository: Repository, found: Bisection) -> None:
    names = names_of(repository)
    if not found.is_certain:
        output.print(
            f"{plural(len(found.suspects), 'commit')} may be the first bad one; all but the last were skipped:"
        )
        for commit in found.suspects:
            output.crop(*commit_line(commit, names))
        return
    output.print(Span("first bad commit", "title"), f", after {plural(found.steps, 'step')}:")
    output.wrapped(commit_lines(found.commit, names))
    output.print()
    print_changes(output, found.diff)


def _json(repository: Repository, found: Bisection) -> dict[str, Any]:
    return {
        "commit": commit_json(found.commit, names_of(repository)),
        "certain": found.is_certain,
        "suspects": [commit.id for commit in found.suspects],
        "steps": found.steps,
        "changes": found.diff.to_json(),
    }
