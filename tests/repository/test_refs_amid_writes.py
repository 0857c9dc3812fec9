"""A ref is read beside writers.

A read of several keys is not a snapshot, so a branch may come or go between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from versioned_state import Repository, Versioned
from versioned_state.errors import CorruptRefError
from versioned_state.objects.keys import birth_key, ref_key
from versioned_state.repository.refs.ref import read_ref
from versioned_state.storage import KVStore, Memory, Wrapper


class OneByOne(Wrapper):
    """Reads several keys one after another, as some stores do, and does something before one of the reads."""

    def __init__(self, store: KVStore, at: int, act: Callable[[], object]) -> None:
        super().__init__(store)
        self._at, self._act = at, act
        self._reads = 0

    def get(self, key: str) -> bytes | None:
        self._reads += 1
        if self._reads == self._at:
            self._act()
        return super().get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        found = {key: self.get(key) for key in keys}
        return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("at", range(1, 4))
def test_a_branch_that_is_created_amid_the_read_is_there_or_not(at: int):
    store = Memory()
    Repository(store)  # makes its records

    def create() -> None:
        with Versioned(store, branch="trip") as state:
            state["x"] = 1
            state.commit()

    assert (read_ref(OneByOne(store, at, create), "branch", "trip").head is not None) == (at <= 2)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_branch_whose_last_records_go_amid_the_read_is_there_or_not(at: int):
    """Its record goes first here, and its mark before one of the reads: gc takes both at once."""
    store = Memory()
    with Versioned(store, branch="trip") as state:
        state["x"] = 1
        state.commit()
    store.delete_many([ref_key("branch", "trip")])
    mark = birth_key("branch", "trip")
    assert read_ref(OneByOne(store, at, lambda: store.delete_many([mark])), "branch", "trip").head is None


def test_a_branch_whose_record_alone_is_gone_is_corrupt():
    store = Memory()
    with Versioned(store, branch="trip") as state:
        state["x"] = 1
        state.commit()
    store.delete_many([ref_key("branch", "trip")])
    with pytest.raises(CorruptRefError, match="its record is gone"):
        read_ref(store, "branch", "trip")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_listing_by_the_last_change_does_not_leave_out_a_branch_whose_record_is_gone(reverse: bool):  # noqa: FBT001 - a parameter of the test
    store = Memory()
    repository = Repository(store)
    for name in ("a", "b", "c"):
        with Versioned(repository, branch=name) as state:
            state["x"] = name
            state.commit()
    repository.purge(branches="c")
    assert sorted(info.name for info in repository.branches.iter_info(by="changed", reverse=reverse)) == ["a", "b"], (
        "c was erased"
    )
    store.delete_many([ref_key("branch", "b")])
    with pytest.raises(CorruptRefError, match="'b'"):
        list(repository.branches.iter_info(by="changed", reverse=reverse))
