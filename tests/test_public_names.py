"""What the package exports is decided here, and nowhere by accident."""

from __future__ import annotations

import ast
import asyncio
import builtins
import collections
import collections.abc
import importlib
import inspect
import pathlib
import pkgutil
import subprocess
import sys
import typing
from typing import Any

import pytest

import versioned_state
from versioned_state import errors, storage

pytestmark = pytest.mark.every_case


def test_public_names():
    assert versioned_state.__all__ == [
        "MISSING",
        "ActionEvent",
        "Agent",
        "Bounded",
        "Cache",
        "Call",
        "Change",
        "ClarifyEvent",
        "Commit",
        "Conflict",
        "Diff",
        "Disk",
        "EffectRecord",
        "ErrorEvent",
        "EventSourced",
        "FailEvent",
        "Happened",
        "KVStore",
        "Live",
        "Memory",
        "Merge",
        "Migrations",
        "ObjectInfo",
        "OnMoved",
        "Outcome",
        "OutputEvent",
        "Repository",
        "RolledBack",
        "Schema",
        "Signer",
        "Skip",
        "Snapshot",
        "State",
        "StateError",
        "StateMachine",
        "StatePath",
        "StateSequence",
        "SuccessEvent",
        "Tagged",
        "TaskClarify",
        "TaskFailed",
        "TaskStartEvent",
        "TransitionEvent",
        "Versioned",
        "Workspace",
        "branch_name",
        "checkpoint",
        "current_state",
        "effect",
        "effects",
        "emit",
        "events",
        "explain",
        "files_of",
        "forget_effect",
        "is_data",
        "open_async",
        "open_store",
        "parallel",
        "register",
        "register_module",
        "roll_back_effects",
        "settle_effect",
        "task",
        "view",
    ]
    assert all(getattr(versioned_state, name).__doc__ for name in versioned_state.__all__)


def test_a_star_import_replaces_no_name_that_everybody_uses():
    """No builtin, and nothing that the standard modules which an agent's code imports by name call the same."""
    well_known = set(dir(builtins)).union(
        *(module.__all__ for module in (asyncio, collections, collections.abc, pathlib, typing))
    )
    assert not well_known.intersection(versioned_state.__all__)
    names: dict[str, Any] = {}
    exec("from versioned_state import *", names)
    assert "open" not in names
    assert sorted(set(names) - {"__builtins__"}) == sorted(versioned_state.__all__)
    assert callable(versioned_state.open)


def test_a_public_name_loads_its_module_when_it_is_used():
    script = (
        "import sys, versioned_state\n"
        "loaded = [name for name in sys.modules if name.startswith('versioned_state.')]\nprint(loaded)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['versioned_state.lazy']\n"
    assert versioned_state.errors is errors
    assert set(versioned_state.__all__) <= set(dir(versioned_state))
    assert set(storage.__all__) <= set(dir(storage))
    assert not {"TYPE_CHECKING", "annotations", "lazy_names"} & {*dir(versioned_state), *dir(storage)}
    assert {"open", "errors"} <= set(dir(versioned_state))
    with pytest.raises(AttributeError, match="module 'versioned_state' has no attribute 'nothing'"):
        versioned_state.nothing  # type: ignore[attr-defined] # noqa: B018


def test_public_names_of_storage():
    assert storage.__all__ == [
        "S3",
        "Backend",
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
        "Tier",
        "Tiered",
        "Wrapper",
        "open_store",
    ]


def test_public_errors():
    assert sorted(name for name in vars(errors) if name.endswith("Error")) == [
        "AccessDeniedError",
        "AmbiguousRevisionError",
        "BranchMovedError",
        "CommitInDoubtError",
        "CorruptObjectError",
        "CorruptRefError",
        "CorruptStoreError",
        "DirtyWorkspaceError",
        "EffectInDoubtError",
        "EmbedderError",
        "ErasedResultError",
        "EventLoopError",
        "FencedError",
        "FormatError",
        "HandleClosedError",
        "IdempotencyConflictError",
        "InvalidArgumentError",
        "InvalidPathError",
        "InvalidTransitionError",
        "LimitExceededError",
        "LockTimeoutError",
        "MergeConflictError",
        "MigrationError",
        "MissingDependencyError",
        "MissingObjectError",
        "NewerVersionError",
        "NoTaskError",
        "NotAStoreError",
        "PatchConflictError",
        "PickleRefusedError",
        "QuotaExceededError",
        "ReadOnlyError",
        "RefExistsError",
        "ReplayMismatchError",
        "SandboxError",
        "SandboxFileError",
        "SchemaError",
        "ServiceNotStartedError",
        "SessionFileError",
        "SessionNotFoundError",
        "StateError",
        "StorageError",
        "StorageFullError",
        "StoreBusyError",
        "StoreClosedError",
        "StoreNotFoundError",
        "TransactionError",
        "UncommittedChangesError",
        "UnfinishedPurgeError",
        "UnknownEffectError",
        "UnknownNoteError",
        "UnknownOutcomeError",
        "UnknownPathError",
        "UnknownRecordError",
        "UnknownRevisionError",
        "UnmergedBranchError",
        "UnreachableStoreError",
        "UnsafeStoreError",
        "UnserializableValueError",
        "UnsupportedByStoreError",
        "WorkspaceError",
        "WrongKeyError",
    ]


def test_type_checkers_see_the_names_that_are_there():
    """What a package imports under TYPE_CHECKING is what it gives at run time."""
    for name in packages():
        package = importlib.import_module(name)
        tree = ast.parse(inspect.getsource(package))
        seen = {
            alias.name: f"{node.module}"
            for block in tree.body
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname == alias.name
        }
        if "lazy_names" not in vars(package):
            continue
        assert set(package.__all__) <= seen.keys() <= {*package.__all__, "open"}, name
        for each, module in seen.items():
            assert getattr(package, each) is getattr(importlib.import_module(module), each), f"{name}.{each}"


def packages() -> list[str]:
    found = pkgutil.walk_packages(versioned_state.__path__, "versioned_state.")
    return [
        "versioned_state",
        *(each.name for each in found if each.ispkg and not each.name.startswith("versioned_state.storage.testing")),
    ]


@pytest.mark.parametrize("name", packages())
def test_every_name_that_a_package_exports_is_there(name: str) -> None:
    package = importlib.import_module(name)
    for each in getattr(package, "__all__", ()):
        assert hasattr(package, each), f"{name}.{each}"
