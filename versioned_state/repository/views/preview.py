"""The beginning of a stored value as text on one line, read from its cell: a value of a gigabyte costs a few reads.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from versioned_state.objects.address import Address, Kind, expect
from versioned_state.repository.history.reach import references_of_cell
from versioned_state.repository.views.render import (
    WIDTH,
    attributes_in,
    attributes_repr,
    escape,
    field_rank,
    joined,
    one_line,
    short_name,
    short_repr,
)
from versioned_state.repository.views.tables import summary_of_cell
from versioned_state.values.cells import Code, code_of, decoded_text, key_of_cell, payload_of, split_cells
from versioned_state.values.containers import Head, container_of, is_record, order_keys, typed_parts
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_chunks, iter_items

WHOLE: Final = 1 << 20
"""Bytes up to which a text or an array is read whole to be shown."""

_BLOBS: Final = frozenset({Code.TEXT, Code.BYTES_BLOB, Code.BYTEARRAY_BLOB, Code.ARRAY_BLOB})
_EMPTY: Final = (b"\xc0", b"\xa0", b"\x90", b"\x80")
"""Cells of None, and of an empty str, list and dict.

Fields with these values are shown last, since most fields of a framework's message are empty.
"""

_SORTED: Final = 1000
"""Elements up to which a set is shown in order; a larger one is shown as it is stored."""


class Preview:
    """Cells shown on one line, as ``one_line`` shows values. Nothing is unpickled."""

    def __init__(self, nodes: Nodes, decoder: Decoder) -> None:
        self._nodes = nodes
        self._decoder = decoder

    def one_line(self, cell: bytes, *, width: int = WIDTH) -> str:
        """Return about ``width`` characters of a value, and the size of the rest.

        Cost: the nodes that hold these characters.
        """
        code = code_of(cell)
        if code in _BLOBS:
            return self._large_blob(cell, width) or one_line(self._decoder.decode(cell), width=width)
        if not _is_large(cell):
            return one_line(self._decoder.decode(cell), width=width)
        text = escape(self._show(cell, width))
        return text if len(text) <= width else text[:width] + "…"

    def _show(self, cell: bytes, budget: int) -> str:
        """Return what ``one_line`` does for a value within a container, as ``short_repr`` shows values."""
        code = code_of(cell)
        if code in _BLOBS:
            return self._large_blob(cell, budget) or short_repr(self._decoder.decode(cell), budget)
        if not _is_large(cell):
            return short_repr(self._decoder.decode(cell), budget)
        if code == Code.TUPLE:
            cells = split_cells(payload_of(cell))
            return self._joined("()", cells, len(cells), budget)
        tree = None if code in (Code.PACKED, Code.LIST_TREE, Code.DICT_TREE) else tree_of(cell)
        if tree is not None and code == Code.TUPLE_TREE:
            return self._joined("()", iter_cells(self._nodes, tree), tree.count, budget)
        if tree is not None:
            text = self._set(tree, budget)
            return text if code == Code.SET_TREE else f"frozenset({text})"
        typed = typed_parts(self._nodes, cell)
        if typed is not None:
            return self._typed(*typed, budget)
        opened = container_of(self._nodes, cell)
        if opened is None:
            return short_repr(self._decoder.decode(cell), budget)
        if opened.tree.shape is Shape.SEQUENCE:
            return self._joined("[]", iter_cells(self._nodes, opened.tree), opened.tree.count, budget)
        return joined("{", "}", self._entries(opened.tree, opened.order, budget), opened.tree.count, budget)

    def _typed(self, head: Head, data: bytes, budget: int) -> str:
        full_name = str(self._decoder.decode(head.name))
        if (table := summary_of_cell(self._nodes, self._decoder, full_name, data)) != "":
            return table
        name = short_name(full_name)
        opened = container_of(self._nodes, data)
        if (
            opened is None
            or opened.tree.shape is not Shape.MAP
            or not all(map(_is_field, order_keys(self._nodes, opened)))
        ):
            more = (
                {} if head.notes is None or _is_large(head.notes) else attributes_in(self._decoder.decode(head.notes))
            )
            return f"{name}({self._show(data, budget // 2 if more else budget)}{attributes_repr(more, budget // 2)})"
        tree = opened.tree
        keys = order_keys(self._nodes, opened)
        fields: Iterable[tuple[Any, bytes | None]] = (
            (self._decoder.decode_key(key), find(self._nodes, tree, key)) for key in keys
        )
        # the fields of a NamedTuple keep their order
        if tree.count <= _SORTED and is_record(replace(opened, head=head)):
            rank = field_rank(full_name)
            fields = sorted(fields, key=lambda field: (field[1] in _EMPTY, rank(field[0])))
        parts = (f"{key}={'?' if cell is None else self._show(cell, budget)}" for key, cell in fields)
        return joined(f"{name}(", ")", parts, opened.tree.count, budget)

    def _joined(self, brackets: str, cells: Iterable[bytes], count: int, budget: int) -> str:
        end = ",)" if brackets == "()" and count == 1 else brackets[1]
        return joined(brackets[0], end, (self._show(cell, budget) for cell in cells), count, budget)

    def _set(self, tree: Tree, budget: int) -> str:
        parts = (self._show(cell, budget) for cell in iter_cells(self._nodes, tree))
        return joined("{", "}", sorted(parts) if tree.count <= _SORTED else parts, tree.count, budget)

    def _entries(self, tree: Tree, order: list[bytes] | Tree | None, budget: int) -> Iterator[str]:
        if order is None:
            items: Iterator[tuple[bytes, bytes | None]] = iter_items(self._nodes, tree)
        else:
            keys = map(key_of_cell, iter_cells(self._nodes, order)) if isinstance(order, Tree) else iter(order)
            items = ((key, find(self._nodes, tree, key)) for key in keys)
        for key, cell in items:
            shown = "?" if cell is None else self._show(cell, budget)
            yield f"{short_repr(self._decoder.decode_key(key), budget)}: {shown}"

    def _large_blob(self, cell: bytes, width: int) -> str:
        """Return a text, bytes or an array of more than ``WHOLE`` bytes, or "" for a smaller one."""
        tree = tree_of(cell)
        assert tree is not None
        if tree.count <= WHOLE:
            return ""
        rest = f"({tree.count:,} bytes)"
        if code_of(cell) == Code.ARRAY_BLOB:
            return escape(f"array of {describe(*array_type(self._decoder, cell))} {rest}")
        head = self._head(tree, 4 * width)
        if code_of(cell) == Code.TEXT:
            return f"{escape(repr(head.decode('utf-8', 'replace')[:width]))}… {rest}"
        return f"{head[: width // 4]!r}… {rest}"

    def _head(self, tree: Tree, size: int) -> bytes:
        head = b""
        for address in (address for row in iter_chunks(self._nodes, tree) for address in row):
            raw = self._nodes.reader.read(Address(address))
            expect(raw, Address(address), Kind.CHUNK)
            head += raw[1 : 1 + size - len(head)]
            if len(head) == size:
                break
        return head


def array_type(decoder: Decoder, cell: bytes) -> tuple[Any, list[int]]:
    """Return the type of an array, in the form in which it is stored, and its shape."""
    parts = split_cells(payload_of(cell))
    descr, shape = parts[2:4] if code_of(cell) == Code.ARRAY_BLOB else parts[:2]
    return decoder.decode(descr), decoder.decode(shape)


def describe(descr: Any, shape: Iterable[int]) -> str:
    """Return the type and shape of an array as text: ``<f8, shape (3, 4)``."""
    return f"{descr if type(descr) is str else f'{len(descr)} fields'}, shape {tuple(shape)}"


def _is_field(order_key: bytes) -> bool:
    return order_key[:1] == b"s" and decoded_text(order_key[1:]).isidentifier()


def _is_large(cell: bytes) -> bool:
    """Return whether a cell is the top of more than itself."""
    return code_of(cell) == Code.PACKED or bool(references_of_cell(cell))
