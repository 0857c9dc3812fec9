"""Namespaces never meet each other or the keys of the state, and are part of its commits."""

from __future__ import annotations

from contextlib import suppress

from tests.support.handles import RollbackWantedError
from versioned_state import StatePath, Versioned


def test_namespaces_never_meet():
    state = Versioned()
    state["user/1"] = "slash"
    state["n"] = "top"
    state.namespace("user")["1"] = "namespace"
    state.namespace("user").namespace("1")["x"] = "deep"
    state.namespace("user/1")["x"] = "other"
    state.namespace("n")["n"] = "inner"
    assert dict(state) == {"n": "top", "user/1": "slash"}
    commit = state.commit()
    for top in (state, state.checkout(commit), Versioned(state.repository)):
        assert dict(top.namespace("user")) == {"1": "namespace"}
        assert dict(top.namespace("user").namespace("1")) == {"x": "deep"}
        assert dict(top.namespace("user/1")) == {"x": "other"}
        assert dict(top.namespace("nothing")) == {}
        assert len(top) == 2
        assert len(top.namespace("n")) == 1
    assert state.checkout(commit).namespaces() == ["n", "user", "user/1"]
    assert state.checkout(commit).namespace("user").namespaces() == ["1"]
    assert [str(change.path) for change in state.diff(commit, "HEAD~1").under(StatePath().namespace("user"))] == [
        '@user["1"]',
        '@user.@"1".x',
    ]


def test_a_namespace_is_part_of_the_states_rounds():
    state = Versioned()
    space = state.namespace("worker")
    space["list"] = [1]
    state.commit()
    space["list"].append(2)
    with suppress(RollbackWantedError), state.transaction():
        space["list"].append(3)
        space["other"] = 1
        raise RollbackWantedError
    assert dict(space) == {"list": [1, 2]}
    state.discard()
    assert dict(space) == {"list": [1]}
    space.sequence("list").append(5)
    assert space["list"] == [1, 5]
