"""The tools that only read: get, outline, log, diff, blame, search, branches, events. Layer: integrations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Literal

from versioned_state.errors import InvalidArgumentError
from versioned_state.integrations.tools.context import Context
from versioned_state.integrations.tools.scope import in_state
from versioned_state.integrations.tools.text import (
    REDACTED,
    Page,
    TooLargeError,
    ToolError,
    Values,
    heading,
    part_name,
    parts_of,
    quoted,
)
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.views.change import SIGNS, Change
from versioned_state.repository.views.diff import Diff
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.values.paths.path import StatePath

_WIDTH: Final = 160
"""Characters of a value in a list of values."""

_ROWS: Final = 200
"""The most rows of one answer."""


def rows(limit: int) -> int:
    """Return how many rows a caller gets."""
    if limit < 1:
        raise ToolError("limit must be 1 or more")
    return min(limit, _ROWS)


def state_get(tools: Context, path: str = "", rev: str = "HEAD", start: int = 0, limit: int = 50) -> str:
    """Show the value at a path, or a window of it."""
    commit, snapshot = tools.snapshot(rev)
    where = tools.scope.path(path)
    page = Page(heading(tools.scope.branch, commit), tools.max_chars)
    values = tools.values(snapshot)
    if not where.steps:
        keys: list[Any] | int | None = list(islice(snapshot, start + rows(limit) + 1))
        total = len(snapshot)
    else:
        if tools.redaction.hides(where):
            return page.text(f"{where} = {REDACTED}")
        cell = tools.found(lambda: snapshot.cell_at(where), path, rev)
        keys = snapshot.keys_at(where)
        if keys is None:
            return _leaf(tools, page, values, cell, where, start)
        total = keys if isinstance(keys, int) else len(keys)
    if start < 0:
        start = max(total + start, 0)
    chosen = parts_of(keys, start, rows(limit)) if keys is not None else []
    name = str(where) or "the state"
    page.add(
        f"{name}: {total:,} {'elements' if isinstance(keys, int) else 'keys'}, [{start:,}:{start + len(chosen):,}]"
    )
    lines = (_part(snapshot, values, StatePath((*where.steps, step)), part_name(step)) for step in chosen)
    shown = start + page.add_all(tools.deadline().within(lines))
    return page.text(f"…, {total - shown:,} more: start={shown}" if shown < total else "")


def _part(snapshot: Snapshot, values: Values, path: StatePath, name: str) -> str:
    return f"{name}: {values.line(snapshot.cell_at(path), path, _WIDTH)}"


def _leaf(tools: Context, page: Page, values: Values, cell: bytes, path: StatePath, start: int) -> str:
    """Show one value without parts: a window of a text, anything else on one line."""
    room = tools.max_chars - 300
    if tools.redaction.hides_part(path):
        page.add(f"{path} = {values.line(cell, path, room)}")
        return page.text()
    try:
        value = values.decoded(cell)
    except TooLargeError:
        page.add(f"{path} = {values.line(cell, path, room)}")
        return page.text(f"{values.kind(cell)} is more than one answer shows; state_search finds text in it")
    if type(value) is not str:
        page.add(f"{path} = {values.line(cell, path, room)}")
        return page.text()
    start = max(len(value) + start, 0) if start < 0 else start
    end, text = _window(value, start, room)
    page.add(f"{path}: str of {len(value):,} characters, [{start:,}:{end:,}]")
    page.lines.append(text)
    return page.text(f"…, {len(value) - end:,} more: start={end}" if end < len(value) else "")


def _window(value: str, start: int, room: int) -> tuple[int, str]:
    """Return the end of the part of a text that fits, and the part in JSON's notation, which holds no line break."""
    end = min(start + room, len(value))
    while True:
        text = json.dumps(value[start:end], ensure_ascii=not value[start:end].isprintable())
        if len(text) <= room + 2 or end <= start + 1:
            return end, text
        end = start + (end - start) * room // len(text)


def state_outline(tools: Context, path: str = "", rev: str = "HEAD", depth: int = 2) -> str:
    """Show keys, types and sizes below a path."""
    commit, snapshot = tools.snapshot(rev)
    where = tools.scope.path(path)
    page = Page(heading(tools.scope.branch, commit), tools.max_chars)
    if where.steps:
        tools.found(lambda: snapshot.cell_at(where), path, rev)
    values = tools.values(snapshot)
    lines = islice(_outline(tools, snapshot, values, where, max(min(depth, 6), 1), ""), _ROWS + 1)
    deadline = tools.deadline()
    added = page.add_all(islice(deadline.within(lines), _ROWS))
    if added == 0:
        page.add("empty")
    return page.text(
        "…, and more: give a longer path" if added == _ROWS or deadline.passed or next(lines, None) is not None else ""
    )


