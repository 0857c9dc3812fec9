"""A diff of typed values says all: applied to the state before, it gives the very state after."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict

from versioned_state import Tagged, Versioned
from versioned_state.storage import Memory


class Settings(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str = "n"
    size: int = 0
    _hits: int = 0


class History(list[Any]):
    title: str = ""


def _model_of_defaults(state: Versioned) -> None:
    state["x"].size = 5  # which makes it a field that was given


def _extra_field(state: Versioned) -> None:
    state["x"].more = [1]
    state["x"].name = "other"


def _private_attribute(state: Versioned) -> None:
    state["x"]._hits = 3  # which gives no field


def _attribute_and_element(state: Versioned) -> None:
    state["y"].append(4)
    state["y"].title = "renamed"


def _attribute(state: Versioned) -> None:
    state["y"].title = "renamed"


def _most_elements(state: Versioned) -> None:
    state["z"] = deque([1, 2, 3], maxlen=9)


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        (_model_of_defaults, ["x.size"]),
        (_extra_field, ["x.name", "x.more"]),
        (_private_attribute, ["x._hits"]),
        (_attribute_and_element, ["y"]),
        (_attribute, ["y"]),
        (_most_elements, ["z"]),
    ],
)
def test_a_patch_gives_the_very_state(change: Callable[[Versioned], None], paths: list[str]):
    state = Versioned()
    state["x"], state["y"], state["z"] = Settings(name="given"), History([1, 2, 3]), deque([1, 2], maxlen=5)
    state["y"].title = "before"
    before = state.commit()
    change(state)
    after = state.commit()
    patch = state.diff(before, after)
    assert [str(each.path) for each in patch] == paths
    other = state.fork("other", at=before)
    held = other["x"]
    other.apply(patch)
    assert other.commit().root == after.root
    assert other["x"] is held
    assert held.model_fields_set == state["x"].model_fields_set


def test_a_patch_is_exact_where_the_class_is_not_at_hand():
    store = Memory()
    state = Versioned(store)
    state["x"] = Settings.model_validate({"name": "given", "more": 1})
    before = state.commit()
    state["x"].size = 5
    state["x"]._hits = 2
    after = state.commit()
    other = Versioned(store, branch="main", pickle="refuse").fork("other", at=before)
    assert type(other["x"]) is Tagged
    other.apply(state.diff(before, after).to_patch())
    assert other.commit().root == after.root


@dataclass
class _Beside:
    model: Any


class Given(pydantic.BaseModel):
    a: Any = 1
    b: Any = None
    _seen: int = 0


class GivenMore(pydantic.BaseModel):
    model_config = {"extra": "allow"}
    a: Any = 1
    b: Any = None


MODELS = [
    Given,
    lambda: Given(a=1),
    lambda: Given(a=2),
    lambda: Given(b=None),
    lambda: Given(a=1, b=[1]),
    lambda: Given.model_construct(_fields_set=set(), a=5, b=[2]),
]
MORE = [
    GivenMore,
    lambda: GivenMore.model_validate({"c": 1}),
    lambda: GivenMore.model_validate({"a": 1, "c": 2, "d": 3}),
    lambda: GivenMore(a=1, b=2),
]


@pytest.mark.parametrize("place", ["alone", "in a list", "in a dataclass"])
@pytest.mark.parametrize("kinds", [MODELS, MORE])
def test_a_patch_brings_the_fields_that_a_model_was_given(kinds: list[Any], place: str):
    put = {"alone": lambda m: m, "in a list": lambda m: [0, m], "in a dataclass": _Beside}[place]
    for old, new in product(kinds, kinds):
        state = Versioned()
        state["p"] = put(new())
        wanted = state.commit("new", allow_empty=True)
        state["p"] = put(old())
        held = state.commit("old", allow_empty=True)
        state.apply(state.diff(held, wanted))
        assert state.commit("applied", allow_empty=True).root == wanted.root
        state.reset(held)
        state.apply(json.loads(json.dumps(state.diff(held, wanted).to_patch())))
        assert state.commit("applied", allow_empty=True).root == wanted.root
