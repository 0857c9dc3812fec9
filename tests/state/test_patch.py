"""A diff is a patch: what changed in one state is changed in another, by way of JSON."""

from __future__ import annotations

import datetime as dt
import json
import random
from typing import Any

import pytest

from tests.support.exact import clone, exact
from tests.support.handles import committed
from tests.support.mutations import mutate, sample
from versioned_state import Versioned
from versioned_state.errors import InvalidArgumentError, PatchConflictError, PickleRefusedError


def over_json(patch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return json.loads(json.dumps(patch, allow_nan=False))  # type: ignore[no-any-return]


class NotData:
    def __getstate__(self) -> dict[str, Any]:
        return {}


def test_any_change_goes_over_json(long_run):
    for seed in range(2000 if long_run else 25):
        rng = random.Random(seed)
        there = Versioned()
        there.update({key: sample(rng, rng.choice([1, 10, 40])) for key in "abcd"})
        there["large"] = [{"n": n, "text": "x" * 30} for n in range(300)]
        there.namespace("n")["x"] = {"a": 1}
        here = Versioned(pickle="own")
        here.update({key: clone(value) for key, value in there.items()})
        here.namespace("n")["x"] = {"a": 1}
        here.commit()
        first = there.commit()
        for _ in range(rng.randrange(1, 6)):
            key = rng.choice(["a", "b", "c", "d", "large", "large"])
            if isinstance(there.get(key), list | dict | set | bytearray) and rng.random() < 0.8:
                mutate(rng, there[key])
            elif rng.random() < 0.5:
                there[key] = sample(rng, 5)
            else:
                there.pop(key, None)
        there.namespace("n")["x"]["a"] = seed
        second = there.commit()
        try:
            patch = over_json(there.diff(first, second).to_patch())
        except PickleRefusedError:
            continue
        here.apply(patch)
        assert exact(dict(here)) == exact(dict(there)), seed
        assert here.namespace("n")["x"] == {"a": seed}
        here.apply(over_json(there.diff(second, first).to_patch()))
        assert not here.status(), seed
        here.apply(there.diff(first, second))
        assert exact(dict(here)) == exact(dict(there)), seed


def test_values_that_json_has_not():
    state = committed(a=0)
    first = state.head
    values = [
        1.0,
        float("nan"),
        -0.0,
        1 << 60,
        1 << 80,
        (1, [2]),
        {1: {"$cell": 1}},
        {"$cell": "x"},
        b"x",
        "\ud800",
        {3, 4},
        dt.date(2026, 1, 1),
    ]
    state["a"] = values
    patch = over_json(state.diff(first).to_patch())
    state.discard()
    state.apply(patch)
    assert exact(state["a"]) == exact(values)


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        (lambda s: s.update(step=5), ("step",)),
        (lambda s: s.pop("step"), ("step",)),
        (lambda s: s["list"].append("other"), ("list[2]",)),
        (lambda s: s["prefs"].update(new=1), ("prefs.new",)),
        (lambda s: s.update(prefs=3), ("prefs.new", "prefs.theme")),
        (lambda s: s["prefs"].pop("theme"), ("prefs.theme",)),
    ],
)
def test_what_does_not_fit_changes_nothing(change, paths):
    state = committed(step=1, list=["a", "b"], prefs={"theme": "dark"})
    first = state.head
    state["step"] = 2
    state["list"].append("c")
    state["prefs"].update(theme="light", new=True)
    patch = state.diff(first, state.commit()).to_patch()
    state.reset(first)
    change(state)
    before, prefs = exact(dict(state)), state["prefs"]
    with pytest.raises(PatchConflictError) as caught:
        state.apply(patch)
    assert tuple(sorted(caught.value.paths)) == paths
    assert exact(dict(state)) == before
    assert state["prefs"] is prefs


@pytest.mark.parametrize(
    "patch",
    [
        None,
        {},
        [1],
        [{"path": "a"}],
        [{"path": "a", "kind": "added"}],
        [{"path": "a[", "kind": "added", "new": 1}],
        [{"kind": "removed", "old": 1}],
        [{"path": "a", "kind": "moved", "new": 1}],
        [{"path": "a", "kind": "added", "new": {"$cell": "no"}}],
        [{"path": "a", "kind": "added", "new": {"$cell": 3}}],
        [{"path": "a", "kind": "added", "new": {"$cell": "xxxx"}}],
    ],
)
def test_what_is_no_patch(patch):
    state = Versioned()
    with pytest.raises(InvalidArgumentError):
        state.apply(patch)
    assert not state.status()


def test_objects_are_no_data():
    state = Versioned()
    first = state.commit(allow_empty=True)
    state["a"] = NotData()
    with pytest.raises(PickleRefusedError, match="NotData"):
        state.diff(first).to_patch()


def test_below_a_key_that_equals_nothing():
    nan = float("nan")
    state = committed(d={nan: {"n": 1}, (1, nan): [1], "z": 0})
    first = state.head
    state["d"][nan]["n"] = 2
    next(value for value in state["d"].values() if type(value) is list).append(2)
    state["d"]["z"] = state["d"].pop("z")
    state["d"][nan] = state["d"].pop(nan)
    second = state.commit()
    patch = json.loads(json.dumps(state.diff(first, second).to_patch()))
    state.reset(first)
    state.apply(patch)
    assert repr(state["d"]) == "{(1, nan): [1, 2], 'z': 0, nan: {'n': 2}}"
    assert not state.diff(second)
