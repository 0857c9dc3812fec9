"""Python values to cells: small ones packed, large ones as trees, changed ones at the cost of the change.

Layer: values.

A cell is a function of the value alone, so encoding with a baseline gives the same bytes as encoding without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, cast

from versioned_state.errors import LimitExceededError
from versioned_state.objects.address import Address
from versioned_state.values import accelerator
from versioned_state.values.accelerator import Accelerator
from versioned_state.values.cells import (
    ELEMENT_INLINE,
    ENTRY_INLINE,
    MAX_BLOB,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_KEY,
    Code,
    are_sorted,
    array,
    extension,
    fits,
    order_key,
    pack_text,
    typed_cell,
)
from versioned_state.values.codec import arrays
from versioned_state.values.codec.arrays import buffer_of
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.codec.scalars import WRITERS, NotDataError, TooDeepError, is_plain
from versioned_state.values.detection.baselines import Baseline, Buffer, Elements, Entries, Pinned, Typed, Whole
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import (
    GROUP_BYTES,
    GROUP_SIZE,
    Group,
    Groups,
    Run,
    hash_bytes,
    is_plain_fingerprint,
)
from versioned_state.values.encode.inline import InlineEncoder, NotStorableError, RestartError
from versioned_state.values.encode.walks import CONTAINERS, SHALLOW, exceeds, is_surely_large
from versioned_state.values.keys import path_of
from versioned_state.values.trees.blob import (
    CHUNK_BYTES,
    add_chunk,
    binary_spans,
    text_spans,
    write_blob,
    write_bytes,
    write_spans,
)
from versioned_state.values.trees.edit import build_sequence, edit_map, splice_cells
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_parts
from versioned_state.values.trees.tree import Tree, empty
from versioned_state.values.typed.registry import quick_fingerprint
from versioned_state.values.typed.tagged import Notes

_SIZED: Final = frozenset({str, bytes, bytearray})
_SCALARS: Final = frozenset({bool, int, float, complex, type(None)})
_JSON_SCALARS: Final = _SCALARS - {complex}
_ATOMS: Final = _JSON_SCALARS | {str, bytes}
_TREES: Final = {tuple: Code.TUPLE_TREE, set: Code.SET_TREE, frozenset: Code.FROZENSET_TREE}

_Cells = tuple[list[bytes], dict[int, Baseline], bool]
"""The cells of values, the baselines of large ones by index, and whether all others are known to be of JSON types."""


class Encoder(InlineEncoder):
    """An encoder of values into one writer's nodes. Not for two threads at once.

    Args:
        nodes: stages new objects.
        policy: whether values that are not data may be pickled; without a policy, none may.
    """

    def __init__(self, nodes: Nodes, policy: PicklePolicy | None = None) -> None:
        super().__init__(policy)
        self.nodes = nodes
        self.fast: accelerator.Accelerator | None = accelerator.fast
        self.fingerprinter: Fingerprinter = Fingerprinter()
        self._large_ones: dict[int, _Large] = {}
        self._within_whole = False  # whether a value around has a fingerprint over all of it: no part needs another

    def encode(
        self, value: Any, base: Baseline | None, path: str | bytes | Callable[[], str], *, limit: int = ENTRY_INLINE
    ) -> tuple[bytes, Baseline | None]:
        """Return the cell of a value at ``path`` (a string or root key), and the baseline to compare it with next time.

        The baseline of a small value is None.

        Args:
            base: the baseline from the last encoding of the value, if there is one. The cost is then that of the
                change.
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
            # first, so that no Ctrl-C comes in between: what is kept is true of this moment only
            fingerprinter.keeps_found = False
            self._within_whole = False
            if fingerprinter.found or self._large_ones or self.sizes.known or self._pickled:
                self.forget()
            self._root = None  # do not keep the value alive
        return self.guarded(
            partial(self.update, value, base, limit), value, path if callable(path) else partial(_show, path)
        )

    def encode_small(self, value: Any) -> bytes | None:
        """Return the cell of a small JSON value, as most are, at half ``encode``'s cost, or None for another value."""
        if self.fast is not None:
            return self.fast.pack(value, MAX_DEPTH, ENTRY_INLINE)
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
        """Return the cell of a value for a place that takes up to ``limit`` inline bytes. Raises as ``encode``."""
        return self.guarded(partial(self.update, value, None, limit), value, partial(_show, path))[0]

    # One part of a value, small or large

    def update(self, value: Any, base: Baseline | None, limit: int) -> tuple[bytes, Baseline | None]:
        """Return the cell and the baseline of a part, for a place that takes up to ``limit`` inline bytes.

        For ``guarded``.
        """
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
                runs = (
                    self.fingerprinter.find_list_runs(value, base)
                    if isinstance(base, Elements)
                    else _find_dict_runs(self, value, base)
                )
                if not runs:
                    return base.cell, base
                if self.fingerprinter.is_surely_longer(base.groups, runs, ELEMENT_INLINE):
                    return self._large(value, cls, base, runs)
            elif isinstance(base, Pinned | Whole) and self.fingerprinter.is_unchanged(value, base):
                return base.cell, base
            # A value that was large is probably still large: check before packing all of it.
            walk = exceeds if base is not None else is_surely_large
            if not (
                self.is_large(value)
                if base is None and (self.depth > SHALLOW or self._large_ones)
                else walk(value, ELEMENT_INLINE)
            ):
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
        """Return whether a part is certainly too large to be inline. ``data``: that of a typed value.

        In the depth, where a walk over all that is below would be one for each level, the sizes of all parts are taken
        at once.
        """
        if id(value) in self._large_ones:
            return True
        if self.depth > SHALLOW:
            if type(value) in WRITERS:
                return type(value) in _SIZED and len(value) > ELEMENT_INLINE
            return self.sizes.of(value).packed > ELEMENT_INLINE
        return is_surely_large(value if data is None else data, ELEMENT_INLINE)

    def _known(self, value: Any, depth: int) -> tuple[bytes, Baseline | None] | None:
        """Return the cell and baseline of a large part that another place holds too: it is encoded only once."""
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

    def _large(
        self, value: Any, cls: type, base: Baseline | None, runs: list[Run] | None
    ) -> tuple[bytes, Baseline | None]:
        limit = MAX_ELEMENTS if cls in CONTAINERS else MAX_BLOB
        if (cls in CONTAINERS or cls in _SIZED) and len(value) > limit:
            raise LimitExceededError(f"a {cls.__name__} of {len(value)}", limit=limit)
        if cls is str or cls is bytes:
            return _encode_text(self.nodes, value, base if isinstance(base, Pinned) else None)
        if cls is bytearray:
            return _encode_buffer(self, value, base if isinstance(base, Buffer) else None)
        if cls not in CONTAINERS:
            return self.packed(self.inline(value))
        if base is None and (known := self._known(value, self.depth - 1)) is not None:
            return known
        encoded: tuple[bytes, Baseline | None]
        if cls is list:
            encoded = (
                _edit_list(self, value, base, runs) if runs and type(base) is Elements else _encode_list(self, value)
            )
        elif cls is dict:
            encoded = (
                _edit_dict(self, value, base, runs) if runs and type(base) is Entries else _encode_dict(self, value)
            )
        else:
            encoded = self._encode_as_a_whole(value, cls)
        return encoded if base is not None else self._keep(value, encoded)

    def _encode_as_a_whole(self, value: Any, cls: Any) -> tuple[bytes, Whole]:
        if cls is not tuple:
            self.check_keys(value)
        outer, self._within_whole = self._within_whole, True
        try:
            cells, _, _ = _cells_of(self, list(value))
        finally:
            self._within_whole = outer
        if cls is not tuple:
            cells.sort()
        return self._whole(value, tree_cell(_TREES[cls], build_sequence(self.nodes, cells)))

    def _whole(self, value: Any, cell: bytes) -> tuple[bytes, Whole]:
        return cell, Whole(type(value), cell, None if self._within_whole else self.fingerprinter.of([value])[0])

    def packed(self, cell: bytes) -> tuple[bytes, None]:
        """Return the cell of a value that is too large for its parent and is always encoded as a whole."""
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
                return _encode_buffer(self, value, base if isinstance(base, Buffer) else None)
            except NotDataError:
                return self._large_object(value, limit)
        small = self.numpy(value)
        return self._large_object(value, limit) if small is None else (small, None)

    def _update_typed(
        self, value: Any, record: tuple[str, Any, Notes], base: Typed | None, limit: int
    ) -> tuple[bytes, Baseline | None]:
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
        baseline = Typed(
            type(value), cell, inner, *self.fingerprinter.of_record(data if inner is None else None, notes)
        )
        baseline.quick = quick_fingerprint(value)
        return self._keep(value, (cell, baseline))

    def _update_object(self, value: Any, base: Baseline | None, limit: int) -> tuple[bytes, Baseline | None]:
        """Do ``update`` for a part that is stored as an object because something in it is shared."""
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
    """A large part that was encoded, with its cell and its baseline. It is kept so that its id is not reused."""

    value: Any
    cell: bytes
    base: Baseline | None
    within_whole: bool


