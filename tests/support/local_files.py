"""The files of a store in a folder of this machine: what a closed one leaves, and changes its maker would not make."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from versioned_state.errors import NotAStoreError, StorageError
from versioned_state.storage import Disk, DiskCache

Kind = type[Disk | DiskCache]

_CREATE: list[dict[str, Any]] = [{"create": True}, {"create": False}]

WAYS: dict[Kind, list[dict[str, Any]]] = {
    Disk: [*_CREATE, *({**options, "read_only": True} for options in _CREATE)],
    DiskCache: _CREATE,
}
"""The ways to open what may not be there, or may not be a store. Only the first one makes anything."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_refused(kind: Kind, place: Path, error: type[StorageError] = NotAStoreError) -> None:
    """Check that a folder is not opened as a store in any way, and not touched."""
    before = contents(place)
    for options in WAYS[kind]:
        with pytest.raises(error):
            kind(place, **options)
    assert contents(place) == before


def check_one_file(place: Path, file: str) -> None:
    """Check that a closed store is one sound database: no log is left."""
    assert names(place) == [file]
    with closing(sqlite3.connect(place / file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def change(file: Path, *statements: str) -> None:
    """Change the database of a closed store."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.executescript(statement)
