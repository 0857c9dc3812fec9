"""The records of a worktree: entries of live values, packs of small ones, unloaded tails, staged changes, savepoints. Layer: state."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final
from uuid import UUID

from versioned_state.errors import LimitExceededError, PickleRefusedError, UnserializableValueError
from versioned_state.objects.store import Staging
from versioned_state.values.detection.baselines import Baseline
from versioned_state.values.detection.groups import Fingerprint
from versioned_state.values.trees.tree import Tree

Unstorable = UnserializableValueError | PickleRefusedError | LimitExceededError
UNSTORABLE: Final = (UnserializableValueError, PickleRefusedError, LimitExceededError)
"""What a value that cannot be stored raises; it says nothing of the others."""

IMMUTABLE: Final = frozenset(
    {str, int, float, bool, type(None), bytes, complex, range, dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone}
    | {Decimal, Fraction, UUID}
)
"""Types whose values cannot change in place: they are compared only where one was assigned."""


class Entry:
    """One key that was loaded or given: its live value, its cell and baseline as of the head (None: not there, or small)."""

    __slots__ = ("base", "cell", "pack", "value")

    def __init__(self, value: Any, cell: bytes | None, base: Baseline | None) -> None:
        self.value = value
        self.cell = cell
        self.base = base
        self.pack: Pack | None = None


class Pack:
    """Small values under one mark. A key whose value was replaced since is a member no more; its entry says so."""

    __slots__ = ("keys", "mark", "values")

    def __init__(self, keys: list[bytes], values: list[Any], mark: Fingerprint) -> None:
        self.keys = keys
        self.values = values
        self.mark = mark


class LazyTail:
    """Elements to be appended to a stored list that is not loaded, whose cell in the head is ``cell`` (None: a new list).

    They are not watched: they count as they are at the commit.
    """

    __slots__ = ("cell", "tail")

    def __init__(self, cell: bytes | None, tail: list[Any] | None = None) -> None:
        self.cell = cell
        self.tail: list[Any] = [] if tail is None else tail


@dataclass(slots=True)
class Update:
    """What a key's value is now: its new cell (None: removed) and baseline, and whether it is known to be of JSON types."""

    cell: bytes | None
    base: Baseline | None = None
    plain: bool = False


@dataclass(slots=True)
class Staged:
    """The state as it is now, as a tree over staged objects, and how it differs from the head.

    Attributes:
        tree: the root with all changes.
        changes: by root key, what differs from the head.
        unchanged: what was assigned, or looked changed, and proved equal.
        broken: packs to be formed anew.
        tails: how many appended elements of lists that are not loaded are in it.
        lists: the tails themselves.
        failed: changes that are not in ``tree``, by root key: of values that cannot be stored, or (None) of keys that were not asked for.
        replaced: those of ``failed`` that gave way, as a merge was unchanged.
    """

    tree: Tree
    staging: Staging
    changes: dict[bytes, Update]
    unchanged: dict[bytes, Update]
    broken: list[Pack]
    tails: dict[bytes, int]
    lists: dict[bytes, LazyTail] = field(default_factory=dict)
    failed: dict[bytes, Unstorable | None] = field(default_factory=dict)
    replaced: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Savepoint:
    """Where a transaction began: the content then, how far the journal had gone, and the root of the head."""

    staged: Staged
    journal: int
    head: Tree
