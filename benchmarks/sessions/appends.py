"""One more element of 100 bytes, and a commit."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.data import load
from benchmarks.measure import ms, timed
from versioned_state import Disk, Versioned

LENGTHS: Final = (100, 1_000, 10_000)


def rows(folder: Path, rounds: int) -> list[list[str]]:
    """Two rows for each length of the list."""
    return [
        row
        for length in LENGTHS
        for row in (_append_ours(folder, length, rounds), _append_rows(folder, length, rounds))
    ]


def _elements(data: Sequence[Sequence[dict[str, Any]]]) -> Iterator[str]:
    """Texts of 100 characters, out of the conversations."""
    text = json.dumps(data)
    places = random.Random(1)
    while True:
        start = places.randrange(len(text) - 100)
        yield text[start : start + 100]


def _append_ours(folder: Path, length: int, rounds: int) -> list[str]:
    elements = _elements(load().conversations)
    path = folder / f"append-{length}"
    with Versioned(Disk(path)) as state:
        state["log"] = list(islice(elements, length))
        state.commit()
    seconds = []
    with Disk(path) as store:
        log = (state := Versioned(store)).sequence("log")
        log.append(next(elements))
        state.commit()
        before = store.size(), _stored(store)
        for _ in range(rounds):
            log.append(next(elements))
            seconds.append(timed(state.commit))
        file, stored = store.size() - before[0], _stored(store) - before[1]
    figures = (f"{stored / rounds:,.0f} B", f"{file / rounds:,.0f} B", ms(statistics.median(seconds)))
    return [f"{length:,}", "ours", *figures, "1,024 B"]


def _stored(store: Disk) -> int:
    """The bytes of all values, and of the keys as the store keeps them."""
    return sum(len(value) + (24 if key.startswith("o/") else len(key)) for key, value in store.items())


def _append_rows(folder: Path, length: int, rounds: int) -> list[str]:
    """A table of rows in SQLite, which keeps no history."""
    elements = _elements(load().conversations)
    path = folder / f"rows-{length}.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE log(id TEXT PRIMARY KEY, session TEXT, text TEXT);"
            " CREATE INDEX by_session ON log(session, id);"
        )

        def add() -> None:
            db.execute("INSERT INTO log VALUES(?, ?, ?)", (str(uuid.uuid4()), "session", next(elements)))

        db.execute("BEGIN")
        for _ in range(length):
            add()
        db.execute("COMMIT")
        before = _pages(db)
        seconds = [timed(add) for _ in range(rounds)]
        file = _pages(db) - before
    return ["", "SQLite, a row and its index", "", f"{file / rounds:,.0f} B", ms(statistics.median(seconds)), ""]


def _pages(db: sqlite3.Connection) -> int:
    count, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(count * size)
