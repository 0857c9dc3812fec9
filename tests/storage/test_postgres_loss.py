"""`Postgres` and a server that goes away: cut connections, silence, restarts, kill -9.

All or nothing, and the caller knows which.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import Fault, Proxy
from tests.support.waiting import eventually
from versioned_state import Versioned
from versioned_state.errors import StorageError, UnknownOutcomeError, UnreachableStoreError
from versioned_state.storage.postgres.store import Postgres


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres_server.socket_path) as proxy:
        yield proxy


@pytest.fixture
def direct(postgres_server: PostgresServer) -> Iterator[Postgres]:
    """A store with a direct connection."""
    with Postgres(postgres_server.url, schema=postgres_server.fresh_schema()) as store:
        yield store


@pytest.fixture
def store(postgres_server: PostgresServer, proxy: Proxy, direct: Postgres) -> Iterator[Postgres]:
    """The same store behind the proxy, with one connection."""
    with Postgres(postgres_server.url_through(proxy), schema=direct.schema, timeout=20) as store:
        yield store


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that may be stopped and killed, and waits for its disk: what it acknowledged is there afterwards."""
    server = PostgresServer(fsync="on", full_page_writes="on")
    yield server
    server.close()


def in_thread(call: Callable[[], object]) -> Callable[[], object]:
    """Begin `call` in a thread, and return a function that waits for its end and returns or raises as it did.

    A hang fails.
    """
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except StorageError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> object:
        thread.join(60)
        assert not thread.is_alive(), "the call hangs"
        if isinstance(outcome[0], StorageError):
            raise outcome[0]
        return outcome[0]

    return end


# Cut connections. A batch is one request, whose every part may be the last that gets through.

CUTS = [Fault("cut request"), Fault("cut request", passing=5), Fault("cut request", passing=2000)]
CUT_REPLIES = [Fault("cut reply"), Fault("cut reply", passing=5), Fault("cut reply", passing=60)]


@pytest.mark.parametrize("fault", [*CUTS, *CUT_REPLIES], ids=str)
def test_batch_that_is_cut_is_done_or_not(proxy: Proxy, store: Postgres, direct: Postgres, fault: Fault) -> None:
    objects = {f"o/{os.urandom(24).hex()}": os.urandom(1000) for _ in range(5)}
    before = {"ref": b"1", "other": b"1", "gone": b"1"}
    after = {"ref": b"2", "other": b"2", **objects}
    direct.set_many(before)
    proxy.arm(fault)
    with pytest.raises(UnknownOutcomeError) as caught:
        store.apply({"ref": b"1"}, {"ref": b"2", "other": b"2"}, ["gone"], objects=objects)
    assert proxy.fired == 1
    assert caught.value.__cause__ is not None
    # The server sees that a client has gone only when it is done.
    settled(direct)
    found = dict(direct.items())
    assert found == (after if fault in CUT_REPLIES else before)
    # The next call takes a new connection, and knows nothing of the old one.
    assert store.get("ref") == found["ref"]
    assert store.apply({"ref": found["ref"]}, {"ref": b"3"}, objects=objects)


def settled(store: Postgres) -> None:
    """Wait for batches that are under way: one that is alone comes after them."""
    store.apply({}, {}, ["o/none"])


@pytest.mark.parametrize("fault", [*CUTS[:2], *CUT_REPLIES], ids=str)
def test_what_can_be_repeated_is(proxy: Proxy, store: Postgres, direct: Postgres, fault: Fault) -> None:
    direct.set_many({"ref": b"1", "o/aa": b"A"})
    calls: list[tuple[Callable[[], object], object]] = [
        (lambda: store.get("ref"), b"1"),
        (lambda: store.get_many(["ref", "o/aa", "absent"]), {"ref": b"1", "o/aa": b"A"}),
        (lambda: list(store.keys("o/")), ["o/aa"]),
        (lambda: store.set("o/bb", b"B" * 3000), None),
        (lambda: store.apply({"ref": b"1"}, {}, objects={"o/cc": b"C" * 3000}), True),
        (lambda: store.apply({"ref": b"2"}, {}, objects={"o/dd": b"D" * 3000}), False),
    ]
    for number, (call, answer) in enumerate(calls):
        proxy.arm(fault)
        assert call() == answer
        assert proxy.fired == number + 1
    assert sorted(direct.keys("o/")) == ["o/aa", "o/bb", "o/cc", "o/dd"]


