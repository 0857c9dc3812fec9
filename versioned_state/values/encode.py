"""Python values to cells: small ones packed, large ones as trees, changed ones at the cost of the change. Layer: values.

A *cell* is the MessagePack form of one value, where a large value is a reference to its tree. It is a function of the value
alone, so ``update`` with a baseline gives the very bytes that ``update`` without one would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgpack
from blake3 import blake3

from versioned_state.errors import LimitExceededError, PickleRefusedError, UnserializableValueError
from versioned_state.objects.address import Address
from versioned_state.values.codec import arrays, pickles, registry
from versioned_state.values.codec.scalars import (
    MAX_BLOB,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_KEY,
    WRITERS,
    Code,
    NotDataError,
    TooDeepError,
    array,
    extension,
    is_plain,
    pack_surrogates,
    payload_of,
)
from versioned_state.values.detection.baselines import Baseline, Buffer, Elements, Entries, Marked, Pinned
from versioned_state.values.detection.fingerprints import (
    GROUP_BYTES,
    GROUP_SIZE,
    Groups,
    Mark,
    Marker,
    Run,
    find_runs,
    fingerprint,
    is_plain_mark,
)
from versioned_state.values.examine import CONTAINERS, exceeds, find_cycle, find_inside
from versioned_state.values.keys import path_of
from versioned_state.values.trees.blob import CHUNK_BYTES, add_chunk, binary_cuts, text_cuts, write_blob, write_bytes, write_cuts
from versioned_state.values.trees.nodes import Nodes, Shape, array_header, map_header, read_node, write_node
from versioned_state.values.trees.tree import Edit, Tree, edit_map, empty, splice, splice_cells

T = TypeVar("T")

ELEMENT_INLINE: Final = 4096
"""Packed bytes up to which an element lies in the leaf of its list. A larger one is a tree, or an object, of its own."""

ENTRY_INLINE: Final = 128
"""The same for a value in a map: a state's values change one by one, and a leaf is written whole."""

_AS_A_WHOLE: Final = (Pinned, Marked)
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_SIZED: Final = frozenset({str, bytes, bytearray})
_SMALL: Final = frozenset({bool, int, float, complex, type(None)})
_TREES: Final = {tuple: Code.TUPLE_TREE, set: Code.SET_TREE, frozenset: Code.FROZENSET_TREE}


def order_key(key: Any, cell: bytes) -> bytes:
    """What a map sorts a dict's key by. Strings come in the order of their characters, before all others."""
    if type(key) is str:
        return b"s" + key.encode("utf-8", "surrogatepass")
    return b"x" + cell


def key_of_cell(cell: bytes) -> bytes:
    """The order key of a dict's key, from its cell."""
    first = cell[0]
    if 0xA0 <= first <= 0xBF:
        return b"s" + cell[1:]
    if 0xD9 <= first <= 0xDB:
        return b"s" + cell[{0xD9: 2, 0xDA: 3, 0xDB: 5}[first] :]
    return b"x" + cell


def tree_parts(tree: Tree) -> list[bytes]:
    """A tree within a payload: how many elements, and its top node by address or inlined."""
    top = msgpack.packb(tree.top) if isinstance(tree.top, bytes) else msgpack.packb([write_node(tree.shape, tree.top)])
    return [msgpack.packb(tree.count), top]


def tree_cell(code: Code, tree: Tree, *more: bytes) -> bytes:
    """The cell that refers to a tree."""
    return extension(code, array([*tree_parts(tree), *more]))


