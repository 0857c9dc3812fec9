"""``vstate prune``, ``purge`` and ``stats``: their output and their effects. The engine's tests cover the rest."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.command_line import Vstate
from tests.support.examples import Trip
from tests.support.terminal import run_in_terminal
from versioned_state import Disk, Repository
from versioned_state.cli.commands.read.stats import sparkline


def test_prune_says_what_it_would_do_then_does_it_and_the_log_says_so(vstate: Vstate, own_trip: Trip):
    args = ("prune", "--keep-last", "2", "--expire", "0s", "--untag")
    dry = vstate(*args, "--dry-run", store=own_trip.path)
    assert dry.code == 0
    assert "would be pruned" in dry.stdout
    assert "history was pruned" not in vstate("log", store=own_trip.path).stdout
    done = vstate(*args, "--gc", store=own_trip.path)
    assert done.code == 0
    assert "main  keeps 2 commits, from" in done.stdout
    assert re.search(r"freed \d+ objects", done.stdout)
    log = vstate("log", store=own_trip.path).stdout
    assert log.count("older history was pruned") == 1
    assert "Book the train" in log
    assert "Begin" not in log
    assert (
        vstate("log", "--oneline", store=own_trip.path).stdout.splitlines()[-1].endswith("(older history was pruned)")
    )
    assert [
        json.loads(line).get("shallow") for line in vstate("log", "--json", store=own_trip.path).stdout.splitlines()
    ] == [None, True]
    assert "older history was pruned" in vstate("show", "main~1", store=own_trip.path).stdout
    gone = vstate("show", "main~2", store=own_trip.path)
    assert gone.code == 1
    assert "older history was pruned: it ends at" in gone.stderr


def test_prune_as_json(vstate: Vstate, own_trip: Trip):
    shown = json.loads(vstate("prune", "main", "--keep-last", "2", "--json", "--dry-run", store=own_trip.path).stdout)
    # idea and v1 keep all of it
    assert shown == {"branches": [], "kept": 4, "removed": 0, "dry_run": True, "collected": None}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["prune"], "--keep-last or --older-than"),
        (["prune", "main", "--gc"], "--keep-last or --older-than"),
        (["prune", "--keep-last", "0"], "0"),
        (["prune", "--older-than", "soon"], "not an age"),
        (["purge", "--yes"], "needs a PATH"),
        (["purge", "users["], "bad path"),
        (["purge", "budget"], "--yes"),
    ],
)
def test_what_makes_no_sense_changes_nothing(vstate: Vstate, own_trip: Trip, args: list[str], message: str):
    before = vstate("log", "--json", "--all", store=own_trip.path).stdout
    result = vstate(*args, store=own_trip.path)
    assert result.code in (1, 2)
    assert message in result.stderr
    assert vstate("log", "--json", "--all", store=own_trip.path).stdout == before


@pytest.mark.parametrize("verb", [("prune", "--keep-last", "1"), ("purge", "a", "--yes"), ("stats",)])
def test_none_of_them_makes_a_store(vstate: Vstate, tmp_path: Path, verb: tuple[str, ...]):
    assert vstate(*verb, store=tmp_path / "none").code == 1
    assert not (tmp_path / "none").exists()


def test_purge(vstate: Vstate, own_trip: Trip):
    dry = vstate("purge", "budget.limit", "--prefix", "user/", "--dry-run", store=own_trip.path)
    assert dry.stdout.splitlines() == [
        '- ["user/1"]',
        "- budget.limit",
        "6 commits held it; 6 commits would be rewritten, on 4 branches and tags",
    ]
    assert vstate("get", "budget.limit", store=own_trip.path).code == 0
    done = vstate("purge", "budget.limit", "--prefix", "user/", "--yes", store=own_trip.path)
    assert "6 commits held it; 6 commits rewritten, on 4 branches and tags" in done.stdout
    assert "erased" in done.stdout
    assert "not reached" in done.stderr
    assert "backups" in done.stderr
    for rev in ("main", "idea", "v1", "main~3"):
        assert vstate("get", f"{rev}:budget.limit", store=own_trip.path).code == 1
        assert vstate("keys", rev, "user", store=own_trip.path).stdout == ""
    assert json.loads(vstate("get", "main:budget", "--json", store=own_trip.path).stdout) == {"spent": 98}


def test_purge_counts_the_reflogs_of_deleted_branches_by_themselves(vstate: Vstate, own_trip: Trip):
    vstate("branch", "-D", "idea", store=own_trip.path)
    shown = vstate("purge", "budget.limit", "--dry-run", store=own_trip.path).stdout
    assert shown.splitlines()[-1].endswith("would be rewritten, on 3 branches and tags and 1 reflog of deleted ones")
    assert vstate("purge", "budget.limit", "--yes", store=own_trip.path).code == 0


@pytest.mark.parametrize("how", [[], ["--dry-run"], ["--yes"]])
def test_purge_of_a_path_that_no_commit_has(vstate: Vstate, own_trip: Trip, how: list[str]):
    result = vstate("purge", "budgte", *how, store=own_trip.path)
    assert result.code == 1
    assert result.stdout == ""
    assert "nothing at budgte in any commit" in result.stderr
    none = vstate("purge", "--prefix", "usre/", "--dry-run", store=own_trip.path)
    assert none.code == 0
    assert "no commit has a key that begins with 'usre/'" in none.stderr


def test_purge_of_a_branch(vstate: Vstate, own_trip: Trip):
    done = vstate("purge", "--branch", "id*", "--branch", "nobody/*", "--yes", store=own_trip.path)
    assert done.code == 0
    assert "- branch idea" in done.stdout.splitlines()
    assert "1 branch erased" in done.stdout
    assert "held it" not in done.stdout
    assert "no branch matches 'nobody/*'" in done.stderr
    assert "stay" in done.stderr
    assert vstate("log", "idea", store=own_trip.path).code == 1
    assert vstate("log", "main", store=own_trip.path).code == 0


def test_purge_as_json_maps_old_ids_to_new_ones(vstate: Vstate, own_trip: Trip):
    shown = json.loads(
        vstate("purge", "notes", "--replace", "Lisbon", "L.", "--yes", "--json", store=own_trip.path).stdout
    )
    assert set(shown["commits"]) == {commit.id for commit in own_trip.commits}
    with Repository(Disk(own_trip.path)) as repository:
        assert repository.commit("main").id == shown["commits"][own_trip.commits[4].id]
        assert "L." in repository.commit("main~2").message


def test_purge_asks_nobody_where_nobody_is(vstate: Vstate, own_trip: Trip):
    result = vstate("purge", "budget", store=own_trip.path, stdin=b"y\n")
    assert result.code == 2
    assert "this cannot be undone" in result.stderr
    assert vstate("get", "budget", store=own_trip.path).code == 0


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (b"n\n", 1, "nothing was changed"),
        (b"\n", 1, "nothing was changed"),
        (b"\4", 130, "[y/N]: \r\n"),
        (b"y\n", 0, "erased"),
    ],
)
def test_purge_asks_whoever_is_there(vstate: Vstate, own_trip: Trip, tmp_path: Path, typed: bytes, code, said):
    screen = run_in_terminal("--store", str(own_trip.path), "purge", "budget", cwd=tmp_path, typed=typed)
    assert screen.code == code
    assert said in screen.text
    assert ("error" in screen.text) == (code == 130)
    assert "6 commits held it; 6 commits would be rewritten" in screen.text
    assert "Go on?" in screen.text
    assert vstate("get", "budget", store=own_trip.path).code == (1 if code == 0 else 0)


def test_stats(vstate: Vstate, trip: Trip):
    shown = vstate("stats", store=trip.path).stdout
    for title in ("branches", "paths", "kinds", "growth"):
        assert f"\n{title}" in shown
    assert "messages" in shown
    assert re.search(r"garbage: 0 objects, 0 bytes", shown)
    few = vstate("stats", "-n", "1", store=trip.path).stdout
    assert "and 2 more; -n shows more of them" in few
    data = json.loads(vstate("stats", "--json", "--depth", "2", "-n", "100", store=trip.path).stdout)
    assert {branch["name"] for branch in data["branches"]} == {"main", "idea", "merged"}
    assert data["total"]["stored"] == sum(kind["stored"] for kind in data["kinds"].values())
    assert [growth["commit"] for growth in data["growth"]][-1] == trip.commits[4].id
    assert any(path["path"] == "budget.limit" for path in data["paths"])


def test_the_plot_is_an_image_with_a_bar_a_round(vstate: Vstate, trip: Trip, hostile: Path, tmp_path: Path):
    for path, rounds in ((trip.path, 4), (hostile, 2)):
        assert vstate("stats", "--plot", str(tmp_path / "plot.svg"), store=path).code == 0
        root = ET.parse(tmp_path / "plot.svg").getroot()
        bars = root.findall("{http://www.w3.org/2000/svg}g/{http://www.w3.org/2000/svg}rect")
        assert len(bars) == rounds
        assert all(float(bar.get("height", "-1")) >= 0 for bar in bars)


def test_a_sparkline_is_short_and_shows_the_greatest():
    assert sparkline([0, 1, 8]) == "▁▁█"
    assert len(sparkline(list(range(1000)))) <= 60
    assert sparkline([0, 0]) == "▁▁"
