"""Servers that start in an instant: one process imports `vstate` once, and forks a `vstate serve` for each of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.support.processes import ROOT
from tests.support.services.served import ALICE, write_tokens
from tests.support.waiting import eventually

PROGRAM = """
import json, os, signal, sys
import versioned_state.server.run
from versioned_state.cli.main import vstate

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        os.environ.update(order["environment"])
        try:
            vstate.main(order["args"], prog_name="vstate")
        finally:
            os._exit(1)
    print(pid, flush=True)
"""


class Forked:
    """A server process. See `Served`, which starts one by its command line."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self._log = log
        assert eventually(lambda: self._served() or not self.runs(), 30), self.log
        assert self._served(), f"the server did not start: {self.log}"
        self.url = self._served()[0].split()[-1]

    def _served(self) -> list[str]:
        return [line for line in self.log if line.startswith("serving on ")]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> list[str]:
        """The whole lines that it has written to stderr."""
        text = self._log.read_text() if self._log.exists() else ""
        return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of its log that are JSON."""
        return [json.loads(line) for line in self.log if line.startswith("{")]

    def runs(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, and wait until the process is gone."""
        self.send(number)
        assert eventually(lambda: not self.runs(), 30), "the server did not end"

    def open_files(self) -> int:
        """Return how many descriptors it has open."""
        return len([*Path(f"/proc/{self.pid}/fd").iterdir()])

    def peak(self) -> int:
        """Return the bytes of memory that it has taken at most."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def client(self, token: str | None = ALICE, **options: Any) -> httpx.Client:
        """Return a client that speaks plain HTTP."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=20, trust_env=False, **options)


class Zygote:
    """The process that forks servers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.tokens = write_tokens(folder)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def serve(
        self, store: str, *options: str, tokens: Path | None = None, environment: dict[str, str] | None = None
    ) -> Forked:
        """Return a server over a store, by default with `TOKENS`, on a free port."""
        self._count += 1
        log = self._folder / f"server-{self._count}.log"
        port = () if "--port" in options else ("--port", "0")
        args = ["--store", store, "serve", "--tokens", str(tokens or self.tokens), *port, *options]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"args": args, "log": str(log), "environment": environment or {}}) + "\n")
        self._process.stdin.flush()
        return Forked(int(self._process.stdout.readline()), log)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Starts servers."""
    found = Zygote(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()
