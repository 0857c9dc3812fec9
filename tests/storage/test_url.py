"""`open_store`, and what the package exports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.processes import ROOT
from versioned_state import storage
from versioned_state.errors import InvalidArgumentError, NotAStoreError, ReadOnlyError, StoreNotFoundError
from versioned_state.storage import Disk, Memory, open_store


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


@pytest.mark.parametrize(
    "url", ["redis://h/0", "rediss://h", "postgresql://h/db", "postgres://h/db", "diskcache:./x", "s3:bucket", "s3://b/k"]
)
def test_backends_that_are_not_there_yet(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="this release has no backend") as caught:
        open_store(url)
    assert "memory:" in caught.value.hint


@pytest.mark.parametrize("url", ["", "disk:", "disk://host/path", "disk:///path", "memory:x", "memory://", "http://x", "my:dir"])
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


def test_exports() -> None:
    assert storage.__all__ == sorted(storage.__all__)
    assert set(storage.__all__) == {
        *("Cache", "Counting", "Counts", "Disk", "Fault", "Faulty", "InjectedCrash", "InjectedFaultError", "KVStore", "Memory"),
        *("ReadOnly", "SingleProcessStore", "Wrapper", "open_store"),
    }
    for name in storage.__all__:
        assert getattr(storage, name).__module__.startswith("versioned_state.storage.")


def test_storage_by_the_wrong_name_says_the_right_one() -> None:
    ended = subprocess.run([sys.executable, "-c", "import storage"], cwd=ROOT, capture_output=True, text=True)
    assert "ImportError: import versioned_state.storage, not storage" in ended.stderr


def test_the_library_does_not_need_what_only_tests_need() -> None:
    program = "import sys, versioned_state.storage; assert not {'pytest', 'hypothesis'} & set(sys.modules); print('ok')"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout == "ok\n", ended.stderr
    assert importlib.import_module("versioned_state.storage.testing").KVStoreContract
