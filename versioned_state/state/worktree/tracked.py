"""The tracked keys of a handle, and the status of each relative to the head. Layer: state.

::

    as in the head   not loaded: no record; loaded: an entry, whose value is compared by fingerprint
    assigned         an entry, and in ``assigned``; in ``added`` if the head does not have the key
    removed          no entry, and in ``removed``
    edited           a list that is not loaded: in ``lists``, and no entry; in ``added`` if the head does not have it

Keys are root keys throughout (see ``values.keys``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

from versioned_state.state.worktree.entries import IMMUTABLE, Entry, Staged, Update
from versioned_state.state.worktree.key_order import OrderedKeyDict, OrderedKeySet
from versioned_state.state.worktree.lists.pieces import Element, ListEdits
from versioned_state.state.worktree.suspects import Suspects
from versioned_state.state.worktree.unfinished import Unfinished
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import Fingerprint
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find

T = TypeVar("T")

ABSENT: Final = object()


class TrackedKeys:
    """The tracked keys over the root of the head. Only the methods here change the status of a key.

    The tree, ``entries`` (live values with the cells that they are relative to), ``lists`` and ``removed`` are the
    facts. Everything else is derived from them, and ``rebuild`` derives it again.

    Attributes:
        tree: the root of the head.
        entries: values that were loaded or assigned.
        lists: lists that are not loaded, with elements in memory or other edits.
        removed: keys of the head that were deleted, with their cells there.
        assigned: keys that the next staging always encodes, in the order of the assignments, which summaries use.
        added: keys that the head does not have.
        stale: keys whose new value in the head could not be read when the head moved.
        suspects: finds the values that were equal to the head's and may have changed in place.
        unfinished: the records of interrupted steps.
        journal: by key, the values that assignments and deletions replaced (``ABSENT`` if there was none), in order.
        changes: counts the calls that changed anything here.
        since: the lowest number of gc's ``sweeps`` at which the objects of the baselines were known to be stored; see
            ``Staging.since``. A handle that follows its branch does not raise it: the new head need not lead to the
            objects of the old one.
    """

    def __init__(self, nodes: Nodes, fingerprinter: Fingerprinter, tree: Tree) -> None:
        self._nodes = nodes
        self._fingerprinter = fingerprinter
        self.unfinished: Final = Unfinished()
        self.tree = tree
        self.entries: dict[bytes, Entry] = {}
        self.lists: dict[bytes, ListEdits] = {}
        self.assigned: dict[bytes, None] = {}
        self.removed: OrderedKeyDict[bytes] = OrderedKeyDict()
        self.added: OrderedKeySet = OrderedKeySet()
        self.stale: set[bytes] = set()
        self.suspects: Suspects = Suspects(fingerprinter, self.entries)
        self.journal: list[tuple[bytes, Any]] = []
        self.changes: int = 0
        self.since = 0
        # the last result of ``cell``: a call on one list asks several times
        self._found: tuple[Tree, bytes, bytes | None] | None = None

    @property
    def held_bytes(self) -> int:
        """Approximate bytes of memory of baselines and tables, which never shrink. Cost: the tracked keys."""
        tables = sum(map(sys.getsizeof, (self.entries, self.lists, self.assigned, self.removed, self.added)))
        return (
            tables
            + self.suspects.held_bytes
            + sum(entry.base.held_bytes for entry in self.entries.values() if entry.base is not None)
        )

    def begin(self, key: bytes) -> None:
        """Record the state of a key before a call changes it. ``unfinished.edit`` is cleared after the last step."""
        self.changes += 1
        self.unfinished.edit = (
            key,
            self.entries.get(key),
            self.lists.get(key),
            self.removed.get(key),
            len(self.journal),
        )

    def cell(self, key: bytes) -> bytes | None:
        """Return the cell of a key as of the head."""
        tree = self.tree
        if not tree.count:
            return None
        found = self._found
        if found is not None and found[0] is tree and found[1] == key:
            return found[2]
        cell = find(self._nodes, tree, key)
        self._found = tree, key, cell
        return cell

    def list_cell(self, key: bytes) -> bytes | None:
        """Return the head's cell that a list's edits change: None if the key was removed and a new list begun."""
        return None if key in self.removed else self.cell(key)

    def track_list(self, key: bytes, edits: ListEdits) -> None:
        """Track a list that is not loaded."""
        self.lists[key] = edits
        if edits.cell is None:
            self.added.add(key)

    def replace_list(self, key: bytes, edits: ListEdits) -> None:
        """Track a list that is not loaded, relative to the head, for a key with any status."""
        if edits.is_idle:
            self.untrack(key)
            return
        self.lists[key] = edits
        self.entries.pop(key, None)
        self.removed.pop(key)
        self.assigned.pop(key, None)
        self._forget(key)
        if edits.cell is None:
            self.added.add(key)

    # The status of a key

    def track_unchanged(self, key: bytes, entry: Entry, fingerprint: Fingerprint) -> None:
        """Track a value that is equal to the head's and has this fingerprint."""
        self.entries[key] = entry  # first, so that a value that a caller refers to always has an entry
        self.lists.pop(key, None)
        self.removed.pop(key, None)
        self.assigned.pop(key, None)
        self._forget(key)
        self.suspects.add(key, entry, fingerprint)

    def track_assigned(self, key: bytes, entry: Entry) -> None:
        """Track a value that may differ from the head's. A stale key stays stale."""
        self.entries[key] = entry
        self.lists.pop(key, None)
        self.suspects.forget(key)
        if key in self.removed:
            del self.removed[key]
        if entry.cell is None:
            self.added.add(key)
        elif key in self.added:
            self.added.discard(key)
        self.assigned[key] = None

    def remove(self, key: bytes, cell: bytes | None) -> None:
        """Track a deleted key. The head has ``cell``."""
        self.untrack(key)
        if cell is not None:
            self.removed[key] = cell
            self.assigned[key] = None

    def untrack(self, key: bytes) -> None:
        """Stop tracking a key: its value is the head's."""
        self._forget(key)
        self.entries.pop(key, None)
        self.lists.pop(key, None)
        if key in self.removed:
            del self.removed[key]
        self.assigned.pop(key, None)

    def _forget(self, key: bytes) -> None:
        if key in self.added:
            self.added.discard(key)
        self.stale.discard(key)
        self.suspects.forget(key)

    def rebuild(self, *, rebase: bool = False, keep: Collection[bytes] = ()) -> None:
        """Derive everything again from the values and the cells that they are relative to.

        The next staging encodes all values.

        Args:
            rebase: make every key relative to the head, except those in ``keep``.
        """
        entries = self.entries
        for key, entry in entries.items():
            entry.pack = None
            self.removed.pop(key, None)
            self.lists.pop(key, None)
            if rebase and key not in keep:
                entry.cell = self.cell(key)
        if rebase:
            cells = {key: self.cell(key) for key in self.removed}
            self.removed = OrderedKeyDict()
            for key, cell in cells.items():
                if cell is not None:
                    self.removed[key] = cell
            self.stale.clear()
        else:
            self.stale = {key for key, entry in entries.items() if entry.cell != self.cell(key)} | self.stale_lists()
        self.added = OrderedKeySet()
        for key, entry in entries.items():
            if entry.cell is None:
                self.added.add(key)
        for key, edits in self.lists.items():
            if edits.cell is None:
                self.added.add(key)
        self.assigned = dict.fromkeys(
            [*(key for key in self.assigned if key in entries or key in self.removed), *entries, *self.removed]
        )
        self.suspects = Suspects(self._fingerprinter, entries)

    def stale_lists(self) -> set[bytes]:
        """Return the keys of lists whose edits are relative to another list than the head's."""
        return {key for key, edits in self.lists.items() if edits.cell != self.list_cell(key)}

    def undo(self, key: bytes, entry: Entry | None, edits: ListEdits | None, cell: bytes | None) -> None:
        """Restore the record of a key from an ``unfinished.Edit``. Call ``rebuild`` afterwards."""
        _put(self.entries, key, entry)
        _put(self.lists, key, edits)
        _put(self.removed, key, cell)

    def distrust(self) -> None:
        """Make the next staging encode every value with a baseline again, because gc may have collected its objects."""
        for key, entry in self.entries.items():
            if entry.base is not None:
                entry.base = None
                self.suspects.forget(key)
                self.assigned[key] = None
        for edits in self.lists.values():
            for element in edits.elements():
                element.base = None

    def repack(self, staged: Staged) -> None:
        """Form the packs for the head with the staged changes, from the present values."""
        fresh = {
            key: update.plain
            for updates in (staged.changes, staged.unchanged)
            for key, update in updates.items()
            if update.base is None and key in self.entries and type(self.entries[key].value) not in IMMUTABLE
        }
        encoded = {*staged.changes, *staged.unchanged, *staged.failed}
        staged.repacking = self.suspects.repack(staged.broken, fresh, encoded)

    def adopt(self, staged: Staged) -> None:
        """Make the staged changes part of the head. The values may have changed since they were packed."""
        assert staged.repacking is not None, "the changes were staged to be adopted"
        entries = self.entries
        for key in staged.failed:
            # The value still differs from the head, and its pack is formed again.
            self.assigned[key] = None
            self.suspects.forget(key)
        for updates in (staged.changes, staged.unchanged):
            for key, update in updates.items():
                entry = entries.get(key)
                self._forget(key)
                if key in self.removed:
                    del self.removed[key]
                self.assigned.pop(key, None)
                if entry is None:
                    if update.staged_list is None or update.staged_list.edits.is_idle:
                        self.lists.pop(key, None)
                    else:
                        self.lists[key] = update.staged_list.edits
                    continue
                entry.cell, entry.base = update.cell, update.base
                if update.base is not None:
                    self.suspects.add(key, entry, None)
        self.suspects.install(staged.repacking)

    def adopt_late(self, staged: Staged, recall: Callable[[bytes | None, int], Element]) -> None:
        """Make changes staged in an earlier call part of the head.

        Values may have changed since, so their keys are encoded again.

        Args:
            recall: reads an element of the list that a cell stands for.
        """
        for updates in (staged.changes, staged.unchanged):
            for key, update in updates.items():
                if (
                    update.staged_list is not None
                    and key not in self.entries
                    and (edits := self.lists.get(key)) is not None
                ):
                    if edits.cell != update.cell:  # otherwise this step was done before an interrupt
                        self.lists[key] = update.staged_list.rebase(edits, partial(recall, edits.cell))
                    self.added.discard(key)
                    self.removed.pop(key)
                    self.assigned.pop(key, None)
                elif (
                    update.staged_list is None
                    or updates is staged.changes
                    or key in self.entries
                    or key in self.removed
                ):
                    self._adopt_late(key, update)  # otherwise the list was read and released

    def _adopt_late(self, key: bytes, update: Update) -> None:
        entry = self.entries.get(key)
        if update.cell is None:
            if key in self.removed:
                del self.removed[key]
            self.assigned.pop(key, None)
        else:
            if key in self.added:
                self.added.discard(key)
            self.assigned[key] = None
        if entry is not None:
            entry.cell, entry.base = update.cell, update.base
            self.suspects.forget(key)
            if update.cell is None:
                self.added.add(key)
                self.assigned[key] = None
        elif update.cell is not None:
            self.removed[key] = update.cell


def _put(mapping: dict[bytes, T], key: bytes, value: T | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
