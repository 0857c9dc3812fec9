"""The user's pager: which one, and how to write to it. Layer: cli."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import subprocess


def find_pager() -> list[str] | None:
    """Return the command of ``VSTATE_PAGER``, ``PAGER``, or ``less``, or None if output is better not paged."""
    if os.environ.get("TERM", "") in ("", "dumb"):
        return None
    chosen = next((os.environ[name] for name in ("VSTATE_PAGER", "PAGER") if name in os.environ), "less")
    try:
        command = shlex.split(chosen)
    except ValueError:  # a quote that does not end
        return None
    import shutil

    if not command or command == ["cat"] or shutil.which(command[0]) is None:
        return None
    return command


class Pager:
    """A pager that starts with the first text written to it, so an error before that is not hidden by an empty screen.

    Leaving the block waits until the user has left the pager. To leave it early is not an error.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, text: str) -> None:
        """Write a text. Raises ``BrokenPipeError`` once the user has left the pager, which ends the block."""
        if self._process is None:
            import subprocess

            # As git does: colours pass, and output that fits on one screen is just printed.
            environment = {"LESS": "FRX", "LV": "-c", **os.environ}
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environment)  # noqa: S603 - the user's own choice
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode("utf-8", "backslashreplace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            while True:
                # While the pager has the screen, Ctrl-C is for the pager.
                with suppress(KeyboardInterrupt):
                    self._process.wait()
                    break
        return isinstance(error, BrokenPipeError)
