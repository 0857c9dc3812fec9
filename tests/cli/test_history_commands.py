"""Branches, and every way of moving one, from the command line: what is printed, what is changed, and what is not."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import SNAPSHOTS, Vstate, assert_error
from tests.support.examples import ESCAPES, Trip, control_characters, plant
from tests.support.forked_trips import head_of, heads, state_of
from tests.support.terminal import complete, run_in_terminal
from versioned_state import Disk, Repository, Versioned

Tell = Callable[..., str]


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
    "merge-forward": [
        "branch early main~1",
        "-b early merge main",
        "-b early undo",
        "-b early merge main --no-ff",
        "log early -n 1",
    ],
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


HELP = (
    "branch tag switch merge cherry-pick revert rebase squash reset undo redo reflog restore apply policy sign verify"
).split()


@pytest.mark.parametrize("name", HELP)
def test_help(name: str, vstate: Vstate, snapshot: Callable[[str, str], None]):
    snapshot(f"history-help-{name}", vstate(name, "--help").shown(f"vstate {name} --help"))


def test_no_snapshot_of_these_is_left_over():
    expected = {f"history-{name}" for name in SCRIPTS} | {f"history-help-{name}" for name in HELP}
    assert {file.stem for file in SNAPSHOTS.iterdir() if file.stem.startswith("history-")} == expected


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


def test_the_author_is_an_option_the_environment_or_the_user(
    vstate: Vstate, fork: Path, monkeypatch: pytest.MonkeyPatch
):
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
    assert (
        vstate(
            "cherry-pick", "what-if~1", "--ours", "**", "--set", "budget.limit", "1", "--author", "Ana", "-m", "mine"
        ).code
        == 0
    )
    assert (head_of(fork).author, head_of(fork).message) == ("Ana", "mine")


WRITING = [
    *[
        "merge what-if",
        "cherry-pick what-if",
        "revert HEAD",
        "rebase what-if",
        "squash HEAD~1",
        "reset main~1",
        "undo",
        "redo",
    ],
    *[
        "restore notes --from what-if",
        "branch new",
        "tag new",
        "policy a sum",
        "switch -c new",
        "sign",
        "apply patch.json",
    ],
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


# Patches


def test_a_patch_goes_to_another_store_and_loses_nothing(vstate: Vstate, fork: Path, tmp_path: Path, trip: Trip):
    other = tmp_path / "other"
    shutil.copytree(fork, other)
    patch = vstate("diff", "what-if~2", "what-if", "--patch").stdout
    assert vstate("-b", "what-if", "reset", "what-if~2", store=other).code == 0
    assert vstate("-b", "what-if", "apply", "-", store=other, stdin=patch.encode()).code == 0
    assert state_of(other, "what-if") == state_of(fork, "what-if")
    before = heads(other)
    assert_error(
        vstate("-b", "what-if", "apply", "-", store=other, stdin=patch.encode()), "does not fit", "cherry-pick"
    )
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
    assert complete(f"vstate --store {trip.path} switch m") == ["main", "merged"]
    assert complete(f"vstate --store {trip.path} switch ") == ["idea", "main", "merged"]
    assert complete(f"vstate --store {trip.path} tag -d ") == ["v1"]
    assert complete(f"vstate --store {trip.path} merge v") == ["v1"]
    assert complete(f"vstate --store {trip.path} -b i") == ["idea"]
