"""A class registered with a version and ``upgrade=``: instances of older versions are upgraded when they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.registrations import forget
from versioned_state import Memory, Versioned, register
from versioned_state.errors import StateError

pytestmark = pytest.mark.no_oracle("the classes of live values change within a test")


@dataclass
class Note:
    title: str
    labels: list[str] = field(default_factory=list)


@dataclass
class Memo:
    text: str
    labels: list[str] = field(default_factory=list)


def upgrade(fields: dict[str, Any], version: int) -> dict[str, Any]:
    assert version == 1
    fields["text"] = fields.pop("title")  # in place, as one would
    fields["labels"].append("old")
    return fields


@pytest.fixture
def store() -> Memory:
    register(Note, "note")
    store = Memory()
    with Versioned(store) as state:
        state["notes"] = [Note("a"), Note("b", ["x"])]
        state.commit()
    forget(Note)
    register(Memo, "note", version=2, upgrade=upgrade)
    return store


@pytest.mark.parametrize(
    ("faulty", "reason"),
    [
        (lambda fields, version: fields.clear(), "upgrade() returned None, not the fields"),
        (lambda fields, version: fields["nothing"], "KeyError: 'nothing'"),
        (lambda fields: fields, "takes 1 positional argument"),
    ],
)
def test_an_upgrade_that_does_not_work_raises_and_loses_nothing(faulty: Any, reason: str, store: Memory):
    register(Memo, "note", version=2, upgrade=faulty)
    state = Versioned(store)
    state["other"] = 1
    with pytest.raises(StateError, match=f"the type 'note' could not be read: .*{re.escape(reason)}"):
        state["notes"]
    state.commit()
    register(Memo, "note", version=2, upgrade=upgrade)
    assert state["notes"] == [Memo("a", ["old"]), Memo("b", ["x", "old"])]


def test_an_upgrade_may_change_the_fields_that_it_gets_and_nothing_is_written_until_the_instance_changes(store: Memory):
    state = Versioned(store)
    assert state["notes"] == [Memo("a", ["old"]), Memo("b", ["x", "old"])]
    assert not state.status()
    head = state.head
    assert state.commit() == head

    state["notes"][1].text = "c"
    assert {str(change.path) for change in state.status()} == {"notes[1].title", "notes[1].text", "notes[1].labels[1]"}
    state.commit()
    assert Versioned(store)["notes"] == [Memo("a", ["old"]), Memo("c", ["x", "old"])]
