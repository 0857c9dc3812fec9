"""Changes between two values, by path, read from the nodes that differ. Layer: values.

Maps are compared by key and sequences by alignment; equal subtrees are skipped. Only keys are decoded here. The two
sides of a change are cells, which the caller decodes if it shows them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, Literal

from versioned_state.errors import CorruptObjectError
from versioned_state.records import dataclass
from versioned_state.values.cells import is_map, key_cell, key_of_cell, pack_text, split_cells
from versioned_state.values.containers import Container, Head, container_of, guarded, is_record, order_keys
from versioned_state.values.detection.alignment import rising
from versioned_state.values.encode.compose import Composer
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.prefetch import fetch_difference
from versioned_state.values.trees.tree import Tree, iter_cells, iter_items, nodes_from, rank, top_of
from versioned_state.values.typed.tagged import Notes, Tagged

ChangeKind = Literal["added", "removed", "changed"]

_ALIGN_FULLY: Final = 400
"""The most elements of a gap that is aligned by longest common runs.

A larger one is aligned by elements that occur once.
"""

_ALIGN_AT_ALL: Final = 100_000
"""The most elements of a gap, on both sides, that is aligned.

A list with a larger gap is one change: aligning a list of a million in another order would take ten seconds and a
gigabyte.
"""


@dataclass(frozen=True, slots=True)
class CellChange:
    """One change by path. A cell is None if there is nothing on that side.

    ``keys`` is set if a dict has the same entries in another order: the keys on both sides. ``length`` is set if an
    element was added to a
    list: the length of the list before. ``given``: the keys are not those of a dict, but the names of the fields that a
    model was given, on both sides.
    """

    path: StatePath
    kind: ChangeKind
    old: bytes | None
    new: bytes | None
    keys: tuple[list[Any], list[Any]] | None = None
    length: int | None = None
    given: bool = False


# Maps and sequences


_Item = tuple[int, Any, int, bytes]
"""A part of a tree still to be compared: its level (-1: a cell), its address, node or cell, its count, its first key.

A plain tuple: a diff makes some dozens of them for each node that differs.
"""


def _top(nodes: Nodes, tree: Tree) -> _Item:
    node = top_of(nodes, tree)
    return node.level, tree.top, tree.count, node.keys[0] if node.keys else b""


def _expand(nodes: Nodes, shape: Shape, item: _Item) -> list[_Item]:
    """Return the parts of a node."""
    level, top, count, key = item
    node = nodes.get(shape, top)
    if node.level != level or node.count != count or (node.keys and node.keys[0] != key):
        raise CorruptObjectError(
            top.hex() if isinstance(top, bytes) else "(a node)",
            "its level, count or first key is not what the node above it says",
        )
    return list(
        zip(repeat(node.level - 1), node.items, node.counts or repeat(1), node.keys or repeat(b""), strict=False)
    )


def diff_maps(nodes: Nodes, a: Tree, b: Tree) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield the keys whose cells differ, in order, with both cells (None: no such key).

    Cost: the nodes that differ, one call a level.
    """
    if a.top == b.top:
        return
    leaves = _inline_leaves(a, b) or fetch_difference(nodes, Shape.MAP, a.top, b.top)
    if leaves is None:
        yield from _walk_maps(nodes, a, b)
        return
    # A leaf that both maps share has equal entries, so all differences are in these leaves.
    old, new = map(_entries, leaves)
    for key in sorted({key for key, _ in old.items() ^ new.items()}):
        yield key, old.get(key), new.get(key)


def _inline_leaves(a: Tree, b: Tree) -> tuple[list[Node], list[Node]] | None:
    """Return the leaves of two small maps, or None if one is larger.

    A diff compares two such maps for each changed instance or dict.
    """
    x, y = a.top, b.top
    return ([x], [y]) if type(x) is Node and type(y) is Node and x.level == y.level == 0 else None


def _entries(leaves: list[Node]) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    for leaf in leaves:
        assert leaf.keys is not None
        entries.update(zip(leaf.keys, leaf.items, strict=True))
    return entries


