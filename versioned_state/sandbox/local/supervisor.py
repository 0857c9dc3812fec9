"""The supervisor of a base sandbox: a process that confines, watches and ends those in which code runs. Layer: sandbox.

::

    the program ── socket ── supervisor ── control socket ── worker.py: cells
                                 ├──────── /bin/sh: a command
                                 └─ reads the output of all of them through one pipe

It is a program of its own (``main``), and imports modules beside it alone. It ends, with all processes of the sandbox,
as soon as the program closes the socket or dies. Where there are namespaces, it is the first process in them, which the
code in there cannot signal or look into.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from versioned_state.sandbox.local import confinement
from versioned_state.sandbox.local.calls import MARK, Call, Output, Worker
from versioned_state.sandbox.local.protocol import Frames, Isolation, Settings, frame
from versioned_state.sandbox.local.removal import remove_tree
from versioned_state.sandbox.local.usage import Files, Nameless, descendants, memory_of

GRACE_S: Final = 1.0
"""The time that an interrupted cell has to end before its interpreter is killed."""

_LOOK_S: Final = 0.05
"""How often the processes are counted while a call runs, and how soon after it."""

_IDLE_LOOK_S: Final = 1.0
_END_S: Final = 5.0
"""How long processes may take to die."""

_PIPE: Final = 1 << 16
_SHELL: Final = "/bin/sh"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Supervisor:
    """Runs one call after another, and enforces the limits.

    Args:
        channel: the socket to the program.
        isolation: what holds.
        rules: the rules for files, if the kernel has Landlock.
        thread_limit: the threads that the kernel lets this user have, in the sandbox or outside; None for no limit.
    """

    def __init__(
        self,
        channel: socket.socket,
        settings: Settings,
        isolation: Isolation,
        rules: confinement.Landlock | None,
        thread_limit: int | None,
    ) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._unsent = bytearray()  # of the answers
        self._settings = settings
        self._isolation = isolation
        self._rules = rules
        self._thread_limit = thread_limit
        self._frames = Frames()
        self._waiting: deque[dict[str, Any]] = deque()
        self._call: Call | None = None
        self._worker: Worker | None = None
        self._note = ""  # of what happened between calls
        self._next_look = 0.0
        self._files = Files((settings.folder, settings.home), settings.max_folder_bytes)
        self._nameless = Nameless((settings.folder, settings.home))
        self._ends = False
        self._sweeping = False
        self._last = ""  # of the call that a sweep has ended
        self._output, self._output_end = os.pipe()
        os.set_blocking(self._output, False)
        self._wake, wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process of a namespace gets what it has a handler for
        self._environment = {
            "HOME": settings.home,
            "LANG": "C.UTF-8",
            "PATH": f"{Path(settings.python).parent}:{_PATH}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": settings.home,
            "USER": "sandbox",
        }

    def serve(self) -> bool:
        """Serve until the program closes the socket. Whether it had said that it would."""
        while True:
            worker = self._worker
            reads: list[Any] = [self._channel, self._output, self._wake, *([] if worker is None else [worker.control])]
            writes: list[Any] = [worker.control] if worker is not None and worker.unsent else []
            if self._unsent:
                writes.append(self._channel)
            ready, writable, _ = select.select(reads, writes, [], self._patience())
            if self._channel in ready and not self._receive():
                return self._ends
            if self._output in ready:
                self._drain(16)
            if self._channel in writable:
                self._send()
            if worker is not None and worker.control in writable:
                self._feed(worker)
            if worker is not None and worker.control in ready:
                self._on_answer(worker)
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, _PIPE)
            self._reap()
            self._watch()
            while self._call is None and self._waiting:
                self._begin(self._waiting.popleft())

    def _patience(self) -> float:
        now = time.monotonic()
        until = self._next_look if self._call is None else min(self._next_look, self._call.deadline)
        return max(0.0, until - now)

    # Calls

    def _receive(self) -> bool:
        """Take in what the program sends. False: it has closed the socket."""
        try:
            data = self._channel.recv(_PIPE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._frames.feed(data)
        while (message := self._frames.take()) is not None:
            if "end" in message:
                self._ends = True
            elif "stop" in message:
                self._stop(message["stop"])
            else:
                self._waiting.append(message)
        return True

    def _stop(self, id: int) -> None:
        self._waiting = deque(message for message in self._waiting if message["id"] != id)
        if self._call is not None and self._call.id == id and not self._call.interrupted:
            self._call.deadline = 0.0

    def _begin(self, message: dict[str, Any]) -> None:
        self._drain(1 << 20)  # what came between the calls belongs to none
        self._files.begin()
        limit = message["timeout"]
        call = Call(
            message["id"], message["kind"] == "cell", limit, time.monotonic() + limit, Output(self._settings.max_output)
        )
        call.note, self._note = self._note, ""
        self._call = call
        self._next_look = 0.0
        try:
            if call.is_cell:
                self._send_cell(message["text"])
            else:
                call.process = self._spawn([_SHELL, "-c", message["text"]])
        except OSError as error:
            self._finish(f"[no process could be started: {error.strerror}]")

    def _send_cell(self, source: str) -> None:
        worker = self._worker
        if worker is None:
            here, there = socket.socketpair()
            with there:
                program = str(Path(__file__).with_name("worker.py"))
                flags = ["-I", "-B", "-X", "utf8"]
                process = self._spawn([self._settings.python, *flags, program, str(there.fileno())], there.fileno())
            here.setblocking(False)
            self._worker = worker = Worker(process, here)
        data = source.encode("utf-8", "surrogatepass")
        worker.mark = os.urandom(MARK)
        worker.unsent = bytearray(worker.mark + len(data).to_bytes(8, "big") + data)
        self._feed(worker)

    @staticmethod
    def _feed(worker: Worker) -> None:
        with suppress(OSError):  # its end is noticed when it is reaped
            sent = worker.control.send(worker.unsent[:_PIPE])
            del worker.unsent[:sent]

    def _on_answer(self, worker: Worker) -> None:
        """Handle the end of the worker's cell, or of the worker itself."""
        try:
            said = worker.control.recv(_PIPE)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:  # closed: killed, or by its own code
            self._kill_group(worker.process)
            self._reap(worker.process)
            return
        heard = worker.heard + said
        worker.heard = heard[-MARK - 1 :]
        at = heard.find(worker.mark)
        if at >= 0 and self._call is not None and self._call.is_cell:
            worker.heard = b""
            self._call.failed = heard[at - 1 : at] != b"\0"
            self._finish("")

    def _finish(self, note: str) -> None:
        call = self._call
        if call is None:
            self._note = note
            return
        if self._sweeping:
            self._last = note
            return
        self._drain(1 << 20)
        self._call = None
        self._next_look = min(self._next_look, time.monotonic() + _LOOK_S)
        text = call.output.text()
        for each in (call.note, note):
            if each:
                text += ("\n" if text and not text.endswith("\n") else "") + each
        failed = call.failed or bool(call.note or note)
        self._unsent += frame({"id": call.id, "text": text, "failed": failed, "status": call.status})
        self._send()

    def _send(self) -> None:
        """Send what the socket takes now. A program that reads no answer does not stop the rest."""
        with suppress(OSError):  # the program has gone: the next look at the socket says so
            sent = self._channel.send(self._unsent)
            del self._unsent[:sent]

    def _drain(self, times: int) -> None:
        """Read the output. A process that never stops writing is read again later."""
        for _ in range(times):
            try:
                data = os.read(self._output, _PIPE)
            except BlockingIOError:
                return
            if self._call is not None:
                self._call.output.add(data)

    # Processes

    def _spawn(self, command: list[str], *keep: int) -> int:
        """Start a confined process, with the output going to the pipe.

        Descriptors to ``keep`` are those of the process too.
        """
        process = os.fork()
        if process:
            return process
        try:
            signal.set_wakeup_fd(-1)
            for each in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(each, signal.SIG_DFL)
            os.setsid()
            os.chdir(self._settings.folder)
            null = os.open(os.devnull, os.O_RDWR)
            for target, source in ((0, null), (1, self._output_end), (2, self._output_end)):
                os.dup2(source, target)
            for descriptor in keep:
                os.set_inheritable(descriptor, True)
            self._confine()
            os.execve(command[0], command, self._environment)  # noqa: S606 - a shell, if it is to be one, is the command
        except BaseException as error:  # noqa: BLE001 - nothing else may run in this process
            os.write(2, f"[no process could be started: {error}]\n".encode())
        os._exit(127)

    def _confine(self) -> None:
        if not self._isolation.processes:
            confinement.end_with_parent()
            confinement.drop_capabilities()
        confinement.set_limits(
            memory=self._settings.max_memory, file_bytes=self._settings.max_file_bytes, processes=self._thread_limit
        )
        if self._rules is not None:
            self._rules.enter()

    def _reap(self, waited_for: int = -1) -> None:
        """Take note of processes that have ended: of one that is about to, or of any."""
        while True:
            try:
                process, status = os.waitpid(waited_for, 0 if waited_for > 0 else os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            self._ended(process, status)
            if waited_for > 0:
                return

    def _ended(self, process: int, status: int) -> None:
        call, worker = self._call, self._worker
        if worker is not None and process == worker.process:
            worker.control.close()
            self._worker = None
            self._end_group(process)
            how = _how(status)
            if call is None or not call.is_cell:
                self._note = f"[the interpreter ended {how} after the last cell; its names are lost]"
            elif call.interrupted or call.note:
                self._finish("[the interpreter was ended; its names are lost]")
            else:
                self._finish(f"[the interpreter ended {how}; its names are lost]")
        elif call is not None and process == call.process:
            code = call.status = os.waitstatus_to_exitcode(status)
            if call.note:
                self._end_group(process)
            self._finish(
                "" if code == 0 or call.note else f"[exit status {code}]" if code > 0 else f"[ended {_how(status)}]"
            )

    @staticmethod
    def _kill_group(process: int, signum: signal.Signals = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signum)

    def _end_group(self, leader: int) -> None:
        """Kill the group of a process that has ended, and wait for that."""
        until = time.monotonic() + _END_S
        while time.monotonic() < until:
            try:
                os.killpg(leader, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return
            with suppress(ChildProcessError):
                os.waitpid(-leader, os.WNOHANG)
            time.sleep(0.001)

    # Limits

    def _watch(self) -> None:
        now = time.monotonic()
        call = self._call
        if call is not None and now >= call.deadline:
            self._over_time(call, now)
        if now >= self._next_look:
            self._next_look = now + (
                _IDLE_LOOK_S if call is None else _LOOK_S if self._isolation.processes else 4 * _LOOK_S
            )
            if self._worker is not None or call is not None or self._has_children():
                over = self._over_limit()
                if over:
                    self._end_all(f"[stopped: the limit of {over}; all processes of the sandbox were ended]")

    def _over_time(self, call: Call, now: float) -> None:
        if not call.note:
            call.note = (
                f"[stopped: the limit of time of {call.limit:g} s]" if call.deadline else "[stopped by the caller]"
            )
        if not call.is_cell:
            call.deadline = float("inf")
            self._kill_group(call.process)
        elif self._worker is not None and not call.interrupted and not self._worker.unsent:
            call.interrupted = True
            call.deadline = now + GRACE_S
            self._kill_group(self._worker.process, signal.SIGINT)
        elif self._worker is not None:
            call.deadline = float("inf")
            call.interrupted = True
            self._kill_group(self._worker.process)

    def _has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _over_limit(self) -> str:
        """Return the limit of all processes together that does not hold, or an empty text if all of them hold."""
        settings = self._settings
        processes = descendants()
        if len(processes) > settings.max_processes:
            return f"{settings.max_processes} processes"
        nameless = self._nameless
        nameless.count(processes)
        if memory_of(processes, nameless.in_memory, settings.max_total_memory) > settings.max_total_memory:
            return f"{settings.max_total_memory} bytes of memory"
        return f"{settings.max_folder_bytes} bytes of files" if self._files.are_over(nameless.on_disk) else ""

    def _end_all(self, note: str) -> None:
        """End all processes of the sandbox, with a note for the call under way, or else the next one."""
        call = self._call
        if call is not None:
            call.note = note
        self._sweeping, self._last = True, ""
        self.sweep()
        self._sweeping = False
        if call is None:
            self._note = note
        else:
            self._finish(self._last)

    def sweep(self) -> None:
        """End all processes of the sandbox but this one."""
        until = time.monotonic() + _END_S
        while time.monotonic() < until:
            if self._isolation.processes:
                with suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)  # all that this process can see, at once
            else:
                found = descendants()
                for process in found:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(process, signal.SIGKILL)
                if self._worker is not None:
                    self._kill_group(self._worker.process)
            self._reap()
            if not self._has_children():
                return
            time.sleep(0.002)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"with exit status {code}"
    with suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


def main() -> NoReturn:
    """Serve on the socket whose descriptor is the first argument, with the settings in the second."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    settings = Settings.load(sys.argv[2])
    program = os.getppid()
    with suppress(OSError):  # if memory is short, this goes first
        Path("/proc/self/oom_score_adj").write_text("500")
    thread_limit = (
        None
        if os.geteuid() == 0 or not confinement.IS_LINUX
        else confinement.threads_of_user() + 8 * settings.max_processes
    )
    enclosed = own_shm = False
    if settings.namespaces:
        enclosed = confinement.enter_namespaces(network=settings.network)
    if enclosed:
        child = os.fork()
        if child:
            channel.close()
            if os.waitpid(child, 0)[1] != 0:
                _clear_up(settings, program)
            os._exit(0)
        confinement.end_with_parent()
        own_shm = confinement.settle_in(settings.max_memory)
    else:
        confinement.adopt_orphans()
    rules = None
    if settings.landlock:
        writable = [settings.folder, settings.home, *(["/dev/shm"] if own_shm else [])]  # noqa: S108 - its own
        with suppress(OSError):
            rules = confinement.Landlock(readable=settings.readable, writable=writable, scoped=not enclosed)
    confinement.give_up_privileges()
    isolation = Isolation(network=enclosed and not settings.network, processes=enclosed, files=rules is not None)
    channel.sendall(frame(vars(isolation)))
    supervisor = Supervisor(channel, settings, isolation, rules, thread_limit)
    orderly = False
    try:
        orderly = supervisor.serve()
    finally:
        supervisor.sweep()
        if not orderly and not enclosed:
            _clear_up(settings, program)
        os._exit(0 if orderly else 1)


def _clear_up(settings: Settings, program: int) -> None:
    """Remove the temporary folders of a program that has died. One that lives does that by itself."""
    until = time.monotonic() + 1
    while os.getppid() == program:
        if time.monotonic() > until:
            return
        time.sleep(0.01)  # its socket is closed before its end is known
    for each in settings.temporary:
        remove_tree(each)


if __name__ == "__main__":
    main()
