"""The three-way merge of a table by columns and rows. Pure: cells in, a cell out. Layer: values.

Rows are the same if their labels are. So two sides may change different cells, add and remove columns and rows, and
sort the table; only a cell that both changed is a conflict, at its own path. The labels of a ``RangeIndex`` only count:
rows that both sides append to one are all kept, as two runs.

Columns are compared and composed as they are stored, so that pandas is needed only where the labels of rows differ, and
numpy always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from versioned_state.values.cells import ENTRY_INLINE, MAX_ELEMENTS, Code, code_of, key_of_cell, pack_text
from versioned_state.values.containers import Container, Head, container_of, order_keys, unpacked
from versioned_state.values.encode.compose import Composer
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.paths.path import StatePath
from versioned_state.values.tables.layouts import FRAME, SERIES
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.tree import iter_cells, iter_items

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_NIL: Final = b"\xc0"
_NAN: Final = InlineEncoder().encode_inline(float("nan"))
_FRAME_INDEX: Final = key_of_cell(_NIL)
_KEYS: Final = {name: key_of_cell(pack_text(name)) for name in ("index", "values", "mask", "codes")}

_ROW_FIELDS: Final = {
    "pandas.MaskedArray": ("mask", "values"),
    "pandas.ArrowExtensionArray": ("mask", "values"),
    "pandas.DatetimeArray": ("values",),
    "pandas.PeriodArray": ("values",),
    "pandas.Categorical": ("codes",),
}
"""The fields of pandas' arrays that have an element for each row. All others must be equal on all sides."""

_MOST: Final = 1_000
"""Conflicts of cells in one column from which the column is one conflict."""

Settle = Callable[[StatePath, "bytes | None", "bytes | None", "bytes | None"], "bytes | None"]
"""Decides about a value that both sides changed: its path and its cells in the base, ours and theirs.

Returns the cell to keep.
"""


MergeOrders = Callable[[list[bytes], list[bytes], list[bytes]], list[bytes]]


class UnmergedError(Exception):
    """The tables cannot be merged by their parts."""


def is_table(name: bytes) -> bool:
    """Return whether the name in the head of a typed value is that of a table."""
    return name in (_FRAME, _SERIES)


_FRAME: Final = pack_text(FRAME)
_SERIES: Final = pack_text(SERIES)


@dataclass(frozen=True, slots=True)
class _Table:
    """One side: the cells of its columns in their order, of its row labels, of what else it has, and of its notes."""

    columns: dict[bytes, bytes]
    index: bytes
    rest: dict[bytes, bytes]
    notes: dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The merged rows, with the position of each in the base, ours and theirs, or -1, and the base's removed rows."""

    base: Array
    ours: Array
    theirs: Array
    gone: tuple[tuple[Array, Array], tuple[Array, Array]]
    """For each side, the positions, in the base and in this side, of the rows that only the other side has removed."""
    index: bytes


@dataclass(frozen=True, slots=True)
class _Column:
    """A column by its rows: its fields, each an array of numbers or of cells."""

    head: Head | None
    fixed: dict[bytes, bytes]
    rows: dict[str, Array]
    listed: frozenset[str]

    def __len__(self) -> int:
        return min(map(len, self.rows.values()))


