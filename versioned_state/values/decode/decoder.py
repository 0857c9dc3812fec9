"""Cells to Python values. Layer: values.

First every object that a value needs is fetched, in one call of the store for each level; then the value is decoded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import msgpack

from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError
from versioned_state.objects.address import Address, Kind
from versioned_state.values.cells import (
    MALFORMED,
    MAX_BLOB,
    MAX_COLLISIONS,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_NESTING,
    Code,
    array_header,
    code_of,
    decoded_text,
    key_of_cell,
)
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.codec.scalars import PARTS_READERS, RAW_READERS, check_hashes
from versioned_state.values.decode.objects import read_array, read_object, read_scalar
from versioned_state.values.decode.typed_reader import PENDING, Head, TypedReader
from versioned_state.values.encode.walks import footprint
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Node, Nodes, Shape, check_child, read_node
from versioned_state.values.trees.references import SHAPES, read_tree
from versioned_state.values.trees.tree import Tree
from versioned_state.values.typed.registry import Classes

_find_surrogate: Final = re.compile(rb"\xed[\xa0-\xbf]").search

_KEYS_BY_HASH: Final = frozenset(
    {
        Code.BIGINT,
        Code.COMPLEX,
        Code.TUPLE,
        Code.FROZENSET,
        Code.RANGE,
        Code.DECIMAL,
        Code.FRACTION,
        Code.UUID,
        Code.TYPED,
        Code.NUMPY_SCALAR,
    }
)
"""Extensions that can have any number of values of one hash: MessagePack makes a dict of them in quadratic time."""

_UNCOUNTED: Final = 8192
"""Packed bytes up to which such values are not counted: some hundred keys. Nearly all leaves are shorter."""

_TREE_COST: Final = 64
"""The cost of a tree besides its elements: decoding an empty one takes as long as these many elements."""

_ON_STACK: Final = 8
"""The depth of nested extensions up to which msgpack's state lies on the C stack, at 40 KB a level.

Beyond it, the state lies on the heap, because stacks may be small.
"""

_FETCHED_AT_ONCE: Final = 256
"""Objects that are read before their bytes are counted, if they are: a leaf has some 4 KB, a chunk at most 64."""

_EXTENSIONS: Final = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))
"""The bytes with which MessagePack's extensions begin."""

_REFERRING: Final = frozenset(SHAPES) | {Code.TYPED, Code.OBJECT}
_INNER_KINDS: Final = frozenset({Kind.SEQUENCE_NODE, Kind.MAP_NODE})
_LEAF_KINDS: Final = frozenset({Kind.SEQUENCE_LEAF, Kind.MAP_LEAF})
_FROM_LIST: Final = {Code.LIST_TREE: list, Code.TUPLE_TREE: tuple, Code.SET_TREE: set, Code.FROZENSET_TREE: frozenset}
_SCALARS: Final = frozenset({str, int, float, bool, type(None), bytes})
_only_scalars = _SCALARS.issuperset


