"""The search for a text or value that occurs more or less often in one state than in another, by the nodes that differ.

Layer: values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError, PickleRefusedError
from versioned_state.values.cells import ELEMENT_INLINE, ENTRY_INLINE, Code, code_of, is_text, key_cell
from versioned_state.values.changes.diff import diff_maps, diff_sequences
from versioned_state.values.containers import typed_parts
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import is_internal, name_in, path_of
from versioned_state.values.paths.path import StatePath
from versioned_state.values.paths.walk import Walk, text_bytes
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, iter_cells

_COMPARED: Final = (Code.LIST_TREE, Code.TUPLE_TREE, Code.SET_TREE, Code.FROZENSET_TREE, Code.DICT_TREE)
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Needle:
    """A text or values to search for.

    Attributes:
        text: a text within strings, both values and keys, or None if there is none.
        values: whole values, compared by type too: 1 is neither 1.0 nor True.
    """

    text: str | None = None
    values: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.text == "":
            raise InvalidArgumentError("an empty text occurs everywhere; there is nothing to search for")

    @classmethod
    def of(cls, value: Any) -> Needle:
        """Return the needle for a value: a string is searched for within strings, any other value as a whole."""
        if isinstance(value, cls):
            return value
        return cls(text=value) if type(value) is str else cls(values=(value,))

    @classmethod
    def parse(cls, text: str) -> Needle:
        """Return the needle that a user typed.

        It is a text within strings and, if the text is JSON of a number, true or the like, a value too.
        """
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            return cls(value) if type(value) is str else cls(text, (value,))
        return cls(text)


class NeedleCounter:
    """A count of the places of a needle.

    Args:
        composer: its nodes read the trees; the needle's cells are staged there.

    Raises:
        InvalidArgumentError: a needle that is not data.
    """

    def __init__(self, composer: Composer, needle: Needle) -> None:
        self._nodes = composer.nodes
        self._text = None if needle.text is None else needle.text.encode("utf-8", "surrogatepass")
        try:
            self._inline = [composer.encode(value, _NO_LIMIT) for value in needle.values]
            self._cells = {
                composer.encode(value, limit) for value in needle.values for limit in (ELEMENT_INLINE, ENTRY_INLINE)
            }
        except PickleRefusedError as error:
            raise InvalidArgumentError(
                f"only data can be searched for, and this is a value of type {error.type_name}"
            ) from error
        self._cells.update(self._inline)
        self._parts = Walk(composer.nodes, composer.decoder, wanted=self._may_hold)
        self._texts = self._values = 0

    def differ(self, old: Tree, new: Tree) -> bool:
        """Return whether a needle occurs more or less often in one root than in another.

        Cost: the nodes that differ.
        """
        self._texts = self._values = 0
        for root_key, a, b in diff_maps(self._nodes, old, new):
            if is_internal(root_key):
                continue
            path = path_of(root_key)
            if a is None or b is None:
                self._count(key_cell(b"s" + name_in(root_key)), 1 if a is None else -1, path, is_key=True)
            self._compare(a, b, path)
        return bool(self._texts or self._values)

    def _compare(self, old: bytes | None, new: bytes | None, path: StatePath, *, is_data: bool = False) -> None:
        if old == new:
            return
        if old is not None and new is not None:
            was, now = typed_parts(self._nodes, old), typed_parts(self._nodes, new)
            if was is not None and now is not None and was[0].name == now[0].name:
                self._values += (new in self._cells) - (old in self._cells)
                self._compare(was[1], now[1], path, is_data=True)
                return
        a, b = (None if cell is None else tree_of(cell, *_COMPARED) for cell in (old, new))
        if a is None or b is None or old is None or new is None or code_of(old) != code_of(new):
            self._count(old, -1, path, is_data=is_data)
            self._count(new, 1, path, is_data=is_data)
            return
        if not is_data:
            self._values += (new in self._cells) - (old in self._cells)
        if b.shape is Shape.MAP:
            for key, x, y in diff_maps(self._nodes, a, b):
                if x is None or y is None:
                    self._count(key_cell(key), 1 if x is None else -1, path, is_key=True)
                self._compare(x, y, path)
            return
        for part in diff_sequences(self._nodes, a, b):
            olds = list(iter_cells(self._nodes, a, part.old_start, part.old_end))
            news = list(iter_cells(self._nodes, b, part.new_start, part.new_end))
            both = min(len(olds), len(news))
            for x, y in zip(olds[:both], news[:both], strict=True):
                self._compare(x, y, path)
            self._count_all(olds[both:], -1, path)
            self._count_all(news[both:], 1, path)

    def _count_all(self, cells: Iterable[bytes], sign: int, path: StatePath) -> None:
        for cell in cells:
            self._count(cell, sign, path)

    def _count(
        self, cell: bytes | None, sign: int, path: StatePath, *, is_key: bool = False, is_data: bool = False
    ) -> None:
        if cell is None:
            return
        for part in self._parts.iter(cell, path, is_key=is_key, is_data=is_data):
            if not (part.is_key or part.is_data) and part.cell in self._cells:
                self._values += sign
                self._parts.hits += 1
            if self._text is not None and is_text(part.cell):
                count = text_bytes(self._nodes, part.cell).count(self._text)
                self._texts += sign * count
                self._parts.hits += count > 0

    def _may_hold(self, cell: bytes) -> bool:
        # A value that is inline in a cell has the same bytes as its own cell.
        return (self._text is not None and self._text in cell) or any(inline in cell for inline in self._inline)
