"""``vstate prune``: ends the history of branches. Layer: cli."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from versioned_state.cli.render.ages import parse_age
from versioned_state.cli.render.output import Span
from versioned_state.cli.render.text import first_line, of_size, plural
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.repository.maintenance.prune import PruneReport


@verb("prune", example="vstate prune 'user/*' --keep-last 100 --gc")
@click.argument("branches", nargs=-1, metavar="[PATTERN]...")
@click.option(
    "--keep-last", type=click.IntRange(min=1), metavar="COUNT", help="Keep the last COUNT commits of each branch."
)
@click.option("--older-than", type=parse_age, metavar="AGE", help="Keep commits younger than AGE: 90d, 12h, 30m.")
@click.option("--untag", is_flag=True, help="Tags keep only their own commit.")
@click.option("--expire", type=parse_age, metavar="AGE", help="Ignore reflog entries older than AGE.  [default: 30d]")
@click.option("--gc", "collect", is_flag=True, help="Run vstate gc afterwards.")
@click.option("--dry-run", is_flag=True, help="Only print what would be pruned.")
@json_option
@click.pass_obj
def prune(
    settings: Settings,
    branches: tuple[str, ...],
    *,
    keep_last: int | None,
    older_than: timedelta | None,
    untag: bool,
    expire: timedelta | None,
    collect: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Prune the old history of the branches that match a PATTERN (default: all).

    A commit stays if it is among the last COUNT, or younger than AGE, or if another branch, a tag or a reflog still
    refers to it. Ids do not change. The rest is garbage, which vstate gc, or --gc, frees.

    With --json: one object.
    """
    if keep_last is None and older_than is None:
        raise click.UsageError("give --keep-last or --older-than: it says which commits stay")
    with settings.changing() as repository:
        report = repository.prune(
            keep_last=keep_last,
            older_than=older_than,
            keep_tagged=not untag,
            branches=branches or "*",
            expire=expire,
            gc=collect,
            dry_run=dry_run,
        )
    if as_json:
        settings.output.json(_json(report))
        return
    output = settings.output
    for pruned in report.branches:
        output.crop(
            Span(pruned.branch, "ref"),
            f"  keeps {plural(pruned.kept, 'commit')}, from ",
            Span(pruned.at.short, "id"),
            "  ",
            first_line(pruned.at.message),
        )
    done = "would be pruned" if dry_run else "pruned"
    output.print(
        f"{plural(len(report.branches), 'branch', 'branches')} {done}; "
        f"{plural(report.kept, 'commit')} stay, {report.removed:,} are garbage"
    )
    if not report.branches:
        output.note(
            Span("tags and moves of the reflog keep older commits too: --untag and --expire let them go", "hint")
        )
    if report.collected is not None:
        output.print(f"freed {plural(report.collected.freed, 'object')}{of_size(report.collected.freed_bytes)}")


def _json(report: PruneReport) -> dict[str, Any]:
    return {
        "branches": [{"branch": pruned.branch, "at": pruned.at.id, "kept": pruned.kept} for pruned in report.branches],
        "kept": report.kept,
        "removed": report.removed,
        "dry_run": report.dry_run,
        "collected": None if report.collected is None else asdict(report.collected),
    }
