"""``FullText``: an index in a file of SQLite's FTS5 beside a ``Disk``, one for each user that was searched.

Layer: services.

The file is derived: it names the commit that it indexes, and each search first updates it to the commit that the search
reads, by their difference. A file that is missing or damaged, or whose commit is gone, is rebuilt. Any number of
processes may use it. It is opened for one search at a time, because another process may erase it.

A search is interrupted at its deadline, but not an update of the file, which the next search needs too.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from versioned_state.errors import MissingObjectError
from versioned_state.services.calls.deadline import LateError, check_deadline, time_left
from versioned_state.services.memory.indexes.index import Counts, WordIndex
from versioned_state.services.memory.indexes.terms import ODD, commit_of, head_of, terms_of, terms_within, word_term
from versioned_state.services.memory.memories import Memories, Place
from versioned_state.services.memory.text import text_of
from versioned_state.storage import Disk
from versioned_state.storage.local.derived import ReplacedError, begin_writing, erase_derived, file_of, open_derived

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit

T = TypeVar("T")

VERSION: Final = 1
"""To be raised when the tables change: files of another version are rebuilt."""

_ATTEMPTS: Final = 3

_LOOKS_EVERY: Final = 10_000
"""Instructions of SQLite's virtual machine between two checks of the deadline: a fraction of a millisecond."""

_NOT_NOW: Final = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM),
    }
)
"""Errors of SQLite for which the file is not at fault: another process has locked it, or the disk has no room."""

