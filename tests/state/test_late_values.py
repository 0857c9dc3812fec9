"""Values that could not follow the head when it moved, because the store failed, and follow it later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.faults import Attempt, attempts
from tests.support.handles import two
from tests.support.long_runs import first
from versioned_state import Memory, Versioned
from versioned_state.errors import (
    MergeConflictError,
)
from versioned_state.storage.wrappers.faulty import Faulty
from versioned_state.values.keys import user_key

FOLLOWS: dict[str, Callable[[Versioned], Any]] = {
    "commit": lambda s: (s.update(x=1), s.commit("ours")),
    "refresh": lambda s: s.refresh(),
    "merge": lambda s: (s.update(x=1), s.commit(), s.merge("side")),
    "cherry_pick": lambda s: s.cherry_pick("side"),
    "fast-forward": lambda s: s.merge("side"),
    "rebase": lambda s: s.rebase("side"),
    "reset": lambda s: s.reset("side"),
    "switch": lambda s: s.switch("side"),
}


def behind(call: str, attempt: Attempt) -> Versioned:
    """Return a handle whose live values had to follow the head while a call of the store failed."""
    memory = Memory()
    theirs = Versioned(memory)
    theirs.update({key: ["x" * 300] * 20 for key in ("l", "m", "n", "gone")}, d={"a": 0, "b": 0}, o=[object])
    theirs.commit()
    faulty = Faulty(memory)
    ours = Versioned(faulty)
    dict(ours)
    side = theirs.fork("side")
    for state in (side,) if call not in ("commit", "refresh") else (theirs,):
        state["l"].insert(0, "theirs")
        state["m"][3] = "theirs"
        state["d"]["a"] = "theirs"
        state["o"].append(1)
        del state["gone"]
        state.commit()
    with attempt.on(faulty):
        FOLLOWS[call](ours)
    if attempt.failed:
        FOLLOWS[call](ours)
    return ours


THEN = ("get", "status", "commit", "save")


def _cases() -> list[Any]:
    """Return every call with each next step in the long run, and with two of the four every day."""
    found: list[Any] = []
    for number, call in enumerate(FOLLOWS):
        turned = THEN[number % 4 :] + THEN[: number % 4]
        found += first(2, [(call, then) for then in turned])
    return found


@pytest.mark.parametrize(("call", "then"), _cases())
def test_what_is_changed_before_a_value_could_follow_is_a_change_of_ours(call, then):
    late = 0
    for attempt in attempts():
        ours = behind(call, attempt)
        held = {key: ours._worktree._entries[user_key(key)].value for key in ("l", "m", "d", "o")}
        late += held["l"][0] != "theirs"
        held["l"].append("ours")
        held["m"][5] = "ours"
        held["d"]["b"] = "ours"
        held["o"].insert(0, 0)
        if then == "get":
            assert ours["l"] is held["l"]
        elif then == "status":
            assert [str(change.path) for change in ours.status()] == ["d.b", "l[21]", "m[5]", "o[0]"], attempt.number
        elif then == "save":
            with ours.transaction():
                held["l"].append("more")
            assert held["l"].pop() == "more"
        ours.commit()
        for key, value in held.items():
            assert ours[key] is value, (attempt.number, key)
        assert (held["l"][0], held["l"][-1], len(held["l"])) == ("theirs", "ours", 22), attempt.number
        assert (held["m"][3], held["m"][5], held["d"], held["o"]) == (
            "theirs",
            "ours",
            {"a": "theirs", "b": "ours"},
            [0, object, 1],
        ), attempt.number
        assert "gone" not in ours
        assert ours.checkout("HEAD").copy() == ours.copy()
        assert not ours.status()
    assert late or call == "refresh", (
        "at some call of the store, values could not follow; what is not committed is read before"
    )


@pytest.mark.parametrize("settle", ["assign", "assign what is there", "delete", "discard", "mend"])
def test_what_is_changed_in_the_same_place_before_a_value_could_follow_is_a_conflict(settle):
    late = 0
    for attempt in attempts():
        ours = behind("reset", attempt)
        held = ours._worktree._entries[user_key("m")].value
        behind_now = held[3] != "theirs"
        held[3] = "ours"
        if behind_now:
            late += 1
            for look in (partial(ours.get, "m"), ours.status, ours.commit, partial(ours.merge, "side")):
                with pytest.raises(MergeConflictError, match=r"m\[3\]") as caught:
                    look()
                assert "discard()" in caught.value.hint
                assert held[3] == "ours"
        if settle == "assign":
            ours["m"] = ["mine"]
        elif settle == "assign what is there":
            ours["m"] = held
        elif settle == "delete":
            del ours["m"]
        elif settle == "discard":
            ours.discard()
            assert held[3] == "theirs"
        else:
            held[3] = "theirs"
        expected = {"assign": ["mine"], "delete": None, "discard": held, "mend": held}.get(settle, held)
        assert ours.get("m") == expected
        ours.commit()
        assert ours.checkout("HEAD").get("m") == ours.get("m") == expected, attempt.number
        assert ours["l"][0] == "theirs"
    assert late


def test_a_dict_with_a_nan_key_follows_the_head():
    ours, theirs = two(d={float("nan"): 1, "x": 0})
    theirs["d"]["x"] = 1
    theirs.commit()
    held = ours["d"]
    ours.refresh()
    assert held["x"] == 1
    assert not ours.status()
