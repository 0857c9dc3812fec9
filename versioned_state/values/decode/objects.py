"""Stored values that are not built in: objects, registered types, numpy. Layer: values."""

from __future__ import annotations

from typing import Any

from blake3 import blake3

from versioned_state.errors import StateError
from versioned_state.values.codec import arrays, pickles, registry
from versioned_state.values.codec.pickles import PicklePolicy


def read_object(parts: list[Any], policy: PicklePolicy | None) -> Any:
    """An object, unpickled if the policy allows it; without a policy, its ``ObjectInfo``."""
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


def read_tagged(name: Any, data: Any) -> Any:
    """A value of a registered type, or ``Tagged`` if its name is not registered here."""
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


def read_array(descr: Any, shape: Any, data: bytes | bytearray) -> Any:
    """A numpy array, or ``Tagged`` if numpy is not installed."""
    try:
        return arrays.read_array(descr, shape, data)
    except ImportError:
        return registry.Tagged("numpy.ndarray", {"dtype": descr, "shape": shape, "data": bytes(data)})


def read_scalar(descr: Any, data: bytes) -> Any:
    """A numpy scalar, or ``Tagged`` if numpy is not installed."""
    try:
        return arrays.read_scalar(descr, data)
    except ImportError:
        return registry.Tagged("numpy.generic", {"dtype": descr, "data": data})
