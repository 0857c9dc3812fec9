"""``Servers``: the tests' servers for workloads, each started when it is first asked for and ended with the run.

Here too: what the benchmarks of services on Redis share.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from benchmarks.measure import workplace

if TYPE_CHECKING:
    from tests.support.servers.postgres import PostgresServer
    from tests.support.servers.redis import RedisServer
    from tests.support.servers.s3 import S3Server


class Servers:
    """A Redis, a PostgreSQL and an S3 server on this machine; ``RuntimeError`` if the program of one is missing.

    What the tests set for speed is set back, so that the figures are those of a server that keeps what it was told:
    PostgreSQL runs with its own defaults (a commit waits for the disk), Redis with its append-only file (synced every
    second). The S3 server is the one of the tests: in memory, with no network before it.
    """

    SETTINGS = "PostgreSQL with its defaults (fsync on), Redis with appendonly yes, both at Unix sockets"

    def __init__(self) -> None:
        self._stack = ExitStack()

    @cached_property
    def redis(self) -> RedisServer:
        """Valkey or Redis."""
        from tests.support.servers.redis import RedisServer

        server = RedisServer(appendonly="yes")
        self._stack.callback(server.close)
        return server

    @cached_property
    def postgres(self) -> PostgresServer:
        """PostgreSQL."""
        from tests.support.servers.postgres import PostgresServer

        server = PostgresServer(fsync="on", full_page_writes="on", autovacuum="on", shared_buffers="128MB")
        self._stack.callback(server.close)
        return server

    @cached_property
    def s3(self) -> S3Server:
        """The tests' own server of the S3 protocol."""
        from tests.support.servers.s3 import S3Server

        server = S3Server()
        self._stack.callback(server.stop)
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


@contextmanager
def on_redis() -> Iterator[tuple[Path, str]]:
    """A folder for a run, and the URL of a server of Redis."""
    load = f"{os.getloadavg()[0]:.1f}"
    with workplace(load=load, Redis="appendonly yes, at a Unix socket") as folder, Servers() as servers:
        yield folder, servers.redis.url


@asynccontextmanager
async def started(service: type[Any], url: str) -> AsyncIterator[Any]:
    """A service, ours or another one, from its start to its stop."""
    own = service(redis_url=url)
    await own.start()
    yield own
    await own.stop()


def in_processes(work: Callable[..., None], count: int, *arguments: object) -> None:
    """Run a function in a number of processes at once, each with its number as the last argument."""
    context = multiprocessing.get_context("fork")
    clients = [context.Process(target=work, args=(*arguments, number)) for number in range(count)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
