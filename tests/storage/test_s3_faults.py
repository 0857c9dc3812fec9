"""`S3` when answers are lost, requests come late or not at all, writers die half way, and writers meet.

The server fails at one request, or from one request on, of a batch; afterwards the batch is done or it is not, and the
caller knows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Thread
from typing import Any

import pytest

from tests.support.servers.s3 import Fault, S3Server
from versioned_state.errors import StoreBusyError, UnknownOutcomeError, UnreachableStoreError
from versioned_state.storage import S3
from versioned_state.storage.s3.format import HISTORY
from versioned_state.storage.testing.writers import run_together

FOREVER = 10**9
DECISION = "/t/[0-9a-f]{32}!"

# One request may take long on a loaded machine; a connection that is cut is noticed at once.
PATIENT_ONCE: dict[str, Any] = {"client_options": {"timeout": "20s", "connect_timeout": "20s"}}
HASTY: dict[str, Any] = {"timeout": 0.3, **PATIENT_ONCE}

BEFORE = {"ref": b"1", "gone": b"x", "other": b"o", "o/cc": b"C"}
OBJECTS = {"o/aa": b"A", "o/bb": b"B"}


def opened(s3_server: S3Server, place: str) -> S3:
    # A fifteenth of its timeout is what it waits for the batch of another.
    store = s3_server.open(place, timeout=6, **PATIENT_ONCE)
    store.set_many(BEFORE)
    return store


@pytest.fixture
def store(s3_server: S3Server, place: str) -> Iterator[S3]:
    with opened(s3_server, place) as store:
        yield store


def one_key(store: S3) -> bool:
    return store.apply({"ref": b"1"}, {"ref": b"2"}, objects=OBJECTS)


def several_keys(store: S3) -> bool:
    return store.apply({"ref": b"1"}, {"ref": b"2", "new": b"n"}, ["gone", "o/cc"], objects=OBJECTS)


Work = Callable[[S3], bool]

AFTER: dict[Work, dict[str, bytes]] = {
    one_key: {**BEFORE, "ref": b"2"},
    several_keys: {"ref": b"2", "new": b"n", "other": b"o"},
}

one_fault = {
    "the request is lost": Fault(apply="never"),
    "the answer is lost": Fault(),
    "the request comes late": Fault(apply="later"),
    "it is done, and said to have failed": Fault(answer=500),
    "it fails": Fault(apply="never", answer=500),
    "it meets another": Fault(apply="never", answer=409),
    "slow down": Fault(apply="never", answer=503),
}


@pytest.mark.parametrize("work", AFTER, ids=lambda work: work.__name__)
@pytest.mark.parametrize("fault", one_fault.values(), ids=one_fault)
def test_a_batch_goes_through_whichever_request_fails_once(
    s3_server: S3Server, place: str, work: Work, fault: Fault, *, long_run: bool
):
    after = {**AFTER[work], **OBJECTS}
    others = []
    # Each request in the long run; every day one in three of a batch of many.
    for skip in count(step=1 if long_run or work is one_key else 3):
        with s3_server.open(f"{place}/{skip}") as store:
            store.set_many(BEFORE)
            s3_server.requests()
            with s3_server.faults(replace(fault, skip=skip)):
                assert work(store) is True
            requests = len(s3_server.requests())
        others.append(s3_server.open(f"{place}/{skip}"))
        assert dict(others[-1].items()) == after
        if requests <= skip:
            break
    # The faults did meet requests: three and more make a batch.
    assert skip >= 3
    time.sleep(fault.delay * 1.5 if fault.apply == "later" else 0)
    for other in others:
        with other:
            assert dict(other.items()) == after


@pytest.mark.parametrize("applied", ["never", "now"])
@pytest.mark.parametrize(("work", "requests"), [(one_key, 3), (several_keys, 14)])
def test_a_writer_that_is_cut_off_knows_what_it_can_know(
    s3_server: S3Server, place: str, work: Work, requests: int, applied: Any
):
    """The server fails from the first request on, from the second, and so on, all at once, each in its own place."""
    stores = [
        s3_server.open(f"{place}/{skip}", timeout=6, concurrency=4, **PATIENT_ONCE) for skip in range(requests + 4)
    ]
    cut_off = [s3_server.open(f"{place}/{skip}", concurrency=4, **HASTY) for skip in range(requests + 4)]
    outcomes: dict[int, bool | None] = {}

    def prepare(skip: int) -> None:
        stores[skip].set_many(BEFORE)
        cut_off[skip].set("other", b"o")  # it has tried out the conditions

    def cut(skip: int) -> None:
        try:
            outcomes[skip] = work(cut_off[skip])
        except UnknownOutcomeError:
            outcomes[skip] = None
        except UnreachableStoreError:
            outcomes[skip] = False

    def look(skip: int) -> None:
        store = stores[skip]
        found = {key: value for key, value in store.items() if key not in OBJECTS}
        before, after = BEFORE, {key: value for key, value in AFTER[work].items() if key not in OBJECTS}
        assert found in {None: (before, after), False: (before,), True: (after,)}[outcomes[skip]]
        # What is done stays done, and what is not, stays undone: others go on from it.
        assert store.compare_and_set("ref", found["ref"], b"3")
        store.set("gone", b"y")
        assert {key: value for key, value in store.items() if key not in OBJECTS} == {
            **found,
            "ref": b"3",
            "gone": b"y",
        }

    skips = range(requests + 4)
    run_together([partial(prepare, skip) for skip in skips])
    with s3_server.faults(*(Fault(path=f"{place}/{skip}/", skip=skip, times=FOREVER, apply=applied) for skip in skips)):
        run_together([partial(cut, skip) for skip in skips])
    run_together([partial(look, skip) for skip in skips])
    # The first was cut off from the start, and the last not at all; somewhere between them is the request that
    # publishes.
    assert outcomes[0] is False
    assert outcomes[max(skips)] is True
    assert None in outcomes.values()
    for store in (*stores, *cut_off):
        store.close()


@pytest.mark.parametrize(("work", "path"), [(one_key, "e/ref!"), (several_keys, DECISION)])
def test_a_write_that_cannot_be_looked_for_is_not_known(
    s3_server: S3Server, place: str, store: S3, work: Work, path: str
):
    """Its answer was lost, the second sending is refused, by the first or another, and the server cannot say which."""
    with s3_server.open(place, **HASTY) as hasty:
        hasty.set("ref", b"1")
        lost, mute = Fault("PUT", path), Fault("GET", path, times=FOREVER, apply="never", answer=403)
        with s3_server.faults(lost, mute), pytest.raises(UnknownOutcomeError):
            work(hasty)
    assert dict(store.items()) == {**AFTER[work], **OBJECTS}


# What lies on top of a write whose answer was lost.


def wait_for(s3_server: S3Server, method: str, part: str) -> None:
    """Wait until the server gets such a request. Earlier requests are forgotten."""
    while not any(asked == method and part in name for asked, name in s3_server.requests()):
        time.sleep(0.01)


def stalled(s3_server: S3Server, place: str, applied: Any, meanwhile: Callable[[], None]) -> object:
    """Return the outcome of a batch whose first sending is not answered, while `meanwhile` runs."""
    outcome: list[object] = []

    def write() -> None:
        try:
            outcome.append(slow.apply({"ref": b"1"}, {"ref": b"2"}))
        except UnknownOutcomeError as error:
            outcome.append(type(error))

    with s3_server.open(place, **PATIENT_ONCE) as slow:
        slow.set("unrelated", b"")
        writer = Thread(target=write)
        s3_server.requests()
        with s3_server.faults(Fault("PUT", "e/ref!", apply=applied, answer="stall")):
            writer.start()
            wait_for(s3_server, "PUT", "/e/ref!")
            meanwhile()
        writer.join()
    return outcome[0]


def test_a_write_that_another_has_written_over_is_known_to_be_done(s3_server: S3Server, place: str, store: S3):
    def others() -> None:
        for number in range(2, HISTORY):
            assert store.compare_and_set("ref", b"%d" % number, b"%d" % (number + 1))

    assert stalled(s3_server, place, "now", others) is True
    assert store.get("ref") == b"%d" % HISTORY


def test_a_write_that_another_has_come_before_is_known_not_to_be_done(s3_server: S3Server, place: str, store: S3):
    def others() -> None:
        assert store.compare_and_set("ref", b"1", b"7")
        for _ in range(10):
            store.set("ref", b"8")

    assert stalled(s3_server, place, "never", others) is False
    assert store.get("ref") == b"8"


@pytest.mark.parametrize("applied", ["now", "never"])
def test_a_write_under_too_many_others_is_not_known(s3_server: S3Server, place: str, store: S3, applied: str):
    def others() -> None:
        for number in range(HISTORY + 2):
            store.set("ref", b"n%d" % number)

    assert stalled(s3_server, place, applied, others) is UnknownOutcomeError


def test_a_write_that_was_refused_for_nothing_is_sent_again_as_it_was(s3_server: S3Server, place: str, store: S3):
    """The first sending is late, the second refused though nothing was written, and the third comes after the first."""
    outcomes: list[bool] = []
    path = "e/ref!"
    late, refused = Fault("PUT", path, apply="later"), Fault("PUT", path, apply="never", answer=412)
    with s3_server.open(place, **PATIENT_ONCE) as slow:
        slow.set("ref", b"1")
        writer = Thread(target=lambda: outcomes.append(one_key(slow)))
        with s3_server.faults(late, refused, Fault("PUT", path, times=FOREVER, apply="never", answer="stall")):
            writer.start()
            while store.get("ref") != b"2":
                time.sleep(0.01)
        writer.join()
    assert outcomes == [True]
    assert store.get("ref") == b"2"


# Writers that died.


def die_before_deciding(s3_server: S3Server, place: str, applied: Any = "never") -> None:
    """A batch whose cells are all planted, and whose decision never comes, or comes late."""
    with s3_server.open(place, **HASTY) as dying:
        dying.set("other", b"o")
        no_decision = Fault(method="PUT", path=DECISION, times=FOREVER, apply=applied)
        with s3_server.faults(no_decision), pytest.raises(UnknownOutcomeError):
            several_keys(dying)


def test_readers_see_the_old_state_of_an_open_batch_and_write_nothing(s3_server: S3Server, place: str, store: S3):
    die_before_deciding(s3_server, place)
    s3_server.requests()
    assert dict(store.items()) == {**BEFORE, **OBJECTS}
    assert (store.get("ref"), store.get("new"), store.get("gone"), store.get("o/cc")) == (b"1", None, b"x", b"C")
    assert sorted(store.keys("g")) == ["gone"]
    assert list(store.keys("n")) == []
    assert store.apply({"ref": b"1"}, {})
    assert not store.apply({"new": b"n"}, {})
    assert {method for method, _ in s3_server.requests()} == {"GET"}


@pytest.mark.parametrize(("key", "done"), [("gone", True), ("ref", False)])
def test_a_writer_whose_batch_was_decided_against_starts_anew(
    s3_server: S3Server, place: str, store: S3, key: str, *, done: bool
):
    """It does it all again where its condition still holds, and says no where it does not."""
    outcomes: list[bool] = []
    with s3_server.open(place, **PATIENT_ONCE) as slow:
        slow.set("other", b"o")
        writer = Thread(target=lambda: outcomes.append(several_keys(slow)))
        s3_server.requests()
        with s3_server.faults(Fault("PUT", DECISION, apply="never", answer="stall")):
            writer.start()
            wait_for(s3_server, "PUT", "/t/")
            store.set(key, b"y")
            assert store.get("ref") == (b"1" if done else b"y")
        writer.join()
    assert outcomes == [done]
    assert dict(store.items()) == {**(AFTER[several_keys] if done else {**BEFORE, "ref": b"y"}), **OBJECTS}


def test_reader_is_not_misled_by_a_decision_that_was_removed_meanwhile(s3_server: S3Server, place: str, store: S3):
    """A reader finds a pending batch in a cell. Before it reads the decision, the batch is decided and cleared."""
    found: list[bytes | None] = []
    ask = Fault("GET", DECISION, times=FOREVER, answer="stall")
    with s3_server.open(place, **PATIENT_ONCE) as writing, s3_server.open(place, **PATIENT_ONCE) as reading:
        writing.set("other", b"o")
        writer = Thread(target=several_keys, args=(writing,))
        reader = Thread(target=lambda: found.append(reading.get("ref")))
        s3_server.requests()
        with s3_server.faults(Fault("PUT", DECISION, apply="never", answer="stall"), ask):
            writer.start()
            wait_for(s3_server, "PUT", "/t/")
            reader.start()
            wait_for(s3_server, "GET", "/t/")
            s3_server.set_faults(ask)
            writer.join()
        reader.join()
    assert found == [b"2"]


def test_a_writer_decides_against_a_batch_that_was_left_open(s3_server: S3Server, place: str, store: S3):
    die_before_deciding(s3_server, place)
    # Three that wait for the same one: the reference, a deleted key, a deleted object.
    works = [
        lambda: store.set("new", b"mine"),
        lambda: store.delete("ref"),
        lambda: store.apply({}, {}, objects={"o/cc": b"C"}),
    ]
    run_together(works)
    assert dict(store.items()) == {"gone": b"x", "other": b"o", "new": b"mine", "o/cc": b"C", **OBJECTS}
    # No waiting any more: it is decided.
    assert store.compare_and_set("gone", b"x", b"y")


def test_a_decision_that_comes_late_counts_where_nobody_decided_before(s3_server: S3Server, place: str, store: S3):
    die_before_deciding(s3_server, place, "later")
    while store.get("ref") != b"2":
        time.sleep(0.01)
    assert dict(store.items()) == {**AFTER[several_keys], **OBJECTS}
    assert store.compare_and_set("new", b"n", b"m")
    assert store.get("new") == b"m"


def test_a_decision_that_comes_late_does_not_count_where_somebody_decided(s3_server: S3Server, place: str):
    for delay in (2, 15):  # a busy machine may take longer than 2 s for its own decision
        with opened(s3_server, f"{place}/{delay}") as store:
            with s3_server.open(f"{place}/{delay}", **HASTY) as dying:
                dying.set("other", b"o")
                late = Fault(method="PUT", path=DECISION, times=FOREVER, apply="later", delay=delay)
                with s3_server.faults(late), pytest.raises(UnknownOutcomeError):
                    several_keys(dying)
            store.set("gone", b"y")  # waits, and decides against it
            if store.get("ref") == b"1":
                time.sleep(delay)
                assert dict(store.items()) == {**BEFORE, **OBJECTS, "gone": b"y"}
                return
    raise AssertionError("the late decision counts")


def test_what_a_dead_writer_planted_late_is_cleared_away(s3_server: S3Server, place: str, store: S3):
    """The writer gives up while what it planted is still on its way."""
    with s3_server.open(place, **HASTY) as dying:
        dying.set("other", b"o")
        late = Fault(method="PUT", path="/e/(new|gone)!", times=FOREVER, apply="later", delay=1)
        with s3_server.faults(late), pytest.raises(UnreachableStoreError) as failure:
            several_keys(dying)
        assert not isinstance(failure.value, UnknownOutcomeError)
    assert dict(store.items()) == {**BEFORE, **OBJECTS}
    time.sleep(1.5)
    assert dict(store.items()) == {**BEFORE, **OBJECTS}
    assert store.apply({"gone": b"x"}, {"new": b"mine"}, ["gone"])
    assert dict(store.items()) == {"ref": b"1", "other": b"o", "o/cc": b"C", "new": b"mine", **OBJECTS}


def test_a_writer_that_dies_after_deciding_has_published(s3_server: S3Server, place: str, store: S3):
    with s3_server.open(place, **HASTY) as dying:
        dying.set("other", b"o")
        # Planted are four cells; whatever comes after the decision is cut off.
        with s3_server.faults(
            Fault(method="PUT", path="/(e|o/cc)", skip=6, times=FOREVER, apply="never"),
            Fault(method="DELETE", times=FOREVER),
        ):
            assert several_keys(dying) is True
    assert [name for name in s3_server.names(f"{place}/t/") if not name.endswith("conditions!")] != []
    assert dict(store.items()) == {**AFTER[several_keys], **OBJECTS}
    assert sorted(store.keys("o/")) == ["o/aa", "o/bb"]
    store.set("o/cc", b"C")
    assert store.compare_and_set("ref", b"2", b"3")
    assert dict(store.items()) == {**AFTER[several_keys], **OBJECTS, "o/cc": b"C", "ref": b"3"}


def test_a_finished_batch_leaves_nothing_but_plain_cells(s3_server: S3Server, place: str, store: S3):
    assert several_keys(store)
    assert s3_server.names(f"{place}/t/") == [f"{place}/t/conditions!"]
    s3_server.requests()
    assert sorted(store.keys()) == sorted({**AFTER[several_keys], **OBJECTS})
    # Two listings, and no cell that had to be read.
    assert len(s3_server.requests()) == 2


# Writers that meet.


def test_counter_is_exact_in_a_storm_of_faults(s3_server: S3Server, place: str, store: S3):
    chance = random.Random(7)
    kinds: list[dict[str, Any]] = [
        {"apply": "never"},
        {},
        {"apply": "later", "delay": 0.05},
        {"answer": 500},
        {"apply": "never", "answer": 409},
        {"apply": "never", "answer": 503},
    ]
    storm = [Fault(skip=chance.randrange(5, 300), path="/[et]/", **chance.choice(kinds)) for _ in range(40)]
    counted: list[int] = []

    def work(name: str) -> None:
        with s3_server.open(place) as own:
            for step in range(15):
                while True:
                    value = own.get("counter")
                    puts = {"counter": b"%d" % (int(value or b"0") + 1)}
                    if step % 5 == 0:
                        puts[f"last/{name}"] = b"%d" % step
                    if own.apply({"counter": value}, puts):
                        counted.append(1)
                        break

    with s3_server.faults(*storm):
        run_together([partial(work, name) for name in "abcd"])
    assert store.get("counter") == b"60"
    assert dict(store.items("last/")) == {f"last/{name}": b"10" for name in "abcd"}


def test_keys_that_are_created_together_never_show_in_part(s3_server: S3Server, place: str, store: S3):
    """As `read_ref` needs it: a branch that was born has its record."""
    with s3_server.open(place) as other:
        torn: list[int] = []

        def write() -> None:
            for number in range(60):
                assert store.apply({f"ref/{number}": None}, {f"ref/{number}": b"r", f"born/{number}": b"b"})

        def read() -> None:
            for number in range(60):
                while len(found := other.get_many([f"ref/{number}", f"born/{number}"])) < 2:
                    if f"born/{number}" in found:
                        torn.append(number)
                        return

        run_together([write, read])
        assert torn == []


def test_batches_on_the_same_keys_do_not_block_each_other_for_good(s3_server: S3Server, place: str, store: S3):
    keys = [f"k/{number}" for number in range(6)]
    order = [keys, keys[::-1], keys[3:] + keys[:3]]
    stores = [s3_server.open(place, timeout=6, **PATIENT_ONCE) for _ in order]

    def work(own: S3, mine: list[str]) -> None:
        for number in range(6):
            # A condition on another key each: they plant in different orders.
            own.apply({mine[0]: own.get(mine[0])}, dict.fromkeys(mine, b"%d" % number + mine[0].encode()))
            own.apply({}, dict.fromkeys(mine, b"%d" % number + mine[0].encode()))

    run_together([partial(work, own, mine) for own, mine in zip(stores, order, strict=True)])
    assert len(set(store.get_many(keys).values())) == 1
    for own in stores:
        own.close()


def test_a_key_that_is_always_taken_is_given_up(s3_server: S3Server, place: str, store: S3):
    with s3_server.open(place, **HASTY) as beaten:
        beaten.set("other", b"o")
        # Whatever it sends, the server says that somebody else was first.
        with (
            s3_server.faults(Fault(method="PUT", path="e/ref!", times=FOREVER, apply="never", answer=409)),
            pytest.raises(StoreBusyError),
        ):
            beaten.set("ref", b"9")
    assert store.get("ref") == b"1"