# Positions give the count of a word. For a gram only its presence matters. The texts themselves are not kept.
_TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS places(number INTEGER PRIMARY KEY, place BLOB NOT NULL UNIQUE, length INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS state(one INTEGER PRIMARY KEY CHECK(one = 1), head TEXT, length INTEGER NOT NULL);
INSERT OR IGNORE INTO state VALUES(1, NULL, 0);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(terms, content='', tokenize='ascii', columnsize=0);
CREATE VIRTUAL TABLE IF NOT EXISTS grams USING fts5(terms, content='', tokenize='ascii', columnsize=0, detail='none');
CREATE VIRTUAL TABLE IF NOT EXISTS instances USING fts5vocab(words, instance);
PRAGMA user_version = {VERSION};
"""


class FullText(WordIndex):
    """See the module.

    Args:
        folder: the folder of the files, which is made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def beside(cls, store: Disk) -> FullText | None:
        """Return the index beside a store, or None if the store is open for reading only or this SQLite has no FTS5."""
        folder = store.derived
        if folder is None:
            return None
        with closing(sqlite3.connect(":memory:")) as connection:
            try:
                connection.execute("CREATE VIRTUAL TABLE probe USING fts5(terms)")
            except sqlite3.Error:
                return None
        return cls(folder)

    def holding(self, memories: Memories, groups: Sequence[Sequence[str]]) -> set[Place] | None:
        wanted = terms_within(groups)
        if wanted is None:
            return None
        match = " OR ".join([*(f"({' AND '.join(group)})" for group in wanted), ODD])

        def find(connection: sqlite3.Connection) -> set[Place]:
            rows = connection.execute(
                "SELECT place FROM grams JOIN places ON number = grams.rowid WHERE grams MATCH ?", (match,)
            )
            return {_place(row[0]) for row in rows}

        return self._at(memories, find)

    def counts(self, memories: Memories, words: Collection[str]) -> Counts | None:
        by_term = {word_term(word): word for word in words}

        def count(connection: sqlite3.Connection) -> Counts:
            places: dict[str, dict[Place, int]] = defaultdict(dict)
            lengths: dict[Place, int] = {}
            for term, word in by_term.items():
                rows = connection.execute(
                    "SELECT place, length, count(*) FROM instances JOIN places ON number = doc "
                    "WHERE term = ? GROUP BY doc",
                    (term,),
                )
                for stored, length, times in rows:
                    place = _place(stored)
                    places[word][place] = times
                    lengths[place] = length
            (total,) = connection.execute("SELECT length FROM state").fetchone()
            return Counts(len(memories), total, lengths, places)

        return self._at(memories, count)

    def erase(self, branch: str) -> None:
        erase_derived(self._file(branch))

    def _file(self, branch: str) -> Path:
        return file_of(self._folder, branch)

    def _at(self, memories: Memories, ask: Callable[[sqlite3.Connection], T]) -> T | None:
        """Query the file of a branch at the commit of the memories.

        Returns None if it cannot be made, as on a full or read-only disk.
        """
        file = self._file(memories.branch)
        for _ in range(_ATTEMPTS):
            try:
                return _ask(file, memories, ask)
            except ReplacedError:
                continue
            except OSError:
                return None
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                    raise LateError from None
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_NOW:
                    return None
                erase_derived(file)  # the file is damaged, or of another version
        return None


def _ask(file: Path, memories: Memories, ask: Callable[[sqlite3.Connection], T]) -> T:
    with open_derived(file) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in {0, VERSION}:
            raise sqlite3.DatabaseError("a search index of another version")
        connection.execute("BEGIN")
        head = connection.execute("SELECT head FROM state").fetchone() if version else None
        if head != (head_of(memories),):
            connection.execute("ROLLBACK")
            begin_writing(connection, file)
            _follow(connection, memories)
        try:
            answer = _in_time(connection, ask)
        except LateError:
            connection.execute("COMMIT")  # the file stays at this commit, for the next search
            raise
        connection.execute("COMMIT")
        return answer


def _in_time(connection: sqlite3.Connection, ask: Callable[[sqlite3.Connection], T]) -> T:
    """Run a query, which is interrupted at the deadline of its caller. Raises ``LateError``."""
    check_deadline()
    if time_left() is None:
        return ask(connection)
    connection.set_progress_handler(_is_late, _LOOKS_EVERY)
    try:
        return ask(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise LateError from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


def _is_late() -> bool:
    left = time_left()
    return left is not None and left < 0


def _follow(connection: sqlite3.Connection, memories: Memories) -> None:
    """Update the tables to the commit of the memories, by the difference, or from scratch."""
    for table in _TABLES.split(";"):
        connection.execute(table)
    (head,) = connection.execute("SELECT head FROM state").fetchone()
    if head == head_of(memories):
        return  # another process did it
    since = commit_of(memories, head)
    if since is not None:
        connection.execute("SAVEPOINT before")
        try:
            _apply(connection, memories, since)
        except MissingObjectError:  # gc has taken the rest of that commit
            connection.execute("ROLLBACK TO before")
        else:
            return
    _clear(connection)
    _apply(connection, memories, None)


def _apply(connection: sqlite3.Connection, memories: Memories, since: Commit | None) -> None:
    removed = False
    for place, old, new in memories.changes(since):
        if old is not None:
            removed = True
            words, grams = terms_of(text_of(old))
            row = connection.execute("SELECT number FROM places WHERE place = ?", (_stored(place),)).fetchone()
            if row is None:
                raise sqlite3.DatabaseError("a search index without a message that it must have")
            (number,) = row
            _index(connection, "INSERT INTO {0}({0}, rowid, terms) VALUES('delete', ?, ?)", number, words, grams)
            connection.execute("DELETE FROM places WHERE number = ?", (number,))
            connection.execute("UPDATE state SET length = length - ?", (words.total(),))
        if new is not None:
            words, grams = terms_of(text_of(new))
            row = _stored(place), words.total()
            (number,) = connection.execute(
                "INSERT INTO places(place, length) VALUES(?, ?) RETURNING number", row
            ).fetchone()
            _index(connection, "INSERT INTO {0}(rowid, terms) VALUES(?, ?)", number, words, grams)
            connection.execute("UPDATE state SET length = length + ?", (words.total(),))
    if removed:
        # FTS5 keeps removed terms until it merges its parts: now.
        connection.execute("INSERT INTO words(words) VALUES('optimize')")
        connection.execute("INSERT INTO grams(grams) VALUES('optimize')")
    connection.execute("UPDATE state SET head = ?", (head_of(memories),))


def _index(connection: sqlite3.Connection, statement: str, number: int, words: Counter[str], grams: list[str]) -> None:
    connection.execute(statement.format("words"), (number, " ".join(words.elements())))
    connection.execute(statement.format("grams"), (number, " ".join(grams)))


def _clear(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO words(words) VALUES('delete-all')")
    connection.execute("INSERT INTO grams(grams) VALUES('delete-all')")
    connection.execute("DELETE FROM places")
    connection.execute("UPDATE state SET head = NULL, length = 0")


def _stored(place: Place) -> bytes:
    return place.key.encode("utf-8", "surrogatepass")


def _place(stored: bytes) -> Place:
    return Place.of(stored.decode("utf-8", "surrogatepass"))
