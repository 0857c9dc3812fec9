"""Changes side by side: by path, texts by line and word, long runs folded, within bounds. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from versioned_state.repository.shown.pictures import PICTURED, picture
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.shown.values import Values
from versioned_state.repository.views.change import Change, ChangeRun
from versioned_state.repository.views.word_diff import differing, word_diff
from versioned_state.values.cells import is_text
from versioned_state.values.paths.path import Index, StatePath
from versioned_state.values.trees.references import tree_of

if TYPE_CHECKING:
    from versioned_state.repository.views.diff import Diff

_AROUND: Final = 3
"""Equal lines that are shown on either side of a change."""

_TEXT: Final = 1 << 15
"""Characters up to which two texts are compared line by line here. In longer ones the engine finds differing lines."""

_LINES: Final = 120
"""Rows of one change."""

_ALIGNED: Final = 400
"""Lines up to which each is aligned, apart from equal ones at both ends. Aligning n lines takes n² steps or more."""

_WORDS: Final = 150
"""Words of a line that are compared, likewise."""

_LINE: Final = 1000
"""Characters of a line of a text."""

_PICTURED: Final = 1 << 18
"""Bytes up to which an array or a table that was added or removed has a picture: there may be many."""

_ENTRIES: Final = 12
"""Entries of a value that was added or removed as a whole."""

Cell = dict[str, Any]


def shown(diff: Diff, budget: Budget, *, most: int | None = None) -> dict[str, Any]:
    """Return a diff for display, at most ``most`` changes of it."""
    values: Values | None = None
    entries: list[dict[str, Any]] = []
    is_cut = False
    for change in _folded_runs(diff):
        if len(entries) == most or not budget.row():
            is_cut = True
            break
        if isinstance(change, ChangeRun):
            entries.append(_run(change, budget))
            continue
        if values is None or values.nodes is not change.nodes:
            values = Values(change.nodes, budget)
        entries.append(_change(change, values, budget))
    stat = diff.stat()
    return {
        "changes": entries,
        "added": stat.added,
        "removed": stat.removed,
        "changed": stat.changed,
        "total": len(diff),
        "more": diff.more,
        "is_cut": is_cut,
        "late": not diff.complete and not diff.more,
    }


def _folded_runs(diff: Diff) -> Iterator[Change | ChangeRun]:
    """Yield the changes, with runs folded, except runs of changed values: each of those has something to compare."""
    at = 0
    for change in diff.folded():
        length = change.count if isinstance(change, ChangeRun) else 1
        if change.kind == "changed":
            yield from diff.changes[at : at + length]
        else:
            yield change
        at += length


def of_path(found: Sequence[Change], budget: Budget, most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the first of some changes for display, and how many others there are."""
    return [_change(each, Values(each.nodes, budget), budget) for each in found[:most]], max(len(found) - most, 0)


def _run(run: ChangeRun, budget: Budget) -> dict[str, Any]:
    start, end = run.first.steps[-1], run.last.steps[-1]
    if isinstance(start, Index) and isinstance(end, Index):
        label, what = f"{run.path}[{start.index}…{end.index}]", f"{run.count:,} elements"
    else:
        label, what = f"{run.first} … {StatePath(run.last.steps[-1:])}", f"{run.count:,} entries"
    return {
        "kind": run.kind,
        "path": budget.path(run.path),
        "label": budget.cut(label, 600),
        "what": what,
        "rows": [],
        "picture": None,
        "is_run": True,
        "cut": 0,
    }


def _change(change: Change, values: Values, budget: Budget) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": change.kind,
        "path": budget.path(change.path),
        "label": budget.cut(str(change.path), 600),
        "what": "",
        "picture": None,
        "is_run": False,
    }
    rows = _rows(change, values, budget, entry)
    entry["rows"] = [row for row in islice(rows, _LINES) if budget.row()]
    entry["cut"] = sum(1 for _ in rows)
    return entry


