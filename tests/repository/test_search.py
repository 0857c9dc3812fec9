"""The filters of log, and grep, find what a naive search over whole snapshots finds, at the cost of what differs."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.exact import exact
from tests.support.handles import committed
from versioned_state import Commit, Memory, Repository, Snapshot, Tagged, Versioned, register
from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    InvalidPathError,
    LimitExceededError,
    UnknownPathError,
)
from versioned_state.objects.store import Staging
from versioned_state.repository.inspect.grep import Match
from versioned_state.storage import Counting
from versioned_state.values.changes.pickaxe import Needle
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.paths.path import StatePath
from versioned_state.values.paths.walk import Walk
from versioned_state.values.trees.nodes import Nodes

START = 1_795_219_200_000_000  # 2026-11-21 00:00 UTC
HOUR = 3_600_000_000


@dataclass
class Point:
    name: str
    at: Any


register(Point, "search-point")


# A naive search, over values that were loaded as a whole


def texts(
    value: Any, path: StatePath, *, is_key: bool = False, named: bool = True
) -> Iterator[tuple[StatePath, str, bool]]:
    """The strings in a value, with the path that leads to each, and whether it is in a key."""
    if type(value) is str:
        yield path, value, is_key
    elif type(value) in (list, tuple):
        for index, part in enumerate(value):
            yield from texts(part, path.index(index) if named else path, is_key=is_key, named=named)
    elif type(value) in (set, frozenset):
        for part in value:
            yield from texts(part, path, is_key=is_key, named=False)
    elif type(value) is dict:
        for key, part in value.items():
            where = path.key(key) if named else path
            yield from texts(key, where, is_key=True, named=False)
            yield from texts(part, where, is_key=is_key, named=named)
    elif type(value) is Point:
        yield from texts({"name": value.name, "at": value.at}, path, is_key=is_key, named=named)


def values(value: Any) -> Iterator[Any]:
    """A value, and all that it consists of but keys."""
    yield value
    parts = value.values() if type(value) is dict else value if type(value) in (list, tuple, set, frozenset) else ()
    if type(value) is Point:
        parts = (value.name, value.at)
    for part in parts:
        yield from values(part)


def count_text(state: dict[str, Any], needle: str) -> int:
    return sum(text.count(needle) for _, text, _ in texts(state, StatePath()))


def count_value(state: dict[str, Any], needle: Any) -> int:
    wanted = exact(needle)
    return sum(
        type(each) is type(needle) and exact(each) == wanted for value in state.values() for each in values(value)
    )


def naive_grep(state: dict[str, Any], pattern: str) -> list[tuple[str, str, int, tuple[tuple[int, int], ...], bool]]:
    found = []
    for path, text, is_key in texts(state, StatePath()):
        lines = text.split("\n")
        for number, line in enumerate(lines[:-1] if len(lines) > 1 and not lines[-1] else lines, 1):
            spans = tuple(match.span() for match in re.finditer(pattern, line))
            if spans:
                found.append((str(path), line, number, spans, is_key))
    return found


def shown(match: Match) -> tuple[str, str, int, tuple[tuple[int, int], ...], bool]:
    return str(match.path), match.line, match.number, match.spans, match.is_key


# Histories

words = st.sampled_from(
    ["", "a", "ab", "b\na", "needle", "a needle\nin a needle", "x" * 200, "é\ud800", "needle " * 40 + "\n" * 3]
)
atoms = st.one_of(words, st.sampled_from([None, True, False, 0, 1, 1.0, 2**70, b"needle", dt.date(2026, 11, 21)]))
keys = st.one_of(st.sampled_from(["a", "needle", "b.c", "x" * 150]), st.sampled_from([1, None, (1, "needle"), b"k"]))
nested = st.recursive(
    atoms,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4),
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(keys, parts, max_size=4),
        st.sets(st.sampled_from(["a", "needle", 1, ("needle", 2)]), max_size=3),
        st.builds(Point, words, parts),
    ),
    max_leaves=8,
)
large = st.builds(
    lambda seed, part: (
        [{"role": "user", "text": f"word {random.Random(seed + i).randrange(50)}"} for i in range(400)] + [part]
    ),
    st.integers(0, 3),
    nested,
) | st.builds(lambda seed: {f"key {i}": "needle" if (i + seed) % 90 == 0 else i for i in range(300)}, st.integers(0, 3))
states = st.dictionaries(st.sampled_from(["a", "b", "needle", "list"]), nested | large, max_size=3)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Repository, Commit]:
    """Some commits, each with a state of its own or one much like a parent's, some with two parents."""
    repository = Repository(Memory(), clock=lambda: START)
    with_state = Versioned(repository)
    commits = [with_state.head]
    for number in range(draw(st.integers(1, 6))):
        parents = draw(st.lists(st.sampled_from(commits[-3:]), min_size=1, max_size=2, unique=True))
        state = dict(repository.snapshot(parents[0]))
        for key, value in draw(states).items():
            how = draw(st.sampled_from(["set", "delete", "append", "same"]))
            if how == "delete":
                state.pop(key, None)
            elif how == "append" and type(state.get(key)) is list:
                state[key] = [*state[key], value]
            elif how == "same":
                state = dict(repository.snapshot(parents[-1]))
            else:
                state[key] = value
        commits.append(commit_of(repository, state, parents, str(number)))
    return repository, commits[-1]


