"""Commands open stores by URL, across a network or encrypted, and print no password or key."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest

import versioned_state
from tests.support.command_line import Vstate, assert_error
from tests.support.examples import Bomb
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.s3 import SECRET, S3Server
from tests.support.servers.s3_server import BUCKET
from versioned_state import Disk, Versioned
from versioned_state.storage import Encrypted

MESSAGES = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]).encode()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return redis_server.fresh_url()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.fresh_url()


@pytest.fixture
def s3_url(s3_server: S3Server) -> str:
    options = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in s3_server.options().items())
    return f"s3://{BUCKET}/{uuid4().hex}?{options}"


@pytest.fixture(params=["redis_url", "postgres_url", "s3_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(secrets.token_bytes(32))
    return file


def test_import_and_look_across_a_network(url: str, vstate: Vstate, monkeypatch: pytest.MonkeyPatch):
    assert_error(vstate("--store", url, "log"), "vstate --store PATH")
    imported = vstate("--store", url, "import", "-", "--branch", "main", stdin=MESSAGES)
    assert "imported 2 commits onto main" in imported.stderr
    assert imported.code == 0
    monkeypatch.setenv("VSTATE_STORE", url)
    looked = [
        vstate("log", "--oneline"),
        vstate("get", "messages[1].content"),
        vstate("diff", "HEAD~1"),
        vstate("status"),
    ]
    assert [result.code for result in looked] == [0] * 4
    assert looked[1].stdout == "hello\n"
    assert "1 branch, 0 tags" in looked[3].stdout
    assert SECRET not in "".join(result.stdout + result.stderr for result in (imported, *looked))


def test_branches_are_moved_across_a_network(url: str, vstate: Vstate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("VSTATE_STORE", url)
    steps = [
        vstate("import", "-", stdin=MESSAGES),
        vstate("switch", "-c", "what-if", "main~1"),
        vstate("import", "-", "--append", stdin=MESSAGES),
        vstate("branch", "-m", "idea"),
        vstate("policy", "messages", "append"),
        vstate("-b", "main", "merge", "idea"),
        vstate("undo", "2"),
        vstate("redo"),
        vstate("tag", "v1", "-m", "why"),
    ]
    assert [result.code for result in steps] == [0] * 9, steps
    assert [message["content"] for message in json.loads(vstate("get", "main:messages", "--json").stdout)] == [
        "hi",
        "hello",
        "hi",
        "hello",
    ]
    assert vstate("log", "-n", "1", "--oneline").stdout.split()[-1] == "hi"
    assert SECRET not in "".join(result.stdout + result.stderr for result in steps)
    assert not any(
        SECRET.encode() in file.read_bytes() for file in (tmp_path / "state-home").rglob("*") if file.is_file()
    )


def test_nothing_is_unpickled_across_a_network(url: str, vstate: Vstate, tmp_path: Path):
    with versioned_state.open(url, pickle="allow") as state:
        state["bomb"] = [Bomb(tmp_path / "made")]
        state.commit()
    for command in ("log --stat", "show --full", "get bomb", "get bomb --json", "export", "status"):
        vstate("--store", url, *command.split())
    assert vstate("--store", url, "get", "bomb").stdout.startswith("[<object tests.support.examples.Bomb, ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2@127.0.0.1:1/0?timeout=0.1",
        "postgresql://user:hunter2@127.0.0.1:1/x?timeout=0.1",
        "s3://b/p?secret_access_key=hunter2&access_key_id=x&region=x&endpoint=http://127.0.0.1:1&timeout=0.1",
        "redsi://user:hunter2@127.0.0.1:1/0",
    ],
)
@pytest.mark.parametrize("command", [["log"], ["import", "-"]])
def test_a_server_that_is_not_there_is_one_line_without_the_password(url: str, command: list[str], vstate: Vstate):
    result = vstate("--store", url, *command, stdin=MESSAGES)
    assert result.code == 1
    assert sum(line.startswith("error: ") for line in result.stderr.splitlines()) == 1
    assert "hunter2" not in result.stdout + result.stderr


def test_the_password_is_not_in_the_advice_after_an_import(redis_url: str, vstate: Vstate):
    url = redis_url.replace("unix://", "unix://default:hunter2@")
    done = vstate("--store", url, "import", "-", "--branch", "main", stdin=MESSAGES)
    assert done.code == 0, done.stderr
    assert "see: " in done.stderr
    assert "hunter2" not in done.stderr


# Encrypted


@pytest.mark.parametrize("write", [Path.write_bytes, lambda file, key: file.write_text(f"{key.hex()}\n")])
def test_a_store_is_opened_with_the_key_in_a_file(
    write: Callable[[Path, bytes], None],
    key_file: Path,
    vstate: Vstate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    key = key_file.read_bytes()
    write(key_file, key)
    store = tmp_path / "s"
    assert vstate("import", "-", "--branch", "main", "--key-file", str(key_file), store=store, stdin=MESSAGES).code == 0
    with Versioned(Encrypted(Disk(store), key)) as state:
        assert len(state["messages"]) == 2
    assert vstate("get", "messages[0].content", "--key-file", str(key_file), store=store).stdout == "hi\n"
    monkeypatch.setenv("VSTATE_KEY_FILE", str(key_file))
    assert vstate("get", "messages[0].content", store=store).stdout == "hi\n"
    assert f"{store}, encrypted" in vstate("status", store=store).stdout
    other = tmp_path / "other"
    other.write_bytes(secrets.token_bytes(32))
    assert_error(vstate("log", "--key-file", str(other), store=store), "encrypted with another key", "hint: ")


def test_without_the_key_it_is_said_what_is_missing(key_file: Path, vstate: Vstate, tmp_path: Path):
    Versioned(Encrypted(Disk(tmp_path / "s"), key_file.read_bytes())).close()
    assert_error(vstate("log", store=tmp_path / "s"), "the store is encrypted, and no key was given", "--key-file")
    Versioned(Disk(tmp_path / "plain")).close()
    assert_error(vstate("log", "--key-file", str(key_file), store=tmp_path / "plain"), "not encrypted", "hint: ")


@pytest.mark.parametrize("raw", [b"", b"hunter2", b"hunter2" * 10, b"zz" * 32, b"0" * 63, b"\xff" * 33])
def test_a_key_file_that_holds_no_key(raw: bytes, vstate: Vstate, tmp_path: Path):
    (tmp_path / "key").write_bytes(raw)
    result = vstate("log", "--key-file", str(tmp_path / "key"), store=tmp_path / "s")
    assert result.code == 1
    assert "key: a key file holds 32 bytes, or 64 hex digits" in result.stderr
    assert "hunter2" not in result.stderr
    missing = vstate("log", "--key-file", "nowhere", store=tmp_path / "s")
    assert missing.stderr == "error: nowhere: No such file or directory\n"
