"""All that a value consists of, one part at a time, for a search: nothing is loaded as a whole, or unpickled. Layer: values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError
from versioned_state.values.codec.scalars import MAX_DEPTH, Code, code_of, payload_of
from versioned_state.values.decode import Decoder, read_tree, tree_of, unpack_payload
from versioned_state.values.encode import key_of_cell
from versioned_state.values.forms import is_reference, key_cell
from versioned_state.values.opened import read_key, split_cells
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.blob import iter_blob, read_blob
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import iter_cells, iter_items

_LISTS: Final = frozenset({Code.TUPLE, Code.LIST_TREE, Code.TUPLE_TREE})
_INLINE: Final = frozenset({Code.TUPLE, Code.SET, Code.FROZENSET})
_TREES: Final = frozenset({Code.LIST_TREE, Code.TUPLE_TREE, Code.SET_TREE, Code.FROZENSET_TREE})

_DEEPEST: Final = 2 * MAX_DEPTH + 16
"""Parts within parts: a container is one or, where its type is registered, two."""


class Part(NamedTuple):
    """A part of a value: an element, an entry, or all of it.

    ``path`` leads to it; where it is not ``named``, to the last thing on the way there that a path can name: none leads into a key, into a
    set, or into a value of a registered type. ``is_key``: it is in a key, and not in a value.
    """

    path: StatePath
    cell: bytes
    is_key: bool = False
    named: bool = True


class Parts:
    """Walks over the parts of cells.

    Args:
        nodes: where trees are read.
        decoder: reads keys that are no strings.
        wanted: whether a cell that is wholly inline may hold what is searched for; without it, all may. What is not wanted is passed over.
    """

    def __init__(self, nodes: Nodes, decoder: Decoder, *, wanted: Callable[[bytes], bool] | None = None) -> None:
        self._nodes = nodes
        self._decoder = decoder
        self._wanted = wanted

    def iter(self, cell: bytes, path: StatePath, *, is_key: bool = False) -> Iterator[Part]:
        """The parts of a cell, itself first; of a dict's entries each key before its value. Cost: a leaf of a tree at a time.

        Raises:
            CorruptObjectError, LimitExceededError: a cell that no writer writes.
        """
        try:
            yield from self._parts(Part(path, cell, is_key, not is_key), 0)
        except StateError:
            raise
        except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
            raise CorruptObjectError(f"({path})", f"it does not decode: {type(error).__name__}: {error}") from error

    def _parts(self, part: Part, depth: int) -> Iterator[Part]:
        cell = part.cell
        if code_of(cell) == Code.PACKED:
            cell = bytes(read_blob(self._nodes, read_tree(Shape.BLOB, unpack_payload(cell))))
            part = part._replace(cell=cell)
        if self._wanted is not None and not is_reference(cell) and not self._wanted(cell):
            return
        yield part
        first = cell[0]
        if depth > _DEEPEST:
            raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH)
        if 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF:
            yield from self._inlined(part, cell, depth + 1)
            return
        code = code_of(cell)
        if code is None:
            return
        if code in _INLINE:
            yield from self._elements(part, split_cells(payload_of(cell)), depth + 1, named=code in _LISTS)
        elif code == Code.TAGGED:
            yield from self._parts(part._replace(cell=split_cells(payload_of(cell))[1], named=False), depth + 1)
        elif code in _TREES:
            tree = tree_of(cell)
            assert tree is not None
            yield from self._elements(part, iter_cells(self._nodes, tree), depth + 1, named=code in _LISTS)
        elif code == Code.DICT_TREE:
            tree = tree_of(cell)
            assert tree is not None
            for key, value in iter_items(self._nodes, tree):
                yield from self._entry(part, key_cell(key), value, depth + 1)
        elif code == Code.PACKED:
            raise CorruptObjectError(f"({part.path})", "a packed value within a packed one")

    def _inlined(self, part: Part, cell: bytes, depth: int) -> Iterator[Part]:
        cells = split_cells(cell)
        if 0x90 <= cell[0] <= 0x9F or cell[0] in (0xDC, 0xDD):
            yield from self._elements(part, cells, depth, named=True)
            return
        for key, value in zip(cells[::2], cells[1::2], strict=True):
            yield from self._entry(part, key, value, depth)

    def _elements(self, part: Part, cells: Iterator[bytes] | list[bytes], depth: int, *, named: bool) -> Iterator[Part]:
        named = named and part.named
        for index, cell in enumerate(cells):
            yield from self._parts(Part(part.path.index(index) if named else part.path, cell, part.is_key, named), depth)

    def _entry(self, part: Part, key: bytes, value: bytes, depth: int) -> Iterator[Part]:
        order_key = key_of_cell(key)
        name = read_key(self._decoder, order_key)
        path = part.path.key(name, None if type(name) is str else key) if part.named else part.path
        yield from self._parts(Part(path, key, is_key=True, named=False), depth)
        yield from self._parts(Part(path, value, part.is_key, part.named), depth)


# Texts


def is_text(cell: bytes) -> bool:
    """Whether a cell is a text, be it inline or as long as a book."""
    first = cell[0]
    return 0xA0 <= first <= 0xBF or 0xD9 <= first <= 0xDB or code_of(cell) == Code.TEXT


def text_bytes(nodes: Nodes, cell: bytes) -> bytes | bytearray:
    """A text in UTF-8, with lone surrogates passed. Cost: its size."""
    if code_of(cell) == Code.TEXT:
        tree = tree_of(cell)
        assert tree is not None
        return read_blob(nodes, tree)
    return key_of_cell(cell)[1:]


def iter_lines(nodes: Nodes, cell: bytes) -> Iterator[str]:
    """A text line by line, without the line breaks; none is behind a final one. Cost: a few chunks of it at a time."""
    tree = tree_of(cell) if code_of(cell) == Code.TEXT else None
    rest = bytearray()
    is_one_line = True
    for chunk in (key_of_cell(cell)[1:],) if tree is None else iter_blob(nodes, tree):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            rest += head
            yield from rest.decode("utf-8", "surrogatepass").split("\n")
            rest.clear()
            is_one_line = False
        rest += tail
    if rest or is_one_line:
        yield rest.decode("utf-8", "surrogatepass")
