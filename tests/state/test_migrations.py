"""Migrations: reads, writes, merges of versions and failures, and random histories against a model of dicts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.support.handles import cold, committed
from tests.support.interrupts import Interrupt, interrupts
from versioned_state import Disk, Memory, Migrations, OnMoved, Schema, Versioned, checkpoint, parallel, task
from versioned_state.errors import (
    InvalidArgumentError,
    MergeConflictError,
    MigrationError,
    NewerVersionError,
    ReadOnlyError,
    SchemaError,
    StorageError,
    UncommittedChangesError,
)
from versioned_state.storage import Counting, Faulty
from versioned_state.storage.testing.writers import run_together

CALLS: list[int] = []


def migrations(newest: int = 3) -> Migrations:
    """2: ``first`` and ``last`` become ``name``. 3: messages are dicts. 4: a counter is renamed, in a namespace too."""
    made = Migrations()

    def two(state: Any) -> None:
        CALLS.append(2)
        if "first" in state:
            state["name"] = f"{state.pop('first')} {state.pop('last', '')}"

    def three(state: Any) -> None:
        CALLS.append(3)
        state["messages"] = [{"text": each} if isinstance(each, str) else each for each in state.get("messages", [])]

    def four(state: Any) -> None:
        for each in (state, state.namespace("worker")):
            if "count" in each:
                each["total"] = each.pop("count")

    for number, function in enumerate((two, three, four)[: newest - 1], 2):
        made.to(number)(function)
    return made


def old_state(store: Any = None, **values: Any) -> Versioned:
    state = Versioned(Memory() if store is None else store)
    state.update(values or {"first": "Ann", "last": "Lee", "messages": ["hi"], "count": 1})
    state.commit("old")
    return state


NEW = {"name": "Ann Lee", "messages": [{"text": "hi"}], "count": 1}


def messages(state: Versioned) -> list[str]:
    return [commit.message for commit in state.log()]


def test_opening_reads_the_newest_version_and_writes_nothing():
    store = Counting(Memory())
    old = old_state(store)
    store.reset()
    state = Versioned(store, migrations=migrations())
    assert dict(state) == NEW
    assert state.head == old.head
    assert state.checkout("HEAD")["first"] == "Ann"
    assert dict(state.checkout("HEAD", migrated=True)) == NEW
    assert store.counts.applies == store.counts.sets == 0
    assert {str(change.path) for change in state.status()} == {"first", "last", "name", "messages[0]"}
    state.close()
    assert messages(Versioned(store)) == ["old"]


def test_the_first_commit_writes_the_migration_as_a_commit_of_its_own():
    old = old_state()
    state = Versioned(old.repository, migrations=migrations())
    state["messages"].append({"text": "new"})
    state.commit("new", meta={"round": 1})
    assert messages(state) == ["new", "migrate to version 3", "old"]
    assert state.checkout("HEAD~1").copy() == NEW
    assert next(state.log("HEAD~1")).meta == {"version": 3}
    assert str(state.diff("HEAD~1", "HEAD")) == "+ messages[1] = {'text': 'new'}"
    assert state.head.meta == {"round": 1}
    assert not state.status()
    assert dict(Versioned(old.repository)) == dict(state), "the version is not seen among the keys"
    again = Versioned(old.repository, migrations=migrations())
    again["x"] = 1
    again.commit("x")
    assert messages(again)[:2] == ["x", "new"]
    assert state.repository.fsck().findings == ()


def test_a_commit_without_other_changes_writes_the_migration_alone():
    state = Versioned(old_state().repository, migrations=migrations())
    commit = state.commit("anything")
    assert commit == state.head
    assert messages(state) == ["migrate to version 3", "old"]
    assert state.commit("again") == commit


def test_a_fresh_state_is_at_the_newest_version():
    state = Versioned(migrations=migrations())
    assert not state.status()
    assert state.commit().parents == ()
    state["first"] = "a key of today"
    state.commit("first")
    assert messages(state) == ["first"]
    assert Versioned(state.repository, migrations=migrations())["first"] == "a key of today"
    fresh = Versioned(state.repository, branch="other", migrations=Migrations())
    fresh["first"] = "at version 1"
    fresh.commit()
    assert Versioned(state.repository, branch="other", migrations=migrations())["name"] == "at version 1 "


def test_a_state_with_nothing_but_events_is_fresh():
    store = Memory()

    @task
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(state=Versioned(store))
    state = Versioned(store, migrations=migrations())
    state["first"] = 1
    state.commit("new")
    assert "migrate to version 3" not in messages(state)
    assert Versioned(store, migrations=migrations())["first"] == 1


def test_one_version_after_the_other_and_namespaces():
    old = old_state()
    old.namespace("worker")["count"] = 7
    old.commit("worker")
    for newest in (2, 3, 4):
        state = Versioned(old.repository, migrations=migrations(newest))
        state[f"seen {newest}"] = 1
        state.commit()
    assert state["total"] == 1
    assert state.namespace("worker")["total"] == 7
    assert [each for each in messages(state) if each.startswith("migrate")] == [
        f"migrate to version {n}" for n in (4, 3, 2)
    ]
    assert state.checkout("HEAD~5", migrated=True)["total"] == 1


def test_a_newer_state_is_refused_and_says_both_versions():
    state = Versioned(old_state().repository, migrations=migrations(3))
    state.commit()
    with pytest.raises(NewerVersionError) as caught:
        Versioned(state.repository, migrations=migrations(2))
    assert (caught.value.version, caught.value.known) == (3, 2)
    assert "3" in str(caught.value)
    assert "2" in str(caught.value)
    assert Versioned(state.repository)["name"] == "Ann Lee"


@pytest.mark.parametrize("move", ["refresh", "commit", "merge", "switch", "reset", "checkout", "fork"])
def test_a_newer_head_that_is_met_later_changes_nothing(move):
    old = old_state()
    state = Versioned(old.repository, migrations=migrations(2))
    state["messages"].append("mine")
    if move in ("merge", "switch"):
        state.commit()
    newer = old.fork("newer") if move != "refresh" and move != "commit" else old
    newest = Versioned(old.repository, branch=newer.branch, migrations=migrations(3))
    newest["z"] = 1
    newest.commit("newer")
    head, live = state.head, copy.deepcopy(dict(state))
    calls = {
        "refresh": state.refresh,
        "commit": state.commit,
        "merge": lambda: state.merge("newer"),
        "switch": lambda: state.switch("newer"),
        "reset": lambda: state.reset("newer"),
        "checkout": lambda: state.checkout("newer", migrated=True),
        "fork": lambda: state.fork("more", at="newer"),
    }
    with pytest.raises(NewerVersionError):
        calls[move]()
    assert state.head == head
    assert dict(state) == live
    if move not in ("refresh", "commit"):
        state.commit("goes on")
        assert dict(Versioned(old.repository)) == live
        assert "more" not in state.repository.branches


def test_a_function_that_raises_names_its_number_and_changes_nothing():
    made = migrations(2)

    @made.to(3)
    def broken(state: Any) -> None:
        state["half"] = 1
        raise KeyError("nothing there")

    old = old_state()
    with pytest.raises(MigrationError, match=r"version 3.*nothing there") as caught:
        Versioned(old.repository, migrations=made)
    assert caught.value.version == 3
    assert isinstance(caught.value.__cause__, KeyError)
    assert messages(Versioned(old.repository)) == ["old"]


def test_a_result_that_cannot_be_stored():
    made = Migrations()
    made.to(2)(lambda state: state.update(lock=Lock()))
    with pytest.raises(MigrationError, match="version 2"):
        Versioned(old_state().repository, migrations=made)


def test_an_interrupted_function_changes_nothing():
    made = Migrations()

    @made.to(2)
    def stop(state: Any) -> None:
        state["half"] = 1
        raise KeyboardInterrupt

    old = old_state()
    with pytest.raises(KeyboardInterrupt):
        Versioned(old.repository, migrations=made)
    assert dict(Versioned(old.repository)) == dict(old)


def test_order_gaps_and_repeats_are_refused_at_declaration():
    made = Migrations()
    for number in (1, 3, 0, -1, "2", 2.0, True):
        with pytest.raises(InvalidArgumentError):
            made.to(number)(lambda state: None)  # type: ignore[arg-type]
    made.to(2)(lambda state: None)
    for number in (2, 4):
        with pytest.raises(InvalidArgumentError):
            made.to(number)(lambda state: None)
    with pytest.raises(InvalidArgumentError):
        made.to(3)("function")  # type: ignore[type-var]
    assert made.version == 2
    assert repr(made) == "<Migrations to version 2>"
    with pytest.raises(InvalidArgumentError):
        Versioned(migrations=[made])  # type: ignore[arg-type]


def test_checkout_migrated_needs_migrations():
    state = old_state()
    with pytest.raises(InvalidArgumentError):
        state.checkout("HEAD", migrated=True)


def test_migrated_snapshots_are_compared():
    old = old_state(first="Ann", last="Lee", messages=[f"message {index}" for index in range(300)])
    first = old.head
    old["messages"].append("more")
    old.commit()
    state = Versioned(old.repository, migrations=migrations())
    before, after = (state.checkout(rev, migrated=True) for rev in (first, "HEAD"))
    assert str(before.diff(after)) == "+ messages[300] = {'text': 'more'}"
    assert str(after.diff(before)).startswith("- messages[300]")
    assert len(state.checkout(first).diff(before)) == len(before.diff(state.checkout(first))) == 303


# Moves


def test_live_values_follow_moves_between_versions_in_place():
    old = old_state()
    state = Versioned(old.repository, migrations=migrations())
    live = state["messages"]
    live.append({"text": "a"})
    state.commit("a")
    state.undo(2)
    assert live == [{"text": "hi"}]
    assert live is state["messages"]
    assert state.head == old.head
    state.redo(2)
    assert live == [{"text": "hi"}, {"text": "a"}]
    state.reset("HEAD~2")
    assert (live, state["name"]) == ([{"text": "hi"}], "Ann Lee")
    live.append({"text": "b"})
    state.discard()
    assert live == [{"text": "hi"}]
    with pytest.raises(ZeroDivisionError), state.transaction():
        live.append(1 / 0)
    with state.transaction("t"):
        live.append({"text": "c"})
    assert messages(state) == ["t", "migrate to version 3", "old"]
    state.switch("side", create=True)
    state.rollback(2)
    assert dict(state) == NEW


def test_moves_are_not_refused_because_a_migration_is_not_written_yet():
    old = old_state()
    old["count"] = 2
    old.commit("2")
    state = Versioned(old.repository, migrations=migrations())
    state.undo()
    assert dict(state) == NEW
    state["name"] = "changed"
    with pytest.raises(UncommittedChangesError) as caught:
        state.redo()
    assert caught.value.paths == ("name",)


def test_forks_tasks_and_parallel_calls_have_the_migrations():
    state = Versioned(old_state().repository, migrations=migrations())
    fork = state.fork("fork")
    assert dict(fork) == NEW

    @task
    def note(text: str, state: Any) -> None:
        state["messages"].append({"text": text})
        checkpoint("noted")
        state[text] = 1

    note("a", state=state)
    assert state.checkout("HEAD")["messages"] == [{"text": "hi"}, {"text": "a"}]
    other = Versioned(state.repository, branch="fork", migrations=migrations())
    parallel(other, [partial(note, "x"), partial(note, "y")], policies={"messages": "append"})
    assert other["x"] == other["y"] == 1
    assert len(other["messages"]) == 3
    assert messages(other).count("migrate to version 3") >= 1


def test_a_commit_of_some_keys_writes_the_migration_too():
    state = Versioned(old_state().repository, migrations=migrations())
    state["a"], state["b"] = 1, 2
    state.commit("a", keys=["a"])
    assert dict(Versioned(state.repository)) == NEW | {"a": 1}
    assert str(state.status()) == "+ b = 2"


async def test_asyncio():
    state = Versioned(old_state().repository, migrations=migrations())
    state["messages"].append({"text": "a"})
    await state.aio.commit("a")
    assert messages(state) == ["a", "migrate to version 3", "old"]
    await state.aio.reset("HEAD~2")
    assert (await state.aio.checkout("HEAD", migrated=True)).copy() == dict(state) == NEW


def test_open_takes_them(tmp_path):
    import versioned_state

    with Versioned(Disk(tmp_path / "s")) as old:
        old.update(first="Ann", last="Lee")
        old.commit()
    with versioned_state.open(tmp_path / "s", migrations=migrations()) as state:
        assert state["name"] == "Ann Lee"
        state.commit()
        state.repository.gc()
        assert state.repository.fsck().findings == ()


def test_many_old_commits_are_looked_at_while_the_head_waits_to_be_written():
    old = old_state(first="Ann", last="Lee", messages=[f"message {index}" for index in range(500)])
    for number in range(20):
        old["count"] = number
        old["messages"].append("more")
        old.commit()
    state = Versioned(old.repository, migrations=migrations())
    for commit in state.log():
        assert state.checkout(commit, migrated=True)["name"] == "Ann Lee"
    assert len(state["messages"]) == 520, "read now, from what is not in the store"
    state["messages"].append({"text": "a"})
    state.commit("a")
    assert Versioned(old.repository)["messages"][-2:] == [{"text": "more"}, {"text": "a"}]
    assert state.repository.fsck().findings == ()


def test_a_store_that_is_open_for_reading_is_read_at_the_newest_version(tmp_path):
    import versioned_state

    with Versioned(Disk(tmp_path / "s")) as old:
        old.update(first="Ann", last="Lee")
        old.commit()
    with versioned_state.open(tmp_path / "s", read_only=True, migrations=migrations()) as state:
        assert state["name"] == "Ann Lee"
        with pytest.raises(ReadOnlyError):
            state.commit()
        assert state["name"] == "Ann Lee"


# Merges and other writers


def test_branches_at_different_versions_merge_after_migration():
    old = old_state()
    side = old.fork("side")
    side["messages"].append("from the old code")
    side["first"] = "Bea"
    side.commit("side")
    state = Versioned(old.repository, migrations=migrations())
    state["messages"].insert(0, {"text": "from the new code"})
    state.commit("main")
    state.merge("side")
    assert dict(state) == {
        "name": "Bea Lee",
        "messages": [{"text": "from the new code"}, {"text": "hi"}, {"text": "from the old code"}],
        "count": 1,
    }
    assert state.repository.fsck().findings == ()
    other = Versioned(old.repository, branch="side", migrations=migrations())
    other["count"] = 5
    other.commit()
    other.merge("main")
    state.merge("side")
    assert dict(other) == dict(state)


def test_a_fast_forward_to_an_old_branch_reads_it_migrated():
    old = old_state()
    side = old.fork("side")
    side["first"] = "Bea"
    side.commit()
    state = Versioned(old.repository, migrations=migrations())
    assert state.merge("side") == side.head
    assert state["name"] == "Bea Lee"


def test_repeated_commits_and_rebases_across_versions():
    old = old_state()
    side = old.fork("side")
    side["first"] = "Bea"
    picked = side.commit("bea")
    state = Versioned(old.repository, migrations=migrations())
    state["count"] = 9
    state.commit("nine")
    state.cherry_pick(picked)
    assert state["name"] == "Bea Lee"
    state.revert(picked)
    assert state["name"] == "Ann Lee"
    rebased = Versioned(old.repository, branch="side", migrations=migrations())
    rebased.rebase("main~2")
    assert (rebased["name"], rebased["count"]) == ("Bea Lee", 9)
    assert rebased.checkout("HEAD")["name"] == "Bea Lee"
    assert rebased.squash("HEAD~2") == rebased.head
    assert state.repository.fsck().findings == ()


@pytest.mark.parametrize("on_moved", ["merge", "replace", "refuse"])
def test_an_old_writer_committed_meanwhile(on_moved):
    old = old_state()
    state = Versioned(old.repository, migrations=migrations())
    state["messages"].append({"text": "mine"})
    old["first"] = "Bea"
    old.commit("bea")
    if on_moved == "refuse":
        with pytest.raises(Exception, match="moved"):
            state.commit(on_moved=on_moved)
        state.refresh()
    state.commit("mine", on_moved=OnMoved(on_moved))
    assert state["messages"] == [{"text": "hi"}, {"text": "mine"}]
    assert state["name"] == ("Ann Lee" if on_moved == "replace" else "Bea Lee")
    assert messages(state) == ["mine", "migrate to version 3", "bea", "old"]


def test_a_conflict_between_versions_is_resolved_in_the_new_shape():
    old = old_state()
    state = Versioned(old.repository, migrations=migrations())
    state["name"] = "Cleo Lee"
    old["first"] = "Bea"
    old.commit("bea")
    with pytest.raises(MergeConflictError) as caught:
        state.commit()
    (conflict,) = caught.value.conflicts
    assert (str(conflict.path), conflict.base, conflict.ours, conflict.theirs) == (
        "name",
        "Ann Lee",
        "Cleo Lee",
        "Bea Lee",
    )
    caught.value.merge.resolve("name", "Bea")
    caught.value.merge.commit()
    assert Versioned(old.repository)["name"] == "Bea"


def test_two_handles_migrate_at_once_and_nothing_is_done_twice():
    old = old_state()
    first, second = (Versioned(old.repository, migrations=migrations()) for _ in range(2))
    first["a"], second["b"] = 1, 2
    first.commit("a")
    second.commit("b")
    assert messages(second) == ["b", "a", "migrate to version 3", "old"]
    assert dict(second) == NEW | {"a": 1, "b": 2}
    old.refresh()
    assert dict(old) == dict(second), "a handle without migrations follows"


def test_threads_migrate_at_once(tmp_path):
    with Versioned(Disk(tmp_path / "s")) as old:
        old.update(first="Ann", last="Lee", messages=["hi"], count=1)
        old.commit("old")

    def work(name: str) -> None:
        with Versioned(Disk(tmp_path / "s"), migrations=migrations()) as state:
            state[name] = 1
            state.commit(name)

    run_together(partial(work, f"t{index}") for index in range(4))
    with Versioned(Disk(tmp_path / "s")) as state:
        assert dict(state) == NEW | {f"t{index}": 1 for index in range(4)}
        assert messages(state).count("migrate to version 3") == 1


def test_a_commit_that_fails_leaves_the_migration_to_the_next():
    store = Faulty(Memory())
    old_state(store)
    state = Versioned(store, migrations=migrations())
    state["a"] = 1
    for at in range(1, 4):
        store.arm(at)
        try:
            state.commit("a")
        except StorageError:
            continue
        finally:
            store.arm(None)
        break
    assert dict(state) == NEW | {"a": 1}
    state["b"] = 1
    state.commit("b")
    assert dict(Versioned(store)) == NEW | {"a": 1, "b": 1}
    assert messages(state).count("migrate to version 3") == 1


def test_an_interrupt_at_any_line_of_the_first_commit(long_run):
    old = old_state()
    store = old.repository.store

    def prepared(at: int) -> Versioned:
        state = Versioned(store, branch=f"b{at}")
        state.update({"first": "Ann", "last": "Lee", "messages": ["hi"], "count": 1})
        state.commit("old")
        state = Versioned(store, branch=f"b{at}", migrations=migrations())
        state["messages"].append({"text": "a"})
        return state

    for trace in interrupts(1 if long_run else 61):
        state = prepared(trace.at)
        live = state["messages"]
        with suppress(Interrupt):
            trace.run(state.commit)
        live.append({"text": "b"})
        state.commit("on")
        expected = NEW | {"messages": [{"text": "hi"}, {"text": "a"}, {"text": "b"}]}
        assert dict(state) == expected, trace.at
        assert dict(Versioned(store, branch=f"b{trace.at}")) == expected, trace.at
        assert messages(state).count("migrate to version 3") == 1


def test_what_is_read_is_what_the_functions_read():
    """A migration that touches one key costs that key, whatever else there is."""
    made = Migrations()
    made.to(2)(lambda state: state.update(b=state.pop("a")))
    reads = {}
    for count in (100, 10_000):
        store = Counting(Memory())
        old_state(store, a=1, **{f"k{index}": [index] * 20 for index in range(count)})
        store.reset()
        state = Versioned(cold(store), migrations=made)
        assert state["b"] == 1
        state.commit()
        reads[count] = store.counts.objects_read, store.counts.objects_written
    assert reads[10_000][0] <= reads[100][0] + 12
    assert reads[10_000][1] <= reads[100][1] + 6


def test_a_state_without_migrations_to_do_reads_little_more():
    store = Counting(Memory())
    state = Versioned(store, migrations=migrations())
    state["a"] = 1
    state.commit()
    reads = []
    for made in (None, migrations()):
        store.reset()
        other = Versioned(store, migrations=made)
        other["a"] = other["a"] + 1
        other.commit()
        reads.append(store.counts.round_trips)
    assert reads[1] <= reads[0] + 2


def test_with_a_schema_the_migrated_state_is_judged():
    made = Migrations()

    @made.to(2)
    def wrong(state: Any) -> None:
        state["count"] = str(state["count"])

    state = Versioned(old_state().repository, schema={"count": int}, migrations=made)
    state["x"] = 1
    with pytest.raises(SchemaError, match="count"):
        state.commit()
    state["count"] = 3
    state.commit()
    Schema({"count": int}).check(Versioned(state.repository))


def test_commits_together_migrate_each_branch():
    old = old_state()
    old.fork("side")
    first, second = (Versioned(old.repository, branch=branch, migrations=migrations()) for branch in ("main", "side"))
    first["a"] = 1
    first.repository.commit_together([first, second], "both")
    assert messages(first) == ["both", "migrate to version 3", "old"]
    assert messages(second) == ["migrate to version 3", "old"]
    old["first"] = "Bea"
    with pytest.raises(MergeConflictError):
        old.commit()
    old.discard()
    assert dict(old.checkout("main")) == NEW | {"a": 1}


# Any history


def model_migrated(value: dict[str, Any], version: int, newest: int) -> dict[str, Any]:
    """What the functions do, on a dict."""
    value = copy.deepcopy(value)
    for number in range(version + 1, newest + 1):
        if number == 2 and "a" in value:
            value["b"] = {"was": value.pop("a")}
        if number == 3:
            value["log"] = [{"n": each} for each in value.get("log", [])]
        if number == 4:
            value["size"] = len(value["log"])
    return value


def model_migrations(newest: int) -> Migrations:
    made = Migrations()
    for number in range(2, newest + 1):

        def migrate(state: Any, number: int = number) -> None:
            new = model_migrated(dict(state), number - 1, number)
            for key in list(state):
                if key not in new:
                    del state[key]
            for key, each in new.items():
                if key not in state or state[key] != each:
                    state[key] = each

        made.to(number)(migrate)
    return made


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.sampled_from(["main", "x", "y"]), st.integers(1, 4), st.integers(0, 9)),
        st.tuples(st.just("fork"), st.sampled_from(["x", "y"]), st.sampled_from(["main", "x", "y"]), st.integers(0, 0)),
        st.tuples(st.just("reset"), st.sampled_from(["main", "x", "y"]), st.integers(1, 4), st.integers(0, 9)),
    ),
    max_size=14,
)


def edits(value: dict[str, Any], version: int, number: int) -> Iterator[tuple[str, Any]]:
    """A change that code of a version makes: it knows the shape of its version."""
    yield "n", number
    log = value.get("log", [])
    yield "log", [*log, number if version < 3 else {"n": number}]
    if version < 2:
        yield "a", number


@settings(deadline=None)
@given(STEPS)
def test_any_order_of_branches_commits_and_versions_reads_as_the_model(steps):
    store = Memory()
    branches: dict[str, tuple[dict[str, Any], int]] = {"main": ({}, 0)}
    commits: dict[str, tuple[dict[str, Any], int]] = {}
    for kind, branch, argument, number in steps:
        if kind == "fork":
            if branch not in branches and argument in branches and branches[argument][1]:
                Versioned(store, branch=argument).fork(branch)
                branches[branch] = branches[argument]
            continue
        if branch not in branches:
            continue
        value, version = branches[branch]
        newest = argument
        if version > newest:
            with pytest.raises(NewerVersionError):
                Versioned(store, branch=branch, migrations=model_migrations(newest))
            continue
        state = Versioned(store, branch=branch, migrations=model_migrations(newest))
        expected = model_migrated(value, version, newest) if version else {}
        assert dict(state) == expected
        if kind == "reset":
            targets = [id for id, (_, made_at) in commits.items() if made_at <= newest]
            if version and targets:
                target = targets[number % len(targets)]
                log = state.get("log")
                state.reset(target)
                branches[branch] = commits[target]
                assert dict(state) == model_migrated(*commits[target], newest)
                assert log is state.get("log", log), "a live value keeps its identity"
            continue
        for key, each in edits(expected, newest, number):
            state[key] = expected[key] = each
        commits[state.commit(allow_empty=True).id] = branches[branch] = copy.deepcopy(expected), newest
        assert dict(Versioned(store, branch=branch)) == expected
    newest_state = Versioned(store, branch="other", migrations=model_migrations(4))
    for id, (value, version) in commits.items():
        assert newest_state.checkout(id).copy() == value
        assert newest_state.checkout(id, migrated=True).copy() == model_migrated(value, version, 4)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 4), st.sampled_from(["p", "q", "r"]), st.integers(0, 9)), max_size=8
    ),
    st.integers(1, 4),
)
def test_branches_at_any_versions_merge_as_if_migrated_first(steps, last):
    """Two branches edit disjoint keys at rising versions. Their merge is that of two states migrated to the newest."""
    store = Memory()
    base = committed(store, a=1, log=[0])
    base.fork("side")
    values = {"main": ({"a": 1, "log": [0]}, 1), "side": ({"a": 1, "log": [0]}, 1)}
    for on_side, wanted, key, number in steps:
        branch = "side" if on_side else "main"
        value, version = values[branch]
        newest = max(wanted, version)
        state = Versioned(store, branch=branch, migrations=model_migrations(newest))
        value = model_migrated(value, version, newest)
        value[f"{branch}/{key}"] = state[f"{branch}/{key}"] = number
        state.commit()
        values[branch] = value, newest
    newest = max(last, *(version for _, version in values.values()))
    state = Versioned(store, migrations=model_migrations(newest))
    state.merge("side")
    expected: dict[str, Any] = {}
    for value, version in values.values():
        expected |= model_migrated(value, version, newest)
    assert dict(state) == expected
    state.commit()
    assert dict(Versioned(store)) == expected
    assert state.repository.fsck().findings == ()


def test_a_function_that_would_do_nothing_when_it_is_called_is_refused():
    async def later(state: Any) -> None:
        state["n"] = 1

    def steps(state: Any) -> Any:
        yield state

    made = Migrations()
    for function in (later, steps):
        with pytest.raises(InvalidArgumentError, match="a plain function"):
            made.to(2)(function)
    assert made.version == 1


def test_an_error_of_a_migration_says_once_that_nothing_was_changed():
    def unstorable(state: Any) -> None:
        state["lock"] = Lock()

    def refused(state: Any) -> None:
        state.at("a[")

    for function in (unstorable, refused):
        made = Migrations()
        made.to(2)(function)
        with pytest.raises(MigrationError) as caught:
            Versioned(old_state().repository, migrations=made)
        assert str(caught.value).count("nothing was changed") == 1
