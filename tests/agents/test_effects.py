"""An effect is carried out once for each key, whatever happens to the history. In doubt, it waits to be settled."""

from __future__ import annotations

import datetime as dt
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.support.handles import committed
from tests.support.stores import MinimalStore, OneCondition
from versioned_state import (
    Happened,
    Live,
    Memory,
    Repository,
    Tagged,
    Versioned,
    effect,
    effects,
    forget_effect,
    settle_effect,
)
from versioned_state.agents.call import Call, running
from versioned_state.errors import (
    EffectInDoubtError,
    HandleClosedError,
    IdempotencyConflictError,
    InvalidArgumentError,
    NoTaskError,
    PickleRefusedError,
    ReadOnlyError,
    UnknownEffectError,
)
from versioned_state.repository.ledger import Ledger
from versioned_state.repository.maintenance.owner import Owner
from versioned_state.storage import Counting, ReadOnly
from versioned_state.storage.testing.writers import run_together


@dataclass
class Till:
    """The other side of an effect: it counts what was paid."""

    paid: list[str]

    def pay(self, city: str) -> dict[str, Any]:
        self.paid.append(city)
        return {"city": city, "receipt": [len(self.paid)]}

    def fail(self, city: str) -> None:
        self.paid.append(city)
        raise ConnectionError("no answer")


@pytest.fixture
def till() -> Till:
    return Till([])


def in_doubt(state: Any, key: str = "pay") -> None:
    """Leave an effect in doubt."""
    with pytest.raises(ConnectionError):
        effect(key, Till([]).fail, "Rome", state=state)


# Once


def test_it_is_carried_out_once_and_its_result_is_kept(till):
    state = Versioned()
    first = effect("pay:Rome", till.pay, "Rome", state=state)
    assert first == {"city": "Rome", "receipt": [1]}
    first["receipt"].append("changed afterwards")
    again = effect("pay:Rome", till.pay, "Rome", state=state)
    assert again == {"city": "Rome", "receipt": [1]}
    again["receipt"].append("a copy too")
    assert effect("pay:Rome", till.pay, "Rome", state=state) == {"city": "Rome", "receipt": [1]}
    assert effect("pay:Oslo", till.pay, "Oslo", state=state)["receipt"] == [2]
    assert till.paid == ["Rome", "Oslo"]


def test_a_result_of_none_is_a_result(till):
    state = Versioned()
    for _ in range(2):
        assert effect("send", till.paid.append, "mail", state=state) is None
    assert till.paid == ["mail"]


def test_other_arguments_are_refused_unless_they_are_not_compared(till):
    state = Versioned()
    effect("pay", till.pay, "Rome", state=state)
    with pytest.raises(
        IdempotencyConflictError, match="'pay' was begun with other arguments; the function was not called"
    ):
        effect("pay", till.pay, "Oslo", state=state)
    assert effect("pay", till.pay, "Oslo", state=state, arguments="any")["city"] == "Rome"
    assert effect("pay", till.pay, "Rome", state=state)["city"] == "Rome"
    with pytest.raises(InvalidArgumentError, match="arguments"):
        effect("pay", till.pay, "Rome", state=state, arguments="some")
    assert till.paid == ["Rome"]


def test_arguments_are_compared_by_content_and_clients_of_services_by_class():
    state, calls = Versioned(), []

    def send(client, order, *, note=""):
        calls.append((order, note))

    def sent(client, order, **options):
        effect("send", send, client, order, state=state, **options)

    sent(threading.Lock(), {"a": 1, "b": [1, 2]}, note="x")
    sent(threading.Lock(), {"b": [1, 2], "a": 1}, note="x")  # another lock, and the keys in another order
    for client, order, note in (
        ({}, {"a": 1, "b": [1, 2]}, "x"),
        (threading.Lock(), {"a": 1}, "x"),
        (threading.Lock(), {"a": 1, "b": [1, 2]}, "y"),
    ):
        with pytest.raises(IdempotencyConflictError):
            sent(client, order, note=note)
    assert len(calls) == 1


def test_a_record_of_an_older_release_has_no_arguments_to_compare(till):
    state = Versioned()
    ledger = Ledger(state.repository.database)
    older = ledger.draft("pay", Owner())
    assert ledger.begin("pay", older)
    assert ledger.record("pay", older, "receipt") is None
    assert effect("pay", till.pay, "Rome", state=state) == "receipt"
    assert till.paid == []


