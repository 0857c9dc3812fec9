"""``Database``: a file of SQLite that is only read. Layer: integrations."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from versioned_state.integrations.importing.source import DamagedRowError, SourceFormatError

_BUSY_S: Final = 30.0
_TABLES: Final = {"checkpoints": "langgraph", "agent_messages": "openai-agents", "events": "adk"}
"""Which framework has a table."""

_SCHEMES: Final = ("sqlite", "sqlite+aiosqlite", "sqlite+pysqlite")


class Database:
    """An SQLite file, read as of one moment: later writes by others are not seen. Nothing is written to it.

    Args:
        source: its path, or a URL of SQLAlchemy such as ``sqlite:///sessions.db``.
        tables: the required columns, by table.

    Raises:
        OSError: it cannot be read.
        SourceFormatError: it is not a database, or not one with these tables.
    """

    def __init__(self, source: str, framework: str, tables: Mapping[str, Iterable[str]]) -> None:
        self.source = source
        path = _path(source)
        with path.open("rb"):  # raises for what is missing or may not be read, in the usual words
            pass
        self._connection = _connect(path)
        try:
            with self._errors():
                self._connection.execute("BEGIN")  # one moment for all that is read
                names = [
                    name
                    for (name,) in self._connection.execute(
                        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
                    )
                ]
                self.columns: dict[str, frozenset[str]] = {name: self._columns(name) for name in names}
            self._check(framework, tables)
        except BaseException:
            self._connection.close()
            raise

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(
            name for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        )

    def _check(self, framework: str, tables: Mapping[str, Iterable[str]]) -> None:
        known = [name for table, name in _TABLES.items() if table in self.columns]
        hint = f"--from {known[0]} imports it" if known else f"its tables: {', '.join(sorted(self.columns)) or 'none'}"
        for table, columns in tables.items():
            if table not in self.columns:
                raise SourceFormatError(self.source, f"it has no table {table!r} of {framework}", hint=hint)
            lacking = sorted(set(columns) - self.columns[table])
            if lacking:
                raise SourceFormatError(
                    self.source,
                    f"its table {table!r} is of an unknown version of {framework}: it has no column {lacking[0]!r}",
                )

    def rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query. Raises ``DamagedRowError`` if the file is damaged."""
        with self._errors():
            for row in self._connection.execute(query, values):  # noqa: UP028 - "yield from" would close a cursor of a closed database
                yield row

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if "not a database" in str(error):
                raise SourceFormatError(self.source, "it is not a SQLite database") from error
            raise DamagedRowError(
                self.source, "the database", str(error), hint="sqlite3 FILE .recover shows what is intact"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def text_ids(source: str, table: str, *ids: object) -> tuple[str, ...]:
    """Return ids as they are. Raises ``DamagedRowError`` if one is not text."""
    for each in ids:
        if not isinstance(each, str):
            raise DamagedRowError(source, f"an id in the table {table!r}", f"it is {each!r:.80}, not text")
    return tuple(map(str, ids))


def _path(source: str) -> Path:
    parts = urlsplit(source)
    return Path(unquote(parts.path)[1:]) if parts.scheme in _SCHEMES else Path(source)


def _connect(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    connection = sqlite3.connect(
        f"{uri}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A database with a log (WAL) in a folder that cannot be written: readable if the log is empty, for then nobody
        # has it open.
        log = path.with_name(path.name + "-wal")
        connection.close()
        if log.exists() and log.stat().st_size:
            raise SourceFormatError(
                str(path),
                "it has a log that cannot be read in a folder that cannot be written",
                hint="copy it, with its -wal file, and import the copy",
            ) from None
        return sqlite3.connect(f"{uri}?immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.DatabaseError:
        pass  # said by the first real query
    return connection
