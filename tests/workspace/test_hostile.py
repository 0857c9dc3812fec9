"""What a commit says is hostile input: nothing outside the folder is touched, and nothing of the user's overwritten."""

import os
import shutil

import pytest

from tests.support.workspaces import lay, tree_of
from versioned_state import Memory, Tagged, Versioned, Workspace, files_of
from versioned_state.agents.workspace.entries import why_refused
from versioned_state.errors import DirtyWorkspaceError, StateError, WorkspaceError
from versioned_state.values.codec.files import File, FileTree, Folder, Symlink


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "around" / "project"


def moved_to(folder, tree):
    """A state with a workspace, and the error of a move to a commit with these files."""
    state = Versioned(Memory())
    workspace = Workspace(state, folder)
    (folder / "mine").write_text("mine")
    first = state.commit("first")
    other = state.fork("other")
    other["workspace"] = tree
    other.commit("hostile")
    with pytest.raises(StateError) as caught:
        state.reset("other")
    assert state.head.message == "hostile"
    assert tree_of(folder) == {"mine": (0o644, b"mine")}
    assert list(state) == ["workspace"], "reading goes on"
    with pytest.raises(WorkspaceError):
        state.commit("it must not be taken")
    assert "mine" in workspace.files
    state.reset(first)
    assert not workspace.status()
    state.commit()
    return caught.value


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "a/../../outside",
        "..",
        "/etc/outside",
        "",
        "a//b",
        "a/",
        "/",
        ".",
        "./a",
        "a\0b",
        ".git/config",
        "a/.git",
        ".GIT/hooks/x",
        ".versioned-state/position",
        "a/.versioned-state.tmp",
        ".Versioned-State/index",
        "\ud800",
        "a\udcc3\udca9",  # another spelling of é
    ],
)
def test_a_path_that_must_not_be_is_refused_before_anything_is_touched(folder, path):
    before = tree_of(folder.parent.parent) if folder.parent.exists() else {}
    error = moved_to(folder, FileTree({"fine": "x", path: "x"}))
    assert isinstance(error, WorkspaceError)
    assert error.files == (path,)
    shutil.rmtree(folder)
    assert tree_of(folder.parent.parent) == {**before, "around": None}
    assert why_refused(path)


@pytest.mark.parametrize("path", ["a" * 300, "é" * 200])
def test_a_name_that_is_too_long_is_refused_by_every_call(state, workspace, folder, path):
    state.merge(_with(state, FileTree({"fine": "x"})))
    with pytest.raises(WorkspaceError):
        state.merge(_with(state, FileTree({"fine": "y", path: "x"})))
    for call in (
        state.discard,
        lambda: workspace.restore(overwrite=True),
        lambda: workspace.restore(path),
        state.commit,
    ):
        with pytest.raises(WorkspaceError) as caught:
            call()
        assert caught.value.files == (path,)
        assert "no file was touched" in str(caught.value)
    assert tree_of(folder) == {"fine": (0o644, b"x")}
    state.reset("HEAD~1")
    assert not workspace.status()


def _with(state: Versioned, files: FileTree | dict[str, object]) -> str:
    """A branch where somebody else has committed these files."""
    other = state.fork("other" + state.head.short)
    other["workspace"] = files
    other.commit()
    return other.branch


@pytest.mark.no_oracle("data that nobody but an attacker writes")
@pytest.mark.parametrize(
    "value",
    [
        1,
        None,
        ["x"],
        {"a": "b"},
        File("x", 0o4755),
        Tagged("versioned_state.File", {"content": [1], "mode": 420}),
        Symlink(""),
        Symlink("a\0"),
        "\ud800",
    ],
)
def test_a_value_that_is_no_file_is_refused(folder, value):
    if value == "\ud800":
        state = Versioned(Memory())
        workspace = Workspace(state, folder)
        other = state.fork("other")
        other["workspace"] = FileTree({"a": value, "b": "fine"})
        other.commit()
        state.merge("other")
        assert tree_of(folder) == {"b": (0o644, b"fine")}
        assert workspace.unresolved == ["a"]
        return
    error = moved_to(folder, FileTree({"fine": "x", "no file": value}))
    assert isinstance(error, WorkspaceError)
    assert error.files == ("no file",)


@pytest.mark.parametrize("tree", [[1], "text", 5, {1: "a"}, FileTree({(1, 2): "a"})])  # type: ignore[dict-item]
def test_something_else_under_the_key_is_refused(folder, tree):
    error = moved_to(folder, tree)
    assert isinstance(error, WorkspaceError)
    assert "no file was touched" in str(error)  # while the state has moved


def test_a_file_that_is_also_a_folder(state, workspace, folder):
    state.merge(_with(state, FileTree({"a": "file", "a/b": "below it", "z": "fine"})))
    assert tree_of(folder) == {"a": (0o644, b"file"), "z": (0o644, b"fine")}
    assert workspace.unresolved == ["a/b"]
    with pytest.raises(DirtyWorkspaceError):
        state.commit()
    workspace.keep()
    state.commit("settled")
    assert dict(files_of(state.checkout("HEAD"))) == {"a": b"file", "z": b"fine"}


