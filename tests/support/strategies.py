"""Values of every data type, nested at random and of any size."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st

# What is exactly the same


# Values without parts

INTS = (0, 1, -1, 2**7, -(2**7), 2**31, 2**53 + 1, 2**63, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 10**30, -(10**400))
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns")

timezones = st.one_of(
    st.none(),
    st.sampled_from(
        [dt.UTC, dt.timezone(dt.timedelta(hours=-3, minutes=-30)), dt.timezone(dt.timedelta(seconds=1), "name \ud800")]
    ),
    st.sampled_from(ZONES).map(ZoneInfo),
)
text = st.text(max_size=30) | st.text(st.characters(codec=None), max_size=6)
"""Lone surrogates too."""

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(INTS) | st.integers(),
    st.floats() | st.sampled_from([0.0, -0.0, float("nan"), float("inf")]),
    st.complex_numbers() | st.just(complex(-0.0, float("nan"))),
    text,
    st.binary(max_size=30),
)
times = st.one_of(
    st.dates(),
    st.datetimes(timezones=timezones, allow_imaginary=True),
    st.times(timezones=timezones),
    st.timedeltas(),
    timezones.filter(lambda zone: zone is not None),
)
numbers = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=True)
    | st.sampled_from([Decimal("NaN"), Decimal("-0.00"), Decimal("1E+400")]),
    st.fractions(),
    st.builds(range, st.integers(-9, 9), st.integers(-99, 99), st.integers(1, 9) | st.integers(-9, -1))
    | st.just(range(10**30)),
)
names: st.SearchStrategy[Any] = st.one_of(
    st.uuids(),
    st.lists(text.filter(lambda part: "\0" not in part), max_size=3).map(lambda parts: PurePosixPath(*parts)),
    st.sampled_from([PurePosixPath("a/b"), PosixPath("/tmp/x y"), PureWindowsPath("C:\\a\\b"), PurePath("caf\udce9")]),
)

# numpy

DTYPES = (
    "?",
    "i1",
    "<i4",
    ">i8",
    "u2",
    "f2",
    "<f4",
    ">f8",
    "c16",
    "<M8[ns]",
    ">M8[D]",
    "m8[us]",
    "U3",
    ">U2",
    "S5",
    "V4",
)
STRUCTURED: tuple[Any, ...] = (
    [("a", "<i4"), ("b", ">f8", (2, 2)), ("inner", [("x", "u1"), ("name", "U2")])],
    [("flag", "?"), ("when", "<M8[s]")],
)
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (3, 0, 2), (1,), (5,), (2, 3), (2, 1, 4), (700,), (40, 50))


def make_array(dtype: Any, shape: tuple[int, ...], seed: int, layout: str) -> np.ndarray[Any, Any]:
    """Return an array of random bits that its dtype can hold, in one of several layouts in memory."""
    made = np.zeros(shape, np.dtype(dtype))
    if made.size:
        letters = random.Random(seed)
        kind = made.dtype.kind
        if kind in "US":
            made.flat[:] = [
                "".join(letters.choices("abé" if kind == "U" else "abc", k=letters.randrange(3)))
                for _ in range(made.size)
            ]
        elif kind != "V" or made.dtype.names is None:
            raw = np.frombuffer(letters.randbytes(made.nbytes), made.dtype)
            made = (raw.view("u1") & 1).astype(bool).reshape(shape) if kind == "b" else raw.reshape(shape).copy()
        else:
            made["a" if "a" in made.dtype.names else "when"] = letters.randrange(100)
    if layout == "fortran":
        return np.asfortranarray(made)
    if layout == "strided" and made.ndim:
        return np.repeat(made, 2, axis=0)[::2]
    return made


arrays = st.builds(
    make_array,
    st.sampled_from(DTYPES) | st.sampled_from(STRUCTURED),
    st.sampled_from(SHAPES),
    st.integers(0, 9),
    st.sampled_from(["c", "fortran", "strided"]),
)
numpy_scalars = st.one_of(
    st.builds(np.float64, st.floats()),
    st.builds(np.int32, st.integers(-(2**31), 2**31 - 1)),
    st.builds(np.bool_, st.booleans()),
    st.sampled_from(
        [
            np.datetime64("2026-01-02T03", "ns"),
            np.timedelta64(5, "D"),
            np.complex64(1 - 2j),
            np.str_("é"),
            np.bytes_(b"a"),
        ]
    ),
    st.sampled_from([np.array(5, ">i8")[()], np.array((1, 2.0), [("a", "i4"), ("b", "f8")])[()]]),
)

# Large values, drawn as one number and made by a generator of their own: Hypothesis would take seconds for each


def message(rng: random.Random) -> dict[str, Any]:
    """Return a message like an agent's: mostly short, sometimes too long to be inline."""
    size = rng.choice((10, 40, 40, 200, 200, 800, 6000))
    words = " ".join(rng.choices(("state", "commit", "été", "{}", "\n", "0"), k=size // 6))
    made: dict[str, Any] = {"role": rng.choice(("user", "assistant", "tool")), "content": words}
    if rng.random() < 0.2:
        made["tool_calls"] = [
            {"id": rng.randbytes(4).hex(), "arguments": {"n": rng.randrange(100), "deep": [[(1, rng.random())]]}}
        ]
    return made


def _large_list(rng: random.Random, size: int) -> Any:
    return [message(rng) for _ in range(size // 8)]


def _large_numbers(rng: random.Random, size: int) -> Any:
    return [rng.choice((rng.randrange(9), rng.random(), 2**70, None, True)) for _ in range(size)]


def _large_dict(rng: random.Random, size: int) -> Any:
    keys = [f"key {index:05}" if rng.random() < 0.8 else index for index in range(size // 2)]
    if rng.random() < 0.5:
        rng.shuffle(keys)
    return {key: rng.choice((rng.randrange(9), "x" * rng.randrange(300), [1, [2.5]], (1, [key]))) for key in keys}


def _large_text(rng: random.Random, size: int) -> Any:
    return "".join("x" * rng.randrange(120) + rng.choice(("\n", " ", "é", ", ")) for _ in range(size // 4))


_LARGE: dict[str, Callable[[random.Random, int], Any]] = {
    "list": _large_list,
    "numbers": _large_numbers,
    "dict": _large_dict,
    "text": _large_text,
    "surrogates": lambda rng, size: "\ud800" + "line\n" * size,
    "bytes": lambda rng, size: rng.randbytes(40 * size),
    "bytearray": lambda rng, size: bytearray(rng.randbytes(40 * size)),
    "tuple": lambda rng, size: tuple(_large_list(rng, size)),
    "set": lambda rng, size: {(index, str(rng.random())) for index in range(size)},
    "frozenset": lambda rng, size: frozenset(str(rng.random()) for _ in range(size)),
    "array": lambda rng, size: make_array(
        rng.choice(("f8", ">i4", STRUCTURED[0])), (size // 10, 7), rng.randrange(9), "c"
    ),
    "deque": lambda rng, size: deque(_large_numbers(rng, size), 2 * size),
    "nested": lambda rng, size: [
        _large_dict(rng, size // 2),
        {"in": {"memory": _large_list(rng, size)}},
        _large_text(rng, size),
    ],
}


def make_large(kind: str, size: int, seed: int) -> Any:
    return _LARGE[kind](random.Random(seed), size)


large = st.builds(
    make_large, st.sampled_from(sorted(_LARGE)), st.sampled_from((30, 120, 700, 3000)), st.integers(0, 2**32)
)

# Everything, nested

keys: st.SearchStrategy[Any] = st.recursive(
    atoms | times | numbers.filter(lambda number: not isinstance(number, range)) | names,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
"""Whatever may be a key of a dict, or in a set."""


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=6),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=5),
        st.dictionaries(text, inner, max_size=5).map(OrderedDict),
        st.lists(inner, max_size=4).map(lambda parts: deque(parts, 9)),
        st.dictionaries(text, st.lists(inner, max_size=2), max_size=3).map(lambda d: defaultdict(list, d)),
    )


leaves: st.SearchStrategy[Any] = st.one_of(
    atoms,
    times,
    numbers,
    names,
    st.binary(max_size=40).map(bytearray),
    st.sets(keys, max_size=5),
    st.frozensets(keys, max_size=5),
    arrays.filter(lambda made: made.size < 500),
    numpy_scalars,
    st.lists(text, max_size=6).map(Counter),
)
values: st.SearchStrategy[Any] = st.recursive(leaves, _nested, max_leaves=12)
"""Any data, small."""

any_values: st.SearchStrategy[Any] = st.one_of(values, large, st.recursive(leaves | large, _nested, max_leaves=5))
"""Any data, of any size."""

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(text, inner, max_size=5),
    max_leaves=15,
)