class Decoder:
    """A decoder of cells. Not for two threads at once.

    Args:
        nodes: reads the objects that cells refer to.
        policy: whether objects are unpickled, and classes imported; without one, each object is shown as
            ``ObjectInfo``.
        classes: the classes whose typed values become instances, unless the policy allows more. Values of other classes
            are ``Tagged``.
        spend: called with the bytes of each part of a value as it is read, and as it is decoded: see ``footprint``.
            What it raises ends the decoding. Large values are then read in more than one call of the store a level.
        most_steps: extensions that a value may take, each counted as often as it is decoded; by default any number.
    """

    def __init__(
        self,
        nodes: Nodes,
        policy: PicklePolicy | None = None,
        *,
        classes: Classes = "registered",
        spend: Callable[[int], None] | None = None,
        most_steps: int = sys.maxsize,
    ) -> None:
        self._nodes = nodes
        self._policy = policy
        self._spend_bytes = spend
        self._most_steps = self._steps_left = most_steps
        self._costs: dict[bytes, int] = {}  # of the leaves, if bytes are counted
        self._trusts = policy is not None and policy.allowed
        if policy is not None and (policy.imports or policy.classes is not None):
            classes = "imported" if policy.imports or policy.classes is None else policy.classes
        self._typed = TypedReader(classes, describes=policy is None)
        self._raws: dict[Any, bytes] = {}
        self._inner: dict[bytes, Node] = {}
        self._leaves: dict[bytes, tuple[list[Any], bool]] = {}
        self._wanted: dict[bytes, Shape] = {}
        self._fetching = False
        self._references = 0
        self._exotic = False
        self._unpickled = self._packed = False
        self._depth = 0
        self._unicode_errors = "strict"
        self._keys_left: int | None = None
        self._elements_left = MAX_ELEMENTS
        self._bytes_left = MAX_BLOB

    def decode(self, cell: bytes) -> Any:
        """Return the value of a cell.

        Raises:
            PickleRefusedError: it holds an object, and the policy refuses to unpickle.
            MissingObjectError, CorruptObjectError: the store lacks a part of it.
        """
        if (
            self._spend_bytes is None
            and cell
            and cell[0] not in _EXTENSIONS
            and (plain := self.plain_values((cell,))) is not None
        ):
            return plain[0]
        return self._run((cell,), lambda: self._read(cell))

    def decode_many(self, cells: Sequence[bytes]) -> list[Any]:
        """Return the values of some cells, whose objects are read together. Raises as ``decode``."""
        if (plain := self.plain_values(cells)) is not None:
            if self._spend_bytes is not None:
                self._spend_bytes(footprint(plain))
            return plain
        return self._run(cells, lambda: [self._read(cell) for cell in cells])  # type: ignore[no-any-return]

    def plain_values(self, cells: Sequence[bytes]) -> list[Any] | None:
        """Return what ``plain_values`` does.

        If this decoder may unpickle from the store, it also trusts the store's nesting depth; encoding checks the depth
        again.
        """
        return plain_values(cells, check=not self._trusts)

    def check(self, cells: bytes | memoryview, *, code: int | None = None) -> None:
        """Decode packed cells without following references, and raise the errors that ``decode`` would raise for them.

        Args:
            cells: a cell, or the leaf of a tree without its kind.
            code: that of the cell whose tree the leaf belongs to. The elements of a set and the keys of a dict must be
                hashable.
        """
        self._depth = 0
        self._elements_left, self._bytes_left = MAX_ELEMENTS, MAX_BLOB
        self._fetching = True
        try:
            value = self._unpack(cells)
            check_nesting(value, -1)  # a leaf does not count as a container
            if code in (Code.SET_TREE, Code.FROZENSET_TREE):
                for element in value:
                    hash(element)
            elif code == Code.DICT_TREE:
                for order_key in value:
                    hash(self._key(order_key))
        except StateError:
            raise
        except RecursionError as error:
            raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH) from error
        except MALFORMED as error:
            raise CorruptObjectError("(a value)", f"it does not decode: {type(error).__name__}: {error}") from error
        finally:
            self._wanted.clear()
            self._fetching = False
            self._references = 0

    def decode_key(self, order_key: bytes) -> Any:
        """Return the key of a dict that has this order key. Raises as ``decode``."""
        if order_key[:1] != b"s":
            return self.decode(order_key[1:])
        return decoded_text(order_key[1:])

    def entry_path(self, path: StatePath, order_key: bytes) -> StatePath:
        """Return the path of a dict's entry, from the path of the dict."""
        return path.key(self.decode_key(order_key), None if order_key[:1] == b"s" else order_key[1:])

    def _run(self, cells: Sequence[bytes], read: Callable[[], Any]) -> Any:
        try:
            return self._attempt(cells, read)
        except RecursionError:
            pass
        # The caller is deep in calls of its own, and wrote the value where it was not. A thread begins with a stack of
        # its own.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(self._attempt, cells, read).result()
            except RecursionError as error:
                raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH) from error

    def _attempt(self, cells: Sequence[bytes], read: Callable[[], Any]) -> Any:
        self._depth = 0
        self._unpickled = self._packed = False
        try:
            if self._spend_bytes is not None:
                self._spend_bytes(sum(map(len, cells)))
            self._elements_left, self._bytes_left = MAX_ELEMENTS, MAX_BLOB
            self._fetch(cells)
            self._elements_left, self._bytes_left = MAX_ELEMENTS, MAX_BLOB
            return read()
        except (StateError, RecursionError):
            raise
        except MALFORMED as error:
            raise CorruptObjectError("(a value)", f"it does not decode: {type(error).__name__}: {error}") from error
        finally:
            self._raws.clear()
            self._inner.clear()
            self._leaves.clear()
            self._wanted.clear()
            self._costs.clear()
            self._typed.clear()
            self._fetching = False

    def _check(self, value: Any) -> None:
        if not self._unpickled:  # an object may contain itself
            check_nesting(value)

    def _read(self, cell: bytes) -> Any:
        value = self._unpack(cell)
        if code_of(cell) not in SHAPES:
            self._check(value)
        return value

    # Fetching: the walk of decoding, but it collects references instead of following them

    def _fetch(self, cells: Sequence[bytes]) -> None:
        """Read all objects that some cells refer to, level by level."""
        for cell in cells:
            if code_of(cell) in _REFERRING:
                self._fetching = True
                self._unpack(cell)
        while self._wanted:
            wanted = dict(self._wanted)
            self._wanted.clear()
            addresses = cast("list[Address]", list(wanted))
            at_once = len(addresses) if self._spend_bytes is None else _FETCHED_AT_ONCE
            for start in range(0, len(addresses), at_once):
                clears = self._nodes.clears
                got = self._nodes.reader.read_many(addresses[start : start + at_once])
                if self._spend_bytes is not None:
                    self._spend_bytes(sum(map(len, got.values())))
                self._raws.update(got)
                for address, raw in got.items():
                    self._look_into(wanted[address], address, raw, clears)
        self._fetching = False

    def _want(self, shape: Shape, addresses: list[bytes]) -> None:
        for address in addresses:
            if address not in self._raws:
                self._wanted[address] = shape

    def _look_into(self, shape: Shape, address: bytes, raw: bytes, clears: int) -> None:
        kind = raw[0] if raw else None
        if kind in _INNER_KINDS:
            node = self._inner[address] = read_node(shape, raw)
            self._nodes.keep(address, node, raw, clears)
            self._want(shape, node.items)
        elif kind in _LEAF_KINDS:
            before = self._references
            self._exotic = False
            values = self._unpack(memoryview(raw)[1:], is_array=kind == Kind.SEQUENCE_LEAF)
            if not self._trusts or may_have_timestamp(raw):
                # The check would take a tenth of the time that a long list takes. If this decoder may unpickle from the
                # store, it also trusts the store's nesting depth; encoding checks the depth again.
                self._check(values)
            if self._spend_bytes is not None:
                self._costs[address] = footprint(values)
            if self._references == before and kind == Kind.SEQUENCE_LEAF:
                # The leaf has no references: keep the decoded values for its first use.
                self._leaves[address] = (values, not self._exotic)
                if self._spend_bytes is not None:
                    self._spend_bytes(self._costs[address])
        elif kind != Kind.CHUNK:
            raise CorruptObjectError(address.hex(), f"a part of a value has kind {kind}")

    def _note(self, tree: Tree) -> None:
        if isinstance(tree.top, bytes):
            self._want(tree.shape, [tree.top])
        elif tree.top.level:
            self._want(tree.shape, tree.top.items)
        elif tree.shape is not Shape.BLOB:
            for cell in tree.top.items:
                self._check(self._unpack(cell))

    # Decoding

    def _leaf(self, address: bytes) -> bytes:
        """Return the raw bytes of a leaf or a chunk, whose values are counted: they are made of it now."""
        raw = self._raws[address]
        if self._spend_bytes is not None:
            self._spend_bytes(self._costs.get(address, len(raw)))
        return raw

    def _unpack(self, data: bytes | bytearray | memoryview, *, is_array: bool = False) -> Any:
        """Return the value of a cell, or with ``is_array`` the values of an array of cells."""
        outer = self._unicode_errors, self._keys_left
        # Decided once for all that is packed in these bytes: if each level tried first, the time would double with
        # each.
        self._unicode_errors = "surrogatepass" if _may_hold_surrogates(data) else "strict"
        self._keys_left = MAX_COLLISIONS if len(data) > _UNCOUNTED else _UNCOUNTED
        heads, references, left = self._typed.heads, self._references, (self._elements_left, self._bytes_left)
        depth = self._depth
        try:
            return self._unpack_within(data, is_array=is_array)
        except _ManyKeysError:
            self._keys_left = None
            self._depth, self._typed.heads, self._references = depth, heads, references
            self._elements_left, self._bytes_left = left
            return self._unpack_within(data, is_array=is_array)
        finally:
            self._unicode_errors, self._keys_left = outer

    def _unpack_within(self, data: bytes | bytearray | memoryview, *, is_array: bool = False) -> Any:
        """Do as ``_unpack``, for bytes within others, or for a second attempt."""
        heads = self._typed.heads
        make_dict = None if self._keys_left is not None else _make_dict
        if self._depth < _ON_STACK:
            value = msgpack.unpackb(
                data,
                ext_hook=self._extension,
                strict_map_key=False,
                unicode_errors=self._unicode_errors,
                object_pairs_hook=make_dict,
            )
        else:
            unpacker = msgpack.Unpacker(
                None,
                max_buffer_size=len(data),
                ext_hook=self._extension,
                strict_map_key=False,
                unicode_errors=self._unicode_errors,
                object_pairs_hook=make_dict,
            )
            unpacker.feed(data)
            value = unpacker.unpack()
            if unpacker.tell() != len(data):
                raise ValueError("bytes after its end")
        if is_array and (type(value) is not list or (value and type(value[0]) is Head)):
            raise ValueError("not an array of cells")
        if self._typed.heads == heads:
            return value
        self._typed.heads = heads
        return self._typed.resolved(value)

    def _extension(self, code: int, payload: bytes) -> Any:
        self._exotic = True
        self._steps_left -= 1
        if self._steps_left < 0:
            raise LimitExceededError("the work of decoding a value", limit=self._most_steps)
        if code == Code.TYPED and (head := self._typed.known_head(payload)) is not None:
            return head
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH)
        if self._keys_left is not None and code in _KEYS_BY_HASH:
            self._keys_left -= 1
            if self._keys_left < 0:
                raise _ManyKeysError
        value = self._read_extension(code, payload)
        self._depth -= 1
        return value

    def _read_extension(self, code: int, payload: bytes) -> Any:
        raw_reader = RAW_READERS.get(code)
        if raw_reader is not None:
            return raw_reader(payload)
        before = self._references
        parts = self._unpack_within(payload, is_array=True)
        if code in SHAPES:
            return self._tree(Code(code), parts)
        if self._references != before:
            return PENDING
        parts_reader = PARTS_READERS.get(code)
        if parts_reader is not None:
            return parts_reader(parts)
        if code == Code.TYPED:
            return self._typed.head(payload, parts)
        if code == Code.OBJECT:
            self._unpickled = self._policy is not None
            return self._opaque(read_object(parts, self._policy))
        if code == Code.NUMPY_ARRAY:
            return read_array(*parts)
        if code == Code.NUMPY_SCALAR:
            return read_scalar(*parts)
        raise ValueError(f"unknown extension {code}")

    def _spend(self, tree: Tree) -> None:
        """Count the elements of a tree before memory is allocated for them. Raises ``LimitExceededError``."""
        if tree.shape is Shape.BLOB:
            self._bytes_left -= tree.count
        else:
            self._elements_left -= tree.count + _TREE_COST
        if self._bytes_left < 0 or self._elements_left < 0:
            raise LimitExceededError(
                "the size of a stored value", limit=MAX_BLOB if self._bytes_left < 0 else MAX_ELEMENTS
            )

    def _tree(self, code: Code, parts: list[Any]) -> Any:
        tree = read_tree(SHAPES[code], parts)
        self._spend(tree)
        order = read_tree(Shape.SEQUENCE, parts[2:]) if code == Code.DICT_TREE and len(parts) > 2 else None
        if self._fetching:
            self._references += 1
            self._note(tree)
            if order is not None:
                self._note(order)
            return PENDING
        if tree.shape is Shape.SEQUENCE:
            elements = self._list(tree)
            if code in (Code.SET_TREE, Code.FROZENSET_TREE):
                check_hashes(elements)
            return self._opaque(_FROM_LIST[code](elements))
        if tree.shape is Shape.MAP:
            return self._opaque(self._dict(tree, order, self._unpack))
        return self._blob(code, tree, parts)

    def _list(self, tree: Tree) -> list[Any]:
        """Return the elements of a sequence."""
        values: list[Any] = []
        for address, inlined in self._tops(tree):
            leaf = self._leaves.pop(address, None) if address is not None else None
            if leaf is not None:
                values += leaf[0]
            elif address is not None:
                values += self._unpack(memoryview(self._leaf(address))[1:], is_array=True)
            elif inlined is not None:
                values += [self._unpack(cell) for cell in inlined.items]
            if len(values) > tree.count:
                break
        if len(values) != tree.count:
            raise ValueError(f"{len(values)} elements where {tree.count} were counted")
        return values

    def _tops(self, tree: Tree) -> Iterator[tuple[bytes | None, Node | None]]:
        """Yield the leaves of a tree, in order: each by its address, or the inlined leaf itself.

        Checks the inner nodes on the way.
        """
        pending: list[tuple[Node | bytes, Node | None, int]] = [(tree.top, None, 0)]
        while pending:
            top, parent, index = pending.pop()
            node = self._inner.get(top) if isinstance(top, bytes) else top
            if node is None or not node.level:
                yield (top, None) if isinstance(top, bytes) else (None, node)
                continue
            if parent is not None:
                check_child(parent, index, node)
            elif node.count != tree.count:
                raise ValueError(f"{node.count} elements where {tree.count} were counted")
            if node.level == 1:
                yield from ((child, None) for child in node.items)
            else:
                pending += [(node.items[index], node, index) for index in reversed(range(len(node.items)))]

    def _dict(self, tree: Tree, order: Tree | None, read: Callable[[bytes], Any]) -> dict[Any, Any]:
        """Return a large dict, with each value as ``read`` gives it for the cell."""
        cells: dict[bytes, bytes] = {}
        for address, inlined in self._tops(tree):
            node = inlined if address is None else read_node(tree.shape, self._leaf(address))
            assert node is not None
            assert node.keys is not None
            cells.update(zip(node.keys, node.items, strict=True))
        order_keys = list(cells) if order is None else self._order_keys(order)
        keys = [self._key(order_key) for order_key in order_keys]
        check_hashes(keys)
        # Look up by the bytes of the order key, not by the key: a decoded key with a NaN in it does not equal itself.
        entries = {}
        for key, order_key in zip(keys, order_keys, strict=True):
            entries[key] = read(cells[order_key])
        if not len(cells) == len(entries) == tree.count:
            raise ValueError(f"{len(entries)} entries of {len(cells)} where {tree.count} were counted")
        return entries

    def _key(self, order_key: bytes) -> Any:
        return order_key[1:].decode("utf-8", "surrogatepass") if order_key[:1] == b"s" else self._unpack(order_key[1:])

    def _order_keys(self, order: Tree) -> list[bytes]:
        """Return the order keys of a dict in the order of its entries."""
        keys = []
        for address, inlined in self._tops(order):
            node = inlined if address is None else read_node(order.shape, self._raws[address])
            assert node is not None
            keys += [key_of_cell(cell) for cell in node.items]
        return keys

    def _opaque(self, value: Any) -> Any:
        """Return a list or dict whose typed values are all made, or that was unpickled, so that no walk enters it."""
        cls = type(value)
        if cls is list or cls is dict:
            self._typed.made[id(value)] = value
        return value

    def _chunks(self, tree: Tree) -> list[bytes]:
        """Return the addresses of a blob's chunks."""
        return [address for address, _ in self._tops(tree) if address is not None]

    def _bytes(self, tree: Tree) -> bytearray:
        data = bytearray()
        for address in self._chunks(tree):
            raw = self._leaf(address)
            if raw[:1] != bytes((Kind.CHUNK,)):
                raise CorruptObjectError(address.hex(), "expected a chunk")
            data += memoryview(raw)[1:]
        if len(data) != tree.count:
            raise ValueError(f"{len(data)} bytes where {tree.count} were counted")
        return data

    def _blob(self, code: Code, tree: Tree, parts: list[Any]) -> Any:
        data = self._bytes(tree)
        if code == Code.TEXT:
            return data.decode("utf-8", "surrogatepass")
        if code == Code.BYTES_BLOB:
            return bytes(data)
        if code == Code.BYTEARRAY_BLOB:
            return data
        if code == Code.ARRAY_BLOB:
            return read_array(parts[2], parts[3], data)
        if self._packed:
            raise ValueError("a packed value within a packed one")
        self._packed = True
        value = self._unpack(data)
        self._packed = False
        self._check(value)
        return self._opaque(value)


