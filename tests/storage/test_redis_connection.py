"""`Redis` and its connections: cuts and stalls, restarts, threads, forks."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType

import pytest
import redis
from redis.connection import Connection, ConnectionPool

from tests.support.processes import fork, join
from tests.support.servers.proxy import Fault, Proxy
from tests.support.servers.redis import RedisServer
from tests.support.waiting import eventually
from versioned_state import Versioned
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

Cut = tuple[Proxy, Redis, Redis]


@pytest.fixture
def prefix(redis_server: RedisServer) -> str:
    return redis_server.fresh_prefix()


@pytest.fixture
def cut(redis_server: RedisServer, prefix: str) -> Iterator[Cut]:
    """A proxy, a store behind it, and the same store without."""
    with (
        Proxy(redis_server.socket_path) as proxy,
        Redis(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, timeout=20) as store,
        Redis(redis_server.url, prefix=prefix) as direct,
    ):
        yield proxy, store, direct


# Cuts

CUTS = [Fault("cut request", passing=passing) for passing in (0, 1, 60, 500, 5000)] + [
    Fault("cut reply", passing=passing) for passing in (0, 1, 3)
]


@pytest.mark.parametrize("fault", CUTS, ids=str)
def test_write_whose_connection_is_cut_is_done_whole_or_not_at_all(cut: Cut, fault: Fault) -> None:
    proxy, store, direct = cut
    store.set_many({"ref": b"1", "gone": b"1"})
    objects = {f"o/{number:06x}": os.urandom(2000) for number in range(10)}
    done = {"ref": b"2", "new": b"2"}
    proxy.arm(fault)
    try:
        assert store.apply({"ref": b"1"}, {"ref": b"2", "new": b"2"}, ["gone"], objects=objects)
    except UnknownOutcomeError:
        assert dict(direct.items()) == (
            {**done, **objects} if fault.kind == "cut reply" else {"ref": b"1", "gone": b"1"}
        )
    else:
        # The cut was noticed while the batch was on its way, so that it could be sent again.
        assert fault.kind == "cut request"
        assert dict(direct.items()) == {**done, **objects}
    assert proxy.fired == 1
    # The store goes on, on a new connection.
    expected = store.get("ref")
    assert store.apply({"ref": expected}, {**done, "ref": b"3"}, ["gone"], objects=objects)
    assert dict(store.items()) == {**objects, **done, "ref": b"3"}


@pytest.mark.parametrize("fault", CUTS, ids=str)
def test_reads_are_repeated(cut: Cut, fault: Fault) -> None:
    proxy, store, _ = cut
    everything = {"k": b"1" * 9000, **{f"o/{number:06x}": os.urandom(500) for number in range(300)}}
    store.set_many(everything)
    reads: list[Callable[[], object]] = [
        lambda: store.get("k") == everything["k"],
        lambda: store.get_many(everything) == everything,
        lambda: sorted(store.keys()) == sorted(everything),
    ]
    for count, read in enumerate(reads, 1):
        proxy.arm(Fault(fault.kind, passing=min(fault.passing, 30)))
        assert read()
        assert proxy.fired == count


@pytest.mark.parametrize("kind", ["cut request", "cut reply"])
def test_writes_that_may_be_done_twice_are_repeated(cut: Cut, kind: str) -> None:
    proxy, store, direct = cut
    store.set("ref", b"1")
    for count, write in enumerate(
        (
            lambda: store.set("o/ab", b"x"),
            lambda: store.apply({"ref": b"1"}, {}, objects={"o/cd": b"y"}),
            lambda: store.apply({"ref": b"0"}, {}, objects={"o/ef": b"z"}),
        ),
        1,
    ):
        proxy.arm(Fault("cut request" if kind == "cut request" else "cut reply"))
        write()
        assert proxy.fired == count
    assert dict(direct.items()) == {"ref": b"1", "o/ab": b"x", "o/cd": b"y", "o/ef": b"z"}


def test_large_batch_cut_at_any_request_is_published_whole_or_not_at_all(cut: Cut, *, long_run: bool) -> None:
    proxy, store, direct = cut
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
    cut: Cut, fault: Fault, size: int
) -> None:
    proxy, store, direct = cut
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
            batches = [Batch({f"ref {number}": None}, {f"ref {number}": b"1"}) for number in range(16)]
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
            assert time.monotonic() - began < 16 * 0.3 / 2
            assert [type(outcome) for outcome in outcomes] == [StoreBusyError] * 16
            assert len({id(outcome) for outcome in outcomes}) == 16
            killer = threading.Timer(0.2, admin.script_kill)
            killer.start()
            assert patient.apply_each(batches) == [True] * 16
            killer.join()
            assert patient.apply_each(batches) == [False] * 16
            busy.disconnect()
    finally:
        server.close()


def test_connections_that_died_while_idle_are_replaced_unnoticed(cut: Cut) -> None:
    proxy, store, _ = cut
    for number in range(3):
        store.set("k", b"%d" % number)
        proxy.cut_all()
        time.sleep(0.01)
        assert store.apply({"k": b"%d" % number}, {"k": b"x"})
        assert store.get("k") == b"x"


def test_commit_whose_reply_is_lost_is_there_once(cut: Cut) -> None:
    proxy, store, direct = cut
    state = Versioned(store)
    state["log"] = ["start"]
    state.commit("start")
    for number in range(6):
        state["log"].append(f"entry {number}")
        proxy.arm(Fault(("cut reply", "cut request")[number % 2], at=1 + number // 3))
        try:
            state.commit(f"round {number}")
        except UnreachableStoreError:
            state.commit(f"round {number}, again")
        proxy.disarm()
        assert Versioned(direct)["log"] == ["start", *(f"entry {each}" for each in range(number + 1))]
    assert len(list(state.log())) == 7


# Servers that stall, or are gone


def answered(read: Callable[[], bytes | None]) -> bytes | None:
    """Return the result of a read, on a machine that may be too busy for a short timeout."""
    for _ in range(20):
        with suppress(UnreachableStoreError):
            return read()
    return read()


def test_server_that_stalls(cut: Cut, prefix: str) -> None:
    proxy, _, direct = cut
    with Redis(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, timeout=0.3) as store:
        store.set("k", b"1")
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
        assert direct.get("k") == b"hold reply"


def test_stopped_server_is_waited_for_no_longer_than_the_timeout() -> None:
    server = RedisServer()
    with Redis(server.url, timeout=0.3) as store, Redis(server.url, timeout=60) as patient:
        store.set("k", b"1")
        server.suspend()
        with pytest.raises(UnknownOutcomeError):
            store.set("k", b"2")
        with pytest.raises(UnreachableStoreError) as caught:
            store.set("k", b"3")  # on a new connection, which cannot be made
        assert not isinstance(caught.value, UnknownOutcomeError)
        with pytest.raises(UnreachableStoreError):
            store.get("k")
        with pytest.raises(UnreachableStoreError):
            Redis(server.url, timeout=0.3)
        reader = threading.Timer(0.2, server.resume)
        reader.start()
        assert patient.get("k") in (b"1", b"2")
        reader.join()
        assert store.get("k") in (b"1", b"2")
    server.close()


def test_server_that_is_gone() -> None:
    server = RedisServer()
    with Redis(server.url, timeout=0.3) as store:
        store.set("k", b"1")
        server.kill()
        for call in (
            lambda: store.get("k"),
            lambda: list(store.keys()),
            lambda: store.set("k", b"2"),
            lambda: store.get_many(["k"]),
        ):
            with pytest.raises(UnreachableStoreError, match="nothing was written") as caught:
                call()
            assert not isinstance(caught.value, UnknownOutcomeError)
        with pytest.raises(UnreachableStoreError):
            Redis(server.url, timeout=1e6)  # at once: whoever opens a store would rather know of a wrong address
        server.restart()
        assert store.get("k") is None
        store.set("k", b"3")
    server.close()


def test_calls_wait_for_a_server_that_comes_back() -> None:
    server = RedisServer(appendonly="yes")
    with Redis(server.url, timeout=60) as store:
        store.set_many({"k": b"1", "o/ab": b"x"})
        server.stop()
        done: list[object] = []
        calls: list[Callable[[], object]] = [
            lambda: store.get("k"),
            lambda: sorted(store.keys()),
            lambda: store.apply({"k": b"1"}, {"k": b"2"}),
        ]
        threads = [threading.Thread(target=lambda call=call: done.append(call())) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        server.restart()
        for thread in threads:
            thread.join()
        assert len(done) == 3
        assert True in done
        assert store.get("k") == b"2"
    server.close()


def test_loading_server_is_waited_for() -> None:
    server = RedisServer(key_load_delay="2000", loading_process_events_interval_bytes="1024")
    with (
        Redis(server.url, timeout=60) as store,
        Redis(server.url, timeout=0.5) as hasty,
        redis.Redis(unix_socket_path=str(server.socket_path)) as admin,
    ):
        store.set("k", b"1")
        admin.mset({f"other/{number}": bytes(2000) for number in range(500)})
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


def test_server_killed_again_and_again_has_all_that_was_acknowledged(*, long_run: bool) -> None:
    server = RedisServer(appendonly="yes", appendfsync="no")
    # opened before the first kill: only an open store waits for its server
    stores = [Redis(server.url, timeout=30) for _ in range(4)]
    acknowledged: list[dict[str, int]] = [{} for _ in stores]

    def write(number: int, stop: threading.Event) -> None:
        """One writer with a ref of its own.

        It notes acknowledged writes, and looks up those with an unknown outcome.
        """
        counts = acknowledged[number]
        with stores[number] as store:
            while not stop.is_set():
                now = counts.get("done", 0)
                ref, value = f"ref/{number}", f"{now + 1:08x}".encode()
                names = [f"o/{number:02x}{now + 1:08x}{each:02x}" for each in range(5)]
                try:
                    expected = f"{now:08x}".encode() if now else None
                    assert store.apply(
                        {ref: expected}, {ref: value, ref + "/too": value}, objects=dict.fromkeys(names, value)
                    )
                except UnknownOutcomeError:
                    counts["unknown"] = counts.get("unknown", 0) + 1
                    if store.get(ref) != value:
                        assert store.get(ref) == expected
                        continue
                counts["done"] = now + 1

    try:
        stop = threading.Event()
        threads = [threading.Thread(target=write, args=(number, stop)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(200 if long_run else 5):
            time.sleep(random.uniform(0.05, 0.15))
            server.kill()
            server.restart()
        while not all(counts.get("done") for counts in acknowledged) and any(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        with Redis(server.url) as store:
            for number, counts in enumerate(acknowledged):
                assert counts["done"] > 0
                value = f"{counts['done']:08x}".encode()
                assert store.get(f"ref/{number}") == store.get(f"ref/{number}/too") == value
            names = {
                f"o/{number:02x}{now:08x}{each:02x}"
                for number in range(4)
                for now in range(1, acknowledged[number]["done"] + 1)
                for each in range(5)
            }
            assert names <= set(store.keys("o/"))
    finally:
        stop.set()
        server.close()


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


def test_interrupted_call_leaves_no_reply_for_the_next(cut: Cut) -> None:
    proxy, store, _ = cut
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


def test_errors_keep_their_cause(redis_server: RedisServer, prefix: str) -> None:
    with (
        Redis(redis_server.url, prefix=prefix) as store,
        redis.Redis(unix_socket_path=str(redis_server.socket_path)) as admin,
    ):
        admin.set(f"{{{prefix}}}:o:2a", "text")
        with pytest.raises(StorageError) as caught:
            store.get("o/ab")
        assert isinstance(caught.value.__cause__, redis.ResponseError)


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