def _show(path: str | bytes) -> str:
    return path if isinstance(path, str) else str(path_of(path))


# Large lists: the cells of their elements, and the tree over those


def _encode_list(encoder: Encoder, value: list[Any]) -> tuple[bytes, Baseline]:
    """Return the cell and the baseline of a large list."""
    value = list(value)  # an element whose class runs code, or another thread, may change it meanwhile
    cells, children, plain = _cells_of(encoder, value)
    tree = build_sequence(encoder.nodes, cells)
    cell = tree_cell(Code.LIST_TREE, tree)
    groups = encoder.fingerprinter.group(value, list(map(len, cells)), children, plain=plain)
    return cell, Elements(list, cell, tree, groups, groups.firsts(value))


def _edit_list(encoder: Encoder, value: list[Any], base: Elements, runs: list[Run]) -> tuple[bytes, Baseline]:
    """Return what ``_encode_list`` does, for a list of which only these runs may have changed."""
    replacements = []
    groups = base.groups
    for run, floor in _last_first(runs):
        cells, groups = _update_run(encoder, run, floor, value, groups, ELEMENT_INLINE)
        replacements.append((run.old_start, run.old_end, cells))
    tree = splice_cells(encoder.nodes, base.tree, replacements[::-1])
    cell = tree_cell(Code.LIST_TREE, tree)
    return cell, Elements(list, cell, tree, groups, groups.firsts(value))


