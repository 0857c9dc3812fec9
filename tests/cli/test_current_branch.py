"""The current branch: who chooses it, where the choice is kept, and what becomes of it if the branch is gone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.examples import control_characters
from tests.support.forked_trips import heads, state_of
from tests.support.terminal import environment, run
from versioned_state import Disk, Repository
from versioned_state.cli.shared import current


def test_a_switch_holds_for_one_store_and_one_user(
    vstate: Vstate, fork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def here() -> str:
        return vstate("log", "-n", "1", "--oneline").stdout.split()[-1]

    assert vstate("switch", "what-if").code == 0
    assert here() == "notes"
    other = tmp_path / "other"
    shutil.copytree(fork, other)
    assert vstate("log", "-n", "1", "--oneline", store=other).stdout.endswith("spend less\n")
    for name in ("fork", "./fork", "disk:fork", str(tmp_path / "other" / ".." / "fork")):  # the same by other names
        monkeypatch.setenv("VSTATE_STORE", name)
        assert here() == "notes"
    (tmp_path / "link").symlink_to(fork)
    monkeypatch.setenv("VSTATE_STORE", str(tmp_path / "link"))
    assert here() == "notes"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # is ignored, as its standard says
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert here() == "less"
    assert vstate("switch", "what-if").code == 0
    assert here() == "notes"
    assert len(list((tmp_path / "home/.local/state/vstate/branches").iterdir())) == 1


def test_who_decides_on_the_branch(vstate: Vstate, fork: Path, monkeypatch: pytest.MonkeyPatch):
    vstate("branch", "early", "main~2")
    vstate("switch", "what-if")
    vstate("branch", "own")

    def here(*options: str) -> str:
        return vstate(*options, "log", "-n", "1", "--oneline").stdout.split()[-1]

    assert here() == "notes"
    monkeypatch.setenv("VSTATE_BRANCH", "main")
    assert here() == "less"
    assert here("-b", "early") == here("--branch", "early") == "begin"
    assert vstate("log", "-n", "1", "--oneline", "-b", "early").stdout.endswith("begin\n")
    assert "VSTATE_BRANCH" in vstate("switch", "what-if").stderr
    monkeypatch.setenv("VSTATE_BRANCH", "")
    assert here() == "notes"
    assert vstate("get", "budget.limit").stdout == "900\n"
    assert vstate("get", "main:budget.limit").stdout == "700\n"
    assert json.loads(vstate("log", "HEAD~1", "-n", "1", "--json").stdout)["message"] == "more"
    assert vstate("diff", "@{1}", "--stat").stdout.startswith(" notes")


def test_a_current_branch_that_is_gone_or_renamed(vstate: Vstate, fork: Path):
    vstate("switch", "what-if")
    assert vstate("branch", "-m", "idea").code == 0
    assert vstate("branch", "-l", "idea").stdout == "* idea\n"
    with Repository(Disk(fork)) as repository:
        repository.branches.delete("idea", force=True)
    for command in ("merge main", "undo"):
        assert_error(vstate(*command.split()), "there is no branch 'idea'; nothing was changed", "vstate switch")
    for command in ("log", "view", "events"):
        assert_error(vstate(*command.split()), "there is no branch 'idea'\n", "vstate switch")
    assert "current  idea (there is no such branch)\n" in vstate("status").stdout
    assert "idea" not in heads(fork)
    assert vstate("switch", "main").code == 0
    assert vstate("log", "-n", "1").code == 0


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"nothing\n", b"\x1b[2J\n", b"x" * 100_000])
def test_a_choice_that_was_damaged_breaks_nothing(content: bytes, vstate: Vstate, fork: Path, tmp_path: Path):
    vstate("switch", "what-if")
    (file,) = (tmp_path / "state-home/vstate/branches").iterdir()
    assert file.stat().st_mode & 0o077 == 0o044  # a branch's name is no secret
    file.write_bytes(content)
    assert vstate("status").code == 0
    shown = vstate("log", "-n", "1")
    assert control_characters(shown.stdout + shown.stderr) == set()
    assert vstate("log", "main").code == 0
    assert vstate("switch", "main").code == 0
    assert vstate("log", "-n", "1").code == 0


def test_the_choice_for_a_url_holds_no_secret(tmp_path: Path):
    current.choose("postgresql://me:hunter2@host/states", "what-if")
    assert current.chosen("postgresql://me:other@host/states") == "what-if"
    assert current.chosen("postgresql://me:hunter2@host/other") is None
    kept = [file for file in (tmp_path / "state-home").rglob("*") if file.is_file()]
    assert [b"hunter2" in file.read_bytes() or "hunter2" in file.name for file in kept] == [False]


def test_import_goes_to_the_current_branch(vstate: Vstate, fork: Path):
    message = b'[{"role": "user", "content": "hi"}]'
    vstate("switch", "what-if")
    assert vstate("import", "-", "--append", stdin=message).code == 0
    assert vstate("-b", "main", "import", "-", "--append", stdin=message).code == 0
    assert vstate("import", "-", "-b", "third", stdin=message).code == 0
    for branch in ("main", "what-if", "third"):
        assert state_of(fork, branch)["messages"][-1] == {"role": "user", "content": "hi"}


def test_a_choice_that_cannot_be_read_or_kept_is_an_error_with_the_way_out(
    vstate: Vstate, fork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert vstate("switch", "what-if").code == 0
    (choice,) = (file for file in tmp_path.rglob("vstate/branches/*") if file.is_file())
    choice.unlink()
    choice.mkdir()
    assert_error(vstate("log"), "cannot be read", "-b NAME")
    assert_error(vstate("switch", "main"), "cannot be ", "XDG_STATE_HOME")
    assert vstate("log", "-b", "main").code == vstate("log", "-b", "what-if").code == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert_error(vstate("switch", "main"), "cannot be written", "XDG_STATE_HOME")
    assert vstate("log").code == 0  # nobody chose a branch there


def test_a_command_loads_no_openssl(tmp_path: Path):
    run("init", cwd=tmp_path)
    run("set", "a", "1", cwd=tmp_path)
    script = (
        "import sys\nfrom versioned_state.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print('_hashlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "get", "a"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\nFalse\n"
