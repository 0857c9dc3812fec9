"""The keys of a worktree in order: those of the head, without the removed ones, and the added ones. Layer: state."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from versioned_state.state.worktree.tracked import TrackedKeys
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, iter_items, iter_items_back, rank


class RootKeys:
    """The root keys, to count and to list. No value is loaded."""

    def __init__(self, nodes: Nodes, tracked: TrackedKeys) -> None:
        self._nodes = nodes
        self._tracked = tracked
        # A root, the last key that was found in it, and the rank of that key.
        self._last_found: tuple[Tree, bytes, int] = (tracked.tree, b"", 0)

    def count(self, start: bytes, end: bytes) -> int:
        """Return the number of keys in [start, end).

        Cost: two paths, and sorting the keys added or removed since the last call.
        """
        low, high = self._span(start, end)
        tracked = self._tracked
        return high - low + tracked.added.order.count(start, end) - tracked.removed.order.count(start, end)

    def between(self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None) -> Iterator[bytes]:
        """Iterate over the keys in [start, end), in order or from the last one back, at most ``limit`` of them.

        Cost: two paths, the keys of the head, and sorting those that were added or removed since the last call.
        """
        low, high = self._span(start, end)
        added = self._tracked.added.order.between(start, end)
        removed = frozenset(self._tracked.removed.order.between(start, end))
        if limit is not None and limit + len(removed) < high - low:
            low, high = (high - limit - len(removed), high) if reverse else (low, low + limit + len(removed))
        stored = (iter_items_back if reverse else iter_items)(self._nodes, self._tracked.tree, low, high)
        kept = (key for key, _ in stored if key not in removed)
        return islice(merge(kept, reversed(added) if reverse else added, reverse=reverse), limit)

    def last(self, start: bytes, end: bytes) -> bytes | None:
        """Return the last key in [start, end).

        Cost: as ``count``. Popping all keys one by one costs a few paths each.
        """
        added = self._tracked.added.order.last(start, end)
        kept = self._last_of_head(start, end)
        return max(added, kept) if added is not None and kept is not None else added or kept

    def _last_of_head(self, start: bytes, end: bytes) -> bytes | None:
        """Return the last key in [start, end) that the head has and that was not removed."""
        low, high = self._span(start, end)
        removed = self._tracked.removed
        at = high  # every key of the head from this rank on is removed: the counts agree
        tree, found, rank_found = self._last_found
        if tree is self._tracked.tree and low <= rank_found < high:
            beyond = rank_found if found in removed else rank_found + 1
            if removed.order.count(found, end) == high - beyond:
                at = beyond
        step = 1
        while at > low:
            step = min(step, at - low)
            key, _ = next(iter_items(self._nodes, self._tracked.tree, at - step, at - step + 1))
            if removed.order.count(key, end) == high - at + step:
                at -= step
                step *= 2
            elif step > 1:
                step //= 2
            else:
                self._last_found = (self._tracked.tree, key, at - 1)
                return key
        return None

    def _span(self, start: bytes, end: bytes) -> tuple[int, int]:
        """Return the ranks between which the head has the keys in [start, end)."""
        tree = self._tracked.tree
        return (rank(self._nodes, tree, start), rank(self._nodes, tree, end)) if tree.count else (0, 0)
