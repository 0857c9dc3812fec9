"""``vstate log --graph``, ``grep`` and ``bisect``: what a graph connects, what bisect's command gets, how it ends."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from tests.support.command_line import Vstate
from tests.support.examples import Trip
from tests.support.long_runs import first
from tests.support.terminal import run
from versioned_state import Commit, Disk, Repository, Versioned
from versioned_state.cli.render.graph import Graph, shown_parents

# The graph


def drawn(history: str) -> str:
    """The graph of a history such as ``d:bc c:a b:a a:``, with the names in place of the stars."""
    graph = Graph()
    rows = []
    for each in history.split():
        name, _, parents = each.partition(":")
        first, _ = graph.draw(name, list(parents))
        rows += [first[0].replace("*", name), *first[1:]]
    return "\n".join(row.rstrip() for row in rows)


DRAWINGS = [
    (
        "c:b b:a a:",
        """
c
b
a
""",
    ),
    (
        "d:bc c:a b:a a:",
        """
d
|\\
| c
b |
|/
a
""",
    ),
    (  # two branches that nothing merges
        "e:c d:b c:a b:a a:",
        """
e
| d
c |
| b
|/
a
""",
    ),
    (  # a lane ends, and those beside it move
        "d:b c:a b: a:",
        """
d
| c
b |
 /
a
""",
    ),
    (  # merges across: each side merged the other
        "f:dc e:cd d:b c:b b:a a:",
        """
f
|\\
| | e
| |/|
| |/
|/|
d |
| c
|/
b
a
""",
    ),
    (  # far lanes come home
        "g:a f:b e:c d:a c:a b:a a:",
        """
