"""``TemporaryFolder``: a folder that goes with its owner. Layer: sandbox."""

from __future__ import annotations

import os
import secrets
import tempfile
import weakref
from pathlib import Path
from typing import Final

from versioned_state.sandbox.local.removal import remove_tree


class TemporaryFolder:
    """A new folder of this user alone. ``remove``, the collection of the object or the end of the program removes it.

    A fork of the process leaves it alone. A process that is killed leaves it behind, unless a supervisor of a sandbox
    in it lives on.
    """

    def __init__(self) -> None:
        self.path: Final = Path(tempfile.gettempdir(), f"versioned-state-sandbox-{secrets.token_hex(8)}").absolute()
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _remove_of, str(self.path), self._pid)
        self.path.mkdir(0o700)
        _known[str(self.path)] = self

    def remove(self) -> None:
        """Remove the folder and all that is in it. Idempotent."""
        if self._finalizer.alive:
            _remove_of(str(self.path), self._pid)
            self._finalizer.detach()  # not before: a removal that was interrupted is repeated


def _remove_of(path: str, pid: int) -> None:
    if os.getpid() == pid:  # the parent of a fork goes on with it
        remove_tree(path)


def temporary_around(folder: Path) -> Path | None:
    """Return the temporary folder that a folder lies in, if one of this process does."""
    for each in folder.parents:
        if _known.get(str(each)) is not None:
            return each
    return None


_known: Final[weakref.WeakValueDictionary[str, TemporaryFolder]] = weakref.WeakValueDictionary()
