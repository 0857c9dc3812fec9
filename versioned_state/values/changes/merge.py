"""The three-way merge of a value, by path, to any depth. Pure: cells in, a cell out. Layer: values.

A change that only one side made is taken; a value that both sides changed is merged by its parts.

::

    base  {"a": 1, "log": [x]}  ──┬── ours    {"a": 2, "log": [x]}     ──┬──  {"a": 2, "log": [x, y]}
                                  └── theirs  {"a": 1, "log": [x, y]}  ──┘

Dicts are merged by key, lists by aligned elements, sets by element, texts by line. The ``Decider``, which has the
policies, decides about a value without parts; if it does not decide, the value is a conflict. Apart from policies, the
result does not depend on which side is ours, and contains only elements that one of the sides has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol

from versioned_state.values.cells import (
    MAX_KEY,
    Code,
    are_sorted,
    array_header,
    code_of,
    is_string,
    is_text,
    map_header,
    payload_of,
    split_cells,
)
from versioned_state.values.changes.diff import Replaced, diff_lists, diff_maps, diff_sequences
from versioned_state.values.changes.table_merge import TableMerger, UnmergedError, is_table
from versioned_state.values.containers import Container, Head, container_of, order_keys, typed_parts
from versioned_state.values.encode.compose import LIMITS, Composer
from versioned_state.values.keys import OF_A_LINE, is_internal
from versioned_state.values.paths.path import StatePath
from versioned_state.values.series import merge_series
from versioned_state.values.trees.edit import edit_map, splice_cells
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.prefetch import fetch_paths
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_items, rank

Side = Literal["ours", "theirs"]

_Entry = tuple[bytes, bytes | None, bytes | None, bytes | None]
"""A key of a map, and its cells in the base, ours and theirs, each None if it is not there."""

_SETS: Final = {
    Code.SET: Code.SET,
    Code.SET_TREE: Code.SET,
    Code.FROZENSET: Code.FROZENSET,
    Code.FROZENSET_TREE: Code.FROZENSET,
}


@dataclass(frozen=True, slots=True)
class Sides:
    """The cells at one path on the three sides, or None if a side has nothing there."""

    base: bytes | None
    ours: bytes | None
    theirs: bytes | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of a policy or a person: the cell at a path, or None to remove the value."""

    cell: bytes | None


class Decider(Protocol):
    """The decisions about paths that both sides changed."""

    def decide(self, path: StatePath, sides: Sides, limit: int) -> Decision | None:
        """Return the decision about a whole value, before its parts are merged, or None to merge the parts."""
        ...

    def side(self, path: StatePath) -> Side | None:
        """Return the side to take for a conflict at this path, or None if it stays a conflict."""
        ...

    def insert(self, path: StatePath, ours: list[bytes], theirs: list[bytes]) -> list[bytes] | None:
        """Return the elements for a gap of a list into which both sides inserted, or None to merge the insertions."""
        ...

    def once(self, path: StatePath) -> bool:
        """Return whether elements inserted by both sides, or at different places, are in the merged list only once."""
        ...

    def counted(self, path: StatePath) -> bool:
        """Return whether list elements elsewhere than in the base have not moved, as the base's order means nothing."""
        ...

    def recount(self, path: StatePath) -> bool:
        """Return whether the same change on both sides, at this path or below, may be counted twice."""
        ...

    def conflict(self, path: StatePath, sides: Sides) -> bytes | None:
        """Record a conflict. Returns the cell that the result has at its path."""
        ...


