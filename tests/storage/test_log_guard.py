"""``LogGuard`` beside another connection: a log that begins during the look is not one that was cut."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from versioned_state.errors import CorruptStoreError
from versioned_state.storage.local.log_guard import LogGuard


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    return connection


class Between:
    """A connection before whose first statement something else happens."""

    def __init__(self, connection: sqlite3.Connection, act: Any) -> None:
        self.connection, self.act = connection, act

    def execute(self, statement: str) -> Any:
        self.act()
        return self.connection.execute(statement)


def test_a_log_that_another_connection_begins_is_not_cut(tmp_path: Path) -> None:
    file = tmp_path / "store"
    ours, theirs = connect(file), connect(file)
    guard = LogGuard(file)
    guard.check(Between(ours, lambda: theirs.execute("CREATE TABLE t (n)")))  # type: ignore[arg-type]
    guard.check(ours)  # type: ignore[arg-type]
    ours.close()
    theirs.close()


def test_a_log_that_was_cut_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "store"
    ours = connect(file)
    ours.execute("CREATE TABLE t (n)")
    guard = LogGuard(file)
    (tmp_path / "store-wal").write_bytes(b"")
    with pytest.raises(CorruptStoreError, match="was cut or removed"):
        guard.check(ours)  # type: ignore[arg-type]
    ours.close()