@pytest.mark.parametrize("kind", ["cut request", "cut reply"])
def test_large_batch_is_repeated_until_it_comes_to_the_commit(
    proxy: Proxy, store: Postgres, direct: Postgres, kind: str
) -> None:
    objects = {f"o/{number:02x}": bytes([number]) * 3_000_000 for number in range(3)}
    proxy.requests = 0
    assert store.apply({"ref": None}, {"ref": b"1"}, objects=objects)
    requests = proxy.requests
    assert requests == 5  # BEGIN, two portions, the rest, COMMIT
    outcomes: list[bool | None] = []
    for number in range(1, requests + 1):
        direct.delete_many(direct.keys())
        proxy.arm(Fault("cut request" if kind == "cut request" else "cut reply", at=number))
        try:
            outcomes.append(store.apply({"ref": None}, {"ref": b"1"}, objects=objects))
        except UnknownOutcomeError:
            outcomes.append(None)
        settled(direct)
        done = outcomes[-1] or kind == "cut reply"
        assert dict(direct.items()) == ({"ref": b"1", **objects} if done else {})
    assert proxy.fired == requests
    assert outcomes == [True] * (requests - 1) + [None]


@pytest.mark.parametrize("fault", [CUTS[0], CUTS[1], *CUT_REPLIES], ids=str)
def test_commit_is_there_once(proxy: Proxy, store: Postgres, direct: Postgres, fault: Fault) -> None:
    """The caller of `Versioned` learns what became of it, and does the round again where it has to."""
    state = Versioned(store)
    state["messages"] = ["one"]
    state.commit("first")
    proxy.arm(fault)
    state["messages"].append("two")
    try:
        state.commit("second")
    except StorageError:
        state.commit("second")
    assert proxy.fired == 1
    with Versioned(direct) as other:
        assert other["messages"] == ["one", "two"]
        assert [commit.message for commit in other.log()][:2] == ["second", "first"]


def test_connection_that_the_server_ended_while_it_lay_idle(postgres_server: PostgresServer, store: Postgres) -> None:
    for number in range(3):
        with postgres_server.connection() as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND state = 'idle'"
            )
        (link,) = store._connections._home.idle
        assert eventually(lambda link=link: not link.is_usable())  # type: ignore[misc]
        # A write, which on the dead connection would have an outcome that nobody knows.
        assert store.apply({"ref": b"%d" % number if number else None}, {"ref": b"%d" % (number + 1)})


def test_listing_goes_on_after_a_cut(proxy: Proxy, store: Postgres, direct: Postgres) -> None:
    everything = {f"k/{number}" for number in range(12_000)}
    direct.set_many(dict.fromkeys(everything, b"v"))
    seen = []
    for number, key in enumerate(store.keys("k/")):
        seen.append(key)
        if number % 4000 == 0:
            proxy.cut_all()
    assert len(seen) == len(everything)
    assert set(seen) == everything


# Silence


@pytest.mark.parametrize("kind", ["hold request", "hold reply"])
def test_silence_ends_a_call(postgres_server: PostgresServer, proxy: Proxy, direct: Postgres, kind: str) -> None:
    with Postgres(postgres_server.url_through(proxy), schema=direct.schema, timeout=1) as store:
        fault = Fault("hold request" if kind == "hold request" else "hold reply")
        proxy.arm(fault)
        assert store.get("ref") is None  # on a second connection
        proxy.arm(fault)
        with pytest.raises(UnknownOutcomeError, match="no answer"):
            store.apply({"ref": None}, {"ref": b"1"})
        proxy.disarm()
        # It may be done even now, when the caller has been told that nobody knows.
        assert eventually(lambda: store.apply({"ref": direct.get("ref")}, {"ref": b"2"}))


