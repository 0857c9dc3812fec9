"""Columns of Arrow as data: numbers and times as arrays, everything else as lists. Layer: values."""

from __future__ import annotations

from typing import Any, Final

from versioned_state.values.detection.groups import hash_bytes
from versioned_state.values.typed.layout import NotPlainDataError

_SIMPLE: Final = frozenset(
    {
        *(
            "null",
            "bool",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "halffloat",
            "float",
            "double",
        ),
        *("string", "large_string", "binary", "large_binary", "date32[day]", "date64[ms]"),
        *("time32[s]", "time32[ms]", "time64[us]", "time64[ns]"),
        *("duration[s]", "duration[ms]", "duration[us]", "duration[ns]"),
    }
)
"""The types that Arrow calls by one name."""

_MEMBERS: Final = {"bool": "bool_", "halffloat": "float16", "float": "float32", "double": "float64"}


def type_data(arrow_type: Any) -> Any:
    """Return a type of Arrow as data: its name, or a list of its kind and its parameters.

    Raises ``NotPlainDataError`` for other types.
    """
    import pyarrow as pa

    name = str(arrow_type)
    if name in _SIMPLE:
        return name
    of = pa.types
    if of.is_timestamp(arrow_type):
        return ["timestamp", arrow_type.unit, arrow_type.tz]
    if of.is_decimal128(arrow_type) or of.is_decimal256(arrow_type):
        return [f"decimal{arrow_type.bit_width}", arrow_type.precision, arrow_type.scale]
    if of.is_list(arrow_type) or of.is_large_list(arrow_type):
        return ["list" if of.is_list(arrow_type) else "large_list", type_data(arrow_type.value_type)]
    if of.is_struct(arrow_type):
        return ["struct", [[field.name, type_data(field.type)] for field in arrow_type]]
    if of.is_dictionary(arrow_type):
        return ["dictionary", type_data(arrow_type.index_type), type_data(arrow_type.value_type), arrow_type.ordered]
    if of.is_map(arrow_type):
        return ["map", type_data(arrow_type.key_type), type_data(arrow_type.item_type)]
    raise NotPlainDataError(f"a column of the Arrow type {name}")


def type_of(data: Any) -> Any:
    """Return a type of Arrow from its data. Raises ``NotPlainDataError``."""
    import pyarrow as pa

    if type(data) is str and data in _SIMPLE:
        name, _, unit = data.partition("[")
        return getattr(pa, _MEMBERS.get(name, name))(*([unit[:-1]] if unit and not name.startswith("date") else []))
    match data:
        case ["timestamp", unit, zone]:
            return pa.timestamp(unit, zone)
        case ["decimal128" | "decimal256" as kind, precision, scale]:
            return getattr(pa, kind)(precision, scale)
        case ["list" | "large_list" as kind, inner]:
            return getattr(pa, f"{kind}_")(type_of(inner)) if kind == "list" else pa.large_list(type_of(inner))
        case ["struct", fields]:
            return pa.struct([(name, type_of(inner)) for name, inner in fields])
        case ["dictionary", index, inner, ordered]:
            return pa.dictionary(type_of(index), type_of(inner), ordered)
        case ["map", key, item]:
            return pa.map_(type_of(key), type_of(item))
    raise NotPlainDataError("not a type of Arrow")


def is_fixed(arrow_type: Any) -> bool:
    """Return whether values of a type are numbers, or times that are kept as numbers."""
    import pyarrow as pa

    of = pa.types
    return bool(of.is_integer(arrow_type) or of.is_floating(arrow_type) or of.is_temporal(arrow_type))


def _plain_type(arrow_type: Any) -> Any:
    """Return the type of numbers that numpy and Arrow share, for a fixed type."""
    import pyarrow as pa

    if pa.types.is_temporal(arrow_type):
        return pa.int32() if arrow_type.bit_width == 32 else pa.int64()  # the two widths of times
    return arrow_type


def chunked_data(chunked: Any) -> tuple[Any, Any]:
    """Return a chunked array's values as an array or list, and an array of the missing ones, or None if none is.

    Missing values are 0 in an array and None in a list, so that equal columns are equal data. Raises
    ``NotPlainDataError``.
    """
    import numpy as np
    import pyarrow as pa

    if not is_fixed(chunked.type):
        return _listed(chunked), None
    whole = pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], chunked.type)
    whole = whole.view(_plain_type(chunked.type))
    if whole.null_count:
        missing = whole.is_null().to_numpy(zero_copy_only=False)
        values = (
            np.where(missing, 0, whole.to_numpy(zero_copy_only=False)) if pa.types.is_floating(whole.type) else None
        )
        values = whole.fill_null(0).to_numpy() if values is None else values.astype(whole.type.to_pandas_dtype())
        return values, missing
    return whole.to_numpy(), None


def _listed(chunked: Any) -> list[Any]:
    import pyarrow as pa

    of, kind = pa.types, chunked.type
    if of.is_string(kind) or of.is_large_string(kind):
        texts: list[Any] = chunked.to_numpy(zero_copy_only=False).tolist()  # at two thirds of the cost of to_pylist()
        return texts
    values: list[Any] = chunked.to_pylist()
    if not chunked.equals(pa.chunked_array([pa.array(values, kind)], kind)):
        raise NotPlainDataError(f"a column of the Arrow type {kind}, which Python's values do not lead back to")
    return values


def chunked_of(arrow_type: Any, values: Any, missing: Any) -> Any:
    """Return the chunked array with these values."""
    import pyarrow as pa

    if type(values) is list:
        return pa.chunked_array([pa.array(values, arrow_type)], arrow_type)
    return pa.chunked_array([pa.array(values, _plain_type(arrow_type), mask=missing).view(arrow_type)], arrow_type)


def memory_of(chunked: Any) -> Any:
    """Return hashes of a chunked array's memory, unique to its content, or None for a type with more than buffers.

    Cost: hashing the buffers, at about 10 GB/s.
    """
    import pyarrow as pa

    if not (is_fixed(chunked.type) or pa.types.is_string(chunked.type) or pa.types.is_large_string(chunked.type)):
        return None
    return [
        (
            chunk.offset,
            len(chunk),
            [None if buffer is None else hash_bytes(memoryview(buffer)) for buffer in chunk.buffers()],
        )
        for chunk in chunked.chunks
    ]
