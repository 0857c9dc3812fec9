"""``vstate events``: what happened in the calls of tasks. Layer: cli."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import click

from versioned_state.agents.events.classes import TaskStartEvent
from versioned_state.agents.events.log import events as read_events
from versioned_state.agents.events.stamps import unstamped
from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.filters import parse_when
from versioned_state.cli.shared.follow import PAUSE_S, begin_to_follow
from versioned_state.cli.shared.names import class_name, near_name
from versioned_state.cli.shared.place import explained
from versioned_state.cli.shared.settings import Settings, json_option, limit_option, parse_text, revision_argument, verb
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.render import WIDTH, escape, one_line
from versioned_state.values.typed.tagged import Tagged


@verb("events", example="vstate events --type ErrorEvent --since 2h")
@revision_argument("rev", default="HEAD")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="NAME",
    type=parse_text,
    shell_complete=completion.event_class,
    help="Show only events of this class.",
)
@click.option(
    "--task",
    metavar="NAME",
    type=parse_text,
    shell_complete=completion.task,
    help="Show only events of calls of this task.",
)
@click.option(
    "--since",
    metavar="WHEN",
    type=parse_text,
    help="Show events from then on: 2026-11-21T12:00 (UTC), yesterday, '2 hours ago' or 2h.",
)
@limit_option("Show at most the last COUNT events.")
@click.option(
    "-f", "--follow", is_flag=True, help="Keep running, and show new events of the branch REV as they are committed."
)
@json_option
@click.pass_obj
def events(
    settings: Settings,
    rev: str,
    *,
    types: tuple[str, ...],
    task: str | None,
    since: str | None,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the events that agents emitted up to REV (default: HEAD, the current branch), oldest first.

    Each line shows the time, the call, the commit and the event: vstate get COMMIT:PATH shows what the agent knew then.

    With --json: one object a line.
    """
    output = settings.output
    when = None if since is None else parse_when(since)
    with (
        settings.reading() as repository,
        output.paged(unless=as_json or follow),
        explained(repository, "vstate events", rev, ""),
    ):
        if follow:
            begin_to_follow(settings, repository, rev)
        met = _Met()
        source = _select(read_events(repository.snapshot(rev, describe=True), since=when), types, task, met)
        seen: set[tuple[Any, ...]] = set()
        if limit is not None:
            found = list(source)
            seen.update(map(_identity, found))  # those that are left out too: they are not new later
            source = iter(found[-limit:] if limit else ())
        for event in source:
            seen.add(_identity(event))
            _show(output, event, as_json=as_json)
        if not seen and not follow and limit != 0:
            output.nothing(
                "no events match" if types or task or since else "there are no events", met.hint(types, task)
            )
        while follow:
            output.flush()  # a pipe is not flushed at the end of a line
            time.sleep(PAUSE_S)
            for event in _select(read_events(repository.snapshot(rev, describe=True), since=when), types, task, met):
                if _identity(event) not in seen:
                    seen.add(_identity(event))
                    _show(output, event, as_json=as_json)


class _Met:
    """The classes of all events that were read, and their tasks, for a name that none of them has."""

    def __init__(self) -> None:
        self.types: set[str] = set()
        self.tasks: set[str] = set()

    def hint(self, types: tuple[str, ...], task: str | None) -> str:
        """Return the names near the first one that no event has."""
        hints = [near_name(name, self.types) for name in types]
        return next(filter(None, [*hints, "" if task is None else near_name(task, self.tasks)]), "")


def _select(source: Any, types: tuple[str, ...], task: str | None, met: _Met) -> Iterator[Any]:
    tasks: dict[str, str] = {}
    for event in source:
        met.types.add(class_name(event))
        if isinstance(event, TaskStartEvent):
            tasks[event.full_namespace or ""] = event.task_name
            met.tasks.add(event.task_name)
        if (not types or class_name(event) in types) and (task is None or tasks.get(event.full_namespace) == task):
            yield event


def _identity(event: Any) -> tuple[Any, ...]:
    return event.timestamp, event.full_namespace, event.commit_hash, one_line(unstamped(event))


def _show(output: Output, event: Any, *, as_json: bool) -> None:
    if as_json:
        output.json(
            {
                "timestamp": f"{event.timestamp:%Y-%m-%dT%H:%M:%S.%fZ}",
                "type": class_name(event),
                "agent": event.agent_name,
                "namespace": event.full_namespace,
                "commit": event.commit_hash,
                "event": json_value(unstamped(event)),
            }
        )
        return
    output.wrapped(
        [
            [
                Span(f"{event.timestamp:%Y-%m-%d %H:%M:%S}", "time"),
                "  ",
                Span((event.commit_hash or "")[:12], "id"),
                (
                    f"  {escape(event.full_namespace)}"
                    f"  {one_line(_shown(unstamped(event)), width=max(WIDTH, output.width))}"
                ),
            ]
        ]
    )


def _shown(event: Any) -> Any:
    """Return an event as people see it: one of a library class looks like one of a user's, instances in it too."""
    if isinstance(event, Tagged) or not is_dataclass(event):
        return event
    return Tagged(class_name(event), {field.name: getattr(event, field.name) for field in fields(event) if field.repr})