class TableMerger:
    """A merge of tables over one set of nodes.

    Args:
        composer: composes the result.
        settle: decides about values that both sides changed. It is called only if the tables can be merged.
        merge_orders: merges three orders of keys.
    """

    def __init__(self, composer: Composer, settle: Settle, merge_orders: MergeOrders) -> None:
        self._composer = composer
        self._nodes = composer.nodes
        self._decide = settle
        self._merge_orders = merge_orders
        self._is_trial = True
        self._clashed = False

    def merge(
        self, sides: tuple[tuple[Head, bytes], tuple[Head, bytes], tuple[Head, bytes]], path: StatePath, limit: int
    ) -> bytes:
        """Return the cell of the merged table.

        Args:
            sides: the head and the data of the table in the base, ours and theirs.

        Raises:
            UnmergedError: rows have no labels to tell them apart, or a row that one side removed was changed by the
                other.
            ImportError: numpy or pandas is needed, and not installed.
        """
        base, ours, theirs = (self._opened(head, data) for head, data in sides)
        name = sides[0][0].name
        merged = self._table(name, base, ours, theirs, path, limit)
        if not self._clashed:
            return merged
        # No conflict is recorded before it is known that all columns can be merged: else the table would be a conflict,
        # and its cells too.
        self._is_trial = False
        return self._table(name, base, ours, theirs, path, limit)

    def _settle(self, path: StatePath, b: bytes | None, o: bytes | None, t: bytes | None) -> bytes | None:
        if self._is_trial:
            self._clashed = True
            return o
        return self._decide(path, b, o, t)

    def _table(self, name: bytes, base: _Table, ours: _Table, theirs: _Table, path: StatePath, limit: int) -> bytes:
        rows = self._rows(base, ours, theirs)
        columns: dict[bytes, bytes] = {}
        for key in dict.fromkeys((*base.columns, *ours.columns, *theirs.columns)):
            where = path.key("values") if name == _SERIES else self._composer.decoder.entry_path(path, key)
            cell = self._column(base.columns.get(key), ours.columns.get(key), theirs.columns.get(key), rows, where)
            if cell is not None:
                columns[key] = cell
        order = [
            key for key in self._merge_orders(*(list(side.columns) for side in (base, ours, theirs))) if key in columns
        ]
        order += sorted(columns.keys() - set(order))
        notes = self._by_name(base.notes, ours.notes, theirs.notes)
        self._check_labels(order, notes, (ours, theirs))
        rest = self._by_name(base.rest, ours.rest, theirs.rest)
        index = base.index if rows is None else rows.index
        if name == _SERIES:
            entries = dict(sorted({**rest, **columns, _KEYS["index"]: index}.items()))
        else:
            entries = {**{key: columns[key] for key in order}, _FRAME_INDEX: index}
        notes_cell = self._composer.dict_of(notes, ENTRY_INLINE) if notes else None
        return self._composer.typed_of(Head(name, notes_cell), self._composer.dict_of(entries, ENTRY_INLINE), limit)

    def _opened(self, head: Head, data: bytes) -> _Table:
        found = self._dict(data)
        notes = {} if head.notes is None else self._entries(self._dict(head.notes))
        entries = self._entries(found)
        key = _FRAME_INDEX if head.name == _FRAME else _KEYS["index"]
        index = entries.pop(key, None)
        if index is None:
            raise UnmergedError
        if head.name == _FRAME:
            return _Table(entries, index, {}, notes)
        return _Table({_KEYS["values"]: entries.pop(_KEYS["values"])}, index, entries, notes)

    def _dict(self, cell: bytes) -> Container:
        found = container_of(self._nodes, cell)
        if found is None or found.tree.shape is not Shape.MAP:
            raise UnmergedError
        return found

    def _entries(self, container: Container) -> dict[bytes, bytes]:
        entries = dict(iter_items(self._nodes, container.tree))
        return {key: entries[key] for key in order_keys(self._nodes, container)}

    def _by_name(
        self, base: dict[bytes, bytes], ours: dict[bytes, bytes], theirs: dict[bytes, bytes]
    ) -> dict[bytes, bytes]:
        """Merge what has a name and no rows. Raises ``UnmergedError`` if both sides changed one of them."""
        merged: dict[bytes, bytes] = {}
        for key in sorted({*base, *ours, *theirs}):
            cell = self._one_changed(base.get(key), ours.get(key), theirs.get(key))
            if cell is not None:
                merged[key] = cell
        return merged

    def _one_changed(self, b: bytes | None, o: bytes | None, t: bytes | None) -> bytes | None:
        same = self._composer.same
        if same(o, t) or same(b, t):
            return o
        if same(b, o):
            return t
        raise UnmergedError

    def _check_labels(self, order: list[bytes], notes: dict[bytes, bytes], sides: Iterable[_Table]) -> None:
        """Raise ``UnmergedError`` if the column labels are an index of their own, and not that of these columns."""
        noted = notes.get(key_of_cell(pack_text("columns")))
        if noted is None or code_of(noted) is None:
            return
        for side in sides:
            labels = side.notes.get(key_of_cell(pack_text("columns")))
            if labels is not None and self._composer.same(labels, noted) and list(side.columns) == order:
                return
        raise UnmergedError

    # Rows

    def _rows(self, base: _Table, ours: _Table, theirs: _Table) -> _Rows | None:
        """Return the merged rows, or None if all sides have the same."""
        same = self._composer.same
        if same(base.index, ours.index) and same(base.index, theirs.index):
            return None
        import numpy as np

        b, o, t = (self._composer.decoder.decode(side.index) for side in (base, ours, theirs))
        import pandas as pd

        if (
            not all(isinstance(each, pd.Index) for each in (b, o, t))
            or len({tuple(each.names) for each in (b, o, t)}) > 1
        ):
            raise UnmergedError
        if max(map(len, (b, o, t))) > MAX_ELEMENTS:  # a RangeIndex has any number in a few bytes
            raise UnmergedError
        size, more, other = len(b), len(o) - len(b), len(t) - len(b)
        # With pandas 2 the labels of a table that has grown are numbers, and no range any more.
        if type(b) is pd.RangeIndex and more >= 0 and other >= 0 and all(_only_counts(each, b) for each in (o, t)):
            return self._appended(b, size, more, other, ours, theirs)
        if not (b.is_unique and o.is_unique and t.is_unique):
            raise UnmergedError
        # The rows by numbers: those of the base by their position in it, then new ones.
        in_base = [b.get_indexer(each) for each in (o, t)]
        new = o[in_base[0] < 0]
        new = new.append(t[in_base[1] < 0].difference(new, sort=False))
        labels = b.append(new) if len(new) else b
        numbers = [labels.get_indexer(each) for each in (b, o, t)]
        # New rows are named by their labels, so that the order does not depend on which side is which.
        names = [b"b" + n.to_bytes(8, "big") for n in range(len(b))] + [
            b"n" + InlineEncoder().encode_inline(label) for label in new
        ]
        order = self._merge_orders(*([names[n] for n in each] for each in numbers))
        number_of = {name: number for number, name in enumerate(names)}
        has = [np.isin(np.arange(len(b)), each) for each in numbers[1:]]
        kept = [
            number
            for number in map(number_of.__getitem__, order)
            if number >= len(b) or (has[0][number] and has[1][number])
        ]
        merged = labels.take(np.array(kept, dtype=np.intp))
        places = [each.get_indexer(merged) for each in (b, o, t)]
        gone = tuple(
            (np.flatnonzero(mine & ~other), side.get_indexer(b[mine & ~other]))
            for mine, other, side in ((has[0], has[1], o), (has[1], has[0], t))
        )
        cell = next((side.index for side, each in ((ours, o), (theirs, t), (base, b)) if merged.identical(each)), None)
        if cell is None:
            if merged.dtype != b.dtype and len(b):
                raise UnmergedError
            cell = self._composer.encode(merged, ENTRY_INLINE)
        return _Rows(places[0], places[1], places[2], (gone[0], gone[1]), cell)

    def _appended(self, b: Any, size: int, more: int, other: int, ours: _Table, theirs: _Table) -> _Rows:
        """Return the rows of two sides that both appended to a table whose labels only count."""
        import numpy as np
        import pandas as pd

        def run(start: int, length: int) -> Array:
            return np.arange(start, start + length)

        def none(length: int) -> Array:
            return np.full(length, -1)

        head = run(0, size)
        mine, others = self._tails(ours, size), self._tails(theirs, size)
        if more and other and mine == others:
            rows = [head, run(size, more)], [head, run(size, more)]
            tail = more
        elif mine <= others:
            rows, tail = ([head, run(size, more), none(other)], [head, none(more), run(size, other)]), more + other
        else:
            rows, tail = ([head, none(other), run(size, more)], [head, run(size, other), none(more)]), more + other
        index = pd.RangeIndex(b.start, b.start + (size + tail) * b.step, b.step, name=b.name)
        nothing = (none(0), none(0))
        placed = [np.concatenate(side) for side in rows]
        return _Rows(
            np.concatenate([head, none(tail)]),
            placed[0],
            placed[1],
            (nothing, nothing),
            self._composer.encode(index, ENTRY_INLINE),
        )

    def _tails(self, side: _Table, start: int) -> list[tuple[bytes, list[tuple[str, list[bytes]]]]]:
        """Return the rows of a table from one on, in a form in which they are compared."""
        columns = ((key, self._column_of(cell)) for key, cell in sorted(side.columns.items()))
        return [
            (key, [(name, _bytes_of(rows[start:])) for name, rows in sorted(column.rows.items())])
            for key, column in columns
        ]

    # Columns

    def _column(
        self, b: bytes | None, o: bytes | None, t: bytes | None, rows: _Rows | None, path: StatePath
    ) -> bytes | None:
        """Return the merged cell of a column, or None if it has been removed."""
        same = self._composer.same
        if rows is None:
            if same(o, t) or same(b, t):
                return o
            if same(b, o):
                return t
        try:
            return self._merged(b, o, t, rows, path)
        except UnmergedError:
            if rows is not None:  # the columns would have different rows
                raise
            return self._settle(path, b, o, t)

    def _merged(
        self, b: bytes | None, o: bytes | None, t: bytes | None, rows: _Rows | None, path: StatePath
    ) -> bytes | None:
        if o is None or t is None:
            if b is not None:
                kept, side = (o, 0) if o is not None else (t, 1)
                if kept is not None and (rows is None or not self._is_as_it_was(b, kept, rows, side)):
                    raise UnmergedError  # one side removed it, and the other changed it
                return None
            assert rows is not None
            added, places = (o, rows.ours) if o is not None else (t, rows.theirs)
            assert added is not None
            return self._cell_of(_filled(self._column_of(added), places))
        base = None if b is None else self._column_of(b)
        ours, theirs = self._column_of(o), self._column_of(t)
        if not all(self._are_of_one_type(ours, each) for each in (base, theirs) if each is not None):
            raise UnmergedError
        return self._cell_of(self._joined(base, ours, theirs, rows, path))

    def _is_as_it_was(self, b: bytes, kept: bytes, rows: _Rows, side: int) -> bool:
        base, column = self._column_of(b), self._column_of(kept)
        places = (rows.ours, rows.theirs)[side]
        both = (rows.base >= 0) & (places >= 0)
        if not self._are_of_one_type(base, column) or _differ(base, column, rows.base[both], places[both]).any():
            return False
        return not _differ(base, column, *rows.gone[side]).any()

    def _joined(
        self, base: _Column | None, ours: _Column, theirs: _Column, rows: _Rows | None, path: StatePath
    ) -> _Column:
        import numpy as np

        if rows is None:
            at = [np.arange(len(ours))] * 3
        else:
            at = [rows.base, rows.ours, rows.theirs]
            for side, (was, now) in zip((ours, theirs), rows.gone, strict=True):
                if base is not None and _differ(base, side, was, now).any():
                    raise UnmergedError  # a row that the other side removed
        known = (at[0] >= 0) if base is not None else np.zeros(len(at[0]), bool)
        changed = []
        for side, places in ((ours, at[1]), (theirs, at[2])):
            differs = places >= 0
            if base is not None:
                differs[known] = _differ(base, side, at[0][known], places[known])
            changed.append(differs)
        both = np.flatnonzero(changed[0] & changed[1])
        clashes = both[_differ(ours, theirs, at[1][both], at[2][both])]
        if len(clashes) > _MOST or (
            len(clashes) and (base is None or (ours.head is not None and "values" not in ours.listed))
        ):
            raise UnmergedError
        from_theirs = changed[1] & ~changed[0]
        joined: dict[str, Array] = {}
        for name, held in ours.rows.items():
            joined[name] = held.take(np.where(at[1] < 0, 0, at[1])) if len(held) else np.zeros(len(at[1]), held.dtype)
            joined[name][from_theirs] = theirs.rows[name][at[2][from_theirs]]
        for row in clashes:
            assert base is not None
            spots = [int(each[row]) for each in at]
            where = path.index(spots[0] if spots[0] >= 0 else int(row))
            cells = [
                None if spot < 0 else self._element(side, spot)
                for side, spot in zip((base, ours, theirs), spots, strict=True)
            ]
            joined["values"][row] = self._as_element(ours, self._settle(where, *cells))
        return _Column(ours.head, ours.fixed, joined, ours.listed)

    def _element(self, column: _Column, at: int) -> bytes:
        held = column.rows["values"][at]
        return bytes(held) if "values" in column.listed else InlineEncoder().encode_inline(held)

    def _as_element(self, column: _Column, cell: bytes | None) -> Any:
        if cell is None:
            raise UnmergedError
        if "values" in column.listed:
            return cell
        import numpy as np

        held = self._composer.decoder.decode(cell)
        dtype = column.rows["values"].dtype
        if getattr(held, "dtype", None) == dtype:
            return held
        try:  # a number of Python's that a person decided on
            made = np.array(held).astype(dtype)
            exact = type(held) in (bool, int, float) and (made.item() == held or held != held)  # noqa: PLR0124 - NaN
        except (ValueError, TypeError, OverflowError):
            exact = False
        if not exact:
            raise UnmergedError
        return made

    def _column_of(self, cell: bytes) -> _Column:
        cell = unpacked(self._nodes, cell)
        found = container_of(self._nodes, cell)
        if found is None:
            return _Column(None, {}, {"values": self._array(cell)}, frozenset())
        if found.tree.shape is Shape.SEQUENCE:
            return _Column(
                found.head, {}, {"values": _object_array(iter_cells(self._nodes, found.tree))}, frozenset({"values"})
            )
        name = None if found.head is None else self._composer.decoder.decode(found.head.name)
        if name not in _ROW_FIELDS:
            raise UnmergedError
        import numpy as np

        entries = dict(iter_items(self._nodes, found.tree))
        rows: dict[str, Array] = {}
        listed = set()
        for field in _ROW_FIELDS[name]:
            held = entries.pop(_KEYS[field], None)
            inside = None if held is None else container_of(self._nodes, held)
            if held is not None and inside is None:
                rows[field] = self._array(held)
            elif inside is not None:
                rows[field] = _object_array(iter_cells(self._nodes, inside.tree))
                listed.add(field)
        if "values" in rows and "values" not in listed and "mask" in _ROW_FIELDS[name] and "mask" not in rows:
            rows["mask"] = np.zeros(len(rows["values"]), bool)
        return _Column(found.head, entries, rows, frozenset(listed))

    def _array(self, cell: bytes) -> Array:
        if code_of(cell) not in (Code.NUMPY_ARRAY, Code.ARRAY_BLOB):
            raise UnmergedError
        array = self._composer.decoder.decode(cell)
        if getattr(array, "ndim", None) != 1:  # without numpy it is a ``Tagged``
            raise UnmergedError
        return array  # type: ignore[no-any-return]

    def _are_of_one_type(self, a: _Column, b: _Column) -> bool:
        heads = [None if column.head is None else (column.head.name, column.head.notes) for column in (a, b)]
        types = [{name: rows.dtype for name, rows in column.rows.items()} for column in (a, b)]
        if heads[0] != heads[1] or types[0] != types[1]:
            return False
        return all(self._composer.same(a.fixed.get(key), b.fixed.get(key)) for key in {*a.fixed, *b.fixed})

    def _cell_of(self, column: _Column) -> bytes:
        composer = self._composer
        parts: dict[bytes, bytes] = {}
        for name, rows in column.rows.items():
            if name == "mask" and not rows.any():
                continue
            if name in column.listed:
                parts[_KEYS[name]] = composer.list_of(list(rows), ENTRY_INLINE)
            else:
                parts[_KEYS[name]] = composer.encode(rows, ENTRY_INLINE)
        if column.head is None:
            return parts[_KEYS["values"]]
        if not column.fixed and parts.keys() == {_KEYS["values"]} and "values" in column.listed:
            data = parts[_KEYS["values"]]
        else:
            data = composer.dict_of(dict(sorted({**column.fixed, **parts}.items())), ENTRY_INLINE)
        return composer.typed_of(column.head, data, ENTRY_INLINE)


