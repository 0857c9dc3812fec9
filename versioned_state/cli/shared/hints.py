"""What an error says in a terminal, where there are commands and options, and no calls. Layer: cli.

The engine speaks to those who write Python. Its errors carry facts, and here are the words for these, by type. Where a command knows
better, it raises a plain ``StateError``; that, and every type which is not here, is shown as it is.
"""

from __future__ import annotations

import json
import re
from shlex import quote
from typing import Final

from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    MergeConflictError,
    PatchConflictError,
    PickleRefusedError,
    StateError,
    StorageFullError,
    UnknownRevisionError,
    UnmergedBranchError,
    UnsafeStoreError,
    WrongKeyError,
)

_OF_A_HANDLE: Final = re.compile(r"(?:, and |^)the staged changes are still there")
"""The part of ``remains`` that is about a handle: with the command, the handle ends."""

_ANOTHER_FOLDER: Final = "; allow_network="
"""Behind it, what only a program can say of a folder across a network."""


def message_of(error: StateError) -> str:
    """What went wrong, and what remains."""
    what, remains = error.what, _OF_A_HANDLE.sub("", error.remains)
    if isinstance(error, PickleRefusedError):
        what = what.replace(f" by pickle={error.policy!r}", "")
    return f"{what}; {remains}" if remains else what


def json_reason(error: Exception) -> str:
    """Why a text is no JSON, or none that can be read."""
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition("; use sys.")[0]


def hint_of(error: StateError) -> str:
    """The way out, by commands and options; empty where there is none."""
    match error:
        case UnknownRevisionError():
            return _of_revision(error)
        case UnmergedBranchError(branch=branch):
            return f"merge it first, or vstate branch -D {quote(branch)}: its reflog keeps them for a while"
        case BranchMovedError(branch=branch, actual=None):
            return _back("branch", branch)
        case BranchMovedError():
            return "somebody else committed to it meanwhile: look at vstate log, and give the command again"
        case MergeConflictError():
            return "somebody else changed it meanwhile: vstate log shows what"
        case CommitInDoubtError():
            return "once the store can be reached, vstate log shows whether it was made"
        case PatchConflictError():
            return "the patch was made against another state; in one store, vstate cherry-pick merges by path"
        case PickleRefusedError() if error.hint:
            return "vstate never pickles or unpickles; a program that trusts all who write to the store can"
        case WrongKeyError():
            return "--key-file, or VSTATE_KEY_FILE, names the file with the key that it was made with"
        case StorageFullError(limit=int()):
            return "vstate prune and vstate gc make room; a program that opens the store can raise its limit"
        case UnsafeStoreError():
            return error.hint.partition(_ANOTHER_FOLDER)[0]
        case _:
            return error.hint


def _of_revision(error: UnknownRevisionError) -> str:
    if error.deleted:
        return _back(error.deleted, error.revision)
    if ".." in error.revision:
        return "vstate log, diff, cherry-pick and revert take ranges"
    if error.revision.startswith(("HEAD", "@")) and error.near:
        return f"name a branch, such as {error.near[0]}; vstate status lists them, vstate switch chooses one"
    if error.near:
        return f"did you mean {', '.join(error.near)}?"
    return error.hint or "vstate log shows commits, vstate status branches and tags"


def _back(kind: str, name: str) -> str:
    return f"vstate {kind} {quote(name)} {quote(name + '@{1}')} brings it back"