def _walk_maps(nodes: Nodes, a: Tree, b: Tree) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield what ``diff_maps`` does, with one path of each tree in memory.

    Raises ``CorruptObjectError`` if the keys of a map are not in order.
    """
    lasts: list[bytes | None] = [None, None]

    def check(side: int, key: bytes) -> None:
        # Without this check a crafted tree could name one leaf any number of times.
        last = lasts[side]
        if last is not None and key <= last:
            raise CorruptObjectError("(a map)", "its keys are not in order")
        lasts[side] = key

    left, right = [_top(nodes, a)], [_top(nodes, b)]
    while left or right:
        x, y = left[-1] if left else None, right[-1] if right else None
        if x is not None and y is not None and x[3] == y[3] and x[0] == y[0]:
            left.pop()
            right.pop()
            if x[1] == y[1]:
                continue
            if x[0] < 0:
                check(0, x[3])
                check(1, y[3])
                yield x[3], x[1], y[1]
                continue
            nodes.fetch(Shape.MAP, x[1], y[1])
            left += reversed(_expand(nodes, Shape.MAP, x))
            right += reversed(_expand(nodes, Shape.MAP, y))
        elif y is None or (x is not None and (x[3] < y[3] or (x[3] == y[3] and x[0] > y[0]))):
            # The part with the smaller first key has no equal on the other side. If both parts begin with one key,
            # expand the higher one.
            assert x is not None
            left.pop()
            if x[0] < 0:
                check(0, x[3])
                yield x[3], x[1], None
            else:
                left += reversed(_expand(nodes, Shape.MAP, x))
        else:
            right.pop()
            if y[0] < 0:
                check(1, y[3])
                yield y[3], None, y[1]
            else:
                right += reversed(_expand(nodes, Shape.MAP, y))


def _common(nodes: Nodes, a: Tree, b: Tree, *, backwards: bool) -> int:
    """Return how many elements two sequences have in common at one end. Cost: one path down each."""
    left, right = [_top(nodes, a)], [_top(nodes, b)]
    common = 0
    while left and right:
        x, y = left[-1], right[-1]
        if x[0] == y[0] and x[1] == y[1]:
            common += x[2]
            left.pop()
            right.pop()
            continue
        if x[0] < 0 and y[0] < 0:
            break
        for row, item, other in ((left, x, y), (right, y, x)):
            if item[0] >= max(other[0], 0):
                row.pop()
                parts = _expand(nodes, a.shape, item)
                row.extend(parts if backwards else reversed(parts))
    return common


def common_prefix(nodes: Nodes, a: Tree, b: Tree) -> int:
    """Return how many elements two sequences have in common from their beginning. Cost: one path down each."""
    return _common(nodes, a, b, backwards=False)


@dataclass(frozen=True, slots=True)
class Replaced:
    """Elements [old_start, old_end) of one sequence became [new_start, new_end) of the other."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def diff_sequences(nodes: Nodes, a: Tree, b: Tree) -> Iterator[Replaced]:
    """Yield the replaced runs, in order. Cost: the differing nodes, and one path to each."""
    if a.top == b.top:
        return
    fetch_difference(nodes, a.shape, a.top, b.top)
    prefix = _common(nodes, a, b, backwards=False)
    suffix = min(_common(nodes, a, b, backwards=True), min(a.count, b.count) - prefix)
    old_end, new_end = a.count - suffix, b.count - suffix
    if prefix == old_end and prefix == new_end:
        return
    old, new = prefix, prefix
    level = min(top_of(nodes, tree).level for tree in (a, b)) - 1
    for old_at, new_at, count in _equal_nodes(nodes, a, b, Replaced(prefix, old_end, prefix, new_end), level):
        yield from _diff_gap(nodes, a, b, Replaced(old, old_at, new, new_at))
        old, new = old_at + count, new_at + count
    yield from _diff_gap(nodes, a, b, Replaced(old, old_end, new, new_end))


def _equal_nodes(nodes: Nodes, a: Tree, b: Tree, gap: Replaced, level: int) -> list[tuple[int, int, int]]:
    """Return the nodes that both sequences have in a gap, each as both offsets and the count.

    They are the nodes of a level, and between them those of lower levels.
    """
    if level < 0 or gap.old_start == gap.old_end or gap.new_start == gap.new_end:
        return []
    old, new = (
        _nodes_within(nodes, a, level, gap.old_start, gap.old_end),
        _nodes_within(nodes, b, level, gap.new_start, gap.new_end),
    )
    equal = []
    i, j = gap.old_start, gap.new_start
    for p, q in align_unique([address for address, _, _ in old], [address for address, _, _ in new]):
        (_, old_at, count), (_, new_at, _) = old[p], new[q]
        equal += _equal_nodes(nodes, a, b, Replaced(i, old_at, j, new_at), level - 1)
        equal.append((old_at, new_at, count))
        i, j = old_at + count, new_at + count
    return equal + _equal_nodes(nodes, a, b, Replaced(i, gap.old_end, j, gap.new_end), level - 1)


