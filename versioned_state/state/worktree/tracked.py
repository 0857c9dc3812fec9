"""What a handle holds, key by key, and how each key stands to the head. Layer: state.

::

    as the head has it   not loaded: nothing is kept; loaded: a slot, whose value is watched
    given                a slot, and in ``assigned``; in ``added`` where the head has nothing under the key
    removed              no slot, and in ``removed``
    appended to          a tail, and no slot; in ``added`` where there is no list to append to

Keys are root keys throughout (see ``values.keys``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from versioned_state.state.key_order import OrderedKeyDict, OrderedKeySet
from versioned_state.state.worktree.entries import IMMUTABLE, LazyTail, Slot, Staged
from versioned_state.state.worktree.suspects import Watch
from versioned_state.state.worktree.unfinished import Unfinished
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import Fingerprint
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find

T = TypeVar("T")


class Holdings:
    """The keys of one handle over the root of its head. Others read what is here; keys go from one standing to another by methods.

    Attributes:
        tree: the root as of the head.
        slots: values that were loaded or given.
        tails: what is to be appended to lists that are not loaded.
        assigned: keys that are encoded at the next staging, whatever watches them: a set that keeps its order, so that summaries and
            packs follow the caller's.
        removed: keys of the head that were deleted, with the cells that it has there.
        added: keys that the head has not.
        stale: values that the head has moved under, and that could not be read then.
        unfinished: what was begun and not ended.
        watch: which of the values that are as the head has them were changed in place since.
    """

    def __init__(self, nodes: Nodes, marker: Fingerprinter, tree: Tree) -> None:
        self._nodes = nodes
        self._marker = marker
        self.unfinished = Unfinished()
        self.tree = tree
        self.slots: dict[bytes, Slot] = {}
        self.tails: dict[bytes, LazyTail] = {}
        self.assigned: dict[bytes, None] = {}
        self.removed: OrderedKeyDict[bytes] = OrderedKeyDict()
        self.added = OrderedKeySet()
        self.stale: set[bytes] = set()
        self.watch = Watch(marker, self.slots)

    def cell(self, key: bytes) -> bytes | None:
        """The cell of a key as of the head."""
        if not self.tree.count:
            return None
        return find(self._nodes, self.tree, key)

    def append(self, key: bytes, values: list[object]) -> None:
        """Append to a list that is not loaded."""
        if not values:
            return
        if key not in self.tails:
            cell = self.cell(key)
            if cell is None or key in self.removed:
                self.added.add(key)
            self.tails[key] = LazyTail(cell)
        self.tails[key].tail.extend(values)

    def cut_tails(self, lengths: Mapping[bytes, int]) -> None:
        """Leave as many appended elements as it says, or none."""
        for key, lazy in list(self.tails.items()):
            del lazy.tail[lengths.get(key, 0) :]
            if not lazy.tail:
                del self.tails[key]
                if key in self.added:
                    self.added.discard(key)

    # From one standing to another

    def hold(self, key: bytes, slot: Slot, mark: Fingerprint) -> None:
        """There is a value, which is what the head has. ``mark`` is what ``Watch.mark`` gave."""
        self.slots[key] = slot  # first: a reference that somebody holds is never without its key
        self.tails.pop(key, None)  # nothing is in it
        self.removed.pop(key, None)
        self.assigned.pop(key, None)
        self._forget(key)
        self.watch.add(key, slot, mark)

    def give(self, key: bytes, slot: Slot) -> None:
        """There is a value, which differs from the head's as far as is known. Whether it is stale remains as it is."""
        self.slots[key] = slot
        self.tails.pop(key, None)
        self.watch.forget(key)
        if key in self.removed:
            del self.removed[key]
        if slot.cell is None:
            self.added.add(key)
        elif key in self.added:
            self.added.discard(key)
        self.assigned[key] = None

    def remove(self, key: bytes, cell: bytes | None) -> None:
        """There is no value any more; the head has ``cell``."""
        self.let_go(key)
        if cell is not None:
            self.removed[key] = cell
            self.assigned[key] = None

    def let_go(self, key: bytes) -> None:
        """It is as the head has it, and not loaded."""
        self._forget(key)
        self.slots.pop(key, None)
        self.tails.pop(key, None)
        if key in self.removed:
            del self.removed[key]
        self.assigned.pop(key, None)

    def _forget(self, key: bytes) -> None:
        if key in self.added:
            self.added.discard(key)
        self.stale.discard(key)
        self.watch.forget(key)

    def rebuild(self, *, rebase: bool = False, keep: Collection[bytes] = ()) -> None:
        """Derive anew everything but the values and what each is relative to; all of them are encoded at the next staging.

        Args:
            rebase: every key but those in ``keep`` is relative to the head.
        """
        slots = self.slots
        for key, slot in slots.items():
            slot.pack = None
            self.removed.pop(key, None)
            self.tails.pop(key, None)
            if rebase and key not in keep:
                slot.cell = self.cell(key)
        if rebase:
            cells = {key: self.cell(key) for key in self.removed}
            self.removed = OrderedKeyDict()
            for key, cell in cells.items():
                if cell is not None:
                    self.removed[key] = cell
            self.stale.clear()
        else:
            self.stale = {key for key, slot in slots.items() if slot.cell != self.cell(key)}
        self.added = OrderedKeySet()
        for key, slot in slots.items():
            if slot.cell is None:
                self.added.add(key)
        for key, lazy in self.tails.items():
            if lazy.tail and (key in self.removed or self.cell(key) is None):
                self.added.add(key)
        self.assigned = dict.fromkeys([*(key for key in self.assigned if key in slots or key in self.removed), *slots, *self.removed])
        self.watch = Watch(self._marker, slots)

    def undo(self, key: bytes, slot: Slot | None, lazy: LazyTail | None, cell: bytes | None) -> None:
        """Have a key as it was; see ``unfinished.Edit``. To be followed by ``rebuild``."""
        _put(self.slots, key, slot)
        _put(self.tails, key, lazy)
        _put(self.removed, key, cell)

    def distrust(self) -> None:
        """Have all that is loaded and has a baseline encoded anew: parts of what it relies on may be gone from the store."""
        for key, slot in self.slots.items():
            if slot.base is not None:
                slot.base = None
                self.watch.forget(key)
                self.assigned[key] = None

    def adopt(self, staged: Staged) -> None:
        """What was staged is what the head has."""
        slots = self.slots
        fresh: dict[bytes, bool] = {}
        for key in staged.failed:
            # It still differs, and whatever watched it may be formed anew below.
            self.assigned[key] = None
            self.watch.forget(key)
        for updates in (staged.changes, staged.settled):
            for key, update in updates.items():
                slot = slots.get(key)
                self._forget(key)
                if key in self.removed:
                    del self.removed[key]
                self.assigned.pop(key, None)
                if slot is None:
                    lazy = self.tails.get(key)
                    if lazy is not None:
                        self.tails[key] = LazyTail(update.cell)
                    continue
                slot.cell, slot.base = update.cell, update.base
                if update.base is not None:
                    self.watch.add(key, slot, None)
                elif type(slot.value) not in IMMUTABLE:
                    fresh[key] = update.plain
        self.watch.repack(staged.loose, fresh)

    def adopt_late(self, staged: Staged) -> None:
        """What was staged some calls ago is what the head has. Values may have changed since, so all that it covers is encoded again."""
        for updates in (staged.changes, staged.settled):
            for key, update in updates.items():
                slot = self.slots.get(key)
                lazy = self.tails.get(key)
                if update.cell is None:
                    if key in self.removed:
                        del self.removed[key]
                    self.assigned.pop(key, None)
                else:
                    if key in self.added:
                        self.added.discard(key)
                    self.assigned[key] = None
                if slot is not None:
                    slot.cell, slot.base = update.cell, update.base
                    self.watch.forget(key)
                    if update.cell is None:
                        self.added.add(key)
                        self.assigned[key] = None
                elif lazy is not None:
                    if lazy is staged.lists.get(key):  # unless that was done before an interrupt
                        self.tails[key] = LazyTail(update.cell, lazy.tail[staged.tails.get(key, 0) :])
                    self.assigned.pop(key, None)
                elif update.cell is not None:
                    self.removed[key] = update.cell


def _put(mapping: dict[bytes, T], key: bytes, value: T | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
