"""Bytes that tell two runs of values apart, for fingerprints; nothing reads them back. Layer: values.

Each value counts as it is stored. Data counts by value, whatever is shared. An object is stored by cloudpickle with a memo, so which
of its mutable parts are one counts too; that two equal strings are one does not, as no reader could tell. Functions and classes count by
name if they are stored by name, and else as a whole: those of a script, a notebook or a function.
"""

from __future__ import annotations

import os
import pickle
import sys
from io import BytesIO
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from xxhash import xxh3_128_digest

from versioned_state.values.codec import arrays, registry
from versioned_state.values.codec.exceptions import reduce_exception
from versioned_state.values.codec.pickles import dump_whole
from versioned_state.values.codec.scalars import WRITERS

_DATA: Final = frozenset({*WRITERS, float, bool, type(None), registry.Tagged})
_IMMUTABLE: Final = (_DATA - {bytearray, registry.Tagged}) | {tuple, frozenset}
"""Types of which one value and two equal values differ by ``is`` alone."""

_MANY: Final = 128
"""Parts of an object from which it is pickled as a whole first, and looked up: asking about each part takes 90 ns."""

_KEPT: Final = 1024
"""Digests that are kept, at some 200 bytes each."""

_SEED: Final = int.from_bytes(os.urandom(8), "big")  # so that no user can shape two objects of one digest


def pack_exactly(run: list[Any], known: dict[bytes, bytes]) -> memoryview | None:
    """The bytes of a run; None if it cannot be packed. Cost: that of pickling it, and for a new large object 90 ns a part.

    Args:
        known: digests of large objects, to be given with the next run. One thread at a time.
    """
    file = BytesIO()
    pickler = _RunPickler(file, known)
    pickler.fast = True
    try:
        pickler.dump(run)
    except Exception:  # noqa: BLE001 - code of the values' own types runs here; encoding them gives the error its path
        return None
    return file.getbuffer()


class _RunPickler(pickle.Pickler):
    """In fast mode, without its memo. ``reducer_override`` gets everything except exact built-in containers and scalars."""

    def __init__(self, file: BytesIO, known: dict[bytes, bytes]) -> None:
        super().__init__(file, 5)
        self._known = known
        self._code = _Code()

    def reducer_override(self, value: Any) -> Any:
        cls = type(value)
        if cls in _DATA:
            return NotImplemented
        reducer = registry.reducers.get(cls)
        if reducer is not None:
            return reducer(value)
        if cls is FunctionType or issubclass(cls, type):
            return NotImplemented if self._code.is_by_name(value) else (_Object, (_pack_code(value),))
        if cls is BuiltinFunctionType and isinstance(value.__self__, type | ModuleType | None):
            return NotImplemented
        if arrays.is_data(value):
            return NotImplemented
        return _Object, (self._pack_object(value),)

    def _pack_object(self, value: Any) -> bytes:
        if not self._code.is_by_name(type(value)):
            return _pack_code(value)
        try:
            return bytes(_pack_parts(value, self._code, _MANY))
        except _LargeError:
            pass
        except Exception:  # noqa: BLE001 - code that is stored as a whole, or a value that only cloudpickle can pickle
            return _pack_code(value)
        file = BytesIO()
        pickler = _WholePickler(file, 5)
        pickler.code = self._code
        try:
            pickler.dump(value)
        except Exception:  # noqa: BLE001 - the same
            return _pack_code(value)
        # Equal bytes mean equal parts. Different bytes may differ in the identity of equal strings alone.
        whole, known = xxh3_128_digest(file.getbuffer(), _SEED), self._known
        if whole not in known:
            if len(known) >= _KEPT:
                known.clear()
            known[whole] = xxh3_128_digest(_pack_parts(value, self._code, None), _SEED)
        return known[whole]


class _Object:
    """Stands for an object."""


class _LargeError(Exception):
    """An object of many parts."""


class _CodeError(Exception):
    """There is a function or class inside that is stored as a whole."""


def _pack_code(value: Any) -> bytes:
    return dump_whole(value)


def _pack_parts(value: Any, code: _Code, most: int | None) -> memoryview:
    file = BytesIO()
    pickler = _PartsPickler(file, 5)
    pickler.fast = True
    pickler.code, pickler.seen, pickler.most = code, {}, sys.maxsize if most is None else most
    pickler.dump(value)
    return file.getbuffer()


class _WholePickler(pickle.Pickler):
    """Pickles an object as cloudpickle does if it does not interfere."""

    code: _Code

    def reducer_override(self, value: Any) -> Any:
        self.code.check(value)
        return reduce_exception(value)


class _PartsPickler(pickle.Pickler):
    """In fast mode, with a memo of mutable parts only. Raises ``_LargeError`` for an object of more than about ``most`` of them."""

    code: _Code
    most: int
    seen: dict[int, tuple[int, Any]]  # the values too, as one made for pickling would lend its id to the next

    def persistent_id(self, value: Any) -> int | None:
        cls = type(value)
        if cls in _IMMUTABLE:
            return None
        seen = self.seen.get(id(value))
        if seen is not None:
            return seen[0]
        if cls is list or cls is dict or cls is set:
            self.most -= 1 + len(value)
            if self.most < 0:
                raise _LargeError
        else:
            self.code.check(value)
            if isinstance(value, FunctionType | type):
                return None
            self.most -= 1
        self.seen[id(value)] = len(self.seen), value
        return None

    def reducer_override(self, value: Any) -> Any:
        return reduce_exception(value)


class _Code:
    """Tells how functions and classes are stored, and remembers it for as long as one run is packed."""

    def __init__(self) -> None:
        self._by_name: dict[int, bool] = {}

    def is_by_name(self, value: Any) -> bool:
        """Whether cloudpickle surely stores a function or class by its name. Where that is not sure, False is right, and costs more."""
        found = self._by_name.get(id(value))
        if found is None:
            found = self._by_name[id(value)] = _is_by_name(value)
        return found

    def check(self, value: Any) -> None:
        """Raise ``_CodeError`` for a function, method or class that is stored as a whole."""
        if isinstance(value, FunctionType | MethodType | type) and not self.is_by_name(getattr(value, "__func__", value)):
            raise _CodeError


def _is_by_name(value: Any) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module == "__main__" or not isinstance(module, str) or not isinstance(name, str):
        return False
    cloudpickle = sys.modules.get("cloudpickle")  # nothing can be registered with it before it is imported
    by_value = () if cloudpickle is None else cloudpickle.list_registry_pickle_by_value()
    if any(module == other or module.startswith(other + ".") for other in by_value):
        return False
    inside: Any = sys.modules.get(module)
    for part in name.split("."):
        inside = getattr(inside, part, None)
    return inside is value
