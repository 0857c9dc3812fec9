"""The state of a commit as a tree, a level at a time. Layer: server."""

from __future__ import annotations

from typing import Any, Final

from versioned_state.errors import LimitExceededError, UnknownPathError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.pictures import PICTURED, picture
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.shown.values import Part, Values, crumbs, of_snapshot, place_of
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.values.cells import Code, code_of, is_text
from versioned_state.values.containers import unpacked
from versioned_state.values.keys import USER, namespace_prefix, path_of
from versioned_state.values.paths.path import Namespace, StatePath
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import iter_items, rank

PAGE: Final = 100
"""Parts of one level."""

RAW: Final = 64 << 20
"""Bytes of the largest value that is given whole."""

_PICTURES: Final = 20
"""Parts among which those that are numbers in a row have a picture in the list."""

_LARGEST: Final = 1 << 40


def state(repository: Repository, budget: Budget, commit: Commit, *, path: str = "", start: int = 0) -> dict[str, Any]:
    """Return the value at a path, or the whole state: what it is, its parts from ``start`` on, or its text.

    Raises ``UnknownPathError`` and ``InvalidPathError``.
    """
    snapshot = repository.snapshot(commit, describe=True)
    values = Values(snapshot.new_nodes(), budget)
    start = max(0, min(start, _LARGEST))
    names, place = place_of(path)
    if place is None:
        total, parts, more = _keys(of_snapshot(snapshot, names), values, names, start, path, commit)
        facts = {
            "type": "namespace" if names else "state",
            "size": f"{total:,} key{'' if total == 1 else 's'}",
            "line": "",
            "opens": True,
        }
        text = drawing = None
    else:
        cell = snapshot.cell_at(place)
        facts = values.facts(cell, 400)
        text = values.text(cell)
        drawing = picture(cell, values) if text is None and facts["type"] in PICTURED else None
        total, parts = values.parts(cell, place, start, PAGE)
        more = []
    shown: list[dict[str, Any]] = []
    for part in parts:
        if not budget.row():
            break
        to = None if part.path is None else budget.path(part.path)
        facts_of = values.facts(part.cell)
        small = picture(part.cell, values) if facts_of["type"] == "array" and len(shown) < _PICTURES else None
        facts_of["picture"] = small if small is not None and small["kind"] == "line" else None
        shown.append({"label": budget.cut(part.label, 300), "path": to, **facts_of})
    end = start + max(len(shown), 1)
    return {
        "title": f"{path or 'State'} at {commit.short}",
        "commit": commits.facts(commit, budget),
        "path": path,
        "crumbs": list(crumbs(place))
        if place is not None
        else [(f"@{name}", _namespace(names[: at + 1])) for at, name in enumerate(names)],
        "value": facts,
        "text": None if text is None else {"text": text[0], "left": text[1]},
        "has_raw": text is not None or facts["type"] in ("bytes", "bytearray"),
        "picture": drawing,
        "namespaces": more,
        "parts_of": shown,
        "start": start,
        "total": total,
        "next": end if parts and end < total else None,
        "previous": max(start - PAGE, 0) if start else None,
    }


def _namespace(names: tuple[str, ...]) -> str:
    return str(StatePath(tuple(map(Namespace, names))))


def _keys(
    snapshot: Snapshot, values: Values, names: tuple[str, ...], start: int, path: str, commit: Commit
) -> tuple[int, list[Part], list[dict[str, Any]]]:
    """Return how many keys a state or namespace has, a page of them, and the namespaces in it."""
    total = len(snapshot)
    inner = [] if start else snapshot.namespaces()
    if names and not total and not inner:
        raise UnknownPathError(path, at=commit.short)
    low = rank(values.nodes, snapshot.tree, b"".join(map(namespace_prefix, names)) + USER) + start
    found = (
        iter_items(values.nodes, snapshot.tree, low, min(low + PAGE, low - start + total))
        if start < total
        else iter(())
    )
    parts = []
    for root_key, cell in found:
        at = path_of(root_key)
        parts.append(Part(StatePath(at.steps[-1:]).suffix().removeprefix("."), at, cell))
    return total, parts, [_row_of_namespace((*names, name)) for name in inner[:PAGE]]


def _row_of_namespace(names: tuple[str, ...]) -> dict[str, Any]:
    plain = {"type": "namespace", "size": "", "line": "", "picture": None, "opens": False}
    return {"label": f"@{names[-1]}", "path": _namespace(names), **plain}


def raw(repository: Repository, commit: Commit, path: str) -> tuple[str, bytes]:
    """Return the whole value at a path as ``"text"`` or ``"bytes"``, and its bytes.

    Raises:
        UnknownPathError: nothing is there, or a value that is neither text nor bytes.
        LimitExceededError: it has more than ``RAW`` bytes.
    """
    snapshot = repository.snapshot(commit, describe=True)
    cell = unpacked(snapshot.new_nodes(), snapshot.cell_at(path))
    tree = tree_of(cell) if code_of(cell) in (Code.TEXT, Code.BYTES_BLOB, Code.BYTEARRAY_BLOB) else None
    if tree is not None and tree.count > RAW:
        raise LimitExceededError(f"the value at {path}, {tree.count:,} bytes,", limit=RAW)
    if tree is None and not is_text(cell) and code_of(cell) not in (Code.BYTES, Code.BYTEARRAY):
        raise UnknownPathError(path, at=commit.short, hint="only texts and bytes can be taken as they are")
    value = snapshot.at(path)
    if type(value) is str:
        return "text", value.encode("utf-8", "replace")
    return "bytes", bytes(value)
