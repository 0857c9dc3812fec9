"""The names of tasks and of events' classes in a history, for completions and for a name that is not among them.

Layer: cli.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from versioned_state.repository.views.render import short_name
from versioned_state.values.typed.tagged import Tagged

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.views.snapshot import Snapshot

_SEARCHED: Final = 1000
"""Commits or events that are searched for names."""

_SHOWN: Final = 10
"""Names that a hint lists if none is similar."""


def task_names(commits: Iterable[Commit]) -> set[str]:
    """Return the names of the tasks whose calls made the first of these commits."""
    return {name for commit in islice(commits, _SEARCHED) if type(name := commit.meta.get("task")) is str}


def class_names(snapshot: Snapshot) -> set[str]:
    """Return the names of the classes of the last events."""
    from versioned_state.agents.events.log import events

    return {class_name(event) for event in events(snapshot, limit=_SEARCHED, reverse=True)}


def class_name(event: Any) -> str:
    """Return the name of an event's class, also of a class that is not found here."""
    return short_name(event.name).rpartition(".")[2] if isinstance(event, Tagged) else type(event).__name__


def near_name(name: str, names: Iterable[str]) -> str:
    """Return a hint with the names near one that is not among them, or else the first of them."""
    from difflib import get_close_matches

    known = sorted(set(names))
    if not known or name in known:
        return ""
    near = get_close_matches(name, known, n=3)
    return (
        f"did you mean {', '.join(near)}?"
        if near
        else f"there {'is' if len(known) == 1 else 'are'} {', '.join(known[:_SHOWN])}"
    )
