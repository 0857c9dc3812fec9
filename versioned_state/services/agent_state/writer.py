"""``SessionHandle``: a handle that saves whole dicts, each compared with the one before by fingerprints. Layer: services.

::

    encoded    the dict as cells, and the new objects; costs what changed         on the event loop, if it asks no store
    saved      the round on the head, in one batch                                on a thread
               └── the branch had moved: our cells on its new head, as the round that is next by then

The dict is the caller's: nothing of it is kept but its cells and fingerprints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import local
from typing import Any, Final

from versioned_state.errors import BranchMovedError, QuotaExceededError, UnknownRevisionError, UnserializableValueError
from versioned_state.objects.address import Address
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.names.branches import EXPIRE
from versioned_state.repository.refs.ref import Ref
from versioned_state.services.agent_state.reading import has_files
from versioned_state.services.agent_state.rounds import LARGEST, Rounds, rounds_of
from versioned_state.services.calls.heads import is_over
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.state.branch.commit_options import OnMoved
from versioned_state.state.branch.resolving import Resolving
from versioned_state.state.branch.summary import summary_of
from versioned_state.state.versioned import Versioned
from versioned_state.state.worktree.entries import UNSTORABLE, Repacking, Staged
from versioned_state.storage import KVStore
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.detection.baselines import Baseline
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.keys import ROUNDS, USER, user_key
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import NodeCache, Nodes
from versioned_state.values.trees.tree import Tree, iter_items, rank

_AFTER: Final = bytes((USER[0] + 1,))
_FLUSH_AT: Final = 1 << 21
_CACHE_BYTES: Final = 1 << 17
"""Of decoded nodes in memory: more than the path to the end of a list, where most states grow. A server keeps hundreds of handles."""

_CELL_BYTES: Final = 300
"""Of memory that a key of the state before takes, about, besides its cell."""

_SAVED: Final = Resolving(remains="nothing was saved")


class SessionGoneError(Exception):
    """The session was deleted since the handle was opened, or its time to live is over: another handle begins anew."""


class StoreNeededError(Exception):
    """An object is not in memory that is needed on the event loop, where no store is asked."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session, and what its commits say of it."""

    user_id: str
    session_id: str
    has_plain_name: bool
    """Whether the name of the branch tells the id."""

    def meta(self, **more: Any) -> dict[str, Any]:
        """The meta of a commit."""
        return {"user_id": self.user_id, "session_id": self.session_id, **more}

    def named(self, rounds: Rounds) -> Rounds:
        """The rounds, with the id if nothing else tells it."""
        return rounds if self.has_plain_name else replace(rounds, session_id=self.session_id)


@dataclass(slots=True)
class Encoded:
    """A state as cells.

    Attributes:
        cells: by root key, the cell and the baseline of its value.
        changed: the keys that differ from those of the state before, removed ones too.
        staging: the new objects.
    """

    cells: dict[bytes, tuple[bytes, Baseline | None]]
    changed: list[bytes]
    staging: Staging

    def equals(self, other: Encoded) -> bool:
        """Whether the other one is of the same state."""
        return {key: cell for key, (cell, _) in self.cells.items()} == {key: cell for key, (cell, _) in other.cells.items()}


class _HeldObjects(ObjectStore):
    """Reads that raise ``StoreNeededError`` while ``sealed``."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.is_sealed = False

    @property
    def kv(self) -> KVStore:  # type: ignore[override] # read from the repository's each time
        return self._objects.kv

    def read(self, address: Address) -> bytes:
        if self.is_sealed:
            raise StoreNeededError
        return self._objects.read(address)

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        wanted = list(addresses)
        if self.is_sealed and wanted:
            raise StoreNeededError
        return self._objects.read_many(wanted)


class _Encoders(local):
    """The encoder of each thread: its buffers are as large as the largest state, and a server keeps hundreds of handles."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None

    def of(self, policy: PicklePolicy, nodes: Nodes) -> Encoder:
        """The encoder, for these nodes."""
        if self._encoder is None or self._encoder.policy is not policy:
            self._encoder = Encoder(nodes, policy)
        self._encoder.nodes = nodes
        return self._encoder


_encoders: Final = _Encoders()


