"""``vstate demo``: a small agent plans a weekend, and its memory is shown round by round. Layer: cli.

``trip_agent`` is the agent; this module shows it. Nothing depends on the clock or on chance, so the output is always
the same.
"""

from __future__ import annotations

import json
import random
import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import click
import zstandard

from versioned_state.agents.events.classes import ActionEvent
from versioned_state.agents.events.log import events
from versioned_state.cli.commands.read.diff import diff_of
from versioned_state.cli.demo.trip_agent import TripAgent, move_to
from versioned_state.cli.render.changes import print_changes, stat_line
from versioned_state.cli.render.output import Output, Span, is_utf8
from versioned_state.cli.render.rows import Cells, fit_rows
from versioned_state.cli.render.text import commit_header, commit_lines, message_lines, names_of, size
from versioned_state.cli.shared.settings import Settings, program, verb
from versioned_state.errors import StateError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.state.versioned import Versioned
from versioned_state.storage import Counting, Disk

_CODE: Final = """\
state = Versioned(Disk({folder!r}))
# Plain lists and dicts, changed in place; nothing is assigned back.
state["messages"].append(answer)
state["budget"]["spent"] += 98
state.commit("Book the train", author="planner", meta={{"tool": "book"}})"""

_START: Final = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
_PAUSE: Final = 0.08  # seconds between two rounds on a terminal, so that the eye sees rounds
_CHAT: Final = (100, 500)  # rounds of the long chat whose cost is shown


@dataclass(frozen=True)
class _Cost:
    """The bytes that a round stored, and those of the whole state as JSON and as compressed JSON."""

    name: str
    stored: int
    whole: int
    compressed: int


@dataclass
class _Clock:
    """The time in the story, in microseconds since 1970."""

    time: int


@dataclass
class _Run:
    """The agent's memory while it runs: a state, its store, and the clock of its story."""

    state: Versioned
    store: Counting
    clock: _Clock
    commits: list[Commit] = field(default_factory=list)

    def commit(self, message: str, *, seconds: int, author: str, meta: dict[str, Any]) -> Commit:
        self.clock.time += seconds * 1_000_000
        self.store.reset()
        commit = self.state.commit(message, author=author, meta=meta)
        self.commits.append(commit)
        return commit

    def cost(self, name: str) -> _Cost:
        """Return the cost of the last round."""
        whole = json.dumps(dict(self.state), ensure_ascii=False).encode()
        return _Cost(name, self.store.counts.bytes_written, len(whole), len(zstandard.compress(whole)))


@verb("demo", example="vstate demo ./demo")
@click.argument("folder", required=False)
@click.pass_obj
def demo(settings: Settings, folder: str | None) -> None:
    """Let a small agent plan a weekend, and look at its memory round by round.

    The store is made in FOLDER, which must be new or empty, and is kept; without FOLDER, in a new temporary one. There
    is no network and no model: every run is the same.
    """
    output = settings.output
    place = _place(folder)
    clock = _Clock(int(_START.timestamp()) * 1_000_000)
    store = Counting(Disk(place))
    with Repository(store, pickle="refuse", clock=lambda: clock.time) as repository:
        run = _Run(Versioned(repository), store, clock)
        _show_code(output, place)
        _show_rounds(output, run)
        costs = [run.cost(f"round {len(run.commits)} of the trip")]
        _show_log(output, run)
        _show_diff(output, run)
        _show_past(output, run)
        _show_task(output, run)
        _show_costs(output, [*costs, *_chat(run)])
    _show_more(output, place)


def _place(folder: str | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="vstate-demo-"))
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise StateError(
            f"{folder} is there, and is not an empty folder", hint="name one that is not there yet, or none at all"
        )
    return place


def _title(output: Output, text: str) -> None:
    output.print()
    line = "─" if is_utf8() else "-"
    output.crop(Span(f"{line * 2} {text} {line * (76 - len(text))}".rstrip(), "title"))
    output.print()


def _show_code(output: Output, place: Path) -> None:
    output.print(Span("versioned-state: git for the state of AI agents", "title"))
    output.print()
    for line in _CODE.format(folder=str(place)).split("\n"):
        output.print("    ", Span(line, "dim") if line.startswith("#") else line)


def _show_rounds(output: Output, run: _Run) -> None:
    _title(output, "An agent plans a weekend. Every round is a commit")
    for number, each in enumerate(TripAgent(run.state).rounds(), 1):
        commit = run.commit(each.message, seconds=each.seconds, author=each.author, meta={"round": number, **each.meta})
        changed = stat_line(diff_of(run.state.repository, commit).stat())
        output.crop(
            *(f"{number:>3}  ", Span(commit.short, "id"), "  "),
            *(Span(f"{each.author:<13}", "author"), f" {each.message:<42} "),
            *changed,
        )
        if output.is_terminal:
            time.sleep(_PAUSE)


def _show_log(output: Output, run: _Run) -> None:
    _title(output, f"{program()} log -n 3")
    names = names_of(run.state.repository)
    for count, commit in enumerate(run.state.log(limit=3)):
        if count:
            output.print()
        output.wrapped(commit_lines(commit, names))


