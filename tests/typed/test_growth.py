"""A change inside of an instance costs what changed, however large its fields, or the list that it is in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.typed_classes import History, Message, Model, Place, Plain, Prefs, Recent, Slots, Visit
from versioned_state import Memory, Repository, Versioned
from versioned_state.storage import Counting

Kind = tuple[Callable[[list[Any]], Any], Callable[[Any], list[Any]]]
KINDS: dict[str, Kind] = {
    "dataclass": (lambda held: Message("user", held), lambda v: v.content),
    "model": (lambda held: Model.model_construct(name="a", parts=held), lambda v: v.parts),
    "attrs": (lambda held: Visit("Rome", held), lambda v: v.stops),
    "ordinary": (lambda held: Plain(a=1, b=Plain(held=held)), lambda v: v.b.held),
    "slots": (lambda held: Slots(a=held), lambda v: v.a),
    "NamedTuple": (lambda held: Place("Rome", held), lambda v: v.at),
    "list subclass": (lambda held: History(held, title="t"), lambda v: v),
    "dict subclass": (lambda held: Prefs(held=held), lambda v: v["held"]),
    "deque": (lambda held: Recent([held]), lambda v: v[0]),
}
"""How an instance with a large list is made, and where the list is."""


def cost(state: Versioned, store: Counting, edit: Callable[[], object]) -> tuple[int, int, int]:
    """Bytes and objects written, and objects read, by a change and its commit."""
    edit()
    before = sum(len(value) for _, value in store.items())
    store.reset()
    assert state.status()
    state.commit()
    counts = store.counts
    written, read, calls = counts.objects_written, counts.objects_read, counts.round_trips
    return sum(len(value) for _, value in store.items()) - before, written + calls, read


@pytest.mark.parametrize("loaded", [False, True], ids=["given", "loaded"])
@pytest.mark.parametrize(("make", "list_of"), KINDS.values(), ids=KINDS)
def test_an_element_of_a_large_field(make, list_of, loaded):
    costs = []
    for size in (1_000, 10_000):
        store = Counting(Memory())
        state = Versioned(store)
        state["value"] = [make([f"{n} " + "y" * (n % 30) for n in range(size)]), 1]
        state.commit()
        if loaded:
            state = Versioned(store)
        held = list_of(state["value"][0])
        costs.append(cost(state, store, partial(held.__setitem__, size // 2, "changed")))
    (_, few, _), (stored, many, read) = costs
    assert stored < 8_000
    assert many <= few + 4
    assert read <= 12


@pytest.mark.parametrize(
    "make", [lambda n: Message("user", f"{n}" * 9), lambda n: Model(name=f"{n}" * 9)], ids=["dataclass", "model"]
)
def test_one_instance_of_many(make):
    costs = []
    for size in (500, 5_000):
        store = Counting(Memory())
        state = Versioned(Repository(store))
        state["many"] = [make(n) for n in range(size)]
        state.commit()
        many = state["many"]
        costs.append([cost(state, store, partial(many.append, make(7)))])
        name = "role" if type(many[0]) is Message else "name"
        costs[-1].append(cost(state, store, partial(setattr, many[size // 2], name, "tool")))
    for few, more in zip(*costs, strict=True):
        assert more[0] < 8_000
        assert more[1] <= few[1] + 6  # a level more, and the segments of its last nodes
        assert more[2] <= 16  # an open leaf has up to some 20 segments, of which an edit writes the later ones anew


def test_instances_take_little_more_than_equal_dicts():
    sizes = []
    for make in (lambda **fields: {**fields, "tags": []}, Message):
        store = Memory()
        state = Versioned(store)
        state["many"] = [make(role="user", content=f"message {n} " + "word " * (n % 20)) for n in range(1_000)]
        state.commit()
        sizes.append(sum(len(value) for key, value in store.items() if key.startswith("o/")))
    assert sizes[1] <= 1.25 * sizes[0]  # each segment of the last leaf has the name of the type


def test_a_field_is_read_by_path_without_the_rest():
    store = Counting(Memory())
    state = Versioned(store)
    state["agent"] = Plain(title="t", memory=Message("user", [f"{n} " + "z" * 50 for n in range(20_000)]))
    state.commit()
    snapshot = Repository(store).snapshot("main")
    store.reset()
    assert snapshot.at("agent.memory.content[15000]").startswith("15000 ")
    assert snapshot.at("agent.title") == "t"
    assert store.counts.objects_read <= 10
