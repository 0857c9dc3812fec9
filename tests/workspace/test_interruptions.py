"""Interrupts, kill -9, full disks, missing rights: each file has its old or new content, and ``status`` says which."""

from __future__ import annotations

import gc
import inspect
import os
import resource
import shutil
import signal
import stat
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.dice import dice
from tests.support.interrupts import Interrupt, Trace
from tests.support.processes import fork, join, without_rights
from tests.support.workspaces import lay, tree_of
from versioned_state import Disk, Memory, Versioned, Workspace
from versioned_state.agents.workspace.index import Records
from versioned_state.errors import DirtyWorkspaceError, WorkspaceError

pytestmark = [  # of files that an interrupt came too early to close
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LARGE = b"".join(b"a line of a text that is too long for its leaf, number %d\n" % n for n in range(60))

FIRST = {
    "a": (0o644, b"1"),
    "large": (0o644, LARGE),
    "to/go": (0o755, b"x"),
    "to/stay": (0o644, b"same"),
    "file then folder": (0o644, b"f"),
    "folder then file/x": (0o644, b"f"),
    "link": "a",
    "empty": None,
}
SECOND = {
    "a": (0o755, b"2"),
    "large": (0o644, LARGE.replace(b"number 7\n", b"number seven\n")),
    "to/stay": (0o644, b"same"),
    "file then folder/x": (0o644, b"g"),
    "folder then file": (0o644, b"g"),
    "link": "large",
    "new/deep/file": (0o600, b"\xff"),
}
DIRTY = {**SECOND, "a": (0o644, b"dirty"), "untracked": (0o644, b"u"), "link": (0o644, b"no link")}
del DIRTY["large"]


def laid(store, folder):
    """A state at the second of two commits, with its workspace, and the commits."""
    state = Versioned(store)
    workspace = Workspace(state, folder)
    lay(folder, FIRST)
    first = state.commit("first")
    lay(folder, SECOND)
    second = state.commit("second")
    return state, workspace, first, second


def changed(folder, tree):
    """The paths at which a folder differs from a tree, as the naive comparison finds them."""
    now = tree_of(folder)
    return {path for path in now.keys() | tree.keys() if now.get(path, 0) != tree.get(path, 0)}


def named(workspace):
    """The paths that ``status`` names."""
    return {change.path.steps[1].key for change in workspace.status()}


def fail_in_a_transaction(state, workspace):
    with suppress(ZeroDivisionError), state.transaction("t"):
        lay(Path(workspace.path), FIRST)
        raise ZeroDivisionError


CALLS = {
    "reset": (SECOND, lambda state, workspace: state.reset("HEAD~1")),
    "undo": (SECOND, lambda state, workspace: state.undo()),
    "revert": (SECOND, lambda state, workspace: state.revert("HEAD")),
    "discard": (DIRTY, lambda state, workspace: state.discard()),
    "restore": (SECOND, lambda state, workspace: workspace.restore(at="HEAD~1")),
    "commit": (DIRTY, lambda state, workspace: state.commit("third")),
    "transaction": (DIRTY, fail_in_a_transaction),
}


def check_after(name, state, workspace, folder):
    """The folder after a call on it ended early: as before, or as after, or half and said so."""
    trees = {"first": FIRST, "second": SECOND, "third": DIRTY}
    trees["revert"] = FIRST
    head = trees[state.head.message.partition(" ")[0]]
    assert named(workspace) == changed(folder, head)
    if name in ("reset", "undo", "revert"):
        assert tree_of(folder) == head
        assert workspace.unresolved == []
        return
    if name in ("commit", "transaction"):
        assert tree_of(folder) in (DIRTY, FIRST)
        return
    before, after = (DIRTY, SECOND) if name == "discard" else (SECOND, FIRST)
    if tree_of(folder) in (before, after):
        return
    with pytest.raises(DirtyWorkspaceError):
        state.commit("it must not be taken")
    left = set(workspace.unresolved)
    assert left <= changed(folder, head)
    assert left
    CALLS[name][1](state, workspace) if name == "discard" else workspace.restore(overwrite=True)
    assert tree_of(folder) == SECOND
    assert workspace.unresolved == []
    assert not workspace.status()


def lines_of(name, folder):
    """The lines of a call that are those of a workspace, and the others, by their numbers."""
    tree, call = CALLS[name]
    state, workspace, _, _ = laid(Memory(), folder)
    lay(folder, tree)
    trace = Trace()
    trace.run(lambda: call(state, workspace))
    own = [n for n, (file, _) in enumerate(trace.lines, 1) if "agents/workspace/" in file]
    return own, [n for n in range(1, len(trace.lines)) if n not in set(own)]


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_line(name, tmp_path, long_run):
    tree, call = CALLS[name]
    own, others = lines_of(name, tmp_path / "count")
    draw = dice("interrupt", name)
    chosen = draw.sample(own, min(150, len(own)) if long_run else 4) + draw.sample(others, 1)
    for n in chosen:
        folder = tmp_path / str(n)
        state, workspace, _, _ = laid(Memory(), folder)
        lay(folder, tree)
        trace = Trace(n)
        with suppress(Interrupt):
            trace.run(partial(call, state, workspace))
        try:
            list(state)  # whatever was left is ended by the next call
            check_after(name, state, workspace, folder)
        except BaseException as error:
            error.add_note(f"after an interrupt at {n}: {trace.hit}")
            raise
        workspace.close()
        state.discard()


@pytest.mark.parametrize("end", ["close", "a folder that was made anew"])
def test_an_interrupted_close_closes_no_file_of_others(end, tmp_path, long_run):
    """The numbers it closed soon belong to other files, such as a database, which would fail with "disk I/O error"."""

    def begin(place):
        state = Versioned()
        workspace = Workspace(state, place)
        state.commit()
        if end != "close":
            shutil.rmtree(place)
            place.mkdir()
        return workspace, workspace.close if end == "close" else workspace.status

    trace = Trace()
    trace.run(begin(tmp_path / "count")[1])
    code, first = inspect.getsourcelines(Records.close)
    lines = {(inspect.getsourcefile(Records), first + n) for n in range(len(code))}
    chosen = [n for n, line in enumerate(trace.lines, 1) if long_run or line in lines]
    assert len(chosen) > 4
    for n in chosen:
        place = tmp_path / str(n)
        workspace, call = begin(place)
        trace = Trace(n)
        with suppress(Interrupt):
            trace.run(call)
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
        workspace.close()
        del workspace, call
        gc.collect()
        Workspace(Versioned(), place).close()  # the folder is free
        for descriptor in others:
            assert stat.S_ISCHR(os.fstat(descriptor).st_mode), trace.hit
            os.close(descriptor)


class Kill(Trace):
    """Kills the process at a line."""

    def _line(self, frame, event, arg):
        if event == "line":
            self.count += 1
            if self.count >= self.at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


@pytest.mark.parametrize("name", ["reset", "discard", "restore", "commit"])
def test_a_kill_at_any_line(name, tmp_path, long_run):
    tree, call = CALLS[name]
    own, _ = lines_of(name, tmp_path / "count")
    for n in dice("kill", name).sample(own, min(150, len(own)) if long_run else 3):
        folder, store = tmp_path / str(n), tmp_path / f"store {n}"

        def work(folder=folder, store=store, n=n):
            disk = Disk(store)
            state, workspace, _, _ = laid(disk, folder)
            lay(folder, tree)
            sys.settrace(None)
            Kill(n).run(lambda: call(state, workspace))
            state.close()

        os.waitpid(fork(work), 0)
        state = Versioned(Disk(store))
        workspace = Workspace(state, folder)
        try:
            check_after(name, state, workspace, folder)
        except BaseException as error:
            error.add_note(f"killed at {n}")
            raise
        workspace.close()
        state.close()


def test_the_branch_moves_elsewhere_after_a_kill(tmp_path):
    """A folder that is half way to one commit goes to another: no file of the first one passes for the user's."""
    folder, store = tmp_path / "folder", tmp_path / "store"

    def work():
        state, _workspace, first, _ = laid(Disk(store), folder)
        done = []

        def renames(event, arguments):
            if event == "os.rename" and ".versioned-state.tmp" in str(arguments[0]):
                done.append(1)
                if len(done) == 3:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(renames)
        state.reset(first)

    os.waitpid(fork(work), 0)
    assert tree_of(folder) not in (FIRST, SECOND)
    state = Versioned(Disk(store))
    assert state.head.message == "first"
    state.undo()
    with Workspace(state, folder) as workspace:
        assert tree_of(folder) == SECOND
        assert workspace.unresolved == []
        assert not workspace.status()
    state.close()


@contextmanager
def full_disk():
    """Let no file become larger than 200,000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_in_the_middle_of_a_move(tmp_path):
    state, workspace, first, _ = laid(Memory(), folder := tmp_path / "folder")
    big = os.urandom(300_000)
    lay(folder, {**FIRST, "z big": (0o644, big)})
    third = state.commit("third")
    state.reset(first)
    with full_disk():
        with pytest.raises(WorkspaceError, match="could not be written") as caught:
            state.reset(third)
        assert caught.value.files == ("z big",)
        assert (state.head, state.get("n")) == (third, None), "reading goes on"
        assert named(workspace) == {"z big"}
        with pytest.raises(WorkspaceError):
            state.commit("it must not be taken")
    assert state.commit() == third
    assert tree_of(folder) == {**FIRST, "z big": (0o644, big)}
    assert not workspace.status()


def test_a_full_disk_and_the_way_back(tmp_path):
    state, workspace, first, _ = laid(Memory(), folder := tmp_path / "folder")
    lay(folder, {**SECOND, "z big": (0o644, os.urandom(300_000))})
    third = state.commit("third")
    state.reset(first)
    with full_disk():
        with pytest.raises(WorkspaceError):
            state.reset(third)
        state.reset(first)
    assert tree_of(folder) == FIRST
    assert not workspace.status()
    assert workspace.unresolved == []


def test_a_folder_without_the_right_to_write(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("1")
    (folder / "unreadable").write_text("2")
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)

    def work():
        state = Versioned()
        workspace = Workspace(state, folder)
        first = state.commit("files are read")
        other = state.fork("other")
        other["workspace"]["a"] = "2"
        other.commit()
        with pytest.raises(WorkspaceError, match="could not be written") as caught:
            state.merge("other")
        assert caught.value.files == ("a",)
        assert named(workspace) == {"a"}
        state.reset(first)
        assert not workspace.status()

    def unreadable():
        state = Versioned()
        Workspace(state, folder)
        with pytest.raises(WorkspaceError, match="unreadable cannot be read"):
            state.commit()
        assert state.head.parents == ()

    folder.chmod(0o555)
    try:
        without_rights(work)
        (folder / "unreadable").chmod(0)
        without_rights(unreadable)
    finally:
        folder.chmod(0o755)


def test_an_edit_in_the_same_tick_of_the_clock_is_seen(tmp_path):
    state = Versioned()
    workspace = Workspace(state, tmp_path)
    file = tmp_path / "a"
    file.write_text("0000")
    for n in range(1, 300):
        state.commit()
        descriptor = os.open(file, os.O_WRONLY)  # in place: the same inode and size
        os.write(descriptor, b"%04d" % n)
        os.close(descriptor)
        assert workspace.status(), f"edit {n} was missed"


def test_workspaces_of_two_processes_wait_for_neither(tmp_path):
    state = Versioned()
    Workspace(state, tmp_path)

    def work():
        with pytest.raises(WorkspaceError, match="in use"):
            Workspace(Versioned(), tmp_path)

    join(fork(work))
