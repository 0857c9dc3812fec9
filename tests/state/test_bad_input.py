"""What bad input gets: a typed error that names the thing, and nothing lost."""

from __future__ import annotations

import datetime as dt
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.handles import RollbackWantedError, committed
from tests.support.processes import fork, join
from versioned_state import Disk, Live, Memory, Repository, Versioned, errors
from versioned_state.errors import (
    CorruptStoreError,
    HandleClosedError,
    InvalidArgumentError,
    LimitExceededError,
    MergeConflictError,
    NotAStoreError,
    ReadOnlyError,
    StateError,
    StorageFullError,
    StoreBusyError,
    StoreClosedError,
    StoreNotFoundError,
    UnserializableValueError,
)
from versioned_state.errors.retry import Merge


@pytest.fixture
def state() -> Iterator[Versioned]:
    """A state with a commit and a staged change.

    After the test that change must still be staged, and a commit must succeed.
    """
    state = Versioned()
    state["kept"] = [1]
    state.commit("first")
    state["kept"].append(2)
    yield state
    assert state["kept"] == [1, 2]
    assert state.head.message == "first"
    for key in set(state) - {"kept"}:
        del state[key]
    assert [str(change) for change in state.status()] == ["+ kept[1] = 2"]
    state.commit("second")
    assert dict(state.checkout("HEAD")) == {"kept": [1, 2]}


# Values that cannot be stored


class Agent:
    """Data, by its attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Locked(Agent):
    """An object, for it says how it is pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Call(NamedTuple):
    name: str
    arguments: list[Any]


class Raising:
    def __reduce__(self) -> Any:
        raise RuntimeError("no, thank you")


class NoZone(dt.tzinfo):
    def utcoffset(self, _: Any) -> dt.timedelta:
        return dt.timedelta()

    tzname = dst = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise RuntimeError("no zone")


