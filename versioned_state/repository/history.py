"""Walks over the graph of commits: ancestors, log order, merge bases. Pure: they are given a function that reads. Layer: repository."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from versioned_state.repository.commit import Commit

Read = Callable[[str], Commit]


def jump_height(height: int) -> int:
    """The height of the ancestor that a commit of this height jumps to: that less its last digit in skew-binary.

    Its digits are 1, 3, 7, 15, …: 12 = 7 + 3 + 1 + 1, and so 12 jumps to 11, 11 to 10, 10 to 7 and 7 to 0.
    """
    rest, weight = height, 0
    while rest:
        weight = (1 << (rest + 1).bit_length() - 1) - 1
        rest -= weight
    return height - weight


def jump_of(parent: Commit, read: Read) -> str:
    """Where the jump of a child of ``parent`` goes: two equal jumps in a row are joined into one of twice the length.

    Cost: at most one read. Then any ancestor is O(log n) reads away.
    """
    middle = jump_height(parent.height)
    if parent.jump is None or not middle or parent.height - middle != middle - jump_height(middle):
        return parent.id
    return read(parent.jump).jump or parent.id


def ancestor_at(commit: Commit, height: int, read: Read) -> Commit:
    """The ancestor by first parents that has this height, which is at most the commit's. Cost: O(log n) reads."""
    while commit.height > height:
        jump = commit.jump if jump_height(commit.height) >= height else None
        commit = read(jump or commit.parents[0])
    return commit


def walk(
    starts: Iterable[Commit], read: Read, *, order: Callable[[Commit], tuple[int, ...]] = lambda commit: (-commit.generation, -commit.time)
) -> Iterator[Commit]:
    """Commits and all their ancestors, each once: the least in ``order`` of those whose child was seen. Cost: one read for each.

    The order that is there by default gives children before parents, and newer ones first among the rest.
    """
    heap = [(order(commit), commit.id, commit) for commit in starts]
    heapq.heapify(heap)
    seen = {commit.id for *_, commit in heap}
    while heap:
        *_, commit = heapq.heappop(heap)
        yield commit
        for id in commit.parents:
            if id not in seen:
                seen.add(id)
                parent = read(id)
                heapq.heappush(heap, (order(parent), id, parent))


def first_parents(commit: Commit, read: Read) -> Iterator[Commit]:
    """A commit, its first parent, that one's, and so on."""
    while True:
        yield commit
        if not commit.parents:
            return
        commit = read(commit.parents[0])


def is_ancestor(old: Commit, new: Commit, read: Read) -> bool:
    """Whether ``old`` is ``new`` or an ancestor of it. Cost: O(log n) reads where first parents lead there."""
    if old.height <= new.height and ancestor_at(new, old.height, read) == old:
        return True
    return any(commit == old for commit in _walk_down(new, old.generation, read))


def _walk_down(start: Commit, generation: int, read: Read) -> Iterator[Commit]:
    for commit in walk([start], read):
        if commit.generation < generation:
            return
        yield commit


def merge_base(a: Commit, b: Commit, read: Read) -> Commit:
    """A best common ancestor: one that no other common ancestor descends from, the newest of them.

    Cost: O(log n) reads where one is the other's ancestor by first parents; otherwise the commits above the base.
    """
    low, high = sorted((a, b), key=lambda commit: commit.height)
    if ancestor_at(high, low.height, read) == low:
        return low
    ours, theirs = 1, 2
    marks = {a.id: ours}
    marks[b.id] = marks.get(b.id, 0) | theirs
    heap = [(-commit.generation, -commit.time, commit.id, commit) for commit in {a.id: a, b.id: b}.values()]
    heapq.heapify(heap)
    while heap:
        *_, commit = heapq.heappop(heap)
        mark = marks[commit.id]
        if mark == ours | theirs:
            return commit
        for id in commit.parents:
            if id not in marks:
                parent = read(id)
                heapq.heappush(heap, (-parent.generation, -parent.time, id, parent))
            marks[id] = marks.get(id, 0) | mark
    raise AssertionError("every commit descends from the root commit")
