"""The base of all adapters: an object of a framework over a repository. Layer: integrations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Self

from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.repository import Repository
from versioned_state.storage import Cache, KVStore, open_store
from versioned_state.storage.url import is_remote
from versioned_state.values.codec.trust import TrustedModules

Place = KVStore | Repository | str | os.PathLike[str]
"""Where an adapter keeps its data: a store, a repository, or the URL or path of a store."""


class Adapter:
    """An object of a framework that keeps its data in a repository.

    Args:
        place: a store or a repository, which stay open; or a URL or path, whose store ``close`` closes.
        classes: the modules whose classes may be read as what they are; for a repository, its own count.

    Attributes:
        repository: everything the adapter stores, for ``log``, ``diff``, ``blame`` and the command line.
    """

    def __init__(self, place: Place, *, classes: TrustedModules = ()) -> None:
        self._own: KVStore | None = None
        self.repository: Final = self._opened(place, classes)

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
            f"{type(place).__name__} is neither a store nor a repository", hint="for example Disk('./agent-state'), or its path"
        )

    def close(self) -> None:
        """Close the store, if this object opened it."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_trusted(repository: Repository, modules: Sequence[str]) -> None:
    """Raise ``InvalidArgumentError`` unless values of the classes of these modules come back from a repository as what they are."""
    policy = repository.database.policy
    missing = [name for name in modules if not policy.imports and (policy.classes is None or not policy.classes.covers(f"{name}:"))]
    if missing:
        raise InvalidArgumentError(
            f"the repository would not read the classes of {', '.join(missing)}", hint=f"Repository(store, classes={missing!r})"
        )
