"""The program in a process of its own: plain, in a pipe, or in a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from click.testing import CliRunner

from versioned_state.cli.main import vstate

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "versioned_state.cli.main"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment with known variables only."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "XDG_STATE_HOME": "/nowhere",
        **more,
    }


def run(*args: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program with pipes."""
    return subprocess.run([*COMMAND, *args], cwd=cwd, env=environment(**more), capture_output=True, timeout=60)


@contextmanager
def until_ctrl_c(*args: str, cwd: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    """Run a command that has no end beside a block, which reads its output and its messages, and end it by Ctrl-C.

    It must end as such a command does: with nothing more to say.
    """
    with subprocess.Popen(
        [*COMMAND, *args], cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            yield process.stdout, process.stderr
            process.send_signal(signal.SIGINT)
            printed, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, printed, told.strip()) == (130, "", "")


@dataclass
class Screen:
    """The output of a program on a terminal, and its exit code."""

    text: str
    code: int

    @property
    def lines(self) -> list[str]:
        return self.text.replace("\r\n", "\n").splitlines()


def run_in_terminal(*args: str, cwd: Path, columns: int = 80, typed: bytes = b"", **more: str) -> Screen:
    """Run the program in a pseudo-terminal with `columns` columns, in which a user types `typed`."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *args],
        cwd=cwd,
        env=environment(**more),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        os.write(master, typed)
        written = _read_all(master, until=time.monotonic() + 60)
        return Screen(written.decode(), process.wait(timeout=60))
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _read_all(master: int, *, until: float) -> bytes:
    written = b""
    while select.select([master], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            piece = os.read(master, 65536)
        except OSError:  # Linux says so when the last one has closed the terminal
            return written
        if not piece:
            return written
        written += piece
    raise TimeoutError(f"the program did not end; so far: {written!r}")


def complete(words: str, **more: str) -> list[str]:
    """Return the completions that the shell is given for the last of these words, by the program in this process."""
    asked = environment(_VSTATE_COMPLETE="bash_complete", COMP_WORDS=words, **more)
    done = CliRunner().invoke(vstate, [], prog_name="vstate", env=asked)
    assert done.stderr == ""
    return [line.removeprefix("plain,") for line in done.stdout.splitlines() if line]
