"""`Redis` and its server: servers that it refuses, its requests, and its errors when the server refuses one."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import socket
import ssl
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.servers.ports import quiet_port
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from versioned_state.errors import (
    CorruptStoreError,
    FormatError,
    InvalidArgumentError,
    LimitExceededError,
    NotAStoreError,
    ReadOnlyError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreNotFoundError,
    UnreachableStoreError,
    UnsafeStoreError,
)
from versioned_state.storage.redis import errors
from versioned_state.storage.redis.store import MAX_VALUE_BYTES, Redis, _info, check_server

SECRET = "hunter2-%/?#@"
SECRET_QUOTED = "hunter2-%25%2F%3F%23%40"


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """A server whose settings the tests of this file change, and change back."""
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def admin(own_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(own_server.socket_path)) as client:
        yield client


@pytest.fixture
def prefix(redis_server: RedisServer) -> str:
    return redis_server.fresh_prefix()


# What is refused


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_server_that_evicts_is_refused(own_server: RedisServer, admin: redis.Redis, policy: str) -> None:
    admin.config_set("maxmemory-policy", policy)
    try:
        with pytest.raises(UnsafeStoreError, match=policy) as caught:
            Redis(own_server.url)
        assert "noeviction" in caught.value.hint
    finally:
        admin.config_set("maxmemory-policy", "noeviction")
    Redis(own_server.url).close()
    assert admin.keys() == []


def test_replica_is_refused(own_server: RedisServer, admin: redis.Redis) -> None:
    admin.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(ReadOnlyError, match="replica"):
            Redis(own_server.url)
    finally:
        admin.replicaof("NO", "ONE")


@pytest.mark.parametrize("version", ["6.0.16", "5.0", "2.8.0", "", "x"])
def test_old_server_is_refused(version: str) -> None:
    with pytest.raises(UnsafeStoreError, match=r"6\.2 or newer"):
        check_server({"redis_version": version, "maxmemory_policy": "noeviction", "role": "master"}, "here")


@pytest.mark.parametrize("version", ["6.2.0", "6.2", "7.0.15", "8.4.0", "10.0.1"])
def test_newer_server_is_accepted(version: str) -> None:
    check_server(
        _info(f"# Server\r\nredis_version:{version}\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n".encode()), "here"
    )


def test_server_that_does_not_say_whether_it_evicts_is_refused() -> None:
    with pytest.raises(UnsafeStoreError, match="does not report"):
        check_server({"redis_version": "7.2.4", "role": "master"}, "here")


def test_decoded_responses_are_refused(redis_server: RedisServer) -> None:
    for option in ("true", "True", "1", "yes"):
        with pytest.raises(InvalidArgumentError, match="decode_responses"):
            Redis(f"{redis_server.url}?decode_responses={option}")
    with pytest.raises(InvalidArgumentError, match="decode_responses"):
        Redis(redis_server.url, decode_responses=True)
    with Redis(f"{redis_server.url}?decode_responses=false", prefix=redis_server.fresh_prefix()) as store:
        store.set("k", b"\xff")
        assert store.get("k") == b"\xff"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis",
        "http://host",
        "redis:/host",
        "redis://host/name",
        "redis://host/1/2",
        "redis://host/-1",
        "redis://host:port",
        *("redis://[::1", "redis://host?db=x", "redis://:pa:ss@host:x/0"),
    ],
)
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a Redis URL"):
        Redis(url)


def test_bad_arguments_are_refused(redis_server: RedisServer) -> None:
    for wrong in ("", "{", "a}b", "{}", "\ud800"):
        with pytest.raises(InvalidArgumentError):
            Redis(redis_server.url, prefix=wrong)
    for timeout in (0, -1, float("nan")):
        with pytest.raises(InvalidArgumentError):
            Redis(redis_server.url, timeout=timeout)
    with pytest.raises(InvalidArgumentError, match="no_such_option"):
        Redis(redis_server.url, no_such_option=1)
    with pytest.raises(InvalidArgumentError, match="protocol"):
        Redis(redis_server.url, protocol=4)


# What is there already


def test_keys_of_somebody_else_are_not_touched(redis_server: RedisServer) -> None:
    with redis.Redis(unix_socket_path=str(redis_server.socket_path)) as admin:
        for name, value in (("entries", "text"), ("names", "text"), ("layout", "text"), ("layout", "-1")):
            prefix = redis_server.fresh_prefix()
            admin.set(f"{{{prefix}}}:{name}", value)
            with pytest.raises(NotAStoreError, match=prefix):
                Redis(redis_server.url, prefix=prefix)
            assert admin.keys(f"*{prefix}*") == [f"{{{prefix}}}:{name}".encode()]
        prefix = redis_server.fresh_prefix()
        admin.set(f"{{{prefix}}}:o:2a", "text")
        with (
            Redis(redis_server.url, prefix=prefix) as store,
            pytest.raises(NotAStoreError, match="do not belong to a store") as caught,
        ):
            store.get("o/ab")
        assert isinstance(caught.value.__cause__, redis.ResponseError)


def test_store_of_a_newer_release_is_refused(redis_server: RedisServer, prefix: str) -> None:
    Redis(redis_server.url, prefix=prefix).close()
    with redis.Redis(unix_socket_path=str(redis_server.socket_path)) as admin:
        assert admin.keys(f"*{prefix}*") == []  # opening writes nothing
        admin.set(f"{{{prefix}}}:layout", 2)
    with pytest.raises(FormatError):
        Redis(redis_server.url, prefix=prefix)


def test_store_that_is_not_to_be_created(redis_server: RedisServer, prefix: str) -> None:
    with pytest.raises(StoreNotFoundError):
        Redis(redis_server.url, prefix=prefix, create=False)
    with Redis(redis_server.url, prefix=prefix) as store:
        store.set("o/ab", b"")
    Redis(redis_server.url, prefix=prefix, create=False).close()


def test_name_that_is_not_text_is_damage(redis_server: RedisServer, prefix: str) -> None:
    with (
        redis.Redis(unix_socket_path=str(redis_server.socket_path)) as admin,
        Redis(redis_server.url, prefix=prefix) as store,
    ):
        store.set("k", b"1")
        admin.zadd(f"{{{prefix}}}:names", {b"\xff": 0})
        with pytest.raises(CorruptStoreError):
            list(store.keys())


def test_prefixes_and_databases_keep_stores_apart(redis_server: RedisServer) -> None:
    same = redis_server.fresh_prefix()
    places = [
        (redis_server.url, name) for name in (same, same + "x", same + ":o", "*" + same[1:], same.upper(), "é" + same)
    ]
    places.append((f"{redis_server.url}?db=3", same))
    stores = [Redis(url, prefix=prefix) for url, prefix in places]
    for number, store in enumerate(stores):
        store.apply({}, {"ref": b"%d" % number}, objects={f"o/{number:02x}": b"%d" % number, "o/odd": b"%d" % number})
    for number, store in enumerate(stores):
        assert dict(store.items()) == {
            "ref": b"%d" % number,
            f"o/{number:02x}": b"%d" % number,
            "o/odd": b"%d" % number,
        }
        store.close()


# Memory


def test_full_server_refuses_and_nothing_is_written(own_server: RedisServer, admin: redis.Redis) -> None:
    with Redis(own_server.url, prefix="full") as store:
        store.apply({}, {"ref": b"1", "other": b"x"}, objects={"o/aa": b"A", "o/bb": b"B" * 100_000})
        before = dict(store.items())
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] - 10_000)
        try:
            for write in (
                lambda: store.apply({"ref": b"1"}, {"ref": b"2"}, objects={"o/cc": b"C"}),
                lambda: store.apply({"ref": b"1"}, {"ref": b"2"}),
                lambda: store.apply({}, {}, objects={"o/odd one": b"C"}),
                lambda: store.apply(
                    {"ref": b"1"}, {"ref": b"2"}, objects={f"o/{number:06x}": b"v" for number in range(2500)}
                ),
                lambda: store.apply(
                    {}, {"ref": b"2"}, objects={f"o/{number:06x}": bytes(900_000) for number in range(12)}
                ),
                lambda: store.set("new", b"1"),
            ):
                with pytest.raises(StorageFullError, match="nothing was written") as caught:
                    write()
                assert isinstance(caught.value.__cause__, redis.ResponseError)
                assert dict(store.items()) == before
            assert store.apply({"ref": b"0"}, {"ref": b"2"}) is False
            # Garbage can be collected, and the batch that does it may leave a note.
            assert store.apply({"ref": b"1"}, {"ref": b"2"}, ["o/bb", "other"])
        finally:
            admin.config_set("maxmemory", 0)
        assert dict(store.items()) == {"ref": b"2", "o/aa": b"A"}
        assert store.apply({"ref": b"2"}, {"ref": b"3"}, objects={"o/cc": b"C"})


def test_batch_of_many_parts_that_fills_the_server_publishes_nothing(
    own_server: RedisServer, admin: redis.Redis
) -> None:
    objects = {f"o/{number:06x}": os.urandom(500_000) for number in range(40)}
    with Redis(own_server.url, prefix="parts") as store:
        store.set("ref", b"1")
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 5_000_000)
        try:
            with pytest.raises(StorageFullError):
                store.apply({"ref": b"1"}, {"ref": b"2"}, objects=objects)
            stored = dict(store.items("o/"))
            assert 0 < len(stored) < len(objects)
            assert stored.items() <= objects.items()
        finally:
            admin.config_set("maxmemory", 0)
        assert store.get("ref") == b"1"
        assert store.apply({"ref": b"1"}, {"ref": b"2"}, objects=objects)
        assert store.get_many(objects) == objects


def test_values_beyond_the_limits_of_a_server_are_refused_before_anything_is_written(
    redis_server: RedisServer, prefix: str
) -> None:
    with Redis(redis_server.url, prefix=prefix) as store:
        huge = bytes(MAX_VALUE_BYTES + 1)
        for write in (
            lambda: store.set("k", huge),
            lambda: store.apply({}, {"k": b"1"}, objects={"o/00": b"", "o/ab": huge}),
        ):
            with pytest.raises(LimitExceededError):
                write()
        with pytest.raises(LimitExceededError):
            store.delete_many([f"k/{number}" for number in range(600_000)])
        assert list(store.keys()) == []


# Round trips


def test_round_trips(redis_server: RedisServer, prefix: str) -> None:
    with Proxy(redis_server.socket_path) as proxy, Redis(f"redis://127.0.0.1:{proxy.port}", prefix=prefix) as store:

        def trips(work: Any) -> int:
            proxy.requests = 0
            work()
            return proxy.requests

        objects = {f"o/{os.urandom(24).hex()}": os.urandom(1000) for _ in range(10)}
        assert trips(lambda: store.apply({"ref": None}, {"ref": b"1"}, objects=objects)) == 1
        assert trips(lambda: store.apply({"ref": b"0"}, {"ref": b"2"}, objects=objects)) == 1
        many = {f"o/{os.urandom(24).hex()}": os.urandom(500) for _ in range(2500)}
        # Ten runs of the script, sent without waiting: the server may answer one before it has read the next.
        assert trips(lambda: store.apply({"ref": b"1"}, {"ref": b"2"}, objects=many)) <= 10
        assert trips(lambda: store.get("ref")) == 1
        some = [*[*many][:300], "ref", "absent"]
        found: dict[str, bytes] = {}
        # One request, which the driver sends in two pieces: the server may answer the first before it has read the
        # second.
        assert trips(lambda: found.update(store.get_many(some))) <= 2
        assert found == {**{key: many[key] for key in some[:300]}, "ref": b"2"}
        assert trips(lambda: list(store.keys("r"))) == 1
        assert trips(lambda: list(store.keys("o/"))) <= 3  # odd ones, and at most two pages
        assert trips(lambda: store.delete_many(many)) == 1
        # two of them redis-py's, for its name
        assert trips(lambda: Redis(f"redis://127.0.0.1:{proxy.port}", prefix=prefix).close()) <= 3


# Users and passwords


def _everything_said(error: BaseException) -> str:
    said = "".join(traceback.format_exception(error)) + repr(error)
    while error.__context__ is not None:
        error = error.__context__
        said += str(error) + repr(error)
    return said


def test_password_is_used_and_never_shown() -> None:
    server = RedisServer(requirepass=SECRET)
    proxy = Proxy(server.socket_path)
    with Redis(f"unix://:{SECRET_QUOTED}@{server.socket_path}") as store:
        store.set("k", b"1")
        assert "hunter2" not in repr(store) + str(store) + repr(vars(store)["_link"])
        server.kill()
        with pytest.raises(UnreachableStoreError) as gone:
            Redis(f"redis://user:{SECRET_QUOTED}@127.0.0.1:{proxy.port}/0")
        assert "hunter2" not in _everything_said(gone.value)
        server.restart()
    with Redis(f"redis://127.0.0.1:{proxy.port}", password=SECRET) as store:
        assert "hunter2" not in repr(store)
    cases: list[tuple[str, dict[str, Any]]] = [
        (f"redis://:{SECRET_QUOTED}x@127.0.0.1:{proxy.port}", {}),
        (f"redis://nobody:{SECRET_QUOTED}@127.0.0.1:{proxy.port}", {}),
        (f"redis://127.0.0.1:{proxy.port}", {}),
        (f"redis://127.0.0.1:{proxy.port}", {"password": "hunter2"}),
        (f"redis://127.0.0.1:{proxy.port}?password=hunter2", {}),
    ]
    for url, options in cases:
        with pytest.raises(StorageError, match="requires a user name and password") as caught:
            Redis(url, **options)
        assert "hunter2" not in _everything_said(caught.value)
    for wrong in (
        "redis://:hunter2@host:hunter2",
        "redis://:hunter2/x@host",
        "http://:hunter2@host",
        "redis://:hunter2@host/name",
    ):
        with pytest.raises(InvalidArgumentError) as refused:
            Redis(wrong)
        assert "hunter2" not in _everything_said(refused.value)
    proxy.close()
    server.close()


def test_user_who_may_do_little(own_server: RedisServer, admin: redis.Redis) -> None:
    at = f"unix://limited:pw@{own_server.socket_path}"
    admin.acl_setuser("limited", enabled=True, passwords=["+pw"], keys=["{mine}:*"], commands=["+@all", "-config"])
    try:
        with Redis(at, prefix="mine") as store:
            assert store.apply({"k": None}, {"k": b"1"}, objects={"o/ab": b"x"})
            assert sorted(store.keys()) == ["k", "o/ab"]
            assert store.persistence == "unknown"
        with pytest.raises(StorageError, match="not permit"):
            Redis(at, prefix="theirs")
        admin.acl_setuser("limited", enabled=True, commands=["-hget"])
        with Redis(at, prefix="mine") as store, pytest.raises(StorageError, match="not permit"):
            store.get("k")
    finally:
        admin.acl_deluser("limited")


def test_least_rights_that_suffice(own_server: RedisServer, admin: redis.Redis) -> None:
    """The list that docs/operations.md gives."""
    commands = (
        "info get setnx type script|load evalsha hget hmget hset hsetnx hexists hdel hkeys zadd zrem zrangebylex select"
    ).split()
    admin.acl_setuser(
        "least", enabled=True, passwords=["+pw"], keys=["{least}:*"], commands=["+" + name for name in commands]
    )
    try:
        with Redis(f"unix://least:pw@{own_server.socket_path}", prefix="least") as store:
            assert store.apply({"k": None}, {"k": b"1"}, objects={"o/ab": b"x", "o/odd": b"y"})
            assert dict(store.items()) == {"k": b"1", "o/ab": b"x", "o/odd": b"y"}
            admin.script_flush()
            store.delete_many(["k", "o/ab", "o/odd"])
            assert list(store.keys()) == []
            assert store.persistence == "unknown"
    finally:
        admin.acl_deluser("least")


def test_persistence(own_server: RedisServer, admin: redis.Redis) -> None:
    found = []
    with Redis(own_server.url) as store:
        for name, value in (
            ("save", ""),
            ("save", "3600 1"),
            ("appendonly", "yes"),
            ("appendonly", "no"),
            ("save", ""),
        ):
            admin.config_set(name, value)
            found.append(store.persistence)
    assert found == ["none", "snapshots", "aof", "snapshots", "none"]


# What the server says


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            "Error running script (call to f_ab): @user_script:12: @user_script: 12: -OOM command not allowed",
            StorageFullError,
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.",
            UnsafeStoreError,
        ),
        ("NOREPLICAS Not enough good replicas to write.", UnreachableStoreError),
        ("BUSY Redis is busy running a script.", StoreBusyError),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", NotAStoreError),
        ("ERR something ELSE", StorageError),
    ],
)
def test_words_of_the_server(said: str, error: type[StateError]) -> None:
    assert type(errors.refusal(redis.ResponseError(said), "here")) is error


def test_server_that_is_demoted_and_comes_back(own_server: RedisServer, admin: redis.Redis) -> None:
    with (
        Redis(own_server.url, prefix="demoted", timeout=2) as store,
        Redis(own_server.url, prefix="demoted", timeout=30) as patient,
    ):
        store.set("k", b"1")
        admin.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(UnreachableStoreError, match="replica"):
                store.set("k", b"2")
            assert store.get("k") == b"1"
            writer = threading.Thread(target=patient.set, args=("k", b"3"))
            writer.start()
        finally:
            admin.replicaof("NO", "ONE")
        writer.join()
        assert store.get("k") == b"3"


def test_what_is_not_redis_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(1000)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            with pytest.raises(NotAStoreError, match="does not speak"):
                Redis(f"redis://127.0.0.1:{listener.getsockname()[1]}", timeout=20)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# TLS and Cluster


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    return folder / "cert.pem", folder / "key.pem"


class TlsFront:
    """Takes TLS off and passes the rest on: the packaged servers are built without it."""

    def __init__(self, target: Path, certificate: Path, key: Path) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context), self._loop
        ).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._target)
        await asyncio.gather(_pass_on(reader, server_writer), _pass_on(server_reader, writer), return_exceptions=True)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if others:
                await asyncio.wait(others, timeout=10)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def test_tls(redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path)
    front = TlsFront(redis_server.socket_path, certificate, key)
    try:
        url = f"rediss://127.0.0.1:{front.port}/2"
        with Redis(f"{url}?ssl_ca_certs={certificate}", prefix=prefix) as store:
            assert repr(store) == f"<Redis {url} {prefix!r}>"
            objects = {f"o/{number:06x}": os.urandom(50_000) for number in range(100)}
            assert store.apply({"ref": None}, {"ref": b"1"}, objects=objects)
            assert store.get_many(objects) == objects
        with pytest.raises(UnreachableStoreError, match=r"(?i)certificate"):
            Redis(url)
        with pytest.raises(UnreachableStoreError, match="No such file"):
            Redis(f"{url}?ssl_ca_certs={tmp_path}/absent.pem")
    finally:
        front.close()


def test_cluster() -> None:
    """A store's keys are all on one server of the Cluster, found from any of them, also after they have moved."""
    ports = [quiet_port(), quiet_port()]
    servers = [
        RedisServer(
            port=str(port),
            bind="127.0.0.1",
            cluster_enabled="yes",
            cluster_port=str(quiet_port()),
            cluster_require_full_coverage="no",
        )
        for port in ports
    ]
    clients = [redis.Redis(unix_socket_path=str(server.socket_path)) for server in servers]
    try:
        ids = [client.execute_command("CLUSTER MYID").decode() for client in clients]
        slot = clients[0].execute_command("CLUSTER KEYSLOT", "{c}:entries")
        assert {
            clients[0].execute_command("CLUSTER KEYSLOT", f"{{c}}:{name}")
            for name in ("names", "layout", "o:00", "o:3f")
        } == {slot}
        _meet(clients, servers, ports)
        for client in clients:
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
        with Redis(f"redis://127.0.0.1:{ports[0]}", prefix="c") as store, Redis(servers[1].url, prefix="c") as other:
            objects = {f"o/{number:04x}": b"v" for number in range(500)}
            assert store.apply({"ref": None}, {"ref": b"1"}, objects=objects)
            assert store.get_many([*objects, "ref"]) == {**objects, "ref": b"1"}
            assert dict(store.items()) == {**objects, "ref": b"1"} == dict(other.items())
            assert (clients[0].dbsize(), clients[1].dbsize() > 0) == (0, True)
            # A server that goes away, with the way there kept: the one that was given is asked again.
            servers[1].kill()
            servers[1].restart()
            assert store.get("ref") is None
    finally:
        for client in clients:
            client.close()
        for server in servers:
            server.close()


def _meet(clients: list[redis.Redis], servers: list[RedisServer], ports: list[int]) -> None:
    bus = servers[1]._options["cluster-port"]
    clients[0].execute_command("CLUSTER MEET", "127.0.0.1", ports[1], bus)
    for _ in range(600):
        if all(client.cluster("info")["cluster_known_nodes"] == "2" for client in clients):
            return
        threading.Event().wait(0.05)
    raise AssertionError("the servers of the cluster do not meet")
