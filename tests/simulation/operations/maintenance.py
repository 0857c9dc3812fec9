"""What maintenance does: gc whole and in slices, prune, purge, expiry, checks."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.simulation.model import Operation, Purge, records_of
from tests.simulation.operations.agents import BRANCHES, KEYS, index_meta
from tests.simulation.operations.kinds import Dice, Kind, Refused, table
from tests.simulation.scheduler import KilledError
from versioned_state import Repository
from versioned_state.errors import StorageError, StoreBusyError, UnfinishedPurgeError
from versioned_state.objects.keys import PURGES

if TYPE_CHECKING:
    from tests.simulation.run import Runner

NOW = timedelta(0)


def _expire(rng: Dice) -> timedelta:
    return rng.choice((NOW, NOW, NOW, timedelta(seconds=1), timedelta(days=30)))


def gc(runner: Runner, rng: Dice, operation: Operation) -> None:
    expire = _expire(rng)
    operation.detail = f"expire={expire}"
    report = runner.repository.gc(expire=expire, force=rng.random() < 0.5, compact=rng.random() < 0.2)
    operation.detail += f" freed {report.freed}"


def gc_in_slices(runner: Runner, rng: Dice, operation: Operation) -> None:
    expire = _expire(rng)
    for _ in range(rng.choice((1, 3, 20))):
        report = runner.repository.gc(expire=expire, time_limit=rng.choice((1e-9, 0.005, 0.02)), force=True)
        operation.detail += f" {report.freed}"
        if report.finished:
            break


def gc_elsewhere(runner: Runner, rng: Dice, operation: Operation) -> None:
    """In a process that has just begun."""
    Repository(runner.site.store).gc(expire=NOW, force=True)


def prune(runner: Runner, rng: Dice, operation: Operation) -> None:
    branches: Any = rng.choice(("*", rng.place(BRANCHES)))
    keep = rng.choice((1, 1, 2, 3))
    operation.detail = f"{branches} keep_last={keep}"
    runner.model.undo(operation, [f"history {branches}", *(["history *"] if branches == "*" else [])])
    report = runner.repository.prune(
        keep_last=keep,
        branches=branches,
        expire=rng.choice((NOW, NOW, None)),
        gc=rng.random() < 0.6,
        keep_tagged=rng.random() < 0.5,
    )
    operation.detail += f" removed {report.removed}"


def _purge(runner: Runner, operation: Operation, rng: Dice, request: Purge, *, thorough: bool = False) -> None:
    """Purge. One that could not finish is repeated, here or after the run."""
    model, world = runner.model, runner.world
    branch = request.branch
    model.undo(operation, ["keys"] if branch is None else [branch, records_of(branch)])
    model.purges.append((request, operation))
    existed = branch is not None and world.has_branch(branch)
    finished = False
    try:
        for _ in range(rng.choice((1, 1, 3))):
            began = world.scheduler.steps
            try:
                report = request.run(runner.repository, thorough=thorough)
            except UnfinishedPurgeError as error:
                operation.end = math.inf
                model.owe(request, error.report, began, world.scheduler.steps)
                if not isinstance(error.__cause__, StoreBusyError):
                    raise
                unfinished = error
            else:
                finished = True
                model.pay(request, operation, report, began, world.scheduler.steps)
                break
        else:
            raise unfinished
    except BaseException as error:
        if isinstance(error, StorageError):
            operation.end = math.inf
        has_journal = any(key.startswith(PURGES) for key in world.content.mutable)
        if isinstance(error, KilledError) and not finished and (not has_journal or world.scheduler.late):
            model.owed.pop(request, None)  # it may have finished, and its report was lost with the process
        if (
            not finished
            and existed
            and not isinstance(error, UnfinishedPurgeError)
            and not _exists_or_others(runner, operation, request)
        ):
            if not world.faults.happened:
                model.fail(
                    f"purge of {branch} erased it and raised {type(error).__name__}: {error}; its report is lost"
                )
            elif has_journal and not world.scheduler.late:
                model.owe(request, None, operation.start, world.scheduler.steps)
        raise
    operation.detail += f" erased {list(report.branches)}"
    if branch is not None and branch in report.branches:
        model.purged.append((branch, operation))


def _exists_or_others(runner: Runner, operation: Operation, request: Purge) -> bool:
    """Whether the branch of a purge is there, or others may have deleted it."""
    assert request.branch is not None
    others = runner.model.undoing.get(request.branch, ())
    return runner.world.has_branch(request.branch) or any(
        each is not operation and each.end >= operation.start for each in others
    )


def purge_branch(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = rng.place(BRANCHES)
    operation.detail = branch
    _purge(runner, operation, rng, Purge(branch=branch))


def purge_thoroughly(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = rng.place(BRANCHES)
    operation.detail = branch
    _purge(runner, operation, rng, Purge(branch=branch), thorough=True)


def purge_path(runner: Runner, rng: Dice, operation: Operation) -> None:
    path = rng.choice((*KEYS, "secret"))
    operation.detail = path
    # each later commit is made again, and a fork of an old one merges as any other history
    runner.model.repeated = True
    _purge(runner, operation, rng, Purge(path=path))


def expire(runner: Runner, rng: Dice, operation: Operation) -> None:
    operation.detail = str(runner.repository.expire())


def fsck(runner: Runner, rng: Dice, operation: Operation) -> None:
    runner.repository.fsck()


def list_all(runner: Runner, rng: Dice, operation: Operation) -> None:
    repository = runner.repository
    for name in [*repository.branches]:
        try:
            operation.detail += f" {name}={repository.commit(name).short}"
        except KeyError:
            raise Refused(f"{name} was deleted meanwhile") from None


def clock(runner: Runner, rng: Dice, operation: Operation) -> None:
    runner.world.scheduler.now += rng.choice((1, 3600)) * 1_000_000


MAINTENANCE: dict[str, Kind] = table(
    (gc, 4), (gc_in_slices, 2), gc_elsewhere, (prune, 2), (purge_branch, 2), purge_thoroughly, purge_path, expire, fsck,
    list_all, clock, (index_meta, 2),
    always=("gc",),
)  # fmt: skip
