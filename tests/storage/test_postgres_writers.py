"""`Postgres` among writers beyond its contract: conditions that meet, sweeps beside commits, deadlocks, a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.support.processes import fork, join
from tests.support.servers.postgres import PostgresServer
from versioned_state.storage.postgres.schema import gate_number, lock_number
from versioned_state.storage.postgres.store import Postgres
from versioned_state.storage.testing.writers import run_together


@pytest.fixture
def stores(postgres_server: PostgresServer) -> Iterator[tuple[Postgres, ...]]:
    """Four stores over one schema, as four machines would have."""
    schema = postgres_server.fresh_schema()
    stores = tuple(Postgres(postgres_server.url, schema=schema, timeout=60) for _ in range(4))
    yield stores
    for store in stores:
        store.close()


# Conditions


def test_a_key_that_is_only_expected_is_held_by_a_batch_that_is_half_way(
    postgres_server: PostgresServer, stores: tuple[Postgres, ...]
) -> None:
    stores[0].set_many({"a": b"0", "b": b"0"})
    wait = Waiting(postgres_server)
    with postgres_server.connection() as admin, admin.transaction():
        # The first has seen what it expects of a, and cannot change b yet.
        admin.execute(f'SELECT FROM "{stores[0].schema}".entries WHERE key = %b FOR SHARE'.encode(), (b"b",))
        threads = wait.start(
            [lambda: stores[1].apply({"a": b"0"}, {"b": b"1"}), lambda: stores[2].compare_and_set("a", b"0", b"1")]
        )
    assert wait.join(threads) == [True, True]
    assert stores[0].get_many(["a", "b"]) == {"a": b"1", "b": b"1"}


def test_a_key_that_many_only_expect_makes_no_queue(
    postgres_server: PostgresServer, stores: tuple[Postgres, ...]
) -> None:
    """As commits to several branches expect gc's record: one half way delays only whoever changes the record."""
    stores[0].set_many({"gc": b"0", "b": b"0"})
    wait = Waiting(postgres_server)
    with postgres_server.connection() as admin, admin.transaction():
        admin.execute(f'SELECT FROM "{stores[0].schema}".entries WHERE key = %b FOR SHARE'.encode(), (b"b",))
        threads = wait.start([lambda: stores[1].apply({"gc": b"0"}, {"b": b"1"})])
        assert stores[2].apply({"gc": b"0"}, {"c": b"1"})
        threads += wait.start([lambda: stores[3].apply({"gc": b"0"}, {"gc": b"1"})])
    for thread in threads:
        thread.join(60)
    assert stores[0].get_many(["gc", "b", "c"]) == {"gc": b"1", "b": b"1", "c": b"1"}


@pytest.mark.parametrize("keys", [2, 100])
def test_conditions_of_large_and_small_batches_meet(stores: tuple[Postgres, ...], keys: int) -> None:
    """Beyond 64 keys a batch takes one lock instead of many, which must keep out the others all the same."""
    for number in range(20):
        several = {f"k/{number}/{each}": b"1" for each in range(keys)}
        one = f"k/{number}/{keys - 1}"
        won = run_together(
            [
                partial(stores[0].apply, dict.fromkeys(several), several),
                *(partial(store.compare_and_set, one, None, b"2") for store in stores[1:]),
            ]
        )
        assert won.count(True) == 1
        assert stores[0].get_many(several) == (several if won[0] else {one: b"2"})


def test_a_key_deleted_and_made_again_under_a_waiting_writer(
    postgres_server: PostgresServer, stores: tuple[Postgres, ...]
) -> None:
    """What it waited for is another row then, which a lock on the row it knew would miss."""
    stores[0].set("ref", b"1")
    with held(postgres_server, stores[0], "ref") as wait:
        works = [lambda: stores[1].apply({}, {}, ["ref"]), lambda: stores[2].compare_and_set("ref", b"1", b"2")]
        threads = wait.start(works)
        stores[3].set("other", b"1")  # no lock of theirs
    assert wait.join(threads) in ([True, True], [True, False])
    assert stores[0].get("ref") in (None, b"2")


