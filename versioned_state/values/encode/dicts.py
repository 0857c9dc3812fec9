"""Large dicts: a map by key, and the order of the keys if it is not the sorted one. Layer: values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from versioned_state.values.cells import ENTRY_INLINE, MAX_KEY, Code, order_key
from versioned_state.values.detection.baselines import Baseline, Entries
from versioned_state.values.detection.groups import Run
from versioned_state.values.encode.lists import entry_cells_of, last_first, sequence, update_run
from versioned_state.values.trees.edit import edit_map, splice_cells
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.references import tree_cell, tree_parts
from versioned_state.values.trees.tree import Tree, empty

if TYPE_CHECKING:
    from versioned_state.values.encode.encoder import Encoder

_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})


def encode_dict(encoder: Encoder, value: dict[Any, Any]) -> tuple[bytes, Baseline | None]:
    """The cell and the baseline of a large dict."""
    encoder.check_keys(value)
    keys, values = list(value), list(value.values())
    key_cells = [encoder.key(key) for key in keys]
    order_keys = [order_key(key, cell) for key, cell in zip(keys, key_cells, strict=True)]
    if len(set(order_keys)) < len(keys) or max(map(len, order_keys)) > MAX_KEY:
        # Several NaNs, which are different keys in a dict and the same key in a map, or keys too long for a node: packed as a whole.
        return encoder.packed(encoder.inline(value))
    cells, children, plain = entry_cells_of(encoder, values, ENTRY_INLINE)
    tree = edit_map(encoder.nodes, empty(Shape.MAP), dict(zip(order_keys, cells, strict=True)))
    order = None if _is_sorted(order_keys) else sequence(encoder.nodes, key_cells)
    fingerprinter = encoder.fingerprinter
    groups = fingerprinter.group(values, list(map(len, cells)), children, plain=plain)
    cell = _cell(tree, order)
    return cell, Entries(dict, cell, tree, order, keys, fingerprinter.of(keys)[0], groups)


def find_dict_runs(encoder: Encoder, value: dict[Any, Any], base: Entries) -> list[Run]:
    """The runs of a dict's values that may have changed, or whose keys may have; none if the dict is unchanged."""
    known = encoder.fingerprinter.known_runs(value, base) if encoder.fingerprinter.found else None
    if known is not None:
        return known
    keys, values = list(value), list(value.values())
    if encoder.fingerprinter.same(base.keys_fingerprint, keys):
        return encoder.fingerprinter.find_runs(base.groups, values)
    prefix, suffix = _common_ends(base.keys, keys)
    return encoder.fingerprinter.find_runs(base.groups, values, prefix=prefix, suffix=suffix)


def edit_dict(encoder: Encoder, value: dict[Any, Any], base: Entries, runs: list[Run]) -> tuple[bytes, Baseline | None]:
    """``encode_dict`` for a dict of which only these runs may have changed."""
    keys, values = list(value), list(value.values())
    same_keys = encoder.fingerprinter.same(base.keys_fingerprint, keys)
    changes: dict[bytes, bytes | None] = {}
    groups = base.groups
    for run, floor in last_first(runs):
        cells, groups = update_run(encoder, run, floor, values, groups, ENTRY_INLINE)
        if not same_keys:
            for key in base.keys[run.old_start : run.old_end]:
                changes.setdefault(_order_key(encoder, key), None)
        for key, cell in zip(keys[run.new_start : run.new_end], cells, strict=True):
            changes[_order_key(encoder, key)] = cell
    tree = edit_map(encoder.nodes, base.tree, changes)
    if tree.count != len(keys) or max(map(len, changes), default=0) > MAX_KEY:
        return encode_dict(encoder, value)
    order, keys_fingerprint = base.order, base.keys_fingerprint
    if not same_keys:
        encoder.check_keys(value)
        order = _reorder(encoder, base, keys)
        keys_fingerprint = encoder.fingerprinter.of(keys)[0]
    cell = _cell(tree, order)
    return cell, Entries(dict, cell, tree, order, keys, keys_fingerprint, groups)


def _cell(tree: Tree, order: Tree | None) -> bytes:
    return tree_cell(Code.DICT_TREE, tree, *([] if order is None else tree_parts(order)))


def _order_key(encoder: Encoder, key: Any) -> bytes:
    return order_key(key, b"" if type(key) is str else encoder.key(key))


def _reorder(encoder: Encoder, base: Entries, keys: list[Any]) -> Tree | None:
    """The order tree after the keys changed: None if they are sorted now."""
    prefix, suffix = _common_ends(base.keys, keys)
    end = len(keys) - suffix
    around = keys if base.order is not None else keys[max(prefix - 1, 0) : end + 1]
    if _is_sorted(_order_key(encoder, key) for key in around):
        return None
    if base.order is None:
        return sequence(encoder.nodes, [encoder.key(key) for key in keys])
    new = [encoder.key(key) for key in keys[prefix:end]]
    return splice_cells(encoder.nodes, base.order, [(prefix, len(base.keys) - suffix, new)])


def _is_sorted(order_keys: Iterable[bytes]) -> bool:
    previous = None
    for key in order_keys:
        if previous is not None and key <= previous:
            return False
        previous = key
    return True


def _common_ends(old: list[Any], new: list[Any]) -> tuple[int, int]:
    """How many keys are certainly the same at the start, and at the end of the rest."""

    def same(a: Any, b: Any) -> bool:
        # Equality is not enough: 1, True and 1.0 are equal, and so are 0.0 and -0.0.
        return (a is b and type(a) in _ATOMS) or (type(a) is str is type(b) and a == b)

    least = min(len(old), len(new))
    prefix = 0
    while prefix < least and same(old[prefix], new[prefix]):
        prefix += 1
    suffix = 0
    while suffix < least - prefix and same(old[-1 - suffix], new[-1 - suffix]):
        suffix += 1
    return prefix, suffix
