"""Errors of calls that give a task its arguments in the wrong way."""

from __future__ import annotations

from typing import Any

import pytest

from versioned_state import Versioned, task
from versioned_state.errors import InvalidArgumentError


@task
def book(city: str, state: Any) -> str:
    state["city"] = city
    return city


def test_a_state_by_position_says_how_it_is_given():
    state = Versioned()
    call: Any = book
    with pytest.raises(TypeError, match=r"book\(\): .*keyword: state="):
        call("Rome", state)
    assert not state
    assert book("Rome", state=state) == "Rome"


def test_the_commit_of_an_event_without_one():
    state = Versioned()
    none: Any = None
    with pytest.raises(InvalidArgumentError) as raised:
        state.checkout(none)
    assert "commit_hash" in raised.value.hint
