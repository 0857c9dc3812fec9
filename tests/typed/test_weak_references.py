"""A weak reference in a field comes back as one: to the same instance's field that holds the thing, or else dead."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest

from versioned_state import Memory, Repository, Versioned


@dataclass
class Author:
    name: str


@dataclass
class Item:
    author: Author | None
    text: str
    ref: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.ref = weakref.ref(self.author)


class Plain:
    def __init__(self, author: Author) -> None:
        self.author = author
        self.ref = weakref.ref(author)


class Slotted:
    __slots__ = ("author", "ref")

    def __init__(self, author: Author) -> None:
        self.author = author
        self.ref = weakref.ref(author)


CASES = {"dataclass": lambda author: Item(author, "hi"), "ordinary": Plain, "slots": Slotted}


@pytest.fixture(params=list(CASES))
def item(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param](Author("Ann"))


@pytest.fixture
def state() -> Versioned:
    return Versioned(Repository(Memory()))


def reread(state: Versioned) -> Any:
    fresh = Versioned(state.repository)
    value = fresh["item"]
    assert not fresh.status()
    return value


def test_it_refers_to_the_field_that_holds_the_same_thing(state: Versioned, item: Any):
    state["item"] = item
    state.commit()
    found = reread(state)
    assert found.ref() is found.author
    assert found.author.name == "Ann"
    if isinstance(item, Item):
        assert found == item


def test_to_anything_else_it_is_dead(state: Versioned, item: Any):
    outside = Author("Ben")
    item.ref = weakref.ref(outside)
    state["item"] = item
    state.commit()
    found = reread(state)
    assert type(found.ref) is weakref.ref
    assert found.ref() is None


def test_one_that_is_given_another_target_is_a_change(state: Versioned, item: Any):
    outside = Author("Ann")
    state["item"] = item
    state.commit()
    item.ref = weakref.ref(outside)
    assert [str(change.path) for change in state.status()] == ["item"]
    state.commit()
    assert reread(state).ref() is None


def test_going_back_in_place_keeps_it_to_the_live_part(state: Versioned, item: Any):
    author = item.author
    state["item"] = item
    state.commit()
    item.author, item.ref = Author("Ben"), weakref.ref(author)
    state.discard()
    assert state["item"] is item
    assert item.author.name == "Ann"
    assert item.ref() is item.author


def test_it_does_not_keep_its_target(state: Versioned, item: Any):
    state["item"] = item
    state.commit()
    gone = weakref.ref(item.author)
    item.author = None
    del state["item"]
    state.commit()
    del item
    assert gone() is None