class Merger:
    """A three-way merge of cells over one set of nodes.

    Args:
        composer: composes the results, and stages the objects that they need.
        decider: decides about paths that both sides changed.
    """

    def __init__(self, composer: Composer, decider: Decider) -> None:
        self._composer = composer
        self._nodes = composer.nodes
        self._decider = decider

    def roots(
        self, base: Tree, ours: Tree, theirs: Tree, path_of: Callable[[bytes], StatePath], *, on_top: bool = False
    ) -> Tree:
        """Merge three roots of a state. Cost: the keys that theirs changed, and below them the parts that both changed.

        Args:
            on_top: whether the result follows theirs on the line of the branch: our changes are merged onto its new
                head.
        """
        changed = self._changed(base, ours, theirs)
        changes = self._entries((each for each in changed if not is_internal(each[0])), path_of)
        for key, b, o, t in changed:
            if key in OF_A_LINE:
                if on_top:
                    changes[key] = t
            elif is_internal(key):  # policies and resolutions do not apply to the engine's keys
                changes[key] = merge_series(self._nodes, b, o, t)
        return edit_map(self._nodes, ours, changes) if changes else ours

    def _changed(self, base: Tree, ours: Tree, theirs: Tree) -> list[_Entry]:
        """Return the keys that theirs changed, with their cells in the base, ours and theirs."""
        changed = list(diff_maps(self._nodes, base, theirs))
        fetch_paths(self._nodes, ours.top, (key for key, _, _ in changed))
        return [(key, b, find(self._nodes, ours, key), t) for key, b, t in changed]

    def _entries(self, changed: Iterable[_Entry], path_of: Callable[[bytes], StatePath]) -> dict[bytes, bytes | None]:
        """Return the changes to make to our map, by key, given the keys that theirs changed."""
        changes = {}
        for key, b, o, t in changed:
            merged = self._place(Sides(b, o, t), partial(path_of, key), LIMITS[Shape.MAP])
            if merged != o:
                changes[key] = merged
        return changes

    def _place(self, sides: Sides, path: Callable[[], StatePath], limit: int) -> bytes | None:
        """Return the merged cell of a value that theirs changed."""
        b, o, t = sides.base, sides.ours, sides.theirs
        if o == b:
            return t
        where = path()
        if o == t and not self._decider.recount(where):
            return o
        decision = self._decider.decide(where, sides, limit)
        if decision is not None:
            return decision.cell
        merged = None if o is None or t is None else self._parts(b, o, t, where, limit)
        if merged is not None or o == t:
            return merged or o
        return self._decider.conflict(where, sides)

    def _insert(self, path: StatePath, ours: list[Any], theirs: list[Any]) -> list[Any] | None:
        """Return the elements for a gap into which both sides inserted, or None if that is a conflict."""
        decided = self._decider.insert(path, ours, theirs)
        merged = _join_inserts(ours, theirs) if decided is None else decided
        if merged is not None:
            return merged
        side = self._decider.side(path)
        return None if side is None else ours if side == "ours" else theirs

    # Values that have parts

    def _parts(self, b: bytes | None, o: bytes, t: bytes, path: StatePath, limit: int) -> bytes | None:
        """Merge two cells by their parts, or None if they have no common parts.

        Without a base, both sides added the value.
        """
        kinds = {self._kind(cell) for cell in (b, o, t) if cell is not None}
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        if kind is Code.TYPED:
            return self._typed(b, o, t, path, limit)
        if kind is Shape.MAP:
            return self._dicts(map_header(0) if b is None else b, o, t, path, limit)
        if kind is Shape.SEQUENCE:
            return self._lists(array_header(0) if b is None else b, o, t, path, limit)
        if kind is Code.SET or kind is Code.FROZENSET:
            return self._sets(kind, b, o, t, limit)
        if kind is Code.TEXT and b is not None:
            return self._texts(b, o, t, path, limit)
        return None

    def _kind(self, cell: bytes) -> Shape | Code | None:
        """Return the kind of a value, if two values of that kind can be merged by their parts."""
        cell = self._unpacked(cell)
        code = code_of(cell)
        if code in _SETS:
            return _SETS[Code(code)]
        if code == Code.TYPED:
            return Code.TYPED
        if is_text(cell):
            return Code.TEXT
        container = container_of(self._nodes, cell)
        return None if container is None else container.tree.shape

    def _typed(self, b: bytes | None, o: bytes, t: bytes, path: StatePath, limit: int) -> bytes | None:
        """Merge two typed values of one name: the data by its parts if it has parts, and the notes by name."""
        sides = [None if cell is None else typed_parts(self._nodes, cell) for cell in (b, o, t)]
        base, ours, theirs = sides
        if ours is None or theirs is None or len({side[0].name for side in sides if side is not None}) != 1:
            return None
        if base is not None and is_table(ours[0].name):
            try:
                return TableMerger(self._composer, self._settle, merge_orders).merge((base, ours, theirs), path, limit)
            except (UnmergedError, ImportError):
                return None
        data = self._data(None if base is None else base[1], ours[1], theirs[1], path)
        notes = merge_notes(*(self._notes(side) for side in sides))
        if data is None or notes is None:
            return None
        notes_cell = self._composer.encode(notes, LIMITS[Shape.MAP]) if notes else None
        return self._composer.typed_of(Head(ours[0].name, notes_cell), data, limit)

    def _settle(self, path: StatePath, b: bytes | None, o: bytes | None, t: bytes | None) -> bytes | None:
        """Return the cell for a column or a cell of a table that both sides changed."""
        sides = Sides(b, o, t)
        decision = self._decider.decide(path, sides, LIMITS[Shape.MAP])
        return self._decider.conflict(path, sides) if decision is None else decision.cell

    def _data(self, b: bytes | None, o: bytes, t: bytes, path: StatePath) -> bytes | None:
        same = self._composer.same
        if same(o, t) or same(b, t):
            return o
        return t if same(b, o) else self._parts(b, o, t, path, LIMITS[Shape.MAP])

    def _notes(self, side: tuple[Head, bytes] | None) -> dict[str, Any]:
        notes = None if side is None or side[0].notes is None else self._composer.decoder.decode(side[0].notes)
        return notes if type(notes) is dict else {}

    def _open(self, *cells: bytes) -> tuple[list[Container], bool]:
        """Bring containers of one kind into one form. Returns them, and whether it is the form of large containers."""
        large = any(code_of(cell) in (Code.LIST_TREE, Code.DICT_TREE) for cell in cells)
        containers = [found for cell in cells if (found := self._composer.container(cell, large=large)) is not None]
        assert len(containers) == len(cells)
        return containers, large

    def _dicts(self, b: bytes, o: bytes, t: bytes, path: StatePath, limit: int) -> bytes | None:
        sides, large = self._open(b, o, t)
        base, ours, theirs = sides

        def path_of(key: bytes) -> StatePath:
            return self._composer.decoder.entry_path(path, key)

        if large:
            changes = self._entries(self._changed(base.tree, ours.tree, theirs.tree), path_of)
            tree = edit_map(self._nodes, ours.tree, changes) if changes else ours.tree
            if not self._can_be_keys(tree, changes):
                return None
            return self._composer.dict_cell(tree, self._order(base, ours, theirs, tree, changes), limit)
        was, entries, other = (dict(iter_items(self._nodes, side.tree)) for side in sides)
        keys = (key for key in sorted({**was, **other}) if was.get(key) != other.get(key))
        changes = self._entries(((key, was.get(key), entries.get(key), other.get(key)) for key in keys), path_of)
        merged = {key: cell for key, cell in {**entries, **changes}.items() if cell is not None}
        if (
            not self._are_apart(key[1:] for key in merged if key[:1] == b"x")
            or max(map(len, merged), default=0) > MAX_KEY
        ):
            return None
        orders = [order_keys(self._nodes, side) for side in sides]
        order = [key for key in merge_orders(*orders) if key in merged]
        order = sorted(merged) if all(map(are_sorted, orders)) else [*order, *sorted(merged.keys() - set(order))]
        return self._composer.dict_of({key: merged[key] for key in order}, limit)

    def _can_be_keys(self, tree: Tree, changes: dict[bytes, bytes | None]) -> bool:
        """Return whether one dict can hold these keys. Costs nothing unless keys were added that are not strings."""
        added = [key for key, cell in changes.items() if cell is not None and key[:1] == b"x"]
        return not added or self._are_apart(
            key[1:] for key, _ in iter_items(self._nodes, tree, rank(self._nodes, tree, b"x"))
        )

    def _order(
        self, base: Container, ours: Container, theirs: Container, tree: Tree, changes: dict[bytes, bytes | None]
    ) -> list[bytes] | Tree | None:
        """Return the order of the merged keys.

        Cost: none if one side did not change the order, or else reading all keys.
        """
        tops = [side.order.top if isinstance(side.order, Tree) else side.order for side in (base, ours, theirs)]
        if tops == [None, None, None]:
            return None
        for side, other in ((ours, tops[2]), (theirs, tops[1])):
            if isinstance(other, bytes) and other == tops[0] and side.tree.count == tree.count:
                in_side = ((cell, find(self._nodes, side.tree, key)) for key, cell in changes.items())
                if all((cell is None) == (found is None) for cell, found in in_side):
                    return side.order
        merged = merge_orders(*(order_keys(self._nodes, side) for side in (base, ours, theirs)))
        keys = {key: None for key, _ in iter_items(self._nodes, tree)}
        order = [key for key in merged if key in keys]
        return order + sorted(keys.keys() - set(order))

    def _lists(self, b: bytes, o: bytes, t: bytes, path: StatePath, limit: int) -> bytes | None:
        sides, large = self._open(b, o, t)
        base, ours, theirs = (side.tree for side in sides)
        nodes = self._nodes
        mine = _script(diff_sequences(nodes, base, ours), lambda x, y: list(iter_cells(nodes, ours, x, y)))
        other = _script(diff_sequences(nodes, base, theirs), lambda x, y: list(iter_cells(nodes, theirs, x, y)))

        def old(index: int) -> bytes:
            return next(iter_cells(nodes, base, index, index + 1))

        if self._decider.counted(path) and (mine.moves(old) or other.moves(old)):
            return self._composer.list_of(
                _merged_by_count(*(list(iter_cells(nodes, side.tree)) for side in sides)), limit
            )

        def place(index: int, mine: bytes | None, other: bytes | None) -> bytes | None:
            # The path has the index in the base: ours and theirs may have several elements, or none, for one element of
            # the base.
            return self._place(Sides(old(index), mine, other), lambda: path.index(index), LIMITS[Shape.SEQUENCE])

        merged = _join(mine, other, place, partial(self._insert, path))
        if merged is None:
            return None
        if self._decider.once(path):
            merged = merged.once(list(iter_cells(nodes, base)))
        if large:
            return self._composer.list_cell(splice_cells(nodes, base, merged.replacements()), limit)
        return self._composer.list_of(merged.apply(list(iter_cells(nodes, base))), limit)

    def _sets(self, code: Code, b: bytes | None, o: bytes, t: bytes, limit: int) -> bytes | None:
        base = set() if b is None else self._elements(b)
        ours, theirs = self._elements(o), self._elements(t)
        merged = (ours & theirs) | ((ours | theirs) - base)
        return self._composer.set_of(code, merged, limit) if self._are_apart(merged) else None

    def _are_apart(self, cells: Iterable[bytes]) -> bool:
        """Return whether no two values are equal to Python, as 1 and True are: no set or dict could hold both."""
        odd = [cell for cell in cells if not is_string(cell)]
        return len({self._composer.decoder.decode(cell) for cell in odd}) == len(odd)

    def _elements(self, cell: bytes) -> set[bytes]:
        """Return the cells of a set's elements, in the form for a large set."""
        cell = self._unpacked(cell)
        tree = tree_of(cell)
        if tree is not None:
            return set(iter_cells(self._nodes, tree))
        return {self._composer.fit(part, LIMITS[Shape.SEQUENCE]) for part in split_cells(payload_of(cell))}

    def _unpacked(self, cell: bytes) -> bytes:
        return (self._composer.inline(cell) or cell) if code_of(cell) == Code.PACKED else cell

    def _texts(self, b: bytes, o: bytes, t: bytes, path: StatePath, limit: int) -> bytes | None:
        base, ours, theirs = (self._composer.decoder.decode(cell).split("\n") for cell in (b, o, t))
        mine = _script(diff_lists(base, ours), lambda x, y: ours[x:y])
        other = _script(diff_lists(base, theirs), lambda x, y: theirs[x:y])
        if any(mine.changed[line] != other.changed[line] for line in mine.changed.keys() & other.changed.keys()):
            return None
        merged = _join(mine, other, lambda _line, same, _: same, partial(self._insert, path))
        return None if merged is None else self._composer.encode("\n".join(merged.apply(base)), limit)


