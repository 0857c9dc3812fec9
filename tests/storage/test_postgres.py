"""`Postgres` on a real server: its contract, schemas that it makes or refuses, rights, limits, errors, round trips."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks import data
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import Proxy
from tests.support.waiting import eventually
from versioned_state import Versioned
from versioned_state.errors import (
    CorruptStoreError,
    FormatError,
    InvalidArgumentError,
    LimitExceededError,
    NotAStoreError,
    ReadOnlyError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreNotFoundError,
    UnreachableStoreError,
    UnsafeStoreError,
)
from versioned_state.storage import Cache, KVStore
from versioned_state.storage.postgres.byte_array import MAX_VALUE
from versioned_state.storage.postgres.schema import gate_number
from versioned_state.storage.postgres.store import MAX_KEY, Postgres
from versioned_state.storage.testing.contract import KVStoreContract
from versioned_state.storage.testing.writers import count_up, run_together


class TestPostgres(KVStoreContract):
    tells_sizes = True
    persistent = True
    shared = True
    forks = True

    @pytest.fixture(autouse=True)
    def _server(self, postgres_server: PostgresServer) -> None:
        self.server = postgres_server

    def open_store(self, place: Path) -> KVStore:
        name = self.name_of(place)
        return Postgres(self.server.url_of(options=f"&application_name={name}"), schema=name, timeout=60)

    def check_closed(self, place: Path) -> None:
        assert eventually(lambda: self.server.connections(self.name_of(place)) == 0)

    @staticmethod
    def name_of(place: Path) -> str:
        # The place is a new folder for each test and each example.
        return f"t_{blake2b(bytes(place), digest_size=12).hexdigest()}"


class TestCacheOverPostgres(TestPostgres):
    persistent = False  # what comes of a place that is opened again has no part of the cache

    def open_store(self, place: Path) -> KVStore:
        return Cache(super().open_store(place))


@pytest.fixture
def schema(postgres_server: PostgresServer) -> str:
    return postgres_server.fresh_schema()


@pytest.fixture
def store(postgres_server: PostgresServer, schema: str) -> Iterator[Postgres]:
    with Postgres(postgres_server.url, schema=schema) as store:
        yield store


@pytest.fixture
def role(postgres_server: PostgresServer) -> str:
    """A new role that may do nothing."""
    name = f"r_{os.urandom(8).hex()}"
    with postgres_server.connection() as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
    return name


def change(server: PostgresServer, schema: str, *statements: str) -> None:
    """Change the server's content as its owner would. `@s` stands for the schema."""
    with server.connection() as admin:
        for statement in statements:
            admin.execute(statement.replace("@s", schema).encode())


def tables(server: PostgresServer, schema: str) -> list[str]:
    with server.connection() as admin:
        found = admin.execute(
            "SELECT relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace "
            "WHERE nspname = %s ORDER BY 1",
            (schema,),
        )
        return [row[0] for row in found]


def many(count: int, size: int = 500) -> dict[str, bytes]:
    return {f"o/{os.urandom(24).hex()}": os.urandom(size) for _ in range(count)}


# Opening


def test_nothing_is_made_unless_asked_for(postgres_server: PostgresServer, schema: str) -> None:
    with pytest.raises(StoreNotFoundError):
        Postgres(postgres_server.url, schema=schema, create=False)
    with postgres_server.connection() as admin:
        assert admin.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None


