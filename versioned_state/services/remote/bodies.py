"""The bodies of requests and responses: one value each, exact in type, or refused. Layer: services.

There are two forms. ``application/x-versioned-state`` is the self-contained stored form of any value that is data
(docs/format.md, section 4). Neither side pickles or imports anything. ``application/json`` is for values that JSON
holds exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite, isinf
from typing import Any, Final, Never

from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    MissingObjectError,
    StateError,
    UnserializableValueError,
)
from versioned_state.objects.address import Address
from versioned_state.values.cells import MAX_DEPTH
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.codec.scalars import TooDeepError, is_plain
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.paths.path import Index, Key, StatePath, Step
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.typed.registry import Classes

JSON: Final = "application/json"
NATIVE: Final = "application/x-versioned-state"

_MOST_BITS: Final = 14_000
"""Bits of the largest int in JSON, a little less than 4,300 decimal digits, Python's limit to write and read one."""

_NEVER: Final = PicklePolicy("refuse", private=False)

_STEPS_AT_LEAST: Final = 1024
"""Extensions that are decoded in a body of any length.

One takes three bytes, and is decoded twice if there are lone surrogates.
"""


class _Objects:
    """A reader without objects: a body is self-contained."""

    def read(self, address: Address) -> bytes:
        raise MissingObjectError(address.hex())

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        return {address: self.read(address) for address in addresses}


def encode(value: Any, path: str = "the body") -> bytes:
    """Encode a value as ``application/x-versioned-state``.

    Raises:
        PickleRefusedError: a value inside would have to be pickled.
        LimitExceededError: the value is too deep.
    """
    try:
        return InlineEncoder().encode_inline(value, path)
    except StateError:
        for key, part in value.items() if type(value) is dict else ():
            if type(key) is str:
                # so that an error names the path in the state
                InlineEncoder().encode_inline(part, str(StatePath((Key(key),))))
        raise


def decode(body: bytes, *, classes: Classes = "registered") -> Any:
    """Decode an ``application/x-versioned-state`` body. Instances of classes outside ``classes`` become ``Tagged``.

    Cost: at most a few steps for each byte, whatever the bytes are.

    Raises:
        InvalidArgumentError: it is malformed.
        PickleRefusedError: it has a pickle in it.
        LimitExceededError: it is too deep, or needs more steps.
    """
    try:
        return Decoder(Nodes(_Objects()), _NEVER, classes=classes, most_steps=_STEPS_AT_LEAST + len(body)).decode(body)
    except (CorruptObjectError, MissingObjectError) as error:
        reason = (
            error.reason
            if isinstance(error, CorruptObjectError)
            else "it refers to an object, and a body has everything in it"
        )
        raise InvalidArgumentError(f"the body is not {NATIVE}: {reason}") from None


def encode_json(value: Any, path: str = "the body") -> bytes:
    """Encode a value as JSON.

    Raises ``UnserializableValueError`` if JSON cannot hold it exactly: nothing is changed silently.
    """
    try:
        if is_plain(value):
            return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TooDeepError, ValueError):  # a NaN, or an int with too many digits
        pass
    steps, part, reason = _find_unfit(value, ())
    error = UnserializableValueError(str(StatePath(steps)) if steps else path, type(part).__name__, reason)
    error.what = f"JSON cannot hold {error.path} of type {error.type_name} exactly: {reason}"
    error.hint = f"{NATIVE} holds every type"
    raise error


def decode_json(body: bytes) -> Any:
    """Decode a JSON body.

    Raises ``InvalidArgumentError`` if it is not JSON, or if Python would encode it differently.
    """
    try:
        return json.loads(
            body.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "it is too deep"
    except _UnfitError as error:
        reason = str(error)
    except ValueError:  # of Python's int
        reason = "an integer has too many digits"
    raise InvalidArgumentError(f"the body is not {JSON}: {reason}")


class _UnfitError(Exception):
    """JSON that Python would decode to something else."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _UnfitError("an object has the same name twice")
    return found


def _refuse_constant(name: str) -> Never:
    raise _UnfitError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise _UnfitError("a number is beyond the range of a float")
    return number


def _find_unfit(value: Any, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], Any, str]:
    """Find the first part of a value that JSON cannot hold exactly: steps, part, and reason, empty if there is none."""
    cls = type(value)
    if cls in (str, bool, type(None)):
        return steps, value, ""
    if cls is int:
        return steps, value, "it has too many digits" if value.bit_length() > _MOST_BITS else ""
    if cls is float:
        return steps, value, "" if isfinite(value) else f"JSON has no {value}"
    if cls is not list and cls is not dict:
        return steps, value, "JSON would change its type"
    if len(steps) >= MAX_DEPTH:
        return steps, value, "it is too deep"
    for step, part in enumerate(value) if cls is list else value.items():
        if cls is dict and type(step) is not str:
            return steps, value, f"a key of it is of type {type(step).__name__}"
        found = _find_unfit(part, (*steps, Index(step) if cls is list else Key(step)))
        if found[2]:
            return found
    return steps, value, ""


def media_type(header: str) -> str:
    """Return the media type of a ``Content-Type``, without parameters, in lower case."""
    return header.partition(";")[0].strip().lower()


def charset(header: str) -> str:
    """Return the charset of a ``Content-Type`` in lower case, or an empty string."""
    for parameter in header.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"').lower()
    return ""


def acceptable(header: str) -> list[str]:
    """Return the media types that an ``Accept`` header allows, the best first.

    Raises ``InvalidArgumentError`` for a malformed one.
    """
    if not header.strip():
        return [JSON, NATIVE]
    weights: dict[str, float] = {}
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = -1.0
                if not 0 <= weight <= 1:
                    raise InvalidArgumentError("the Accept header has a weight that is not a number from 0 to 1")
        weights.setdefault(name, weight)

    def weight_of(kind: str) -> float:
        return next((weights[name] for name in (kind, "application/*", "*/*") if name in weights), 0.0)

    return sorted((kind for kind in (JSON, NATIVE) if weight_of(kind) > 0), key=weight_of, reverse=True)
