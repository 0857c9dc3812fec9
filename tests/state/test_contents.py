"""``ContentHandle``: each commit has a whole content, in place of the last one, and costs what differs."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest

from tests.support.handles import committed
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import BranchMovedError, UnserializableValueError
from versioned_state.state.branch import port
from versioned_state.state.branch.contents import ContentHandle
from versioned_state.storage import Counting
from versioned_state.values.keys import USER, namespace_prefix, user_key
from versioned_state.values.trees.tree import same

INNER = namespace_prefix("inner")


def opened(store: Any = None, branch: str = "main") -> ContentHandle:
    return ContentHandle(Repository(Memory() if store is None else store), branch, (USER, INNER))


def content(values: dict[str, Any], **inner: Any) -> dict[bytes, Any]:
    return {user_key(key): value for key, value in values.items()} | {
        INNER + user_key(key): value for key, value in inner.items()
    }


def messages(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "text": f"message {n} " * 20} for n in range(count)]


def packed() -> list[str]:
    """Return a value that is stored in an object of its own, and has no baseline."""
    return [os.urandom(40).hex() for _ in range(10)]


def test_a_content_takes_the_place_of_the_last_one():
    handle = opened()
    repository = port.handle(handle).repository
    contents: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"a": 1, "b": messages(300), "c": [1, 2], "p": packed()}, {}),
        ({"a": 1, "b": messages(301), "p": packed()}, {"x": "large" * 1000}),
        ({"b": messages(301), "d": os.urandom(5000)}, {}),
        ({}, {"x": 1}),
        ({"b": messages(2)}, {}),
    ]
    commits = [handle.commit(content(values, **inner), message=f"{n}") for n, (values, inner) in enumerate(contents)]
    for commit, (values, inner) in zip(commits, contents, strict=True):
        snapshot = repository.snapshot(commit)
        assert snapshot.copy() == values
        assert snapshot.namespace("inner").copy() == inner
    assert [commit.message for commit in repository.log("main")] == ["4", "3", "2", "1", "0"]
    assert repository.fsck().ok


@pytest.mark.parametrize("is_new", [False, True])
def test_it_gives_the_root_that_a_state_gives(is_new: bool):  # noqa: FBT001 - as pytest gives it
    store = Memory()
    handle = opened(store)
    state = Versioned(branch="state")
    for values in ({"a": messages(200), "b": "x" * 300}, {"a": messages(201)}, {"a": messages(1), "c": {"d": [1]}}):
        commit = handle.commit(content(values), message="m")
        state.clear()
        state.update(values)
        assert same(state.commit("m", allow_empty=True).tree, commit.tree)
        if is_new:
            handle = opened(store)


def test_what_others_keep_beside_the_content_stays():
    store = Memory()
    state = Versioned(store)
    state["old"] = 1
    state.namespace("other")["kept"] = 2
    state.namespace("inner")["old"] = 3
    state.commit()
    opened(store).commit(content({"new": 4}), message="m")
    state.refresh()
    assert dict(state) == {"new": 4}
    assert dict(state.namespace("other")) == {"kept": 2}
    assert not state.namespace("inner")


def test_the_same_content_is_a_commit_of_one_object():
    store = Counting(Memory())
    handle = opened(store)
    same: dict[str, Any] = {"small": 1, "packed": packed(), "long": messages(300)}
    handle.commit(content(same), message="first")
    store.reset()
    handle.commit(content({**same, "long": list(same["long"])}), message="second")
    assert store.counts.round_trips == 1
    assert store.counts.objects_written == 1


def test_it_refuses_a_branch_that_has_moved():
    store = Memory()
    handle = opened(store)
    handle.commit(content({"a": 1}), message="ours")
    state = committed(store, a=2)
    theirs = state.head
    with pytest.raises(BranchMovedError):
        handle.commit(content({"a": 3}), message="late")
    assert Repository(store).branches["main"] == theirs


def test_a_value_that_cannot_be_stored_leaves_the_branch():
    handle = opened()
    first = handle.commit(content({"a": 1}), message="first")
    nothing: list[int] = []
    with pytest.raises(UnserializableValueError):
        handle.commit(content({"a": (n for n in nothing)}), message="bad")
    assert port.handle(handle).repository.branches["main"] == first


def test_onto_another_parent():
    store = Memory()
    handle = opened(store)
    first = handle.commit(content({"a": messages(100), "gone": 1}), message="first")
    second = handle.commit(content({"a": messages(120), "b": 1}), message="second")
    fork = handle.commit(content({"a": messages(101)}), message="fork", parent=first)
    repository = Repository(store)
    assert fork.parents == (first.id,)
    assert repository.branches["main"] == fork
    assert repository.snapshot(fork).copy() == {"a": messages(101)}
    assert [position.commit for position in repository.reflog("main")][:2] == [fork, second]
    later = handle.commit(content({"a": messages(102)}), message="later")
    assert repository.snapshot(later).copy() == {"a": messages(102)}
    assert repository.fsck().ok


def test_it_turns_to_another_branch():
    store = Memory()
    handle = opened(store, "one")
    one = handle.commit(content({"a": messages(100), "b": 1}), message="one")
    handle.turn_to("two")
    two = handle.commit(content({"a": messages(100)}), message="two")
    handle.turn_to("one")
    assert handle.head == one
    assert port.handle(handle).branch == "one"
    last = handle.commit(content({"a": messages(101)}), message="last")
    repository = Repository(store)
    assert repository.branches["one"] == last
    assert last.parents == (one.id,)
    assert repository.snapshot(last).copy() == {"a": messages(101)}
    assert repository.branches["two"] == two
    assert repository.snapshot(two).copy() == {"a": messages(100)}
    assert len(list(repository.log("two"))) == 1
    assert repository.fsck().ok


def test_on_another_branch_it_does_not_rely_on_what_gc_has_taken():
    store = Memory()
    repository = Repository(store)
    handle = ContentHandle(repository, "one")
    long = content({"long": messages(300), "packed": packed()})
    handle.commit(long, message="one")
    other = Repository(store)
    other.branches.delete("one", force=True)
    assert other.gc(expire=timedelta(0)).freed > 0
    ContentHandle(repository, "third").commit(content({"a": 1}), message="learns of the sweep")
    handle.turn_to("two")
    handle.commit(long, message="two")
    assert other.fsck().ok
    assert other.snapshot("two").copy() == {key[1:].decode(): value for key, value in long.items()}
