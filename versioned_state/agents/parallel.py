"""``parallel``: calls of tasks side by side, each on a fork of one state, merged back by path. Layer: agents.

::

    state ──┬── fork 0: a call ──┬── merged, one after the other, on a fork of its own
            ├── fork 1: a call ──┤
            └───────────────────>└── landed in one move, or not at all

However it ends, no fork stays. What a killed process leaves, a later call of ``parallel`` on that machine deletes, or
``expire``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import Any, Final, Generic, Literal, TypeVar, overload

from versioned_state.agents.call import Call, current_call
from versioned_state.agents.tasks.task import BoundTask, Task
from versioned_state.arguments import instance_of, one_of
from versioned_state.errors import (
    InvalidArgumentError,
    InvalidTransitionError,
    MergeConflictError,
    SchemaError,
    StateError,
    UnknownRevisionError,
)
from versioned_state.objects.keys import ref_key
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.maintenance.owner import Life, Owner, life_of
from versioned_state.repository.merging.policies import Policy
from versioned_state.repository.refs.ref import read_refs
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import operations, port
from versioned_state.state.branch.commit_options import check_policies
from versioned_state.state.branch.merging import Resolving
from versioned_state.state.state import State
from versioned_state.state.versioned import Namespace, Versioned

T = TypeVar("T")

ExecutorOption = Literal["threads", "processes"]

OnFailure = Literal["raise", "return"]

_FORKS: Final = "parallel"
"""The first part of the names of the forks' branches. The second one is the id of their owner."""

_FORK_S: Final = 7 * 24 * 3600
"""How long the forks of a killed process stay if no other one on its machine calls ``parallel`` on the store."""

_LOOKED_AT: Final = 256
"""Names of forks that a call looks at for those of killed processes.

Deleted ones are listed until gc, so there may be any number.
"""

_MOST_WORKERS: Final = 32


