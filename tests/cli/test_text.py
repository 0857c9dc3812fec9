"""The pieces that lines are made of: values as literals, lines cut to a width, sizes, ages, places."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.examples import START, Trip, control_characters
from versioned_state import Tagged
from versioned_state.cli.importing.writer import clean
from versioned_state.cli.render import text
from versioned_state.cli.render.output import Output, Span, columns, crop, join, to_json
from versioned_state.cli.shared.place import path_in
from versioned_state.repository.refs.ref import check_name

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


@given(PLAIN, st.integers(1, 120))
def test_a_value_is_a_literal_of_itself(value: Any, width: int):
    lines = list(text.value_lines(value, width))
    assert ast.literal_eval("\n".join(lines)) == value
    assert all(line.isprintable() for line in lines)


@given(PLAIN, st.integers(20, 120))
def test_a_value_that_fits_takes_one_line(value: Any, width: int):
    lines = list(text.value_lines(value, width))
    fits = len(repr(value)) <= width or not isinstance(value, list | tuple | dict) or not value
    assert (len(lines) == 1) == fits


def test_a_typed_value_that_does_not_fit_has_a_line_for_each_field():
    message = Tagged("chat:Message", {"content": "hi", "role": Tagged("chat:Role", "USER")})
    agent = Tagged(
        "chat:Agent",
        {"memory": [message], "name": "planner", "rows": Tagged("chat:Rows", [1, 2], {"fields": {"at": 3}})},
    )
    assert list(text.value_lines(agent, 44)) == [
        "Agent(",
        "  name='planner',",
        "  memory=[",
        "    Message(role=Role.USER, content='hi'),",
        "  ],",
        "  rows=Rows([1, 2], at=3),",
        ")",
    ]
    assert len(list(text.value_lines(agent, 120))) == 1
    rows = [Tagged("chat:Rows", [1, 2]), Tagged("chat:Rows", [1, 2], {"fields": {"at": 3}})]
    assert list(text.value_lines(rows, 8)) == [
        "[",
        *("  Rows([", "    1,", "    2,", "  ]),"),
        *("  Rows(", "    [", "      1,", "      2,", "    ],", "    at=3,", "  ),"),
        "]",
    ]


@given(st.lists(st.text(max_size=30), max_size=6), st.integers(1, 60))
def test_a_line_is_cut_to_the_width(parts: list[str], width: int):
    spans = [Span(part, "id") if index % 2 else part for index, part in enumerate(parts)]
    whole, cut = join(spans, color=False), join(crop(spans, width), color=False)
    assert columns(cut) <= width
    assert cut == whole if columns(whole) <= width else cut.endswith("…") and whole.startswith(cut[:-1])


@given(st.text())
def test_no_text_reaches_a_terminal_unescaped(value: str):
    assert control_characters(join([value, Span(value, "id")], color=False), allowed="") == set()
    assert control_characters(to_json([value]), allowed="") == set()


def test_a_text_keeps_its_lines_and_tabs(capsys: pytest.CaptureFixture[str]):
    Output().text("one\ttwo\r\n\x1b[2Jthree\n")
    assert capsys.readouterr().out == "one\ttwo\\r\n\\x1b[2Jthree\n\n"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        *[
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1000, "1 KB"),
            (1234, "1.23 KB"),
            (999_400, "999 KB"),
            (999_600, "1 MB"),
        ],
        *[(12_345_678, "12.3 MB"), (5 * 10**9, "5 GB"), (7 * 10**12, "7 TB"), (7 * 10**15, "7e+03 TB")],
    ],
)
def test_sizes(count: int, shown: str):
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *[
            (-5, "just now"),
            (0, "just now"),
            (1, "1 second ago"),
            (59, "59 seconds ago"),
            (60, "1 minute ago"),
            (7199, "1 hour ago"),
        ],
        *[(86400, "1 day ago"), (86400 * 31, "1 month ago"), (86400 * 800, "2 years ago")],
    ],
)
def test_ages(seconds: int, shown: str, trip: Trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text, "now", lambda: START + seconds * 1_000_000)
    assert text.age(trip.commits[0]) == shown


def test_a_time_beyond_the_calendar_is_shown(trip: Trip):
    for time in (10**30, -(10**30)):
        commit = replace(trip.commits[0], time=time)
        assert text.human_time(commit) == text.iso_time(commit) == f"{time} microseconds"


@pytest.mark.parametrize(
    ("place", "rev", "path"),
    [
        ("messages[1].content", "HEAD", "messages[1].content"),
        ("main:messages", "main", "messages"),
        ("main~3:", "main~3", ""),
        ("main@{2026-11-01T12:00:30}:a", "main@{2026-11-01T12:00:30}", "a"),
        ("@{1}:a", "@{1}", "a"),
        ('["a:b"]', "HEAD", '["a:b"]'),
        ('a["b:c"]', "HEAD", 'a["b:c"]'),
        ('main:a["b:c"]', "main", 'a["b:c"]'),
        ('a{"x:y"}', "HEAD", 'a{"x:y"}'),
        (":a", "HEAD", ":a"),
    ],
)
def test_places(place: str, rev: str, path: str):
    assert path_in(place) == (rev, path)


@given(st.text())
def test_any_text_makes_a_name_for_a_branch(name: str):
    check_name("branch", f"prefix/{clean(name) or 'none'}")
