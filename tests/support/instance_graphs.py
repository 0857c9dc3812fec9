"""Random, deep graphs of instances of each kind that is stored by its fields, with cycles and shared parts."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

from tests.support.nested_kinds import Attrs, Data, Model, Named, OwnList, Plain


@dataclass(slots=True)
class Slotted:
    child: Any = None
    beside: Any = None


class OwnDict(dict[Any, Any]):
    pass


def _own_list(a: Any, b: Any) -> OwnList:
    made = OwnList([a])
    made.note = b
    return made


_OPEN: list[Any] = [
    Data,
    Slotted,
    Attrs,
    lambda a, b: Model.model_construct(child=a, beside=b),
    Plain,
    lambda a, b: [a, b],
    lambda a, b: {"a": a, 2: b},
    lambda a, b: OrderedDict(a=a, b=b),
    lambda a, b: deque([a, b]),
    _own_list,
    lambda a, b: OwnDict(a=a, b=b),
]
_CLOSED: list[Any] = [lambda a, b: (a, b), Named]
_LEAVES: list[Any] = [
    None,
    1,
    -1.5,
    "text",
    "\udcff",
    2**127,
    b"bytes",
    frozenset({1, (2, "x")}),
    "long " * 40,
    "l" * 5000,
]


def graph(seed: int) -> Any:
    """Return a graph.

    Every third is deep, up to the limit of the format. Some are cyclic, and some hold one part at several places.
    """
    chance = random.Random(seed)
    if seed % 3 == 0:
        return _deep(chance)
    made: list[Any] = [chance.choice(_LEAVES) for _ in range(3)]
    sharing = chance.random() < 0.5
    for _ in range(chance.randint(1, 24)):
        a, b = (chance.choice(made[-4:] if not sharing else made) for _ in range(2))
        if not sharing:
            b = chance.choice(_LEAVES)
        made.append(chance.choice(_OPEN if chance.random() < 0.8 else _CLOSED)(a, b))
    if chance.random() < 0.4:
        _close(chance, made)
    return made[-1]


def _close(chance: random.Random, made: list[Any]) -> None:
    """Let parts refer to parts around them."""
    for part in chance.sample(made, min(3, len(made))):
        target = chance.choice(made)
        if isinstance(part, list | deque):
            part.append(target)
        elif isinstance(part, dict):
            part["back"] = target
        elif isinstance(part, Data | Slotted | Attrs | Plain):
            part.beside = target


def _deep(chance: random.Random) -> Any:
    value = chance.choice(_LEAVES)
    kinds = chance.sample([*_OPEN, *_CLOSED], chance.randint(1, 4))
    beside = [chance.choice(_LEAVES) for _ in range(2)]
    for _ in range(chance.choice([20, 60, 100, 120, 126, 127, 128, 129])):
        value = chance.choice(kinds)(value, chance.choice(beside))
    return value
