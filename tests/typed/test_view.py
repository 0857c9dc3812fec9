"""``typed``: a state with the attributes of a class."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

import attrs
import pydantic
import pytest

from versioned_state import Live, Memory, Versioned, errors
from versioned_state.state.state import State


class Mood(enum.Enum):
    CALM = "calm"


class Talking:
    messages: list[str]

    def say(self, text: str) -> int:
        self.messages.append(text)
        return len(self.messages)

    @property
    def last(self) -> str:
        return self.messages[-1]

    @last.setter
    def last(self, text: str) -> None:
        self.messages[-1] = text


@dataclass
class Plain(Talking):
    goal: str
    messages: list[str] = field(default_factory=list)
    step: int = 3
    mood: Mood = Mood.CALM
    limit: ClassVar[int] = 7


class Model(Talking, pydantic.BaseModel):
    goal: str
    messages: list[str] = []
    step: int = 3
    mood: Mood = Mood.CALM
    limit: ClassVar[int] = 7


@attrs.define
class Attrs(Talking):
    goal: str
    messages: list[str] = attrs.field(factory=list)
    step: int = 3
    mood: Mood = Mood.CALM
    limit: ClassVar[int] = 7


@dataclass(frozen=True)
class Frozen:
    goal: str = "none"


class Keys(TypedDict):
    goal: str
    step: int


@pytest.fixture(params=["versioned", "live", "namespace"])
def state(request) -> State:
    made: dict[str, State] = {"versioned": Versioned(), "live": Live(), "namespace": Versioned().namespace("part")}
    return made[request.param]


@pytest.mark.parametrize("model", [Plain, Model, Attrs])
def test_fields_are_the_keys_of_the_state(state, model: Any):
    app = state.typed(model)
    with pytest.raises(AttributeError, match=r"no key 'goal', and \w+\.goal has no default"):
        app.goal  # noqa: B018
    app.goal = "Rome"
    assert state["goal"] == app.goal == "Rome"
    state["goal"] = "Oslo"
    assert app.goal == "Oslo"
    del app.goal
    assert "goal" not in state
    with pytest.raises(AttributeError, match="no key 'goal'"):
        del app.goal


@pytest.mark.parametrize("model", [Plain, Model, Attrs])
def test_a_default_that_can_change_in_place_is_put_into_the_state_and_another_one_is_not(state, model: Any):
    app = state.typed(model)
    assert (app.step, app.mood, app.limit) == (3, Mood.CALM, 7)
    assert list(state) == []
    app.messages.append("hi")
    assert state["messages"] == ["hi"]
    assert state.typed(model).messages is app.messages
    assert type(app).__slots__
    other = Versioned().typed(model)
    assert other.messages == []  # each state has its own


@pytest.mark.parametrize("model", [Plain, Model, Attrs])
def test_methods_and_properties_work_on_the_state(state, model: Any):
    app = state.typed(model)
    assert app.say("hi") == 1
    assert app.say("ho") == 2
    assert app.last == "ho"
    assert state["messages"] == ["hi", "ho"]


def test_a_property_with_a_setter_sets(state):
    app = state.typed(Plain)
    app.say("hi")
    app.last = "ho"
    assert state["messages"] == ["ho"]


@pytest.mark.parametrize("model", [Plain, Model, Attrs])
def test_a_name_that_is_no_field_is_refused(state, model: Any):
    app = state.typed(model)
    with pytest.raises(AttributeError, match="has no field 'mesages', did you mean 'messages'"):
        app.mesages = []
    with pytest.raises(AttributeError, match="has no field 'mesages'"):
        app.mesages  # noqa: B018
    for name in ("limit", "say", "model_dump_", "__wrapped__"):
        with pytest.raises(AttributeError):
            setattr(app, name, 1)
    assert list(state) == []
    assert "messages" in dir(app)


def test_what_pydantic_does_itself_needs_an_instance():
    with pytest.raises(AttributeError, match="model_dump"):
        Versioned().typed(Model).model_dump()


def test_a_frozen_class_is_read_only():
    state = Versioned()
    state["goal"] = "Rome"
    with pytest.raises(AttributeError, match="Frozen is frozen"):
        state.typed(Frozen).goal = "Oslo"  # type: ignore[misc]
    assert state.typed(Frozen) == Frozen("Rome")


def test_a_typed_dict_is_the_state_itself(state):
    assert state.typed(Keys) is state
    state.typed(Keys)["goal"] = "Rome"
    assert state["goal"] == "Rome"


def test_a_snapshot_is_read_only_and_a_default_is_not_written():
    state = Versioned()
    state["goal"] = "Rome"
    past = state.checkout(state.commit()).typed(Plain)
    assert (past.goal, past.messages) == ("Rome", [])
    with pytest.raises(errors.ReadOnlyError):
        past.goal = "Oslo"


def test_views_follow_the_head_and_changes_in_place_are_committed():
    state = Versioned(Memory())
    app = state.typed(Plain)
    app.goal = "Rome"
    app.say("hi")
    first = state.commit()
    app.say("ho")
    assert str(state.status()) == "+ messages[1] = 'ho'"
    state.commit()
    state.reset(first)
    assert app.messages == ["hi"]
    state.close()
    with pytest.raises(errors.HandleClosedError):
        app.goal  # noqa: B018


@pytest.mark.parametrize("wrong", [int, dict, "Plain", None, Plain("x"), list[int]])
def test_other_classes_are_refused(wrong: Any):
    with pytest.raises(errors.InvalidArgumentError, match="typed\\(\\) takes a dataclass"):
        Versioned().typed(wrong)


def test_a_view_is_equal_by_its_fields_and_is_not_copied_or_stored():
    state = Versioned()
    app = state.typed(Plain)
    app.goal = "Rome"
    assert app == Plain("Rome")
    assert app != Plain("Oslo")
    assert app == state.typed(Plain)
    with pytest.raises(TypeError):
        hash(app)
    with pytest.raises(TypeError, match="cannot be copied or stored: make a Plain"):
        copy.deepcopy(app)
    state["app"] = app
    with pytest.raises(errors.UnserializableValueError, match="app"):
        state.commit()
    assert repr(app).startswith("<Plain over <Versioned")
