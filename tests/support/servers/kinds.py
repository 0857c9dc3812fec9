"""The kinds of server that hold stores, for tests of what all of them promise: `REDIS` and `POSTGRES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from versioned_state import KVStore
from versioned_state.storage import Postgres, Redis


@dataclass(frozen=True)
class ServerKind:
    """A kind of server.

    Attributes:
        fixture: the name of the fixture with the server that all tests share.
        start: starts one of the test's own, which has all that it acknowledged after it was killed.
        name_option: the option of a store that keeps it apart from others on the server.
    """

    store: type[Redis | Postgres]
    fixture: str
    start: Callable[[], RedisServer | PostgresServer]
    name_option: str

    def __str__(self) -> str:
        return self.store.__name__

    def open(self, url: str, name: str, *, timeout: float = 10.0) -> KVStore:
        """Open the store of a name, which the first opener makes."""
        options: dict[str, Any] = {self.name_option: name}
        return self.store(url, timeout=timeout, **options)


REDIS = ServerKind(Redis, "redis_server", partial(RedisServer, appendonly="yes", appendfsync="no"), "prefix")
POSTGRES = ServerKind(Postgres, "postgres_server", partial(PostgresServer, fsync="on", full_page_writes="on"), "schema")
SERVERS = (REDIS, POSTGRES)


def fresh_name() -> str:
    """Return a name that no other test has."""
    return f"t_{uuid4().hex}"


@dataclass(frozen=True)
class Place:
    """A store on a server, `direct`, and the same store behind a proxy, which `open` opens with a timeout."""

    proxy: Proxy
    open: Callable[[float], KVStore]
    direct: KVStore


@pytest.fixture(params=SERVERS, ids=str)
def server_kind(request: pytest.FixtureRequest) -> ServerKind:
    kind: ServerKind = request.param
    return kind


@pytest.fixture
def place_behind_proxy(request: pytest.FixtureRequest, server_kind: ServerKind) -> Iterator[Place]:
    server: RedisServer | PostgresServer = request.getfixturevalue(server_kind.fixture)
    name = fresh_name()
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.socket_path))
        url = server.url_through(proxy)
        direct = stack.enter_context(server_kind.open(server.url, name))
        yield Place(proxy, lambda timeout: stack.enter_context(server_kind.open(url, name, timeout=timeout)), direct)
