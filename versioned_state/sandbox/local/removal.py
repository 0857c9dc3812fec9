"""The removal of a folder, whatever untrusted code has left in it. Layer: sandbox, also in the supervisor."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a folder and its content, if it exists. Links are removed, not followed.

    Folders in it are moved up before they are emptied, so that neither their depth nor the length of their paths
    matters. Their modes do not matter either. Nothing may write there meanwhile. What cannot be removed (such as a
    mount) stays.
    """
    try:
        if not stat.S_ISDIR(Path(path).lstat().st_mode):
            return
        Path(path).chmod(0o700)
        top = os.open(path, _FOLDER)
    except OSError:
        return
    try:
        prefix, moved = f".removing-{os.urandom(8).hex()}-", 0
        waiting = [""]
        while waiting:
            name = waiting.pop()
            with suppress(OSError):
                here = top if not name else os.open(name, _FOLDER, dir_fd=top)
                try:
                    for entry in list(os.scandir(here)):
                        with suppress(OSError):
                            if not entry.is_dir(follow_symlinks=False):
                                os.unlink(entry.name, dir_fd=here)
                                continue
                            os.chmod(entry.name, 0o700, dir_fd=here)
                            moved += 1
                            temporary = f"{prefix}{moved}"
                            os.rename(entry.name, temporary, src_dir_fd=here, dst_dir_fd=top)
                            waiting.append(temporary)
                finally:
                    if here != top:
                        os.close(here)
                if name:
                    os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    with suppress(OSError):
        Path(path).rmdir()
