"""``vstate purge``: history is rewritten without some paths, and their content erased from the store. Layer: cli."""

from __future__ import annotations

import sys
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial

import click

from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.text import of_size, plural
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.progress import progress_bar
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.errors import UnfinishedPurgeError, UnknownPathError
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.repository.repository import Repository


@verb("purge", example="vstate purge users.alice --prefix user/alice/")
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.path)
@click.option("--prefix", "prefixes", multiple=True, metavar="TEXT", help="Also erase all keys that begin with TEXT.")
@click.option(
    "--branch",
    "branches",
    multiple=True,
    metavar="PATTERN",
    help="Also erase whole branches, by name or pattern.",
    shell_complete=completion.branch,
)
@click.option(
    "--effect",
    "effects",
    multiple=True,
    metavar="PATTERN",
    help="Also erase effects, by key or pattern: key and result.",
)
@click.option(
    "--replace",
    "pairs",
    nargs=2,
    multiple=True,
    metavar="WORD OTHER",
    help="Also replace WORD by OTHER in messages, authors and meta.",
)
@click.option("--thorough", is_flag=True, help="Also for branches alone, read the whole store and rewrite its file.")
@click.option("--dry-run", is_flag=True, help="Only print what would be rewritten.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_context
def purge(  # noqa: PLR0913 - an option each
    context: click.Context,
    paths: tuple[str, ...],
    *,
    prefixes: tuple[str, ...],
    branches: tuple[str, ...],
    effects: tuple[str, ...],
    pairs: tuple[tuple[str, str], ...],
    thorough: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Rewrite all branches, tags and reflogs without each PATH, and erase its content, even from free pages and log.

    PATH is a key, a part of a value such as users.alice, or a whole namespace such as @alice. The ids of the commits
    that held it, and of all commits after them, change. A branch is erased with its reflog and its name; commits that
    other refs share stay. An effect loses its key and its result, and is not repeated. This cannot be undone: confirm
    it, or give --yes.

    With --json: one object, with the new id of each commit by its old one.
    """
    if not (paths or prefixes or branches or effects or pairs):
        raise click.UsageError("purge needs a PATH, --prefix, --branch, --effect or --replace")
    settings: Settings = context.obj
    output = settings.output
    with settings.changing() as repository:
        run = partial(
            repository.purge, *paths, prefixes=prefixes, branches=branches, effects=effects, replace=dict(pairs)
        )
        run = partial(run, thorough=thorough)
        if not (dry_run or yes):
            dry = run(dry_run=True)
            _check_found(paths, dry)
            if not _is_confirmed(output, _summary(repository, dry)):
                output.note("nothing was changed")
                context.exit(1)
        try:
            with progress_bar(output) as told:
                report = run(dry_run=dry_run, progress=told)
        except UnfinishedPurgeError as error:
            output.json(asdict(error.report)) if as_json else _print(
                output, error.report, _summary(repository, error.report)
            )
            raise
        summary = _summary(repository, report)
    for what, patterns, found in (("branch", branches, report.branches), ("effect", effects, report.effects)):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in found):
                output.note(f"no {what} matches {pattern!r}")
    if prefixes and not report.paths:
        output.note(f"no commit has a key that begins with {' or '.join(map(repr, prefixes))}")
    if as_json:
        output.json(asdict(report))
    elif _is_found(paths, report):
        _print(output, report, summary)
    _check_found(paths, report)


def _is_found(paths: tuple[str, ...], report: PurgeReport) -> bool:
    """Return whether a purge of some paths found one of them, or anything else to erase."""
    return not paths or bool(report.paths or report.commits or report.branches or report.effects or report.records)


def _check_found(paths: tuple[str, ...], report: PurgeReport) -> None:
    if not _is_found(paths, report):
        raise UnknownPathError(" or ".join(paths), at="any commit")


def _is_confirmed(output: Output, summary: str) -> bool:
    output.note(summary + "; this cannot be undone")
    if not sys.stdin.isatty():
        raise click.UsageError(
            "purge asks for confirmation, and this is not a terminal: give --yes, or --dry-run to look only"
        )
    try:
        return click.confirm("Go on?", err=True)
    except click.Abort:
        output.note()  # ends the line of the question
        raise


def _summary(repository: Repository, report: PurgeReport) -> str:
    would = "would be " if report.dry_run else ""
    live = {"branch": repository.branches, "tag": repository.tags}
    deleted = sum(name not in live[kind] for kind, _, name in (ref.partition(" ") for ref in report.refs))
    refs = plural(len(report.refs) - deleted, "branch or tag", "branches and tags")
    refs += f" and {plural(deleted, 'reflog')} of deleted ones" if deleted else ""
    parts = [f"{plural(len(report.holding), 'commit')} held it"] if report.paths else []
    parts.append(f"{plural(len(report.commits), 'commit')} {would}rewritten, on {refs}")
    if report.branches:
        parts.append(f"{plural(len(report.branches), 'branch', 'branches')} {would}erased")
    return "; ".join(parts)


def _print(output: Output, report: PurgeReport, summary: str) -> None:
    for path in report.paths:
        output.print(Span(f"- {path}", "removed"))
    for name in report.branches:
        output.print(Span(f"- branch {name}", "removed"))
    for key in report.effects:
        output.print(Span(f"- effect {key}", "removed"))
    for name in report.records:
        output.print(Span(f"- record {name}", "removed"))
    output.print(summary)
    if report.shared:
        output.note(
            f"{plural(len(report.shared), 'commit')} of erased branches stay: "
            "other branches, tags or reflogs refer to them"
        )
    if report.collected is not None:
        output.print(f"erased {plural(report.collected.freed, 'object')}{of_size(report.collected.freed_bytes)}")
    if report.mentions:
        named = ", ".join(each if " " in each else each[:12] for each in report.mentions[:8])
        more = f" and {len(report.mentions) - 8:,} more" if len(report.mentions) > 8 else ""
        output.note(Span("still named by message, author, meta or name: ", "title"), named + more)
    output.note(Span("not reached:", "title"))
    for each in report.unreached:
        output.note("  ", each)
