"""The parts of adapters: an object of a framework over a repository, and writes to its branches.

Layer: integrations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from versioned_state.errors import BranchMovedError, InvalidArgumentError
from versioned_state.off_loop import off_loop
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import ROOT, Commit
from versioned_state.repository.repository import Repository
from versioned_state.services.calls.handles import Handles, close_handle
from versioned_state.services.calls.heads import unless_erased
from versioned_state.services.calls.locks import Locks
from versioned_state.state.branch import port
from versioned_state.state.branch.publisher import again_if_moved
from versioned_state.state.versioned import Versioned
from versioned_state.storage import Cache, KVStore, open_store
from versioned_state.storage.url import is_remote
from versioned_state.values.codec.trust import TrustedModules

P = ParamSpec("P")
T = TypeVar("T")

_HANDLES: Final = 64
_HANDLE_BYTES: Final = 8 << 20
"""How many handles an adapter keeps open, and their approximate bytes of memory."""

_CHECKPOINT_BYTES: Final = 64 << 20
"""The same bytes where handles keep values, of whose content they remember what was stored."""

Place = KVStore | Repository | str | os.PathLike[str]
"""The place of an adapter's data: a store, a repository, or the URL or path of a store."""


def off_the_loop(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the coroutine of a method, for a framework that awaits it: it calls the method off the event loop."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await off_loop(partial(getattr(self, method.__name__), *args, **kwargs))
        return result

    call.__doc__ = f"Do ``{method.__name__}`` off the event loop."
    return call


class Adapter:
    """An object of a framework that keeps its data in a repository.

    Args:
        place: a store or a repository, which stay open; or a URL or path, whose store ``close`` closes.
        classes: the modules whose classes may be read as what they are; for a repository, its own count.
        own: the modules of the framework, whose classes are read too.

    Attributes:
        repository: everything the adapter stores, for ``log``, ``diff``, ``blame`` and the command line.
        writers: writes to its branches.
        checkpoints: whole states as commits.
    """

    def __init__(self, place: Place, *, classes: TrustedModules = (), own: Sequence[str] = ()) -> None:
        self._own: KVStore | None = None
        given = [classes] if isinstance(classes, str) or not isinstance(classes, Iterable) else classes
        self.repository: Final = self._opened(place, [*own, *given] if own else classes)
        self.writers: Final = Writers(self.repository)
        self.checkpoints: Final = Checkpoints(self.repository)

    def _opened(self, place: Any, classes: TrustedModules) -> Repository:
        if isinstance(place, Repository):
            return place
        if isinstance(place, str | os.PathLike):
            store = open_store(place)
            self._own = store = Cache(store) if is_remote(place) else store
            try:
                return Repository(store, pickle="refuse", classes=classes)
            except BaseException:
                store.close()
                raise
        if isinstance(place, KVStore):
            return Repository(place, pickle="refuse", classes=classes)
        raise InvalidArgumentError(
            f"{type(place).__name__} is neither a store nor a repository",
            hint="for example Disk('./agent-state'), or its path",
        )

    def close(self) -> None:
        """Close the handles on branches, and the store, if this object opened it."""
        self.writers.close()
        self.checkpoints.close()
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Writers:
    """Writes to branches of a repository, by many threads, processes and machines. Safe for many threads.

    The handles of the branches that were written last stay open: to open one costs a third of what a small commit does.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository: Final = repository
        self._turns = Locks()  # the writers of one branch in this process wait for each other, and need not try again
        self._handles: Handles[Versioned] = Handles(_HANDLES, _HANDLE_BYTES, self._open)

    def _open(self, branch: str) -> Versioned:
        return Versioned(self.repository, branch=branch)

    def close(self) -> None:
        """Close the handles. Everything was committed."""
        self._handles.close()

    def write(self, branch: str, edit: Callable[[Versioned], T]) -> T:
        """Return the result of a function that changes and commits a state at the head of a branch.

        The state has nothing loaded, and is not the function's to keep. The function is called again, with a new state,
        whenever another writer has moved the branch or erased the head meanwhile, so it must commit with
        ``OnMoved.REFUSE``, and have no other effects.

        Raises:
            BranchMovedError: others came first each time.
        """
        return self.write_together([branch], lambda states: edit(states[0]))

    def write_together(self, branches: Collection[str], edit: Callable[[list[Versioned]], T]) -> T:
        """Return the result of a function that changes each branch's state and commits all together: see ``write``."""

        def attempt(_: None) -> T:
            states: dict[str, Versioned] = {}
            try:
                for branch in branches:
                    states[branch] = self._at_head(branch)
                result = edit(list(states.values()))
                for branch in branches:
                    # The caller may go on with the values: a handle that kept them would commit what becomes of them.
                    if port.handle(states[branch]).worktree.release_all():
                        self._handles.give(branch, states.pop(branch))
                return result
            finally:
                for state in states.values():  # those of a function that raised, or left changes
                    close_handle(state)

        with ExitStack() as stack:
            for branch in sorted(branches):  # in one order, so that two writers never wait for each other
                stack.enter_context(self._turns.held(branch))
            return unless_erased(lambda: again_if_moved(attempt, None, lambda _: None))

    def _at_head(self, branch: str) -> Versioned:
        """Take the open handle of a branch if the branch has not moved since, or open one."""
        state = self._handles.take(branch)
        if state is not None:
            handle = port.handle(state)
            try:
                if handle.read_ref().stored == handle.ref.stored:
                    return state
            except BaseException:
                close_handle(state)
                raise
            close_handle(state)
        return self._open(branch)


class _Whole(Versioned):
    """The state that ``Checkpoints`` commits.

    Attributes:
        made: the keys and the tag of its last commit, which is the head.
    """

    made: tuple[Collection[str], str] | None = None


class Checkpoints:
    """Checkpoints on branches of a repository: commits of whole states, each with a tag. Safe for many threads.

    The handles of the branches that were written last stay open, with the values of their last checkpoints: of the next
    one, only the difference is encoded and compressed. The caller may change the values, which are not looked at again.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository: Final = repository
        self._handles: Handles[_Whole] = Handles(_HANDLES, _CHECKPOINT_BYTES, self._open)

    def _open(self, branch: str) -> _Whole:
        return _Whole(self._repository, branch=branch)

    def close(self) -> None:
        """Close the handles. Everything was committed."""
        self._handles.close()

    def find(self, tag: str | None) -> Commit | None:
        """Return the checkpoint with a tag, or None if there is none."""
        return None if tag is None else next(iter(self._repository.tags.get_many([tag]).values()), None)

    def commit(
        self,
        branch: str,
        values: Mapping[str, Any],
        *,
        message: str,
        meta: Mapping[str, Any],
        tag: str,
        after: str | None,
    ) -> None:
        """Commit these values, and nothing else, and move the branch there, from wherever it stands.

        Args:
            tag: a tag for the commit, made with it in one step.
            after: the tag of the checkpoint that it follows. If there is none, it is the first of a history.

        Raises:
            RefExistsError: there is such a tag.
            StateError: nothing was committed.
        """
        follows_head = False
        while True:
            try:
                with self._handles.handle(branch) as state:
                    made, state.made = state.made, None
                    for key in list(state) if made is None else made[0]:
                        if key not in values:
                            del state[key]
                    state.update(values)
                    follows_head = made is not None and made[1] == after
                    state.commit(
                        message,
                        parent=state.head if follows_head else self.find(after) or ROOT,
                        meta=meta,
                        tag=tag,
                        allow_empty=True,
                        on_moved=OnMoved.REFUSE if follows_head else OnMoved.REPLACE,
                    )
                    state.made = values.keys(), tag
                    return
            except BranchMovedError:  # the handle is closed: the next one looks for the checkpoint before
                if not follows_head:
                    raise


def check_trusted(repository: Repository, modules: Sequence[str]) -> None:
    """Raise ``InvalidArgumentError`` unless a repository returns values of these modules' classes as what they are."""
    policy = repository.database.policy
    missing = [
        name
        for name in modules
        if not policy.imports and (policy.classes is None or not policy.classes.covers(f"{name}:"))
    ]
    if missing:
        raise InvalidArgumentError(
            f"the repository would not read the classes of {', '.join(missing)}",
            hint=f"Repository(store, classes={missing!r})",
        )
