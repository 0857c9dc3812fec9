"""A live value keeps its identity while its handle lives: what a caller refers to is what the state holds and watches.

Every way in which the head or the content can move is tried with every kind of value. Where the type at a path changes,
the old object is detached: that is the one exception.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.exact import clone, exact
from tests.support.handles import RollbackWantedError, committed
from tests.support.mutations import Thing, mutate, sample
from tests.support.strategies import make_large
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import MergeConflictError

# Ways to move. Each takes a handle whose value was committed as ``first``, then mutated and committed as ``second`` by
# ``change``, and leaves the handle on one of the two; it returns which.

Change = Callable[[Any], Any]


def commit(state: Versioned, change: Change) -> str:
    change(state["value"])
    state.commit("second", allow_empty=True)
    return "second"


def reset(state: Versioned, change: Change) -> str:
    change(state["value"])
    state.commit("second", allow_empty=True)
    state.reset("HEAD~1")
    return "first"


def reset_and_back(state: Versioned, change: Change) -> str:
    change(state["value"])
    second = state.commit("second", allow_empty=True)
    state.reset("HEAD~1")
    state.reset(second)
    return "second"


def reset_with_changes(state: Versioned, change: Change) -> str:
    state["other"] = 1
    state.commit(allow_empty=True)
    change(state["value"])
    state.reset("HEAD~1")
    return "first"


def discard(state: Versioned, change: Change) -> str:
    change(state["value"])
    state.discard()
    return "first"


def discard_a_replaced_value(state: Versioned, change: Change) -> str:
    change(state["value"])
    state["value"] = "replaced"
    state["value"] = "replaced again"
    state.discard()
    return "first"


def discard_a_deleted_value(state: Versioned, change: Change) -> str:
    change(state["value"])
    del state["value"]
    state.discard()
    return "first"


def transaction(state: Versioned, change: Change) -> str:
    with state.transaction("second"):
        change(state["value"])
    return "second"


def transaction_that_fails(state: Versioned, change: Change) -> str:
    with suppress(RollbackWantedError), state.transaction("second"):
        change(state["value"])
        raise RollbackWantedError
    return "first"


def transaction_that_fails_after_a_replacement(state: Versioned, change: Change) -> str:
    with suppress(RollbackWantedError), state.transaction("second"):
        change(state["value"])
        state["value"] = "replaced"
        raise RollbackWantedError
    return "first"


def transaction_within_one(state: Versioned, change: Change) -> str:
    with state.transaction("second"):
        change(state["value"])
        with suppress(RollbackWantedError), state.transaction():
            state["value"] = 1
            del state["value"]
            raise RollbackWantedError
    return "second"


def transaction_within_one_that_fails(state: Versioned, change: Change) -> str:
    with suppress(RollbackWantedError), state.transaction():
        with state.transaction():
            change(state["value"])
        raise RollbackWantedError
    return "first"


def _by_another(state: Versioned, change: Change) -> None:
    other = Versioned(state.repository)
    value = clone(other["value"])
    change(value)
    other["value"] = value
    other.commit("second", allow_empty=True)


def refresh(state: Versioned, change: Change) -> str:
    _by_another(state, change)
    state.refresh()
    return "second"


def merge(state: Versioned, change: Change) -> str:
    _by_another(state, change)
    state["ours"] = ours = state.head.id
    assert state.commit().parents != (ours,)
    assert state["ours"] == ours
    return "second"


def refresh_and_discard(state: Versioned, change: Change) -> str:
    _by_another(state, change)
    state["staged"] = 1
    state.refresh()
    state.discard()
    assert "staged" not in state
    return "second"


def conflict(state: Versioned, change: Change) -> str:
    """Both changed the value: on a conflict nothing moves, and after a merge the references hold the merged value."""
    _by_another(state, change)
    change(state["value"])
    change(state["value"])
    mine = exact(state["value"])
    try:
        state.refresh()
    except MergeConflictError:
        assert exact(state["value"]) == mine
        with pytest.raises(MergeConflictError):
            state.commit()
        assert exact(state["value"]) == mine
    state.discard()
    state.refresh()
    return "second"


MOVES = [
    commit,
    reset,
    reset_and_back,
    reset_with_changes,
    discard,
    discard_a_replaced_value,
    discard_a_deleted_value,
    transaction,
]
MOVES += [
    transaction_that_fails,
    transaction_that_fails_after_a_replacement,
    transaction_within_one,
    transaction_within_one_that_fails,
]
MOVES += [refresh, merge, refresh_and_discard, conflict]

VALUES: dict[str, tuple[Callable[[], Any], Change]] = {
    "list": (lambda: [1, [2], {"a": [3]}], lambda v: v.append(len(v))),
    "nested list": (lambda: [1, [2], {"a": [3]}], lambda v: v[2]["a"].append(9)),
    "list that shrinks": (lambda: list(range(9)), lambda v: v.pop(0)),
    "large list": (lambda: [{"n": n, "x": ["y" * (n % 60)]} for n in range(400)], lambda v: v[250]["x"].append(1)),
    "large list, inserted": (lambda: [{"n": n} for n in range(900)], lambda v: v.insert(450, {"n": "new"})),
    "list from large to empty": (lambda: [{"n": n} for n in range(900)], lambda v: v.clear()),
    "large elements": (lambda: [["x" * 5000, [n]] for n in range(9)], lambda v: v[4][1].append(1)),
    "sorted": (lambda: [3, 1, 2, 5, 4], lambda v: (v.sort(), v.append(0))),
    "dict": (lambda: {"a": 1, "b": [2]}, lambda v: v.update(new=len(v))),
    "dict, nested": (lambda: {"a": {"b": {"c": [1]}}}, lambda v: v["a"]["b"]["c"].append(1)),
    "dict, order": (lambda: {"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a"))),
    "dict, key of another type": (lambda: {1: "x", 2: []}, lambda v: v.update({True: v.pop(1)})),
    "large dict": (lambda: {f"k{n}": {"v": [n]} for n in range(400)}, lambda v: v["k200"]["v"].append(0)),
    "large dict, deleted": (lambda: {f"k{n}": {"v": [n]} for n in range(400)}, lambda v: v.popitem()),
    "set": (lambda: {1, 2}, lambda v: v.add(len(v) + 5)),
    "large set": (lambda: set(range(1500)), lambda v: v.add(-len(v))),
    "bytearray": (lambda: bytearray(b"abc"), lambda v: v.append(1)),
    "large bytearray": (lambda: bytearray(200_000), lambda v: v.append(1)),
    "deque": (lambda: deque([1, [2]], 99), lambda v: v.appendleft(0)),
    "deque, nested": (lambda: deque([1, [2]], 99), lambda v: v[-1].append(0)),
    "OrderedDict": (lambda: OrderedDict(a=[1], b=2), lambda v: v.move_to_end(next(iter(v)))),
    "defaultdict": (lambda: defaultdict(list, a=[1]), lambda v: v["a"].append(2)),
    "Counter": (lambda: Counter("aab"), lambda v: v.update("b")),
    "array": (lambda: np.arange(9.0), lambda v: v.__iadd__(1)),
    "large array": (lambda: np.zeros((300, 100)), lambda v: v.__iadd__(1)),
    "object": (lambda: Thing(a=[1], b=2), lambda v: v.__dict__.update(b=v.b + 1)),
    "object, nested": (lambda: Thing(a=[1], b=Thing(c={})), lambda v: v.b.c.update({len(v.b.c): 1})),
    "object, attribute removed": (lambda: Thing(a=[1], b=2), lambda v: v.__dict__.popitem()),
    "everything": (lambda: sample(random.Random(1), 5, data_only=False), lambda v: mutate(random.Random(2), v)),
}


def _cases() -> Iterator[Any]:
    """Every value with every move, given and loaded.

    Everyday an eighth: each value with a quarter of the moves, given or loaded.
    """
    for number, (name, (step, move)) in enumerate(product(VALUES, enumerate(MOVES))):
        value = number // len(MOVES)
        for loaded in (False, True):
            is_everyday = (value + step) % 4 == 0 and loaded is bool((value // 4 + step // 4) % 2)
            marks = [] if is_everyday else [pytest.mark.long]
            yield pytest.param(
                name, move, loaded, id=f"{name}-{move.__name__}-{'loaded' if loaded else 'given'}", marks=marks
            )


@pytest.mark.parametrize(("name", "move", "loaded"), list(_cases()))
def test_a_reference_is_what_the_state_holds(name, move, loaded):
    make, change = VALUES[name]
    first, second = make(), make()
    change(second)
    repository = Repository(Memory())
    state = Versioned(repository)
    state["value"] = make()
    state["untouched"] = untouched = [["u"]]
    state.commit("first")
    if loaded:
        state = Versioned(repository)
        untouched = state["untouched"]
    held = state["value"]

    expected = first if move(state, change) == "first" else second
    assert state["value"] is held
    assert state["untouched"] is untouched
    assert untouched == [["u"]]
    assert exact(held) == exact(expected)
    assert not state.status()

    # It still is watched.
    before = exact(held)
    change(held)
    if exact(held) != before:
        assert {str(step.path).split("[")[0].split(".")[0].split("{")[0] for step in state.status()} == {"value"}
        now = exact(held)
        past = state.checkout(state.commit("third"))
        assert exact(past["value"]) == now
        state.reset("HEAD~1")
        assert state["value"] is held
        assert exact(held) == before
    untouched[0].append("x")
    assert [str(part) for part in state.status()] == ["+ untouched[0][1] = 'x'"]


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_references_deep_inside_are_kept_too(move):
    state = Versioned()
    state["value"] = {
        "messages": [{"n": n, "parts": [[n]]} for n in range(300)],
        "prefs": {"a": {"b": {1}}},
        "tuple": ([1], {"k": [2]}),
    }
    state["value"]["buffers"] = [bytearray(b"x"), np.zeros(3)]
    state.commit()
    value = state["value"]
    held = {
        "messages": value["messages"],
        "first": value["messages"][0],
        "last parts": value["messages"][299]["parts"],
        "innermost": value["messages"][299]["parts"][0],
        "set": value["prefs"]["a"]["b"],
        "buffer": value["buffers"][0],
        "array": value["buffers"][1],
    }

    def change(v: Any) -> None:
        v["messages"].insert(150, {"new": True})
        del v["messages"][10]
        v["messages"][-1]["parts"][0].append("x")
        v["prefs"]["a"]["b"].add(2)
        v["buffers"][0].append(1)
        v["buffers"][1][0] += 1

    move(state, change)
    value = state["value"]
    now = {
        "messages": value["messages"],
        "first": value["messages"][0],
        "last parts": value["messages"][-1]["parts"],
        "innermost": value["messages"][-1]["parts"][0],
        "set": value["prefs"]["a"]["b"],
        "buffer": value["buffers"][0],
        "array": value["buffers"][1],
    }
    for name, part in held.items():
        assert now[name] is part, name
    held["innermost"].append("y")
    held["set"].add("y")
    assert sorted(str(change.path) for change in state.status()) == [
        f"value.messages[{len(value['messages']) - 1}].parts[0][{len(held['innermost']) - 1}]",
        "value.prefs.a.b",
    ]


def test_random_moves_over_everything(long_run):
    """The content is right after each, whatever was mutated before, and containers at the top are never replaced."""
    for seed in range(2000 if long_run else 3):
        move_and_compare(seed)


def move_and_compare(seed: int) -> None:
    rng = random.Random(seed)
    state = committed(value=[sample(rng, 30), make_large("nested", 150, seed)])
    held = state["value"]
    for _ in range(8):
        edits = rng.randrange(2**32)

        def change(value: Any, edits: int = edits) -> None:
            own = random.Random(edits)
            for _ in range(own.choice((1, 4))):
                mutate(own, value)

        first, second = clone(held), clone(held)
        change(second)
        move = rng.choice(MOVES)
        expected = first if move(state, change) == "first" else second
        assert state["value"] is held
        assert exact(held) == exact(expected), move.__name__
        assert not state.status()


TYPES: list[tuple[Any, Any]] = [
    ([1], (1,)),
    ([1], {"a": 1}),
    ({"a": 1}, OrderedDict(a=1)),
    ({1}, frozenset({1})),
    (bytearray(b"a"), b"a"),
]
TYPES += [(np.zeros(3), np.zeros(4)), (np.zeros(3), np.zeros(3, "f4")), (deque([1], 3), deque([1], 4)), ([1], None)]


@pytest.mark.parametrize("move", [refresh, merge], ids=lambda move: move.__name__)
@pytest.mark.parametrize(("old", "new"), TYPES, ids=str)
def test_where_the_type_changes_the_old_object_is_detached(old, new, move):
    state = committed(value={"at": clone(old), "list": [clone(old), 1]})
    held, inner, outer = state["value"]["at"], state["value"]["list"][0], state["value"]
    before = exact(held)

    def change(value: Any) -> None:
        value["at"] = clone(new)
        value["list"][0] = clone(new)

    move(state, change)
    assert state["value"] is outer
    assert state["value"]["at"] is not held
    assert state["value"]["list"][0] is not inner
    assert exact(held) == exact(inner) == before, "a detached object keeps its content"
    assert exact(outer) == exact({"at": new, "list": [new, 1]})


def test_merging_leaves_what_is_staged_alone():
    state = committed(ours=[1], theirs=[1], staged=[[1]])
    ours, theirs, staged = state["ours"], state["theirs"], state["staged"]
    other = Versioned(state.repository)
    other["theirs"].append(2)
    other["new"] = 1
    other.commit()
    staged[0].append("staged")
    state.refresh()
    assert (state["ours"], state["theirs"], state["staged"]) == ([1], [1, 2], [[1, "staged"]])
    assert state["theirs"] is theirs
    assert state["staged"] is staged
    assert state["ours"] is ours
    assert [str(change) for change in state.status()] == ["+ staged[0][1] = 'staged'"]
    assert state["new"] == 1
    assert state.commit().parents == (other.head.id,)


def test_a_key_that_others_deleted_goes_and_its_value_is_detached():
    state = committed(gone=[1], kept=[2])
    held = state["gone"]
    other = Versioned(state.repository)
    del other["gone"]
    other.commit()
    state.refresh()
    assert list(state) == ["kept"]
    held.append(5)
    assert not state.status()
    state.reset("HEAD~1")
    assert state["gone"] == [1]


def test_both_sides_made_the_same_change():
    for edit in (lambda s: s.__setitem__("a", 1), lambda s: s.__delitem__("k"), lambda s: s["k"].append(1)):
        state = committed(k=[0], l=[1])
        other = Versioned(state.repository)
        edit(state)
        edit(other)
        other.commit()
        state["l"].append(2)
        state.refresh()
        assert [str(change) for change in state.status()] == ["+ l[1] = 2"]
        assert len(state) == len(list(state)) == len(other)
        commit = state.commit()
        assert dict(state.checkout(commit)) == {**other.copy(), "l": [1, 2]} == state.copy()


def test_a_value_that_was_never_looked_at_is_still_right():
    state = committed(a=[1], b=[1])
    first = state.head
    state["a"].append(2)
    state["b"].append(2)
    state.commit()
    other = Versioned(state.repository)
    held = other["a"]
    other.reset(first)
    assert (other["a"], other["b"]) == ([1], [1])
    assert other["a"] is held


def test_references_into_a_sequence_that_is_loaded_later():
    state = committed(list=[{"n": n} for n in range(400)])
    other = Versioned(state.repository)
    other.sequence("list").append({"new": 1})
    held = other["list"]
    assert held[400] == {"new": 1}
    other.sequence("list").append({"newer": 1})
    assert held[401] == {"newer": 1}
    held[400]["new"] = 2
    past = other.checkout(other.commit())
    assert past["list"][400:] == [{"new": 2}, {"newer": 1}]
    assert other["list"] is held


# One object in two places: what each place holds is decided by its path, and at most one of them keeps the object


def _shared() -> dict[str, Any]:
    shared = {"n": 1, "list": [1]}
    return {"a": shared, "b": shared, "c": [shared, shared, {"in": shared}], "d": [shared] * 300}


ALIASED: dict[str, Change] = {
    "differently in two keys": lambda v: (v["a"].update(n=2), v["b"].update(m=3)),
    "in one key": lambda v: v["a"].update(n=2),
    "deep inside one": lambda v: v["c"][2]["in"]["list"].append(2),
    "differently in one list": lambda v: (v["c"][0].update(n=2), v["c"][1].update(m=3)),
    "far apart in one list": lambda v: (v["d"][7].update(n=2), v["d"][290]["list"].append(3)),
}


@pytest.mark.parametrize("name", ALIASED)
def test_what_others_did_to_one_place_is_not_done_to_another(name):
    state = Versioned()
    state.update(_shared())
    state.commit()
    other = Versioned(state.repository)
    ALIASED[name](other)  # what was loaded shares nothing
    expected = exact(other.copy())
    other.commit()
    state.refresh()
    assert exact(state.copy()) == expected
    assert not state.status()
    state.reset("HEAD~1")
    assert exact(state.copy()) == exact(_shared())
    assert not state.status()


@pytest.mark.parametrize("undo", [discard, transaction_that_fails, reset], ids=lambda undo: undo.__name__)
def test_one_object_put_in_two_places_and_taken_out_again(undo):
    state = Versioned()
    state["value"] = {"a": {"n": 1}, "b": {"n": 2}, "c": [{"n": 3}, {"n": 4}]}
    before = exact(state["value"])
    state.commit()
    held = state["value"]["a"]

    def change(value: Any) -> None:
        value["b"] = value["c"][1] = value["a"]
        value["a"]["n"] = 9

    undo(state, change)
    assert exact(state["value"]) == before
    assert not state.status()
    assert state["value"]["a"] is held
    state["value"]["b"]["n"] = 5
    assert [str(part) for part in state.status()] == ["~ value.b.n = 2 -> 5"]


def test_an_equal_assignment_before_a_merge_hides_nothing_after_it():
    for equal in (lambda s: s.__setitem__("v", [1]), lambda s: (s.__setitem__("v", 5), s.__setitem__("v", [1]))):
        state = committed(v=[1])
        other = Versioned(state.repository)
        other["v"].append(2)
        other.commit()
        equal(state)
        state["ours"] = 1
        state.commit()
        assert state["v"] == [1, 2]
        assert not state.status()
        state["v"].pop()
        assert [str(part) for part in state.status()] == ["- v[1] = 2"]
        assert state.checkout(state.commit())["v"] == [1]
