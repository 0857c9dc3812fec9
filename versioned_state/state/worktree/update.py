"""``Updater``: live values follow the head, the same objects with the content of another root. Layer: state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from versioned_state.errors import StateError, StorageError
from versioned_state.objects.store import ObjectStore, Overlaid, Staging
from versioned_state.state.aio.caller import current_caller
from versioned_state.state.worktree.entries import UNSTORABLE, Entry, Staged
from versioned_state.state.worktree.in_place import Claims, replace_content
from versioned_state.state.worktree.lists.follow import Following, ListFollower
from versioned_state.state.worktree.lists.unloaded import UnloadedLists
from versioned_state.state.worktree.stage import Stager
from versioned_state.state.worktree.tracked import TrackedKeys
from versioned_state.state.worktree.unfinished import Move
from versioned_state.values.cells import Code
from versioned_state.values.changes.diff import diff_maps, diff_sequences
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.detection.baselines import Baseline
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.splices import elements_of
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, empty, find, iter_cells

MergeRoots = Callable[[Nodes, Tree, Tree, Tree], Tree]


class Updater:
    """Updates of live values in place.

    A value whose new content could not be read is *stale*, and is patched at its next use.

    Args:
        merge: merges the roots of base, ours and theirs. It raises ``MergeConflictError``.
    """

    def __init__(
        self,
        objects: ObjectStore,
        tracked: TrackedKeys,
        lists: UnloadedLists,
        stager: Stager,
        encoder: Encoder,
        decoder: LiveDecoder,
        merge: MergeRoots,
    ) -> None:
        self._objects = objects
        self._tracked = tracked
        self._stager = stager
        self._nodes = encoder.nodes
        self._encoder = encoder
        self._fingerprinter = encoder.fingerprinter
        self._decoder = decoder
        self._merge = merge
        self._follower = ListFollower(tracked, lists, encoder.nodes, decoder, encoder.fingerprinter)

    def update(
        self,
        now: Tree,
        expected: Tree,
        *,
        base: Tree | None = None,
        head: Tree | None = None,
        also: Collection[bytes] = (),
    ) -> None:
        """See ``Worktree.update``."""
        tracked = self._tracked
        head = expected if head is None else head
        if not (tracked.entries or tracked.lists or tracked.assigned):
            tracked.tree = head
            return
        staging = self._nodes.staging
        claimed = Claims()
        try:
            cells = {key: find(self._nodes, expected, key) for key in also}
            changes = {key: (old, cell) for key, old, cell in diff_maps(self._nodes, now, expected)}
            cells |= {key: cell for key, (_, cell) in changes.items()}
            if base is not None:
                cells |= {
                    key: find(self._nodes, expected, key)
                    for key, _, _ in diff_maps(self._nodes, base, head)
                    if key not in cells
                }
            own = {} if head is expected else {key: cell for key, cell, _ in diff_maps(self._nodes, expected, head)}
            heads = {key: cell if key not in own else find(self._nodes, head, key) for key, cell in cells.items()}
            following = {} if base is None else self._plan(cells, heads)
            decoded = {} if base is None else self._decode(cells, own, following)
        except StorageError:
            if base is not None:
                raise
            # The head has moved nevertheless: continue as below.
            tracked.tree = head
            tracked.stale.update(tracked.entries, tracked.stale_lists())
            return
        tracked.tree = head
        # Uncommitted changes first; they have been read already.
        pending = dict.fromkeys(sorted(cells, key=lambda key: key not in own))
        try:
            for key in list(pending):
                old = changes[key][0] if base is None and key not in also and key in changes else None
                if old is None or not self._splice(key, old, cells[key], heads[key]):
                    self._patch(key, cells[key], heads[key], claimed, decoded.get(key), following.get(key))
                del pending[key]
            self._mend(expected, staging, claimed)
        except BaseException as error:
            # A value that could not be read is patched at its next use. So is one that an interrupt left: it must not
            # count as the head's.
            tracked.stale.update(key for key in tracked.entries if key in pending or key not in own)
            tracked.stale |= tracked.stale_lists()
            if not isinstance(error, StorageError):
                raise

    def read_ahead(self, now: Tree, *expected: Tree, staging: Staging | None = None) -> None:
        """Read, for a background call, the objects for giving live values with the content of one root that of others.

        Args:
            staging: has the objects of the others that are not stored.
        """
        caller = current_caller()
        if caller is None or caller.is_held:
            return
        from versioned_state.repository.history.reach import iter_new, references_of_cell

        nodes = self._nodes if staging is None else over(self._nodes, self._nodes.staging, staging)
        for tree in expected:
            for key, _, cell in diff_maps(nodes, now, tree):
                if cell is not None and key in self._tracked.entries:
                    deque(iter_new(nodes.reader, (), references_of_cell(cell)), maxlen=0)
                elif cell is not None and key in self._tracked.lists:
                    sides = [elements_of(nodes, each) for each in (self._tracked.lists[key].cell, cell)]
                    if sides[0] is not None and sides[1] is not None:
                        deque(diff_sequences(nodes, sides[0], sides[1]), maxlen=0)

    def _plan(self, cells: dict[bytes, bytes | None], heads: dict[bytes, bytes | None]) -> dict[bytes, Following]:
        """Return the plans for the lists that are not loaded, as far as they can be read.

        Called before anything is changed.
        """
        plans = {}
        for key, cell in cells.items():
            if (
                cell is not None
                and key not in self._tracked.entries
                and (key in self._tracked.lists or cell != heads[key])
            ):
                try:
                    plan = self._follower.plan(key, cell, heads[key])
                except StorageError:
                    raise
                except StateError:
                    continue  # the value cannot be decoded in this process
                if plan is not None:
                    plans[key] = plan
        return plans

    def _decode(
        self, cells: dict[bytes, bytes | None], own: Collection[bytes], following: Collection[bytes]
    ) -> dict[bytes, tuple[Any, Baseline | None]]:
        """Return the new live values, uncommitted changes among them, as far as they can be read.

        Called before anything is changed.
        """
        decoded = {}
        for key, cell in cells.items():
            if cell is not None and key not in following and (key in self._tracked.entries or key in own):
                try:
                    decoded[key] = self._decoder.decode_live(cell)
                except StorageError:
                    raise
                except StateError:
                    continue  # the value cannot be decoded in this process
        return decoded

    def restore(self, target: Staged | None, within: bytes) -> None:
        """Give live values their staged content, or that of the head. A value that cannot be stored is replaced."""
        tracked = self._tracked
        for key in [key for key in tracked.stale if key.startswith(within)]:
            # The head does not move within a transaction, so later changes of the value are dropped.
            self._patch(key, tracked.cell(key), tracked.cell(key), Claims())
        if target is None:
            self.conform(tracked.tree, None, ())
        else:
            self.conform(target.tree, target.staging, target.failed)  # ``target.tree`` does not have the failed values

    def conform(self, expected: Tree, staging: Staging | None, keep: Collection[bytes]) -> None:
        """Give live values the content of ``expected``.

        A value that cannot be stored is replaced, except under the keys in ``keep``.
        """
        now = self._stager.stage(lenient=True)
        if staging is None:
            staging = now.staging
        both = over(self._nodes, now.staging, staging)
        differing = {key: cell for key, _, cell in diff_maps(both, now.tree, expected) if key not in keep}
        for key in self._tracked.stale_lists().difference(keep):
            differing.setdefault(key, find(both, expected, key))
        for key in now.failed:
            if key not in keep:
                differing.setdefault(key, find(both, expected, key))
        self._nodes.bind(staging)
        claimed = Claims()
        for key, cell in differing.items():
            self._patch(key, cell, self._tracked.cell(key), claimed)
        self._mend(expected, staging, claimed, keep)

    def finish_one(self, move: Move) -> None:
        """Repeat an interrupted ``update_stale``."""
        assert move.key is not None
        self._nodes.bind(Staging(self._objects) if move.staging is None else move.staging)
        self._patch(move.key, find(self._nodes, move.expected, move.key), self._tracked.cell(move.key), Claims())

    def catch_up(self) -> None:
        """Patch all stale values. Raises as ``update_stale``."""
        for key in list(self._tracked.stale):
            self.update_stale(key)

    def update_stale(self, key: bytes) -> None:
        """Patch a stale value. Changes made in it since the head moved are merged, and stay uncommitted.

        Raises:
            StorageError: the value still cannot be read.
            MergeConflictError: the head changed the same part. Nothing was changed; an assignment to the key resolves
                the conflict.
        """
        tracked = self._tracked
        self._nodes.bind(Staging(self._objects))
        entry, cell = tracked.entries.get(key), tracked.cell(key)
        edits = tracked.lists.get(key) if entry is None else None
        old = entry.cell if entry is not None else edits.cell if edits is not None else cell
        # the value was released, or patched before the store failed
        if old == (cell if edits is None else tracked.list_cell(key)):
            tracked.stale.discard(key)
            return
        try:
            mine = self._stager.encode(key)[0].cell
        except UNSTORABLE:
            return  # the value cannot be stored, so it cannot be merged; the next commit raises
        if mine == old:
            expected = edit_map(self._nodes, empty(Shape.MAP), {key: cell})
        else:
            roots = [edit_map(self._nodes, empty(Shape.MAP), {key: side}) for side in (old, mine, cell)]
            expected = self._merge(self._nodes, *roots)
        unfinished = tracked.unfinished
        outermost = unfinished.move is None
        if outermost:
            unfinished.move = Move(expected, tracked.tree, self._nodes.staging, key=key)
        try:
            self._patch(key, find(self._nodes, expected, key), cell, Claims())
        except StateError:
            if outermost:
                unfinished.move = None
            raise
        if outermost:
            unfinished.move = None

    def _mend(self, expected: Tree, staging: Staging, claimed: Claims, keep: Collection[bytes] = ()) -> None:
        """Correct values that came out wrong because patching another value changed them.

        If one object is at two paths with different contents, the second path gets a new object. The value around the
        second path is first patched in place, and is replaced only if it still differs.

        Args:
            staging: holds the objects of ``expected``.
            claimed: the live objects that have their path already.
        """
        self.catch_up()
        for last in (False, True):
            now = self._stager.stage(lenient=True)
            both = over(self._nodes, now.staging, staging)
            wrong = [change for change in diff_maps(both, now.tree, expected) if change[0] not in keep]
            self._nodes.bind(staging)
            for key, _, cell in wrong:
                if key in now.failed:
                    continue
                if last:
                    self._tracked.untrack(key)
                self._patch(key, cell, self._tracked.cell(key), claimed)
            if not wrong:
                return

    def _splice(self, key: bytes, old: bytes, cell: bytes | None, head_cell: bytes | None) -> bool:
        """Patch a large loaded list that has the content of ``old``, if elements are only inserted and removed.

        Returns whether the list has the content of ``cell`` now. Cost: these elements, and a detection.
        """
        entry = self._tracked.entries.get(key)
        if entry is None or entry.base is None or cell is None or cell != head_cell or type(entry.value) is not list:
            return False
        before, after = tree_of(old, Code.LIST_TREE), tree_of(cell, Code.LIST_TREE)
        if before is None or after is None or before.count != len(entry.value):
            return False
        parts = list(diff_sequences(self._nodes, before, after))
        if any(part.old_start < part.old_end and part.new_start < part.new_end for part in parts):
            return False  # an element that changes keeps its identity
        coming = [
            list(map(self._decoder.decode, iter_cells(self._nodes, after, part.new_start, part.new_end)))
            for part in parts
        ]
        for part, values in zip(reversed(parts), reversed(coming), strict=True):
            entry.value[part.old_start : part.old_end] = values
        found, base = self._encoder.encode(entry.value, entry.base, key)
        if found != cell:
            return False
        entry.cell, entry.base = cell, base
        self._tracked.track_unchanged(key, entry, None)
        return True

    def _patch(
        self,
        key: bytes,
        cell: bytes | None,
        head_cell: bytes | None,
        claimed: Claims,
        decoded: tuple[Any, Baseline | None] | None = None,
        following: Following | None = None,
    ) -> None:
        """Give a live value the content of ``cell``. The head has ``head_cell``."""
        tracked = self._tracked
        entry = tracked.entries.get(key)
        if cell is None:
            tracked.remove(key, head_cell)
            return
        if entry is None and cell == head_cell and key not in tracked.lists:
            tracked.untrack(key)
            return
        if entry is None and decoded is None:
            following = self._follower.plan(key, cell, head_cell) if following is None else following
            if following is not None:
                self._follower.apply(key, following, claimed)
                return
            if cell == head_cell:
                tracked.untrack(key)
                return
        try:
            fresh, base = self._decoder.decode_live(cell) if decoded is None else decoded
        except StateError as error:
            if cell != head_cell or isinstance(error, StorageError):
                raise
            self._decode_again(cell, error)
            # The value cannot be decoded here, and reading it will raise. The other values must still be updated.
            tracked.untrack(key)
            return
        # Take the fingerprint of the expected value before its parts become parts of the live value, so that a
        # difference is noticed.
        fingerprint = None if base is not None else tracked.suspects.fingerprint(fresh)
        if entry is None:
            entry = Entry(fresh, head_cell, None)
        else:
            first = [fresh]
            entry.value = replace_content(
                entry.value,
                lambda: first.pop() if first else self._decoder.decode_live(cell)[0],
                self._fingerprinter,
                claimed,
            )
        entry.cell = head_cell
        if cell == head_cell:
            entry.base = base
            tracked.track_unchanged(key, entry, fingerprint)
        else:
            tracked.stale.discard(key)
            tracked.track_assigned(key, entry)

    def _decode_again(self, cell: bytes, error: StateError) -> None:
        """Raise an error's cause if a second decoding succeeds: then it was an interrupt within a type's own code."""
        try:
            self._decoder.decode_live(cell)
        except StateError:
            return
        raise error.__cause__ or error


def over(nodes: Nodes, first: Staging, second: Staging) -> Nodes:
    """Return nodes over two overlays."""
    return nodes if first is second else Nodes(Overlaid(first, second))
