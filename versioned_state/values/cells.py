"""The grammar of a cell, the stored form of one value: MessagePack with its own extension types.

Layer: values, beneath its trees.

MessagePack's own types stand for None, bool, int of 64 bits, float, str, list and dict. An extension stands for every
other type, and for a value that lies in a tree of its own (``trees.references``). MessagePack's bin type never stands
for a value.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from enum import IntEnum
from itertools import pairwise, starmap
from operator import itemgetter, lt
from typing import Any, Final

import msgpack

from versioned_state.errors import CorruptObjectError, LimitExceededError

MALFORMED: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    ArithmeticError,
    AttributeError,
    struct.error,
    msgpack.UnpackException,
)
"""The errors that readers raise for bytes that no writer writes. Their callers make a ``CorruptObjectError`` of it."""

# Limits

MAX_DEPTH: Final = 128
"""Containers within containers. Reading recurses once a level, and must succeed wherever writing did."""

MAX_NESTING: Final = 2 * MAX_DEPTH + 16
"""Cells within cells: a container is one or, if it has a type of its own, two."""

MAX_ELEMENTS: Final = 1 << 26
"""Elements of one value, in all its trees: a few small nodes can name each other into any number of elements."""

MAX_BLOB: Final = 1 << 32
"""Bytes of one value's texts and buffers together, for the same reason."""

MAX_COLLISIONS: Final = 256
"""Keys of one dict, or elements of one set, that have one hash.

Python compares each of them with all others, and numbers and tuples of one hash are easily made. No two short ints have
one hash; of the powers of two, every 61st.
"""

MAX_KEY: Final = 4096
"""Bytes of a key in a map: a node may hold some forty keys."""

ELEMENT_INLINE: Final = 4096
"""Packed bytes up to which an element lies in the leaf of its list.

A larger one is a tree, or an object, of its own.
"""

ENTRY_INLINE: Final = 128
"""The inline limit for a value in a map: values of a state change one by one, and a leaf is written whole."""


# Extensions


class Code(IntEnum):
    """MessagePack extension codes of the format. A number is never used again."""

    BYTES = 1
    BYTEARRAY = 2
    BIGINT = 3
    COMPLEX = 4
    TUPLE = 5
    SET = 6
    FROZENSET = 7
    RANGE = 8
    DATE = 9
    DATETIME = 10
    TIME = 11
    TIMEDELTA = 12
    TIMEZONE = 13
    ZONEINFO = 14
    DECIMAL = 15
    FRACTION = 16
    UUID = 17
    PATH = 18
    NUMPY_SCALAR = 19
    NUMPY_ARRAY = 20
    TYPED = 21
    OBJECT = 22
    # From here on the payload is [count, address] or [count, [node]]: a tree.
    LIST_TREE = 32
    TUPLE_TREE = 33
    SET_TREE = 34
    FROZENSET_TREE = 35
    DICT_TREE = 36
    TEXT = 37
    BYTES_BLOB = 38
    BYTEARRAY_BLOB = 39
    ARRAY_BLOB = 40
    PACKED = 41


_TYPED: Final = 0x92
"""The first byte of a typed value: the header of an array of two."""

_first_of = itemgetter(0)
_sizes_of_heads = re.compile(rb"\x92\xc7(.)\x15[\x91\x92]", re.DOTALL).findall
_sizes_of_long_heads = re.compile(rb"\x92\xc8(..)\x15[\x91\x92]", re.DOTALL).findall


def extension(code: int, payload: bytes) -> bytes:
    """Return a MessagePack extension."""
    size = len(payload)
    if size in (1, 2, 4, 8, 16):
        return bytes((0xD3 + size.bit_length(), code)) + payload
    if size < 0x100:
        return bytes((0xC7, size, code)) + payload
    if size < 0x10000:
        return b"\xc8" + size.to_bytes(2, "big") + bytes((code,)) + payload
    if size >= 1 << 32:
        raise LimitExceededError(f"a value of {size} bytes", limit=(1 << 32) - 1)
    return b"\xc9" + size.to_bytes(4, "big") + bytes((code,)) + payload


