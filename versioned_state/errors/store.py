"""The errors of a store: it failed, or its content is damaged."""

from __future__ import annotations

from typing import Any

from .base import UNCHANGED, StateError, short


class StorageError(StateError):
    """The store could not carry out a call. The driver's error is ``__cause__``."""


class StoreClosedError(StorageError):
    """A call on a store after ``close()``."""

    def __init__(
        self, what: str = "the store is closed", *, remains: str | None = None, hint: str = "open it again"
    ) -> None:
        super().__init__(what, remains=remains, hint=hint)


class StoreBusyError(StorageError, remains=UNCHANGED):
    """Another process kept the store locked for longer than the timeout. Nothing was written."""


class UnreachableStoreError(StorageError):
    """The server cannot be reached, or did not answer in time.

    Unless it is an ``UnknownOutcomeError``, nothing was written.
    """


class UnknownOutcomeError(UnreachableStoreError):
    """The connection was lost, or timed out, while a write was under way: all of it was done, or none.

    The server may even carry it out later. A commit finds out by itself whether it was done. From a ``Disk`` with
    ``durability="power"``: the disk failed to sync the write, which was done, and which a loss of power may undo.
    """


class CommitInDoubtError(StorageError):
    """The store failed during a commit, and it is not known whether it has the commit.

    ``commit`` is the id of that commit.

    The next call on the state (``refresh()``, or ``commit()`` again) finds out before it does anything else, so that
    nothing is committed twice. No other error of a commit leaves that open.
    """

    def __init__(self, commit: str) -> None:
        super().__init__(
            f"the store failed during commit {short(commit)} and cannot be asked whether the commit was made",
            hint="refresh(), or commit() again, once the store can be reached: "
            "either finds out whether the commit was made",
            remains="the staged changes are still there",
        )
        self.commit = commit


class UnsafeStoreError(StorageError, remains=UNCHANGED):
    """The server or file could lose or change data, because of its settings or of foreign content.

    Nothing was written.
    """


class UnfinishedPurgeError(StorageError):
    """A purge failed after it had begun to erase.

    ``remains`` says what may still be in the store. The failure is ``__cause__``.

    Attributes:
        report: the ``PurgeReport`` of what it has erased, or was erasing when it failed.
    """

    def __init__(self, reason: str, *, report: Any, remains: str) -> None:
        super().__init__(
            f"the purge has not finished: {reason}",
            remains=remains,
            hint="run the same purge again: it does the rest, and reports all of it",
        )
        self.report = report


class StorageFullError(StorageError):
    """No room: the disk is full, or the store's own size limit is reached. Nothing was written."""

    def __init__(self, what: str, *, limit: int | None = None, remains: str | None = None, hint: str = "") -> None:
        super().__init__(what, remains=remains, hint=hint)
        self.limit = limit


class SessionFileError(StorageError, OSError):
    """A file of a ``JSONSession`` could not be written or read.

    The file is unchanged. ``errno`` is that of the cause.
    """

    def __init__(self, what: str, *, errno: int | None = None, remains: str | None = None, hint: str = "") -> None:
        super().__init__(what, remains=remains, hint=hint)
        self.errno = errno


class StoreNotFoundError(StorageError):
    """There is no store at that place, and the call does not create one."""


class NotAStoreError(StorageError, remains="it was not touched"):
    """The place does not hold a store of this library. It was not touched."""


class WrongKeyError(StorageError, remains=UNCHANGED):
    """The store is encrypted with a key that was not given. Nothing was changed."""


class FormatError(StorageError, remains=UNCHANGED):
    """The store was written by a newer release, in a format that this one cannot read."""

    def __init__(self, found: int, supported: int) -> None:
        super().__init__(
            f"the store has format version {found}; this release reads up to {supported}",
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
        super().__init__(
            f"{kind} {id} is missing from the store",
            hint="if purge or gc erased it, refresh() the state that is at an old commit; "
            "else restore it from a backup or another copy",
        )
        self.id = id
        self.kind = kind


class CorruptRefError(StorageError):
    """A ref whose record is damaged, or missing although the ref was created."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"ref {name!r} is corrupt: {reason}",
            hint="its commits are still in the store; restore the ref from a backup",
        )
        self.name = name
        self.reason = reason
