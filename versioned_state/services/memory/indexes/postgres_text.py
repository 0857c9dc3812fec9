"""``PostgresText``: an index in PostgreSQL's text search, in tables beside those of the store. Layer: services.

::

    derived_heads   branch, head, length                 the commit of a user's index, and the words of all messages
    derived_words   branch, place, part, words, terms    a message; its tsvector has frequencies for positions

It is derived: each search first updates the rows of the user to the commit that it reads, in one transaction. Every
lexeme begins with a hash of the branch, so a search costs what the user has, and reveals nothing about the words of
others.

The server ends a search at its deadline, but not an update of the rows, which the next search needs too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from psycopg.errors import QueryCanceled

from versioned_state.errors import MissingObjectError, StorageError
from versioned_state.services.calls.deadline import LateError, check_deadline, time_left
from versioned_state.services.memory.indexes.index import Counts, WordIndex
from versioned_state.services.memory.indexes.terms import ODD, commit_of, head_of, terms_of, terms_within, word_term
from versioned_state.services.memory.memories import Memories, Place
from versioned_state.services.memory.text import text_of
from versioned_state.storage.base import derived_id
from versioned_state.storage.postgres.schema import lock_number, statement

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.storage.postgres.connections import Link
    from versioned_state.storage.postgres.store import Postgres

T = TypeVar("T")

_HIGHEST: Final = 16383
"""The highest position that a tsvector holds."""
_TERMS_A_PART: Final = 4000
"""A tsvector has room for 1 MiB.

