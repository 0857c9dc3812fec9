"""The laws of three-way merges: identity, symmetry, no invented values, one form whatever the way."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from tests.support.exact import clone, exact
from tests.support.mutations import mutate, sample
from tests.support.state_trees import StateTrees
from versioned_state.repository.merging.merge import MISSING, Conflict


def merge(base: Any, ours: Any, theirs: Any, policies: Any = None, *, theirs_first: bool = True) -> Any:
    """The value under one key, and the paths of the conflicts."""
    b, o, t = ({} if side is MISSING else {"k": side} for side in (base, ours, theirs))
    state, conflicts = StateTrees().merge(b, o, t, policies, theirs_first=theirs_first)
    return state.get("k", MISSING), [str(conflict.path) for conflict in conflicts]


LARGE = [{"id": n, "text": "x" * 40} for n in range(400)]
"""A list that is a tree; a dict of it is one as well."""


def edited(value: Any, *edits: Any) -> Any:
    value = copy.deepcopy(value)
    for edit in edits:
        edit(value)
    return value


def put(*steps: Any) -> Any:
    *way, last, new = steps

    def edit(value: Any) -> None:
        for step in way:
            value = value[step]
        value[last] = new

    return edit


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ({"a": 1, "b": 2}, {"a": 9, "b": 2}, {"a": 1, "b": 8}, {"a": 9, "b": 8}),
        (
            {"a": {"b": {"c": 1, "d": 1}}},
            {"a": {"b": {"c": 2, "d": 1}}},
            {"a": {"b": {"c": 1, "d": 2}}},
            {"a": {"b": {"c": 2, "d": 2}}},
        ),
        ({"a": 1}, {"a": 1, "x": 1}, {"a": 1, "y": 1}, {"a": 1, "x": 1, "y": 1}),
        ({"a": 1, "b": 1}, {"a": 1}, {"b": 1}, {}),
        ([1, 2, 3, 4], [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ([1, 2, 3, 4], [1, 3, 4], [1, 2, 3, 9], [1, 3, 9]),
        ([{"a": 1, "b": 1}], [{"a": 2, "b": 1}], [{"a": 1, "b": 2}], [{"a": 2, "b": 2}]),
        ([1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3]),
        ([1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]),
        ([1, 2, 3], [], [1, 2, 3, 4], [4]),
        ({1, 2, 3}, {1, 2, 4}, {2, 3, 5}, {2, 4, 5}),
        (frozenset({1}), frozenset({1, 2}), frozenset(), frozenset({2})),
        ("a\nb\nc\nd\n", "A\nb\nc\nd\n", "a\nb\nc\nD\n", "A\nb\nc\nD\n"),
        ("a\nb\n", "a\nb\nc\n", "0\na\nb\n", "0\na\nb\nc\n"),
        (MISSING, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}),
        (MISSING, {1, 2}, {2, 3}, {1, 2, 3}),
        (MISSING, 1, 1, 1),
        (1, MISSING, MISSING, MISSING),
        (
            LARGE,
            edited(LARGE, put(3, "id", 0)),
            edited(LARGE, put(300, "text", "y")),
            edited(LARGE, put(3, "id", 0), put(300, "text", "y")),
        ),
        (
            LARGE,
            edited(LARGE, put(3, "id", 0)),
            edited(LARGE, put(3, "text", "y")),
            edited(LARGE, put(3, "id", 0), put(3, "text", "y")),
        ),
        (LARGE, LARGE[5:], [*LARGE, "end"], [*LARGE[5:], "end"]),
        (
            {"in": {"large": LARGE}},
            {"in": {"large": LARGE[1:]}},
            {"in": {"large": LARGE, "x": 1}},
            {"in": {"large": LARGE[1:], "x": 1}},
        ),
        (LARGE, LARGE[:40], ["start", *LARGE], ["start", *LARGE[:40]]),
        (LARGE[:3], LARGE, ["start", *LARGE[:3]], ["start", *LARGE]),
    ],
)
def test_what_both_did_is_in_the_merge(base, ours, theirs, merged):
    assert (
        exact(merge(base, ours, theirs)[0]) == exact(merged)
        if merged is not MISSING
        else merge(base, ours, theirs)[0] is MISSING
    )
    assert merge(base, ours, theirs)[1] == []
    assert repr(merge(base, theirs, ours)[0]) == repr(merge(base, ours, theirs)[0]), "whichever side is ours"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "paths"),
    [
        (1, 2, 3, ["k"]),
        (MISSING, 1, 2, ["k"]),
        (1, MISSING, 2, ["k"]),
        (1, True, 1.0, ["k"]),
        ([1], [1, 2], [1, 3], ["k"]),
        (MISSING, [1], [2], ["k"]),
        ({"a": 1}, {"a": 2}, {"a": 3}, ["k.a"]),
        ({"a": [{"b": 1, "c": 1}]}, {"a": [{"b": 2, "c": 2}]}, {"a": [{"b": 3, "c": 3}]}, ["k.a[0].b", "k.a[0].c"]),
        ([1, 2, 3], [1, 9, 3], [1, 8, 3], ["k[1]"]),
        ([1, 2, 3], [0, 1, 9, 3], [1, 8, 3], ["k[1]"]),
        ([1, 2, 3, 4], [3, 4], [8, 9, 3, 4], ["k[0]", "k[1]"]),
        ([1, 2, 3, 4], [9, 3, 4], [0, 8, 3, 4], ["k[0]", "k[1]"]),
        ([{"a": 1}, {"a": 2}], [{"a": 3}], [{"a": 4}, {"a": 5}], ["k[0].a", "k[1]"]),
        ({"x": 1, "a": 1}, {"x": 1, "a": 2, 1: 0}, {"x": 1, "a": 3, True: 0}, ["k"]),
        ([1, 2, 3, 4], [1, 4], [1, 2, "x", 3, 4], ["k"]),
        ([1, 2, 3], [1, 3], [1, 9, 3], ["k[1]"]),
        ((1, 2), (1, 3), (2, 2), ["k"]),
        ("a\nb\n", "a\nB\n", "a\nC\n", ["k"]),
        ("one line", "our line", "their line", ["k"]),
        ([1], {"a": 1}, [2], ["k"]),
    ],
)
def test_what_cannot_be_both_is_a_conflict_and_ours_stands(base, ours, theirs, paths):
    merged, conflicts = merge(base, ours, theirs)
    assert conflicts == paths
    assert exact(merged) == exact(ours)
    assert len(merge(base, theirs, ours)[1]) == len(paths)


def test_a_conflict_shows_its_sides():
    _, (conflict,) = StateTrees().merge({"a": [1]}, {"a": [1, 2]}, {"a": [1, 3]})
    assert (conflict.base, conflict.ours, conflict.theirs, conflict.both_appended) == ([1], [1, 2], [1, 3], True)
    _, (conflict,) = StateTrees().merge({"a": 1}, {}, {"a": 2})
    assert (conflict.base, conflict.ours, conflict.theirs, conflict.both_appended) == (1, MISSING, 2, False)
    assert isinstance(conflict, Conflict)


@pytest.mark.parametrize(
    ("policies", "base", "ours", "theirs", "merged"),
    [
        ({"k": "ours"}, 1, 2, 3, 2),
        ({"k": "theirs"}, 1, 2, 3, 3),
        ({"k": "theirs"}, 1, 2, MISSING, MISSING),
        (
            {"k": "ours"},
            {"a": 1, "b": 1, "c": 1},
            {"a": 2, "b": 1, "c": 2},
            {"a": 3, "b": 2, "c": 1},
            {"a": 2, "b": 2, "c": 2},
        ),
        (
            {"**": "ours"},
            {"a": {"x": 1, "y": 1}},
            {"a": {"x": 2, "y": 1}},
            {"a": {"x": 3, "y": 3}},
            {"a": {"x": 2, "y": 3}},
        ),
        (
            {"**": "theirs"},
            {"a": {"x": 1, "y": 1}},
            {"a": {"x": 2, "y": 2}},
            {"a": {"x": 3, "y": 1}},
            {"a": {"x": 3, "y": 2}},
        ),
        (
            {"k": "theirs", "k.a": "ours"},
            {"a": {"x": 1}, "b": 1},
            {"a": {"x": 2}, "b": 2},
            {"a": {"x": 3}, "b": 3},
            {"a": {"x": 2}, "b": 3},
        ),
        ({"k": "ours"}, [1, 2, 3], [1, 9, 3], [1, 8, 3, 4], [1, 9, 3, 4]),
        ({"k": "ours"}, [1, 2, 3], [1, 2, 3, "ours"], [0, 2, 3, "theirs"], [0, 2, 3, "ours"]),
        ({"k": "theirs"}, [1, 2, 3], [0, 2, 3, "ours"], [1, 2, 3, "theirs"], [0, 2, 3, "theirs"]),
        ({"k": "ours"}, [1], [1, 2], [1, 2, 3], [1, 2, 3]),
        ({"k": "theirs"}, "a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
        ({"k": "ours"}, LARGE, [*LARGE, "ours"], ["first", *LARGE, "theirs"], ["first", *LARGE, "ours"]),
        ({"k": "ours"}, {"a": 1}, {"a": 2}, MISSING, {"a": 2}),
        ({"k": "sum"}, 10, 12, 15, 17),
        ({"k": "sum"}, 10, 11, 11, 12),
        ({"k": "sum"}, MISSING, 2, 3, 5),
        ({"k.*": "sum"}, {"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 2, "b": 2}, {"a": 3, "b": 3}),
        ({"**.n": "sum"}, {"x": [{"n": 1}]}, {"x": [{"n": 2}]}, {"x": [{"n": 5}]}, {"x": [{"n": 6}]}),
        ({"k": "max"}, 1, 5, 3, 5),
        ({"k": "min"}, 9, 5, 3, 3),
        ({"k": "append"}, [1], [1, 2], [1, 3], [1, 3, 2]),
        ({"k": "append"}, [1], [1, 2], [1, 2], [1, 2, 2]),
        ({"k": "append"}, MISSING, [1], [2], [2, 1]),
        ({"k": "append"}, [{"a": 1}], [{"a": 2}, 5], [{"a": 1}, 6], [{"a": 2}, 6, 5]),
        ({"k": "append"}, LARGE, [*LARGE, "ours"], [*LARGE, "theirs"], [*LARGE, "theirs", "ours"]),
        ({"k": "union"}, [1], [1, 2, 3], [1, 3, 4], [1, 2, 3, 4]),
        ({"k": "union"}, [1], ["x", 1], [1, "x", "y"], ["x", 1, "y"]),
        ({"k": "union"}, [1, 2, 3], [1, 2, 3, 1], [2, 3, 3, 4], [2, 3, 1, 4]),
        ({"k": "union"}, [0, 5, 0], [7, 5, 0], [0, 5, 7, 8], [7, 5, 8]),
        ({"k": "union"}, [1, 1], [1, 1, True], [1, 1, 1.0, 2], [1, 1, True, 1.0, 2]),
        ({"k": "union"}, LARGE, [LARGE[7], *LARGE, "x"], ["x", *LARGE, LARGE[9], "y"], ["x", *LARGE, "y"]),
        ({"k": "union"}, [{"a": 1, "b": 1}], [{"a": 2, "b": 1}, 5], [{"a": 1, "b": 2}, 5], [{"a": 2, "b": 2}, 5]),
        ({"k": "union"}, "a\n", "a\nb\nb\nc\n", "a\nd\nb\n", "a\nb\nb\nc\nd\n"),
        ({"k.a": "union"}, {"a": 1}, {}, {"a": 2}, {"a": 2}),
        ({"k": "union"}, "a\n", "a\nb\n", "a\nc\n", "a\nb\nc\n"),
        ({"k": lambda base, ours, theirs: [base, ours, theirs]}, 1, 2, 3, [1, 2, 3]),
        ({"k": lambda base, ours, theirs: MISSING}, 1, 2, 3, MISSING),
        ({"**": "ours", "k": "theirs"}, 1, 2, 3, 3),
        ({"k": "theirs", "**": "ours"}, 1, 2, 3, 2),
        ({"k": "ours", "**": "text"}, "a\nb\n", "A\nb\n", "a\nB\n", "A\nB\n"),
    ],
)
def test_policies(policies, base, ours, theirs, merged):
    found, conflicts = merge(base, ours, theirs, policies)
    assert conflicts == []
    assert (found is MISSING) if merged is MISSING else (exact(found) == exact(merged))


def test_a_policy_that_does_not_apply_leaves_the_conflict():
    for policy in ("sum", "max", "append", "union", "text"):
        assert merge("a", "b", "c", {"k": policy})[1] == ["k"]
    assert merge([1], [1, 2], [1, 3], {"other": "append"})[1] == ["k"]


def test_what_was_committed_first_comes_first():
    assert merge([1], [1, 2], [1, 3], {"k": "append"}, theirs_first=False)[0] == [1, 2, 3]


def test_a_conflict_that_was_settled():
    bench = StateTrees()
    sides = {"a": 1, "l": [1]}, {"a": 2, "l": [1, 2]}, {"a": 3, "l": [1, 3]}
    assert bench.merge(*sides, a=9)[0] == {"a": 9, "l": [1, 2]}
    assert [str(conflict.path) for conflict in bench.merge(*sides, a=9)[1]] == ["l"]
    assert bench.merge(*sides, a=MISSING, l=[1, 2, 3]) == ({"l": [1, 2, 3]}, ())


ELEMENTS = st.lists(st.integers(0, 12), max_size=8)


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # many drawn sides are equal, or in conflict
@given(base=ELEMENTS, ours=ELEMENTS, theirs=ELEMENTS, pad=st.booleans())
def test_the_laws_of_union(base, ours, theirs, pad):
    """The result has both sides' additions once, whichever is ours, without what both removed, and nothing else."""
    base, ours, theirs = ([{"n": n, "text": "x" * 300 * pad} for n in side] for side in (base, ours, theirs))

    def merged(*sides: Any) -> list[int] | None:
        one, two, three = ({"k": side} for side in sides)
        state, conflicts = StateTrees().merge(one, two, three, {"k": "union"})
        return None if conflicts else [element["n"] for element in state["k"]]

    result = merged(base, ours, theirs)
    assert merged(base, base, theirs) == [element["n"] for element in theirs]
    assert (merged(base, theirs, ours) is None) == (result is None)
    b, o, t = ([element["n"] for element in side] for side in (base, ours, theirs))
    assume(result is not None and b not in (o, t) and o != t)
    assert result is not None
    assert set(merged(base, theirs, ours) or ()) == set(result), "whichever side is ours"
    for n in range(13):
        if n not in b or (n not in o and n not in t):
            assert result.count(n) == (n in o or n in t)
        assert result.count(n) <= max(b.count(n), 1)


