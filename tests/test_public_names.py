"""What the package exports is decided here, and nowhere by accident."""

from __future__ import annotations

import versioned_state
from versioned_state import errors, storage


def test_public_names():
    assert versioned_state.__all__ == [
        "MISSING",
        "Cache",
        "Change",
        "Commit",
        "Conflict",
        "Diff",
        "Disk",
        "KVStore",
        "Live",
        "Memory",
        "Merge",
        "ObjectInfo",
        "OnMoved",
        "Path",
        "Repository",
        "Sequence",
        "Signer",
        "Skip",
        "Snapshot",
        "State",
        "StateError",
        "Tagged",
        "Versioned",
        "open",
        "open_store",
        "register",
    ]
    assert all(getattr(versioned_state, name).__doc__ for name in versioned_state.__all__)


def test_public_names_of_storage():
    assert storage.__all__ == [
        "S3",
        "Cache",
        "Counting",
        "Counts",
        "Disk",
        "DiskCache",
        "Encrypted",
        "Fault",
        "Faulty",
        "InjectedCrash",
        "InjectedFaultError",
        "KVStore",
        "Memory",
        "Postgres",
        "ReadOnly",
        "Redis",
        "SingleProcessStore",
        "Wrapper",
        "open_store",
    ]


def test_public_errors():
    assert sorted(name for name in vars(errors) if name.endswith("Error")) == [
        "AmbiguousRevisionError",
        "BranchMovedError",
        "CommitInDoubtError",
        "CorruptObjectError",
        "CorruptRefError",
        "CorruptStoreError",
        "FormatError",
        "HandleClosedError",
        "InvalidArgumentError",
        "InvalidPathError",
        "LimitExceededError",
        "MergeConflictError",
        "MissingDependencyError",
        "MissingObjectError",
        "NotAStoreError",
        "PatchConflictError",
        "PickleRefusedError",
        "ReadOnlyError",
        "RefExistsError",
        "StateError",
        "StorageError",
        "StorageFullError",
        "StoreBusyError",
        "StoreClosedError",
        "StoreNotFoundError",
        "TransactionError",
        "UncommittedChangesError",
        "UnknownOutcomeError",
        "UnknownPathError",
        "UnknownRevisionError",
        "UnmergedBranchError",
        "UnreachableStoreError",
        "UnsafeStoreError",
        "UnserializableValueError",
        "WrongKeyError",
    ]
