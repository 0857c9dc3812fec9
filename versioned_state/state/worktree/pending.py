"""Entries for the engine's series that the next commit of a handle takes along. Layer: state."""

from __future__ import annotations

from versioned_state.state.worktree.entries import NewEntries


class PendingEntries:
    """The entries of one handle that no commit has yet. Nothing but a commit removes them: not discard, rollback or a failed commit.

    Names are unique, so an entry that an interrupt left here after its commit is committed again without a change.

    Attributes:
        entries: by the engine key of a series, the cells of its entries by name.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, dict[str, bytes]] = {}
        self._last_time = 0

    def add(self, series: bytes, name: str, cell: bytes) -> None:
        """Add an entry to the series under an engine key."""
        self.entries.setdefault(series, {})[name] = cell

    def of(self, series: bytes) -> dict[str, bytes]:
        """The entries of one series, as they are now."""
        return dict(self.entries.get(series, {}))

    def taken(self) -> NewEntries:
        """All entries, as they are now, for a commit."""
        return {series: dict(entries) for series, entries in self.entries.items() if entries}

    def discard(self, series: bytes, name: str) -> None:
        """Remove an entry that turned out not to be true, if it is still here."""
        self.entries.get(series, {}).pop(name, None)

    def forget(self, entries: NewEntries) -> None:
        """Remove entries that were committed."""
        for series, committed in entries.items():
            left = self.entries.get(series, {})
            for name in committed:
                left.pop(name, None)

    def next_time(self, now: int) -> int:
        """A time for an entry: now, or later than that of the last entry of this handle, so that entries keep their order."""
        self._last_time = max(now, self._last_time + 1)
        return self._last_time
