"""The tables of LangGraph's own savers: ``SqliteTables`` and ``PostgresTables``, which only read.

Layer: integrations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from versioned_state.errors import MissingDependencyError
from versioned_state.integrations.importing.database import Database
from versioned_state.integrations.importing.source import (
    DamagedRowError,
    ImportSourceError,
    SourceFormatError,
    object_of,
)
from versioned_state.storage.url import redact

Load = Callable[[str, object, object], Any]
"""Makes a value of the format and the bytes of a row, whose name comes first."""

_SCHEMES: Final = ("postgresql", "postgres")

_CHECKPOINTS: Final = (
    "thread_id",
    "checkpoint_ns",
    "checkpoint_id",
    "parent_checkpoint_id",
    "type",
    "checkpoint",
    "metadata",
)
_WRITES: Final = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type")

_THREADS: Final = """
    SELECT thread_id, checkpoint_ns, SUM(steps) FROM (
        SELECT thread_id, checkpoint_ns, COUNT(*) AS steps FROM checkpoints GROUP BY thread_id, checkpoint_ns
        UNION ALL SELECT w.thread_id, w.checkpoint_ns, COUNT(DISTINCT w.checkpoint_id) FROM {writes} w
        LEFT JOIN checkpoints c USING (thread_id, checkpoint_ns, checkpoint_id) WHERE c.thread_id IS NULL
        GROUP BY w.thread_id, w.checkpoint_ns
    ) AS lines GROUP BY thread_id, checkpoint_ns ORDER BY thread_id, checkpoint_ns
"""
_IDS: Final = "SELECT checkpoint_id FROM checkpoints WHERE thread_id = {mark} AND checkpoint_ns = {mark}"
_ROWS: Final = """
    SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints
    WHERE thread_id = {mark} AND checkpoint_ns = {mark} ORDER BY checkpoint_id
"""
_ALONE: Final = """
    SELECT DISTINCT checkpoint_id FROM {writes} w WHERE thread_id = {mark} AND checkpoint_ns = {mark} AND NOT EXISTS (
        SELECT 1 FROM checkpoints c WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns
        AND c.checkpoint_id = w.checkpoint_id
    ) ORDER BY checkpoint_id
"""
_OF_CHECKPOINT: Final = """
    SELECT task_id, {path}, idx, channel, type, {value} FROM {writes}
    WHERE thread_id = {mark} AND checkpoint_ns = {mark} AND checkpoint_id = {mark} ORDER BY task_id, idx
"""
_BLOBS: Final = """
    SELECT channel, type, blob FROM checkpoint_blobs
    JOIN jsonb_each_text(%s) AS versions ON channel = key AND version = value
    WHERE thread_id = %s AND checkpoint_ns = %s
"""


class Row(NamedTuple):
    """A checkpoint. Its content is read by the two functions, which get the name of the row."""

    id: object
    parent: Any
    checkpoint: Callable[[str], Any]
    metadata: Callable[[str], dict[str, Any]]


class Tables(ABC):
    """The tables of a saver, which are only read. A line is the ids of a thread and of a namespace."""

    @abstractmethod
    def query(self, text: str, *values: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, in which the names of tables and columns are left open."""

    @abstractmethod
    def content(self, line: tuple[str, ...], format: Any, content: Any) -> Callable[[str], Any]:
        """Return the function that reads the content of a checkpoint."""

    @abstractmethod
    def described(self, metadata: Any) -> Callable[[str], dict[str, Any]]:
        """Return the function that reads the metadata of a checkpoint."""

    @abstractmethod
    def close(self) -> None:
        """Close the database."""

    def threads(self) -> Iterator[tuple[Any, ...]]:
        """Yield the lines, with the number of their checkpoints."""
        return ((thread, namespace, int(steps)) for thread, namespace, steps in self.query(_THREADS))

    def ids(self, *line: str) -> Iterator[tuple[Any, ...]]:
        """Yield the ids of the checkpoints."""
        return self.query(_IDS, *line)

    def rows(self, *line: str) -> Iterator[Row]:
        """Yield the checkpoints, the oldest first."""
        for id, parent, format, content, metadata in self.query(_ROWS, *line):
            yield Row(id, parent, self.content(line, format, content), self.described(metadata))

    def alone(self, *line: str) -> Iterator[tuple[Any, ...]]:
        """Yield the ids of checkpoints that have writes only."""
        return self.query(_ALONE, *line)

    def writes(self, *checkpoint: str) -> Iterator[tuple[Any, ...]]:
        """Yield the writes of a checkpoint."""
        return self.query(_OF_CHECKPOINT, *checkpoint)