def merge_notes(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any] | None:
    """Merge the notes of a typed value: sets of names by name. None if both sides changed a note of another kind."""
    merged: dict[str, Any] = {}
    for key in sorted({**base, **ours, **theirs}):
        b, o, t = base.get(key), ours.get(key), theirs.get(key)
        if t in (o, b):
            merged[key] = o
        elif o == b:
            merged[key] = t
        elif all(type(names) in (frozenset, type(None)) for names in (b, o, t)):
            if key == "set" and (o is None or t is None):  # all fields were given on one side
                continue
            none: frozenset[str] = frozenset()
            b, o, t = b or none, o or none, t or none
            merged[key] = ((o & t) | ((o | t) - b)) or None
        else:
            return None
    return {key: held for key, held in merged.items() if held is not None}


# Sequences: the changes of each side to the base's elements, and to the gaps between them


@dataclass(slots=True)
class _Script:
    """The changes to a base: its elements by index (None: removed), and the elements inserted before each index."""

    changed: dict[int, Any] = field(default_factory=dict)
    inserted: dict[int, list[Any]] = field(default_factory=dict)

    def replacements(self) -> list[tuple[int, int, list[Any]]]:
        """Return in order the elements [start, end), and the elements that replace them."""
        edits = [(index, index + 1, [] if cell is None else [cell]) for index, cell in self.changed.items()]
        edits += [(gap, gap, cells) for gap, cells in self.inserted.items() if cells]
        return sorted(edits, key=lambda edit: edit[:2])

    def moves(self, base: Callable[[int], Any]) -> bool:
        """Return whether an element of the base is removed at one place and put in at another."""
        put = {cell for cells in self.inserted.values() for cell in cells} | {
            cell for cell in self.changed.values() if cell is not None
        }
        return any(base(index) in put for index in self.changed)

    def once(self, base: Sequence[Any]) -> _Script:
        """Return the script with each inserted element once, at its first position, or never if the base keeps it."""
        seen = {part for index, part in enumerate(base) if index not in self.changed}
        script = _Script()
        for start, end, parts in self.replacements():
            new = [part for part in dict.fromkeys(parts) if part not in seen]
            seen.update(new)
            if end > start:
                script.changed[start] = new[0] if new else None
            elif new:
                script.inserted[start] = new
        return script

    def apply(self, base: Sequence[Any]) -> list[Any]:
        """Apply the changes to the base."""
        result: list[Any] = []
        position = 0
        for start, end, cells in self.replacements():
            result += base[position:start]
            result += cells
            position = end
        return result + list(base[position:])


