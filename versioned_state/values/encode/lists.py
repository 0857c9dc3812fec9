"""Large lists: the cells of their elements, and the tree over those; after a change, only the parts that changed. Layer: values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from versioned_state.values.cells import ELEMENT_INLINE, Code
from versioned_state.values.detection.baselines import Baseline, Elements
from versioned_state.values.detection.groups import GROUP_BYTES, GROUP_SIZE, Group, Groups, Run, is_plain_fingerprint
from versioned_state.values.encode.walks import CONTAINERS, SHALLOW
from versioned_state.values.trees.edit import Edit, splice, splice_cells
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_cell
from versioned_state.values.trees.tree import Tree, empty

if TYPE_CHECKING:
    from versioned_state.values.encode.encoder import Encoder

Cells = tuple[list[bytes], dict[int, Baseline], bool]
"""The cells of some values, the baselines of the large ones by index, and whether all others are known to be of JSON types."""


def encode_list(encoder: Encoder, value: list[Any]) -> tuple[bytes, Baseline]:
    """The cell and the baseline of a large list."""
    cells, children, plain = cells_of(encoder, value)
    tree = sequence(encoder.nodes, cells)
    cell = tree_cell(Code.LIST_TREE, tree)
    groups = encoder.fingerprinter.group(value, list(map(len, cells)), children, plain=plain)
    return cell, Elements(list, cell, tree, groups, groups.firsts(value))


def find_list_runs(encoder: Encoder, value: list[Any], base: Elements) -> list[Run]:
    """The runs of a list that may have changed; none if it is unchanged."""
    return encoder.fingerprinter.find_list_runs(value, base)


def edit_list(encoder: Encoder, value: list[Any], base: Elements, runs: list[Run]) -> tuple[bytes, Baseline]:
    """``encode_list`` for a list of which only these runs may have changed."""
    replacements = []
    groups = base.groups
    for run, floor in last_first(runs):
        cells, groups = update_run(encoder, run, floor, value, groups, ELEMENT_INLINE)
        replacements.append((run.old_start, run.old_end, cells))
    tree = splice_cells(encoder.nodes, base.tree, replacements[::-1])
    cell = tree_cell(Code.LIST_TREE, tree)
    return cell, Elements(list, cell, tree, groups, groups.firsts(value))


def sequence(nodes: Nodes, cells: list[bytes]) -> Tree:
    """The tree of these elements."""
    return splice(nodes, empty(Shape.SEQUENCE), [Edit(0, 0, cells)])


def cells_of(encoder: Encoder, values: list[Any]) -> Cells:
    """The cells of elements of a list."""
    cells = []
    children: dict[int, Baseline] = {}
    plain = True
    pack, is_plain, depth = encoder.pack, encoder.is_plain, encoder.depth
    is_deep = depth > SHALLOW
    for index, value in enumerate(values):
        try:
            # Most elements are small JSON values. Packing a large one here is wasted, but costs no more than a copy; within lists within
            # lists it would be a copy for each of them.
            if not (is_deep and type(value) in CONTAINERS and encoder.is_large(value)) and is_plain(value, depth, ELEMENT_INLINE):
                cell = pack(value)
                if len(cell) <= ELEMENT_INLINE:
                    cells.append(cell)
                    continue
        except (OverflowError, UnicodeEncodeError):
            pass
        cell, child = encoder.update(value, None, ELEMENT_INLINE)
        cells.append(cell)
        if child is not None:
            children[index] = child
        else:
            plain = False
    return cells, children, plain


def entry_cells_of(encoder: Encoder, values: list[Any], limit: int) -> Cells:
    """The cells of values of a dict."""
    cells = []
    children = {}
    for index, value in enumerate(values):
        cell, child = encoder.update(value, None, limit)
        cells.append(cell)
        if child is not None:
            children[index] = child
    return cells, children, False


def update_run(encoder: Encoder, run: Run, floor: int, values: list[Any], groups: Groups, limit: int) -> tuple[list[bytes], Groups]:
    """The new cells of a run of elements, and the groups with the run's replaced; groups before ``floor`` stay as they are."""
    changed = values[run.new_start : run.new_end]
    child = groups.all[run.first].child if run.last - run.first == 1 == len(changed) else None
    if child is not None:
        cell, new_child = encoder.update(changed[0], child, limit)
        if new_child is not None:
            return [cell], groups.replaced(run.first, run.last, [Group(1, None, 0, new_child)])
        cells, children, plain = [cell], dict[int, Baseline](), False
    elif limit == ELEMENT_INLINE:
        cells, children, plain = cells_of(encoder, changed)
    else:
        cells, children, plain = entry_cells_of(encoder, changed, limit)
    first, start = run.first, run.new_start
    if not children and first > floor and len(changed) < GROUP_SIZE:
        # New elements at the end join the last group; otherwise each commit would add a group.
        before = groups.all[first - 1]
        if before.child is None and before.size + len(changed) <= GROUP_SIZE and before.weight < GROUP_BYTES:
            first, start = first - 1, start - before.size
            plain = plain and is_plain_fingerprint(before.fingerprint)
    if first < run.first and run.first == run.last and plain:
        extended = encoder.fingerprinter.extended(groups.all[first], cells)
        if extended is not None:
            return cells, groups.replaced(first, run.last, [extended])
    taken = run.new_start - start
    sizes = [groups.all[first].least // taken] * taken if taken else []
    sizes += map(len, cells)
    part = encoder.fingerprinter.group(values[start : run.new_end], sizes, children, plain=plain)
    return cells, groups.replaced(first, run.last, part.all)


def last_first(runs: list[Run]) -> Iterator[tuple[Run, int]]:
    """Runs from the last to the first, so that replacing one does not move the others; each with the end of the run before it."""
    for index in range(len(runs) - 1, -1, -1):
        yield runs[index], runs[index - 1].last if index else 0
