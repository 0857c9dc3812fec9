"""``TemporaryFolder``: a folder that goes with its owner, whatever code of strangers has left in it. Layer: sandbox."""

from __future__ import annotations

import os
import secrets
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolder:
    """A new folder of this user alone. ``remove``, the collection of the object or the end of the program removes it.

    A fork of the process leaves it alone. A process that is killed leaves it behind.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="versioned-state-sandbox-")).absolute()
        self._remove = weakref.finalize(self, _remove_of, str(self.path), os.getpid())

    def remove(self) -> None:
        """Remove the folder and all that is in it. Idempotent."""
        self._remove()


def _remove_of(path: str, pid: int) -> None:
    if os.getpid() == pid:  # the parent of a fork goes on with it
        remove_tree(path)


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it; nothing if it is not there. Links are removed, not followed.

    Folders in it are moved up before they are emptied, so that neither their depth nor the length of their paths matters. Their modes do
    not matter either. Nothing may write there meanwhile. What cannot be removed (such as a mount) stays.
    """
    try:
        top = os.open(path, _FOLDER)
    except OSError:
        return
    try:
        prefix, moved = f".removing-{secrets.token_hex(8)}-", 0
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