class Encoder:
    """Encodes values into one writer's nodes. Not for two threads at once.

    Args:
        nodes: where new objects are staged.
        policy: whether values that are not data may be pickled.
    """

    def __init__(self, nodes: Nodes, policy: pickles.PicklePolicy) -> None:
        self.nodes = nodes
        self.policy = policy
        self.marker = Marker()
        self._pack = msgpack.Packer(strict_types=True).pack
        self._depth = 0
        self._cyclic: set[int] = set()
        self._is_plain: Callable[..., bool] = is_plain
        self._pickled: dict[int, tuple[Any, pickles.Pickled]] = {}

    # The way in

    def encode(self, value: Any, base: Baseline | None, path: str | bytes) -> tuple[bytes, Baseline | None]:
        """The cell of a value that stands at ``path`` (a string or a root key), and the baseline to compare it with next time.

        Of a small value the baseline is None.

        Args:
            base: what the value was when it was last encoded, if that is known. It makes this cost what changed.

        Raises:
            UnserializableValueError: a value inside that cannot be pickled; the error names its path and type.
            PickleRefusedError: one that would have to be, where the policy refuses it.
            LimitExceededError: too deep, or one piece too large.
        """
        return self._guarded(lambda: self._update(value, base, ENTRY_INLINE), value, path)

    def encode_small(self, value: Any) -> bytes | None:
        """What ``encode`` gives for a small value of JSON types, as most values of a state are, at half its cost. None for any other."""
        try:
            if exceeds(value, ENTRY_INLINE) or not is_plain(value):
                return None
            cell: bytes = self._pack(value)
        except (TooDeepError, RecursionError, OverflowError, ValueError):
            return None
        return cell if len(cell) <= ENTRY_INLINE else None

    def append(self, cell: bytes, tail: list[Any], path: str | bytes) -> bytes:
        """The cell of a large list with more elements at its end, without reading the others. Cost: one path, and the elements."""
        count, top = msgpack.unpackb(payload_of(cell))
        tree = Tree(Shape.SEQUENCE, count, top if isinstance(top, bytes) else read_node(Shape.SEQUENCE, top[0]))
        cells, _, _ = self._guarded(lambda: self._cells(tail), tail, path)
        return tree_cell(Code.LIST_TREE, splice(self.nodes, tree, [Edit(count, count, cells)]))

    def encode_at(self, value: Any, limit: int, path: str = "a value") -> bytes:
        """The cell of a value where up to ``limit`` bytes are inline. Raises the same as ``encode``."""
        return self._guarded(lambda: self._update(value, None, limit)[0], value, path)

    def encode_inline(self, value: Any, path: str) -> bytes:
        """The packed form of a value with everything in it, for small things that are not part of a state. Raises the same."""
        return self._guarded(lambda: self._inline(value), value, path)

    def _guarded(self, encode: Callable[[], T], value: Any, path: str | bytes) -> T:
        try:
            return self._attempt(encode, value, path)
        finally:
            self._pickled.clear()

    def _attempt(self, encode: Callable[[], T], value: Any, path: str | bytes) -> T:
        self._depth = 0
        if self._cyclic:
            self._cyclic.clear()
            self._is_plain = is_plain
        while True:
            try:
                return encode()
            except (TooDeepError, RecursionError):
                self._depth = 0
                looped = find_cycle(value)
                if looped is None or looped in self._cyclic:
                    raise LimitExceededError("the depth of a value", limit=MAX_DEPTH, path=_show(path)) from None
                self._cyclic.add(looped)
                self._is_plain = _is_plain_scalar
            except _PickleError as error:
                self._depth = 0
                where = _show(path) + (find_inside(value, error.value) or "")
                if isinstance(error.cause, PickleRefusedError):
                    self.policy.check_write(where, pickles.type_name_of(error.value))
                raise UnserializableValueError(where, pickles.type_name_of(error.value), str(error.cause)) from error.cause

    def unchanged(self, value: Any, base: Baseline) -> bool:
        """Whether a value is surely what its baseline says. Cost: packing it once."""
        return type(value) is base.type and self._same_content(value, base)

    def _same_content(self, value: Any, base: Baseline) -> bool:
        if isinstance(base, Pinned):
            return value is base.value
        if isinstance(base, Marked):
            return self.marker.same(base.mark, [value])
        if isinstance(base, Elements):
            return not find_runs(base.groups, value, self._same_group)
        if isinstance(base, Entries):
            return self.marker.same(base.keys_mark, list(value)) and not find_runs(base.groups, list(value.values()), self._same_group)
        assert isinstance(base, Buffer)
        try:
            form, view = self.buffer(value)
        except NotDataError:  # an array that is stored in another way than the one before it
            return False
        return form == base.form and len(view) == base.size and [fingerprint(view[a:b]) for a, b in binary_cuts(len(view))] == base.prints

    def _same_group(self, groups: Groups, group: int, elements: list[Any], start: int) -> bool:
        child = groups.children[group]
        if child is not None:
            return self.unchanged(elements[start], child)
        mark = groups.marks[group]
        run = elements[start : start + groups.sizes[group]]
        if not isinstance(mark, tuple):
            return self.marker.same(mark, run)
        packed = self.marker.pack_leaves(mark, run)
        if packed is not None:
            groups.marks[group] = fingerprint(packed)
        return packed is not None

    # One value, small or large

    def _update(self, value: Any, base: Baseline | None, limit: int) -> tuple[bytes, Baseline | None]:
        cls = type(value)
        if base is not None and base.type is not cls:
            base = None
        if cls in _SMALL:
            cell = self._inline(value)
            return (cell, None) if len(cell) <= limit else self._packed(cell)
        self._depth += 1
        if self._depth > MAX_DEPTH and cls in CONTAINERS:
            raise TooDeepError
        try:
            if isinstance(base, _AS_A_WHOLE) and self.unchanged(value, base):
                return base.cell, base
            if id(value) in self._cyclic:
                return self._object(value, limit)
            if cls not in CONTAINERS and cls not in WRITERS:
                return self._other(value, base, limit)
            if not exceeds(value, ELEMENT_INLINE):
                self._depth -= 1  # it counts itself there
                cell = self._inline(value)
                self._depth += 1
                if len(cell) <= limit:
                    return cell, None
                if len(cell) <= ELEMENT_INLINE and cls in CONTAINERS:
                    return self._packed(cell)
            return self._large(value, cls, base)
        finally:
            self._depth -= 1

    def _large(self, value: Any, cls: type, base: Baseline | None) -> tuple[bytes, Baseline | None]:
        limit = MAX_ELEMENTS if cls in CONTAINERS else MAX_BLOB
        if (cls in CONTAINERS or cls in _SIZED) and len(value) > limit:
            raise LimitExceededError(f"a {cls.__name__} of {len(value)}", limit=limit)
        if cls is list:
            return self._list(value, base if isinstance(base, Elements) else None)
        if cls is dict:
            return self._dict(value, base if isinstance(base, Entries) else None)
        if cls is str or cls is bytes:
            data = value if cls is bytes else value.encode("utf-8", "surrogatepass")
            cuts = binary_cuts(len(data)) if cls is bytes else text_cuts(data)
            blob = write_cuts(self.nodes, data, cuts, base.blob if isinstance(base, Pinned) else None)
            cell = tree_cell(Code.BYTES_BLOB if cls is bytes else Code.TEXT, blob.tree)
            return cell, Pinned(cls, cell, value, blob)
        if cls is bytearray:
            return self._buffered(value, cls, base if isinstance(base, Buffer) else None)
        if cls not in CONTAINERS:
            return self._packed(self._inline(value))
        cells, _, _ = self._cells(list(value))
        if cls is not tuple:
            cells.sort()
        cell = tree_cell(_TREES[cls], self._sequence(cells))
        return cell, self._marked(value, cell)

    def _marked(self, value: Any, cell: bytes) -> Marked:
        return Marked(type(value), cell, self.marker.mark([value], plain=False)[0])

    def _packed(self, cell: bytes) -> tuple[bytes, None]:
        """A value that is too large for its parent and has no parts that could change apart."""
        return tree_cell(Code.PACKED, write_bytes(self.nodes, cell)), None

    def _sequence(self, cells: list[bytes]) -> Tree:
        return splice(self.nodes, empty(Shape.SEQUENCE), [Edit(0, 0, cells)])

    # Wholly inline

    def _inline(self, value: Any) -> bytes:
        """The packed form of a value with everything in it, however large."""
        if self._is_plain(value, self._depth):
            try:
                packed: bytes = self._pack(value)
            except (OverflowError, UnicodeEncodeError):
                pass  # an int beyond 64 bits, or a lone surrogate, somewhere inside: part by part
            else:
                return packed
        cls = type(value)
        writer = WRITERS.get(cls)
        if writer is not None:
            try:
                return writer(value)
            except NotDataError:
                return self._object(value, None)[0]
        if cls not in CONTAINERS:
            return self._other(value, None, None)[0]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooDeepError
        try:
            if id(value) in self._cyclic:
                return self._object(value, None)[0]
            inline = self._inline
            if cls is dict:
                return map_header(len(value)) + b"".join([inline(part) for item in value.items() for part in item])
            cells = [inline(part) for part in value]
        finally:
            self._depth -= 1
        if cls is list:
            return array_header(len(cells)) + b"".join(cells)
        if cls is tuple:
            return extension(Code.TUPLE, array(cells))
        return extension(Code.SET if cls is set else Code.FROZENSET, array(sorted(cells)))

    # Lists

    def _cells(self, values: list[Any]) -> tuple[list[bytes], dict[int, Baseline], bool]:
        """The cells of the elements of a list, the baselines of the large ones by index, and whether the others are all plain."""
        cells = []
        children: dict[int, Baseline] = {}
        plain = True
        pack, plain_value, depth = self._pack, self._is_plain, self._depth
        for index, value in enumerate(values):
            try:
                # Most elements are small JSON values. A large one is packed in vain here, once, at the speed of a copy.
                if plain_value(value, depth) and len(cell := pack(value)) <= ELEMENT_INLINE:
                    cells.append(cell)
                    continue
            except (OverflowError, UnicodeEncodeError):
                pass
            cell, child = self._update(value, None, ELEMENT_INLINE)
            cells.append(cell)
            if child is not None:
                children[index] = child
            else:
                plain = False
        return cells, children, plain

    def _list(self, value: list[Any], base: Elements | None) -> tuple[bytes, Baseline]:
        if base is None:
            cells, children, plain = self._cells(value)
            tree = self._sequence(cells)
            groups = self.group(value, [len(cell) for cell in cells], children, plain=plain)
        else:
            runs = find_runs(base.groups, value, self._same_group)
            if not runs:
                return base.cell, base
            replacements = []
            groups = base.groups
            for run, floor in _last_first(runs):
                cells, groups = self._update_run(run, floor, value, groups, ELEMENT_INLINE)
                replacements.append((run.old_start, run.old_end, cells))
            tree = splice_cells(self.nodes, base.tree, replacements[::-1])
        cell = tree_cell(Code.LIST_TREE, tree)
        return cell, Elements(list, cell, tree, groups)

    def _update_run(self, run: Run, floor: int, values: list[Any], groups: Groups, limit: int) -> tuple[list[bytes], Groups]:
        """The new cells of a run of elements, and the groups with that run's replaced; those before ``floor`` stay as they are."""
        changed = values[run.new_start : run.new_end]
        child = groups.children[run.first] if run.last - run.first == 1 == len(changed) else None
        if child is not None:
            cell, new_child = self._update(changed[0], child, limit)
            cells, children, plain = [cell], {0: new_child} if new_child is not None else {}, False
        elif limit == ELEMENT_INLINE:
            cells, children, plain = self._cells(changed)
        else:
            cells, children, plain = self._entry_cells(changed)
        first, start = run.first, run.new_start
        if not children and first > floor and len(changed) < GROUP_SIZE:
            # What is appended a little at a time joins the group before it, or there would be a group for each commit.
            size, weight = groups.sizes[first - 1], groups.weights[first - 1]
            if groups.children[first - 1] is None and size + len(changed) <= GROUP_SIZE and weight < GROUP_BYTES:
                first, start = first - 1, start - size
                plain = plain and is_plain_mark(groups.marks[first])
        sizes = [0] * (run.new_start - start) + [len(cell) for cell in cells]
        part = self.group(values[start : run.new_end], sizes, children, plain=plain)
        return cells, groups.replaced(first, run.last, part)

    def group(self, values: list[Any], sizes: list[int], children: dict[int, Baseline], *, plain: bool) -> Groups:
        """Marks over these values, whose cells have these sizes. ``plain``: all but the large ones are known to be plain."""
        groups = Groups()
        start = weight = 0
        count = len(values)
        index = 0
        while index < count:
            if index in children:
                self._mark(groups, values[start:index], plain=plain)
                groups.add(1, None, 0, children[index])
                start = index + 1
                weight = 0
            else:
                weight += sizes[index]
                if index + 1 - start >= GROUP_SIZE or weight >= GROUP_BYTES:
                    self._mark(groups, values[start : index + 1], plain=plain)
                    start = index + 1
                    weight = 0
            index += 1
        self._mark(groups, values[start:], plain=plain)
        return groups

    def _mark(self, groups: Groups, run: list[Any], *, plain: bool) -> None:
        if run:
            mark, weight = self.marker.mark(run, plain=plain or self._is_plain(run))
            groups.add(len(run), mark, weight)

    # Dicts

    def _entry_cells(self, values: list[Any]) -> tuple[list[bytes], dict[int, Baseline], bool]:
        cells = []
        children = {}
        for index, value in enumerate(values):
            cell, child = self._update(value, None, ENTRY_INLINE)
            cells.append(cell)
            if child is not None:
                children[index] = child
        return cells, children, False

    def _dict(self, value: dict[Any, Any], base: Entries | None) -> tuple[bytes, Baseline | None]:
        keys, values = list(value), list(value.values())
        if base is None:
            key_cells = [self._inline(key) for key in keys]
            order_keys = [order_key(key, cell) for key, cell in zip(keys, key_cells, strict=True)]
            if len(set(order_keys)) < len(keys) or max(map(len, order_keys)) > MAX_KEY:
                # Several NaNs, which are keys of their own to a dict and the same to a map, or keys too long for a node of them:
                # packed as a whole.
                return self._packed(self._inline(value))
            cells, children, plain = self._entry_cells(values)
            tree = edit_map(self.nodes, empty(Shape.MAP), dict(zip(order_keys, cells, strict=True)))
            order = None if _is_sorted(order_keys) else self._sequence(key_cells)
            groups = self.group(values, [len(cell) for cell in cells], children, plain=plain)
            keys_mark = self.mark_keys(keys)
        else:
            same_keys = self.marker.same(base.keys_mark, keys)
            prefix, suffix = (None, None) if same_keys else _common_ends(base.keys, keys)
            runs = find_runs(base.groups, values, self._same_group, prefix=prefix, suffix=suffix)
            if same_keys and not runs:
                return base.cell, base
            changes: dict[bytes, bytes | None] = {}
            groups = base.groups
            for run, floor in _last_first(runs):
                cells, groups = self._update_run(run, floor, values, groups, ENTRY_INLINE)
                if not same_keys:
                    for key in base.keys[run.old_start : run.old_end]:
                        changes.setdefault(self._order_key(key), None)
                for key, cell in zip(keys[run.new_start : run.new_end], cells, strict=True):
                    changes[self._order_key(key)] = cell
            tree = edit_map(self.nodes, base.tree, changes)
            if tree.count != len(keys) or max(map(len, changes), default=0) > MAX_KEY:
                return self._dict(value, None)
            order, keys_mark = base.order, base.keys_mark
            if not same_keys:
                order = self._reorder(base, keys)
                keys_mark = self.mark_keys(keys)
        more = [] if order is None else tree_parts(order)
        cell = tree_cell(Code.DICT_TREE, tree, *more)
        return cell, Entries(dict, cell, tree, order, keys, keys_mark, groups)

    def mark_keys(self, keys: list[Any]) -> Mark:
        """The mark of a dict's keys in their order."""
        return self.marker.mark(keys, plain=self._is_plain(keys))[0]

    def _order_key(self, key: Any) -> bytes:
        return order_key(key, b"" if type(key) is str else self._inline(key))

    def _reorder(self, base: Entries, keys: list[Any]) -> Tree | None:
        """The order tree after the keys changed: none where they are sorted now."""
        prefix, suffix = _common_ends(base.keys, keys)
        end = len(keys) - suffix
        around = keys if base.order is not None else keys[max(prefix - 1, 0) : end + 1]
        if _is_sorted(map(self._order_key, around)):
            return None
        if base.order is None:
            return self._sequence([self._inline(key) for key in keys])
        new = [self._inline(key) for key in keys[prefix:end]]
        return splice_cells(self.nodes, base.order, [(prefix, len(base.keys) - suffix, new)])

    # Buffers

    def buffer(self, value: Any) -> tuple[Any, memoryview]:
        """The form (dtype and shape, for an array) and the bytes of a bytearray or array."""
        if type(value) is bytearray:
            return None, memoryview(value)
        return (arrays.dtype_data(value.dtype), value.shape), arrays.raw_view(value)

    def _buffered(self, value: Any, cls: type, base: Buffer | None) -> tuple[bytes, Baseline | None]:
        form, view = self.buffer(value)
        cuts = list(binary_cuts(len(view)))
        prints = [fingerprint(view[a:b]) for a, b in cuts]
        if base is not None and prints == base.prints and len(view) == base.size and form == base.form:
            return base.cell, base
        chunks: list[Address] = []
        for index, (a, b) in enumerate(cuts):
            if base is not None and b <= base.size and base.prints[index] == prints[index] and (b - a == CHUNK_BYTES or b == base.size):
                chunks.append(base.blob.chunks[index])
            else:
                chunks.append(add_chunk(self.nodes, view[a:b]))
        blob = write_blob(self.nodes, chunks, [b - a for a, b in cuts], None if base is None else base.blob)
        if form is None:
            cell = tree_cell(Code.BYTEARRAY_BLOB, blob.tree)
        else:
            descr, shape = form
            cell = extension(Code.ARRAY_BLOB, array([*tree_parts(blob.tree), self._inline(descr), self._inline(list(shape))]))
        return cell, Buffer(cls, cell, form, len(view), prints, blob)

    # Everything else: registered types, numpy, objects. ``limit`` None: wholly inline

    def _other(self, value: Any, base: Baseline | None, limit: int | None) -> tuple[bytes, Baseline | None]:
        registration = registry.find_by_type(type(value))
        if type(value) is registry.Tagged:
            return self._tagged(value, value.name, value.data, limit)
        if registration is not None:
            try:
                data = registration.to_data(value)
            except registry.NotPlainDataError:
                return self._object(value, limit)
            except Exception as error:
                raise _PickleError(value, error) from error
            return self._tagged(value, registration.name, data, limit)
        try:
            if arrays.is_array(value):
                if limit is not None and value.nbytes > limit:
                    return self._buffered(value, type(value), base if isinstance(base, Buffer) else None)
                form, view = self.buffer(value)
                parts = [self._inline(form[0]), self._inline(list(form[1])), msgpack.packb(bytes(view))]
                return extension(Code.NUMPY_ARRAY, array(parts)), None
            if arrays.is_scalar(value):
                parts = [self._inline(arrays.dtype_data(value.dtype)), msgpack.packb(value.tobytes())]
                return extension(Code.NUMPY_SCALAR, array(parts)), None
        except NotDataError:
            pass
        return self._object(value, limit)

    def _tagged(self, value: Any, name: str, data: Any, limit: int | None) -> tuple[bytes, Baseline | None]:
        head = pack_surrogates(name)
        if limit is None or not exceeds(data, limit):
            cell = extension(Code.TAGGED, array([head, self._inline(data)]))
            if limit is None or len(cell) <= limit:
                return cell, None
        cell = extension(Code.TAGGED, array([head, self._update(data, None, limit)[0]]))
        return cell, self._marked(value, cell)

    def _object(self, value: Any, limit: int | None) -> tuple[bytes, Baseline | None]:
        if not self.policy.allowed:
            raise _PickleError(value, PickleRefusedError("", policy=self.policy.mode))
        pickled = self._pickle(value)
        digests = blake3(pickled.data).digest() + b"".join(blake3(view).digest() for _, view in pickled.buffers)
        mac = self.policy.mac(pickled.type_name.encode() + b"\0" + digests)
        inline = limit is None or (not pickled.buffers and len(pickled.data) <= limit)
        parts = [pack_surrogates(pickled.type_name), msgpack.packb(mac)]
        pieces: list[tuple[bool, bytes | memoryview]] = [(False, pickled.data), *pickled.buffers]
        for writable, data in pieces:
            cell = extension(Code.BYTES, bytes(data)) if inline else tree_cell(Code.BYTES_BLOB, write_bytes(self.nodes, data))
            parts += [msgpack.packb(writable), cell]
        cell = extension(Code.OBJECT, array(parts))
        return cell, None if inline else self._marked(value, cell)

    def _pickle(self, value: Any) -> pickles.Pickled:
        """Pickle once a call: an object that proves too large for its parent is asked for again."""
        known = self._pickled.get(id(value))
        if known is not None:
            return known[1]
        try:
            pickled = pickles.dump(value)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            raise _PickleError(value, error) from error
        self._pickled[id(value)] = (value, pickled)
        return pickled