def _rows(change: Change, values: Values, budget: Budget, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    old, new = change.cells.old, change.cells.new
    if change.reordered or change.given:
        entry["what"] = "keys in another order" if change.reordered else "other fields were given"
        before, after = (budget.cut(", ".join(map(str, keys)), _LINE) for keys in (change.old, change.new))
        yield _row(_plain(before), _plain(after), "changed")
    elif old is None or new is None:
        cell = new if old is None else old
        assert cell is not None
        facts = values.facts(cell, 80)
        entry["what"] = ", ".join(filter(None, (facts["type"], facts["size"])))
        entry["picture"] = picture(cell, values, most=_PICTURED) if facts["type"] in PICTURED else None
        if entry["picture"] is not None:
            return
        for line in _block(values, cell, change.path):
            yield _row(None, line, "added") if old is None else _row(line, None, "removed")
    elif is_text(old) and is_text(new) and _is_short(old) and _is_short(new):
        yield from text_rows(change.old, change.new, budget)
    elif lines := change.lines():
        yield from _of_lines(lines, budget)
    else:
        width = 400
        before, after = (values.budget.cut(each, 2 * width) for each in change.previews(width=width))
        yield _row(_plain(before), _plain(after), "changed")


def _is_short(cell: bytes) -> bool:
    tree = tree_of(cell)
    return (len(cell) if tree is None else tree.count) <= _TEXT


def _row(old: Cell | None, new: Cell | None, kind: str) -> dict[str, Any]:
    return {"old": old, "new": new, "kind": kind}


def _plain(text: str, key: str = "") -> Cell:
    return {"key": key, "spans": [[text, False]]}


def _block(values: Values, cell: bytes, path: StatePath) -> Iterator[Cell]:
    """Yield the lines of a whole value: of a dict or list its entries, of a text its lines."""
    text = values.text(cell, 4000)
    if text is not None:
        yield from _text_lines(*text)
        return
    total, parts = values.parts(cell, path, 0, _ENTRIES)
    if not parts:
        yield _plain(values.line(cell, 400))
    for part in parts:
        inner = values.text(part.cell, 2000)
        if inner is None:
            yield _plain(values.line(part.cell, 300), part.label)
        else:
            first, *rest = _text_lines(*inner)
            yield {**first, "key": part.label}
            yield from rest
    if total > len(parts):
        yield _plain(f"… and {total - len(parts):,} more")


def _text_lines(text: str, cut: int) -> Iterator[Cell]:
    lines = text.split("\n")
    for line in lines[:40]:
        yield _plain(line[:_LINE])
    if cut or len(lines) > 40:
        yield _plain(f"… {max(len(lines) - 40, 0):,} more lines, {cut:,} more characters")


def text_rows(old: str, new: str, budget: Budget) -> Iterator[dict[str, Any]]:
    """Yield the lines of two texts side by side: those that differ with the words that do, and a few around them."""
    a, b = old.split("\n"), new.split("\n")
    found = list(differing(a, b, most=_ALIGNED))
    for at, (tag, i1, i2, j1, j2) in enumerate(found):
        if tag != "equal":
            yield from _replaced(a[i1:i2], b[j1:j2], budget)
            continue
        head, tail = (0 if at == 0 else _AROUND), (0 if at == len(found) - 1 else _AROUND)
        folds = j2 - j1 > head + tail + 1
        lines = [*b[j1 : j1 + head], *b[j2 - tail : j2]] if folds else b[j1:j2]
        for number, line in enumerate(lines):
            if folds and number == head:
                yield _equal_lines(j2 - j1 - head - tail)
            cut = _plain(budget.cut(line, _LINE))
            yield _row(cut, cut, "same")
        if folds and len(lines) == head:
            yield _equal_lines(j2 - j1 - head - tail)


def _equal_lines(lines: int) -> dict[str, Any]:
    return {"old": None, "new": None, "kind": "fold", "lines": lines}


def _replaced(olds: Sequence[str], news: Sequence[str], budget: Budget) -> Iterator[dict[str, Any]]:
    paired = min(len(olds), len(news))
    for old, new in zip(olds[:paired], news[:paired], strict=True):
        before, after = _word_spans(budget.cut(old, 4 * _LINE), budget.cut(new, 4 * _LINE))
        yield _row(before, after, "changed")
    for line in olds[paired:]:
        yield _row(_plain(budget.cut(line, _LINE)), None, "removed")
    for line in news[paired:]:
        yield _row(None, _plain(budget.cut(line, _LINE)), "added")


def _word_spans(old: str, new: str) -> tuple[Cell, Cell]:
    before: list[list[Any]] = []
    after: list[list[Any]] = []
    for sign, text in word_diff(old, new, most=_WORDS):
        if not text:
            continue
        if sign in " -":
            before.append([text, sign == "-"])
        if sign in " +":
            after.append([text, sign == "+"])
    return {"key": "", "spans": before}, {"key": "", "spans": after}


def _of_lines(lines: Sequence[tuple[str, str]], budget: Budget) -> Iterator[dict[str, Any]]:
    """Yield the lines that the engine found in large texts and arrays: removed ones beside added ones that follow."""
    removed: list[str] = []
    added: list[str] = []

    def flush() -> Iterator[dict[str, Any]]:
        yield from _replaced(removed, added, budget)
        removed.clear()
        added.clear()

    for sign, line in lines:
        if sign == "@" or (sign == "-" and added):
            yield from flush()
        if sign == "@":
            yield {"old": None, "new": None, "kind": "place", "text": budget.cut(line, _LINE)}
        else:
            (removed if sign == "-" else added).append(line)
    yield from flush()
