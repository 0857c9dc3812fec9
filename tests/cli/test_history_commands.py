"""Branches, merges, and every way of moving a branch from the command line: what is printed, what is changed, and what is not."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.command_line import SNAPSHOTS, Vstate, assert_error
from tests.support.examples import ESCAPES, MINUTE, START, Bomb, Trip, control_characters, plant
from tests.support.terminal import complete, run_in_terminal
from versioned_state import Commit, Disk, Repository, Snapshot, Versioned
from versioned_state.cli.render import text
from versioned_state.cli.render.output import Span
from versioned_state.cli.render.words import _parts, _text_lines
from versioned_state.cli.shared import current
from versioned_state.repository.history.signing import Signer

Tell = Callable[..., str]


def make_fork(path: Path) -> None:
    """Two branches of a trip that changed the same and other places.

    ::

        begin ── answer ──┬── spend less      main     budget.limit 700, a message "cheaper"
                          └── more ── notes   what-if  budget.limit 900, a message "grander"; notes
    """
    time = START - MINUTE

    def clock() -> int:
        nonlocal time
        time += MINUTE
        return time

    with Repository(Disk(path), clock=clock) as repository:
        state = Versioned(repository, author="planner")
        state["messages"] = [{"role": "user", "content": "A weekend in Lisbon, please."}]
        state["budget"] = {"limit": 600, "spent": 0}
        state["notes"] = "Lisbon\nby slow train\nquiet"
        state.commit("begin")
        state["messages"].append({"role": "assistant", "content": "With pleasure."})
        state["budget"]["spent"] = 98
        state.commit("answer")
        other = state.fork("what-if")
        other["budget"]["limit"] = 900
        other["messages"].append({"role": "user", "content": "grander"})
        other.commit("more", author="dreamer")
        other["notes"] = "Lisbon\nby fast train\nquiet"
        other.commit("notes", author="dreamer")
        state["budget"]["limit"] = 700
        state["messages"].append({"role": "user", "content": "cheaper"})
        state.commit("spend less")


@pytest.fixture(scope="session")
def _fork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fork") / "store"
    make_fork(path)
    return path


@pytest.fixture
def fork(_fork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of one's own with two branches, named by ``VSTATE_STORE``, at a fixed time."""
    path = tmp_path / "fork"
    shutil.copytree(_fork, path)
    monkeypatch.setenv("VSTATE_STORE", str(path))
    monkeypatch.setenv("VSTATE_AUTHOR", "tester")
    monkeypatch.setattr(text, "now", lambda: START + 100 * MINUTE)
    return path


def heads(path: Path) -> dict[str, str]:
    with Repository(Disk(path, read_only=True), pickle="refuse") as repository:
        return {name: head.id for refs in (repository.branches, repository.tags) for name, head in refs.items()}


def state_of(path: Path, rev: str = "main") -> dict[str, Any]:
    with Repository(Disk(path, read_only=True), pickle="refuse") as repository:
        return repository.snapshot(rev).copy()


def head_of(path: Path, rev: str = "main") -> Commit:
    with Repository(Disk(path, read_only=True), pickle="refuse") as repository:
        return repository.commit(rev)


# What is printed


