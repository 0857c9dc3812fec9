"""``SessionHandle``: a handle that saves whole dicts, each compared with the last one by fingerprints. Layer: services.

::

    encoded    the dict as cells, and the new objects; costs what changed     on the event loop, if it needs no store
    completed  long new values, of which the loop took copies                 on a thread
    saved      the round on the head, in one batch                            on a thread
               └── the branch had moved: our cells on its new head, as the round that is next by then

The handle keeps the cells and fingerprints of the dict. The dict itself belongs to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from versioned_state.agents.modules.containers import captured
from versioned_state.errors import (
    BranchMovedError,
    QuotaExceededError,
    StateError,
    UnknownRevisionError,
    UnserializableValueError,
)
from versioned_state.objects.store import Staging
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.refs.reflog import EXPIRE
from versioned_state.repository.repository import Repository
from versioned_state.services.agent_state.reading import has_files
from versioned_state.services.agent_state.rounds import LARGEST, NO_ROUNDS, Rounds, rounds_of
from versioned_state.services.calls.heads import is_over
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.state.aio.caller import StoreNeeded
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.contents import ContentHandle
from versioned_state.state.branch.merging import Resolving
from versioned_state.state.branch.publisher import PreparedCommit, Proposal, publish
from versioned_state.state.branch.summary import summary_of
from versioned_state.state.worktree.entries import UNSTORABLE, Repacking, Staged, Unstorable
from versioned_state.values.detection.baselines import Baseline, Elements, Entries, Pinned
from versioned_state.values.keys import user_key
from versioned_state.values.trees.edit import edit_map

if TYPE_CHECKING:
    from versioned_state.repository.database import Publication

_TEXT: Final = 1 << 18
_PARTS: Final = 1 << 13
"""Characters or bytes, and elements or entries, from which a new value is long: encoding it takes some milliseconds.

Capturing a text costs nothing. A copy of lists and dicts costs about half as much as encoding them, so only those that
would block the event loop for longer are copied.
"""

SAVED: Final = Resolving(remains="nothing was saved")


class SessionGoneError(Exception):
    """The session was deleted since the handle was opened, or its time to live is over: it needs a new handle."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session, and its part in the meta of commits."""

    user_id: str
    session_id: str
    has_plain_name: bool
    """Whether the name of the branch gives the id."""

    def meta(self, **more: Any) -> dict[str, Any]:
        """Return the meta of a commit."""
        return {"user_id": self.user_id, "session_id": self.session_id, **more}

    def named(self, rounds: Rounds) -> Rounds:
        """Return the rounds, with the session's id if the name of the branch does not give it."""
        return rounds if self.has_plain_name else replace(rounds, session_id=self.session_id)


@dataclass(slots=True)
class Encoded:
    """A state as cells.

    Attributes:
        cells: by root key, the cell and the baseline of its value.
        changed: the keys that differ from the last state, removed ones included.
        staging: the new objects.
        late: by root key, the captured values that ``complete`` encodes.
    """

    cells: dict[bytes, tuple[bytes, Baseline | None]]
    changed: list[bytes]
    staging: Staging
    late: dict[bytes, Any]

    def equals(self, other: Encoded) -> bool:
        """Return whether the other one encodes the same state."""
        return {key: cell for key, (cell, _) in self.cells.items()} == {
            key: cell for key, (cell, _) in other.cells.items()
        }


@dataclass(slots=True)
class Save:
    """A round that is being saved.

    Attributes:
        number: the number of the round, or None for the one after the highest.
        max_rounds: how many rounds the session may have.
        staged: the root and the new objects of the commit.
        rounds: the rounds of the session after the commit that was written last.
    """

    session: Session
    encoded: Encoded
    number: int | None
    max_rounds: int | None
    staged: Staged
    rounds: Rounds = NO_ROUNDS


