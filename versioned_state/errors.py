"""Every error that the library raises, beneath all layers.

Grouped by what the caller does next::

    StateError
    ├── the caller retries, or merges
    │   ├── BranchMovedError           the branch was moved by another writer
    │   ├── MergeConflictError         both sides changed the same path
    │   ├── PatchConflictError         the old values of a patch are not there
    │   ├── UncommittedChangesError    the call would lose uncommitted changes
    │   ├── UnmergedBranchError        a branch to delete has commits that are in no other branch or tag
    │   └── EffectInDoubtError         an effect was begun, and nobody knows whether it happened: find out, then settle it
    ├── the caller corrects the input
    │   ├── InvalidArgumentError       also ValueError: a bad name, path, URL or option
    │   │   └── InvalidPathError
    │   ├── UnserializableValueError   also TypeError: a value that cannot be stored
    │   ├── LimitExceededError         also ValueError: too deep, too large, too many
    │   ├── PickleRefusedError         the policy refuses to pickle or unpickle
    │   ├── ReadOnlyError              also TypeError: a write to a snapshot or read-only store
    │   ├── HandleClosedError          a call on a closed handle
    │   ├── TransactionError           a call that cannot be undone, within a transaction
    │   ├── NoTaskError                also RuntimeError: a call that needs a running task
    │   ├── IdempotencyConflictError   a task's key= that was given with other arguments before
    │   ├── EventLoopError             also RuntimeError: a call that needs a running event loop of asyncio
    │   ├── UnknownRevisionError       also KeyError
    │   ├── AmbiguousRevisionError     also KeyError
    │   ├── UnknownPathError           also KeyError: nothing at that path
    │   ├── UnknownEffectError         also KeyError: the ledger has no effect under that key
    │   ├── ErasedResultError          the effect happened, and a purge erased its result
    │   ├── RefExistsError             the branch or tag exists already
    │   └── MissingDependencyError     also ImportError: an extra that is not installed
    └── StorageError                   the store failed; the driver's error is its cause
        ├── StoreClosedError           a call after close()
        ├── StoreBusyError             another process holds the store; try again
        ├── UnreachableStoreError      no connection to the server; try again
        │   └── UnknownOutcomeError    the connection was lost during a write, which was done or was not
        ├── CommitInDoubtError         the store may have the commit or not; the next call finds out
        ├── UnsafeStoreError           the server or file could lose or change data
        ├── StorageFullError           no room; nothing was written
        ├── StoreNotFoundError         there is no store at that place
        ├── NotAStoreError             the place holds something else
        ├── WrongKeyError              an encrypted store that none of the given keys opens
        ├── FormatError                written by a newer release
        └── the store needs repair
            ├── CorruptStoreError      the store's own file is damaged
            ├── CorruptObjectError     bytes that do not match their address
            ├── MissingObjectError     an object that should be there; not a KeyError: missing is not absent
            └── CorruptRefError        a ref that is damaged, or gone although it was created

An error carries its facts as attributes and says what remains. Nothing has changed unless the error says so.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from versioned_state.repository.merging.merge import Conflict, Merge


STAGED: Final = "nothing was committed, and the staged changes are still there"
"""What remains after a commit failed."""


class StateError(Exception):
    """The base of every error of this library.

    Attributes:
        what: what went wrong.
        remains: what the failed call leaves behind, such as "nothing was changed"; may be empty.
        hint: the way out in one line; may be empty. A traceback shows it as a note.
    """

    def __init__(self, what: str, *, remains: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remains = remains
        self._hint = ""
        self.hint = hint

    @property
    def hint(self) -> str:
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        notes = getattr(self, "__notes__", [])
        if self._hint:
            notes.remove(f"hint: {self._hint}")
        self._hint = hint
        if hint:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        # Not Exception's: a KeyError, which some subclasses are as well, shows the repr of its argument.
        return f"{self.what}; {self.remains}" if self.remains else self.what

    def __reduce__(self) -> tuple[object, ...]:
        # Not Exception's, which calls the class with args alone: an error crosses from a worker process to its parent.
        return _restore, (type(self), self.args), self.__dict__


def _restore(cls: type[StateError], args: tuple[object, ...]) -> StateError:
    return cls.__new__(cls, *args)


# The caller retries, or merges.


class BranchMovedError(StateError):
    """The branch was moved by another writer, and the call does not merge."""

    def __init__(
        self, branch: str, *, expected: str | None, actual: str | None, hint: str = "", remains: str = "nothing was changed"
    ) -> None:
        super().__init__(
            f"branch {branch!r} has moved: expected {_short(expected)}, found {_short(actual)}",
            hint=hint or "refresh() takes the new head in; then do it again",
            remains=remains,
        )
        self.branch, self.expected, self.actual = branch, expected, actual


class MergeConflictError(StateError):
    """Both sides changed the same path since their merge base. Nothing was changed.

    ``conflicts`` has the paths with their values in the base, in ours and in theirs, read when asked for. ``merge`` resolves them:
    ``merge.resolve(path, value)`` for each, then ``merge.commit()``.
    """

    def __init__(
        self, branch: str, conflicts: Sequence[Conflict], *, merge: Merge | None = None, remains: str = "nothing was changed"
    ) -> None:
        paths = [str(conflict.path) for conflict in conflicts]
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        appended = next((str(conflict.path) for conflict in conflicts if conflict.both_appended), None)
        way_out = (
            "resolve it: error.merge.resolve(path, value), then error.merge.commit()" if merge else "discard(), or resolve it in a commit()"
        )
        super().__init__(
            f"conflict on branch {branch!r} at {shown}: both sides changed it",
            hint=f"policies={{{appended!r}: 'append'}} keeps the elements of both sides; or {way_out}" if appended else way_out,
            remains=remains,
        )
        self.branch = branch
        self.conflicts = tuple(conflicts)
        self._merge = merge

    def __reduce__(self) -> tuple[object, ...]:
        if self._merge is None:
            return super().__reduce__()
        # A merge belongs to a state of this process: the other side gets the conflicts, and cannot resolve them.
        error = MergeConflictError(self.branch, self.conflicts, remains=self.remains)
        for note in getattr(self, "__notes__", ()):
            if note != f"hint: {self.hint}":
                error.add_note(note)
        return error.__reduce__()

    @property
    def can_resolve(self) -> bool:
        """Whether ``merge`` can resolve the conflicts: not after a transaction, which was rolled back, nor in another process."""
        return self._merge is not None

    @property
    def merge(self) -> Merge:
        """Resolves the conflicts and makes the call again. Raises ``TransactionError`` if it cannot be made again; see ``hint``."""
        if self._merge is None:
            raise TransactionError("this call cannot be made again with resolutions", remains="nothing was changed", hint=self.hint)
        return self._merge


class PatchConflictError(StateError):
    """The old values of a patch are not there. Nothing was changed; ``paths`` are the places."""

    def __init__(self, paths: Sequence[str]) -> None:
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(
            f"the patch does not fit at {shown}: its old values are not there",
            remains="nothing was changed",
            hint="cherry_pick() merges a commit of the same store by path, and aligns lists",
        )
        self.paths = tuple(paths)


class UncommittedChangesError(StateError):
    """A call would move a state to another commit and lose its uncommitted changes. Nothing was changed."""

    def __init__(self, call: str, paths: Sequence[str]) -> None:
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(f"{call} with uncommitted changes: {shown}", remains="nothing was changed", hint="commit() or discard() first")
        self.paths = tuple(paths)


class UnmergedBranchError(StateError):
    """The branch to delete has commits that no other branch or tag has. Nothing was changed."""

    def __init__(self, branch: str, head: str) -> None:
        super().__init__(
            f"branch {branch!r} has commits that no other branch or tag leads to, up to {_short(head)}",
            remains="it was not deleted",
            hint="merge it first, or delete it by force: its reflog keeps them for a while",
        )
        self.branch, self.head = branch, head


class EffectInDoubtError(StateError):
    """An effect was begun, and the ledger does not know whether it happened. Every try raises this until the effect is settled.

    ``key`` is its full key, ``since`` when it was begun, in UTC. ``result`` is the result of the function, if it returned and the ledger
    could not record the result (the cause says why); else None. A result that cannot be pickled stays behind in its process.
    """

    def __init__(self, key: str, since: datetime, *, reason: str = "", result: Any = None) -> None:
        super().__init__(
            f"effect {key!r} is in doubt since {since:%Y-%m-%d %H:%M:%S} UTC: {reason or 'it was begun, and its outcome was not recorded'}",
            remains="it was not repeated" if result is None else "error.result has its result",
            hint="find out whether it happened; then settle_effect(state, key, result), or forget_effect(state, key) if it did not",
        )
        self.key, self.since, self.result = key, since, result

    def __reduce__(self) -> tuple[object, ...]:
        try:
            pickle.dumps(self.result)
        except Exception:  # noqa: BLE001 - whatever a result's own code raises: the error itself has to cross
            return _restore, (type(self), self.args), {**self.__dict__, "result": None}
        return super().__reduce__()


# The caller mends the input.


class InvalidArgumentError(StateError, ValueError):
    """A bad argument: a name, URL or option."""


class InvalidPathError(InvalidArgumentError):
    """A path that does not parse; ``position`` is the offset of the first bad character."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(f"bad path {text!r} at {position}: {reason}", hint='for example: messages[17].content, prefs["a.b"]')
        self.text, self.position = text, position


