"""``Process``: the processes of a base sandbox, for the program that has it: a supervisor at the other end of a socket.

Layer: sandbox.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from versioned_state.errors import SandboxError
from versioned_state.sandbox.local.protocol import FrameError, Frames, Isolation, Settings, frame
from versioned_state.sandbox.local.temporary import TemporaryFolder, temporary_around

_START_S: Final = 30.0
_END_S: Final = 5.0
_LATE_S: Final = 10.0
"""The time beyond its limit after which the answer to a call is given up, and all processes are killed."""

_LONGEST_WAIT_S: Final = 1e6

_PROGRAM: Final = (
    # after -I and -S
    "import sys; sys.path.append(sys.argv.pop(1)); from versioned_state.sandbox.local.supervisor import main; main()"
)

_ENDED: Final = "[the processes of the sandbox ended; names are lost]"


class Shown(NamedTuple):
    """The output of a cell or a command, and how it ended.

    Attributes:
        failed: whether the cell raised, the command ended with a status other than 0, or a limit ended the call.
        status: the exit status of a command that ran to its end, or minus the signal that ended it.
    """

    text: str
    failed: bool
    status: int | None = None


class Process:
    """A supervisor and its processes. It runs one call at a time, which ``end`` ends, also from another thread.

    Raises ``SandboxError`` if it cannot be started.
    """

    isolation: Isolation

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.home: Final = TemporaryFolder()
        try:
            around = temporary_around(folder)
            settings = Settings(
                folder=str(folder),
                home=str(self.home.path),
                python=sys.executable,
                temporary=(str(self.home.path), *([] if around is None else [str(around)])),
                readable=_readable(),
                **options,
            )
            self._start(settings)
        except BaseException:
            self.home.remove()
            raise
        self.is_alive: bool = True
        self._frames = Frames()
        self._count = 0
        self._sending = False
        self._turn = Lock()  # of close
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(
            self, _close, self._channel, self._supervisor, self._turn, self.home, self._pid
        )
        _all.add(self)

    def _start(self, settings: Settings) -> None:
        try:
            self._launch(settings)
        except _NotStartedError:  # in namespaces in which nothing works, such as without the right to map a user
            try:
                self._launch(Settings(**{**vars(settings), "namespaces": False}))
            except _NotStartedError as error:
                raise SandboxError(
                    f"the processes of the sandbox could not be started: {error}", remains="no process is left"
                ) from error

    def _launch(self, settings: Settings) -> None:
        if not settings.python:
            raise SandboxError(
                "the interpreter of this program is not known, so none can be started", remains="no process was started"
            )
        here, there = socket.socketpair()
        try:
            with there:
                root = str(Path(__file__).resolve().parents[3])
                command = [
                    settings.python,
                    "-I",
                    "-S",
                    "-X",
                    "utf8",
                    "-c",
                    _PROGRAM,
                    root,
                    str(there.fileno()),
                    settings.dump(),
                ]
                supervisor = subprocess.Popen(  # noqa: S603 - our own program
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(there.fileno(),),
                    start_new_session=True,
                    cwd="/",
                    env={"LANG": "C.UTF-8"},
                )
        except OSError as error:
            here.close()
            raise SandboxError(
                f"no process could be started: {error.strerror}", remains="no process was started"
            ) from error
        except BaseException:
            here.close()
            raise
        try:
            here.settimeout(_START_S)
            frames = Frames()
            while (hello := frames.take()) is None:
                data = here.recv(1 << 16)
                if not data:
                    raise _NotStartedError(f"the supervisor ended with exit status {supervisor.wait()}")
                frames.feed(data)
            self.isolation = Isolation(**hello)
        except BaseException as error:
            here.close()
            supervisor.kill()
            supervisor.wait()
            if isinstance(error, OSError | FrameError | TypeError):
                raise _NotStartedError(str(error)) from error
            raise
        self._channel, self._supervisor = here, supervisor

    def ask(self, kind: str, text: str, timeout: float) -> Shown:
        """Run a cell or a command, and return what it shows.

        If an exception comes meanwhile, such as Ctrl-C, it is interrupted.

        If the processes end before the answer, that is said in place of it, and ``is_alive`` is False.
        """
        if self._sending:  # an exception came in the middle of a frame
            self.end()
            return Shown(_ENDED, failed=True)
        self._count += 1
        number = self._count
        try:
            return self._ask(
                number,
                {"id": number, "kind": kind, "text": text, "timeout": timeout},
                time.monotonic() + timeout + _LATE_S,
            )
        except (OSError, EOFError, FrameError):
            self.end()
            return Shown(_ENDED, failed=True)
        except BaseException:
            with suppress(OSError):
                self._send({"stop": number})
            raise

    def _ask(self, number: int, message: dict[str, Any], until: float) -> Shown:
        self._send(message)
        while True:
            answer = self._frames.take()
            if answer is None:
                self._channel.settimeout(min(max(until - time.monotonic(), 0.001), _LONGEST_WAIT_S))
                data = self._channel.recv(1 << 16)
                if not data:
                    raise EOFError
                self._frames.feed(data)
            elif answer.get("id") == number:
                return Shown(str(answer.get("text", "")), bool(answer.get("failed")), answer.get("status"))

    def _send(self, message: dict[str, Any]) -> None:
        self._sending = True
        self._channel.settimeout(_LATE_S)
        self._channel.sendall(frame(message))
        self._sending = False

    def end(self) -> None:
        """End all processes of the sandbox, and wait for that. Idempotent."""
        self.is_alive = False
        if self._finalizer.alive:
            _close(self._channel, self._supervisor, self._turn, self.home, self._pid)
            self._finalizer.detach()  # not before: an end that was interrupted is repeated


class _NotStartedError(Exception):
    pass


_all: Final[weakref.WeakSet[Process]] = weakref.WeakSet()


def _forget() -> None:
    """Close the parent's sockets in the child of a fork, so that the death of the parent still ends its sandboxes."""
    for each in list(_all):
        each.is_alive = False
        each._channel.close()
    _all.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _close(
    channel: socket.socket, supervisor: subprocess.Popen[bytes], turn: Lock, home: TemporaryFolder, pid: int
) -> None:
    if os.getpid() != pid:
        return
    with turn:
        with suppress(OSError):
            channel.settimeout(0.1)
            channel.sendall(frame({"end": True}))
        with suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)  # a call that waits for an answer ends
        try:
            supervisor.wait(_END_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        channel.close()
        home.remove()


def _readable() -> tuple[str, ...]:
    """Return the paths that an interpreter reads beside system files: its installation, packages and ``worker.py``."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    return (*sorted(prefixes), str(Path(__file__).with_name("worker.py").resolve()))
