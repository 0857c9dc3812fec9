"""The parts of a value, one at a time, for a search: nothing is loaded as a whole, or unpickled. Layer: values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError
from versioned_state.values.cells import (
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_NESTING,
    Code,
    code_of,
    decoded_text,
    is_array,
    is_map,
    is_reference,
    key_cell,
    key_of_cell,
    payload_of,
    split_cells,
)
from versioned_state.values.containers import attributes_of, typed_parts, unpacked
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.blob import iter_blob, read_blob
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, iter_items

_LISTS: Final = frozenset({Code.TUPLE, Code.LIST_TREE, Code.TUPLE_TREE})
_INLINE: Final = frozenset({Code.TUPLE, Code.SET, Code.FROZENSET})
_TREES: Final = (Code.LIST_TREE, Code.TUPLE_TREE, Code.SET_TREE, Code.FROZENSET_TREE)


_BARREN: Final = 1 << 18
"""Nodes without a hit that are remembered; they take about 100 bytes each."""


class Part(NamedTuple):
    """A part of a value: an element, an entry, or the whole value.

    ``path`` leads to the part or, if the part is not ``named``, to the nearest part around it that a path can name: no
    path leads into a key, into a set, or to the attributes of a container. ``is_key``: the part is in a key, not in a
    value. ``is_data``: the part is the data of a typed value, such as its fields, and not a value by itself.
    """

    path: StatePath
    cell: bytes
    is_key: bool = False
    named: bool = True
    is_data: bool = False


class Walk:
    """A walk over the parts of cells.

    Args:
        nodes: reads the trees.
        decoder: reads keys that are not strings.
        wanted: whether an inline cell may hold a hit; other inline cells are skipped. By default none is skipped.

    Attributes:
        hits: the caller counts its hits here. A node without hits is skipped when it occurs again, so a list that
            repeats one node, such as a crafted one of 10**11 elements in six nodes, costs only its stored size.
    """

    def __init__(self, nodes: Nodes, decoder: Decoder, *, wanted: Callable[[bytes], bool] | None = None) -> None:
        self._nodes = nodes
        self._decoder = decoder
        self._wanted = wanted
        self._barren: set[bytes] = set()
        self.hits = 0

    def iter(self, cell: bytes, path: StatePath, *, is_key: bool = False, is_data: bool = False) -> Iterator[Part]:
        """Yield the parts of a cell, itself first, and of a dict's entries each key before its value.

        Cost: a leaf of a tree at a time.

        Raises:
            CorruptObjectError, LimitExceededError: a cell that no writer writes.
        """
        # The walks that are open, each within the one before it. They do not delegate to each other: each part would
        # pass through all.
        walks: list[Iterator[Any]] = [self._parts(Part(path, cell, is_key, not is_key, is_data), 0)]
        try:
            while walks:
                for found in walks[-1]:
                    if type(found) is not Part:
                        walks.append(found)
                        break
                    yield found
                else:
                    walks.pop()
        except StateError:
            raise
        except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
            raise CorruptObjectError(f"({path})", f"it does not decode: {type(error).__name__}: {error}") from error

    def _parts(self, part: Part, depth: int) -> Iterator[Part | Iterator[Any]]:
        cell = unpacked(self._nodes, part.cell)
        part = part._replace(cell=cell)
        if self._wanted is not None and not is_reference(cell) and not self._wanted(cell):
            return
        yield part
        part = part._replace(is_data=False)
        if depth > MAX_NESTING:
            raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH)
        if is_array(cell) or is_map(cell):
            yield self._inlined(part, cell, depth + 1)
            return
        code = code_of(cell)
        if code is None:
            return
        if code in _INLINE:
            yield self._elements(part, split_cells(payload_of(cell)), depth + 1, named=code in _LISTS)
        elif code == Code.TYPED:
            yield self._typed(part, depth + 1)
        elif (tree := tree_of(cell, *_TREES)) is not None:
            yield self._tree(part, tree, depth + 1, named=code in _LISTS)
        elif (tree := tree_of(cell, Code.DICT_TREE)) is not None:
            for key, value in iter_items(self._nodes, tree):
                yield self._entry(part, key_cell(key), value, depth + 1)
        elif code == Code.PACKED:
            raise CorruptObjectError(f"({part.path})", "a packed value within a packed one")

    def _typed(self, part: Part, depth: int) -> Iterator[Part | Iterator[Any]]:
        parts = typed_parts(self._nodes, part.cell)
        assert parts is not None
        head, data = parts
        yield self._parts(part._replace(cell=data, is_data=True), depth)
        attributes = attributes_of(self._nodes, head)
        if attributes is not None:
            yield self._parts(part._replace(cell=attributes, named=False), depth)

    def _inlined(self, part: Part, cell: bytes, depth: int) -> Iterator[Part | Iterator[Any]]:
        cells = split_cells(cell)
        if is_array(cell):
            yield self._elements(part, cells, depth, named=True)
            return
        for key, value in zip(cells[::2], cells[1::2], strict=True):
            yield self._entry(part, key, value, depth)

    def _tree(self, part: Part, tree: Tree, depth: int, *, named: bool) -> Iterator[Part | Iterator[Any]]:
        if tree.count > MAX_ELEMENTS:
            raise LimitExceededError(
                f"a stored value of {tree.count:,} elements", limit=MAX_ELEMENTS, path=str(part.path)
            )
        level = self._nodes.get(tree.shape, tree.top).level
        yield self._node(part, tree.top, level, tree.count, 0, depth, named=named)

    def _node(
        self, part: Part, top: Node | bytes, level: int, count: int, first: int, depth: int, *, named: bool
    ) -> Iterator[Part | Iterator[Any]]:
        """Yield the elements under a node whose first offset is ``first``."""
        if top in self._barren:
            return
        before = self.hits
        node = self._nodes.get(Shape.SEQUENCE, top)
        if node.level != level or node.count != count:
            raise CorruptObjectError(f"({part.path})", "a node has another level or count than its parent says")
        if node.counts is None:
            yield self._elements(part, node.items, depth, named=named, first=first)
        else:
            if level == 1:
                self._nodes.fetch(Shape.SEQUENCE, *(child for child in node.items if child not in self._barren))
            for child, size in zip(node.items, node.counts, strict=True):
                yield self._node(part, child, level - 1, size, first, depth, named=named)
                first += size
        if self.hits == before and isinstance(top, bytes):
            if len(self._barren) >= _BARREN:
                self._barren.clear()
            self._barren.add(top)

    def _elements(
        self, part: Part, cells: list[bytes], depth: int, *, named: bool, first: int = 0
    ) -> Iterator[Part | Iterator[Any]]:
        named = named and part.named
        for index, cell in enumerate(cells, first):
            yield self._parts(Part(part.path.index(index) if named else part.path, cell, part.is_key, named), depth)

    def _entry(self, part: Part, key: bytes, value: bytes, depth: int) -> Iterator[Part | Iterator[Any]]:
        path = self._decoder.entry_path(part.path, key_of_cell(key)) if part.named else part.path
        yield self._parts(Part(path, key, is_key=True, named=False), depth)
        yield self._parts(Part(path, value, part.is_key, part.named), depth)


# Texts


def text_bytes(nodes: Nodes, cell: bytes) -> bytes | bytearray:
    """Return a text in UTF-8, with lone surrogates passed. Cost: its size."""
    tree = tree_of(cell, Code.TEXT)
    return key_of_cell(cell)[1:] if tree is None else read_blob(nodes, tree)


def iter_lines(nodes: Nodes, cell: bytes) -> Iterator[str]:
    """Yield a text line by line, without the line breaks.

    No empty line follows a final line break. Reads a few chunks at a time.
    """
    tree = tree_of(cell, Code.TEXT)
    rest = bytearray()
    is_one_line = True
    for chunk in (key_of_cell(cell)[1:],) if tree is None else iter_blob(nodes, tree):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            rest += head
            yield from decoded_text(rest).split("\n")
            rest.clear()
            is_one_line = False
        rest += tail
    if rest or is_one_line:
        yield decoded_text(rest)
