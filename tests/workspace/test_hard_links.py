"""Several names of one file in a workspace: taking one away changes the time of change at the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.workspaces import tree_of
from versioned_state import Versioned, Workspace
from versioned_state.agents.workspace import folder as on_disk
from versioned_state.agents.workspace.entries import Entry
from versioned_state.errors import WorkspaceError

NAMES = ("a", "b/c", "b/d")


def linked(folder: Path) -> None:
    """Make all names one file."""
    (folder / "b").mkdir(exist_ok=True)
    (folder / "a").write_text("first")
    for name in NAMES[1:]:
        (folder / name).unlink(missing_ok=True)
        os.link(folder / "a", folder / name)


@pytest.mark.parametrize("other", [dict.fromkeys(NAMES, "second"), {"a": "second"}, {"b/d": "second"}, {}], ids=str)
def test_a_restore_without_overwrite_goes_through(tmp_path: Path, other: dict[str, str]) -> None:
    """Whether it replaces all of the names, or removes them, or some of each."""
    folder = tmp_path / "files"
    folder.mkdir()
    with Versioned() as state, Workspace(state, folder) as workspace:
        for name, text in other.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        state["n"] = 1
        second = state.commit()
        before = tree_of(folder)
        linked(folder)
        state["n"] = 2
        state.commit()
        workspace.restore(at=second)
        assert tree_of(folder) == before
        state.discard()
        linked(folder)
        assert not state.status()
        state.reset(second)  # a move does as a restore
        assert tree_of(folder) == before


def test_a_name_that_is_changed_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    with Versioned() as state, Workspace(state, folder) as workspace:
        for name in NAMES:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("second")
        second = state.commit()
        linked(folder)
        state.commit()
        write = on_disk.write

        def write_and_change(
            parents: on_disk.Parents, step: on_disk.Step, entry: Entry, brought: on_disk.Brought
        ) -> None:
            write(parents, step, entry, brought)
            if step.path == "a":
                (folder / "b/c").write_text("of the user")  # and so b/d

        monkeypatch.setattr("versioned_state.agents.workspace.working.write", write_and_change)
        with pytest.raises(WorkspaceError) as caught:
            workspace.restore(at=second)
        assert sorted(caught.value.files) == ["b/c", "b/d"]
        assert {name: (folder / name).read_text() for name in NAMES} == {
            "a": "second",
            "b/c": "of the user",
            "b/d": "of the user",
        }
