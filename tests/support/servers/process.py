"""`ServerProcess`, a real server that runs for the tests: in its own folder, without rights, and never left behind."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from tests.support.waiting import eventually

NOBODY = 65534  # user and group; servers such as PostgreSQL refuse root

# Kills the server and removes its folder once its standard input ends, which it does when the process of the tests is
# gone, in whatever way: by SIGKILL, or by the exit that follows a test that hung.
_WATCH = 'cat >/dev/null; kill -9 "$1"; sleep 0.2; rm -rf "$2"'


def find_binary(what: str, *candidates: str | Path | None) -> Path:
    """Return the first candidate that is a program: a path, or a name on PATH.

    If none is, raise `RuntimeError`, which no test skips.
    """
    for candidate in candidates:
        found = None if candidate is None else shutil.which(candidate)
        if found is not None:
            return Path(found).resolve()
    looked = ", ".join(str(candidate) for candidate in candidates if candidate is not None)
    raise RuntimeError(
        f"{what} cannot be tested: no server was found (looked for {looked}); "
        "install the extra 'test', or the server itself"
    )


class ServerProcess:
    """One server and its `folder`, directly under the system's temporary folder, so that socket paths stay short.

    Root starts it as `nobody`, who owns the folder. `close()` kills it and removes the folder; so does the end of this
    process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"vs-{name[:8]}-")).resolve()
        self.log = self.folder / "server.log"
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
            self._user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self._command: tuple[Sequence[str], Callable[[], bool], float] | None = None
        self._owner = os.getpid()
        self._closing = Lock()
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def borrow(self, path: Path) -> Path:
        """`path`, or a copy in the folder if the server's user cannot reach it. For programs in a home directory."""
        if not self._user or all(part.stat().st_mode & 0o005 == 0o005 for part in (path, *path.parents)):
            return path
        copy = self.folder / path.name
        if not copy.exists():
            if path.is_dir():
                shutil.copytree(path, copy, symlinks=True)
            else:
                shutil.copy(path, copy)
            self.own(copy)
        return copy

    def own(self, path: Path) -> None:
        """Give `path`, and all below it, to the server's user."""
        if self._user:
            for each in (path, *path.rglob("*")):
                os.chown(each, NOBODY, NOBODY, follow_symlinks=False)

    def run(self, *argv: str | Path, timeout: float = 120) -> str:
        """Run a program that ends by itself, as the server's user in its folder, and return its output.

        It must succeed.
        """
        ended = subprocess.run(
            [str(word) for word in argv],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            **self._user,
        )
        out: str = (ended.stdout + ended.stderr).decode(errors="replace")
        if ended.returncode:
            raise RuntimeError(f"{self.name}: {argv[0]} ended with {ended.returncode}:\n{out[-4000:]}")
        return out

    def start(self, argv: Sequence[str], ready: Callable[[], bool], *, timeout: float = 60) -> None:
        """Start the server and wait until `ready()`, which is called often and must not raise."""
        assert self._process is None, f"{self.name} runs already"
        self._command = (argv, ready, timeout)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C ends the tests, which then end the server
                **self._user,
            )
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "sh", str(self.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                status = self._process.poll()
                how = f"was not ready after {timeout:.0f} s" if status is None else f"ended with {status}"
                said = self.log.read_text(errors="replace")[-4000:]
                self.kill()
                raise RuntimeError(f"{self.name} {how}; it said:\n{said}")
            time.sleep(0.01)

    def restart(self) -> None:
        """Start it again, on the same data, as it was started before."""
        assert self._command is not None, f"{self.name} was never started"
        argv, ready, timeout = self._command
        self.start(argv, ready, timeout=timeout)

    def stop(self, how: signal.Signals = signal.SIGTERM, *, timeout: float = 60) -> None:
        """Ask the server to end, and wait for it. Its data stays. If it does not end in time, kill it and raise."""
        process = self._process
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self.name} did not end within {timeout:.0f} s of {how.name}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL it and all its children at once, as the death of the machine would. Its data stays."""
        process, self._process = self._process, None
        if process is not None:
            family = []
            if process.poll() is None:
                _signal([process.pid], signal.SIGSTOP)  # from now on it has no more children
                family = _family(process.pid)
            _signal(family, signal.SIGSTOP)  # or a child would see its parent go, and tidy up
            _signal(family, signal.SIGKILL)
            process.wait()
            # A child that is not quite dead still has the memory that they share, and PostgreSQL would not start again.
            assert eventually(lambda: not any(map(_is_alive, family)), 60), f"{self.name} does not die"
        watch, self._watch = self._watch, None
        if watch is not None:
            assert watch.stdin is not None
            watch.kill()  # before its input ends
            watch.wait()
            watch.stdin.close()

    def suspend(self) -> None:
        """Stop it from running, with its connections open: nobody answers any more."""
        _signal(_family(self.pid), signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        _signal(_family(self.pid), signal.SIGCONT)

    def close(self) -> None:
        """Kill the server and remove its folder.

        Idempotent. Without effect in a forked child, which does not own the server.
        """
        if os.getpid() != self._owner:
            return
        with self._closing:
            atexit.unregister(self.close)
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


def _family(pid: int) -> list[int]:
    """`pid` and its descendants, which may have process groups of their own."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything; after it come state and parent.
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it ended meanwhile
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def _is_alive(pid: int) -> bool:
    """Whether a process has memory. Orphans that have none wait for the init process, which may never look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _signal(pids: Sequence[int], what: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue
