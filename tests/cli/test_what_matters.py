"""Diffs and logs show what matters: telling fields, ISO times, the changed part of a long text, arguments of tasks."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import numpy as np
import pydantic
import pytest

from tests.support.command_line import Vstate
from versioned_state import Disk, Tagged, Versioned, current_state, task
from versioned_state.agents.call import Call
from versioned_state.agents.tasks.call_text import call_text
from versioned_state.cli.render.changes import print_changes
from versioned_state.cli.render.output import Output
from versioned_state.repository.views.render import one_line

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


class LoudZone(dt.tzinfo):
    """A zone whose offset must not be asked for."""

    def utcoffset(self, _: Any) -> dt.timedelta:
        raise AssertionError("called")

    dst = utcoffset

    def tzname(self, _: Any) -> str:
        raise AssertionError("called")


class Level(enum.Flag):
    LOW = 1
    HIGH = 2


@dataclass
class Zebra:
    zebra: int
    made_at: dt.datetime
    apple: str


class Yak(pydantic.BaseModel):
    yak: int
    apple: str
    content: str


@attrs.define
class Xerus:
    xerus: int
    apple: str


class Place(NamedTuple):
    z: int
    a: int


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Zebra(1, NOON, "a"), "Zebra(zebra=1, made_at=2026-01-02T12:00:00+00:00, apple='a')"),
        (Yak(yak=1, apple="a", content="b"), "Yak(yak=1, apple='a', content='b')"),
        (Xerus(1, "a"), "Xerus(xerus=1, apple='a')"),
        (Place(1, 2), "Place(z=1, a=2)"),
    ],
)
def test_fields_are_in_the_order_of_their_class(value: Any, shown: str):
    state = Versioned()
    state["x"] = value
    state.commit()
    assert state.checkout("HEAD").preview("x") == shown
    assert str(state.repository.diff("HEAD~1", "HEAD")[0]) == f"+ x = {shown}"


def test_without_the_class_who_and_what_come_first_and_times_and_ids_last():
    fields = {
        "at": NOON,
        "content": "hi",
        "id": 5,
        "message_id": "a",
        "name": "Ann",
        "role": "user",
        "score": 1,
        "tags": [],
        "timestamp": NOON,
    }
    shown = one_line(Tagged("chat:Message", fields), width=1000)
    names = [part.split("=")[0].removeprefix("Message(") for part in shown.split(", ")]
    assert names == ["role", "name", "content", "score", "at", "id", "message_id", "timestamp", "tags"]


def test_times_are_iso_text():
    value = [NOON, dt.date(2026, 1, 2), dt.time(1, 2), (NOON,)]
    assert one_line(value) == "[2026-01-02T12:00:00+00:00, 2026-01-02, 01:02:00, (2026-01-02T12:00:00+00:00,)]"


def test_the_changed_part_of_a_long_text_is_shown(vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "s")) as state:
        state["plan"] = "word " * 300 + "by train" + " word" * 300
        state["short"], state["start"] = "a" * 90 + "b", "x" + "y" * 500
        state.commit()
        state["plan"] = "word " * 300 + "by plane" + " word" * 300
        state["short"], state["start"] = "a" * 90 + "c", "z" + "y" * 500
        state.commit()
    plan, short, start = vstate("diff", store=tmp_path / "s").stdout.splitlines()
    assert "by train" in plan.split(" -> ")[0]
    assert "by plane" in plan.split(" -> ")[1]
    assert plan.endswith("… (3008 characters)")
    assert short == f"~ short = '{'a' * 90}b' -> '{'a' * 90}c'"
    assert start.startswith("~ start = 'xyyy")
    assert "by plane" in vstate("diff", "--full", store=tmp_path / "s").stdout


def test_a_terminal_is_told_how_whole_values_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    state = Versioned()
    state["a"] = 1
    state.commit()
    state["long"] = "x" * 1000
    state.commit()
    monkeypatch.setattr(Output, "is_terminal", True)
    for first, is_told in (("HEAD~1", True), ("HEAD~2", True), ("HEAD", False)):
        print_changes(Output(), state.repository.diff(first, "HEAD"), hint=True)
        assert ("--full shows whole values" in capsys.readouterr().out) is is_told
    print_changes(Output(), state.repository.diff("HEAD~1", "HEAD"), hint=True, full=True)
    print_changes(Output(), state.repository.diff("HEAD~2", "HEAD~1"), hint=True)
    assert "--full" not in capsys.readouterr().out


def test_old_and_new_have_colours(vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "s")) as state:
        for number in range(2):
            state["a"] = number
            state.commit()
    assert "\x1b[31m0\x1b[0m -> \x1b[32m1\x1b[0m" in vstate("diff", "--color", "always", store=tmp_path / "s").stdout


# Arguments of tasks


@task
def choose(item: str, price: Any = 5, *, note: Any = None) -> None:
    str(item)


@task
def idle() -> None:
    current_state()


class Loud:
    def __repr__(self) -> str:
        raise AssertionError("no code of an argument is called")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("desk", 1100), "choose('desk', 1100)"),
        (("desk",), "choose('desk', 5)"),
        (("x" * 1000, 1), f"choose('{'x' * 24}'…, 1)"),
        (("a\x1b[31m\n", {"a": 1}), "choose('a\\x1b[31m\\n', {'a': 1})"),
        (("a", [1, [2]]), "choose('a', <list of 2>)"),
        (("a", Loud()), "choose('a', <Loud>)"),
        (("a", NOON), "choose('a', 2026-01-02T12:00+00:00)"),
        (("a", NOON.replace(second=7, tzinfo=None)), "choose('a', 2026-01-02T12:00:07)"),
        (("a", NOON.replace(tzinfo=LoudZone())), "choose('a', <datetime>)"),
        ((dt.date(2026, 1, 2), dt.timedelta(hours=3)), "choose(2026-01-02, 3:00:00)"),
        (("pay", Decimal("420.50")), "choose('pay', 420.50)"),
        ((Decimal("1e999999"), Decimal("nan")), "choose(<Decimal>, <Decimal>)"),
        ((Level.HIGH, UUID(int=7)), "choose(Level.HIGH, 00000000-0000-0000-0000…)"),
        (
            (Level.LOW | Level.HIGH, Decimal("0.1234567890123456789012345678901234")),
            "choose(Level.LOW|HIGH, 0.123456789012345678901…)",
        ),
    ],
)
def test_the_message_of_a_task_has_its_arguments(args: tuple[Any, ...], message: str):
    state = Versioned()
    choose(*args, state=state)
    assert state.head.message == message
    assert state.head.meta["task"] == "choose"


def test_a_task_without_arguments_and_one_with_many():
    state = Versioned()
    idle(state=state)
    assert state.head.message == "idle"
    call = Call.__new__(Call)
    call.name, call.inputs = "many", {f"a{index}": "x" * 20 for index in range(9)}
    assert call_text(call) == f"many('{'x' * 20}', '{'x' * 20}', …)"


def test_an_array_of_several_dimensions_is_shown_in_rows(vstate: Vstate, tmp_path: Path):
    with Disk(tmp_path / "s") as store, Versioned(store) as state:
        state["matrix"] = np.arange(6).reshape(2, 3)
        state["all"] = {"row": np.arange(3), "cube": np.arange(200).reshape(2, 50, 2)}
        state.commit()
        state["matrix"][0, 0] = 7
        state.commit()
    assert vstate("get", "matrix", store=tmp_path / "s").stdout == "array([[7, 1, 2],\n       [3, 4, 5]])\n"
    lines = vstate("get", "all", store=tmp_path / "s").stdout.splitlines()
    assert lines[1:3] == ["  'row': array([0, 1, 2]),", "  'cube': array([[[  0,   1],"]
    assert lines[3] == " " * len("  'cube': array([[") + "[  2,   3],"
    assert (
        vstate("diff", store=tmp_path / "s").stdout
        == "~ matrix = array([[0, 1, 2], [3, 4, 5]]) -> array([[7, 1, 2], [3, 4, 5]])\n"
    )