def _show_diff(output: Output, run: _Run) -> None:
    commit = next(commit for commit in run.commits if "cancelled" in commit.meta)
    back = run.state.head.height - commit.height
    _title(output, f"{program()} show main~{back}      What did it change when the traveller changed his mind?")
    output.wrapped(commit_header(commit, {}, {}), indent=8)
    output.print()
    output.wrapped(message_lines(commit))
    output.print()
    print_changes(output, diff_of(run.state.repository, commit).changes)


def _show_past(output: Output, run: _Run) -> None:
    then = run.commits[6]
    back = run.state.head.height - then.height
    _title(output, f'state.checkout("main~{back}")      What did it know then, and what does it know now?')
    now = run.state.head
    past = run.state.checkout(then)
    cells = [("", f"then: round {then.height}, {then.short}", f"now: round {now.height}, {now.short}")]
    keys = ("itinerary", "budget", "prefs", "plan", "notes", "messages")
    cells += [(key, _brief(key, past[key]), _brief(key, run.state[key])) for key in keys]
    room = max(10, (output.width - 13) // 2)
    rows: list[Cells] = []
    for key, *sides in cells:
        wrapped = [[part for line in side.split("\n") for part in wrap(line, room)] for side in sides]
        rows += zip_longest([Span(key, "path")], *wrapped, fillvalue="")
    output.lines(fit_rows(rows, [lambda row: row], None))


def _brief(key: str, value: Any) -> str:
    match key:
        case "itinerary":
            return "\n".join(f"{entry['what']} ({entry['price']})" for entry in value)
        case "budget":
            return f"{value['spent']} of {value['limit']} {value['currency']} spent"
        case "prefs":
            return "\n".join(
                f"{name}: {', '.join(part) if isinstance(part, list) else part}" for name, part in value.items()
            )
        case "plan":
            return "\n".join(f"{step['do']}: {step['status']}" for step in value)
        case "messages":
            return f"{len(value)} messages"
        case _:
            return str(value)


_TASK: Final = """\
@task
def move_to(hotel: str, price: int) -> str:
    emit(ActionEvent(thinking=f"the room was lost; {hotel} has one", ...))
    ...

move_to("Casa da Graça", 318, state=state.fork("another-hotel"))"""


def _show_task(output: Output, run: _Run) -> None:
    _title(output, "A call of a task is one commit, and its events lead to what it knew")
    for line in _TASK.split("\n"):
        output.print("    ", line)
    output.print()
    with run.state.fork("another-hotel") as state:
        move_to("Casa da Graça", 318, state=state)
        for event in events(state):
            kind = type(event).__name__
            said = getattr(event, "thinking", "") or getattr(event, "result", "") or ""
            output.crop(f"  {kind:<16}", Span(event.commit_hash[:12], "id"), f"  {said}".rstrip())
        action = events(state, types=ActionEvent)[-1]
        output.print()
        output.print("state.checkout(event.commit_hash)      What did the agent know when it acted?")
        known, now = (
            _brief("itinerary", each["itinerary"]).split("\n")[1]
            for each in (state.checkout(action.commit_hash), state)
        )
        output.print("  it knew   ", Span(known, "removed"))
        output.print("  and then  ", Span(now, "added"))


def _chat(run: _Run) -> Iterator[_Cost]:
    """Run the same state through a long chat on a branch of its own, two messages a round."""
    repository = run.state.repository
    repository.branches.create("long-chat", "main")
    chat = _Run(Versioned(repository, branch="long-chat"), run.store, run.clock)
    draw = random.Random(7)  # noqa: S311 - text, not secrets
    words = sorted(
        {word for message in run.state["messages"] for word in (message["content"] or "").split() if word.isalpha()}
    )
    for number in range(1, _CHAT[-1] + 1):
        for role in ("user", "assistant"):
            chat.state["messages"].append({"role": role, "content": " ".join(draw.choices(words, k=60))})
        chat.commit(f"round {number} of the chat", seconds=20, author="chat", meta={"round": number})
        if number in _CHAT:
            yield chat.cost(f"round {number} of a chat")


def _show_costs(output: Output, costs: list[_Cost]) -> None:
    _title(output, "A round costs the size of its changes, not of the state")
    output.print(Span(f"{'':<22}{'stored here':>12}{'whole state, JSON':>20}{'JSON, zstd':>13}", "dim"))
    for cost in costs:
        stored = Span(f"{size(cost.stored):>12}", "added")
        output.print(f"{cost.name:<22}", stored, f"{size(cost.whole):>20}{size(cost.compressed):>13}")


def _show_more(output: Output, place: Path) -> None:
    _title(output, "It is all still there")
    vstate = f"{program()} --store {shlex.quote(str(place))}"
    for line in ("log --stat", "get main~7:itinerary", "diff main~7 main --path budget", "status"):
        output.print("  ", Span(f"{vstate} {line}", "hint"))