def commit_of(repository: Repository, state: dict[str, Any], parents: list[Commit], message: str) -> Commit:
    """A commit of a state as a whole, on these parents."""
    scratch = Versioned(repository, branch=f"scratch{message}")
    scratch.update(state)
    scratch.commit(allow_empty=True)
    staging = Staging(repository.database.objects)
    commit = repository.database.write_commit(scratch.head.tree, tuple(parents), staging=staging, message=message)
    repository.store.apply({}, {}, objects=staging.sealed())
    return commit


def naive_changed(repository: Repository, head: Commit, count: Callable[[dict[str, Any]], Any]) -> list[Commit]:
    """The commits whose count is another one than in each of their parents."""

    @cache
    def of(commit: Commit) -> Any:
        return count(dict(repository.snapshot(commit)))

    return [
        commit
        for commit in repository.log(head)
        if all(of(commit) != of(repository.commit(parent)) for parent in commit.parents)
    ]


@given(histories(), st.sampled_from(["needle", "a", "a\nb", "x" * 100, "word 7", "\ud800"]))
def test_a_text_appeared_or_went_where_its_count_differs_from_every_parent(
    history: tuple[Repository, Commit], needle: str
):
    repository, head = history
    assert list(repository.log(head, changed=needle)) == naive_changed(
        repository, head, lambda state: count_text(state, needle)
    )


def edited(value: Any, rng: random.Random) -> Any:
    """A large container with some of its parts put in, taken out or changed."""
    fresh = [rng.choice(["needle", "a needle", "x" * 150, 7, ["needle"] * 3]) for _ in range(rng.randrange(4))]
    if type(value) is dict:
        gone = set(rng.sample(list(value), rng.randrange(3)))
        kept = {key: part for key, part in value.items() if key not in gone}
        return (
            kept
            | {f"needle {rng.randrange(9_999)}": part for part in fresh}
            | {rng.choice(list(kept)): rng.choice(["needle", 8])}
        )
    parts = list(value)
    at = rng.randrange(len(parts) - 5)
    parts[at : at + rng.randrange(4)] = fresh
    return type(value)(parts) if type(value) is not set else {part for part in parts if type(part) is not list}


