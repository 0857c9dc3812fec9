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
from versioned_state.values.cells import ENTRY_INLINE
from versioned_state.values.changes.replacement import edited_at
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import namespace_prefix, path_of, root_key_of, user_key
from versioned_state.values.paths.path import Index, Key, Namespace, StatePath, Step, as_path
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, iter_items, rank

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
            kept[cell, target] = edited_at(self._composer, cell, target.steps, None, ENTRY_INLINE)
            if len(kept) > _CELLS_KEPT:
                kept.popitem(last=False)
        return kept[cell, target]