def _only_counts(index: Any, base: Any) -> bool:
    """Return whether an index has the labels of the base's range, or of that range if it were longer or shorter."""
    import pandas as pd

    if type(index) is pd.RangeIndex:
        return bool(index.start == base.start and index.step == base.step)
    return bool(index.equals(pd.RangeIndex(base.start, base.start + len(index) * base.step, base.step)))


def _object_array(cells: Iterable[bytes]) -> Array:
    import numpy as np

    held = list(cells)
    made = np.empty(len(held), object)
    made[:] = held
    return made


def _bits(rows: Array) -> Array:
    """Return rows in a form in which they are equal if their bytes are, NaN too."""
    import numpy as np

    if rows.dtype == object:
        return rows
    rows = np.ascontiguousarray(rows)
    return rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)


def _differ(a: _Column, b: _Column, at_a: Array, at_b: Array) -> Array:
    """Return which rows of two columns differ, given their positions."""
    import numpy as np

    differs = np.zeros(len(at_a), bool)
    for name, rows in a.rows.items():
        unequal = _bits(rows[at_a]) != _bits(b.rows[name][at_b])
        differs |= unequal if unequal.ndim == 1 else unequal.any(axis=1)
    return differs


def _bytes_of(rows: Array) -> list[bytes]:
    return list(rows) if rows.dtype == object else [row.tobytes() for row in rows]