def test_server_that_is_stopped_dead(own_server: PostgresServer) -> None:
    with Postgres(own_server.url, schema=own_server.fresh_schema(), timeout=1) as store:
        store.set("k", b"1")
        own_server.suspend()
        try:
            with pytest.raises(UnknownOutcomeError):
                in_thread(lambda: store.set("k", b"2"))()
            # Without a connection nothing can have been done.
            for end in [in_thread(lambda: store.get("k")), in_thread(lambda: store.set("k", b"3"))]:
                with pytest.raises(UnreachableStoreError) as caught:
                    end()
                assert type(caught.value) is UnreachableStoreError
        finally:
            own_server.resume()
        assert eventually(lambda: store.get("k") == b"2")  # it was asked to, and does it when it can


# Restarts


def test_restart_is_waited_for(own_server: PostgresServer) -> None:
    with Postgres(own_server.url, schema=own_server.fresh_schema(), timeout=60) as store:
        store.set("k", b"1")
        own_server.stop(signal.SIGINT)
        calls = [
            in_thread(lambda: store.get("k")),
            in_thread(lambda: store.apply({"n": None}, {"n": b"1"}, objects={"o/aa": b"A"})),
        ]
        time.sleep(0.2)
        own_server.restart()
        assert [call() for call in calls] == [b"1", True]
        assert dict(store.items()) == {"k": b"1", "n": b"1", "o/aa": b"A"}


def test_server_that_does_not_come_back(own_server: PostgresServer) -> None:
    with Postgres(own_server.url, schema=own_server.fresh_schema(), timeout=1) as store:
        store.set("k", b"1")
        own_server.stop(signal.SIGINT)
        try:
            for end in [
                in_thread(lambda: store.get("k")),
                in_thread(lambda: store.set("k", b"2")),
                in_thread(lambda: list(store.keys())),
            ]:
                with pytest.raises(UnreachableStoreError) as caught:
                    end()
                assert type(caught.value) is UnreachableStoreError
            with pytest.raises(UnreachableStoreError):
                Postgres(own_server.url)
        finally:
            own_server.restart()
        assert store.get("k") == b"1"


# Kill -9


@dataclass
class Writer:
    """Counts up until it is stopped or an outcome is unknown. Each number is a batch of objects and two keys."""

    name: str
    store: Postgres
    acknowledged: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)

    def run(self) -> None:
        while not self.stopped.is_set():
            number = self.acknowledged + 1
            value = b"%d" % number
            objects = {f"o/{self.name}{number:08x}{part:02x}": bytes([part]) * 3000 for part in range(4)}
            expected = {self.name: b"%d" % (number - 1) if number > 1 else None}
            try:
                if not self.store.apply(expected, {self.name: value, self.name + "/copy": value}, objects=objects):
                    self.failures.append(f"{number} was refused")
                    return
            except UnknownOutcomeError:
                return
            except StorageError as error:
                self.failures.append(repr(error))
                return
            self.acknowledged = number


def all_went_on(writers: list[Writer], acknowledged: dict[str, int]) -> bool:
    return all(writer.acknowledged > acknowledged[writer.name] for writer in writers)


def test_nothing_acknowledged_is_lost_by_kill_9(own_server: PostgresServer, *, long_run: bool) -> None:
    schema = own_server.fresh_schema()
    acknowledged = {"aa": 0, "bb": 0, "cc": 0}
    dice = random.Random(3)
    for _ in range(200 if long_run else 2):
        stores = {name: Postgres(own_server.url, schema=schema, timeout=60) for name in acknowledged}
        writers = [Writer(name, store, acknowledged[name]) for name, store in stores.items()]
        threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
        for thread in threads:
            thread.start()
        assert eventually(partial(all_went_on, writers, acknowledged))
        time.sleep(dice.random() * 0.1)
        own_server.kill()
        for writer in writers:
            writer.stopped.set()
        # One that had nothing under way waits for the server, and writes once more.
        own_server.restart()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for store in stores.values():
            store.close()
        assert [writer.failures for writer in writers] == [[], [], []]
        with Postgres(own_server.url, schema=schema, timeout=60) as store:
            for writer in writers:
                name = writer.name
                found = int(store.get(name) or b"0")
                # At most the one that was not acknowledged any more, and that one whole.
                assert writer.acknowledged <= found <= writer.acknowledged + 1
                assert store.get(f"{name}/copy") == store.get(name)
                assert list(store.keys(f"o/{name}")) == [
                    f"o/{name}{n:08x}{part:02x}" for n in range(1, found + 1) for part in range(4)
                ]
                acknowledged[name] = found
