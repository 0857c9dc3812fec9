"""``aio`` of a repository: an awaitable twin of each call that reads or writes the store. Layer: repository."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from versioned_state.off_loop import off_loop
from versioned_state.repository.committing import C, OnMovedOption, all_of_one_class
from versioned_state.repository.views.diff import Diff
from versioned_state.twins import Aio, awaitable

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.merging.policies import Policy
    from versioned_state.repository.repository import Repository  # noqa: TC004 - nobody calls the functions that name its methods

R = TypeVar("R")


class RepositoryAio(Aio["Repository"]):
    """The awaitable twins of a repository's calls, any number at once. ``run`` is for all others, and those of ``branches`` and ``notes``.

    A cancelled call that has begun ends first, and raises ``CancelledError`` then. Each raises ``EventLoopError`` if asyncio runs no event
    loop here.
    """

    blame = awaitable(lambda: Repository.blame)
    close = awaitable(lambda: Repository.close)
    commit = awaitable(lambda: Repository.commit)
    default_branch = awaitable(lambda: Repository.default_branch)
    diff = awaitable(lambda: Repository.diff, after=Diff.read_all)
    expire = awaitable(lambda: Repository.expire)
    fsck = awaitable(lambda: Repository.fsck)
    gc = awaitable(lambda: Repository.gc)
    merge_base = awaitable(lambda: Repository.merge_base)
    parents = awaitable(lambda: Repository.parents)
    prune = awaitable(lambda: Repository.prune)
    purge = awaitable(lambda: Repository.purge)
    snapshot = awaitable(lambda: Repository.snapshot)
    stats = awaitable(lambda: Repository.stats)
    verify = awaitable(lambda: Repository.verify)

    async def run(self, function: Callable[[], R]) -> R:
        """Return the result of a function on the repository: ``await repository.aio.run(lambda: list(repository.log(limit=20)))``."""
        return await off_loop(function)

    async def commit_together(
        self,
        states: Iterable[C],
        message: str = "",
        *,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        on_moved: OnMovedOption = "merge",
        policies: Mapping[str, Policy] | None = None,
    ) -> list[Commit]:
        """Do ``Repository.commit_together``. The commits have the values as they are when it is called, or when its turn comes."""
        wanted = list(states)
        call = partial(self.of.commit_together, wanted, message, author=author, meta=meta, on_moved=on_moved, policies=policies)
        if not wanted or not all_of_one_class(wanted):
            return await off_loop(call)  # which raises, or does nothing
        return await wanted[0].__run_together__(wanted, call)
