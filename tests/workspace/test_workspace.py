"""A workspace: commits take its files, and moves of the state bring them back."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from tests.support.concurrent_stores import ActsAroundMove
from tests.support.workspaces import GIT, lay, tree_of
from versioned_state import Cache, Disk, Live, Memory, Versioned, Workspace, files_of, parallel, task
from versioned_state.errors import (
    DirtyWorkspaceError,
    HandleClosedError,
    InvalidArgumentError,
    MergeConflictError,
    TransactionError,
    UncommittedChangesError,
    UnknownPathError,
    WorkspaceError,
)
from versioned_state.values.codec.files import File, FileTree, Folder, Symlink

FIRST = {
    "README.md": (0o644, b"# first\n"),
    "src/main.py": (0o644, b"a\nb\nc\n"),
    "src/run.sh": (0o755, b"#!/bin/sh\n"),
    "data.bin": (0o644, b"\xff\x00\xfe"),
    "crlf": (0o644, b"\xef\xbb\xbfa\r\nb\r"),
    "secret": (0o600, b"\xff"),
    "link": "src/main.py",
    "dangling": "/nowhere/at/all",
    "empty/inside": None,
}
SECOND = {
    "README.md": (0o755, b"# first\n"),
    "src": (0o644, b"a folder before"),
    "data.bin/now/a/folder": (0o644, b""),
    "link": (0o644, b"a file before"),
    "crlf": "src",
    "empty": None,
}


class BlockFailedError(Exception):
    """The error that ends a block."""


def lay_and_fail(folder, tree):
    lay(folder, tree)
    raise BlockFailedError


def test_the_files_are_a_dict_in_the_state(state, workspace, folder):
    lay(folder, FIRST)
    state["n"] = 1
    commit = state.commit()
    assert commit.message == "n added, workspace added"
    files = state["workspace"]
    assert type(files) is FileTree
    assert files == {
        "README.md": "# first\n",
        "crlf": "\ufeffa\r\nb\r",
        "dangling": Symlink("/nowhere/at/all"),
        "data.bin": b"\xff\x00\xfe",
        "empty/inside": Folder(),
        "link": Symlink("src/main.py"),
        "secret": File(b"\xff", 0o600),
        "src/main.py": "a\nb\nc\n",
        "src/run.sh": File("#!/bin/sh\n", 0o755),
    }
    assert list(files) == sorted(files)
    assert not state.status()
    assert state.commit() == commit


def test_a_folder_that_gets_a_file_is_no_entry_any_more(state, workspace, folder):
    (folder / "out" / "inside").mkdir(parents=True)
    state.commit()
    assert state["workspace"] == {"out/inside": Folder()}
    (folder / "out" / "inside" / "a").write_text("1")
    state.commit()
    assert state["workspace"] == {"out/inside/a": "1"}


def test_moves_bring_the_files_exactly(state, workspace, folder):
    lay(folder, FIRST)
    first = state.commit("first")
    lay(folder, SECOND)
    second = state.commit("second")
    for move, expected in [
        (state.undo, FIRST),
        (state.redo, SECOND),
        (lambda: state.reset(first), FIRST),
        (lambda: state.reset(second), SECOND),
        (state.rollback, FIRST),
        (lambda: state.merge(second), SECOND),
        (lambda: state.revert("HEAD"), FIRST),
        (lambda: state.cherry_pick(second), SECOND),
        (lambda: state.switch("other", create=True), SECOND),
        (lambda: state.reset(first), FIRST),
        (lambda: state.switch("main"), SECOND),
    ]:
        move()
        assert tree_of(folder) == expected
        assert not workspace.status()
        assert workspace.unresolved == []


def test_nothing_under_the_key_if_there_is_no_file(state, workspace, folder):
    assert "workspace" not in state
    (folder / "a").write_text("1")
    state.commit()
    (folder / "a").unlink()
    state.commit()
    assert "workspace" not in state


def test_status_and_diff_and_blame_and_log_go_into_files(state, workspace, folder):
    lay(folder, FIRST)
    first = state.commit("first")
    (folder / "src" / "main.py").write_text("a\nB\nc\n")
    (folder / "new.txt").write_text("n")
    (folder / "secret").unlink()
    shown = str(workspace.status())
    assert shown == str(state.status())
    assert '~ workspace["src/main.py"]\n    @ line 2\n    - b\n    + B' in shown
    assert '+ workspace["new.txt"]' in shown
    assert "- workspace.secret" in shown
    assert len(workspace.status()) == 3
    second = state.commit("second")
    path = 'workspace["src/main.py"]'
    assert [part.commit.message for part in state.blame(path)] == ["first", "second", "first"]
    assert [commit.message for commit in state.log(path=path)] == ["second", "first"]
    assert [str(change.path) for change in state.diff(first, second)] == [
        "workspace.secret",
        path,
        'workspace["new.txt"]',
    ]
    (match,) = state.grep("B", path="workspace")
    assert str(match.path) == path


def test_a_file_that_is_added_between_others_is_one_change(state, workspace, folder):
    for n in range(300):
        (folder / f"{n:03}").write_text("x" * n)
    state.commit()
    (folder / "150b").write_text("new")
    assert [str(change.path) for change in state.status()] == ['workspace["150b"]']


@pytest.mark.parametrize(
    "move",
    [
        lambda state: state.reset("HEAD~1"),
        lambda state: state.rollback(),
        lambda state: state.undo(),
        lambda state: state.switch("other", create=True),
        lambda state: state.merge("side"),
        lambda state: state.revert("HEAD"),
        lambda state: state.rebase("side"),
    ],
)
def test_a_move_is_refused_while_files_have_changes_that_no_commit_has(state, workspace, folder, move):
    (folder / "a").write_text("1")
    state.commit()
    state.fork("side")
    (folder / "a").write_text("2")
    head = state.commit()
    (folder / "a").write_text("3")
    (folder / "b").write_text("new")
    state["n"] = 1
    before = tree_of(folder)
    with pytest.raises(DirtyWorkspaceError) as caught:
        move(state)
    assert caught.value.files == ("a", "b")
    assert {"workspace.a", "workspace.b"} <= set(caught.value.paths)
    assert isinstance(caught.value, UncommittedChangesError)
    assert (state.head, state["n"], tree_of(folder)) == (head, 1, before)
    state.discard()
    assert tree_of(folder) == {"a": (0o644, b"2")}
    move(state)


def test_a_failed_transaction_restores_the_files(state, workspace, folder):
    lay(folder, FIRST)
    state.commit()
    (folder / "uncommitted").write_text("stays")
    (folder / "README.md").write_text("changed before")
    before = tree_of(folder)
    with pytest.raises(BlockFailedError), state.transaction("t"):
        lay_and_fail(folder, SECOND)
    assert tree_of(folder) == before
    with state.transaction("t"):
        lay(folder, SECOND)
        with pytest.raises(BlockFailedError), state.transaction():
            lay_and_fail(folder, FIRST)
        assert tree_of(folder) == SECOND
    assert not workspace.status()
    assert state.head.message == "t"


def test_a_task_takes_files_and_memory_together(state, workspace, folder):
    @task
    def inner(name):
        (folder / name).write_text(name)
        if name == "bad":
            raise ValueError(name)

    @task
    def outer(name, state):
        state["last"] = name
        (folder / f"outer-{name}").write_text("o")
        inner(name)

    outer("good", state=state)
    assert tree_of(folder) == {"good": (0o644, b"good"), "outer-good": (0o644, b"o")}
    with pytest.raises(ValueError, match="bad"):
        outer("bad", state=state)
    assert tree_of(folder) == {"good": (0o644, b"good"), "outer-good": (0o644, b"o")}
    assert state["last"] == "good"
    assert not workspace.status()
    assert files_of(state.checkout("HEAD")) == {"good": b"good", "outer-good": b"o"}


def test_a_task_that_fails_after_a_checkpoint_goes_back_to_the_checkpoint(state, workspace, folder):
    from versioned_state import checkpoint

    @task
    def write(state):
        (folder / "a").write_text("1")
        checkpoint("half")
        (folder / "a").write_text("2")
        (folder / "b").write_text("2")
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="failed"):
        write(state=state)
    assert tree_of(folder) == {"a": (0o644, b"1")}
    assert not workspace.status()


def test_a_fork_leaves_the_folder_alone_and_may_have_one_of_its_own(state, workspace, folder, tmp_path):
    (folder / "a").write_text("a\nb\nc\nd\n")
    state.commit()
    fork = state.fork("side")
    with Workspace(fork, tmp_path / "other") as other:
        assert tree_of(tmp_path / "other") == tree_of(folder)
        (tmp_path / "other" / "a").write_text("a\nb\nc\nD\n")
        fork.commit("theirs")
        assert other.files == {"a": b"a\nb\nc\nD\n"}
    assert (folder / "a").read_text() == "a\nb\nc\nd\n"
    (folder / "a").write_text("A\nb\nc\nd\n")
    state.commit("ours")
    state.merge("side")
    assert (folder / "a").read_text() == "A\nb\nc\nD\n"
    fork["workspace"]["a"] = "assigned on a state without a folder\n"
    fork.commit()
    with pytest.raises(MergeConflictError):
        state.merge("side")
    assert (folder / "a").read_text() == "A\nb\nc\nD\n"


def test_a_commit_is_merged_with_the_files_of_another_writer(state, workspace, folder):
    lay(folder, {"a": (0o644, b"1\n2\n3\n4\n"), "b": (0o644, b"b")})
    state.commit()
    other = Versioned(state.repository.store)
    other["workspace"]["a"] = "1\n2\n3\nfour\n"
    other["workspace"]["new/file"] = "of another"
    del other["workspace"]["b"]
    other.commit("of another")
    (folder / "a").write_text("one\n2\n3\n4\n")
    (folder / "mine").write_text("m")
    state.commit("ours")
    expected = {"a": (0o644, b"one\n2\n3\nfour\n"), "mine": (0o644, b"m"), "new/file": (0o644, b"of another")}
    assert tree_of(folder) == expected
    assert not state.status()
    other.refresh()
    other["workspace"]["mine"] = "theirs"
    other.commit()
    (folder / "mine").write_text("ours")
    with pytest.raises(MergeConflictError) as caught:
        state.commit()
    assert (folder / "mine").read_text() == "ours"
    caught.value.merge.resolve("workspace.mine", "both")
    caught.value.merge.commit()
    assert (folder / "mine").read_text() == "both"
    assert not state.status()


def test_refresh_takes_in_the_files_of_others_and_refuses_those_that_were_changed_here(state, workspace, folder):
    lay(folder, {"a": (0o644, b"a"), "b": (0o644, b"b")})
    state.commit()
    other = Versioned(state.repository.store)
    other["workspace"]["a"] = "theirs"
    other.commit()
    (folder / "b").write_text("ours")
    state.refresh()
    assert tree_of(folder) == {"a": (0o644, b"theirs"), "b": (0o644, b"ours")}
    other["workspace"]["b"] = "theirs"
    other.commit()
    head = state.head
    with pytest.raises(DirtyWorkspaceError) as caught:
        state.refresh()
    assert (caught.value.files, state.head, (folder / "b").read_text()) == (("b",), head, "ours")


def test_restore_gives_files_the_content_of_a_commit(state, workspace, folder):
    lay(folder, FIRST)
    first = state.commit()
    lay(folder, SECOND)
    state.commit()
    workspace.restore("README.md", at=first)
    assert [str(change.path) for change in workspace.status()] == ['workspace["README.md"]']
    with pytest.raises(DirtyWorkspaceError) as caught:
        workspace.restore("README.md")
    assert caught.value.files == ("README.md",)
    workspace.restore("README.md", overwrite=True)
    assert tree_of(folder) == SECOND
    (folder / "link").unlink()
    workspace.restore(folder / "link")
    shutil.rmtree(folder / "data.bin")
    workspace.restore("data.bin/now")
    assert tree_of(folder) == SECOND
    workspace.restore(at=first)
    assert tree_of(folder) == FIRST
    with pytest.raises(UnknownPathError):
        workspace.restore("nothing")
    with pytest.raises(InvalidArgumentError):
        workspace.restore("../outside")
    (folder / "untracked").write_text("1")
    with pytest.raises(DirtyWorkspaceError):
        workspace.restore(at=first)
    workspace.restore(overwrite=True)
    assert tree_of(folder) == SECOND


def test_restore_of_the_state_goes_to_the_files(state, workspace, folder):
    (folder / "a").write_text("1")
    first = state.commit()
    (folder / "a").write_text("2")
    (folder / "b").write_text("2")
    state.commit()
    state.restore("workspace.a", first)
    assert tree_of(folder) == {"a": (0o644, b"1"), "b": (0o644, b"2")}
    state.discard()
    state.restore("workspace", first)
    assert tree_of(folder) == {"a": (0o644, b"1")}
    with pytest.raises(InvalidArgumentError):
        state.restore("workspace.a.b", first)


def test_an_assignment_to_the_files_is_refused(state, workspace, folder):
    (folder / "a").write_text("1")
    head = state.commit()
    state["workspace"]["a"] = "2"
    (folder / "b").write_text("new")
    with pytest.raises(InvalidArgumentError, match="write the file in the folder"):
        state.commit()
    assert (state.head, (folder / "a").read_text()) == (head, "1")
    state["workspace"] = state.checkout("HEAD")["workspace"]
    state.commit()
    assert state["workspace"] == {"a": "1", "b": "new"}
    state["workspace"] = {}
    with pytest.raises(InvalidArgumentError):
        state.commit()
    state.discard()
    del state["workspace"]
    with pytest.raises(InvalidArgumentError):
        state.commit()


def test_commit_of_some_keys(state, workspace, folder):
    (folder / "a").write_text("1")
    state["n"] = 1
    state.commit(keys=["n"])
    assert "workspace" not in state
    state["n"] = 2
    state.commit(keys=["workspace"])
    assert (state.checkout("HEAD")["n"], dict(files_of(state.checkout("HEAD")))) == (1, {"a": b"1"})


def test_files_and_at(state, workspace, folder):
    lay(folder, FIRST)
    commit = state.commit()
    (folder / "README.md").write_text("now")
    assert workspace.files["README.md"] == b"now"
    assert workspace.at(commit)["README.md"] == b"# first\n"
    assert files_of(state.checkout(commit)) == workspace.at("HEAD")
    assert list(workspace.files) == ["README.md", "crlf", "data.bin", "secret", "src/main.py", "src/run.sh"]
    for missing in ("link", "empty/inside", "nothing", 1):
        with pytest.raises(KeyError):
            _ = workspace.files[missing]
    with pytest.raises(TypeError):
        workspace.files["README.md"] = b""
    assert "6" not in repr(workspace.files) or len(workspace.files) == 6


def test_a_new_process_goes_on_where_the_last_one_was(tmp_path, folder):
    state = Versioned(Disk(tmp_path / "store"))
    with Workspace(state, folder):
        lay(folder, FIRST)
        first = state.commit()
    state.close()
    (folder / "README.md").write_text("while nobody looked")
    state = Versioned(Disk(tmp_path / "store"))
    with Workspace(state, folder) as workspace:
        assert [str(change.path) for change in workspace.status()] == ['workspace["README.md"]']
        state.commit()
    state.reset(first)
    with Workspace(state, folder) as workspace:
        assert tree_of(folder) == FIRST, "the folder was as a commit had it, and follows the state"
        assert not workspace.status()
    state.close()


def test_an_empty_folder_gets_the_files_of_the_head_and_another_one_keeps_its_own(state, workspace, folder, tmp_path):
    lay(folder, FIRST)
    state.commit()
    workspace.close()
    state.commit("nothing is taken from a closed workspace", allow_empty=True)
    with Workspace(state, tmp_path / "new"):
        assert tree_of(tmp_path / "new") == FIRST
    other = tmp_path / "with files"
    lay(other, SECOND) if other.mkdir() is None else None
    with Workspace(state, other) as second:
        assert tree_of(other) == SECOND
        assert second.status()
        with pytest.raises(DirtyWorkspaceError):
            state.undo()
        state.discard()
        assert tree_of(other) == FIRST


def test_damaged_or_foreign_records_are_ignored(state, workspace, folder):
    lay(folder, FIRST)
    state.commit()
    workspace.close()
    for name in ("index", "position"):
        data = bytearray((folder / ".versioned-state" / name).read_bytes())
        data[-1] ^= 1
        (folder / ".versioned-state" / name).write_bytes(data)
    (folder / "README.md").write_text("changed")
    with Workspace(state, folder) as again:
        assert [str(change.path) for change in again.status()] == ['workspace["README.md"]']
    before = tree_of(folder)
    foreign = Versioned(Memory())
    with Workspace(foreign, folder) as again:
        assert tree_of(folder) == before
        assert len(again.status()) == 1, "all files are new there"


def test_a_folder_has_one_workspace_at_a_time(state, workspace, folder):
    with pytest.raises(WorkspaceError, match="in use"):
        Workspace(Versioned(), folder)
    with pytest.raises(InvalidArgumentError):
        Workspace(state, folder.parent / "another")
    workspace.close()
    workspace.close()
    Workspace(state, folder).close()
    with pytest.raises(HandleClosedError):
        workspace.status()
    other = Versioned()
    Workspace(other, folder)
    other.close()
    Workspace(state, folder).close()


def test_two_workspaces_of_one_state(state, tmp_path):
    Workspace(state, tmp_path / "a", name="code")
    Workspace(state, tmp_path / "b", name="notes")
    (tmp_path / "a" / "x").write_text("1")
    (tmp_path / "b" / "y").write_text("2")
    first = state.commit()
    assert (state["code"], state["notes"]) == ({"x": "1"}, {"y": "2"})
    (tmp_path / "b" / "y").write_text("3")
    state.commit()
    state.reset(first)
    assert (tmp_path / "b" / "y").read_text() == "2"


def test_bad_arguments(state, folder, tmp_path):
    with pytest.raises(InvalidArgumentError):
        Workspace(Live(), folder)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError):
        Workspace(state, tmp_path / "file")
    state["workspace"] = [1]
    state.commit()
    with pytest.raises(WorkspaceError, match="choose another name"):
        Workspace(state, folder)
    Workspace(state, folder, name="files")
    with pytest.raises(TransactionError), state.transaction():
        Workspace(state, tmp_path / "b", name="b")


def test_names_that_are_not_utf8_and_names_that_differ_in_case(state, workspace, folder):
    tree = {
        os.fsdecode(b"\xff\xfe"): (0o644, b"1"),
        "a": (0o644, b"2"),
        "A": (0o644, b"3"),
        "ä": (0o644, b"4"),
        "a\u0308": (0o644, b"5"),
    }
    lay(folder, tree)
    state.commit()
    lay(folder, {})
    state.discard()
    assert tree_of(folder) == tree
    assert workspace.files[os.fsdecode(b"\xff\xfe")] == b"1"


def test_special_files_are_left_out(state, workspace, folder):
    (folder / "a").write_text("1")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket")) if len(str(folder)) < 90 else os.mkfifo(folder / "socket")
        state.commit()
    assert state["workspace"] == {"a": "1"}
    assert workspace.left_out == ["pipe", "socket"]


def test_a_nested_git_folder_is_left_out(state, workspace, folder):
    lay(
        folder,
        {"a": (0o644, b""), ".git/config": (0o644, b"x"), "sub/.git/config": (0o644, b"x"), "sub/b": (0o644, b"")},
    )
    empty = state.commit("empty", allow_empty=True, keys=())
    state.commit()
    assert list(state["workspace"]) == ["a", "sub/b"]
    state.reset(empty)
    assert sorted(tree_of(folder)) == [".git/config", "sub/.git/config"]


async def test_under_asyncio(state, workspace, folder):
    (folder / "a").write_text("1")
    await state.aio.commit("first")
    (folder / "a").write_text("2")
    assert await state.aio.status()
    await state.aio.commit("second")
    await state.aio.undo()
    assert (folder / "a").read_text() == "1"
    (folder / "a").write_text("3")
    with pytest.raises(DirtyWorkspaceError):
        await state.aio.reset("HEAD~1")
    with pytest.raises(BlockFailedError):
        async with state.aio.transaction("t"):
            lay_and_fail(folder, {"a": (0o644, b"4")})
    assert (folder / "a").read_text() == "3"
    await state.aio.discard()
    assert (folder / "a").read_text() == "1"
    await state.aio.redo()
    assert (folder / "a").read_text() == "2"


@task
def note(name, state):
    state.setdefault("names", {})[name] = True
    state.setdefault("workspace", {})[f"{name}.txt"] = name


def test_parallel_forks_leave_the_folder_alone_until_they_are_merged(state, workspace, folder):
    from functools import partial

    (folder / "a").write_text("1")
    state.commit()
    parallel(state, [partial(note, "Rome"), partial(note, "Oslo")])
    assert tree_of(folder) == {"a": (0o644, b"1"), "Rome.txt": (0o644, b"Rome"), "Oslo.txt": (0o644, b"Oslo")}
    assert not workspace.status()


def test_an_ignored_file_in_the_place_of_a_file_is_not_overwritten(state, workspace, folder):
    (folder / "a").write_text("1")
    first = state.commit()
    (folder / "a").unlink()
    (folder / ".gitignore").write_text("a\n")
    second = state.commit()
    (folder / "a").write_text("ignored, and in no commit")
    assert not workspace.status()
    state.reset(first)
    assert (folder / "a").read_text() == "ignored, and in no commit"
    assert workspace.unresolved == ["a"]
    with pytest.raises(DirtyWorkspaceError, match="keep"):
        state.commit()
    state["n"] = 1
    state.commit(keys=["n"])
    workspace.keep("a")
    assert state.commit("mine") == state.head
    assert state.checkout("HEAD")["workspace"]["a"] == "ignored, and in no commit"
    state.reset(second)


def test_unresolved_files_are_resolved_by_restore(state, workspace, folder):
    (folder / "a").write_text("1")
    first = state.commit()
    (folder / "a").unlink()
    (folder / ".gitignore").write_text("a\n")
    state.commit()
    (folder / "a").write_text("ignored")
    state.reset(first)
    workspace.restore("a", overwrite=True)
    assert (workspace.unresolved, (folder / "a").read_text()) == ([], "1")
    assert not workspace.status()


def test_a_folder_that_is_removed_is_not_committed_as_if_its_files_were(state, workspace, folder):
    lay(folder, FIRST)
    head = state.commit()
    shutil.rmtree(folder)
    with pytest.raises(WorkspaceError, match="cannot be opened"):
        state.commit()
    assert state.head == head
    folder.mkdir()
    workspace.restore()
    assert tree_of(folder) == FIRST
    state.commit()


def test_the_folder_may_be_reached_through_a_link(state, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    Workspace(state, tmp_path / "link")
    (tmp_path / "real" / "a").write_text("1")
    state.commit()
    assert state["workspace"] == {"a": "1"}


def test_a_link_is_kept_and_never_followed(state, workspace, folder, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("outside")
    (folder / "in").mkdir()
    (folder / "in" / "a").write_text("inside")
    first = state.commit()
    shutil.rmtree(folder / "in")
    (folder / "in").symlink_to(tmp_path / "outside")
    state.commit()
    assert state["workspace"] == {"in": Symlink(str(tmp_path / "outside"))}
    state.reset(first)
    assert tree_of(folder) == {"in/a": (0o644, b"inside")}
    assert (tmp_path / "outside" / "a").read_text() == "outside"


def test_a_file_that_changes_while_a_commit_is_on_its_way_is_a_change_after_it(folder):
    store = ActsAroundMove(Memory())
    state = Versioned(store)
    workspace = Workspace(state, folder)
    lay(folder, {"a": (0o644, b"1"), "b": (0o644, b"1"), "c": (0o644, b"1")})
    state.commit()
    lay(folder, {"a": (0o644, b"2"), "b": (0o644, b"2"), "c": (0o644, b"1")})
    store.before = lambda: lay(folder, {"a": (0o644, b"3"), "c": (0o644, b"3")})
    state.commit("2")
    assert dict(files_of(state.checkout("HEAD"))) == {"a": b"2", "b": b"2", "c": b"1"}
    assert {change.kind for change in workspace.status()} == {"changed", "removed"}
    assert workspace.unresolved == []
    state.commit("3")
    assert dict(files_of(state.checkout("HEAD"))) == {"a": b"3", "c": b"3"}


def test_a_file_that_changes_while_its_commit_is_merged_is_left_alone(folder):
    store = ActsAroundMove(Memory())
    state = Versioned(store)
    workspace = Workspace(state, folder)
    lay(folder, {"a": (0o644, b"1\n2\n3\n"), "b": (0o644, b"1")})
    state.commit()
    other = Versioned(store)
    other["workspace"]["a"] = "1\n2\nthree\n"
    other["workspace"]["b"] = "2"
    other.commit()
    (folder / "a").write_text("one\n2\n3\n")
    store.before = lambda: lay(folder, {"a": (0o644, b"mine"), "b": (0o644, b"1")})
    state.commit()
    assert tree_of(folder) == {"a": (0o644, b"mine"), "b": (0o644, b"2")}
    assert workspace.unresolved == ["a"]
    with pytest.raises(DirtyWorkspaceError):
        state.commit()
    assert files_of(state.checkout("HEAD"))["a"] == b"one\n2\nthree\n"


def test_a_failed_commit_leaves_no_trace_in_what_may_be_overwritten(state, workspace, folder):
    (folder / "a").write_text("1")
    state.commit()
    other = Versioned(state.repository.store)
    other["workspace"]["a"] = "theirs"
    other["n"] = 1
    other.commit()
    (folder / "a").write_text("ours")
    with pytest.raises(MergeConflictError):
        state.commit()
    assert state.status()
    with pytest.raises(DirtyWorkspaceError):
        state.refresh()
    with pytest.raises(DirtyWorkspaceError):
        state.merge(other.head)
    assert (folder / "a").read_text() == "ours"
    assert len(workspace.status()) == 1


OPENED: list[str] = []
"""The files that are opened while a test counts them."""


def test_a_commit_reads_only_the_files_that_changed(tmp_path):
    counts = []
    counting = False

    def hook(event, arguments):
        if counting and event == "open" and not arguments[2] & os.O_DIRECTORY:
            OPENED.append(str(arguments[0]))

    sys.addaudithook(hook)
    for size in (100, 2_000):
        folder = tmp_path / str(size)
        state = Versioned(Memory())
        Workspace(state, folder)
        for n in range(size):
            (folder / f"{n}.txt").write_text(
                f"the text of file number {n}, which is long enough to be no part of its leaf\n" * 3
            )
        state.commit()
        time.sleep(0.03)
        state.commit()
        time.sleep(0.03)
        (folder / "7.txt").write_text("changed")
        time.sleep(0.03)  # or it depends on the machine whether it is too new for its stat to tell, and is read again
        OPENED.clear()
        counting = True
        state.commit("one changed")
        state.status()
        counting = False
        counts.append(OPENED.count("7.txt"))
        assert [name for name in OPENED if name.endswith(".txt")] == ["7.txt"] * counts[-1], "no other file was read"
    assert counts[0] == counts[1] <= 3


def test_a_store_in_the_folder_is_left_out(tmp_path):
    place = tmp_path / "my [store]!"
    state = Versioned(Cache(Disk(place)))
    workspace = Workspace(state, tmp_path)
    (tmp_path / "a").write_text("1")
    state.commit()
    assert state["workspace"] == {"a": "1"}
    assert not workspace.status()
    with pytest.raises(InvalidArgumentError, match="store"):
        Workspace(state, place, name="other")
    with pytest.raises(InvalidArgumentError, match="store"):
        Workspace(state, place / "below", name="other")
    state.close()


def test_git_around_the_folder_does_not_see_the_records(state, workspace, folder):
    (folder / "a").write_text("1")
    state.commit()
    subprocess.run([*GIT, "init", "-q", str(folder)], check=True)
    shown = subprocess.run(
        [*GIT, "-C", str(folder), "status", "--porcelain"], check=True, capture_output=True, text=True
    ).stdout
    assert shown == "?? a\n"
    assert not workspace.status()


class Shared(Memory):
    """A store that others can write to."""

    private = False


def test_files_are_files_in_a_store_of_others_too(folder):
    state = Versioned(Shared())
    Workspace(state, folder)
    lay(folder, FIRST)
    state.commit()
    files = Versioned(state.repository)["workspace"]
    assert files["src/run.sh"] == File("#!/bin/sh\n", 0o755)
    assert files["link"] == Symlink("src/main.py")
    assert files["empty/inside"] == Folder()


def test_two_writers_of_mode_and_content_conflict(state, workspace, folder):
    (folder / "run.sh").write_text("1")
    state.commit()
    other = Versioned(state.repository.store)
    other["workspace"]["run.sh"] = "2"
    other.commit()
    (folder / "run.sh").chmod(0o755)
    with pytest.raises(MergeConflictError):
        state.commit()
    assert tree_of(folder) == {"run.sh": (0o755, b"1")}


def test_a_folder_with_a_nul_in_its_path(state):
    with pytest.raises(InvalidArgumentError, match="NUL"):
        Workspace(state, "a\0b")


def test_files_of_any_size_are_read_from_a_snapshot(state, workspace, folder):
    for size in (10, 500, 2_000, 3_000, 50_000, 2_000_000):
        (folder / "only").write_text("x" * size)
        commit = state.commit()
        assert dict(files_of(state.checkout(commit))) == dict(workspace.at(commit)) == {"only": b"x" * size}


def test_what_a_restore_has_brought_is_no_work_that_another_one_would_lose(state, workspace, folder):
    commits = []
    for number in "123":
        (folder / "a").write_text(number)
        (folder / number).write_text(number)
        commits.append(state.commit())
    for commit, files in ((commits[0], "a1"), (commits[1], "a12"), (commits[2], "a123"), (commits[0], "a1")):
        workspace.restore(at=commit, overwrite="restored")
        assert sorted(workspace.files) == sorted(files)
    workspace.restore("2", at=commits[1], overwrite="restored")
    workspace.restore("a", at=commits[1], overwrite="restored")
    (folder / "1").write_text("mine")
    with pytest.raises(DirtyWorkspaceError) as caught:
        workspace.restore(at=commits[2], overwrite="restored")
    assert caught.value.files == ("1",)
    workspace.restore("1", at=commits[2], overwrite=True)
    workspace.restore(at=commits[2], overwrite="restored")
    assert not state.status()
    workspace.restore(at=commits[0])
    state.commit("back")
    (folder / "a").write_text("2")  # as a commit has it, but nobody restored it
    with pytest.raises(DirtyWorkspaceError):
        workspace.restore(at=commits[2], overwrite="restored")
    with pytest.raises(InvalidArgumentError):
        workspace.restore(overwrite="all")


def test_records_in_a_folder_of_their_own(state, folder, tmp_path):
    folder.mkdir()
    (folder / "a").write_text("1")
    (tmp_path / "records").mkdir()
    with Workspace(state, folder, records=tmp_path / "records"):
        state.commit()
    assert sorted(each.name for each in folder.iterdir()) == ["a"]
    assert (tmp_path / "records" / ".versioned-state" / "position").exists()
    (folder / "a").write_text("2")
    with Workspace(state, folder, records=tmp_path / "records") as again:
        assert [str(change.path) for change in again.status()] == ["workspace.a"]
        with pytest.raises(WorkspaceError, match="in use"), Versioned(Memory()) as other:
            Workspace(other, tmp_path / "elsewhere", records=tmp_path / "records")
    with pytest.raises(WorkspaceError):
        Workspace(state, folder, records=tmp_path / "missing")
