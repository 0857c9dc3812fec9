"""A cell that replaces another one at a path: the cells around it are composed again. Layer: values."""

from __future__ import annotations

from versioned_state.errors import UnknownPathError
from versioned_state.values.cells import ENTRY_INLINE
from versioned_state.values.containers import Container, container_of, is_large, typed_parts
from versioned_state.values.encode.compose import LIMITS, Composer
from versioned_state.values.keys import root_key_of
from versioned_state.values.paths.lookup import offset_of, order_key_of
from versioned_state.values.paths.path import Key, StatePath, Step
from versioned_state.values.trees.edit import Edit, edit_map, splice
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_items


def replace_in_root(composer: Composer, root: Tree, path: StatePath, cell: bytes) -> Tree:
    """Replace the cell at a path through lists and dicts.

    Returns the new root. Cost: one path down each tree on the way.

    Raises:
        UnknownPathError: the root has nothing at the path.
    """
    root_key, rest = root_key_of(path)
    old = find(composer.nodes, root, root_key)
    new = None if old is None else _replaced(composer, old, rest.steps, cell, ENTRY_INLINE)
    if new is None:
        raise UnknownPathError(str(path))
    return edit_map(composer.nodes, root, {root_key: new})


def _replaced(composer: Composer, old: bytes, steps: tuple[Step, ...], cell: bytes, limit: int) -> bytes | None:
    if not steps:
        return composer.fit(cell, limit)
    typed = typed_parts(composer.nodes, old)
    if typed is not None:
        data = _replaced(composer, typed[1], steps, cell, ENTRY_INLINE)
        return None if data is None else composer.typed_of(typed[0], data, limit)
    found = container_of(composer.nodes, old)
    if found is None:
        return None
    large = is_large(composer.nodes, old)
    if found.tree.shape is Shape.SEQUENCE:
        return _in_list(composer, found.tree, steps, cell, limit, large=large)
    return _in_dict(composer, found, steps, cell, limit, large=large)


def _in_list(
    composer: Composer, tree: Tree, steps: tuple[Step, ...], cell: bytes, limit: int, *, large: bool
) -> bytes | None:
    index = offset_of(steps[0], tree.count)
    if index is None:
        return None
    old = next(iter_cells(composer.nodes, tree, index, index + 1))
    new = _replaced(composer, old, steps[1:], cell, LIMITS[Shape.SEQUENCE])
    if new is None:
        return None
    edited = splice(composer.nodes, tree, [Edit(index, index + 1, [new])])
    if large:
        return composer.list_cell(edited, limit)
    return composer.list_of(list(iter_cells(composer.nodes, edited)), limit)


def _in_dict(
    composer: Composer, found: Container, steps: tuple[Step, ...], cell: bytes, limit: int, *, large: bool
) -> bytes | None:
    if not isinstance(steps[0], Key):
        return None
    key = order_key_of(steps[0])
    old = find(composer.nodes, found.tree, key)
    new = None if old is None else _replaced(composer, old, steps[1:], cell, LIMITS[Shape.MAP])
    if new is None:
        return None
    tree = edit_map(composer.nodes, found.tree, {key: new})
    if large:
        return composer.dict_cell(tree, found.order, limit)
    entries = dict(iter_items(composer.nodes, tree))
    order = found.order if isinstance(found.order, list) else list(entries)
    return composer.dict_of({each: entries[each] for each in order}, limit)
