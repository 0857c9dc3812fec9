"""``.gitignore`` as git reads it: the same decisions as ``git check-ignore``."""

import os
import random
import shutil
import subprocess

import pytest

from tests.support.workspaces import GIT
from versioned_state import Versioned, Workspace
from versioned_state.agents.workspace.ignore import Rules

CASES = [
    # patterns, path, whether it is a folder, ignored
    ("*.pyc", "a.pyc", False, True),
    ("*.pyc", "deep/a.pyc", False, True),
    ("/a", "a", False, True),
    ("/a", "b/a", False, None),
    ("a/b", "a/b", False, True),
    ("a/b", "x/a/b", False, None),
    ("build/", "build", True, True),
    ("build/", "build", False, None),
    ("**/x", "a/b/x", False, True),
    ("**/x", "x", False, True),
    ("a/**", "a/b/c", False, True),
    ("a/**", "a", True, None),
    ("a/**/b", "a/b", False, True),
    ("a/**/b", "a/x/y/b", False, True),
    ("a**b/c", "axb/c", False, True),
    ("a**b/c", "a/b/c", False, None),
    ("*\n!keep", "keep", False, False),
    ("\\!x", "!x", False, True),
    ("\\#x", "#x", False, True),
    ("# x", "# x", False, None),
    ("x  ", "x", False, True),
    ("x\\ ", "x ", False, True),
    ("a?c", "abc", False, True),
    ("a[bc]d", "abd", False, True),
    ("a[!bc]d", "abd", False, None),
    ("a[!bc]d", "axd", False, True),
    ("a[]]d", "a]d", False, True),
    ("a[[:digit:]]", "a1", False, True),
    ("a[[:digit:]]", "ab", False, None),
    ("a[b-d]", "ac", False, True),
    ("a[b", "a[b", False, None),
    ("x\\", "x\\", False, None),
    ("/", "a", True, None),
    ("é", "é", False, True),
]


@pytest.mark.parametrize(("patterns", "path", "is_folder", "ignored"), CASES)
def test_a_pattern_decides(patterns, path, is_folder, ignored):
    rules = Rules(patterns.encode().split(b"\n"))
    assert rules.decide(path.encode(), is_folder=is_folder) is ignored


PARTS = [*"ab?]#! ", "ab", "*", "**", "[ab]", "[!a]", "[a-]", "[]b]", "\\a", ".x", "c\\ ", "[[:alpha:]]", "[^b]"]
NAMES = ["a", "b", "ab", ".x", "c", "ba", "c ", "#a", "!b", "]", "a]", "abc"]


def pattern(dice):
    parts = ["".join(dice.choices(PARTS, k=dice.randint(1, 2))) for _ in range(dice.randint(1, 3))]
    # beside other characters git 2.39 compares unrelated addresses
    parts = ["**" if "**" in part else part for part in parts]
    return dice.choice(["", "", "!", "/"]) + "/".join(parts) + dice.choice(["", "", "/", " ", "\r"])


def test_random_patterns_decide_as_git(tmp_path, long_run):
    for seed in range(150 if long_run else 6):
        dice = random.Random(seed)
        folder = tmp_path / str(seed)
        (folder / "empty").mkdir(parents=True)
        for _ in range(30):
            at = folder.joinpath(*dice.choices(NAMES, k=dice.randint(1, 4)))
            if not any(parent.is_file() for parent in at.parents) and not at.exists():
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_text("")
        for place in [folder, *(each for each in folder.iterdir() if each.is_dir())][:3]:
            (place / ".gitignore").write_text("\n".join(pattern(dice) for _ in range(dice.randint(1, 6))) + "\n")
        subprocess.run([*GIT, "init", "-q", str(folder)], check=True)
        listed = subprocess.run(
            [*GIT, "-C", str(folder), "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"],
            check=True,
            capture_output=True,
        )
        expected = {os.fsdecode(path) for path in listed.stdout.split(b"\0") if path}
        shutil.rmtree(folder / ".git")
        state = Versioned()
        workspace = Workspace(state, folder)
        assert set(workspace.files) == expected, f"seed {seed}"
        workspace.close()


def test_what_a_commit_has_is_never_ignored(tmp_path):
    state = Versioned()
    workspace = Workspace(state, tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "kept").write_text("1")
    (tmp_path / "kept.log").write_text("1")
    state.commit()
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    (tmp_path / "build" / "new").write_text("1")
    (tmp_path / "new.log").write_text("1")
    assert list(workspace.files) == [".gitignore", "build/kept", "kept.log"]
    (tmp_path / "build" / "kept").write_text("2")
    assert workspace.files["build/kept"] == b"2"


def test_ignore_comes_before_the_files_of_the_folder_which_can_be_left_unread(tmp_path):
    (tmp_path / ".gitignore").write_text("!a.tmp\nb\n")
    for name in ("a.tmp", "b", "c"):
        (tmp_path / name).write_text("")
    assert list(Workspace(Versioned(), tmp_path, name="one", ignore=["*.tmp"]).files) == [".gitignore", "c"]
    assert list(Workspace(Versioned(), tmp_path, name="two", ignore="c", gitignore=False).files) == [
        ".gitignore",
        "a.tmp",
        "b",
    ]


def test_a_gitignore_that_changes_is_heeded_at_once(tmp_path):
    state = Versioned()
    workspace = Workspace(state, tmp_path)
    (tmp_path / "x").write_text("")
    for ignored in (True, False, True):
        (tmp_path / ".gitignore").write_text("x\n" if ignored else "y\n")
        assert ("x" not in workspace.files) == ignored
    (tmp_path / ".gitignore").unlink()
    assert "x" in workspace.files
