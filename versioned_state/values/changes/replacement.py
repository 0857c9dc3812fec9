"""A part of a value replaced or removed at a path: the cells around it are composed again. Layer: values."""

from __future__ import annotations

from versioned_state.errors import UnknownPathError
from versioned_state.values.cells import (
    ELEMENT_INLINE,
    ENTRY_INLINE,
    Code,
    array,
    code_of,
    extension,
    payload_of,
    split_cells,
)
from versioned_state.values.containers import Container, container_of, order_keys, typed_parts, unpacked
from versioned_state.values.encode.compose import LIMITS, Composer
from versioned_state.values.keys import root_key_of
from versioned_state.values.paths.lookup import offset_of, order_key_of
from versioned_state.values.paths.path import Key, StatePath, Step
from versioned_state.values.trees.edit import Edit, edit_map, splice
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.references import tree_cell, tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_items


def replace_in_root(composer: Composer, root: Tree, path: StatePath, cell: bytes) -> Tree:
    """Replace the cell at a path through lists and dicts.

    Returns the new root. Cost: one path down each tree on the way.

    Raises:
        UnknownPathError: the root has nothing at the path.
    """
    root_key, rest = root_key_of(path)
    old = find(composer.nodes, root, root_key)
    new = None if old is None else edited_at(composer, old, rest.steps, cell, ENTRY_INLINE)
    if new is None:
        raise UnknownPathError(str(path))
    return edit_map(composer.nodes, root, {root_key: new})


def edited_at(composer: Composer, old: bytes, steps: tuple[Step, ...], new: bytes | None, limit: int) -> bytes | None:
    """Return the cell of a value in which the part that steps lead to has another cell, or is gone.

    Cost: one path down each tree on the way.

    Args:
        new: the cell of the part, in any form, or None to remove it. A part of a tuple can only be removed.
        limit: inline bytes that the place of the value takes.

    Returns:
        None if the value has no such part.
    """
    if not steps:
        return None if new is None else composer.fit(new, limit)
    cell = unpacked(composer.nodes, old)
    code = code_of(cell)
    if code == Code.TYPED:
        parts = typed_parts(composer.nodes, cell)
        assert parts is not None
        head, data = parts
        edited = edited_at(composer, data, steps, new, ENTRY_INLINE)
        return None if edited is None else composer.typed_of(head, edited, limit)
    if code in (Code.TUPLE, Code.TUPLE_TREE):
        return _without_in_tuple(composer, cell, steps, limit) if new is None else None
    container = container_of(composer.nodes, cell)
    if container is None:
        return None
    large = code in (Code.LIST_TREE, Code.DICT_TREE)
    if container.tree.shape is Shape.SEQUENCE:
        return _in_list(composer, container.tree, steps, new, limit, large=large)
    return _in_dict(composer, container, steps, new, limit, large=large)


def _in_list(
    composer: Composer, tree: Tree, steps: tuple[Step, ...], new: bytes | None, limit: int, *, large: bool
) -> bytes | None:
    edit = _edit_of_element(composer, tree, steps, new)
    if edit is None:
        return None
    edited = splice(composer.nodes, tree, [edit])
    if large:
        return composer.list_cell(edited, limit)
    return composer.list_of(list(iter_cells(composer.nodes, edited)), limit)


def _edit_of_element(composer: Composer, tree: Tree, steps: tuple[Step, ...], new: bytes | None) -> Edit | None:
    """Return the edit that removes the element at the first step, or puts it there with another part."""
    index = offset_of(steps[0], tree.count)
    if index is None:
        return None
    if new is None and len(steps) == 1:
        return Edit(index, index + 1, [])
    old = next(iter_cells(composer.nodes, tree, index, index + 1))
    cell = edited_at(composer, old, steps[1:], new, LIMITS[Shape.SEQUENCE])
    return None if cell is None else Edit(index, index + 1, [cell])


def _in_dict(
    composer: Composer, found: Container, steps: tuple[Step, ...], new: bytes | None, limit: int, *, large: bool
) -> bytes | None:
    if not isinstance(steps[0], Key):
        return None
    wanted = order_key_of(steps[0])
    old = find(composer.nodes, found.tree, wanted)
    if old is None:
        return None
    cell = edited_at(composer, old, steps[1:], new, LIMITS[Shape.MAP])
    if cell is None and len(steps) > 1:
        return None
    tree = edit_map(composer.nodes, found.tree, {wanted: cell})
    order = found.order
    if cell is None and order is not None:
        order = [key for key in order_keys(composer.nodes, found) if key != wanted]
    if large:
        return composer.dict_cell(tree, order, limit)
    entries = dict(iter_items(composer.nodes, tree))
    return composer.dict_of({key: entries[key] for key in (order if isinstance(order, list) else entries)}, limit)


def _without_in_tuple(composer: Composer, cell: bytes, steps: tuple[Step, ...], limit: int) -> bytes | None:
    tree = tree_of(cell)
    if tree is None:
        cells = split_cells(payload_of(cell))
        index = offset_of(steps[0], len(cells))
        if index is None:
            return None
        part = edited_at(composer, cells[index], steps[1:], None, ELEMENT_INLINE)
        if part is None and len(steps) > 1:
            return None
        cells[index : index + 1] = [] if part is None else [part]
    else:
        edit = _edit_of_element(composer, tree, steps, None)
        if edit is None:
            return None
        tree = splice(composer.nodes, tree, [edit])
        if tree.count > ELEMENT_INLINE:
            return tree_cell(Code.TUPLE_TREE, tree)
        cells = list(iter_cells(composer.nodes, tree))
    wholes = [whole for part in cells if (whole := composer.inline(part)) is not None]
    whole = extension(Code.TUPLE, array(wholes)) if len(wholes) == len(cells) else b""
    if whole and len(whole) <= ELEMENT_INLINE:
        return composer.fit(whole, limit)
    assert tree is not None, "a part of an inline value does not outgrow it by losing something"
    return tree_cell(Code.TUPLE_TREE, tree)
