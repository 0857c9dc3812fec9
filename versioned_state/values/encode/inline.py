"""Values as self-contained cells, without trees and without a store. Layer: values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeVar

import msgpack
from blake3 import blake3

from versioned_state.errors import LimitExceededError, PickleRefusedError, UnserializableValueError
from versioned_state.values import accelerator
from versioned_state.values.cells import (
    MAX_DEPTH,
    MAX_ELEMENTS,
    PACKER_BYTES,
    Code,
    array,
    array_header,
    extension,
    key_form,
    map_header,
    pack,
    pack_text,
    typed_cell,
)
from versioned_state.values.codec import arrays, pickles
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.codec.scalars import MANY, WRITERS, NotDataError, TooDeepError, check_hashes, is_plain
from versioned_state.values.encode.walks import CONTAINERS, Sizes, find_inside
from versioned_state.values.typed.layout import NotPlainDataError
from versioned_state.values.typed.older import OlderForms
from versioned_state.values.typed.registry import layout_of, take_apart
from versioned_state.values.typed.sharing import find_deep, find_shared
from versioned_state.values.typed.tagged import Notes

T = TypeVar("T")

_SMALL: Final = frozenset({bool, int, float, type(None)})
_PLAIN: Final = _SMALL | {str}
_only_plain = _PLAIN.issuperset
_only_str = frozenset({str}).issuperset


class NotStorableError(Exception):
    """A value that cannot be stored. ``InlineEncoder.guarded`` finds its path, and raises a public error for it."""

    def __init__(self, value: Any, cause: Exception) -> None:
        super().__init__()
        self.value = value
        self.cause = cause


_DEEP: Final = 24
"""The depth at which an instance suggests that a value contains itself.

