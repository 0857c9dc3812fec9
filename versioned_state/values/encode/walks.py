"""Walks over a value: whether it is large, and the path of an object in it. Layer: values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from versioned_state.values.cells import MAX_DEPTH
from versioned_state.values.codec.arrays import is_array
from versioned_state.values.paths.path import StatePath
from versioned_state.values.typed.registry import take_apart

CONTAINERS: Final = frozenset({list, dict, tuple, set, frozenset})
_SCALARS: Final = frozenset({bool, int, float, type(None)})
_SIZED: Final = frozenset({str, bytes, bytearray})
_ATOMS: Final = _SCALARS | _SIZED
_GLANCE: Final = 256
"""Parts up to which packing a value that proves too large costs less than looking at it first."""

SHALLOW: Final = 3
"""The depth up to which looking at, or packing, all that is below a part anew at each level costs little."""

_CONTAINER_BYTES: Final = 56
_ELEMENT_BYTES: Final = 8
"""Bytes that CPython takes for a list, and for each of its elements besides its value. A dict takes more."""

_only_sized = _SIZED.issuperset
_only_scalars = _SCALARS.issuperset
_only_atoms = _ATOMS.issuperset
_only_counted = (_SIZED | CONTAINERS).issuperset


def exceeds(value: Any, limit: int) -> bool:
    """Return whether the packed form is certainly longer than ``limit``. Cost: at most about ``limit`` parts."""
    return _left(value, limit, 0) < 0


def footprint(value: Any) -> int:
    """Return about how many bytes of memory the texts and containers of a value take.

    Cost: looks at all parts, once.
    """
    total = 0
    waiting = [value]
    seen: set[int] = set()  # an object that was read may contain itself
    kept: list[Any] = []  # keeps the data of typed values alive, so that no id is reused
    while waiting:
        part = waiting.pop()
        cls = type(part)
        if cls in _SIZED:
            total += len(part)
        elif cls in _SCALARS or id(part) in seen:
            continue
        elif cls in CONTAINERS:
            seen.add(id(part))
            total += _CONTAINER_BYTES + _ELEMENT_BYTES * len(part)
            parts = part.values() if cls is dict else part
            waiting += parts if not _only_scalars(map(type, parts)) else ()
        elif (record := _record(part)) is not None:
            seen.add(id(part))
            kept.append(record)
            waiting.append(record[1])
        elif is_array(part):
            total += int(part.nbytes)
    return total


class Size(NamedTuple):
    """The size of a value: its parts (a shared one at each place), the depth of containers, and its least bytes."""

    parts: int
    height: int
    packed: int


class Sizes:
    """The sizes of the parts of one value, by identity, while none of them changes.

    Each is examined once, however many places it has.
    """

    def __init__(self) -> None:
        self.known: dict[int, Size] = {}
        self._kept: list[Any] = []  # keeps the data of typed values alive, so that no id is reused

    def clear(self) -> None:
        self.known.clear()
        self._kept.clear()

    def of(self, value: Any) -> Size:
        """Return the size of a container or a typed value. Cost: its parts that were not examined before."""
        known = self.known.get(id(value))
        if known is None:
            self._look(value)
            known = self.known[id(value)]
        return known

    def _look(self, value: Any) -> None:
        known = self.known
        stack = [self._enter(value)]
        while stack:
            part, size, inside, rest = stack[-1]
            new = next((each for each in rest if id(each) not in known), None)
            if new is not None:
                stack.append(self._enter(new))
                continue
            stack.pop()
            below = [known[id(each)] for each in inside]
            known[id(part)] = Size(
                size.parts + sum(each.parts for each in below),
                1 + max((each.height for each in below), default=0),
                size.packed + sum(each.packed for each in below),
            )

    def _enter(self, part: Any) -> tuple[Any, Size, list[Any], Iterator[Any]]:
        """Return a part, its own size, and its parts that have parts."""
        data, packed = part, 1
        if type(part) not in CONTAINERS:
            record = _record(part)
            data = None if record is None else record[1]
            packed = 3 if record is None else 5 + len(record[0])
        all_of: Any = (*data, *data.values()) if type(data) is dict else data if type(data) in CONTAINERS else (data,)
        inside = [] if _only_atoms(map(type, all_of)) else [each for each in all_of if type(each) not in _ATOMS]
        packed += sum(map(_least_of_atom, all_of))
        # for now: a value may contain itself
        self.known[id(part)] = size = Size(1 + len(all_of) - len(inside), 1, packed)
        self._kept.append((part, data))
        return part, size, inside, iter(inside)


def _least_of_atom(value: Any) -> int:
    """Return the bytes of a value without parts, or somewhat fewer, or none for a value with parts."""
    cls = type(value)
    if cls is str:
        return 1 + (len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))
    if cls is int:
        return 1 if -32 <= value < 128 else 1 + (value.bit_length() >> 3)
    if cls is float:
        return 9
    return 1 if cls in _SCALARS else 2 + len(value) if cls in _SIZED else 0


def is_surely_large(value: Any, limit: int) -> bool:
    """Return ``exceeds`` more quickly for values that are probably small: a short list of records is not walked."""
    cls = type(value)
    if (cls is list or cls is dict) and len(value) <= _GLANCE:
        parts = value if cls is list else value.values()
        if _only_counted(map(type, parts)):
            return len(value) + sum(map(len, parts)) > limit
    return exceeds(value, limit)


def _left(value: Any, budget: int, depth: int) -> int:  # noqa: C901 - one walk, which is hot
    """Return an upper bound for the rest of ``budget``.

    Each part counts one byte, or its length if it has one; each key counts one byte.
    """
    cls = type(value)
    if cls in _SIZED:
        return budget - 1 - len(value)
    if cls not in CONTAINERS:
        return budget - 1 if cls in _SCALARS else _left_of_other(value, budget - 1, depth)
    budget -= 1 + (2 * len(value) if cls is dict else len(value))
    if budget < 0 or depth > MAX_DEPTH:
        return budget
    parts = value.values() if cls is dict else value
    if _only_sized(map(type, parts)):
        try:
            return budget - sum(map(len, parts))
        except TypeError:  # another thread has put another value in since
            parts = list(parts)
    is_flat = True
    for part in parts:
        cls = type(part)
        if cls in _SIZED:
            budget -= len(part)
        elif cls not in _SCALARS:
            is_flat = False
    for part in () if is_flat else parts:  # the containers after the texts beside them, which may suffice
        cls = type(part)
        if budget < 0:
            break
        if cls in CONTAINERS:
            budget = _left(part, budget + 1, depth + 1)
        elif cls not in _ATOMS:
            budget = _left_of_other(part, budget, depth + 1)
    return budget


def _left_of_other(value: Any, budget: int, depth: int) -> int:
    """Return what ``_left`` does for a value of a type that is not built in, whose first byte is counted already."""
    if budget < 0 or depth > MAX_DEPTH:
        return budget
    record = _record(value)
    if record is not None:
        return _left(record[1], budget, depth + 1)
    return budget - int(value.nbytes) if is_array(value) else budget


def _record(value: Any) -> tuple[str, Any, Any] | None:
    try:
        return take_apart(value)
    except Exception:  # noqa: BLE001 - code of the value's own type; encoding it says what is wrong
        return None


def find_inside(value: Any, target: Any) -> str | None:
    """Return an object's path inside a value, as a string that continues the value's path, or None if not found."""
    stack: list[tuple[Any, StatePath]] = [(value, StatePath())]
    seen: set[int] = set()
    kept: list[Any] = []  # keeps the data of typed values alive, so that no id is reused
    while stack:
        current, path = stack.pop()
        if current is target:
            return path.suffix()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if type(current) is dict:
            stack += [(part, path.key(key)) for key, part in current.items()]
        elif type(current) in (list, tuple):
            stack += [(part, path.index(index)) for index, part in enumerate(current)]
        elif type(current) in (set, frozenset):
            stack += [(part, path) for part in current]
        elif type(current) not in _ATOMS and (record := _record(current)) is not None:
            stack.append((record[1], path))
            kept.append(record)
            if record[2] is not None:
                stack.append((record[2].get("fields"), path))
    return None
