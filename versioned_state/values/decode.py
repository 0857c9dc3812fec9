"""Cells to Python values, with the baselines that detect what is done to them afterwards. Layer: values.

Whatever a value needs is fetched first, one call of the store a level, and decoded as it comes. An object is unpickled only
where the policy allows it, or shown as ``ObjectInfo`` where values are only looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgpack
from blake3 import blake3

from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind
from versioned_state.values.codec import arrays, pickles, registry
from versioned_state.values.codec.scalars import MAX_BLOB, MAX_DEPTH, MAX_ELEMENTS, PARTS_READERS, RAW_READERS, Code, code_of, payload_of
from versioned_state.values.detection.baselines import Baseline, Buffer, Elements, Entries, Marked, Pinned
from versioned_state.values.detection.fingerprints import GROUP_BYTES, GROUP_SIZE, Groups, fingerprint
from versioned_state.values.encode import ELEMENT_INLINE, ENTRY_INLINE, Encoder, key_of_cell
from versioned_state.values.trees.blob import Blob, binary_cuts
from versioned_state.values.trees.nodes import Node, Nodes, Shape, read_node
from versioned_state.values.trees.tree import Tree

_SHAPES: Final = {
    Code.LIST_TREE: Shape.SEQUENCE,
    Code.TUPLE_TREE: Shape.SEQUENCE,
    Code.SET_TREE: Shape.SEQUENCE,
    Code.FROZENSET_TREE: Shape.SEQUENCE,
    Code.DICT_TREE: Shape.MAP,
    Code.TEXT: Shape.BLOB,
    Code.BYTES_BLOB: Shape.BLOB,
    Code.BYTEARRAY_BLOB: Shape.BLOB,
    Code.ARRAY_BLOB: Shape.BLOB,
    Code.PACKED: Shape.BLOB,
}
_TREE_COST: Final = 64
"""What a tree counts besides its elements, as long as decoding an empty one takes."""

_ON_STACK: Final = 8
"""Extensions within extensions up to which msgpack's state lies on the C stack, 40 KB a level; beyond, on the heap, for small stacks."""

_NESTED: Final = 2 * MAX_DEPTH + 16
"""Extensions within extensions: a container is one or, where its type is registered, two."""

_REFERRING: Final = frozenset(_SHAPES) | {Code.TAGGED, Code.OBJECT}
_INNER_KINDS: Final = frozenset({Kind.SEQUENCE_NODE, Kind.MAP_NODE})
_LEAF_KINDS: Final = frozenset({Kind.SEQUENCE_LEAF, Kind.MAP_LEAF})
_FROM_LIST: Final = {Code.LIST_TREE: list, Code.TUPLE_TREE: tuple, Code.SET_TREE: set, Code.FROZENSET_TREE: frozenset}
_DECODING_ERRORS: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    ArithmeticError,
    AttributeError,
    struct.error,
    msgpack.UnpackException,
)


def read_tree(shape: Shape, parts: list[Any]) -> Tree:
    """The tree in the first two parts of a payload. Raises ``ValueError`` for another form."""
    count, top = parts[0], parts[1]
    if type(count) is not int or count < 0:
        raise ValueError("a tree without a count")
    if type(top) is bytes and len(top) == ADDRESS_SIZE:
        return Tree(shape, count, top)
    if type(top) is list and len(top) == 1 and type(top[0]) is bytes:
        node = read_node(shape, top[0])
        if shape is not Shape.BLOB or node.level or not node.count:
            return Tree(shape, count, node)
    raise ValueError("a tree without a top")


def tree_of(cell: bytes) -> Tree | None:
    """The tree that a cell refers to, or None where it is no reference."""
    code = code_of(cell)
    if code is None or code < Code.LIST_TREE:
        return None
    return read_tree(_SHAPES[Code(code)], unpack_payload(cell))


def order_of(cell: bytes) -> Tree | None:
    """The order tree of a large dict, or None where its keys are sorted."""
    parts = unpack_payload(cell)
    return read_tree(Shape.SEQUENCE, parts[2:]) if len(parts) > 2 else None


