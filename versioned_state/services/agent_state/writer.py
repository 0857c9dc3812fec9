"""``SessionHandle``: a handle that saves whole dicts, each compared with the one before by fingerprints. Layer: services.

::

    encoded    the dict as cells, and the new objects; costs what changed         on the event loop, if it asks no store
    completed  long new values, of which the loop took copies                     on a thread
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

from versioned_state.agents.modules.containers import captured
from versioned_state.errors import BranchMovedError, QuotaExceededError, StateError, UnknownRevisionError, UnserializableValueError
from versioned_state.objects.address import Address
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.names.branches import EXPIRE
from versioned_state.repository.refs.ref import Ref
from versioned_state.services.agent_state.capturing import is_long
from versioned_state.services.agent_state.reading import has_files
from versioned_state.services.agent_state.rounds import LARGEST, NO_ROUNDS, Rounds, rounds_of
from versioned_state.services.calls.heads import is_over
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.state.branch import port
from versioned_state.state.branch.merging import Resolving
from versioned_state.state.branch.publisher import PreparedCommit, Proposal, publish
from versioned_state.state.branch.summary import summary_of
from versioned_state.state.versioned import Versioned
from versioned_state.state.worktree.entries import UNSTORABLE, Repacking, Staged, Unstorable
from versioned_state.storage import KVStore
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.detection.baselines import Baseline, Elements, Entries, Pinned
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.keys import USER, user_key
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import NodeCache, Nodes
from versioned_state.values.trees.tree import iter_items, rank

_AFTER: Final = bytes((USER[0] + 1,))
_FLUSH_AT: Final = 1 << 21
_CACHE_BYTES: Final = 1 << 17
"""Of decoded nodes in memory: more than the path to the end of a list, where most states grow. A server keeps hundreds of handles."""

_CELL_BYTES: Final = 300
"""Of memory that a key of the state before takes, about, besides its cell."""

SAVED: Final = Resolving(remains="nothing was saved")


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
        late: by root key, captured values that ``complete`` encodes.
    """

    cells: dict[bytes, tuple[bytes, Baseline | None]]
    changed: list[bytes]
    staging: Staging
    late: dict[bytes, Any]

    def equals(self, other: Encoded) -> bool:
        """Whether the other one is of the same state."""
        return {key: cell for key, (cell, _) in self.cells.items()} == {key: cell for key, (cell, _) in other.cells.items()}


