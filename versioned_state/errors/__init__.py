"""Every error that the library raises, beneath all layers.

Grouped by what the caller does next::

    StateError
    ├── the caller retries, or merges
    │   ├── BranchMovedError           the branch was moved by another writer
    │   ├── MergeConflictError         both sides changed the same path
    │   ├── PatchConflictError         the old values of a patch are not there
    │   ├── FencedError                a lock was taken over by another writer
    │   ├── LockTimeoutError           also TimeoutError: others have the lock
    │   ├── UncommittedChangesError    the call would lose uncommitted changes
    │   │   └── DirtyWorkspaceError    the call would overwrite files whose content no commit has
    │   ├── UnmergedBranchError        a branch to delete has commits that are in no other branch or tag
    │   └── EffectInDoubtError         an effect was begun, and its outcome is unknown: find out, then settle it
    ├── the caller corrects the input
    │   ├── InvalidArgumentError       also ValueError: a bad name, path, URL or option
    │   │   └── InvalidPathError
    │   ├── InvalidTransitionError     also ValueError: a state machine has no such transition
    │   ├── ReplayMismatchError        the events of a state, replayed, do not give the value that was kept
    │   ├── UnserializableValueError   also TypeError: a value that cannot be stored
    │   ├── LimitExceededError         also ValueError: too deep, too large, too many
    │   │   └── QuotaExceededError     more than a service allows a user
    │   ├── PickleRefusedError         the policy refuses to pickle or unpickle
    │   ├── SchemaError                also ValueError: a value that breaks the schema of its state
    │   ├── MigrationError             a migration raised
    │   ├── NewerVersionError          a state at a newer version than the migrations lead to
    │   ├── ReadOnlyError              also TypeError: a write to a snapshot or read-only store
    │   ├── HandleClosedError          a call on a closed handle
    │   ├── TransactionError           a call that cannot be undone, within a transaction
    │   ├── NoTaskError                also RuntimeError: a call that needs a running task
    │   ├── EmbedderError              an embedder failed, or its vectors have another shape
    │   ├── ServiceNotStartedError     also RuntimeError: a call on a service before start() or after stop()
    │   ├── SandboxError               a sandbox cannot be started, or its folder not be used
    │   │   └── SandboxFileError       also OSError: a file of a sandbox cannot be read or written
    │   ├── SessionNotFoundError       also KeyError: a session that was deleted, or never created
    │   ├── AccessDeniedError          a server refuses a token, or a request with that token
    │   ├── IdempotencyConflictError   a key of a task or a request that was used with other arguments before
    │   ├── EventLoopError             also RuntimeError: a call that needs a running event loop of asyncio
    │   ├── UnknownRevisionError       also KeyError
    │   ├── AmbiguousRevisionError     also KeyError
    │   ├── UnknownPathError           also KeyError: nothing at that path
    │   ├── WorkspaceError             a folder that cannot be read or written, or a path that must not be in it
    │   ├── UnknownEffectError         also KeyError: the ledger has no effect under that key
    │   ├── UnknownNoteError           also KeyError: the commit has no note
    │   ├── UnknownRecordError         also KeyError: there is no named record of that name
    │   ├── ErasedResultError          the effect happened, and a purge erased its result
    │   ├── RefExistsError             the branch or tag exists already
    │   ├── UnsupportedByStoreError    a call that this kind of store cannot carry out
    │   └── MissingDependencyError     also ImportError: an extra that is not installed
    └── StorageError                   the store failed; the driver's error is its cause
        ├── StoreClosedError           a call after close()
        ├── StoreBusyError             another process holds the store; try again
        ├── UnreachableStoreError      no connection to the server; try again
        │   └── UnknownOutcomeError    the connection was lost during a write, which was done or was not
        ├── CommitInDoubtError         the store may have the commit or not; the next call finds out
        ├── UnsafeStoreError           the server or file could lose or change data
        ├── UnfinishedPurgeError       a purge failed after it had begun to erase: run it again
        ├── StorageFullError           no room; nothing was written
        ├── SessionFileError       also OSError: a file of a JSONSession could not be written or read
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

from .bad_input import (
    AccessDeniedError as AccessDeniedError,
    AmbiguousRevisionError as AmbiguousRevisionError,
    EmbedderError as EmbedderError,
    ErasedResultError as ErasedResultError,
    EventLoopError as EventLoopError,
    HandleClosedError as HandleClosedError,
    IdempotencyConflictError as IdempotencyConflictError,
    InvalidArgumentError as InvalidArgumentError,
    InvalidPathError as InvalidPathError,
    InvalidTransitionError as InvalidTransitionError,
    LimitExceededError as LimitExceededError,
    MigrationError as MigrationError,
    MissingDependencyError as MissingDependencyError,
    NewerVersionError as NewerVersionError,
    NoTaskError as NoTaskError,
    PickleRefusedError as PickleRefusedError,
    QuotaExceededError as QuotaExceededError,
    ReadOnlyError as ReadOnlyError,
    RefExistsError as RefExistsError,
    ReplayMismatchError as ReplayMismatchError,
    SandboxError as SandboxError,
    SandboxFileError as SandboxFileError,
    SchemaError as SchemaError,
    ServiceNotStartedError as ServiceNotStartedError,
    SessionNotFoundError as SessionNotFoundError,
    TransactionError as TransactionError,
    UnknownEffectError as UnknownEffectError,
    UnknownNoteError as UnknownNoteError,
    UnknownPathError as UnknownPathError,
    UnknownRecordError as UnknownRecordError,
    UnknownRevisionError as UnknownRevisionError,
    UnserializableValueError as UnserializableValueError,
    UnsupportedByStoreError as UnsupportedByStoreError,
    WorkspaceError as WorkspaceError,
)
from .base import STAGED as STAGED, StateError as StateError
from .retry import (
    BranchMovedError as BranchMovedError,
    DirtyWorkspaceError as DirtyWorkspaceError,
    EffectInDoubtError as EffectInDoubtError,
    FencedError as FencedError,
    LockTimeoutError as LockTimeoutError,
    MergeConflictError as MergeConflictError,
    PatchConflictError as PatchConflictError,
    UncommittedChangesError as UncommittedChangesError,
    UnmergedBranchError as UnmergedBranchError,
)
from .store import (
    CommitInDoubtError as CommitInDoubtError,
    CorruptObjectError as CorruptObjectError,
    CorruptRefError as CorruptRefError,
    CorruptStoreError as CorruptStoreError,
    FormatError as FormatError,
    MissingObjectError as MissingObjectError,
    NotAStoreError as NotAStoreError,
    SessionFileError as SessionFileError,
    StorageError as StorageError,
    StorageFullError as StorageFullError,
    StoreBusyError as StoreBusyError,
    StoreClosedError as StoreClosedError,
    StoreNotFoundError as StoreNotFoundError,
    UnfinishedPurgeError as UnfinishedPurgeError,
    UnknownOutcomeError as UnknownOutcomeError,
    UnreachableStoreError as UnreachableStoreError,
    UnsafeStoreError as UnsafeStoreError,
    WrongKeyError as WrongKeyError,
)

_classes = [name for name, each in vars().items() if isinstance(each, type)]
__all__ = ["STAGED", *_classes]  # noqa: PLE0604 - the names of classes are strings

for _each in _classes:
    globals()[_each].__module__ = __name__  # a traceback and a pickle say the public name
