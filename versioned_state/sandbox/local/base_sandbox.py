"""``BaseSandbox``: Python cells and shell commands, in processes of their own. Layer: sandbox."""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import Any, ClassVar, Final

from versioned_state.arguments import count, instance_of, seconds
from versioned_state.errors import HandleClosedError, InvalidArgumentError, LimitExceededError
from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.local.process import Process, Shown
from versioned_state.sandbox.local.protocol import Isolation
from versioned_state.sandbox.sandbox import (
    MAX_FILE_BYTES,
    MAX_FOLDER_BYTES,
    MAX_MEMORY,
    MAX_TOTAL_MEMORY,
    TIMEOUT,
    Sandbox,
)

MAX_PROCESSES: Final = 64
MAX_OUTPUT: Final = 100_000
_MAX_OUTPUT: Final = 8 << 20
_MAX_SOURCE: Final = 4 << 20
"""The longest cell or command, in characters."""


class BaseSandbox(Sandbox):
    """Runs Python cells and shell commands in processes of its own, with limits. Calls from several threads take turns.

    The processes do not have the environment, the open files or the working directory of this program: they run in
    ``folder``, with a temporary folder as home directory. ``isolation`` says what else the system keeps them from. The
    first call starts them (about 0.2 s); ``close`` ends all of them, also those that have detached themselves, and so
    does the end of this program, even if it is killed.

    Args:
        folder: as of ``Sandbox``.
        timeout: seconds that a cell or a command may take.
        max_memory: bytes of address space of each process.
        max_file_bytes: the largest file that a process may write.
        max_total_memory: bytes of memory of all processes together. If they have more, all are ended.
        max_folder_bytes: bytes on disk of ``folder`` and the home directory together, or as many as they had at first.
            If they have more, all processes are ended. The files stay; the next calls may remove some, and are ended if
            they add to them.
        max_processes: processes at once. If there are more, all are ended.
        max_output: bytes of output that a call returns. Of more, the middle is left out.
        network: whether the processes have the network of this machine. Without it they have none where
            ``isolation.network`` is True.
    """

    sandbox_type: ClassVar[SandboxType] = SandboxType.BASE
    tools: ClassVar[tuple[str, ...]] = ("run_ipython_cell", "run_shell_command")

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        timeout: float = TIMEOUT,
        max_memory: int = MAX_MEMORY,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_total_memory: int = MAX_TOTAL_MEMORY,
        max_folder_bytes: int = MAX_FOLDER_BYTES,
        max_processes: int = MAX_PROCESSES,
        max_output: int = MAX_OUTPUT,
        network: bool = False,
        _namespaces: bool = True,
        _landlock: bool = True,
    ) -> None:
        limits = {
            "max_memory": max_memory,
            "max_file_bytes": max_file_bytes,
            "max_processes": max_processes,
            "max_output": max_output,
        }
        limits |= {"max_total_memory": max_total_memory, "max_folder_bytes": max_folder_bytes}
        self._timeout = seconds("timeout", timeout, above=True, remains="no sandbox was made")
        self._options = {
            name: count(name, value, least=1, remains="no sandbox was made") for name, value in limits.items()
        }
        if max_output > _MAX_OUTPUT:
            raise LimitExceededError("max_output", limit=_MAX_OUTPUT)
        self._options |= {"network": bool(network), "namespaces": _namespaces, "landlock": _landlock}
        self._process: Process | None = None
        self._closed = False
        self._turn = Lock()  # of the calls
        self._change = Lock()  # of what is above
        self._pid = os.getpid()
        super().__init__(folder)
        _all.add(self)

    def run_ipython_cell(self, code: str) -> str:
        """Run a cell of Python, and return its output, followed by the value of its last expression or a traceback.

        Names persist from cell to cell; ``await`` works; ``_`` is the last value, and a semicolon at the end hides it.
        A cell that takes too long is interrupted, and its interpreter is killed if it does not end then. After a crash
        or a kill, the text says so, and the next cell runs in a new interpreter.

        Raises:
            InvalidArgumentError: the code is not a string, or a cell of 4 million characters and more
                (``LimitExceededError``).
            HandleClosedError: the sandbox is closed, or was closed during the call.
            SandboxError: no process can be started.
        """
        return self._run_cell(code).text

    def run_shell_command(self, command: str) -> str:
        """Run a command with ``/bin/sh`` in the folder, and return its output and errors.

        An exit status other than 0 is said at the end.

        It has no input. Processes that it leaves in the background live until the sandbox is closed. Raises as
        ``run_ipython_cell``.
        """
        return self._run_command(command).text

    def _run_cell(self, code: str) -> Shown:
        return self._run("cell", _checked(code, "the code of a cell"))

    def _run_command(self, command: str) -> Shown:
        text = _checked(command, "a command")
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                "the command has characters that no command has", remains="nothing was run"
            ) from None
        if "\0" in text:
            raise InvalidArgumentError("the command has a NUL in it", remains="nothing was run")
        return self._run("command", text)

    @property
    def isolation(self) -> Isolation:
        """The isolation of the processes, which are started if necessary. Raises as ``run_ipython_cell``."""
        with self._turn:
            return self._started().isolation

    @property
    def network(self) -> bool:
        """Whether the processes can reach a network.

        It starts them, if they are not. Raises as ``run_ipython_cell``.
        """
        return not self.isolation.network

    def close(self) -> None:
        """End all processes of the sandbox, and remove its own folder.

        A call under way raises ``HandleClosedError``. Idempotent.
        """
        with self._change:
            if self._pid == os.getpid():
                self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.end()
        if self._closed:
            self._close_folder()

    def _run(self, kind: str, text: str) -> Shown:
        with self._turn:
            process = self._started()
            shown = process.ask(kind, text, self._timeout)
            if self._closed:
                raise self._was_closed()
            return shown

    def _started(self) -> Process:
        """Return the running processes, or new ones if those have ended or belong to the parent of a fork."""
        with self._change:
            if self._closed:
                raise self._was_closed()
            if self._process is None or not self._process.is_alive:
                self._process = None
                self._process = Process(self._folder, self._options)
            return self._process

    def _was_closed(self) -> HandleClosedError:
        return HandleClosedError("this sandbox is closed", hint="connect() gives another one")