def open_tables(source: str, load: Load) -> Tables:
    """Open the database of a saver.

    Raises ``SourceFormatError`` if it is none, and ``OSError`` if it cannot be read.
    """
    return PostgresTables(source, load) if urlsplit(source).scheme in _SCHEMES else SqliteTables(source, load)


class SqliteTables(Tables):
    """The tables of ``SqliteSaver``: a row has all of its checkpoint."""

    def __init__(self, source: str, load: Load) -> None:
        self._source = source
        self._load = load
        self._database = Database(source, "LangGraph", {"checkpoints": _CHECKPOINTS, "writes": (*_WRITES, "value")})
        self._path = "task_path" if "task_path" in self._database.columns["writes"] else "''"

    def query(self, text: str, *values: str) -> Iterator[tuple[Any, ...]]:
        return self._database.rows(text.format(mark="?", writes="writes", path=self._path, value="value"), *values)

    def content(self, line: tuple[str, ...], format: Any, content: Any) -> Callable[[str], Any]:
        return lambda where: self._load(where, format, content)

    def described(self, metadata: Any) -> Callable[[str], dict[str, Any]]:
        return lambda where: {} if metadata is None else object_of(self._source, f"the metadata of {where}", metadata)

    def close(self) -> None:
        self._database.close()


class PostgresTables(Tables):
    """The tables of ``PostgresSaver``: the values of channels are in rows of their own, unless they are small.

    Read at one moment.
    """

    def __init__(self, source: str, load: Load) -> None:
        self._source = redact(source)
        self._load = load
        try:
            import psycopg
        except ModuleNotFoundError as error:
            raise MissingDependencyError("an import from PostgreSQL", extra="postgres") from error
        self._error = psycopg.Error
        try:
            self._connection = psycopg.connect(source)
        except psycopg.Error as error:
            raise ImportSourceError(
                self._source, f"it cannot be reached: {error}", remains="nothing was imported"
            ) from error
        try:
            with self._errors():
                self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                self._connection.read_only = True
            self._check()
        except BaseException:
            self._connection.close()
            raise

    def _check(self) -> None:
        query = (
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = ANY(current_schemas(false))"
        )
        there = set(self._run(query))
        tables = {
            "checkpoints": set(_CHECKPOINTS),
            "checkpoint_blobs": {"channel", "version", "blob"},
            "checkpoint_writes": {*_WRITES, "blob"},
        }
        for table, columns in tables.items():
            lacking = sorted(columns - {column for name, column in there if name == table})
            if lacking:
                raise SourceFormatError(
                    self._source, f"it has no table {table!r} of LangGraph with the column {lacking[0]!r}"
                )
        self._path = "task_path" if ("checkpoint_writes", "task_path") in there else "''"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise ImportSourceError(self._source, f"it could not be read: {error}") from error

    def _run(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._errors(), self._connection.cursor() as cursor:
            statement: Any = query
            return cursor.execute(statement, values).fetchall()

    def query(self, text: str, *values: str) -> Iterator[tuple[Any, ...]]:
        return iter(
            self._run(text.format(mark="%s", writes="checkpoint_writes", path=self._path, value="blob"), *values)
        )

    def content(self, line: tuple[str, ...], format: Any, content: Any) -> Callable[[str], Any]:
        def checkpoint(where: str) -> Any:
            from psycopg.types.json import Jsonb

            versions = content.get("channel_versions") if isinstance(content, dict) else None
            if not isinstance(versions, dict):
                raise DamagedRowError(self._source, where, "it has no versions of channels")
            blobs = self._run(_BLOBS, Jsonb(versions), *line)
            values = {
                channel: self._load(f"channel {channel!r} of {where}", format, None if blob is None else bytes(blob))
                for channel, format, blob in blobs
                if format != "empty"
            }
            return {**content, "channel_values": {**(content.get("channel_values") or {}), **values}}

        return checkpoint

    def described(self, metadata: Any) -> Callable[[str], dict[str, Any]]:
        def described(where: str) -> dict[str, Any]:
            if not isinstance(metadata, dict):
                raise DamagedRowError(self._source, f"the metadata of {where}", "it is not an object")
            return metadata

        return described

    def close(self) -> None:
        self._connection.close()
