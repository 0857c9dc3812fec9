"""`Redis` and its connections: cuts and stalls, restarts, threads, forks."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType

import pytest
import redis
from redis.connection import Connection, ConnectionPool

from tests.support.processes import fork, join
from tests.support.servers.kinds import REDIS, Place, ServerKind
from tests.support.servers.proxy import Fault, Proxy
from tests.support.servers.redis import RedisServer
from tests.support.waiting import eventually
from versioned_state.errors import (
    StorageError,
    StoreBusyError,
    StoreClosedError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.storage.base import Batch
from versioned_state.storage.redis.store import Redis
from versioned_state.storage.testing.writers import count_up, run_together


@pytest.fixture
def prefix(redis_server: RedisServer) -> str:
    return redis_server.fresh_prefix()


@pytest.fixture
def server_kind() -> ServerKind:
    return REDIS


# Cuts


def test_large_batch_cut_at_any_request_is_published_whole_or_not_at_all(
    place_behind_proxy: Place, *, long_run: bool
) -> None:
    proxy, direct, store = place_behind_proxy.proxy, place_behind_proxy.direct, place_behind_proxy.open(20)
    outcomes = set()
    chance = random.Random(1)
    for number in range(12 if long_run else 5):
        store.set("ref", b"before")
        store.delete_many(list(store.keys("o/")))
        # two round trips, of several scripts each
        objects = {f"o/{each:06x}": os.urandom(400_000) for each in range(25)}
        proxy.arm(
            Fault(
                chance.choice(("cut request", "cut reply")), at=chance.randint(1, 3), passing=chance.randint(0, 200_000)
            )
        )
        try:
            assert store.apply({"ref": b"before"}, {"ref": b"after"}, objects=objects)
            outcomes.add("done")
            assert direct.get("ref") == b"after"
        except UnknownOutcomeError:
            outcomes.add("unknown")
        proxy.disarm()
        if direct.get("ref") == b"after":
            assert direct.get_many(objects) == objects, number
        else:
            assert direct.get("ref") == b"before"
    assert "done" in outcomes


@pytest.mark.parametrize(
    ("fault", "size"),
    [
        (Fault("cut request", passing=500), 300),
        (Fault("cut request", at=2), 1_000_000),
        (Fault("cut reply", passing=9), 300),
    ],
    ids=str,
)
def test_batches_sent_together_are_each_done_or_not_and_none_is_said_to_be_that_is_not(
    place_behind_proxy: Place, fault: Fault, size: int
) -> None:
    proxy, direct, store = place_behind_proxy.proxy, place_behind_proxy.direct, place_behind_proxy.open(20)
    store.set_many({f"ref {number}": b"1" for number in range(8)})
    batches = [
        Batch({f"ref {number}": b"1"}, {f"ref {number}": b"2"}, objects={f"o/{number:06x}": os.urandom(size)})
        for number in range(8)
    ]
    proxy.arm(fault)
    outcomes = store.apply_each(batches)
    for number, outcome in enumerate(outcomes):
        assert outcome is True or isinstance(outcome, UnknownOutcomeError)
        if outcome is True:
            assert direct.get(f"ref {number}") == b"2"
            assert direct.get(f"o/{number:06x}") == batches[number].objects[f"o/{number:06x}"]
    again = store.apply_each(batches)
    done = [direct.get(f"ref {number}") == b"2" for number in range(8)]
    assert all(done)
    # none is done twice
    assert not any(each is True for each, before in zip(again, outcomes, strict=True) if before is True)


def test_batches_sent_together_find_their_script_again_and_fail_together_without_a_server(
    redis_server: RedisServer, prefix: str
) -> None:
    with Redis(redis_server.url, prefix=prefix) as store:
        batches = [Batch({f"ref {number}": None}, {f"ref {number}": b"1"}) for number in range(3)]
        with redis.Redis.from_url(redis_server.url) as client:
            client.script_flush()
        assert store.apply_each(batches) == [True] * 3
        assert store.apply_each(batches) == [False] * 3
    assert [type(outcome) for outcome in store.apply_each(batches)] == [StoreClosedError] * 3


def test_batches_sent_together_wait_together_for_a_server_that_refuses_them() -> None:
    server = RedisServer(lua_time_limit="20")
    try:
        with (
            redis.Redis.from_url(server.url) as admin,
            Redis(server.url, timeout=0.3) as store,
            Redis(server.url, timeout=20) as patient,
        ):
            batches = [Batch({f"ref {number}": None}, {f"ref {number}": b"1"}) for number in range(100)]
            busy = ConnectionPool.from_url(server.url).get_connection()
            busy.send_command("EVAL", "while true do end", 0)
            answers = True
            while answers:
                try:
                    admin.ping()
                except redis.exceptions.ResponseError:
                    answers = False
            began = time.monotonic()
            outcomes = store.apply_each(batches)
            assert time.monotonic() - began < 100 * 0.3 / 2
            assert [type(outcome) for outcome in outcomes] == [StoreBusyError] * 100
            assert len({id(outcome) for outcome in outcomes}) == 100
            killer = threading.Timer(0.2, admin.script_kill)
            killer.start()
            assert patient.apply_each(batches) == [True] * 100
            killer.join()
            assert patient.apply_each(batches) == [False] * 100
            busy.disconnect()
    finally:
        server.close()


# Servers that stall, or are gone


def answered(read: Callable[[], bytes | None]) -> bytes | None:
    """Return the result of a read, on a machine that may be too busy for a short timeout."""
    for _ in range(20):
        with suppress(UnreachableStoreError):
            return read()
    return read()


def test_server_that_stalls(place_behind_proxy: Place) -> None:
    proxy, store = place_behind_proxy.proxy, place_behind_proxy.open(1)
    place_behind_proxy.direct.set("k", b"1")
    for kind in ("hold request", "hold reply"):
        proxy.arm(Fault(kind))
        with pytest.raises(UnreachableStoreError, match="in time") as caught:
            store.get("k")
        assert not isinstance(caught.value, UnknownOutcomeError)
        proxy.disarm()
        assert answered(lambda: store.get("k")) is not None  # on a new connection
        proxy.arm(Fault(kind))
        with pytest.raises(UnknownOutcomeError, match="Timeout") as unknown:
            store.set("k", kind.encode())
        assert isinstance(unknown.value.__cause__, redis.TimeoutError)
        proxy.disarm()
        assert answered(lambda: store.get("k")) in (b"1", b"hold request", b"hold reply")
    assert place_behind_proxy.direct.get("k") == b"hold reply"


def test_loading_server_is_waited_for() -> None:
    # It takes 25 s to load what is stored below, unless it is told to hurry.
    server = RedisServer(key_load_delay="50000", loading_process_events_interval_bytes="1024")
    with (
        Redis(server.url, timeout=60) as store,
        Redis(server.url, timeout=1) as hasty,
        redis.Redis(unix_socket_path=str(server.socket_path)) as admin,
    ):
        store.set("k", b"1")
        admin.mset({f"other/{number}": os.urandom(2000) for number in range(500)})  # it answers after each of them
        admin.save()
        server.kill()
        starter = threading.Thread(target=server.restart)
        starter.start()
        said = ""
        while "loading" not in said and starter.is_alive():
            try:
                hasty.get("k")
            except UnreachableStoreError as error:
                said = str(error)
        assert "still loading" in said
        with redis.Redis(unix_socket_path=str(server.socket_path)) as now:
            now.config_set("key-load-delay", 0)
        assert store.apply({"k": b"1"}, {"k": b"2"})
        starter.join()
    server.close()


def test_scripts_that_the_server_forgot_are_loaded_again(redis_server: RedisServer, prefix: str) -> None:
    with (
        Proxy(redis_server.socket_path) as proxy,
        Redis(f"redis://127.0.0.1:{proxy.port}", prefix=prefix) as store,
        redis.Redis(unix_socket_path=str(redis_server.socket_path)) as admin,
    ):
        for number in range(3):
            admin.script_flush()
            proxy.requests = 0
            assert store.apply(
                {"k": b"%d" % number if number else None}, {"k": b"%d" % (number + 1)}, objects={f"o/0{number}": b"x"}
            )
            assert proxy.requests == 2
            admin.script_flush()
            assert len(list(store.keys())) == number + 2
        admin.script_flush()
        large = {f"o/{number:06x}": b"v" for number in range(5000)}
        assert store.apply({"k": b"3"}, {"k": b"4"}, objects=large)
        assert store.get_many(large) == large


# Listing and sweeping beside writers


def test_listing_beside_writers_has_each_key_once(redis_server: RedisServer, prefix: str) -> None:
    with Redis(redis_server.url, prefix=prefix) as store:
        stays = {f"o/{os.urandom(8).hex()}": b"v" for _ in range(6000)} | {
            f"k/{number}": b"v" for number in range(2000)
        }
        store.set_many(stays)
        stop = threading.Event()

        def grow() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                store.set_many({f"o/{os.urandom(8).hex()}": b"n" for _ in range(200)} | {f"k/new/{number}": b"n"})
                store.delete_many([f"k/new/{number - 5}"])

        writers = [threading.Thread(target=grow) for _ in range(2)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(4):
                seen = list(store.keys())
                assert len(seen) == len(set(seen))
                assert stays.keys() <= set(seen)
        finally:
            stop.set()
            for writer in writers:
                writer.join()


def test_nothing_is_published_whose_objects_a_sweep_has_taken(redis_server: RedisServer, prefix: str) -> None:
    """A sweep deletes unreferenced objects while batches of several parts are sent."""
    published = 0
    stop = threading.Event()
    objects = {f"o/{number:06x}": b"v" for number in range(1500)}
    with (
        Redis(redis_server.url, prefix=prefix, timeout=60) as store,
        Redis(redis_server.url, prefix=prefix) as sweeping,
    ):

        def sweep() -> None:
            while not stop.is_set():
                sweeping.apply({"ref": None}, {}, random.sample(sorted(objects), 50))

        sweeper = threading.Thread(target=sweep)
        sweeper.start()
        try:
            for _ in range(10):
                assert store.apply({"ref": None}, {"ref": b"1"}, objects=objects)
                assert len(store.get_many(objects)) == len(objects)
                published += 1
                store.apply({"ref": b"1"}, {}, ["ref", *random.sample(sorted(objects), 500)])
        finally:
            stop.set()
            sweeper.join()
    assert published == 10


def test_objects_that_cannot_stay_are_given_up(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Redis(redis_server.url, prefix=prefix, timeout=0.2) as store:
        monkeypatch.setattr(store, "_send", lambda *_: -1)
        with pytest.raises(StoreBusyError, match="nothing was published"):
            store.set("k", b"1")


# Threads and processes


def test_more_threads_than_connections(redis_server: RedisServer, prefix: str) -> None:
    with Redis(f"{redis_server.url}?max_connections=2", prefix=prefix, timeout=60) as store:
        run_together([partial(count_up, store, 10)] * 8)
        assert store.get("counter") == b"80"


def test_close_right_before_a_connection_comes_back(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Redis(redis_server.url, prefix=prefix, client_name=prefix)
    release = ConnectionPool.release

    def close_first(pool: ConnectionPool, connection: Connection) -> None:
        store.close()
        release(pool, connection)

    monkeypatch.setattr(ConnectionPool, "release", close_first)
    assert store.get("k") is None
    assert eventually(lambda: redis_server.connections(prefix) == 0)


def test_fork_while_other_threads_hold_the_pool(redis_server: RedisServer, prefix: str) -> None:
    with Redis(redis_server.url, prefix=prefix) as store:
        store.set("k", b"1")
        _, _, pool = store._link._home or (0, None, None)
        assert pool is not None
        held, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            with pool._lock, pool._fork_lock:
                held.set()
                let_go.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()

        def child() -> None:
            signal.alarm(20)  # a child that hangs ends
            assert store.get("k") == b"1"
            store.close()

        try:
            join(fork(child))
        finally:
            let_go.set()
            holder.join()
        assert store.get("k") == b"1"


class InterruptedByTestError(Exception):
    pass


def test_interrupted_call_leaves_no_reply_for_the_next(place_behind_proxy: Place) -> None:
    proxy, store = place_behind_proxy.proxy, place_behind_proxy.open(20)
    store.set_many({"a": b"A", "b": b"B"})

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise InterruptedByTestError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        proxy.arm(Fault("hold reply"))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(InterruptedByTestError):
            store.get("a")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    proxy.disarm()
    assert store.get("b") == b"B"
    assert store.get("a") == b"A"


def test_last_reply_that_says_that_all_is_well_settles_it(redis_server: RedisServer, prefix: str) -> None:
    """An early part of a batch was refused for want of memory.

    Its objects were there already, so that the last part published.
    """
    with Redis(redis_server.url, prefix=prefix) as store:
        store.set("k", b"1")
        refused = ("HGET", store._layout, b"field")
        published = ("HLEN", store._entries)
        assert store._link.run([refused, published], repeatable=False, done=1)[-1] == 1
        for done in (None, 2):
            with pytest.raises(StorageError):
                store._link.run([refused, published], repeatable=False, done=done)
