"""A diff as a patch: to JSON, and back, with every value exactly as it was. Layer: repository.

An entry is a dict with ``path``, ``kind`` and the sides ``old`` and ``new``, as ``Change.to_json`` returns them; but
what JSON cannot hold exactly is ``{"$cell": …}``, the value's stored form in base64; the forms of ``Change.to_json``
are read too. An addition to a list has the length that the list had, so that the patch does not fit any other list.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from versioned_state.arguments import instance_of
from versioned_state.errors import InvalidArgumentError, InvalidPathError, PickleRefusedError, StateError
from versioned_state.repository.views.change import Change
from versioned_state.repository.views.json_form import CELL, from_json
from versioned_state.values.changes.diff import ChangeKind
from versioned_state.values.codec.pickles import ObjectInfo
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.paths.path import StatePath

_SAFE_INT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class PatchEntry:
    """One change: at a path, from one value to another. ``length`` is that of the list that something was added to."""

    path: StatePath
    kind: ChangeKind
    old: Any
    new: Any
    reordered: bool = False
    length: int | None = None
    given: bool = False


def write_patch(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Return the entries of a patch, in JSON types.

    Raises ``PickleRefusedError`` for an object: a patch carries data.
    """
    encoder = InlineEncoder()
    entries = []
    for change in changes:
        entry: dict[str, Any] = {"path": str(change.path), "kind": change.kind}
        if change.reordered:
            entry["reordered"] = True
        if change.given:
            entry["given"] = True
        if change.cells.length is not None:
            entry["length"] = change.cells.length
        for side, wanted in (("old", change.kind != "added"), ("new", change.kind != "removed")):
            if wanted:
                entry[side] = _write(encoder, getattr(change, side), str(change.path))
        entries.append(entry)
    return entries


def _write(encoder: InlineEncoder, value: Any, path: str) -> Any:
    cls = type(value)
    if (
        cls in (str, bool, type(None))
        or (cls is int and abs(value) < _SAFE_INT)
        or (cls is float and math.isfinite(value))
    ):
        if cls is not str or not any("\ud800" <= char <= "\udfff" for char in value):
            return value
    elif cls is list:
        return [_write(encoder, part, path) for part in value]
    elif cls is dict and all(type(key) is str and not key.startswith("$") for key in value):
        return {key: _write(encoder, part, path) for key, part in value.items()}
    elif cls is ObjectInfo:
        raise PickleRefusedError(
            f"{path} holds an object of type {value.type_name}, and a patch carries data only",
            policy="refuse",
            path=path,
        )
    return {CELL: base64.b64encode(encoder.encode_inline(value, path)).decode()}


def read_patch(entries: Any) -> list[PatchEntry]:
    """Return the changes of a patch, with instances of classes that are loaded.

    Raises ``InvalidArgumentError``, which names the entry.
    """
    instance_of("a patch", entries, list, hint="Diff.to_patch() gives one")
    return [_read_entry(entry, number) for number, entry in enumerate(entries)]


def _read_entry(entry: Any, number: int) -> PatchEntry:
    def bad(reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"entry {number} of the patch is not a change: {reason}")

    if not isinstance(entry, Mapping):
        raise bad("it is not an object")
    kind, length = entry.get("kind"), entry.get("length")
    if kind not in ("added", "removed", "changed"):
        raise bad(f"its kind is {kind!r}")
    if type(entry.get("path")) is not str:
        raise bad("it has no path")
    try:
        path = StatePath.parse(entry["path"])
    except InvalidPathError as error:
        raise bad(str(error)) from error
    if not (length is None or type(length) is int):
        raise bad(f"its length is {length!r}")
    for side, wanted in (("old", kind != "added"), ("new", kind != "removed")):
        if wanted and side not in entry:
            raise bad(f"it has no {side!r}")
    try:
        old, new = (from_json(entry.get(side), "loaded") for side in ("old", "new"))
    except (StateError, ValueError, TypeError) as error:
        raise bad(str(error)) from error
    return PatchEntry(
        path, cast("ChangeKind", kind), old, new, entry.get("reordered") is True, length, entry.get("given") is True
    )
