"""Walks over the graph of commits: ancestors, log order, merge bases. Pure: they are given a function that reads. Layer: repository.

Where history was cut, commits are read with the parents that were kept (``cuts``), so every walk ends there.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from versioned_state.errors import MissingObjectError, UnknownRevisionError
from versioned_state.objects.address import Address
from versioned_state.repository.history.commit import Commit

Read = Callable[[Address], Commit]


def jump_height(height: int) -> int:
    """The height of the ancestor that a commit of this height jumps to: that less its last digit in skew-binary.

    Its digits are 1, 3, 7, 15, …: 12 = 7 + 3 + 1 + 1, and so 12 jumps to 11, 11 to 10, 10 to 7 and 7 to 0.
    """
    rest, weight = height, 0
    while rest:
        weight = (1 << (rest + 1).bit_length() - 1) - 1
        rest -= weight
    return height - weight


def jump_of(parent: Commit, read: Read) -> Address:
    """Where the jump of a child of ``parent`` goes: two equal jumps in a row are joined into one of twice the length.

    Cost: at most one read, or two at a cut. Then any ancestor is O(log n) reads away.

    Args:
        read: reads commits as they are stored, cut or not, so that cuts have no say in what is written.
    """
    middle = jump_height(parent.height)
    if not middle or parent.height - middle != middle - jump_height(middle):
        return parent.address
    try:
        jump = parent.jump_address or read(parent.address).jump_address
        return (jump and read(jump).jump_address) or parent.address
    except MissingObjectError:
        # Where history was cut, what lies beyond may be gone. A jump that is too short is still a jump to an ancestor.
        return parent.address


def parents_of(commit: Commit, read: Read) -> list[Commit]:
    """The parents of a commit that history still has. Cost: one read for each.

    Whoever walks history asks here: history may be cut below a commit after that was read, by another process, and be collected.
    """
    try:
        return [read(address) for address in commit.parent_addresses]
    except MissingObjectError:
        again = read(commit.address)
        if again.parent_addresses == commit.parent_addresses:
            raise
        return [read(address) for address in again.parent_addresses]


def first_parent_of(commit: Commit, read: Read) -> Commit | None:
    """The first parent of a commit, or None where it has none, or history was cut."""
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
    """The ancestor by first parents that has this height, which is at most the commit's. Cost: O(log n) reads.

    Raises:
        UnknownRevisionError: history was cut above it.
    """
    low = descend(commit, height, read)
    if low.height > height:
        back = commit.height - height
        raise UnknownRevisionError(f"{commit.short}~{back}", reason=cut_reason(low))
    return low


def cut_reason(commit: Commit) -> str:
    """Why there is nothing below a cut commit, for the message of an error."""
    return f"history was cut at {commit.short}, and what came before is not kept"


def descend(commit: Commit, height: int, read: Read) -> Commit:
    """The ancestor by first parents that has this height, or, where history was cut above it, the cut commit. Cost: O(log n) reads."""
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
    """The newest commit that lies on both lines of first parents, or None where history was cut above it. Cost: O(log n) reads."""
    a, b = descend(a, b.height, read), descend(b, a.height, read)
    while a != b:
        if a.height != b.height or not a.parent_addresses or not b.parent_addresses:
            return None
        # Where the jumps meet, or are of two lengths, the lines may have met on the way.
        steps = a.parent_addresses[0], b.parent_addresses[0]
        if a.jump_address and b.jump_address and a.jump_address != b.jump_address:
            steps = a.jump_address, b.jump_address
        try:
            x, y = map(read, steps)
            if x.height != y.height:
                x, y = read(a.parent_addresses[0]), read(b.parent_addresses[0])
        except MissingObjectError:
            # Cut since it was read, and collected; a walk reads the child again.
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
    """Commits and all their ancestors, each once: the least in ``order`` of those whose child was seen. Cost: one read for each.

    The order that is there by default gives children before parents, and newer ones first among the rest.

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
    """A commit, its first parent, that one's, and so on."""
    parent: Commit | None = commit
    while parent is not None:
        yield parent
        parent = first_parent_of(parent, read)


def is_ancestor(old: Commit, new: Commit, read: Read) -> bool:
    """Whether ``old`` is ``new`` or an ancestor of it. Cost: O(log n) reads where first parents lead there."""
    if old.height <= new.height and descend(new, old.height, read) == old:
        return True
    return any(commit == old for commit in _walk_down(new, old.generation, read))


def _walk_down(start: Commit, generation: int, read: Read) -> Iterator[Commit]:
    for commit in walk([start], read):
        if commit.generation < generation:
            return
        yield commit