def code_of(cell: bytes) -> int | None:
    """Return the extension code of a cell, or None if it has none. A typed value has that of its head."""
    first = cell[0]
    if 0xD4 <= first <= 0xD8:
        return cell[1]
    if first == 0xC7:
        return cell[2]
    if first == 0xC8:
        return cell[3]
    if first == 0xC9:
        return cell[5]
    return Code.TYPED if first == _TYPED and _is_head(cell) else None


def _is_head(cell: bytes) -> bool:
    """Return whether the first of two elements in a cell is the head of a typed value."""
    if len(cell) < 6:  # a head and any data
        return False
    first = cell[1]
    if 0xD4 <= first <= 0xD8:
        return cell[2] == Code.TYPED
    return 0xC7 <= first <= 0xC9 and cell[{0xC7: 3, 0xC8: 4, 0xC9: 6}[first]] == Code.TYPED


def payload_of(cell: bytes) -> bytes:
    """Return the payload of a cell that is an extension."""
    first = cell[0]
    return cell[{0xC7: 3, 0xC8: 4, 0xC9: 6}.get(first, 2) :]


def is_reference(cell: bytes) -> bool:
    """Return whether a cell may refer to other objects."""
    code = code_of(cell)
    return code is not None and (code >= Code.LIST_TREE or code in (Code.TYPED, Code.OBJECT))


# MessagePack. The packers are made once: making one takes longer than packing a small value.

PACKER_BYTES: Final = 1 << 12
"""The buffer with which a packer begins; it grows as needed.

The default is 256 KB, and a server keeps hundreds of handles with several.
"""

pack: Final = msgpack.Packer(strict_types=True).pack
"""Packs values of exact JSON types, and bytes. Raises for every other type, and for lone surrogates."""

pack_text: Final = msgpack.Packer(strict_types=True, unicode_errors="surrogatepass").pack
"""Packs a string, lone surrogates included."""


def array_header(count: int) -> bytes:
    """Return the header of a MessagePack array."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 0x10000:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def map_header(count: int) -> bytes:
    """Return the header of a MessagePack map."""
    if count < 16:
        return bytes((0x80 | count,))
    if count < 0x10000:
        return b"\xde" + count.to_bytes(2, "big")
    return b"\xdf" + count.to_bytes(4, "big")


# A typed value is an array of a head and the data. The head is an extension that holds the name, and the notes if there
# are any. The head does not vary with the fields, so the many instances of one class in a leaf compress as well as
# dicts do.


def typed_cell(name: bytes, notes: bytes | None, data: bytes) -> bytes:
    """Return the cell of a typed value, from the cells of its name, notes and data."""
    return b"\x92" + extension(Code.TYPED, array([name] if notes is None else [name, notes])) + data


def split_typed(cell: bytes) -> tuple[bytes, bytes | None, bytes]:
    """Return the cells of a typed value's name, notes and data. Raises ``ValueError`` for any other cell."""
    if cell[0] != _TYPED:  # a key
        name, notes, data = split_cells(payload_of(cell))
        return name, None if notes == b"\xc0" else notes, data
    head, data = split_cells(cell)
    name, *more = split_cells(payload_of(head))
    return name, more[0] if more else None, data


def weights_of(cells: list[bytes]) -> Iterable[int]:
    """Return the weight of each cell for cutting a list into leaves.

    The weight is the number of bytes without the heads of typed values, which compress well.
    """
    if _TYPED not in map(_first_of, cells):
        return map(len, cells)
    return [_weight_of_typed(cell) if cell[0] == _TYPED else len(cell) for cell in cells]


def fits(cell: bytes, limit: int) -> bool:
    """Return whether a cell may be inline in a place that takes up to ``limit`` bytes.

    As in leaves, the heads of typed values do not count.
    """
    return len(cell) <= limit or (
        len(cell) <= ELEMENT_INLINE and code_of(cell) == Code.TYPED and _weight_of_typed(cell) <= limit
    )


