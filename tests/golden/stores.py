"""One small store as each backend keeps it: each type of value, trees of several levels, segments, each kind of record.

``store-1`` is larger and has all sizes of values; these have the same keys at five places. ``python -m
tests.golden.stores`` writes them anew, with the servers of the tests. That is only right before a release has gone out:
afterwards a format that differs is a new version, with stores of its own beside these.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import lzma
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import redis

from tests.golden.cases import VALUES, golden_repository
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.s3 import S3Server
from versioned_state import ActionEvent, Disk, KVStore, Memory, Repository, Versioned, effect, emit, task
from versioned_state.repository.history.signing import Signer
from versioned_state.storage import DiskCache, Encrypted, Postgres, Redis

FOLDER = Path(__file__).parent / "stores-1"
SIGNER = Signer(bytes(range(32)))
KEY = bytes(range(32, 64))

_LARGE = {
    "one long line",
    "long bytes",
    "long bytearray",
    "large array",
    "long frozenset",
    "long list",
    "long list of numbers",
}
SMALL: dict[str, Any] = {
    **{name: value for name, value in VALUES.items() if "long" not in name.split() and "large" not in name.split()},
    # Trees of two levels above their leaves, which compress to little.
    "tall list": [*["y" * 300] * 6500, *({"n": n, "text": "z" * n} for n in range(12))],
    "tall map": {f"k{n:04}": {"n": n} for n in range(330)},
    "tall bytes": bytes(50 << 16) + b"end",
    "long text": "".join(f"line {n}: {'text ' * (n % 20)}\n" for n in range(200)),
    "long dict in an order of its own": VALUES["long dict in an order of its own"],
    "long tuple": tuple(f"element {n}" * 3 for n in range(600)),
    "long set": {f"m{n}" for n in range(500)},
    "large tagged": VALUES["large tagged with notes"],
    "large array": VALUES["large array"][:9, :7] * 0 + 1,
}


@task
def work(city: str) -> str:
    emit(ActionEvent(thinking="because", code=f"go({city!r})"))
    return city


def fill(store: KVStore) -> None:
    """Fill a store with one of everything."""
    clock = itertools.count(1_700_000_000_000_000, 1_000_003)
    repository = Repository(store, clock=lambda: next(clock), author="golden")
    state = Versioned(repository)
    state.update(SMALL | {"list": [*SMALL["list"]]})  # the state keeps the values themselves
    state.commit("all of them", meta={"kinds": len(SMALL), "tuple": (1, None)})
    repository.tags.create("v1", message="the first\nand its story", author="annotator")
    state["list"].append("more")
    state.namespace("space").namespace("inner")["k"] = {"deep": [1]}
    state.commit("changed", author="another", tag="v2")
    for n in range(14):
        state["list"].append({"n": n})
        state.commit(str(n))
    side = Versioned(repository, branch="side", ttl_seconds=3600)
    side["side"] = True
    side.commit()
    repository.branches.create("topic", "main~5")
    topic = Versioned(repository, branch="topic")
    topic["topic"] = [1]
    topic.commit("a topic")
    state.merge("topic")
    state.reset("HEAD~1")
    state.merge("topic", message="again")
    repository.branches.rename("topic", "renamed/topic")
    repository.branches.create("deleted", "main")
    repository.branches.delete("deleted")
    for city in ("Rome", "Oslo", "Lima"):
        assert work(city, state=state) == city
    effect("pay:1", lambda order: {"receipt": order}, 1, state=state)
    with contextlib.suppress(ConnectionError):
        effect("pay:2", _no_answer, state=state)
    with state.lock(ttl=5):
        state["locked"] = 1
        state.commit("with a lock")
    repository.notes["v1"] = {"score": 0.5, "tags": ("a",)}
    repository.notes["main"] = {"text": "a note " * 100}
    repository.records["main/status"] = {"step": 3, "at": (1, 2)}
    repository.records["side"] = {"large": "x" * 3000}
    repository.set_merge_policy("prefs.*", "theirs")
    repository.set_merge_policy("log", "append")
    signed = Versioned(Repository(store, clock=lambda: next(clock), author="golden", signer=SIGNER), branch="signed")
    signed["signed"] = True
    signed.commit("signed", tag="v3")
    signed["signed"] = "twice"
    signed.commit("signed again")
    line = Versioned(repository, branch="pruned")
    for n in range(10):
        line["n"] = n
        line.commit(f"round {n}")
    repository.prune(keep_last=3, branches="pruned", expire=timedelta(days=1), keep_tagged=False)
    repository.gc(expire=timedelta(days=1))
    state["after gc"] = 1
    state.commit("a ref that has moved since the marking")
    repository.gc(expire=timedelta(days=1), time_limit=1e-9)
    with Versioned(repository, branch="objects") as objects:
        objects["object"] = [slice(1, 2, 3)]
        objects.commit("an object")


def fill_encrypted(store: KVStore) -> None:
    """Fill a small store over another one: the values of the large one are sealed no differently."""
    state = Versioned(golden_repository(store))
    state.update({"messages": [{"n": n} for n in range(200)], "nothing": None, "text": "line\n" * 3000})
    state.commit("sealed")
    state["messages"].append("more")
    state.commit("sealed again", tag="a-tag/of-two-parts")
    state.repository.notes["main"] = {"score": 1}


def _no_answer() -> None:
    raise ConnectionError


def copy_to(source: KVStore, target: KVStore) -> None:
    """Copy every key to an empty store."""
    items = dict(source.items())
    target.apply({}, {}, objects={key: value for key, value in items.items() if key.startswith("o/")})
    for key, value in items.items():
        if not key.startswith("o/"):
            target.set(key, value)


def pack(dump: Any) -> bytes:
    return lzma.compress(json.dumps(dump, sort_keys=True).encode(), preset=9)


# The servers' own content: out of a server, and back into one


def dump_redis(url: str, prefix: str) -> dict[str, Any]:
    with redis.Redis.from_url(url) as server:
        found: dict[str, Any] = {}
        for key in server.keys(f"{{{prefix}}}:*"):
            name, kind = key.decode().partition("}:")[2], server.type(key).decode()
            if kind == "hash":
                found[name] = {field.hex(): value.hex() for field, value in server.hgetall(key).items()}
            elif kind == "zset":
                found[name] = [member.hex() for member in server.zrange(key, 0, -1)]
            else:
                found[name] = server.get(key).decode()
        return found


def load_redis(url: str, prefix: str, dump: dict[str, Any]) -> None:
    with redis.Redis.from_url(url) as server:
        for name, content in dump.items():
            key = f"{{{prefix}}}:{name}"
            if isinstance(content, dict):
                server.hset(
                    key, mapping={bytes.fromhex(field): bytes.fromhex(value) for field, value in content.items()}
                )
            elif isinstance(content, list):
                server.zadd(key, {bytes.fromhex(member): 0 for member in content})
            else:
                server.set(key, content)


_TABLES = ("objects", "entries")


def dump_postgres(url: str, schema: str) -> dict[str, Any]:
    with psycopg.connect(url) as link:
        found: dict[str, Any] = {
            "format": [list(row) for row in link.execute(f'SELECT version FROM "{schema}".format')]
        }
        for table in _TABLES:
            rows = link.execute(f'SELECT key, value FROM "{schema}".{table} ORDER BY key').fetchall()
            found[table] = [[key.hex(), value.hex()] for key, value in rows]
        return found


def load_postgres(url: str, schema: str, dump: dict[str, Any]) -> None:
    """Fill the tables of a new store, whose functions are those of the release at work."""
    Postgres(url, schema=schema).close()
    with psycopg.connect(url) as link:
        assert [list(row) for row in link.execute(f'SELECT version FROM "{schema}".format')] == dump["format"]
        for table in _TABLES:
            with link.cursor().copy(f'COPY "{schema}".{table} (key, value) FROM STDIN') as rows:
                for key, value in dump[table]:
                    rows.write_row((bytes.fromhex(key), bytes.fromhex(value)))


def dump_bucket(server: S3Server, prefix: str) -> dict[str, str]:
    names = server.names(f"{prefix}/")
    return {name.removeprefix(f"{prefix}/"): server.raw(name).hex() for name in names}


def load_bucket(server: S3Server, prefix: str, dump: dict[str, str]) -> None:
    for name, body in dump.items():
        server.raw(f"{prefix}/{name}", bytes.fromhex(body))


def write() -> None:
    """Write all of them anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    source = Memory()
    fill(source)
    with Disk(FOLDER / "disk") as store:
        copy_to(source, store)
        store.compact()
    with Disk(FOLDER / "encrypted") as store:
        fill_encrypted(Encrypted(store, KEY))
        store.compact()
    with DiskCache(FOLDER / "diskcache") as store:
        copy_to(source, store)
    (file,) = (FOLDER / "diskcache").glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for each in (*FOLDER.glob("*/*-wal"), *FOLDER.glob("*/*-shm")):
        each.unlink()
    with contextlib.closing(RedisServer()) as server:
        with Redis(server.url, prefix="golden") as store:
            copy_to(source, store)
        (FOLDER / "redis.json.xz").write_bytes(pack(dump_redis(server.url, "golden")))
    with contextlib.closing(PostgresServer()) as database_server:
        with Postgres(database_server.url, schema="golden") as store:
            copy_to(source, store)
        (FOLDER / "postgresql.json.xz").write_bytes(pack(dump_postgres(database_server.url, "golden")))
    buckets = S3Server()
    try:
        with buckets.open("golden") as store:
            copy_to(source, store)
        (FOLDER / "s3.json.xz").write_bytes(pack(dump_bucket(buckets, "golden")))
    finally:
        buckets.stop()


if __name__ == "__main__":
    from tests.golden import stores  # so that its task has the name that it has in the tests

    stores.write()
