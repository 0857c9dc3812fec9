"""The files of a store in a folder of this machine: what a closed one leaves, and changes its maker would not make."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_one_file(place: Path, file: str) -> None:
    """Check that a closed store is one sound database: no log is left."""
    assert names(place) == [file]
    with closing(sqlite3.connect(place / file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def change(file: Path, *statements: str) -> None:
    """Change the database of a closed store."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