def test_the_order_of_a_dict():
    base = {"b": 1, "a": 1}
    merged, _ = merge(base, {**base, "z": 1}, {"c": 0, **base, "y": 1})
    assert list(merged) == ["c", "b", "a", "y", "z"]
    assert list(merge(base, {"a": 1, "b": 1}, {"b": 2, "a": 1})[0].items()) == [("a", 1), ("b", 2)]
    large: dict[str, Any] = {f"key {n * 7919 % 1000}": n for n in range(1000)}
    ours, theirs = {**large, "new": 1}, {"first": 1, **large}
    merged, conflicts = merge(large, ours, theirs)
    assert list(merged) == ["first", *large, "new"]
    assert merged == {**large, "new": 1, "first": 1}
    assert not conflicts
    del ours["key 0"]
    theirs["key 7"] = "changed"
    assert list(merge(large, ours, theirs)[0]) == ["first", *[key for key in large if key != "key 0"], "new"]


def states(seed: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A state of anything, and two that came of it by some changes."""
    rng = random.Random(seed)
    base: dict[str, Any] = {key: sample(rng, rng.choice([1, 5, 20, 60])) for key in "abcd"}
    if seed % 4 == 0:
        base["large"] = [{"n": n, "text": "x" * rng.randrange(60)} for n in range(200)]
        base["dict"] = {f"k{rng.randrange(10**6)}": [n] for n in range(300)}
    sides = []
    for _ in range(2):
        side = clone(base)
        for _ in range(rng.choice([1, 1, 2, 4, 8])):
            key = rng.choice(sorted(side))
            if rng.random() < 0.1:
                side[rng.choice("abcdef")] = sample(rng, 5)
            elif isinstance(side[key], list | dict | set | bytearray):
                mutate(rng, side[key])
            else:
                side[key] = sample(rng, 3)
        sides.append(side)
    return base, sides[0], sides[1]


def test_laws(long_run):
    conflicting = 0
    for seed in range(4000 if long_run else 12):
        base, ours, theirs = states(seed)
        bench = StateTrees()
        for sides, expected in (
            ((base,) * 3, base),
            ((base, ours, base), ours),
            ((base, base, theirs), theirs),
            ((base, ours, ours), ours),
        ):
            merged, conflicts = bench.merge(*map(clone, sides))
            assert not conflicts, seed
            assert exact(merged) == exact(dict(sorted(expected.items()))), seed
        merged, conflicts = bench.merge(base, ours, theirs)
        swapped, again = bench.merge(base, theirs, ours)
        paths = [str(conflict.path) for conflict in conflicts]
        assert paths == [str(conflict.path) for conflict in again], seed
        assert len(set(paths)) == len(paths), seed
        if conflicts:
            conflicting += 1
            by_hand: dict[str, Any] = dict.fromkeys(paths, "by hand")
            assert not bench.merge(base, ours, theirs, **by_hand)[1], "each is settled by its path"
            continue
        assert exact(merged) == exact(swapped), seed
        invented = leaves(merged) - leaves(base) - leaves(ours) - leaves(theirs)
        assert not {leaf for leaf in invented if "\\n" not in leaf}, seed
    assert conflicting


def leaves(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(itertools.chain.from_iterable(map(leaves, value.values())))
    if isinstance(value, list):
        return set(itertools.chain.from_iterable(map(leaves, value)))
    if isinstance(value, set | frozenset):
        return {repr(exact(part)) for part in value}
    return {repr(exact(value))}


def test_disjoint_changes_merge_to_both(long_run):
    """Each side changes places of its own: the merge is both changes, one after the other."""
    for seed in range(2000 if long_run else 40):
        rng = random.Random(seed)
        base: dict[str, Any] = {
            "list": [{"n": n, "text": "x" * rng.randrange(80)} for n in range(rng.choice([5, 30, 300]))]
        }
        base["dict"] = {f"k{n}": {"deep": [n] * rng.randrange(30)} for n in range(rng.choice([3, 20, 200]))}
        ours, theirs, both = clone(base), clone(base), clone(base)
        places = rng.sample(range(len(base["list"])), 4)
        for index, side in zip(places, (ours, ours, theirs, theirs), strict=True):
            field = rng.choice(["n", "text", "new"])
            for state in (side, both):
                state["list"][index][field] = f"{index}" * 5
        for number, side in enumerate((ours, theirs)):
            keys = [key for key in base["dict"] if hash(key) % 2 == number]
            for key in rng.sample(keys, min(2, len(keys))):
                for state in (side, both):
                    state["dict"][key]["deep"] = "changed" * number
        ours["list"].insert(0, "first")
        theirs["list"].append("last")
        both["list"] = ["first", *both["list"], "last"]
        merged, conflicts = StateTrees().merge(base, ours, theirs)
        assert not conflicts, seed
        assert exact(merged) == exact(dict(sorted(both.items()))), seed


# Elements that are equal to each other


@pytest.mark.parametrize("ends", ["front", "back", "none"])
def test_changes_of_different_ones_of_equal_elements_are_all_made_where_they_were_made(ends: str, long_run: bool):  # noqa: FBT001
    for seed in range(3000 if long_run else 40):
        rng = random.Random(seed)
        size = rng.choice([3, 6, 20, 90, 700])
        base = [rng.choice("ab") for _ in range(size)]
        indices = rng.sample(range(1, size - 1), min(size - 2, rng.choice([2, 5, 12])))
        ours, theirs, both = list(base), list(base), list(base)
        for number, index in enumerate(indices):
            (ours if number % 2 and ends != "front" else theirs)[index] = both[index] = f"new {number}"
        if ends == "front":
            ours[:0] = both[:0] = ["first", "second"]
        elif ends == "back":
            theirs += ["last"]
            both += ["last"]
        merged, conflicts = StateTrees().merge({"list": base}, {"list": ours}, {"list": theirs})
        assert not conflicts, seed
        assert merged["list"] == both, seed
