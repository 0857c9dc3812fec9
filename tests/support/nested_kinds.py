"""Values of every type of data in every kind of container, nested to a depth, for tests that count work."""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import numpy as np
import pydantic

from versioned_state import Tagged


@dataclass
class Data:
    child: Any
    beside: Any


@dataclass(frozen=True)
class Frozen:
    child: Any
    beside: Any


@attrs.define
class Attrs:
    child: Any
    beside: Any


class Model(pydantic.BaseModel):
    child: Any
    beside: Any


class Named(NamedTuple):
    child: Any
    beside: Any


class Plain:
    def __init__(self, child: Any, beside: Any) -> None:
        self.child, self.beside = child, beside


class OwnList(list[Any]):
    note: Any = None


def _defaultdict(child: Any, beside: Any) -> Any:
    return defaultdict(list, child=child, beside=beside)


def _counter(child: Any, beside: Any) -> Any:
    made: Counter[Any] = Counter()
    made["child"], made["beside"] = child, beside
    return made


CONTAINERS: dict[str, Callable[[Any, Any], Any]] = {
    "list": lambda child, beside: [child, beside],
    "list, last": lambda child, beside: [beside, child],
    "tuple": lambda child, beside: (child, beside),
    "dict": lambda child, beside: {"child": child, "beside": beside},
    "dict, last": lambda child, beside: {"beside": beside, "child": child},
    "dict of int keys": lambda child, beside: {1: child, 2: beside},
    "dict and list": lambda child, beside: {"child": child, "beside": [beside]},
    "OrderedDict": lambda child, beside: OrderedDict(child=child, beside=beside),
    "defaultdict": _defaultdict,
    "Counter": _counter,
    "deque": lambda child, beside: deque([child, beside]),
    "dataclass": Data,
    "attrs": Attrs,
    "model": lambda child, beside: Model.model_construct(child=child, beside=beside),
    "NamedTuple": Named,
    "ordinary class": Plain,
    "subclass of list": lambda child, beside: OwnList([child, beside]),
    "Tagged": lambda child, beside: Tagged("app:Gone", {"child": child, "beside": beside}),
}
"""How a value and another one beside it are put into a container of each kind."""

HASHABLE: dict[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda child, beside: (child, beside),
    "frozenset": lambda child, beside: frozenset([child, beside]),
    "frozen dataclass": Frozen,
}

BESIDE: dict[str, Any] = {
    "text": "a",
    "lone surrogate": "\udcff",
    "int of 128 bits": 2**127,
    "float": 0.5,
    "bytes": b"b",
    "bytearray": bytearray(b"b"),
    "complex": 1 + 2j,
    "datetime": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "timedelta": dt.timedelta(1, 2, 3),
    "Decimal": Decimal("1.50"),
    "Fraction": Fraction(1, 3),
    "UUID": UUID(int=7),
    "path": PurePosixPath("a/b"),
    "range": range(3),
    "set": {1, 2},
    "frozenset": frozenset({1, (2, 3)}),
    "numpy": np.arange(3),
    "numpy scalar": np.float32(1.5),
}
"""A value of each type of data."""


def nested(make: Callable[[Any, Any], Any], beside: Any, depth: int, innermost: Any = None) -> Any:
    value = innermost
    for _ in range(depth):
        value = make(value, beside)
    return value