g
| f
| | e
| | | d
| |_|/
|/| |
| | c
| |/
|/|
| b
|/
a
""",
    ),
]


@pytest.mark.parametrize(("history", "drawing"), DRAWINGS)
def test_a_history_is_drawn_as_git_does(history: str, drawing: str):
    assert drawn(history) == drawing.strip("\n")


@pytest.mark.parametrize("seed", first(12, range(60)))
def test_the_lines_of_a_graph_lead_from_each_commit_to_its_parents(seed: int):
    rng = random.Random(seed)
    parents: dict[str, list[str]] = {}
    for number in range(40):
        count = 0 if number == 0 or rng.random() < 0.05 else rng.choice([1, 1, 1, 1, 2, 2, 3])
        recent = list(parents)[-8:]
        parents[str(number)] = rng.sample(recent, min(count, len(recent)))
    graph = Graph()
    # of each commit and parent that is still to come, the columns of its lines
    reach: dict[str, dict[str, set[int]]] = {}
    for id in reversed(parents):
        first, rest = graph.draw(id, parents[id])
        assert len({len(row) for row in [*first, rest]}) == 1
        assert first[0].count("*") == 1
        column = first[0].index("*")
        for child, columns in reach.items():
            if id in columns:
                assert column in columns.pop(id), f"{child} does not lead to {id}"
        reach[id] = {parent: {column} for parent in parents[id]}
        for row in first[1:]:
            for columns in reach.values():
                for parent, places in columns.items():
                    columns[parent] = {below for place in places for below in followed(row, place)}
        for columns in reach.values():
            assert all(columns.values()), f"a line of {id} ends nowhere"
    assert not any(reach.values())


def followed(row: str, column: int) -> set[int]:
    """Where the lines in a row lead that come from a column above it."""
    row = row.ljust(column + 3)
    found = {column} if row[column] == "|" else set()
    if row[column + 1] == "\\":
        found.add(column + 2)
    if column and row[column - 1] == "/":
        column -= 2
        while column > 0 and row[column - 1] == "_":
            column -= 2
        found.add(column)
    return found


def test_commits_that_are_not_shown_are_passed_through():
    history = [("e", ["d", "c"]), ("d", ["b"]), ("c", ["b"]), ("b", ["a"]), ("a", [])]
    assert shown_parents(history, {"e", "b"}) == {"e": ["b"], "b": []}
    assert shown_parents(history, {"e", "d", "a"}) == {"e": ["d", "a"], "d": ["a"], "a": []}


# Bisect


@pytest.fixture
def plans(tmp_path: Path) -> tuple[Path, list[Commit]]:
    """A store in which the plan is emptied in the 13th of 20 rounds."""
    path = tmp_path / "plans"
    with Versioned(Disk(path)) as state:
        commits = []
        for number in range(20):
            state["number"] = number
            state["plan"] = ["look", "book"] if number < 13 else []
            commits.append(state.commit(f"Round {number}"))
    return path, commits


def found(vstate: Vstate, store: Path, *args: str) -> str:
    result = vstate("bisect", "main~19", *args, "--json", store=store)
    assert result.code == 0, result.stderr
    id = json.loads(result.stdout)["commit"]["id"]
    assert type(id) is str
    return id


@pytest.mark.parametrize(
    "condition",
    [
        ["--empty", "plan"],
        ["--missing", "plan[0]"],
        ["--equals", "plan", "[]"],
        ["--path", "plan", "--run", "grep -q look"],
        ["--path", "plan[0]", "--run", 'test "$(cat)" = \'"look"\''],
        ["--path", "number", "--run", "exit $(($(cat) > 12))"],
        ["--run", """python3 -c 'import json, sys; sys.exit(1 - bool(json.load(sys.stdin)["plan"]))'"""],
    ],
)
def test_the_round_in_which_the_plan_was_emptied_is_found(
    condition: list[str], vstate: Vstate, plans: tuple[Path, list[Commit]]
):
    store, commits = plans
    assert found(vstate, store, *condition) == commits[13].id


def test_a_command_knows_the_store_and_the_round(plans: tuple[Path, list[Commit]], tmp_path: Path):
    store, commits = plans
    wrapper = tmp_path / "vstate"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m versioned_state.cli.main "$@"\n')
    wrapper.chmod(0o755)
    command = f'{wrapper} get "$VSTATE_REV:plan[0]" >/dev/null'
    done = run("--store", str(store), "bisect", "main~9", "--run", command, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["commit"]["id"] == commits[13].id
    assert done.stdout.count(b"\n") == 1  # what the command prints is not in it
    assert b"bad   " in done.stderr


def test_125_skips_and_the_rest_is_told(vstate: Vstate, plans: tuple[Path, list[Commit]]):
    store, commits = plans
    command = "n=$(cat); test $n -ge 10 -a $n -le 14 && exit 125; test $n -lt 13"
    result = vstate("bisect", "main~19", "main", "--path", "number", "--run", command, "--json", store=store)
    assert result.code == 1
    data = json.loads(result.stdout)
    assert not data["certain"]
    assert data["suspects"] == [commit.id for commit in commits[10:16]]


@pytest.mark.parametrize("command", ["exit 127", "exit 126", "no-such-command-anywhere", "kill -9 $$", "exit 130"])
def test_a_command_that_cannot_run_or_is_stopped_stops_the_search(
    command: str, vstate: Vstate, plans: tuple[Path, list[Commit]]
):
    result = vstate("bisect", "main~19", "--run", command, store=plans[0])
    assert result.code == 1
    assert "nothing was found" in result.stderr
    assert result.stdout == ""


def test_an_empty_value_is_there_and_a_missing_one_is_not(vstate: Vstate, plans: tuple[Path, list[Commit]]):
    result = vstate("bisect", "main~19", "--empty", "plans", store=plans[0])
    assert result.code == 1
    assert "is good" in result.stderr


# Grep


def test_grep_exits_with_1_where_it_finds_nothing_and_2_where_it_is_not_understood(vstate: Vstate, trip: Trip):
    assert vstate("grep", "Lisbon", store=trip.path).code == 0
    assert vstate("grep", "nowhere", store=trip.path).code == 1
    assert vstate("grep", "nowhere", "-c", store=trip.path).stdout == "0 lines\n"
    assert vstate("grep", store=trip.path).code == 2


def test_a_merge_graph_of_a_real_store_has_a_line_for_each_commit(vstate: Vstate, tmp_path: Path):
    with Repository(Disk(tmp_path / "store")) as repository:
        main = Versioned(repository)
        main["n"] = 0
        main.commit("begin")
        for number in range(4):
            side = main.fork(f"side{number}")
            side[f"k{number}"] = number
            side.commit(f"side {number}")
            main["n"] += 1
            main.commit(f"main {number}")
            main.merge(f"side{number}")
    shown = vstate("log", "--graph", "--oneline", store=tmp_path / "store").stdout
    assert shown.count("*") == 13
    limited = vstate("log", "--graph", "--oneline", "-n", "3", store=tmp_path / "store").stdout
    assert shown.startswith(limited.rstrip("\n")[:40])
    assert limited.count("*") == 3
