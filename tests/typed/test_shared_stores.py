"""In a store that others can write to, a class is taken from a live instance or from register().

It is never imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.stores import SharedMemory
from versioned_state import Repository, Tagged, Versioned


@dataclass
class Inner:
    n: int


@dataclass
class Message:
    text: str
    inner: Inner = field(default_factory=lambda: Inner(0))
    parts: list[Any] = field(default_factory=list)


def test_a_live_instance_stays_one_when_the_head_moves():
    store = SharedMemory()
    mine = Versioned(store)
    message = mine["message"] = Message("a", Inner(1), [1])
    mine["list"] = [Message("b"), 1]
    held = mine["list"][0]
    mine.commit("first")
    message.text = "changed"
    mine.discard()
    assert message == Message("a", Inner(1), [1])
    assert mine["message"] is message

    theirs = Versioned(store)
    assert isinstance(theirs["message"], Tagged)
    theirs["message"].fields["inner"].fields["n"] = 2
    theirs["message"].fields["parts"].append(2)
    theirs["list"][0].fields["text"] = "theirs"
    theirs.commit("second")
    mine.refresh()
    assert mine["message"] is message
    assert message == Message("a", Inner(2), [1, 2])
    assert mine["list"][0] is held
    assert held.text == "theirs"
    assert not mine.status()


def test_without_one_it_reads_as_tagged_and_says_why():
    store = SharedMemory()
    state = Versioned(store)
    state["message"] = Message("a")
    state.commit()
    read = Repository(store).snapshot("main")["message"]
    assert read == Tagged(
        f"{__name__}:Message", {"inner": Tagged(f"{__name__}:Inner", {"n": 0}), "parts": [], "text": "a"}
    )
    with pytest.raises(AttributeError, match=r"'text'.*not registered"):
        read.text  # noqa: B018 - what it says is the test


Renamed = Message
"""Another name for the class: nothing is stored under it."""


def test_a_name_that_leads_to_a_class_of_another_name_is_not_that_class():
    state = Versioned()
    state["value"] = Tagged(f"{__name__}:Renamed", {"text": "a", "inner": None, "parts": []})
    assert isinstance(state.checkout(state.commit())["value"], Tagged)
