"""What the golden tests pin: one value of each kind, and a small store that holds them all.

``python -m tests.golden.cases`` writes ``hashes.txt`` and ``store-1`` anew. That is only right before a release has gone out:
afterwards a format that differs is a new version, with a store of its own beside the old ones.
"""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
from blake3 import blake3

from tests.support.codec import Codec
from versioned_state import Disk, KVStore, Memory, Repository, Tagged, Versioned
from versioned_state.repository.history.commit import ROOT_ID

FOLDER = Path(__file__).parent
HASHES = FOLDER / "hashes.txt"
STORE = FOLDER / "store-1"


def text(lines: int) -> str:
    return "".join(f"{n}: {'text ' * (n * 7 % 23)}\n" for n in range(lines))


def message(n: int) -> dict[str, Any]:
    return {"role": ("user", "assistant", "tool")[n % 3], "content": "word " * (n * 31 % 90), "n": n}


VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one byte": -32,
    "two bytes": 200,
    "64 bits": 2**64 - 1,
    "least of 64 bits": -(2**63),
    "beyond 64 bits": 2**64,
    "negative, beyond 64 bits": -(2**63) - 1,
    "float": 0.1,
    "negative zero": -0.0,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "complex": 1.5 - 2j,
    "empty text": "",
    "short text": "été",
    "lone surrogate": "\ud800",
    # 128 bytes and 4096 are where a value no longer lies inline: a text has 2 or 3 bytes besides its characters, a list 1 more.
    **{f"text of {n} characters": "x" * n for n in (126, 127, 4093, 4094)},
    **{f"list with a text of {n} characters": ["x" * n] for n in (125, 126, 4092, 4093)},
    "long text": text(500),
    "one long line": "x" * 50_000,
    "bytes": b"\0\xff",
    "long bytes": bytes(range(256)) * 300,
    "bytearray": bytearray(b"ab"),
    "long bytearray": bytearray(range(256)) * 300,
    "empty list": [],
    "list": [1, "a", [2.5, None]],
    "list of 3 KB": [message(n) for n in range(12)],
    "long list": [message(n) for n in range(500)],
    "long list of numbers": [n * n for n in range(5000)],
    "long list of one number": [7] * 5000,
    "list of large elements": ["x" * 3000, ["y" * 5000, [1]], {"k": "z" * 9000}],
    "empty tuple": (),
    "tuple": (1, (2,), [3]),
    "long tuple": tuple(message(n) for n in range(100)),
    "empty dict": {},
    "dict": {"b": 1, "a": {"c": [2]}},
    "dict with keys of all kinds": {None: 1, True: 2, 2: 3, 2.5: 4, b"k": 5, (1, "x"): 6, frozenset({1}): 7, "s": 8},
    "dict of 3 KB": {f"k{n}": "v" * (n % 60) for n in range(80)},
    "long sorted dict": {f"k{n:05}": {"n": n} for n in range(400)},
    "long dict in an order of its own": {f"k{n * 79 % 400:05}": [n] for n in range(400)},
    "long dict with keys of all kinds": {key: str(key) * 9 for n in range(150) for key in (n, f"s{n}", (n, "t"))},
    "dict of large values": {f"k{n}": "v" * 400 for n in range(20)},
    "set": {3, 1, "a", (1, 2)},
    "long set": {f"m{n}" for n in range(900)},
    "frozenset": frozenset({b"b", 2}),
    "long frozenset": frozenset(range(2500)),
    "range": range(5, -10, -3),
    "date": dt.date(2026, 1, 2),
    "datetime": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
    "datetime in utc": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "datetime in a zone, in its fold": dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "time": dt.time(1, 2, 3, 4),
    "timedelta": dt.timedelta(-1, 2, 3),
    "timezone": dt.timezone(dt.timedelta(hours=-3, minutes=-30)),
    "named timezone": dt.timezone(dt.timedelta(hours=1), "CET"),
    "zoneinfo": ZoneInfo("America/St_Johns"),
    "decimal": Decimal("-1.50E+10"),
    "fraction": Fraction(-1, 3),
    "uuid": UUID(int=0x1234567890ABCDEF << 64 | 1),
    "path": PosixPath("/a/b"),
    "pure path": PurePosixPath("a"),
    "windows path": PureWindowsPath("C:/a"),
    "numpy scalar": np.float32(0.5),
    "numpy datetime": np.datetime64("2026-01-02T03:04", "m"),
    "array": np.arange(6, dtype="<i4").reshape(2, 3),
    "big-endian array": np.arange(3, dtype=">f8"),
    "structured array": np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")]),
    "array without elements": np.zeros((0, 3)),
    "array without dimensions": np.array(5, "<i8"),
    "large array": np.arange(10_000, dtype="<f8").reshape(100, 100),
    "tagged": Tagged("some.Name", {"a": 1}),
    "OrderedDict": OrderedDict(b=1, a=2),
    "defaultdict": defaultdict(list, a=[1]),
    "Counter": Counter(a=2, b=1),
    "deque": deque([1, 2], 5),
    "long deque": deque(message(n) for n in range(100)),
}


def fill(store: KVStore, *, objects: bool = False) -> Repository:
    """A store with all of it: values, commits, refs, a reflog, namespaces.

    Args:
        objects: also a branch with a pickle, whose bytes are Python's affair.
    """
    clock = itertools.count(1_700_000_000_000_000, 1_000_003)
    repository = Repository(store, clock=lambda: next(clock), author="golden")
    state = Versioned(repository)
    state.update(VALUES)
    state.commit("all of them", meta={"kinds": len(VALUES), "tuple": (1, None)})
    repository.tags.create("v1")
    state["list"].append("more")
    state.namespace("space").namespace("inner")["k"] = {"deep": [1]}
    state.commit("changed", author="another")
    repository.branches.create("side/branch")
    state.reset("v1")
    state["none"] = "after the reset"
    state.commit()
    if objects:
        other = Versioned(repository, branch="objects")
        other["object"] = [slice(1, 2, 3)]
        other.commit("an object")
    return repository


def _hash(data: bytes) -> str:
    return blake3(data).digest(length=24).hex()


def _hex(store: KVStore, key: str) -> str:
    return (store.get(key) or b"").hex()


def table() -> str:
    """Each value's cell in hex, or where that is long the hash of it, which covers all that the cell refers to."""
    rows = []
    for name, value in VALUES.items():
        bench = Codec()
        cell = bench.encode(value)
        count = sum(1 for _ in bench.kv.keys("o/"))
        rows.append((name, cell.hex() if len(cell) <= 24 else f"{_hash(cell)} hash of {len(cell)} bytes, {count} objects"))
    store = Memory()
    repository = fill(store)
    log = repository.database.ref("branch", "main").log
    assert log is not None
    rows += [
        ("the root commit", ROOT_ID),
        ("first commit", repository.commit("v1").id),
        ("commit with namespaces", repository.commit("side/branch").id),
        ("last commit", repository.commit("main").id),
        ("root of the first commit", repository.commit("v1").root),
        ("log entry of a reset", log.hex()),
        ("ref: branch", _hex(store, "ref/branch/main")),
        ("ref: tag", _hex(store, "ref/tag/v1")),
        ("birth record", _hex(store, "born/branch/main")),
        ("format record", _hex(store, "format")),
    ]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {row}\n" for name, row in rows)


if __name__ == "__main__":
    HASHES.write_text(table())
    shutil.rmtree(STORE, ignore_errors=True)
    with Disk(STORE) as store:
        fill(store, objects=True)
        store.compact()
