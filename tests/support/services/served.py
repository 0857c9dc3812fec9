"""`vstate serve` as a process of its own, and clients of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any, Self

import httpx

from tests.support.processes import ROOT

ALL, ALICE, READER, BOB = "token-of-all", "token-of-alice", "token-that-reads", "token-of-bob"
TOKENS: dict[str, dict[str, Any]] = {
    ALL: {"user": "*", "scopes": ["read", "write"]},
    ALICE: {"user": "alice", "scopes": ["read", "write"]},
    READER: {"user": "alice", "scopes": ["read"]},
    BOB: {"user": "bob", "scopes": ["write", "read"]},
}


def write_tokens(folder: Path, tokens: Mapping[str, Any] = TOKENS) -> Path:
    """Return a file of tokens that the server takes."""
    path = folder / "tokens.json"
    path.write_text(json.dumps(tokens, indent=2))
    path.chmod(0o600)
    return path


class Served:
    """A server process.

    Attributes:
        url: where it listens.
        log: the lines that it has written to stderr.
    """

    def __init__(self, store: str, tokens: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "versioned_state.cli.main", "--store", store, "serve", "--tokens", str(tokens)),
                *(() if "--port" in options else ("--port", "0")),
                *options,
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if line.startswith("serving on "):
                self.url = line.split()[-1]
                break
        else:
            raise AssertionError(f"the server did not start: {self.log}")
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self.wait()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of its log, read as JSON."""
        return [json.loads(line) for line in self.log[1:]]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int:
        """Return the exit status of the server, once it has ended and its log is complete."""
        status = self.process.wait(30)
        self._reader.join(30)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return status

    def client(self, token: str | None = ALICE, **options: Any) -> httpx.Client:
        """Return a client that speaks plain HTTP."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=20, trust_env=False, **options)
