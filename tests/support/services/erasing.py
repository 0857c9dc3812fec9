"""A store on which another client erases a user while a call of a service is under way."""

from __future__ import annotations

from collections.abc import Iterable

from versioned_state import Repository
from versioned_state.services.users import delete_user
from versioned_state.storage import KVStore
from versioned_state.storage.wrapper import Wrapper


class Erasing(Wrapper):
    """After as many reads as ``left`` says, the user ``u`` is erased, right after the read."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.left: int | None = None

    def get(self, key: str) -> bytes | None:
        found = super().get(key)
        self._count()
        return found

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        found = super().get_many(keys)
        self._count()
        return found

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                delete_user(Repository(self.store), "u")
