"""What takes part in the saves of a session joins the handle for the save, and leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from versioned_state import Memory, Versioned
from versioned_state.agents.workspace import Workspace, files_of
from versioned_state.errors import WorkspaceError
from versioned_state.services.session_hooks import FILES_KEY, SessionHooks


def test_a_workspace_joins_the_saves_of_its_session_alone(tmp_path: Path):
    hooks = SessionHooks()

    def join(state: Versioned) -> Workspace:
        return Workspace(state, tmp_path / "files", name=FILES_KEY)

    hooks.add("alice", join)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("one")
    store = Memory()
    with Versioned(store, branch="alice") as alice, Versioned(store, branch="bob") as bob:
        for name, state in {"alice": alice, "bob": bob}.items():
            with hooks.joined(name, state):
                state["n"] = 1
                state.commit("round 1")
        assert dict(files_of(alice.checkout("HEAD"))) == {"notes.txt": b"one"}
        assert FILES_KEY not in bob.checkout("HEAD")

        hooks.remove("alice", join)
        (tmp_path / "files" / "notes.txt").write_text("two")
        with hooks.joined("alice", alice):
            alice["n"] = 2
            alice.commit("round 2")
        assert dict(files_of(alice.checkout("HEAD"))) == {"notes.txt": b"one"}


def test_one_that_cannot_join_lets_the_others_leave_and_the_save_does_not_begin():
    hooks = SessionHooks()
    log = []

    @contextmanager
    def joins(_: Versioned) -> Iterator[None]:
        log.append("joined")
        try:
            yield
        finally:
            log.append("left")

    def fails(state: Versioned) -> Workspace:
        return Workspace(state, "/dev/null/folder", name=FILES_KEY)

    hooks.add("alice", joins)
    hooks.add("alice", fails)
    with Versioned(Memory(), branch="alice") as state:
        with pytest.raises(WorkspaceError), hooks.joined("alice", state):
            log.append("saved")
        assert log == ["joined", "left"]

        hooks.remove("alice", fails)
        hooks.remove("alice", fails)
        with hooks.joined("alice", state):
            log.append("saved")
    assert log == ["joined", "left", "joined", "saved", "left"]
