"""A store on a server that goes away: cut connections, a stop, restarts, kill -9. The caller knows what was done."""

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

from tests.support.servers.kinds import POSTGRES, REDIS, SERVERS, Place, ServerKind, fresh_name
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import Fault
from tests.support.servers.redis import RedisServer
from tests.support.waiting import eventually
from versioned_state import KVStore
from versioned_state.errors import StorageError, UnknownOutcomeError, UnreachableStoreError
from versioned_state.storage.base import Batch

CUTS = [Fault("cut request", passing=passing) for passing in (0, 1, 5, 60, 500, 2000, 5000)]
CUT_REPLIES = {REDIS: (0, 1, 3), POSTGRES: (0, 5, 60)}

FAULTS = [
    (kind, fault)
    for kind in SERVERS
    for fault in (*CUTS, *(Fault("cut reply", passing=passing) for passing in CUT_REPLIES[kind]))
]
"""The kinds of server, each with the faults that it meets. Every part of a batch may be the last that gets through."""


@pytest.mark.every_case
@pytest.mark.parametrize(("server_kind", "fault"), FAULTS, indirect=["server_kind"], ids=str)
def test_batch_that_is_cut_is_done_or_not(place_behind_proxy: Place, fault: Fault) -> None:
    proxy, direct, store = place_behind_proxy.proxy, place_behind_proxy.direct, place_behind_proxy.open(20)
    objects = {f"o/{os.urandom(24).hex()}": os.urandom(1000) for _ in range(10)}
    before = {"ref": b"1", "other": b"1", "gone": b"1"}
    after = {"ref": b"2", "other": b"2", **objects}
    store.set_many(before)
    proxy.arm(fault)
    (outcome,) = store.apply_each([Batch({"ref": b"1"}, {"ref": b"2", "other": b"2"}, ["gone"], objects)])
    if isinstance(outcome, UnknownOutcomeError):
        assert outcome.__cause__ is not None
        done = fault.kind == "cut reply"
    else:  # the cut was noticed while the batch was on its way, so that it could be sent again
        assert outcome is True
        assert fault.kind == "cut request"
        done = True
    assert proxy.fired == 1
    # A server may see that a client has gone only when it is done with it. A batch that deletes comes after that.
    direct.delete("o/none")
    assert dict(direct.items()) == (after if done else before)
    # The next call takes a new connection, and knows nothing of the old one.
    assert store.apply({"ref": store.get("ref")}, {"ref": b"3"}, objects=objects)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "fault", [Fault(kind, passing=passing) for kind in ("cut request", "cut reply") for passing in (0, 3)], ids=str
)
def test_what_can_be_repeated_is(place_behind_proxy: Place, fault: Fault) -> None:
    proxy, direct, store = place_behind_proxy.proxy, place_behind_proxy.direct, place_behind_proxy.open(20)
    everything = {"ref": b"1" * 9000, **{f"o/{number:06x}": os.urandom(500) for number in range(300)}}
    store.set_many(everything)
    calls: list[tuple[Callable[[], object], object]] = [
        (lambda: store.get("ref"), everything["ref"]),
        (lambda: store.get_many([*everything, "absent"]), everything),
        (lambda: sorted(store.keys()), sorted(everything)),
        (lambda: store.set("o/bb", b"B" * 3000), None),
        (lambda: store.apply({"ref": everything["ref"]}, {}, objects={"o/cc": b"C" * 3000}), True),
        (lambda: store.apply({"ref": b"2"}, {}, objects={"o/dd": b"D" * 3000}), False),
    ]
    for number, (call, answer) in enumerate(calls, 1):
        proxy.arm(fault)
        assert call() == answer
        assert proxy.fired == number
    assert set(direct.keys()) - everything.keys() == {"o/bb", "o/cc", "o/dd"}


def test_connections_that_died_while_idle_are_replaced_unnoticed(place_behind_proxy: Place) -> None:
    store = place_behind_proxy.open(20)
    for number in range(3):
        store.set("k", b"%d" % number)
        place_behind_proxy.proxy.cut_all()
        time.sleep(0.01)
        # A write, which on the dead connection would have an outcome that nobody knows.
        assert store.apply({"k": b"%d" % number}, {"k": b"x"})


def test_listing_goes_on_after_a_cut(place_behind_proxy: Place) -> None:
    everything = {f"k/{number}" for number in range(12_000)}
    place_behind_proxy.direct.set_many(dict.fromkeys(everything, b"v"))
    seen = []
    for number, key in enumerate(place_behind_proxy.open(20).keys("k/")):
        seen.append(key)
        if number % 4000 == 0:
            place_behind_proxy.proxy.cut_all()
    assert len(seen) == len(everything)
    assert set(seen) == everything


