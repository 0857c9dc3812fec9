"""Edits of a list by position, in canonical form whatever its length becomes. Layer: values."""

from __future__ import annotations

from versioned_state.values.cells import ENTRY_INLINE, Code, code_of
from versioned_state.values.containers import container_of, sequence_of
from versioned_state.values.encode.compose import Composer
from versioned_state.values.trees.edit import splice_cells
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree, as_read, empty

Replacement = tuple[int, int, list[bytes]]
"""The elements [start, end) of a list, and the cells that take their place."""


def elements_of(nodes: Nodes, cell: bytes | None) -> Tree | None:
    """Return the elements of a list, which is empty if there is no cell, or None if the cell is not of a list."""
    if cell is None:
        return empty(Shape.SEQUENCE)
    if code_of(cell) == Code.LIST_TREE:
        return sequence_of(nodes, cell)
    found = container_of(nodes, cell)
    return None if found is None or found.head is not None or found.tree.shape is not Shape.SEQUENCE else found.tree


def splice_list(
    composer: Composer, cell: bytes | None, replacements: list[Replacement], elements: Tree | None = None
) -> tuple[bytes, Tree | None]:
    """Return the cell of a list in a state after these replacements, and its elements, if they are known.

    The cell depends on the elements alone, not on the edits. Cost: the touched leaves and a path to each; a list of up
    to ``ELEMENT_INLINE`` bytes is written whole.

    Args:
        cell: that of a list, or None for an empty list that is not stored.
        replacements: in order, and without overlaps. Their cells have the form of elements of a large list.
        elements: as ``elements_of`` gives them, if they are known.
    """
    if cell is None:
        tree = empty(Shape.SEQUENCE)
    elif not replacements:
        return cell, elements
    elif elements is not None and code_of(cell) == Code.LIST_TREE:
        tree = elements
    else:
        container = composer.container(cell, large=True)
        assert container is not None, "the cell is of a list"
        tree = container.tree
    edited = splice_cells(composer.nodes, tree, replacements)
    if edited is tree and cell is not None:
        return cell, elements
    cell = composer.list_cell(edited, ENTRY_INLINE)
    return cell, as_read(edited) if code_of(cell) == Code.LIST_TREE else None