def unpack_payload(cell: bytes) -> list[Any]:
    """The parts of a reference's payload."""
    parts = msgpack.unpackb(payload_of(cell), strict_map_key=False)
    if type(parts) is not list:
        raise ValueError("a payload without parts")
    return parts


class Decoder:
    """Decodes cells, reading objects through an encoder's nodes. Not for two threads at once.

    Args:
        encoder: whose nodes are read, and whose marker makes the marks of baselines.
        describe: show objects as ``ObjectInfo`` instead of unpickling them.
    """

    def __init__(self, encoder: Encoder, *, describe: bool = False) -> None:
        self._nodes = encoder.nodes
        self._encoder = encoder
        self._marker = encoder.marker
        self._policy = encoder.policy
        self._describe = describe
        self._raws: dict[Any, bytes] = {}
        self._inner: dict[bytes, Node] = {}
        self._leaves: dict[bytes, tuple[list[Any], bool]] = {}
        self._wanted: dict[bytes, Shape] = {}
        self._fetching = False
        self._references = 0
        self._exotic = False
        self._depth = 0
        self._elements_left = MAX_ELEMENTS
        self._bytes_left = MAX_BLOB

    def decode(self, cell: bytes) -> Any:
        """The value of a cell.

        Raises:
            PickleRefusedError: it holds an object, and the policy refuses to unpickle.
            MissingObjectError, CorruptObjectError: the store lacks a part of it.
        """
        return self._run(cell, self._unpack)

    def decode_live(self, cell: bytes) -> tuple[Any, Baseline | None]:
        """The value, and the baseline that ``Encoder.encode`` would have given for it."""
        result: tuple[Any, Baseline | None] = self._run(cell, self._live)
        return result

    def _run(self, cell: bytes, read: Callable[[bytes], Any]) -> Any:
        self._depth = 0
        try:
            self._elements_left, self._bytes_left = MAX_ELEMENTS, MAX_BLOB
            self._fetch(cell)
            self._elements_left, self._bytes_left = MAX_ELEMENTS, MAX_BLOB
            return read(cell)
        except StateError:
            raise
        except RecursionError as error:
            raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH) from error
        except _DECODING_ERRORS as error:
            raise CorruptObjectError("(a value)", f"it does not decode: {type(error).__name__}: {error}") from error
        finally:
            self._raws.clear()
            self._inner.clear()
            self._leaves.clear()
            self._wanted.clear()
            self._fetching = False

    # Fetching: the same walk as decoding, in which a reference is noted down instead of followed

    def _fetch(self, cell: bytes) -> None:
        """Read everything that a cell refers to, level by level."""
        if code_of(cell) not in _REFERRING:
            return
        self._fetching = True
        self._unpack(cell)
        while self._wanted:
            wanted = dict(self._wanted)
            self._wanted.clear()
            got = self._nodes.reader.read_many(cast("dict[Address, Shape]", wanted))
            self._raws.update(got)
            for address, raw in got.items():
                self._look_into(wanted[address], address, raw)
        self._fetching = False

    def _want(self, shape: Shape, addresses: list[bytes]) -> None:
        for address in addresses:
            if address not in self._raws:
                self._wanted[address] = shape

    def _look_into(self, shape: Shape, address: bytes, raw: bytes) -> None:
        kind = raw[0] if raw else None
        if kind in _INNER_KINDS:
            node = self._inner[address] = read_node(shape, raw)
            self._nodes.keep(address, node)
            self._want(shape, node.items)
        elif kind in _LEAF_KINDS:
            before = self._references
            self._exotic = False
            values = self._unpack(memoryview(raw)[1:])
            if self._references == before and kind == Kind.SEQUENCE_LEAF:
                # Nothing in it refers to anything: what was decoded stands, for the first place that the leaf is used in.
                self._leaves[address] = (values, not self._exotic)
        elif kind != Kind.CHUNK:
            raise CorruptObjectError(address.hex(), f"a part of a value has kind {kind}")

    def _note(self, tree: Tree) -> None:
        if isinstance(tree.top, bytes):
            self._want(tree.shape, [tree.top])
        elif tree.top.level:
            self._want(tree.shape, tree.top.items)
        elif tree.shape is not Shape.BLOB:
            for cell in tree.top.items:
                self._unpack(cell)

    # Decoding what was fetched

    def _unpack(self, data: bytes | bytearray | memoryview) -> Any:
        depth = self._depth
        try:
            return self._unpack_as(data, "strict")
        except UnicodeDecodeError:
            # A lone surrogate somewhere: decoding all text so would cost half again.
            self._depth = depth
            return self._unpack_as(data, "surrogatepass")

    def _unpack_as(self, data: bytes | bytearray | memoryview, unicode_errors: str) -> Any:
        if self._depth < _ON_STACK:
            return msgpack.unpackb(data, ext_hook=self._extension, strict_map_key=False, unicode_errors=unicode_errors)
        unpacker = msgpack.Unpacker(
            None, max_buffer_size=len(data), ext_hook=self._extension, strict_map_key=False, unicode_errors=unicode_errors
        )
        unpacker.feed(data)
        value = unpacker.unpack()
        if unpacker.tell() != len(data):
            raise ValueError("bytes after its end")
        return value

    def _extension(self, code: int, payload: bytes) -> Any:
        self._exotic = True
        self._depth += 1
        if self._depth > _NESTED:
            raise LimitExceededError("the depth of a stored value", limit=MAX_DEPTH)
        value = self._read_extension(code, payload)
        self._depth -= 1
        return value

    def _read_extension(self, code: int, payload: bytes) -> Any:
        raw_reader = RAW_READERS.get(code)
        if raw_reader is not None:
            return raw_reader(payload)
        before = self._references
        parts = self._unpack(payload)
        if code in _SHAPES:
            return self._tree(Code(code), parts)
        if self._references != before:
            return None
        parts_reader = PARTS_READERS.get(code)
        if parts_reader is not None:
            return parts_reader(parts)
        if code == Code.TAGGED:
            return _from_data(*parts)
        if code == Code.OBJECT:
            return self._object(parts)
        if code == Code.NUMPY_ARRAY:
            return _array(*parts)
        if code == Code.NUMPY_SCALAR:
            return _scalar(*parts)
        raise ValueError(f"unknown extension {code}")

    def _spend(self, tree: Tree) -> None:
        """Count what a tree will hold, before memory is taken for it. Raises ``LimitExceededError``."""
        if tree.shape is Shape.BLOB:
            self._bytes_left -= tree.count
        else:
            self._elements_left -= tree.count + _TREE_COST
        if self._bytes_left < 0 or self._elements_left < 0:
            raise LimitExceededError("the size of a stored value", limit=MAX_BLOB if self._bytes_left < 0 else MAX_ELEMENTS)

    def _tree(self, code: Code, parts: list[Any]) -> Any:
        tree = read_tree(_SHAPES[code], parts)
        self._spend(tree)
        order = read_tree(Shape.SEQUENCE, parts[2:]) if code == Code.DICT_TREE and len(parts) > 2 else None
        if self._fetching:
            self._references += 1
            self._note(tree)
            if order is not None:
                self._note(order)
            return None
        if tree.shape is Shape.SEQUENCE:
            return _FROM_LIST[code](self._list(tree))
        if tree.shape is Shape.MAP:
            return self._dict(tree, order, None)
        return self._blob(code, tree, parts)

    def _list(self, tree: Tree) -> list[Any]:
        """The elements of a sequence."""
        values: list[Any] = []
        for address, inlined in self._tops(tree):
            leaf = self._leaves.pop(address, None) if address is not None else None
            if leaf is not None:
                values += leaf[0]
            elif address is not None:
                values += self._unpack(memoryview(self._raws[address])[1:])
            elif inlined is not None:
                values += [self._unpack(cell) for cell in inlined.items]
        if len(values) != tree.count:
            raise ValueError(f"{len(values)} elements where {tree.count} were counted")
        return values

    def _list_live(self, tree: Tree) -> tuple[list[Any], Groups]:
        """The same, with the groups to compare them with: leaves of JSON types are their own mark."""
        values: list[Any] = []
        groups = Groups()
        plain: list[bytes] = []
        size = weight = 0
        for address, inlined in self._tops(tree):
            leaf = self._leaves.pop(address, None) if address is not None else None
            if address is not None and leaf is not None and leaf[1]:
                values += leaf[0]
                raw = self._raws[address]
                plain.append(raw)
                size += len(leaf[0])
                weight += len(raw)
                if size >= GROUP_SIZE or weight >= GROUP_BYTES:
                    groups.add(size, tuple(plain), weight)
                    plain, size, weight = [], 0, 0
                continue
            if plain:
                groups.add(size, tuple(plain), weight)
                plain, size, weight = [], 0, 0
            node = inlined if address is None else read_node(tree.shape, self._raws[address])
            assert node is not None
            children: dict[int, Baseline] = {}
            part = []
            for index, cell in enumerate(node.items):
                value, child = self._live(cell)
                part.append(value)
                if child is not None:
                    children[index] = child
            values += part
            groups.extend(self._encoder.group(part, [len(cell) for cell in node.items], children, plain=False))
        if plain:
            groups.add(size, tuple(plain), weight)
        if len(values) != tree.count:
            raise ValueError(f"{len(values)} elements where {tree.count} were counted")
        return values, groups

    def _tops(self, tree: Tree) -> list[tuple[bytes | None, Node | None]]:
        """The leaves of a tree, in order: by address, or the inlined one itself."""
        leaves: list[tuple[bytes | None, Node | None]] = []
        pending = [tree.top]
        while pending:
            if len(leaves) + len(pending) > tree.count + 1:
                raise ValueError("more nodes than elements")
            top = pending.pop()
            if isinstance(top, bytes):
                node = self._inner.get(top)
                if node is None:
                    leaves.append((top, None))
                    continue
            elif not top.level:
                leaves.append((None, top))
                continue
            else:
                node = top
            if node.level == 1:
                leaves += [(child, None) for child in node.items]
            else:
                pending += reversed(node.items)
        return leaves

    def _dict(self, tree: Tree, order: Tree | None, children: dict[int, Baseline] | None) -> dict[Any, Any]:
        """A large dict; the baselines of large values go to ``children`` by their place."""
        cells: dict[bytes, bytes] = {}
        for address, inlined in self._tops(tree):
            node = inlined if address is None else read_node(tree.shape, self._raws[address])
            assert node is not None
            assert node.keys is not None
            cells.update(zip(node.keys, node.items, strict=True))
        order_keys = list(cells) if order is None else self._order_keys(order)
        entries = {}
        for order_key in order_keys:
            # By the order key's bytes, not by the key: one that holds a NaN does not equal itself once it was decoded.
            key = order_key[1:].decode("utf-8", "surrogatepass") if order_key[:1] == b"s" else self._unpack(order_key[1:])
            if children is None:
                entries[key] = self._unpack(cells[order_key])
                continue
            entries[key], child = self._live(cells[order_key])
            if child is not None:
                children[len(entries) - 1] = child
        if not len(cells) == len(entries) == tree.count:
            raise ValueError(f"{len(entries)} entries of {len(cells)} where {tree.count} were counted")
        return entries

    def _order_keys(self, order: Tree) -> list[bytes]:
        """The order keys of a dict in the order of its entries."""
        keys = []
        for address, inlined in self._tops(order):
            node = inlined if address is None else read_node(order.shape, self._raws[address])
            assert node is not None
            keys += [key_of_cell(cell) for cell in node.items]
        return keys

    def _chunks(self, tree: Tree) -> list[bytes]:
        """The addresses of a blob's chunks."""
        return [address for address, _ in self._tops(tree) if address is not None]

    def _bytes(self, tree: Tree) -> bytearray:
        data = bytearray()
        for address in self._chunks(tree):
            raw = self._raws[address]
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
            return _array(parts[2], parts[3], data)
        return self._unpack(data)

    def _object(self, parts: list[Any]) -> Any:
        type_name, mac, _, data, *rest = parts
        if type(type_name) is not str or type(data) is not bytes:
            raise ValueError("not an object")
        buffers = list(zip(rest[::2], rest[1::2], strict=True))
        if self._describe:
            size = len(data) + sum(len(buffer) for _, buffer in buffers)
            return pickles.ObjectInfo(type_name, size, pickles.imported_names(data))
        self._policy.check_read(type_name)
        digests = b"".join(blake3(part).digest() for part in (data, *(buffer for _, buffer in buffers)))
        self._policy.check_mac(mac, type_name.encode() + b"\0" + digests, type_name)
        try:
            return pickles.load(data, [bytearray(buffer) if writable else buffer for writable, buffer in buffers])
        except Exception as error:
            raise StateError(
                f"an object of type {type_name} could not be unpickled: {type(error).__name__}: {error}",
                hint="its class may be missing here or have changed since; register() types whose values must last",
            ) from error

    # Live values

    def _live(self, cell: bytes) -> tuple[Any, Baseline | None]:
        code = code_of(cell)
        if code is None or code == Code.PACKED or (code < Code.LIST_TREE and len(cell) <= ELEMENT_INLINE):
            return self._unpack(cell), None
        if code == Code.LIST_TREE:
            return self._live_list(cell)
        if code == Code.DICT_TREE:
            return self._live_dict(cell)
        value = self._unpack(cell)
        if code in (Code.TEXT, Code.BYTES_BLOB):
            return value, Pinned(type(value), cell, value, self._blob_of(cell))
        if code in (Code.BYTEARRAY_BLOB, Code.ARRAY_BLOB):
            form, view = self._encoder.buffer(value)
            prints = [fingerprint(view[a:b]) for a, b in binary_cuts(len(view))]
            return value, Buffer(type(value), cell, form, len(view), prints, self._blob_of(cell))
        mark, _ = self._marker.mark([value], plain=False)
        return value, Marked(type(value), cell, mark)

    def _blob_of(self, cell: bytes) -> Blob:
        """The tree and the chunks of a blob that was fetched."""
        tree = read_tree(Shape.BLOB, unpack_payload(cell))
        chunks = [Address(chunk) for chunk in self._chunks(tree)]
        return Blob(tree, chunks, [len(self._raws[chunk]) - 1 for chunk in chunks])

    def _live_list(self, cell: bytes) -> tuple[list[Any], Baseline]:
        tree = read_tree(Shape.SEQUENCE, unpack_payload(cell))
        values, groups = self._list_live(tree)
        return values, Elements(list, cell, tree, groups)

    def _live_dict(self, cell: bytes) -> tuple[dict[Any, Any], Baseline]:
        parts = unpack_payload(cell)
        tree = read_tree(Shape.MAP, parts)
        order = read_tree(Shape.SEQUENCE, parts[2:]) if len(parts) > 2 else None
        children: dict[int, Baseline] = {}
        entries = self._dict(tree, order, children)
        keys = list(entries)
        groups = self._encoder.group(list(entries.values()), [ENTRY_INLINE] * len(keys), children, plain=False)
        return entries, Entries(dict, cell, tree, order, keys, self._encoder.mark_keys(keys), groups)