def _nodes_within(nodes: Nodes, tree: Tree, level: int, start: int, end: int) -> list[tuple[bytes, int, int]]:
    """Return address, first offset and count of a level's nodes within [start, end), or none if they are too many."""
    found: list[tuple[bytes, int, int]] = []
    for first, node in nodes_from(nodes, tree.shape, top_of(nodes, tree), level + 1, start, end):
        if first >= end:
            break
        assert node.counts is not None
        offset = first
        for address, count in zip(node.items, node.counts, strict=True):
            if offset >= start and offset + count <= end:
                found.append((address, offset, count))
            offset += count
        if len(found) > _ALIGN_AT_ALL:
            return []
    return found


def _diff_gap(nodes: Nodes, a: Tree, b: Tree, gap: Replaced) -> Iterator[Replaced]:
    if gap.old_start == gap.old_end or gap.new_start == gap.new_end:
        if gap.old_start != gap.old_end or gap.new_start != gap.new_end:
            yield gap
        return
    if min(gap.old_end - gap.old_start, gap.new_end - gap.new_start) > _ALIGN_AT_ALL:
        yield gap
        return
    old = list(iter_cells(nodes, a, gap.old_start, gap.old_end))
    new = list(iter_cells(nodes, b, gap.new_start, gap.new_end))
    for part in diff_lists(old, new):
        yield Replaced(
            gap.old_start + part.old_start,
            gap.old_start + part.old_end,
            gap.new_start + part.new_start,
            gap.new_start + part.new_end,
        )


def diff_lists(old: Sequence[Hashable], new: Sequence[Hashable]) -> Iterator[Replaced]:
    """Yield the replaced runs of two short sequences.

    Beyond some hundred elements, those that occur once on both sides are aligned first.
    """
    anchors = align_unique(old, new) if len(old) > _ALIGN_FULLY or len(new) > _ALIGN_FULLY else []
    i = j = 0
    for old_at, new_at in [*anchors, (len(old), len(new))]:
        yield from _match(old, new, Replaced(i, old_at, j, new_at))
        i, j = old_at + 1, new_at + 1


def _match(old: Sequence[Hashable], new: Sequence[Hashable], gap: Replaced) -> Iterator[Replaced]:
    a, b = old[gap.old_start : gap.old_end], new[gap.new_start : gap.new_end]
    if not a and not b:
        return
    if not a or not b:
        yield gap
        return
    at = max((_in_place(a, b), _in_place(a, b, shift=len(b) - len(a))), key=lambda found: found[0])
    if len(a) > 4 * _ALIGN_FULLY or len(b) > 4 * _ALIGN_FULLY:
        equal = at[1]
    else:
        from difflib import SequenceMatcher

        matcher = SequenceMatcher(None, a, b, autojunk=False)
        found = [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]
        equal = at[1] if at[0] >= sum(size for _, _, size in found) else found
    i = j = 0
    for old_at, new_at, size in [*equal, (len(a), len(b), 0)]:
        if i < old_at or j < new_at:
            yield Replaced(gap.old_start + i, gap.old_start + old_at, gap.new_start + j, gap.new_start + new_at)
        i, j = old_at + size, new_at + size


def _in_place(a: Sequence[Hashable], b: Sequence[Hashable], shift: int = 0) -> tuple[int, list[tuple[int, int, int]]]:
    """Return how many items are equal at the same index, moved by ``shift``, and their runs: both offsets and length.

    If equal items allow several alignments of the same length, this one shows each change at the index where it was
    made.
    """
    runs: list[tuple[int, int, int]] = []
    count = 0
    for index in range(max(0, -shift), min(len(a), len(b) - shift)):
        if a[index] == b[index + shift]:
            count += 1
            start, new, size = runs[-1] if runs else (-1, -1, 0)
            if start + size == index and size:
                runs[-1] = start, new, size + 1
            else:
                runs.append((index, index + shift, 1))
    return count, runs


