"""Errors in the words of a terminal, which has commands and options, and no calls. Layer: cli.

The engine's hints are for those who write Python. Its errors carry facts as attributes, and here is a hint for each
type that a command can meet. A command that knows better raises a plain ``StateError``; every type that is not listed
keeps its own hint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from shlex import quote
from typing import Any, Final

from versioned_state.errors import (
    STAGED,
    BranchMovedError,
    CommitInDoubtError,
    DirtyWorkspaceError,
    EffectInDoubtError,
    ErasedResultError,
    MergeConflictError,
    MissingObjectError,
    NewerVersionError,
    PatchConflictError,
    PickleRefusedError,
    ReadOnlyError,
    RefExistsError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    UnfinishedPurgeError,
    UnknownEffectError,
    UnknownRevisionError,
    UnmergedBranchError,
    UnsafeStoreError,
    UnserializableValueError,
    WorkspaceError,
    WrongKeyError,
)
from versioned_state.errors.base import UNCHANGED

_SHOWN: Final = 60
"""Characters of an argument that an error shows."""

_FEW_DIGITS: Final = re.compile("[0-9a-f]{1,3}")

_MOVES: Final = re.compile(r"([^@{}]+)@\{\d+\}")

_ONE_MACHINE: Final = "; allow_network="
"""Behind it, the hint names an argument that only a program can give."""

_REMAINS: Final = {STAGED: "nothing was committed", "the staged changes are still there": ""}
"""The words of a command for the ``remains`` of a handle, which ends with the command."""


def message_of(error: StateError, *, only_reads: bool = False) -> str:
    """Return the message of an error and what remains.

    A command that only reads does not say that it changed nothing.
    """
    what, remains = error.what, _REMAINS.get(error.remains, error.remains)
    if only_reads and remains == UNCHANGED:
        remains = ""
    if isinstance(error, PickleRefusedError) and error.type_name:
        what = (
            f"{error.path} of type {error.type_name} is not data, and vstate never pickles"
            if error.path
            else f"an object of type {error.type_name} would have to be unpickled, which vstate never does"
        )
    return f"{what}; {remains}" if remains else what


def json_reason(error: Exception) -> str:
    """Return the reason why a text is not JSON, or cannot be read."""
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition("; use sys.")[0]


def not_json(text: str, error: Exception) -> str:
    """Return the message that an argument is not JSON, and why. Only the beginning of a long one is shown."""
    return f"{shortened(text)!r} is not JSON: {json_reason(error)}"


def shortened(text: str) -> str:
    """Return the beginning of an argument that may be of any length."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def hint_of(error: StateError) -> str:
    """Return the way out, by commands and options, or an empty text if there is none."""
    hint = next((_HINTS[cls] for cls in type(error).__mro__ if cls in _HINTS), None)
    if hint is None:
        return error.hint
    return hint if isinstance(hint, str) else hint(error)


def _of_revision(error: UnknownRevisionError) -> str:
    if error.deleted:
        return _back(error.deleted, error.revision)
    if error.is_empty:
        return "vstate set PATH VALUE and vstate import FILE make the first commit"
    if ".." in error.revision:
        return "vstate log, diff, cherry-pick and revert take ranges"
    if error.revision.startswith(("HEAD", "@")) and error.near:
        return f"name a branch, such as {error.near[0]}; vstate status lists them, vstate switch chooses one"
    if error.near:
        return f"did you mean {', '.join(error.near)}?"
    if _FEW_DIGITS.fullmatch(error.revision):
        return "an abbreviated id needs 4 digits or more"
    if (moves := _MOVES.match(error.revision)) is not None:
        return f"vstate reflog {quote(moves[1])} lists its moves"
    return error.hint or "vstate log shows commits, vstate status branches and tags"


def _back(kind: str, name: str) -> str:
    return f"vstate {kind} {quote(name)} {quote(name + '@{1}')} brings it back"


def _of_moved_branch(error: BranchMovedError) -> str:
    if error.actual is None:
        return _back("branch", error.branch)
    return "somebody else committed to it meanwhile: look at vstate log, and repeat the command"


def _of_unmerged_branch(error: UnmergedBranchError) -> str:
    return f"merge it first, or vstate branch -D {quote(error.branch)}: its reflog keeps the commits for a while"


def _of_refused_pickle(error: PickleRefusedError) -> str:
    return "a program that trusts everybody who writes to the store can read and write it" if error.hint else ""


def _of_existing_ref(error: RefExistsError) -> str:
    if error.hint:
        return error.hint
    if error.kind == "branch":
        return f"vstate switch {quote(error.name)} makes it the current branch"
    return f"a tag does not move: vstate tag -d {quote(error.name)} deletes it first"


def _of_full_store(error: StorageFullError) -> str:
    if error.limit is None:
        return error.hint
    return "vstate prune and vstate gc make room; a program that opens the store can raise its limit"


def _of_busy_store(error: StoreBusyError) -> str:
    return error.hint if "vstate" in error.hint else "try again"


def _of_unsafe_store(error: UnsafeStoreError) -> str:
    return error.hint.partition(_ONE_MACHINE)[0]


def _of_storage(error: StorageError) -> str:
    cannot_open = getattr(error.__cause__, "sqlite_errorname", "").startswith("SQLITE_CANTOPEN")
    return "check that your user may read and write the folder of the store" if cannot_open else error.hint


_HINTS: Final[dict[type[BaseException], str | Callable[[Any], str]]] = {
    WorkspaceError: (
        "the folder must be one that your user may write to, and that no program keeps with its state at the same time"
    ),
    DirtyWorkspaceError: "--overwrite replaces them; a commit by their program keeps them",
    UnknownRevisionError: _of_revision,
    UnmergedBranchError: _of_unmerged_branch,
    BranchMovedError: _of_moved_branch,
    MergeConflictError: "somebody else changed it meanwhile: vstate log shows the commits",
    CommitInDoubtError: "once the store can be reached, vstate log shows whether the commit was made",
    MissingObjectError: "vstate fsck says what is damaged: restore it from a backup or another copy",
    PatchConflictError: "the patch was made from another state; in one store, vstate cherry-pick merges by path",
    PickleRefusedError: _of_refused_pickle,
    NewerVersionError: "newer code wrote it: name the migrations of that code",
    UnserializableValueError: "vstate takes JSON; a program can store any value",
    WrongKeyError: "--key-file, or VSTATE_KEY_FILE, names the file with the key of the store",
    RefExistsError: _of_existing_ref,
    ErasedResultError: "vstate effects --settle KEY records another result, --forget KEY lets it happen again",
    EffectInDoubtError: "wait until its process has ended, or end it",
    UnknownEffectError: "vstate effects lists the keys",
    StorageFullError: _of_full_store,
    StoreBusyError: _of_busy_store,
    UnfinishedPurgeError: "run the same vstate purge again: it does the rest, and prints all of it",
    UnsafeStoreError: _of_unsafe_store,
    ReadOnlyError: "vstate can still read it; to change it, your user must be allowed to write to the store",
    StorageError: _of_storage,
}