The walk that finds out costs less than reaching the limit.
"""


class RestartError(Exception):
    """Some parts must be stored as objects, perhaps the one being encoded too: encode again from the start."""


class InlineEncoder:
    """An encoder of values into self-contained cells of any size. Not for two threads at once.

    Args:
        policy: whether values that are not data may be pickled; without a policy, none may.
    """

    def __init__(self, policy: PicklePolicy | None = None) -> None:
        self.policy: Final = PicklePolicy("refuse", private=False) if policy is None else policy
        self.pack: Final = msgpack.Packer(strict_types=True, buf_size=PACKER_BYTES).pack
        self.depth: int = 0
        self.older: OlderForms | None = None
        # by id, the parts that are stored as objects because something in them is shared
        self.as_objects: dict[int, Any] = {}
        self._root: Any = None  # the value that is being encoded
        self._looked = False  # whether the parts to store as objects were searched for
        self._room = MANY  # parts that may be packed one by one before the value is measured
        self.sizes: Final = Sizes()
        self.is_plain: Callable[..., bool] = is_plain
        self._pickled: dict[int, tuple[Any, pickles.Pickled]] = {}

    def encode_inline(self, value: Any, path: str = "a value") -> bytes:
        """Return the self-contained cell of a value.

        Raises:
            UnserializableValueError: a value inside cannot be pickled; the error names its path and type.
            PickleRefusedError: a value inside would have to be pickled, and the policy refuses it.
            LimitExceededError: the value is too deep, or a piece of it too large.
        """
        cell = plain_cell(value)
        return cell if cell is not None else self.guarded(lambda: self.inline(value), value, lambda: path)

    def guarded(self, encode: Callable[[], T], value: Any, path: Callable[[], str]) -> T:
        """Return the result of ``encode``.

        Raises the errors of ``encode_inline``. ``path`` is called only for an error.
        """
        try:
            return self._attempt(encode, value, path)
        finally:
            self.forget()

    def _attempt(self, encode: Callable[[], T], value: Any, path: Callable[[], str]) -> T:
        self.begin(value)
        while True:
            try:
                return encode()
            except RestartError:
                self.depth = 0
            except (TooDeepError, RecursionError):
                self.depth = 0
                if not self._find_objects() and not self._add_objects(find_deep(value, MAX_DEPTH)):
                    raise LimitExceededError("the depth of a value", limit=MAX_DEPTH, path=path()) from None
            except NotStorableError as error:
                self.depth = 0
                where = path() + (find_inside(value, error.value) or "")
                if isinstance(error.cause, LimitExceededError):
                    cause = error.cause
                    raise LimitExceededError(cause.measured, limit=cause.limit, path=where, hint=cause.hint) from None
                if isinstance(error.cause, PickleRefusedError):
                    self.policy.check_write(where, pickles.type_name_of(error.value))
                raise UnserializableValueError(
                    where, pickles.type_name_of(error.value), str(error.cause)
                ) from error.cause

    def begin(self, value: Any) -> None:
        """Start to encode a value."""
        if self._root is not None:
            self.forget()  # Ctrl-C came while the last value was forgotten
        self.depth = 0
        self._root = value
        self._looked = False
        self._room = MANY
        if self.as_objects:
            self.as_objects.clear()
            self.is_plain = is_plain

    def forget(self) -> None:
        """Forget the encoded value, and the records of its parts by id: the parts may change, or be freed."""
        if self.sizes.known:
            self.sizes.clear()
        if self._pickled:
            self._pickled.clear()
        self._root = None  # last, for ``begin``

    def _find_objects(self) -> bool:
        """Find the parts of the value that must be stored as objects. Returns whether new ones were found."""
        return self._add_objects(find_shared(self._root))

    def _add_objects(self, found: dict[int, Any]) -> bool:
        new = found.keys() - self.as_objects.keys()
        if new:
            self.as_objects.update(found)
            self.is_plain = _is_plain_scalar
        return bool(new)

    def meet_identity(self) -> None:
        """Find the parts to store as objects, at the first instance with an identity.

        Raises ``RestartError`` if there are any.
        """
        if not self._looked:
            self._looked = True
            if self._find_objects():
                raise RestartError

    def inline(self, value: Any) -> bytes:
        """Return what ``encode_inline`` does, for a part of the value that ``guarded`` was called for."""
        if self.is_plain(value, self.depth, MANY):
            try:
                packed: bytes = self.pack(value)
            except (OverflowError, UnicodeEncodeError):
                pass  # an int beyond 64 bits, or a lone surrogate, somewhere inside: pack part by part
            else:
                return packed
        return self._part(value)

    def _part(self, value: Any) -> bytes:
        """Return the inline cell of a value that is not plain as a whole: each part is examined and packed once."""
        cell = self._leaf(value)
        if cell is not None:
            return cell
        cls = type(value)
        if id(value) in self.as_objects:
            return self._object(value)
        if cls not in CONTAINERS:
            record = self.record(value)
            return self.numpy(value) or self._object(value) if record is None else self.typed_cell(value, record)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeepError
        self._room -= 1 + len(value)
        if self._room < 0:
            self.measure()
        if cls is not list and cls is not tuple:
            self.check_keys(value)
        try:
            if cls is dict:
                return map_header(len(value)) + b"".join(self._entries(value))
            part = self._part
            cells = [part(each) for each in value]
        finally:
            self.depth -= 1
        if cls is list:
            return array_header(len(cells)) + b"".join(cells)
        if cls is tuple:
            return extension(Code.TUPLE, array(cells))
        return extension(Code.SET if cls is set else Code.FROZENSET, array(sorted(cells)))

    def _leaf(self, value: Any) -> bytes | None:
        """Return the inline cell of a value without parts, or of a list or dict of scalars, packed at once.

        Returns None for any other value.
        """
        cls = type(value)
        parts = value if cls is list else value.values() if cls is dict and _only_str(map(type, value)) else None
        if cls in _PLAIN or (parts is not None and _only_plain(map(type, parts)) and not self.as_objects):
            if self.depth >= MAX_DEPTH and parts is not None:
                raise TooDeepError
            try:
                cell: bytes = self.pack(value)
            except (OverflowError, UnicodeEncodeError):
                pass
            else:
                return cell
        writer = WRITERS.get(cls)
        if writer is None:
            return None
        try:
            return writer(value)
        except NotDataError:
            return self._object(value)

    def _entries(self, value: dict[Any, Any]) -> list[bytes]:
        """Return the inline cells of keys and values, in turn."""
        pack, inline, cells = self.pack, self._part, []
        entries = iter(value.items())
        key = part = None
        try:
            for key, part in entries:
                # Most are scalars, in the records of typed values too.
                cells.append(pack(key) if type(key) is str else self.key(key))
                cells.append(pack(part) if type(part) in _PLAIN else inline(part))
        except (OverflowError, UnicodeEncodeError):
            # A lone surrogate, or an int beyond 64 bits. What is packed already stays: a part may hold such a value at
            # each level.
            del cells[len(cells) & ~1 :]
            for each, held in chain([(key, part)], entries):
                cells += (self.key(each), inline(held))
        return cells

    def typed_cell(self, value: Any, record: tuple[str, Any, Notes]) -> bytes:
        """Return the inline cell of a typed value. ``record`` is its name, data and notes."""
        if self.older is not None and (cell := self.older.cell_of(value)) is not None:
            return cell
        name, data, notes = record
        # Data that is a container is counted as one. A chain of other typed values must have an end too.
        chained = type(data) not in CONTAINERS
        self.depth += chained
        if self.depth > MAX_DEPTH:
            raise TooDeepError
        cell = self._part(data)
        if notes is not None:
            cell = typed_cell(pack_text(name), self._part(notes), cell)
        self.depth -= chained
        return head_of(name) + cell if notes is None else cell

    def check_keys(self, value: Any) -> None:
        """Refuse a dict or set that no reader could make in reasonable time."""
        try:
            check_hashes(value)
        except LimitExceededError as error:
            raise NotStorableError(value, error) from None

    def measure(self) -> None:
        """Refuse a value that no reader would read, since parts are counted, and read, at each of their places."""
        if self._room > MANY:  # it was measured
            return
        self._room = sys.maxsize
        parts = self.sizes.of(self._root).parts
        if parts > MAX_ELEMENTS:
            error = LimitExceededError(
                f"a value of {parts:.2g} parts, each shared one counted wherever it is",
                limit=MAX_ELEMENTS,
                hint="sharing is not kept in data: store each shared part once, and refer to it by a key",
            )
            raise NotStorableError(self._root, error)

    def key(self, key: Any) -> bytes:
        """Return the inline cell of a dict's key."""
        return key_form(self.inline(key))

    # Types that are not built in: typed values, numpy, objects

    def record(self, value: Any) -> tuple[str, Any, Notes] | None:
        """Return a typed value's name, data and notes, or None for any other value or one that is not plain data."""
        layout = layout_of(type(value))
        if layout is not None and (layout.has_identity or self.depth >= _DEEP):
            self.meet_identity()
        try:
            return take_apart(value)
        except NotPlainDataError:
            return None
        except RecursionError:
            raise
        except Exception as error:
            raise NotStorableError(value, error) from error

    def numpy(self, value: Any) -> bytes | None:
        """Return the inline cell of a numpy array or scalar, or None for any other value or one that is not data."""
        try:
            if arrays.is_array(value):
                (descr, shape), view = arrays.buffer_of(value)
                return extension(
                    Code.NUMPY_ARRAY, array([self.inline(descr), self.inline(list(shape)), pack(bytes(view))])
                )
            if arrays.is_scalar(value):
                return extension(
                    Code.NUMPY_SCALAR, array([self.inline(arrays.dtype_data(value.dtype)), pack(value.tobytes())])
                )
        except NotDataError:
            pass
        return None

    def _object(self, value: Any) -> bytes:
        pickled = self.pickled(value)
        pieces = [(False, pickled.data), *pickled.buffers]
        return self.object_cell(pickled, [(writable, extension(Code.BYTES, bytes(data))) for writable, data in pieces])

    def object_cell(self, pickled: pickles.Pickled, pieces: list[tuple[bool, bytes]]) -> bytes:
        """Return the cell of an object.

        ``pieces``: the cells of its pickle and its buffers, and whether each is writable.
        """
        digests = blake3(pickled.data).digest() + b"".join(blake3(view).digest() for _, view in pickled.buffers)
        mac = self.policy.mac(pickled.type_name.encode() + b"\0" + digests)
        parts = [pack_text(pickled.type_name), pack(mac)]
        for writable, cell in pieces:
            parts += [pack(writable), cell]
        return extension(Code.OBJECT, array(parts))

    def pickled(self, value: Any) -> pickles.Pickled:
        """Return the pickle of an object. It is kept for the call, since a large object needs its pickle twice."""
        if not self.policy.allowed:
            raise NotStorableError(value, PickleRefusedError("", policy=self.policy.mode))
        known = self._pickled.get(id(value))
        if known is not None:
            return known[1]
        try:
            pickled = pickles.dump(value)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            raise NotStorableError(value, error) from error
        self._pickled[id(value)] = (value, pickled)
        return pickled


