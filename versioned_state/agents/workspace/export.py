"""Writes files of a commit into a folder that is not kept with a state. Layer: agents."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from versioned_state.agents.workspace.entries import RESERVED
from versioned_state.agents.workspace.ignore import Rules
from versioned_state.agents.workspace.scan import Ignored
from versioned_state.agents.workspace.working import WorkingFolder
from versioned_state.errors import WorkspaceError
from versioned_state.repository.history.commit import Commit
from versioned_state.values.keys import user_key

if TYPE_CHECKING:
    from versioned_state.repository.repository import Repository


def restore_into(
    repository: Repository, folder: Path, commit: Commit, paths: Collection[str] = (), *, name: str = "workspace", overwrite: bool = False
) -> int:
    """Write files of a commit into a folder, which is made if it is missing. Returns how many were written or removed.

    In the folder of a workspace, its index says which files may be replaced; in any other, only files with the same content may.

    Args:
        paths: files, or folders of files, relative to the folder; all if there are none.
        overwrite: replace and remove files whose content no commit has.

    Raises:
        DirtyWorkspaceError: such files are in the way. Nothing was changed.
        UnknownPathError: the commit has no such file.
        WorkspaceError: the folder cannot be written, or is in use by a workspace.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkspaceError(f"the folder {folder} cannot be used: {error.strerror}") from error
    is_workspace = (folder / RESERVED).exists()
    working = WorkingFolder(lambda: repository.database, str(folder.absolute()), user_key(name), Ignored(Rules(()), gitignore=True), commit)
    try:
        if not paths:
            return working.restore(None, commit, overwrite=overwrite)
        return sum([working.restore(path, commit, overwrite=overwrite) for path in paths])
    finally:
        working.close()
        if not is_workspace:
            shutil.rmtree(folder / RESERVED, ignore_errors=True)
