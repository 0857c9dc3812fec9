"""Random changes in place of nested values: all that Python does to lists, dicts, sets, buffers, arrays and objects."""

from __future__ import annotations

import heapq
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.support.strategies import message
from versioned_state import register


class Str(str):
    __slots__ = ()


register(Str, "tests.Str", str.__str__, Str)


class Thing:
    """An instance as a user's own class makes them: data, by its attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Opaque(Thing):
    """An object: its class says how it is pickled, so its attributes may not be all of it."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


def containers(value: Any) -> Iterator[Any]:
    """Yield every part of a value that can be changed in place."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, (list, dict, set, bytearray, deque, Thing)) or (isinstance(part, np.ndarray) and part.size):
            yield part
        if isinstance(part, dict):
            stack += part.values()
        elif isinstance(part, (list, tuple, deque)):
            stack += part
        elif isinstance(part, Thing):
            stack += vars(part).values()


def mutate(rng: random.Random, value: Any) -> str:
    """Change one part of the value in place, and return a description. The change may have no effect."""
    found = list(containers(value))
    part = rng.choice(found)
    kind = next(cls for cls in _OPERATIONS if isinstance(part, cls))
    operation = rng.choice(_OPERATIONS[kind])
    operation(rng, part)
    return f"{operation.__name__} of {type(part).__name__}"


def fresh(rng: random.Random) -> Any:
    """Return a new value, mostly small."""
    return rng.choice(_FRESH)(rng)


_FRESH: list[Callable[[random.Random], Any]] = [
    lambda rng: rng.randrange(5),
    lambda rng: rng.choice((True, 1, 1.0, 0, False, 0.0, -0.0, None)),
    lambda rng: rng.choice(("a", "b", "c\n", "\ud800", Str("a"), b"a", bytearray(b"a"))),
    lambda rng: "x" * rng.choice((10, 200, 3000, 9000)),
    lambda rng: [rng.randrange(3) for _ in range(rng.randrange(4))],
    lambda rng: {rng.choice("abc"): rng.randrange(3)},
    lambda rng: ([rng.randrange(3)], {"in": {rng.randrange(3)}}),
    lambda rng: [message(rng) for _ in range(rng.choice((1, 1, 2, 40)))],
    lambda rng: {f"key {n}": [n, "y" * rng.randrange(60)] for n in range(rng.choice((1, 5, 100)))},
    message,
]


def retyped(rng: random.Random, value: Any) -> Any:
    """Return an equal value of another type, if there is one."""
    for cls, others in _RETYPED:
        if type(value) is cls:
            return rng.choice(others)(value)
    return value


def _if_small(convert: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda number: convert(number) if abs(number) < 2**60 else number


_RETYPED: list[tuple[type, tuple[Callable[[Any], Any], ...]]] = [
    (int, (_if_small(float), bool, _if_small(np.int64), _if_small(complex))),
    (float, (complex, np.float64, lambda v: int(v) if v == v and abs(v) < 2**60 else v)),
    (bool, (int, float)),
    (str, (Str,)),
    (bytes, (bytearray,)),
    (bytearray, (bytes,)),
    (list, (tuple, deque)),
    (tuple, (list,)),
    (dict, (OrderedDict, lambda v: defaultdict(list, v))),
    (set, (frozenset,)),
    (frozenset, (set,)),
]


def _index(rng: random.Random, part: Any) -> int:
    return rng.randrange(len(part)) if part else 0


# Lists


def append(rng: random.Random, part: Any) -> None:
    part.append(fresh(rng))


def extend(rng: random.Random, part: Any) -> None:
    part.extend(fresh(rng) for _ in range(rng.choice((1, 2, 3, 80))))


def insert(rng: random.Random, part: list[Any]) -> None:
    part.insert(_index(rng, part), fresh(rng))


def delete(rng: random.Random, part: Any) -> None:
    if part:
        del part[_index(rng, part)]


def delete_slice(rng: random.Random, part: list[Any]) -> None:
    start = _index(rng, part)
    del part[start : start + rng.choice((1, 2, 30))]


def delete_strided(rng: random.Random, part: list[Any]) -> None:
    del part[_index(rng, part) :: rng.choice((2, 7))]


def assign_slice(rng: random.Random, part: list[Any]) -> None:
    start = _index(rng, part)
    part[start : start + rng.randrange(4)] = [fresh(rng) for _ in range(rng.randrange(4))]


def assign(rng: random.Random, part: Any) -> None:
    if part:
        part[_index(rng, part)] = fresh(rng)


def retype(rng: random.Random, part: Any) -> None:
    if part:
        at = _index(rng, part)
        part[at] = retyped(rng, part[at])


def swap(rng: random.Random, part: Any) -> None:
    if part:
        a, b = _index(rng, part), _index(rng, part)
        part[a], part[b] = part[b], part[a]


def move(rng: random.Random, part: list[Any]) -> None:
    if part:
        part.insert(_index(rng, part), part.pop(_index(rng, part)))


def repeat(rng: random.Random, part: list[Any]) -> None:
    if part and len(part) < 50:
        part.append(part[_index(rng, part)])


def reverse(_: random.Random, part: Any) -> None:
    part.reverse()


def sort(_: random.Random, part: list[Any]) -> None:
    part.sort(key=lambda value: (type(value).__name__, len(str(value)) % 7))


def shuffle(rng: random.Random, part: list[Any]) -> None:
    rng.shuffle(part)


def heap(rng: random.Random, part: list[Any]) -> None:
    part[:] = [value for value in part if type(value) in (int, float)]
    heapq.heapify(part)
    heapq.heappush(part, rng.randrange(3))
    heapq.heappop(part)


def clear(_: random.Random, part: Any) -> None:
    part.clear()


# Dicts


def set_entry(rng: random.Random, part: dict[Any, Any]) -> None:
    part[rng.choice(("a", "b", "new", 1, True, 2.0, None, (1, "a"), f"key {rng.randrange(120)}"))] = fresh(rng)


def update(rng: random.Random, part: dict[Any, Any]) -> None:
    part.update({rng.choice("abcdefg"): fresh(rng) for _ in range(3)}, z=fresh(rng))


def merge(rng: random.Random, part: dict[Any, Any]) -> None:
    part |= {"merged": fresh(rng)}


def set_default(rng: random.Random, part: dict[Any, Any]) -> None:
    part.setdefault(rng.choice("abc"), fresh(rng))


def delete_key(rng: random.Random, part: dict[Any, Any]) -> None:
    if part:
        del part[rng.choice(list(part))]


def pop_item(_: random.Random, part: dict[Any, Any]) -> None:
    if part:
        part.popitem()


def assign_entry(rng: random.Random, part: dict[Any, Any]) -> None:
    if part:
        part[rng.choice(list(part))] = fresh(rng)


def retype_entry(rng: random.Random, part: dict[Any, Any]) -> None:
    if part:
        key = rng.choice(list(part))
        part[key] = retyped(rng, part[key])


def retype_key(rng: random.Random, part: dict[Any, Any]) -> None:
    for key in list(part):
        if type(key) in (int, bool, float):
            part[retyped(rng, key)] = part.pop(key)


def to_the_end(rng: random.Random, part: dict[Any, Any]) -> None:
    if part:
        key = rng.choice(list(part))
        part[key] = part.pop(key)


def reorder(rng: random.Random, part: dict[Any, Any]) -> None:
    items = list(part.items())
    rng.shuffle(items)
    part.clear()
    part.update(items)


def count(rng: random.Random, part: Counter[Any]) -> None:
    part[rng.choice("abc")] += 1


def rotate(rng: random.Random, part: deque[Any]) -> None:
    part.rotate(rng.randrange(3))


def append_left(rng: random.Random, part: deque[Any]) -> None:
    part.appendleft(fresh(rng))


# Sets


def add(rng: random.Random, part: set[Any]) -> None:
    part.add(rng.choice((rng.randrange(9), True, 1.0, "a", (1, "a"), frozenset({1}))))


def remove(rng: random.Random, part: set[Any]) -> None:
    if part:
        part.discard(rng.choice(sorted(part, key=repr)))


def combine(rng: random.Random, part: set[Any]) -> None:
    part ^= {rng.randrange(5), "b"}
    part |= {rng.randrange(5)}
    part -= {rng.randrange(5)}


# Buffers, arrays, objects


def set_byte(rng: random.Random, part: bytearray) -> None:
    if part:
        part[_index(rng, part)] = rng.randrange(256)


def resize(rng: random.Random, part: bytearray) -> None:
    start = _index(rng, part)
    part[start : start + rng.randrange(3)] = rng.randbytes(rng.randrange(4))


def set_element(rng: random.Random, part: np.ndarray[Any, Any]) -> None:
    part.flat[rng.randrange(part.size)] = part.flat[rng.randrange(part.size)]
    if part.ndim and part.flags.c_contiguous:  # numpy views no other as bytes
        part.view(np.uint8).flat[rng.randrange(part.nbytes)] ^= rng.randrange(2)


def flip(_: random.Random, part: np.ndarray[Any, Any]) -> None:
    part[...] = part[::-1].copy() if part.ndim else part


def set_attribute(rng: random.Random, part: Thing) -> None:
    setattr(part, rng.choice("abcd"), fresh(rng))


def delete_attribute(rng: random.Random, part: Thing) -> None:
    if vars(part):
        delattr(part, rng.choice(list(vars(part))))


_LIST = [
    append,
    append,
    extend,
    insert,
    delete,
    delete_slice,
    delete_strided,
    assign_slice,
    assign,
    retype,
    swap,
    move,
    repeat,
    reverse,
]
_DICT = [
    set_entry,
    update,
    merge,
    set_default,
    delete_key,
    pop_item,
    assign_entry,
    retype_entry,
    retype_key,
    to_the_end,
    reorder,
]
_OPERATIONS: dict[type, list[Callable[[random.Random, Any], None]]] = {
    list: [*_LIST, sort, shuffle, heap, clear],
    Counter: [count, delete_key, to_the_end, reorder],
    dict: [*_DICT, clear],
    set: [add, remove, combine, clear],
    bytearray: [set_byte, resize, reverse, clear],
    deque: [append, append_left, delete, rotate, reverse, extend, assign, clear],
    np.ndarray: [set_element, flip],
    Thing: [set_attribute, delete_attribute],
}


def sample(rng: random.Random, size: int, *, data_only: bool = True) -> dict[str, Any]:
    """Return a nested value with every kind of container in it, small or large."""
    made: dict[str, Any] = {
        "messages": [message(rng) for _ in range(size)],
        "numbers": [rng.randrange(9) for _ in range(3 * size)],
        "prefs": {"theme": "dark", "a.b": [1, [2, {"deep": (3, [4])}]], 1: "one", (1, "a"): {}},
        "index": {f"key {n}": rng.choice((n, [n], {"n": n}, "v" * rng.randrange(300))) for n in range(size)},
        "tuple": (1, [2, {"in": "tuple"}], b"bytes"),
        "set": {1, "a", (1, 2)},
        "buffer": bytearray(rng.randbytes(5 * size)),
        "deque": deque([1, [2], 3], 50),
        "ordered": OrderedDict(b=1, a=[2]),
        "default": defaultdict(list, k=[1]),
        "counter": Counter("abca"),
        "array": np.arange(float(4 * size)).reshape(-1, 2),
        "text": "line\n" * size,
        "memory": {"agent": {"content": [[n, {"text": "t" * rng.randrange(200)}] for n in range(size)]}},
    }
    if not data_only:
        made["thing"] = Thing(a=1, b=[2, Thing(c={"d": 3})])
        made["things"] = [Thing(n=n, tags=["t"]) for n in range(size // 4)]
        made["opaque"] = [Opaque(n=n, tags=["t"], thing=Thing(o=Opaque())) for n in range(size // 4 + 1)]
    return made