A message with more terms takes several rows. Its grams are left out then, and every search reads it.
"""

_ROWS_AT_ONCE: Final = 200

_FIND_TABLES: Final = "SELECT pg_catalog.to_regclass(%s) IS NOT NULL"

_MAKE: Final = """
CREATE TABLE IF NOT EXISTS {schema}.derived_heads (
    branch bytea PRIMARY KEY, head text NOT NULL, length bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.derived_words (
    branch bytea, place bytea, part integer, words integer NOT NULL, terms tsvector NOT NULL,
    PRIMARY KEY (branch, place, part)
);
CREATE INDEX IF NOT EXISTS derived_words_terms ON {schema}.derived_words USING gin (terms)
"""

_HEAD: Final = "SELECT head FROM {schema}.derived_heads WHERE branch = %s"
_HOLDING: Final = "SELECT DISTINCT place FROM {schema}.derived_words WHERE branch = %s AND terms @@ %s::text::tsquery"
_COUNTS: Final = """
SELECT w.place, w.words, t.lexeme, t.positions[1] FROM {schema}.derived_words AS w, pg_catalog.unnest(w.terms) AS t
WHERE w.branch = %s AND w.terms @@ %s::text::tsquery AND t.lexeme = ANY (%s::text[])
"""
_LENGTH: Final = "SELECT length FROM {schema}.derived_heads WHERE branch = %s"
_ADD: Final = "INSERT INTO {schema}.derived_words VALUES (%s, %s, %s, %s, %s::text::tsvector)"
_REMOVE: Final = "DELETE FROM {schema}.derived_words WHERE branch = %s AND place = %s RETURNING part, words"
_SET_HEAD: Final = """
INSERT INTO {schema}.derived_heads VALUES (%s, %s, %s)
ON CONFLICT (branch) DO UPDATE SET head = excluded.head, length = {schema}.derived_heads.length + excluded.length
"""


class PostgresText(WordIndex):
    """See the module."""

    def __init__(self, store: Postgres) -> None:
        self._store = store
        self._is_made = False

    def holding(self, memories: Memories, groups: Sequence[Sequence[str]]) -> set[Place] | None:
        wanted = terms_within(groups)
        if wanted is None:
            return None
        user = _User(memories.branch)
        query = " | ".join([*(f"({' & '.join(map(user.lexeme, group))})" for group in wanted), user.lexeme(ODD)])
        return self._at(
            memories, user, lambda link: {_place(row[0]) for row in self._run(link, _HOLDING, user.key, query)}
        )

    def counts(self, memories: Memories, words: Collection[str]) -> Counts | None:
        user = _User(memories.branch)
        by_lexeme = {user.lexeme(word_term(word)): word for word in words}

        def count(link: Link) -> Counts:
            places: dict[str, dict[Place, int]] = defaultdict(dict)
            lengths: dict[Place, int] = {}
            for stored, length, lexeme, times in self._run(
                link, _COUNTS, user.key, " | ".join(by_lexeme), list(by_lexeme)
            ):
                place = _place(stored)
                places[by_lexeme[lexeme]][place] = times
                lengths[place] = length
            ((total,),) = self._run(link, _LENGTH, user.key)
            return Counts(len(memories), total, lengths, places)

        return self._at(memories, user, count)

    def erase(self, branch: str) -> None:
        if self._exists():
            self._store.connections.write(lambda link: self._clear(link, _User(branch)), repeatable=True)

    def _run(self, link: Link, sql: str, *arguments: Any) -> list[Any]:
        return link.execute(statement(sql, self._store.schema), arguments).fetchall()

    def _at(self, memories: Memories, user: _User, ask: Callable[[Link], T]) -> T | None:
        """Query the rows of a user at a commit.

        Returns None if this role may not write them, or if another process does.
        """
        head = head_of(memories)

        def read(link: Link) -> T | None:
            if time_left() is None:
                return ask(link) if self._run(link, _HEAD, user.key) == [(head,)] else None
            link.execute("BEGIN READ ONLY")
            try:
                answer = _in_time(link, ask) if self._run(link, _HEAD, user.key) == [(head,)] else None
            except LateError:
                link.execute("ROLLBACK")
                raise
            link.execute("COMMIT")
            return answer

        def follow(link: Link) -> T | None:
            link.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            lock = lock_number(self._store.schema, b"\xff" + user.key)
            row = link.execute("SELECT pg_try_advisory_xact_lock(%s)", (lock,)).fetchone()
            if row != (True,):  # another process is making the index, which may take long
                link.execute("ROLLBACK")
                return None
            self._follow(link, memories, user, head)
            try:
                answer = _in_time(link, ask)
            except LateError:
                link.execute("COMMIT")  # the rows stay at this commit, for the next search
                raise
            link.execute("COMMIT")
            return answer

        try:
            if not self._make():
                return None
            found = self._store.connections.read(read)
            return self._store.connections.write(follow, repeatable=True) if found is None else found
        except StorageError as error:
            if getattr(error.__cause__, "sqlstate", None) in {"42501", "25006"}:  # no rights, or a replica
                return None
            raise

    def _follow(self, link: Link, memories: Memories, user: _User, head: str) -> None:
        found = self._run(link, _HEAD, user.key)
        if found == [(head,)]:
            return  # another process did it
        since = commit_of(memories, found[0][0] if found else None)
        if since is not None:
            link.execute("SAVEPOINT before")
            try:
                self._apply(link, memories, user, since, head)
            except MissingObjectError:  # gc has taken the rest of that commit
                link.execute("ROLLBACK TO before")
            else:
                return
        self._delete(link, user)
        self._apply(link, memories, user, None, head)

    def _apply(self, link: Link, memories: Memories, user: _User, since: Commit | None, head: str) -> None:
        more = 0
        rows: list[tuple[object, ...]] = []
        for place, old, new in memories.changes(since):
            stored = place.key.encode("utf-8", "surrogatepass")
            if old is not None:
                more -= sum(words for part, words in self._run(link, _REMOVE, user.key, stored) if not part)
            if new is not None:
                words, grams = terms_of(text_of(new))
                more += words.total()
                for number, part in enumerate(_parts(words, grams)):
                    vector = " ".join(f"'{user.lexeme(term)}':{min(times, _HIGHEST)}" for term, times in part.items())
                    rows.append((user.key, stored, number, words.total(), vector))
            if len(rows) >= _ROWS_AT_ONCE:
                self._add(link, rows)
        self._add(link, rows)
        link.execute(statement(_SET_HEAD, self._store.schema), (user.key, head, more))

    def _add(self, link: Link, rows: list[tuple[object, ...]]) -> None:
        """Insert rows, and empty the list. They go in a stream, without waiting for each answer."""
        if rows:
            link.cursor().executemany(statement(_ADD, self._store.schema), rows)
            rows.clear()

    def _clear(self, link: Link, user: _User) -> None:
        link.execute("BEGIN")
        self._delete(link, user)
        link.execute("COMMIT")

    def _delete(self, link: Link, user: _User) -> None:
        for table in ("derived_words", "derived_heads"):
            delete = f"DELETE FROM {{schema}}.{table} WHERE branch = %s"  # noqa: S608 - constants
            link.execute(statement(delete, self._store.schema), (user.key,))

    def _exists(self) -> bool:
        if not self._is_made:
            name = f'"{self._store.schema}".derived_words'
            row = self._store.connections.read(lambda link: link.execute(_FIND_TABLES, (name,)).fetchone())
            self._is_made = row is not None and bool(row[0])
        return self._is_made

    def _make(self) -> bool:
        """Return whether the tables exist, after creating them if they do not and this role may."""
        if self._exists():
            return True

        def make(link: Link) -> None:
            link.execute("BEGIN")
            # IF NOT EXISTS does not help against another process that makes the same table.
            link.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self._store.schema, b"\xffderived"),))
            link.execute(statement(_MAKE, self._store.schema))
            link.execute("COMMIT")

        self._store.connections.write(make, repeatable=True)
        return self._exists()


def _in_time(link: Link, ask: Callable[[Link], T]) -> T:
    """Return the answer to a query, in a transaction that the server ends at the caller's deadline.

    Raises ``LateError``.
    """
    check_deadline()
    left = time_left()
    if left is None:
        return ask(link)
    most = max(1, int(min(left, link.patience) * 1000))  # the longest wait for any answer of the server
    link.execute(f"SAVEPOINT asked; SET LOCAL statement_timeout = {most}".encode())
    try:
        return ask(link)  # the end of the transaction ends the savepoint, for which another statement might be too late
    except QueryCanceled:
        link.execute("ROLLBACK TO asked")
        raise LateError from None


class _User:
    """A user's branch in the tables."""

    def __init__(self, branch: str) -> None:
        # A hash, because of its fixed length: no lexeme of one user is a prefix of another user's.
        self.key = derived_id(branch)
        self._mark = self.key[:8].hex()

    def lexeme(self, term: str) -> str:
        return self._mark + term


def _parts(words: Mapping[str, int], grams: Sequence[str]) -> Iterator[dict[str, int]]:
    """Return the terms of a message in parts that fit into a tsvector, at least one."""
    fits = len(words) + len(grams) <= _TERMS_A_PART
    terms = iter([*words.items(), *((gram, 1) for gram in (grams if fits else (ODD,)))])
    yield dict(islice(terms, _TERMS_A_PART))
    while part := dict(islice(terms, _TERMS_A_PART)):
        yield part


def _place(stored: bytes) -> Place:
    return Place.of(stored.decode("utf-8", "surrogatepass"))
