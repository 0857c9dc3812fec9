"""numpy arrays and scalars as data: dtype, shape and raw bytes in C order, without pickle. Layer: values.

Writing never imports numpy: a value can only be an array if its owner has imported numpy. Reading an array imports it.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from versioned_state.values.codec.scalars import NotDataError

if TYPE_CHECKING:
    import numpy as np

_UTF_32 = {"<": "utf-32-le", ">": "utf-32-be"}


def is_array(value: Any) -> bool:
    """Return whether a value is exactly a numpy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def is_scalar(value: Any) -> bool:
    """Return whether a value is a scalar of one of numpy's own types."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and type(value).__module__ == "numpy"


def is_record(value: Any) -> bool:
    """Return whether a value is a scalar with fields, of any class of records."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.void) and value.dtype.fields is not None


def is_data(value: Any) -> bool:
    """Return whether a value is numpy's own and holds no Python objects: an array, a scalar or a dtype."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if isinstance(value, numpy.dtype):
        return not value.hasobject and not _has_metadata(value)
    return (is_array(value) or is_scalar(value)) and is_data(value.dtype)


def dtype_data(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as data.

    Raises ``NotDataError`` for a dtype with objects in it, or one that would not be read back the same.
    """
    import numpy as np

    if dtype.hasobject:
        raise NotDataError("an array of objects")
    if _has_metadata(dtype):
        raise NotDataError("a dtype with metadata")
    try:
        descr = np.lib.format.dtype_to_descr(dtype)
        same = _is_same(np.lib.format.descr_to_dtype(descr), dtype)
    except Exception:  # noqa: BLE001 - numpy raises many kinds here (for fields out of order, say), and all mean the same
        same = False
    if not same or dtype.itemsize == 0:
        raise NotDataError(f"an array of dtype {dtype}")
    return descr


def _is_same(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    """Return whether two dtypes are equal, also in alignment and class of records, which ``==`` does not compare."""
    fields_a, fields_b = (list((dtype.fields or {}).values()) for dtype in (a, b))
    return (
        a == b
        and a.isalignedstruct == b.isalignedstruct
        and (a.type is b.type or a.kind != "V")
        and (a.base is a or _is_same(a.base, b.base))
        and all(_is_same(x[0], y[0]) for x, y in zip(fields_a, fields_b, strict=True))
    )


def _has_metadata(dtype: np.dtype[Any]) -> bool:
    fields: Any = dtype.fields or {}
    return dtype.metadata is not None or any(_has_metadata(field[0]) for field in fields.values())


def raw_view(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the bytes of an array in C order. Copies the array only if it is not contiguous."""
    import numpy as np

    if not array.size:
        return memoryview(b"")
    if array.dtype.fields and not array.flags.c_contiguous:
        # Copy field by field: the padding between fields has arbitrary bytes, which would differ each time.
        packed = np.zeros(array.shape, array.dtype)
        packed[...] = array
        array = packed
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def buffer_of(value: Any) -> tuple[Any, memoryview]:
    """Return the form (dtype and shape, for an array) and the bytes of a bytearray or array.

    Raises ``NotDataError``.
    """
    if type(value) is bytearray:
        return None, memoryview(value)
    return (dtype_data(value.dtype), value.shape), raw_view(value)


def read_array(descr: Any, shape: list[int], data: bytes | bytearray) -> Any:
    """Return the array, writable. Raises ``ValueError`` if shape, dtype and bytes do not match."""
    import numpy as np

    dtype = _read_dtype(descr)
    if len(data) != dtype.itemsize * math.prod(shape):
        raise ValueError(f"{len(data)} bytes for an array of shape {shape} and dtype {dtype}")
    if not data:
        return np.empty(shape, dtype)
    return np.frombuffer(bytearray(data) if type(data) is bytes else data, dtype).reshape(shape)


def _read_dtype(descr: Any) -> np.dtype[Any]:
    import numpy as np

    try:
        dtype = np.lib.format.descr_to_dtype(descr)
    except SyntaxError as error:  # numpy parses some dtype strings as Python literals
        raise ValueError(f"no dtype: {descr!r}") from error
    if dtype.hasobject:
        raise ValueError("objects are not data")
    return dtype


def read_scalar(descr: Any, data: bytes) -> Any:
    """Return the scalar. Raises ``ValueError`` if dtype and bytes do not match."""
    import numpy as np

    dtype = _read_dtype(descr)
    if dtype.kind in "SU" and len(data) == dtype.itemsize:
        # numpy would strip the NULs at their end if they were elements of an array.
        return np.bytes_(data) if dtype.kind == "S" else np.str_(data.decode(_UTF_32[dtype.str[0]], "surrogatepass"))
    # A record is a view of its bytes, through which it can be changed in place.
    return np.frombuffer(bytearray(data) if dtype.kind == "V" else data, dtype)[0]
