"""Cells composed of other cells, in canonical form. Layer: values.

The form of a cell depends on its value and on its place: 300 bytes are inline in a list, and a blob in a dict. A merge,
a patch or a removal combines cells from several places, and this module converts each to the form for its new place.
Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import repeat
from typing import Any, Final

from versioned_state.records import replace
from versioned_state.values.cells import (
    ELEMENT_INLINE,
    ENTRY_INLINE,
    Code,
    are_sorted,
    array,
    array_header,
    code_of,
    extension,
    fits,
    is_reference,
    key_cell,
    map_header,
    payload_of,
    split_cells,
    split_typed,
    typed_cell,
)
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.containers import Container, Head, container_of, is_large, order_keys
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.trees.blob import read_blob, write_bytes
from versioned_state.values.trees.edit import build_sequence, edit_map
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_of, tree_parts
from versioned_state.values.trees.tree import Tree, empty, iter_cells, nodes_from

LIMITS: Final = {Shape.SEQUENCE: ELEMENT_INLINE, Shape.MAP: ENTRY_INLINE}
"""Bytes up to which a part of a container of each shape is inline."""

_BLOBS: Final = frozenset({Code.TEXT, Code.BYTES_BLOB, Code.BYTEARRAY_BLOB, Code.ARRAY_BLOB})
_INLINE_CONTAINERS: Final = frozenset({Code.TUPLE, Code.SET, Code.FROZENSET, Code.TYPED})
_SET_CODES: Final = {Code.SET: Code.SET_TREE, Code.FROZENSET: Code.FROZENSET_TREE}


class Composer:
    """A composer of cells, which stages the objects that they refer to.

    Args:
        nodes: stages new objects.
        policy: whether values given to ``encode`` may be pickled; without a policy, none may.
    """

    def __init__(self, nodes: Nodes, policy: PicklePolicy | None = None) -> None:
        self.nodes = nodes
        self._policy = policy

    # Made when they are first needed: an append to a large list needs neither, and making them would take most of its
    # time.

    @cached_property
    def decoder(self) -> Decoder:
        """A decoder over the same nodes, which shows objects as ``ObjectInfo``."""
        return Decoder(self.nodes)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.nodes, self._policy)

    def inline(self, cell: bytes) -> bytes | None:
        """Return the self-contained cell of a cell's value, or None if it is longer than ``ELEMENT_INLINE``.

        Reads at most that many bytes.
        """
        code = code_of(cell)
        whole: bytes | None = cell
        if code == Code.TYPED:
            whole = self._inline_typed(cell)
        elif code == Code.OBJECT:
            whole = self._object(cell, None)
        elif code is not None and code >= Code.LIST_TREE:
            tree = tree_of(cell)
            if tree is None or tree.count > ELEMENT_INLINE or not (code == Code.PACKED or code in _BLOBS):
                return None
            if code == Code.PACKED:
                whole = bytes(read_blob(self.nodes, tree))
            else:
                whole = self._encoder.encode_inline(self.decoder.decode(cell), "a value")
        return whole if whole is not None and len(whole) <= ELEMENT_INLINE else None

    def encode(self, value: Any, limit: int, path: str = "a value") -> bytes:
        """Return the cell of a value for a place that takes up to ``limit`` inline bytes.

        An error names the ``path``.
        """
        return self._encoder.encode_at(value, limit, path)

    def same(self, a: bytes | None, b: bytes | None) -> bool:
        """Return whether two cells have the same value, even if they are in different forms."""
        if a == b or a is None or b is None:
            return a == b
        if not (is_reference(a) or is_reference(b)):
            return False
        whole = self.inline(a)
        return whole is not None and whole == self.inline(b)

    def fit(self, cell: bytes, limit: int) -> bytes:
        """Convert a cell to the form for a place that takes up to ``limit`` inline bytes."""
        if code_of(cell) == Code.OBJECT:
            return self._object(cell, limit) or cell
        whole = self.inline(cell)
        if whole is None:
            return cell
        code = code_of(whole)
        if fits(whole, limit):
            return whole
        if code in _INLINE_CONTAINERS or (code is None and container_of(self.nodes, whole) is not None):
            return tree_cell(Code.PACKED, write_bytes(self.nodes, whole))
        return self.encode(self.decoder.decode(whole), limit)

    def _object(self, cell: bytes, limit: int | None) -> bytes | None:
        """Return the cell of a pickled object under a limit, as ``Encoder`` writes it.

        None with no limit: it is too long to be inline.
        """
        type_name, mac, *pairs = split_cells(payload_of(cell))
        parts = [type_name, mac]
        pieces = list(zip(pairs[::2], pairs[1::2], strict=True))
        inline = limit is None or (len(pieces) == 1 and self._data_size(pieces[0][1]) <= limit)
        for writable, data in pieces:
            parts.append(writable)
            if (code_of(data) == Code.BYTES) == inline:
                parts.append(data)
            elif not inline:
                parts.append(tree_cell(Code.BYTES_BLOB, write_bytes(self.nodes, payload_of(data))))
            elif self._data_size(data) > ELEMENT_INLINE:
                return None
            else:
                parts.append(extension(Code.BYTES, self._data(data)))
        return extension(Code.OBJECT, array(parts))

    def _data(self, cell: bytes) -> bytes:
        tree = tree_of(cell)
        return payload_of(cell) if tree is None else bytes(read_blob(self.nodes, tree))

    def _data_size(self, cell: bytes) -> int:
        tree = tree_of(cell)
        return len(payload_of(cell)) if tree is None else tree.count

    # Containers from their parts

    def container(self, cell: bytes, *, large: bool) -> Container | None:
        """Return what ``container_of`` does.

        ``large`` converts the parts of a small container to their form in a large one.
        """
        found = container_of(self.nodes, cell)
        if found is None or not large or is_large(self.nodes, cell):
            return found
        leaf = self.nodes.get(found.tree.shape, found.tree.top)
        cells = [self.fit(part, LIMITS[found.tree.shape]) for part in leaf.items]
        return replace(found, tree=Tree(found.tree.shape, len(cells), Node(0, cells, None, leaf.keys)))

    def typed_of(self, head: Head, data: bytes, limit: int) -> bytes:
        """Return the cell of a typed value, from its head and the cell of its data, both in any form."""
        whole = self.inline(typed_cell(head.name, head.notes, data))
        if whole is not None:
            return self.fit(whole, limit)
        notes = None if head.notes is None else self.fit(head.notes, ENTRY_INLINE)
        return typed_cell(head.name, notes, self.fit(data, ENTRY_INLINE))

    def _inline_typed(self, cell: bytes) -> bytes | None:
        name, notes, data = split_typed(cell)
        whole = self.inline(data)
        if notes is None or whole is None:
            return None if whole is None else typed_cell(name, None, whole)
        whole_notes = self.inline(notes)
        return None if whole_notes is None else typed_cell(name, whole_notes, whole)

    def list_of(self, cells: list[bytes], limit: int) -> bytes:
        """Return the cell of a list of these elements, in any form."""
        whole = self._joined(cells)
        if whole is not None:
            return self.fit(whole, limit)
        return tree_cell(Code.LIST_TREE, build_sequence(self.nodes, [self.fit(cell, ELEMENT_INLINE) for cell in cells]))

    def list_cell(self, tree: Tree, limit: int) -> bytes:
        """Return the cell of a list, from the tree of its elements, in the form of elements of a large list."""
        whole = None
        top = self.nodes.get(Shape.SEQUENCE, tree.top)
        # Every leaf except the last holds LEAF_LEAST bytes, and a value is not shorter inline.
        if not top.level or (top.level == 1 and len(top.items) == 2):
            whole = self._joined(iter_cells(self.nodes, tree))
        return tree_cell(Code.LIST_TREE, tree) if whole is None else self.fit(whole, limit)

    def dict_of(self, entries: dict[bytes, bytes], limit: int) -> bytes:
        """Return the cell of a dict of these entries (by order key, in their order), with values in any form."""
        whole = self._joined(entries.values(), keys=entries)
        if whole is not None:
            return self.fit(whole, limit)
        cells: dict[bytes, bytes | None] = {key: self.fit(cell, ENTRY_INLINE) for key, cell in entries.items()}
        return self.dict_cell(edit_map(self.nodes, empty(Shape.MAP), cells), list(entries), limit)

    def dict_cell(self, tree: Tree, order: list[bytes] | Tree | None, limit: int) -> bytes:
        """Return a dict's cell, from the tree of its entries (as in a large dict) and its order keys in their order."""
        whole = self._whole_dict(tree, order)
        if whole is not None:
            return self.fit(whole, limit)
        if isinstance(order, list):
            order = None if are_sorted(order) else build_sequence(self.nodes, [key_cell(key) for key in order])
        return tree_cell(Code.DICT_TREE, tree, *([] if order is None else tree_parts(order)))

    def _whole_dict(self, tree: Tree, order: list[bytes] | Tree | None) -> bytes | None:
        """Return the inline cell of a dict that has become small. Reads at most ``ELEMENT_INLINE`` bytes of it."""
        entries: dict[bytes, bytes] = {}
        size = 0
        for _, leaf in nodes_from(self.nodes, Shape.MAP, self.nodes.get(Shape.MAP, tree.top), 0, 0):
            assert leaf.keys is not None
            size += sum(map(len, leaf.keys)) + sum(map(len, leaf.items))
            if size > ELEMENT_INLINE:
                return None
            entries.update(zip(leaf.keys, leaf.items, strict=True))
        keys = order_keys(self.nodes, Container(tree, order))
        return self._joined(map(entries.__getitem__, keys), keys=keys)

    def set_of(self, code: Code, cells: Iterable[bytes], limit: int) -> bytes:
        """Return the cell of a set (``Code.SET``) or frozenset of these elements, in any form."""
        elements = list(cells)
        wholes = [self.inline(cell) for cell in elements]
        if all(whole is not None for whole in wholes):
            whole = extension(code, array(sorted(whole for whole in wholes if whole is not None)))
            if len(whole) <= ELEMENT_INLINE:
                return self.fit(whole, limit)
        return tree_cell(
            _SET_CODES[code], build_sequence(self.nodes, sorted(self.fit(cell, ELEMENT_INLINE) for cell in elements))
        )

    def _joined(self, cells: Iterable[bytes], *, keys: Iterable[bytes] | None = None) -> bytes | None:
        """Return the inline cell of a list of these cells or, with order keys, of a dict, or None if it is too long."""
        parts: list[bytes] = []
        size = count = 0
        # Keys stay as they are: a typed value has a different form as a key.
        for key, cell in zip(repeat(b"") if keys is None else map(key_cell, keys), cells, strict=False):
            whole = self.inline(cell)
            if whole is None or (size := size + len(key) + len(whole)) > ELEMENT_INLINE:
                return None
            parts += (key, whole)
            count += 1
        header = array_header(count) if keys is None else map_header(count)
        return header + b"".join(parts) if len(header) + size <= ELEMENT_INLINE else None