def only_in(head: Commit, other: Commit, read: Read, *, first_parent: bool = False) -> Iterator[Commit]:
    """The commits that lead to one and not to another, in the order of ``walk``.

    Cost: reads these, and of what leads to ``other`` what is above the last of these.

    Args:
        first_parent: of these, only the head, its first parent, that one's, and so on. What leads to ``other`` leads there by any parent.
    """
    commits = (commit for commit, mark in _marked((other, head), read, lambda mark: not mark & 1) if not mark & 1)
    return _first_parents_of(commits, head) if first_parent else commits


def _first_parents_of(commits: Iterable[Commit], head: Commit) -> Iterator[Commit]:
    """Of some commits, children before parents, those that are on the line of first parents of one of them."""
    expected = head.address
    for commit in commits:
        if commit.address == expected:
            yield commit
            if not commit.parent_addresses:
                return
            expected = commit.parent_addresses[0]


def ahead_behind(heads: Sequence[Commit], base: Commit, read: Read) -> list[tuple[int, int]]:
    """For each head how many commits lead to it and not to the base, and the other way round; the empty root commit is not counted.

    Cost: reads each commit that does not lead to all of them, once, however many heads there are.
    """
    whole = (2 << len(heads)) - 1
    counted = Counter(mark for commit, mark in _marked((base, *heads), read, lambda mark: mark != whole) if commit.height)
    found = []
    for place in range(1, len(heads) + 1):
        ahead = sum(count for mark, count in counted.items() if mark >> place & 1 and not mark & 1)
        behind = sum(count for mark, count in counted.items() if mark & 1 and not mark >> place & 1)
        found.append((ahead, behind))
    return found


def _marked(tips: Sequence[Commit], read: Read, awaited: Callable[[int], bool]) -> Iterator[tuple[Commit, int]]:
    """Commits with a bit for each of ``tips`` that they lead to, as long as any is to come of those awaited.

    Every child has a greater generation than its parents, so all bits of a commit are there when its turn comes. They come as in ``walk``.
    """
    marks: dict[Address, int] = {}
    for place, tip in enumerate(tips):
        marks[tip.address] = marks.get(tip.address, 0) | 1 << place
    heap = [(-tip.generation, -tip.time, tip.address, tip) for tip in {tip.address: tip for tip in tips}.values()]
    heapq.heapify(heap)
    left = sum(map(awaited, marks.values()))
    while left:
        *_, commit = heapq.heappop(heap)
        mark = marks.pop(commit.address)
        left -= awaited(mark)
        yield commit, mark
        for parent in parents_of(commit, read):
            before = marks.get(parent.address)
            after = marks[parent.address] = mark if before is None else before | mark
            left += awaited(after)
            if before is None:
                heapq.heappush(heap, (-parent.generation, -parent.time, parent.address, parent))
            else:
                left -= awaited(before)


def merge_base(a: Commit, b: Commit, read: Read) -> Commit:
    """A best common ancestor: one that no other common ancestor descends from, the newest of them.

    Cost: O(log n) reads where one is the other's ancestor by first parents, or neither line has a merge since they parted; otherwise the
    commits above the base.

    Raises:
        UnknownRevisionError: they have none any more, since history was cut. The empty root commit would be no base for a merge: what one
            side deleted long ago would come back as the other's addition.
    """
    base = find_merge_base(a, b, read)
    if base is None:
        raise UnknownRevisionError(
            f"the merge base of {a.short} and {b.short}", reason="history was cut, and what they have in common is not kept"
        )
    return base


def find_merge_base(a: Commit, b: Commit, read: Read) -> Commit | None:
    """The same, or None where history was cut and they have nothing in common any more."""
    return next(iter_merge_bases(a, b, read), None)


def iter_merge_bases(a: Commit, b: Commit, read: Read) -> Iterator[Commit]:
    """All best common ancestors, the newest first: more than one where two lines of history were merged into each other."""
    fork = _fork(a, b, read)
    if fork is not None and (fork in (a, b) or max(a.merge_height, b.merge_height) <= fork.height):
        # Nothing but what leads there was merged into either line since, so there is no other way from one to the other.
        yield fork
        return
    ours, theirs, both, below = 1, 2, 3, 4  # below: of one that was found
    marks = {a.address: ours}
    marks[b.address] = marks.get(b.address, 0) | theirs
    heap = [(-commit.generation, -commit.time, commit.address, commit) for commit in {a.address: a, b.address: b}.values()]
    heapq.heapify(heap)
    open_ends = len(heap)  # of those in the heap, how many are not below one that was found
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