def _filled(column: _Column, places: Array) -> _Column:
    """Return a column for other rows: those at -1, which it lacks, become missing values, as in pandas' ``reindex``."""
    import numpy as np

    lacks = places < 0
    rows: dict[str, Array] = {}
    listed = set(column.listed)
    for name, held in column.rows.items():
        taken = held.take(np.where(lacks, 0, places)) if len(held) else np.zeros(len(places), held.dtype)
        rows[name] = taken
        if not lacks.any():
            continue
        kind = held.dtype.kind
        if name == "mask":
            taken[lacks] = True
        elif name in column.listed:
            taken[lacks] = _NAN if column.head is None else _NIL
        elif name == "codes":
            taken[lacks] = -1
        elif kind in "mM":
            taken[lacks] = np.array("NaT", held.dtype)
        elif column.head is not None:
            taken[lacks] = np.iinfo(np.int64).min if "mask" not in column.rows else 0
        elif kind in "fc":
            taken[lacks] = np.nan
        elif kind in "iu":
            rows[name] = np.where(lacks, np.nan, taken.astype(float))
        else:
            encode = InlineEncoder().encode_inline
            rows[name] = _object_array(
                _NAN if lack else encode(bool(each)) for lack, each in zip(lacks, taken, strict=True)
            )
            listed.add(name)
    return _Column(column.head, column.fixed, rows, frozenset(listed))