def align_unique(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the longest ordered run of pairs of items that occur once on each side (Bram Cohen's patience diff)."""
    once: dict[Hashable, int] = {}
    for index, item in enumerate(new):
        once[item] = -1 if item in once else index
    seen: dict[Hashable, int] = {}
    for item in old:
        seen[item] = seen.get(item, 0) + 1
    pairs = [(i, once[item]) for i, item in enumerate(old) if seen[item] == 1 and once.get(item, -1) >= 0]
    return rising(pairs)


# Values


_PLAIN: Final = frozenset(
    {*range(0x80), *range(0xA0, 0xC1), 0xC2, 0xC3, *range(0xCA, 0xD4), *range(0xD9, 0xDC), *range(0xE0, 0x100)}
)
"""The first bytes of cells of None, bools, numbers and short strings, which have no parts and only one form."""


def diff_values(composer: Composer, old: bytes, new: bytes, path: StatePath) -> Iterator[CellChange]:
    """Yield the changes from one cell to another, in the order of their paths."""
    if old == new:
        return
    if old[0] in _PLAIN and new[0] in _PLAIN:
        yield CellChange(path, "changed", old, new)
        return
    entries = guarded(_changed_entries, old, new)
    if entries is not None:
        for key, was, now in entries:
            yield from diff_values(composer, was, now, composer.decoder.entry_path(path, key))
        return
    a, b = container_of(composer.nodes, old), container_of(composer.nodes, new)
    if a is None or b is None or a.tree.shape is not b.tree.shape or _name(a) != _name(b):
        # The container around the value may have grown or shrunk, which changes the form of the cell.
        if not composer.same(old, new):
            yield CellChange(path, "changed", old, new)
        return
    parts = None if _have_other_attributes(composer, a.head, b.head) else _diff_containers(composer, a, b, path)
    if parts is None:
        yield CellChange(path, "changed", old, new)
        return
    first = next(parts, None)
    if first is not None:
        yield first
        yield from parts
        if a.head is not None and b.head is not None and (a.head.notes or b.head.notes) is not None:
            yield from _diff_given(composer, a, b, path)
    elif a.head is not None and b.head is not None and not composer.same(a.head.notes, b.head.notes):
        # they differ only in notes, such as the set of fields that were given
        yield CellChange(path, "changed", old, new)


def _changed_entries(old: bytes, new: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
    """Return the entries that differ between two inline dicts, in their order, or None if the cells are not such dicts.

    Both have the same keys in the same order, as most dicts do that a diff compares, so they need not be made trees
    first.
    """
    if not (is_map(old) and is_map(new)):
        return None
    olds, news = split_cells(old), split_cells(new)
    names = olds[::2]
    if names != news[::2]:
        return None
    keys = [*map(key_of_cell, names)]
    if len(set(keys)) < len(keys):  # several NaNs: no path distinguishes them
        return None
    return sorted([(key, was, now) for key, was, now in zip(keys, olds[1::2], news[1::2], strict=True) if was != now])


def _diff_given(composer: Composer, a: Container, b: Container, path: StatePath) -> Iterator[CellChange]:
    """Yield the change of a model's given fields, unless it follows from changes of fields: assigned means given."""
    if a.tree.shape is not Shape.MAP or a.head is None or b.head is None:
        return
    was, now = (
        {composer.decoder.decode_key(key): cell for key, cell in iter_items(composer.nodes, side.tree)}
        for side in (a, b)
    )
    # A change within a list or dict assigns no field; one within an instance does if instances of the class cannot be
    # changed.
    assigned, perhaps = dict(was), dict(was)
    for name, cell in now.items():
        held = was.get(name)
        kind = (
            "assigned"
            if held is None
            else "same"
            if composer.same(held, cell)
            else _how_changed(composer.nodes, held, cell)
        )
        assigned[name] = cell if kind == "assigned" else was[name]
        perhaps[name] = was[name] if kind in ("same", "within") else cell
    for name in was.keys() - now.keys():
        del assigned[name], perhaps[name]
    old, new = (None if head.notes is None else composer.decoder.decode(head.notes) for head in (a.head, b.head))
    if type(old) not in (dict, type(None)) or type(new) not in (dict, type(None)):
        return
    expected = [(Tagged("model", fields, old).notes_for(was) or {}).get("set") for fields in (assigned, perhaps)]
    if any(names != (new or {}).get("set") for names in expected):
        yield CellChange(path, "changed", None, None, (_given(was, old), _given(now, new)), given=True)


def _how_changed(nodes: Nodes, old: bytes, new: bytes) -> str:
    """Return how a field changed: it was assigned, or a part of it was, or one of the two, depending on its class."""
    a, b = container_of(nodes, old), container_of(nodes, new)
    if a is None or b is None or a.tree.shape is not b.tree.shape or _name(a) != _name(b):
        return "assigned"
    return "within" if a.head is None else "unclear"


def _given(fields: dict[Any, Any], notes: Notes) -> list[Any]:
    """Return the names of the fields that a model was given, in order."""
    notes = notes or {}
    if type(notes.get("set")) is frozenset:
        return sorted(notes["set"])
    extra, more = notes.get("extra", ()), notes.get("more", ())
    return sorted(name for name in fields if (name in extra or name[:1] != "_") and name not in more)


def _have_other_attributes(composer: Composer, a: Head | None, b: Head | None) -> bool:
    """Return whether the attributes of two containers differ.

    Attributes have no paths, so the change is one of the whole value.
    """
    if a is None or b is None or a.notes == b.notes:
        return False
    x, y = (_attributes(composer, head) for head in (a, b))
    return any(not composer.same(x.get(key), y.get(key)) for key in {*x, *y})


_NAMES: Final = frozenset(map(pack_text, ("more", "unset", "extra", "set", "version")))
"""Notes that follow from the fields of an instance, or say how they are to be read."""


def _attributes(composer: Composer, head: Head) -> dict[bytes, bytes]:
    """Return the cells of the notes, without those that only name fields."""
    notes = None if head.notes is None else container_of(composer.nodes, head.notes)
    if notes is None:
        return {}
    return {key: cell for key, cell in iter_items(composer.nodes, notes.tree) if key_cell(key) not in _NAMES}


def _name(container: Container) -> bytes | None:
    return None if container.head is None else container.head.name


def _diff_containers(composer: Composer, a: Container, b: Container, path: StatePath) -> Iterator[CellChange] | None:
    """Return the changes within two lists or two dicts, or None if the values must be shown as one change."""
    if a.tree.shape is not Shape.SEQUENCE:
        return _diff_entries(composer, a, b, path)
    parts = list(diff_sequences(composer.nodes, a.tree, b.tree))
    if any(min(part.old_end - part.old_start, part.new_end - part.new_start) > _ALIGN_AT_ALL for part in parts):
        return None
    return _diff_elements(composer, a.tree, b.tree, parts, path)


def _diff_elements(
    composer: Composer, a: Tree, b: Tree, parts: list[Replaced], path: StatePath
) -> Iterator[CellChange]:
    nodes = composer.nodes
    for part in parts:
        olds = list(iter_cells(nodes, a, part.old_start, part.old_end))
        news = list(iter_cells(nodes, b, part.new_start, part.new_end))
        both = min(len(olds), len(news))
        for index in range(both):
            yield from diff_values(composer, olds[index], news[index], path.index(part.new_start + index))
        for index in range(both, len(olds)):
            yield CellChange(path.index(part.old_start + index), "removed", olds[index], None)
        for index in range(both, len(news)):
            yield CellChange(path.index(part.new_start + index), "added", None, news[index], length=a.count)


def _diff_entries(composer: Composer, a: Container, b: Container, path: StatePath) -> Iterator[CellChange]:
    nodes, decoder = composer.nodes, composer.decoder
    removed: set[bytes] = set()
    added: dict[bytes, CellChange] = {}
    for order_key, old, new in diff_maps(nodes, a.tree, b.tree):
        where = decoder.entry_path(path, order_key)
        if new is None:
            removed.add(order_key)
            yield CellChange(where, "removed", old, None)
        elif old is None:
            added[order_key] = CellChange(where, "added", None, new)
        else:
            yield from diff_values(composer, old, new, where)
    if not added and not removed and a.order == b.order:
        return
    if is_record(a) and is_record(b):
        yield from added.values()
        return
    order = _order_of_added(nodes, a, b, removed, set(added))
    if order is not None:
        # A dict keeps its order when keys are added at the end or removed.
        yield from (added[key] for key in order)
        return
    before, after = order_keys(nodes, a), order_keys(nodes, b)
    yield from (added[key] for key in after if key in added)
    expected = [key for key in before if key not in removed]
    expected += [key for key in after if key in added]
    if expected != after:
        keys = [decoder.decode_key(key) for key in before], [decoder.decode_key(key) for key in after]
        yield CellChange(path, "changed", None, None, keys)


def _order_of_added(
    nodes: Nodes, a: Container, b: Container, removed: set[bytes], added: set[bytes]
) -> list[bytes] | None:
    """Return the added keys in their order, if all come last and no other key moved.

    None if not, or if only a full read could show it.

    Cost: the nodes of the order that differ.
    """
    if a.order is None and b.order is None:
        first = min(added, default=None)
        at_end = first is None or rank(nodes, b.tree, first) == b.tree.count - len(added)
        return sorted(added) if at_end else None
    if not isinstance(a.order, Tree) or not isinstance(b.order, Tree):
        return None
    order: list[bytes] = []
    for part in diff_sequences(nodes, a.order, b.order):
        gone = {key_of_cell(cell) for cell in iter_cells(nodes, a.order, part.old_start, part.old_end)}
        come = [key_of_cell(cell) for cell in iter_cells(nodes, b.order, part.new_start, part.new_end)]
        if not gone <= removed or not added.issuperset(come) or (come and part.new_end != b.order.count):
            return None
        order += come
    return order if len(order) == len(added) else None