class ContentSandbox(BaseSandbox):
    """A ``BaseSandbox`` whose tools return dicts like AgentScope Runtime's: ``content``, ``isError`` and ``meta``.

    ``content`` is a list of texts, each a dict with ``type``, ``text``, ``annotations`` and ``description``. The first
    one, ``stdout``, has the output and the errors in the order in which they were written. A command has a second one,
    ``returncode``. ``isError`` is True if the cell raised, the command failed, or a limit ended the call; there it is
    True if anything was written to the errors.
    """

    # A result of another shape is what this class is for.
    def run_ipython_cell(self, code: str) -> dict[str, Any]:  # type: ignore[override]
        """Run a cell of Python, as ``BaseSandbox`` does, and return its content."""
        return _content(self._run_cell(code))

    def run_shell_command(self, command: str) -> dict[str, Any]:  # type: ignore[override]
        """Run a command, as ``BaseSandbox`` does, and return its content."""
        return _content(self._run_command(command))


def _content(shown: Shown) -> dict[str, Any]:
    texts = {"stdout": shown.text} | ({} if shown.status is None else {"returncode": str(shown.status)})
    content = [{"type": "text", "text": text, "annotations": None, "description": what} for what, text in texts.items()]
    return {"meta": None, "content": content, "isError": shown.failed}


_all: Final[weakref.WeakSet[BaseSandbox]] = weakref.WeakSet()


def _renew() -> None:
    """Renew what the child of a fork cannot use: locks held by threads that are gone, and the parent's processes."""
    for each in list(_all):
        each._turn, each._change, each._process = Lock(), Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _checked(text: str, what: str) -> str:
    if len(instance_of(what, text, str)) > _MAX_SOURCE:
        raise LimitExceededError(f"the length of {what}", limit=_MAX_SOURCE)
    return text