@pytest.mark.parametrize("schema", ["", "a b", 'a"b', "a-b", "1a", "pg_x", "information_schema", "x" * 64, "é", "a\0"])
def test_schema_that_is_not_a_plain_name_is_refused(postgres_server: PostgresServer, schema: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Postgres(postgres_server.url, schema=schema)


def test_schema_names_are_quoted_and_kept_apart(postgres_server: PostgresServer) -> None:
    unique = os.urandom(4).hex()
    names = [f"select_{unique}", f"SELECT_{unique}", f"_{unique}"]
    for name in ("user", *names):
        with Postgres(postgres_server.url, schema=name) as store:
            store.set("k", name.encode())
    for name in names:
        with Postgres(postgres_server.url, schema=name) as store:
            assert dict(store.items()) == {"k": name.encode()}


def test_tables_go_into_a_schema_with_other_tables(postgres_server: PostgresServer, schema: str) -> None:
    change(postgres_server, schema, "CREATE SCHEMA @s", "CREATE TABLE @s.mine (x int)")
    with Postgres(postgres_server.url, schema=schema) as store:
        store.set("k", b"1")
    assert "mine" in tables(postgres_server, schema)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": -1.0}, {"timeout": float("nan")}, {"max_connections": 0}]
)
def test_bad_option_is_refused(postgres_server: PostgresServer, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        Postgres(postgres_server.url, **options)


def test_timeout_without_an_end(postgres_server: PostgresServer, schema: str) -> None:
    with Postgres(postgres_server.url, schema=schema, timeout=float("inf")) as store:
        store.set("k", b"1")
        assert store.get("k") == b"1"


@pytest.mark.parametrize("url", ["", "http://h/x", "postgresql:", "redis://h", "host=h dbname=d"])
def test_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Postgres(url)


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE @s.objects (key text PRIMARY KEY, value bytea)",),
        ("CREATE TABLE @s.entries (id int)",),
        ("CREATE VIEW @s.format AS SELECT 1 AS version",),
        ("CREATE TABLE @s.format (version integer)",),
    ],
)
def test_tables_of_somebody_else_are_refused(
    postgres_server: PostgresServer, schema: str, statements: tuple[str, ...]
) -> None:
    change(postgres_server, schema, "CREATE SCHEMA @s", *statements)
    before = tables(postgres_server, schema)
    for create in (True, False):
        with pytest.raises(NotAStoreError):
            Postgres(postgres_server.url, schema=schema, create=create)
    assert tables(postgres_server, schema) == before


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("DROP TABLE @s.entries", NotAStoreError),
        ("DROP TABLE @s.format", NotAStoreError),
        ("DELETE FROM @s.format", NotAStoreError),
        ("INSERT INTO @s.format VALUES (1)", NotAStoreError),
        ("ALTER TABLE @s.objects ADD COLUMN more int", NotAStoreError),
        ("ALTER TABLE @s.objects ALTER COLUMN value TYPE text USING ''", NotAStoreError),
        ("ALTER TABLE @s.objects DROP CONSTRAINT objects_pkey", NotAStoreError),
        ("UPDATE @s.format SET version = 2", FormatError),
        ("ALTER TABLE @s.objects SET UNLOGGED", UnsafeStoreError),
        ("ALTER TABLE @s.entries ENABLE ROW LEVEL SECURITY", UnsafeStoreError),
        ("CREATE RULE r AS ON DELETE TO @s.objects DO INSTEAD NOTHING", UnsafeStoreError),
        (
            (
                "CREATE TRIGGER t BEFORE UPDATE ON @s.entries FOR EACH ROW "
                "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
            ),
            UnsafeStoreError,
        ),
        ("ALTER FUNCTION @s.apply_batch SECURITY DEFINER", UnsafeStoreError),
        ("ALTER FUNCTION @s.apply_batch SET search_path = public", UnsafeStoreError),
        ("DROP FUNCTION @s.apply_batch", UnsafeStoreError),
        ("CREATE FUNCTION @s.apply_batch(x int) RETURNS int LANGUAGE sql AS 'SELECT 1'", UnsafeStoreError),
    ],
)
def test_altered_store_is_refused(
    postgres_server: PostgresServer, schema: str, statement: str, error: type[Exception]
) -> None:
    Postgres(postgres_server.url, schema=schema).close()
    change(postgres_server, schema, statement)
    for create in (True, False):
        with pytest.raises(error):
            Postgres(postgres_server.url, schema=schema, create=create)


def test_tables_that_are_dropped_under_an_open_store(postgres_server: PostgresServer, store: Postgres) -> None:
    change(postgres_server, store.schema, "DROP SCHEMA @s CASCADE")
    for call in (lambda: store.get("k"), lambda: store.set("k", b"1"), lambda: list(store.keys())):
        with pytest.raises(StoreNotFoundError):
            call()