@dataclass(frozen=True, slots=True)
class PathConflict:
    """A path that a call changed, and others before it too, at the positions ``calls``.

    Empty if others changed the branch meanwhile.
    """

    path: str
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The outcome of one call.

    Attributes:
        value: its result, or None if it failed.
        error: its exception, or a ``MergeConflictError`` or another error of the merge, or None.
        commit: the last commit of the call, on its fork, or None if it made no commit.
        conflicts: the paths at which it could not be merged.
    """

    value: T | None = None
    error: BaseException | None = None
    commit: Commit | None = None
    conflicts: tuple[PathConflict, ...] = ()


@overload
def parallel(  # type: ignore[overload-overlap] # a checker takes the first that fits, and that is right
    state: State,
    calls: Sequence[Callable[..., Coroutine[Any, Any, T]]],
    *,
    policies: Mapping[str, Policy] | None = None,
    executor: ExecutorOption = "threads",
    on_failure: OnFailure = "raise",
) -> Coroutine[Any, Any, list[Outcome[T]]]: ...
@overload
def parallel(
    state: State,
    calls: Sequence[Callable[..., T]],
    *,
    policies: Mapping[str, Policy] | None = None,
    executor: ExecutorOption = "threads",
    on_failure: OnFailure = "raise",
) -> list[Outcome[T]]: ...
def parallel(
    state: State,
    calls: Sequence[Callable[..., Any]],
    *,
    policies: Mapping[str, Policy] | None = None,
    executor: ExecutorOption = "threads",
    on_failure: OnFailure = "raise",
) -> Any:
    """Run calls of tasks side by side, each on a fork of a state, and merge their changes.

    Returns an ``Outcome`` for each call.

    ``parallel(state, [partial(book, "Rome"), partial(book, "Oslo")])``. The forks begin at the head of the state, and
    are merged in the order of the calls, all in one move. If the tasks are coroutines, the result is awaitable. Within
    a task the state may be that task's: its changes so far are committed first, as by ``checkpoint()``.

    Args:
        calls: tasks without open arguments, such as ``functools.partial`` of a task and its arguments.
        policies: resolve paths that several calls changed, as in ``Versioned.merge``.
        executor: "threads", or "processes" if the store is a ``Disk``: then calls and results are pickled, and no call
            sees the memory of another. Coroutines run as tasks of their event loop.
        on_failure: "raise" raises an ``ExceptionGroup`` of the errors of all calls that failed or conflict, and nothing
            is merged. "return" merges the other calls, and their outcomes have the errors.

    Raises:
        ExceptionGroup: see ``on_failure``. Nothing was changed, except that a task has one checkpoint more.
        UncommittedChangesError: commit or discard first: a fork would not have the changes.
        MergeConflictError: others committed to the branch meanwhile, and it cannot be merged. Nothing was changed.
        InvalidArgumentError: an argument is of the wrong kind. Nothing ran.
    """
    forked = instance_of("state", state, Versioned | Namespace, remains="nothing ran")
    one_of("executor", executor, ExecutorOption, remains="nothing ran")
    one_of("on_failure", on_failure, OnFailure, remains="nothing ran")
    tasks = [_task_of(call) for call in calls]
    kinds = {inspect.iscoroutinefunction(task) for task in tasks}
    if len(kinds) > 1:
        raise InvalidArgumentError(
            "some of the tasks are coroutines and some are not", remains="nothing ran", hint="run them in two calls"
        )
    work = _Work(forked, list(calls), dict(check_policies(policies)), on_failure)
    if kinds == {True}:
        if executor == "processes":
            raise InvalidArgumentError("coroutines run in the event loop, not in processes", remains="nothing ran")
        return work.run_async()
    return work.run(executor)


def _task_of(call: Any) -> Task[..., Any] | BoundTask[..., Any]:
    task = call
    while isinstance(task, partial):
        task = task.func
    if not isinstance(task, Task | BoundTask):
        raise InvalidArgumentError(
            f"parallel() runs tasks with their arguments, not {call!r:.80}",
            remains="nothing ran",
            hint='partial(book, "Rome")',
        )
    return task


class _Work:
    """The calls of one ``parallel``."""

    def __init__(
        self,
        state: Versioned | Namespace,
        calls: list[Callable[..., Any]],
        policies: dict[str, Policy],
        on_failure: OnFailure,
    ) -> None:
        self._space = state
        self._state = state.state if isinstance(state, Namespace) else state
        self._calls = calls
        self._policies = policies
        self._on_failure = on_failure
        self._owner = Owner()
        self._branches: dict[str, None] = {}  # that may exist

    def run(self, executor: ExecutorOption) -> list[Outcome[Any]]:
        try:
            forks = self._fork_all()
            with _executor(executor, len(forks)) as pool:
                starts = [self._start(executor, call, fork) for call, fork in zip(self._calls, forks, strict=True)]
                futures = [pool.submit(*start) for start in starts]
                results = [_result_of(future.result) for future in futures]
            return self._land(forks, results)
        finally:
            try:
                self._end()
            except BaseException:
                self._end()  # an interrupt leaves no branch
                raise

    async def run_async(self) -> list[Outcome[Any]]:
        import asyncio

        from versioned_state.state.aio.gate import run_on_handle

        try:
            forks = await run_on_handle(port.lock(self._state), self._fork_all)
            running = [call(state=self._part_of(fork)) for call, fork in zip(self._calls, forks, strict=True)]
            ended = await asyncio.gather(*running, return_exceptions=True)
            results = [(None, each) if isinstance(each, BaseException) else (each, None) for each in ended]
            outcomes = await run_on_handle(port.lock(self._state), partial(self._land, forks, results))
            await self._end_off_loop()  # within the block: an interrupt that comes before it leaves no branch either
        except GeneratorExit:  # the coroutine is closed, and cannot wait
            self._end()
            raise
        except BaseException:
            await self._end_off_loop()
            raise
        return outcomes

    async def _end_off_loop(self) -> None:
        from versioned_state.off_loop import off_loop, to_the_end

        try:
            await to_the_end(off_loop(self._end))  # a cancellation does not keep it from beginning
        except BaseException:
            self._end()  # a signal handler raised, or the coroutine is closed
            raise

    def _start(self, executor: ExecutorOption, call: Callable[..., Any], fork: Versioned) -> tuple[Any, ...]:
        names = _names_of(self._space)
        if executor == "threads":
            return copy_context().run, partial(call, state=self._part_of(fork))
        from versioned_state.storage import Disk

        store = self._state.repository.store
        if not isinstance(store, Disk):
            raise InvalidArgumentError(
                f"processes cannot share a {type(store).__name__}",
                remains="nothing ran",
                hint='executor="threads", or a Disk',
            )
        kept = port.shape(fork)
        shape = {} if kept is None else kept.options
        return _run_in_process, f"disk:{store.path}", fork.branch, names, shape, call

    def _part_of(self, fork: Versioned) -> Versioned | Namespace:
        return _part(fork, _names_of(self._space))

    # Forks

    def _fork_all(self) -> list[Versioned]:
        """Make a fork for each call."""
        state = self._state
        call = self._call()
        if call is not None:
            call.checkpoint(f"{call.name}: before {len(self._calls)} parallel calls")
        else:
            with ready(port.lock(state)):
                port.check_open(state)
                port.transactions(state).refuse("parallel")
                port.handle(state).clean("parallel()")
        self._sweep()
        return [self._fork(str(index)) for index in range(len(self._calls))]

    def _sweep(self) -> None:
        """Delete the forks that calls of ``parallel`` left behind: their process was killed, or the store was gone.

        Looks at the names from a random one on, so that a few calls find a fork among any number of deleted ones.
        """
        repository = self._state.repository
        store, start = repository.store, ref_key("branch", "")
        prefix = f"{start}{_FORKS}/"
        keys = store.page(prefix, after=prefix + urandom(8).hex(), limit=_LOOKED_AT)
        keys += store.page(prefix, limit=_LOOKED_AT - len(keys)) if len(keys) < _LOOKED_AT else []
        names = {name: name.split("/")[1] for name in (key[len(start) :] for key in keys)}
        ended = {owner for owner in names.values() if _has_ended(owner)}
        for ref in (
            read_refs(store, [("branch", name) for name, owner in names.items() if owner in ended]) if ended else ()
        ):
            if ref.head is not None:
                with suppress(UnknownRevisionError):  # another process was first
                    repository.branches.delete(ref.name, force=True)

    def _end(self) -> None:
        """Delete the forks. If the store fails, the next call of ``parallel`` deletes them."""
        branches = self._state.repository.branches
        for branch in list(self._branches):
            with suppress(StateError):
                branches.delete(branch, force=True)
            self._branches.pop(branch, None)
        self._owner.end()

    def _call(self) -> Call | None:
        """Return the call that runs here on the state, if there is one."""
        call = current_call()
        return call if call is not None and call.versioned is self._state else None

    def _fork(self, name: str) -> Versioned:
        branch = f"{_FORKS}/{self._owner.id.hex()}/{name}"
        self._branches[branch] = None  # first: the store may have it, whatever exception comes
        return self._state.fork(branch, at=self._state.head, ttl_seconds=_FORK_S)

    # Merging

    def _land(self, forks: list[Versioned], results: Sequence[tuple[Any, BaseException | None]]) -> list[Outcome[Any]]:
        base = self._state.head
        merged = self._fork("merged")
        outcomes: list[Outcome[Any]] = []
        for index, (fork, (value, error)) in enumerate(zip(forks, results, strict=True)):
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise error
            commit = fork.refresh()
            made = None if commit == base else commit
            if error is not None:
                outcomes.append(Outcome(None, error, made))
                continue
            try:
                description = operations.Description(f"merge {self._describe(index)}")
                with ready(port.lock(merged)):  # in the order of the calls, whichever ended first
                    operations.merge(
                        port.handle(merged),
                        commit,
                        description,
                        Resolving(self._policies),
                        fast_forward=True,
                        in_time=False,
                    )
            except (InvalidTransitionError, SchemaError) as refused:
                refused.add_note(f"call {index}, {self._describe(index)}, was not merged")
                outcomes.append(Outcome(value, refused, made))
            except MergeConflictError as conflict:
                conflict.add_note(f"call {index}, {self._describe(index)}, was not merged")
                outcomes.append(Outcome(value, conflict, made, tuple(self._conflicts(base, conflict, outcomes))))
            else:
                outcomes.append(Outcome(value, None, made))
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors and self._on_failure == "raise":
            raise BaseExceptionGroup("calls failed, and no change of any call was merged", errors)
        self._merge(merged.head)
        return outcomes

    def _merge(self, head: Commit) -> None:
        state = self._state
        message = f"merge {len(self._calls)} parallel calls"
        if self._call() is None:
            state.merge(head, message=message, policies=self._policies)
            return
        with ready(port.lock(state)):
            port.check_open(state)
            # Never a fast-forward: the commit marks the changes so far as not to be rolled back.
            operations.merge(
                port.handle(state), head, operations.Description(message), Resolving(self._policies), fast_forward=False
            )

    def _conflicts(
        self, base: Commit, error: MergeConflictError, outcomes: list[Outcome[Any]]
    ) -> Iterator[PathConflict]:
        for conflict in error.conflicts:
            path = str(conflict.path)
            others = [
                index
                for index, outcome in enumerate(outcomes)
                if outcome.error is None and outcome.commit is not None and self._touches(base, outcome.commit, path)
            ]
            yield PathConflict(path, tuple(others))

    def _touches(self, base: Commit, commit: Commit, path: str) -> bool:
        return any(_overlap(str(change.path), path) for change in self._state.repository.diff(base, commit))

    def _describe(self, index: int) -> str:
        call: Any = self._calls[index]
        task: Any = _task_of(call)
        shown = (
            [*map(repr, call.args), *(f"{name}={value!r}" for name, value in call.keywords.items())]
            if isinstance(call, partial)
            else []
        )
        return f"{task.__name__}({', '.join(shown):.80})"


def _has_ended(owner: str) -> bool:
    """Return whether the owner in the name of a fork has ended. False for any other name."""
    try:
        return life_of(bytes.fromhex(owner)) is Life.ENDED
    except ValueError:
        return False


def _overlap(a: str, b: str) -> bool:
    """Return whether one of two paths is the other or begins with it."""
    short, long = sorted((a, b), key=len)
    return long.startswith(short) and long[len(short) :][:1] in ("", ".", "[")


def _names_of(space: Versioned | Namespace) -> list[str]:
    from versioned_state.agents.events.entries import space_of

    names = space_of(port.prefix(space))
    return names.split("\0") if names else []


def _part(state: Versioned, names: list[str]) -> Versioned | Namespace:
    """Return the namespace with these names, from the outermost on."""
    part: Versioned | Namespace = state
    for name in names:
        part = part.namespace(name)
    return part


def _result_of(result: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return result(), None
    except BaseException as error:  # noqa: BLE001 - it becomes the outcome of the call
        return None, error


def _executor(option: ExecutorOption, count: int) -> Executor:
    workers = max(1, min(count, _MOST_WORKERS))
    if option == "threads":
        return ThreadPoolExecutor(workers, thread_name_prefix="versioned-state parallel")
    from multiprocessing import get_context

    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def _run_in_process(url: str, branch: str, names: list[str], shape: dict[str, Any], call: Callable[..., Any]) -> Any:
    """Run a call in this process, on a fork that the parent made."""
    from versioned_state.state.open import open as open_state

    with open_state(url, branch=branch, create=False, **shape) as state:
        return call(state=_part(state, names))
