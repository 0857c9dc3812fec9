"""Odd pydantic models: without the slots of others, with extra fields that their class does not allow, shared."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from versioned_state import Memory, Repository, Versioned


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Strict(pydantic.BaseModel):
    number: int = 0


class Part:
    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.code = lambda number: number + 1  # pickled as a whole, and in another way after it was read


@pytest.fixture
def state() -> Versioned:
    return Versioned(Repository(Memory()))


def test_a_root_model_is_data(state: Versioned):
    state["numbers"] = numbers = Numbers([1, 2])
    state.commit()
    numbers.root.append(3)
    assert [str(change.path) for change in state.status()] == ["numbers.root[2]"]
    state.discard()
    assert state["numbers"] is numbers
    assert Versioned(state.repository)["numbers"] == numbers == Numbers([1, 2])


def test_extra_fields_that_only_one_validation_allowed_are_watched(state: Versioned):
    state["all"] = models = [Strict.model_validate({"number": n, "more": [n]}, extra="allow") for n in range(100)]
    state.commit()
    assert Versioned(state.repository)["all"] == models
    assert models[7].__pydantic_extra__ is not None
    models[7].__pydantic_extra__["more"].append(1)
    models[8].__pydantic_extra__["new"] = 1  # type: ignore[index]
    assert [str(change.path) for change in state.status()] == ["all[7].more[1]", "all[8].new", "all[8]"]


def test_what_is_an_object_because_it_contains_itself_is_not_changed_by_reading_it(state: Versioned):
    state["part"] = part = Part(None)
    part.whole = part
    state.commit()
    fresh = Versioned(state.repository)
    assert fresh["part"].whole is fresh["part"]
    assert not fresh.status()
    fresh["part"].more = 1
    assert [str(change.path) for change in fresh.status()] == ["part"]


class Wide(pydantic.BaseModel):
    a: int | None = None
    an_empty_list_of_what_it_did_not_use: list[str] = []
    another_thing_that_nobody_gave: str | None = None
    text: str


@pytest.mark.parametrize("text", ["Rain.", "It rains in Rome. " * 9])
def test_a_line_shows_the_fields_that_are_not_empty_first(state: Versioned, text: str):
    state["wide"] = Wide(text=text)
    assert f"Wide(text='{text[:50]}" in str(state.status()[0])