def encode_data(values: Mapping[str, Any], path: str, what: str) -> bytes:
    """Encode a dict.

    If a value in it is not data, raise ``UnserializableValueError``, which says that ``what`` takes data only.
    """
    try:
        return InlineEncoder().encode_inline(dict(values), path)
    except PickleRefusedError as error:
        failed = UnserializableValueError(error.path, error.type_name, f"{what} takes data only")
        failed.hint = f"{what} takes numbers, texts, times, lists, dicts and other data"
        raise failed from None


def plain_cell(value: Any) -> bytes | None:
    """Return the inline cell of a JSON value, at a fraction of an encoder's cost, or None for any other value."""
    fast = accelerator.fast
    if fast is not None and (cell := fast.pack(value, MAX_DEPTH, accelerator.MOST_MARKED)) is not None:
        return cell
    try:
        packed: bytes | None = pack(value) if is_plain(value, 0, MANY) else None
    except (TooDeepError, RecursionError, OverflowError, UnicodeEncodeError):
        return None
    return packed


def encode_key(key: Any) -> bytes:
    """Return the cell of a dict's key. Raises ``PickleRefusedError`` for a key that is not data."""
    return key_form(InlineEncoder().encode_inline(key, "a key"))


@lru_cache(1024)
def head_of(name: str) -> bytes:
    """Return the beginning of the cell of a typed value without notes."""
    return typed_cell(pack_text(name), None, b"")


def _is_plain_scalar(value: Any, _depth: int = 0, _room: int = 0) -> bool:
    """Stand in for ``is_plain``, which would never return for a value that contains itself."""
    return type(value) in _SMALL