def _may_hold_surrogates(data: bytes | bytearray | memoryview) -> bool:
    """Return whether a text in packed bytes may have a lone surrogate.

    Reading such texts is slower, and reads all other texts alike.
    """
    whole: Any = data.obj if isinstance(data, memoryview) else data
    # The first search is ten times as fast as the second, and most texts do not have this byte.
    return b"\xed" in whole and _find_surrogate(whole) is not None


class _ManyKeysError(Exception):
    """Packed bytes hold many values whose hashes a writer can choose, so each of their dicts must be examined first."""


def _make_dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    check_hashes([key for key, _ in pairs])
    return dict(pairs)


_BEFORE_TIMESTAMP: Final = frozenset(b"\xd6\xd7\x04\x08\x0c")
"""What comes before the type -1 in the header of a MessagePack timestamp: its length, or the code that implies it."""


def may_have_timestamp(raw: bytes) -> bool:
    """Return whether packed bytes may hold a MessagePack timestamp.

    Text never has the byte of its type, and few numbers have it behind one of the five others. A search for one byte is
    far faster than one for two: a leaf in which only the length of a text has the byte takes 0.4 µs instead of 15 to
    300.
    """
    at = raw.find(b"\xff", 1)
    while at > 0:
        if raw[at - 1] in _BEFORE_TIMESTAMP:
            return True
        at = raw.find(b"\xff", at + 1)
    return False


