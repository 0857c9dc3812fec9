"""An S3 server of the tests' own, in a process of its own: `s3_server` starts it once for each worker.

`S3Server.faults` makes it fail on purpose; `requests` says what it was asked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.support.servers.s3_server import BUCKET
from versioned_state.storage.s3.store import S3

PROGRAM = Path(__file__).with_name("s3_server.py")
SECRET = "a-secret-that-nobody-may-see"


@dataclass(frozen=True)
class Fault:
    """What happens to requests of a method (any: "") whose path, bucket included, matches `path`.

    The first `skip` of them pass, `times` of them meet it. `apply`: whether the request is carried out; later means
    after `delay`
    seconds, blindly means whatever its conditions say. `answer`: what is said of it: the truth, the truth after `delay`
    seconds, nothing (the connection is cut), nothing until the faults change (a stall, ended by a cut), or a status of
    failure.
    """

    method: Literal["", "GET", "PUT", "POST", "DELETE"] = ""
    path: str = ""
    skip: int = 0
    times: int = 1
    apply: Literal["now", "never", "later", "blindly"] = "now"
    answer: Literal["real", "slow", "none", "stall"] | int = "none"
    delay: float = 0.2


class S3Server:
    """A running server with one bucket, `states`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the S3 server of the tests did not start; it ended with {self._process.wait()}")
        self.endpoint = f"http://127.0.0.1:{int(port)}"

    def options(self) -> dict[str, Any]:
        """Return the options of `S3` for it, beside the bucket."""
        return {
            "endpoint": self.endpoint,
            "region": "eu-central-1",
            "access_key_id": "tests",
            "secret_access_key": SECRET,
        }

    def open(self, prefix: str, *, timeout: float = 20.0, **options: Any) -> S3:
        """Open a store under `prefix` in its bucket."""
        return S3(BUCKET, prefix, timeout=timeout, **{**self.options(), **options})

    def fresh_store(self) -> S3:
        """Open a store that no other test has."""
        return self.open(uuid4().hex)

    @contextmanager
    def faults(self, *faults: Fault) -> Iterator[None]:
        """Within the block, requests meet these faults."""
        self.set_faults(*faults)
        try:
            yield
        finally:
            self.set_faults()

    def set_faults(self, *faults: Fault) -> None:
        """From now on, requests meet these faults and no others. What stalled is cut."""
        self._control("POST", "faults", [asdict(fault) for fault in faults])

    def requests(self) -> list[tuple[str, str]]:
        """Method and key of each request since the last call."""
        return [(method, key) for method, key in self._control("GET", "log")]

    def raw(self, name: str, body: bytes | None = None) -> bytes:
        """Return the bytes in the bucket under a full name. `body` is put there first, past any store."""
        request = urllib.request.Request(
            f"{self.endpoint}/{BUCKET}/{name}", body, method="GET" if body is None else "PUT"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: bytes = answer.read()
        return found if body is None else body

    def names(self, prefix: str) -> list[str]:
        """Return the full names in the bucket that begin with a prefix, up to 1,000."""
        with urllib.request.urlopen(
            f"{self.endpoint}/{BUCKET}?list-type=2&prefix={quote(prefix)}", timeout=30
        ) as answer:
            return re.findall("<Key>(.*?)</Key>", answer.read().decode())

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _control(self, method: str, what: str, body: Any = None) -> list[list[str]]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint}/-/{what}", data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: list[list[str]] = json.load(answer)
        return found


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()
