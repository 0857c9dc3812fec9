"""``Run``, and ``OlderRounds``: the rounds of a session that are not in its list of runs, in a tree of the state.

Layer: services.

The tree is that of a dict by number, so a save, a lookup and a deletion read and write one path of it. Rounds in a row
are one entry::

    saved 1718, 1731, 1790       {1718: 1, 1731: 2, 1790: 3}     the height of each
    saved 1, 2, 3, …, 900        {1: [1, 900]}                   the height of the first one, and how many there are
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.values.cells import MALFORMED, Code, order_key, pack
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_of
from versioned_state.values.trees.tree import Tree, empty, iter_items, iter_items_back, locate, top_of

_AT_ONCE: Final = 256
"""Nodes that one call of the store reads, few enough for any cache."""


class Run(NamedTuple):
    """Rounds that were saved in a row: ``first``, ``first + step``, … at ``height``, ``height + 1``, and so on."""

    first: int
    step: int
    height: int
    length: int

    @property
    def last(self) -> int:
        return self.first + (self.length - 1) * self.step

    @property
    def greatest(self) -> int:
        return max(self.first, self.last)

    @property
    def entries(self) -> int:
        """The number of entries of the run in the tree.

        The ranges of two entries never overlap, so only a run of step 1 is one entry.
        """
        return 1 if self.step == 1 else self.length

    def place(self, number: int) -> int | None:
        """Return the place of a round in the run, or None."""
        index, rest = divmod(number - self.first, self.step)
        return index if not rest and 0 <= index < self.length else None

    def numbers(self) -> range:
        """Return the rounds, in the order in which they were saved."""
        return range(self.first, self.last + (1 if self.step > 0 else -1), self.step)

    def without(self, gone: Collection[int]) -> list[Run]:
        """Return the rounds except some, as runs."""
        places = sorted(place for number in gone if (place := self.place(number)) is not None)
        parts, start = [], 0
        for end in (*places, self.length):
            if start < end:
                parts.append(Run(self.first + start * self.step, self.step, self.height + start, end - start))
            start = end + 1
        return parts


@dataclass(frozen=True, slots=True)
class OlderRounds:
    """The rounds in the tree, of which some may be gone already. Never changed.

    Attributes:
        nodes: read the tree, or None if there is none.
        count: how many rounds the tree has.
        greatest: the highest one of them, or -1. With it, saves of rising numbers read no node of the tree.
        gone: rounds of the tree that ``stored`` removes.
    """

    nodes: Nodes | None = field(default=None, compare=False)
    tree: Tree = field(default_factory=lambda: empty(Shape.MAP))
    count: int = 0
    greatest: int = -1
    gone: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return self.count - len(self.gone)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers, in order."""
        for leaf in self._leaves():
            assert leaf.keys is not None
            for key, cell in zip(leaf.keys, leaf.items, strict=True):
                yield from (number for number in _run_of(key, cell).numbers() if number not in self.gone)

    @property
    def latest(self) -> int:
        """The highest round, or -1."""
        if self.greatest not in self.gone:
            return self.greatest
        assert self.nodes is not None
        left = (each for item in iter_items_back(self.nodes, self.tree) for each in reversed(_run_of(*item).numbers()))
        return next((number for number in left if number not in self.gone), -1)

    def height(self, number: int) -> int | None:
        """Return the height of a round's commit, or None. Cost: one path."""
        run = None if number in self.gone else self._run_with(number)
        return None if run is None else run.height + number - run.first

    def without(self, numbers: Iterable[int]) -> OlderRounds:
        """Return the rounds without some, which need not exist."""
        gone = self.gone.union(number for number in numbers if self._run_with(number) is not None)
        return self if len(gone) == len(self.gone) else replace(self, gone=gone)

    def stored(self, nodes: Nodes, more: Iterable[Run] = ()) -> OlderRounds:
        """Return the rounds with some more, which are not among them.

        Stages the new nodes in ``nodes``. Cost: one edit of the tree.
        """
        touched: dict[Run, list[int]] = {}
        for number in self.gone:
            if (entry := self._run_with(number)) is not None:
                touched.setdefault(entry, []).append(number)
        changes: dict[bytes, bytes | None] = {_key(entry.first): None for entry in touched}
        runs = list(more)
        for run in (*runs, *(part for entry, gone in touched.items() for part in entry.without(gone))):
            changes.update(_entries(run))
        greatest = max((run.greatest for run in runs), default=-1)
        count = len(self) + sum(run.length for run in runs)
        tree = edit_map(nodes, self.tree, changes)
        # not inline in the root, which every save writes, while few of them change the tree
        if isinstance(tree.top, Node) and tree.count:
            tree = Tree(tree.shape, tree.count, nodes.add(tree.shape, tree.top))
        return OlderRounds(nodes, tree, count, max(greatest, self.latest))

    @property
    def cell(self) -> bytes | None:
        """The stored form of the tree, or None if it has no rounds."""
        return tree_cell(Code.DICT_TREE, self.tree) if self.count else None

    def _leaves(self) -> list[Node]:
        """Read the leaves of the tree. Each call of the store reads many nodes of a level."""
        if self.nodes is None:
            return []
        row = [top_of(self.nodes, self.tree)]
        while row[0].level:
            below = [(node, index) for node in row for index in range(len(node.items))]
            row = []
            for start in range(0, len(below), _AT_ONCE):
                some = below[start : start + _AT_ONCE]
                self.nodes.fetch(Shape.MAP, *(node.items[index] for node, index in some))
                row += [self.nodes.child(Shape.MAP, node, index) for node, index in some]
        return row

    def _run_with(self, number: int) -> Run | None:
        """Return the entry of the tree that has a round, whether it is gone or not."""
        if self.nodes is None or not 0 <= number <= self.greatest:
            return None
        key = _key(number)
        offset, cell = locate(self.nodes, self.tree, key)
        if cell is None:
            if not offset:
                return None
            ((key, cell),) = iter_items(self.nodes, self.tree, offset - 1, offset)
        run = _run_of(key, cell)
        return None if run.place(number) is None else run


