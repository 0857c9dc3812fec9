"""Commits, times, values and numbers as text and as JSON: one way to show each, for all commands. Layer: cli."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any, Final

from versioned_state.cli.render.output import Line, Span, columns
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.repository.refs.stamps import STAMP, stamp_id
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.render import are_fields, attributes_in, field_rank, one_line, short_name
from versioned_state.repository.views.tables import table_lines
from versioned_state.values.typed.tagged import Tagged

Names = Mapping[str, list[tuple[str, str]]]
"""The branches and tags that point to a commit, as kind and name, by the commit's id."""

_NAMES_SHOWN: Final = 1000
"""Branches and tags that a log reads to name commits: enough for people, and never a scan of a service's store."""


# Commits


def names_of(repository: Repository) -> Names:
    """Return the branches and tags by the commit they point to. Cost: one listing of at most a thousand of each."""
    names: dict[str, list[tuple[str, str]]] = {}
    for kind in ("branch", "tag"):
        for ref in islice(iter_refs(repository.store, kind), _NAMES_SHOWN):
            if ref.head is not None:
                names.setdefault(ref.head.hex(), []).append((kind, ref.name))
    return names


def commit_json(commit: Commit, names: Names) -> dict[str, Any]:
    """Return a commit in JSON types."""
    here = names.get(commit.id, [])
    return {
        "id": commit.id,
        "parents": list(commit.parents),
        "root": commit.root,
        "time": iso_time(commit),
        "author": commit.author,
        "signed_by": commit.signed_by,
        "message": commit.message,
        "meta": json_value(dict(commit.meta)),
        "branches": [name for kind, name in here if kind == "branch"],
        "tags": [name for kind, name in here if kind == "tag"],
        **({"shallow": True} if commit.shallow else {}),
    }


def head_json(head: Commit) -> dict[str, Any]:
    """Return the head of a branch or tag in JSON types, for a list of them."""
    return {"commit": head.id, "commits": head.height, "time": iso_time(head), "message": head.message}


def commit_line(commit: Commit, names: Names, source: str | None = None) -> Line:
    """Return a commit as one line: id, the name it was found by, if given, names, and its message's first line."""
    pruned: Line = ["  ", Span("(older history was pruned)", "dim")] if commit.shallow else []
    return [
        Span(commit.short, "id"),
        *_source(source),
        *_names(commit, names),
        "  ",
        first_line(commit.message),
        *pruned,
    ]


def _source(source: str | None) -> Line:
    return ["  ", Span(source, "ref")] if source else []


def commit_lines(commit: Commit, names: Names, source: str | None = None) -> Iterator[Line]:
    """Yield a commit as ``log`` shows it: id, source, time, author and names, then its message and meta."""
    author: Line = ["  ", Span(commit.author, "author")] if commit.author else []
    yield [
        Span(commit.short, "id"),
        *_source(source),
        "  ",
        Span(human_time(commit), "time"),
        *author,
        *_names(commit, names),
    ]
    if len(commit.parents) > 1:
        yield ["    merge of ", *_joined([Span(parent[:12], "id") for parent in commit.parents])]
    yield from message_lines(commit)
    if meta := meta_text(commit):
        yield ["    ", Span(meta, "meta")]
    if commit.shallow:
        yield ["    ", Span("older history was pruned", "dim")]


def commit_header(commit: Commit, names: Names, stamp: Mapping[str, Any]) -> Iterator[Line]:
    """Yield a commit as ``show`` shows it: all of it but its message."""
    yield ["commit  ", Span(commit.id, "id"), *_names(commit, names)]
    for parent in commit.parents:
        yield ["parent  ", Span(parent, "id")]
    if commit.shallow:
        yield ["parent  ", Span("older history was pruned", "dim")]
    yield ["time    ", Span(human_time(commit), "time")]
    if commit.author:
        yield ["author  ", Span(commit.author, "author")]
    if commit.signed_by:
        yield ["signed  by key ", Span(commit.signed_by, "id"), ", as it says; vstate verify checks it"]
    if meta := meta_text(commit):
        yield ["meta    ", Span(meta, "meta")]
    if stamp:
        yield ["stamp   ", Span(_pairs(stamp), "meta")]


def message_lines(commit: Commit) -> Iterator[Line]:
    """Yield the message, indented."""
    for line in commit.message.splitlines():
        yield ["    ", line] if line else []


def first_line(text: str) -> str:
    """Return the first line of a text."""
    return text.partition("\n")[0]


def meta_text(commit: Commit) -> str:
    """Return the meta of a commit as ``key=value``, on one line, without the id of its stamp."""
    has_stamp = stamp_id(commit) is not None
    return _pairs({key: value for key, value in commit.meta.items() if key != STAMP or not has_stamp})


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_short(value)}" for key, value in values.items())


def _short(value: Any) -> str:
    return one_line(value, width=60, quote=type(value) is not str or " " in value or not value)


def _names(commit: Commit, names: Names) -> Line:
    here = names.get(commit.id)
    if not here:
        return []
    return ["  (", *_joined([Span(name if kind == "branch" else f"tag {name}", "ref") for kind, name in here]), ")"]


def _joined(spans: list[Span]) -> Line:
    line: Line = []
    for span in spans:
        line += [", ", span] if line else [span]
    return line


