"""``ReadAhead``: the commits of a line of first parents, read many at a time. Layer: repository.

The address of a parent is in its child, so a walk would read one commit at a time. But each commit also names an
earlier one (its jump, see ``graph``), so a line can be read from both ends, and their jumps divide it again. So n
commits take O(log n) calls of the store.
"""

from __future__ import annotations

from typing import Final

from versioned_state.errors import CorruptObjectError, MissingObjectError
from versioned_state.objects.address import Address
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.reader import CommitReader

_MOST: Final = 128
"""Commits read ahead at once: they must stay in the cache of ``CommitReader`` until the walk comes to them."""

_REMEMBERED: Final = 1024


class ReadAhead:
    """The parents of commits, for one walk from children to parents. Not for two threads at once."""

    def __init__(self, commits: CommitReader) -> None:
        self._commits = commits
        self._size = 1
        self._requested: set[Address] = set()

    def parents_of(self, commit: Commit) -> list[Commit]:
        """Return what ``graph.parents_of`` does.

        Cost: O(log n) calls for n commits of a line. Reads at most twice as many commits as were requested.
        """
        if commit.parent_addresses and commit.parent_addresses[0] not in self._requested:
            self._read_line(commit)
            self._size = min(self._size * 2, _MOST)
        return graph.parents_of(commit, self._commits.read)

    def _read_line(self, commit: Commit) -> None:
        """Read the next ``_size`` commits below this one into the cache."""
        low = commit.height - self._size
        if len(self._requested) > _REMEMBERED:
            self._requested.clear()
        edge = [commit]
        while edge:
            wanted: dict[Address, None] = {}
            for each in edge:
                if each.height > low and each.parent_addresses:
                    wanted[each.parent_addresses[0]] = None
                    if each.jump_address is not None and graph.jump_height(each.height) >= low:
                        wanted[each.jump_address] = None
            fresh = [address for address in wanted if address not in self._requested]
            self._requested.update(fresh)
            try:
                edge = list(self._commits.read_many(fresh).values()) if fresh else []
            except (MissingObjectError, CorruptObjectError):
                # history was pruned below, or is damaged; the walk reads each commit by itself and finds out where it
                # ends
                return
