"""Reading a snapshot off the event loop. Layer: repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from versioned_state.off_loop import off_loop
from versioned_state.values.paths.path import StatePath

if TYPE_CHECKING:
    from versioned_state.repository.views.snapshot import Snapshot


class SnapshotAio:
    """``aio`` of a snapshot. Raises ``EventLoopError`` where asyncio runs no event loop."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @overload
    async def load(self, path: str | StatePath, /) -> Any: ...
    @overload
    async def load(self, *paths: str | StatePath) -> list[Any]: ...
    async def load(self, *paths: str | StatePath) -> Any:
        """Read the values at paths. Returns the value of one path, or a list. Later reads of them take it from memory.

        Raises:
            UnknownPathError: nothing is at one of the paths.
        """
        snapshot = self._snapshot
        values = await off_loop(lambda: [snapshot._keep(path) for path in paths])
        return values[0] if len(paths) == 1 else values
