"""``StateModule``: what is state, ``state_dict``, and registration."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import threading
import weakref
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from tests.support.modules import Agent, Memory, Message, ObjectMemory, Toolkit
from versioned_state.agents import modules
from versioned_state.agents.modules import StateModule
from versioned_state.errors import InvalidArgumentError, LimitExceededError, StateError


class ClassA(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.cnt = 123
        self.register_state("cnt")


class ClassB(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.a = ClassA()
        self.c = "Hello, world!"
        self.register_state("c")


def test_the_package_has_four_names():
    assert modules.__all__ == ["JSONSession", "SessionBase", "StateModule", "VersionedSession"]
    assert all(getattr(modules, name).__doc__ for name in modules.__all__)


def test_modules_among_the_attributes_are_state_and_others_if_they_are_registered():
    b = ClassB()
    b.other = [1]
    assert b.state_dict() == {"a": {"cnt": 123}, "c": "Hello, world!"}
    assert list(b.state_dict()) == ["a", "c"], "nested modules first, then attributes"
    assert b.a.state_dict() == {"cnt": 123}


def test_functions_say_how_an_attribute_becomes_json_and_back():
    class Holder(StateModule):
        def __init__(self) -> None:
            super().__init__()
            self.message: Any = Message("hi")
            self.register_state("message", lambda message: {"text": message.text}, lambda data: Message(data["text"]))
            self.when = {1, 2}
            self.register_state("when", custom_to_json=sorted)

    holder: Any = Holder()
    assert holder.state_dict() == {"message": {"text": "hi"}, "when": [1, 2]}
    holder.load_state_dict({"message": {"text": "there"}, "when": [3]})
    assert (holder.message.text, holder.when) == ("there", [3])


# What is refused


def test_a_module_before_the_constructor_of_the_base():
    class Early(StateModule):
        def __init__(self) -> None:
            self.plain = 1
            self.a = ClassA()
            super().__init__()

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) in Early.__init__ before setting 'a'"):
        Early()


def test_a_class_that_forgets_the_constructor_of_the_base():
    class Forgetful(StateModule):
        def __init__(self) -> None:
            self.x = 1

    module = Forgetful()
    for call in (lambda: module.register_state("x"), module.state_dict, lambda: module.load_state_dict({})):
        with pytest.raises(AttributeError, match=r"super\(\).__init__\(\) in Forgetful"):
            call()
    del module.x
    assert not hasattr(module, "x")


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("value", [object(), {1}, b"x", [Message("x")], {"a": {"b": object()}}, {(1, 2): 3}, CIRCLE])
def test_registering_what_json_cannot_hold(value):
    a: Any = ClassA()
    a.x = value
    with pytest.raises(TypeError, match="cannot store x") as caught:
        a.register_state("x")
    assert isinstance(caught.value, StateError)
    assert "custom_to_json" in caught.value.hint
    assert a.state_dict() == {"cnt": 123}
    a.register_state("x", custom_to_json=str)
    assert isinstance(a.state_dict()["x"], str)


def test_registering_an_attribute_that_is_not_there():
    with pytest.raises(AttributeError, match="nothing"):
        ClassA().register_state("nothing")


def test_registering_a_module():
    b = ClassB()
    with pytest.raises(TypeError):  # JSON cannot hold it
        b.register_state("a")
    with pytest.raises(ValueError, match="'a' is a module"):
        b.register_state("a", custom_to_json=str)
    assert b.state_dict() == {"a": {"cnt": 123}, "c": "Hello, world!"}


# Attributes that come, change and go


def test_a_deleted_attribute_is_no_state_any_more():
    b = ClassB()
    del b.a
    del b.c
    assert b.state_dict() == {}
    with pytest.raises(AttributeError):
        del b.c
    b.c = "again"
    assert b.state_dict() == {}, "it is to be registered anew"


def test_an_attribute_that_was_a_module_and_is_none_now():
    """With agentscope a strict load then asks for its key, and changes the old module."""
    b: Any = ClassB()
    old = b.a
    b.a = None
    assert b.state_dict() == {"c": "Hello, world!"}
    b.load_state_dict({"c": "x", "a": {"cnt": 1}})
    assert (b.a, old.cnt) == (None, 123)
    b.a = ClassA()
    assert b.state_dict()["a"] == {"cnt": 123}


def test_a_registered_attribute_that_becomes_a_module_and_no_module_again():
    class Slot(StateModule):
        def __init__(self) -> None:
            super().__init__()
            self.tool = None
            self.register_state("tool")

    slot: Any = Slot()
    slot.tool = ClassA()
    assert slot.state_dict() == {"tool": {"cnt": 123}}
    slot.load_state_dict({"tool": {"cnt": 5}})
    assert slot.tool.cnt == 5
    slot.tool = None
    assert slot.state_dict() == {"tool": None}


def test_functions_stay_in_force_if_their_attribute_becomes_a_module():
    class Chosen(StateModule):
        def __init__(self) -> None:
            super().__init__()
            self.tool: Any = None
            self.register_state("tool", lambda tool: tool and tool.cnt, lambda count: count)

    chosen = Chosen()
    chosen.tool = ClassA()
    assert chosen.state_dict() == {"tool": 123}


def test_a_registered_attribute_that_is_gone_is_an_error():
    a = ClassA()
    del vars(a)["cnt"]
    with pytest.raises(AttributeError, match="cnt"):
        a.state_dict()


def test_the_constructor_of_the_base_may_run_twice():
    b = ClassB()
    StateModule.__init__(b)
    assert b.state_dict() == {"a": {"cnt": 123}, "c": "Hello, world!"}


# Classes of every kind


def test_properties_slots_and_a_setattr_of_its_own():
    class Odd(StateModule):
        __slots__ = ("slot",)

        def __init__(self) -> None:
            super().__init__()
            self.slot = [1]
            self._level = 1
            self.names: list[str] = []
            for name in ("slot", "level", "lazy"):
                self.register_state(name)

        @property
        def level(self) -> int:
            return self._level

        @level.setter
        def level(self, value: int) -> None:
            self._level = value * 10

        @functools.cached_property
        def lazy(self) -> str:
            return "made"

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if "names" in vars(self):
                self.names.append(name)

    odd = Odd()
    assert odd.state_dict() == {"slot": [1], "level": 1, "lazy": "made"}
    odd.load_state_dict({"slot": [2], "level": 3, "lazy": "loaded"})
    assert (odd.slot, odd.level, odd.lazy) == ([2], 30, "loaded")
    assert {"slot", "level", "_level", "lazy"} <= set(odd.names), "each went through its __setattr__"


def test_a_module_that_is_set_through_a_property():
    class Proxy(StateModule):
        @property
        def inner(self) -> Any:
            return self._inner

        @inner.setter
        def inner(self, value: Any) -> None:
            self._inner = value

    proxy = Proxy()
    proxy.inner = ClassA()
    assert proxy.state_dict() == {"inner": {"cnt": 123}, "_inner": {"cnt": 123}}
    proxy.load_state_dict({"inner": {"cnt": 1}, "_inner": {"cnt": 1}})
    assert proxy.inner.cnt == 1


def test_a_getattr_that_passes_names_on_does_not_run_before_the_constructor():
    class Passing(StateModule):
        def __init__(self, inner: Any) -> None:
            self.plain = 1  # __getattr__ would not find "inner" yet, and ask for it without end
            super().__init__()
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    passing = Passing(ClassA())
    assert passing.cnt == 123
    assert passing.state_dict() == {"inner": {"cnt": 123}}


def test_a_class_with_another_base():
    class Base:
        def __init__(self) -> None:
            self.kept = True

    class Both(StateModule, Base):
        def __init__(self) -> None:
            StateModule.__init__(self)
            Base.__init__(self)
            self.a = ClassA()

    assert Both().kept
    assert Both().state_dict() == {"a": {"cnt": 123}}


def test_copies_and_pickles_are_modules_of_their_own():
    for twin in (copy.deepcopy(Agent("F", [1])), pickle.loads(pickle.dumps(Agent("F", [1])))):
        assert twin.state_dict() == {"memory": {"content": [1]}, "name": "F"}
        twin.load_state_dict({"memory": {"content": [2]}, "name": "G"})
        assert twin.memory.content == [2]


def test_an_override_converts_the_state_that_the_base_gives():
    memory = ObjectMemory()
    memory.content.append(Message("hi"))
    agent = Agent()
    agent.memory = memory
    assert agent.state_dict() == {"memory": {"content": [{"text": "hi"}]}, "name": "Friday"}
    assert StateModule.state_dict(memory)["content"] == memory.content, "what JSON cannot hold is the same object"


def test_an_override_that_wraps_the_base_is_asked():
    class Wrapping(Memory):
        def state_dict(self) -> dict[str, Any]:
            return {"wrapped": super().state_dict()}

        def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
            super().load_state_dict(state_dict["wrapped"], strict)

    for name in ("state_dict", "load_state_dict"):  # as functools.wraps does
        functools.update_wrapper(getattr(Wrapping, name), getattr(StateModule, name))
    agent = Agent()
    agent.memory = Wrapping([1])
    state = agent.state_dict()
    assert state["memory"] == {"wrapped": {"content": [1]}}
    agent.memory.content = []
    agent.load_state_dict(state)
    assert agent.memory.content == [1]


def test_a_module_of_another_library_with_the_same_methods_is_state_too():
    class Foreign:
        def __init__(self) -> None:
            self.count = 1

        def register_state(self, attr_name: str) -> None: ...

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
            self.count = state_dict["count"]

    agent = Agent()
    agent.tools = Foreign()
    assert agent.state_dict()["tools"] == {"count": 1}
    agent.load_state_dict({"memory": {"content": []}, "name": "F", "tools": {"count": 7}})
    assert agent.tools.count == 7


# Nothing is shared


class Point(NamedTuple):
    x: Any
    y: Any


def test_a_state_shares_no_container_with_its_module():
    values = {
        "list": [[1], {"a": [2]}],
        "ordered": OrderedDict(a=[1]),
        "default": defaultdict(list, a=[1]),
        "tuple": ([1], 2),
        "point": Point([1], [2]),
        "own": type("Own", (list,), {})([[1]]),
    }
    a: Any = ClassA()
    for name, value in values.items():
        setattr(a, name, value)
        a.register_state(name)
    before = copy.deepcopy(values)
    state = a.state_dict()
    assert {name: type(state[name]) for name in values} == {name: type(value) for name, value in values.items()}
    change_all(state)
    assert values == before

    given = copy.deepcopy(before)
    a.load_state_dict({"cnt": 1, **given})
    change_all(given)
    assert {name: getattr(a, name) for name in values} == before


def change_all(value: Any) -> None:
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list | tuple):
            change_all(part)
    if isinstance(value, list):
        value.append("changed")
    elif isinstance(value, dict):
        value["changed"] = True


def test_what_a_function_returns_is_not_shared_either():
    a: Any = ClassA()
    a.items = [1]
    a.register_state("items", custom_to_json=lambda items: items, custom_from_json=lambda items: items)
    a.state_dict()["items"].append(2)
    given = [5]
    assert a.items == [1]
    a.load_state_dict({"cnt": 1, "items": given})
    given.append(6)
    assert a.items == [5]


def test_what_an_override_returns_is_not_shared_either():
    class Aliased(StateModule):
        def __init__(self) -> None:
            super().__init__()
            self.items = [1]

        def state_dict(self) -> dict[str, Any]:
            return {"items": self.items}

    agent = Agent()
    agent.aliased = Aliased()
    agent.state_dict()["aliased"]["items"].append(2)
    assert agent.aliased.items == [1]


JSON: Any = st.sampled_from([None, True, 0, -1.5, "", "é\ud800", [], {}, [1, ["a"]], {"": {"x": [None]}}, [[], {}]])

TREES = st.recursive(
    JSON, lambda inner: st.dictionaries(st.sampled_from(["ma", "mb", "mc"]), inner, min_size=1), max_leaves=8
)


@given(TREES)
def test_any_tree_of_modules_comes_back_from_json(tree):
    def build(value: Any, *, empty: bool) -> StateModule:
        module = StateModule()
        for name, part in value.items():
            if isinstance(part, dict) and any(key.startswith("m") for key in part):
                setattr(module, name, build(part, empty=empty))
            else:
                setattr(module, name, None if empty else part)
                module.register_state(name)
        return module

    whole = {"ma": tree, "mb": tree}
    state = build(whole, empty=False).state_dict()
    assert state == whole
    other = build(whole, empty=True)
    other.load_state_dict(json.loads(json.dumps(state)))
    assert other.state_dict() == whole


# Depth, circles, threads


def chain(length: int) -> Any:
    first = last = Agent("0")
    for _ in range(length):
        last.next = Agent("0")
        last = last.next
    return first


def test_a_chain_of_modules_is_as_long_as_one_likes():
    agent = chain(3_000)
    state = agent.state_dict()
    depth, inner = 0, state
    while "next" in inner:
        inner = inner["next"]
        depth += 1
    assert depth == 3_000
    inner["name"] = "last"
    agent.load_state_dict(state)
    while hasattr(agent, "next"):
        agent = agent.next
    assert agent.name == "last"


@pytest.mark.parametrize("middle", [Agent, Toolkit, ObjectMemory])
def test_a_module_that_contains_itself(middle):
    a, b = Agent(), middle()
    a.b = b
    b.parent = a
    if middle is Toolkit:  # says itself what its state is, and leaves the parent out
        assert a.state_dict()["b"] == {"active_groups": []}
        return
    for module in (a, b):
        with pytest.raises(InvalidArgumentError, match="contains itself") as caught:
            module.state_dict()
        assert "weakref" in caught.value.hint
    b.parent = weakref.ref(a)
    assert "b" in a.state_dict()


def test_a_module_at_two_places_is_no_circle():
    agent = Agent()
    agent.other = agent.memory
    assert agent.state_dict() == {"memory": {"content": []}, "other": {"content": []}, "name": "Friday"}


def test_a_value_that_holds_itself_or_is_too_deep():
    memory = Memory()
    memory.content.append(memory.content)
    with pytest.raises(LimitExceededError, match="hold itself"):
        memory.state_dict()
    value: Any = []
    for _ in range(3_000):
        value = [value]
    with pytest.raises(LimitExceededError):
        memory.load_state_dict({"content": value})
    assert memory.content[0] is memory.content, "nothing was changed"


def test_modules_may_come_and_go_while_another_thread_takes_the_state():
    agent = Agent()
    stop = threading.Event()
    failures: list[BaseException] = []

    def change() -> None:
        try:
            while not stop.is_set():
                for number in range(20):
                    setattr(agent, f"m{number}", Memory())
                for number in range(20):
                    delattr(agent, f"m{number}")
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            assert agent.state_dict()["name"] == "Friday"
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_functions_are_checked_when_they_are_registered():
    async def later(value: Any) -> Any:
        return value

    module = Memory()
    for wrong in (3, later):
        with pytest.raises(InvalidArgumentError, match="custom_to_json"):
            module.register_state("content", wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="custom_from_json"):
            module.register_state("content", None, wrong)  # type: ignore[arg-type]
    module.register_state("content", list, tuple)
