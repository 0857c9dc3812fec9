"""``SessionFiles``: the folder that the sandboxes of a session share, as a workspace of the session's state.

Layer: services.

::

    connect     the files of the latest round ──▶ folder
    save_state  folder ──▶ the commit of the round
    restore     the files of any round ──▶ folder, and so into the next save

Untrusted code writes in the folder, so the workspace's own records lie outside of it.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import Final

from versioned_state.agents.workspace import Workspace
from versioned_state.errors import BranchMovedError, DirtyWorkspaceError, QuotaExceededError, UnknownRevisionError
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.sandbox.local.opened import MAX_DEPTH
from versioned_state.sandbox.local.removal import remove_tree
from versioned_state.sandbox.local.temporary import TemporaryFolder
from versioned_state.services.agent_state.reading import commit_of
from versioned_state.services.agent_state.session_handle import SessionGoneError
from versioned_state.services.agent_state.state_service import VersionedStateService
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned

_BYTES_OF_A_FILE: Final = 4096
"""Bytes that each file counts as, besides its content."""

_HINT: Final = (
    "sandbox_service.restore(..., overwrite=True) takes the files of the latest round; "
    "sandbox_service.keep(...) keeps those of the folder"
)


class SessionFiles:
    """The folder of one session. Until it is closed, each save of the session commits its files.

    Args:
        max_bytes: the largest size of the folder that a save commits.
    """

    def __init__(self, service: VersionedStateService, branch: str, place: TemporaryFolder, max_bytes: int) -> None:
        self._service = service
        self._branch = branch
        self._place = place
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._turn = Lock()  # of saves, restores and the end
        self._closed = False
        self.folder: Final = place.path / "files"
        self._records = place.path / "records"
        self.folder.mkdir()
        self._bring()
        self._join = _weak_join(self)
        service.session_hooks.add(branch, self._join)

    def _bring(self) -> None:
        """Restore the files of the latest round into the new folder. Raises ``StorageError``, ``WorkspaceError``."""
        self._records.mkdir()
        with self._workspace() as (workspace, state):
            latest = commit_of(state.repository.database, state.head, None)
            if latest is not None and latest != state.head:
                workspace.restore(at=latest)

    @contextmanager
    def _workspace(self) -> Iterator[tuple[Workspace, Versioned]]:
        """Open the folder as a workspace of a new handle."""
        state = Versioned(self._service.repository, branch=self._branch)
        try:
            with self._open(state) as workspace:
                yield workspace, state
        finally:
            port.close(state, warning=False)

    def _open(self, state: Versioned) -> Workspace:
        if state.head.id == ROOT_ID:  # a new session, or one that was deleted: no commit has the files
            remove_tree(str(self._records))
            self._records.mkdir()
        return Workspace(state, self.folder, name=FILES_KEY, gitignore=False, records=self._records)

    @contextmanager
    def joined(self, state: Versioned) -> Iterator[None]:
        """Run the block in which a save commits the handle, with the files.

        Raises:
            DirtyWorkspaceError: another process has saved files that were changed here too.
            QuotaExceededError: the folder is too large.
        """
        if os.getpid() != self._pid:  # a fork saves without the sandboxes of its parent
            yield
            return
        with self._turn:
            if self._closed:
                yield
                return
            self._check_size()
            try:
                state.refresh()
            except BranchMovedError:
                raise SessionGoneError from None
            with _hints(), self._open(state):
                yield

    def restore(self, round_id: int | None, *, overwrite: bool) -> None:
        """Restore the files of a round, by default the latest one, into the folder."""
        with self._turn, _hints(), self._workspace() as (workspace, state):
            commit = commit_of(state.repository.database, state.head, round_id)
            if commit is None:
                raise UnknownRevisionError(
                    f"round {round_id}" if round_id is not None else "the latest round", reason="there is none"
                )
            workspace.restore(at=commit, overwrite=overwrite or "restored")

    def keep(self) -> None:
        """Keep the files in the folder, even if another process has saved other versions."""
        with self._turn, self._workspace() as (workspace, _):
            workspace.keep()

    def close(self) -> None:
        """Take part in no later save, and remove the folder. Idempotent."""
        if os.getpid() != self._pid:
            return
        self._service.session_hooks.remove(self._branch, self._join)
        with self._turn:  # a save that has begun commits the files first
            self._closed = True
            self._place.remove()

    def _check_size(self) -> None:
        size = 0
        waiting: list[tuple[Path, int]] = [(self.folder, 0)]
        while waiting:
            folder, depth = waiting.pop()
            for name, found in _entries(folder):
                size += _BYTES_OF_A_FILE + found.st_size
                if size > self._max_bytes:
                    raise QuotaExceededError("the size of the files of the sandboxes", limit=self._max_bytes)
                if stat.S_ISDIR(found.st_mode) and depth < MAX_DEPTH:
                    waiting.append((folder / name, depth + 1))


def _weak_join(files: SessionFiles) -> Callable[[Versioned], AbstractContextManager[object]]:
    """Return a function for the state service that does not keep the folder alive."""
    known = weakref.ref(files)

    def join(state: Versioned) -> AbstractContextManager[object]:
        found = known()
        return nullcontext() if found is None else found.joined(state)

    return join


@contextmanager
def _hints() -> Iterator[None]:
    """Run a block in which errors name the calls of the service instead of those of a workspace."""
    try:
        yield
    except DirtyWorkspaceError as error:
        error.hint = _HINT
        raise


def _entries(folder: Path) -> list[tuple[str, os.stat_result]]:
    found = []
    with suppress(OSError), os.scandir(folder) as entries:  # what cannot be read is named by the save itself
        for each in entries:
            with suppress(OSError):
                found.append((each.name, each.stat(follow_symlinks=False)))
    return found
