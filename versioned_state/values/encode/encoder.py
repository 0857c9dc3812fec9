"""Python values to cells: small ones packed, large ones as trees, changed ones at the cost of the change. Layer: values.

A cell is a function of the value alone, so encoding with a baseline gives the same bytes as encoding without one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from versioned_state.errors import LimitExceededError
from versioned_state.values.cells import (
    ELEMENT_INLINE,
    ENTRY_INLINE,
    MAX_BLOB,
    MAX_DEPTH,
    MAX_ELEMENTS,
    Code,
    extension,
    fits,
    pack_text,
    typed_cell,
)
from versioned_state.values.codec import arrays
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.codec.scalars import WRITERS, NotDataError, TooDeepError, is_plain
from versioned_state.values.detection.baselines import Baseline, Buffer, Elements, Entries, Pinned, Typed, Whole
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import Run
from versioned_state.values.encode.blobs import encode_buffer, encode_text
from versioned_state.values.encode.dicts import edit_dict, encode_dict, find_dict_runs
from versioned_state.values.encode.inline import InlineEncoder, NotStorableError, RestartError
from versioned_state.values.encode.lists import cells_of, edit_list, encode_list, find_list_runs, sequence
from versioned_state.values.encode.walks import CONTAINERS, SHALLOW, exceeds, is_surely_large
from versioned_state.values.keys import path_of
from versioned_state.values.trees.blob import write_bytes
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.references import tree_cell
from versioned_state.values.typed.tagged import Notes

_SIZED: Final = frozenset({str, bytes, bytearray})
_SCALARS: Final = frozenset({bool, int, float, complex, type(None)})
_JSON_SCALARS: Final = _SCALARS - {complex}
_TREES: Final = {tuple: Code.TUPLE_TREE, set: Code.SET_TREE, frozenset: Code.FROZENSET_TREE}


class Encoder(InlineEncoder):
    """Encodes values into one writer's nodes. Not for two threads at once.

    Args:
        nodes: stages new objects.
        policy: whether values that are not data may be pickled; without a policy, none may.
    """

    def __init__(self, nodes: Nodes, policy: PicklePolicy | None = None) -> None:
        super().__init__(policy)
        self.nodes = nodes
        self.fingerprinter = Fingerprinter()
        self._large_ones: dict[int, _Large] = {}
        self._within_whole = False  # whether a value around has a fingerprint over all of it: no part needs another

    def encode(
        self, value: Any, base: Baseline | None, path: str | bytes | Callable[[], str], *, limit: int = ENTRY_INLINE
    ) -> tuple[bytes, Baseline | None]:
        """The cell of a value at ``path`` (a string or a root key), and the baseline to compare it with next time.

        The baseline of a small value is None.

        Args:
            base: the baseline from the last encoding of the value, if there is one. The cost is then that of the change.
            limit: bytes up to which the value is inline.

        Raises:
            UnserializableValueError: a value inside cannot be pickled; the error names its path and type.
            PickleRefusedError: a value inside would have to be pickled, and the policy refuses it.
            LimitExceededError: the value is too deep, or a piece of it too large.
        """
        self.begin(value)
        fingerprinter = self.fingerprinter
        try:
            fingerprinter.keeps_found = base is not None
            return self.update(value, base, limit)
        except (TooDeepError, RecursionError, NotStorableError, RestartError):
            pass  # encode again: to find the path, or to store a part as an object because it shares something
        finally:
            fingerprinter.keeps_found = False  # first, so that no Ctrl-C comes in between: what is kept is true of this moment only
            self._within_whole = False
            if fingerprinter.found or self._large_ones or self.sizes.known or self._pickled:
                self.forget()
            self._root = None  # do not keep the value alive
        return self.guarded(partial(self.update, value, base, limit), value, path if callable(path) else partial(_show, path))

    def encode_small(self, value: Any) -> bytes | None:
        """The cell of a small value of JSON types, as most values of a state are, at half the cost of ``encode``; None for others."""
        cls = type(value)
        try:
            if cls is str:
                if len(value) > ENTRY_INLINE:
                    return None
            elif cls not in _JSON_SCALARS and (exceeds(value, ENTRY_INLINE) or not is_plain(value)):
                return None
            cell: bytes = self.pack(value)
        except (TooDeepError, RecursionError, OverflowError, ValueError):
            return None
        return cell if len(cell) <= ENTRY_INLINE else None

    def encode_at(self, value: Any, limit: int, path: str = "a value") -> bytes:
        """The cell of a value for a place that takes up to ``limit`` inline bytes. Raises as ``encode``."""
        return self.guarded(partial(self.update, value, None, limit), value, partial(_show, path))[0]

    # One part of a value, small or large

    def update(self, value: Any, base: Baseline | None, limit: int) -> tuple[bytes, Baseline | None]:
        """The cell and the baseline of a part, for a place that takes up to ``limit`` inline bytes; for ``guarded``."""
        cls = type(value)
        if cls in _SCALARS:
            cell = self.inline(value)
            return (cell, None) if len(cell) <= limit else self.packed(cell)
        if cls not in CONTAINERS and cls not in WRITERS:
            return self._update_other(value, base if base is not None and base.type is cls else None, limit)
        self.depth += 1
        if self.depth > MAX_DEPTH and cls in CONTAINERS:
            raise TooDeepError
        try:
            base = base if base is not None and base.type is cls else None
            runs: list[Run] | None = None
            if self.as_objects and id(value) in self.as_objects:
                return self._update_object(value, base, limit)
            if type(base) is Elements or type(base) is Entries:
                # First, because most values have not changed, and most changed values are still large.
                runs = find_list_runs(self, value, base) if isinstance(base, Elements) else find_dict_runs(self, value, base)
                if not runs:
                    return base.cell, base
                if self.fingerprinter.is_surely_longer(base.groups, runs, ELEMENT_INLINE):
                    return self._large(value, cls, base, runs)
            elif isinstance(base, Pinned | Whole) and self.fingerprinter.is_unchanged(value, base):
                return base.cell, base
            # A value that was large is probably still large: check before packing all of it.
            walk = exceeds if base is not None else is_surely_large
            if not (self.is_large(value) if base is None and (self.depth > SHALLOW or self._large_ones) else walk(value, ELEMENT_INLINE)):
                self.depth -= 1  # the inline encoder counts the value again
                cell = self.inline(value)
                self.depth += 1
                if len(cell) <= limit:
                    return cell, None
                if len(cell) <= ELEMENT_INLINE and cls in CONTAINERS:
                    return self.packed(cell)
            return self._large(value, cls, base, runs)
        finally:
            self.depth -= 1

    def forget(self) -> None:
        self._within_whole = False
        if self._large_ones:
            self._large_ones.clear()
        if self.fingerprinter.found:
            self.fingerprinter.forget_found()
        super().forget()

    def _add_objects(self, found: dict[int, Any]) -> bool:
        if not super()._add_objects(found):
            return False
        self._large_ones.clear()  # they may hold parts that are objects from now on
        return True

    def is_large(self, value: Any, data: Any = None) -> bool:
        """Whether a part is certainly too large to be inline. ``data``: that of a typed value.

        In the depth, where a walk over all that is below would be one for each level, the sizes of all parts are taken at once.
        """
        if id(value) in self._large_ones:
            return True
        if self.depth > SHALLOW:
            if type(value) in WRITERS:
                return type(value) in _SIZED and len(value) > ELEMENT_INLINE
            return self.sizes.of(value).packed > ELEMENT_INLINE
        return is_surely_large(value if data is None else data, ELEMENT_INLINE)

    def _known(self, value: Any, depth: int) -> tuple[bytes, Baseline | None] | None:
        """The cell and the baseline of a large part that another place holds too: it is encoded once, however many places it has."""
        known = self._large_ones.get(id(value))
        if known is None or (known.within_whole and not self._within_whole):
            return None
        self.measure()
        if depth + self.sizes.of(value).height > MAX_DEPTH:
            raise TooDeepError
        return known.cell, known.base

    def _keep(self, value: Any, encoded: tuple[bytes, Baseline | None]) -> tuple[bytes, Baseline | None]:
        self._large_ones[id(value)] = _Large(value, *encoded, self._within_whole)
        return encoded

    def _large(self, value: Any, cls: type, base: Baseline | None, runs: list[Run] | None) -> tuple[bytes, Baseline | None]:
        limit = MAX_ELEMENTS if cls in CONTAINERS else MAX_BLOB
        if (cls in CONTAINERS or cls in _SIZED) and len(value) > limit:
            raise LimitExceededError(f"a {cls.__name__} of {len(value)}", limit=limit)
        if cls is str or cls is bytes:
            return encode_text(self.nodes, value, base if isinstance(base, Pinned) else None)
        if cls is bytearray:
            return encode_buffer(self, value, base if isinstance(base, Buffer) else None)
        if cls not in CONTAINERS:
            return self.packed(self.inline(value))
        if base is None and (known := self._known(value, self.depth - 1)) is not None:
            return known
        encoded: tuple[bytes, Baseline | None]
        if cls is list:
            encoded = edit_list(self, value, base, runs) if runs and type(base) is Elements else encode_list(self, value)
        elif cls is dict:
            encoded = edit_dict(self, value, base, runs) if runs and type(base) is Entries else encode_dict(self, value)
        else:
            encoded = self._encode_as_a_whole(value, cls)
        return encoded if base is not None else self._keep(value, encoded)

    def _encode_as_a_whole(self, value: Any, cls: Any) -> tuple[bytes, Whole]:
        if cls is not tuple:
            self.check_keys(value)
        outer, self._within_whole = self._within_whole, True
        try:
            cells, _, _ = cells_of(self, list(value))
        finally:
            self._within_whole = outer
        if cls is not tuple:
            cells.sort()
        return self._whole(value, tree_cell(_TREES[cls], sequence(self.nodes, cells)))

    def _whole(self, value: Any, cell: bytes) -> tuple[bytes, Whole]:
        return cell, Whole(type(value), cell, None if self._within_whole else self.fingerprinter.of([value])[0])

    def packed(self, cell: bytes) -> tuple[bytes, None]:
        """The cell of a value that is too large for its parent and is always encoded as a whole."""
        return tree_cell(Code.PACKED, write_bytes(self.nodes, cell)), None

    # Values of a type that is not built in

    def _update_other(self, value: Any, base: Baseline | None, limit: int) -> tuple[bytes, Baseline | None]:
        if isinstance(base, Whole) and base.is_object:  # first, because the value may contain itself
            if self.fingerprinter.is_unchanged(value, base):
                return base.cell, base
            self.meet_identity()
        if self.as_objects and id(value) in self.as_objects:
            return self._update_object(value, base, limit)
        record = self.record(value)
        if record is not None:
            if type(base) is Typed:
                record = self.fingerprinter.known_record(value) or record
            return self._update_typed(value, record, base if isinstance(base, Typed) else None, limit)
        if isinstance(base, Whole) and self.fingerprinter.is_unchanged(value, base):
            return base.cell, base
        if arrays.is_array(value) and value.nbytes > limit:
            try:
                return encode_buffer(self, value, base if isinstance(base, Buffer) else None)
            except NotDataError:
                return self._large_object(value, limit)
        small = self.numpy(value)
        return self._large_object(value, limit) if small is None else (small, None)

    def _update_typed(self, value: Any, record: tuple[str, Any, Notes], base: Typed | None, limit: int) -> tuple[bytes, Baseline | None]:
        name, data, notes = record
        inner: Baseline | None = None
        if base is not None:
            if self.fingerprinter.is_unchanged_record(data, notes, base):
                return base.cell, base
            if base.inner is not None:
                cell, inner = self.update(data, base.inner, ENTRY_INLINE)
        if type(inner) is not Elements and type(inner) is not Entries:  # these baselines exist only for large data
            if not self.is_large(value, data):
                cell = self.typed_cell(value, record)
                if fits(cell, limit):
                    return cell, None
                if len(cell) <= ELEMENT_INLINE:
                    return self.packed(cell)
            if base is None and (known := self._known(value, self.depth)) is not None:
                return known
            cell, inner = self.update(data, None, ENTRY_INLINE)
        notes_cell = None
        if notes is not None:
            outer, self._within_whole = self._within_whole, True
            try:
                notes_cell = self.update(notes, None, ENTRY_INLINE)[0]
            finally:
                self._within_whole = outer
        cell = typed_cell(pack_text(name), notes_cell, cell)
        if self._within_whole:
            return self._keep(value, (cell, Typed(type(value), cell, inner, None, None)))
        baseline = Typed(type(value), cell, inner, *self.fingerprinter.of_record(data if inner is None else None, notes))
        return self._keep(value, (cell, baseline))

    def _update_object(self, value: Any, base: Baseline | None, limit: int) -> tuple[bytes, Baseline | None]:
        """``update`` for a part that is stored as an object because something in it is shared."""
        if isinstance(base, Whole) and base.is_object and self.fingerprinter.is_unchanged(value, base):
            return base.cell, base
        cell, whole = self._large_object(value, limit)
        return cell, whole or Whole(type(value), cell, self.fingerprinter.of_object(value), is_object=True)

    def _large_object(self, value: Any, limit: int) -> tuple[bytes, Baseline | None]:
        pickled = self.pickled(value)
        if not pickled.buffers and len(pickled.data) <= limit:
            return self.object_cell(pickled, [(False, extension(Code.BYTES, pickled.data))]), None
        pieces: list[tuple[bool, bytes | memoryview]] = [(False, pickled.data), *pickled.buffers]
        cells = [(writable, tree_cell(Code.BYTES_BLOB, write_bytes(self.nodes, data))) for writable, data in pieces]
        cell = self.object_cell(pickled, cells)
        return cell, Whole(type(value), cell, self.fingerprinter.of_object(value), is_object=True)


class _Large(NamedTuple):
    """A large part that was encoded, with its cell and its baseline; the part too, so that its id is not reused."""

    value: Any
    cell: bytes
    base: Baseline | None
    within_whole: bool


def _show(path: str | bytes) -> str:
    return path if isinstance(path, str) else str(path_of(path))
