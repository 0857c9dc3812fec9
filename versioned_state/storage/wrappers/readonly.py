"""`ReadOnly`, a store that can be looked at and not changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

from versioned_state.errors import ReadOnlyError
from versioned_state.storage.wrapper import Wrapper


class ReadOnly(Wrapper):
    """Reads pass; `set`, `apply` and what is built on them raise `ReadOnlyError`, and nothing is written."""

    def set(self, key: str, value: bytes) -> NoReturn:
        raise ReadOnlyError("the store is read-only; nothing was written")

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> NoReturn:
        raise ReadOnlyError("the store is read-only; nothing was written")
