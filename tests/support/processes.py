"""Parts of a test in other processes: forked, as another user, or as programs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked child, and return its process id. The child exits with 0 if `work` returns."""
    with warnings.catch_warnings():
        # Python warns of forks with threads about; that they are safe for a store is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - printed, and shown by the exit status
        traceback.print_exc()
    finally:
        os._exit(status)


def join(*pids: int) -> None:
    """Wait for forked children, which must have succeeded."""
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    assert statuses == [0] * len(pids)


def without_rights(work: Callable[[], None]) -> None:
    """Run `work` in a child whom permission bits bind, as they do not bind root."""

    def bound() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()

    join(fork(bound))


def start(program: str, *arguments: object, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a Python program of its own that can import the package."""
    return subprocess.Popen(
        [sys.executable, *options, "-c", textwrap.dedent(program), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_in_memory(program: str, folder: Path, *arguments: object, size: str = "50%") -> str:
    """Run such a program on a file system in memory, mounted at the folder in a name space of its own.

    The folder is its first argument. Returns its output.
    """
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs here")
    mount = f"mount -t tmpfs -o size={size} none '{folder}' && exec \"$@\""
    command = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        mount,
        "sh",
        sys.executable,
        "-c",
        program,
        *map(str, (folder, *arguments)),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def run(program: str, *arguments: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run such a program to its end. It must succeed."""
    process = start(program, *arguments, options=options)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
