"""What a newcomer's wrong call gets: an error that says what was wrong, in the words of the call, and the right one."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import versioned_state
from versioned_state import Disk, Live, Memory, Repository, Versioned, task
from versioned_state.errors import (
    InvalidArgumentError,
    InvalidPathError,
    StateError,
    StoreClosedError,
    UnknownPathError,
    UnknownRevisionError,
    UnmergedBranchError,
    UnserializableValueError,
)


@task
def book(city: str) -> str:
    return city


def closed(_: Versioned) -> None:
    store = Memory()
    store.close()
    Versioned(store)


def copied(state: Any) -> None:
    copy.deepcopy(state)


MISTAKES: dict[str, tuple[Callable[[Versioned], object], type[Exception], str]] = {
    "the class of a store": (lambda _: Versioned(Disk), InvalidArgumentError, r"the class Disk is not a store"),  # type: ignore[arg-type]
    "a dict as a store": (
        lambda _: Repository({}),  # type: ignore[arg-type]
        InvalidArgumentError,
        r"a value of type dict is not a store.*Disk\(",
    ),
    "a size in words": (lambda _: Disk("x", size_limit="1GB"), InvalidArgumentError, "number of bytes.*'1GB'"),  # type: ignore[arg-type]
    "a URL of a file": (lambda _: versioned_state.open("file:///tmp/x"), InvalidArgumentError, r"write disk:/tmp/x"),
    "a URL of SQLAlchemy": (
        lambda _: versioned_state.open("sqlite:///x.db"),
        InvalidArgumentError,
        r"write disk:/x.db",
    ),
    "days as a number": (
        lambda s: s.repository.gc(expire=30),  # type: ignore[arg-type]
        InvalidArgumentError,
        r"expire must be a timedelta, not int.*days=30",
    ),
    "an age as a number": (
        lambda s: s.repository.prune(older_than=30),  # type: ignore[arg-type]
        InvalidArgumentError,
        "older_than must be a timedelta",
    ),
    "an age below 0": (
        lambda s: s.repository.gc(expire=timedelta(-1)),
        InvalidArgumentError,
        "expire must be 0 or more",
    ),
    "a number as a revision": (lambda s: s.checkout(3), InvalidArgumentError, r"not int.*such as HEAD~1"),  # type: ignore[arg-type]
    "the commit_hash of an event in a Live": (lambda s: s.checkout(None), InvalidArgumentError, "an event in a Live"),  # type: ignore[arg-type]
    "a copy of a state": (copied, TypeError, r"a Versioned cannot be copied or pickled: copy\(\) gives"),
    "a state for another process": (pickle.dumps, TypeError, "a Versioned cannot be copied or pickled"),
    "a copy of a Live": (lambda _: copy.copy(Live()), TypeError, "a Live cannot be copied or pickled"),
    "a namespace in a state": (
        lambda s: (s.update(me=s.namespace("me")), s.commit()),
        StateError,
        "me of type .*Namespace",
    ),
    "an object in meta": (
        lambda s: s.commit("x", meta={"a": object()}, allow_empty=True),
        UnserializableValueError,
        "meta.a of type .*meta takes numbers",
    ),
    "a key that is spelt wrong": (lambda s: s.at("pln"), UnknownPathError, "did you mean plan?"),
    "a key of a dict that is spelt wrong": (lambda s: s.at("prefs.teme"), UnknownPathError, "did you mean theme?"),
    "an index that a commit has not": (
        lambda s: s.checkout("HEAD").at("prefs.all[9]"),
        UnknownPathError,
        "the list has 1 element$",
    ),
    "a store that is closed": (closed, StoreClosedError, "the store is closed.*open it again"),
    "a key with a dash": (lambda s: s.at("user-1"), InvalidPathError, r"""written '\["user-1"\]'"""),
    "an argument too few": (lambda s: book(state=s), TypeError, r"book\(\): missing a required argument: 'city'"),
    "too many undos": (lambda s: s.undo(9), UnknownRevisionError, "there are not 9 moves to undo"),
    "a redo of nothing": (lambda s: s.redo(), UnknownRevisionError, "^there is nothing to redo$"),
    "a squash of nothing": (
        lambda s: s.squash("HEAD"),
        InvalidArgumentError,
        "there are no commits after .*such as HEAD~3",
    ),
    "a branch that is not merged": (
        lambda s: s.repository.branches.delete("main"),
        UnmergedBranchError,
        r"delete\('main', force=True\)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_the_way_out(name: str):
    call, kind, words = MISTAKES[name]
    with Versioned(Memory()) as state:
        state.update(plan=[], prefs={"theme": "dark", "all": [1]})
        head = state.commit("begin")
        with pytest.raises(kind) as caught:
            call(state)
        assert type(caught.value) is kind or kind is StateError
        said = f"{caught.value}\n{getattr(caught.value, 'hint', '')}".strip()
        assert re.search(words, said, re.DOTALL), said
        state.discard()
        assert state.head == head
        assert state["plan"] == []


def test_what_aio_is_of_shows():
    with Versioned(Memory()) as state:
        state["log"] = []
        assert repr(state.aio) == f"<aio of {state!r}>"
        assert repr(state.sequence("log").aio) == f"<aio of {state.sequence('log')!r}>"
        assert repr(state.repository.aio) == f"<aio of {state.repository!r}>"
        state.discard()
