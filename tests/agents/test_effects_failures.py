"""No failure repeats an effect or loses a recorded result: the store fails at each call, and processes are killed."""

from __future__ import annotations

import itertools
import math
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.interrupts import Interrupt, Trace
from tests.support.lossy import Lossy
from tests.support.outage import Outage
from tests.support.processes import fork
from tests.support.store_openers import Opener, postgres, redis
from tests.support.stores import OneCondition
from versioned_state import Disk, Happened, KVStore, Memory, Versioned, effect, effects, forget_effect, settle_effect
from versioned_state.errors import (
    EffectInDoubtError,
    InvalidArgumentError,
    StorageError,
    UnknownEffectError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.storage import Fault, Faulty, InjectedCrash
from versioned_state.storage.wrapper import Wrapper


class Till:
    """The other side of an effect: it counts what was paid."""

    def __init__(self) -> None:
        self.paid = 0

    def pay(self) -> dict[str, Any]:
        self.paid += 1
        return {"receipt": self.paid, "text": "x" * 5000}


def opened(store: KVStore) -> Versioned:
    """A state over a store with one effect, so that nothing but the next effect writes to it."""
    state = Versioned(store)
    effect("before", int, state=state)
    return state


def down(store: KVStore) -> Outage:
    """A store that fails at a call and at each later one, each time without an answer."""
    return Outage(store, calls=1_000)


FAULTS = [Fault.BEFORE, Fault.AFTER]


def failing(
    make: Callable[[KVStore], Faulty], begin: Callable[[Versioned], object], fault: Fault, **options: Any
) -> Iterator[Any]:
    """Yield pairs of states: over a store that fails at its first call, its second, and so on, and over a sound one."""
    for at in itertools.count(1):
        store = OneCondition()
        faulty = make(store)
        state = opened(faulty)
        begin(Versioned(store))
        faulty.arm(at, fault=fault, **options)
        yield state, Versioned(store), at
        if not faulty.fired:
            return


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_one_lost_call_does_no_harm(fault):
    """A lost read is an error, and nothing was done. A lost write is found out."""
    tries = 0
    for state, healthy, at in failing(Faulty, lambda _: None, fault):
        till = Till()
        if at == 1:
            with pytest.raises(UnknownOutcomeError):
                effect("pay", till.pay, state=state)
            assert till.paid == 0
        else:
            assert effect("pay", till.pay, state=state)["receipt"] == 1
        assert effect("pay", till.pay, state=healthy)["receipt"] == 1
        assert till.paid == 1
        tries += 1
    assert tries == 4


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
@pytest.mark.parametrize("end", ["crash", "down"])
def test_from_then_on_the_store_is_gone(fault, end):
    """Each time the effect is done, in doubt, or as if never tried.

    It is never done twice, and a result is never lost.
    """
    seen = []
    make, options = (Faulty, {"crash": True}) if end == "crash" else (down, {})
    for state, healthy, _ in failing(make, lambda _: None, fault, **options):
        till = Till()
        result = error = None
        try:
            result = effect("pay", till.pay, state=state)
        except (StorageError, EffectInDoubtError, InjectedCrash) as raised:
            error = raised
        if isinstance(error, EffectInDoubtError):
            assert till.paid == 1
            assert error.result["receipt"] == 1, "the caller has the result, as the ledger has not"
            assert isinstance(error.__cause__, StorageError)
        paid = till.paid
        try:
            again = effect("pay", till.pay, state=healthy)
        except EffectInDoubtError:
            seen.append(f"in doubt, paid {paid}")
            assert result is None
            settle_effect(healthy, "pay", {"receipt": "settled"})
            assert effect("pay", till.pay, state=healthy) == {"receipt": "settled"}
            assert till.paid == paid
        else:
            seen.append(f"done, paid {paid}")
            assert again["receipt"] == 1
            assert till.paid == 1
    # It is looked up, begun, recorded, and all is well. A store that only does not answer takes in that it was not
    # begun after all.
    begun = "done, paid 0" if fault is Fault.BEFORE or end == "down" else "in doubt, paid 0"
    assert seen == [
        "done, paid 0",
        begun,
        "in doubt, paid 1" if fault is Fault.BEFORE else "done, paid 1",
        "done, paid 1",
    ]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
@pytest.mark.parametrize("kind", ["declined", "failed", "retried"])
def test_the_store_fails_around_a_function_that_raises(fault, kind):
    """The function's exception propagates, whatever the store does, and what it means for the effect is recorded."""

    def pay() -> None:
        raise ValueError

    def begin(state: Versioned) -> None:
        with suppress(ValueError):
            if kind == "retried":
                effect("pay", pay, state=state)

    for make, options in ((Faulty, {}), (Faulty, {"crash": True}), (down, {})):
        for state, healthy, at in failing(make, begin, fault, **options):
            try:
                effect(
                    "pay",
                    pay,
                    state=state,
                    not_done_on=() if kind == "failed" else ValueError,
                    idempotent=kind == "retried",
                )
            except ValueError as error:
                assert at > 1
                notes = getattr(error, "__notes__", [])
            except (StorageError, InjectedCrash):
                notes = None
            till = Till()
            with suppress(EffectInDoubtError):
                effect("pay", till.pay, state=healthy)
            if kind != "declined" and (notes is not None or kind == "retried"):
                assert till.paid == 0, "it may have happened"
            if notes == []:
                assert till.paid == 1, "it was said that it did not"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
@pytest.mark.parametrize("call", ["settle", "forget", "check"])
def test_the_store_fails_while_an_effect_is_settled(fault, call):
    """Settling and forgetting are done or not done, and a second try ends them."""
    till = Till()
    calls: dict[str, Callable[[Versioned], object]] = {
        "settle": lambda state: settle_effect(state, "pay", 7),
        "forget": lambda state: forget_effect(state, "pay"),
        "check": lambda state: effect("pay", till.pay, state=state, check=lambda *_: Happened(7)),
    }

    def begin(state: Versioned) -> None:
        with suppress(ZeroDivisionError):
            effect("pay", lambda: 1 / 0, state=state)

    for make in (Faulty, down):
        for state, healthy, _ in failing(make, begin, fault):
            try:
                calls[call](state)
            except StorageError:
                with suppress(UnknownEffectError, InvalidArgumentError):
                    calls[call](healthy)
            found = {each.key: each.result for each in effects(healthy)}
            assert found == {"before": 0} | ({} if call == "forget" else {"pay": 7})
    assert till.paid == 0


def test_a_store_that_does_not_answer_is_asked_again_only_about_a_write_that_it_may_have_done():
    store, till = Lossy(), Till()
    state = opened(store)
    store.lose("reply", silent=1)
    assert effect("a", till.pay, state=state)["receipt"] == 1
    assert store.unanswered == 1
    store.lose("request", silent=math.inf, error=UnreachableStoreError("no route"))
    with pytest.raises(UnreachableStoreError):
        effect("b", till.pay, state=state)
    assert store.unanswered == 2, "to take the beginning back"
    assert till.paid == 1


class Late(Wrapper):
    """Loses the reply to each write, and carries out the first one only when asked: a request that arrives late."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.arrive: Callable[[], object] | None = None

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        if self.arrive is None:
            self.arrive = partial(self.store.apply, dict(expected), dict(puts), tuple(deletes), objects=objects)
        raise UnknownOutcomeError("no answer")


def test_a_beginning_that_arrives_late_is_in_doubt_and_not_done():
    store, till = Memory(), Till()
    opened(store)
    late = Late(store)
    with pytest.raises(UnknownOutcomeError):
        effect("pay", till.pay, state=Versioned(late))
    assert late.arrive is not None
    late.arrive()
    with pytest.raises(EffectInDoubtError):
        effect("pay", till.pay, state=Versioned(store))
    assert till.paid == 0
    forget_effect(Versioned(store), "pay")
    effect("pay", till.pay, state=Versioned(store))
    late.arrive()  # a request that was carried out is not carried out again
    assert till.paid == 1
    assert effect("pay", till.pay, state=Versioned(store))["receipt"] == 1


# Processes that are killed


class Kills(Faulty):
    """Kills this process at one of its calls."""

    def _error(self) -> BaseException:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def told(file: Path) -> int:
    return len(file.read_bytes()) if file.exists() else 0


def pay(file: Path, die: str = "") -> int:
    """Pay, and count it in a file. The process may be killed before or after that."""
    if die == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with file.open("ab") as log:
        log.write(b"$")
    if die == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return told(file)


def in_a_child(work: Callable[[], object]) -> bool:
    """Run work in a process of its own. Return whether it was killed."""
    status = os.waitpid(fork(lambda: (work(), None)[1]), 0)[1]
    assert os.WIFSIGNALED(status) or status == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
@pytest.mark.parametrize("way", ["", "check", "idempotent"])
def test_killed_at_each_call_of_the_store(fault, way, tmp_path):
    """A file counts the payments.

    Whatever call the process dies at, the next process pays once in all, or is told of the doubt.
    """
    for at in itertools.count(1):
        path, log = tmp_path / str(at), tmp_path / f"{at}.log"
        opened(Disk(path)).repository.close()

        def work(at: int | None, path: Path = path, log: Path = log) -> object:
            with Disk(path) as store:
                counted = Kills(store)
                state = Versioned(counted)
                counted.arm(at, fault=fault)
                options: dict[str, Any] = (
                    {"check": lambda *_: Happened(told(log)) if told(log) else False} if way == "check" else {}
                )
                return effect("pay", pay, log, state=state, idempotent=way == "idempotent", **options)

        killed = in_a_child(partial(work, at))
        paid = told(log)
        assert paid <= 1
        try:
            assert work(None) == told(log)
        except EffectInDoubtError:
            assert way == ""
            assert told(log) == paid
        else:
            assert told(log) == 1 or way == "idempotent"
            assert told(log) <= 2
        if not killed:
            assert at == 4
            break


@pytest.mark.parametrize("die", ["before", "after"])
def test_killed_within_the_function(die, tmp_path):
    path, log = tmp_path / "store", tmp_path / "log"
    opened(Disk(path)).repository.close()

    def work(die: str = "", **options: Any) -> object:
        with Disk(path) as store:
            return effect("pay", pay, log, die, state=Versioned(store), arguments="any", **options)

    assert in_a_child(lambda: work(die))
    for _ in range(2):
        with pytest.raises(EffectInDoubtError):
            work()
    assert told(log) == (die == "after")
    assert work(check=lambda *_: bool(told(log))) == (None if die == "after" else 1)
    assert told(log) == 1


def test_a_process_that_lives_is_not_taken_for_one_that_died(tmp_path):
    """While the function runs in another process, ``check`` and ``idempotent`` do not repeat it.

    Once that process has died, they do.
    """
    path = tmp_path / "store"
    opened(Disk(path)).repository.close()
    reads, writes = os.pipe()

    def hang() -> None:
        os.write(writes, b".")
        signal.pause()

    def child() -> None:
        with Disk(path) as store:
            effect("pay", hang, state=Versioned(store))

    pid = fork(child)
    try:
        assert os.read(reads, 1) == b"."
        with Disk(path) as store:
            state, till = Versioned(store), Till()
            with pytest.raises(EffectInDoubtError, match="right now"):
                effect("pay", till.pay, state=state, check=lambda *_: False, idempotent=True)
            with pytest.raises(EffectInDoubtError, match="right now"):
                forget_effect(state, "pay")
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has died, and nobody has taken note
            with pytest.raises(EffectInDoubtError, match="not recorded"):
                effect("pay", till.pay, state=state)
            assert effect("pay", till.pay, state=state, check=lambda *_: False)["receipt"] == 1
    finally:
        os.close(reads)
        os.close(writes)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_an_attempt_that_failed_is_not_waited_for_while_its_process_lives(tmp_path):
    """The process that failed keeps running, as a server does. Another process can find out and try again."""
    path = tmp_path / "store"
    with Disk(path) as store:
        state = opened(store)
        with pytest.raises(ZeroDivisionError):
            effect("pay", lambda: 1 / 0, state=state)
        with pytest.raises(EffectInDoubtError, match="recorded"):
            effect("connect", threading.Lock, state=state)

        def child() -> None:
            with Disk(path) as other:
                for key in ("pay", "connect"):
                    assert effect(key, Till().pay, state=Versioned(other), check=lambda *_: False)["receipt"] == 1

        assert not in_a_child(child)
        assert effect("pay", Till().pay, state=state)["receipt"] == 1


def on_disk(_: pytest.FixtureRequest, folder: Path) -> Opener:
    return partial(Disk, folder / "store")


@pytest.mark.parametrize("kind", [on_disk, redis, postgres], ids=["disk", "redis", "postgres"])
def test_processes_that_race_for_keys_act_once(kind, request, tmp_path):
    opener = kind(request, tmp_path)
    with opener() as store:
        opened(store)
    log = tmp_path / "log"

    def race(number: int) -> None:
        with opener() as store:
            state = Versioned(store, branch=f"b{number}")
            for key in range(10):
                with suppress(EffectInDoubtError):
                    effect(f"pay:{key}", pay, log, state=state, check=lambda *_: False, idempotent=True)

    pids = [fork(partial(race, number)) for number in range(4)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    assert told(log) == 10
    with opener() as store:
        assert [each.status for each in effects(Versioned(store))] == ["done"] * 11


# Interrupts


@pytest.mark.filterwarnings("ignore:coroutine.*never awaited")  # the interrupt came before its first step
@pytest.mark.parametrize("kind", ["new", "retried", "declined"])
def test_interrupted_at_any_line(kind, long_run):
    """Ctrl-C at any line leaves an effect as if never tried, in doubt, or done, but never one that seems to run."""

    def decline() -> None:
        raise ValueError

    doubts, lines = 0, 0
    step = 1 if long_run else 3
    for at in itertools.count(1, step):
        state, till = Versioned(OneCondition()), Till()
        if kind == "retried":
            with suppress(ValueError):
                effect("pay", decline, state=state)
        function = decline if kind == "declined" else till.pay
        trace = Trace(at)
        with suppress(Interrupt, ValueError):
            trace.run(
                partial(
                    effect,
                    "pay",
                    function,
                    state=state,
                    check=lambda *_: False,
                    not_done_on=ValueError if kind == "declined" else (),
                )
            )
        paid = till.paid
        try:
            result = effect("pay", till.pay, state=state)
        except EffectInDoubtError:
            doubts += not paid and kind != "retried"
            result = effect(
                "pay", till.pay, state=state, check=lambda *_, paid=paid: Happened({"receipt": 1}) if paid else False
            )
        assert till.paid == 1
        assert result["receipt"] == 1
        assert effect("pay", till.pay, state=state)["receipt"] == 1
        lines += 1
        if not trace.hit:
            break
    assert lines > 50
    assert doubts < lines / 4, "before the function is called, it is mostly known that it was not"
