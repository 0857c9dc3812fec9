"""The files of a commit: a ``FileTree`` from path to entry under the workspace's key, read and edited as a tree.

Layer: agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from versioned_state.agents.workspace.entries import data_of, form_of, key_of, path_of, why_no_entry, why_refused
from versioned_state.agents.workspace.scan import Changes
from versioned_state.errors import WorkspaceError
from versioned_state.values.cells import ENTRY_INLINE, pack_text
from versioned_state.values.codec.files import File, FileTree
from versioned_state.values.containers import Head
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.compose import Composer
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree, empty, find, iter_items, rank

_HEAD: Final = Head(pack_text(f"versioned_state.{FileTree.__name__}"), None)

_BATCH: Final = 256
"""Files whose content is read from the store in one go."""


class Content:
    """The files of one state's root.

    Args:
        large: whether to convert the entries to their form in a large tree, as edits and comparisons need it. The nodes
            must have a staging.

    Attributes:
        tree: the map of the entries.
    """

    def __init__(self, nodes: Nodes, cell: bytes | None, *, large: bool = True) -> None:
        self._nodes = nodes
        self.cell = cell
        if cell is None:
            self.tree: Tree = empty(Shape.MAP)
            return
        found = Composer(nodes).container(cell, large=large)
        if (
            found is None
            or found.tree.shape is not Shape.MAP
            or (found.head is not None and found.head.name != _HEAD.name)
        ):
            raise WorkspaceError(
                "the state has something other than files under the key of the workspace",
                remains="no file was touched",
                hint="move the state to another commit, or choose another name=",
            )
        self.tree = found.tree

    @classmethod
    def of(cls, nodes: Nodes, root: Tree, key: bytes) -> Content:
        """Return the files under a root key. Raises ``WorkspaceError`` if there is something else."""
        return cls(nodes, find(nodes, root, key))

    def edited(self, changes: Changes) -> Content:
        """Return the files after some changes. An empty folder loses its own entry when it gets a file."""
        if not changes:
            return self
        cells: dict[bytes, bytes | None] = {}
        for path, (_, cell) in changes.items():
            cells[key_of(path)] = cell
        for path, (_, cell) in changes.items():
            folder = path.rpartition("/")[0] if cell is not None else ""
            while folder:
                cells.setdefault(key_of(folder), None)
                folder = folder.rpartition("/")[0]
        tree = edit_map(self._nodes, self.tree, cells)
        if not tree.count:
            return Content(self._nodes, None)
        composer = Composer(self._nodes)
        return Content(
            self._nodes, composer.typed_of(_HEAD, composer.dict_cell(tree, None, ENTRY_INLINE), ENTRY_INLINE)
        )

    def cell_at(self, path: str) -> bytes | None:
        """Return the cell of a path, or None."""
        return find(self._nodes, self.tree, key_of(path))

    def holds(self, path: str) -> bool:
        """Return whether there is a file, link or empty folder at a path, or anything below it."""
        if self.cell_at(path) is not None:
            return True
        start = key_of(path + "/")
        offset = rank(self._nodes, self.tree, start)
        found = next(iter_items(self._nodes, self.tree, offset, offset + 1), None)
        return found is not None and found[0].startswith(start)

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Iterate over paths and cells, in order. Keys that are not paths are left out."""
        for key, cell in iter_items(self._nodes, self.tree):
            path = path_of(key)
            if path is not None:
                yield path, cell


def in_batches(nodes: Nodes, cells: dict[str, bytes]) -> Iterator[tuple[str, Any]]:
    """Iterate over the values of some cells, read from the store in batches of a few hundred. Nothing is unpickled."""
    pairs = iter(cells.items())
    decoder = Decoder(nodes)
    while batch := list(islice(pairs, _BATCH)):
        values = decoder.decode_many([cell for _, cell in batch])
        yield from zip((path for path, _ in batch), values, strict=True)


def check_paths(paths: dict[str, bytes]) -> None:
    """Raise ``WorkspaceError`` if a file cannot be at one of these paths: then no file of that commit is written."""
    refused = {path: reason for path in paths if (reason := why_refused(path))}
    if refused:
        raise _unsafe(refused)


def check_entries(entries: dict[str, Any]) -> None:
    """Raise ``WorkspaceError`` if one of these values is not a file."""
    refused = {path: reason for path, value in entries.items() if (reason := why_no_entry(value))}
    if refused:
        raise _unsafe(refused)


def _unsafe(refused: dict[str, str]) -> WorkspaceError:
    shown = ", ".join(f"{path[:200]!r} ({reason})" for path, reason in list(refused.items())[:5])
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    return WorkspaceError(
        f"the state has files that cannot be written: {shown}{more}",
        list(refused),
        remains="no file was touched",
        hint="move the state to another commit, or remove them from it on a fork, and merge that",
    )


class Files(Mapping[str, bytes]):
    """The regular files of a folder or a commit, by relative path: a read-only mapping to their bytes.

    Links and empty folders are not in it. Cost: finding the paths reads the entries. A file is read on access.
    """

    def __init__(self, nodes: Nodes, content: Content) -> None:
        self._nodes = nodes
        self._content = content
        self._decoder = Decoder(nodes)
        self._paths: list[str] | None = None

    def __getitem__(self, path: str) -> bytes:
        cell = self._content.cell_at(path) if type(path) is str else None
        value = None if cell is None else self._decoder.decode(cell)
        if not isinstance(value, str | bytes | File) or why_no_entry(value):
            raise KeyError(path)
        return data_of(value)[0]

    def __iter__(self) -> Iterator[str]:
        if self._paths is None:
            cells = dict(self._content.items())
            typed = {path: cell for path, cell in cells.items() if form_of(cell) == "other"}
            others = {path for path, value in in_batches(self._nodes, typed) if not isinstance(value, File)}
            self._paths = [path for path in cells if path not in others]
        return iter(self._paths)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Files: {self._content.tree.count}>"
