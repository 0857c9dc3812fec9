"""``vstate files``, ``restore --files`` and ``diff --files``: the files of a workspace."""

import subprocess

import pytest

from tests.support.command_line import assert_error
from tests.support.workspaces import lay, tree_of
from versioned_state import Disk, Versioned, Workspace

FIRST = {
    "README.md": (0o644, b"# title\n\none\ntwo\nthree\nfour\nfive\nsix\n"),
    "bin": (0o644, b"\xff\x00"),
    "run me.sh": (0o644, b"#!/bin/sh\n"),
    "gone": (0o644, b"g\n"),
    "link": "README.md",
    "empty": None,
}
SECOND = {
    "README.md": (0o644, b"# title\n\none\ntwo\nTHREE\nfour\nfive\nsix"),
    "bin": (0o644, b"\xfe\x00"),
    "run me.sh": (0o755, b"#!/bin/sh\n"),
    "new/file": (0o644, b"n\n"),
    "link": "new/file",
    "empty": None,
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = Versioned(Disk(tmp_path / ".vstate"))
    with Workspace(state, tmp_path / "project"):
        lay(tmp_path / "project", FIRST)
        state.commit("first")
        lay(tmp_path / "project", SECOND)
        state.commit("second")
    state.close()
    return tmp_path


def test_files_lists_the_files_of_a_commit(project, vstate):
    assert vstate("files").stdout.splitlines() == ["README.md", "bin", "empty", "link", "new/file", "run me.sh"]
    assert vstate("files", "HEAD~1", "--long").stdout.splitlines() == [
        "100644        37 README.md",
        "100644         2 bin",
        "040000         - empty",
        "100644         2 gone",
        "120000         - link -> README.md",
        "100644        10 run me.sh",
    ]
    found = vstate("files", "--json").objects
    assert found[3] == {"path": "link", "mode": "120000", "size": None, "target": "new/file"}
    assert found[5] == {"path": "run me.sh", "mode": "100755", "size": 10}
    assert_error(vstate("files", "--name", "nothing"), "nothing at nothing")


def test_files_of_a_key_that_holds_something_else(project, vstate):
    with Versioned(Disk(project / ".vstate")) as state:
        state["plan"] = ["write add()"]
        state.commit("a plan")
    assert_error(vstate("files", "--name", "plan"), "is not the files of a workspace", "--name says under which key")


def test_diff_shows_files_as_git_does_and_git_applies_it(project, vstate):
    shown = vstate("diff", "--files").stdout
    hunk = [
        "@@ -2,7 +2,7 @@",
        " ",
        " one",
        " two",
        "-three",
        "+THREE",
        " four",
        " five",
        "-six",
        "+six",
        "\\ No newline at end of file",
    ]
    begin = ["diff --git a/README.md b/README.md", "--- a/README.md", "+++ b/README.md"]
    assert "\n".join([*begin, *hunk]) in shown
    assert "Binary files a/bin and b/bin differ" in shown
    assert "old mode 100644\nnew mode 100755" in shown
    assert "new file mode 100644" in shown
    assert "deleted file mode 100644" in shown
    without_binary = shown.replace("diff --git a/bin b/bin\nBinary files a/bin and b/bin differ\n", "")
    there = project / "there"
    lay_new(there, FIRST)
    subprocess.run(["git", "apply", "-"], cwd=there, input=without_binary, text=True, check=True)
    assert tree_of(there) == {**SECOND, "bin": FIRST["bin"]}
    assert "diff --git" not in vstate("diff").stdout
    one = vstate("diff", "--files", "--path", "workspace.link").stdout
    assert one.count("diff --git") == 1
    assert vstate("diff", "HEAD", "HEAD", "--files").stdout == ""


def lay_new(folder, tree):
    folder.mkdir()
    lay(folder, tree)


def test_restore_writes_files_into_a_folder(project, vstate):
    there = project / "there"
    vstate("restore", "--files", str(there))
    assert tree_of(there) == SECOND
    assert not (there / ".versioned-state").exists()
    assert "none was written" in vstate("restore", "--files", str(there)).stderr
    assert_error(vstate("restore", "--files", str(there), "HEAD~1"), "README.md", "--overwrite")
    assert tree_of(there) == SECOND
    vstate("restore", "--files", str(there), "HEAD~1", "README.md", "gone", "--overwrite")
    assert tree_of(there) == {**SECOND, "README.md": FIRST["README.md"], "gone": FIRST["gone"]}
    vstate("restore", "--files", str(there), "HEAD~1", "--overwrite")
    assert tree_of(there) == FIRST


def test_restore_in_the_folder_of_a_workspace_knows_what_is_committed(project, vstate):
    folder = project / "project"
    vstate("restore", "--files", str(folder), "HEAD~1")
    assert tree_of(folder) == FIRST
    state = Versioned(Disk(project / ".vstate"))
    with Workspace(state, folder) as workspace:
        assert workspace.status()
        state.discard()
        assert tree_of(folder) == SECOND
    state.close()


def test_options_that_exclude_each_other(project, vstate):
    assert "--files DIR" in vstate("restore", "HEAD:a", "b").stderr
    assert "exclude each other" in vstate("diff", "--files", "--json").stderr


def test_blame_of_a_file_is_by_line(project, vstate):
    lines = vstate("blame", 'workspace["README.md"]').stdout.splitlines()
    assert len(lines) == 8
    assert lines[4].endswith("THREE")
