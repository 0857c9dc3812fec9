"""``vstate fsck``: a check of every object, ref and record of a store. Layer: cli."""

from __future__ import annotations

from dataclasses import asdict

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.render.text import plural
from versioned_state.cli.shared import store
from versioned_state.cli.shared.progress import progress_bar
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.repository.maintenance.fsck import check


@verb("fsck", example="vstate --store ./agent-state fsck")
@json_option
@click.pass_context
def fsck(context: click.Context, *, as_json: bool) -> None:
    """Check that objects match their ids, none of a branch, tag or reflog is missing, and trees are divided correctly.

    Prints a line for each fault, and exits with 1 if there is one. Nothing is written. With --json: one object.
    """
    settings: Settings = context.obj
    output = settings.output
    with store.unchecked(settings.store, settings.key_file) as checked, progress_bar(output) as show:
        report = check(checked, progress=show and (lambda done, total: show("checking", done, total)))
    if as_json:
        output.json(asdict(report) | {"ok": report.ok})
    else:
        for finding in report.findings:
            output.print(Span(finding.problem, "error"), str(finding).removeprefix(finding.problem))
        if report.more:
            output.print(f"and {report.more:,} more")
        if report.unknown:
            output.note(f"left alone: records of kinds that this release does not have: {', '.join(report.unknown)}")
        checked_refs = plural(report.refs - report.deleted, "branch or tag", "branches and tags")
        if report.deleted:
            checked_refs += f", {plural(report.deleted, 'reflog')} of deleted ones"
        what = (
            f"{plural(report.objects, 'object')}, {plural(report.commits, 'commit')}, {checked_refs}; "
            f"{report.dangling:,} dangling"
        )
        faults = len(report.findings) + report.more
        output.wrapped([[f"checked {what}: ", Span(plural(faults, "fault"), "error") if faults else "no fault"]])
    context.exit(0 if report.ok else 1)