@pytest.mark.parametrize("make", [Versioned, Live, lambda: Versioned(OneCondition()), lambda: Repository(Memory())])
def test_any_kind_of_state_has_a_ledger(make, till):
    state = make()
    for _ in range(2):
        assert effect("pay", till.pay, "Rome", state=state)["receipt"] == [1]
    assert [(each.key, each.status) for each in effects(state)] == [("pay", "done")]
    in_doubt(state, "other")
    settle_effect(state, "other", 5)
    assert effect("other", till.pay, "Rome", state=state) == 5
    forget_effect(state, "other")
    assert effect("other", till.pay, "Rome", state=state)["receipt"] == [2]


@pytest.mark.parametrize("make", [Versioned, Live])
def test_a_namespace_shares_the_ledger_of_its_state(make, till):
    state = make()
    effect("pay", till.pay, "Rome", state=state.namespace("a").namespace("b"))
    effect("pay", till.pay, "Rome", state=state)
    effect("pay", till.pay, "Rome", state=state.namespace("c"))
    assert till.paid == ["Rome"]
    assert len(effects(state)) == 1


def test_two_states_of_a_process_share_no_ledger(till):
    effect("pay", till.pay, "Rome", state=Live())
    effect("pay", till.pay, "Rome", state=Live())
    assert till.paid == ["Rome", "Rome"]


def test_no_move_of_the_history_forgets_an_effect(till):
    """The ledger is not in commits: resets, forks, undo, checkouts, discards and failed transactions leave it alone."""
    store = Memory()
    state = Versioned(store)
    state["n"] = 1
    first = state.commit("first")
    state["n"] = 2
    effect("pay", till.pay, "Rome", state=state)
    state.commit("second")
    state.reset(first)
    effect("pay", till.pay, "Rome", state=state)
    state.undo()
    effect("pay", till.pay, "Rome", state=state)
    with state.fork("other") as fork:
        effect("pay", till.pay, "Rome", state=fork)
    with suppress(ZeroDivisionError), state.transaction("fails"):
        effect("inside", till.pay, "Oslo", state=state)
        raise ZeroDivisionError
    effect("inside", till.pay, "Oslo", state=state)
    effect("pay", till.pay, "Rome", state=Versioned(store, branch="unborn"))
    state.discard()
    assert till.paid == ["Rome", "Oslo"]
    state.repository.branches.delete("other", force=True)
    assert state.repository.fsck().ok
    assert {each.key for each in effects(state)} == {"pay", "inside"}


def test_its_record_carries_nothing_of_what_is_staged(till):
    store = Memory()
    state = committed(store, n=1)
    state["secret"] = "s" * 50
    head, objects = state.head, set(store.keys("o/"))
    effect("pay", till.pay, "Rome", state=state)
    assert state.head == head
    assert set(store.keys("o/")) == objects
    assert not any(b"ssss" in value for _, value in store.items())
    assert "secret" in Versioned(store).keys() ^ state.keys()


def test_it_costs_a_read_and_two_writes_and_a_repetition_one_read():
    store = Counting(Memory())
    state = Versioned(store)
    effect("warm", int, state=state)
    store.reset()
    effect("pay", int, state=state)
    counts = store.counts
    assert (counts.gets, counts.applies) == (1, 2)
    store.reset()
    effect("pay", int, state=state)
    assert (store.counts.gets, store.counts.applies) == (1, 0)


# Keys and scopes


@pytest.mark.parametrize("key", ["a", "é/ \0\x1b[31m", "\ud800", "k" * 100_000, "@other", "effect/1"])
def test_a_key_is_any_text(key, till):
    state = Versioned()
    for _ in range(2):
        effect(key, till.pay, "Rome", state=state)
    assert till.paid == ["Rome"]
    assert effects(state)[0].key == key
    assert state.repository.fsck().ok
    forget_effect(state, key)
    assert effects(state) == []


