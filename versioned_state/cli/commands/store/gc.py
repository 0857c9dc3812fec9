"""``vstate gc``: objects that nothing refers to are deleted, beside writers. Layer: cli."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

import click

from versioned_state.cli.render.ages import parse_age
from versioned_state.cli.render.text import of_size, plural, size
from versioned_state.cli.shared.progress import progress_bar
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.repository.refs.reflog import DEFAULT_EXPIRE


@verb("gc", example="vstate gc --expire 7d --compact")
@click.option("--expire", type=parse_age, metavar="AGE", help="Ignore reflog entries older than AGE.  [default: 30d]")
@click.option("--compact", is_flag=True, help="Rewrite the store afterwards, so that its file shrinks.")
@click.option(
    "--time",
    "limit",
    type=parse_age,
    metavar="TIME",
    help="Stop after TIME, such as 30s. The next vstate gc --time continues.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@click.option("--force", is_flag=True, help="Take over from another gc whose process has died.")
@json_option
@click.pass_obj
def gc(
    settings: Settings,
    *,
    expire: timedelta | None,
    compact: bool,
    limit: timedelta | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Delete every object that no branch, no tag and no reflog entry younger than AGE refers to.

    Others may read and write meanwhile. With --json: one object.
    """
    output = settings.output
    chosen = DEFAULT_EXPIRE if expire is None else expire
    opened = settings.reading if dry_run else settings.changing
    with opened() as repository, progress_bar(output) as show:
        report = repository.gc(
            expire=chosen,
            compact=compact,
            dry_run=dry_run,
            force=force,
            time_limit=None if limit is None else max(limit.total_seconds(), 0.001),
            progress=show and (lambda done, total: show("marking" if total is None else "deleting", done, total)),
        )
    if as_json:
        output.json(asdict(report))
        return
    freed, kept = (
        f"{plural(report.freed, 'object')}{of_size(report.freed_bytes)}",
        f"{report.kept:,}{of_size(report.kept_bytes)}",
    )
    output.print(f"{'would free' if dry_run else 'freed'} {freed}; kept {kept}")
    if report.compacted is not None:
        output.print(f"the store takes {size(max(report.compacted, 0))} less")
    if not report.finished:
        output.note("its time was over: vstate gc --time continues from here")