@pytest.mark.parametrize("seed", range(3))
def test_edits_in_large_containers_are_counted_as_a_naive_search_counts_them(seed: int):
    rng = random.Random(seed)
    state = Versioned(clock=lambda: START)
    state["list"] = [{"role": "user", "text": f"word {i}"} for i in range(600)]
    state["dict"] = {f"needle {i}": i % 50 for i in range(600)}
    state["tuple"] = tuple(f"word {i}" for i in range(900))
    state["set"] = {f"word {i}" for i in range(900)}
    state["deep"] = {"list": [f"word {i}" for i in range(900)], "more": [[7] * 200, ["x" * 99] * 60]}
    state.commit()
    for _ in range(5):
        key = rng.choice(["list", "dict", "tuple", "set", "deep"])
        state[key] = (
            {**state["deep"], "list": edited(state["deep"]["list"], rng)} if key == "deep" else edited(state[key], rng)
        )
        if rng.random() < 0.3:
            state["deep"] = {**state["deep"], "again": state["deep"]["more"][rng.randrange(2)]} | (
                {} if rng.random() < 0.5 else {"again": 7}
            )
        if rng.random() < 0.3:
            state["whole"] = rng.choice(
                [list(state["list"]), state["deep"]["list"], dict(state["dict"]), state["tuple"], 7]
            )
        state.commit()
    repository, head = state.repository, state.head
    for needle in [
        7,
        {"role": "user", "text": "word 7"},
        state["deep"]["more"][0],
        state["list"],
        state["dict"],
        state["tuple"],
    ]:
        expected = naive_changed(repository, head, partial(count_value, needle=needle))
        assert list(repository.log(head, changed=needle)) == expected
    assert list(repository.log(head, changed="needle")) == naive_changed(
        repository, head, lambda value: count_text(value, "needle")
    )


def test_what_only_moves_in_a_large_container_neither_came_nor_went():
    state = Versioned()
    state["list"] = [*["needle"] * 3, *(f"word {i}" for i in range(900))]
    state["dict"] = {f"key {i}": i for i in range(600)} | {"needle 1": 1_000}
    came = state.commit()
    state["list"] = [*state["list"][3:], *["needle"] * 3]
    state.commit("to the end")
    state["dict"]["needle 2"] = state["dict"].pop("needle 1")
    state.commit("under another key")
    state["list"][450:450] = state["list"][-3:]
    del state["list"][-3:]
    state.commit("to the middle")
    assert list(state.log(changed="needle")) == list(state.log(changed=1_000)) == [came]
    del state["list"][450:452]
    went = state.commit()
    assert list(state.log(changed="needle")) == [went, came]
    del state["dict"]["needle 2"]
    assert list(state.log(changed="needle", limit=1)) == [went]
    assert next(state.log(changed=1_000)) == came
    gone = state.commit()
    assert next(state.log(changed="needle")) == next(state.log(changed=1_000)) == gone


def test_a_value_that_only_takes_another_form_has_not_changed():
    """It is inline in a small dict, and an object of its own in a large one."""
    state = committed(d={"a": "x" * 300, "t": ("y" * 300, 1)})
    first = state.head
    state["d"]["more"] = ["z" * 90] * 60
    state["d"]["even"] = {f"key {i}": "z" * 20 for i in range(300)}
    second = state.commit()
    assert list(state.log(path="d.a")) == list(state.log(path="d.t")) == [first]
    assert list(state.log(path="d.t[0]")) == [first]
    assert list(state.log(changed=("y" * 300, 1))) == [first]
    assert list(state.log(path="d")) == [second, first]


NEEDLES = [
    1,
    True,
    1.0,
    None,
    {},
    [],
    ("needle", 2),
    {"role": "user", "text": "word 7"},
    {1: "a"},
    ["a" * 300],
    Point("a", None),
]


@given(histories(), st.sampled_from(NEEDLES) | nested.filter(lambda value: type(value) is not str))
def test_a_value_appeared_or_went_where_its_count_differs_from_every_parent(
    history: tuple[Repository, Commit], needle: Any
):
    repository, head = history
    assert list(repository.log(head, changed=needle)) == naive_changed(
        repository, head, lambda state: count_value(state, needle)
    )