@dataclass(slots=True)
class Save:
    """A round under way.

    Attributes:
        number: of the round; None: the one after the highest.
        max_rounds: the rounds that the session may have.
        staged: what the commit is made of.
        rounds: those of the session after the commit that was written last.
    """

    session: Session
    encoded: Encoded
    number: int | None
    max_rounds: int | None
    staged: Staged
    rounds: Rounds = NO_ROUNDS


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
        self._since = 0  # the number of sweeps of gc at which their objects were known to be stored
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
            sealed: raise ``StoreNeededError`` instead of asking the store, and leave long new values to ``complete``.
            anew: do not rely on the state before: its objects may be gone.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value cannot be stored.
        """
        staging = Staging(self._objects, flush_at=None if sealed else _FLUSH_AT, since=port.handle(self).ref.sweeps)
        before = {} if anew else self._cells
        if anew:
            staging.distrust()
        elif before:
            staging.rely_on(self._since)
        encoded = Encoded({}, [], staging, {})
        encoder = self._encoder_into(staging)
        self._objects.is_sealed = sealed
        try:
            for name, value in state.items():
                key = user_key(name)
                old, base = before.get(key) or (None, None)
                small = encoder.encode_small(value) if base is None else None
                if sealed and small is None and _is_long_and_new(value, base) and (late := captured(value)) is not None:
                    encoded.late[key] = late
                    continue
                encoded.cells[key] = cell, _ = (small, None) if small is not None else encoder.encode(value, base, key)
                if cell != old:
                    encoded.changed.append(key)
        except UNSTORABLE as error:
            _complete_error(error)
            raise
        finally:
            self._objects.is_sealed = False
        encoded.changed += [key for key in before if key not in encoded.cells and key not in encoded.late]
        return encoded

    def complete(self, encoded: Encoded) -> None:
        """Encode the values that were captured only. Raises as ``encoded``."""
        encoder = self._encoder_into(encoded.staging)
        try:
            for key, value in encoded.late.items():
                old, base = self._cells.get(key) or (None, None)
                encoded.cells[key] = cell, _ = encoder.encode(value, base, key)
                if cell != old:
                    encoded.changed.append(key)
        except UNSTORABLE as error:
            _complete_error(error)
            raise
        encoded.late = {}

    def _encoder_into(self, staging: Staging) -> Encoder:
        self._nodes.bind(staging)
        return _encoders.of(self.repository.database.policy, self._nodes)

    def prepare(self, session: Session, encoded: Encoded, number: int | None, *, max_rounds: int | None) -> PreparedSave | None:
        """Begin to save an encoded state; None, and nothing was changed, if the store has to be asked first or an error is likely."""
        handle = port.handle(self)
        head = handle.head
        if head != self._content_of or is_over(self.repository.database, handle.ref, head) or not port.is_at_rest(self):
            return None
        if self._rounds is None or self._rounds[0] != head or not self._rounds[1]:  # without a round it is not counted as a session
            return None
        save = self._begun(session, encoded, number, max_rounds)
        self._nodes.bind(encoded.staging)
        self._objects.is_sealed = True
        try:
            prepared = PreparedCommit(self._proposal(save))
        except (QuotaExceededError, StoreNeededError):
            return None
        finally:
            self._objects.is_sealed = False
        return PreparedSave(self, save, prepared)

    def save(self, session: Session, encoded: Encoded, number: int | None, *, max_rounds: int | None = None) -> int:
        """Commit an encoded state as a round, by default the one after the highest; its number.

        Raises:
            QuotaExceededError: the session has so many rounds already.
            SessionGoneError: the session is gone; nothing was saved.
            StorageError: as ``commit``.
        """
        handle, database = port.handle(self), self.repository.database
        if handle.head.id != ROOT_ID and is_over(database, handle.ref, handle.head):
            self._end()
        save = self._begun(session, encoded, number, max_rounds)
        self._nodes.bind(encoded.staging)
        try:
            for attempt in range(2):
                try:
                    commit = publish((self._proposal(save),), OnMoved.REPLACE, SAVED)
                    break
                except QuotaExceededError:
                    if attempt:
                        raise
                    handle.refresh(SAVED)  # as far as this handle knew
        except BranchMovedError:
            raise SessionGoneError from None
        return self.saved(save, commit)

    def _begun(self, session: Session, encoded: Encoded, number: int | None, max_rounds: int | None) -> Save:
        staged = Staged(port.handle(self).worktree.tree, encoded.staging, {}, {}, [], repacking=Repacking((), []))
        return Save(session, encoded, number, max_rounds, staged)

    def _proposal(self, save: Save) -> Proposal:
        handle, tree = port.handle(self), save.staged.tree
        return Proposal(
            handle, save.staged, lambda _, parent: self._written(save, parent), handle.ref, handle.head, tree, tree, allow_empty=True
        )

    def _written(self, save: Save, parent: Commit) -> Commit:
        """Stage the commit of a save on a head. Raises ``QuotaExceededError``."""
        rounds = self._rounds_at(parent)
        latest = rounds.latest
        chosen = save.number if save.number is not None else 1 if latest is None else latest + 1
        if chosen > LARGEST:
            raise QuotaExceededError("the number of a round", limit=LARGEST)
        if save.max_rounds is not None and len(rounds) >= save.max_rounds and chosen not in rounds:
            raise QuotaExceededError("the number of rounds of a session", limit=save.max_rounds)
        made = save.session.named(rounds.settled(parent.height).at(chosen, parent.height + 1))
        save.rounds, cells = made.stored(self._nodes)
        changes = self._changes(save.encoded, parent)
        cells.update((key, cell) for key, (_, cell) in changes.items())
        tree = save.staged.tree = edit_map(self._nodes, parent.tree, cells)
        return self.repository.database.write_commit(
            tree,
            (parent,),
            staging=save.encoded.staging,
            message=summary_of(changes),
            author=port.handle(self).author,
            meta=save.session.meta(round=chosen),
        )

    def saved(self, save: Save, commit: Commit) -> int:
        """Note that the branch has the commit of a save; the number of the round."""
        sweeps = port.handle(self).ref.sweeps
        if sweeps != self._since:
            self._nodes.trim(0)  # the cached nodes may name segments that were known to be stored at the old number only
        self._since = min(self._since, sweeps)  # first: an interrupt may come between the two lines
        self._cells, self._content_of, self._rounds = save.encoded.cells, commit, (commit, save.rounds)
        self._since = sweeps
        self._nodes.bind(Staging(self._objects))  # what was staged is in the store
        assert save.rounds.current is not None
        return save.rounds.current

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
            port.handle(self).refresh(SAVED)
        except BranchMovedError:
            raise SessionGoneError from None
        expire(self)


def _is_long_and_new(value: Any, base: Baseline | None) -> bool:
    """Whether encoding a value would hold the event loop for long."""
    if base is None:
        return is_long(value)
    if isinstance(base, Elements | Entries):
        return type(value) is base.type and is_long(value, base.tree.count)
    return is_long(value) and not (isinstance(base, Pinned) and value is base.value)


def _complete_error(error: Unstorable) -> None:
    error.remains = SAVED.remains
    if isinstance(error, UnserializableValueError):
        error.hint = "keep what it was made from instead, or register() its type"


class PreparedSave:
    """A save that ``Database.publish_each`` makes, with those of other handles. The handle makes no other call until it is settled.

    Attributes:
        publication: for ``publish_each``, whose answer ``settle`` takes.
    """

    def __init__(self, state: SessionHandle, save: Save, prepared: PreparedCommit) -> None:
        self._state, self._save, self._prepared = state, save, prepared
        self.publication = prepared.publication

    def settle(self, answer: Ref | StateError | None) -> int | None:
        """The number of the round; None if it was not saved: the branch had moved, or only ``save`` can tell. Raises as ``save``."""
        commit = self._prepared.settle(answer, SAVED.remains)
        return None if commit is None else self._state.saved(self._save, commit)


def expire(state: Versioned) -> None:
    """Delete the branch of a handle if its time to live is over, unless it has been renewed. Raises ``SessionGoneError`` if it is over."""
    database = state.repository.database

    def check(ref: Ref, head: Commit) -> None:
        if not is_over(database, ref, head):
            raise UnknownRevisionError(state.branch, reason="it was renewed")

    if state.head.id != ROOT_ID and is_over(database, port.handle(state).ref, state.head):
        with suppress(UnknownRevisionError):  # another process was first
            state.repository.branches.remove(state.branch, check, action=EXPIRE)
        raise SessionGoneError