@pytest.mark.parametrize("key", ["", None, 7, b"pay", "@branch/main/pay", "@call/1/pay"])
def test_what_cannot_be_a_key_is_refused_before_anything_is_done(key, till):
    state = Versioned()
    with pytest.raises(InvalidArgumentError, match="key"):
        effect(key, till.pay, "Rome", state=state)
    assert till.paid == []
    assert effects(state) == []


def test_a_scope_of_a_branch_is_one_effect_for_each_branch(till):
    state = Versioned(branch="a/b%")
    for _ in range(2):
        effect("pay", till.pay, "Rome", state=state, scope="branch")
    with state.fork("other") as fork:
        effect("pay", till.pay, "Oslo", state=fork.namespace("n"), scope="branch")
    effect("pay", till.pay, "Bonn", state=state)
    assert till.paid == ["Rome", "Oslo", "Bonn"]
    assert {each.key for each in effects(state)} == {"@branch/a%2Fb%25/pay", "@branch/other/pay", "pay"}
    with pytest.raises(InvalidArgumentError, match="no branch"):
        effect("pay", till.pay, "Rome", state=state.repository, scope="branch")


def test_a_scope_of_a_call_is_one_effect_for_each_call(till):
    state = Versioned()
    by_key, by_id = Call("book", state, key="trip/7"), Call("book", state)
    for call in (by_key, by_id, Call("book", state, key="trip/7"), Call("book", state)):
        with running(call):
            effect("pay", till.pay, "Rome", scope="call")
            effect("pay", till.pay, "Rome", scope="call")
    assert len(till.paid) == 3
    assert {"@call/trip%2F7/pay", f"@call/{by_id.id}/pay"} < {each.key for each in effects(state)}
    with pytest.raises(InvalidArgumentError, match="no task is running"):
        effect("pay", till.pay, "Rome", state=state, scope="call")


def test_a_key_names_the_same_effect_within_a_task_and_outside(till):
    state = Versioned()
    with running(Call("book", state)):
        effect("pay", till.pay, "Rome")
    effect("pay", till.pay, "Rome", state=state)
    assert till.paid == ["Rome"]


def test_outside_of_a_task_it_needs_a_state(till):
    with pytest.raises(NoTaskError) as raised:
        effect("pay", till.pay, "Rome")
    assert "state=" in raised.value.hint
    others: list[Any] = ["./agent-state", Versioned().checkout("HEAD"), {}]
    for other in others:
        with pytest.raises(InvalidArgumentError, match="no ledger"):
            effect("pay", till.pay, "Rome", state=other)
    closed = Versioned()
    closed.close()
    with pytest.raises(HandleClosedError):
        effect("pay", till.pay, "Rome", state=closed)
    assert till.paid == []


# The function


def test_the_function_is_given_the_full_key_if_it_asks_for_it():
    state = Versioned()

    def pay(city: str, *, idempotency_key: str | None = None, **more: Any) -> tuple[str, str | None, Any]:
        return city, idempotency_key, more

    assert effect("a", pay, "Rome", state=state, key="own", function=1) == ("Rome", "a", {"key": "own", "function": 1})
    assert effect("b", pay, "Rome", state=state, scope="branch")[1] == "@branch/main/b"
    assert effect("c", pay, "Rome", state=state, idempotency_key="mine")[1] == "mine"
    assert effect("d", partial(pay, idempotency_key="bound"), "Rome", state=state)[1] == "bound"
    assert effect("e", lambda **more: more, state=state) == {}
    assert effect("f", lambda idempotency_key: idempotency_key, "first", state=state) == "first"


def test_a_call_that_cannot_be_made_leaves_nothing_in_doubt(till):
    state = Versioned()
    with pytest.raises(TypeError, match="city"):
        effect("pay", till.pay, state=state)
    with pytest.raises(InvalidArgumentError, match="function"):
        effect("pay", "pay", state=state)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError, match="check"):
        effect("pay", till.pay, "Rome", state=state, check=True)
    with pytest.raises(InvalidArgumentError, match="generator"):
        effect("pay", (lambda: (yield)), state=state)
    with pytest.raises(InvalidArgumentError, match="scope"):
        effect("pay", till.pay, "Rome", state=state, scope="store ")
    with pytest.raises(InvalidArgumentError, match="not_done_on"):
        effect("pay", till.pay, "Rome", state=state, not_done_on=["ValueError"])
    assert effects(state) == []
    assert till.paid == []


