"""Reading stored values that are not of built-in types: objects, typed values, numpy. Layer: values."""

from __future__ import annotations

from typing import Any

from blake3 import blake3

from versioned_state.errors import StateError
from versioned_state.values.codec import arrays, pickles
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.typed import registry
from versioned_state.values.typed.layout import Layout, NotPlainDataError
from versioned_state.values.typed.tagged import Notes, Tagged


def read_object(parts: list[Any], policy: PicklePolicy | None) -> Any:
    """Return an object, unpickled if the policy allows it, or without a policy its ``ObjectInfo``."""
    type_name, mac, _, data, *rest = parts
    if type(type_name) is not str or type(data) is not bytes:
        raise ValueError("not an object")
    buffers = list(zip(rest[::2], rest[1::2], strict=True))
    if policy is None:
        size = len(data) + sum(len(buffer) for _, buffer in buffers)
        return pickles.ObjectInfo(type_name, size, pickles.imported_names(data))
    policy.check_read(type_name)
    digests = b"".join(blake3(part).digest() for part in (data, *(buffer for _, buffer in buffers)))
    policy.check_mac(mac, type_name.encode() + b"\0" + digests, type_name)
    try:
        return pickles.load(data, [bytearray(buffer) if writable else buffer for writable, buffer in buffers])
    except Exception as error:
        raise StateError(
            f"an object of type {type_name} could not be unpickled: {type(error).__name__}: {error}",
            hint="its class may be missing here or have changed since; register() types whose values must last",
        ) from error


def read_typed(layout: Layout | None, name: str, data: Any, notes: Notes) -> tuple[Any, bool]:
    """Return a typed value, and whether it would be stored in the same form again.

    It is a ``Tagged`` if there is no layout that fits.
    """
    if layout is None:
        return Tagged(name, data, notes), True
    try:
        return registry.make(layout, name, data, notes or {})
    except NotPlainDataError:
        return Tagged(name, data, notes), True
    except Exception as error:
        raise StateError(
            f"a value of the type {name!r} could not be read: {type(error).__name__}: {error}",
            hint="the registered conversion of this type must be able to read every version "
            "that was stored under its name",
        ) from error


def read_array(descr: Any, shape: Any, data: bytes | bytearray) -> Any:
    """Return a numpy array, or ``Tagged`` if numpy is not installed."""
    try:
        return arrays.read_array(descr, shape, data)
    except ImportError:
        return Tagged("numpy.ndarray", {"dtype": descr, "shape": shape, "data": bytes(data)})


def read_scalar(descr: Any, data: bytes) -> Any:
    """Return a numpy scalar, or ``Tagged`` if numpy is not installed."""
    try:
        return arrays.read_scalar(descr, data)
    except ImportError:
        return Tagged("numpy.generic", {"dtype": descr, "data": data})
