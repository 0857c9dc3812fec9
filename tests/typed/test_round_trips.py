"""Instances of users' classes come back as they were, and equal content has one address in every order and process."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.support import typed_classes as classes
from tests.support.exact import exact
from tests.support.processes import run
from tests.support.typed_classes import Model, Open, Part, Strict, instances, nested
from versioned_state import Memory, Repository, Tagged, Versioned


def stored(value: Any) -> tuple[Repository, Any]:
    """Store a value without a pickle. Return the store, and the value as another handle reads it."""
    repository = Repository(Memory())
    state = Versioned(repository)
    state["value"] = value
    commit = state.commit()
    again = Versioned(repository)
    read = again["value"]
    assert not again.status()
    assert exact(repository.snapshot(commit)["value"]) == exact(read)
    return repository, read


@settings(max_examples=100)
@given(st.lists(instances(nested(3)), min_size=1, max_size=3))
def test_nested_at_random(value):
    repository, read = stored(value)
    assert exact(read) == exact(value)
    if "Error" not in repr(exact(value)):  # exceptions are never equal, and lose their cause in a pickle
        assert read == value
        with suppress(pickle.PicklingError):  # a parametrised model has no name that pickle could find
            assert exact(pickle.loads(pickle.dumps(value))) == exact(value)
    _holds_no_object(repository)


def _holds_no_object(repository: Repository) -> None:
    refusing = Repository(repository.store, pickle="refuse")
    described = refusing.snapshot("main")["value"]
    other = Versioned(refusing, branch="other")
    other["value"] = described
    assert other.commit().root == repository.commit("main").root, "Tagged is stored as the instance was"


@settings(max_examples=25)
@given(nested(6), st.integers(0, 3))
def test_in_large_values(value, wide):
    value = {"in": [value] * (1 + 200 * wide), "beside": "x" * 3000}
    _, read = stored(value)
    assert exact(read) == exact(value)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), nested(2), min_size=2),
    st.randoms(use_true_random=False),
)
def test_the_order_of_attributes_says_nothing(attributes, rng):
    order = list(attributes.items())
    rng.shuffle(order)
    for make in (classes.Plain, Open, lambda **given: classes.History([1], **given)):
        assert _root(make(**attributes)) == _root(make(**dict(order)))
    state = Versioned()
    state["value"] = classes.Plain(**attributes)
    state.commit()
    state["value"].__dict__.clear()
    state["value"].__dict__.update(order)
    assert not state.status()


def _root(value: Any) -> str:
    state = Versioned()
    state["value"] = value
    return state.commit().root


PROGRAM = """
    from tests.support.typed_classes import *
    from versioned_state import Versioned
    names = ["b", "a", "ab", "zz", "c" * 9]
    state = Versioned()
    state["value"] = [
        Plain(**{name: {Role.USER, Point(1, 2), "x"} for name in {*names}}),
        Open(**{name: 1 for name in {*names}}),
        Model.model_construct({*["name", "parts"]}, name="x", parts=[Access.READ | Access.RUN]),
        Tags({*names}), Frozen({*names}), {frozenset({Point(n, "a") for n in range(9)}): Bits.A | Bits.C},
        Message("user", "hi"), ToolError("a", 1), Prefs({1: 2}),
    ]
    print(state.commit().root)
