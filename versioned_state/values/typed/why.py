"""The objects in a live value, and the reason why each is not data. Layer: values."""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

from versioned_state.errors import InvalidPathError, LimitExceededError, PickleRefusedError, UnserializableValueError
from versioned_state.values.codec import arrays
from versioned_state.values.codec.pickles import type_name_of
from versioned_state.values.codec.scalars import WRITERS, NotDataError
from versioned_state.values.paths.path import StatePath
from versioned_state.values.typed.registry import take_apart, why_no_data
from versioned_state.values.typed.sharing import find_reasons
from versioned_state.values.typed.tagged import Tagged

_PLAIN = frozenset({str, int, float, bool, type(None), bytes})


class ObjectReason(NamedTuple):
    """An object in a value, and why it is not data."""

    path: StatePath
    type_name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.type_name} is an object: {self.reason}"


def iter_objects(value: Any, path: StatePath) -> Iterator[ObjectReason]:
    """Yield the objects in a value at a path, in the order of their paths. Cost: a walk over all of it."""
    reasons = find_reasons(value)
    stack: list[tuple[Any, StatePath]] = [(value, path)]
    while stack:
        current, where = stack.pop()
        cls = type(current)
        if cls in _PLAIN:
            continue
        reason = reasons.get(id(current)) or _reason(current)
        if reason is not None:
            yield ObjectReason(where, type_name_of(current), reason)
            continue
        stack += reversed(_parts(current, where))


def _reason(value: Any) -> str | None:
    """Return why a value itself is an object, apart from its parts, or None if it is data."""
    cls = type(value)
    if cls in (list, dict, tuple, set, frozenset, Tagged):
        return None
    try:
        if cls in WRITERS:
            WRITERS[cls](value)
            return None
        if arrays.is_array(value) or arrays.is_scalar(value):
            arrays.dtype_data(value.dtype)
            return None
        if isinstance(value, FunctionType | BuiltinFunctionType | MethodType | type):
            return "it is code"
        take_apart(value)
    except (NotDataError, ValueError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - code of the value's own type
        return f"to_data() raises {type(error).__name__}: {error}"
    return why_no_data(cls)


def _parts(value: Any, path: StatePath) -> list[tuple[Any, StatePath]]:
    cls = type(value)
    data, fields = value, None
    if cls not in (dict, list, tuple, set, frozenset):
        record = None if cls in WRITERS or arrays.is_array(value) or arrays.is_scalar(value) else take_apart(value)
        if record is None:
            return []
        _, data, notes = record
        fields = None if notes is None else notes.get("fields")
    parts: list[tuple[Any, StatePath]] = []
    if type(data) is dict:
        parts += [(part, path.key(key)) for key, part in data.items() if type(key) in _PLAIN]
    elif type(data) in (list, tuple):
        parts += [(part, path.index(index)) for index, part in enumerate(data)]
    elif type(data) in (set, frozenset):
        parts += [(part, path) for part in data]
    elif data is not value:
        parts.append((data, path))
    return parts if type(fields) is not dict else [*parts, *((part, path) for part in fields.values())]


def explain(value: Any) -> list[ObjectReason]:
    """Return each part of a value that is not data, with its path in the value and the reason, or none if all is data.

    Whatever is data is stored without pickle, in shared stores too. ``str()`` of a reason is a sentence. Cost: as for
    storing the value.
    """
    from versioned_state.values.encode.inline import InlineEncoder

    found = list(iter_objects(value, StatePath()))
    if not found:
        # The rest is rare: in a key, in the depth, or in what a type does by itself.
        try:
            InlineEncoder().encode_inline(value, "")
        except PickleRefusedError as error:
            found = [ObjectReason(_path_of(error.path), error.type_name, "it would have to be pickled where it is")]
        except UnserializableValueError as error:
            found = [ObjectReason(_path_of(error.path), error.type_name, error.reason)]
        except LimitExceededError as error:
            found = [ObjectReason(StatePath(), type_name_of(value), error.what)]
    return found


def is_data(value: Any) -> bool:
    """Return whether all of a value is data, so that a shared store takes it: no part would have to be pickled.

    Cost: as ``explain``.
    """
    return not explain(value)


def _path_of(text: str) -> StatePath:
    """Return the path in an error of the encoder, or the root if the text is not a path."""
    try:
        return StatePath.parse(text.removeprefix("."))
    except InvalidPathError:
        return StatePath()
