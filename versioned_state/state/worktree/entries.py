"""The records of a worktree: entries of live values, packs of small ones, staged changes, savepoints. Layer: state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple
from uuid import UUID

from versioned_state.errors import LimitExceededError, PickleRefusedError, UnserializableValueError
from versioned_state.objects.store import Staging
from versioned_state.records import dataclass, field
from versioned_state.state.worktree.lists.pieces import StagedList
from versioned_state.values.accelerator import Marks
from versioned_state.values.detection.baselines import Baseline
from versioned_state.values.detection.groups import Fingerprint
from versioned_state.values.trees.tree import Tree

Unstorable = UnserializableValueError | PickleRefusedError | LimitExceededError
UNSTORABLE: Final = (UnserializableValueError, PickleRefusedError, LimitExceededError)
"""The errors of one value that cannot be stored. They do not affect other values."""

IMMUTABLE: Final = frozenset(
    {str, int, float, bool, type(None), bytes, complex, range, dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone}
    | {Decimal, Fraction, UUID}
)
"""Types whose values cannot change in place."""


NewEntries = Mapping[bytes, Mapping[str, bytes]]
"""By engine key, the cells of new entries of a series by name. A cell has the whole of its value in it."""


class Entry:
    """A loaded or assigned value, its cell in the head (None if absent) and its baseline (None for a small value)."""

    __slots__ = ("base", "cell", "pack", "value")

    def __init__(self, value: Any, cell: bytes | None, base: Baseline | None) -> None:
        self.value: Any = value
        self.cell: bytes | None = cell
        self.base: Baseline | None = base
        self.pack: Pack | None = None


class Pack:
    """Small values that share a fingerprint, and the accelerator's marks of them or None.

    A replaced or released value has left the pack.

    ``members`` is the number of keys that still belong to it, or more if a call was interrupted.
    """

    __slots__ = ("fingerprint", "keys", "marks", "members", "values")

    def __init__(
        self, keys: list[bytes], values: list[Any], fingerprint: Fingerprint, marks: Marks | None = None
    ) -> None:
        self.keys: Final = keys
        self.values: list[Any] = values
        self.fingerprint: Fingerprint = fingerprint
        self.marks: Marks | None = marks
        self.members: int = 0


class Repacking(NamedTuple):
    """New packs, formed when their values were encoded, and the ids of the packs that they replace."""

    gone: Collection[int]
    packs: Sequence[Pack]


@dataclass(slots=True)
class Update:
    """The new cell of a key (None if removed), the baseline, and whether the value is known to consist of JSON types.

    ``staged_list`` is set for a list that is not loaded; ``old`` is the cell in the head, for a staged change.
    """

    cell: bytes | None
    base: Baseline | None = None
    plain: bool = False
    staged_list: StagedList | None = None
    old: bytes | None = None


@dataclass(slots=True)
class Staged:
    """The staged state: its root, the new objects, and the differences from the head.

    Attributes:
        tree: the root with all changes.
        changes: by root key, the values that differ from the head.
        unchanged: by root key, the values that were assigned or suspected and turned out equal.
        broken: the packs whose fingerprint differs.
        series: by engine key, the series in ``tree`` that have new entries.
        failed: by root key, the changes that are not in ``tree``: the error of a value that cannot be stored, or None
            for a key that the caller left out.
        replaced: the keys of ``failed`` whose values a merge replaced.
        repacking: the packs that follow from these changes; None if they are not to be adopted.
    """

    tree: Tree
    staging: Staging
    changes: dict[bytes, Update]
    unchanged: dict[bytes, Update]
    broken: list[Pack]
    failed: dict[bytes, Unstorable | None] = field(default_factory=dict)
    series: dict[bytes, bytes] = field(default_factory=dict)
    replaced: set[bytes] = field(default_factory=set)
    repacking: Repacking | None = None


@dataclass(slots=True)
class Savepoint:
    """The start of a transaction: the staged state, the length of the journal, and the root of the head.

    ``staged`` is None if nothing differed from the head. ``since`` is that of ``TrackedKeys``: commits within the
    transaction may raise it there, and a rollback brings back older values.
    """

    staged: Staged | None
    journal: int
    head: Tree
    since: int
