"""Values packed with everything in them, without trees and without a store. Layer: values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgpack
from blake3 import blake3

from versioned_state.errors import LimitExceededError, PickleRefusedError, UnserializableValueError
from versioned_state.values.cells import MAX_DEPTH, Code, array, array_header, extension, map_header, pack, pack_text
from versioned_state.values.codec import arrays, pickles, registry
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.codec.scalars import WRITERS, NotDataError, TooDeepError, is_plain
from versioned_state.values.encode.walks import CONTAINERS, find_cycle, find_inside

T = TypeVar("T")

_SMALL: Final = frozenset({bool, int, float, type(None)})


class NotStorableError(Exception):
    """A value that cannot be stored. ``InlineEncoder.guarded`` finds its path, and raises a public error for it."""

    def __init__(self, value: Any, cause: Exception) -> None:
        super().__init__()
        self.value = value
        self.cause = cause


class InlineEncoder:
    """Packs values with everything in them, however large. Not for two threads at once.

    Args:
        policy: whether values that are not data may be pickled; without one, none is.
    """

    def __init__(self, policy: PicklePolicy | None = None) -> None:
        self.policy = PicklePolicy("refuse", private=False) if policy is None else policy
        self.pack = msgpack.Packer(strict_types=True).pack
        self.depth = 0
        self.cyclic: set[int] = set()  # ids of values that contain themselves
        self.is_plain: Callable[..., bool] = is_plain
        self._pickled: dict[int, tuple[Any, pickles.Pickled]] = {}

    def encode_inline(self, value: Any, path: str = "a value") -> bytes:
        """The cell of a value with everything in it.

        Raises:
            UnserializableValueError: a value inside cannot be pickled; the error names its path and type.
            PickleRefusedError: a value inside would have to be pickled, and the policy refuses it.
            LimitExceededError: the value is too deep, or a piece of it too large.
        """
        return self.guarded(lambda: self.inline(value), value, lambda: path)

    def guarded(self, encode: Callable[[], T], value: Any, path: Callable[[], str]) -> T:
        """The result of ``encode``, which raises the errors of ``encode_inline``. ``path`` is asked for if one is raised."""
        try:
            return self._attempt(encode, value, path)
        finally:
            if self._pickled:
                self._pickled.clear()

    def _attempt(self, encode: Callable[[], T], value: Any, path: Callable[[], str]) -> T:
        self.reset()
        while True:
            try:
                return encode()
            except (TooDeepError, RecursionError):
                self.depth = 0
                looped = find_cycle(value)
                if looped is None or looped in self.cyclic:
                    raise LimitExceededError("the depth of a value", limit=MAX_DEPTH, path=path()) from None
                # Again, with the value that contains itself as an object.
                self.cyclic.add(looped)
                self.is_plain = _is_plain_scalar
            except NotStorableError as error:
                self.depth = 0
                where = path() + (find_inside(value, error.value) or "")
                if isinstance(error.cause, PickleRefusedError):
                    self.policy.check_write(where, pickles.type_name_of(error.value))
                raise UnserializableValueError(where, pickles.type_name_of(error.value), str(error.cause)) from error.cause

    def reset(self) -> None:
        """Begin a value anew."""
        self.depth = 0
        if self.cyclic:
            self.cyclic.clear()
            self.is_plain = is_plain

    def inline(self, value: Any) -> bytes:
        """The same, for a part of the value that ``guarded`` was called for."""
        if self.is_plain(value, self.depth):
            try:
                packed: bytes = self.pack(value)
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
                return self._object(value)
        if id(value) in self.cyclic:
            return self._object(value)
        if cls not in CONTAINERS:
            return self._other(value)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeepError
        try:
            inline = self.inline
            if cls is dict:
                return map_header(len(value)) + b"".join([inline(part) for item in value.items() for part in item])
            cells = [inline(part) for part in value]
        finally:
            self.depth -= 1
        if cls is list:
            return array_header(len(cells)) + b"".join(cells)
        if cls is tuple:
            return extension(Code.TUPLE, array(cells))
        return extension(Code.SET if cls is set else Code.FROZENSET, array(sorted(cells)))

    def _other(self, value: Any) -> bytes:
        tagged = self.tagged(value)
        if tagged is not None:
            return extension(Code.TAGGED, array([pack_text(tagged.name), self.inline(tagged.data)]))
        return self.numpy(value) or self._object(value)

    # Types that are not built in: registered ones, numpy, objects

    def tagged(self, value: Any) -> registry.Tagged | None:
        """The name and data of a value of a registered type; None for any other, and for one that is not plain data."""
        if type(value) is registry.Tagged:
            return value
        registration = registry.find_by_type(type(value))
        if registration is None:
            return None
        try:
            return registry.Tagged(registration.name, registration.to_data(value))
        except registry.NotPlainDataError:
            return None
        except Exception as error:
            raise NotStorableError(value, error) from error

    def numpy(self, value: Any) -> bytes | None:
        """The inline cell of a numpy array or scalar; None for any other value, and for one that is not data."""
        try:
            if arrays.is_array(value):
                (descr, shape), view = arrays.buffer_of(value)
                return extension(Code.NUMPY_ARRAY, array([self.inline(descr), self.inline(list(shape)), pack(bytes(view))]))
            if arrays.is_scalar(value):
                return extension(Code.NUMPY_SCALAR, array([self.inline(arrays.dtype_data(value.dtype)), pack(value.tobytes())]))
        except NotDataError:
            pass
        return None

    def _object(self, value: Any) -> bytes:
        pickled = self.pickled(value)
        pieces = [(False, pickled.data), *pickled.buffers]
        return self.object_cell(pickled, [(writable, extension(Code.BYTES, bytes(data))) for writable, data in pieces])

    def object_cell(self, pickled: pickles.Pickled, pieces: list[tuple[bool, bytes]]) -> bytes:
        """The cell of an object. ``pieces``: the cells of its pickle and its buffers, and whether each is writable."""
        digests = blake3(pickled.data).digest() + b"".join(blake3(view).digest() for _, view in pickled.buffers)
        mac = self.policy.mac(pickled.type_name.encode() + b"\0" + digests)
        parts = [pack_text(pickled.type_name), pack(mac)]
        for writable, cell in pieces:
            parts += [pack(writable), cell]
        return extension(Code.OBJECT, array(parts))

    def pickled(self, value: Any) -> pickles.Pickled:
        """The pickle of an object, made once a call: the pickle of an object too large for its parent is asked for again."""
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


def encode_key(key: Any) -> bytes:
    """The cell of a dict's key. Raises ``PickleRefusedError`` for a key that is not data."""
    return InlineEncoder().encode_inline(key, "a key")


def _is_plain_scalar(value: Any, _depth: int = 0) -> bool:
    """Stands in for ``is_plain``, which would never return from a value that contains itself."""
    return type(value) in _SMALL
