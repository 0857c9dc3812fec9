"""What is committed can be read: each kind of value, nested, with cycles and shared parts, as deep as is accepted."""

from __future__ import annotations

import pytest

from tests.support.instance_graphs import graph
from tests.support.nested_kinds import Data
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import LimitExceededError, UnserializableValueError

SHARE = 10


@pytest.mark.parametrize("part", range(SHARE))
def test_every_graph_that_is_committed_is_readable_and_clean(part: int, long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(part, 2000 if long_run else 60, SHARE):
        store = Memory()
        state = Versioned(store)
        state["graph"] = graph(seed)
        try:
            state.commit()
        except (LimitExceededError, UnserializableValueError):  # too deep
            continue
        assert not state.status(), seed
        repository = Repository(store)
        read = Versioned(repository)
        assert type(read["graph"]) is type(state["graph"]), seed
        repository.snapshot("main")["graph"]
        assert repository.fsck().ok, seed
        again = Versioned()
        again["graph"] = read["graph"]
        again.commit()


def test_a_list_that_contains_itself_beside_an_instance_is_readable():
    within: list[object] = [1]
    within.append(within)
    store = Memory()
    state = Versioned(store)
    state["graph"] = {"instance": Data(1, []), "list": within, "more": [Data(2, []), [within]]}
    state.commit()
    read = Versioned(Repository(store))["graph"]
    assert read["list"][1] is read["list"]
    assert read["instance"] == Data(1, [])
    assert Repository(store).snapshot("main")["graph"]["more"][0] == Data(2, [])
