"""Lists, tuples and dicts as trees, whichever form their cells have: inline, packed in a blob, or large. Layer: values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from versioned_state.errors import CorruptObjectError, StateError
from versioned_state.values.cells import MALFORMED, Code, code_of, is_array, is_map, key_of_cell, payload_of, split_cells
from versioned_state.values.trees.blob import read_blob
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import order_of, tree_of
from versioned_state.values.trees.tree import Tree, iter_cells, iter_items

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Container:
    """A list or a dict, as a tree.

    ``order`` is the order of a dict's entries: order keys for a small dict, the tree of the keys for a large one, None if they are sorted.
    """

    tree: Tree
    order: list[bytes] | Tree | None = None


def unpacked(nodes: Nodes, cell: bytes) -> bytes:
    """The inline cell in a packed one; any other cell itself."""
    tree = tree_of(cell, Code.PACKED)
    return cell if tree is None else bytes(read_blob(nodes, tree))


def container_of(nodes: Nodes, cell: bytes) -> Container | None:
    """The list or dict of a cell, or None if the cell is of another type. Raises ``CorruptObjectError``."""
    return _typed(_container_of, nodes, cell)


def sequence_of(nodes: Nodes, cell: bytes) -> Tree | None:
    """The elements of a list or tuple, or None if the cell is of another type. Raises ``CorruptObjectError``."""
    return _typed(_sequence_of, nodes, cell)


def _typed(read: Callable[[Nodes, bytes], T], nodes: Nodes, cell: bytes) -> T:
    try:
        return read(nodes, cell)
    except StateError:
        raise
    except MALFORMED as error:
        raise CorruptObjectError("(a value)", f"it does not decode: {type(error).__name__}: {error}") from error


def _container_of(nodes: Nodes, cell: bytes) -> Container | None:
    cell = unpacked(nodes, cell)
    code = code_of(cell)
    if code is not None:
        tree = tree_of(cell, Code.LIST_TREE, Code.DICT_TREE)
        return None if tree is None else Container(tree, order_of(cell) if code == Code.DICT_TREE else None)
    if is_array(cell):
        return Container(_leaf(split_cells(cell)))
    if not is_map(cell):
        return None
    parts = split_cells(cell)
    keys = [key_of_cell(key) for key in parts[::2]]
    if len(set(keys)) < len(keys):  # several NaNs: no path tells them apart
        return None
    entries = sorted(zip(keys, parts[1::2], strict=True))
    node = Node(0, [value for _, value in entries], None, [key for key, _ in entries])
    return Container(Tree(Shape.MAP, len(entries), node), keys)


def _sequence_of(nodes: Nodes, cell: bytes) -> Tree | None:
    cell = unpacked(nodes, cell)
    if code_of(cell) == Code.TUPLE:
        return _leaf(split_cells(payload_of(cell)))
    if is_array(cell):
        return _leaf(split_cells(cell))
    return tree_of(cell, Code.LIST_TREE, Code.TUPLE_TREE)


def order_keys(nodes: Nodes, container: Container) -> list[bytes]:
    """The order keys of a dict, in the order of its entries."""
    if isinstance(container.order, Tree):
        before = 0
        keys: dict[bytes, None] = {}
        for cell in iter_cells(nodes, container.order):
            keys[key_of_cell(cell)] = None
            if len(keys) > container.tree.count or len(keys) == before:
                raise CorruptObjectError("(a dict)", "the order of its keys has a key twice, or more keys than it has entries")
            before = len(keys)
        return list(keys)
    if container.order is None:
        return [key for key, _ in iter_items(nodes, container.tree)]
    return container.order


def _leaf(cells: list[bytes]) -> Tree:
    return Tree(Shape.SEQUENCE, len(cells), Node(0, cells))