def _outline(
    tools: Context, snapshot: Snapshot, values: Values, path: StatePath, depth: int, indent: str
) -> Iterator[str]:
    keys = snapshot.keys_at(path) if path.steps else list(islice(snapshot, _ROWS + 1))
    if keys is None:
        yield f"{indent}{values.kind(snapshot.cell_at(path))}"
        return
    for step in parts_of(keys, 0, 3 if isinstance(keys, int) else _ROWS):
        below = StatePath((*path.steps, step))
        if tools.redaction.hides(below):
            yield f"{indent}{part_name(step)}: {REDACTED}"
            continue
        cell = snapshot.cell_at(below)
        yield f"{indent}{part_name(step)}: {values.kind(cell)}"
        if depth > 1 and snapshot.keys_at(below) is not None:
            yield from _outline(tools, snapshot, values, below, depth - 1, indent + "  ")
    if isinstance(keys, int) and keys > 3:
        yield f"{indent}…"


def state_log(
    tools: Context, path: str = "", rev: str = "HEAD", limit: int = 20, grep: str = "", since: str = ""
) -> str:
    """Show commits by first parents, newest first."""
    commit = tools.scope.commit(rev)
    filters: dict[str, Any] = {}
    if path:
        filters["path"] = tools.scope.path(path)
    if since:
        filters["since"] = since
    page = Page(heading(tools.scope.branch, commit), tools.max_chars)
    deadline = tools.deadline()
    needle = grep.casefold()
    notes = tools.scope.repository.notes
    try:
        commits = tools.scope.repository.log(commit, first_parent=True, **filters)
        found = _labelled(deadline.within(commits), notes, needle)
        limit = rows(limit)
        lines = (_log_line(each, note) for each, note in islice(found, limit))
        added = page.add_all(lines)
    except InvalidArgumentError as error:
        raise ToolError(error.what) from None
    if not added:
        page.add("no commit" + (" fits" if filters or needle else ""))
    last = (
        ""
        if added < limit and not deadline.passed
        else "…, perhaps more: give rev= the last id and ~1, or a larger limit"
    )
    return page.text(last)


def _labelled(commits: Iterable[Commit], notes: Any, needle: str) -> Iterator[tuple[Commit, dict[str, Any]]]:
    """Yield the commits whose message, author or note has a text, each with its note."""
    for commit in commits:
        note = notes.get(commit) or {}
        if (
            not needle
            or needle in f"{commit.message}\n{commit.author or ''}\n{json.dumps(note, default=str)}".casefold()
        ):
            yield commit, note


def _log_line(commit: Commit, note: dict[str, Any]) -> str:
    author = f" by {quoted(commit.author, 60)}" if commit.author else ""
    label = f" note {quoted(json.dumps(note, default=str, ensure_ascii=False), 120)}" if note else ""
    return f"{commit.short} {age(commit)}{author} {quoted(commit.message, _WIDTH)}{label}"