def _weight_of_typed(cell: bytes) -> int:
    heads = sum(b"".join(_sizes_of_heads(cell)))
    if b"\xc8" in cell:
        heads += sum(int.from_bytes(size, "big") for size in _sizes_of_long_heads(cell))
    # A text may contain bytes that look like heads; these bytes do count.
    return max(len(cell) - heads, len(cell) // 4)


def key_form(cell: bytes) -> bytes:
    """Return the cell of a value that is used as a key: one extension, since no array can be a key."""
    if cell[0] != _TYPED or code_of(cell) != Code.TYPED:
        return cell
    name, notes, data = split_typed(cell)
    return extension(Code.TYPED, array([name, b"\xc0" if notes is None else notes, data]))


def array(cells: Iterable[bytes]) -> bytes:
    """Return a MessagePack array of cells. It is the payload of every extension that has parts."""
    cells = list(cells)
    return array_header(len(cells)) + b"".join(cells)


def is_array(cell: bytes) -> bool:
    """Return whether a cell is an inline list."""
    first = cell[0]
    return (0x90 <= first <= 0x9F and not (first == _TYPED and _is_head(cell))) or first in (0xDC, 0xDD)


def is_map(cell: bytes) -> bool:
    """Return whether a cell is an inline dict."""
    return 0x80 <= cell[0] <= 0x8F or cell[0] in (0xDE, 0xDF)


def is_string(cell: bytes) -> bool:
    """Return whether a cell is an inline string."""
    return 0xA0 <= cell[0] <= 0xBF or 0xD9 <= cell[0] <= 0xDB


def is_text(cell: bytes) -> bool:
    """Return whether a cell is a string, inline or large."""
    return is_string(cell) or code_of(cell) == Code.TEXT


def split_cells(cell: bytes) -> list[bytes]:
    """Return the cells of a MessagePack array or, in turn, the keys and values of a map.

    Raises ``ValueError`` for any other cell.
    """
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(cell), strict_map_key=False)
    unpacker.feed(cell)
    count = 2 * unpacker.read_map_header() if is_map(cell) else unpacker.read_array_header()
    skip, tell = unpacker.skip, unpacker.tell
    cells = []
    start = tell()
    for _ in range(count):
        skip()
        end = tell()
        cells.append(cell[start:end])
        start = end
    return cells


# Texts and keys. A map sorts the keys of a dict by them: strings in the order of their characters, then all other keys.


def decoded_text(data: bytes | bytearray) -> str:
    """Return a stored text. Raises ``CorruptObjectError`` for bytes that are not UTF-8."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptObjectError("(a text)", f"it is not UTF-8: {error.reason}") from error


def has_surrogate(text: str) -> bool:
    """Return whether a string has a lone surrogate, so that UTF-8 cannot hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def order_key(key: Any, cell: bytes) -> bytes:
    """Return the order key of a dict's key. ``cell`` is the key's cell, which is not used if the key is a string."""
    if type(key) is str:
        return b"s" + key.encode("utf-8", "surrogatepass")
    return b"x" + cell


def key_of_cell(cell: bytes) -> bytes:
    """Return the order key of a dict's key, from the key's cell."""
    first = cell[0]
    if 0xA0 <= first <= 0xBF:
        return b"s" + cell[1:]
    if 0xD9 <= first <= 0xDB:
        return b"s" + cell[{0xD9: 2, 0xDA: 3, 0xDB: 5}[first] :]
    return b"x" + cell


def are_sorted(keys: Iterable[bytes]) -> bool:
    """Return whether each key comes after the one before it."""
    return all(starmap(lt, pairwise(keys)))


def key_cell(order_key: bytes) -> bytes:
    """Return the cell of a dict's key, from its order key."""
    text = order_key[1:]
    if order_key[:1] != b"s":
        return text
    size = len(text)
    if size < 32:
        return bytes((0xA0 | size,)) + text
    if size < 0x100:
        return bytes((0xD9, size)) + text
    return b"\xda" + size.to_bytes(2, "big") + text if size < 0x10000 else b"\xdb" + size.to_bytes(4, "big") + text
