"""A folder of files kept with a state, and the values that stand for its files in the state. Layer: agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.agents.workspace.content import Files as Files
    from versioned_state.agents.workspace.workspace import Workspace as Workspace, files_of as files_of
    from versioned_state.values.codec.files import (
        File as File,
        FileTree as FileTree,
        Folder as Folder,
        Symlink as Symlink,
    )

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "content": "FileTree Files",
            "entries": "File Folder Symlink",
            "workspace": "Workspace files_of",
        },
    )
