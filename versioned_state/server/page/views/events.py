"""The calls of tasks as a timeline, with their effects: what was called within what, how long it took, how it ended.

Layer: server.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any, Final

from versioned_state.agents.events.classes import TaskStartEvent
from versioned_state.agents.events.log import events as read_events
from versioned_state.agents.events.stamps import unstamped
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.ledger import Ledger
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.views.render import one_line, short_name
from versioned_state.services.calls.deadline import LateError, check_deadline
from versioned_state.values.typed.tagged import Tagged

SPANS: Final = 500
"""Calls of a page."""

_EVENTS: Final = 1000
"""Events of a page: of a call, its beginning, its end, and what it emits."""

_EFFECTS: Final = 100
_LINE: Final = 200

_ENDS: Final = {"SuccessEvent": "success", "FailEvent": "failure", "ClarifyEvent": "clarify", "ErrorEvent": "error"}


def events(repository: Repository, budget: Budget, commit: Commit, *, skip: int = 0, scope: str = "") -> dict[str, Any]:
    """Return the last calls up to a commit, each as a bar within the outermost call around it.

    Args:
        skip: how many events the pages before had, from the end.
        scope: only effects of branches whose names begin with it.
    """
    snapshot = repository.snapshot(commit, describe=True)
    taken = []
    is_late = False
    try:
        for event in islice(read_events(snapshot, reverse=True), skip, skip + _EVENTS + 1):
            check_deadline()
            taken.append(event)
    except LateError:
        is_late = True
    more = len(taken) > _EVENTS
    groups = _grouped(taken[:_EVENTS][::-1], budget)
    return {
        "title": "Events",
        "commit": commits.facts(commit, budget),
        "groups": groups[-SPANS:][::-1],
        "effects": _effects(repository, budget, scope) if not skip else None,
        "next": skip + _EVENTS if more else None,
        "skip": skip,
        "late": is_late,
    }


def _name(event: Any) -> str:
    return short_name(event.name).rpartition(".")[2] if isinstance(event, Tagged) else type(event).__name__


def _field(event: Any, name: str) -> Any:
    """Return a field of an event, of a class that is here or not."""
    fields = event.fields if isinstance(event, Tagged) else getattr(event, "__dict__", {})
    return fields.get(name) if type(fields) is dict else None


def _grouped(found: list[Any], budget: Budget) -> list[dict[str, Any]]:
    """Return the outermost calls, oldest first, each with its spans and events in order."""
    groups: list[dict[str, Any]] = []
    open_spans: dict[str, dict[str, Any]] = {}
    for event in found:
        space, at, name = event.full_namespace or "", event.timestamp, _name(event)
        span = open_spans.get(space)
        if isinstance(event, TaskStartEvent) or name == "TaskStartEvent":
            root = open_spans.get(space.partition("/")[0]) if "/" in space else None
            span = _span(event, space, budget)
            open_spans[space] = span
            if root is None:
                groups.append({"rows": [span], "start": commits.moment(_micros(at))})
                span["group"] = groups[-1]
            else:
                span["group"] = root["group"]
                root["group"]["rows"].append(span)
        elif span is None:
            row = _point(event, name, budget)
            groups.append({"rows": [row], "start": commits.moment(_micros(at))})
        elif name in _ENDS and not (name == "ErrorEvent" and _field(event, "recoverable")):
            span["end"], span["outcome"] = _micros(at), _ENDS[name]
            told = _field(event, "error") or _field(event, "message") or _field(event, "result")
            span["told"] = (
                "" if told is None else budget.cut(one_line(told, width=_LINE, quote=type(told) is not str), 2 * _LINE)
            )
            del open_spans[space]
        else:
            span["group"]["rows"].append(_point(event, name, budget, depth=span["depth"] + 1))
    for group in groups:
        _lay_out(group)
    return groups


def _span(event: Any, space: str, budget: Budget) -> dict[str, Any]:
    inputs = _field(event, "inputs")
    return {
        "is_span": True,
        "name": budget.cut(str(_field(event, "task_name") or space or "call"), _LINE),
        "line": budget.cut(", ".join(f"{key}={one_line(value, width=60)}" for key, value in inputs.items()), _LINE)
        if type(inputs) is dict
        else "",
        "agent": budget.cut(event.agent_name or "", _LINE),
        "depth": min(space.count("/"), 12),
        "begin": _micros(event.timestamp),
        "end": None,
        "outcome": "",
        "told": "",
        "saw": event.commit_hash,
    }


def _point(event: Any, name: str, budget: Budget, depth: int = 0) -> dict[str, Any]:
    return {
        "is_span": False,
        "name": budget.cut(name.removesuffix("Event") or name, _LINE),
        "line": budget.cut(_fields_line(event), 3 * _LINE),
        "agent": "",
        "depth": min(depth, 12),
        "begin": _micros(event.timestamp),
        "end": _micros(event.timestamp),
        "outcome": "error" if name == "ErrorEvent" else "",
        "told": "",
        "saw": event.commit_hash,
    }


def _fields_line(event: Any) -> str:
    """Return the fields of an event that say something, on one line."""
    plain = unstamped(event)
    fields = plain.fields if isinstance(plain, Tagged) else getattr(plain, "__dict__", plain)
    if type(fields) is not dict:
        return one_line(fields, width=2 * _LINE)
    said = ((key, value) for key, value in fields.items() if value is not None and value not in ("", [], {}, False))
    return ", ".join(f"{key}: {one_line(value, width=_LINE, quote=False)}" for key, value in said)


def _lay_out(group: dict[str, Any]) -> None:
    """Set the place of each row within its group, in thousandths of the time that the outermost call took."""
    rows = group["rows"]
    begin = rows[0]["begin"]
    end = max((row["end"] or row["begin"]) for row in rows)
    length = max(end - begin, 1)
    for row in rows:
        row.pop("group", None)
        row["open"] = row["end"] is None
        row["ms"] = ((row["end"] if row["end"] is not None else end) - row["begin"]) / 1000
        row["took"] = _took(row["ms"])
        row["x"] = min(max((row["begin"] - begin) * 1000 // length, 0), 996)
        row["width"] = max(min(round(row["ms"] * 1_000_000 / length), 1000 - row["x"]), 4)
        row["after"] = _took((row["begin"] - begin) / 1000)


def _took(ms: float) -> str:
    if ms < 1000:
        return f"{ms:,.0f} ms" if ms >= 1 else f"{ms:.1f} ms"
    return f"{ms / 1000:,.1f} s" if ms < 120_000 else f"{ms / 60_000:,.1f} min"


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def _effects(repository: Repository, budget: Budget, scope: str) -> dict[str, Any]:
    """Return the newest effects of the store, or of the branches that the viewer may see."""
    try:
        found = [
            each for each in Ledger(repository.database).records() if not scope or (each.branch or "").startswith(scope)
        ]
    except LateError:
        return {"rows": [], "total": 0, "late": True}
    rows = [
        {
            "key": budget.cut(each.key or "(erased)", _LINE),
            "status": each.status,
            "since": commits.moment(_micros(each.since)),
            "branch": each.branch,
            "result": budget.cut(one_line(each.result, width=_LINE), 2 * _LINE) if each.status == "done" else "",
        }
        for each in found[-_EFFECTS:][::-1]
    ]
    return {"rows": rows, "total": len(found), "late": False}