SCRIPTS = {
    "merge": [
        "merge what-if",
        "merge what-if --json",
        "merge what-if --policy messages=append --theirs budget.limt",
        "merge what-if --policy messages=append --theirs budget.limit --dry-run",
        "merge what-if --policy messages=append --theirs budget.limit --dry-run --json",
        "merge what-if --policy messages=append --theirs budget.limit",
        "log -n 2",
        "merge what-if",
        "merge what-if --json",
        "get budget",
    ],
    "merge-set": [
        "merge what-if --ours '**' --set budget.limit 800 -m 'Meet in the middle' --author Ana",
        "show --stat",
    ],
    "merge-forward": ["branch early main~1", "-b early merge main", "-b early undo", "-b early merge main --no-ff", "log early -n 1"],
    "picks": [
        "cherry-pick what-if",
        "cherry-pick what-if",
        "cherry-pick main~1..what-if",
        "cherry-pick what-if~2..what-if",
        "cherry-pick what-if~2..what-if --ours budget.limit --theirs messages",
        "revert HEAD",
        "revert HEAD~4",
        "revert HEAD~4..HEAD~2 --theirs '**' -m 'Take both back'",
        "log --oneline",
    ],
    "rebase": [
        "-b what-if rebase main",
        "-b what-if rebase main --policy messages=union --set budget.limit 800",
        "log what-if --oneline",
        "-b what-if rebase main",
        "-b what-if squash main -m 'All at once'",
        "log what-if --oneline",
        "-b what-if undo 2",
        "squash what-if",
        "squash HEAD",
    ],
    "undo": [
        "reset main~2",
        "reset main",
        "undo",
        "redo",
        "redo",
        "undo",
        "reflog",
        "reflog main -n 1 --json",
        "undo 3",
        "undo 99",
        "reflog nothing",
        "reset nothing",
        "undo 0",
    ],
    "restore": [
        "restore notes --from what-if",
        "restore notes --from what-if",
        "restore budget.limit --from HEAD~2 -m 'As it was'",
        "restore gone --from HEAD",
        "restore budget.limits.deep --from HEAD",
        "restore notes",
        "log --oneline -n 2",
    ],
    "branch": [
        "branch",
        "branch -v",
        "branch --json",
        "branch -l 'what*'",
        "branch -l",
        "branch -l 'm*' what-if 'x*' --json",
        "branch -l 'none*'",
        "branch -l main -d",
        "branch what-if",
        "branch 'no name'",
        "branch early main~1",
        "branch -v -l 'e*'",
        "branch -d what-if",
        "branch -D what-if nothing",
        "branch -d what-if",
        "switch what-if",
        "branch what-if 'what-if@{1}'",
        "branch -m early earlier",
        "branch -m earlier main",
        "branch -m new-main",
        "branch",
        "branch -m a b c",
        "branch -d",
        "branch a b c",
        "branch",
    ],
    "switch": [
        "switch nothing",
        "switch what-if",
        "status",
        "branch",
        "log --oneline -n 1",
        "switch -c idea main~1",
        "switch -c idea",
        "switch main main~1",
        "branch -d idea",
        "status --json",
    ],
    "tag": [
        "tag",
        "tag v1",
        "tag v2 main~1 -m 'The agent\nanswered' --author Ana",
        "tag v1 main~1",
        "tag",
        "tag --json",
        "tag -l '*2'",
        "tag -l",
        "tag -l v1 '*2'",
        "tag -l v1 -d",
        "reflog v1",
        "tag -d v1 v2",
        "tag -d v1",
        "tag -d",
    ],
    "policy": [
        "policy",
        "policy messages append",
        "policy 'users.*.score' sum",
        "policy",
        "policy messages --json",
        "policy nothing",
        "policy messages best",
        "policy 'a[' sum",
        "policy -d nothing",
        "policy -d 'users.*.score'",
        "policy -d",
        "policy --json",
        "merge what-if",
        "merge what-if --dry-run --ours budget.limit",
    ],
    "diff-word": [
        "diff what-if~2 what-if --word",
        "diff main what-if --word --path notes --full",
        "diff what-if~1 main --word",
        "diff --word --json",
    ],
    "patch": ["diff what-if~1 what-if --patch", "apply nothing.json"],
}