def test_key_that_is_not_text_is_damage(postgres_server: PostgresServer, store: Postgres) -> None:
    change(postgres_server, store.schema, r"INSERT INTO @s.entries VALUES ('\xff', '\x01')")
    with pytest.raises(CorruptStoreError):
        list(store.keys())


def test_dump_that_is_restored_elsewhere_is_the_store(
    postgres_server: PostgresServer, store: Postgres, real_conversations: list[list[data.Message]]
) -> None:
    with Versioned(store) as state:
        for messages in real_conversations[:3]:
            state["messages"] = messages
            state.commit("round")
    name, dump = f"d_{os.urandom(8).hex()}", postgres_server.folder / f"{store.schema}.sql"
    postgres_server.run(
        postgres_server.programs / "pg_dump",
        "-h",
        postgres_server.folder,
        "-U",
        "postgres",
        "-n",
        store.schema,
        "-f",
        dump,
        "postgres",
    )
    change(postgres_server, store.schema, f"CREATE DATABASE {name}")
    url = postgres_server.url_of(database=name)
    postgres_server.run(postgres_server.programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", dump, url)
    with (
        Postgres(url, schema=store.schema, create=False) as copy,
        Postgres(postgres_server.url, schema=store.schema) as original,
    ):
        assert dict(copy.items()) == dict(original.items())
        with Versioned(copy) as state:
            assert state["messages"] == real_conversations[2]
            state["messages"].append({"role": "user", "content": "more"})
            state.commit("there")


# Rights


def test_role_with_the_least_rights_can_use_a_store(
    postgres_server: PostgresServer, store: Postgres, role: str
) -> None:
    change(
        postgres_server,
        store.schema,
        f"GRANT USAGE ON SCHEMA @s TO {role}",
        f"GRANT SELECT ON @s.format TO {role}",
        f"GRANT SELECT, INSERT, DELETE ON @s.objects TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON @s.entries TO {role}",
    )
    with Postgres(postgres_server.url_of(user=role), schema=store.schema) as other:
        assert other.apply({"ref": None}, {"ref": b"1"}, objects={"o/aa": b"A", "o/odd one": b"B"})
        assert other.apply({"ref": b"1"}, {"ref": b"2"}, ["o/aa"])
        assert dict(other.items()) == dict(store.items()) == {"ref": b"2", "o/odd one": b"B"}


def test_role_that_may_only_read(postgres_server: PostgresServer, store: Postgres, role: str) -> None:
    change(
        postgres_server,
        store.schema,
        f"GRANT USAGE ON SCHEMA @s TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA @s TO {role}",
    )
    store.set_many({"k": b"1", "o/aa": b"A"})
    with Postgres(postgres_server.url_of(user=role), schema=store.schema, create=False) as reader:
        assert dict(reader.items()) == {"k": b"1", "o/aa": b"A"}
        with pytest.raises(StorageError, match="permission denied") as caught:
            reader.set("k", b"2")
        assert caught.value.hint
    assert store.get("k") == b"1"


def test_role_that_may_not_make_a_store(postgres_server: PostgresServer, schema: str, role: str) -> None:
    with pytest.raises(StorageError, match="permission denied") as caught:
        Postgres(postgres_server.url_of(user=role), schema=schema)
    assert caught.value.hint
    assert isinstance(caught.value.__cause__, psycopg.Error)


def test_role_whose_transactions_are_read_only(postgres_server: PostgresServer, store: Postgres, role: str) -> None:
    change(
        postgres_server,
        store.schema,
        f"GRANT USAGE ON SCHEMA @s TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA @s TO {role}",
        f"ALTER ROLE {role} SET default_transaction_read_only = on",
    )
    store.set("k", b"1")
    with Postgres(postgres_server.url_of(user=role), schema=store.schema) as reader:
        assert reader.get("k") == b"1"
        with pytest.raises(ReadOnlyError):
            reader.set("k", b"2")


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_default_isolation_of_another_kind_changes_nothing(
    postgres_server: PostgresServer, store: Postgres, role: str, isolation: str
) -> None:
    change(
        postgres_server,
        store.schema,
        f"GRANT USAGE ON SCHEMA @s TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA @s TO {role}",
        f"ALTER ROLE {role} SET default_transaction_isolation = '{isolation}'",
    )
    with Postgres(postgres_server.url_of(user=role), schema=store.schema) as other:
        run_together([partial(count_up, other, 20)] * 4)
    assert store.get("counter") == b"80"


# Passwords and logins

SECRET = "s3cret-Wört"


@pytest.mark.parametrize("url", [f"postgresql://u:{SECRET}%zz@h/d", f"postgresql://u@h/d?password={SECRET}&no=1"])
def test_password_in_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Postgres(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_password_is_never_shown(postgres_server: PostgresServer, schema: str) -> None:
    change(
        postgres_server,
        schema,
        "DROP ROLE IF EXISTS locked",
        "CREATE ROLE locked LOGIN PASSWORD 'right'",
        "CREATE SCHEMA @s AUTHORIZATION locked",
    )
    url = postgres_server.url_of(user="locked", password="right")
    with Postgres(url, schema=schema) as store:
        store.set("k", b"1")
        assert "right" not in repr(store)
        assert "locked" in repr(store)
    for wrong, word in (
        (url.replace("right", SECRET), "authentication failed"),
        (url.replace(":right", ""), "password"),
    ):
        with pytest.raises(StorageError, match=word) as caught:
            Postgres(wrong, schema=schema)
        assert type(caught.value) is StorageError  # trying again is of no use
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    change(postgres_server, schema, "DROP OWNED BY locked", "DROP ROLE locked")


def test_database_that_is_missing(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreNotFoundError):
        Postgres(postgres_server.url_of(database="absent"))


def test_server_that_is_missing(tmp_path: Path) -> None:
    for url in (f"postgresql://u:{SECRET}@/d?host={tmp_path}", f"postgresql://u:{SECRET}@127.0.0.1:1/d"):
        with pytest.raises(UnreachableStoreError) as caught:
            Postgres(url)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_too_many_connections(postgres_server: PostgresServer, store: Postgres, role: str) -> None:
    change(postgres_server, store.schema, f"ALTER ROLE {role} CONNECTION LIMIT 1")
    with psycopg.connect(postgres_server.url_of(user=role)), pytest.raises(StoreBusyError):
        Postgres(postgres_server.url_of(user=role), schema=store.schema)


# Errors of the server

RAISES = """
CREATE FUNCTION @s.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('@s.attempts') <= @times THEN RAISE EXCEPTION 'on purpose' USING ERRCODE = '@code'; END IF;
    RETURN NEW;
END $$
"""


def fail(server: PostgresServer, schema: str, code: str, *, times: int) -> None:
    """Let the next writes of entries fail, as the server says when it has a reason."""
    change(
        server,
        schema,
        "CREATE SEQUENCE @s.attempts",  # counts attempts that were rolled back as well
        RAISES.replace("@code", code).replace("@times", str(times)),
        "CREATE TRIGGER fail BEFORE INSERT ON @s.entries FOR EACH ROW EXECUTE FUNCTION @s.fail()",
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("53100", StorageFullError),
        ("57014", StoreBusyError),
        ("55P03", StoreBusyError),
        ("25006", ReadOnlyError),
        ("54000", LimitExceededError),
        ("XX001", CorruptStoreError),
        ("53200", StorageError),
        ("22000", StorageError),
    ],
)
def test_error_of_the_server_is_raised_and_nothing_is_written(
    postgres_server: PostgresServer, store: Postgres, code: str, kind: type[Exception]
) -> None:
    fail(postgres_server, store.schema, code, times=10)
    with pytest.raises(kind, match="on purpose") as caught:
        store.apply({}, {"k": b"1"}, objects={"o/aa": b"A"})
    assert type(caught.value) is kind
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert dict(store.items()) == {}


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_writers_in_each_others_way_are_repeated(postgres_server: PostgresServer, store: Postgres, code: str) -> None:
    fail(postgres_server, store.schema, code, times=3)
    assert store.apply({"k": None}, {"k": b"1"}, objects={"o/aa": b"A"})
    assert dict(store.items()) == {"k": b"1", "o/aa": b"A"}


def test_writers_in_each_others_way_give_up_in_the_end(postgres_server: PostgresServer, schema: str) -> None:
    with Postgres(postgres_server.url, schema=schema, timeout=1) as store:
        fail(postgres_server, schema, "40001", times=1_000_000)
        with pytest.raises(StoreBusyError):
            store.set("k", b"1")
        assert store.get("k") is None


def test_lock_that_is_held_for_too_long(postgres_server: PostgresServer, schema: str) -> None:
    with Postgres(postgres_server.url, schema=schema, timeout=2) as store, postgres_server.connection() as other:
        other.execute("SELECT pg_advisory_lock(%s)", (gate_number(schema),))
        with pytest.raises(StoreBusyError):
            store.apply({"k": None}, {"k": b"1"}, objects={"o/aa": b"A"})
        assert dict(store.items()) == {}  # and reads wait for no lock
        other.execute("SELECT pg_advisory_unlock_all()")
        store.set("k", b"1")


# Limits and large batches


def test_value_and_key_beyond_the_limits(store: Postgres) -> None:
    store.set("k", b"1")
    huge = bytes(MAX_VALUE + 1)
    calls: list[Callable[[], object]] = [
        lambda: store.set("k", huge),
        lambda: store.apply({}, {"k": b"2"}, objects={"o/aa": huge}),
        lambda: store.set("x" * (MAX_KEY + 1), b"1"),
        lambda: store.set("é" * (MAX_KEY // 2 + 1), b"1"),
        lambda: store.set("o/" + "ab" * (MAX_KEY + 1), b"1"),
        lambda: store.set("o/" + "x" * MAX_KEY, b"1"),
    ]
    for call in calls:
        with pytest.raises(LimitExceededError):
            call()
    assert dict(store.items()) == {"k": b"1"}
    # What cannot be there can be asked for all the same.
    assert store.get("x" * 100_000) is None
    assert store.apply({"x" * 100_000: None}, {"k": b"2"}, ["y" * 100_000])


def test_longest_keys(store: Postgres) -> None:
    # Random, as the server would make a repetitive key small.
    names = {"k" + os.urandom(MAX_KEY // 2).hex()[: MAX_KEY - 1]: b"1", f"o/{os.urandom(MAX_KEY).hex()}": b"2"}
    store.set_many(names)
    assert store.get_many(names) == dict(store.items()) == names


def test_batch_of_several_statements_is_all_or_nothing(store: Postgres) -> None:
    objects = many(20, 1_000_000)
    puts = {f"k/{number}": os.urandom(1_000_000) for number in range(10)}
    assert not store.apply({"ref": b"other"}, puts, objects=objects)
    assert store.get_many([*objects, *puts]) == objects
    assert store.apply({"ref": None}, {**puts, "ref": b"1"}, objects=many(20, 500_000))
    assert store.get_many([*puts, "ref"]) == {**puts, "ref": b"1"}
    assert not store.apply({"ref": None}, {}, [*objects, *puts] * 400)
    assert store.get_many(objects) == objects


def test_deletes_of_several_statements(store: Postgres) -> None:
    # A lock for each of the mutable keys would be more than the server has room for.
    names = [f"o/{number:06x}" for number in range(12_000)] + [f"k/{number}" for number in range(8_000)]
    store.set_many(dict.fromkeys(names, b"v"))
    assert store.apply({}, {"stays": b"1"}, names)
    assert list(store.keys()) == ["stays"]


# Round trips, and what is left behind


def test_round_trips(postgres_server: PostgresServer, schema: str) -> None:
    with (
        Proxy(postgres_server.socket_path) as proxy,
        Postgres(postgres_server.url_through(proxy), schema=schema) as store,
    ):
        objects = many(300, 100)
        store.set_many(objects)
        ten = many(10, 2000)
        calls: list[tuple[Callable[[], object], object]] = [
            (lambda: store.apply({"ref": None}, {"ref": b"1"}, objects=ten), True),
            (lambda: store.apply({"ref": None}, {"ref": b"2"}, objects=ten), False),
            (lambda: store.compare_and_set("ref", b"1", b"2"), True),
            (lambda: store.get("ref"), b"2"),
            (lambda: store.get_many([*objects, "ref"]), {**objects, "ref": b"2"}),
            (lambda: store.delete_many([*objects, *ten]), None),
        ]
        for number, (call, answer) in enumerate(calls):
            proxy.requests = 0
            assert call() == answer
            assert proxy.requests == 1, number


def test_batches_read_no_whole_table_though_it_was_small_as_they_were_planned(
    postgres_server: PostgresServer, schema: str
) -> None:
    """A connection plans the statements of a function once.

    The tests' server never gathers statistics, which would plan them anew.
    """

    def read() -> int:
        with psycopg.connect(postgres_server.url) as connection:
            row = connection.execute(
                "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables WHERE schemaname = %s", (schema,)
            ).fetchone()
        assert row is not None
        return int(row[0])

    with Postgres(postgres_server.url, schema=schema) as store:
        for start in range(0, 4_000, 200):
            keys = [f"{number}" for number in range(start, start + 200)]
            assert store.apply(dict.fromkeys(keys), dict.fromkeys(keys, b"x"))
        for number in range(20):
            assert store.apply({f"{number}": b"x"}, {f"{number}": b"y"})
    assert read() < 1_000  # a connection tells the server what it has read as it ends


def test_nothing_outlives_a_transaction(store: Postgres) -> None:
    """As PgBouncer wants it, whose next transaction may be on another connection."""
    store.apply({"ref": None}, {"ref": b"1"}, objects=many(3))
    store.apply({"ref": b"1"}, {f"k/{number}": b"v" for number in range(100)}, objects=many(3, 4_000_000))
    store.delete_many(["o/aa", "ref"])
    for _ in range(10):
        store.get("k")
    (link,) = store._connections._home.idle
    query = """
        SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors),
               (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
               (SELECT count(*) FROM pg_settings WHERE source = 'session'),
               (SELECT count(*) FROM pg_listening_channels())
    """
    assert link.execute(query).fetchone() == (0, 0, 0, 0, 0)


def test_stores_that_are_closed_or_were_refused_leave_no_connection(
    postgres_server: PostgresServer, schema: str
) -> None:
    url = postgres_server.url_of(options=f"&application_name={schema}")
    before = set(threading.enumerate())
    store = Postgres(url, schema=schema)
    assert postgres_server.connections(schema) == 1
    store.close()
    assert eventually(lambda: postgres_server.connections(schema) == 0)
    change(postgres_server, schema, "DELETE FROM @s.format")
    with pytest.raises(NotAStoreError):
        Postgres(url, schema=schema)
    assert eventually(lambda: postgres_server.connections(schema) == 0)
    assert set(threading.enumerate()) <= before  # those of earlier tests may have ended meanwhile


def test_connections_that_are_no_longer_needed_are_closed(postgres_server: PostgresServer, schema: str) -> None:
    url = postgres_server.url_of(options=f"&application_name={schema}")
    with Postgres(url, schema=schema) as store:
        links = [store._connections._take() for _ in range(5)]
        for link in links:
            store._connections._give(link)
        assert postgres_server.connections(schema) == 5
        store.get("k")
        assert postgres_server.connections(schema) == 5, "one moment of rest is not enough"
        for link in links[:-1]:
            link.given_back -= 241
        for _ in range(5):
            store.get("k")
        assert eventually(lambda: postgres_server.connections(schema) == 1)


def test_more_threads_than_connections(postgres_server: PostgresServer, schema: str) -> None:
    url = postgres_server.url_of(options=f"&application_name={schema}")
    with Postgres(url, schema=schema, max_connections=2) as store:
        run_together([partial(store.set, f"k{number}", b"1") for number in range(20)])
        assert len(list(store.keys())) == 20
        assert postgres_server.connections(schema) <= 2
    with Postgres(url, schema=schema, max_connections=1, timeout=1) as store:
        store._connections._home.places.acquire()
        with pytest.raises(StoreBusyError):
            store.get("k1")
        store._connections._home.places.release()
        assert store.get("k1") == b"1"
