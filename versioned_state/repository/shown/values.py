"""Stored values for display: their type, their size, the beginning of their text, and their parts a page at a time.

Layer: repository.

Everything is read from cells: a value of a gigabyte costs what is shown, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from versioned_state.errors import InvalidPathError
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.views.preview import Preview, array_type, describe
from versioned_state.repository.views.render import short_name
from versioned_state.values.cells import Code, code_of, is_text, key_of_cell, payload_of, split_cells
from versioned_state.values.containers import container_of, order_keys, sequence_of, typed_parts, unpacked
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.paths.path import Namespace, StatePath
from versioned_state.values.trees.blob import iter_blob
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells

if TYPE_CHECKING:
    from versioned_state.repository.views.snapshot import Snapshot

TEXT: Final = 1 << 16
"""Characters of a text that are shown; the rest is in ``raw``."""

_LINE: Final = 160
"""Characters of a value on one line."""

_SETS: Final = (Code.SET, Code.FROZENSET, Code.SET_TREE, Code.FROZENSET_TREE)
_BYTES: Final = (Code.BYTES, Code.BYTEARRAY, Code.BYTES_BLOB, Code.BYTEARRAY_BLOB)
_ARRAYS: Final = (Code.NUMPY_ARRAY, Code.ARRAY_BLOB)


class Part(NamedTuple):
    """A part of a value: the step that leads to it as text, its path or None if no path leads there, and its cell."""

    label: str
    path: StatePath | None
    cell: bytes


class Values:
    """The cells of one store for display. For one thread."""

    def __init__(self, nodes: Nodes, budget: Budget) -> None:
        self.nodes = nodes
        self.decoder: Final = Decoder(nodes)
        self.budget = budget
        self._preview = Preview(nodes, self.decoder)

    def line(self, cell: bytes, width: int = _LINE) -> str:
        """Return the beginning of a value on one line."""
        return self.budget.cut(self._preview.one_line(cell, width=width), 2 * width)

    def facts(self, cell: bytes, width: int = _LINE) -> dict[str, Any]:
        """Return type, size, beginning, and whether the value has parts."""
        kind, size, count = self._kind(cell)
        return {"type": kind, "size": size, "line": self.line(cell, width), "opens": bool(count)}

    def _kind(self, cell: bytes) -> tuple[str, str, int]:
        """Return the type of a value, its size in words, and how many parts it has."""
        plain = unpacked(self.nodes, cell)
        code = code_of(plain)
        typed = typed_parts(self.nodes, plain)
        if typed is not None:
            name = short_name(str(self.decoder.decode(typed[0].name)))
            _, size, count = self._kind(typed[1])
            return name, size, count
        if is_text(plain):
            tree = tree_of(plain) if code == Code.TEXT else None
            size = (
                f"{tree.count:,} bytes" if tree is not None else _counted(len(self.decoder.decode(plain)), "character")
            )
            return "str", size, 0
        if code in _ARRAYS:
            return "array", describe(*array_type(self.decoder, plain)).partition(", ")[2], 0
        if code in _SETS:
            count = len(split_cells(payload_of(plain))) if code in (Code.SET, Code.FROZENSET) else _tree(plain).count
            return "set" if code in (Code.SET, Code.SET_TREE) else "frozenset", _counted(count, "element"), count
        elements = sequence_of(self.nodes, plain)
        if elements is not None:
            return (
                "tuple" if code in (Code.TUPLE, Code.TUPLE_TREE) else "list",
                _counted(elements.count, "element"),
                elements.count,
            )
        opened = container_of(self.nodes, plain)
        if opened is not None:
            return "dict", _counted(opened.tree.count, "entry", "entries"), opened.tree.count
        if code in (Code.BYTES_BLOB, Code.BYTEARRAY_BLOB):
            return "bytes" if code == Code.BYTES_BLOB else "bytearray", _counted(_tree(plain).count, "byte"), 0
        return self._of_small(plain, code)

    def _of_small(self, cell: bytes, code: int | None) -> tuple[str, str, int]:
        if code == Code.OBJECT:
            found = self.decoder.decode(cell)
            return short_name(found.type_name), _counted(found.size, "byte"), 0
        value = self.decoder.decode(cell)
        return type(value).__name__, _counted(len(value), "byte") if code in _BYTES else "", 0

    def parts(self, cell: bytes, path: StatePath, start: int, count: int) -> tuple[int, list[Part]]:
        """Return how many parts a value has, and ``count`` of them from ``start`` on. Cost: these."""
        plain = unpacked(self.nodes, cell)
        code = code_of(plain)
        typed = typed_parts(self.nodes, plain)
        data = plain if typed is None else unpacked(self.nodes, typed[1])
        elements = sequence_of(self.nodes, data)
        if elements is not None:
            end = min(start + count, elements.count)
            cells = iter_cells(self.nodes, elements, start, end) if start < end else iter(())
            return elements.count, [Part(f"[{at}]", path.index(at), each) for at, each in enumerate(cells, start)]
        opened = container_of(self.nodes, plain)
        if opened is not None:
            if isinstance(opened.order, Tree):
                chosen = [
                    key_of_cell(key)
                    for key in iter_cells(self.nodes, opened.order, start, min(start + count, opened.order.count))
                ]
            else:
                chosen = list(islice(order_keys(self.nodes, opened), start, start + count))
            found = ((key, find(self.nodes, opened.tree, key)) for key in chosen)
            return opened.tree.count, [self._entry(path, key, each) for key, each in found if each is not None]
        if code in _SETS:
            tree = None if code in (Code.SET, Code.FROZENSET) else _tree(plain)
            total = len(split_cells(payload_of(plain))) if tree is None else tree.count
            cells = (
                iter(split_cells(payload_of(plain))[start:])
                if tree is None
                else iter_cells(self.nodes, tree, start, total)
            )
            return total, [Part("·", None, each) for each in islice(cells, count)]
        return 0, []

    def _entry(self, path: StatePath, key: bytes, cell: bytes) -> Part:
        at = self.decoder.entry_path(path, key)
        return Part(StatePath(at.steps[-1:]).suffix().removeprefix("."), at, cell)

    def text(self, cell: bytes, most: int = TEXT) -> tuple[str, int] | None:
        """Return the beginning of a text and the size that is left out, or None for any other value."""
        plain = unpacked(self.nodes, cell)
        if not is_text(plain):
            return None
        if code_of(plain) == Code.TEXT:
            tree = _tree(plain)
            if tree.count > 4 * most:
                head = b""
                for chunk in iter_blob(self.nodes, tree):
                    head += chunk
                    if len(head) >= most:
                        break
                shown = self.budget.cut(head.decode("utf-8", "replace"), most)
                return shown, tree.count - len(shown.encode("utf-8", "replace"))
        whole = self.decoder.decode(plain)
        shown = self.budget.cut(whole, most)
        return shown, len(whole) - len(shown)


def _tree(cell: bytes) -> Tree:
    tree = tree_of(cell)
    assert tree is not None
    return tree


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def place_of(text: str) -> tuple[tuple[str, ...], StatePath | None]:
    """Return the namespaces that a path begins with, and the path itself.

    The path is None if it is a namespace or the whole state. Raises ``InvalidPathError``.
    """
    if not text:
        return (), None
    try:
        path = StatePath.parse(text)
    except InvalidPathError:
        inner = StatePath.parse(text + ".x").steps[:-1]  # @worker is the place of a namespace
        if not inner or not all(isinstance(step, Namespace) for step in inner):
            raise
        return tuple(step.name for step in inner if isinstance(step, Namespace)), None
    return (), path


def of_snapshot(snapshot: Snapshot, names: tuple[str, ...]) -> Snapshot:
    """Return the view of a namespace within namespaces."""
    for name in names:
        snapshot = snapshot.namespace(name)
    return snapshot


def crumbs(path: StatePath) -> Iterator[tuple[str, str]]:
    """Yield each step of a path as text, and the path up to it."""
    for depth in range(1, len(path) + 1):
        part = StatePath(path.steps[:depth])
        yield StatePath(path.steps[depth - 1 : depth]).suffix().removeprefix("."), str(part)
