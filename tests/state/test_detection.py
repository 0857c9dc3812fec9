"""Mutations of plain nested objects are always seen, and equal content is no change, as a deep comparison confirms.

Each test here states the same promise. ``status()`` is true exactly where the content differs from what was last
committed, in any way that can be told: in type, order or value, at any depth.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.exact import clone, exact
from tests.support.handles import committed
from tests.support.long_runs import first
from tests.support.mutations import Str, Thing, mutate, sample
from tests.support.strategies import any_values, make_large
from versioned_state import Commit, Disk, Memory, Repository, Versioned
from versioned_state.state.branch import port


def check(state: Versioned, content: dict[str, Any], before: Any) -> Commit | None:
    """Compare status and commit with a deep comparison.

    Return the commit if there was a change. ``content`` is the expected content.
    """
    now = exact(content)
    changed = now != before
    head = state.head
    diff = state.status()
    assert bool(diff) == changed, diff
    assert bool(state.status()) == changed, "asking changes nothing"
    commit = state.commit()
    assert (commit != head) == changed
    assert not state.status()
    assert state.commit() == commit, "there is nothing left to commit"
    assert exact(state.checkout(commit).copy()) == exact(content) == now
    return commit if changed else None


# One mutation of each kind, by hand


@dataclass
class Note:
    text: str
    tags: list[str] = field(default_factory=list)


def sized(size: int, statement: str) -> dict[str, Any]:
    """Return the values that a statement is about.

    ``size`` decides whether each is packed, grouped, or a tree of its own.
    """
    return {name: make() for name, make in _kinds(size).items() if f'"{name}"' in statement}


def _kinds(size: int) -> dict[str, Callable[[], Any]]:
    """One of everything."""
    rng = random.Random(size)
    return {
        "list": lambda: [[n] for n in range(size)],
        "flat": lambda: [rng.randrange(1000) for _ in range(size)],
        "dict": lambda: {f"k{n}": {"v": n} for n in range(size)},
        "strings": lambda: [f"{n:04}" * 9 for n in range(size)],
        "tuple": lambda: (1, list(range(size)), {"a": [1]}),
        "set": lambda: set(range(size)),
        "buffer": lambda: bytearray(40 * size),
        "array": lambda: np.zeros((size, 30)),
        "bytes": lambda: b"x" * size,
        "deque": lambda: deque(range(size)),
        "ordered": lambda: OrderedDict((str(n), n) for n in range(size)),
        "default": lambda: defaultdict(list, {n: [n] for n in range(size)}),
        "counter": lambda: Counter(range(size)),
        "thing": lambda: Thing(a=[1], b={"c": Thing(d=list(range(size)))}),
        "note": lambda: Note("a", ["b"]),
        "large elements": lambda: (
            ["x" * 3000 + str(n) for n in range(size // 8)] + [["y" * 5000, [n]] for n in range(size // 8)]
        ),
        "nested": lambda: {"big": {f"k{n}": [n] * 50 for n in range(size // 2)}, "small": {"deep": [[[[]]]]}},
        "types": lambda: [1, 0, 1.0, "s", b"b", (1,), [1], {1: 2}, {1}, None, -0.0, float("nan")],
    }


def _set(statement: str) -> Callable[[Any], None]:
    """A mutation written as a statement over ``v``."""

    def mutation(v: Any) -> None:
        exec(statement, {"heapq": heapq, "np": np, "Str": Str, "OrderedDict": OrderedDict, "Thing": Thing}, {"v": v})

    return mutation


MUTATIONS = """
    v["list"].append([1])
    v["list"].insert(1, [1])
    v["list"].insert(len(v["list"]) // 2, [1])
    v["list"][1].append(1)
    v["list"][-1][0] = "x"
    v["list"][len(v["list"]) // 2].clear()
    del v["list"][1]
    del v["list"][1:3]
    del v["list"][::2]
    v["list"].pop()
    v["list"].pop(0)
    v["list"].reverse()
    v["list"].clear()
    v["list"] += [[2]]
    v["list"] *= 2
    v["list"][2:2] = [[5], [6]]
    v["list"][1:3] = []
    v["list"][:] = v["list"][1:] + v["list"][:1]
    v["list"][0], v["list"][1] = v["list"][1], v["list"][0]
    v["list"][0] = tuple(v["list"][0])
    v["list"][1][0] = True
    v["list"][1][0] = 1.0
    v["list"][1] = {"a": 1}
    v["flat"].sort()
    v["flat"].sort(reverse=True)
    v["flat"][0] += 1
    v["flat"][-1] = float(v["flat"][-1])
    heapq.heapify(v["flat"]); heapq.heappush(v["flat"], -1)
    heapq.heapify(v["flat"]); heapq.heappop(v["flat"])
    v["flat"][0] = 2**70
    v["flat"][0] = "\\ud800"
    v["flat"][0] = np.int64(v["flat"][0])
    v["dict"]["new"] = 1
    v["dict"]["k0"]["v"] = "x"
    v["dict"]["k1"]["new"] = []
    v["dict"].update(k0={}, z=1)
    v["dict"].setdefault("new", []).append(1)
    v["dict"] |= {"k2": None}
    v["dict"].pop("k1")
    v["dict"].popitem()
    del v["dict"]["k0"]
    v["dict"].clear()
    v["dict"]["k0"] = v["dict"].pop("k0")
    v["dict"][1] = 2
    v["dict"]["k3"] = OrderedDict(v["dict"]["k3"])
    v["dict"][Str("k0")] = v["dict"].pop("k0")
    for key in sorted(v["dict"], reverse=True): v["dict"][key] = v["dict"].pop(key)
    v["strings"][1] += "x"
    v["strings"][2] = Str(v["strings"][2])
    v["strings"][0] = v["strings"][0].encode()
    v["tuple"][1].append(1)
    v["tuple"][2]["a"].append(2)
    v["tuple"] += (1,)
    v["tuple"] = list(v["tuple"])
    v["set"].add("x")
    v["set"].remove(0)
    v["set"] -= {1, 2}
    v["set"] |= {-1}
    v["set"] ^= {0, -5}
    v["set"].pop()
    v["set"].clear()
    v["set"].remove(1); v["set"].add(True)
    v["set"] = frozenset(v["set"])
    v["buffer"][7] = 1
    v["buffer"].append(0)
    v["buffer"][3:4] = b"abc"
    v["buffer"].pop()
    v["buffer"] = bytes(v["buffer"])
    v["array"][0, 0] = 1
    v["array"][-1, -1] = -0.0
    v["array"] += 1
    v["array"] = v["array"].astype("f4")
    v["array"] = v["array"].astype(">f8")
    v["array"] = v["array"].reshape(-1)
    v["array"] = v["array"].tolist()
    v["bytes"] = bytearray(v["bytes"])
    v["deque"].append(1)
    v["deque"].appendleft(1)
    v["deque"].rotate(1)
    v["deque"][0] = "x"
    v["ordered"].move_to_end("0")
    v["ordered"]["0"] = [1]
    v["default"]["missing"]
    v["default"][0].append(1)
    v["default"].default_factory = dict
    v["counter"][0] += 1
    v["counter"]["x"] = 0
    v["thing"].a.append(1)
    v["thing"].a = (1,)
    v["thing"].new = 1
    del v["thing"].a
    v["thing"].b["c"].d.append(1)
    v["thing"].b["c"].d[0] = 0.0
    v["thing"].__dict__["x"] = 1
    v["note"].text = "b"
    v["note"].tags.append("c")
    v["note"].extra = 1
    v["large elements"][0] += "x"
    v["large elements"].insert(1, "z" * 9000)
    v["large elements"].reverse()
    v["large elements"][-1][1].append(1)
    v["large elements"][-1][1][0] = float(v["large elements"][-1][1][0])
    del v["large elements"][0]
    v["nested"]["big"]["k1"].append(1)
    v["nested"]["big"]["k1"][0] = True
    v["nested"]["big"]["new"] = 1
    v["nested"]["big"]["k0"] = v["nested"]["big"].pop("k0")
    v["nested"]["small"]["deep"][0][0][0].append(1)
    v["types"][0] = True
    v["types"][0] = 1.0
    v["types"][1] = False
    v["types"][1] = 0.0
    v["types"][1] = -0.0
    v["types"][2] = 1
    v["types"][3] = Str("s")
    v["types"][4] = bytearray(b"b")
    v["types"][5] = [1]
    v["types"][6] = (1,)
    v["types"][7] = {True: 2}
    v["types"][7] = {1.0: 2}
    v["types"][7] = {1: 2.0}
    v["types"][8] = {True}
    v["types"][8] = frozenset({1})
    v["types"][9] = False
    v["types"][10] = 0.0
    v["types"][11] = 0
""".strip().splitlines()


def at_sizes(statements: Iterable[str]) -> list[Any]:
    """Return each statement at each size that its values can have, and every day at two of three, in turn."""
    found: list[Any] = []
    for number, statement in enumerate(map(str.strip, statements)):
        sizes = [8] if '"types"' in statement or '"note"' in statement else [8, 70, 500]
        turned = sizes[number % len(sizes) :] + sizes[: number % len(sizes)]
        found += first(2, [(statement, size) for size in turned])
    return found


@pytest.mark.parametrize(("statement", "size"), at_sizes(MUTATIONS))
def test_a_mutation_is_seen(statement, size, long_run):
    """The value was assigned or loaded, under a key of its own or inside another value.

    Large ones run in two of these four.
    """
    mutation = _set(statement)
    state = Versioned()
    state["whole"] = sized(size, statement)
    state.update(clone(state["whole"]))
    state.commit()
    state.repository.branches.create("loaded", state.head)
    loaded = Versioned(state.repository, branch="loaded")
    places: list[tuple[Versioned, Any]] = [
        (state, state["whole"]),
        (loaded, loaded),
        (state, state),
        (loaded, loaded["whole"]),
    ]
    for handle, live in places if long_run or size < 500 else places[:2]:
        before = exact(handle.copy())
        mutation(live)
        assert check(handle, handle.copy(), before), "this test is about changes"


NO_CHANGES = """
    v["list"].append([1]); v["list"].pop()
    v["list"].reverse(); v["list"].reverse()
    v["list"][0] = list(v["list"][0])
    v["list"][:] = [list(x) for x in v["list"]]
    v["list"] = [list(x) for x in v["list"]]
    v["flat"][0] += 1; v["flat"][0] -= 1
    v["dict"]["k0"] = dict(v["dict"]["k0"])
    v["dict"].update(v["dict"])
    v["dict"] = {k: dict(x) for k, x in v["dict"].items()}
    v["dict"].setdefault("k0", 5)
    v["dict"]["new"] = 1; del v["dict"]["new"]
    v["strings"][1] = "".join(list(v["strings"][1]))
    v["tuple"] = (v["tuple"][0], list(v["tuple"][1]), {"a": [1]})
    v["set"].add(0)
    v["set"] = set(sorted(v["set"], reverse=True))
    v["set"].add("x"); v["set"].remove("x")
    v["buffer"] = bytearray(v["buffer"])
    v["buffer"][0] = v["buffer"][0]
    v["array"] = v["array"].copy()
    v["array"] = np.asfortranarray(v["array"])
    v["array"] += 0
    v["deque"].rotate(1); v["deque"].rotate(-1)
    v["types"][11] = float("nan")
    v["large elements"][0] = "".join(list(v["large elements"][0]))
    v["nested"]["big"] = {k: list(x) for k, x in v["nested"]["big"].items()}
""".strip().splitlines()


@pytest.mark.parametrize(("statement", "size"), at_sizes(NO_CHANGES))
def test_equal_content_is_no_change(statement, size):
    value = sized(size, statement)
    state = Versioned(pickle="refuse")
    state.update(clone(value))
    state["whole"] = value
    first = state.commit()
    for live in (state, state["whole"], Versioned(state.repository)):
        _set(statement)(live)
        assert not state.status()
        assert state.commit() == first


# Random mutations


@pytest.mark.parametrize(("size", "seeds", "steps"), [(2, 3, 20), (20, 1, 20), (120, 1, 12), (500, 1, 6)])
def test_random_mutations_of_everything(size, seeds, steps, long_run):
    for seed in range(200 * seeds if long_run else seeds):
        mutate_and_compare(size, seed, steps)


def mutate_and_compare(size: int, seed: int, steps: int) -> None:
    rng = random.Random(1000 * size + seed)
    repository = Repository(Memory())
    state = Versioned(repository)
    state.update(sample(rng, size, data_only=False))
    state["again"] = sample(rng, size // 2 + 1, data_only=False)
    state.commit()
    content = state.copy()
    for _ in range(steps):
        before = exact(content)
        for _ in range(rng.choice((1, 1, 2, 5))):
            # The values alone: what is done to this dict is not done to the state.
            mutate(rng, tuple(content.values()))
        check(state, content, before)
        if rng.random() < 0.1:
            state = Versioned(repository)
            content = state.copy()


@given(any_values, st.integers(0, 2**32))
def test_random_mutations_of_anything(value, seed):
    rng = random.Random(seed)
    repository = Repository(Memory())
    state = Versioned(repository)
    content = {"value": [value, {"at": clone(value)}]}
    state.update(content)
    state.commit()
    repository.branches.create("loaded", state.head)
    for handle in (state, Versioned(repository, branch="loaded")):
        content = handle.copy()
        for _ in range(2):
            before = exact(content)
            mutate(rng, content["value"])
            check(handle, content, before)


@pytest.mark.parametrize("kind", ["list", "numbers", "dict", "nested", "set", "deque", "tuple", "bytearray", "array"])
def test_random_mutations_of_large_values(kind, tmp_path, long_run):
    with Disk(tmp_path / "store") as store:
        for seed in range(20 if long_run else 1):
            rng = random.Random(seed)
            repository = Repository(store)
            state = Versioned(repository, branch=f"b{seed}")
            state["value"] = [make_large(kind, 2500, seed)] if kind == "tuple" else make_large(kind, 2500, seed)
            state.commit()
            for _ in range(6):
                content = state.copy()
                before = exact(content)
                mutate(rng, content["value"])
                check(state, content, before)
                if rng.random() < 0.3:
                    state = Versioned(repository, branch=f"b{seed}")


# The finer points


def test_one_value_under_two_keys_is_watched_under_both():
    edits: list[tuple[Any, Callable[[Any], Any]]] = [
        ([1], lambda v: v.append(2)),
        ([{"n": n} for n in range(500)], lambda v: v[400].update(n=0)),
        ({"a": "x" * 300}, lambda v: v.update(a="y")),
        (bytearray(100_000), lambda v: v.append(1)),
        (np.zeros(5000), lambda v: v.fill(1)),
        ({1}, lambda v: v.add(2)),
        (Thing(a=1), lambda v: v.__dict__.update(a=2)),
    ]
    for shared, edit in edits:
        state = Versioned()
        state["a"] = state["b"] = shared
        state["c"] = {"in": [shared]}
        state.commit()
        edit(shared)
        assert {str(change.path)[0] for change in state.status()} == {"a", "b", "c"}
        past = state.checkout(state.commit())
        assert exact(past["a"]) == exact(past["b"]) == exact(past["c"]["in"][0]) == exact(shared)


def test_the_same_object_assigned_again_after_it_was_mutated():
    edits: list[tuple[Any, Callable[[Any], Any]]] = [
        ([1], lambda v: v.append(2)),
        ([[n] for n in range(900)], lambda v: v[800].append(0)),
        ({"a": {"b": 1}}, lambda v: v["a"].clear()),
        (Thing(a=[1]), lambda v: v.a.clear()),
    ]
    for value, edit in edits:
        state = committed(k=value)
        edit(value)
        state["k"] = value
        state["k"] = state["k"]
        before = exact(value)
        assert state.status()
        assert exact(state.checkout(state.commit())["k"]) == before


def test_an_equal_value_of_another_type_assigned():
    pairs: list[tuple[Any, Any]] = [
        (1, True),
        (0, 0.0),
        (0.0, -0.0),
        ("a", Str("a")),
        ((1,), [1]),
        (b"a", bytearray(b"a")),
        ({}, OrderedDict()),
    ]
    pairs += [
        ([1] * 500, (1,) * 500),
        (b"a" * 9000, bytearray(b"a" * 9000)),
        ({1}, frozenset({1})),
        ("x" * 9000, Str("x" * 9000)),
    ]
    for old, new in pairs:
        for one, another in ((old, new), (new, old)):
            state = committed(k=one, l=[one])
            state["k"], state["l"][0] = another, another
            assert [str(change.path) for change in state.status()] == ["k", "l[0]"]
            past = state.checkout(state.commit())
            assert type(past["k"]) is type(past["l"][0]) is type(another)


def test_a_value_that_was_replaced_is_watched_no_more_and_the_new_one_is():
    state = Versioned()
    old = state["k"] = [1]
    other = state["other"] = [2]
    state.commit()
    new = state["k"] = [1]
    assert not state.status()
    state.commit()
    old.append(5)
    assert not state.status()
    new.append(6)
    other.append(7)
    assert [str(change) for change in state.status()] == ["+ k[1] = 6", "+ other[1] = 7"]


def test_many_small_values():
    """They share marks: a change of one is seen, and only that one is a change."""
    state = Versioned()
    for n in range(500):
        state[f"k{n:03}"] = {"n": n, "list": [n]}
    state.commit()
    for handle in (state, Versioned(state.repository)):
        values = handle.copy()
        for n in (0, 63, 64, 250, 499):
            values[f"k{n:03}"]["list"].append("x")
            assert [str(change.path) for change in handle.status()] == [
                f"k{n:03}.list[{len(values[f'k{n:03}']['list']) - 1}]"
            ]
            handle.commit()
        values["k007"]["list"].append(1)
        del handle["k008"]
        handle["k009"] = {"n": 9.0, "list": [9]}
        assert str(handle.status()).splitlines() == [
            "+ k007.list[1] = 1",
            "- k008 = {'n': 8, 'list': [8]}",
            "~ k009.n = 9 -> 9.0",
        ]
        handle.discard()
        values["k007"]["list"].append(2)
        assert len(handle.status()) == 1
        handle.discard()


def test_what_a_nested_value_turns_into_as_it_grows_and_shrinks():
    """A value takes every form (packed with its parent, inline, a blob of its own, a tree) and returns to the first."""
    state = Versioned()
    value: dict[str, Any] = {"list": [], "dict": {}, "deep": {"list": [[]]}, "text": "", "buffer": bytearray()}
    state["value"] = state["copy"] = value
    state.commit()
    rng = random.Random(7)
    sizes = [1, 3, 10, 40, 150, 500, 150, 40, 5, 1, 0]
    for size in sizes:
        content = state.copy()
        before = exact(content)
        value["list"][:] = [{"n": n, "x": "x" * 20} for n in range(size)]
        value["dict"] = {f"k{n}": ["v" * rng.randrange(200)] for n in range(size)}
        value["deep"]["list"][0][:] = range(size)
        value["text"] = "a line\nand another\n" * size
        value["buffer"][:] = bytes(400 * size)
        check(state, content, before)
        edits = ("value['list'][-1].update(n='new')", "value['deep']['list'][0].reverse()", "value['dict'].popitem()")
        for edit in edits if size else ():
            before = exact(content)
            exec(edit, {"value": value})
            check(state, content, before)


def test_an_element_shared_within_a_list_is_seen_in_each_place():
    state = Versioned()
    shared = {"n": 1}
    state["list"] = [shared] * 300
    state.commit()
    shared["n"] = 2
    assert len(state.status()) == 300
    assert state.checkout(state.commit())["list"] == [{"n": 2}] * 300


def test_values_that_contain_themselves():
    state = Versioned()
    value: list[Any] = [1]
    value.append(value)
    state["loop"] = value
    tree: dict[str, Any] = {"name": "root", "children": []}
    tree["children"].append({"name": "child", "parent": tree})
    state["tree"] = {"pad": ["x"] * 200, "tree": tree}
    first = state.commit()
    loop, root = state.checkout(first)["loop"], state.checkout(first)["tree"]["tree"]
    assert loop[1] is loop
    assert root["children"][0]["parent"] is root
    value.append(2)
    assert state.status()
    state.commit()
    tree["children"][0]["name"] = "changed"
    assert state.status()
    second = state.commit()
    assert state.checkout(second)["tree"]["tree"]["children"][0]["name"] == "changed"


def test_released_values_are_seen_again_once_they_are_loaded():
    state = committed(list=[[n] for n in range(100)], small={"a": 1}, changed=[1])
    state["changed"].append(2)
    assert (state.release("list"), state.release("small"), state.release("changed")) == (True, True, False)
    state["list"][5].append(1)
    state["small"]["a"] = 2
    assert [str(change.path) for change in state.status()] == ["changed[1]", "list[5][1]", "small.a"]


def test_all_values_are_released_at_once_if_none_has_changed():
    state = Versioned()
    state["list"], state["small"], state["gone"] = [[n] for n in range(100)], {"a": 1}, 1
    state.namespace("inner")["value"] = [1]
    state.sequence("appended").append({"n": 1})
    del state["gone"]
    state.commit()
    values = [state["list"], state["small"], state.namespace("inner")["value"], state.sequence("appended")[0]]
    worktree = port.handle(state).worktree
    assert worktree.release_all()
    for value in values:
        value.clear()
    assert list(state.status()) == []
    assert exact(state.copy()) == exact({"appended": [{"n": 1}], "list": [[n] for n in range(100)], "small": {"a": 1}})
    assert state.namespace("inner")["value"] == [1]
    state["small"]["a"] = 2
    assert not worktree.release_all()
    assert [str(change.path) for change in state.status()] == ["small.a"]


def test_released_small_values_are_kept_nowhere():
    state = Versioned()
    values: list[dict[str, Any]] = [{"n": n} for n in range(100)]
    held = [getrefcount(value) for value in values]
    state.update({str(n): value for n, value in enumerate(values)})
    state.commit()
    assert state.release("0")
    values[1]["n"] = "seen"
    assert [str(change.path) for change in state.status()] == ['["1"].n']
    state.commit()
    assert all(state.release(str(n)) for n in range(100))
    state["other"] = {"n": 0}
    state.commit()
    assert [getrefcount(value) for value in values] == held


def test_a_checkout_of_the_head_is_not_watched():
    state = committed(list=[1])
    state.checkout("HEAD")["list"].append(2)
    assert not state.status()


def test_namespaces_are_watched_too():
    state = Versioned()
    state["k"] = [1]
    space = state.namespace("worker").namespace("inner")
    space["k"] = [2]
    state.commit()
    space["k"].append(3)
    assert [str(change) for change in state.status()] == ["+ @worker.@inner.k[1] = 3"]
    assert state.checkout(state.commit()).namespace("worker").namespace("inner")["k"] == [2, 3]
    assert state["k"] == [1]


def test_changes_of_what_a_sequence_gives_are_seen():
    state = Versioned()
    log = state.sequence("log")
    log.extend([{"n": [1]}, {"n": [2]}])
    log[0]["n"].append("x")
    state.commit()
    for element in (log[0], log[-1], *log[:1], *log):
        element["n"].append("y")
    assert [str(change.path) for change in state.status()] == [
        "log[0].n[2]",
        "log[0].n[3]",
        "log[0].n[4]",
        "log[1].n[1]",
        "log[1].n[2]",
    ]
    state.commit()
    assert state.checkout("HEAD")["log"] == list(log) == [{"n": [1, "x", "y", "y", "y"]}, {"n": [2, "y", "y"]}]
    assert state["log"] == log