class _NoObjects:
    """A reader for what refers to nothing."""

    def read(self, address: Address) -> bytes:
        raise CorruptObjectError(address.hex(), "what should be whole refers to another object")

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        return {address: self.read(address) for address in addresses}


def decode_inline(cell: bytes) -> Any:
    """The value of a cell that refers to nothing, as meta is; objects are only described."""
    return Decoder(Encoder(Nodes(_NoObjects()), pickles.PicklePolicy("refuse", private=False)), describe=True).decode(cell)


def _from_data(name: Any, data: Any) -> Any:
    if type(name) is not str:
        raise ValueError("a registered type without a name")
    registration = registry.find_by_name(name)
    if registration is None:
        return registry.Tagged(name, data)
    try:
        return registration.from_data(data)
    except Exception as error:
        raise StateError(
            f"a value of the registered type {name!r} could not be read: {type(error).__name__}: {error}",
            hint="from_data() must read whatever to_data() has ever written",
        ) from error


def _array(descr: Any, shape: Any, data: bytes | bytearray) -> Any:
    try:
        return arrays.read_array(descr, shape, data)
    except ImportError:
        return registry.Tagged("numpy.ndarray", {"dtype": descr, "shape": shape, "data": bytes(data)})


def _scalar(descr: Any, data: bytes) -> Any:
    try:
        return arrays.read_scalar(descr, data)
    except ImportError:
        return registry.Tagged("numpy.generic", {"dtype": descr, "data": data})