def age(commit: Commit) -> str:
    """Return how long ago a commit was made: ``3 h ago``."""
    seconds = max((datetime.now(UTC).timestamp() * 1_000_000 - commit.time) / 1_000_000, 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago"


def state_diff(tools: Context, a: str = "HEAD~1", b: str = "HEAD", path: str = "", limit: int = 50) -> str:
    """Show the changes between two commits."""
    before, after = tools.scope.commit(a), tools.scope.commit(b)
    limit = rows(limit)
    diff = tools.scope.repository.diff(before, after, limit=None if path else 4 * _ROWS)
    chosen = diff.under(tools.scope.path(path)) if path else diff
    page = Page(heading(tools.scope.branch, after), tools.max_chars)
    page.add(f"{before.short} -> {after.short}")
    return changes_in(tools, page, chosen, limit)


def changes_in(tools: Context, page: Page, diff: Diff, limit: int = _ROWS) -> str:
    """Return the answer with the changes of a diff, as many as fit."""
    shown = 0
    total = [change for change in diff if in_state(change.path)]
    for change in islice(total, limit):
        if not page.add(change_line(tools, change)):
            break
        shown += 1
    if not total:
        page.add("no change")
    rest = len(total) - shown
    return page.text(f"…, {rest:,}{' or' if diff.more else ''} more changes: give a path" if rest or diff.more else "")


def change_line(tools: Context, change: Change) -> str:
    """Return a change on one line, without hidden values."""
    start = f"{SIGNS[change.kind]} {change.path}"
    if tools.redaction.hides(change.path):
        return f"{start} = {REDACTED}"
    if change.reordered or change.given:
        return f"{start}: {'keys in another order' if change.reordered else 'other fields were given'}"
    if not tools.redaction.hides_part(change.path):
        return f"{start} = {' -> '.join(change.previews(width=_WIDTH))}"
    values = Values(change.nodes, tools.redaction)
    cells = (change.cells.old, change.cells.new)
    return f"{start} = {' -> '.join(values.line(cell, change.path, _WIDTH) for cell in cells if cell is not None)}"


def state_blame(tools: Context, path: str, rev: str = "HEAD", limit: int = 20) -> str:
    """Show the commit of each part of a value."""
    commit = tools.scope.commit(rev)
    where = tools.scope.path(path)
    page = Page(heading(tools.scope.branch, commit), tools.max_chars)
    limit = rows(limit)
    repository = tools.scope.repository
    parts = tools.found(lambda: repository.blame(where if where.steps else "", commit, start=-limit), path, rev)
    width = _WIDTH // 2
    for part in parts:
        if not in_state(part.path):
            continue
        name = str(part.path) if part.line is None else f"{part.path}, line {part.line}"
        value = REDACTED if tools.redaction.hides_part(part.path) else part.preview(width=width)
        origin = part.commit
        if not page.add(f"{name} = {value}: {origin.short} {age(origin)} {quoted(origin.message, width)}"):
            break
    return page.text()


def state_search(
    tools: Context,
    pattern: str,
    rev: str = "HEAD",
    path: str = "",
    limit: int = 30,
    in_: Literal["state", "history"] = "state",
) -> str:
    """Show the places of a text, or the commits in which it came or went."""
    if not pattern:
        raise ToolError("pattern must not be empty")
    commit = tools.scope.commit(rev)
    page = Page(heading(tools.scope.branch, commit), tools.max_chars)
    limit, deadline = rows(limit), tools.deadline()
    if in_ == "history":
        if tools.redaction.hides_part(tools.scope.path(path)):
            raise ToolError("parts of this are redacted: search the history of a path that has no such part")
        page.add(f"the commits in which {quoted(pattern, 80)} came or went")
        filters: dict[str, Any] = {"changed": pattern} | ({"path": tools.scope.path(path)} if path else {})
        commits = deadline.within(tools.scope.repository.log(commit, first_parent=True, **filters))
        added = page.add_all(_log_line(each, {}) for each in islice(commits, limit))
    else:
        # A text, not a regular expression: one of these may take for ever on a long string.
        regex = re.compile(re.escape(pattern), re.IGNORECASE)
        place = tools.scope.path(path)
        found = tools.found(
            lambda: tools.scope.repository.grep(regex, commit, path=place if place.steps else ""), path, rev
        )
        matches = (
            match for match in deadline.within(found) if in_state(match.path) and not tools.redaction.hides(match.path)
        )
        added = page.add_all(
            f"{match.path}: {_around(match.line, match.spans[0], _WIDTH)}" for match in islice(matches, limit)
        )
    if not added:
        page.add("nothing was found")
    return page.text("…, perhaps more: give a path, or a larger limit" if added == limit or deadline.passed else "")


def _around(line: str, span: tuple[int, int], width: int) -> str:
    """Return the part of a line around a match, between quotes."""
    start = max(span[0] - width // 2, 0)
    text = line[start : start + width]
    return f"{'…' if start else ''}{quoted(text, width)}{'…' if start + width < len(line) else ''}"


def state_branches(tools: Context, prefix: str = "", limit: int = 30, after: str = "") -> str:
    """Show the branches of the scope."""
    head = tools.scope.head()
    page = Page(heading(tools.scope.branch, head), tools.max_chars)
    limit = rows(limit)
    home = tools.scope.home
    names = []
    if home.startswith(prefix) and not home.startswith(tools.scope.prefix) and not after:
        names.append((home, tools.scope.head(home)))
    names += [(info.name, info.head) for info in tools.scope.branches(prefix, after=after or None, limit=limit + 1)]
    shown = page.add_all(
        f"{'*' if name == tools.scope.branch else ' '} {quoted(name, 200)} {commit.short} {age(commit)}"
        for name, commit in names[:limit]
    )
    return page.text(f"…, more: after={names[shown - 1][0]!r}" if len(names) > shown else "")


def state_events(tools: Context, rev: str = "HEAD", limit: int = 20, errors_only: bool = False) -> str:  # noqa: FBT001, FBT002 - an argument of a tool
    """Show the calls of tasks."""
    commit = tools.scope.commit(rev)
    page = Page(heading(tools.scope.branch, commit), tools.max_chars)
    limit, deadline = rows(limit), tools.deadline()
    calls = (
        each
        for each in deadline.within(tools.scope.repository.log(commit, first_parent=True))
        if "task" in (each.meta or {})
    )
    found = (each for each in calls if not errors_only or each.meta["outcome"] != "success")
    added = page.add_all(_call_line(each) for each in islice(found, limit))
    if not added:
        page.add("no call of a task" + (" failed" if errors_only else ""))
    return page.text("…, perhaps more: a larger limit" if added == limit or deadline.passed else "")


def _call_line(commit: Commit) -> str:
    meta = commit.meta or {}
    seconds = meta.get("seconds")
    took = f" in {seconds:.2f} s" if isinstance(seconds, int | float) else ""
    agent = f" of {quoted(str(meta['agent']), 60)}" if meta.get("agent") else ""
    return (
        f"{commit.short} {age(commit)} {quoted(str(meta['task']), 80)}{agent}: "
        f"{quoted(str(meta.get('outcome', '')), 40)}{took}"
    )