class SessionHandle(Versioned):
    """A handle on a session's branch, for one call at a time. No value is loaded in it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._objects = _HeldObjects(self.repository.database.objects)
        self._nodes = Nodes(Staging(self._objects), staging=Staging(self._objects), cache=NodeCache(_CACHE_BYTES))
        self._cells: dict[bytes, tuple[bytes, Baseline | None]] = {}  # of the state that was saved last through this handle
        self._content_of: Commit | None = None  # the commit whose keys these are
        self._rounds: tuple[Commit, Rounds] | None = None

    @property
    def _held_bytes(self) -> int:
        cells = sum(_CELL_BYTES + len(cell) + (0 if base is None else base.held_bytes) for cell, base in self._cells.values())
        return super()._held_bytes + self._nodes.held_bytes + cells

    @property
    def is_warm(self) -> bool:
        """Whether the next state is compared with one that was saved through this handle."""
        return bool(self._cells)

    def encoded(self, state: Mapping[str, Any], *, sealed: bool = False, anew: bool = False) -> Encoded:
        """Encode a state. The handle does not change, and keeps nothing of the state.

        Args:
            sealed: raise ``StoreNeededError`` instead of asking the store.
            anew: do not rely on the state before: its objects may be gone.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value cannot be stored.
        """
        staging = Staging(self._objects, flush_at=None if sealed else _FLUSH_AT)
        if anew:
            staging.distrust()
        self._nodes.bind(staging)
        self._objects.is_sealed = sealed
        encoder = _encoders.of(self.repository.database.policy, self._nodes)
        before = {} if anew else self._cells
        cells: dict[bytes, tuple[bytes, Baseline | None]] = {}
        changed = []
        try:
            for name, value in state.items():
                key = user_key(name)
                known = before.get(key)
                old, base = (None, None) if known is None else known
                small = encoder.encode_small(value) if base is None else None
                cells[key] = (small, None) if small is not None else encoder.encode(value, base, key)
                if cells[key][0] != old:
                    changed.append(key)
        except UNSTORABLE as error:
            error.remains = _SAVED.remains
            if isinstance(error, UnserializableValueError):
                error.hint = "keep what it was made from instead, or register() its type"
            raise
        finally:
            self._objects.is_sealed = False
        changed += [key for key in before if key not in cells]
        return Encoded(cells, changed, staging)

    def save(self, session: Session, encoded: Encoded, number: int | None, *, max_rounds: int | None = None) -> int:
        """Commit an encoded state as a round, by default the one after the highest; its number.

        Raises:
            QuotaExceededError: the session has so many rounds already.
            SessionGoneError: the session is gone; nothing was saved.
            StorageError: as ``commit``.
        """
        handle, database = self._handle, self.repository.database
        if handle.head.id != ROOT_ID and is_over(database, handle.ref, handle.head):
            self._end()
        staged = Staged(handle.worktree.tree, encoded.staging, {}, {}, [], repacking=Repacking((), []))
        made: list[Rounds] = []

        def write(_: Tree, parent: Commit) -> Commit:
            rounds = self._rounds_at(parent)
            latest = rounds.latest
            chosen = number if number is not None else 1 if latest is None else latest + 1
            if chosen > LARGEST:
                raise QuotaExceededError("the number of a round", limit=LARGEST)
            if max_rounds is not None and len(rounds) >= max_rounds and chosen not in rounds:
                raise QuotaExceededError("the number of rounds of a session", limit=max_rounds)
            made[:] = [session.named(rounds.settled(parent.height).at(chosen, parent.height + 1))]
            changes = self._changes(encoded, parent)
            cells: dict[bytes, bytes | None] = {key: cell for key, (_, cell) in changes.items()}
            cells[ROUNDS] = made[0].cell(self._nodes)
            staged.tree = edit_map(self._nodes, parent.tree, cells)
            meta = session.meta(round=chosen)
            message = summary_of(changes)
            return database.write_commit(staged.tree, (parent,), staging=encoded.staging, message=message, author=handle.author, meta=meta)

        self._nodes.bind(encoded.staging)
        try:
            for attempt in range(2):
                try:
                    commit = handle.commit_staged(staged, write, OnMoved.REPLACE, resolving=_SAVED, allow_empty=True)
                    break
                except QuotaExceededError:
                    if attempt:
                        raise
                    handle.refresh(_SAVED)  # as far as this handle knew
        except BranchMovedError:
            raise SessionGoneError from None
        self._cells, self._content_of, self._rounds = encoded.cells, commit, (commit, made[0])
        self._nodes.bind(Staging(self._objects))  # what was staged is in the store
        assert made[0].current is not None
        return made[0].current

    def _rounds_at(self, commit: Commit) -> Rounds:
        if self._rounds is None or self._rounds[0] != commit:
            self._rounds = commit, rounds_of(self._nodes, commit.tree)
        return self._rounds[1]

    def _changes(self, encoded: Encoded, parent: Commit) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """The cells before and after of the keys in which a state differs from a commit."""
        if parent == self._content_of:
            before, cells = self._cells, encoded.cells
            return {key: (before[key][0] if key in before else None, cells[key][0] if key in cells else None) for key in encoded.changed}
        nodes, tree = self._nodes, parent.tree
        theirs: dict[bytes, bytes] = {}
        if tree.count:
            theirs.update(iter_items(nodes, tree, rank(nodes, tree, USER), rank(nodes, tree, _AFTER)))
        changes: dict[bytes, tuple[bytes | None, bytes | None]] = {}
        for key, (cell, _) in encoded.cells.items():
            old = theirs.pop(key, None)
            if old != cell:
                changes[key] = old, cell
        if user_key(FILES_KEY) in theirs and has_files(nodes, tree):
            del theirs[user_key(FILES_KEY)]
        changes.update((key, (old, None)) for key, old in theirs.items())
        return changes

    def _end(self) -> None:
        """Delete the branch if its time to live is over. Raises ``SessionGoneError`` if so."""
        try:
            self._handle.refresh(_SAVED)
        except BranchMovedError:
            raise SessionGoneError from None
        expire(self)


def expire(state: Versioned) -> None:
    """Delete the branch of a handle if its time to live is over, unless it has been renewed. Raises ``SessionGoneError`` if it is over."""
    database = state.repository.database

    def check(ref: Ref, head: Commit) -> None:
        if not is_over(database, ref, head):
            raise UnknownRevisionError(state.branch, reason="it was renewed")

    if state.head.id != ROOT_ID and is_over(database, state._handle.ref, state.head):
        with suppress(UnknownRevisionError):  # another process was first
            state.repository.branches.remove(state.branch, check, action=EXPIRE)
        raise SessionGoneError