@given(histories(), st.data())
def test_any_part_of_a_state_is_found_where_it_came_or_went(history: tuple[Repository, Commit], data: st.DataObject):
    """Large parts too, whose stored form depends on where they stand."""
    repository, head = history
    parts = [
        part for value in dict(repository.snapshot(head)).values() for part in values(value) if type(part) is not str
    ]
    if parts:
        needle = data.draw(st.sampled_from(parts))
        assert list(repository.log(head, changed=needle)) == naive_changed(
            repository, head, lambda state: count_value(state, needle)
        )


@given(
    histories(),
    st.sampled_from(["a", "list", "list[0]", "list[-1].role", "a.needle", 'a["b.c"][0]', "a[0][0]", "needle"]),
)
def test_a_commit_touched_a_path_where_its_value_is_not_that_of_any_parent(
    history: tuple[Repository, Commit], path: str
):
    repository, head = history

    def at(commit: Commit) -> Any:
        try:
            return exact(repository.snapshot(commit).at(path))
        except UnknownPathError:
            return None

    expected = [
        commit
        for commit in repository.log(head)
        if all(at(commit) != at(repository.commit(id)) for id in commit.parents)
    ]
    assert list(repository.log(head, path=path)) == expected


@given(histories(), st.sampled_from(["needle", "^a", "a$", "(?i)NEEDLE", "word (7|8)", "^$", "x{3}"]))
def test_grep_finds_what_a_search_through_all_strings_finds(history: tuple[Repository, Commit], pattern: str):
    repository, head = history
    found = [shown(match) for match in repository.grep(pattern, head)]
    assert sorted(found) == sorted(naive_grep(dict(repository.snapshot(head)), pattern))


@given(histories())
def test_a_path_that_grep_gives_leads_to_a_value_with_the_line(history: tuple[Repository, Commit]):
    repository, head = history
    snapshot = repository.snapshot(head)
    for match in repository.grep("needle", head):
        value = snapshot.at(str(match.path))
        if not match.is_key and type(value) is str:
            assert value.split("\n")[match.number - 1] == match.line
        for start, end in match.spans:
            assert match.line[start:end] == "needle"


def test_lines_of_a_long_text_are_found_across_its_chunks():
    state = Versioned()
    lines = [f"line {i} " + "x" * random.Random(i).randrange(200) for i in range(3000)]
    state["book"] = "\n".join(lines)
    state["long"] = "y" * 50_000 + "needle" + "y" * 50_000
    state.commit()
    found = list(state.grep(r"line \d*7 "))
    assert [(match.number, match.line) for match in found] == [
        (i + 1, line) for i, line in enumerate(lines) if i % 10 == 7
    ]
    (match,) = state.grep("needle")
    assert match.spans == ((50_000, 50_006),)


@pytest.mark.parametrize(
    "text", ["", "\n", "a", "a\n", "a\n\n", "\na", "a\nb", "a\nb\n", "x" * 300_000 + "\n", "y\n" * 100_000]
)
def test_a_line_ends_with_its_break_and_none_is_behind_the_last_one(text: str):
    state = committed(text=text)
    found = list(state.grep("^", path="text"))
    blamed = state.blame("text")[-3:]
    assert [match.number for match in found] == list(range(1, len(found) + 1))
    assert "\n".join(match.line for match in found) == text.removesuffix("\n")
    assert [match.line for match in found][-3:] == [part.value.removesuffix("\n") for part in blamed]
    assert found[-1].number == (blamed[-1].line or 1)
    assert len(list(state.grep("^$", path="text"))) == sum(not match.line for match in found)