BAD: dict[str, Any] = {
    "a lock": threading.Lock(),
    "an object with a lock": Locked(lock=threading.Lock()),
    "an object that refuses": Raising(),
    "a generator": (n for n in [1]),
    "an open file": None,
    "a view of memory": memoryview(bytearray(b"of something else")),
    "a time in somebody's own zone": dt.datetime(2026, 1, 1, tzinfo=NoZone()),
    "an array of locks": np.array([threading.Lock()], object),
}
PLACES: dict[str, tuple[Any, str]] = {
    "at the top": (lambda bad: bad, "bad"),
    "in a list": (lambda bad: [1, [2, bad]], "bad[1][1]"),
    "in a dict": (lambda bad: {"a": {"b c": bad}}, 'bad.a["b c"]'),
    "under a key that is no string": (lambda bad: {1: {(2, "x"): bad}}, "bad{1}{(2, 'x')}"),
    "in a tuple": (lambda bad: (1, (bad,)), "bad[1][0]"),
    "in an instance": (lambda bad: [Agent(tools={"first": bad})], "bad[0].tools.first"),
    "in a NamedTuple": (lambda bad: Call("search", [bad]), "bad.arguments[0]"),
    "in an exception": (lambda bad: ValueError("x", bad), "bad.args[1]"),
    "in a deque": (lambda bad: deque([1, bad]), "bad[1]"),
    "in a large field": (lambda bad: Agent(history=["x" * 100] * 500 + [bad]), "bad.history[500]"),
    "in a large list": (lambda bad: [*map(str, range(3000)), {"x": bad}], "bad[3000].x"),
    "in a large dict": (lambda bad: {**{f"k{n}": "x" * 50 for n in range(500)}, "here": [bad]}, "bad.here[0]"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", BAD)
def test_a_value_that_cannot_be_stored(state, name, place, tmp_path):
    bad = BAD[name] or (tmp_path / "file").open("w")
    wrap, path = PLACES[place]
    state["bad"] = value = wrap(bad)
    with pytest.raises(
        UnserializableValueError, match="nothing was committed, and the staged changes are still there"
    ) as caught:
        state.commit()
    for error in (caught.value, state.status().unstorable[path], state.diff("HEAD").unstorable[path]):
        assert isinstance(error, UnserializableValueError)
        assert error.path == path
        assert error.type_name == f"{type(bad).__module__}.{type(bad).__qualname__}"
        assert path in str(error)
        assert isinstance(error, TypeError)
        assert error.__cause__ is not None or error.reason
    assert [str(change) for change in state.status()] == ["+ kept[1] = 2"], "the others are shown"
    assert state["bad"] is value
    if hasattr(bad, "close"):
        bad.close()


def test_committing_the_rest(state):
    state["bad"] = [threading.Lock()]
    state["worse"] = {"a": threading.Lock()}
    state["good"] = 1
    commit = state.commit("rest", skip_unserializable=True)
    assert sorted(commit.skipped) == ["bad[0]", "worse.a"]
    assert dict(state.checkout(commit)) == {"good": 1, "kept": [1, 2]}
    assert len(state["bad"]) == 1, "it is still there"
    assert sorted(state.status().unstorable) == ["bad[0]", "worse.a"]
    state["bad"][0] = "mended"
    del state["worse"]
    assert [str(change) for change in state.status()] == ["+ bad = ['mended']"]
    assert not state.commit().skipped
    state.reset("HEAD~2")
    assert state["kept"] == [1]
    state["kept"].append(2)


def test_a_stored_value_that_turned_bad_stays_as_it_was_in_the_commit(state):
    state["kept"].append(threading.Lock())
    commit = state.commit(skip_unserializable=True)
    assert commit.id == state.head.id
    assert commit.skipped == ("kept[2]",)
    assert dict(state.checkout("HEAD")) == {"kept": [1]}
    state["kept"].pop()


def test_discard_and_rollback_with_values_that_cannot_be_stored(state):
    with suppress(RollbackWantedError), state.transaction():
        state["bad"] = threading.Lock()
        state["kept"].append(threading.Lock())
        raise RollbackWantedError
    assert state["kept"] == [1, 2]
    assert "bad" not in state

    def work() -> None:
        with state.transaction():
            state["bad"] = threading.Lock()
            state["kept"].append(3)

    with pytest.raises(UnserializableValueError, match="bad"):
        work()
    assert state["kept"] == [1, 2]
    assert "bad" not in state


def test_a_transaction_with_a_value_that_cannot_be_stored_before_it(state):
    lock = state["bad"] = threading.Lock()

    def work() -> None:
        with state.transaction():
            state["kept"].append(3)

    with pytest.raises(UnserializableValueError, match="bad"):
        work()
    assert state["kept"] == [1, 2]
    assert state["bad"] is lock


# Keys


@pytest.mark.parametrize("key", [1, None, b"a", ("a",), 1.5, type("Key", (str,), {})("a")], ids=repr)
def test_a_key_that_is_no_string(state, key):
    space = state.namespace("space")
    live = Live()
    calls = [
        lambda: state.__setitem__(key, 1),
        lambda: state[key],
        lambda: state.__delitem__(key),
        lambda: state.sequence(key),
        lambda: state.release(key),
        lambda: state.update({key: 1}),
        lambda: state.setdefault(key, 1),
        lambda: state.pop(key, None),
        lambda: state.get(key),
        lambda: space.__setitem__(key, 1),
        lambda: space[key],
        lambda: state.checkout("HEAD")[key],
        lambda: live.__setitem__(key, 1),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="keys of a state must be strings, not"):
            call()
    assert key not in state
    assert key not in state.checkout("HEAD")


def test_a_key_that_is_too_long_is_in_no_state(state):
    key = "k" * 5_000
    for space in (state, state.namespace("space"), state.checkout("HEAD"), Live()):
        assert key not in space
    with pytest.raises(LimitExceededError, match="a key of 5000 bytes"):
        state[key] = 1


@pytest.mark.parametrize("name", ["", "a\0b", None, 1, b"a"])
def test_a_bad_name_of_a_namespace(state, name):
    for owner in (state, state.namespace("fine"), Live(), state.checkout("HEAD")):
        with pytest.raises(InvalidArgumentError, match="namespace"):
            owner.namespace(name)


def test_keys_that_are_not_there(state):
    for mapping in (state, state.namespace("n"), state.checkout("HEAD"), Live()):
        with pytest.raises(KeyError, match="missing"):
            mapping["missing"]
        assert mapping.get("missing") is None
    for mapping in (state, state.namespace("n"), Live()):
        with pytest.raises(KeyError, match="missing"):
            del mapping["missing"]
        assert mapping.pop("missing", 5) == 5


def test_a_sequence_over_what_is_no_list(state):
    state["dict"] = {"a": 1}
    with pytest.raises(TypeError, match="list"):
        state.sequence("dict")
    other = Versioned(state.repository, branch="other")
    other["dict"], other["tuple"] = {"a": 1}, (1,)
    other.commit()
    for key in ("dict", "tuple"):
        with pytest.raises(TypeError, match="list"):
            Versioned(state.repository, branch="other").sequence(key)


# Arguments


@pytest.mark.parametrize(
    "arguments",
    [
        *({"branch": name} for name in ("a b", "", None)),
        *({"pickle": mode} for mode in ("always", True)),
        *({"pickle_key": key} for key in (b"short", "x" * 32)),
        *({"clock": clock} for clock in (5, "now")),
        *({"signer": signer} for signer in ("key", b"k" * 32)),
    ],
    ids=repr,
)
def test_bad_options(arguments):
    with pytest.raises((InvalidArgumentError, TypeError), match=r"branch|pickle|clock|signer"):
        Versioned(Memory(), **arguments)


def test_options_that_are_the_repositorys():
    for options in ({"pickle": "refuse"}, {"pickle_key": b"k" * 32}, {"clock": lambda: 1}):
        with pytest.raises(InvalidArgumentError, match="Repository"):
            Versioned(Repository(), **options)


@pytest.mark.parametrize("meta", [{1: 2}, {"a": threading.Lock()}, {"a": [{"b": object()}]}, "text", [1]])
def test_bad_meta(state, meta):
    with pytest.raises((StateError, TypeError), match="meta"):
        state.commit(meta=meta)


@pytest.mark.parametrize(
    "arguments", [{"message": 5}, {"message": b"a"}, {"author": 5}, {"on_moved": "sideways"}], ids=repr
)
def test_bad_arguments_of_commit(state, arguments):
    with pytest.raises((StateError, TypeError), match=next(iter(arguments))):
        state.commit(**arguments)


def merge_of(state: Versioned) -> Merge:
    """A merge that stopped at ``kept``."""
    other = Versioned(state.repository)
    other["kept"].append("theirs")
    other.commit("theirs")
    with pytest.raises(MergeConflictError) as caught:
        state.refresh()
    state.repository.branches.delete("main", force=True)
    state.repository.branches.create("main", state.head)
    return caught.value.merge


REVISIONS: tuple[Any, ...] = (5, 1.5, True, b"main", ["main"], {}, object())
NAMES: tuple[Any, ...] = (None, 5, True, b"side", ["side"], {})
PATHS: tuple[Any, ...] = (5, True, b"kept", ["kept"], {"a": 1}, object())
COUNTS: tuple[Any, ...] = (None, 1.5, True, "1", b"1", [1], {}, float("nan"), -1)
TEXTS: tuple[Any, ...] = (5, 1.5, True, b"text", ["text"], {}, object())
POLICIES: tuple[Any, ...] = (
    5,
    "ours",
    b"ours",
    [("kept", "ours")],
    {"kept": "nope"},
    {"kept": 5},
    {"kept": None},
    {5: "ours"},
    {"kept[": "ours"},
    object(),
)
ARGUMENTS: dict[str, tuple[Callable[[Versioned, Any], Any], tuple[Any, ...]]] = {
    "merge": (lambda s, x: s.merge(x), (*REVISIONS, None)),
    "rebase": (lambda s, x: s.rebase(x), (*REVISIONS, None)),
    # a list is fine
    "cherry_pick": (lambda s, x: s.cherry_pick(x), (*REVISIONS[:4], *REVISIONS[5:], None, [5], ["main", None])),
    "revert": (lambda s, x: s.revert(x), (*REVISIONS[:4], *REVISIONS[5:], None, [5], ["main", None])),
    "squash": (lambda s, x: s.squash(x), (*REVISIONS, None)),
    "squash until": (lambda s, x: s.squash("HEAD", x), (*REVISIONS, None)),
    "reset": (lambda s, x: s.reset(x), (*REVISIONS, None)),
    "checkout": (lambda s, x: s.checkout(x), (*REVISIONS, None)),
    "diff": (lambda s, x: s.diff("HEAD", x), REVISIONS),
    "log": (lambda s, x: s.log(x), REVISIONS),
    "restore at": (lambda s, x: s.restore("kept", x), (*REVISIONS, None)),
    "fork at": (lambda s, x: s.fork("new", at=x), (*REVISIONS, None)),
    "bisect good": (lambda s, x: s.bisect(x, "HEAD", bool), (*REVISIONS, None)),
    "bisect bad": (lambda s, x: s.bisect("HEAD~1", x, bool), (*REVISIONS, None)),
    "branches.create at": (lambda s, x: s.repository.branches.create("new", x), (*REVISIONS, None)),
    "tags.create at": (lambda s, x: s.repository.tags.create("new", x), (*REVISIONS, None)),
    "merge_base": (lambda s, x: s.repository.merge_base("main", x), (*REVISIONS, None)),
    "fork": (lambda s, x: s.fork(x), NAMES),
    "switch": (lambda s, x: s.switch(x), NAMES),
    "switch and create": (lambda s, x: s.switch(x, create=True), NAMES),
    "branches.create": (lambda s, x: s.repository.branches.create(x), NAMES),
    "branches.delete": (lambda s, x: s.repository.branches.delete(x), NAMES),
    "branches.rename": (lambda s, x: s.repository.branches.rename(x, "new"), NAMES),
    "branches.rename to": (lambda s, x: s.repository.branches.rename("main", x), NAMES),
    "tags.create": (lambda s, x: s.repository.tags.create(x), NAMES),
    "tags.delete": (lambda s, x: s.repository.tags.delete(x), NAMES),
    "tags.annotation": (lambda s, x: s.repository.tags.annotation(x), NAMES),
    "reflog": (lambda s, x: s.repository.reflog(x), NAMES),
    "reflog kind": (lambda s, x: s.repository.reflog("main", kind=x), (None, "head", 5, [])),
    "restore": (lambda s, x: s.restore(x), (*PATHS, None, "", "[", "@n")),
    "history": (lambda s, x: s.history(x), (*PATHS, None, "", "[")),
    "blame": (lambda s, x: s.blame(x), PATHS),
    "grep path": (lambda s, x: s.grep("x", path=x), PATHS),
    "purge": (lambda s, x: s.repository.purge(x), (*PATHS, None)),
    "resolve": (lambda s, x: merge_of(s).resolve(x, 1), (*PATHS, None, "", "kept[", "plan")),
    "undo": (lambda s, x: s.undo(x), (*COUNTS, 0)),
    "redo": (lambda s, x: s.redo(x), (*COUNTS, 0)),
    "rollback": (lambda s, x: s.rollback(x), COUNTS),
    "log limit": (lambda s, x: s.log(limit=x), COUNTS[1:]),
    "blame start": (lambda s, x: s.blame("kept", start=x), COUNTS[1:-1]),
    "prune": (lambda s, x: s.repository.prune(keep_last=x), (*COUNTS, 0)),
    "bisect by": (lambda s, x: s.bisect("HEAD~1", "HEAD", x), (None, 5, "kept")),
    "commit message": (lambda s, x: s.commit(x), TEXTS),
    "commit author": (lambda s, x: s.commit(author=x), TEXTS),
    "commit on_moved": (lambda s, x: s.commit(on_moved=x), ("MERGE", "", None, True)),
    "merge message": (lambda s, x: s.merge("HEAD", message=x), TEXTS),
    "merge author": (lambda s, x: s.merge("HEAD", author=x), TEXTS),
    "merge meta": (lambda s, x: s.merge("HEAD", meta=x), ("text", [1], 5)),
    "cherry_pick message": (lambda s, x: s.cherry_pick("HEAD", message=x), TEXTS),
    "revert author": (lambda s, x: s.revert("HEAD", author=x), TEXTS),
    "squash message": (lambda s, x: s.squash("HEAD~1", message=x), TEXTS),
    "transaction": (lambda s, x: s.transaction(x).__enter__(), TEXTS),
    "transaction policies": (lambda s, x: s.transaction(policies=x).__enter__(), POLICIES),
    "author of a state": (lambda s, x: Versioned(s.repository, author=x), TEXTS),
    "author of a repository": (lambda s, x: Repository(s.repository.store, author=x), TEXTS),
    "commit policies": (lambda s, x: s.commit(policies=x), POLICIES),
    "refresh policies": (lambda s, x: s.refresh(policies=x), POLICIES),
    "merge policies": (lambda s, x: s.merge("HEAD", policies=x), POLICIES),
    "rebase policies": (lambda s, x: s.rebase("HEAD", policies=x), POLICIES),
    "cherry_pick policies": (lambda s, x: s.cherry_pick("HEAD", policies=x), POLICIES),
    "policies to keep": (lambda s, x: s.repository.set_merge_policy("kept", x), ("nope", 5, [], {}, lambda *_: 1)),
    "patterns to keep": (lambda s, x: s.repository.set_merge_policy(x, "ours"), (None, 5, b"kept", [], "", "kept[")),
}


@pytest.mark.parametrize("call", ARGUMENTS)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(state, call):
    act, values = ARGUMENTS[call]
    for value in values:
        with pytest.raises(InvalidArgumentError):
            act(state, value)
        repository = state.repository
        assert {name: head.message for name, head in repository.branches.items()} == {"main": "first"}
        assert (dict(repository.tags), repository.merge_policies) == ({}, {})


def test_numbers_may_be_of_any_type_of_integer(state):
    assert state.repository.commit("main") == next(state.log(limit=np.int64(1)))
    assert len(list(state.log(limit=10**30))) == 1
    assert Versioned().rollback(10**30).parents == ()


# Snapshots


def test_writing_to_a_snapshot(state):
    past = state.checkout("HEAD")
    calls = [
        lambda: past.__setitem__("a", 1),
        lambda: past.__delitem__("kept"),
        lambda: past.update({"a": 1}),
        lambda: past.pop("kept"),
        past.popitem,
        past.clear,
        lambda: past.setdefault("a", 1),
        lambda: past.namespace("n").__setitem__("a", 1),
    ]
    for call in calls:
        with pytest.raises(ReadOnlyError, match="read-only"):
            call()
        assert isinstance(ReadOnlyError(""), TypeError)
    assert dict(past) == {"kept": [1]}


# Stores


def test_a_folder_that_is_no_store(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAStoreError):
        Versioned(Disk(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(StoreNotFoundError):
        Versioned(Disk(tmp_path / "nothing", create=False))
    with pytest.raises(StateError):
        Versioned(Disk(tmp_path / "notes.txt"))


def test_a_damaged_store(tmp_path):
    with Versioned(Disk(tmp_path / "store")) as state:
        state["a"] = ["x" * 1000] * 50
        state.commit()
    file = tmp_path / "store" / "store.sqlite3"
    whole = file.read_bytes()
    for damaged in (whole[:100], b"\0" * len(whole), whole[:4096] + random.Random(1).randbytes(len(whole) - 4096), b""):
        file.write_bytes(damaged)
        with pytest.raises((CorruptStoreError, NotAStoreError, errors.StorageError)):
            Versioned(Disk(tmp_path / "store"))["a"]
    file.write_bytes(whole)
    with Versioned(Disk(tmp_path / "store")) as state:
        assert state["a"] == ["x" * 1000] * 50


def test_a_full_disk(tmp_path):
    with Versioned(Disk(tmp_path / "store", size_limit=400_000)) as state:
        state["kept"] = [1]
        first = state.commit()
        state["kept"].append(2)
        state["large"] = bytearray(os.urandom(2_000_000))
        with pytest.raises(StorageFullError) as caught:
            state.commit()
        assert caught.value.limit == 400_000
        assert state.head == first
        assert state["kept"] == [1, 2]
        assert len(state["large"]) == 2_000_000
        del state["large"]
        assert state.checkout(state.commit()).copy() == {"kept": [1, 2]}
    with Versioned(Disk(tmp_path / "store")) as state:
        assert state["kept"] == [1, 2]


def test_a_second_process_in_the_middle_of_a_write(tmp_path):
    import sqlite3

    with Versioned(Disk(tmp_path / "store", timeout=0.2)) as state:
        state["kept"] = [1]
        state.commit()
        blocker = sqlite3.connect(tmp_path / "store" / "store.sqlite3", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        state["kept"].append(2)
        with pytest.raises(StoreBusyError):
            state.commit()
        assert state.checkout("HEAD")["kept"] == [1], "reads do not wait"
        assert len(state.status()) == 1
        blocker.execute("ROLLBACK")
        blocker.close()
        assert state.checkout(state.commit())["kept"] == [1, 2]


def test_a_folder_without_permission(tmp_path):
    def work() -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            Versioned(Disk(Path("/proc/nothing/here")))
        except StateError:
            pass
        else:
            raise AssertionError
        try:
            Versioned(Disk("/root/versioned-state-test"))
        except StateError:
            return
        raise AssertionError

    join(fork(work))


# After close


def test_after_close():
    state = committed(a=[1], large=["x" * 100] * 900)
    commit = state.head
    held, sequence, space, past = state["a"], state.sequence("a"), state.namespace("n"), state.checkout(commit)
    state.close()
    state.close()
    calls: list[Callable[[], Any]] = [
        lambda: state["a"],
        lambda: state.__setitem__("a", 1),
        lambda: list(state),
        lambda: len(state),
        lambda: "a" in state,
        state.status,
        state.commit,
        lambda: list(state.log()),
        lambda: state.checkout(commit),
        lambda: state.diff(commit),
        lambda: state.reset(commit),
        state.refresh,
        state.discard,
        lambda: state.sequence("a"),
        lambda: state.transaction().__enter__(),
        lambda: space["a"],
        lambda: space.__setitem__("a", 1),
        lambda: sequence.append(1),
        lambda: len(sequence),
        lambda: sequence[0],
    ]
    for call in calls:
        with pytest.raises(HandleClosedError, match="closed"):
            call()
    with pytest.raises(HandleClosedError, match="closed"):
        _ = state.repository
    assert past["large"] == ["x" * 100] * 900, "a snapshot goes on: it refers to the store itself"
    assert held == [1]
    assert "closed" in repr(state)


def test_a_shared_repository_outlives_its_handles():
    repository = Repository()
    with Versioned(repository) as state:
        state["a"] = 1
        state.commit()
    assert Versioned(repository)["a"] == 1
    repository.close()
    with pytest.raises(StoreClosedError):
        Versioned(repository)


def test_every_error_is_a_state_error_with_facts():
    """The tree in the module's docstring is the tree of the classes."""
    drawn = [
        line.split("──")[1].split()[0]
        for line in (errors.__doc__ or "").splitlines()
        if "── " in line and "Error" in line
    ]
    defined = [name for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, StateError)]
    assert sorted([*drawn, "StateError"]) == sorted(defined)


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        ("./agent-state", "write Disk('./agent-state')"),
        (Path("agent-state"), "write Disk('agent-state')"),
        ("redis://user:secret@host/0", "write versioned_state.open('redis://user:***@host/0')"),
    ],
)
def test_a_place_is_no_store(place, hint):
    for opened in (Versioned, Repository):
        with pytest.raises(InvalidArgumentError) as caught:
            opened(place)
        assert caught.value.hint == hint
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.commit("m" * 70_000),
        lambda state: state.commit(author="a" * 70_000),
        lambda state: state.commit(meta={"m": "x" * 70_000}),
        lambda state: state.repository.tags.create("t", message="x" * 70_000),
        lambda state: state.repository.notes.update("HEAD", {"n": "x" * 2_000_000}),
        lambda state: state.update({"a": 1, "k" * 5_000: 1}),
    ],
    ids=["message", "author", "meta", "message of a tag", "note", "key"],
)
def test_a_text_beyond_its_limit_says_what_remains(state, call):
    before = str(state.status())
    with pytest.raises(LimitExceededError) as caught:
        call(state)
    assert caught.value.remains == "nothing was changed"
    assert str(caught.value).endswith("; nothing was changed")
    assert str(state.status()) == before
    assert not state.repository.tags
    assert not state.repository.notes


def test_what_a_note_takes_is_said_of_a_note(state):
    with pytest.raises(UnserializableValueError, match=r"note\.n\[1\].*nothing was changed") as caught:
        state.repository.notes.update("HEAD", {"n": [1, threading.Lock()]})
    assert "a note takes" in caught.value.hint
    assert "commit(" not in caught.value.hint
