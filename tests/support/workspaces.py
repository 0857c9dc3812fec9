"""Folders of workspaces, and naive copies of them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

GIT = [
    "git",
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b.c",
    "-c",
    "core.excludesFile=",
    "-c",
    "init.defaultBranch=main",
]

OWN = ".versioned-state"


def tree_of(folder: Path) -> dict[str, object]:
    """Return all in a folder by relative path: a file's mode and bytes, a link's target, None for an empty folder."""
    found: dict[str, object] = {}
    for parent, folders, files in os.walk(folder):
        at = Path(parent)
        folders[:] = [each for each in folders if each != OWN]
        links = [each for each in folders if (at / each).is_symlink()]
        for name in [*files, *links]:
            path = at / name
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = str(path.readlink())
            else:
                found[key] = stat.S_IMODE(path.lstat().st_mode), path.read_bytes()
        if at != folder and not folders and not files:
            found[str(at.relative_to(folder))] = None
    return found


def lay(folder: Path, tree: Mapping[str, object]) -> None:
    """Make a folder have exactly this tree, the naive way."""
    for each in folder.iterdir() if folder.exists() else ():
        if each.name != OWN:
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    for path, entry in tree.items():
        at = folder / path
        if entry is None:
            at.mkdir(parents=True, exist_ok=True)
            continue
        at.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, str):
            at.symlink_to(entry)
        else:
            assert isinstance(entry, tuple)
            mode, data = entry
            at.write_bytes(data)
            at.chmod(mode)
