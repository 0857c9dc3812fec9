"""Following a path: the cell that steps lead to. Layer: values.

Nothing on the way is decoded, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterable

from versioned_state.values.cells import key_of_cell, order_key
from versioned_state.values.containers import container_of, sequence_of, unpacked
from versioned_state.values.encode.inline import encode_key
from versioned_state.values.paths.path import Index, Key, Step
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import find, iter_cells


def find_cell(nodes: Nodes, cell: bytes | None, steps: Iterable[Step]) -> bytes | None:
    """Return the cell that steps lead to from another one, or None if nothing is there.

    Cost: one path down each tree on the way.
    """
    for step in steps:
        if cell is None:
            return None
        cell = find_part(nodes, cell, step)
    return cell


def find_part(nodes: Nodes, cell: bytes, step: Step) -> bytes | None:
    """Return the cell that one step leads to, or None if nothing is there."""
    if isinstance(step, Index):
        tree = sequence_of(nodes, cell)
        if tree is None:
            from versioned_state.values.paths.elements import element_cell

            return element_cell(nodes, unpacked(nodes, cell), step.index)
        index = offset_of(step, tree.count)
        return None if index is None else next(iter_cells(nodes, tree, index, index + 1), None)
    container = container_of(nodes, cell)
    if container is None or container.tree.shape is not Shape.MAP or not isinstance(step, Key):
        return None
    return find(nodes, container.tree, order_key_of(step))


def offset_of(step: Step, count: int) -> int | None:
    """Return an index's offset from the start of ``count`` elements, or None if the step is not such an index."""
    if not isinstance(step, Index):
        return None
    offset = step.index + count if step.index < 0 else step.index
    return offset if 0 <= offset < count else None


def order_key_of(step: Key) -> bytes:
    """Return the order key of a step into a dict. Raises ``PickleRefusedError`` for a key that is not data."""
    if step.cell is not None:
        return key_of_cell(step.cell)
    return order_key(step.key, b"" if type(step.key) is str else encode_key(step.key))
