"""The live values of one handle: a mapping from root keys to values, the staging of its changes, and their rollback.

Layer: state.

::

    Worktree ──┬── Stager ───┬── UnloadedLists ── TrackedKeys ──┬── Suspects
               └── Updater ──┘                                  └── Unfinished

``Stager`` finds and encodes the changes; ``Updater`` replaces the content of live values. ``UnloadedLists`` reads and
edits lists that are not loaded. ``TrackedKeys`` has the status of each key, ``Suspects`` the fingerprints of values
that may change in place, and ``Unfinished`` the records of interrupted steps. Keys are root keys throughout (see
``values.keys``). Not for two threads at once.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from versioned_state.errors import StateError
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.state.aio.caller import current_caller, hold_still, run_still
from versioned_state.state.worktree.entries import IMMUTABLE, UNSTORABLE, Entry, NewEntries, Savepoint, Staged
from versioned_state.state.worktree.lists.unloaded import UnloadedLists
from versioned_state.state.worktree.root_keys import RootKeys
from versioned_state.state.worktree.stage import Stager
from versioned_state.state.worktree.tracked import ABSENT, TrackedKeys
from versioned_state.state.worktree.unfinished import DERIVED, Adoption, Move
from versioned_state.state.worktree.update import MergeRoots, Updater
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.keys import is_internal, path_of
from versioned_state.values.trees.nodes import NodeCache, Nodes
from versioned_state.values.trees.tree import Tree, same
from versioned_state.values.typed.older import OlderForms

if TYPE_CHECKING:
    from versioned_state.values.typed.why import ObjectReason

_FLUSH_AT: Final = 1 << 21
"""Raw bytes of staged objects from which a commit stores them ahead."""

_PREVIEWED: Final = 256
"""The elements of an edited list that a preview reads: more than fit on its line."""


class ReadCheck(Protocol):
    """The check of the head's values when they are read."""

    def check(self, nodes: Nodes, head: Tree, key: bytes, cell: bytes | None) -> None:
        """Raise if the value of a root key is not valid. ``cell`` is that of the head."""

    def check_elements(self, key: bytes, indices: range, values: list[Any]) -> None:
        """Raise if elements of a list that is not loaded are not valid."""


