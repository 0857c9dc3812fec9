"""The cell that steps lead to, for whoever walks many trees over one cache of nodes. Layer: values.

Nothing on the way is decoded but keys that are no strings, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterable

from versioned_state.values.codec.scalars import Code, code_of, payload_of
from versioned_state.values.decode import tree_of
from versioned_state.values.encode import Encoder, key_of_cell, order_key
from versioned_state.values.opened import open_cell, split_cells
from versioned_state.values.paths.path import Index, Key, Step
from versioned_state.values.trees.blob import read_blob
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree, iter_cells, rank


def find_cell(encoder: Encoder, cell: bytes | None, steps: Iterable[Step]) -> bytes | None:
    """The cell that steps lead to from one; None where there is nothing. Cost: one path down each tree on the way.

    Args:
        encoder: whose nodes are read.
        cell: None leads nowhere.
        steps: indexes and keys.
    """
    for step in steps:
        if cell is None:
            return None
        cell = _step(encoder, cell, step)
    return cell


def _step(encoder: Encoder, cell: bytes, step: Step) -> bytes | None:
    nodes = encoder.nodes
    code = code_of(cell)
    if code == Code.PACKED:
        packed = tree_of(cell)
        assert packed is not None
        cell = bytes(read_blob(nodes, packed))
        code = code_of(cell)
    if code == Code.TUPLE_TREE:
        tree = tree_of(cell)
        assert tree is not None
        return _element(nodes, tree, step)
    if code == Code.TUPLE:
        cells = split_cells(payload_of(cell))
        return cells[step.index] if isinstance(step, Index) and -len(cells) <= step.index < len(cells) else None
    opened = open_cell(nodes, cell)
    if opened is None:
        return None
    if opened.tree.shape is Shape.SEQUENCE:
        return _element(nodes, opened.tree, step)
    if not isinstance(step, Key):
        return None
    if step.cell is not None:
        wanted = key_of_cell(step.cell)
    else:
        wanted = order_key(step.key, b"" if type(step.key) is str else encoder.encode_inline(step.key, "a key"))
    return rank(nodes, opened.tree, wanted)[1]


def _element(nodes: Nodes, tree: Tree, step: Step) -> bytes | None:
    if not isinstance(step, Index):
        return None
    index = step.index + tree.count if step.index < 0 else step.index
    return next(iter_cells(nodes, tree, index, index + 1), None) if 0 <= index < tree.count else None