def test_a_link_in_the_place_of_a_folder_is_not_followed(state, workspace, folder):
    outside = folder.parent / "outside"
    lay(folder, {"in/a": (0o644, b"1"), "in/b": (0o644, b"1")})
    first = state.commit()
    lay(folder, {"in/a": (0o644, b"2")})
    second = state.commit()
    outside.mkdir()
    (outside / "a").write_text("2")
    shutil.rmtree(folder / "in")
    (folder / "in").symlink_to(outside)
    with pytest.raises(DirtyWorkspaceError):
        state.reset(first)
    with pytest.raises(DirtyWorkspaceError):
        workspace.restore(at=first)
    assert tree_of(outside) == {"a": (0o644, b"2")}
    state.discard()
    assert tree_of(folder) == {"in/a": (0o644, b"2")}
    assert tree_of(outside) == {"a": (0o644, b"2")}
    state.reset(first)
    state.reset(second)


def test_a_link_that_a_commit_has_leads_no_write_out(state, workspace, folder):
    outside = folder.parent / "outside"
    outside.mkdir()
    state.merge(_with(state, FileTree({"in": Symlink(str(outside)), "in/a": "through the link"})))
    assert tree_of(outside) == {}
    assert workspace.unresolved == ["in/a"]
    assert (folder / "in").is_symlink()


def test_a_folder_with_ignored_files_is_not_removed(folder):
    state = Versioned(Memory())
    workspace = Workspace(state, folder, ignore="*.log")
    lay(folder, {"a": (0o644, b"a")})
    first = state.commit()
    lay(folder, {"a/b": (0o644, b"b")})
    state.commit()
    (folder / "a" / "kept.log").write_text("ignored")
    state.reset(first)
    assert (folder / "a" / "kept.log").read_text() == "ignored"
    assert workspace.unresolved == ["a"]
    with pytest.raises(WorkspaceError, match="in the way"):
        state.discard()
    (folder / "a" / "kept.log").unlink()
    state.discard()
    assert tree_of(folder) == {"a": (0o644, b"a")}


def test_the_records_are_out_of_reach(state, workspace, folder):
    (folder / "a").write_text("1")
    (folder / "sub").mkdir()
    (folder / "sub" / ".versioned-state.tmp").write_text("what a killed process was writing")
    state.commit()
    assert dict(state["workspace"]) == {"a": "1", "sub": Folder()}
    assert not os.path.lexists(folder / "sub" / ".versioned-state.tmp")


def test_entries_in_forms_that_no_folder_has_are_not_changes(state, workspace, folder):
    files = {
        "b": b"bytes that are a text",
        "a": File("of the plain mode", 0o644),
        "d": Folder(),
        "d/x": "in it",
        "c": bytes(500),
    }
    state.merge(_with(state, files))
    assert not workspace.status()
    assert workspace.unresolved == []
    (folder / "new").write_text("n")
    state.commit()
    assert list(state["workspace"]) == ["a", "b", "c", "d", "d/x", "new"]
    state.undo()
    assert not workspace.status()


def test_a_depth_and_a_length_that_are_too_much(state, workspace, folder):
    at = folder
    for _ in range(40):
        at = at / "abcdefghij"
        at.mkdir()
    (at / "file").write_text("deep")
    state.commit()
    assert list(state["workspace"]) == ["abcdefghij/" * 40 + "file"]
    descriptor = os.open(at, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    with pytest.raises(StateError, match="folders within folders"):
        state.commit()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_records_that_lead_elsewhere_are_refused(folder, kind):
    outside = folder.parent / "outside"
    outside.mkdir(parents=True)
    folder.mkdir()
    (folder / ".versioned-state").symlink_to(outside) if kind == "link" else (folder / ".versioned-state").write_text(
        "a file"
    )
    with pytest.raises(WorkspaceError, match="cannot be used"):
        Workspace(Versioned(), folder)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "/".join(["d"] * 1500) + "/f",
        "d/" * 257 + "f",
        "/".join(["n" * 200] * 21),
        "/".join(["é" * 100] * 20) + "/" + "é" * 40,
    ],
)
def test_a_path_that_no_scan_could_find_again_is_refused_before_anything_is_touched(folder, path):
    error = moved_to(folder, FileTree({"fine": "x", path: "x"}))
    assert isinstance(error, WorkspaceError)
    assert error.files == (path,)
    assert error.remains == "no file was touched"


def test_what_may_be_written_is_scanned_again_up_to_the_last_folder(state, workspace, folder):
    first = state.commit("first", allow_empty=True)
    other = state.fork("other")
    deepest, longest = "d/" * 256 + "f", "/".join(["n" * 200] * 20) + "/" + "n" * 70
    other["workspace"] = FileTree({deepest: "x", longest: "y"})
    other.commit("deep")
    state.reset("other")
    assert not workspace.status()
    state.reset(first)
    assert not workspace.files


def test_a_folder_deeper_than_any_that_is_kept_is_named_with_the_way_out(state, workspace, folder):
    deep = folder / "deep"
    deep.joinpath(*["d"] * 300).mkdir(parents=True)
    with pytest.raises(StateError, match="folders within folders") as caught:
        state.commit("no")
    assert "'deep'" in caught.value.hint
    shutil.rmtree(deep)
    state.commit("yes", allow_empty=True)