def _merged_by_count(base: list[bytes], ours: list[bytes], theirs: list[bytes]) -> list[bytes]:
    """Return our elements without those removed by theirs, then those put in by theirs, whatever the base's order."""
    removed, new = Counter(base) - Counter(theirs), Counter(theirs) - Counter(base)

    def taken(counts: Counter[bytes], cell: bytes) -> bool:
        counts[cell] -= 1
        return counts[cell] >= 0

    return [cell for cell in ours if not taken(removed, cell)] + [cell for cell in theirs if taken(new, cell)]


def _script(parts: Iterable[Replaced], new: Callable[[int, int], list[Any]]) -> _Script:
    """Return a diff by element: the first elements of a replaced run are changes, the rest insertions or removals."""
    script = _Script()
    for part in parts:
        cells = new(part.new_start, part.new_end)
        both = min(part.old_end - part.old_start, len(cells))
        for index in range(both):
            script.changed[part.old_start + index] = cells[index]
        for index in range(part.old_start + both, part.old_end):
            script.changed[index] = None
        if len(cells) > both:
            script.inserted[part.old_start + both] = cells[both:]
    return script


def _join(
    ours: _Script,
    theirs: _Script,
    place: Callable[[int, Any, Any], Any],
    insert: Callable[[list[Any], list[Any]], list[Any] | None],
) -> _Script | None:
    """Return both scripts combined, or None if both insert into a gap and neither policy nor elements set the order.

    Args:
        place: decides about an element that both sides changed or removed.
        insert: gives the elements for a gap into which both sides inserted, or None if that is a conflict.
    """
    joined = _Script(inserted={**theirs.inserted, **ours.inserted})
    for mine, other in ((ours, theirs), (theirs, ours)):
        for gap in other.inserted:
            if mine.changed.get(gap - 1, b"") is None and mine.changed.get(gap, b"") is None:
                return None  # the other side removed the elements around the insertion: its position would be a guess
    for gap in ours.inserted.keys() & theirs.inserted.keys():
        merged = insert(ours.inserted[gap], theirs.inserted[gap])
        if merged is None:
            return None
        joined.inserted[gap] = merged
    joined.changed = {**theirs.changed, **ours.changed}
    for index in sorted(ours.changed.keys() & theirs.changed.keys()):
        joined.changed[index] = place(index, ours.changed[index], theirs.changed[index])
    return joined


