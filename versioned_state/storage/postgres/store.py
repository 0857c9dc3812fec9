"""``Postgres``, a store in a PostgreSQL database, for states that machines share. Layer: storage.

This module turns the calls of ``KVStore`` into statements. ``schema`` makes and checks the tables and the function that
applies a batch; ``connections`` owns the connections and the retries. docs/design/009-postgresql.md has the races and
the figures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final
from weakref import finalize

from versioned_state.arguments import count, seconds
from versioned_state.errors import CorruptStoreError, InvalidArgumentError, LimitExceededError, MissingDependencyError
from versioned_state.storage.backend import Backend
from versioned_state.storage.base import OBJECT_PREFIX, derived_id
from versioned_state.storage.byte_keys import ByteRange, listed, page_range, raw_key, split_keys
from versioned_state.storage.postgres.byte_array import MAX_VALUE, ByteArray
from versioned_state.storage.postgres.schema import checked_name, gate_number, lock_number, prepare, statement

if TYPE_CHECKING:
    from psycopg.abc import Params
    from psycopg.rows import TupleRow

    from versioned_state.storage.postgres.connections import Connections, Link

Row = tuple[bytes, bytes]

_GET_OBJECT = "SELECT value FROM {schema}.objects WHERE key = %b"
_GET_ENTRY = "SELECT value FROM {schema}.entries WHERE key = %b"
_GET_OBJECTS = "SELECT true, key, value FROM {schema}.objects WHERE key = ANY (%b::bytea[])"
_GET_ENTRIES = "SELECT false, key, value FROM {schema}.entries WHERE key = ANY (%b::bytea[])"
_DERIVED = """
SELECT c.relname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND c.relname LIKE 'derived\\_%%'
"""

_SIZES = (
    "SELECT true, key, octet_length(value) FROM {schema}.objects WHERE key = ANY (%b::bytea[]) "
    "UNION ALL SELECT false, key, octet_length(value) FROM {schema}.entries WHERE key = ANY (%b::bytea[])"
)
_APPLY = (
    "SELECT {schema}.apply_batch(%b::bigint, %b, %b::text, %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], "
    "%b::bigint[], %b::boolean[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[])"
)

# Keys of one statement of get_many, and of one step of a listing.
_CHUNK = 1000
_PAGE = 5000

# A larger batch is several statements in one transaction, because client and server each hold several copies of a
# statement.
_STEP_BYTES = 8 * 1024 * 1024
_STEP_KEYS = 10_000

# In bytes: a key must fit into a third of an index page.
MAX_KEY = 2600

# The server counts milliseconds in 32 bits. This is eleven days.
_LONGEST_TIMEOUT_S = 1_000_000.0

# Locks of one transaction. A server has room for 64 locks a connection, shared by all its programs, so a batch of more
# keys takes the gate alone instead.
_MAX_LOCKS = 64


@dataclass(frozen=True)
class _Step:
    """The arguments of one call of ``apply_batch``: a batch, or a part of one."""

    objects: Sequence[Row] = ()
    odd: Sequence[Row] = ()
    locks: Sequence[tuple[int, bool]] = ()
    """The numbers of the locks, in order, and whether each is shared."""
    expected: Sequence[tuple[bytes, bytes | None]] = ()
    puts: Sequence[Row] = ()
    gone_objects: Sequence[bytes] = ()
    gone_entries: Sequence[bytes] = ()

    def is_small(self) -> bool:
        """Return whether the step fits into one statement."""
        size = sum(
            len(key) + len(value or b"")
            for rows in (self.objects, self.odd, self.expected, self.puts)
            for key, value in rows
        )
        count = sum(map(len, (self.objects, self.odd, self.expected, self.puts, self.gone_objects, self.gone_entries)))
        return size <= _STEP_BYTES and count <= _STEP_KEYS

    def arguments(self) -> list[ByteArray | list[int] | list[bool]]:
        return [
            *_columns(self.objects),
            *_columns(self.odd),
            [number for number, _ in self.locks],
            [shared for _, shared in self.locks],
            *_columns(self.expected),
            *_columns(self.puts),
            ByteArray(self.gone_objects),
            ByteArray(self.gone_entries),
        ]


class Postgres(Backend):
    """The store in schema ``schema`` of the database at ``url``: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``.

    The client library (libpq) fills in omitted parts and reads options such as ``?sslmode=verify-full``, ``PGPASSWORD``
    and a password file. The password is never shown.

    Opening makes the tables if there are none; with ``create=False`` it raises ``StoreNotFoundError`` instead. Tables
    of another program raise ``NotAStoreError``, those of a newer release ``FormatError``, and those that could lose or
    change values (unlogged, or with triggers, rules or row security) ``UnsafeStoreError``. Nothing was changed then.

    A batch of up to 8 MiB is one statement and one round trip; a larger one is several in one transaction. ``get_many``
    is one round trip for each 1,000 keys.

    ``timeout``, in seconds, bounds how long the server may be silent, how long to wait for other writers, and how long
    a call is retried on a lost connection; it is retried at least once. Connecting may take 2 s in any case. Reads, and
    writes that were not done, are retried, then raise ``UnreachableStoreError``. A write that may have been done raises
    ``UnknownOutcomeError``.

    Each process opens at most ``max_connections``; further threads wait. Any number of processes and machines may use
    the schema. A fork is safe. So is PgBouncer, in transaction mode too: no session state outlives a transaction.

    Writing a key of more than 2,600 bytes, or a value of nearly 1 GiB, raises ``LimitExceededError``.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "versioned_state",
        create: bool = True,
        timeout: float = 10.0,
        max_connections: int = 16,
    ) -> None:
        if not url.startswith(("postgresql://", "postgres://")):
            raise InvalidArgumentError("a PostgreSQL URL starts with postgresql:// or postgres://")
        count("max_connections", max_connections, least=1)
        timeout = min(seconds("timeout", timeout, above=True, endless=True), _LONGEST_TIMEOUT_S)
        self.schema: Final = checked_name(schema)
        try:
            from versioned_state.storage.postgres.connections import Connections
        except ImportError as error:
            raise MissingDependencyError("Postgres", extra="postgres") from error
        connections = self._connections = Connections(url, timeout=timeout, limit=max_connections)
        # Closes a store that its owner did not close, when it is collected or at exit.
        self._finalizer = finalize(self, connections.close)
        try:
            self._plain = prepare(connections, schema, create=create)
        except BaseException:
            self.close()
            raise
        self._gate = gate_number(schema)
        # Less than the client's timeout, so that the server reports a lock that was not free, and no outcome is
        # unknown.
        self._lock_patience = f"{max(1, int(timeout * 800))}ms"
        self._get_object, self._get_entry, self._get_objects, self._get_entries, self._apply_batch = (
            statement(text, schema) for text in (_GET_OBJECT, _GET_ENTRY, _GET_OBJECTS, _GET_ENTRIES, _APPLY)
        )

    def __repr__(self) -> str:
        return f"<Postgres {self._connections.name!r} schema {self.schema!r}>"

    @property
    def connections(self) -> Connections:
        """The connections, for tables that others derive from the content: their names begin with ``derived_``."""
        self._connections.check_open()
        return self._connections

    def drop_derived(self, sources: Collection[str] | None = None) -> None:
        # Each of these tables has the id of the source in its column ``branch``.
        which, ids = (
            ("", ())
            if sources is None
            else (" WHERE branch = ANY (%s::bytea[])", ([derived_id(source) for source in sources],))
        )

        def erase(link: Link) -> None:
            tables = [row[0] for row in link.execute(_DERIVED, (self.schema,))]
            if not tables:
                return
            link.execute("BEGIN")
            for table in sorted(tables):
                link.execute(statement(f'DELETE FROM {{schema}}."{table}"{which}', self.schema), ids)  # noqa: S608 - a name of ours
            link.execute("COMMIT")

        self.connections.write(erase, repeatable=True)

    def _get(self, key: str) -> bytes | None:
        raw = raw_key(key)
        sql, name = (self._get_object, raw) if raw is not None else (self._get_entry, key.encode())
        row = self._connections.read(lambda link: link.execute(sql, (name,), binary=True).fetchone())
        return None if row is None else row[0]

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        wanted = iter(keys)
        found: dict[str, bytes] = {}
        while chunk := tuple(islice(wanted, _CHUNK)):
            objects, entries = split_keys(chunk)
            parts = [
                (sql, ByteArray(names))
                for sql, names in ((self._get_objects, objects), (self._get_entries, entries))
                if names
            ]
            sql, arguments = b" UNION ALL ".join(part[0] for part in parts), [part[1] for part in parts]
            rows = self._connections.read(partial(_rows, sql, arguments))
            for is_object, raw, value in rows:
                found[(objects if is_object else entries)[raw]] = value
        return found

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int]:
        sql = statement(_SIZES, self.schema)
        wanted = iter(keys)
        found: dict[str, int] = {}
        while chunk := tuple(islice(wanted, _CHUNK)):
            objects, entries = split_keys(chunk)
            rows = self._connections.read(partial(_rows, sql, [ByteArray(objects), ByteArray(entries)]))
            for is_object, raw, size in rows:
                found[(objects if is_object else entries)[raw]] = size
        return found

    def _keys(self, prefix: str) -> Iterator[str]:
        # Page by page, each a query of its own that starts after the last key. It is as fast as a cursor, and between
        # two pages no transaction is open, which would hold back VACUUM and occupy a connection.
        return listed(prefix, self._pages, self._text)

    def _page(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> list[str]:
        rows = self._range("key", "entries", page_range(prefix, after, reverse=reverse), limit, reverse=reverse)
        return [self._text(raw) for (raw,) in rows]

    def _page_items(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> dict[str, bytes | None]:
        # Reading a range is five times as fast as reading as many single keys.
        rows = self._range("key, value", "entries", page_range(prefix, after, reverse=reverse), limit, reverse=reverse)
        return {self._text(raw): value for raw, value in rows}

    def _range(self, columns: str, table: str, span: ByteRange, limit: int, *, reverse: bool = False) -> list[TupleRow]:
        start, end = span
        above, order = "" if end is None else "AND key < %(end)b", "DESC" if reverse else ""
        rows = f"SELECT {columns} FROM {{schema}}.{table}"  # noqa: S608 - constants
        text = f"{rows} WHERE key >= %(start)b {above} ORDER BY key {order} LIMIT %(page)b"
        bounds = {"start": start, "end": end, "page": limit}
        return self._connections.read(partial(_rows, statement(text, self.schema), bounds))

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptStoreError(f"{self!r} is damaged: it holds a key that is not UTF-8, {raw!r}") from error

    def _pages(self, table: str, start: bytes, end: bytes | None) -> Iterator[bytes]:
        while True:
            rows = self._range("key", table, (start, end), _PAGE)
            for (raw,) in rows:
                yield raw
            if len(rows) < _PAGE:
                return
            start = rows[-1][0] + b"\0"  # the next possible key

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        _check_sizes(puts, objects)
        addresses, odd = split_keys(objects)
        gone_objects, gone_entries = split_keys(deletes)
        changed = {key.encode() for key in puts}.union(gone_entries)
        mutable = changed.union(key.encode() for key in expected)
        # A batch that deletes objects runs alone; see schema._BODY.
        alone = len(mutable) > _MAX_LOCKS or any(key.startswith(OBJECT_PREFIX) for key in deletes)
        # Always sorted: two batches that insert the same rows in different orders would deadlock.
        whole = _Step(
            objects=[(raw, objects[key]) for raw, key in sorted(addresses.items())],
            odd=[(raw, objects[key]) for raw, key in sorted(odd.items())],
            locks=() if alone else self._locks(mutable, changed),
            expected=[(key.encode(), value) for key, value in expected.items()],
            puts=sorted((key.encode(), value) for key, value in puts.items()),
            gone_objects=sorted(gone_objects),
            gone_entries=sorted(gone_entries),
        )
        steps = _split(whole)
        # Storing an object twice is as good as once; that holds for nothing else.
        repeatable = not puts and not deletes
        if len(steps) == 1 and self._plain:
            return self._connections.write(
                lambda link: self._at_once(link, steps[0], alone=alone), repeatable=repeatable
            )
        return self._connections.write(lambda link: self._in_steps(link, steps, alone=alone), repeatable=repeatable)

    def _locks(self, mutable: Collection[bytes], changed: Collection[bytes]) -> list[tuple[int, bool]]:
        """Return the lock of each key, in order.

        The lock of a key that is only expected is shared, so that many batches may expect it at once.
        """
        numbers = {key: lock_number(self.schema, key) for key in mutable}
        own = {numbers[key] for key in changed}
        return [(number, number not in own) for number in sorted(set(numbers.values()))]

    def _close(self) -> None:
        # Running calls of other threads end normally.
        self._connections.close()

    def _at_once(self, link: Link, step: _Step, *, alone: bool) -> bool:
        link.deciding = True
        return self._call(link, step, alone=alone)

    def _in_steps(self, link: Link, steps: list[_Step], *, alone: bool) -> bool:
        link.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        # Stops at the step whose condition does not hold. The objects come before it.
        holds = all(self._call(link, step, alone=alone) for step in steps)
        link.deciding = True
        link.execute("COMMIT")
        return holds

    def _call(self, link: Link, step: _Step, *, alone: bool) -> bool:
        row = link.execute(
            self._apply_batch, (self._gate, alone, self._lock_patience, *step.arguments()), binary=True
        ).fetchone()
        assert row is not None
        holds: bool = row[0]
        return holds


def _rows(sql: bytes, arguments: Params, link: Link) -> list[TupleRow]:
    return link.execute(sql, arguments, binary=True).fetchall()


def _check_sizes(puts: Mapping[str, bytes], objects: Mapping[str, bytes]) -> None:
    for items in (puts, objects):
        for key, value in items.items():
            if len(value) > MAX_VALUE:
                raise LimitExceededError(f"a value of {len(value)} bytes", limit=MAX_VALUE, path=key[:100])
            # UTF-8 takes at most four bytes a character.
            if len(key) * 4 > MAX_KEY and len(raw_key(key) or key.encode()) > MAX_KEY:
                raise LimitExceededError(f"a key of {len(key)} characters", limit=MAX_KEY, path=key[:100])


def _split(whole: _Step) -> list[_Step]:
    """Split a batch into successive steps: one step, or objects first, then conditions, then puts and deletes."""
    if whole.is_small():
        return [whole]
    steps = [
        *(_Step(objects=rows) for rows in _portions(whole.objects)),
        *(_Step(odd=rows) for rows in _portions(whole.odd)),
    ]
    rest = replace(whole, objects=(), odd=())
    if rest.is_small():
        return [*steps, rest]
    return [
        *steps,
        _Step(locks=whole.locks, expected=whole.expected),
        *(_Step(puts=rows) for rows in _portions(whole.puts)),
        *(
            _Step(gone_objects=whole.gone_objects[start : start + _STEP_KEYS])
            for start in range(0, len(whole.gone_objects), _STEP_KEYS)
        ),
        *(
            _Step(gone_entries=whole.gone_entries[start : start + _STEP_KEYS])
            for start in range(0, len(whole.gone_entries), _STEP_KEYS)
        ),
    ]


def _portions(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Split ``rows`` into lists of bounded size, each of at least one row."""
    portion: list[Row] = []
    size = 0
    for row in rows:
        size += len(row[0]) + len(row[1])
        if portion and (size > _STEP_BYTES or len(portion) == _STEP_KEYS):
            yield portion
            portion, size = [], len(row[0]) + len(row[1])
        portion.append(row)
    if portion:
        yield portion


def _columns(rows: Sequence[tuple[bytes, bytes | None]]) -> tuple[ByteArray, ByteArray]:
    return ByteArray([key for key, _ in rows]), ByteArray([value for _, value in rows])
