"""``load_state_dict``: strict or not, and all or nothing whatever fails."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.support.interrupts import Interrupt, Trace
from tests.support.modules import Agent, Memory, Message, ObjectMemory, Toolkit
from versioned_state.agents.modules import StateModule
from versioned_state.errors import StateError


def agent_with_everything() -> Agent:
    """An agent whose modules take on a state in every way there is."""
    agent = Agent("before", ["before"])
    agent.objects = ObjectMemory()
    agent.objects.content.append(Message("before"))
    agent.toolkit = Toolkit(search=True, write=False)
    agent.picky = Picky()
    return agent


class Picky(StateModule):
    """Has a property that refuses some values, and changes another attribute when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []
        self._level = 1
        self.first = "before"
        for name in ("first", "level"):
            self.register_state(name)

    @property
    def level(self) -> int:
        return self._level

    @level.setter
    def level(self, value: int) -> None:
        self.log.append(value)
        if value < 0:
            raise ValueError("a level is not negative")
        self._level = value


def everything(name: str = "after", level: int = 5, **others: Any) -> dict[str, Any]:
    return {
        "memory": {"content": [name]},
        "objects": {"content": [{"text": name}]},
        "toolkit": {"active_groups": ["write"]},
        "picky": {"first": name, "level": level},
        "name": name,
        **others,
    }


def shown(agent: Agent) -> Any:
    return (
        agent.state_dict(),
        [message.text for message in agent.objects.content],
        agent.toolkit.groups,
        vars(agent.picky)["_level"],
    )


def test_everything_is_loaded():
    agent = agent_with_everything()
    agent.load_state_dict(everything())
    assert agent.state_dict() == everything()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": None}, None),
        ({"picky": {"first": "after", "level": -1}}, ValueError),
        ({"toolkit": {"active_groups": [], "more": 1}}, ValueError),
        ({"objects": {"content": [{"text": "after"}, {}]}}, KeyError),
        ({"objects": {}}, KeyError),
        ({"memory": {}}, KeyError),
        ({"memory": [1]}, ValueError),
        ({"memory": None}, ValueError),
        ({"memory": "content"}, ValueError),
        ({"toolkit": 5}, TypeError),
    ],
)
@pytest.mark.parametrize("order", [list, reversed])
def test_a_load_that_fails_changes_nothing(change, error, order):
    agent = agent_with_everything()
    for key in order(tuple(vars(agent)["_module_dict"])):  # whatever comes first
        vars(agent)["_module_dict"][key] = vars(agent)["_module_dict"].pop(key)
    before = shown(agent)
    held = agent.memory.content, agent.objects.content, agent.objects.content[0], agent.toolkit.groups, agent.picky.log
    if error is None:
        agent.load_state_dict(everything(**change))
        return
    with pytest.raises(error):
        agent.load_state_dict(everything(**change))
    assert shown(agent) == before
    now = agent.memory.content, agent.objects.content, agent.objects.content[0], agent.toolkit.groups, agent.picky.log
    assert all(a is b for a, b in zip(held[:4], now[:4], strict=True)), "not even references are new"
    agent.load_state_dict(everything())
    assert agent.state_dict() == everything()


def test_a_function_that_fails_changes_nothing():
    agent = agent_with_everything()
    agent.when = 1
    agent.register_state("when", custom_from_json=lambda text: 1 / text)
    before = shown(agent)
    with pytest.raises(ZeroDivisionError):
        agent.load_state_dict(everything(when=0))
    assert shown(agent) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_override_that_is_interrupted_changes_nothing(error):
    class Interrupted(ObjectMemory):
        def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
            self.content.clear()
            self.half = True
            if state_dict["content"] != []:
                raise error

    agent = agent_with_everything()
    agent.last = Interrupted()
    agent.last.content.append(Message("kept"))
    before = shown(agent)
    content = agent.last.content
    with pytest.raises(error):
        agent.load_state_dict(everything(last={"content": [{"text": "after"}]}))
    assert shown(agent) == before
    assert agent.last.content is content
    assert [message.text for message in content] == ["kept"]
    assert not hasattr(agent.last, "half")


def test_a_module_that_cannot_be_given_its_state_back_is_told():
    class OneWay(Toolkit):
        def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
            if state_dict["active_groups"] == ["a"]:
                raise RuntimeError("never again")
            super().load_state_dict(state_dict)

    agent = Agent()
    agent.tools = OneWay(a=True)
    agent.objects = ObjectMemory()
    with pytest.raises(KeyError) as caught:
        agent.load_state_dict({"tools": {"active_groups": []}, "objects": {}, "memory": {"content": []}, "name": "x"})
    assert any("never again" in note for note in caught.value.__notes__)