class UnserializableValueError(StateError, TypeError):
    """A value that cannot be stored; ``task`` names the task that would have committed it, if it was one."""

    task = ""

    def __init__(self, path: str, type_name: str, reason: str, *, remains: str = "nothing was changed") -> None:
        super().__init__(
            f"cannot store {path} of type {type_name}: {reason}",
            hint="keep what it was made from instead, register() its type, or commit(skip_unserializable=True)",
            remains=remains,
        )
        self.path, self.type_name, self.reason = path, type_name, reason


class LimitExceededError(StateError, ValueError):
    """A value or a stored object beyond a limit of the format: depth, size or count."""

    def __init__(self, what: str, *, limit: int, path: str = "") -> None:
        where = f" at {path}" if path else ""
        super().__init__(f"{what}{where} is beyond the limit of {limit}")
        self.limit = limit
        self.path = path


class PickleRefusedError(StateError):
    """The ``pickle=`` policy refuses to write or to read a value that needs pickling."""

    def __init__(self, what: str, *, policy: str, path: str = "", type_name: str = "", remains: str = "", hint: str = "") -> None:
        super().__init__(what, remains=remains, hint=hint)
        self.policy = policy
        self.path = path
        self.type_name = type_name


class ReadOnlyError(StateError, TypeError):
    """A write to a snapshot, or to a store that was opened for reading."""


