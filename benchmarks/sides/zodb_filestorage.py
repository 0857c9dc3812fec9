"""ZODB on a FileStorage: plain lists and dicts in a BTree under the persistent root.

ZODB sees changes of its own persistent types only; a plain list or dict has to be assigned again each round. The
container is a BTree, so that a round writes the bucket of the key and not all keys.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import transaction
from BTrees.OOBTree import OOBTree
from ZODB.DB import DB
from ZODB.FileStorage import FileStorage

from benchmarks.sides.base import AssignedSession, Session, Side


class ZodbSession(AssignedSession):
    """A BTree under a key of the root."""

    def commit(self) -> str:
        transaction.commit()
        return ""


class Zodb(Side):
    """A database with ZODB's defaults."""

    name = "zodb"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.database = DB(FileStorage(str(folder / "data.fs")))
        self.connection = self.database.open()

    def session(self, name: str) -> Session:
        root = self.connection.root()
        if name not in root:
            root[name] = OOBTree()
        return ZodbSession(root[name])

    def close(self) -> None:
        self.connection.close()
        self.database.close()

    def settings(self) -> dict[str, str]:
        self.close()
        return {
            "version": f"ZODB {version('ZODB')}",
            "store": "FileStorage (syncs each transaction)",
            "use": "a BTree a session; the changed value is assigned again each round",
        }
