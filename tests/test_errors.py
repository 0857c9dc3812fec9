"""Every error crosses from one process to another with all that it says."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from versioned_state import MISSING, Memory, Versioned, errors
from versioned_state.errors import MergeConflictError, StateError, StoreClosedError, TransactionError

pytestmark = pytest.mark.every_case

CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, StateError)]

ARGUMENTS: dict[str, Callable[[Any], StateError]] = {
    "BranchMovedError": lambda cls: cls("main", expected="ab" * 24, actual=None),
    "MergeConflictError": lambda cls: cls("main", ()),
    "PatchConflictError": lambda cls: cls(["a", "b[1]"]),
    "UncommittedChangesError": lambda cls: cls("reset()", ["a"]),
    "DirtyWorkspaceError": lambda cls: cls("reset() would overwrite files", ["a.py"]),
    "WorkspaceError": lambda cls: cls("the folder is gone", ["a.py"]),
    "FencedError": lambda cls: cls("main", 1, 2),
    "InvalidTransitionError": lambda cls: cls("order", "new", "ship", ["pay"]),
    "ReplayMismatchError": lambda cls: cls("events", 3, replayed=1, kept=2, reason="1, not 2"),
    "SandboxFileError": lambda cls: cls("a.py: no room", path="a.py", errno=28),
    "LockTimeoutError": lambda cls: cls("main", 1, 2.0),
    "UnmergedBranchError": lambda cls: cls("side", "ab" * 24),
    "EffectInDoubtError": lambda cls: cls("pay", datetime(2026, 1, 2, tzinfo=UTC), result=[1]),
    "UnknownEffectError": lambda cls: cls("pay"),
    "UnknownNoteError": lambda cls: cls("ab" * 24),
    "UnknownRecordError": lambda cls: cls("session/1"),
    "EmbedderError": lambda cls: cls("model-2", "ConnectionError: refused"),
    "ErasedResultError": lambda cls: cls("pay"),
    "InvalidPathError": lambda cls: cls("a[", 2, "an index is missing"),
    "UnserializableValueError": lambda cls: cls("a.b", "Lock", "it is a lock", remains=errors.STAGED),
    "LimitExceededError": lambda cls: cls("the depth", limit=100, path="a"),
    "QuotaExceededError": lambda cls: cls("the rounds of a session", limit=100),
    "PickleRefusedError": lambda cls: cls("refused", policy="refuse", path="a", type_name="Lock"),
    "UnknownRevisionError": lambda cls: cls("mian", near=["main"]),
    "AmbiguousRevisionError": lambda cls: cls("ab", ["abc", "abd"]),
    "UnknownPathError": lambda cls: cls("a.b", at="HEAD"),
    "SchemaError": lambda cls: cls("a.b", "int", "'1' is of type str", remains=errors.STAGED),
    "MigrationError": lambda cls: cls(2, "KeyError: 'a'"),
    "NewerVersionError": lambda cls: cls(3, 2),
    "ServiceNotStartedError": lambda cls: cls("InMemoryStateService", stopped=True),
    "SessionNotFoundError": lambda cls: cls("trip"),
    "RefExistsError": lambda cls: cls("branch", "main"),
    "MissingDependencyError": lambda cls: cls("Redis", extra="redis"),
    "UnfinishedPurgeError": lambda cls: cls(
        "another gc is at work", report=("alice/1",), remains="its objects may be there"
    ),
    "CommitInDoubtError": lambda cls: cls("ab" * 24),
    "StorageFullError": lambda cls: cls("full", limit=1000),
    "SessionFileError": lambda cls: cls("the disk is full", errno=28, remains="the file is as it was"),
    "FormatError": lambda cls: cls(2, 1),
    "CorruptObjectError": lambda cls: cls("ab" * 24, "damaged"),
    "MissingObjectError": lambda cls: cls("ab" * 24),
    "CorruptRefError": lambda cls: cls("main", "damaged"),
}
"""How those are made that do not take one text."""


def crossed(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_says_the_same_on_the_other_side(cls):
    make = ARGUMENTS.get(cls.__name__, lambda cls: cls("it failed", remains="nothing was changed", hint="try again"))
    error = make(cls)
    error.add_note("a note of the caller")
    found = crossed(error)
    assert type(found) is cls
    assert (str(found), found.args, found.what, found.remains, found.hint) == (
        str(error),
        error.args,
        error.what,
        error.remains,
        error.hint,
    )
    assert vars(found) == vars(error)
    assert getattr(found, "errno", None) == getattr(error, "errno", None)
    assert found.__notes__ == error.__notes__
    found.hint = "another way"
    assert found.__notes__[-1] == "hint: another way"


def test_a_traceback_and_a_pickle_say_the_public_name():
    assert {cls.__module__ for cls in CLASSES} == {"versioned_state.errors"}


def conflict() -> MergeConflictError:
    store = Memory()
    state = Versioned(store)
    state["a"], state["list"], state["gone"] = 1, ["x" * 100] * 900, 1
    state.commit()
    other = Versioned(store)
    other["a"] = 2
    other["list"][5] = "theirs"
    del other["gone"]
    other.commit()
    state["a"], state["list"][5], state["gone"] = 3, "ours", {"lock": [1]}
    with pytest.raises(MergeConflictError) as caught:
        state.commit()
    state.discard()
    return caught.value


def test_a_conflict_crosses_with_its_values_and_cannot_be_resolved_there():
    error = conflict()
    assert error.can_resolve
    error.add_note("a note of the caller")
    found = crossed(crossed(error))
    assert str(found) == str(error)
    assert (found.branch, found.remains) == (error.branch, error.remains)
    assert "a note of the caller" in found.__notes__
    sides = {str(each.path): (each.base, each.ours, each.theirs) for each in found.conflicts}
    assert sides == {str(each.path): (each.base, each.ours, each.theirs) for each in error.conflicts}
    assert sides["a"] == (1, 3, 2)
    assert sides["gone"][2] is MISSING
    assert not found.can_resolve
    assert "error.merge" not in found.hint
    with pytest.raises(TransactionError):
        _ = found.merge
    assert error.can_resolve, "this side still can"


def test_a_conflict_crosses_from_a_store_that_fails():
    """The error is not replaced by that of the store, which shows where the value is asked for."""
    error = conflict()
    list_conflict = next(each for each in error.conflicts if str(each.path).startswith("list"))

    def fail(cell: bytes) -> Any:
        raise StoreClosedError("the store is closed")

    list_conflict._decode = fail  # type: ignore[attr-defined]
    found = crossed(error)
    assert str(found) == str(error)
    values = {str(each.path): each for each in found.conflicts}
    assert values["a"].ours == 3
    with pytest.raises(StoreClosedError):
        _ = values[str(list_conflict.path)].ours


def test_an_error_is_read_where_nothing_else_of_the_library_was_loaded():
    data = pickle.dumps(conflict())
    script = (
        "import pickle, sys; error = pickle.load(sys.stdin.buffer); print(error.conflicts[0].path, error.can_resolve)"
    )
    shown = subprocess.run([sys.executable, "-c", script], input=data, check=True, capture_output=True)
    assert shown.stdout.split() == [b"a", b"False"]


def test_a_result_that_cannot_cross_stays_behind():
    error = errors.EffectInDoubtError("pay", datetime(2026, 1, 2, tzinfo=UTC), result=threading.Lock())
    assert str(crossed(error)) == str(error)
    assert crossed(error).result is None
    assert error.result is not None
