"""Parametrised models of pydantic come back as the class that they were, also where nothing has made that class yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from versioned_state import Memory, Repository, Tagged, Versioned

NAME = "an_application_of_generics"
SOURCE = """
from typing import Any, Generic, TypeVar
import pydantic

T = TypeVar("T")
U = TypeVar("U")
RAN = []


class Holder(pydantic.BaseModel, Generic[T]):
    held: T


class Two(pydantic.BaseModel, Generic[T, U]):
    a: T
    b: U


class Watched(pydantic.BaseModel, Generic[T]):
    held: T

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        RAN.append(cls.__name__)
"""


def load() -> Any:
    module: Any = ModuleType(NAME)
    sys.modules[NAME] = module
    exec(SOURCE, module.__dict__)
    return module


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def values(app: Any) -> list[Any]:
    return [
        app.Holder[int](held=1),
        app.Holder[app.Holder[str]](held=app.Holder[str](held="x")),
        app.Two[int, app.Holder[int]](a=1, b=app.Holder[int](held=2)),
        app.Holder(held=3),
    ]


def test_they_come_back_as_they_were_in_this_program_and_in_another():
    store = Memory()
    app = load()
    state = Versioned(store)
    state["values"] = [*values(app), app.Holder[list[int]](held=[1])]
    state.commit()
    read = Versioned(Repository(store))
    assert [type(value) for value in read["values"]] == [type(value) for value in state["values"]]
    assert not read.status()
    again = load()
    fresh = Versioned(Repository(store))["values"]
    assert [type(value) for value in fresh[:4]] == [type(value) for value in values(again)]
    assert fresh[4] == Tagged(f"{NAME}:Holder[list[int]]", {"held": [1]}), "no class is made of code in a name"


def test_no_code_of_the_class_runs_to_make_one():
    store = Memory()
    app = load()
    state = Versioned(store)
    state["value"] = app.Watched[int](held=1)
    state.commit()
    again = load()
    assert type(Versioned(Repository(store))["value"]) is Tagged
    assert again.RAN == []
    made = again.Watched[int]
    assert type(Versioned(Repository(store))["value"]) is made
