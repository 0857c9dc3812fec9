"""``scripts/bench services http``: ``vstate serve`` on Redis: clients at once.

A client is a socket that sends prepared bytes and reads the answer, so that it costs next to nothing beside the server.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks import arguments, report
from benchmarks.servers import on_redis
from versioned_state.services.session_history import SessionHistoryService

TOKEN: Final = "token"
CLIENTS: Final = (1, 8, 32)
REQUESTS: Final = 4_000
HEAD: Final = (
    f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
)
MESSAGE: Final = {
    "role": "user",
    "content": [{"type": "text", "text": "Is there a flight to Rome on Tuesday, before noon?"}],
}


def main(given: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    parser = arguments.parser("services http", "Requests to vstate serve, on Redis.", quick="few requests")
    share = 20 if parser.parse_args(given).quick else 1
    with on_redis() as (folder, url):
        rows = [_clients(folder, f"{url}?prefix=c{count}", count, REQUESTS // share) for count in CLIENTS]
        columns = ["appends/s", "median, ms", "p99, ms", "p99 / median", "without HTTP, appends/s"]
        report.print_table(["clients, each with a session of its own", *columns], rows)
    return 0


class Client:
    """One connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def ask(self, method: str, target: str, body: Any = None) -> None:
        """Send a request and read its answer, which must be a success."""
        content = b"" if body is None else json.dumps(body).encode()
        self._socket.sendall(
            f"{method} {target} HTTP/1.1\r\n{HEAD}Content-Length: {len(content)}\r\n\r\n".encode() + content
        )
        said = b""
        while b"\r\n\r\n" not in said:
            said += self._socket.recv(65536)
        head, _, rest = said.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(head.decode())
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        left = int(lengths[0].split()[1]) - len(rest) if lengths else 0
        while left > 0:
            left -= len(self._socket.recv(65536))


@contextmanager
def server(folder: Path, store: str, *options: str, user: str = "alice") -> Iterator[tuple[str, int]]:
    """The URL of a server, whose token is for a user, and its process id."""
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps({TOKEN: {"user": user, "scopes": ["read", "write"]}}))
    tokens.chmod(0o600)
    command = [
        sys.executable,
        "-m",
        "versioned_state.cli.main",
        "--store",
        store,
        "serve",
        "--port",
        "0",
        "--tokens",
        str(tokens),
    ]
    with subprocess.Popen([*command, "--log-level", "error", *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            yield line.split()[-1], process.pid
        finally:
            process.terminate()
            process.communicate()


def _clients(folder: Path, store: str, count: int, requests: int) -> list[str]:
    with server(folder, store) as (url, _):
        _, times = _append(url, count, requests // 4)  # to warm up
        seconds, times = _append(url, count, requests)
    alone = asyncio.run(_alone(f"{store}a", count, requests))
    median, worst = statistics.median(times), statistics.quantiles(times, n=100)[98]
    rates = f"{requests / seconds:,.0f}", f"{median * 1000:.2f}", f"{worst * 1000:.2f}", f"{worst / median:.1f}"
    return [str(count), *rates, f"{requests / alone:,.0f}"]


def _append(url: str, clients: int, requests: int) -> tuple[float, list[float]]:
    """The seconds that some appends took in all, and each of them."""
    times: list[float] = []

    def work(number: int) -> None:
        session = f"s{number}"
        with closing(Client(url)) as client:
            client.ask("POST", f"/v1/history/sessions?session_id={session}&last=0")
            for _ in range(requests // clients):
                start = time.perf_counter()
                client.ask("POST", f"/v1/history/messages?session_id={session}", MESSAGE)
                times.append(time.perf_counter() - start)

    with ThreadPoolExecutor(clients) as threads:
        start = time.perf_counter()
        list(threads.map(work, range(clients)))
        return time.perf_counter() - start, times


async def _alone(store: str, clients: int, requests: int) -> float:
    """The seconds that as many appends take in this process."""
    async with SessionHistoryService.over(store) as service:
        sessions = [await service.create_session("alice", f"s{number}") for number in range(clients)]

        async def work(number: int) -> None:
            for _ in range(requests // clients):
                await service.append_message(sessions[number], MESSAGE)

        start = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(clients)))
        return time.perf_counter() - start
