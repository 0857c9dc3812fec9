"""Every state is a dict: its methods, the order of its keys, threads that share it, and values by their paths."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import Any

import pytest

from tests.support.handles import RollbackWantedError, committed
from versioned_state import Live, State, Tagged, Versioned
from versioned_state.errors import InvalidPathError, UnknownPathError
from versioned_state.state.versioned import Namespace

STATES: dict[str, Callable[[], State]] = {
    "Versioned": Versioned,
    "namespace": lambda: Versioned().namespace("a").namespace("b"),
    "Live": Live,
    "namespace of Live": lambda: Live().namespace("a"),
}


@pytest.mark.parametrize("name", STATES)
def test_it_is_a_dict(name):
    state = STATES[name]()
    model: dict[str, Any] = {}
    assert isinstance(state, MutableMapping)
    for mapping in (state, model):
        mapping["b"] = [1]
        mapping["a"] = 2
        mapping.update({"c": 3}, d=4)
        assert mapping.setdefault("e", 5) == 5
        assert mapping.setdefault("a", 9) == 2
        assert mapping.pop("d") == 4
        assert mapping.pop("d", None) is None
        del mapping["c"]
        assert mapping.get("x", "default") == "default"
        assert "a" in mapping
        assert "x" not in mapping
        mapping |= {"z": 26}
    assert dict(state) == model
    assert list(state) == list(state.keys()) == sorted(model)
    assert list(state.items()) == sorted(model.items())
    assert list(state.values()) == [model[key] for key in sorted(model)]
    assert len(state) == len(model)
    assert state == model
    assert state | {"y": 1} == {**model, "y": 1}
    assert type(state | {}) is dict
    assert {"a": 0, "y": 1} | state == {**model, "y": 1}
    assert type({} | state) is dict
    assert state.copy() == model
    assert state.copy()["b"] is state["b"], "the values are not copied"
    assert list(state.iter_keys("a")) == ["a"]
    with pytest.raises(KeyError, match="x"):
        state.pop("x")
    state.clear()
    assert not state
    assert list(state) == []


@pytest.mark.parametrize("name", STATES)
def test_keys_come_in_the_order_of_their_characters(name):
    state = STATES[name]()
    keys = ["", "\0", "a", "a\0", "a.b", "aa", "b", "é", "\ud7ff", "\ud800", "\ue000", "\U0001f600", "~", "A"]
    for key in reversed(keys):
        state[key] = key
    assert list(state) == sorted(keys)
    assert [key for key in sorted(keys) if key.startswith("a")] == list(state.iter_keys("a"))
    assert all(state[key] == key for key in keys)


def test_keys_added_and_removed_over_committed_ones():
    state = Versioned()
    for n in range(0, 300, 2):
        state[f"{n:03}"] = n
    state.commit()
    expected = {f"{n:03}": n for n in range(0, 300, 2)}
    for n in range(0, 300, 3):
        state[f"{n:03}"] = expected[f"{n:03}"] = -n
    for n in range(0, 300, 10):
        del state[f"{n:03}"], expected[f"{n:03}"]
    for _ in range(2):
        assert list(state) == sorted(expected)
        assert len(state) == len(expected)
        assert list(state.iter_keys("01")) == sorted(key for key in expected if key.startswith("01"))
        assert all((f"{n:03}" in state) == (f"{n:03}" in expected) for n in range(300))
        assert dict(state.checkout(state.commit())) == expected


def test_a_key_that_is_deleted_and_set_again():
    state = committed(k=[1], l=[2])
    for again in ([1], [3], None):
        del state["k"]
        assert (len(state), list(state), "k" in state) == (1, ["l"], False)
        state["k"] = again
        assert (len(state), list(state), "k" in state) == (2, ["k", "l"], True)
        assert bool(state.status()) == (again != [1])
        state.discard()
        assert dict(state) == {"k": [1], "l": [2]}


def test_the_state_may_change_while_it_is_walked():
    state = Versioned()
    state.update({str(n): n for n in range(50)})
    state.commit()
    for key in state:
        del state[key]
        state[key + "!"] = 1
    assert list(state) == sorted(f"{n}!" for n in range(50))


@pytest.mark.parametrize("name", STATES)
def test_popitem_takes_the_last_key(name):
    state = STATES[name]()
    state.update({"b": 1, "c": 2, "a": 3})
    assert [state.popitem(), state.popitem()] == [("c", 2), ("b", 1)]
    state["z"] = 4
    assert [state.popitem(), state.popitem()] == [("z", 4), ("a", 3)]
    with pytest.raises(KeyError, match="empty"):
        state.popitem()


def test_popitem_over_committed_keys():
    state = Versioned()
    state.update({f"{n:03}": n for n in range(100)})
    state.commit()
    model = dict(state)
    rng = random.Random(1)
    for step in range(400):
        key = f"{rng.randrange(110):03}"
        act = rng.randrange(4)
        if act == 0:
            assert state.pop(key, None) == model.pop(key, None)
        elif act == 1:
            state[key] = model[key] = step
        elif act == 2 and rng.random() < 0.1:
            state.commit()
        elif model:
            last = max(model)
            assert state.popitem() == (last, model.pop(last))
        assert (len(state), list(state)) == (len(model), sorted(model))


@pytest.mark.parametrize("name", STATES)
def test_update_sets_all_keys_or_none(name):
    state = STATES[name]()
    state["kept"] = 1

    def failing() -> Iterator[tuple[str, int]]:
        yield "a", 1
        raise RollbackWantedError

    for bad in ({"a": 1, 2: 3}, [("a", 1), ("b",)], {"a": 1, "k" * 5000: 1}, failing(), 5):
        with pytest.raises((TypeError, ValueError, RollbackWantedError)):
            state.update(bad)
        assert dict(state) == {"kept": 1}
    state.update([("a", 1)], b=2)
    assert dict(state) == {"a": 1, "b": 2, "kept": 1}


@pytest.mark.parametrize("name", STATES)
def test_threads_that_share_a_state(name):
    """``pop`` with a default never raises, each key is taken once, and ``setdefault`` gives all the same list."""
    state = STATES[name]()
    keys = [f"j{n}" for n in range(200)]
    state.update(dict.fromkeys(keys, 1))
    taken: list[str] = []
    lists: list[tuple[str, list[int]]] = []

    def work() -> None:
        taken.extend(key for key in keys if state.pop(key, None) is not None)
        lists.extend((key, state.setdefault(f"{key}!", [])) for key in keys)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work) for _ in range(4)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(taken) == sorted(keys)
    assert all(given is state[f"{key}!"] for key, given in lists)


@pytest.mark.parametrize("name", STATES)
def test_a_value_by_its_path(name):
    state = STATES[name]()
    factory: defaultdict[str, int] = defaultdict(int, a=1)
    state["messages"] = [{"role": "user"}, {"role": "tool", "calls": ({"name": "search"},)}]
    state["two words"] = {1: "one", (2, "x"): factory}
    state.namespace("inner")["list"] = [1]
    state["note"] = Tagged("notes:Note", {"text": "a", "stars": 3})
    state["wide"] = Tagged("notes:Wide", {f"f{n}": n for n in range(20)})
    state["gone"] = Tagged("notes:Gone", {})
    assert state.at("note.stars") == 3
    assert state.at("messages") is state["messages"]
    assert state.at("messages[-1].calls[0]") is state["messages"][1]["calls"][0]
    assert state.at('["two words"]{(2, "x")}.a') == 1
    state.at("@inner.list").append(2)
    assert state.namespace("inner")["list"] == [1, 2]
    for path, named, hint in (
        ("nothing.x", "nothing", ""),
        ("messages[2].role", "messages[2]", "2 elements"),
        ("messages[0].content", "messages[0].content", ""),
        ("messages.role", "messages.role", "list"),
        ("messages[0].role.x", "messages[0].role.x", "str"),
        ('["two words"]{(2, "x")}.b', "b", ""),
        ("@inner.other", "@inner.other", ""),
        ("note.author", "note.author", "the Note has text, stars"),
        ("note.text.x", "note.text.x", "str"),
        ("wide.x", "wide.x", "the Wide has f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, …"),
        ("gone.x", "gone.x", "the Gone has no fields"),
    ):
        with pytest.raises(UnknownPathError) as caught:
            state.at(path)
        assert named in caught.value.path
        assert hint in caught.value.hint
    assert dict(factory) == {"a": 1}, "looking adds nothing"
    with pytest.raises(InvalidPathError):
        state.at("messages[")


@pytest.mark.parametrize("name", STATES)
def test_the_names_of_namespaces(name):
    state = STATES[name]()
    assert state.namespaces() == []
    for inner in ("b", "a/b", "b c", "é", "a"):
        state.namespace(inner)["x"] = 1
    state.namespace("deep").namespace("deeper")["x"] = 1
    state.namespace("empty")
    state["z"] = 1
    assert state.namespaces() == ["a", "a/b", "b", "b c", "deep", "é"]
    state.namespace("b").clear()
    assert state.namespaces() == ["a", "a/b", "b c", "deep", "é"]
    assert state.namespace("deep").namespaces() == ["deeper"]


def test_every_kind_of_state_has_the_same_calls():
    shared = {name for name in vars(State) if not name.startswith("_")}
    assert shared >= {
        "at",
        "clear",
        "copy",
        "iter_keys",
        "namespace",
        "namespaces",
        "pop",
        "popitem",
        "release",
        "sequence",
        "update",
    }
    for kind in (Versioned, Namespace, Live):
        for name in shared:
            assert signature(getattr(kind, name)) == signature(getattr(State, name)).replace(
                return_annotation=signature(getattr(kind, name)).return_annotation
            )


@pytest.mark.parametrize("name", STATES)
def test_a_sequence_of_any_state(name):
    state = STATES[name]()
    sequence = state.sequence("list")
    assert (list(sequence), "list" in state) == ([], False)
    sequence.append(1)
    sequence.extend([2, 1])
    assert (state["list"], list(reversed(sequence)), len(sequence)) == ([1, 2, 1], [1, 2, 1], 3)
    assert (sequence[-1], sequence[:2], sequence.index(1, 1), sequence.count(1), 2 in sequence) == (
        1,
        [1, 2],
        2,
        2,
        True,
    )
    for bad in (lambda: sequence.index(3), lambda: sequence.index(2, 2), lambda: sequence.index(1, 1, 2)):
        with pytest.raises(ValueError, match="no element"):
            bad()
    state["list"] = "text"
    with pytest.raises(TypeError, match="list"):
        sequence.append(1)