class SessionHandle(ContentHandle):
    """A handle on a session's branch, whose commits of a whole state are rounds. It loads no values."""

    def __init__(self, repository: Repository, branch: str) -> None:
        super().__init__(repository, branch)
        self._encoder = self._handle.worktree.encoder
        self._encoder.fingerprinter.keeps_marks = False  # marks would keep the texts of a state that nobody else keeps
        self._nodes = self._encoder.nodes
        self._rounds: tuple[Commit, Rounds] | None = None

    @property
    def is_warm(self) -> bool:
        """Whether the next state is compared with one that was saved through this handle."""
        return bool(self._cells)

    def encoded(self, state: Mapping[str, Any], *, sealed: bool = False, anew: bool = False) -> Encoded:
        """Encode a state. The handle does not change, and keeps nothing of the state.

        Args:
            sealed: raise ``StoreNeeded`` instead of reading from the store, and leave long new values to ``complete``.
            anew: do not rely on the last state, whose objects may be gone.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value cannot be stored.
        """
        handle, encoder = self._handle, self._encoder
        staging = handle.worktree.new_staging(flush=not sealed)
        before = {} if anew else self._cells
        if anew:
            staging.distrust()
        encoded = Encoded({}, [], staging, {})
        handle.objects.is_sealed = sealed
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
            handle.objects.is_sealed = False
        encoded.changed += [key for key in before if key not in encoded.cells and key not in encoded.late]
        return encoded

    def complete(self, encoded: Encoded) -> None:
        """Encode the values that were only captured. Raises as ``encoded``."""
        encoder = self._encoder
        self._nodes.bind(encoded.staging)
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

    def prepare(
        self, session: Session, encoded: Encoded, number: int | None, *, max_rounds: int | None
    ) -> PreparedSave | None:
        """Begin to save an encoded state.

        Returns None, with nothing changed, if the store must be read first or an error is likely.
        """
        handle = self._handle
        head = handle.head
        if head != self._content_of or is_over(handle.repository.database, handle.ref, head) or not handle.is_at_rest:
            return None
        # without a round it is not counted as a session
        if self._rounds is None or self._rounds[0] != head or not self._rounds[1]:
            return None
        save = self._begun(session, encoded, number, max_rounds)
        handle.objects.is_sealed = True
        try:
            prepared = PreparedCommit(self._proposal(save))
        except (QuotaExceededError, StoreNeeded):
            return None
        finally:
            handle.objects.is_sealed = False
        return PreparedSave(self, save, prepared)

    def save(self, session: Session, encoded: Encoded, number: int | None, *, max_rounds: int | None = None) -> int:
        """Commit an encoded state as a round, by default the one after the highest. Returns its number.

        Raises:
            QuotaExceededError: the session has as many rounds as it may have.
            SessionGoneError: the session is gone. Nothing was saved.
            StorageError: as ``commit``.
        """
        handle = self._handle
        if handle.head.id != ROOT_ID and is_over(handle.repository.database, handle.ref, handle.head):
            self._end()
        save = self._begun(session, encoded, number, max_rounds)
        try:
            for attempt in range(2):
                try:
                    commit = publish((self._proposal(save),), OnMoved.REPLACE, SAVED)
                    break
                except QuotaExceededError:
                    if attempt:
                        raise
                    handle.refresh(SAVED)  # there were too many rounds in the last head that this handle read
        except BranchMovedError:
            raise SessionGoneError from None
        return self.saved(save, commit)

    def _begun(self, session: Session, encoded: Encoded, number: int | None, max_rounds: int | None) -> Save:
        staged = Staged(self._handle.worktree.tree, encoded.staging, {}, {}, [], repacking=Repacking((), []))
        return Save(session, encoded, number, max_rounds, staged)

    def _proposal(self, save: Save) -> Proposal:
        handle, tree = self._handle, save.staged.tree
        return Proposal(
            handle,
            save.staged,
            lambda _, parent: self._written(save, parent),
            handle.ref,
            handle.head,
            tree,
            tree,
            allow_empty=True,
        )

    def _written(self, save: Save, parent: Commit) -> Commit:
        """Stage the commit of a save on a head. Raises ``QuotaExceededError``."""
        self._nodes.bind(save.encoded.staging)
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
        return self._handle.repository.database.write_commit(
            tree,
            (parent,),
            staging=save.encoded.staging,
            message=summary_of(changes),
            meta=self._handle.stamped(save.session.meta(round=chosen)),
        )

    def saved(self, save: Save, commit: Commit) -> int:
        """Record that the branch has the commit of a save. Returns the number of the round."""
        self._cells, self._content_of, self._rounds = save.encoded.cells, commit, (commit, save.rounds)
        assert save.rounds.current is not None
        return save.rounds.current

    def _rounds_at(self, commit: Commit) -> Rounds:
        if self._rounds is None or self._rounds[0] != commit:
            self._rounds = commit, rounds_of(self._nodes, commit.tree)
        return self._rounds[1]

    def _changes(self, encoded: Encoded, parent: Commit) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Return the cells before and after of the keys in which a state differs from a commit."""
        if parent == self._content_of:
            before, cells = self._cells, encoded.cells
            return {
                key: (before[key][0] if key in before else None, cells[key][0] if key in cells else None)
                for key in encoded.changed
            }
        theirs = self._stored(parent.tree)
        changes: dict[bytes, tuple[bytes | None, bytes | None]] = {}
        for key, (cell, _) in encoded.cells.items():
            old = theirs.pop(key, None)
            if old != cell:
                changes[key] = old, cell
        if user_key(FILES_KEY) in theirs and has_files(self._nodes, parent.tree):
            del theirs[user_key(FILES_KEY)]
        changes.update((key, (old, None)) for key, old in theirs.items())
        return changes

    def _end(self) -> None:
        """Delete the branch and raise ``SessionGoneError``, if its time to live is over."""
        try:
            self._handle.refresh(SAVED)
        except BranchMovedError:
            raise SessionGoneError from None
        expire(self._handle)


def _is_long_and_new(value: Any, base: Baseline | None) -> bool:
    """Return whether encoding a value would block the event loop for long."""
    if base is None:
        return is_long(value)
    if isinstance(base, Elements | Entries):
        return type(value) is base.type and is_long(value, base.tree.count)
    return is_long(value) and not (isinstance(base, Pinned) and value is base.value)


def is_long(value: Any, known: int = 0) -> bool:
    """Return whether a new value takes long to encode, by its length and the values of dicts.

    Args:
        known: how many parts of the value are not new.
    """
    parts = 0
    waiting = [value]
    for each in waiting:  # no recursion: a dict may contain itself
        cls = type(each)
        if cls is str or cls is bytes:
            if len(each) >= _TEXT:
                return True
        elif cls is list or cls is dict:
            if len(each) - known >= _PARTS:
                return True
            if cls is dict and not known:
                parts += len(each)
                if parts >= _PARTS:
                    return True
                waiting += each.values()
    return False


def _complete_error(error: Unstorable) -> None:
    error.remains = SAVED.remains
    if isinstance(error, UnserializableValueError):
        error.hint = "keep what it was made from instead, or register() its type"


class PreparedSave:
    """A save that is sent with those of other handles. Until it is settled, the handle makes no other call.

    Attributes:
        publication: for ``publish_each``, whose answer is the argument of ``settle``.
    """

    def __init__(self, state: SessionHandle, save: Save, prepared: PreparedCommit) -> None:
        self._state, self._save, self._prepared = state, save, prepared
        self.publication: Publication = prepared.publication

    def settle(self, answer: Ref | StateError | None) -> int | None:
        """Return the number of the round, or None if the branch had moved, or if only ``save`` can find out.

        Raises as ``save``.
        """
        commit = self._prepared.settle(answer, SAVED.remains)
        return None if commit is None else self._state.saved(self._save, commit)


def expire(handle: BranchHandle) -> None:
    """Delete the branch of a handle if its time to live is over, unless it was renewed.

    Raises ``SessionGoneError`` if it is over.
    """
    repository = handle.repository
    database = repository.database

    def check(ref: Ref, head: Commit) -> None:
        if not is_over(database, ref, head):
            raise UnknownRevisionError(handle.branch, reason="it was renewed")

    if handle.head.id != ROOT_ID and is_over(database, handle.ref, handle.head):
        with suppress(UnknownRevisionError):  # another process was first
            repository.branches.remove(handle.branch, check, action=EXPIRE)
        raise SessionGoneError