def test_a_function_that_calls_the_same_effect_finds_it_in_doubt(till):
    state = Versioned()

    def outer() -> str:
        with pytest.raises(EffectInDoubtError, match="right now"):
            effect("pay", till.pay, "Rome", state=state, idempotent=True, arguments="any")
        return "outer"

    assert effect("pay", outer, state=state) == "outer"
    assert till.paid == []


# In doubt


def test_an_effect_that_failed_is_in_doubt_until_it_is_settled(till):
    state = Versioned()
    before = dt.datetime.now(dt.UTC)
    with pytest.raises(ConnectionError) as caught:
        effect("pay", till.fail, "Rome", state=state)
    assert "in doubt" in caught.value.__notes__[0]
    for _ in range(2):
        with pytest.raises(EffectInDoubtError, match="'pay'") as doubt:
            effect("pay", till.pay, "Rome", state=state)
        assert doubt.value.key == "pay"
        assert before <= doubt.value.since <= dt.datetime.now(dt.UTC)
    (record,) = effects(state)
    assert (record.key, record.status, record.result, record.since) == ("pay", "in doubt", None, doubt.value.since)
    settle_effect(state, "pay", {"receipt": 7})
    assert effect("pay", till.pay, "Rome", state=state) == {"receipt": 7}
    assert till.paid == ["Rome"]
    (record,) = effects(state)
    assert (record.status, record.result) == ("done", {"receipt": 7})


def test_only_an_effect_in_doubt_is_settled():
    state = Versioned()
    effect("done", int, state=state)
    with pytest.raises(InvalidArgumentError, match="not in doubt"):
        settle_effect(state, "done", 1)
    for call in (settle_effect, forget_effect):
        with pytest.raises(UnknownEffectError, match="'never'"):
            call(state, "never")
        with pytest.raises(KeyError):
            call(state, "never")
    assert effect("done", int, state=state) == 0


def test_check_tells_that_it_did_not_happen(till):
    state = Versioned()
    in_doubt(state)
    asked = []

    def check(*args: Any) -> bool:
        asked.append(args)
        return False

    assert effect("pay", till.pay, "Oslo", state=state, check=check, arguments="any")["receipt"] == [1]
    assert effect("pay", till.pay, "Oslo", state=state, check=check, arguments="any")["receipt"] == [1]
    assert asked == [("pay", "Oslo")]


def test_check_gets_the_arguments_that_a_partial_holds():
    state = Versioned()
    in_doubt(state)
    asked = []

    def pay(city: str, amount: int, *, currency: str) -> str:
        return f"{city} {amount} {currency}"

    def check(*args: Any) -> bool:
        asked.append(args)
        return False

    assert (
        effect("pay", partial(partial(pay, "Oslo"), currency="EUR"), 25, state=state, check=check, arguments="any")
        == "Oslo 25 EUR"
    )
    assert asked == [("pay", "Oslo", 25)]


@pytest.mark.parametrize(
    ("answer", "result"), [(True, None), (Happened(), None), (Happened({"receipt": 7}), {"receipt": 7})]
)
def test_check_tells_that_it_happened(answer, result, till):
    state = Versioned()
    in_doubt(state)
    assert effect("pay", till.pay, "Rome", state=state, check=lambda *_: answer) == result
    assert effect("pay", till.pay, "Rome", state=state) == result
    assert till.paid == []


def test_a_check_that_fails_or_gives_something_else_leaves_it_in_doubt(till):
    state = Versioned()
    in_doubt(state)
    with pytest.raises(ZeroDivisionError):
        effect("pay", till.pay, "Rome", state=state, check=lambda *_: 1 / 0)
    with pytest.raises(InvalidArgumentError, match="check of effect 'pay'"):
        effect("pay", till.pay, "Rome", state=state, check=lambda *_: {"receipt": 7})
    with pytest.raises(EffectInDoubtError):
        effect("pay", till.pay, "Rome", state=state)
    assert till.paid == []


def test_check_is_asked_only_in_doubt(till):
    state = Versioned()
    for _ in range(2):
        effect("pay", till.pay, "Rome", state=state, check=lambda *_: pytest.fail("asked"))


