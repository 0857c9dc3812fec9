"""Walks over the graph of commits: ancestors, log order, merge bases. Layer: repository.

They take a function that reads a commit. It returns shallow commits with only the parents that were kept, so every walk
ends there.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache

from versioned_state.errors import MissingObjectError, UnknownRevisionError
from versioned_state.objects.address import Address
from versioned_state.repository.history.commit import Commit

Read = Callable[[Address], Commit]


@lru_cache(maxsize=1024)
def jump_height(height: int) -> int:
    """Return the height of the ancestor that a commit of this height jumps to.

    It is the height less its last digit in skew-binary. The digits are 1, 3, 7, 15, …: 12 = 7 + 3 + 1 + 1, and so 12
    jumps to 11, 11 to 10, 10 to 7 and 7 to 0.
    """
    rest, weight = height, 0
    while rest:
        weight = (1 << (rest + 1).bit_length() - 1) - 1
        rest -= weight
    return height - weight


def jump_of(parent: Commit, read: Read) -> Address:
    """Return the jump of a child of ``parent``.

    Two equal jumps in a row become one of twice the length: any ancestor is O(log n) reads away.

    Cost: at most one read; two below a shallow commit.

    Args:
        read: reads commits as they were made, so that shallow history does not change what is written.
    """
    middle = jump_height(parent.height)
    if not middle or parent.height - middle != middle - jump_height(middle):
        return parent.address
    try:
        jump = parent.jump_address or read(parent.address).jump_address
        return (jump and read(jump).jump_address) or parent.address
    except MissingObjectError:
        # Below a shallow commit, commits may be gone. A shorter jump still leads to an ancestor.
        return parent.address


def parents_of(commit: Commit, read: Read) -> list[Commit]:
    """Return the parents of a commit that history still has. Cost: one read each.

    Every walk calls this, because another process may have pruned and collected the parents after the commit was read.
    """
    try:
        return [read(address) for address in commit.parent_addresses]
    except MissingObjectError:
        again = read(commit.address)
        if again.parent_addresses == commit.parent_addresses:
            raise
        return [read(address) for address in again.parent_addresses]


def first_parent_of(commit: Commit, read: Read) -> Commit | None:
    """Return the first parent of a commit, or None if it has none, or history ends there."""
    if not commit.parent_addresses:
        return None
    try:
        return read(commit.parent_addresses[0])
    except MissingObjectError:
        again = read(commit.address)
        if again.parent_addresses[:1] == commit.parent_addresses[:1]:
            raise
        return read(again.parent_addresses[0]) if again.parent_addresses else None


def ancestor_at(commit: Commit, height: int, read: Read) -> Commit:
    """Return the ancestor by first parents that has this height, which is at most the commit's. Cost: O(log n) reads.

    Raises:
        UnknownRevisionError: history ends above it.
    """
    low = descend(commit, height, read)
    if low.height > height:
        back = commit.height - height
        raise UnknownRevisionError(f"{commit.short}~{back}", reason=pruned_reason(low))
    return low


def pruned_reason(commit: Commit) -> str:
    """Return why there is nothing below a shallow commit, for an error message."""
    return f"older history was pruned: it ends at {commit.short}"


def descend(commit: Commit, height: int, read: Read) -> Commit:
    """Return the ancestor by first parents that has this height, or the shallow commit if history ends above it.

    Cost: O(log n) reads.
    """
    while commit.height > height and commit.parent_addresses:
        jump = commit.jump_address if jump_height(commit.height) >= height else None
        try:
            commit = read(jump or commit.parent_addresses[0])
        except MissingObjectError:
            again = read(commit.address)
            if (again.parent_addresses, again.jump_address) == (commit.parent_addresses, commit.jump_address):
                raise
            commit = again
    return commit


def _fork(a: Commit, b: Commit, read: Read) -> Commit | None:
    """Return the newest commit on both lines of first parents, or None if history ends above it.

    Cost: O(log n) reads.
    """
    a, b = descend(a, b.height, read), descend(b, a.height, read)
    while a != b:
        if a.height != b.height or not a.parent_addresses or not b.parent_addresses:
            return None
        # If the jumps meet, or differ in length, the lines may have met on the way.
        steps = a.parent_addresses[0], b.parent_addresses[0]
        if a.jump_address and b.jump_address and a.jump_address != b.jump_address:
            steps = a.jump_address, b.jump_address
        try:
            x, y = map(read, steps)
            if x.height != y.height:
                x, y = read(a.parent_addresses[0]), read(b.parent_addresses[0])
        except MissingObjectError:
            # Pruned and collected since the commit was read; a walk reads the commit again.
            return None
        a, b = x, y
    return a


def walk(
    starts: Iterable[Commit],
    read: Read,
    *,
    order: Callable[[Commit], tuple[int, ...]] = lambda commit: (-commit.generation, -commit.time),
    first_parent: bool = False,
) -> Iterator[Commit]:
    """Yield commits and all their ancestors, each once: always the least in ``order`` of the commits reached so far.

    Cost: one read each.

    The default order has children before parents, and otherwise newer commits first.

    Args:
        first_parent: follow only the first parent of each.
    """
    heap = [(order(commit), commit.address, commit) for commit in starts]
    heapq.heapify(heap)
    seen = {commit.address for *_, commit in heap}
    while heap:
        *_, commit = heapq.heappop(heap)
        yield commit
        if seen.issuperset(commit.parent_addresses[:1] if first_parent else commit.parent_addresses):
            continue
        for parent in (first_parent_of(commit, read),) if first_parent else parents_of(commit, read):
            if parent is not None and parent.address not in seen:
                seen.add(parent.address)
                heapq.heappush(heap, (order(parent), parent.address, parent))


def first_parents(commit: Commit, read: Read) -> Iterator[Commit]:
    """Yield a commit, its first parent, the first parent of that, and so on."""
    parent: Commit | None = commit
    while parent is not None:
        yield parent
        parent = first_parent_of(parent, read)


def is_ancestor(old: Commit, new: Commit, read: Read, *, seen: set[Address] | None = None) -> bool:
    """Return whether ``old`` is ``new`` or an ancestor of it.

    Cost: O(log n) reads if first parents lead there, or there are no merges in between; else as many for each merge of
    a greater generation.

    Args:
        seen: the merges that are known not to lead to ``old``, for many calls with the same ``old``.
    """
    seen = set() if seen is None else seen
    pending = [(new, True)]
    while pending:
        commit, is_new_line = pending.pop()
        if is_new_line and old.height <= commit.height and descend(commit, old.height, read) == old:
            return True
        # Other paths to a commit than its line of first parents were merged into that line.
        merge = descend(commit, commit.merge_height, read) if commit.merge_height else None
        if merge is not None and merge.address not in seen and merge.generation > old.generation:
            seen.add(merge.address)
            # The newest merges, which come first, are the likeliest.
            pending += [(parent, number > 0) for number, parent in enumerate(parents_of(merge, read))]
    return False


def only_in(head: Commit, others: Iterable[Commit], read: Read, *, first_parent: bool = False) -> Iterator[Commit]:
    """Yield the commits that lead to ``head`` and to none of the others, in the order of ``walk``.

    Cost: reads those commits. For each of the others, O(log n) reads more if no merge lies between it and the commit
    where it parted from ``head``; else its ancestors above the oldest of those commits.

    Args:
        first_parent: only those on the line of first parents of ``head``. The others may lead to a commit by any
            parent.
    """
    known = []
    for other in others:
        fork = _only_fork(head, other, read)
        known.append((other if fork is None else fork, 1))
    commits = (
        commit for commit, flags in _paint([*known, (head, 2)], read, lambda flags: not flags & 1) if not flags & 1
    )
    return _first_parents_of(commits, head) if first_parent else commits


def _only_fork(a: Commit, b: Commit, read: Read) -> Commit | None:
    """Return the one best common ancestor of two lines, or None if only a walk can tell.

    If neither line has had a merge since they diverged, no commit was merged into either line, and so only the fork and
    its ancestors are common.

    Cost: O(log n) reads.
    """
    fork = _fork(a, b, read)
    return fork if fork is not None and (fork in (a, b) or max(a.merge_height, b.merge_height) <= fork.height) else None


def _first_parents_of(commits: Iterable[Commit], head: Commit) -> Iterator[Commit]:
    """Yield those of some commits, children before parents, that are on the line of first parents of ``head``."""
    expected = head.address
    for commit in commits:
        if commit.address == expected:
            yield commit
            if not commit.parent_addresses:
                return
            expected = commit.parent_addresses[0]


def ahead_behind(heads: Sequence[Commit], base: Commit, read: Read) -> list[tuple[int, int]]:
    """Return for each head the number of commits that lead to it and not to the base, and vice versa.

    The empty root commit does not count.

    Cost: reads each commit that does not lead to all of them, once, however many heads there are.
    """
    all_flags = (2 << len(heads)) - 1
    tips = [(tip, 1 << number) for number, tip in enumerate((base, *heads))]
    counted = Counter(flags for commit, flags in _paint(tips, read, lambda flags: flags != all_flags) if commit.height)
    found = []
    for number in range(1, len(heads) + 1):
        ahead = sum(count for flags, count in counted.items() if flags >> number & 1 and not flags & 1)
        behind = sum(count for flags, count in counted.items() if flags & 1 and not flags >> number & 1)
        found.append((ahead, behind))
    return found


def _paint(
    tips: Iterable[tuple[Commit, int]], read: Read, awaited: Callable[[int], bool]
) -> Iterator[tuple[Commit, int]]:
    """Yield commits with the flags of all the tips that they lead to, in the order of ``walk``.

    They end when no commit with awaited flags is left. A child has a greater generation than its parents, so a commit
    has all its flags when its turn comes.
    """
    flags: dict[Address, int] = {}
    heap: list[tuple[int, int, Address, Commit]] = []
    left = 0  # commits in the heap whose flags are awaited

    def add(commit: Commit, more: int) -> None:
        nonlocal left
        before = flags.get(commit.address)
        after = flags[commit.address] = more if before is None else before | more
        left += awaited(after)
        if before is None:
            heapq.heappush(heap, (-commit.generation, -commit.time, commit.address, commit))
        else:
            left -= awaited(before)

    for tip, more in tips:
        add(tip, more)
    while left:
        *_, commit = heapq.heappop(heap)
        mine = flags.pop(commit.address)
        left -= awaited(mine)
        yield commit, mine
        for parent in parents_of(commit, read):
            add(parent, mine)


def merge_base(a: Commit, b: Commit, read: Read) -> Commit:
    """Return a best common ancestor: the newest of those that no other common ancestor descends from.

    Cost: O(log n) reads if one is an ancestor of the other by first parents, or neither line has a merge since they
    parted; else one read for each commit above the base.

    Raises:
        UnknownRevisionError: history was pruned and no longer has a common ancestor. The empty root commit cannot be
            the base of a merge: values that one side deleted long ago would come back as additions of the other side.
    """
    return next(merge_bases(a, b, read))


def merge_bases(a: Commit, b: Commit, read: Read) -> Iterator[Commit]:
    """Yield the merge bases, at least one.

    Raises as ``merge_base``. Prune may run at any time, so each base is computed once.
    """
    bases = iter_merge_bases(a, b, read)
    first = next(bases, None)
    if first is None:
        raise UnknownRevisionError(
            f"the merge base of {a.short} and {b.short}", reason="older history was pruned, with their common ancestors"
        )
    yield first
    yield from bases


def iter_merge_bases(a: Commit, b: Commit, read: Read) -> Iterator[Commit]:
    """Yield all best common ancestors, the newest first.

    There are several if two lines of history were merged into each other.
    """
    fork = _only_fork(a, b, read)
    if fork is not None:
        yield fork
        return
    yield from best_common([a], [b], read)


def best_common(a: Collection[Commit], b: Collection[Commit], read: Read) -> Iterator[Commit]:
    """Yield the best common ancestors of a merge of some commits and a merge of others, the newest first.

    The merges need not exist.
    """
    ours, theirs, both, below = 1, 2, 3, 4  # below: an ancestor of a base that was found
    marks = {commit.address: ours for commit in a}
    marks |= {commit.address: marks.get(commit.address, 0) | theirs for commit in b}
    heap = [
        (-commit.generation, -commit.time, commit.address, commit)
        for commit in {each.address: each for each in (*a, *b)}.values()
    ]
    heapq.heapify(heap)
    open_ends = len(heap)  # the commits in the heap that are not below a base
    while open_ends:
        *_, commit = heapq.heappop(heap)
        mark = marks[commit.address]
        if not mark & below:
            open_ends -= 1
        if mark == both:
            yield commit
            mark |= below
        for parent in parents_of(commit, read):
            old = marks.get(parent.address)
            if old is None:
                heapq.heappush(heap, (-parent.generation, -parent.time, parent.address, parent))
                open_ends += not mark & below
            elif mark & below and not old & below:
                open_ends -= 1
            marks[parent.address] = (old or 0) | mark