def _is_plain_scalar(value: Any, _depth: int = 0) -> bool:
    """Stands in for ``is_plain`` where a value contains itself, which that would never come out of."""
    return type(value) in _SMALL and type(value) is not complex


def _show(path: str | bytes) -> str:
    return path if isinstance(path, str) else str(path_of(path))


class _PickleError(Exception):
    """A value that could not be pickled; the way in finds its path and says so."""

    def __init__(self, value: Any, cause: Exception) -> None:
        super().__init__()
        self.value = value
        self.cause = cause


def _last_first(runs: list[Run]) -> Iterator[tuple[Run, int]]:
    """Runs from the last to the first, so that replacing one leaves the others in place; each with the end of the one before it."""
    for index in range(len(runs) - 1, -1, -1):
        yield runs[index], runs[index - 1].last if index else 0


def _is_sorted(order_keys: Any) -> bool:
    previous = None
    for key in order_keys:
        if previous is not None and key <= previous:
            return False
        previous = key
    return True


def _common_ends(old: list[Any], new: list[Any]) -> tuple[int, int]:
    """How many keys are surely the same from the start, and from the end of the rest."""

    def same(a: Any, b: Any) -> bool:
        # Equal is not enough: 1, True and 1.0 are equal, and so are 0.0 and -0.0.
        return (a is b and type(a) in _ATOMS) or (type(a) is str is type(b) and a == b)

    least = min(len(old), len(new))
    prefix = 0
    while prefix < least and same(old[prefix], new[prefix]):
        prefix += 1
    suffix = 0
    while suffix < least - prefix and same(old[-1 - suffix], new[-1 - suffix]):
        suffix += 1
    return prefix, suffix
