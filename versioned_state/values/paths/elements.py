"""One element of an array or of a column, by its position. Layer: values."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from versioned_state.objects.address import Address, Kind, expect
from versioned_state.values.cells import Code, code_of, payload_of, split_cells, split_typed
from versioned_state.values.codec.arrays import read_array
from versioned_state.values.codec.scalars import NotDataError
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.tables.layouts import is_array_name
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, nodes_from

_ARRAYS: Final = (Code.NUMPY_ARRAY, Code.ARRAY_BLOB)


def element_cell(nodes: Nodes, cell: bytes, index: int) -> bytes | None:
    """Return the cell of an element of a one-dimensional array or of one of pandas' own, or None if there is none.

    Cost: a chunk of an array of numpy, and the whole of one of pandas'. Without numpy, or pandas, an array has no
    elements.
    """
    code = code_of(cell)
    try:
        if code in _ARRAYS:
            found = list(_of_numpy(nodes, cell, index))
        elif code == Code.TYPED and is_array_name(Decoder(nodes).decode(split_typed(cell)[0])):
            array: Any = Decoder(nodes).decode(cell)
            found = [array[index]] if -len(array) <= index < len(array) else []
        else:
            return None
        return InlineEncoder().encode_inline(found[0]) if found else None
    except (ImportError, NotDataError):
        return None


def _of_numpy(nodes: Nodes, cell: bytes, index: int) -> Any:
    """Return an array of the element, or an empty one."""
    parts = split_cells(payload_of(cell))
    is_inline = code_of(cell) == Code.NUMPY_ARRAY
    descr, shape = (Decoder(nodes).decode(part) for part in (parts[:2] if is_inline else parts[2:4]))
    tree = None if is_inline else tree_of(cell)
    if len(shape) != 1 or not -shape[0] <= index < shape[0]:
        return []
    index %= shape[0]
    size = _size_of(descr)
    start, end = index * size, (index + 1) * size
    data = msgpack.unpackb(parts[2])[start:end] if tree is None else _bytes_between(nodes, tree, start, end)
    return read_array(descr, [1], data)


def _size_of(descr: Any) -> int:
    import numpy as np

    return int(np.lib.format.descr_to_dtype(descr).itemsize)


def _bytes_between(nodes: Nodes, tree: Tree, start: int, end: int) -> bytes:
    """Return the bytes [start, end) of a blob. Reads one path, and the chunks that hold them."""
    top = nodes.get(Shape.BLOB, tree.top)
    if not top.level:
        assert isinstance(tree.top, bytes)
        return _chunk(nodes, tree.top)[start:end]
    found = b""
    for first, node in nodes_from(nodes, Shape.BLOB, top, 1, start, end):
        offset = first
        for address, count in zip(node.items, node.counts or (), strict=True):
            if offset < end and offset + count > start:
                found += _chunk(nodes, address)[max(start - offset, 0) : end - offset]
            offset += count
    return found


def _chunk(nodes: Nodes, address: bytes) -> bytes:
    raw = nodes.reader.read(Address(address))
    expect(raw, Address(address), Kind.CHUNK)
    return raw[1:]
