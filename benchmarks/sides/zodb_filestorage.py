"""ZODB on a FileStorage: plain lists and dicts in a BTree under the persistent root.

ZODB sees changes of its own persistent types only; a plain list or dict has to be assigned again each round. The
container is a BTree, so that a round writes the bucket of the key and not all keys.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import transaction
from BTrees.OOBTree import OOBTree
from ZODB.DB import DB
from ZODB.FileStorage import FileStorage

from benchmarks.sides.base import Session, Side


class ZodbSession(Session):
    """A BTree under a key of the root, and the live values of the application beside it."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.live: dict[str, Any] = {}

    def put(self, key: str, value: Any) -> None:
        self.live[key] = value
        self.tree[key] = value

    def get(self, key: str) -> Any:
        if key not in self.live:
            self.live[key] = self.tree[key]
        return self.live[key]

    def mutated(self, key: str) -> None:
        self.tree[key] = self.live[key]

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
