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
"""The errors for one value that cannot be stored. The other values are not affected."""

IMMUTABLE: Final = frozenset(
    {str, int, float, bool, type(None), bytes, complex, range, dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone}
    | {Decimal, Fraction, UUID}
)
"""Types whose values cannot change in place: only an assignment changes their key."""


class Entry:
    """A key that was loaded or assigned: its live value, its cell in the head (None: not there) and its baseline (None: small)."""

    __slots__ = ("base", "cell", "pack", "value")

    def __init__(self, value: Any, cell: bytes | None, base: Baseline | None) -> None:
        self.value = value
        self.cell = cell
        self.base = base
        self.pack: Pack | None = None


class Pack:
    """Small values under one fingerprint. A key whose value was replaced since has left the pack; its entry says so."""

    __slots__ = ("fingerprint", "keys", "values")

    def __init__(self, keys: list[bytes], values: list[Any], fingerprint: Fingerprint) -> None:
        self.keys = keys
        self.values = values
        self.fingerprint = fingerprint


class LazyTail:
    """Elements to be appended to a stored list that is not loaded, whose cell in the head is ``cell`` (None: a new list).

    Changes to them are not detected: they are stored as they are at the commit.
    """

    __slots__ = ("cell", "tail")

    def __init__(self, cell: bytes | None, tail: list[Any] | None = None) -> None:
        self.cell = cell
        self.tail: list[Any] = [] if tail is None else tail


@dataclass(slots=True)
class Update:
    """The new cell of a key (None: removed), its baseline, and whether the value is known to be of JSON types."""

    cell: bytes | None
    base: Baseline | None = None
    plain: bool = False


@dataclass(slots=True)
class Staged:
    """The state as it is now, as a tree over staged objects, and how it differs from the head.

    Attributes:
        tree: the root with all changes.
        changes: by root key, the values that differ from the head.
        unchanged: by root key, the values that were assigned or looked changed, and proved equal.
        broken: packs to form anew.
        tails: the number of appended elements in ``tree``, for each list that is not loaded.
        lists: the tails themselves.
        failed: changes that are not in ``tree``, by root key: of values that cannot be stored, or (None) of keys that were not asked for.
        replaced: the keys of ``failed`` whose value a merge replaced.
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
    """The point at which a transaction began: the content, the length of the journal, and the root of the head."""

    staged: Staged
    journal: int
    head: Tree
