"""``vstate events``, ``vstate view`` and ``vstate log --task`` over the calls of tasks."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import Vstate
from tests.support.terminal import complete, run_in_terminal, until_ctrl_c
from versioned_state import Agent, Disk, Versioned, current_state, emit, events, task


@dataclass
class Booked:
    city: str


@task
def book(city: str) -> str:
    current_state().setdefault("trips", []).append(city)
    emit(Booked(city))
    if city == "nowhere":
        raise ValueError("no such city")
    return city.upper()


@task
def return_booked(city: str) -> Booked:
    return Booked(city)


@Agent("planner").task
def plan() -> None:
    book("Oslo")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Disk(tmp_path / "store") as disk, Versioned(disk) as state:
        book("Rome", state=state)
        plan(state=state)
        with pytest.raises(ValueError, match="no such city"):
            book("nowhere", state=state)
    return tmp_path / "store"


def test_events_are_listed_with_the_commit_that_the_agent_saw(vstate: Vstate, store: Path):
    lines = vstate("events", store=store).stdout.splitlines()
    assert len(lines) == 3 + 5 + 3
    assert lines[1].endswith("  book  Booked(city='Rome')")
    assert "planner/book  Booked(city='Oslo')" in lines[5]
    with Disk(store) as disk, Versioned(disk) as state:
        assert [line.split()[2] for line in lines] == [str(event.commit_hash)[:12] for event in events(state)]
    shown = vstate("events", "main~1", "--json", store=store).stdout.splitlines()
    assert len(shown) == 8
    first = json.loads(shown[1])
    assert (first["type"], first["namespace"], first["agent"]) == ("Booked", "book", "")
    assert len(first["commit"]) == 48


def test_an_instance_in_an_event_is_shown_as_its_class_would(vstate: Vstate, tmp_path: Path):
    with Disk(tmp_path / "store") as disk, Versioned(disk) as state:
        return_booked("Rome", state=state)
    start, success = vstate("events", store=tmp_path / "store").stdout.splitlines()
    assert start.endswith("TaskStartEvent(task_name='return_booked', inputs={'city': 'Rome'}, message='')")
    assert success.endswith("SuccessEvent(result=Booked(city='Rome'))")


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--type", "Booked"], 3),
        (["--type", "ErrorEvent", "--type", "SuccessEvent"], 4),
        (["--task", "plan"], 2),
        (["--task", "book"], 9),
        (["--since", "2h"], 11),
        (["--since", "2999-01-01"], 0),
        (["-n", "2"], 2),
        (["-n", "0"], 0),
    ],
)
def test_events_are_filtered(vstate: Vstate, store: Path, options: list[str], count: int):
    assert len(vstate("events", *options, store=store).stdout.splitlines()) == count


def test_log_shows_the_commits_of_a_task_and_show_its_outcome(vstate: Vstate, store: Path):
    shown = vstate("log", "--task", "book", store=store).stdout
    assert "book('Rome'): trips added" in shown
    assert "book('nowhere'): failure: ValueError('no such city')" in shown
    assert "plan" not in shown
    assert vstate("log", "--task", "plan", "--oneline", store=store).stdout.count("\n") == 1
    show = vstate("show", store=store).stdout
    assert "failure" in show
    assert "seconds" in show


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--type", "Bookd"], "no events match\nhint: did you mean Booked?\n"),
        (["--type", "Booked", "--type", "Xyz"], ""),  # some match
        (["--type", "Xyz"], "no events match\nhint: there are Booked, ErrorEvent, SuccessEvent, TaskStartEvent\n"),
        (["--task", "boko"], "no events match\nhint: did you mean book?\n"),
        (["--since", "now"], "no events match\n"),
        (["-n", "0"], ""),
    ],
)
def test_a_name_that_no_event_has_is_told_with_those_near_it(
    options: list[str], told: str, vstate: Vstate, store: Path
):
    result = vstate("events", *options, store=store)
    assert (result.code, result.stderr) == (0, told)
    assert bool(result.stdout) == (not told and options != ["-n", "0"])


def test_tasks_and_classes_of_events_are_completed(store: Path):
    assert complete(f"vstate --store {store} events --type ") == [
        "Booked",
        "ErrorEvent",
        "SuccessEvent",
        "TaskStartEvent",
    ]
    assert complete(f"vstate --store {store} events --task p") == ["plan"]
    assert complete(f"vstate --store {store} log --task ") == ["book", "plan"]
    assert complete("vstate --store nowhere events --type ") == []


def test_events_fit_the_terminal(store: Path, tmp_path: Path):
    lines = run_in_terminal("--store", str(store), "--no-pager", "--color", "never", "events", cwd=tmp_path).lines
    assert max(map(len, lines)) <= 80
    start = next(at for at, line in enumerate(lines) if "Booked(city='Oslo')" in line)
    assert lines[start].split()[3] == "planner/book"


def test_a_wide_terminal_shows_more_of_an_event(store: Path, tmp_path: Path):
    with Versioned(Disk(store)) as state:
        book("x" * 110, state=state)
    command = ["--store", str(store), "--no-pager", "--color", "never", "events", "--type", "Booked", "-n", "1"]
    for columns, whole in ((200, True), (80, False)):
        (line,) = " ".join(run_in_terminal(*command, cwd=tmp_path, columns=columns).text.split()).splitlines()
        assert (f"Booked(city='{'x' * 110}')" in line) == whole


def test_view_hides_events_and_fits_its_budget(vstate: Vstate, store: Path):
    shown = vstate("view", store=store).stdout.splitlines()
    assert shown[1:] == ["@book.trips = ['Oslo']", "trips = ['Rome']"]
    assert len(vstate("view", "--budget", "30", store=store).stdout.strip()) <= 30
    assert (
        json.loads(vstate("view", "--json", "--full", store=store).stdout)["view"].splitlines()[1].startswith("trips")
    )


def test_the_events_that_a_limit_leaves_out_are_not_new_while_following(
    vstate: Vstate, store: Path, monkeypatch: pytest.MonkeyPatch
):
    looks = iter((None, KeyboardInterrupt()))

    def pause(_: float) -> None:
        if (interrupt := next(looks)) is not None:
            raise interrupt

    monkeypatch.setattr(time, "sleep", pause)
    shown = vstate("events", "-f", "-n", "1", store=store).stdout.splitlines()
    assert shown == vstate("events", "-n", "1", store=store).stdout.splitlines()


def test_what_cannot_be_followed_is_refused(vstate: Vstate, store: Path):
    result = vstate("events", "main~1", "--follow", store=store)
    assert result.code != 0
    assert "--follow takes a branch" in result.stderr


def test_a_process_follows_what_another_commits_until_ctrl_c(store: Path, tmp_path: Path):
    command = ["--store", str(store), "events", "--follow", "--type", "Booked", "--json"]
    with until_ctrl_c(*command, cwd=tmp_path) as (printed, _):
        before = [json.loads(printed.readline()) for _ in range(3)]
        with Versioned(Disk(store)) as state:
            for city in ("Lima", "Bonn"):
                book(city, state=state)
                assert city in json.dumps(json.loads(printed.readline()))
        assert all("Lima" not in json.dumps(each) for each in before)