def check_nesting(value: Any, depth: int = 0) -> None:
    """Raise ``LimitExceededError`` for containers nested deeper than any that is written.

    Raises ``ValueError`` for a MessagePack timestamp. Cost: about 20 ns a scalar.
    """
    cls = type(value)
    if cls is dict:
        parts = value.values()
    elif cls is list or cls is tuple:
        parts = value
    elif cls is msgpack.Timestamp:
        raise ValueError("a MessagePack timestamp, which is not a type of this format")
    else:
        return
    if depth >= MAX_DEPTH:
        raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH)
    if not _only_scalars(map(type, parts)):
        for part in parts:
            if type(part) not in _SCALARS:
                check_nesting(part, depth + 1)


_NO_HEADERS: Final = bytes(byte for byte in range(256) if not (0x80 <= byte <= 0x9F or 0xDC <= byte <= 0xDF))
"""The bytes with which no array and no map begins."""


def _may_be_deep(packed: bytes) -> bool:
    """Return whether packed values may be nested too deeply.

    Cost: a tenth of ``check_nesting``, which looks at each value.
    """
    return len(packed) > MAX_DEPTH and len(packed.translate(None, _NO_HEADERS)) > MAX_DEPTH


def plain_values(cells: Sequence[bytes], *, check: bool = True) -> list[Any] | None:
    """Return the values of cells of JSON types, by one call of MessagePack, or None if a cell holds more or is damaged.

    Cost: a quarter of the time of ``Decoder.decode_many`` for small dicts.

    Args:
        check: also return None for values nested deeper than any that is written.
    """
    packed = b"".join((array_header(len(cells)), *cells))
    try:
        values: list[Any] = msgpack.unpackb(packed, ext_hook=_refuse, max_ext_len=0, max_bin_len=0)
        if len(values) != len(cells):
            return None
        if check and _may_be_deep(packed):
            check_nesting(values, -1)
    except _NOT_PLAIN:
        return None
    return values


class _ExtensionMetError(Exception):
    """A cell holds a value that is not of a JSON type."""


_NOT_PLAIN: Final = (_ExtensionMetError, LimitExceededError, RecursionError, *MALFORMED)


def _refuse(_code: int, _payload: bytes) -> Any:
    raise _ExtensionMetError


class _NoObjects:
    """A reader for cells that refer to nothing."""

    def read(self, address: Address) -> bytes:
        raise CorruptObjectError(address.hex(), "a value that should be whole refers to another object")

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        return {address: self.read(address) for address in addresses}


def decode_inline(cell: bytes, policy: PicklePolicy | None = None, *, classes: Classes = "registered") -> Any:
    """Return the value of a cell that refers to nothing, as meta is.

    Without a policy, objects are shown as ``ObjectInfo``.
    """
    try:
        value = msgpack.unpackb(cell, ext_hook=_refuse, max_ext_len=0, max_bin_len=0)
        if _may_be_deep(cell):
            check_nesting(value)
    except _NOT_PLAIN:
        return Decoder(Nodes(_NoObjects()), policy, classes=classes).decode(cell)
    return value
