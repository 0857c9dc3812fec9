"""``Stager``: the differences between live values and the head, found and encoded. Layer: state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from versioned_state.errors import MissingObjectError
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.state.aio.caller import current_caller, run_still
from versioned_state.state.worktree.entries import UNSTORABLE, NewEntries, Pack, Staged, Unstorable, Update
from versioned_state.state.worktree.lists.pieces import Element, ListEdits, Piece, add_piece
from versioned_state.state.worktree.lists.unloaded import UnloadedLists
from versioned_state.state.worktree.tracked import TrackedKeys
from versioned_state.values.cells import ELEMENT_INLINE
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.splices import elements_of
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.tree import Tree, find

if TYPE_CHECKING:
    from versioned_state.values.series import GrowingSeries

V = TypeVar("V")

_NIL: Final = b"\xc0"
"""The cell of None."""


def _joined(outside: Mapping[bytes, V], inside: Mapping[bytes, V], within: bytes) -> dict[bytes, V]:
    """Return the entries of ``inside`` whose keys begin with ``within``, and the other entries of ``outside``."""
    found = {key: value for key, value in outside.items() if not key.startswith(within)}
    return found | {key: value for key, value in inside.items() if key.startswith(within)}


class Stager:
    """The encoding of the values that may differ from the head.

    It does not change the tracked keys. New objects go to a new staging.
    """

    def __init__(
        self, objects: ObjectStore, tracked: TrackedKeys, lists: UnloadedLists, encoder: Encoder, decoder: LiveDecoder
    ) -> None:
        self._objects = objects
        self._tracked = tracked
        self._lists = lists
        self._nodes = encoder.nodes
        self._encoder = encoder
        self._decoder = decoder
        # by engine key, the series that was staged last
        self._series: dict[bytes, GrowingSeries] = {}
        self._extended: Tree | None = None  # the root that was staged last with entries of all of these series

    def stage(
        self,
        *,
        lenient: bool = False,
        flush_at: int | None = None,
        adopting: bool = False,
        keys: Collection[bytes] | None = None,
        pending: NewEntries | None = None,
    ) -> Staged:
        """Stage the changes since the head.

        Cost: packing the loaded values, and encoding those whose fingerprint differs.

        Args:
            lenient: put values that cannot be stored into ``failed`` instead of raising.
            flush_at: store new objects ahead of the commit whenever they exceed this many bytes, unless a background
                call stages.
            adopting: pack the values for ``TrackedKeys.adopt``.
            keys: stage the changes of these keys only; those of other keys go to ``failed``.
            pending: new entries of the engine's series, to be staged too.
        """
        if current_caller() is None:
            return self._stage(lenient=lenient, flush_at=flush_at, adopting=adopting, keys=keys, pending=pending)
        return run_still(
            partial(self._stage, lenient=lenient, flush_at=None, adopting=adopting, keys=keys, pending=pending)
        )

    def is_clean(self) -> bool:
        """Return whether no value differs from the head, or False if one may differ or cannot be stored.

        Encodes and reads nothing.
        """
        tracked, fingerprinter = self._tracked, self._encoder.fingerprinter
        if tracked.assigned or tracked.stale:
            return False
        try:
            for key in tracked.suspects.find([]):
                entry = tracked.entries[key]
                if entry.base is None or not fingerprinter.is_unchanged(entry.value, entry.base):
                    return False
            return not tracked.lists or all(map(self._lists.is_unchanged, tracked.lists.values()))
        except UNSTORABLE:
            return False

    def nothing(self, tree: Tree) -> Staged:
        """Return the staged state without changes, for a head with this root."""
        return Staged(tree, Staging(self._objects, since=self._tracked.since), {}, {}, [], {})

    def _stage(
        self,
        *,
        lenient: bool,
        flush_at: int | None,
        adopting: bool,
        keys: Collection[bytes] | None,
        pending: NewEntries | None,
    ) -> Staged:
        staging = Staging(self._objects, flush_at=flush_at, since=self._tracked.since)
        self._nodes.bind(staging)
        tracked = self._tracked
        changes: dict[bytes, Update] = {}
        unchanged: dict[bytes, Update] = {}
        broken: list[Pack] = []
        failed: dict[bytes, Unstorable | None] = {}
        for key in self._suspects(broken):
            if keys is not None and key not in keys:
                failed[key] = None
                continue
            try:
                update, old = self.encode(key)
            except UNSTORABLE as error:
                if not lenient:
                    raise
                failed[key] = error
                continue
            if update.cell != old:
                update.old = old
                changes[key] = update
            elif key in tracked.assigned or update.base is None or update.base is not tracked.entries[key].base:
                unchanged[key] = update
        cells: dict[bytes, bytes | None] = {key: update.cell for key, update in changes.items()}
        series: dict[bytes, bytes] = {}
        if pending:
            series = self._extend(pending)
            cells.update(series)
        tree = edit_map(self._nodes, tracked.tree, cells) if cells else tracked.tree
        if series and len(series) == len(self._series):
            self._extended = tree
        staged = Staged(tree, staging, changes, unchanged, broken, failed, series)
        if adopting:
            tracked.repack(staged)
        return staged

    def _extend(self, pending: NewEntries) -> dict[bytes, bytes]:
        """Return the cells of the engine's series that the new entries change."""
        changed = {}
        is_own = self._tracked.tree is self._extended
        self._extended = None  # until the new root is there, also if an interrupt comes before
        for key, entries in pending.items():
            series = self._series.get(key)
            if series is None or not is_own:
                old = self._tracked.cell(key)
                if series is None or series.cell != old:
                    series = self._read_series(old)
            if max(map(len, entries.values())) > ELEMENT_INLINE:
                entries = {name: self._entry_cell(entry) for name, entry in entries.items()}  # noqa: PLW2901
            extended = series.extended(self._nodes, entries)
            if extended.cell != series.cell:
                changed[key] = extended.cell
                self._series[key] = extended
        return changed

    def _read_series(self, cell: bytes | None) -> GrowingSeries:
        from versioned_state.values.series import series_of  # most states have none

        return series_of(self._nodes, cell)

    def _entry_cell(self, cell: bytes) -> bytes:
        if len(cell) <= ELEMENT_INLINE:
            return cell
        return self._encoder.encode_at(self._decoder.decode(cell), ELEMENT_INLINE)

    def stage_within(self, within: bytes, before: Staged | None) -> Staged:
        """Stage the live values, except under keys that begin with ``within``: those of ``before`` or else the head."""
        now = self.stage(lenient=True)
        tree, failed = (self._tracked.tree, {}) if before is None else (before.tree, before.failed)
        if before is not None:
            now.staging.include(before.staging)
        self._nodes.bind(now.staging)
        cells = {key: cell for key, _, cell in diff_maps(self._nodes, now.tree, tree) if key.startswith(within)}
        if cells:
            now.tree = edit_map(self._nodes, now.tree, cells)
        now.failed = _joined(now.failed, failed, within)
        return now

    def stage_over(self, head: Tree) -> tuple[Staged, Tree]:
        """Stage the live values over another head. Our own head is not read, since gc may have collected it.

        A key that is not loaded has not changed, so the staged root is ``head`` with our live values encoded anew. The
        second result is the base of a merge: ``head`` with the old values of these keys. If both sides changed a value
        and gc has collected the old one, the base has None there, so the two values are not merged part by part.
        """
        staging = Staging(self._objects, since=self._tracked.since)
        self._nodes.bind(staging)
        tracked = self._tracked
        broken: list[Pack] = []
        failed: dict[bytes, Unstorable | None] = {}
        bases = {key: entry.cell for key, entry in tracked.entries.items()}
        ours: dict[bytes, bytes | None] = {}
        for key in self._suspects(broken):
            entry = tracked.entries.get(key)
            theirs = find(self._nodes, head, key)
            edits = tracked.lists.get(key)
            if entry is None:
                bases[key] = tracked.removed.get(key) if edits is None or key in tracked.removed else edits.cell
                try:
                    ours[key] = None if edits is None else self._list_over(key, edits, theirs)
                except UNSTORABLE as error:
                    failed[key] = error
            elif (
                key in tracked.assigned
                or entry.base is None
                or not self._encoder.fingerprinter.is_unchanged(entry.value, entry.base)
            ):
                try:
                    ours[key] = self._encoder.encode(entry.value, None, key)[0]
                except UNSTORABLE as error:
                    failed[key] = error
            if key in ours and bases[key] != theirs and not self._is_whole(bases[key]):
                bases[key] = _NIL
        base = edit_map(self._nodes, head, bases)
        changes = {key: Update(cell) for key, cell in ours.items()}
        return Staged(edit_map(self._nodes, base, ours), staging, changes, {}, broken, failed), base

    def _is_whole(self, cell: bytes | None) -> bool:
        """Return whether the store has every object of a cell. Decodes nothing. Cost: reading the value."""
        from versioned_state.repository.history.reach import iter_new, references_of_cell

        try:
            for _ in iter_new(self._nodes.reader, (), references_of_cell(cell) if cell is not None else ()):
                pass
        except MissingObjectError:
            return False
        return True

    def changed_keys(self) -> list[bytes]:
        """Return the keys whose values differ from the head by their fingerprints, in order. Encodes and reads nothing.

        The result may include unchanged values: values that were assigned, and values in another form than in the head.
        """
        tracked, fingerprinter = self._tracked, self._encoder.fingerprinter
        found = set()
        for key in self._suspects([]):
            entry, edits = tracked.entries.get(key), tracked.lists.get(key)
            try:
                if entry is not None and entry.base is not None and fingerprinter.is_unchanged(entry.value, entry.base):
                    continue
                if entry is None and edits is not None and self._lists.is_unchanged(edits):
                    continue
            except UNSTORABLE:
                pass  # the value can no longer be stored
            found.add(key)
        return sorted(found)

    def _suspects(self, broken: list[Pack]) -> list[bytes]:
        """Return the keys whose values may differ from the head.

        A pack whose fingerprint differs goes to ``broken``.
        """
        tracked = self._tracked
        lists = [key for key in tracked.lists if key not in tracked.assigned] if tracked.lists else ()
        return [*tracked.assigned, *lists, *tracked.suspects.find(broken)]

    def encode(self, key: bytes) -> tuple[Update, bytes | None]:
        """Encode a key. Returns the update and the cell that the head has."""
        tracked = self._tracked
        entry = tracked.entries.get(key)
        if entry is not None:
            small = self._encoder.encode_small(entry.value) if entry.base is None else None
            if small is not None:
                return Update(small, plain=True), entry.cell
            cell, base = self._encoder.encode(entry.value, entry.base, key)
            return Update(cell, base), entry.cell
        edits, old = tracked.lists.get(key), tracked.cell(key)
        if edits is not None:
            return self._lists.encode(key, edits), old
        return Update(None if key in tracked.removed else old), old

    def _list_over(self, key: bytes, edits: ListEdits, theirs: bytes | None) -> bytes | None:
        """Return the cell of a list that is not loaded, over another head.

        If gc has collected our list, the edits go to the other one.

        If the other head has no list there, the elements in memory are all that is left of ours.
        """
        if self._is_whole(edits.cell):
            return self._lists.encode(key, edits).cell
        tree = elements_of(self._nodes, theirs)
        count = 0 if tree is None else tree.count
        pieces: list[Piece] = []
        for piece in edits.pieces:
            if isinstance(piece, range):
                add_piece(
                    pieces,
                    range(min(piece.start, count), count if piece.stop == edits.stored else min(piece.stop, count)),
                )
            else:
                add_piece(pieces, [Element(element.value) for element in piece])
        return self._lists.encode(key, ListEdits(None if tree is None else theirs, count, pieces)).cell