# A server of the test's own


@dataclass
class Own:
    """A server that may be stopped and killed."""

    kind: ServerKind
    server: RedisServer | PostgresServer

    def open(self, name: str, timeout: float) -> KVStore:
        return self.kind.open(self.server.url, name, timeout=timeout)


@pytest.fixture(scope="module", params=SERVERS, ids=str)
def own(request: pytest.FixtureRequest) -> Iterator[Own]:
    server = request.param.start()
    yield Own(request.param, server)
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


def check_unreachable(*calls: Callable[[], object]) -> None:
    """Check that each call says that there is no server, so that nothing was done."""
    for end in [in_thread(call) for call in calls]:
        with pytest.raises(UnreachableStoreError, match="nothing was written") as caught:
            end()
        assert type(caught.value) is UnreachableStoreError


def test_server_that_is_stopped_dead(own: Own) -> None:
    name = fresh_name()
    with own.open(name, 1) as store, own.open(name, 60) as patient:
        store.set("k", b"1")
        own.server.suspend()
        try:
            with pytest.raises(UnknownOutcomeError):
                in_thread(lambda: store.set("k", b"2"))()
            check_unreachable(lambda: store.get("k"), lambda: store.set("k", b"3"), lambda: own.open(name, 1))
            waiting = in_thread(lambda: patient.get("k"))
        finally:
            own.server.resume()
        assert waiting() in (b"1", b"2")
        assert eventually(lambda: store.get("k") == b"2")  # it was asked to, and does it when it can


def test_restart_is_waited_for(own: Own) -> None:
    with own.open(fresh_name(), 60) as store:
        store.set_many({"k": b"1", "o/ab": b"x"})
        own.server.stop(signal.SIGINT)
        calls = [
            in_thread(lambda: store.get("k")),
            in_thread(lambda: sorted(store.keys("o/"))),
            in_thread(lambda: store.apply({"n": None}, {"n": b"1"}, objects={"o/aa": b"A"})),
        ]
        time.sleep(0.2)
        own.server.restart()
        value, objects, done = [call() for call in calls]
        assert (value, done) == (b"1", True)
        assert objects in (["o/ab"], ["o/aa", "o/ab"])
        assert dict(store.items()) == {"k": b"1", "n": b"1", "o/ab": b"x", "o/aa": b"A"}


def test_server_that_does_not_come_back(own: Own) -> None:
    with own.open(fresh_name(), 1) as store:
        store.set("k", b"1")
        own.server.stop(signal.SIGINT)
        try:
            check_unreachable(
                lambda: store.get("k"),
                lambda: store.get_many(["k"]),
                lambda: list(store.keys()),
                lambda: store.set("k", b"2"),
                lambda: own.open("new", 1e6),  # at once: whoever opens a store would rather know of a wrong address
            )
        finally:
            own.server.restart()
        assert store.get("k") == b"1"


# Kill -9


@dataclass
class Writer:
    """Counts up until it is stopped or an outcome is unknown. Each number is a batch of objects and two keys."""

    name: str
    store: KVStore
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


def test_nothing_acknowledged_is_lost_by_kill_9(own: Own, *, long_run: bool) -> None:
    place = fresh_name()
    acknowledged = {"aa": 0, "bb": 0, "cc": 0}
    dice = random.Random(3)
    for _ in range(200 if long_run else 3):
        # Opened before the kill: only an open store waits for its server.
        stores = {name: own.open(place, 60) for name in acknowledged}
        writers = [Writer(name, store, acknowledged[name]) for name, store in stores.items()]
        threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
        for thread in threads:
            thread.start()
        assert eventually(partial(all_went_on, writers, acknowledged))
        time.sleep(dice.random() * 0.1)
        own.server.kill()
        for writer in writers:
            writer.stopped.set()
        # One that had nothing under way waits for the server, and writes once more.
        own.server.restart()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for store in stores.values():
            store.close()
        assert [writer.failures for writer in writers] == [[], [], []]
        with own.open(place, 60) as store:
            for writer in writers:
                name = writer.name
                found = int(store.get(name) or b"0")
                # At most the one that was not acknowledged any more, and that one whole.
                assert writer.acknowledged <= found <= writer.acknowledged + 1
                assert store.get(f"{name}/copy") == store.get(name)
                assert sorted(store.keys(f"o/{name}")) == [
                    f"o/{name}{n:08x}{part:02x}" for n in range(1, found + 1) for part in range(4)
                ]
                acknowledged[name] = found
