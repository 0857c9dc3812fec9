"""``ReadOnly``, which refuses every write to a store. Layer: storage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

from versioned_state.errors import ReadOnlyError
from versioned_state.storage.wrapper import Wrapper


class ReadOnly(Wrapper):
    """A store that passes reads on, and raises ``ReadOnlyError`` for ``apply`` and every write built on it."""

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> NoReturn:
        raise ReadOnlyError("the store is read-only", remains="nothing was written")