class Waiting:
    """Threads whose batches wait in the server, one after the other."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.answers: dict[int, bool] = {}

    def start(self, works: list[Callable[[], bool]]) -> list[threading.Thread]:
        threads = []
        for number, work in enumerate(works):
            thread = threading.Thread(
                target=lambda number=number, work=work: self.answers.__setitem__(number, work()), daemon=True
            )
            thread.start()
            threads.append(thread)
            self._until_waiting(number + 1)
        return threads

    def join(self, threads: list[threading.Thread]) -> list[bool]:
        for thread in threads:
            thread.join(60)
        return [self.answers[number] for number in range(len(threads))]

    def _until_waiting(self, count: int) -> None:
        pause = threading.Event()
        with self.server.connection() as admin:
            for _ in range(2000):
                row = admin.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted").fetchone()
                if row is not None and row[0] >= count:
                    return
                pause.wait(0.01)
        raise AssertionError("they do not wait")


class held:
    """While within, batches that touch `key` wait: its lock is held."""

    def __init__(self, server: PostgresServer, store: Postgres, key: str) -> None:
        self.number = lock_number(store.schema, key.encode())
        self.server = server

    def __enter__(self) -> Waiting:
        self.context = self.server.connection()
        self.admin = self.context.__enter__()
        self.admin.execute("SELECT pg_advisory_lock(%s)", (self.number,))
        return Waiting(self.server)

    def __exit__(self, *error: object) -> None:
        self.admin.execute("SELECT pg_advisory_unlock_all()")
        self.context.__exit__(None, None, None)


# A sweep: it deletes objects on the condition that nothing was committed since it looked. A commit that found one of
# them present, and whose ref names it now, must not be half way meanwhile.


@pytest.mark.parametrize("key", ["o/" + "ab" * 24, "o/odd one"])
def test_no_dangling_ref_where_a_sweep_is_half_way(
    postgres_server: PostgresServer, stores: tuple[Postgres, ...], key: str
) -> None:
    stores[0].set_many({"ref": b"old", key: b"content"})
    wait = Waiting(postgres_server)
    with postgres_server.connection() as admin, admin.transaction():
        # The sweep has seen that the ref is the old one, and cannot delete the row yet.
        for table in ("objects", "entries"):
            admin.execute(
                f'SELECT FROM "{stores[0].schema}".{table} WHERE value = %b FOR SHARE'.encode(), (b"content",)
            )
        threads = wait.start(
            [
                lambda: stores[1].apply({"ref": b"old"}, {}, [key]),
                lambda: stores[2].apply({"ref": b"old"}, {"ref": b"new"}, objects={key: b"content"}),
            ]
        )
    assert wait.join(threads) == [True, True]
    assert (stores[0].get("ref"), stores[0].get(key)) == (b"new", b"content")


@pytest.mark.parametrize("key", ["o/" + "ab" * 24, "o/odd one"])
def test_no_dangling_ref_where_a_commit_is_half_way(
    postgres_server: PostgresServer, stores: tuple[Postgres, ...], key: str
) -> None:
    stores[0].set_many({"ref": b"old", key: b"content"})
    with held(postgres_server, stores[0], "ref") as wait:
        # The commit has found the object, and cannot move the ref yet.
        threads = wait.start(
            [
                lambda: stores[2].apply({"ref": b"old"}, {"ref": b"new"}, objects={key: b"content"}),
                lambda: stores[1].apply({"ref": b"old"}, {}, [key]),
            ]
        )
    assert wait.join(threads) == [True, False]
    assert (stores[0].get("ref"), stores[0].get(key)) == (b"new", b"content")


# Deadlocks


def test_batches_in_opposite_orders_do_not_wait_for_each_other(
    postgres_server: PostgresServer, stores: tuple[Postgres, ...]
) -> None:
    before = postgres_server.log.read_bytes().count(b"deadlock detected")
    for number in range(30):
        objects = {f"o/{number:06x}{each:04x}": b"v" * 300 for each in range(60)} | {
            f"o/odd {number} {each}": b"v" for each in range(5)
        }
        puts = {f"k/{number}/{each}": b"v" for each in range(20)}
        works = []
        for place, store in enumerate(stores):
            step = 1 if place % 2 else -1
            ordered, placed = dict(list(objects.items())[::step]), dict(list(puts.items())[::step])
            works.append(partial(store.apply, {}, placed, objects=ordered))
        assert run_together(works) == [True] * 4
    # Not even one that was repeated: it would have cost a second each.
    assert postgres_server.log.read_bytes().count(b"deadlock detected") == before


def test_sweep_waits_for_commits_and_they_for_it(postgres_server: PostgresServer, stores: tuple[Postgres, ...]) -> None:
    with postgres_server.connection() as commit, commit.transaction():
        commit.execute("SELECT pg_advisory_xact_lock_shared(%s)", (gate_number(stores[0].schema),))
        assert stores[0].apply({}, {"k": b"1"}, objects={"o/aa": b"A"})  # commits do not wait for commits
        wait = Waiting(postgres_server)
        threads = wait.start([lambda: stores[1].apply({}, {}, ["o/aa"]), lambda: stores[2].apply({}, {"k": b"2"})])
        assert (stores[0].get("o/aa"), stores[0].get("k")) == (b"A", b"1")
    assert wait.join(threads) == [True, True]
    assert (stores[0].get("o/aa"), stores[0].get("k")) == (None, b"2")


# Forks


def test_a_forked_child_has_a_connection_of_its_own(stores: tuple[Postgres, ...]) -> None:
    store = stores[0]

    def backend() -> int:
        store.get("k")
        (link,) = store._connections._home.idle
        return link.info.backend_pid

    before = backend()

    def work() -> None:
        assert backend() != before
        store.close()

    join(fork(work))
    assert backend() == before  # the child did not end it either
