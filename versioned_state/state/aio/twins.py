"""The objects that ``aio`` returns: an awaitable twin for each call that may access the store. Layer: state.

A twin takes the arguments of its call and returns its result. It runs the call on a background thread; see ``gate``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from versioned_state.errors import StateError
from versioned_state.off_loop import awaitable, off_loop
from versioned_state.repository.views.diff import Diff
from versioned_state.repository.views.patch import read_patch
from versioned_state.state.aio.ahead import stage_ahead
from versioned_state.state.aio.caller import hold_still
from versioned_state.state.aio.lock import lock
from versioned_state.state.aio.stream import Stream
from versioned_state.state.aio.transaction import transaction
from versioned_state.state.aio.twin import HandleAio, stream
from versioned_state.values.paths.path import Namespace, StatePath

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.inspect.bisect import Bisection
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.state.keyspace import KeySpace  # noqa: TC004 - as below
    from versioned_state.state.sequence import StateSequence  # noqa: TC004 - as below
    from versioned_state.state.versioned import Versioned  # noqa: TC004 - nobody calls the functions that name its methods


class SequenceAio(HandleAio["StateSequence"]):
    """The awaitable twins of a ``StateSequence``."""

    append = awaitable(lambda: StateSequence.append)
    clear = awaitable(lambda: StateSequence.clear)
    count = awaitable(lambda: StateSequence.count)
    extend = awaitable(lambda: StateSequence.extend)
    index = awaitable(lambda: StateSequence.index)
    insert = awaitable(lambda: StateSequence.insert)
    pop = awaitable(lambda: StateSequence.pop)
    remove = awaitable(lambda: StateSequence.remove)
    reverse = awaitable(lambda: StateSequence.reverse)
    sort = awaitable(lambda: StateSequence.sort)

    async def length(self) -> int:
        """The number of elements."""
        return await self.run(self.of.__len__)

    async def get(self, index: int | slice) -> Any:
        """The element at an index, or those of a slice."""
        return await self.run(partial(self.of.__getitem__, index))

    async def set(self, index: int | slice, value: Any) -> None:
        """Replace an element, or the elements of a slice by those of an iterable."""
        await self.run(lambda: self.of.__setitem__(index, value))

    async def delete(self, index: int | slice) -> None:
        """Remove an element, or those of a slice."""
        await self.run(partial(self.of.__delitem__, index))

    def __aiter__(self) -> AsyncIterator[Any]:
        """The elements, which are read in batches."""
        return self._stream(iter)

    def reversed(self) -> AsyncIterator[Any]:
        """The elements from the last one back, which are read in batches."""
        return self._stream(reversed)

    def _stream(self, walk: Callable[[StateSequence], Iterator[Any]]) -> AsyncIterator[Any]:
        async def begin() -> Iterator[Any]:
            return walk(self.of)

        return Stream(begin, self.run)


K = TypeVar("K", bound="KeySpace")


class KeySpaceAio(HandleAio[K]):
    """The awaitable twins of a namespace's calls."""

    sequence = awaitable(lambda: KeySpace.sequence)

    @overload
    async def load(self, path: str | StatePath, /) -> Any: ...
    @overload
    async def load(self, *paths: str | StatePath) -> list[Any]: ...
    async def load(self, *paths: str | StatePath) -> Any:
        """Load the keys that paths begin with, so that later reads do not wait. Returns the live value of one path, or a list.

        Raises:
            UnknownPathError: nothing is at one of the paths. The keys before it are loaded.
        """
        values = await self.run(lambda: [self.of.at(path) for path in paths])
        return values[0] if len(paths) == 1 else values


class VersionedAio(KeySpaceAio["Versioned"]):
    """The awaitable twins of the calls of a state. A commit takes the values as they are when it is called, or when its turn comes."""

    blame = awaitable(lambda: Versioned.blame)
    checkout = awaitable(lambda: Versioned.checkout)
    cherry_pick = awaitable(lambda: Versioned.cherry_pick)
    close = awaitable(lambda: Versioned.close)
    commit = awaitable(
        lambda: Versioned.commit,
        ahead=lambda state, options: None if options.get("keys") else stage_ahead(state, bool(options.get("skip_unserializable"))),
    )
    diff = awaitable(lambda: Versioned.diff, after=Diff.read_all)
    discard = awaitable(lambda: Versioned.discard)
    fork = awaitable(lambda: Versioned.fork)
    grep = stream(lambda: Versioned.grep)
    history = stream(lambda: Versioned.history)
    lock = lock(lambda: Versioned.lock)
    log = stream(lambda: Versioned.log)
    merge = awaitable(lambda: Versioned.merge)
    rebase = awaitable(lambda: Versioned.rebase)
    redo = awaitable(lambda: Versioned.redo)
    refresh = awaitable(lambda: Versioned.refresh)
    reset = awaitable(lambda: Versioned.reset)
    restore = awaitable(lambda: Versioned.restore)
    revert = awaitable(lambda: Versioned.revert)
    rollback = awaitable(lambda: Versioned.rollback)
    squash = awaitable(lambda: Versioned.squash)
    status = awaitable(lambda: Versioned.status, after=Diff.read_all)
    switch = awaitable(lambda: Versioned.switch)
    transaction = transaction(lambda: Versioned.transaction)
    undo = awaitable(lambda: Versioned.undo)

    async def apply(self, patch: Diff | list[dict[str, Any]]) -> None:
        """See ``Versioned.apply``."""

        def run() -> None:
            entries = patch.to_patch() if isinstance(patch, Diff) else patch
            for entry in read_patch(entries):
                self._load_key(entry.path)
            self.of.status()  # before the loop is stopped, read the objects that a rollback needs, and the values
            with hold_still():
                self.of.apply(entries)

        await self.run(run)

    def _load_key(self, path: StatePath) -> None:
        """Load the key that a path begins with, if there is one."""
        for count, step in enumerate(path.steps, 1):
            if not isinstance(step, Namespace):
                with suppress(StateError):
                    self.of.at(StatePath(path.steps[:count]))
                return

    async def bisect(self, good: str | Commit, bad: str | Commit, is_bad: Callable[[Snapshot], object]) -> Bisection:
        """See ``Versioned.bisect``. ``is_bad`` is called on a background thread; other calls on the state need not wait for it."""
        first, last = await self.run(lambda: (self.of.checkout(good), self.of.checkout(bad)))
        assert first.commit is not None, "it is a view of a commit"
        assert last.commit is not None, "it is a view of a commit"
        return await off_loop(partial(self.of.repository.bisect, first.commit, last.commit, is_bad))