# Times

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> int:
    """Return the microseconds since 1970. It is a function of its own, so that tests can stop the clock."""
    return time.time_ns() // 1000


def human_time(commit: Commit, *, seconds: bool = True) -> str:
    """Return the time of a commit for people, in UTC, as revisions such as ``main@{2026-11-01}`` have it."""
    return human_instant(commit.time, seconds=seconds)


def iso_time(commit: Commit) -> str:
    """Return the time of a commit in ISO 8601, UTC, to the microsecond."""
    return iso_instant(commit.time)


def human_instant(time: int, *, seconds: bool = True) -> str:
    """Return a time in microseconds since 1970 for people, in UTC."""
    return _instant(time, lambda at: f"{at:%Y-%m-%d %H:%M:%S} UTC" if seconds else f"{at:%Y-%m-%d %H:%M} UTC")


def iso_instant(time: int) -> str:
    """Return a time in microseconds since 1970 in ISO 8601, UTC, to the microsecond."""
    return _instant(time, lambda at: at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z")


def _instant(time: int, show: Callable[[datetime], str]) -> str:
    try:
        return show(_EPOCH + timedelta(microseconds=time))
    except (ValueError, OverflowError, OSError):  # beyond the years that a datetime can hold: a clock may say anything
        return f"{time} microseconds"


def age(commit: Commit) -> str:
    """Return how long ago a commit was made, roughly."""
    seconds = max(0, (now() - commit.time) // 1_000_000)
    for size, unit in (
        (86400 * 365, "year"),
        (86400 * 30, "month"),
        (86400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ):
        count = seconds // size
        if count:
            return f"{count:,} {unit}{'s' * (count > 1)} ago"
    return "just now"


# Values


def value_lines(value: Any, width: int) -> Iterator[str]:
    """Return a value as a Python literal, on as many lines as it takes.

    A table of pandas is shown as pandas does. The output escapes control characters. Cost: the lines that are read.
    """
    table = table_lines(value, width)
    return iter(table) if table else _value_lines(value, width, "", "")


_WHOLE: Final = 1 << 62  # a width at which nothing is cut


def _value_lines(value: Any, width: int, before: str, after: str) -> Iterator[str]:
    # ``before`` begins the first line (indentation, and a dict's key), ``after`` ends the last (a comma).
    start, end, count, parts = _opened(value)
    if not count:
        first, *rest = _rows_of_array(value) or [one_line(value, width=_WHOLE)]
        lines = [before + first, *(" " * columns(before) + row for row in rest)]
        yield from lines[:-1]
        yield lines[-1] + after
        return
    flat = _flat(value, count, width - len(before) - len(after))
    if flat is not None:
        yield before + flat + after
        return
    yield before + start
    indent = " " * (len(before) - len(before.lstrip()) + 2)
    for name, part in parts:
        yield from _value_lines(part, width, indent + name, ",")
    yield indent[:-2] + end + after


def _rows_of_array(value: Any) -> list[str]:
    """Return the lines of an array of several dimensions as numpy breaks them, or none for any other value."""
    return (
        repr(value).split("\n")
        if (type(value).__module__, type(value).__name__) == ("numpy", "ndarray") and value.ndim > 1
        else []
    )


def _opened(value: Any) -> tuple[str, str, int, Iterator[tuple[str, Any]]]:
    """Return a container's brackets, the number of its parts, and the parts, each with the text before it.

    A value that is shown on one line has no parts.
    """
    cls = type(value)
    if cls is list or cls is tuple:
        start, end = "[]" if cls is list else "()"
        return start, end, len(value), (("", part) for part in value)
    if cls is dict:
        return "{", "}", len(value), ((f"{one_line(key, width=_WHOLE)}: ", part) for key, part in value.items())
    if cls is not Tagged:
        return "", "", 0, iter(())
    name, fields, more = short_name(value.name), value.fields, attributes_in(value.notes)
    if are_fields(fields):
        if value.notes is None or "tuple" not in value.notes:
            rank = field_rank(value.name)
            fields = dict(sorted(fields.items(), key=lambda item: rank(item[0])))
        return f"{name}(", ")", len(fields) + len(more), ((f"{key}=", part) for key, part in {**fields, **more}.items())
    if more:
        return f"{name}(", ")", 1 + len(more), chain([("", fields)], ((f"{key}=", part) for key, part in more.items()))
    start, end, count, parts = _opened(fields)
    return f"{name}({start}", f"{end})", count, parts


def _flat(value: Any, count: int, room: int) -> str | None:
    """Return a container of ``count`` parts on one line, or None if it needs more columns.

    A large one is not written out to find out.
    """
    if count * 3 > room + 2:
        return None
    text = one_line(value, width=room)  # a shortened text is longer than the room
    return text if len(text) <= room else None


# Numbers


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: ``1 key``, ``1,200 keys``."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


_UNITS: Final = ((10**3, "KB"), (10**6, "MB"), (10**9, "GB"), (10**12, "TB"))


def of_size(count: int | None) -> str:
    """Return a size after a comma, ``, 4.2 KB``, or an empty text if the size is not known."""
    return "" if count is None else f", {size(count)}"


def size(count: int) -> str:
    """Return a number of bytes, to three digits."""
    if count < 1000:
        return plural(count, "byte")
    power, unit = next((power, unit) for power, unit in _UNITS if count < 999.5 * power or unit == "TB")
    return f"{count / power:.3g} {unit}"