class Numbering:
    """Names ids by the order in which they first show."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}

    def __call__(self, shown: str) -> str:
        def name(found: re.Match[str]) -> str:
            number = self._known.setdefault(found.group()[:12], f"id-{len(self._known) + 1}")
            return f"{number:-<{len(found.group())}}"

        shown = re.sub(r'("root": )"\w{48}"', r'\1"root"', shown.replace(str(self._path), "STORE"))
        shown = re.sub(r"[\d.]+ KB", "N KB", re.sub(r"objects  \d+", "objects  N", shown))
        shown = re.sub(r'("(?:objects|bytes_\w+)": )\d+', r"\1N", shown)
        return re.sub(r"\b(?:[0-9a-f]{48}|[0-9a-f]{12})\b", name, shown)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_session_prints(name: str, vstate: Vstate, fork: Path, snapshot: Callable[[str, str], None]):
    numbered = Numbering(fork)
    shown = [numbered(vstate(*shlex.split(command)).shown(f"vstate {command}")) for command in SCRIPTS[name]]
    snapshot(f"history-{name}", "\n".join(shown))


HELP = "branch tag switch merge cherry-pick revert rebase squash reset undo redo reflog restore apply policy sign verify".split()


@pytest.mark.parametrize("name", HELP)
def test_help(name: str, vstate: Vstate, snapshot: Callable[[str, str], None]):
    snapshot(f"history-help-{name}", vstate(name, "--help").shown(f"vstate {name} --help"))


def test_no_snapshot_of_these_is_left_over():
    expected = {f"history-{name}" for name in SCRIPTS} | {f"history-help-{name}" for name in HELP}
    assert {file.stem for file in SNAPSHOTS.iterdir() if file.stem.startswith("history-")} == expected


# Merges


def test_a_conflict_changes_nothing_and_names_both_sides(vstate: Vstate, fork: Path):
    before = heads(fork)
    result = vstate("merge", "what-if", "--json")
    assert result.code == 1
    limit, messages = json.loads(result.stdout)["conflicts"]
    assert limit == {"path": "budget.limit", "base": 600, "ours": 700, "theirs": 900}
    assert (messages["path"], len(messages["base"]), messages["theirs"][2]["content"]) == ("messages", 2, "grander")
    assert heads(fork) == before


@pytest.mark.parametrize(
    ("options", "limit", "said"),
    [
        (["--ours", "**"], 700, ["cheaper"]),
        (["--theirs", "**"], 900, ["grander"]),
        (["--ours", "**", "--theirs", "budget.*"], 900, ["cheaper"]),  # the pattern that says more goes first
        (["--ours", "messages", "--theirs", "budget.limit"], 900, ["cheaper"]),
        (["--policy", "messages=append", "--set", "budget.limit", "800"], 800, ["grander", "cheaper"]),
        (["--policy", "messages=theirs", "--policy", "budget.limit=min"], 700, ["grander"]),
        (["--policy", "messages=append", "--policy", "budget.limit=sum", "--ours", "budget.limit"], 1000, ["grander", "cheaper"]),
        (["--ours", "messages", "--ours", "messages", "--ours", "budget.*", "--ours", "*.limit"], 700, ["cheaper"]),  # the same twice
        (["--set", "budget.limit", "null", "--set", "messages", '["\\u00e9", {"a": [1.5]}]'], None, None),
    ],
)
@pytest.mark.parametrize("dry", [True, False], ids=["dry-run", "merge"])
def test_conflicts_are_settled(options: list[str], limit: Any, said: list[str] | None, dry: Any, vstate: Vstate, fork: Path):
    before = heads(fork)
    if dry:
        shown = json.loads(vstate("merge", "what-if", "--dry-run", "--json", *options).stdout)
        assert heads(fork) == before
        assert vstate("merge", "what-if", *options).code == 0
        assert shown["changes"] == [json.loads(line) for line in vstate("diff", before["main"], "--json").stdout.splitlines()]
        return
    result = vstate("merge", "what-if", *options)
    merged = state_of(fork)
    assert result.code == 0, result.stderr
    assert merged["budget"] == {"limit": limit, "spent": 98}
    assert merged["notes"] == "Lisbon\nby fast train\nquiet"
    expected = ["é", {"a": [1.5]}] if said is None else said
    assert (merged["messages"] if said is None else [message["content"] for message in merged["messages"][2:]]) == expected
    assert head_of(fork).parents == (before["main"], before["what-if"])
    assert head_of(fork).author == "tester"


@pytest.mark.parametrize(
    ("options", "word", "code"),
    [
        (["--ours", "budget.limt"], "no conflict at budget.limt", 1),
        (["--set", "budget", "1"], "no conflict at budget", 1),
        (["--set", "budget.limit", "{"], "is no JSON", 1),
        (["--set", "budget.limit", "[" * 100_000], "is no JSON", 1),
        (["--set", "budget.limit"], "requires 2 arguments", 2),
        (["--ours", "a["], "bad path", 1),
        (["--ours", "messages", "--theirs", "messages"], "messages is settled twice, by --ours and by --theirs", 2),
        (["--theirs", "**", "--ours", "**"], "** is settled twice", 2),
        (["--ours", 'budget["limit"]', "--set", "budget.limit", "1"], "budget.limit is settled twice, by --ours and by --set", 2),
        (["--set", "budget.limit", "1", "--set", "budget.limit", "2"], "budget.limit is settled twice", 2),
        (["--policy", "messages=union", "--policy", "messages=append"], "messages is settled twice", 2),
        (
            ["--ours", "messages", "--ours", "budget.*", "--theirs", "*.limit"],
            "--ours budget.* and --theirs *.limit both settle budget.limit",
            2,
        ),
        (["--policy", "messages"], "PATTERN=NAME", 2),
        (["--policy", "messages=best"], "no merge policy", 1),
        (["--ours", "messages"], "1 conflict in merging what-if into main", 1),
    ],
)
def test_what_settles_nothing_changes_nothing(options: list[str], word: str, code: int, vstate: Vstate, fork: Path):
    before = heads(fork)
    assert_error(vstate("merge", "what-if", *options), word, code=code)
    assert heads(fork) == before


def test_a_dry_run_writes_nothing(vstate: Vstate, fork: Path):
    fork.chmod(0o500)
    (fork / "store.sqlite3").chmod(0o400)
    try:
        files = {file.name: file.read_bytes() for file in fork.iterdir()}
        assert vstate("merge", "what-if", "--dry-run").code == 1
        assert vstate("merge", "what-if", "--dry-run", "--ours", "**").code == 0
        assert vstate("merge", "main~1", "--dry-run").stderr == "already up to date\n"
        assert vstate("switch", "what-if").code == 0
        assert {file.name: file.read_bytes() for file in fork.iterdir()} == files
    finally:
        fork.chmod(0o700)


def test_objects_are_merged_without_being_unpickled(vstate: Vstate, tmp_path: Path):
    target, store = tmp_path / "unpickled", tmp_path / "objects"
    with Versioned(Disk(store), pickle="allow") as state:
        state["list"] = [Bomb(target), 1, 2, 3]
        state["both"] = 0
        state.commit("base")
        other = state.fork("other")
        other["theirs"], other["both"] = Bomb(target), Bomb(tmp_path / "theirs")
        other["list"].append(Bomb(target))
        other.commit("theirs")
        state["ours"], state["both"] = Bomb(target), Bomb(tmp_path / "ours")
        state["list"].insert(0, 0)
        state.commit("ours")
    target.unlink(missing_ok=True)  # these handles may unpickle what they made
    result = vstate("merge", "other", store=store)
    assert "    ours    <object tests.support.examples.Bomb" in result.stdout
    assert_error(result, "1 conflict")
    assert vstate("merge", "other", "--theirs", "both", store=store).code == 0
    assert not target.exists()
    with Repository(Disk(store), pickle="refuse") as repository:
        shown: Snapshot = repository.snapshot("main", describe=True)
        assert sorted(shown) == ["both", "list", "ours", "theirs"]
        assert len(shown["list"]) == 6
        assert repository.diff("main", "other").under("both") == []
    assert_error(vstate("restore", "both", "--from", "main~1", store=store), "refused", "hint: vstate never unpickles")
    assert not target.exists()


# Moves


def test_undo_brings_every_branch_back(vstate: Vstate, fork: Path):
    moves = [
        "merge what-if --ours **",
        "cherry-pick what-if",
        "revert HEAD",
        "restore notes --from what-if",
        "reset main~1",
        "squash main~2",
        "-b what-if rebase main --theirs **",
    ]
    for move in moves:
        before = heads(fork)
        assert vstate(*move.split()).code == 0
        after = heads(fork)
        assert after != before
        branch = ["-b", "what-if"] if "-b" in move else []
        assert vstate(*branch, "undo").code == 0
        assert heads(fork) == before
        assert vstate(*branch, "redo").code == 0
        assert heads(fork) == after
        assert vstate(*branch, "undo").code == 0


def test_the_author_is_an_option_the_environment_or_the_user(vstate: Vstate, fork: Path, monkeypatch: pytest.MonkeyPatch):
    def author_of(*options: str) -> str | None:
        assert vstate("revert", "HEAD", *options).code == 0
        return head_of(fork).author

    assert author_of() == "tester"
    assert author_of("--author", "Ana") == "Ana"
    monkeypatch.delenv("VSTATE_AUTHOR")
    monkeypatch.setenv("LOGNAME", "somebody")
    assert author_of() == "somebody"
    assert vstate("cherry-pick", "what-if").code == 0
    assert head_of(fork).author == "dreamer"
    assert vstate("cherry-pick", "what-if~1", "--ours", "**", "--set", "budget.limit", "1", "--author", "Ana", "-m", "mine").code == 0
    assert (head_of(fork).author, head_of(fork).message) == ("Ana", "mine")


WRITING = [
    *["merge what-if", "cherry-pick what-if", "revert HEAD", "rebase what-if", "squash HEAD~1", "reset main~1", "undo", "redo"],
    *["restore notes --from what-if", "branch new", "tag new", "policy a sum", "switch -c new", "sign", "apply patch.json"],
]


@pytest.mark.parametrize("command", WRITING)
def test_a_command_that_writes_makes_no_store_and_no_branch(command: str, vstate: Vstate, fork: Path, tmp_path: Path):
    (tmp_path / "patch.json").write_text('[{"path": "a", "kind": "added", "new": 1}]')
    assert_error(vstate(*command.split(), store=tmp_path / "none"), "there is no store", "hint: ")
    assert not (tmp_path / "none").exists()
    if not command.startswith("policy"):
        assert_error(vstate("-b", "nothing", *command.split()), "there is no branch 'nothing'", "vstate switch")
    assert "nothing" not in heads(fork)


def test_a_store_that_cannot_be_written_is_one_line(vstate: Vstate, fork: Path, monkeypatch: pytest.MonkeyPatch):
    # Who is root writes to whatever is there, so the store refuses by itself.
    monkeypatch.setattr("versioned_state.cli.shared.store.open_store", lambda url, **_: Disk(url, read_only=True))
    before = heads(fork)
    for command in WRITING:
        if command not in ("redo", "apply patch.json", "sign"):
            options = ["--ours", "**"] if command.startswith(("merge", "rebase", "cherry")) else []
            assert_error(vstate(*command.split(), *options))
    assert heads(fork) == before


# The current branch


def test_a_switch_holds_for_one_store_and_one_user(vstate: Vstate, fork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
    for command in ("log", "merge main", "undo"):
        assert_error(vstate(*command.split()), "there is no branch 'idea'", "vstate switch")
    assert "current  idea\n" in vstate("status").stdout
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


# Patches


def test_a_patch_goes_to_another_store_and_loses_nothing(vstate: Vstate, fork: Path, tmp_path: Path, trip: Trip):
    other = tmp_path / "other"
    shutil.copytree(fork, other)
    patch = vstate("diff", "what-if~2", "what-if", "--patch").stdout
    assert vstate("-b", "what-if", "reset", "what-if~2", store=other).code == 0
    assert vstate("-b", "what-if", "apply", "-", store=other, stdin=patch.encode()).code == 0
    assert state_of(other, "what-if") == state_of(fork, "what-if")
    before = heads(other)
    assert_error(vstate("-b", "what-if", "apply", "-", store=other, stdin=patch.encode()), "does not fit", "cherry-pick")
    for bad in (b"", b"{", b"{}", b"[1]", b'[{"path": "a"}]', b"\xff", b"[" * 100_000):
        assert_error(vstate("apply", "-", store=other, stdin=bad), "patch")
    assert heads(other) == before
    everything = vstate("diff", "main~3", "main", "--patch", store=trip.path).stdout
    vstate("branch", "old", "main")
    with Versioned(Disk(other), branch="copy") as state, Repository(Disk(trip.path, read_only=True)) as source:
        state.update(source.snapshot("main~3").copy())
        state.namespace("other")["a"] = 1
        state.commit("copy")
    assert vstate("-b", "copy", "apply", "-", "-m", "all", store=other, stdin=everything.encode()).code == 0
    with Repository(Disk(trip.path, read_only=True)) as source, Repository(Disk(other, read_only=True)) as found:
        assert found.snapshot("copy").copy() == source.snapshot("main").copy()
        assert found.commit("copy").message == "all"


# Words


@given(st.text(alphabet="ab .\n", max_size=40), st.text(alphabet="ab .\n", max_size=40))
def test_words_hold_both_texts(old: str, new: str):
    def side(dropped: str) -> str:
        parts = _parts(old, new, full=True)
        return "".join(
            part if isinstance(part, str) else part.text[2:-2] for part in parts if not (isinstance(part, Span) and part.style == dropped)
        )

    assert side("added") == old
    assert side("removed") == new


@given(st.text(alphabet="ab \n", max_size=40), st.text(alphabet="ab \n", max_size=40))
def test_lines_of_words_hold_both_texts(old: str, new: str):
    lines = list(_text_lines(old, new, full=True))

    def side(dropped: str) -> str:
        shown = [
            "".join(p if isinstance(p, str) else p.text[2:-2] for p in line if isinstance(p, str) or p.style != dropped) for line in lines
        ]
        return "\n".join(shown)

    assert not any("\n" in (part if isinstance(part, str) else part.text) for line in lines for part in line)
    # A line break that one side does not have is one all the same.
    assert side("added").replace("\n", "") == old.replace("\n", "")
    assert side("removed").replace("\n", "") == new.replace("\n", "")


def test_a_long_text_shows_the_words_around_the_change(vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "long")) as state:
        state["text"] = "word " * 10_000 + "old" + " word" * 10_000
        state.commit()
        state["text"] = "word " * 10_000 + "new" + " word" * 10_000
        state.commit()
    shown = vstate("diff", "--word", store=tmp_path / "long").stdout
    assert "word [-old-]{+new+} word" in shown
    assert len(shown) < 200
    assert len(vstate("diff", "--word", "--full", store=tmp_path / "long").stdout) > 100_000


def test_words_have_colours_in_a_terminal(fork: Path, tmp_path: Path):
    shown = run_in_terminal("--store", str(fork), "--no-pager", "diff", "what-if~1", "what-if", "--word", cwd=tmp_path).text
    assert "\x1b[31m[-slow-]\x1b[0m\x1b[32m{+fast+}\x1b[0m" in shown


# Signatures


def test_signed_history_is_verified(vstate: Vstate, fork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert vstate("sign", "--new-key", "key").code == 0
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    secret = (tmp_path / "key").read_text()
    assert_error(vstate("sign", "--new-key", "key"), "exists")
    assert (tmp_path / "key").read_text() == secret
    assert_error(vstate("sign"), "no key")
    monkeypatch.setenv("VSTATE_SIGN_KEY", "key")
    assert vstate("switch", "-c", "signed", "main~2").code == 0
    assert vstate("cherry-pick", "main~1").code == 0
    assert vstate("sign", "-m", "seen").stderr == "signed is signed with that key already\n"
    result = vstate("verify", "--key", "key.pub", "-n", "1")
    assert result.code == 0
    assert "1 good" in result.stdout
    result = vstate("verify", "--key", "key.pub", "--json")
    found = json.loads(result.stdout)
    assert (result.code, found["ok"], found["counts"]["good"], found["counts"]["unsigned"]) == (1, False, 1, 1)
    seen = head_of(fork, "signed").id
    assert vstate("undo").code == 0
    assert_gone = vstate("verify", "--key", "key.pub", "--since", seen)
    assert assert_gone.code == 1
    assert "not in this history" in assert_gone.stdout
    assert vstate("sign", "--new-key", "other").code == 0
    assert "unknown key" in vstate("verify", "signed@{1}", "--key", "other.pub").stdout
    for wrong in ("key", "patch", "none"):
        (tmp_path / "patch").write_bytes(os.urandom(100))
        assert_error(vstate("verify", "--key", wrong), wrong)
    assert_error(vstate("--sign-key", "key.pub", "sign"), "key.pub", "vstate sign --new-key")
    assert secret.splitlines()[1] not in "".join(vstate("--debug", "show", name).stdout for name in ("signed", "signed@{1}"))


def test_a_signature_that_only_claims_the_key_is_not_taken_for_one(vstate: Vstate, fork: Path, monkeypatch: pytest.MonkeyPatch):
    class Forger(Signer):
        def sign(self, raw: bytes) -> bytes:
            return bytes.fromhex(self.key_id) + bytes(64)

    assert vstate("sign", "--new-key", "key").code == 0
    with Repository(Disk(fork), signer=Forger(Path("key").read_bytes())) as repository:
        Versioned(repository).commit("forged", allow_empty=True)
    forged = head_of(fork)
    assert forged.signed_by is not None
    assert "1 bad" in vstate("verify", "-n", "1", "--key", "key.pub").stdout
    assert vstate("--sign-key", "key", "sign").code == 0
    assert head_of(fork).parents == (forged.id,)
    shown = vstate("verify", "--key", "key.pub")
    assert shown.code == 1
    assert "1 good, 3 unsigned, 1 bad" in shown.stdout


# Hostile stores, terminals, completion


@pytest.mark.parametrize(
    "command",
    [
        *(["branch", *options] for options in ([], ["-v"], ["--json"])),
        *(["reflog", *options] for options in ([], ["--json"])),
        ["tag"],
        ["tag", "--json"],
        ["diff", "--word"],
        ["diff", "--word", "--full"],
        ["reset", "HEAD~1"],
        ["undo"],
        ["revert", "HEAD"],
        ["revert", "HEAD~1"],
        ["merge", "evil", "--dry-run"],
        ["merge", "evil"],
        ["merge", "evil", "--json"],
        ["merge", "evil", "--ours", "**"],
        ["cherry-pick", "evil"],
        ["rebase", "evil"],
        ["squash", "HEAD~1"],
        ["switch", "evil"],
        ["policy"],
        ["diff", "--patch", "--path", "lone"],
    ],
    ids=" ".join,
)
def test_nothing_drives_the_terminal_and_nothing_is_unpickled(command: list[str], vstate: Vstate, hostile: Path):
    with Repository(Disk(hostile), pickle="refuse") as repository:
        plant(repository, "tag", "tag\u202e\x9b")
        repository.tags.create("annotated", "main", message=f"why{ESCAPES}", author=f"who{ESCAPES}")
        repository.branches.create("evil", "main~1")
        repository.set_merge_policy(f"a[{json.dumps(ESCAPES)}]", "sum")
        state = Versioned(repository, branch="evil")
        state["lone"] = ESCAPES
        state[f"key{ESCAPES}"] = f"other{ESCAPES}"
        state.commit(f"evil{ESCAPES}")
    result = vstate(*command, store=hostile)
    assert result.code in (0, 1)
    assert result.stdout + result.stderr
    assert control_characters(result.stdout + result.stderr) == set()


def test_conflicts_have_colours_in_a_terminal_and_fit_into_it(fork: Path, tmp_path: Path):
    screen = run_in_terminal("--store", str(fork), "merge", "what-if", cwd=tmp_path, columns=50)
    assert screen.code == 1
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.text)
    conflicts = plain.partition("error: ")[0].replace("\r\n", "\n").splitlines()
    assert len(conflicts) == 8
    assert all(len(line) <= 50 for line in conflicts)
    assert plain != screen.text


def test_the_shell_completes_branches_and_tags(trip: Trip, tmp_path: Path):
    assert complete(f"vstate --store {trip.path} switch m", cwd=tmp_path) == ["main", "merged"]
    assert complete(f"vstate --store {trip.path} switch ", cwd=tmp_path) == ["idea", "main", "merged"]
    assert complete(f"vstate --store {trip.path} tag -d ", cwd=tmp_path) == ["v1"]
    assert complete(f"vstate --store {trip.path} merge v", cwd=tmp_path) == ["v1"]
    assert complete(f"vstate --store {trip.path} -b i", cwd=tmp_path) == ["idea"]
