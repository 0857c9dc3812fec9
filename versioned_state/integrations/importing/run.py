"""``open_importer``, and ``import_all``: what a store lacks is written, then all is compared with the source.

Layer: integrations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from versioned_state.arguments import one_of
from versioned_state.errors import MissingDependencyError, StateError
from versioned_state.integrations.importing.source import DamagedRowError, Importer, Thread

Told = Callable[[str, int, int], None]
"""Called with the stage, the steps done, and all steps."""


@dataclass
class Imported:
    """A thread, and what became of it.

    Attributes:
        written: the steps that were written, or that a dry run found missing.
        verified: whether it was compared with the source.
        error: why it is not complete.
    """

    thread: Thread
    written: int = 0
    verified: bool = False
    error: StateError | None = None


@dataclass
class ImportReport:
    """The results of an import so far, by thread."""

    threads: list[Imported] = field(default_factory=list)

    @property
    def written(self) -> int:
        """The steps that were written."""
        return sum(each.written for each in self.threads)

    @property
    def failed(self) -> list[Imported]:
        """The threads with an error."""
        return [each for each in self.threads if each.error is not None]


def import_all(
    importer: Importer,
    report: ImportReport,
    *,
    dry_run: bool = False,
    keep_going: bool = False,
    told: Told | None = None,
) -> None:
    """Import all threads of a source.

    Args:
        report: is filled in meanwhile, so that an interrupted import can say how far it came.
        dry_run: write nothing, and compare nothing. Every row is read.
        keep_going: continue with the next thread if one has an error, which the report has then.
        told: shows the progress.

    Raises:
        ImportSourceError, StateError: a thread could not be imported. Those before it were imported.
    """
    threads = importer.threads()
    stage = "reading" if dry_run else "importing"
    show = _Progress(sum(thread.steps for thread in threads), told)

    def write(entry: Imported) -> None:
        report.threads.append(entry)
        for step in importer.missing(entry.thread):
            if not dry_run:
                importer.write(entry.thread, step)
            entry.written += 1
            show(stage, entry.written)

    def check(entry: Imported) -> None:
        importer.check(entry.thread)
        entry.verified = True

    def each_of(entries: list[Imported], work: Callable[[Imported], None], stage: str) -> None:
        show.done = 0
        for entry in entries:
            try:
                _unless_too_deep(importer, entry, work)
            except StateError as error:
                entry.error = error
                if not keep_going:
                    raise
            show.done += entry.thread.steps
            show(stage, 0)

    entries = [Imported(thread) for thread in threads]
    each_of(entries, write, stage)
    if not dry_run:
        each_of([entry for entry in entries if entry.error is None], check, "comparing")


def _unless_too_deep(importer: Importer, entry: Imported, work: Callable[[Imported], None]) -> None:
    try:
        work(entry)
    except RecursionError as error:
        where = f"step {entry.written + 1} of {entry.thread.name}"
        raise DamagedRowError(importer.source, where, "its values are nested too deeply") from error


class _Progress:
    def __init__(self, total: int, told: Told | None) -> None:
        self._total = total
        self._told = told
        self.done = 0  # steps of the threads before this one

    def __call__(self, stage: str, more: int) -> None:
        if self._told is not None:
            self._told(stage, self.done + more, self._total)


_IMPORTERS: Final = {
    "langgraph": "langgraph.LangGraphImporter",
    "openai-agents": "openai_agents.OpenAIAgentsImporter",
    "adk": "adk.AdkImporter",
    "agentscope": "agentscope.AgentScopeImporter",
}
"""The module and the class of the importer of each framework."""

FRAMEWORKS: Final = tuple(_IMPORTERS)
"""The frameworks whose sources are imported."""


def open_importer(framework: str, source: str, *, allow_pickle: bool = False, users: Collection[str] = ()) -> Importer:
    """Open a source of a framework, only to read it.

    Args:
        source: a file, a folder or a URL.
        allow_pickle: unpickle what is pickled.
        users: for AgentScope, the ids of users that names of files begin with.

    Raises:
        OSError: it cannot be read.
        SourceFormatError: it is not one of that framework.
        MissingDependencyError: its classes are needed to read it, and are not installed.
    """
    one_of("framework", framework, FRAMEWORKS)
    module, _, name = _IMPORTERS[framework].partition(".")
    try:
        importer = getattr(import_module(f"versioned_state.integrations.importing.{module}"), name)
    except ModuleNotFoundError as error:  # the others need no package
        raise MissingDependencyError("an import from LangGraph", extra="langgraph") from error
    options = {"users": users} if framework == "agentscope" else {}
    opened: Importer = importer(source, allow_pickle=allow_pickle, **options)
    return opened
