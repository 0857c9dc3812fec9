"""``classes=`` makes values of the classes of trusted modules instances.

Also: ``register_module``, ``is_data`` and ``explain``.
"""

from __future__ import annotations

import collections
import json
import json.tool
import sys
import threading
import types
from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest

import versioned_state
from tests.support.processes import run
from tests.support.stores import SharedMemory
from versioned_state import Memory, Repository, Tagged, Versioned, explain, is_data, register_module
from versioned_state.errors import InvalidArgumentError, PickleRefusedError
from versioned_state.values.codec.trust import TrustedClasses


@dataclass
class Message:
    text: str


class Odd:
    def __reduce__(self) -> Any:
        return Odd, ()


HERE = __name__


@pytest.fixture
def store() -> SharedMemory:
    store = SharedMemory()
    state = Versioned(store)
    state["message"], state["deque"] = Message("hello"), collections.deque([1])
    state.commit(note={"message": Message("a note")})
    state.repository.records["r"] = {"message": Message("a record")}
    return store


@pytest.mark.parametrize(
    "classes",
    [[HERE], HERE, sys.modules[HERE], ["other", HERE.rpartition(".")[0]], [HERE[:-3] + "*"], "tests.*", ["*"]],
)
def test_classes_of_trusted_modules_come_back(store, classes):
    repository = Repository(store, classes=classes)
    assert repository.snapshot("main")["message"] == Message("hello")
    assert repository.records["r"] == {"message": Message("a record")}
    state = Versioned(repository)
    state["message"].text = "changed"
    state.commit()
    assert Versioned(store, classes=classes)["message"] == Message("changed")
    assert not Versioned(repository).status()


@pytest.mark.parametrize(
    "classes", [(), [], ["other"], HERE + "x", HERE[:-1], "test_trusted_modules", [types], "tests.typed.*.*"]
)
def test_others_do_not(store, classes):
    found = Repository(store, classes=classes).snapshot("main")["message"]
    assert type(found) is Tagged
    assert found.fields == {"text": "hello"}


def test_nothing_is_pickled_or_unpickled_by_trust():
    state = Versioned(SharedMemory(), classes=HERE)
    state["odd"] = Odd()
    with pytest.raises(PickleRefusedError):
        state.commit()
    state.discard()


def test_a_trusted_module_is_imported_and_no_other(tmp_path, monkeypatch):
    (tmp_path / "trusted_mod.py").write_text("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n")
    (tmp_path / "other_mod.py").write_text("raise RuntimeError('imported')\n")
    script = """
import sys
from tests.support.stores import SharedMemory
from versioned_state import Repository, Tagged, Versioned
store = SharedMemory()
state = Versioned(store)
state["a"] = Tagged("trusted_mod:A", {"x": 1})
state["b"] = Tagged("other_mod:B", {"x": 1})
state["c"] = Tagged("trusted_mod:A[other_mod:B]", {"x": 1})
state["d"] = Tagged("trusted_mod:dataclass", {"x": 1})
state.commit()
found = Repository(store, classes=["trusted_mod"]).snapshot("main")
print([type(found[key]).__name__ for key in "abcd"], "other_mod" in sys.modules)
"""
    monkeypatch.chdir(tmp_path)
    assert run(script).stdout.split("] ") == ["['A', 'Tagged', 'Tagged', 'Tagged'", "False\n"]


@pytest.mark.parametrize("classes", [3, [3], [""], ["a:B"], [None], b"x"])
def test_wrong_classes(classes):
    for make in (
        lambda: Repository(Memory(), classes=classes),
        lambda: versioned_state.open("memory://", classes=classes),
    ):
        with pytest.raises(InvalidArgumentError):
            make()
    with pytest.raises(InvalidArgumentError):
        Versioned(Repository(Memory()), classes="x")


def test_all_modules_of_a_name_must_be_trusted():
    trusted = TrustedClasses(["a.b", "c.*", "d?"])
    covered = ["a.b:X", "a.b.c:X", "c:X", "c.x.y:X.Y", "d1:X", "a.b:X[c:Y, builtins:int]", "a.b:X[a.b:Y[d2:Z]]"]
    assert [name for name in covered if not trusted.covers(name)] == []
    others = ["a:X", "a.bc:X", "cx:X", "d:X", "a.b:X[e:Y]", "e:X[a.b:Y]", "", "X", "a.b:X[a.b:Y[e:Z]]"]
    assert [name for name in others if trusted.covers(name)] == []


def test_open_takes_classes(tmp_path):
    with versioned_state.open(tmp_path / "store", pickle="refuse", classes=[HERE]) as state:
        state["message"] = Message("hello")
        state.commit()
    with versioned_state.open(tmp_path / "store", pickle="refuse", classes=[HERE]) as state:
        assert state["message"] == Message("hello")
    with versioned_state.open(tmp_path / "store", pickle="refuse") as state:
        assert type(state["message"]) is Tagged


# register_module


@pytest.fixture
def module(monkeypatch):
    module = types.ModuleType("a_module_of_a_test")
    for name in ("A", "B", "_Hidden"):
        cls = make_dataclass(name, ["x"])
        cls.__module__ = module.__name__
        setattr(module, name, cls)
    vars(module).update(Message=Message, json=json)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_the_classes_of_a_module_are_registered(module):
    assert register_module(module) == (module.A, module.B) == register_module(module)
    store = SharedMemory()
    with Versioned(store) as state:
        state["a"], state["b"], state["hidden"] = module.A(1), module.B(2), module._Hidden(3)
        state.commit()
    found = Repository(store).snapshot("main")
    assert (found["a"], found["b"]) == (module.A(1), module.B(2))
    assert type(found["hidden"]) is Tagged


@pytest.mark.parametrize("wrong", [json.tool, "json", 3])
def test_modules_that_cannot_be_registered(wrong):
    with pytest.raises(InvalidArgumentError):
        register_module(wrong)


# is_data, explain


@pytest.mark.parametrize(
    "value", [None, {"a": [1, (2.5, b"x")]}, Message("a"), [Message("b")], {Message: 1}.__len__(), {(1, "a"): {1, 2}}]
)
def test_data(value):
    assert is_data(value)
    assert explain(value) == []
    state = Versioned(SharedMemory())
    state["value"] = value
    state.commit()


def test_each_part_that_is_no_data_is_named_with_its_path():
    value = {"a": [1, {"b": threading.Lock()}], "f": print, "fine": Message("x")}
    found = explain(value)
    assert [str(each.path) for each in found] == ["a[1].b", "f"]
    assert [each.type_name for each in found] == ["_thread.lock", "builtins.builtin_function_or_method"]
    assert all(each.reason for each in found)
    assert not is_data(value)


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), Odd(), {(1, print): 1}, _endless(), Message(text=print), lambda: 1, [type]],  # type: ignore[arg-type]
)
def test_what_a_shared_store_refuses_is_explained(value):
    assert explain(value)
    assert not is_data(value)
    state = Versioned(SharedMemory())
    state["value"] = value
    with pytest.raises(versioned_state.StateError):
        state.commit()
    state.discard()
