"""What paths lead into: a list's or dict's cell as a tree, be it inlined, packed or large. Layer: values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from versioned_state.values.codec.scalars import Code, code_of
from versioned_state.values.decode import Decoder, order_of, read_tree, tree_of, unpack_payload
from versioned_state.values.encode import key_of_cell
from versioned_state.values.trees.blob import read_blob
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.tree import Tree, iter_cells, iter_items


@dataclass(frozen=True, slots=True)
class Opened:
    """A cell as something that paths lead into: a list or a dict, as a tree even where it is inlined.

    ``order`` holds the order keys of a small dict, or the order tree of a large one; None where they are sorted.
    """

    tree: Tree
    order: list[bytes] | Tree | None = None


def open_cell(nodes: Nodes, cell: bytes) -> Opened | None:
    """A list's or dict's cell, opened; None for every other value."""
    code = code_of(cell)
    if code == Code.PACKED:
        return open_cell(nodes, bytes(read_blob(nodes, read_tree(Shape.BLOB, unpack_payload(cell)))))
    if code in (Code.LIST_TREE, Code.DICT_TREE):
        tree = tree_of(cell)
        assert tree is not None
        return Opened(tree, order_of(cell) if code == Code.DICT_TREE else None)
    if code is not None:
        return None
    first = cell[0]
    if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
        cells = split_cells(cell)
        return Opened(Tree(Shape.SEQUENCE, len(cells), Node(0, cells)))
    if 0x80 <= first <= 0x8F or first in (0xDE, 0xDF):
        parts = split_cells(cell)
        keys = [key_of_cell(key) for key in parts[::2]]
        if len(set(keys)) < len(keys):  # several NaNs: no path tells them apart
            return None
        entries = sorted(zip(keys, parts[1::2], strict=True))
        node = Node(0, [value for _, value in entries], None, [key for key, _ in entries])
        return Opened(Tree(Shape.MAP, len(entries), node), keys)
    return None


def split_cells(cell: bytes) -> list[bytes]:
    """The cells of a packed array; of a map, keys and values in turn."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(cell), strict_map_key=False)
    unpacker.feed(cell)
    first = cell[0]
    is_array = 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)
    count = unpacker.read_array_header() if is_array else 2 * unpacker.read_map_header()
    cells = []
    start = unpacker.tell()
    for _ in range(count):
        unpacker.skip()
        end = unpacker.tell()
        cells.append(cell[start:end])
        start = end
    return cells


def read_key(decoder: Decoder, order_key: bytes) -> Any:
    """The dict's key of an order key."""
    return order_key[1:].decode("utf-8", "surrogatepass") if order_key[:1] == b"s" else decoder.decode(order_key[1:])


def order_keys(nodes: Nodes, opened: Opened) -> list[bytes]:
    """The order keys of a dict, in the order of its entries."""
    if isinstance(opened.order, Tree):
        return [key_of_cell(cell) for cell in iter_cells(nodes, opened.order)]
    if opened.order is None:
        return [key for key, _ in iter_items(nodes, opened.tree)]
    return opened.order
