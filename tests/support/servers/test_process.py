"""The servers of the tests: none is left running, and a missing one is not a skip. The proxy counts requests."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.support.processes import start
from tests.support.servers.process import ServerProcess, find_binary
from tests.support.servers.proxy import Fault, Proxy
from tests.support.servers.redis import RedisServer
from tests.support.waiting import eventually

PROGRAM = """
    import os, sys
    from tests.support.servers.redis import RedisServer
    server = RedisServer()
    print(server.folder, flush=True)
    exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    "end",
    ["os._exit(1)", "os.kill(os.getpid(), 9)", "sys.exit(0)", "raise SystemError", "server.suspend(); os._exit(1)"],
)
def test_server_goes_with_the_process_that_started_it(end: str) -> None:
    process = start(PROGRAM, end)
    out, _ = process.communicate(timeout=60)
    folder = Path(out.strip())
    assert folder.name.startswith("vs-redis-")
    assert eventually(lambda: not folder.exists(), 30)
    assert not _answers(folder / "s")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(str(path)) == 0


def test_missing_server_is_a_loud_failure() -> None:
    with pytest.raises(RuntimeError, match="no server was found"):
        find_binary("Redis", None, "no-such-server", Path("/no/such/server"))


def test_server_that_does_not_start_says_why() -> None:
    server = ServerProcess("wrong")
    try:
        with pytest.raises(RuntimeError, match=r"(?s)ended with 3; it said:.*the reason"):
            server.start(["/bin/sh", "-c", "echo the reason; exit 3"], lambda: False)
        with pytest.raises(RuntimeError, match="was not ready"):
            server.start(["/bin/sh", "-c", "sleep 100"], lambda: False, timeout=0.1)
        server.start(
            ["/bin/sh", "-c", "trap '' TERM; touch up; while :; do sleep 0.1; done"], (server.folder / "up").exists
        )
        with pytest.raises(RuntimeError, match="did not end"):
            server.stop(timeout=0.3)
        with pytest.raises(RuntimeError, match=r"(?s)ended with 2.*out"):
            server.run("/bin/sh", "-c", "echo out; exit 2")
    finally:
        server.close()
    assert not server.folder.exists()


def test_restart_and_signals() -> None:
    server = RedisServer()
    for how in (signal.SIGTERM, signal.SIGINT):
        server.stop(how)
        assert not _answers(server.socket_path)
        server.restart()
        assert _answers(server.socket_path)
    server.kill()
    server.kill()
    assert not _answers(server.socket_path)
    server.close()
    server.close()


def test_proxy(redis_server: RedisServer) -> None:
    with Proxy(redis_server.socket_path) as proxy:

        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", proxy.port), timeout=30)

        with connect() as client:
            for _ in range(3):
                client.sendall(b"PING\r\nPING\r\n")
                assert client.recv(14, socket.MSG_WAITALL) == b"+PONG\r\n+PONG\r\n"
            assert proxy.requests == 3
            proxy.arm(Fault("hold reply", at=2, passing=3))
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PONG\r\n"
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PO"
            assert proxy.fired == 1
            proxy.disarm()
            assert client.recv(100) == b"NG\r\n"
            proxy.arm(Fault("cut reply", passing=2))
            client.sendall(b"PING\r\n")
            assert client.recv(100, socket.MSG_WAITALL) == b"+P"
        with connect() as client:
            proxy.arm(Fault("cut request", passing=7))
            client.sendall(b"PING\r\nPING\r\n")
            assert client.recv(100, socket.MSG_WAITALL) in (b"+PONG\r\n", b"")
        proxy.accepting = False
        with connect() as client:
            assert client.recv(100) == b""
