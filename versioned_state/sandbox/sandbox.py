"""``Sandbox``, what local sandboxes have in common: a folder, tools by name, and an end. Layer: sandbox."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from versioned_state.errors import InvalidArgumentError, SandboxError
from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.local.temporary import TemporaryFolder

TIMEOUT: Final = 60.0
"""Seconds that a cell or a command may take."""

MAX_MEMORY: Final = 1 << 30
"""Bytes of memory that each process may have."""

MAX_TOTAL_MEMORY: Final = 2 << 30
"""Bytes of memory that all processes of a sandbox may have together."""

MAX_FILE_BYTES: Final = 64 << 20
"""The largest size of a file."""

MAX_FOLDER_BYTES: Final = 1 << 30
"""The largest size of all files together."""


class Sandbox(ABC):
    """A folder, and tools that work there. ``with sandbox:`` closes it at the end of the block.

    Args:
        folder: the folder, which is made if it is missing, and stays when the sandbox is closed. Without it, the
            sandbox has one of its own, which is removed with all that is in it when the sandbox is closed, is
            collected, or the program ends.
    """

    sandbox_type: ClassVar[SandboxType]
    tools: ClassVar[tuple[str, ...]] = ()
    """The names of the methods that are tools."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._own: TemporaryFolder | None = None
        try:
            if folder is None:
                self._own = TemporaryFolder()
                self._folder = self._own.path / "files"
            else:
                self._folder = Path(os.fsdecode(folder)).absolute()
            self._folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise SandboxError(
                f"the folder of the sandbox cannot be used: {error}", remains="no sandbox was made"
            ) from error

    @property
    def folder(self) -> Path:
        """The folder of the sandbox's files, as an absolute path."""
        return self._folder

    @abstractmethod
    def close(self) -> None:
        """End the sandbox: its processes are gone then, and its own folder. Idempotent."""

    def list_tools(self) -> list[str]:
        """Return the names of the tools."""
        return list(self.tools)

    def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool by its name, as a model does. Raises ``InvalidArgumentError`` for an unknown tool or argument."""
        if name not in self.tools:
            raise InvalidArgumentError(
                f"a {self.sandbox_type} sandbox has no tool {name!r}", hint=f"it has {', '.join(self.tools)}"
            )
        tool = getattr(self, name)
        try:
            inspect.signature(tool).bind(**(arguments or {}))
        except TypeError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
        return tool(**(arguments or {}))

    def _close_folder(self) -> None:
        if self._own is not None:
            self._own.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._folder}>"