def test_grep_reads_no_more_than_what_is_taken():
    store = Counting(Memory())
    with Versioned(store) as state:
        state["messages"] = [{"content": f"message {i}" + " words" * 50} for i in range(20_000)]
        state.commit()
        store.reset()
        first = next(state.grep("^message "))
        some = store.reset().objects_read
        assert len(list(state.grep("^message "))) == 20_000
        assert str(first.path) == "messages[0].content"
        assert some < 0.1 * store.counts.objects_read


def test_grep_within_a_path_and_within_a_namespace():
    state = Versioned()
    state["a"] = {"deep": ["one", "two"], "x": "one"}
    state["one"] = "none"
    state.namespace("worker")["job"] = "one"
    state.commit()
    assert [str(match.path) for match in state.grep("one")] == ["a.deep[0]", "a.x", "one", "one", "@worker.job"]
    assert [str(match.path) for match in state.grep("one", path="a.deep")] == ["a.deep[0]"]
    assert [str(match.path) for match in state.grep("one", path="@worker")] == ["@worker.job"]
    assert [str(match.path) for match in state.grep("job", path="@worker")] == ["@worker.job"]
    assert not list(state.grep("job", path="@worker.job"))  # the path itself was given
    assert [match.is_key for match in state.grep("one", path="one")] == [False]
    for path in ("b", "a.shallow", "a.deep[2]", "@other"):
        with pytest.raises(UnknownPathError):
            state.grep("one", path=path)
    with pytest.raises(InvalidPathError):
        state.grep("one", path="a[")


def test_objects_are_not_unpickled_and_not_searched():
    state = committed(object=re.compile("needle"), list=[re.compile("needle"), "needle"])
    assert [str(match.path) for match in state.grep("needle")] == ["list[1]"]
    assert list(state.log(changed="needle")) == [state.head]


def test_in_a_namespace_a_change_is_told_by_its_path_and_by_what_it_holds():
    state = committed(job=1)
    first = state.head
    state.namespace("worker")["job"] = "needle"
    second = state.commit()
    state.namespace("worker")["done"] = [1]
    third = state.commit()
    assert list(state.log(path="@worker")) == [third, second]
    assert list(state.log(path="@worker.job")) == [second]
    assert list(state.log(path="job")) == [first]
    assert list(state.log(changed="needle")) == [second]
    assert list(state.log(changed="done")) == [third]  # a key is a string too
    assert list(state.log(changed=[1])) == [third]


# Filters on what a commit says