NO_OLDER: Final = OlderRounds()


def older_rounds(nodes: Nodes, cell: bytes | None, count: int, greatest: int) -> OlderRounds:
    """Return the rounds whose tree a cell refers to. Raises ``CorruptObjectError`` if it is malformed."""
    try:
        tree = None if cell is None else tree_of(cell, Code.DICT_TREE)
    except MALFORMED as error:
        raise CorruptObjectError(_WHAT, "they do not read") from error
    if tree is None or not 0 < tree.count <= count or greatest < 0:
        raise CorruptObjectError(_WHAT, "they do not read")
    return OlderRounds(nodes, tree, count, greatest)


_WHAT: Final = "(the older rounds of a session)"


def _key(number: int) -> bytes:
    """Return the key of a dict's tree for a number. MessagePack's forms of the numbers from 0 are in their order."""
    return order_key(number, pack(number))


def _entries(run: Run) -> Iterator[tuple[bytes, bytes]]:
    if run.step == 1 < run.length:
        yield _key(run.first), pack([run.height, run.length])
        return
    for place, number in enumerate(run.numbers()):
        yield _key(number), pack(run.height + place)


def _run_of(key: bytes, cell: bytes) -> Run:
    try:
        first: Any = msgpack.unpackb(key[1:])
        found: Any = msgpack.unpackb(cell)
        height, length = found if type(found) is list else (found, 1)
    except MALFORMED as error:
        raise CorruptObjectError(_WHAT, "they do not read") from error
    if not all(type(each) is int for each in (first, height, length)) or length < 1:
        raise CorruptObjectError(_WHAT, "they do not read")
    return Run(first, 1, height, length)