"""


def test_equal_content_has_one_address_in_any_process_and_hash_seed(monkeypatch: pytest.MonkeyPatch):
    roots = set()
    for seed in ("0", "1", "77"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        roots.add(run(PROGRAM).stdout)
    assert len(roots) == 1


# pydantic, whose models keep more than their fields


def test_the_set_of_fields_given_is_exact():
    for model in (
        Part(),
        Part(kind="text"),
        Part(kind="text", text=None),
        Part.model_construct({"never"}, kind="x"),
        Part.model_construct(),
    ):
        _, read = stored(model)
        assert read.model_fields_set == model.model_fields_set
        assert read.model_dump(exclude_unset=True) == model.model_dump(exclude_unset=True)


def test_a_change_of_nothing_but_the_set_of_fields_given_is_a_change_of_the_instance():
    state = Versioned()
    state["parts"] = [Part(), Part()]
    state.commit()
    state["parts"][1].kind = "text"
    assert [str(change.path) for change in state.status()] == ["parts[1]"]
    assert state.checkout(state.commit())["parts"][1].model_fields_set == {"kind"}


def test_validators_are_not_run_when_a_model_is_read():
    _, read = stored(Strict.model_construct(n=-1))
    assert (type(read), read.n) == (Strict, -1)
    _, read = stored(Model.model_construct(name=5, parts="not a list"))
    assert (read.name, read.parts) == (5, "not a list")


def test_private_and_extra_attributes_are_fields_by_path():
    model = Model(name="a")
    model._seen.append(1)
    open_model = Open.model_validate({"name": "b", "more": {"n": 1}})
    state = Versioned()
    state["models"] = [model, open_model]
    state.commit()
    model._seen.append(2)
    model._note = "unset before"
    assert open_model.__pydantic_extra__ is not None
    open_model.__pydantic_extra__["more"]["n"] = 2
    assert [str(change.path) for change in state.status()] == [
        "models[0]._seen[1]",
        "models[0]._note",
        "models[1].more.n",
    ]
    read = state.checkout(state.commit())["models"]
    assert (read[0]._seen, read[0]._note, read[1].more) == ([1, 2], "unset before", {"n": 2})
    assert not hasattr(stored(Model(name="x"))[1], "_note"), "what was never set is not there"


# Some words that are easily got wrong


def test_an_alias_of_a_member_is_that_member():
    assert stored([classes.Colour.CRIMSON])[1][0] is classes.Colour.RED


def test_class_attributes_are_no_state():
    state = Versioned()
    state["values"] = [classes.Plain(a=1), classes.Message("user", "hi")]
    state.commit()
    for cls in (classes.Plain, classes.Message):
        before, cls.limit = cls.limit, 99
        try:
            assert not state.status()
        finally:
            cls.limit = before


def test_parametrised_generics_are_instances_of_their_class():
    for value in (classes.Pair[int](1, 2), classes.Loose[int](3), classes.Box[int](held=1)):
        _, read = stored(value)
        assert type(read) is type(value)
    assert read.held == 1


def test_generics_at_two_places_are_data():
    """Their ``__orig_class__`` is one object, and no part of them."""
    value = [classes.Pair[int](1, 2), classes.Pair[int](3, 4)]
    repository, _ = stored(value)
    _holds_no_object(repository)


def test_what_is_one_of_its_kind_stays_so():
    for value in (classes.T, classes.Pair[int], list[int], int | str, Any):
        _, (read,) = stored([value])
        assert read == value
    assert stored([classes.T])[1][0] is classes.T


def test_a_field_of_a_dataclass_that_was_deleted_stays_deleted():
    message = classes.Message("user", "hi", ["a"])
    del message.tags
    state = Versioned()
    state["value"] = message
    read = state.checkout(state.commit())["value"]
    assert not hasattr(read, "tags")
    assert not Versioned(state.repository).status()


def test_typed_values_as_keys_and_elements_of_sets():
    key = classes.Point(1, (2, classes.Role.USER))
    value = {key: [1], (key, classes.Place("a")): {key}, frozenset({key, classes.Colour.RED}): {classes.Level.HIGH: 1}}
    repository, read = stored(value)
    assert exact(read) == exact(value)
    assert read[key] == [1]
    read[key].append(2)
    large = {classes.Point(n, "x" * 50): n for n in range(500)}
    assert stored(large)[1] == large
    tagged = Repository(repository.store, pickle="refuse").snapshot("main")["value"]
    assert (
        Tagged(
            "tests.support.typed_classes:Point", {"x": 1, "y": (2, Tagged("tests.support.typed_classes:Role", "USER"))}
        )
        in tagged
    )


@pytest.mark.parametrize(
    "shared", [classes.Message("user", [1]), classes.Visit("Rome"), [1]], ids=["dataclass", "attrs", "list"]
)
def test_one_value_at_two_places_comes_back_as_two(shared):
    _, read = stored([shared, {"again": shared}])
    assert read[0] == read[1]["again"] == shared
    assert read[0] is not read[1]["again"]


def test_one_instance_of_an_ordinary_class_at_two_places_comes_back_as_one():
    shared = classes.Plain(n=[1])
    repository = Repository(Memory())
    state = Versioned(repository)
    state["apart"], state["near"] = (
        [[shared], {"x": [1]}, [classes.Plain()]],
        [{"in": [shared, shared], "data": classes.Point(1)}],
    )
    state.commit()
    again = Versioned(repository)
    assert again["near"][0]["in"][0] is again["near"][0]["in"][1]
    again["near"][0]["in"][0].n.append(2)
    assert again["near"][0]["in"][1].n == [1, 2]
    assert [str(change.path) for change in again.status()] == ["near[0].in"], (
        "the smallest part that holds both is an object"
    )
    assert again.checkout("HEAD").at("near[0].data.x") == 1
    assert again.checkout("HEAD").at("apart[0][0].n[0]") == 1
    looped: Any = classes.Plain()
    looped.me = [looped]
    again["looped"] = [looped, 1]
    again.commit()
    read = again.checkout("HEAD")["looped"]
    assert read[0].me[0] is read[0]