def _join_inserts(ours: list[Any], theirs: list[Any]) -> list[Any] | None:
    """Return two insertions combined, with equal starts and ends once, or None if both have more between them."""
    least = min(len(ours), len(theirs))
    start = next((i for i in range(least) if ours[i] != theirs[i]), least)
    end = next((i for i in range(least - start) if ours[-1 - i] != theirs[-1 - i]), least - start)
    mine, other = ours[start : len(ours) - end], theirs[start : len(theirs) - end]
    return None if mine and other else ours[:start] + mine + other + ours[len(ours) - end :]


def merge_orders(base: list[bytes], ours: list[bytes], theirs: list[bytes]) -> list[bytes]:
    """Return a dict's keys in an order that keeps the moves of both sides, and does not depend on which side is which.

    A key that one side moved has the position of that side. Keys that both sides inserted into one gap come in the
    order of their bytes.
    """
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    if all(map(are_sorted, (base, ours, theirs))):
        return sorted({*base, *ours, *theirs})  # as in a large dict, and as fields are
    ours, theirs = sorted((ours, theirs))
    scripts = [_script_of_moves(diff_lists(base, side), side) for side in (ours, theirs)]
    joined = _Script({**scripts[0].changed, **scripts[1].changed})
    for gap in sorted({*scripts[0].inserted, *scripts[1].inserted}):
        runs = sorted(run for script in scripts if (run := script.inserted.get(gap)))
        joined.inserted[gap] = runs[0] + runs[1] if len(runs) > 1 and runs[0] != runs[1] else runs[0]
    return list(dict.fromkeys(joined.apply(base)))


def _script_of_moves(parts: Iterable[Replaced], side: list[bytes]) -> _Script:
    script = _Script()
    for part in parts:
        script.changed.update(dict.fromkeys(range(part.old_start, part.old_end)))
        if part.new_end > part.new_start:
            script.inserted[part.old_start] = side[part.new_start : part.new_end]
    return script
