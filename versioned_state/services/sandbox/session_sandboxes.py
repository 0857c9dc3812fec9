"""``SessionSandboxes``: the sandboxes of one session. Layer: services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.local.temporary import TemporaryFolder
from versioned_state.sandbox.registry import make
from versioned_state.services.agent_state.state_service import VersionedStateService
from versioned_state.services.sandbox.session_files import SessionFiles

_DEFAULT: Final = (str(SandboxType.BASE),)


class SessionSandboxes:
    """The sandboxes of one session, by type, and the folder that they share. ``lock`` is held around each call.

    Args:
        options: the options that factories can take, except the folder.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.lock = Lock()
        self.is_closed = False
        self.files: SessionFiles | None = None
        self._options = options
        self._place: TemporaryFolder | None = None
        self._folder = Path()
        self._sandboxes: dict[str, Any] = {}

    def open(self, service: VersionedStateService | None, branch: str, max_bytes: int) -> None:
        """Make the folder, with the files of the session's latest round if there is a service of states; nothing if it is there."""
        if self._place is not None:
            return
        place = TemporaryFolder()
        try:
            if service is None:
                self._folder = place.path / "files"
                self._folder.mkdir()
            else:
                self.files = SessionFiles(service, branch, place, max_bytes)
                self._folder = self.files.folder
        except BaseException:
            place.remove()
            raise
        self._place = place

    @property
    def is_open(self) -> bool:
        """Whether there is a folder."""
        return self._place is not None

    def connect(self, types: Sequence[str]) -> list[Any]:
        """The sandboxes of these types; without types, all, or a new ``base``. Those that are missing are made: all of them, or none."""
        wanted = types or list(self._sandboxes) or _DEFAULT
        made: dict[str, Any] = {}
        try:
            for each in wanted:
                if each not in self._sandboxes and each not in made:
                    made[each] = make(each, {**self._options, "folder": self._folder})
        except BaseException:
            close_all(made.values())
            raise
        self._sandboxes |= made
        return [self._sandboxes[each] for each in dict.fromkeys(wanted)]

    def close(self) -> None:
        """Close all, and remove the folder. Raises what closing a sandbox raises, once all is done. Idempotent."""
        self.is_closed = True
        sandboxes, self._sandboxes = self._sandboxes, {}
        try:
            close_all(sandboxes.values())
        finally:
            if self.files is not None:
                self.files.close()
            elif self._place is not None:
                self._place.remove()


def close_all(sandboxes: Any) -> None:
    """Close all sandboxes, even if some fail. Raises their errors in an ``ExceptionGroup``."""
    errors: list[Exception] = []
    for each in sandboxes:
        close = getattr(each, "close", None)
        if callable(close):
            try:
                close()
            except Exception as error:  # noqa: BLE001 - of a plug-in; raised below
                errors.append(error)
    if errors:
        raise ExceptionGroup("sandboxes could not be closed", errors)