@pytest.fixture
def told() -> Versioned:
    """A commit an hour, from the start of a day."""
    now = START - HOUR

    def clock() -> int:
        nonlocal now
        now += HOUR
        return now

    state = Versioned(clock=clock, author="planner")
    for step in range(30):
        state["step"] = step
        meta = {
            "task": "plan" if step < 10 else "act",
            "session": {"id": step // 5, "a.b": {"c": step}},
            "cost": step * 1.5,
        }
        state.commit(f"Round {step}\n\nthe body", author="Ana" if step % 3 == 0 else None, meta=meta if step else None)
    return state


def steps(commits: Iterator[Commit]) -> list[int]:
    return [int(re.findall(r"\d+", commit.message)[0]) for commit in commits][::-1]


def test_authors_and_messages_are_found_by_regular_expression(told: Versioned):
    assert steps(told.log(author="An")) == list(range(0, 30, 3))
    assert steps(told.log(author=re.compile("^ANA$", re.IGNORECASE))) == list(range(0, 30, 3))
    assert steps(told.log(author="^An$")) == []
    assert steps(told.log(message="Round 1")) == [1, *range(10, 20)]
    assert steps(told.log(message="body$", limit=2)) == [28, 29]
    assert steps(told.log(author="Ana", message="Round 2")) == [21, 24, 27]


def test_a_commit_without_an_author_has_none_that_could_match():
    state = committed(a=1)
    assert not list(state.log(author=""))


def test_times_are_instants_and_a_date_is_its_whole_day(told: Versioned):
    assert steps(told.log(since=START + 27 * HOUR)) == [27, 28, 29]
    assert steps(told.log(until=START + 2 * HOUR)) == [0, 1, 2]
    assert steps(told.log(since="2026-11-21T03:00", until="2026-11-21T04:00:00.000001")) == [3, 4]
    assert steps(told.log(since="2026-11-21T03:00+02:00", until="2026-11-21T04:00+02:00")) == [1, 2]
    assert steps(told.log(until=dt.datetime(2026, 11, 21, 1, 0))) == [0, 1]
    assert steps(told.log(until=dt.datetime(2026, 11, 21, 1, 0, tzinfo=dt.timezone(dt.timedelta(hours=1))))) == [0]
    assert steps(told.log(since="2026-11-22")) == list(range(24, 30))
    assert steps(told.log(until="2026-11-21")) == list(range(24))
    assert steps(told.log(since=dt.date(2026, 11, 21), until=dt.date(2026, 11, 21))) == list(range(24))


def test_meta_is_compared_by_key_in_type_too(told: Versioned):
    assert steps(told.log(meta={"task": "plan"})) == list(range(1, 10))
    assert steps(told.log(meta={"session.id": 2})) == list(range(10, 15))
    assert steps(told.log(meta={"session.a.b.c": 7})) == [7]
    assert steps(told.log(meta={"session.id": 1, "task": "plan"})) == [5, 6, 7, 8, 9]
    assert steps(told.log(meta={"session.id": 1.0})) == []
    assert steps(told.log(meta={"session.id": True})) == []
    assert steps(told.log(meta={"session.no": None, "task": "plan"})) == []
    assert steps(told.log(meta={"task.deeper": "plan"})) == []
    assert steps(told.log(meta={"cost": lambda cost: cost > 42})) == [29]
    assert steps(told.log(meta={})) == list(range(30))


def test_first_parents_alone_are_followed_and_compared_with():
    repository = Repository(Memory())
    main = Versioned(repository)
    main["a"] = 1
    base = main.commit("base")
    side = main.fork("side")
    side["b"] = "needle"
    added = side.commit("added")
    main["c"] = 1
    main.commit("other")
    merged = main.merge("side")
    assert list(main.log(changed="needle")) == [added]
    assert list(main.log(changed="needle", first_parent=True)) == [merged]
    assert list(main.log(path="b")) == [added]
    assert list(main.log(path="b", first_parent=True)) == [merged]
    assert list(main.log(path="a")) == [base]


def test_where_history_was_cut_what_is_there_counts_as_come_from_there():
    state = Versioned()
    for step in range(6):
        state["step"] = step
        state["plan"] = "needle"
        state.commit(f"Round {step}")
    state.repository.prune(keep_last=3, gc=True, expire=dt.timedelta(0))
    assert steps(state.log(changed="needle")) == [3]
    assert steps(state.log(path="plan")) == [3]
    assert steps(state.log(path="step")) == [3, 4, 5]


def test_a_needle_of_both_kinds_is_found_as_either():
    state = committed(n=900)
    number = state.head
    state["n"] = "room 900"
    text = state.commit()
    state["n"] = 901
    gone = state.commit()
    assert list(state.log(changed=Needle.parse("900"))) == [gone, text, number]
    assert list(state.log(changed=Needle.parse('"900"'))) == [gone, text]
    assert list(state.log(changed=900)) == [text, number]
    assert list(state.log(changed=Needle.parse("[900"))) == []
    state["n"] = "true"
    assert list(state.log(changed=Needle.parse("true"))) == []


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"author": "("}, "bad regular expression"),
        ({"message": b"x"}, "must be a string or a Pattern, not bytes"),
        ({"message": re.compile(b"x")}, "must be a string, not bytes"),
        ({"since": "someday"}, "not a date or time"),
        ({"until": 1.5}, "not float"),
        ({"path": "a["}, "bad path"),
        ({"path": "[1]"}, "does not begin with a key"),
        ({"changed": ""}, "empty text"),
        ({"changed": re.compile("x")}, "only data"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused_before_anything_is_read(told: Versioned, filters: Any, message: str):
    with pytest.raises(InvalidArgumentError, match=message):
        told.log(**filters)


def test_an_unknown_filter_is_refused(told: Versioned):
    with pytest.raises(TypeError, match="'autor'"):
        told.log(autor="x")  # type: ignore[call-arg]


def test_a_bad_pattern_for_grep_is_refused(told: Versioned):
    with pytest.raises(InvalidArgumentError, match="bad regular expression"):
        told.grep("[")


# Cost


def test_a_page_of_a_long_log_is_read_alone_and_a_search_reads_what_differs():
    store = Counting(Memory())
    state = Versioned(store)
    state["messages"] = [{"role": "user", "content": f"message {i}"} for i in range(5_000)]
    state.update({f"key/{i}": i for i in range(5_000)})
    state.commit("all")
    for step in range(50):
        state["messages"].append({"role": "user", "content": f"round {step}"})
        state[f"key/{step}"] = "needle" if step == 20 else -step
        state.commit(f"Round {step}", author="a" if step % 2 else "b")
    whole = len(list(store.keys("o/")))
    repository = Repository(store)
    store.reset()
    assert len(list(islice(repository.log(author="a"), 5))) == 5
    assert store.reset().objects_read <= 12
    assert [commit.message for commit in repository.log(changed="needle", limit=1)] == ["Round 20"]
    # of each of the 30 rounds 7 or 8 nodes, and the segments of the last leaf
    assert store.reset().objects_read < 30 * 25
    assert len(list(repository.log(path=StatePath().key("key/20"), limit=1))) == 1
    assert store.reset().objects_read < 0.2 * whole


# What no writer writes


@pytest.mark.parametrize(
    "cell", [b"\x92\x01", b"\xc7\x01\x20\xc1", b"\xc7\x02\x20\x91\x01", b"\xc7\x01\x29\x90", b"\xc7\x01\x15\x90"]
)
def test_a_cell_that_does_not_decode_is_corrupt(cell: bytes):
    nodes = Nodes(Repository(Memory()).database.objects)
    decoder = Decoder(nodes)
    with pytest.raises(CorruptObjectError):
        list(Walk(nodes, decoder).iter(cell, StatePath().key("a")))


def test_a_cell_that_is_too_deep_is_refused():
    nodes = Nodes(Repository(Memory()).database.objects)
    decoder = Decoder(nodes)
    with pytest.raises(LimitExceededError):
        list(Walk(nodes, decoder).iter(b"\x91" * 500 + b"\x01", StatePath().key("a")))


def test_a_snapshot_can_be_searched_by_hand_too():
    """The naive search itself notices what it should."""
    state = {"a": [1, True, ("x", {"x": "xx"})]}
    assert count_text(state, "x") == 4
    assert count_value(state, 1) == 1
    assert isinstance(Versioned().checkout("HEAD"), Snapshot)


@pytest.mark.parametrize("size", [1, 9000])
def test_the_data_of_a_typed_value_is_no_value_by_itself(size: int):
    state = Versioned()
    text = "z" * size
    for value in (
        Tagged("m:P", {"n": 1, "text": text}),
        Tagged("m:Rank", 7),
        Tagged("m:Name", text),
        Tagged("m:L", [1, text]),
    ):
        state["typed"] = [value]
        state.commit("typed")
        for data in ({"n": 1, "text": text}, 7, [1, text]):
            assert [commit.message for commit in state.log(changed=data)] == []
        assert [commit.message for commit in state.log(changed=value)][-1:] == ["typed"]
    state["typed"] = [{"n": 1, "text": text}]
    state.commit("dict")
    assert [commit.message for commit in state.log(changed={"n": 1, "text": text})] == ["dict"]
    assert len(list(state.log(changed=text))) == 3, "a text is found in whatever holds it"
