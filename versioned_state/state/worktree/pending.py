"""Entries for the engine's series that the next commit of a handle takes along. Layer: state."""

from __future__ import annotations

from collections.abc import Collection

from versioned_state.state.worktree.entries import NewEntries


class PendingEntries:
    """The entries of one handle that no commit has yet. Nothing but a commit removes them: not discard, rollback or a failed commit.

    Names are unique, so an entry that an interrupt left here after its commit is committed again without a change. An entry may tell of a
    change of one key of the state: it is committed with that key, and whoever added it removes it if the change is taken back.

    Attributes:
        entries: by the engine key of a series, the cells of its entries by name.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, dict[str, bytes]] = {}
        self._last_time = 0
        self._keys: dict[str, bytes] = {}  # the root keys that entries tell of, by the name of the entry

    def add(self, series: bytes, name: str, cell: bytes, *, of: bytes | None = None) -> None:
        """Add an entry to the series under an engine key. It tells ``of`` a change of this root key, if of any."""
        if of is not None:
            self._keys[name] = of
        self.entries.setdefault(series, {})[name] = cell

    def has(self, series: bytes, name: str) -> bool:
        """Whether an entry is still here."""
        return name in self.entries.get(series, ())

    def told_keys(self) -> set[bytes]:
        """The root keys of whose changes entries tell."""
        return set(self._keys.values())

    def telling_of(self, key: bytes) -> list[str]:
        """The names of the entries that tell of a change of a root key."""
        return [name for name, told in self._keys.items() if told == key]

    def of(self, series: bytes) -> dict[str, bytes]:
        """The entries of one series, as they are now."""
        return dict(self.entries.get(series, {}))

    def taken(self, keys: Collection[bytes] | None = None) -> NewEntries:
        """All entries, as they are now, for a commit: of these root keys, without those that tell of a change of another one."""
        if keys is None or not self._keys:
            return {series: dict(entries) for series, entries in self.entries.items() if entries}
        left = {name for name, key in self._keys.items() if key not in keys}
        taken = {series: {name: cell for name, cell in entries.items() if name not in left} for series, entries in self.entries.items()}
        return {series: entries for series, entries in taken.items() if entries}

    def discard(self, series: bytes, name: str) -> None:
        """Remove an entry that turned out not to be true, if it is still here."""
        self.entries.get(series, {}).pop(name, None)
        self._keys.pop(name, None)

    def forget(self, entries: NewEntries) -> None:
        """Remove entries that were committed."""
        for series, committed in entries.items():
            left = self.entries.get(series, {})
            for name in committed:
                left.pop(name, None)
                if self._keys:
                    self._keys.pop(name, None)

    def next_time(self, now: int) -> int:
        """A time for an entry: now, or later than that of the last entry of this handle, so that entries keep their order."""
        self._last_time = max(now, self._last_time + 1)
        return self._last_time
