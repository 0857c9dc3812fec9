"""References: the cells that refer to a tree. Layer: values.

The payload of a reference is an array: the number of elements, then the top node by address, or inlined as ``[node]``.
A dict whose keys are not in sorted order has a second tree, of its keys in their order. A numpy array also has its
dtype and shape.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgpack

from versioned_state.errors import LimitExceededError
from versioned_state.objects.address import ADDRESS_SIZE
from versioned_state.values.cells import (
    MAX_BLOB,
    MAX_ELEMENTS,
    Code,
    array_header,
    code_of,
    extension,
    pack,
    payload_of,
)
from versioned_state.values.trees.nodes import Shape, read_node, write_node
from versioned_state.values.trees.tree import Tree

SHAPES: Final[dict[int, Shape]] = {
    Code.LIST_TREE: Shape.SEQUENCE,
    Code.TUPLE_TREE: Shape.SEQUENCE,
    Code.SET_TREE: Shape.SEQUENCE,
    Code.FROZENSET_TREE: Shape.SEQUENCE,
    Code.DICT_TREE: Shape.MAP,
    Code.TEXT: Shape.BLOB,
    Code.BYTES_BLOB: Shape.BLOB,
    Code.BYTEARRAY_BLOB: Shape.BLOB,
    Code.ARRAY_BLOB: Shape.BLOB,
    Code.PACKED: Shape.BLOB,
}
"""The shape of the tree for each code."""

_INT_SIZES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
"""The number of bytes after the first byte of a MessagePack int that is not negative."""


may_refer: Final = re.compile(
    b"|".join(re.escape(head) + rb"[\x20-\x2f]" for head in (b"\xd4", b"\xd5", b"\xd6", b"\xd7", b"\xd8"))
    + rb"|\xc7.[\x20-\x2f]|\xc8..[\x20-\x2f]|\xc9....[\x20-\x2f]",
    re.DOTALL,
).search
"""Finds the header of an extension that is a tree, as it lies in a leaf at any depth.

A leaf without a match refers to nothing, and need not be decoded, which is ten times faster for most leaves. Each way
begins with one byte, so that the search skips all others at once. The codes 32 to 47 are those of trees: one that has
no meaning yet matches too, so that gc stops there instead of deleting what it refers to.
"""


_TWO_PARTS: Final = array_header(2)


def tree_parts(tree: Tree) -> list[bytes]:
    """Return a tree as the first two parts of a payload."""
    top = (
        pack(tree.top)
        if isinstance(tree.top, bytes)
        else b"\x91" + pack(tree.top.raw or write_node(tree.shape, tree.top))
    )
    return [pack(tree.count), top]


def inlined_cell(code: Code, count: int, raw: bytes) -> bytes:
    """Return the cell of a tree that is one node, inlined, by the raw bytes of the node."""
    return extension(code, _TWO_PARTS + pack(count) + b"\x91" + pack(raw))


def tree_cell(code: Code, tree: Tree, *more: bytes) -> bytes:
    """Return the cell that refers to a tree."""
    count, top = tree_parts(tree)
    if not more:
        return extension(code, _TWO_PARTS + count + top)
    return extension(code, array_header(2 + len(more)) + count + top + b"".join(more))


def read_tree(shape: Shape, parts: list[Any]) -> Tree:
    """Return the tree in the first two parts of a payload.

    Raises ``ValueError`` for any other form, ``LimitExceededError``.
    """
    count, top = parts[0], parts[1]
    if type(count) is not int or count < 0:
        raise ValueError("a tree without a count")
    limit = MAX_BLOB if shape is Shape.BLOB else MAX_ELEMENTS
    if count > limit:
        raise LimitExceededError(
            f"a stored value of {count:,} {'bytes' if shape is Shape.BLOB else 'elements'}", limit=limit
        )
    if type(top) is bytes and len(top) == ADDRESS_SIZE:
        return Tree(shape, count, top)
    if type(top) is list and len(top) == 1 and type(top[0]) is bytes:
        node = read_node(shape, top[0])
        if shape is not Shape.BLOB or node.level or not node.count:
            return Tree(shape, count, node)
    raise ValueError("a tree without a top")


def tree_of(cell: bytes, *codes: Code) -> Tree | None:
    """Return the tree that a cell refers to, or None if the cell is not a reference, or not one of ``codes``."""
    code = code_of(cell)
    if code is None or code < Code.LIST_TREE or (codes and code not in codes):
        return None
    shape = SHAPES.get(code)
    if shape is None:
        raise ValueError(f"an extension of an unknown code, {code}")
    return read_tree(shape, unpack_payload(cell))


def count_of(cell: bytes, code: Code) -> int | None:
    """Return the number of elements of a cell's tree, or None if the cell has another code or is cut short.

    Decodes no node.
    """
    if code_of(cell) != code:
        return None
    at = {0xC7: 3, 0xC8: 4, 0xC9: 6}.get(cell[0], 2) + 1  # after the header of an array of a few parts
    if at >= len(cell):
        return None
    first = cell[at]
    if first < 0x80:
        return first
    size = _INT_SIZES.get(first)
    return None if size is None else int.from_bytes(cell[at + 1 : at + 1 + size], "big")


def order_of(cell: bytes) -> Tree | None:
    """Return the tree of a large dict's keys in their order, or None if that is the sorted order."""
    parts = unpack_payload(cell)
    return read_tree(Shape.SEQUENCE, parts[2:]) if len(parts) > 2 else None


def unpack_payload(cell: bytes) -> list[Any]:
    """Return the parts of a reference's payload."""
    parts = msgpack.unpackb(payload_of(cell), strict_map_key=False)
    if type(parts) is not list:
        raise ValueError("a payload without parts")
    return parts
