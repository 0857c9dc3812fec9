"""The default message of a commit: its changes in a few words. Layer: state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from versioned_state.repository.history.commit import Commit
from versioned_state.state.worktree.entries import Staged
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.cells import Code, is_array
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.keys import is_internal, path_of
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.references import count_of
from versioned_state.values.trees.tree import Tree

_NAMED: Final = 5
_NAME: Final = 40


def summarize(
    worktree: Worktree, staged: Staged, subject: str = "", amended: Tree | None = None, onto: Commit | None = None
) -> str:
    """Return the changed keys after the subject, lists with their growth: ``messages +2, step``. Reads no value.

    Args:
        amended: the root to commit, if hooks have changed the staged one.
        onto: the parent of the commit, if it is not the head.
    """
    if onto is not None and amended is not None:
        nodes = Nodes(staged.staging, staging=staged.staging)
        return summary_of(
            {key: (old, new) for key, old, new in diff_maps(nodes, onto.tree, amended) if not is_internal(key)}, subject
        )
    changes = {key: (update.old, update.cell) for key, update in staged.changes.items() if not is_internal(key)}
    if amended is not None:
        nodes = Nodes(staged.staging, staging=staged.staging)
        differing = diff_maps(nodes, staged.tree, amended)
        changes.update((key, (worktree.cell(key), new)) for key, _, new in differing if not is_internal(key))
    return summary_of(changes, subject)


def summary_of(changes: Mapping[bytes, tuple[bytes | None, bytes | None]], subject: str = "") -> str:
    """Return the summary of changes by root key: the cells before and after."""
    words: list[str] = []
    for key in sorted(changes):
        old, cell = changes[key]
        if len(words) == _NAMED:
            words.append(f"and {len(changes) - _NAMED} more")
            break
        name = _name_of(key)
        if cell is None:
            words.append(f"{name} removed")
        elif old is None:
            words.append(f"{name} added")
        else:
            length = _length(cell)
            before = None if length is None else _length(old)
            grown = 0 if length is None or before is None else length - before
            words.append(f"{name} {grown:+d}" if grown else name)
    summary = ", ".join(words)
    if subject:
        return f"{subject}: {summary}" if summary else subject
    return summary or "no change"


@lru_cache(maxsize=256)
def _name_of(key: bytes) -> str:
    """Return the path of a root key, shortened. Cached, because commits change the same few keys again and again."""
    name = str(path_of(key))
    return name if len(name) <= _NAME else name[:_NAME] + "…"


def _length(cell: bytes) -> int | None:
    """Return the length of a list, or None for any other value and for a list whose cell does not hold its length."""
    first = cell[0]
    if not is_array(cell):  # a typed value begins as an array does
        return count_of(cell, Code.LIST_TREE)
    return first & 0x0F if first <= 0x9F else int.from_bytes(cell[1:3], "big")