def test_an_idempotent_effect_is_repeated_with_the_same_key():
    state = Versioned()
    seen = []

    def pay(idempotency_key: str) -> int:
        seen.append(idempotency_key)
        if len(seen) < 3:
            raise ConnectionError
        return len(seen)

    for _ in range(2):
        with pytest.raises(ConnectionError):
            effect("pay", pay, state=state, idempotent=True)
    since = effects(state)[0].since
    assert effect("pay", pay, state=state, idempotent=True) == 3
    assert effect("pay", pay, state=state, idempotent=True) == 3
    assert seen == ["pay"] * 3
    assert effects(state)[0].since == since, "since its first try"


class DeclinedError(Exception):
    pass


@pytest.mark.parametrize("types", [DeclinedError, (ValueError, DeclinedError)])
def test_after_an_exception_that_says_so_it_is_as_if_never_tried(types, till):
    state = Versioned()

    def decline() -> None:
        raise DeclinedError

    for _ in range(2):
        with pytest.raises(DeclinedError) as caught:
            effect("pay", decline, state=state, not_done_on=types)
        assert not hasattr(caught.value, "__notes__")
        assert effects(state) == []
    assert effect("pay", till.pay, "Rome", state=state)["receipt"] == [1]


def test_that_the_second_try_did_not_happen_says_nothing_of_the_first(till):
    """An idempotent effect in doubt stays in doubt if its repetition is refused: the first try may have happened."""
    state = Versioned()
    in_doubt(state)
    since = effects(state)[0].since

    def decline() -> None:
        raise DeclinedError

    with pytest.raises(DeclinedError):
        effect("pay", decline, state=state, idempotent=True, not_done_on=DeclinedError, arguments="any")
    with pytest.raises(EffectInDoubtError) as doubt:
        effect("pay", till.pay, "Rome", state=state, arguments="any")
    assert doubt.value.since == since
    with pytest.raises(DeclinedError):  # but check= knows
        effect("pay", decline, state=state, check=lambda *_: False, not_done_on=DeclinedError, arguments="any")
    assert effects(state) == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_any_exception_leaves_it_in_doubt(interrupt):
    state = Versioned()

    def stop() -> None:
        raise interrupt

    with pytest.raises(interrupt):
        effect("pay", stop, state=state)
    with pytest.raises(EffectInDoubtError):
        effect("pay", stop, state=state)


# Results


def test_a_result_that_cannot_be_stored_is_not_lost(till):
    state = Versioned()
    lock = threading.Lock()

    def pay() -> dict[str, Any]:
        till.paid.append("Rome")
        return {"receipt": 7, "lock": lock}

    with pytest.raises(EffectInDoubtError, match="the result of effect 'pay'") as caught:
        effect("pay", pay, state=state)
    assert caught.value.result == {"receipt": 7, "lock": lock}
    with pytest.raises(EffectInDoubtError):
        effect("pay", pay, state=state)
    settle_effect(state, caught.value.key, {"receipt": caught.value.result["receipt"]})
    assert effect("pay", pay, state=state) == {"receipt": 7}
    assert till.paid == ["Rome"]


def test_a_live_state_remembers_any_object():
    state = Live()
    lock = threading.Lock()
    assert effect("lock", lambda: lock, state=state) is lock
    assert effect("lock", lambda: lock, state=state.namespace("a")) is lock
    effect("list", lambda: [[1]], state=state)[0].append(2)
    effect("list", lambda: [[1]], state=state)[0].append(2)
    assert effect("list", lambda: [[1]], state=state) == [[1]]
    assert [each.result for each in effects(state)] == [lock, [[1]]]


class Receipt:
    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return Receipt, (self.number,)


def test_an_object_as_a_result_follows_the_pickle_policy():
    store = Memory()
    trusting = Versioned(store)
    assert effect("a", Receipt, 7, state=trusting).number == 7
    assert effect("a", Receipt, 7, state=trusting).number == 7
    refusing = Versioned(store, pickle="refuse")
    with pytest.raises(PickleRefusedError):
        effect("a", Receipt, 7, state=refusing)
    with pytest.raises(EffectInDoubtError) as caught:
        effect("b", Receipt, 9, state=refusing)
    assert isinstance(caught.value.__cause__, PickleRefusedError)
    assert caught.value.result.number == 9
    shown = {each.key: each.result for each in effects(refusing)}
    assert "Receipt" in repr(shown["a"])
    assert effects(trusting)[0].result.number == 7


