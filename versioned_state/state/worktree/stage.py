"""Finds how the values that a handle holds differ from its head, and encodes that. Layer: state."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from versioned_state.errors import InvalidArgumentError, MissingObjectError
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.repository.history.reach import iter_new, references_of_cell
from versioned_state.state.worktree.entries import UNSTORABLE, Pack, Staged, Unstorable, Update
from versioned_state.state.worktree.tracked import Holdings
from versioned_state.values.cells import Code, code_of
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.keys import path_of
from versioned_state.values.trees.tree import Tree, edit_map, find

_NIL: Final = b"\xc0"
"""The cell of None."""


class Detector:
    """Encodes what may differ from the head. Nothing of what is held changes; new objects go to an overlay of their own."""

    def __init__(self, objects: ObjectStore, held: Holdings, encoder: Encoder, decoder: LiveDecoder) -> None:
        self._objects = objects
        self._held = held
        self._nodes = encoder.nodes
        self._encoder = encoder
        self._decoder = decoder

    def stage(self, *, lenient: bool = False, flush_at: int | None = None, keys: Collection[bytes] | None = None) -> Staged:
        """The state as it is now. Cost: packing what was loaded, and encoding what looks changed.

        Args:
            lenient: values that cannot be stored go to ``failed`` instead of raising.
            flush_at: raw bytes of new objects from which they are stored ahead.
            keys: only their changes; those of others go to ``failed``.
        """
        staging = Staging(self._objects, flush_at=flush_at)
        self._nodes.bind(staging)
        held = self._held
        changes: dict[bytes, Update] = {}
        settled: dict[bytes, Update] = {}
        loose: list[Pack] = []
        failed: dict[bytes, Unstorable | None] = {}
        for key in self._suspects(loose):
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
                changes[key] = update
            elif key in held.assigned or update.base is not held.slots[key].base or update.base is None:
                settled[key] = update
        tree = edit_map(self._nodes, held.tree, {key: update.cell for key, update in changes.items()}) if changes else held.tree
        tails = {key: len(lazy.tail) for key, lazy in held.tails.items() if lazy.tail}
        return Staged(tree, staging, changes, settled, loose, tails, dict(held.tails), failed)

    def replant(self, head: Tree) -> tuple[Staged, Tree]:
        """The state as ``stage`` gives it, but over another head, without reading ours, which may be gone from the store.

        Of what was not loaded nothing was changed, so the root is that of ``head`` with the keys that are live here, encoded afresh. Also
        returns the root that these were changed from, likewise. A value that both sides changed, and whose old content is gone, was None
        there: no merge of its parts is tried.
        """
        staging = Staging(self._objects)
        self._nodes.bind(staging)
        held = self._held
        loose: list[Pack] = []
        failed: dict[bytes, Unstorable | None] = {}
        bases = {key: slot.cell for key, slot in held.slots.items()}
        ours: dict[bytes, bytes | None] = {}
        for key in list(self._suspects(loose)):
            slot = held.slots.get(key)
            theirs = find(self._nodes, head, key)
            lazy = held.tails.get(key)
            if slot is None:
                bases[key] = held.removed.get(key) if lazy is None else lazy.cell
                old = theirs if lazy is None or not self._is_whole(lazy.cell) else lazy.cell
                ours[key] = None if lazy is None else self._append(key, None if key in held.removed else old, lazy.tail)
            elif key in held.assigned or slot.base is None or not self._encoder.fingerprinter.is_unchanged(slot.value, slot.base):
                try:
                    ours[key] = self._encoder.encode(slot.value, None, key)[0]
                except UNSTORABLE as error:
                    failed[key] = error
            if key in ours and bases[key] != theirs and not self._is_whole(bases[key]):
                bases[key] = _NIL
        base = edit_map(self._nodes, head, bases)
        changes = {key: Update(cell) for key, cell in ours.items()}
        return Staged(edit_map(self._nodes, base, ours), staging, changes, {}, loose, {}, {}, failed), base

    def _is_whole(self, cell: bytes | None) -> bool:
        """Whether the store has all that a cell refers to. Nothing is decoded. Cost: reading the value."""
        try:
            for _ in iter_new(self._nodes.reader, (), references_of_cell(cell) if cell is not None else ()):
                pass
        except MissingObjectError:
            return False
        return True

    def _suspects(self, loose: list[Pack]) -> Iterator[bytes]:
        """The keys whose values may differ from the head; packs that no longer hold together go to ``loose``."""
        held = self._held
        yield from held.assigned
        for key, lazy in held.tails.items():
            if lazy.tail and key not in held.assigned:
                yield key
        yield from held.watch.suspects(loose)

    def encode(self, key: bytes) -> tuple[Update, bytes | None]:
        """What a key's value is now, and the cell that the head has."""
        held = self._held
        slot = held.slots.get(key)
        if slot is not None:
            small = self._encoder.encode_small(slot.value) if slot.base is None else None
            if small is not None:
                return Update(small, plain=True), slot.cell
            cell, base = self._encoder.encode(slot.value, slot.base, key)
            return Update(cell, base), slot.cell
        old = held.cell(key)
        lazy = held.tails.get(key)
        if lazy is None:
            return Update(None), old
        return Update(self._append(key, None if key in held.removed else old, lazy.tail)), old

    def _append(self, key: bytes, old: bytes | None, tail: list[object]) -> bytes:
        if old is not None and code_of(old) == Code.LIST_TREE:
            return self._encoder.append(old, tail, key)
        values = [] if old is None else self._decoder.decode(old)
        if type(values) is not list:
            raise InvalidArgumentError(f"{path_of(key)} is of type {type(values).__name__} by now: nothing can be appended to it")
        return self._encoder.encode([*values, *tail], None, key)[0]
