"""Upgrades: a store goes from one version of the format to the next, beside writers. Layer: repository.

A writer keeps the version that a store has; only this raises it. The batch that raises it also replaces the record of
gc, on which every move of a ref depends, and puts the version into that record. So a writer that opened the store
before is refused at its next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from versioned_state.errors import FormatError, StoreBusyError, UnsafeStoreError
from versioned_state.objects.keys import FORMAT, GC
from versioned_state.repository.format import FORMAT_VERSION, read_format, write_format
from versioned_state.repository.maintenance.gc.collector import Collector
from versioned_state.repository.refs.ref import BatchPart
from versioned_state.storage.wrappers.tiered import backends

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

Step = Callable[["Database"], BatchPart]
"""Prepares a store of one version for the next one.

It returns what the batch that raises the version must check and change as well. Writers of the older version may be at
work until that batch, and no gc is. A step that dies is repeated, and so is one whose conditions do not hold, so it
must find done what it has done before, and the older version must still be able to read the store.
"""

STEPS: Final[Mapping[int, Step]] = {}
"""The step to each version, from 2 on."""

_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The result of an upgrade, or of a dry run.

    Attributes:
        found: the format version that the store had.
        version: the one that it has now, or that it would have.
        dry_run: nothing was changed.
    """

    found: int
    version: int
    dry_run: bool = False


def upgrade(
    database: Database, *, dry_run: bool = False, force: bool = False, steps: Mapping[int, Step] = STEPS
) -> UpgradeReport:
    """Bring a store to the newest version, one after the other, each in one batch. Others may write meanwhile.

    From then on releases that do not have that version refuse the store. A handle that was open before raises
    ``FormatError`` at its next commit, and keeps its staged changes; one that only reads should be opened again.

    Args:
        force: also upgrade a store that takes one condition a batch, where nothing keeps older writers away. They must
            be stopped before.
        steps: the step to each version above 1.

    Raises:
        FormatError: the store has a version for which there is no step: a newer release wrote it. Nothing was changed.
        StoreBusyError: a gc or another upgrade is at work. The store has one of the versions in between, whole.
        UnsafeStoreError: see ``force``. Nothing was changed.
    """
    newest = max(steps, default=FORMAT_VERSION)
    stored = database.store.get(FORMAT)
    found = read_format(stored or b"")
    if found > newest:
        raise FormatError(found, newest)
    if found < newest and not dry_run:
        if not database.fence.enabled:
            _upgrade_alone(database, found, newest, steps, force=force)
        else:
            for version in range(found + 1, newest + 1):
                _Upgrade(database).raise_to(version, steps[version])
        database.forget()
    return UpgradeReport(found, newest, dry_run)


class _Upgrade(Collector):
    """One upgrade at work.

    It owns the record of gc as a gc does, so neither a gc nor another upgrade runs beside it.
    """

    def raise_to(self, version: int, step: Step) -> None:
        store, database = self._store, self._database
        database.format_version = database.fence.version = version - 1  # as was read just now
        with self.at_work():
            self.begin(marks=False)
            for _ in range(_ATTEMPTS):
                part = step(database)
                after = self.record.ended().but(version=version)
                assert after.stored is not None
                expected = {FORMAT: write_format(version - 1), GC: self.record.stored, **part.expected}
                if store.apply(expected, {FORMAT: write_format(version), GC: after.stored, **part.puts}, part.deletes):
                    database.format_version = database.fence.version = version
                    database.fence.learn(after.stored)
                    return
                self.look()  # a writer that has published a commit meanwhile changed the record
            raise StoreBusyError("writers keep changing what the upgrade needs", hint="try again")


def _upgrade_alone(database: Database, found: int, newest: int, steps: Mapping[int, Step], *, force: bool) -> None:
    if not force:
        raise UnsafeStoreError(
            f"nothing keeps writers of an older version away from {backends(database.store)[0]!r}, "
            "which takes one condition a batch",
            hint="stop every program that has the store open, then use force=True, or vstate upgrade --force",
        )
    for version in range(found + 1, newest + 1):
        part = steps[version](database)
        expected = {FORMAT: write_format(version - 1), **part.expected}
        if not database.store.apply(expected, {FORMAT: write_format(version), **part.puts}, part.deletes):
            raise StoreBusyError("another program has changed the store meanwhile", hint="stop it, and try again")
        database.format_version = version