class HandleClosedError(StateError):
    """A call on a state, snapshot or repository after its ``close()``."""


class TransactionError(StateError):
    """A call within a transaction that the transaction could not undo; nothing was changed."""


class NoTaskError(StateError, RuntimeError):
    """A call that needs a running task, outside of any."""


class IdempotencyConflictError(StateError):
    """A task was called with a ``key=`` under which a call with other arguments has committed."""


class EventLoopError(StateError, RuntimeError):
    """A call of ``aio`` where no event loop of asyncio runs, or whose event loop stopped before the call ended."""


class UnknownRevisionError(StateError, KeyError):
    """No commit has that name; ``near`` holds similar refs and ids.

    ``deleted`` is ``"branch"`` or ``"tag"`` if one of that name was deleted, which its reflog can bring back; otherwise it is empty.
    ``is_empty`` says whether the repository has no commits at all.
    """

    def __init__(self, revision: str, *, near: Sequence[str] = (), reason: str = "", deleted: str = "", is_empty: bool = False) -> None:
        way_back = f"create({revision!r}, at={revision + '@{1}'!r}) brings it back" if deleted else ""
        super().__init__(
            f"unknown revision {revision!r}" + (f": {reason}" if reason else ""),
            hint="did you mean " + ", ".join(near) + "?" if near else way_back,
        )
        self.revision = revision
        self.near = tuple(near)
        self.deleted = deleted
        self.is_empty = is_empty


class AmbiguousRevisionError(StateError, KeyError):
    """An abbreviated id that several objects share; ``candidates`` holds up to 8 of them."""

    def __init__(self, revision: str, candidates: Sequence[str]) -> None:
        super().__init__(
            f"revision {revision!r} is ambiguous: {', '.join(candidates)}",
            hint="give more digits of the id",
        )
        self.revision = revision
        self.candidates = tuple(candidates)


class UnknownPathError(StateError, KeyError):
    """Nothing at that path in that revision."""

    def __init__(self, path: str, *, at: str = "", hint: str = "") -> None:
        super().__init__(f"nothing at {path}" + (f" in {at}" if at else ""), hint=hint)
        self.path = path


