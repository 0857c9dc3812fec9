"""Cells to live values, each with the baseline for detecting later changes. Layer: values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from versioned_state.objects.address import Address
from versioned_state.values.cells import ELEMENT_INLINE, Code, code_of, is_reference, split_typed
from versioned_state.values.codec.arrays import buffer_of
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.detection.baselines import Baseline, Buffer, Elements, Entries, Pinned, Typed, Whole
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import GROUP_BYTES, GROUP_SIZE, Group, Groups, hash_bytes
from versioned_state.values.trees.blob import Blob, binary_spans
from versioned_state.values.trees.nodes import Nodes, Shape, read_node
from versioned_state.values.trees.references import order_of, read_tree, unpack_payload
from versioned_state.values.trees.tree import Tree
from versioned_state.values.typed.older import OlderForms
from versioned_state.values.typed.registry import layout_of, quick_fingerprint, take_apart
from versioned_state.values.typed.tagged import Tagged


class LiveDecoder(Decoder):
    """A decoder of values that are tracked.

    Args:
        fingerprinter: makes the fingerprints of baselines.
        older: records instances that were stored in an older form; the encoder writes them as they were stored.
    """

    def __init__(
        self, nodes: Nodes, policy: PicklePolicy, fingerprinter: Fingerprinter, older: OlderForms | None = None
    ) -> None:
        super().__init__(nodes, policy)
        self._fingerprinter = fingerprinter
        self._typed.older = older

    def decode_live(self, cell: bytes) -> tuple[Any, Baseline | None]:
        """Return the value, and the baseline that ``Encoder.encode`` gives for it. Raises as ``decode``."""
        result: tuple[Any, Baseline | None] = self._run((cell,), lambda: self._live(cell))
        return result

    def decode_live_many(self, cells: Sequence[bytes]) -> list[tuple[Any, Baseline | None]]:
        """Return what ``decode_live`` does for some cells, whose objects are read together."""
        result: list[tuple[Any, Baseline | None]] = self._run(cells, lambda: [self._live(cell) for cell in cells])
        return result

    def _live(self, cell: bytes) -> tuple[Any, Baseline | None]:
        code = code_of(cell)
        if code == Code.TYPED:
            return self._live_typed(cell)
        if (
            code is None
            or code == Code.PACKED
            or (code < Code.LIST_TREE and code != Code.OBJECT and len(cell) <= ELEMENT_INLINE)
        ):
            return self._read(cell), None
        if code == Code.LIST_TREE:
            return self._live_list(cell)
        if code == Code.DICT_TREE:
            return self._live_dict(cell)
        value = self._read(cell)
        if code in (Code.TEXT, Code.BYTES_BLOB):
            return value, Pinned(type(value), cell, value, self._blob_of(cell))
        if code in (Code.BYTEARRAY_BLOB, Code.ARRAY_BLOB):
            form, view = buffer_of(value)
            hashes = [hash_bytes(view[a:b]) for a, b in binary_spans(len(view))]
            return value, Buffer(type(value), cell, form, len(view), hashes, self._blob_of(cell))
        if code == Code.OBJECT:
            if len(cell) <= ELEMENT_INLINE and layout_of(type(value)) is None:
                return value, None
            # A value that is stored as an object only because it holds a shared part has no other fingerprint.
            return value, Whole(type(value), cell, self._fingerprinter.of_object(value), is_object=True)
        return value, Whole(type(value), cell, self._fingerprinter.of([value])[0])

    def _live_typed(self, cell: bytes) -> tuple[Any, Baseline | None]:
        name_cell, notes_cell, data_cell = split_typed(cell)
        if not is_reference(data_cell) and (notes_cell is None or not is_reference(notes_cell)):
            return self._read(cell), None
        data, inner = self._live(data_cell)
        name, notes = self._unpack(name_cell), None if notes_cell is None else self._unpack(notes_cell)
        value, same = self._typed.make(name, data, notes)
        if type(value) is not Tagged and layout_of(type(value)) is None:
            # The class has customised its pickling since: the value becomes an object when it changes.
            return value, Whole(type(value), cell, self._fingerprinter.of_object(value), is_object=True)
        if not same or inner is None:
            # The data that would be stored now. If it is another object, its baseline does not apply.
            record = take_apart(value)
            assert record is not None
            _, data, notes = record
            inner = inner if same else None
        fingerprints = self._fingerprinter.of_record(data if inner is None else None, notes)
        return value, Typed(type(value), cell, inner, *fingerprints, quick_fingerprint(value) if same else None)

    def _blob_of(self, cell: bytes) -> Blob:
        """Return the tree and the chunks of a fetched blob."""
        tree = read_tree(Shape.BLOB, unpack_payload(cell))
        chunks = [Address(chunk) for chunk in self._chunks(tree)]
        return Blob(tree, chunks, [len(self._raws[chunk]) - 1 for chunk in chunks])

    def _live_list(self, cell: bytes) -> tuple[list[Any], Baseline]:
        tree = read_tree(Shape.SEQUENCE, unpack_payload(cell))
        self._spend(tree)
        values, groups = self._list_live(tree)
        return values, Elements(list, cell, tree, groups, groups.firsts(values))

    def _live_dict(self, cell: bytes) -> tuple[dict[Any, Any], Baseline]:
        tree, order = read_tree(Shape.MAP, unpack_payload(cell)), order_of(cell)
        self._spend(tree)
        found: list[tuple[Any, Baseline | None]] = []

        def read(part: bytes) -> Any:
            found.append(self._live(part))
            return found[-1][0]

        entries = self._dict(tree, order, read)
        children = {index: child for index, (_, child) in enumerate(found) if child is not None}
        keys = list(entries)
        groups = self._fingerprinter.group(list(entries.values()), [1] * len(keys), children)
        return entries, Entries(dict, cell, tree, order, keys, self._fingerprinter.of(keys)[0], groups)

    def _list_live(self, tree: Tree) -> tuple[list[Any], Groups]:
        """Return the elements, with the groups to compare them with: a leaf of JSON types is its own fingerprint."""
        values: list[Any] = []
        groups = Groups()
        plain: list[bytes] = []
        size = weight = 0
        for address, inlined in self._tops(tree):
            leaf = self._leaves.pop(address, None) if address is not None else None
            if address is not None and leaf is not None and leaf[1]:
                values += leaf[0]
                raw = self._raws[address]
                plain.append(raw)
                size += len(leaf[0])
                weight += len(raw)
                if len(values) > tree.count:
                    break
                if size >= GROUP_SIZE or weight >= GROUP_BYTES:
                    groups.add(Group(size, tuple(plain), weight))
                    plain, size, weight = [], 0, 0
                continue
            if plain:
                groups.add(Group(size, tuple(plain), weight))
                plain, size, weight = [], 0, 0
            node = inlined if address is None else read_node(tree.shape, self._raws[address])
            assert node is not None
            children: dict[int, Baseline] = {}
            if leaf is not None:  # the leaf has no references, so no element has a baseline of its own
                part = leaf[0]
            else:
                part = []
                for index, cell in enumerate(node.items):
                    value, child = self._live(cell)
                    part.append(value)
                    if child is not None:
                        children[index] = child
            values += part
            groups.extend(self._fingerprinter.group(part, list(map(len, node.items)), children))
        if plain:
            groups.add(Group(size, tuple(plain), weight))
        if len(values) != tree.count:
            raise ValueError(f"{len(values)} elements where {tree.count} were counted")
        return values, groups
