"""``status(explain=True)`` says of each object in the loaded values why it is not data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from versioned_state import Versioned


class Customised:
    def __reduce__(self) -> Any:
        return Customised, ()


class Closing:
    def __del__(self) -> None:
        pass


class Node:
    def __init__(self) -> None:
        self.peers: list[Node] = []


@dataclass
class Holder:
    held: Any


def made_inside() -> Any:
    class Local:
        pass

    return Local()


def reasons(state: Versioned) -> dict[str, str]:
    return {str(found.path): found.reason for found in state.status(explain=True).objects}


def test_each_object_and_why_in_the_order_of_paths():
    state = Versioned()
    looped, twice = Node(), Node()
    looped.peers.append(looped)
    state["agent"] = {
        "holder": Holder([Customised(), {"in": made_inside()}]),
        "closing": Closing(),
        "code": len,
        "array": np.array([1, "a", None], dtype=object),
        "looped": looped,
        "twice": [twice, twice],
        "data": [Holder(1), {1, 2}, b"x", (Node(),)],
    }
    found = reasons(state)
    assert list(found) == [
        "agent.holder.held[0]",
        "agent.holder.held[1].in",
        "agent.closing",
        "agent.code",
        "agent.array",
        "agent.looped",
        "agent.twice",
    ]
    assert "__reduce__" in found["agent.holder.held[0]"]
    assert "__del__" in found["agent.closing"]
    assert found["agent.code"] == "it is code"
    assert "array of objects" in found["agent.array"]
    assert found["agent.looped"] == "it contains itself"
    assert found["agent.twice"] == "one Node in it is at two places"


def test_it_is_printed_and_narrowed_and_is_no_change():
    state = Versioned()
    state["a"], state["b"] = Customised(), {"c": Customised(), "d": 1}
    state.commit()
    status = state.status(explain=True)
    assert not status
    assert str(status).splitlines()[0].startswith("? a: ")
    assert [str(found.path) for found in status.under("b").objects] == ["b.c"]
    assert state.status().objects == []


def test_data_alone_has_none():
    state = Versioned()
    state["data"] = [Holder([Node(), {"x": Holder(None)}]), 1, "a", {(1, 2): {3}}]
    assert state.status(explain=True).objects == []
    assert Versioned().status(explain=True).objects == []


def test_a_chain_that_is_too_long_for_data_is_an_object_and_comes_back():
    state = Versioned()
    chain: Any = None
    for number in range(90):
        chain = Holder({"number": number, "next": chain})
    state["chain"] = chain
    (found,) = state.status(explain=True).objects
    assert (str(found.path), found.reason) == ("chain", "what it holds is nested deeper than 128")
    assert state.checkout(state.commit())["chain"] == chain
    chain.held["next"].held["number"] = -1
    assert [str(change.path) for change in state.status()] == ["chain"]