def _cells_of(encoder: Encoder, values: list[Any]) -> _Cells:
    """Return the cells of elements of a list, which belongs to the caller."""
    if encoder.fast is not None and not encoder.as_objects:
        return _cells_at_once(encoder, encoder.fast, values, ELEMENT_INLINE)
    cells = []
    children: dict[int, Baseline] = {}
    plain = True
    pack, is_plain, depth = encoder.pack, encoder.is_plain, encoder.depth
    is_deep = depth > SHALLOW
    for index, value in enumerate(values):
        try:
            # Most elements are small JSON values. Packing a large one here is wasted, but costs no more than a copy;
            # within lists within lists it would be a copy for each of them.
            if not (is_deep and type(value) in CONTAINERS and encoder.is_large(value)) and is_plain(
                value, depth, ELEMENT_INLINE
            ):
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


def _entry_cells_of(encoder: Encoder, values: list[Any], limit: int) -> _Cells:
    """Return the cells of values of a dict, in a list that belongs to the caller."""
    if encoder.fast is not None and not encoder.as_objects:
        return _cells_at_once(encoder, encoder.fast, values, limit)
    cells = []
    children = {}
    for index, value in enumerate(values):
        cell, child = encoder.update(value, None, limit)
        cells.append(cell)
        if child is not None:
            children[index] = child
    return cells, children, False


def _cells_at_once(encoder: Encoder, fast: Accelerator, values: list[Any], limit: int) -> _Cells:
    """Return the cells of values, the small ones of JSON types as the accelerator packs them."""
    packed = fast.pack_all(values, MAX_DEPTH - encoder.depth, limit)
    children: dict[int, Baseline] = {}
    plain = True
    for index in [index for index, cell in enumerate(packed) if cell is None] if None in packed else ():
        packed[index], child = encoder.update(values[index], None, limit)
        if child is not None:
            children[index] = child
        else:
            plain = False
    return cast("list[bytes]", packed), children, plain


