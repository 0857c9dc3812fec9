"""The hash of a value is a function of the value alone, whatever edits led to it, and equal parts are stored once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.exact import clone, exact_data
from tests.support.long_runs import first
from tests.support.mutations import mutate, sample
from tests.support.processes import run
from tests.support.strategies import any_values, keys, make_large
from versioned_state import Memory, Repository, Versioned
from versioned_state.storage import Counting


def root_of(**values: Any) -> str:
    """The root of a state that was built from scratch, in one commit."""
    state = Versioned(pickle="refuse")
    state.update(clone(values))
    return state.commit(allow_empty=True).root


@pytest.mark.parametrize("size", [0, 3, 30, 300])
@pytest.mark.parametrize("seed", first(1, range(4)))
def test_any_sequence_of_edits_gives_what_building_from_scratch_gives(size, seed):
    rng = random.Random(seed)
    repository = Repository(Memory(), pickle="refuse")
    state = Versioned(repository)
    state["value"] = value = sample(rng, size)
    for step in range(25):
        mutate(rng, value)
        if step % 5 == 4:
            value = state["value"] = exact_data(value)
        if rng.random() < 0.7:
            try:
                commit = state.commit()
            except Exception:  # noqa: BLE001 - something that is not data; it goes at the next fifth step
                continue
            assert commit.root == root_of(value=value)
        if rng.random() < 0.1:
            state.discard()
            state = Versioned(repository)
            value = state["value"]
    value = state["value"] = exact_data(value)
    assert state.commit().root == root_of(value=value)


SHAPES: dict[str, Callable[[random.Random], tuple[Any, Callable[[Any], Any]]]] = {
    "list of numbers": lambda rng: (
        [rng.randrange(1000) for _ in range(3000)],
        lambda v: v.insert(rng.randrange(3000), rng.randrange(9)),
    ),
    "list of one number": lambda rng: ([7] * 3000, lambda v: v.insert(rng.randrange(len(v)), 7)),
    "list of few numbers": lambda rng: (
        [rng.randrange(2) for _ in range(9000)],
        lambda v: v.pop(rng.randrange(len(v))),
    ),
    "list of large": lambda rng: (
        ["x" * 5000 + str(n) for n in range(40)],
        lambda v: v.insert(rng.randrange(40), v.pop(rng.randrange(40))),
    ),
    "sorted dict": lambda rng: ({f"{n:06}": n for n in range(3000)}, lambda v: v.pop(rng.choice(list(v)))),
    "growing dict": lambda rng: ({f"{n:06}": n for n in range(2000)}, lambda v: v.update({f"{2000 + len(v):06}": 1})),
    "shuffled dict": lambda rng: (
        dict(rng.sample([(str(n), n) for n in range(2000)], 2000)),
        lambda v: v.update({str(rng.random()): 1}),
    ),
    "dict of large": lambda rng: (
        {str(n): ["y" * 900] * n for n in range(30)},
        lambda v: v[str(rng.randrange(30))].append(1),
    ),
    "bytearray": lambda rng: (bytearray(rng.randbytes(300_000)), lambda v: v.insert(rng.randrange(len(v)), 1)),
    "array": lambda rng: (np.zeros(100_000), lambda v: v.__setitem__(rng.randrange(100_000), rng.random())),
    "set": lambda rng: ({rng.random() for _ in range(2000)}, lambda v: v.pop()),
}


@pytest.mark.parametrize("name", SHAPES)
def test_many_edits_of_one_kind(name):
    rng = random.Random(1)
    value, edit = SHAPES[name](rng)
    state = Versioned()
    state["value"] = value
    for _ in range(12):
        edit(value)
        assert state.commit().root == root_of(value=value)


@pytest.mark.parametrize("name", ["list of numbers", "shuffled dict", "sorted dict", "list of large"])
def test_grown_from_nothing_and_shrunk_to_nothing(name):
    value, _ = SHAPES[name](random.Random(2))
    parts = list(value.items()) if isinstance(value, dict) else list(value)
    made: Any = type(value)()
    state = Versioned()
    state["value"] = made
    step = max(len(parts) // 20, 1)
    for at in range(0, len(parts), step):
        (made.update if isinstance(made, dict) else made.extend)(parts[at : at + step])
        commit = state.commit()
    assert commit.root == root_of(value=value)
    while made:
        for _ in range(min(step, len(made))):
            (made.popitem if isinstance(made, dict) else made.pop)()
        commit = state.commit()
    assert commit.root == root_of(value=type(value)())


@given(st.dictionaries(st.text(max_size=5), any_values, max_size=4), st.randoms(use_true_random=False))
def test_keys_of_the_state_in_any_order(content, rng):
    state = Versioned()
    state.update((key, clone(content[key])) for key in rng.sample(sorted(content), len(content)))
    state["another"] = 1  # longer than every key above
    state.commit()
    del state["another"]
    assert state.commit().root == root_of(**content)


@given(st.lists(keys, max_size=12), st.randoms(use_true_random=False))
def test_sets_built_in_any_order(members, rng):
    once = set(members)
    # equal to nothing that is not a string, as 100 and Decimal(100) are
    others = {f"another element {n}" for n in range(100)}
    again = set(others)
    again.update(rng.sample(list(once), len(once)))
    again -= others - once
    assert root_of(value=once) == root_of(value=again)
    assert root_of(value=[frozenset(once)]) == root_of(value=[frozenset(again)])


DIFFERENT: list[Any] = [
    *([1], [True], [1.0], (1,), {1}, frozenset({1}), {1: None}, {True: None}, "1", b"1", bytearray(b"1"), 1 + 0j),
    *(
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        0.0,
        -0.0,
        [],
        (),
        {},
        set(),
        frozenset(),
        "",
        b"",
        None,
        False,
        0,
        [[]],
        ["", ""],
        [None],
    ),
]


def test_what_differs_in_any_way_has_a_hash_of_its_own():
    assert len({root_of(value=value) for value in DIFFERENT}) == len(DIFFERENT)
    large = ["x" * 200] * 50
    assert len({root_of(value=[value, large]) for value in DIFFERENT}) == len(DIFFERENT)
    several: list[Any] = [
        list(range(2000)),
        tuple(range(2000)),
        set(range(2000)),
        frozenset(range(2000)),
        list(map(float, range(2000))),
    ]
    several += [
        dict.fromkeys(range(2000)),
        dict.fromkeys(reversed(range(2000))),
        "a" * 9000,
        b"a" * 9000,
        bytearray(b"a" * 9000),
    ]
    several += [np.zeros(2000), np.zeros((1000, 2)), np.zeros(2000, ">f8"), np.zeros(2000, "i8")]
    assert len({root_of(value=value) for value in several}) == len(several)


def test_the_hash_does_not_depend_on_hash_randomisation(monkeypatch: pytest.MonkeyPatch):
    program = """
        import random
        from tests.support.mutations import sample
        from tests.support.strategies import make_large
        from versioned_state import Versioned
        state = Versioned(pickle="refuse")
        state["sample"] = sample(random.Random(1), 60)
        state["set"] = {"a", b"b", ("c", frozenset("defgh")), 1.5, None}
        state["large"] = {str(n) for n in range(3000)}
        state["larger"] = [make_large(kind, 700, 1) for kind in ("set", "frozenset", "dict")]
        print(state.commit().root)
    """
    roots = set()
    for seed in ("0", "12345"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        roots.add(run(program).stdout)
    assert len(roots) == 1


# Locality: an edit stores the nodes that it touches


def stored_by(value: Any, edit: Callable[[Any], Any]) -> tuple[int, int]:
    """Objects and bytes that a commit of one edit stores."""
    store = Counting(Memory())
    state = Versioned(store)
    state["value"] = value
    state.commit()
    store.reset()
    edit(state["value"])
    state.commit()
    return store.counts.objects_written, store.counts.bytes_written


LOCAL: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], int]] = {
    "insert in a long list": (
        lambda: make_large("list", 40_000, 1),
        lambda v: v.insert(2000, {"role": "user"}),
        40_000,
    ),
    "delete from a long list": (lambda: make_large("list", 8_000, 2), lambda v: v.pop(100), 40_000),
    "insert at the start": (lambda: make_large("list", 8_000, 3), lambda v: v.insert(0, "first"), 40_000),
    "replace in a long list": (lambda: make_large("list", 8_000, 4), lambda v: v.__setitem__(77, 0), 40_000),
    "numbers": (lambda: [n * n for n in range(50_000)], lambda v: v.insert(20_000, -1), 40_000),
    "entry of a large dict": (
        lambda: {f"k{n}": "v" * (n % 99) for n in range(20_000)},
        lambda v: v.update(k777=1),
        8_000,
    ),
    "key into a large dict": (
        lambda: {f"k{n}": "v" * (n % 99) for n in range(20_000)},
        lambda v: v.update(new=1),
        30_000,
    ),
    "line in a long text, replaced": (
        lambda: {"text": "".join(f"line {n} of a long text\n" for n in range(20_000))},
        lambda v: v.update(text=v["text"].replace("line 777 ", "line inserted\nline 777 ")),
        40_000,
    ),
    "line in a very long text, inserted": (
        lambda: {"text": "".join(f"line {n} of a very long text\n" for n in range(200_000))},
        lambda v: v.update(text=v["text"].replace("line 777 ", "line inserted\nline 777 ")),
        40_000,
    ),
    "end of a very long text": (
        lambda: {"text": "".join(f"line {n} of a very long text\n" for n in range(200_000))},
        lambda v: v.update(text=v["text"] + "one more line\n"),
        40_000,
    ),
    "number of a large array": (lambda: np.arange(1_500_000.0), lambda v: v.__setitem__(700_000, 1.0), 90_000),
    "numbers far apart": (
        lambda: np.arange(1_500_000.0),
        lambda v: v.__setitem__(slice(None, None, 1_400_000), 1.0),
        180_000,
    ),
    "end of a buffer": (lambda: bytearray(3_000_000), lambda v: v.extend(b"more"), 90_000),
    "byte of a buffer": (lambda: bytearray(1_000_000), lambda v: v.__setitem__(500_000, 1), 70_000),
    "number of an array": (lambda: np.zeros((1000, 500)), lambda v: v.__setitem__((500, 5), 1.0), 70_000),
    "deep inside": (
        lambda: [{"a": {"b": make_large("list", 5_000, 5)}}] * 3,
        lambda v: v[1]["a"]["b"].append("x"),
        40_000,
    ),
    "end of many large": (
        lambda: [make_large("dict", 400, n) for n in range(20)],
        lambda v: v[-1].update(new=1),
        40_000,
    ),
}


@pytest.mark.parametrize("name", LOCAL)
def test_an_edit_stores_few_objects(name):
    make, edit, most = LOCAL[name]
    objects, size = stored_by(make(), edit)
    assert objects <= 12
    assert size <= most


def test_what_two_values_share_is_stored_once():
    store = Memory()
    state = Versioned(store)
    value = make_large("list", 5_000, 1)
    state["a"] = value
    state.commit()
    before = len(list(store.keys("o/")))
    state["b"] = clone(value)
    state["c"] = {"in": [clone(value), clone(value)]}
    state.commit()
    assert len(list(store.keys("o/"))) - before <= 3


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("seed", range(3))
def test_a_large_value_that_becomes_small_in_place_is_stored_as_a_small_one(kind, seed):
    rng = random.Random(seed)
    state = Versioned()
    live: Any = kind()
    state["value"] = live

    def fill(start: int, end: int, size: int) -> None:
        for index in range(start, end):
            part = {"n": index, "text": "x" * rng.randrange(size)}
            live.append(part) if kind is list else live.__setitem__(f"{index}", part)

    def check() -> None:
        assert state.commit(allow_empty=True).root == root_of(value=live)

    for _ in range(6):
        fill(len(live), len(live) + rng.choice([40, 90, 200]), rng.choice([10, 60, 200]))
        check()
        parts = live if kind is list else list(live.values())
        for part in parts[rng.choice([0, 30, 64]) :]:
            part["text"] = ""
            part.pop("n", None)
        check()
        for key in list(range(len(live)) if kind is list else live)[rng.choice([2, 20, 64]) :][::-1]:
            del live[key]
            if rng.random() < 0.05:
                check()
        check()


@pytest.mark.parametrize("names", [("grows", "shrinks"), ("shrinks", "grows")])
@pytest.mark.parametrize("within", [list, dict])
def test_a_dict_that_becomes_small_beside_a_list_that_grows(names, within):
    messages = [{"role": "user", "content": "x" * 300} for _ in range(100)]
    shrinking: dict[str, Any] = (
        {"messages": clone(messages)} if within is list else {f"{number:03}": "x" * 100 for number in range(100)}
    )
    parts = {"grows": clone(messages), "shrinks": shrinking}
    state = Versioned(pickle="refuse")
    state["value"] = value = {name: parts[name] for name in names}
    state.commit()
    value["grows"].append(clone(messages[0]))
    if within is list:
        del shrinking["messages"][3:]
    else:
        for key in list(shrinking)[3:]:
            del shrinking[key]
    assert state.commit().root == root_of(value=value)
    del value["grows"][3:]
    assert state.commit().root == root_of(value=value)
