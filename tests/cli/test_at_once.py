"""Two commands at once: each tells what it did itself, not what the branch shows by then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.concurrent_stores import ActsAroundMove
from versioned_state import Disk, Versioned


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three commits on main and one on another branch. "theirs" commits after each command has opened the store."""
    path = tmp_path / "store"
    with Versioned(Disk(path), author="me") as state:
        state["plan"], state["notes"] = ["train"], "quiet"
        state.commit("one")
        idea = state.fork("idea")
        idea["hotel"] = "Castelo"
        idea.commit("hotel")
        idea["people"] = 2
        idea.commit("people")
        state["plan"].append("hotel")
        state.commit("two")
        state["notes"] = "loud"
        state.commit("three")

    def theirs() -> None:
        with Versioned(Disk(path), author="they") as other:
            for number in range(2):
                other["theirs"] = number
                other.commit(f"theirs {number}")

    monkeypatch.setenv("VSTATE_STORE", str(path))
    monkeypatch.setenv("VSTATE_AUTHOR", "tester")
    monkeypatch.setattr(
        "versioned_state.cli.shared.store.open_store", lambda *_, **__: ActsAroundMove(Disk(path), before=theirs)
    )
    return path


def subjects(path: Path) -> list[str]:
    with Versioned(Disk(path, read_only=True), pickle="refuse") as state:
        return [commit.message for commit in state.log(first_parent=True)]


@pytest.mark.parametrize(
    ("command", "messages", "stat"),
    [
        ("revert HEAD~1", ["revert ID: two"], " plan -1"),
        ("revert HEAD~2..HEAD", ["revert ID: three", "revert ID: two"], " notes ~1, plan -1"),
        ("cherry-pick idea", ["people"], " people +1"),
        ("cherry-pick idea~2..idea", ["hotel", "people"], " hotel +1, people +1"),
        ("merge idea", ["merge idea into main"], " hotel +1, people +1"),
        ("restore notes --from HEAD~1", ["restore notes from HEAD~1"], " notes ~1"),
        ("apply patch.json -m patched", ["patched"], " new +1"),
    ],
)
def test_a_command_tells_its_own_commits(command: str, messages: list[str], stat: str, vstate: Vstate, store: Path):
    Path("patch.json").write_text('[{"path": "new", "kind": "added", "new": 1}]')
    result = vstate(*command.split())
    assert (result.code, result.stderr) == (0, "")
    *made, changed = re.sub(r"revert \w{12}", "revert ID", result.stdout).splitlines()
    assert [re.sub(r"^\[main \w{12}\] ", "", line) for line in made] == messages
    assert changed == stat
    assert subjects(store)[len(messages) :][:2] == ["theirs 1", "theirs 0"]
    with Versioned(Disk(store, read_only=True), pickle="refuse") as state:
        assert made[-1].startswith(f"[main {state.head.short}] ") or f"[main {state.head.short}] " in result.stdout


def test_a_merge_as_json_gives_the_commit_that_it_made(vstate: Vstate, store: Path):
    found = json.loads(vstate("merge", "idea", "--json").stdout)
    assert found["commit"]["message"] == "merge idea into main"
    assert found["head"] == found["commit"]["id"]


def test_where_others_did_it_first_nothing_is_claimed(vstate: Vstate, store: Path, monkeypatch: pytest.MonkeyPatch):
    def theirs(command: str) -> Callable[[], None]:
        def run() -> None:
            with Versioned(Disk(store), author="they") as other:
                if command == "merge":
                    other.merge("idea")
                elif command == "revert":
                    other.revert("HEAD~1")
                else:
                    other["notes"] = "quiet"
                    other.commit("theirs")

        return run

    for command, said in [
        ("merge idea", "already up to date"),
        ("revert HEAD~1", "none of these changes"),
        ("restore notes --from HEAD~1", "no commit"),
    ]:
        monkeypatch.setattr(
            "versioned_state.cli.shared.store.open_store",
            lambda *_, command=command, **__: ActsAroundMove(Disk(store), before=theirs(command.split()[0])),
        )
        result = vstate(*command.split())
        assert (result.code, result.stdout) == (0, ""), command
        assert said in result.stderr
        with Versioned(Disk(store)) as state:
            state.undo()


def test_a_conflict_with_what_others_did_meanwhile_changes_nothing(vstate: Vstate, store: Path):
    Path("patch.json").write_text('[{"path": "theirs", "kind": "added", "new": "ours"}]')
    result = vstate("apply", "patch.json")
    assert_error(
        result,
        "conflict on branch 'main' at theirs",
        "nothing was committed",
        "hint: somebody else changed it meanwhile",
    )
    assert "staged" not in result.stderr
    assert subjects(store)[:2] == ["theirs 1", "theirs 0"]


@pytest.mark.parametrize("command", ["reset HEAD~1", "undo", "rebase idea", "squash HEAD~2"])
def test_what_only_moves_the_branch_is_refused_where_it_has_moved(command: str, vstate: Vstate, store: Path):
    result = vstate(*command.split())
    assert_error(result, "branch 'main' has moved", "hint: ", "vstate log")
    assert "staged" not in result.stderr
    assert result.stdout == ""
    assert subjects(store)[0] == "theirs 1"
