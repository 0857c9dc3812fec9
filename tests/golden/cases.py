"""What the golden tests pin: one value of each kind, and a small store that holds them all.

``python -m tests.golden.cases`` writes ``hashes.txt``, ``store-1`` and ``store-1-indexed`` anew. That is only right
before a release has gone out: afterwards a format that differs is a new version, with a store of its own beside the old
ones.
"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import shutil
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pydantic
from blake3 import blake3

from tests.support.codec import Codec
from versioned_state import Disk, KVStore, Memory, Repository, Tagged, Versioned
from versioned_state.repository.history.commit import ROOT_ID

# Classes whose names, and so whose addresses, are pinned with their values.


@dataclass
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float


class Reply(pydantic.BaseModel, extra="allow"):
    text: str
    stars: int = 5
    _seen: int = 0


@attrs.define
class Visit:
    city: str
    days: int


class Place(NamedTuple):
    city: str
    tags: list[int]


class Status(enum.Enum):
    OPEN = "open"


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Mode(enum.StrEnum):
    FAST = "fast"


class Agent:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: int) -> None:
        self.a = a


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Messages(list[Any]):
    def __init__(self, elements: list[Any], **attributes: Any) -> None:
        super().__init__(elements)
        self.__dict__.update(attributes)


class Prefs(dict[str, Any]):
    pass


class Tags(set[str]):
    pass


class ToolError(Exception):
    def __init__(self, tool: str, code: int) -> None:
        super().__init__(f"{tool}: {code}")
        self.code = code


def changed_message() -> Message:
    changed = Message("user", "hi")
    del changed.role
    changed.__dict__["score"] = 1
    return changed


def failed() -> Exception:
    error = ValueError("bad", 7)
    error.add_note("in row 7")
    error.__cause__ = KeyError("inner")
    return error


FOLDER = Path(__file__).parent
HASHES = FOLDER / "hashes.txt"
STORE = FOLDER / "store-1"
INDEXED = FOLDER / "store-1-indexed"


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
    # 128 bytes and 4096 are where a value no longer lies inline: a text has 2 or 3 bytes besides its characters, a list
    # 1 more.
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
    "long list": [message(n) for n in range(2500)],
    "long list of numbers": [n * n for n in range(5000)],
    "long list of one number": [7] * 50_000,
    "list of large elements": ["x" * 3000, ["y" * 5000, [1]], {"k": "z" * 9000}],
    "empty tuple": (),
    "tuple": (1, (2,), [3]),
    "long tuple": tuple(message(n) for n in range(400)),
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
    "long frozenset": frozenset(range(12_000)),
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
    "tagged with notes": Tagged("some.module:Some.Name", {"a": 1, "b": 2}, {"set": frozenset({"a"})}),
    "tagged within one another": [
        Tagged("x:A", {"a": Tagged("x:B", "M")}),
        Tagged("x:A", [Tagged("x:B", 1)], {"more": 1}),
    ],
    "tagged as keys": {Tagged("x:B", 1): 1, (Tagged("x:B", 1, {"n": 1}), 2): 2, frozenset({Tagged("x:B", 1)}): 3},
    "large tagged": Tagged("some.module:Thread", {"messages": [message(n) for n in range(100)], "title": "x"}),
    "large tagged with notes": Tagged("some.module:Thread", {"text": text(300), "z": 1}, {"set": frozenset({"z"})}),
    "large tagged list": Tagged(
        "some.module:Messages", [message(n) for n in range(100)], {"fields": {"title": text(100)}}
    ),
    "tagged of 3 KB": Tagged("some.module:Thread", {f"k{n}": "v" * (n % 60) for n in range(80)}),
    "long list of tagged": [Tagged("some.module:Message", message(n)) for n in range(500)],
    "dataclass": Message("user", "hi"),
    "dataclass with more, and less, than its fields": changed_message(),
    "frozen dataclass with slots": Point(1, 2.5),
    "large dataclass": Message("user", text(500)),
    "long list of dataclasses": [Message(**{k: v for k, v in message(n).items() if k != "n"}) for n in range(500)],
    "dataclass as a key": {Point(1, 2.0): "a", (Point(0, 0.0), 1): "b"},
    "pydantic model": Reply(text="a"),
    "pydantic model with extra and private": Reply.model_validate({"text": "a", "stars": 3, "more": [1]}),
    "attrs class": Visit("Rome", 2),
    "NamedTuple": Place("Rome", [1]),
    "Enum": Status.OPEN,
    "IntFlag": Access.READ | Access.WRITE,
    "IntFlag without a name": Access(8),
    "StrEnum": Mode.FAST,
    "ordinary class": Agent(plan=["a"], step=1),
    "ordinary class with slots": Slotted(1),
    "str subclass": Text("a"),
    "int subclass": Number(5),
    "list subclass with fields": Messages([1, [2]], title="a"),
    "dict subclass": Prefs(b=1, a=2),
    "set subclass": Tags({"b", "a"}),
    "exception": failed(),
    "exception of a class of ours": ToolError("search", 404),
    "exception group": ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    "OrderedDict": OrderedDict(b=1, a=2),
    "defaultdict": defaultdict(list, a=[1]),
    "Counter": Counter(a=2, b=1),
    "deque": deque([1, 2], 5),
    "long deque": deque(message(n) for n in range(100)),
}


def golden_repository(store: KVStore) -> Repository:
    """Return a repository whose commits have the same times in every run."""
    clock = itertools.count(1_700_000_000_000_000, 1_000_003)
    return Repository(store, clock=lambda: next(clock), author="golden")


def fill(store: KVStore, *, objects: bool = False) -> Repository:
    """A store with all of it: values, commits, refs, a reflog, namespaces.

    Args:
        objects: also a branch with a pickle, whose bytes are Python's affair.
    """
    repository = golden_repository(store)
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


def fill_indexed(store: KVStore) -> Repository:
    """A store with an index of meta that was made between two commits."""
    repository = golden_repository(store)
    state = Versioned(repository)
    for number, run in enumerate(("r0", "r1", 7, True, None, 2**70, 1.5)):
        state["n"] = number
        state.commit(meta={"run": run, "other": 1}, tag=f"t/{number}")
        if number == 2:
            repository.index_meta("run")
    repository.tags.delete("t/1")
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
        rows.append(
            (name, cell.hex() if len(cell) <= 24 else f"{_hash(cell)} hash of {len(cell)} bytes, {count} objects")
        )
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


def write() -> None:
    """Write ``hashes.txt`` and the stores anew."""
    HASHES.write_text(table())
    shutil.rmtree(STORE, ignore_errors=True)
    with Disk(STORE) as store:
        fill(store, objects=True)
        store.compact()
    write_indexed()


def write_indexed() -> None:
    """Write ``store-1-indexed`` anew."""
    shutil.rmtree(INDEXED, ignore_errors=True)
    with Disk(INDEXED) as store:
        fill_indexed(store)
        store.compact()


if __name__ == "__main__":
    from tests.golden import cases  # so that its classes have the names that they have in the tests

    cases.write()
