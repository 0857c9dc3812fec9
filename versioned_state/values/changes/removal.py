"""A state's tree without the values at some paths. Layer: values.

Only the nodes on the path are read and written. The result is canonical: it is the tree that a state without these
values has. Nothing is unpickled, and no other value is decoded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from versioned_state.errors import InvalidPathError
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
from versioned_state.values.keys import namespace_prefix, path_of, root_key_of, user_key
from versioned_state.values.paths.lookup import offset_of, order_key_of
from versioned_state.values.paths.path import Index, Key, Namespace, StatePath, Step, as_path
from versioned_state.values.trees.edit import Edit, edit_map, splice
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_items, rank

_CELLS_KEPT: Final = 4096
"""Results kept: most commits hold most values as the commit before does."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target to remove: the root keys in a range, or a part of one root key's value.

    ``name`` is the target as the caller wrote it; ``word`` is its last key or name.
    """

    name: str
    word: str
    start: bytes
    end: bytes
    steps: tuple[Step, ...] = ()

    @property
    def is_range(self) -> bool:
        """Whether the target may be several root keys."""
        return self.end != self.start + b"\0"


def target_of(path: str | StatePath) -> Target:
    """Return the target at a path: a key, all of a namespace (``@worker``), or a part of a value.

    Raises ``InvalidPathError``.
    """
    if isinstance(path, str) and path.startswith("@"):
        found = StatePath.parse(f"{path}.x")  # a namespace alone is not a path, since it has no value
        if all(isinstance(step, Namespace) for step in found.steps[:-1]):
            path = StatePath(found.steps[:-1])
    steps = as_path(path).steps
    names = [step.name for step in steps if isinstance(step, Namespace)]
    if steps and len(names) == len(steps):
        prefix = b"".join(map(namespace_prefix, names))
        return Target(str(path) if isinstance(path, str) else f"@{names[-1]}", names[-1], prefix, prefix[:-1] + b"\x01")
    root_key, rest = root_key_of(StatePath(steps))
    last = steps[-1]
    if not isinstance(last, Key | Index):
        raise InvalidPathError(str(path), 0, "it ends with a namespace")
    word = last.key if isinstance(last, Key) and type(last.key) is str else ""
    return Target(str(StatePath(steps)), word, root_key, root_key + b"\0", rest.steps)


def target_of_prefix(prefix: str) -> Target:
    """Return the target for all keys of the state that begin with a prefix."""
    start = user_key(prefix)
    return Target(f"keys that begin with {prefix!r}", prefix, start, start + b"\xff")


class Remover:
    """The removal of targets from trees. Not for two threads at once.

    Args:
        nodes: reads the trees, and stages the new nodes.
    """

    def __init__(self, nodes: Nodes, targets: Iterable[Target]) -> None:
        self._nodes = nodes
        self._targets = tuple(targets)
        self._composer = Composer(nodes)
        self._kept: OrderedDict[tuple[bytes, Target], bytes | None] = OrderedDict()

    def without(self, tree: Tree) -> Tree:
        """Return the root without the targets, or the same root if it has none of them.

        Cost: one path for each target, and their size.
        """
        for target in self._targets:
            changes: dict[bytes, bytes | None] = {}
            for key, cell in self._under(tree, target):
                if not target.steps:
                    changes[key] = None
                elif (new := self._known(cell, target)) is not None:
                    changes[key] = new
            if changes:
                tree = edit_map(self._nodes, tree, changes)
        return tree

    def paths_in(self, tree: Tree) -> Iterator[str]:
        """Yield the names of the targets that a root has."""
        for target in self._targets:
            for key, cell in self._under(tree, target):
                if not target.steps or self._known(cell, target) is not None:
                    yield str(path_of(key) / StatePath(target.steps))

    def _under(self, tree: Tree, target: Target) -> list[tuple[bytes, bytes]]:
        low = rank(self._nodes, tree, target.start)
        high = rank(self._nodes, tree, target.end)
        return list(iter_items(self._nodes, tree, low, high))

    def _known(self, cell: bytes, target: Target) -> bytes | None:
        kept = self._kept
        if (cell, target) not in kept:
            kept[cell, target] = self._without(cell, target.steps, ENTRY_INLINE)
            if len(kept) > _CELLS_KEPT:
                kept.popitem(last=False)
        return kept[cell, target]

    def _without(self, cell: bytes, steps: tuple[Step, ...], limit: int) -> bytes | None:
        """Return the cell without the part that steps lead to, or None if there is none."""
        cell = unpacked(self._nodes, cell)
        code = code_of(cell)
        if code == Code.TYPED:
            return self._without_in_typed(cell, steps, limit)
        if code in (Code.TUPLE, Code.TUPLE_TREE):
            return self._without_in_tuple(cell, steps, limit)
        container = container_of(self._nodes, cell)
        if container is None:
            return None
        large = code in (Code.LIST_TREE, Code.DICT_TREE)
        if container.tree.shape is Shape.SEQUENCE:
            return self._without_in_list(container.tree, steps, limit, large=large)
        return self._without_in_dict(container, steps, limit, large=large)

    def _without_in_typed(self, cell: bytes, steps: tuple[Step, ...], limit: int) -> bytes | None:
        parts = typed_parts(self._nodes, cell)
        assert parts is not None
        head, data = parts
        new = self._without(data, steps, ENTRY_INLINE)
        return None if new is None else self._composer.typed_of(head, new, limit)

    def _without_in_list(self, tree: Tree, steps: tuple[Step, ...], limit: int, *, large: bool) -> bytes | None:
        found = self._element(tree, steps)
        if found is None:
            return None
        index, cells = found
        edited = splice(self._nodes, tree, [Edit(index, index + 1, cells)])
        return (
            self._composer.list_cell(edited, limit)
            if large
            else self._composer.list_of(list(iter_cells(self._nodes, edited)), limit)
        )

    def _without_in_tuple(self, cell: bytes, steps: tuple[Step, ...], limit: int) -> bytes | None:
        tree = tree_of(cell)
        if tree is None:
            cells = split_cells(payload_of(cell))
            index = offset_of(steps[0], len(cells))
            if index is None:
                return None
            new = [] if len(steps) == 1 else [self._without(cells[index], steps[1:], ELEMENT_INLINE)]
            if new and new[0] is None:
                return None
            cells[index : index + 1] = [part for part in new if part is not None]
        else:
            found = self._element(tree, steps)
            if found is None:
                return None
            tree = splice(self._nodes, tree, [Edit(found[0], found[0] + 1, found[1])])
            if tree.count > ELEMENT_INLINE:
                return tree_cell(Code.TUPLE_TREE, tree)
            cells = list(iter_cells(self._nodes, tree))
        wholes = [whole for part in cells if (whole := self._composer.inline(part)) is not None]
        whole = extension(Code.TUPLE, array(wholes)) if len(wholes) == len(cells) else b""
        if whole and len(whole) <= ELEMENT_INLINE:
            return self._composer.fit(whole, limit)
        assert tree is not None, "a part of an inline value does not outgrow it by losing something"
        return tree_cell(Code.TUPLE_TREE, tree)

    def _element(self, tree: Tree, steps: tuple[Step, ...]) -> tuple[int, list[bytes]] | None:
        """Return the first step's index, and the cells to put there: none, or the element without the nested part."""
        index = offset_of(steps[0], tree.count)
        if index is None:
            return None
        if len(steps) == 1:
            return index, []
        cell = self._without(next(iter_cells(self._nodes, tree, index, index + 1)), steps[1:], LIMITS[Shape.SEQUENCE])
        return None if cell is None else (index, [cell])

    def _without_in_dict(
        self, container: Container, steps: tuple[Step, ...], limit: int, *, large: bool
    ) -> bytes | None:
        step = steps[0]
        if not isinstance(step, Key):
            return None
        wanted = order_key_of(step)
        old = find(self._nodes, container.tree, wanted)
        if old is None:
            return None
        new = None if len(steps) == 1 else self._without(old, steps[1:], LIMITS[Shape.MAP])
        if new is None and len(steps) > 1:
            return None
        tree = edit_map(self._nodes, container.tree, {wanted: new})
        order = container.order
        if new is None and order is not None:
            order = [key for key in order_keys(self._nodes, container) if key != wanted]
        if large:
            return self._composer.dict_cell(tree, order, limit)
        entries = dict(iter_items(self._nodes, tree))
        return self._composer.dict_of(
            {key: entries[key] for key in (order if isinstance(order, list) else entries)}, limit
        )
