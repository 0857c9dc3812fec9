"""The live values of one handle: what was loaded or given, and how it differs from what was last committed. Layer: state.

Each mutable value is watched. A large one has a baseline of its own; small ones share marks in packs, so a status of 100,000
small dicts is some 1,600 packing calls. Keys are root keys throughout (see ``values.keys``). Not for two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from versioned_state.errors import (
    InvalidArgumentError,
    MissingObjectError,
    StateError,
    StorageError,
)
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.state.slots import IMMUTABLE, UNSTORABLE, LazyTail, Pack, Savepoint, Slot, Staged, Unstorable, Update
from versioned_state.state.sync import sync
from versioned_state.values.baseline import Baseline, Pinned
from versioned_state.values.codec import Code, TooDeepError, code_of, is_plain
from versioned_state.values.decoder import Decoder, tree_of
from versioned_state.values.diff import diff_maps
from versioned_state.values.encoder import Encoder
from versioned_state.values.fingerprint import GROUP_SIZE, Mark
from versioned_state.values.keys import path_of
from versioned_state.values.nodes import Nodes, Shape
from versioned_state.values.pickles import PicklePolicy
from versioned_state.values.tree import Tree, edit_map, empty, iter_cells, iter_items, rank

_FLUSH_AT: Final = 1 << 21
"""Raw bytes of staged objects from which a commit stores them ahead."""

_SHORT_PACKS: Final = 8

MergeRoots = Callable[[Nodes, Tree, Tree, Tree], Tree]

_ABSENT: Final = object()
_NIL: Final = b"\xc0"
"""The cell of None."""


class Worktree:
    """Live values over a root tree.

    Args:
        objects: where the tree's objects are.
        policy: when values that are not data may be pickled.
        tree: the root as of the head.
        merge: merges the roots of base, ours and theirs. It raises ``MergeConflictError``.
    """

    def __init__(self, objects: ObjectStore, policy: PicklePolicy, tree: Tree, merge: MergeRoots) -> None:
        self._objects = objects
        self._merge = merge
        self.tree = tree
        self._nodes = Nodes(Staging(objects), staging=Staging(objects))
        self._encoder = Encoder(self._nodes, policy)
        self._decoder = Decoder(self._encoder)
        self._marker = self._encoder.marker
        self._slots: dict[bytes, Slot] = {}
        self._assigned: dict[bytes, None] = {}  # a set that keeps its order, so that summaries and packs follow the caller's
        self._removed: dict[bytes, bytes] = {}  # keys of the head that were deleted, with the cells that it has there
        self._added: set[bytes] = set()  # keys that the head has not
        self._watched: set[bytes] = set()  # keys with a baseline of their own that may change in place
        self._single: dict[bytes, Mark] = {}  # small mutable values that were loaded since the packs were formed
        self._packs: list[Pack] = []
        self._stale: set[bytes] = set()  # values that the head has moved under, and that could not be read then
        self._lazy: dict[bytes, LazyTail] = {}
        self._journal: list[tuple[bytes, Any]] = []  # the values that assignments and deletions replaced, in order

    # A mapping from root keys to live values

    def cell(self, key: bytes) -> bytes | None:
        """The cell of a key as of the head."""
        if not self.tree.count:
            return None
        return rank(self._nodes, self.tree, key)[1]

    def get(self, key: bytes) -> Any:
        """The live value. Raises ``KeyError``."""
        if key in self._stale:
            self._nodes.bind(Staging(self._objects))
            self._freshen(key)
        slot = self._slots.get(key)
        return self._load(key).value if slot is None else slot.value

    def _load(self, key: bytes) -> Slot:
        head_cell = self.cell(key)
        cell = None if key in self._removed else head_cell
        lazy = self._lazy.get(key)
        if cell is None and (lazy is None or not lazy.tail):
            raise KeyError(key)
        value, base = self._decoder.decode_live(cell) if cell is not None else ([], None)
        slot = Slot(value, head_cell, base)
        self._slots[key] = slot
        self._watch(key, slot, None if base is not None or type(value) in IMMUTABLE else self._mark([value]))
        if lazy is not None:
            del self._lazy[key]
            if lazy.tail:
                value.extend(lazy.tail)
                self._assigned[key] = None
        if head_cell is not None:
            # It may have been deleted and appended to since: then it differs from the head's, but is there.
            self._removed.pop(key, None)
            self._added.discard(key)
        return slot

    def _watch(self, key: bytes, slot: Slot, mark: Mark) -> None:
        if slot.base is not None:
            if not isinstance(slot.base, Pinned):
                self._watched.add(key)
        elif type(slot.value) not in IMMUTABLE:
            self._single[key] = mark

    def _mark(self, values: list[Any], *, plain: bool = False) -> Mark:
        try:
            plain = plain or is_plain(values)
        except (TooDeepError, RecursionError):
            return None
        return self._marker.mark(values, plain=plain)[0]

    def set(self, key: bytes, value: Any) -> None:
        slot = self._slots.get(key)
        if slot is not None and key in self._stale:
            slot.cell, slot.base = self.cell(key), None  # whatever it was, and whatever the head has: this is to be there instead
            self._forget(key)
            slot.pack = None
            if slot.cell is None:
                self._added.add(key)
            self._assigned[key] = None
        self._lazy.pop(key, None)
        if slot is None:
            cell = self.cell(key)
            slot = Slot(value, cell, None)
            self._slots[key] = slot
            if cell is None:
                self._added.add(key)
            self._journal.append((key, _ABSENT))
        elif slot.value is not value:
            self._journal.append((key, slot.value))
            slot.value = value
        elif key in self._assigned or slot.base is not None or key in self._single or slot.pack is not None:
            return
        slot.pack = None
        self._single.pop(key, None)
        self._removed.pop(key, None)
        if slot.cell is not None:
            self._added.discard(key)
        self._assigned[key] = None

    def delete(self, key: bytes) -> None:
        """Raises ``KeyError``."""
        if key not in self:
            raise KeyError(key)
        slot = self._slots.get(key)
        cell = self.cell(key) if slot is None or key in self._stale else slot.cell
        self._slots.pop(key, None)
        self._journal.append((key, _ABSENT if slot is None else slot.value))
        self._forget(key)
        self._lazy.pop(key, None)
        if cell is not None:
            self._removed[key] = cell
            self._assigned[key] = None
        else:
            self._assigned.pop(key, None)

    def _forget(self, key: bytes) -> None:
        self._added.discard(key)
        self._watched.discard(key)
        self._stale.discard(key)
        self._single.pop(key, None)

    def __contains__(self, key: bytes) -> bool:
        if key in self._slots or key in self._added:
            return True
        return key not in self._removed and self.cell(key) is not None

    def count(self, start: bytes, end: bytes) -> int:
        """How many keys there are in [start, end). Cost: two paths, and the keys that were added or removed."""
        low, _ = rank(self._nodes, self.tree, start)
        high, _ = rank(self._nodes, self.tree, end)
        added = sum(1 for key in self._added if start <= key < end)
        removed = sum(1 for key in self._removed if start <= key < end)
        return high - low + added - removed

    def iter_keys(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """The keys in [start, end), in order, as they are now."""
        low, _ = rank(self._nodes, self.tree, start)
        high, _ = rank(self._nodes, self.tree, end)
        added = sorted((key for key in self._added if start <= key < end), reverse=True)
        removed = frozenset(self._removed)
        for key, _ in iter_items(self._nodes, self.tree, low, high):
            while added and added[-1] < key:
                yield added.pop()
            if key not in removed:
                yield key
        yield from reversed(added)

    def last_key(self, start: bytes, end: bytes) -> bytes | None:
        """The last key in [start, end). Cost: one path, and the keys that were added or removed."""
        low, _ = rank(self._nodes, self.tree, start)
        high, _ = rank(self._nodes, self.tree, end)
        last = max((key for key in self._added if start <= key < end), default=None)
        while high > low:
            high -= 1
            key, _ = next(iter_items(self._nodes, self.tree, high, high + 1))
            if key not in self._removed:
                return key if last is None else max(key, last)
        return last

    def release(self, key: bytes) -> bool:
        """Let go of a value that was loaded and has not changed. Returns whether it was let go."""
        slot = self._slots.get(key)
        if slot is None:
            return True
        if key in self._assigned or key in self._added:
            return False
        if slot.base is not None:
            if not self._encoder.unchanged(slot.value, slot.base):
                return False
        elif type(slot.value) not in IMMUTABLE and self._encoder.encode(slot.value, None, key)[0] != slot.cell:
            return False
        del self._slots[key]
        self._forget(key)
        return True

    def are_same(self, a: Any, b: Any) -> bool:
        """Whether two values would be stored alike. Cost: packing both."""
        return self._encoder.encode_inline(a, "a value") == self._encoder.encode_inline(b, "a value")

    def extend(self, key: bytes, values: list[Any]) -> None:
        """Append to a list: in place if it is loaded, otherwise without loading it."""
        if key in self._slots:
            self._slots[key].value.extend(values)
            return
        if key not in self._lazy:
            cell = self.cell(key)
            if cell is None or key in self._removed:
                self._added.add(key)
            self._lazy[key] = LazyTail(cell)
        self._lazy[key].tail.extend(values)

    def tail(self, key: bytes) -> list[Any]:
        """What was appended to a list that is not loaded, and is not committed yet."""
        lazy = self._lazy.get(key)
        return [] if lazy is None else lazy.tail

    def is_live(self, key: bytes) -> bool:
        return key in self._slots

    def stored_elements(self, key: bytes, start: int, end: int) -> list[Any]:
        """The elements [start, end) of the list that the head has under a key. Cost: one path, and what is read."""
        cell = None if key in self._removed else self.cell(key)
        if cell is None:
            return []
        tree = tree_of(cell) if code_of(cell) == Code.LIST_TREE else None
        if tree is None:
            values: list[Any] = self._decoder.decode(cell)[start:end]
            return values
        return [self._decoder.decode(part) for part in iter_cells(self._nodes, tree, start, end)]

    def stored_length(self, key: bytes) -> int:
        """How many elements the list has that the head has under a key; 0 where there is none. Raises ``TypeError`` for no list."""
        cell = None if key in self._removed else self.cell(key)
        if cell is None:
            return 0
        if code_of(cell) == Code.LIST_TREE:
            tree = tree_of(cell)
            assert tree is not None
            return tree.count
        value = self._decoder.decode(cell)
        if type(value) is not list:
            raise TypeError(f"{path_of(key)} is of type {type(value).__name__}, not a list")
        return len(value)

    # Detection

    def stage(self, *, lenient: bool = False, flush: bool = False) -> Staged:
        """Find what differs from the head and encode it. Nothing of the handle changes.

        Args:
            lenient: values that cannot be stored go to ``failed`` instead of raising.
            flush: large amounts are stored ahead, for a commit.
        """
        staging = Staging(self._objects, flush_at=_FLUSH_AT if flush else None)
        self._nodes.bind(staging)
        for key in list(self._stale):
            self._freshen(key)
        changes: dict[bytes, Update] = {}
        settled: dict[bytes, Update] = {}
        loose: list[Pack] = []
        failed: dict[bytes, Unstorable] = {}
        for key in self._suspects(loose):
            try:
                update, old = self._encode(key)
            except UNSTORABLE as error:
                if not lenient:
                    raise
                failed[key] = error
                continue
            if update.cell != old:
                changes[key] = update
            elif key in self._assigned or update.base is not self._slots[key].base or update.base is None:
                settled[key] = update
        tree = edit_map(self._nodes, self.tree, {key: update.cell for key, update in changes.items()}) if changes else self.tree
        tails = {key: len(lazy.tail) for key, lazy in self._lazy.items() if lazy.tail}
        return Staged(tree, staging, changes, settled, loose, tails, failed)

    def distrust(self) -> None:
        """Encode everything that is loaded anew at the next staging: parts of what the head had may be gone from the store."""
        for key, slot in self._slots.items():
            if slot.base is not None:
                slot.base = None
                self._watched.discard(key)
                self._assigned[key] = None

    def replant(self, head: Tree) -> tuple[Staged, Tree]:
        """The state as ``stage`` gives it, but over another head, without reading ours, which may be gone from the store.

        Of what was not loaded nothing was changed, so the root is that of ``head`` with the keys that are live here, encoded afresh. Also
        returns the root that these were changed from, likewise. A value that both sides changed, and whose old content is gone, was None
        there: no merge of its parts is tried.
        """
        staging = Staging(self._objects)
        self._nodes.bind(staging)
        loose: list[Pack] = []
        failed: dict[bytes, Unstorable] = {}
        bases = {key: slot.cell for key, slot in self._slots.items()}
        ours: dict[bytes, bytes | None] = {}
        for key in list(self._suspects(loose)):
            slot = self._slots.get(key)
            theirs = rank(self._nodes, head, key)[1]
            lazy = self._lazy.get(key)
            if slot is None:
                bases[key] = self._removed.get(key) if lazy is None else lazy.cell
                old = theirs if lazy is None or not self._is_whole(lazy.cell) else lazy.cell
                ours[key] = None if lazy is None else self._append(key, None if key in self._removed else old, lazy.tail)
            elif key in self._assigned or slot.base is None or not self._encoder.unchanged(slot.value, slot.base):
                try:
                    ours[key] = self._encoder.encode(slot.value, None, key)[0]
                except UNSTORABLE as error:
                    failed[key] = error
            if key in ours and bases[key] != theirs and not self._is_whole(bases[key]):
                bases[key] = _NIL
        base = edit_map(self._nodes, head, bases)
        changes = {key: Update(cell) for key, cell in ours.items()}
        return Staged(edit_map(self._nodes, base, ours), staging, changes, {}, loose, {}, failed), base

    def drop(self, head: Tree) -> None:
        """Hold what another head does, without reading ours, which may be gone from the store. What is not committed is dropped."""
        staged, base = self.replant(head)
        self._journal.clear()
        self.retarget(staged.tree, head, base=base, head=head, also=staged.failed)

    def _is_whole(self, cell: bytes | None) -> bool:
        """Whether the store has all that a cell refers to. Cost: reading the value."""
        try:
            if cell is not None:
                self._decoder.decode(cell)
        except MissingObjectError:
            return False
        except StateError:
            return True
        return True

    def _suspects(self, loose: list[Pack]) -> Iterator[bytes]:
        """The keys whose values may differ from the head; packs that no longer hold together go to ``loose``."""
        slots, marker, assigned = self._slots, self._marker, self._assigned
        yield from assigned
        for key, lazy in self._lazy.items():
            if lazy.tail and key not in assigned:
                yield key
        # What has a baseline of its own is compared as it is encoded.
        yield from [key for key in self._watched if key not in assigned]
        for key, mark in self._single.items():
            if key not in assigned and not marker.same(mark, [slots[key].value]):
                yield key
        for pack in self._packs:
            if marker.same(pack.mark, pack.values):
                continue
            loose.append(pack)
            for key in pack.keys:
                if key in slots and slots[key].pack is pack:
                    yield key

    def _encode(self, key: bytes) -> tuple[Update, bytes | None]:
        """What a key's value is now, and the cell that the head has."""
        slot = self._slots.get(key)
        if slot is not None:
            small = self._encoder.encode_small(slot.value) if slot.base is None else None
            if small is not None:
                return Update(small, plain=True), slot.cell
            cell, base = self._encoder.encode(slot.value, slot.base, key)
            return Update(cell, base), slot.cell
        old = self.cell(key)
        lazy = self._lazy.get(key)
        if lazy is None:
            return Update(None), old
        return Update(self._append(key, None if key in self._removed else old, lazy.tail)), old

    def _append(self, key: bytes, old: bytes | None, tail: list[Any]) -> bytes:
        if old is not None and code_of(old) == Code.LIST_TREE:
            return self._encoder.append(old, tail, key)
        values = [] if old is None else self._decoder.decode(old)
        if type(values) is not list:
            raise InvalidArgumentError(f"{path_of(key)} is of type {type(values).__name__} by now: nothing can be appended to it")
        return self._encoder.encode([*values, *tail], None, key)[0]

    # Moving on

    def adopt_late(self, staged: Staged) -> None:
        """Take as the head's what was staged some calls ago, and proved only now to have been committed.

        Values may have changed since, so all that it covers is compared again; nothing is marked by what it is now.
        """
        for updates in (staged.changes, staged.settled):
            for key, update in updates.items():
                slot = self._slots.get(key)
                lazy = self._lazy.get(key)
                if update.cell is None:
                    self._removed.pop(key, None)
                    self._assigned.pop(key, None)
                else:
                    self._added.discard(key)
                    self._assigned[key] = None
                if slot is not None:
                    slot.cell, slot.base, slot.pack = update.cell, update.base, None
                    self._single.pop(key, None)
                    if update.cell is None:
                        self._added.add(key)
                        self._assigned[key] = None
                elif lazy is not None:
                    lazy.cell = update.cell
                    del lazy.tail[: staged.tails.get(key, 0)]
                    self._assigned.pop(key, None)
                elif update.cell is not None:
                    self._removed[key] = update.cell
        self.tree = staged.tree
        self._journal.clear()

    def adopt(self, staged: Staged, tree: Tree) -> None:
        """Take what was staged as the head's, after a commit of it whose root is ``tree``; or after it proved to be no change."""
        self.tree = tree
        slots = self._slots
        fresh: dict[bytes, bool] = {}
        for key in staged.failed:
            # It still differs, and whatever watched it may be formed anew below.
            self._assigned[key] = None
            if key in slots:
                slots[key].pack = None
        for updates in (staged.changes, staged.settled):
            for key, update in updates.items():
                slot = slots.get(key)
                self._forget(key)
                self._removed.pop(key, None)
                self._assigned.pop(key, None)
                if slot is None:
                    lazy = self._lazy.get(key)
                    if lazy is not None:
                        lazy.cell, lazy.tail = update.cell, []
                    continue
                slot.cell, slot.base = update.cell, update.base
                if update.base is not None:
                    if not isinstance(update.base, Pinned):
                        self._watched.add(key)
                elif type(slot.value) not in IMMUTABLE:
                    fresh[key] = update.plain
        self._repack(staged.loose, fresh)
        self._journal.clear()

    def _repack(self, loose: list[Pack], fresh: dict[bytes, bool]) -> None:
        """Form packs anew of what was loaded, of ``fresh`` (and whether each is known to be plain), and of packs that fell apart."""
        keys = dict.fromkeys((key for key in self._single if key not in self._assigned), False)
        self._single.clear()
        keys.update(fresh)
        gone = {id(pack) for pack in loose}
        short = self._packs[-_SHORT_PACKS:]
        if keys and len(short) == _SHORT_PACKS and all(len(pack.keys) < GROUP_SIZE // 2 for pack in short):
            # A handle that loads a few keys a round would mark all of a pack again each time; so it forms several, and then one.
            loose = [*loose, *(pack for pack in short if id(pack) not in gone)]
            gone.update(map(id, short))
        for pack in loose:
            for key in pack.keys:
                if key in self._slots and self._slots[key].pack is pack:
                    keys.setdefault(key, False)
        if gone:
            self._packs = [pack for pack in self._packs if id(pack) not in gone]
        members = [key for key in keys if key in self._slots]
        for start in range(0, len(members), GROUP_SIZE):
            part = members[start : start + GROUP_SIZE]
            values = [self._slots[key].value for key in part]
            pack = Pack(part, values, self._mark(values, plain=all(map(keys.__getitem__, part))))
            for key in part:
                self._slots[key].pack = pack
            self._packs.append(pack)

    def retarget(
        self, now: Tree, expected: Tree, *, base: Tree | None = None, head: Tree | None = None, also: Collection[bytes] = ()
    ) -> None:
        """Patch live values in place: they hold what ``now`` does, and are to hold what ``expected`` does.

        A value that cannot be read is let go, and raises when it is asked for; where the store fails, values are patched when they are
        looked at next. Only what is not committed must be read at once.

        Args:
            base, head: where there are changes that are not committed: the root that these were made on, and that of the new head. Without
                them there are none.
            also: keys at which a live value is not what ``now`` says, but something that could not be stored.

        Raises:
            StorageError: what is not committed could not be read. Nothing was changed.
        """
        head = expected if head is None else head
        if not (self._slots or self._lazy or self._assigned):
            self.tree = head
            return
        staging = self._nodes.staging
        claimed: dict[int, Any] = {}
        try:
            cells = {key: rank(self._nodes, expected, key)[1] for key in also}
            cells |= {key: cell for key, _, cell in diff_maps(self._nodes, now, expected)}
            if base is not None:
                cells |= {key: rank(self._nodes, expected, key)[1] for key, _, _ in diff_maps(self._nodes, base, head) if key not in cells}
            own = {} if head is expected else {key: cell for key, cell, _ in diff_maps(self._nodes, expected, head)}
            heads = {key: cell if key not in own else rank(self._nodes, head, key)[1] for key, cell in cells.items()}
            decoded = {} if base is None else self._decode(cells, own)
        except StorageError:
            if base is not None:
                raise
            # The head has moved whatever the store says now: as below.
            self.tree = head
            self._stale.update(self._slots)
            return
        self.tree = head
        try:
            # First what is in no commit, and is read already.
            for key in sorted(cells, key=lambda key: key not in own):
                self._patch(key, cells[key], heads[key], claimed, decoded.get(key))
            self._mend(expected, staging)
        except StorageError:
            # What could not be read is patched when it is looked at next.
            self._stale.update(key for key in self._slots if key not in own)

    def _decode(self, cells: dict[bytes, bytes | None], own: Collection[bytes]) -> dict[bytes, tuple[Any, Baseline | None]]:
        """What live values are to become, and what is not committed: all that can be read, before anything is changed."""
        decoded = {}
        for key, cell in cells.items():
            if cell is not None and (key in self._slots or key in own):
                try:
                    decoded[key] = self._decoder.decode_live(cell)
                except StorageError:
                    raise
                except StateError:
                    continue  # it cannot be read here, whatever the store does
        return decoded

    def _freshen(self, key: bytes) -> None:
        """Patch a value that could not be patched when the head moved. What was changed in it since is merged, and is a change still.

        Raises:
            StorageError: it cannot be read now either.
            MergeConflictError: the head has something else in the same place. Nothing was changed; assigning to the key settles it.
        """
        slot, cell = self._slots.get(key), self.cell(key)
        if slot is None or slot.cell == cell:  # it was let go, or patched before the store failed
            self._stale.discard(key)
            return
        try:
            mine = self._encode(key)[0].cell
        except UNSTORABLE:
            return  # it is told of where it is to be stored, and there is nothing to merge before
        if mine != slot.cell:
            roots = [edit_map(self._nodes, empty(Shape.MAP), {key: side}) for side in (slot.cell, mine, cell)]
            merged = rank(self._nodes, self._merge(self._nodes, *roots), key)[1]
            self._patch(key, merged, cell, {})
        else:
            self._patch(key, cell, cell, {})
        self._stale.discard(key)

    def _mend(self, expected: Tree, staging: Staging) -> None:
        """Make the state what it must be after values were patched, where patching one of them changed another.

        That is so where one object is in two places: it cannot have the content of both. Then the one that came out wrong is a new
        object from here on. ``staging`` has the objects of ``expected``.
        """
        now = self.stage(lenient=True)
        wrong = list(diff_maps(_over(self._nodes, now.staging, staging), now.tree, expected))
        self._nodes.bind(staging)
        for key, _, cell in wrong:
            if key in now.failed:
                continue
            self._slots.pop(key, None)
            self._forget(key)
            self._assigned.pop(key, None)
            self._patch(key, cell, self.cell(key), {})

    def _patch(
        self,
        key: bytes,
        cell: bytes | None,
        head_cell: bytes | None,
        claimed: dict[int, Any],
        decoded: tuple[Any, Baseline | None] | None = None,
    ) -> None:
        """Give a live value the content of ``cell``, relative to a head that has ``head_cell``."""
        slot = self._slots.get(key)
        self._lazy.pop(key, None)
        if cell is None:
            if slot is not None:
                del self._slots[key]
            self._forget(key)
            if head_cell is None:
                self._removed.pop(key, None)
                self._assigned.pop(key, None)
            else:
                self._removed[key] = head_cell
                self._assigned[key] = None
            return
        self._removed.pop(key, None)
        if slot is None and cell == head_cell:
            return
        try:
            fresh, base = self._decoder.decode_live(cell) if decoded is None else decoded
        except StateError as error:
            if cell != head_cell or isinstance(error, StorageError):
                raise
            # It cannot be read here, but that must not keep the others from moving on: it raises when it is asked for.
            self._slots.pop(key, None)
            self._forget(key)
            self._assigned.pop(key, None)
            return
        # By what it must be, before parts of it become parts of the live value: should that come out otherwise, it will show.
        mark = None if base is not None or type(fresh) in IMMUTABLE else self._mark([fresh])
        if slot is None:
            slot = self._slots[key] = Slot(fresh, head_cell, None)
        else:
            slot.value = sync(slot.value, fresh, self._marker, claimed)
        slot.pack = None
        self._forget(key)
        if head_cell is None:
            self._added.add(key)
        if cell == head_cell:
            slot.cell, slot.base = cell, base
            self._assigned.pop(key, None)
            self._watch(key, slot, mark)
        else:
            slot.cell = head_cell
            self._assigned[key] = None

    def save(self) -> Savepoint:
        """Where to come back to. Cost: a detection."""
        staged = self.stage()
        return Savepoint(staged, len(self._journal))

    def restore(self, savepoint: Savepoint | None = None) -> None:
        """Go back to a savepoint, or to the head: replaced values come back, and mutated ones are mended in place."""
        journal = 0 if savepoint is None else savepoint.journal
        while len(self._journal) > journal:
            key, value = self._journal.pop()
            self._put_back(key, value)
        tails = {} if savepoint is None else savepoint.staged.tails
        for key, lazy in list(self._lazy.items()):
            del lazy.tail[tails.get(key, 0) :]
            if not lazy.tail:
                del self._lazy[key]
                if key not in self._slots:
                    self._added.discard(key)
        for key in list(self._stale):
            # Moves are no part of a transaction, so whatever was changed in it since is to be dropped.
            self._patch(key, self.cell(key), self.cell(key), {})
            self._stale.discard(key)
        now = self.stage(lenient=True)
        target = self.tree if savepoint is None else savepoint.staged.tree
        staging = now.staging if savepoint is None else savepoint.staged.staging
        differing = {key: cell for key, _, cell in diff_maps(_over(self._nodes, now.staging, staging), now.tree, target)}
        for key in now.failed:
            differing.setdefault(key, rank(_over(self._nodes, now.staging, staging), target, key)[1])
        self._nodes.bind(staging)
        claimed: dict[int, Any] = {}
        for key, cell in differing.items():
            self._patch(key, cell, self.cell(key), claimed)
        self._mend(target, staging)
        if savepoint is None:
            staged = self.stage()
            assert not staged.changes, "what was restored is what the head has"
            self.adopt(staged, self.tree)

    def _put_back(self, key: bytes, value: Any) -> None:
        slot = self._slots.get(key)
        if value is _ABSENT:
            self._slots.pop(key, None)
            self._forget(key)
            self._removed.pop(key, None)
            self._assigned.pop(key, None)
            return
        if slot is None:
            slot = self._slots[key] = Slot(value, self.cell(key), None)
        slot.value = value
        slot.pack = None
        self._single.pop(key, None)
        self._removed.pop(key, None)
        if slot.cell is None:
            self._added.add(key)
        else:
            self._added.discard(key)  # it may have been deleted, and begun anew as a sequence
        self._assigned[key] = None


def _over(nodes: Nodes, first: Staging, second: Staging) -> Nodes:
    """Nodes that read from either of two overlays."""
    return nodes if first is second else Nodes(_Either(first, second))


class _Either:
    """A reader over two overlays of one store."""

    def __init__(self, first: Staging, second: Staging) -> None:
        self._first = first
        self._second = second

    def read(self, address: Any) -> bytes:
        return self._first.read(address) if address in self._first else self._second.read(address)

    def read_many(self, addresses: Any) -> dict[Any, bytes]:
        return {address: self.read(address) for address in addresses}
