"""A folder of files kept with a state, and the values that stand for its files in the state. Layer: agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.agents.workspace.content import Files
    from versioned_state.agents.workspace.workspace import Workspace, files_of
    from versioned_state.values.codec.files import File, FileTree, Folder, Symlink

__all__ = ["File", "FileTree", "Files", "Folder", "Symlink", "Workspace", "files_of"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Workspace": "workspace",
        "files_of": "workspace",
        "Files": "content",
        "File": "content",
        "FileTree": "content",
        "Folder": "scan",
        "Symlink": "scan",
    },
)