class Worktree:
    """Live values over a root tree.

    Args:
        objects: the store of the tree's objects.
        policy: whether values that are not plain data may be pickled.
        tree: the root of the head.
        merge: merges the roots of base, ours and theirs. It raises ``MergeConflictError``.
        shared: a cache of nodes of the store, for all handles on it.
    """

    def __init__(
        self, objects: ObjectStore, policy: PicklePolicy, tree: Tree, merge: MergeRoots, shared: NodeCache | None = None
    ) -> None:
        staging = Staging(objects)
        self._objects = objects
        self._nodes = Nodes(staging, staging=staging, shared=shared)
        self._encoder = Encoder(self._nodes, policy)
        self._encoder.older = OlderForms(self._encoder.fingerprinter.content, InlineEncoder(policy).encode_inline)
        self._decoder = LiveDecoder(self._nodes, policy, self._encoder.fingerprinter, self._encoder.older)
        self._tracked = TrackedKeys(self._nodes, self._encoder.fingerprinter, tree)
        self._entries = self._tracked.entries
        self.keys: Final = RootKeys(self._nodes, self._tracked)
        self.unfinished: Final = self._tracked.unfinished
        self.lists: Final = UnloadedLists(self._tracked, self._encoder, self._decoder)
        self._stager = Stager(objects, self._tracked, self.lists, self._encoder, self._decoder)
        self._updater = Updater(objects, self._tracked, self.lists, self._stager, self._encoder, self._decoder, merge)
        self._adopted_late: Staged | None = None
        self._ahead: tuple[int, bool, NewEntries | None, Staged] | None = None
        self.read_check: ReadCheck | None = None

    @property
    def tree(self) -> Tree:
        """The root as of the head."""
        return self._tracked.tree

    @tree.setter
    def tree(self, tree: Tree) -> None:
        self._tracked.tree = tree

    @property
    def held_bytes(self) -> int:
        """Approximate bytes of memory of decoded nodes and baselines, without the live values.

        Cost: the tracked keys.
        """
        return self._nodes.held_bytes + self._tracked.held_bytes

    def trim(self, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` of decoded nodes, and release the buffers of large commits.

        Only for a handle without changes.
        """
        staged = self._nodes.staging
        if staged.held_bytes > max_bytes:
            self._nodes.bind(Staging(staged.store))
            self._encoder.fingerprinter.renew_buffers()
        self._nodes.trim(max_bytes)

    def cell(self, key: bytes) -> bytes | None:
        """Return the cell of a key as of the head."""
        return self._tracked.cell(key)

    # A mapping from root keys to live values

    def get(self, key: bytes) -> Any:
        """Return the live value. Raises ``KeyError``."""
        if key in self._tracked.stale:
            with hold_still():
                self._updater.update_stale(key)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._load(key)
        if self.read_check is not None and key not in self._tracked.assigned:
            self.read_check.check(self._nodes, self.tree, key, entry.cell)
        return entry.value

    def objects(self, *, internal: bool) -> list[ObjectReason]:
        """Return the objects in the loaded values, in the order of their paths. Cost: a walk over all of them."""
        from versioned_state.values.typed.why import iter_objects

        keys = sorted(key for key in self._entries if internal or not is_internal(key))
        return [found for key in keys for found in iter_objects(self._entries[key].value, path_of(key))]

    def loaded(self, key: bytes, default: Any) -> Any:
        """Return the live value if it is loaded and not stale, or else the default.

        Another thread may be in a call on the worktree.
        """
        entry = self._entries.get(key)
        return (
            default if entry is None or key in self._tracked.stale or self.unfinished.move is not None else entry.value
        )

    def _load(self, key: bytes) -> Entry:
        tracked = self._tracked
        edits = tracked.lists.get(key)
        head_cell = tracked.cell(key)
        cell = tracked.list_cell(key) if edits is None else edits.cell
        if cell is None and edits is None:
            raise KeyError(key)
        value, base = self._decoder.decode_live(cell) if cell is not None else ([], None)
        if edits is not None:
            entry = Entry(self.lists.materialize(key, value), head_cell, base)
            self._tracked.begin(key)
            tracked.track_assigned(key, entry)
        else:
            entry = Entry(value, head_cell, base)
            fingerprint = None if base is not None else tracked.suspects.fingerprint(value)
            self._tracked.begin(key)
            tracked.track_unchanged(key, entry, fingerprint)
        self.unfinished.edit = None
        return entry

    def set(self, key: bytes, value: Any) -> None:
        tracked = self._tracked
        entry = self._entries.get(key)
        if (
            entry is not None
            and entry.value is value
            and key not in tracked.stale
            and (key in tracked.assigned or tracked.suspects.has(key, entry))
        ):
            return
        if entry is None:
            new = Entry(value, tracked.cell(key), None)
        elif key in tracked.stale:
            new = Entry(value, tracked.cell(key), None)  # it replaces both the stale value and the head's
        else:
            new = Entry(value, entry.cell, entry.base)
        self._tracked.begin(key)
        if entry is None or entry.value is not value:
            self._tracked.journal.append((key, ABSENT if entry is None else entry.value))
        tracked.stale.discard(key)
        tracked.track_assigned(key, new)
        self.unfinished.edit = None

    def delete(self, key: bytes) -> None:
        """Remove a key. Raises ``KeyError``."""
        if key not in self:
            raise KeyError(key)
        entry = self._entries.get(key)
        cell = self.cell(key) if entry is None or key in self._tracked.stale else entry.cell
        self._tracked.begin(key)
        self._tracked.journal.append((key, ABSENT if entry is None else entry.value))
        self._tracked.remove(key, cell)
        self.unfinished.edit = None

    def __contains__(self, key: bytes) -> bool:
        tracked = self._tracked
        if (key in tracked.entries and key not in tracked.stale) or key in tracked.added:
            return True
        return key not in tracked.removed and tracked.cell(key) is not None

    def release(self, key: bytes) -> bool:
        """Release a loaded value that has not changed. Returns whether the key is no longer loaded."""
        tracked = self._tracked
        entry = self._entries.get(key)
        if entry is None:
            return self._release_list(key)
        if key in tracked.assigned or key in tracked.added:
            return False
        try:
            if entry.base is not None:
                if not self._encoder.fingerprinter.is_unchanged(entry.value, entry.base):
                    return False
            elif type(entry.value) not in IMMUTABLE and self._encoder.encode(entry.value, None, key)[0] != entry.cell:
                return False
        except UNSTORABLE:
            return False  # the value can no longer be stored
        self._tracked.begin(key)
        tracked.untrack(key)
        self.unfinished.edit = None
        return True

    def release_all(self) -> bool:
        """Release all loaded values, up to one that has changed. Returns whether nothing is loaded any more."""
        return all(self.release(key) for key in (*self._entries, *self._tracked.lists))

    def _release_list(self, key: bytes) -> bool:
        """Do as ``release`` for a list that is not loaded, of which elements may be in memory."""
        edits = self._tracked.lists.get(key)
        if edits is None:
            return True
        if key in self._tracked.stale or not self.lists.is_unchanged(edits):
            return False
        self._tracked.begin(key)
        del self._tracked.lists[key]
        self.unfinished.edit = None
        return True

    def preview(self, key: bytes) -> str:
        """Return the beginning of a value, on one line. Does not load the value. Cost: the part shown."""
        from versioned_state.repository.views.preview import Preview
        from versioned_state.repository.views.render import one_line

        entry = self._entries.get(key)
        if entry is not None:
            return one_line(entry.value)
        if key in self._tracked.lists:
            return one_line(list(self.lists.peek(key, 0, min(self.lists.length(key), _PREVIEWED))))
        cell = self.cell(key)
        assert cell is not None, "the key is there"
        return Preview(self._nodes, Decoder(self._nodes)).one_line(cell)

    def are_same(self, a: Any, b: Any) -> bool:
        """Return whether two values have the same stored form. Cost: packing both."""
        return self._encoder.encode_inline(a, "a value") == self._encoder.encode_inline(b, "a value")

    # Lists that are not loaded

    def loaded_list(self, key: bytes) -> Any:
        """Return a key's value if it is loaded, or if it is not a list that can be read in part, or else None."""
        if key in self._tracked.stale:
            with hold_still():
                self._updater.update_stale(key)
        return self.get(key) if key in self._entries or not self.lists.has(key) else None

    def is_live(self, key: bytes) -> bool:
        return key in self._entries

    def is_edited(self, key: bytes) -> bool:
        """Return whether a list that is not loaded has elements in memory, or other edits."""
        return key in self._tracked.lists

    # Changes

    def touched_keys(self) -> list[bytes]:
        """Return the keys that were assigned or removed, and the lists that were edited, in order.

        Compares and reads nothing.
        """
        return sorted(
            {*self._tracked.assigned, *(key for key, edits in self._tracked.lists.items() if not edits.is_as_stored)}
        )

    def changed_keys(self) -> list[bytes]:
        """Return the keys with uncommitted changes, in order.

        If the store fails, the keys that may have changed, without reading it.
        """
        if run_still(self._stager.is_clean):
            return []
        try:
            staged = self.stage(lenient=True)
        except StateError:
            return self._stager.changed_keys()
        return sorted({*staged.changes, *staged.failed})

    def stage(
        self,
        *,
        lenient: bool = False,
        flush: bool = False,
        adopting: bool = False,
        keys: Collection[bytes] | None = None,
        pending: NewEntries | None = None,
    ) -> Staged:
        """Find the differences from the head and encode them. The handle does not change.

        Args:
            lenient: put values that cannot be stored into ``failed`` instead of raising.
            flush: store large amounts of new objects ahead of the commit, unless a background call does it.
            adopting: prepare for ``adopt``.
            keys: stage the changes of these keys only; those of other keys go to ``failed``.
            pending: new entries of the engine's series, to be staged too.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and adopting and keys is None and ahead[:3] == (self._tracked.changes, lenient, pending):
            return ahead[3]
        if self._tracked.stale:
            with hold_still():
                self._updater.catch_up()
        flush_at = _FLUSH_AT if flush else None
        return self._stager.stage(lenient=lenient, flush_at=flush_at, adopting=adopting, keys=keys, pending=pending)

    def stage_ahead(self, *, lenient: bool, pending: NewEntries) -> None:
        """Stage for the next ``stage(adopting=True)``, unless the handle changes before.

        Raises ``StoreNeeded`` within ``sealed()``.
        """
        if not self._tracked.stale:
            with suppress(*UNSTORABLE):
                staged = self.stage(lenient=lenient, adopting=True, pending=pending)
                self._ahead = self._tracked.changes, lenient, pending, staged

    def holds(self, staged: Staged) -> bool:
        """Return whether the live values are unchanged since they were staged."""
        now = self.stage(lenient=True)
        self._nodes.bind(staged.staging)
        return same(now.tree, staged.tree) and now.failed.keys() == staged.failed.keys()

    def read_ahead(self, now: Tree, *expected: Tree, staging: Staging | None = None) -> None:
        """Read, for a background call, the objects for an update from one root to others.

        See ``Updater.read_ahead``.
        """
        self._updater.read_ahead(now, *expected, staging=staging)

    def encode_inline(self, value: Any, path: str) -> bytes:
        """Return the self-contained cell of a value.

        ``path`` names the value in an error. Raises as ``Encoder.encode``.
        """
        return self._encoder.encode_inline(value, path)

    def stage_over(self, head: Tree) -> tuple[Staged, Tree]:
        """Stage the live values over another head without reading our own. See ``Stager.stage_over``."""
        return self._stager.stage_over(head)

    # Values that a builder encodes beside the live values

    @property
    def encoder(self) -> Encoder:
        """The encoder of the live values, which also encodes those of a builder: into ``new_staging``."""
        return self._encoder

    def new_staging(self, *, flush: bool = False) -> Staging:
        """Return a staging for objects that rely on those of the head.

        From now on the encoder stages new objects there.

        Args:
            flush: store large amounts of new objects ahead of the commit.
        """
        staging = Staging(self._objects, flush_at=_FLUSH_AT if flush else None, since=self._tracked.since)
        self._nodes.bind(staging)
        return staging

    def mark_stored(self, sweeps: int) -> None:
        """Record that the head's objects were stored after ``sweeps`` deleted batches, and all values equal the head's.

        Until then the number stays, and a commit after a gc secures all objects that it leads to.
        """
        if sweeps != self._tracked.since and not self._tracked.stale:
            self._nodes.trim(0)  # the cached nodes may name segments that were stored for sure at the old number only
            self._tracked.since = sweeps

    def distrust(self) -> None:
        """Make the next staging encode every loaded value again, because gc may have collected objects of the head."""
        self._tracked.changes += 1
        self.unfinished.edit = DERIVED
        self._tracked.distrust()
        self.unfinished.edit = None

    # Adopting and updating

    def adopt(self, staged: Staged, tree: Tree, sweeps: int = -1) -> None:
        """Make staged changes part of the head, after a commit with root ``tree``, or if there turned out to be none.

        ``sweeps``: the number of gc's at which the commit was stored.
        """
        self._tracked.changes += 1
        self.unfinished.edit = DERIVED
        is_stored = tree is not self._tracked.tree
        self._tracked.tree = tree
        self._tracked.adopt(staged)
        # A value that could not be stored is still uncommitted, so a rollback may restore the value that it replaced.
        journal, failed = self._tracked.journal, staged.failed
        if journal:
            self._tracked.journal = [(key, value) for key, value in journal if key in failed] if failed else []
        self.unfinished.edit = None
        if is_stored:
            self._nodes.share(staged.staging, sweeps)

    def adopt_late(self, staged: Staged) -> None:
        """Make changes that an earlier call staged part of the head: only now is their commit known to be stored.

        Values may have changed since, so all these keys are encoded again; no fingerprint of the present values is
        taken.
        """
        if staged is self._adopted_late:
            return  # done before an interrupt
        self._tracked.changes += 1
        self.unfinished.edit = Adoption(staged)
        self._adopt_late(staged)
        self.unfinished.edit = None

    def _adopt_late(self, staged: Staged) -> None:
        self.tree = staged.tree
        self._tracked.adopt_late(staged, self.lists.recall)
        self._tracked.journal.clear()
        self._adopted_late = staged

    def update(
        self,
        now: Tree,
        expected: Tree,
        *,
        base: Tree | None = None,
        head: Tree | None = None,
        also: Collection[bytes] = (),
    ) -> None:
        """Patch live values in place: they have the content of ``now``, and get the content of ``expected``.

        A value that cannot be decoded is released, and its next access raises. If the store fails, the next access
        patches the value. Only uncommitted changes must be read at once.

        Args:
            base, head: if there are uncommitted changes, the root that they were made on, and the root of the new head.
            also: keys with a live value that could not be stored, so that ``now`` does not have it.

        Raises:
            StorageError: an uncommitted change could not be read. Nothing was changed.
        """
        self._tracked.changes += 1
        with hold_still():
            self._updater.update(now, expected, base=base, head=head, also=also)

    def drop(self, head: Tree) -> None:
        """Drop uncommitted changes and take another head's content, without reading ours, which gc may have deleted."""
        with hold_still():
            staged, base = self.stage_over(head)
            self._tracked.journal.clear()
            self.update(staged.tree, head, base=base, head=head, also=staged.failed)

    # Rollback

    def save(self) -> Savepoint:
        """Make a savepoint of the current state, for ``restore``. Cost: a detection, and encoding the changes."""
        staged = None if current_caller() is None and self._stager.is_clean() else self.stage(lenient=True)
        tracked = self._tracked
        return Savepoint(staged, len(tracked.journal), tracked.tree, tracked.since)

    def saved(self, savepoint: Savepoint) -> Staged:
        """Return the staged state of a savepoint."""
        return self._stager.nothing(savepoint.head) if savepoint.staged is None else savepoint.staged

    def restore(self, savepoint: Savepoint | None = None, *, within: bytes = b"") -> None:
        """Return to a savepoint, or to the head: put replaced values back, and patch mutated ones in place.

        Args:
            within: only the values under root keys that begin with this; the others stay as they are.
        """
        if savepoint is not None:
            self._tracked.since = min(self._tracked.since, savepoint.since)
        journal, staged = (0, None) if savepoint is None else (savepoint.journal, self.saved(savepoint))
        if current_caller() is not None:
            target, staging = (self.tree, None) if staged is None else (staged.tree, staged.staging)
            self.read_ahead(self.stage(lenient=True).tree, target, staging=staging)
        self._tracked.changes += 1
        with hold_still():
            if within:
                staged = self._stager.stage_within(within, staged)
            self._restore(journal, staged, within)

    def _restore(self, journal: int, staged: Staged | None, within: bytes) -> None:
        unfinished = self.unfinished
        outermost = unfinished.move is None
        if outermost:
            unfinished.move = (
                Move(self.tree, self.tree, journal=0)
                if staged is None
                else Move(staged.tree, self.tree, staged.staging, keep=staged.failed, journal=journal, within=within)
            )
        try:
            self._put_back_from(journal, within)
            self._updater.restore(staged, within)
            if staged is None:
                now = self.stage(adopting=True)
                assert not now.changes, "the restored values are those of the head"
                self.adopt(now, self.tree)
        except StateError:
            if outermost:
                unfinished.move = None
            raise
        if outermost:
            unfinished.move = None

    def finish(self) -> Move | None:
        """Undo an interrupted edit, or complete an interrupted move. Returns the move. Idempotent."""
        self._tracked.changes += 1
        with hold_still():
            return self._finish()

    def _finish(self) -> Move | None:
        unfinished, tracked = self.unfinished, self._tracked
        move, edit = unfinished.move, unfinished.edit
        if isinstance(edit, Adoption):
            self._adopt_late(edit.staged)
        elif edit:
            key, entry, edits, cell, journal = edit
            tracked.undo(key, entry, edits, cell)
            del self._tracked.journal[journal:]
        if move is None or move.key is not None:
            unfinished.edit = DERIVED  # this step may be interrupted too
            tracked.rebuild()
            unfinished.edit = None
            if move is not None:
                self._updater.finish_one(move)
            return move
        tracked.tree = move.head
        if move.journal is not None:
            self._put_back_from(move.journal, move.within)
        tracked.rebuild(rebase=True, keep=move.keep)
        unfinished.edit = None
        self._updater.conform(move.expected, move.staging, move.keep)
        if move.commits or (move.journal == 0 and not move.within):
            self._tracked.journal = [(key, value) for key, value in self._tracked.journal if key in move.keep]
        return move

    def _put_back_from(self, journal: int, within: bytes) -> None:
        """Put back values replaced since the journal had length ``journal``, under keys that begin with ``within``."""
        replaced = self._tracked.journal
        # the journal stays, since savepoints count its entries; for each key, later entries are put back before earlier
        # ones
        if within:
            for key, value in reversed(replaced[journal:]):
                if key.startswith(within):
                    self._put_back(key, value)
            return
        while len(replaced) > journal:
            self._put_back(*replaced[-1])
            replaced.pop()

    def _put_back(self, key: bytes, value: Any) -> None:
        if value is ABSENT:
            self._tracked.untrack(key)
            return
        entry = self._entries.get(key)
        if entry is None:
            entry = Entry(value, self.cell(key), None)
        entry.value = value
        self._tracked.track_assigned(key, entry)
