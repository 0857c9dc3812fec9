"""A program that feeds random values to the accelerator, and compares each answer with one in Python.

``python -m tests.support.accelerator_fuzz SEED ROUNDS [MODULE]``; MODULE is a file, such as one built with sanitizers.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from typing import Any, Final

import msgpack

from versioned_state.values import accelerator
from versioned_state.values.cells import MAX_DEPTH
from versioned_state.values.codec.scalars import TooDeepError, is_plain

DEEP: Final = 64
ENOUGH: Final = 1 << 30

_EDGES: Final = [
    edge + by
    for bits in (0, 5, 7, 8, 15, 16, 31, 32, 63, 64, 70)
    for edge in (1 << bits, -(1 << bits))
    for by in (-1, 0, 1)
]
_SIZES: Final = (0, 1, 5, 15, 16, 17, 31, 32, 33, 255, 256, 300)
_LETTERS: Final = ("a", "ab", "aé", "a€", "a😀", "é€", "a\ud800", "\udfff")
_KEYS: Final = ("role", "content", "n", "a", "é", "\ud800")


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Items(list[Any]):
    pass


class Table(dict[Any, Any]):
    pass


_OTHERS: Final = (b"x", 1j, (1, 2), {1}, bytearray(b"y"), Text("t"), Number(3), Items([1]), Table(a=1), object, len)


def random_leaf(rng: random.Random) -> Any:
    match rng.randrange(8):
        case 0:
            return rng.choice(_EDGES)
        case 1:
            return rng.choice((None, True, False, float("nan"), float("inf"), -0.0, 0.0, rng.random()))
        case 2:
            return rng.choice(_LETTERS[:6]) * rng.choice(_SIZES)
        case 3 if rng.random() < 0.05:
            return rng.choice(_OTHERS)
        case 4 if rng.random() < 0.1:
            return rng.choice(_LETTERS[6:]) * rng.choice(_SIZES)
        case _:
            return rng.choice((rng.randrange(-40, 300), str(rng.randrange(1000)), "text" * rng.randrange(9)))


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(6)
    if depth > 4 or kind > 1:
        return random_leaf(rng)
    size = rng.choice((0, 1, 2, 3, 15, 16, 17)) if depth < 3 else rng.randrange(3)
    if kind:
        return [random_value(rng, depth + 1) for _ in range(size)]
    key = (lambda n: rng.choice(_KEYS)) if rng.random() < 0.5 else (lambda n: f"key {n}" if rng.random() < 0.995 else n)
    return {key(n): random_value(rng, depth + 1) for n in range(size)}


def packed(value: Any, depth: int = DEEP) -> bytes | None:
    """What ``pack`` answers, in Python."""
    try:
        if not is_plain(value, MAX_DEPTH - depth):
            return None
        cell: bytes = msgpack.Packer(strict_types=True).pack(value)
    except (TooDeepError, RecursionError, OverflowError, ValueError):
        return None
    return cell


def content(value: Any) -> Any:
    """What marks are of: the structure of a value, with the identities of its leaves, which the caller keeps alive."""
    if type(value) is list:
        return [content(each) for each in value]
    if type(value) is dict:
        return [(id(key), content(each)) for key, each in value.items()], len(value)
    return id(value)


def mutate(rng: random.Random, values: list[Any]) -> None:
    """Change one container in place, or replace a part by an equal one."""
    part: Any = values
    while rng.random() < 0.7:
        inside = [each for each in (part.values() if type(part) is dict else part) if type(each) in (list, dict)]
        if not inside:
            break
        part = rng.choice(inside)
    at = rng.randrange(len(part)) if part else 0
    new: Any = rng.choice(
        (
            random_value(rng, 3),
            [],
            {},
            [part[at]] if type(part) is list and part else -5,
            len(part) * 4 + 1,
            len(part) * 4 + 3,
        )
    )
    if type(part) is dict:
        key = list(part)[at] if part and rng.random() < 0.7 else rng.choice(_KEYS)
        if rng.random() < 0.2 and key in part:
            part[key] = part.pop(key)  # another order, or the same one
        else:
            part[key] = new
    elif part and rng.random() < 0.7:
        part[at] = list(part[at]) if type(part[at]) is list and rng.random() < 0.5 else new
    else:
        part.insert(at, new)


def check(fast: Any, rng: random.Random) -> None:
    """One random run of values: packed, marked, changed, compared."""
    values = [random_value(rng) for _ in range(rng.choice((1, 2, 3, 16, 64)))]
    expected = [packed(value) for value in values]
    assert fast.pack_all(values, DEEP, ENOUGH) == expected, values
    for value, cell in zip(values, expected, strict=True):
        assert fast.pack(value, DEEP, ENOUGH) == cell, value
        if cell is not None:
            assert fast.pack(value, DEEP, len(cell)) == cell
            assert fast.pack(value, DEEP, len(cell) - 1) is None
        depth = rng.randrange(5)
        assert fast.pack(value, depth, ENOUGH) == packed(value, depth), (value, depth)
    start = rng.randrange(len(values))
    stop = rng.randrange(start, len(values) + 1)
    marked = fast.pack_marked(values, start, stop, DEEP, ENOUGH)
    if None in expected[start:stop]:
        assert marked is None, values[start:stop]
        return
    run = values[start:stop]
    assert marked[0] == msgpack.packb(run, strict_types=True)
    marks, before = marked[1], content(run)
    kept = [*run, marked]  # the marks keep the leaves alive, so no identity in ``before`` is used again
    for _ in range(4):
        padded = [None] * rng.randrange(3)
        assert marks.same([*padded, *run, 1], len(padded)) == (
            content(run[: stop - start]) == before and len(run) >= stop - start
        )
        if run:
            mutate(rng, run)
    assert len(marks) == stop - start
    other = fast.pack_marked(run, 0, len(run), DEEP, ENOUGH)
    if other is not None:
        assert marks.begin(other[1]) == (len(run) >= len(marks) and content(run[: len(marks)]) == before)
    del kept


def main() -> None:
    seed, rounds = map(int, sys.argv[1:3])
    if len(sys.argv) > 3:
        spec = importlib.util.spec_from_file_location("versioned_state_fast", sys.argv[3])
        assert spec is not None
        assert spec.loader is not None
        fast: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fast)
    else:
        fast = accelerator.fast
    for number in range(seed, seed + rounds):
        try:
            check(fast, random.Random(number))
        except AssertionError as error:
            raise AssertionError(f"seed {number}: {error}") from error


if __name__ == "__main__":
    main()
