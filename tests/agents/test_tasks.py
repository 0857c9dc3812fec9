"""A call of a task is one commit. A failure is rolled back and recorded. Also: arguments, results and refusals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import versioned_state
from tests.support.handles import committed
from versioned_state import (
    Disk,
    Live,
    Memory,
    Repository,
    Versioned,
    checkpoint,
    current_state,
    emit,
    events,
    task,
)
from versioned_state.agents.events.classes import (
    ActionEvent,
    ClarifyEvent,
    ErrorEvent,
    FailEvent,
    SuccessEvent,
    TaskStartEvent,
)
from versioned_state.agents.tasks.round import TaskClarify, TaskFailed
from versioned_state.errors import (
    HandleClosedError,
    IdempotencyConflictError,
    InvalidArgumentError,
    NoTaskError,
    ReadOnlyError,
    TransactionError,
    UnserializableValueError,
)


@task
def book(city: str, nights: int = 1) -> str:
    """Book a city.

    By way of example.
    """
    state = current_state()
    state.setdefault("trips", []).append(city)
    if city == "nowhere":
        raise ValueError("no such city")
    state["nights"] = nights
    return city.upper()


def kinds(state: Any, **filters: Any) -> list[str]:
    return [type(event).__name__ for event in events(state, **filters)]


# One call, one commit


def test_a_call_without_a_state_keeps_nothing():
    assert book("Rome") == "ROME"
    assert book("Rome") == "ROME"


def test_a_live_state_remembers_any_object():
    state = Live()
    book("Rome", state=state)
    state["lock"] = threading.Lock()
    book("Oslo", state=state)
    assert state["trips"] == ["Rome", "Oslo"]
    assert kinds(state) == ["TaskStartEvent", "SuccessEvent"] * 2
    assert {event.commit_hash for event in events(state)} == {None}


def test_a_call_is_a_commit_that_names_the_task():
    state = Versioned()
    first = state.head
    assert book("Rome", state=state) == "ROME"
    assert state.head.parents == (first.id,)
    assert state.head.message == "book('Rome', 1): nights added, trips added"
    meta = state.head.meta
    assert set(meta) == {"task", "agent", "call", "seconds", "outcome"}
    assert (meta["task"], meta["agent"], meta["outcome"]) == ("book", "", "success")
    assert type(meta["seconds"]) is float
    book("Oslo", state=state)
    assert state.head.meta["call"] != meta["call"]
    assert not state.status()


def test_a_call_that_changes_nothing_is_a_commit_of_its_events():
    @task
    def look() -> int:
        return len(current_state())

    state = Versioned()
    before = state.commit()
    assert look(state=state) == 0
    assert state.head != before
    assert not state.diff(before, state.head)
    assert kinds(state) == ["TaskStartEvent", "SuccessEvent"]


def test_reopening_the_store_goes_on(tmp_path: Path):
    for city in ("Rome", "Oslo"):
        with versioned_state.open(f"disk:{tmp_path}") as state:
            book(city, state=state)
    book("Bern", state=f"disk:{tmp_path}")
    with versioned_state.open(f"disk:{tmp_path}") as state:
        assert state["trips"] == ["Rome", "Oslo", "Bern"]
        assert kinds(state) == ["TaskStartEvent", "SuccessEvent"] * 3


def test_a_namespace_is_a_state_of_its_own():
    state = Versioned()
    book("Rome", state=state.namespace("worker"))
    assert "trips" not in state
    assert state.namespace("worker")["trips"] == ["Rome"]
    assert kinds(state) == kinds(state.namespace("worker")) == ["TaskStartEvent", "SuccessEvent"]
    assert kinds(state.namespace("other")) == []


def test_changes_that_were_staged_before_the_call_land_with_it():
    state = Versioned()
    state["mood"] = "good"
    book("Rome", state=state)
    assert state.checkout("HEAD")["mood"] == "good"


def test_a_parameter_state_is_filled_in():
    @task
    def first(state: Any, city: str) -> str:
        state["city"] = city
        return city

    @task
    def last(city: str, *more: str, state: Any = None, **options: Any) -> tuple[Any, ...]:
        state["city"] = city
        return city, more, options

    @task
    def only_by_position(city: str, state: Any, /, when: str = "now") -> str:
        state["city"] = city
        return when

    for state in (Versioned(), Live()):
        assert first("Rome", state=state) == "Rome"
        assert first(city="Oslo", state=state) == "Oslo"
        assert last("Bern", "Bonn", a=1, state=state) == ("Bern", ("Bonn",), {"a": 1})
        assert only_by_position("Nice", when="later", state=state) == "later"
        assert state["city"] == "Nice"
    assert first("Rome") == "Rome"


@pytest.mark.parametrize("name", ["key", "on_event"])
def test_a_parameter_that_every_call_takes_is_refused(name: str):
    with pytest.raises(TypeError, match=f"parameter '{name}'"):
        task(eval(f"lambda {name}: 1"))


@pytest.mark.parametrize("arguments", [((), {}), (("a", 1, 2), {}), (("a",), {"city": "b"}), (("a",), {"other": 1})])
def test_wrong_arguments_raise_as_the_function_would(arguments: Any):
    args, kwargs = arguments
    state = Versioned()
    with pytest.raises(TypeError):
        book(*args, state=state, **kwargs)
    assert state.head.height == 0


def test_a_state_by_position_says_how_it_is_given():
    @task
    def go(city: str, state: Any) -> str:
        state["city"] = city
        return city

    state = Versioned()
    call: Any = go
    with pytest.raises(TypeError, match=r"go\(\): .*keyword: state="):
        call("Rome", state)
    assert not state
    assert go("Rome", state=state) == "Rome"


def test_the_commit_of_an_event_without_one():
    none: Any = None
    with pytest.raises(InvalidArgumentError) as raised:
        Versioned().checkout(none)
    assert "commit_hash" in raised.value.hint


def test_what_is_not_a_state_is_refused():
    state = committed(a=1)
    with pytest.raises(InvalidArgumentError, match="not dict"):
        book("Rome", state={})  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError, match="not Memory") as refused:
        book("Rome", state=Memory())  # type: ignore[call-overload]
    assert refused.value.hint == "Versioned(store)"
    with pytest.raises(ReadOnlyError, match="snapshot") as raised:
        book("Rome", state=state.checkout("HEAD"))  # type: ignore[call-overload]
    assert "fork" in raised.value.hint
    state.close()
    with pytest.raises(HandleClosedError):
        book("Rome", state=state)


def test_outside_of_a_task():
    for call in (current_state, checkpoint, lambda: emit(ActionEvent())):
        with pytest.raises(NoTaskError) as raised:
            call()
        assert isinstance(raised.value, RuntimeError)


def test_in_a_call_without_a_state_emit_and_checkpoint_do_nothing():
    @task
    def act() -> Any:
        emit(ActionEvent(code="x"))
        current_state()["x"] = 1
        return checkpoint("here")

    assert act() is None


def test_methods_classmethods_and_staticmethods():
    class Planner:
        def __init__(self) -> None:
            self.calls = 0

        @task
        def plan(self, city: str) -> str:
            self.calls += 1
            current_state()["city"] = city
            return city

        @task
        @classmethod
        def of_class(cls, city: str) -> str:
            return cls.__name__ + city

        @task
        @staticmethod
        def static(city: str) -> str:
            return city

    planner, state = Planner(), Versioned()
    assert planner.plan("Rome", state=state) == "Rome"
    assert planner.calls == 1
    assert Planner.of_class("Rome", state=state) == planner.of_class("Rome") == "PlannerRome"
    assert Planner.static("Rome", state=state) == planner.static("Rome") == "Rome"  # type: ignore[call-overload]
    assert [event.inputs for event in events(state, types=TaskStartEvent)] == [{"city": "Rome"}] * 3


def test_a_task_looks_like_its_function():
    import inspect

    @task
    async def think(topic: str) -> str:
        """Think."""
        return topic

    assert (think.__name__, think.__doc__) == ("think", "Think.")
    assert inspect.iscoroutinefunction(think)
    assert asyncio.iscoroutinefunction(think)
    assert not inspect.iscoroutinefunction(book)
    assert list(inspect.signature(book).parameters) == ["city", "nights", "state", "key", "on_event"]


# Failure


def test_a_failure_is_restored_recorded_and_goes_on():
    state = Versioned()
    trips = state["trips"] = ["Rome"]
    before = state.commit()
    with pytest.raises(ValueError, match="no such city") as raised:
        book("nowhere", state=state)
    assert not getattr(raised.value, "__notes__", [])
    assert state["trips"] is trips
    assert trips == ["Rome"]
    assert not state.status()
    assert state.head.parents == (before.id,)
    assert not state.diff(before, state.head)
    assert state.head.meta["outcome"] == "failure"
    assert kinds(state) == ["TaskStartEvent", "ErrorEvent"]
    assert events(state)[-1] == ErrorEvent(error="ValueError('no such city')", recoverable=False)
    book("Oslo", state=state)
    assert trips == ["Rome", "Oslo"]


def test_changes_that_were_staged_before_a_failed_call_are_staged_again():
    state = Versioned()
    state["trips"] = trips = ["Rome"]
    state.commit()
    trips.append("Bern")
    state["mood"] = "good"
    status = str(state.status())
    with pytest.raises(ValueError, match="no such city"):
        book("nowhere", state=state)
    assert str(state.status()) == status
    assert trips == ["Rome", "Bern"]
    assert "mood" not in state.checkout("HEAD")
    assert state.head.meta["outcome"] == "failure"
    book("Oslo", state=state)
    assert state.checkout("HEAD").copy() == {"mood": "good", "nights": 1, "trips": ["Rome", "Bern", "Oslo"]}


def test_a_failure_is_restored_to_the_last_checkpoint():
    @task
    def walk(state: Any) -> None:
        state["steps"].append(1)
        done = checkpoint("one")
        assert done is not None
        assert done.message == "one"
        assert done.meta.keys() == {"task", "agent", "call", "seconds"}
        state["steps"].append(2)
        raise RuntimeError("lost")

    state = Versioned()
    state["steps"] = steps = [0]
    state["before"] = 1
    with pytest.raises(RuntimeError, match="lost"):
        walk(state=state)
    assert state["steps"] is steps
    assert steps == [0, 1]
    assert not state.status()
    assert [commit.message for commit in state.log()][:2] == ["walk: failure: RuntimeError('lost')", "one"]
    assert state.checkout("HEAD").copy() == {"before": 1, "steps": [0, 1]}


def test_events_carry_the_commit_that_the_call_saw():
    @task
    def walk(state: Any) -> None:
        emit(ActionEvent(code="a"))
        state["x"] = 1
        checkpoint()
        emit(ActionEvent(code="b"))

    state = Versioned()
    root = state.head
    walk(state=state)
    commits = list(state.log())[::-1]
    assert [event.commit_hash for event in events(state)] == [root.id, root.id, commits[0].id, commits[0].id]
    second = events(state, types=ActionEvent)[1]
    assert state.checkout(second.commit_hash)["x"] == 1
    assert kinds(state.checkout(second.commit_hash)) == ["TaskStartEvent", "ActionEvent"]


@pytest.mark.parametrize(
    ("raised", "outcome", "event"),
    [
        (TaskFailed("no seats"), "failure", FailEvent(message="no seats")),
        (TaskClarify("which one?"), "failure", ClarifyEvent(message="which one?")),
        (TimeoutError("slow"), "timeout", ErrorEvent(error="TimeoutError('slow')")),
        (KeyboardInterrupt(), "interrupted", ErrorEvent(error="KeyboardInterrupt()")),
        (SystemExit(3), "interrupted", ErrorEvent(error="SystemExit(3)")),
        (asyncio.CancelledError(), "cancelled", ErrorEvent(error="CancelledError()")),
        (BaseException("odd"), "failure", ErrorEvent(error="BaseException('odd')")),
    ],
)
def test_outcomes(raised: BaseException, outcome: str, event: Any):
    @task
    def end(state: Any) -> None:
        state["x"] = 1
        raise raised

    state = Versioned()
    with pytest.raises(type(raised)) as caught:
        end(state=state)
    assert caught.value is raised
    assert "x" not in state
    assert state.head.meta["outcome"] == outcome
    assert events(state)[-1] == event


# What cannot be stored


def unstorable(state: Any) -> None:
    state["ok"] = 1
    state["prefs"] = {"db": threading.Lock()}


def test_a_value_that_cannot_be_stored_stays_for_repair():
    fetch = task(unstorable)
    state = Versioned()
    with pytest.raises(UnserializableValueError) as raised:
        fetch(state=state)
    error = raised.value
    assert (error.task, error.path) == ("unstorable", "prefs.db")
    assert "'unstorable'" in str(error)
    assert "prefs.db" in str(error)
    assert "as the task left it" in str(error)
    assert state["prefs"].keys() == {"db"}
    assert state.head.meta["outcome"] == "failure"
    assert kinds(state) == ["TaskStartEvent", "ErrorEvent"]
    assert dict(state.checkout("HEAD")) == {}
    state["prefs"]["db"] = None
    state.commit()
    assert dict(state.checkout("HEAD")) == {"ok": 1, "prefs": {"db": None}}


def test_a_value_that_cannot_be_stored_is_restored_if_asked():
    fetch = task(on_unstorable="restore")(unstorable)
    state = Versioned()
    with pytest.raises(UnserializableValueError, match="rolled back"):
        fetch(state=state)
    assert not state
    assert not state.status()
    other: Any = task(on_unstorable="other")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError, match="on_unstorable must be"):
        other(unstorable)


def test_a_resource_that_is_used_up_in_one_expression_leaves_data_alone():
    import sqlite3

    @task
    def ask(db: sqlite3.Connection, state: Any) -> None:
        state["rows"] = db.execute("select 1, 'one'").fetchall()

    state = Versioned()
    with closing(sqlite3.connect(":memory:")) as db:
        ask(db, state=state)
    assert state["rows"] == [(1, "one")]
    (started,) = events(state, types=TaskStartEvent)
    assert "sqlite3.Connection" in started.inputs["db"], "an input that cannot be stored is described"


# Two calls at once


def test_two_calls_at_once_on_one_handle_are_refused_in_threads():
    entered, go = threading.Event(), threading.Event()

    @task
    def wait(state: Any) -> None:
        state["x"] = 1
        entered.set()
        go.wait(10)

    state = Versioned()
    thread = threading.Thread(target=wait, kwargs={"state": state})
    thread.start()
    entered.wait(10)
    with pytest.raises(TransactionError) as raised:
        book("Rome", state=state)
    assert "parallel" in raised.value.hint
    assert "fork" in raised.value.hint
    go.set()
    thread.join()
    book("Rome", state=state)
    assert kinds(state) == ["TaskStartEvent", "SuccessEvent"] * 2


def test_two_calls_at_once_on_one_handle_are_refused_in_asyncio():
    @task
    async def wait(state: Any) -> int:
        state["x"] = state.get("x", 0) + 1
        await asyncio.sleep(0)
        return int(state["x"])

    async def both(state: Any) -> list[Any]:
        return list(await asyncio.gather(wait(state=state), wait(state=state), return_exceptions=True))

    state = Versioned()
    first, second = asyncio.run(both(state))
    assert first == 1
    assert isinstance(second, TransactionError)
    assert "parallel" in second.hint
    assert state["x"] == 1


def test_a_call_within_a_transaction_and_calls_that_move_the_state_are_refused():
    @task
    def move(call: Callable[[Any], Any]) -> None:
        state = current_state()
        state["x"] = 1
        call(state)

    state = committed(a=1)
    with state.transaction(), pytest.raises(TransactionError, match="a task within a transaction"):
        book("Rome", state=state)
    calls: list[Callable[[Any], Any]] = [
        lambda state: state.commit(),
        lambda state: state.discard(),
        lambda state: state.reset("HEAD"),
        lambda state: state.merge("main"),
        lambda state: state.refresh(),
    ]
    for call in calls:
        with pytest.raises(TransactionError, match="within a task") as raised:
            move(call, state=state)
        assert "checkpoint()" in raised.value.hint
        assert "x" not in state


def test_a_transaction_within_a_call_is_rolled_back_by_itself():
    @task
    def try_it(state: Any) -> None:
        state["x"] = 1
        with suppress(RuntimeError), state.transaction():
            state["x"] = 2
            with pytest.raises(TransactionError):
                checkpoint()
            raise RuntimeError
        assert state["x"] == 1
        with state.transaction():
            state["y"] = 2

    state = Versioned()
    try_it(state=state)
    assert state.checkout("HEAD").copy() == {"x": 1, "y": 2}
    assert state.head.height == 1


# Nesting


@task
def worker(name: str, *, fail: bool = False) -> str:
    current_state()["name"] = name
    emit(ActionEvent(code=name))
    if fail:
        raise ValueError(name)
    return name


@task
def orchestrate(*, fail: bool = False, fail_after: bool = False) -> str:
    state = current_state()
    state["plan"] = 1
    worker("one")
    try:
        worker("two", fail=fail)
    except ValueError:
        state["failed"] = True
    if fail_after:
        raise RuntimeError("after")
    return "done"


def test_nested_calls_commit_with_the_outermost_in_namespaces_of_their_own():
    state = Versioned()
    orchestrate(state=state)
    assert state.head.height == 1
    assert dict(state) == {"plan": 1}
    assert dict(state.namespace("worker")) == {"name": "two"}
    names = [event.full_namespace for event in events(state)]
    assert names == ["orchestrate", *["orchestrate/worker"] * 6, "orchestrate"]
    assert len(events(state, namespace="orchestrate")) == 2
    assert len(events(state, namespace="orchestrate/worker")) == 6
    assert len(events(state, namespace="orchestrate/**")) == 8
    assert len(events(state, namespace="orch/**")) == 0
    assert list(events(state, namespace="**")) == list(events(state))
    with pytest.raises(InvalidArgumentError, match="namespace must be a string"):
        events(state, namespace=3)  # type: ignore[call-overload]
    assert len(events(state.namespace("worker"))) == 6


def test_a_nested_failure_that_is_caught_restores_the_nested_call_alone():
    state = Versioned()
    orchestrate(fail=True, state=state)
    assert dict(state) == {"plan": 1, "failed": True}
    assert dict(state.namespace("worker")) == {"name": "one"}
    assert state.head.meta["outcome"] == "success"
    assert kinds(state, namespace="orchestrate/worker")[-1] == "ErrorEvent"


def test_a_failure_of_the_outermost_call_restores_all_and_keeps_all_events():
    state = Versioned()
    with pytest.raises(RuntimeError):
        orchestrate(fail_after=True, state=state)
    assert not state
    assert not state.namespace("worker")
    assert len(events(state)) == 8
    assert state.head.height == 1


def test_nested_calls_on_a_live_state_and_without_one():
    live = Live()
    orchestrate(state=live)
    assert dict(live.namespace("worker")) == {"name": "two"}
    assert len(events(live)) == 8
    assert len(events(live.namespace("worker"))) == 6
    assert orchestrate() == "done"


def test_events_of_nested_calls_are_kept_with_a_live_state_that_is_empty():
    @task
    def inner() -> None:
        emit(ActionEvent(thinking="", code="1"))

    @task
    def outer() -> None:
        inner()

    live = Live()
    outer(state=live)
    assert len(events(live)) == 5
    assert not live


def test_recursion_goes_one_namespace_deeper_a_level():
    @task
    def down(n: int) -> int:
        current_state()["n"] = n
        return 0 if n == 0 else 1 + down(n - 1)

    state = Versioned()
    assert down(3, state=state) == 3
    space: Any = state
    for n in (3, 2, 1, 0):
        assert space["n"] == n
        space = space.namespace("down")
    assert state.head.height == 1
    assert events(state)[3].full_namespace == "down/down/down/down"


def test_a_nested_call_with_the_same_handle_works_on_its_keys_and_commits_with_the_outermost():
    @task
    def fill(state: Any) -> None:
        state["inner"] = 1

    @task
    def outer(state: Any) -> None:
        state["outer"] = 1
        fill(state=state)
        raise RuntimeError

    state = Versioned()
    with pytest.raises(RuntimeError):
        outer(state=state)
    assert not state


def test_a_nested_call_with_a_state_of_its_own_commits_there():
    other = Versioned()

    @task
    def outer(state: Any) -> None:
        state["outer"] = 1
        book("Rome", state=other)
        raise RuntimeError

    state = Versioned()
    with pytest.raises(RuntimeError):
        outer(state=state)
    assert other["trips"] == ["Rome"]
    assert other.head.meta["outcome"] == "success"
    assert not state
    assert {event.full_namespace for event in events(other)} == {"outer/book"}


def test_a_checkpoint_in_a_nested_call_is_one_of_the_calls_around_it():
    @task
    def inner(state: Any) -> None:
        state["inner"] = 1
        checkpoint("inside")
        state["inner"] = 2

    @task
    def outer(state: Any) -> None:
        state["outer"] = 1
        inner()
        state["outer"] = 2
        raise RuntimeError

    state = Versioned()
    with pytest.raises(RuntimeError):
        outer(state=state)
    assert dict(state) == {"outer": 1}
    assert dict(state.namespace("inner")) == {"inner": 1}
    assert not state.status()


# key=


def test_a_call_with_a_key_commits_once(tmp_path: Path):
    store = Disk(tmp_path)
    state = Versioned(store)
    assert book("Rome", state=state, key="1") == "ROME"
    head = state.head
    assert book("Rome", state=state, key="1") == "ROME"
    assert state.head == head
    assert state["trips"] == ["Rome"]
    again = Versioned(store)
    assert book("Rome", nights=1, state=again, key="1") == "ROME"
    with pytest.raises(IdempotencyConflictError, match="other arguments"):
        book("Oslo", state=again, key="1")
    assert book("Oslo", state=again, key="2") == "OSLO"
    assert again["trips"] == ["Rome", "Oslo"]
    assert not list(again.status())


def test_a_key_is_recorded_on_success_only_and_with_none_too():
    runs = []

    @task
    def once(state: Any, *, fail: bool = False) -> None:
        runs.append(1)
        if fail:
            raise ValueError

    state = Versioned()
    with pytest.raises(ValueError):
        once(fail=True, state=state, key="k")
    once(state=state, key="k")
    assert once(state=state, key="k") is None
    assert len(runs) == 2


def test_a_key_that_another_handle_used_is_seen_without_a_refresh():
    repository = Repository(Memory())
    one, two = Versioned(repository), Versioned(repository)
    assert book("Rome", state=one, key="1") == "ROME"
    assert book("Rome", state=two, key="1") == "ROME"
    assert two.refresh() == one.head
    assert two["trips"] == ["Rome"]


def test_two_that_race_for_a_key_commit_once():
    repository = Repository(Memory())
    one, two = Versioned(repository), Versioned(repository)

    @task
    def race(state: Any) -> int:
        state["n"] = state.get("n", 0) + 1
        if state is two:
            race(state=one, key="k")
        return int(state["n"])

    two["other"] = 1
    two.commit()
    one.refresh()
    one["more"] = 1
    one.commit()
    assert race(state=two, key="k") == 1
    two.refresh()
    assert two["n"] == 1
    assert len(events(two, types=SuccessEvent)) == 1


def test_a_key_beside_other_commits_on_the_branch():
    repository = Repository(Memory())
    one, two = Versioned(repository), Versioned(repository)

    @task
    def meet(state: Any) -> int:
        state["mine"] = 1
        two["theirs"] = 2
        two.commit()
        return 5

    assert meet(state=one, key="k") == 5
    assert dict(one) == {"mine": 1, "theirs": 2}
    assert meet(state=two, key="k") == 5


def test_the_key_of_a_nested_call_lands_with_the_outermost_or_not_at_all():
    runs = []

    @task
    def inner() -> int:
        runs.append(1)
        return len(runs)

    @task
    def outer(*, fail: bool) -> list[int]:
        results = [inner(key="k"), inner(key="k")]
        if fail:
            raise ValueError
        return results

    state = Versioned()
    with pytest.raises(ValueError):
        outer(fail=True, state=state)
    assert outer(fail=False, state=state) == [2, 2]
    assert outer(fail=False, state=state) == [2, 2]


@pytest.mark.parametrize("key", [1, "", "a\0b"])
def test_a_bad_key_is_refused(key: Any):
    with pytest.raises(InvalidArgumentError, match="key must be"):
        book("Rome", state=Versioned(), key=key)
    with pytest.raises(InvalidArgumentError, match="needs a state with commits"):
        book("Rome", state=Live(), key="k")


# on_event


def test_on_event_gets_every_event_when_it_happens():
    seen: list[Any] = []
    state = Versioned()
    orchestrate(state=state, on_event=seen.append)
    assert seen == list(events(state))
    assert [event.commit_hash for event in seen] == [event.commit_hash for event in events(state)]
    assert [event.timestamp for event in seen] == [event.timestamp for event in events(state)]


def test_on_event_works_without_a_state():
    seen: list[Any] = []
    book("Rome", on_event=seen.append)
    assert seen == [
        TaskStartEvent(task_name="book", inputs={"city": "Rome", "nights": 1}, message="Book a city."),
        SuccessEvent(result="ROME"),
    ]


def test_an_exception_of_on_event_fails_the_call():
    def refuse(event: Any) -> None:
        if type(event).__name__ == "ActionEvent":
            raise RuntimeError("not now")

    state = Versioned()
    with pytest.raises(RuntimeError, match="not now"):
        worker("one", state=state, on_event=refuse)
    assert not state
    assert state.head.meta["outcome"] == "failure"


def test_an_exception_of_on_event_at_the_start_leaves_nothing_open():
    def refuse(event: Any) -> None:
        raise RuntimeError("not now")

    state = Versioned()
    with pytest.raises(RuntimeError, match="not now"):
        worker("one", state=state, on_event=refuse)
    worker("two", state=state)
    assert dict(state) == {"name": "two"}


def test_on_event_is_a_plain_function():
    async def later(event: Any) -> None: ...

    with pytest.raises(InvalidArgumentError, match="not an asynchronous one"):
        book("Rome", on_event=later)