class UnknownEffectError(StateError, KeyError):
    """The ledger has no effect under that key. Nothing was changed."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no effect {key!r}", remains="nothing was changed", hint="effects(state) lists the keys")
        self.key = key


class ErasedResultError(StateError):
    """The effect happened, and a purge erased its result. It was not repeated."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"effect {key!r} happened, and a purge erased its result",
            remains="it was not repeated",
            hint="settle_effect(state, key, result) records another result; forget_effect(state, key) lets it happen again",
        )
        self.key = key


class RefExistsError(StateError):
    """The branch or tag to create exists already; it was not moved."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} exists already", remains="it was not changed")
        self.kind = kind
        self.name = name


class MissingDependencyError(StateError, ImportError):
    """A package that an optional part needs is not installed; ``extra`` is the extra of this library that brings it."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} needs a package that is not installed", hint=f"pip install 'versioned-state[{extra}]'")
        self.extra = extra


# The store failed.


class StorageError(StateError):
    """The store could not do what was asked; the driver's error is ``__cause__``."""


class StoreClosedError(StorageError):
    """A call on a store after ``close()``."""


class StoreBusyError(StorageError):
    """Another process kept the store locked for longer than the timeout; nothing was written."""


class UnreachableStoreError(StorageError):
    """The server cannot be reached, or did not answer in time. Unless it is an ``UnknownOutcomeError``, nothing was written."""


class UnknownOutcomeError(UnreachableStoreError):
    """The connection was lost, or timed out, while a write was under way: all of it was done, or none.

    The server may even carry it out later. A commit finds out by itself whether it was done.
    """


class CommitInDoubtError(StorageError):
    """The store failed during a commit, and cannot be asked whether it has the commit; ``commit`` is the id that it would have.

    The next call on the state (``refresh()``, or ``commit()`` again) finds out before it does anything else, so that nothing is
    committed twice. No other error of a commit leaves that open.
    """

    def __init__(self, commit: str) -> None:
        super().__init__(
            f"the store failed during commit {_short(commit)} and cannot be asked whether the commit was made",
            hint="refresh(), or commit() again, once the store can be reached: either finds out whether the commit was made",
            remains="the staged changes are still there",
        )
        self.commit = commit


class UnsafeStoreError(StorageError):
    """The server or file could lose or change data, because of its settings or of foreign content. Nothing was written."""


class StorageFullError(StorageError):
    """No room: the disk is full, or the store's own size limit is reached. Nothing was written."""

    def __init__(self, what: str, *, limit: int | None = None, remains: str = "", hint: str = "") -> None:
        super().__init__(what, remains=remains, hint=hint)
        self.limit = limit


class StoreNotFoundError(StorageError):
    """There is no store at that place, and the call does not create one."""


class NotAStoreError(StorageError):
    """The place does not hold a store of this library; it was not touched."""


class WrongKeyError(StorageError):
    """The store is encrypted with a key that was not given. Nothing was changed."""


class FormatError(StorageError):
    """The store was written by a newer release, in a format that this one does not know."""

    def __init__(self, found: int, supported: int) -> None:
        super().__init__(
            f"the store has format version {found}; this release reads up to {supported}",
            remains="nothing was changed",
            hint="upgrade versioned-state",
        )
        self.found = found
        self.supported = supported


class CorruptStoreError(StorageError):
    """The file that holds the store is damaged, so that its driver cannot read it."""


class CorruptObjectError(StorageError):
    """Stored bytes that do not match their address, or do not decode as what they claim to be."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(
            f"object {id} is corrupt: {reason}",
            hint="vstate status shows the store; restore the object from a backup or another copy",
        )
        self.id = id
        self.reason = reason


class MissingObjectError(StorageError):
    """An object that a commit, a tree or a ref names is not in the store.

    It is not a ``KeyError``, which ``get`` with a default would take for a key that was never there.
    """

    def __init__(self, id: str, kind: str = "object") -> None:
        super().__init__(f"{kind} {id} is missing from the store", hint="restore it from a backup or another copy")
        self.id = id
        self.kind = kind


class CorruptRefError(StorageError):
    """A ref whose record is damaged, or missing although the ref was created."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"ref {name!r} is corrupt: {reason}", hint="its commits are still in the store; restore the ref from a backup")
        self.name = name
        self.reason = reason


def _short(id: str | None) -> str:
    return "nothing" if id is None else id[:12]
