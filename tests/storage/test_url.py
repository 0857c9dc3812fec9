"""`open_store` and `versioned_state.open`, and what the package exports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

import versioned_state
from tests.support.processes import ROOT, run
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.s3 import SECRET, S3Server
from tests.support.servers.s3_server import BUCKET
from versioned_state import storage
from versioned_state.errors import (
    InvalidArgumentError,
    NotAStoreError,
    PickleRefusedError,
    ReadOnlyError,
    StateError,
    StorageError,
    StoreClosedError,
    StoreNotFoundError,
    WrongKeyError,
)
from versioned_state.storage import Cache, Disk, DiskCache, Encrypted, Memory, open_store
from versioned_state.storage.url import is_remote, redact

# Either says that a store is to be there already.
MISSING: tuple[dict[str, Any], ...] = ({"create": False}, {"read_only": True})


def test_memory() -> None:
    with open_store("memory:") as store:
        assert isinstance(store, Memory)
        store.set("k", b"1")
    with open_store("MEMORY:", read_only=True) as store, pytest.raises(ReadOnlyError):
        store.set("k", b"1")


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (f"disk:{tmp_path}/s", f"{tmp_path}/s", tmp_path / "s", "disk:s", "s", "./s", "Disk:./s"):
        with open_store(url) as store:
            assert isinstance(store, Disk)
            assert store.path.resolve() == tmp_path.resolve() / "s"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("C:\\state", "C:\\state"),
        ("c:state", "c:state"),
        ("./a:b", "a:b"),
        ("disk:a:b", "a:b"),
        ("disk:redis://x", "redis:/x"),
        ("a.b:c", "a.b:c"),
        ("a/b:c", "a/b:c"),
        ("1:2", "1:2"),
        (":x", ":x"),
        ("disk:a%20b", "a%20b"),
        ("disk:~", "~"),
        ("a b:c", "a b:c"),
        ("memory", "memory"),
        ("disk:new\nline", "new\nline"),
    ],
)
def test_colons_that_make_no_scheme(url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(url) as store:
        assert isinstance(store, Disk)
        assert str(store.path) == path
    assert (tmp_path / path / "store.sqlite3").exists()


def test_diskcache(tmp_path: Path) -> None:
    url = f"diskcache:{tmp_path}/s"
    for missing in MISSING:
        with pytest.raises(StoreNotFoundError):
            open_store(url, **missing)
    with open_store(url) as store:
        assert isinstance(store, DiskCache)
        store.set("k", b"1")
    with open_store(url, read_only=True) as store:
        assert store.get("k") == b"1"
        with pytest.raises(ReadOnlyError):
            store.set("k", b"2")
    with pytest.raises(InvalidArgumentError, match="without //"):
        open_store("diskcache://x")


# Across a network


Place = Callable[[], str]


@pytest.fixture
def redis_place(redis_server: RedisServer) -> Place:
    return lambda: f"{redis_server.url}?prefix={redis_server.fresh_prefix()}&timeout=7.5&db=0"


@pytest.fixture
def postgres_place(postgres_server: PostgresServer) -> Place:
    return lambda: f"{postgres_server.url}&schema=s{uuid4().hex}&timeout=7.5&application_name=a%20test"


@pytest.fixture
def s3_place(s3_server: S3Server) -> Place:
    options = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in s3_server.options().items())
    return lambda: f"s3://{BUCKET}/in/{uuid4().hex}?{options}&timeout=20"


@pytest.fixture
def disk_place(tmp_path: Path) -> Place:
    return lambda: f"disk:{tmp_path}/s"


@pytest.fixture(params=["redis_place", "postgres_place", "s3_place"])
def url(request: pytest.FixtureRequest) -> str:
    """Where there is no store yet, on each kind of server."""
    place: Place = request.getfixturevalue(request.param)
    return place()


def test_a_store_on_a_server(url: str) -> None:
    scheme, _, rest = url.partition(":")
    assert is_remote(url)
    for missing in MISSING:
        with pytest.raises(StoreNotFoundError) as caught:
            open_store(url, **missing)
        assert SECRET not in str(caught.value)
    with open_store(url) as store:
        assert type(store).__name__ in {"Redis", "Postgres", "S3"}
        assert not store.private
        store.set("k", b"1")
    for other in (f"{scheme.upper()}:{rest}", url):
        with open_store(other, create=False) as store:
            assert store.get("k") == b"1"
    with open_store(url, read_only=True) as store:
        assert store.get("k") == b"1"
        with pytest.raises(ReadOnlyError):
            store.set("k", b"2")


@pytest.mark.parametrize("url", ["disk_place", "redis_place", "postgres_place"], indirect=True)
def test_a_store_forgotten_until_exit_closes_itself_without_a_warning(url: str, tmp_path: Path) -> None:
    program = """
        import sys
        from versioned_state.storage import open_store
        store = open_store(sys.argv[1])
        store.set("k", b"1")
        other = [open_store(sys.argv[1])]
        other.append(other)
        other[0].get("k")
    """
    assert run(program, url, options=("-X", "dev", "-W", "error")).stderr == ""
    assert [path.name for path in tmp_path.glob("s/*")] == ["store.sqlite3"] * url.startswith("disk")


def test_two_prefixes_are_two_stores(redis_place: Place, postgres_place: Place, s3_place: Place) -> None:
    for place in (redis_place, postgres_place, s3_place):
        with open_store(place()) as one, open_store(place()) as other:
            one.set("k", b"1")
            assert other.get("k") is None


def test_an_encrypted_store_on_a_server(url: str) -> None:
    key = bytes(range(32))
    with versioned_state.open(url, encryption_key=key) as state:
        cache = state.repository.store
        assert isinstance(cache, Cache)
        assert isinstance(cache.store, Encrypted)
        state["x"] = [1, 2]
        state.commit("first")
    with versioned_state.open(url, encryption_key=key, read_only=True, cache_bytes=0) as state:
        assert isinstance(state.repository.store, Encrypted)
        assert state["x"] == [1, 2]
        state["x"].append(3)
        with pytest.raises(ReadOnlyError):
            state.commit()
        state.discard()
    for options in ({}, {"read_only": True}, {"encryption_key": bytes(32)}):
        with pytest.raises(WrongKeyError):
            versioned_state.open(url, **options)


def test_a_state_at_a_url(url: str) -> None:
    with pytest.raises(StoreNotFoundError):
        versioned_state.open(url, create=False)
    with versioned_state.open(url, author="one", branch="b", cache_bytes=1000) as state:
        assert isinstance(state.repository.store, Cache)
        assert state.repository.store.max_bytes == 1000
        state["x"] = 1
        assert state.commit().author == "one"
        state["y"] = object()
        with pytest.raises(PickleRefusedError):
            state.commit()
        state.discard()
    with versioned_state.open(url, branch="b", pickle="allow") as state:
        state["y"] = ...
        state.commit()
        store = state.repository.store
    with pytest.raises(StoreClosedError):
        store.get("k")
    with versioned_state.open(url, branch="b", read_only=True) as state, pytest.raises(PickleRefusedError):
        _ = state["y"]


def test_a_state_in_a_folder(tmp_path: Path) -> None:
    with versioned_state.open(tmp_path / "s") as state:
        assert isinstance(state.repository.store, Disk)
        state["x"] = object  # a local store is one's own, so pickles go
        state.commit()
    with versioned_state.open(f"disk:{tmp_path}/s", read_only=True) as state:
        assert state["x"] is object
    with versioned_state.open("memory:") as state:
        assert isinstance(state.repository.store, Memory)
    key = bytes(range(32))
    with versioned_state.open(f"{tmp_path}/e", encryption_key=key) as state:
        assert isinstance(state.repository.store, Encrypted)


def test_what_cannot_be_opened_is_closed_again(tmp_path: Path) -> None:
    """A store that was left open would warn when it is collected, and keep its file."""
    with versioned_state.open(tmp_path / "s") as state:
        state["x"] = 1
        state.commit()
    for options in (
        {"encryption_key": bytes(32)},
        {"encryption_key": b"short"},
        {"branch": "no good"},
        {"pickle": "sometimes"},
    ):
        with pytest.raises(StateError):
            versioned_state.open(tmp_path / "s", **options)
    held = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # a file of this process that was closed meanwhile
            held.append(file.readlink())
    assert [file for file in held if file.is_relative_to(tmp_path)] == []


# Secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host/0", "redis://host/0"),
        ("redis://:pw@host/0", "redis://:***@host/0"),
        ("redis://user:pw@host:6379/0?prefix=x", "redis://user:***@host:6379/0?prefix=x"),
        ("rediss://user:p:w/?#@@host", "rediss://user:***@host"),
        ("redis:user:pw@host", "redis:user:***@host"),
        ("redis:/user:pw@host", "redis:/user:***@host"),
        ("postgresql:user:pw@host/db", "postgresql:user:***@host/db"),
        ("rediss:/:pw@host", "rediss:/:***@host"),
        ("redis://user:pw", "redis://user:***"),
        ("redis://user:pw/0", "redis://user:***/0"),
        ("postgresql://h1:5432,h2:pw/db", "postgresql://h1:5432,h2:***/db"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis:///user/pw@host", "redis:///***@host"),
        ("user:pw@host", "user:***@host"),
        ("redis://host/0?pw&prefix=x#pw", "redis://host/0?***&prefix=x#***"),
        ("redis://host/0?p%61ssword=pw", "redis://host/0?p%61ssword=***"),
        ("redis://host?password=pw&db=1", "redis://host?password=***&db=1"),
        ("postgresql://u@h/db?sslpassword=pw&PASSWORD=pw", "postgresql://u@h/db?sslpassword=***&PASSWORD=***"),
        (
            "s3://b/p?secret_access_key=pw&session_token=pw&region=x",
            "s3://b/p?secret_access_key=***&session_token=***&region=x",
        ),
        ("http://u:pw@h", "http://u:***@h"),
        ("disk:a:b@c?key=x", "disk:a:b@c?key=x"),
        ("/a:b@c", "/a:b@c"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host",
        "redis:user:hunter2@host",
        "redis://user:hunter2@127.0.0.1:1/0?timeout=soon",
        "redis://user:hunter2@127.0.0.1:1/0?prefix=a&prefix=b",
        "redis://user:hunter2@127.0.0.1:1/0?timeout=0.1",
        "redis://user:hunter2@127.0.0.1:not-a-port/0",
        "redis://user:hunter2@127.0.0.1:1/0?no_such_option=1",
        "postgresql://user:hunter2@127.0.0.1:1/db?timeout=0.1",
        "postgresql://user:hunter2@127.0.0.1:1/db?no_such_option=1",
        "postgresql://user:hunter2@127.0.0.1:1/db?schema=no good",
        "postgresql://127.0.0.1:1/db?password=hunter2&timeout=0.1",
        "s3://user:hunter2@bucket/p",
        "postgresql:/user:hunter2@host/db",
        "postgresql:user:hunter2@host/db",
        "postgresql:///user:hunter2@host/db",
        "postgresql://user:hunter2",
        "postgresql://user:hunter2/db",
        "postgresql://user:p@hunter2@host/db",
        "postgresql://user:p/hunter2@host/db",
        "postgresql://user:p?hunter2@127.0.0.1:1/db?timeout=0.1",
        "postgresql://user:%zz hunter2@host/db",
        "redis:/user:hunter2@host/0",
        "redis:user:hunter2@host/0",
        "redis:///user:hunter2@host/0",
        "redis://user:hunter2",
        "redis://user:p#hunter2@host",
        "rediss:/:hunter2@host",
        "s3:/user:hunter2@bucket/x",
        "s3://user:hunter2",
        "s3://user:hunter2/x",
        "memory://user:hunter2@host",
        "disk://user:hunter2@host",
        " redis://user:hunter2@host",
        "redis_tls://user:hunter2@host",
        "redis//user:hunter2@host",
        "://user:hunter2@host",
        "user:hunter2@host",
        "u:hunter2@host:6379",
        "s3://bucket/p?secret_access_key=hunter2&access_key_id=x&region=x&endpoint=http://127.0.0.1:1&timeout=0.1",
        "s3://bucket/p?secret_access_key=hunter2&no_such_option=1",
    ],
)
def test_no_error_shows_a_password(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidArgumentError, StorageError)) as caught:
        open_store(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in f"{error!r} {error} {getattr(error, 'hint', '')} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or error.__context__
    assert list(tmp_path.iterdir()) == []


# URLs of no store


@pytest.mark.parametrize(
    "url", ["", "disk:", "disk://host/path", "disk:///path", "memory:x", "memory://", "http://x", "my:dir"]
)
def test_what_cannot_be_meant(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


def test_options_are_passed_on(tmp_path: Path) -> None:
    for url in (str(tmp_path / "s"), f"disk:{tmp_path}/s", tmp_path / "s"):
        with pytest.raises(StoreNotFoundError):
            open_store(url, create=False)
        with pytest.raises(StoreNotFoundError):
            open_store(url, read_only=True)
    Disk(tmp_path / "s").close()
    for url in (str(tmp_path / "s"), f"disk:{tmp_path}/s", tmp_path / "s"):
        with open_store(url, read_only=True) as store, pytest.raises(ReadOnlyError):
            store.set("k", b"1")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(NotAStoreError):
        open_store(tmp_path / "other")


def test_a_driver_that_is_not_installed_is_named_with_its_extra(tmp_path: Path) -> None:
    program = """
        import sys
        from versioned_state.errors import MissingDependencyError
        from versioned_state.storage import open_store
        drivers = {
            "diskcache": f"diskcache:{sys.argv[1]}", "redis": "redis://h", "psycopg": "postgresql://h/d",
            "obstore": "s3://b/p",
        }
        sys.modules |= dict.fromkeys(drivers)
        for url in drivers.values():
            try:
                open_store(url)
            except MissingDependencyError as error:
                print(error.extra, error.hint)
    """
    extras = ("diskcache", "redis", "postgres", "s3")
    assert run(program, tmp_path / "new").stdout.splitlines() == [
        f"{extra} pip install 'versioned-state[{extra}]'" for extra in extras
    ]
    assert list(tmp_path.iterdir()) == []


def test_what_is_exported_is_of_this_package() -> None:
    for name in storage.__all__:
        assert getattr(storage, name).__module__.startswith("versioned_state.storage.")


def test_storage_by_the_wrong_name_says_the_right_one() -> None:
    ended = subprocess.run([sys.executable, "-c", "import storage"], cwd=ROOT, capture_output=True, text=True)
    assert "ImportError: import versioned_state.storage, not storage" in ended.stderr


def test_the_library_does_not_need_what_only_tests_need() -> None:
    program = "import sys, versioned_state.storage; assert not {'pytest', 'hypothesis'} & set(sys.modules); print('ok')"
    assert run(program).stdout == "ok\n"
    assert importlib.import_module("versioned_state.storage.testing.contract").KVStoreContract
