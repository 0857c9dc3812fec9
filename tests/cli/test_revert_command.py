"""``vstate revert --author``: one agent's work is undone, and shown before."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.forked_trips import state_of
from versioned_state import Disk, Repository, Versioned
from versioned_state.cli.render import text


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in which two agents took turns."""
    path = tmp_path / "team"
    monkeypatch.setenv("VSTATE_STORE", str(path))
    monkeypatch.setenv("VSTATE_AUTHOR", "tester")
    with Versioned(Disk(path)) as state:
        state["prefs"] = {}
        for number in range(3):
            state["plan"] = [*state.get("plan", []), f"step {number}"]
            state.commit(f"plan {number}", author="planner")
            state[f"guess {number}"] = number
            state["prefs"][f"wrong{number}"] = True
            state.commit(f"guess {number}", author="guesser")
    return path


def test_the_work_of_one_author_is_undone(vstate: Vstate, team: Path):
    before = vstate("log", "--format", "{id}").stdout
    shown = vstate("revert", "--author", "guesser", "--dry-run")
    assert shown.code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "would revert 3 commits:"
    assert [line.split("  ")[-1] for line in lines[1:4]] == ["guess 2", "guess 1", "guess 0"]
    assert "- ['guess 0'] = 0" in shown.stdout or '- ["guess 0"] = 0' in shown.stdout
    assert vstate("log", "--format", "{id}").stdout == before
    told = vstate("revert", "--author", "guesser")
    assert told.code == 0, told.stderr
    assert state_of(team) == {"plan": ["step 0", "step 1", "step 2"], "prefs": {}}
    authors = vstate("log", "--format", "{author} {message}").stdout.splitlines()
    assert len(authors) == 9
    assert {line.split()[0] for line in authors[:3]} == {"tester"}
    again = vstate("revert", "--author", "guesser")
    assert (again.code, again.stdout) == (0, "")
    assert "none of these changes" in again.stderr
    assert "none of these changes" in vstate("revert", "--author", "guesser", "--dry-run").stderr
    vstate("undo", "3")
    assert len(state_of(team)) == 5
    assert state_of(team)["prefs"]


def test_only_since_a_time(vstate: Vstate, team: Path, monkeypatch: pytest.MonkeyPatch):
    with Repository(Disk(team, read_only=True)) as repository:
        second = repository.commit(":/guess 1")
    since = text.iso_time(second)
    assert vstate("revert", "--author", "guesser", "--since", since, "--until", since).code == 0
    assert [key for key in state_of(team) if key.startswith("guess")] == ["guess 0", "guess 2"]
    assert vstate("revert", "--author", "guesser", "--since", since).code == 0
    assert [key for key in state_of(team) if key.startswith("guess")] == ["guess 0"]
    assert_error(vstate("revert", "--author", "guesser", "--until", "2h"), "no commits of 'guesser' in that time")


def test_what_is_in_the_way_is_a_conflict_and_nothing_is_reverted(vstate: Vstate, team: Path):
    vstate("set", "prefs.wrong1", "false")
    before = vstate("log", "--format", "{id}").stdout
    for options in ([], ["--dry-run"]):
        result = vstate("revert", "--author", "guesser", *options)
        assert result.code == 1
        assert "! prefs" in result.stdout
        assert "1 conflict in reverting the commits of guesser on main, while repeating" in result.stderr
    assert vstate("log", "--format", "{id}").stdout == before
    assert "would revert 3 commits" in vstate("revert", "--author", "guesser", "--ours", "**", "--dry-run").stdout
    assert vstate("revert", "--author", "guesser", "--ours", "**").code == 0
    assert "plan" in state_of(team)
    assert "guess 0" not in state_of(team)


def test_a_dry_run_of_one_commit_and_of_a_range(vstate: Vstate, team: Path):
    before = state_of(team)
    assert "would revert 1 commit:" in vstate("revert", ":/guess 1", "--dry-run").stdout
    assert "would revert 2 commits:" in vstate("revert", "main~2..main", "--dry-run").stdout
    assert_error(vstate("revert", "main..main~2", "--dry-run"), "does not come before")
    assert state_of(team) == before
    assert vstate("revert", "HEAD", "--author", "Ana").code == 0
    assert vstate("log", "-1", "--format", "{author}").stdout == "Ana\n"


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        ([], "--author NAME", 2),
        (["HEAD", "--since", "2h"], "without REV", 2),
        (["--author", "nobody"], "no commits of 'nobody'", 1),
        (["--author", "planner", "--since", "soon"], "soon", 1),
        (["nothing", "--dry-run"], "nothing", 1),
    ],
)
def test_a_revert_that_makes_no_sense(args: list[str], words: str, code: int, vstate: Vstate, team: Path):
    assert_error(vstate("revert", *args), words, code=code)


def test_a_list_of_commits_in_python(team: Path):
    with Versioned(Disk(team)) as state:
        guesses = [commit.id for commit in state.log() if commit.author == "guesser"]
        head = state.revert(guesses[::-1])
        assert [commit.message.partition(":")[0] for commit in state.log(limit=3)] == [
            f"revert {id[:12]}" for id in guesses[::-1]
        ]
        assert head == state.head
        assert sorted(state) == ["plan", "prefs"]
        assert state.revert([]) == head


def test_the_oldest_commit_of_pruned_history_cannot_be_reverted(vstate: Vstate, team: Path):
    assert vstate("prune", "--keep-last", "1").code == 0
    author = vstate("log", "-1", "--format", "{author}").stdout.strip()
    for which, options in product((["HEAD"], ["--author", author]), ([], ["--dry-run"])):
        assert_error(
            vstate("revert", *which, *options),
            "has no parent in the store, so its changes are not known; nothing was changed",
        )
