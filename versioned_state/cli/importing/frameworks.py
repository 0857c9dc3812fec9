"""``vstate import --from``: the threads that a framework has stored become branches. Layer: cli."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.text import plural
from versioned_state.cli.shared import store
from versioned_state.cli.shared.hints import hint_of, message_of
from versioned_state.cli.shared.progress import progress_bar
from versioned_state.cli.shared.settings import Settings, program
from versioned_state.errors import StateError, StoreNotFoundError
from versioned_state.integrations.importing.run import ImportReport, import_all, open_importer
from versioned_state.integrations.importing.source import KEEP_GOING
from versioned_state.storage.url import redact

if TYPE_CHECKING:
    from versioned_state.integrations.importing.source import Importer


@dataclass(frozen=True)
class FromOptions:
    """The options of the command line that are for ``--from``."""

    dry_run: bool
    keep_going: bool
    allow_pickle: bool
    users: tuple[str, ...]
    as_json: bool


def import_from(settings: Settings, framework: str, files: tuple[str, ...], options: FromOptions) -> None:
    """Import the threads of some sources, and say what became of them.

    Raises ``StateError`` if some of them were left out.
    """
    start = time.monotonic()
    report = ImportReport()
    try:
        for file in files:
            # A source that cannot be read is found out before a store is created.
            with open_importer(framework, file, allow_pickle=options.allow_pickle, users=options.users) as importer:
                importer.threads()
                with _place(settings, importer, dry_run=options.dry_run), progress_bar(settings.output) as show:
                    import_all(importer, report, dry_run=options.dry_run, keep_going=options.keep_going, told=show)
    except BaseException:
        if report.threads and not options.dry_run:
            _say_how_far(settings.output, report)
        raise
    _say_done(settings, report, options, time.monotonic() - start)
    if report.failed:
        raise StateError(f"{plural(len(report.failed), 'thread')} could not be imported", remains="the others were")


@contextmanager
def _place(settings: Settings, importer: Importer, *, dry_run: bool) -> Iterator[None]:
    """Give an importer the store, which is created if necessary. A dry run does without one."""
    with ExitStack() as stack:
        if dry_run:
            with suppress(StoreNotFoundError):
                importer.into(stack.enter_context(store.reading(settings.store, settings.key_file)).store)
        else:
            signer = store.read_signer(settings.sign_key)
            url = store.locate(settings.store, to_write=True)
            repository = stack.enter_context(store.writing(url, settings.key_file))
            importer.into(repository.store).signer = signer
        yield


def _say_done(settings: Settings, report: ImportReport, options: FromOptions, seconds: float) -> None:
    output, threads = settings.output, report.threads
    for each in report.failed:
        assert each.error is not None
        output.error(message_of(each.error), "" if each.error.hint == KEEP_GOING else hint_of(each.error))
    if options.as_json:
        output.json(
            {"dry_run": options.dry_run, "commits": report.written, "threads": [_row(each) for each in threads]}
        )
        return
    there = sum(each.thread.steps - each.written for each in threads if each.error is None)
    onto = f"{plural(report.written, 'commit')} of {plural(len(threads), 'thread')}"
    known = f" ({there:,} were there already)" if there > 0 else ""
    if options.dry_run:
        for each in threads:
            output.crop(f"would import {each.written:,} of {each.thread.name} onto ", Span(each.thread.branch, "ref"))
        output.note(f"would import {onto}{known}")
        return
    output.note(f"imported {onto}, in {seconds:.1f} s{known}")
    output.note(f"compared with the source: {plural(sum(each.verified for each in threads), 'thread')}, the same")
    if threads:
        named = f" --store {shlex.quote(redact(settings.store))}" if settings.store else ""
        output.note(Span(f"see: {program()}{named} log {shlex.quote(threads[0].thread.branch)}", "hint"))


def _row(each: Any) -> dict[str, Any]:
    row = {"thread": each.thread.name, "branch": each.thread.branch, "commits": each.written, "verified": each.verified}
    return row if each.error is None else {**row, "error": str(each.error)}


def _say_how_far(output: Output, report: ImportReport) -> None:
    if report.written:
        output.note(
            f"imported so far, and kept: {plural(report.written, 'commit')} of {plural(len(report.threads), 'thread')}"
        )
    else:
        output.note("nothing was imported")