@dataclass
class Ticket:
    number: int
    legs: list[str]


def test_an_instance_of_a_class_as_a_result_is_data():
    state = Versioned(pickle="refuse")
    shared = Versioned(MinimalStore())  # others may write there: only registered types come back as they were
    for each in (state, shared):
        effect("book", lambda: Ticket(7, ["Rome"]), state=each)
    assert effect("book", lambda: Ticket(0, []), state=Versioned(state.repository.store)) == Ticket(7, ["Rome"])
    found: Any = effect("book", lambda: Ticket(0, []), state=shared)
    assert isinstance(found, Tagged)
    assert found.fields == {"number": 7, "legs": ["Rome"]}


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
def test_a_result_is_of_any_size(size):
    """It lies in the record, and not in objects, so that no gc can take it."""
    store = Memory()
    state = Versioned(store)
    before = set(store.keys("o/"))
    result = {"text": "ab" * size, "list": list(range(size // 10))}
    assert effect("read", lambda: result, state=state) == result
    assert state.repository.gc().freed == 0
    assert set(store.keys("o/")) == before
    assert effect("read", dict, state=state) == result
    assert state.repository.fsck().ok


# Others at the same time


def test_threads_that_race_for_a_key_act_once():
    store = Memory()
    done: list[object] = []
    paid: list[int] = []

    def race(number: int) -> None:
        state = Versioned(store, branch=f"b{number}")
        try:
            done.append(
                effect("pay", pay, number, state=state, check=lambda *_: False, idempotent=True, arguments="any")
            )
        except EffectInDoubtError as error:
            done.append(error)

    def pay(number: int) -> int:
        paid.append(number)
        threading.Event().wait(0.02)
        return number

    run_together(partial(race, number) for number in range(8))
    assert len(paid) == 1
    assert {each for each in done if isinstance(each, int)} == {*paid}
    assert len(done) == 8


def test_a_result_that_was_settled_meanwhile_stands(till):
    state = Versioned()

    def pay() -> str:
        settle_effect(state, "pay", "settled")
        return "ours"

    assert effect("pay", pay, state=state) == "settled"
    assert effect("pay", till.pay, "Rome", state=state, arguments="any") == "settled"


def test_a_running_effect_is_not_forgotten(till):
    state = Versioned()

    def pay() -> int:
        with pytest.raises(EffectInDoubtError, match="right now; nothing was changed"):
            forget_effect(state, "pay")
        return 1

    assert effect("pay", pay, state=state) == 1


# Stores that are read only


def test_a_read_only_store_gives_results_and_begins_nothing(till):
    store = Memory()
    state = committed(store, n=1)
    effect("pay", till.pay, "Rome", state=state)
    in_doubt(state, "doubt")
    reader = Versioned(ReadOnly(store))
    assert effect("pay", till.pay, "Rome", state=reader)["receipt"] == [1]
    assert len(effects(reader)) == 2
    for call in (
        lambda: effect("new", till.pay, "Rome", state=reader),
        lambda: effect("doubt", till.pay, "Rome", state=reader, check=lambda *_: False),
        lambda: effect("doubt", till.pay, "Rome", state=reader, check=lambda *_: True),
        lambda: settle_effect(reader, "doubt"),
        lambda: forget_effect(reader, "pay"),
    ):
        with pytest.raises(ReadOnlyError):
            call()
    assert till.paid == ["Rome"]


def test_the_arguments_that_partial_holds_are_compared_too(till: Till):
    state = Versioned()
    effect("pay", partial(till.pay, "Rome"), state=state)
    assert effect("pay", partial(till.pay, city="Rome"), state=state, arguments="any") == {
        "city": "Rome",
        "receipt": [1],
    }
    assert effect("pay", partial(partial(till.pay), "Rome"), state=state) == {"city": "Rome", "receipt": [1]}
    assert effect("pay", till.pay, "Rome", state=state) == {"city": "Rome", "receipt": [1]}
    with pytest.raises(IdempotencyConflictError):
        effect("pay", partial(till.pay, "Oslo"), state=state)
    assert till.paid == ["Rome"]
