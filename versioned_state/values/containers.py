"""Lists, tuples, dicts and typed values as trees, in any form of their cells: inline, packed in a blob, or large.

Layer: values.

A typed value is treated as the container that its data is: a record of fields is a dict, and ``.name`` is the step into
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from versioned_state.errors import CorruptObjectError, StateError
from versioned_state.records import dataclass, replace
from versioned_state.values.cells import (
    MALFORMED,
    Code,
    are_sorted,
    code_of,
    is_array,
    is_map,
    key_of_cell,
    order_key,
    pack_text,
    payload_of,
    split_cells,
    split_typed,
)
from versioned_state.values.trees.blob import read_blob
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import order_of, tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_items

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Container:
    """A list or a dict, or the data of a typed value that is one, as a tree.

    ``order`` is the order of a dict's entries: order keys for a small dict, the tree of the keys for a large one, None
    if they are sorted. ``head`` is what makes it a typed value.
    """

    tree: Tree
    order: list[bytes] | Tree | None = None
    head: Head | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The name of a typed value, and its notes, as cells."""

    name: bytes
    notes: bytes | None


_DICTS: Final = frozenset(map(pack_text, ("OrderedDict", "Counter", "defaultdict")))


def is_record(container: Container) -> bool:
    """Return whether a dict holds the fields of a typed value.

    Fields are in the order of their names, which has no meaning.

    A subclass of dict whose keys are in that order counts as one too.
    """
    if container.head is None or container.head.name in _DICTS:
        return False
    order = container.order
    return order is None or (isinstance(order, list) and are_sorted(order))


def attributes_of(nodes: Nodes, head: Head) -> bytes | None:
    """Return the cell of the attributes that a container has in addition to its elements, or None.

    No path leads to them.
    """
    notes = None if head.notes is None else container_of(nodes, head.notes)
    if notes is None or notes.tree.shape is not Shape.MAP:
        return None
    return find(nodes, notes.tree, order_key("fields", b""))


def unpacked(nodes: Nodes, cell: bytes) -> bytes:
    """Return the inline cell in a packed cell, or any other cell unchanged."""
    if code_of(cell) != Code.PACKED:
        return cell
    tree = tree_of(cell)
    assert tree is not None
    return bytes(read_blob(nodes, tree))


def container_of(nodes: Nodes, cell: bytes) -> Container | None:
    """Return the list or dict of a cell, or None if the cell is of another type. Raises ``CorruptObjectError``."""
    return guarded(_container_of, nodes, cell)


def sequence_of(nodes: Nodes, cell: bytes) -> Tree | None:
    """Return the elements of a list or tuple, or None if the cell is of another type. Raises ``CorruptObjectError``."""
    return guarded(_sequence_of, nodes, cell)


def typed_parts(nodes: Nodes, cell: bytes) -> tuple[Head, bytes] | None:
    """Return the head of a typed value and the cell of its data, or None if the cell is of another type.

    Raises ``CorruptObjectError``.
    """
    return guarded(_typed_parts, nodes, cell)


def is_large(nodes: Nodes, cell: bytes) -> bool:
    """Return whether a list, a dict or a typed value's data is a tree, whose parts have forms of their own."""
    parts = typed_parts(nodes, cell)
    return code_of(cell if parts is None else parts[1]) in (Code.LIST_TREE, Code.DICT_TREE)


def _typed_parts(nodes: Nodes, cell: bytes) -> tuple[Head, bytes] | None:
    cell = unpacked(nodes, cell)
    if code_of(cell) != Code.TYPED:
        return None
    name, notes, data = split_typed(cell)
    return Head(name, notes), data


def guarded(read: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of a call that reads stored cells.

    Raises ``CorruptObjectError`` for bytes that no writer writes.
    """
    try:
        return read(*arguments, **options)
    except StateError:
        raise
    except MALFORMED as error:
        raise CorruptObjectError("(a value)", f"it does not decode: {type(error).__name__}: {error}") from error


def _container_of(nodes: Nodes, cell: bytes) -> Container | None:
    code = code_of(cell)
    if code == Code.PACKED:
        cell = unpacked(nodes, cell)
        code = code_of(cell)
    if code == Code.TYPED:
        typed = _typed_parts(nodes, cell)
        assert typed is not None
        inner = None if code_of(typed[1]) == Code.TYPED else _container_of(nodes, typed[1])
        return None if inner is None else replace(inner, head=typed[0])
    if code is not None:
        tree = tree_of(cell, Code.LIST_TREE, Code.DICT_TREE)
        return None if tree is None else Container(tree, order_of(cell) if code == Code.DICT_TREE else None)
    if is_array(cell):
        return Container(_leaf(split_cells(cell)))
    if not is_map(cell):
        return None
    parts = split_cells(cell)
    keys = [*map(key_of_cell, parts[::2])]
    entries = dict(zip(keys, parts[1::2], strict=True))
    if len(entries) < len(keys):  # several NaNs: no path distinguishes them
        return None
    ordered = sorted(keys)
    return Container(Tree(Shape.MAP, len(keys), Node(0, [entries[key] for key in ordered], None, ordered)), keys)


def _sequence_of(nodes: Nodes, cell: bytes) -> Tree | None:
    if code_of(cell) == Code.LIST_TREE:  # first, since it is the most frequent one
        return tree_of(cell)
    cell = unpacked(nodes, cell)
    if code_of(cell) == Code.TYPED:
        return _sequence_of_typed(nodes, cell)
    if code_of(cell) == Code.TUPLE:
        return _leaf(split_cells(payload_of(cell)))
    if is_array(cell):
        return _leaf(split_cells(cell))
    return tree_of(cell, Code.LIST_TREE, Code.TUPLE_TREE)


def _sequence_of_typed(nodes: Nodes, cell: bytes) -> Tree | None:
    """Return the elements of a subclass of list or tuple. Those of a NamedTuple are its fields in their order."""
    container = _container_of(nodes, cell)
    if container is not None and container.tree.shape is Shape.MAP:
        notes = container.head.notes if container.head is not None else None
        if notes is None or b"\xa5tuple\xc3" not in notes:
            return None
        cells = [find(nodes, container.tree, key) for key in order_keys(nodes, container)]
        return _leaf([each for each in cells if each is not None])
    parts = _typed_parts(nodes, cell)
    assert parts is not None
    return None if code_of(parts[1]) == Code.TYPED else _sequence_of(nodes, parts[1])


def order_keys(nodes: Nodes, container: Container) -> list[bytes]:
    """Return the order keys of a dict, in the order of its entries."""
    if isinstance(container.order, Tree):
        before = 0
        keys: dict[bytes, None] = {}
        for cell in iter_cells(nodes, container.order):
            keys[key_of_cell(cell)] = None
            if len(keys) > container.tree.count or len(keys) == before:
                raise CorruptObjectError(
                    "(a dict)", "the order of its keys has a key twice, or more keys than it has entries"
                )
            before = len(keys)
        return list(keys)
    if container.order is None:
        return [key for key, _ in iter_items(nodes, container.tree)]
    return container.order


def _leaf(cells: list[bytes]) -> Tree:
    return Tree(Shape.SEQUENCE, len(cells), Node(0, cells))