# Strict


@pytest.mark.parametrize("missing", [["name"], ["memory"], ["memory", "content"], ["picky", "first"]])
def test_a_key_that_is_missing(missing):
    agent = agent_with_everything()
    before = shown(agent)
    state = everything()
    inner = state
    for key in missing[:-1]:
        inner = inner[key]
    del inner[missing[-1]]
    with pytest.raises(KeyError, match=".".join(missing)) as caught:
        agent.load_state_dict(state)
    assert isinstance(caught.value, StateError)
    assert "strict=False" in caught.value.hint
    assert shown(agent) == before
    agent.load_state_dict(state, strict=False)
    assert agent.picky.level == 5
    assert shown(agent) != before


def test_not_strict_reaches_nested_modules_and_those_that_load_themselves():
    """With agentscope nested modules are always strict."""
    agent = agent_with_everything()
    agent.load_state_dict({"objects": {}, "memory": {}, "picky": {"level": 9}}, strict=False)
    assert (agent.objects.content, agent.memory.content, agent.picky.first, agent.picky.level) == (
        [],
        ["before"],
        "before",
        9,
    )


def test_an_override_that_takes_nothing_but_the_state():
    class Plain(StateModule):
        def load_state_dict(self, state_dict: Any) -> None:  # type: ignore[override]
            self.loaded = state_dict

    agent = Agent()
    agent.plain = Plain()
    for strict in (True, False):
        agent.load_state_dict({"plain": {"a": strict}, "memory": {"content": []}, "name": "x"}, strict=strict)
        assert agent.plain.loaded == {"a": strict}


def test_keys_that_a_module_does_not_have_are_ignored():
    agent = Agent()
    agent.load_state_dict({"memory": {"content": [1], "more": 1}, "name": "x", "gone": {"a": 1}})
    assert (agent.memory.content, agent.name, hasattr(agent, "gone")) == ([1], "x", False)


def test_an_override_may_call_the_base():
    class Converting(StateModule):
        def __init__(self) -> None:
            super().__init__()
            self.memory = Memory()
            self.tags = {"a"}
            self.register_state("tags", sorted)

        def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
            super().load_state_dict(state_dict, strict)
            self.tags = set(self.tags)

    module = Converting()
    module.load_state_dict({"memory": {"content": [1]}, "tags": ["x"]})
    assert (module.memory.content, module.tags) == ([1], {"x"})
    with pytest.raises(KeyError):
        module.load_state_dict({"tags": []})
    assert module.tags == {"x"}


def test_nested_modules_are_loaded_before_what_is_around_them():
    order = []

    class Told(StateModule):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.called = name
            self.x = 0
            self.register_state("x")

        def __setattr__(self, key: str, value: Any) -> None:
            super().__setattr__(key, value)
            if key == "x":
                order.append(self.called)

    outer: Any = Told("outer")
    outer.a, outer.b = Told("a"), Told("b")
    outer.a.inner = Told("inner")
    order.clear()
    outer.load_state_dict({"x": 1, "b": {"x": 1}, "a": {"x": 1, "inner": {"x": 1}}})
    assert order == ["inner", "a", "b", "outer"]

    chain: Any = Told("250")
    for number in range(249, -1, -1):
        inner, chain = chain, Told(str(number))
        chain.inner = inner
    order.clear()
    chain.load_state_dict(chain.state_dict())
    assert order == [str(number) for number in range(250, -1, -1)], "at any depth"


def test_a_state_that_is_no_dict_names_the_module():
    with pytest.raises(ValueError, match=r"memory must be a dict, not list"):
        Agent().load_state_dict({"memory": [], "name": ""})
    with pytest.raises(ValueError, match=r"Agent must be a dict, not NoneType"):
        Agent().load_state_dict(None)  # type: ignore[arg-type]


# Interrupts


@pytest.mark.parametrize("make", [agent_with_everything, lambda: Agent("before", ["before"])])
def test_an_interrupted_load_happens_or_does_not(make, long_run):
    probe = Trace()
    agent = make()
    state = everything() if hasattr(agent, "objects") else {"memory": {"content": ["after"]}, "name": "after"}
    probe.run(lambda: agent.load_state_dict(state))
    after = agent.state_dict()
    for at in range(1, probe.count + 1, 1 if long_run else 7):
        agent = make()
        before = agent.state_dict()
        trace = Trace(at)
        with pytest.raises(Interrupt):
            trace.run(partial(agent.load_state_dict, state))
        assert agent.state_dict() in (before, after), trace.hit
        agent.load_state_dict(state)
        assert agent.state_dict() == after
