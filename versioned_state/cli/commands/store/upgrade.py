"""``vstate upgrade``: the newest version of the stored format. Layer: cli."""

from __future__ import annotations

from dataclasses import asdict

import click

from versioned_state.cli.shared.settings import Settings, json_option, verb


@verb("upgrade", example="vstate upgrade --dry-run")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option(
    "--force", is_flag=True, help="No other program has the store open: upgrade it even if it cannot keep them away."
)
@json_option
@click.pass_obj
def upgrade(settings: Settings, *, dry_run: bool, force: bool, as_json: bool) -> None:
    """Bring the store to the newest version of the stored format that this release writes.

    Every release keeps the version that a store has until this is called. Older releases refuse the store afterwards.
    Others may write meanwhile. With --json: one object.
    """
    output = settings.output
    with (settings.reading if dry_run else settings.changing)() as repository:
        report = repository.upgrade(dry_run=dry_run, force=force)
    if as_json:
        output.json(asdict(report))
    elif report.found == report.version:
        output.print(f"nothing to do: the store has format version {report.version}, the newest of this release")
    else:
        output.print(
            f"{'would upgrade' if dry_run else 'upgraded'} the store "
            f"from format version {report.found} to {report.version}"
        )
