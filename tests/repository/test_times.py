"""Times as people write them, relative to a clock that stands still."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.repository.names.times import instants

NOW = dt.datetime(2026, 11, 21, 2, 30, 0, 7, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def clock() -> int:
    return (NOW - EPOCH) // MICROSECOND


def at(time: int) -> dt.datetime:
    return EPOCH + time * MICROSECOND


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("now", dt.timedelta()),
        ("3d", dt.timedelta(days=3)),
        ("3 d", dt.timedelta(days=3)),
        ("90s", dt.timedelta(seconds=90)),
        ("10 min ago", dt.timedelta(minutes=10)),
        ("5m", dt.timedelta(minutes=5)),
        ("2 hours ago", dt.timedelta(hours=2)),
        ("2.hours.ago", dt.timedelta(hours=2)),
        ("an hour ago", dt.timedelta(hours=1)),
        ("a day ago", dt.timedelta(days=1)),
        (" 2 weeks ", dt.timedelta(weeks=2)),
        ("last week", dt.timedelta(weeks=1)),
        ("1 month ago", dt.timedelta(days=30)),
        ("last year", dt.timedelta(days=365)),
    ],
)
def test_an_age_is_an_instant(text: str, ago: dt.timedelta):
    first, last = instants(text, clock)
    assert first == last
    assert NOW - at(first) == ago


@pytest.mark.parametrize(("text", "day"), [("today", 21), ("yesterday", 20), ("2026-11-03", 3)])
def test_a_day_is_all_of_it(text: str, day: int):
    first, last = instants(text, clock)
    assert at(first) == dt.datetime(2026, 11, day, tzinfo=dt.UTC)
    assert at(last + 1) == dt.datetime(2026, 11, day + 1, tzinfo=dt.UTC)


def test_an_age_before_the_first_year_is_the_first_year():
    assert at(instants("999999 years ago", clock)[0]).year == 1


@pytest.mark.parametrize(
    "text", ["", "soon", "1M", "2.5h", "3 fortnights", "last hour", "last week ago", "-3d", "ago", "2026-13-01"]
)
def test_a_text_that_may_mean_something_else_is_refused(text: str):
    with pytest.raises(InvalidArgumentError, match="not a date or time") as refused:
        instants(text, clock)
    assert "2 hours ago" in refused.value.hint


@pytest.fixture
def state() -> Iterator[Versioned]:
    """Commits of three days, at noon and an hour later, in a store whose clock then stands at NOW."""
    present = [clock()]
    with Versioned(Repository(Memory(), clock=lambda: present[0])) as state:
        for day in (18, 19, 20):
            for hour in (12, 13):
                present[0] = (dt.datetime(2026, 11, day, hour, tzinfo=dt.UTC) - EPOCH) // MICROSECOND
                state["at"] = (day, hour)
                state.commit(f"{day} {hour}")
        present[0] = clock()
        yield state


def test_filters_and_revisions_take_the_time_of_the_stores_clock(state: Versioned):
    assert [commit.message for commit in state.log(since="yesterday")] == ["20 13", "20 12"]
    assert [commit.message for commit in state.log(since="13 hours ago", until="now")] == []
    assert [commit.message for commit in state.log(since="14 hours ago")] == ["20 13"]
    assert [commit.message for commit in state.log(until="2 days ago")] == ["18 13", "18 12"]
    assert state.checkout("main@{yesterday}")["at"] == (19, 13)
    assert state.checkout("main@{14 hours ago}")["at"] == (20, 12)
    assert state.checkout("main@{36.hours.ago}~1")["at"] == (19, 12)
    with pytest.raises(UnknownRevisionError, match="did not exist then"):
        state.checkout("main@{1 month ago}")
    with pytest.raises(UnknownRevisionError, match="neither a number, nor a time"):
        state.checkout("main@{soon}")
