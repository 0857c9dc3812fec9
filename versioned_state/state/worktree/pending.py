"""Entries for the engine's series that the next commit of a handle includes. Layer: state."""

from __future__ import annotations

from collections.abc import Collection

from versioned_state.state.worktree.entries import NewEntries


class PendingEntries:
    """The entries of one handle that no commit has yet.

    Only a commit removes them: a discard, a rollback or a failed commit does not.

    Names are unique, so if an interrupt leaves an entry here after its commit, committing it again changes nothing. An
    entry may describe a change of one key of the state. It is committed with that key, and the code that added it
    removes it if the change is undone.

    Attributes:
        entries: by the engine key of a series, the cells of its entries by name.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, dict[str, bytes]] = {}
        self._last_time = 0
        self._keys: dict[str, bytes] = {}  # by the name of an entry, the root key whose change it describes

    def add(self, series: bytes, name: str, cell: bytes, *, of: bytes | None = None) -> None:
        """Add an entry to the series under an engine key.

        ``of`` is the root key whose change the entry describes, if any.
        """
        if of is not None:
            self._keys[name] = of
        self.entries.setdefault(series, {})[name] = cell

    def has(self, series: bytes, name: str) -> bool:
        """Return whether an entry is still here."""
        return name in self.entries.get(series, ())

    def described_keys(self) -> set[bytes]:
        """Return the root keys whose changes are described by entries."""
        return set(self._keys.values())

    def names_of(self, key: bytes) -> list[str]:
        """Return the names of the entries that describe a change of a root key."""
        return [name for name, described in self._keys.items() if described == key]

    def of(self, series: bytes) -> dict[str, bytes]:
        """Return the entries of one series, as they are now."""
        return dict(self.entries.get(series, {}))

    def taken(self, keys: Collection[bytes] | None = None) -> NewEntries:
        """Return all present entries, for a commit.

        With ``keys``, leaves out entries that describe changes of other root keys.
        """
        if keys is None or not self._keys:
            return {series: dict(entries) for series, entries in self.entries.items() if entries}
        left = {name for name, key in self._keys.items() if key not in keys}
        taken = {
            series: {name: cell for name, cell in entries.items() if name not in left}
            for series, entries in self.entries.items()
        }
        return {series: entries for series, entries in taken.items() if entries}

    def discard(self, series: bytes, name: str) -> None:
        """Remove an entry whose change was undone, if the entry is still here."""
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
        """Return the time for a new entry: now, or just after this handle's last entry, to keep entries in order."""
        last = self._last_time
        self._last_time = time = now if now > last else last + 1  # each event comes here, and max() takes longer
        return time
