"""Imports of what frameworks have stored, for their tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from versioned_state.integrations.importing.run import ImportReport, Told, import_all, open_importer
from versioned_state.storage import KVStore


def import_into(
    store: KVStore,
    framework: str,
    source: Path | str,
    report: ImportReport | None = None,
    *,
    told: Told | None = None,
    dry_run: bool = False,
    keep_going: bool = False,
    **options: Any,
) -> ImportReport:
    """Import a source, and return the report, which may be given to see what an interrupted import has done.

    Args:
        options: of ``open_importer``.
    """
    report = ImportReport() if report is None else report
    with open_importer(framework, str(source), **options) as importer:
        importer.into(store)
        import_all(importer, report, told=told, dry_run=dry_run, keep_going=keep_going)
    return report


def stop_after(count: int) -> Callable[..., None]:
    """Return a ``told`` that interrupts an import after a number of steps."""

    def told(stage: str, done: int, total: int) -> None:
        if stage == "importing" and done >= count:
            raise KeyboardInterrupt

    return told