def _update_run(
    encoder: Encoder, run: Run, floor: int, values: list[Any], groups: Groups, limit: int
) -> tuple[list[bytes], Groups]:
    """Return the new cells of a run of elements, and the groups with the run's replaced.

    Groups before ``floor`` stay as they are.
    """
    changed = values[run.new_start : run.new_end]
    child = groups.all[run.first].child if run.last - run.first == 1 == len(changed) else None
    if child is not None:
        cell, new_child = encoder.update(changed[0], child, limit)
        if new_child is not None:
            return [cell], groups.replaced(run.first, run.last, [Group(1, None, 0, new_child)])
        cells, children, plain = [cell], dict[int, Baseline](), False
    elif limit == ELEMENT_INLINE:
        cells, children, plain = _cells_of(encoder, changed)
    else:
        cells, children, plain = _entry_cells_of(encoder, changed, limit)
    first, start = run.first, run.new_start
    if not children and first > floor and len(changed) < GROUP_SIZE:
        # New elements at the end join the last group; otherwise each commit would add a group.
        before = groups.all[first - 1]
        if before.child is None and before.size + len(changed) <= GROUP_SIZE and before.weight < GROUP_BYTES:
            first, start = first - 1, start - before.size
            plain = plain and is_plain_fingerprint(before.fingerprint)
    if first < run.first and run.first == run.last and plain:
        extended = encoder.fingerprinter.extended(groups.all[first], cells, values, start)
        if extended is not None:
            return cells, groups.replaced(first, run.last, [extended])
    taken = run.new_start - start
    sizes = [groups.all[first].least // taken] * taken if taken else []
    sizes += map(len, cells)
    part = encoder.fingerprinter.group(values[start : run.new_end], sizes, children, plain=plain)
    return cells, groups.replaced(first, run.last, part.all)


def _last_first(runs: list[Run]) -> Iterator[tuple[Run, int]]:
    """Yield runs, last first, each with the end of the run before it, so that replacing one does not move the rest."""
    for index in range(len(runs) - 1, -1, -1):
        yield runs[index], runs[index - 1].last if index else 0


# Large dicts: a map by key, and the order of the keys if it is not the sorted one


def _encode_dict(encoder: Encoder, value: dict[Any, Any]) -> tuple[bytes, Baseline | None]:
    """Return the cell and the baseline of a large dict."""
    encoder.check_keys(value)
    keys, values = list(value), list(value.values())
    key_cells = [encoder.key(key) for key in keys]
    order_keys = [order_key(key, cell) for key, cell in zip(keys, key_cells, strict=True)]
    if len(set(order_keys)) < len(keys) or max(map(len, order_keys)) > MAX_KEY:
        # Several NaNs, which are different keys in a dict and the same key in a map, or keys too long for a node:
        # packed as a whole.
        return encoder.packed(encoder.inline(value))
    cells, children, plain = _entry_cells_of(encoder, values, ENTRY_INLINE)
    tree = edit_map(encoder.nodes, empty(Shape.MAP), dict(zip(order_keys, cells, strict=True)))
    order = None if are_sorted(order_keys) else build_sequence(encoder.nodes, key_cells)
    fingerprinter = encoder.fingerprinter
    groups = fingerprinter.group(values, list(map(len, cells)), children, plain=plain)
    cell = _dict_cell(tree, order)
    return cell, Entries(dict, cell, tree, order, keys, fingerprinter.of(keys)[0], groups)


def _find_dict_runs(encoder: Encoder, value: dict[Any, Any], base: Entries) -> list[Run]:
    """Return the runs of a dict whose values or keys may have changed, or none if the dict is unchanged."""
    known = encoder.fingerprinter.known_runs(value, base) if encoder.fingerprinter.found else None
    if known is not None:
        return known
    keys, values = list(value), list(value.values())
    if encoder.fingerprinter.same(base.keys_fingerprint, keys):
        return encoder.fingerprinter.find_runs(base.groups, values)
    prefix, suffix = _common_ends(base.keys, keys)
    return encoder.fingerprinter.find_runs(base.groups, values, prefix=prefix, suffix=suffix)


def _edit_dict(
    encoder: Encoder, value: dict[Any, Any], base: Entries, runs: list[Run]
) -> tuple[bytes, Baseline | None]:
    """Return what ``_encode_dict`` does, for a dict of which only these runs may have changed."""
    keys, values = list(value), list(value.values())
    same_keys = encoder.fingerprinter.same(base.keys_fingerprint, keys)
    changes: dict[bytes, bytes | None] = {}
    groups = base.groups
    for run, floor in _last_first(runs):
        cells, groups = _update_run(encoder, run, floor, values, groups, ENTRY_INLINE)
        if not same_keys:
            for key in base.keys[run.old_start : run.old_end]:
                changes.setdefault(_order_key(encoder, key), None)
        for key, cell in zip(keys[run.new_start : run.new_end], cells, strict=True):
            changes[_order_key(encoder, key)] = cell
    tree = edit_map(encoder.nodes, base.tree, changes)
    if tree.count != len(keys) or max(map(len, changes), default=0) > MAX_KEY:
        return _encode_dict(encoder, value)
    order, keys_fingerprint = base.order, base.keys_fingerprint
    if not same_keys:
        encoder.check_keys(value)
        order = _reorder(encoder, base, keys)
        keys_fingerprint = encoder.fingerprinter.of(keys)[0]
    cell = _dict_cell(tree, order)
    return cell, Entries(dict, cell, tree, order, keys, keys_fingerprint, groups)


def _dict_cell(tree: Tree, order: Tree | None) -> bytes:
    return tree_cell(Code.DICT_TREE, tree, *([] if order is None else tree_parts(order)))


def _order_key(encoder: Encoder, key: Any) -> bytes:
    return order_key(key, b"" if type(key) is str else encoder.key(key))


def _reorder(encoder: Encoder, base: Entries, keys: list[Any]) -> Tree | None:
    """Return the order tree after the keys changed, or None if they are sorted now."""
    prefix, suffix = _common_ends(base.keys, keys)
    end = len(keys) - suffix
    around = keys if base.order is not None else keys[max(prefix - 1, 0) : end + 1]
    if are_sorted(_order_key(encoder, key) for key in around):
        return None
    if base.order is None:
        return build_sequence(encoder.nodes, [encoder.key(key) for key in keys])
    new = [encoder.key(key) for key in keys[prefix:end]]
    return splice_cells(encoder.nodes, base.order, [(prefix, len(base.keys) - suffix, new)])


def _common_ends(old: list[Any], new: list[Any]) -> tuple[int, int]:
    """Return how many keys are certainly the same at the start, and at the end of the rest."""

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


# Large texts, bytes, bytearrays and arrays: chunks, and the tree over them


def _encode_text(nodes: Nodes, value: str | bytes, base: Pinned | None) -> tuple[bytes, Baseline]:
    """Return the cell and the baseline of a large string or bytes.

    Chunks that it shares with ``base`` are stored already.
    """
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        code, spans = Code.TEXT, text_spans(data)
    else:
        data = value
        code, spans = Code.BYTES_BLOB, binary_spans(len(data))
    blob = write_spans(nodes, data, spans, None if base is None else base.blob)
    cell = tree_cell(code, blob.tree)
    return cell, Pinned(type(value), cell, value, blob)


def _encode_buffer(encoder: Encoder, value: Any, base: Buffer | None) -> tuple[bytes, Baseline]:
    """Return the cell and the baseline of a large bytearray or array: its chunks that differ from ``base``.

    Raises ``NotDataError``.
    """
    form, view = buffer_of(value)
    spans = list(binary_spans(len(view)))
    hashes = [hash_bytes(view[a:b]) for a, b in spans]
    if base is not None and hashes == base.hashes and len(view) == base.size and form == base.form:
        return base.cell, base
    chunks: list[Address] = []
    for index, (a, b) in enumerate(spans):
        if (
            base is not None
            and b <= base.size
            and base.hashes[index] == hashes[index]
            and (b - a == CHUNK_BYTES or b == base.size)
        ):
            chunks.append(base.blob.chunks[index])
        else:
            chunks.append(add_chunk(encoder.nodes, view[a:b]))
    blob = write_blob(encoder.nodes, chunks, [b - a for a, b in spans], None if base is None else base.blob)
    if form is None:
        cell = tree_cell(Code.BYTEARRAY_BLOB, blob.tree)
    else:
        descr, shape = form
        cell = extension(
            Code.ARRAY_BLOB, array([*tree_parts(blob.tree), encoder.inline(descr), encoder.inline(list(shape))])
        )
    return cell, Buffer(type(value), cell, form, len(view), hashes, blob)
