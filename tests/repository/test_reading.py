"""``repository.read``: a branch or a tag with all that belongs to it, in few requests."""

from __future__ import annotations

import asyncio

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, StoreClosedError, UnknownRevisionError
from versioned_state.storage import Counting


@pytest.fixture
def store() -> Counting:
    store = Counting(Memory())
    state = Versioned(store)
    state["n"], state["list"] = 1, ["a"]
    state.commit(note={"by": "me"}, tag="thread/1")
    state["n"] = 2
    state.commit()
    state.repository.records.update(
        {"thread/1/a": {"n": 1}, "thread/1": {"n": 0}, "thread/10/a": {}, "main/x": {"x": 1}}
    )
    return store


def test_a_tag_with_all_that_belongs_to_it(store):
    repository = Repository(store)
    store.reset()
    found = repository.read("thread/1")
    assert store.counts.round_trips <= 4
    assert (found.name, found.kind, found.head) == ("thread/1", "tag", repository.tags["thread/1"])
    assert dict(found.snapshot) == {"n": 1, "list": ["a"]}
    assert found.note == {"by": "me"}
    assert found.records == {"thread/1": {"n": 0}, "thread/1/a": {"n": 1}}


def test_a_branch_wins_over_a_tag(store):
    repository = Repository(store)
    repository.tags.create("main", "thread/1")
    found = repository.read("main")
    assert (found.kind, found.head, found.note) == ("branch", repository.branches["main"], None)
    assert found.snapshot["n"] == 2
    assert found.records == {"main/x": {"x": 1}}


def test_without_records_it_takes_three_requests(store):
    repository = Repository(store)
    repository.records.clear()
    store.reset()
    found = repository.read("main")
    assert store.counts.round_trips == 3
    assert (found.note, found.records) == (None, {})
    store.reset()
    assert repository.read("main").head == found.head
    assert store.counts.round_trips == 3


@pytest.mark.parametrize(
    ("name", "error"), [("none", UnknownRevisionError), ("", InvalidArgumentError), (None, InvalidArgumentError)]
)
def test_names_that_lead_nowhere(store, name, error):
    with pytest.raises(error):
        Repository(store).read(name)


def test_a_deleted_branch_is_not_read(store):
    repository = Repository(store)
    repository.branches.delete("main", force=True)
    with pytest.raises(UnknownRevisionError):
        repository.read("main")


def test_awaited_and_closed(store):
    repository = Repository(store)
    assert asyncio.run(repository.aio.read("thread/1")).note == {"by": "me"}
    repository.close()
    with pytest.raises(StoreClosedError):
        repository.read("thread/1")
