"""``vstate blame`` and ``history`` where the snapshots do not reach: cut history, an empty state, a narrow terminal."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.support.command_line import Vstate
from tests.support.examples import Trip
from versioned_state import Disk, Repository, Versioned


def test_what_may_be_older_than_a_cut_is_marked(own_trip: Trip, vstate: Vstate):
    with Repository(Disk(own_trip.path)) as repository:
        for name in ("idea", "merged"):
            repository.branches.delete(name, force=True)
        repository.tags.delete("v1")
        repository.prune(keep_last=2, expire=timedelta(0))  # deleted branches keep nothing
    lines = vstate("blame", "messages", store=own_trip.path).stdout.splitlines()
    third = own_trip.commits[2]
    assert [line.split()[0] for line in lines] == [f"^{third.short}"] * 4
    found = vstate("blame", "--json", store=own_trip.path).objects
    assert {part["path"]: part.get("shallow", False) for part in found}["budget"] is True
    assert {part["path"]: part.get("shallow", False) for part in found}["price"] is False
    shown = vstate("history", "budget", store=own_trip.path).stdout
    assert "older history was pruned" in shown
    assert "+ budget = " in shown


def test_a_state_without_keys_and_a_list_without_elements(tmp_path: Path, vstate: Vstate):
    with Versioned(Disk(tmp_path / "store")) as state:
        state.commit("nothing", allow_empty=True)
    result = vstate("blame", store=tmp_path / "store")
    assert (result.stdout, result.code) == ("", 0)
    with Versioned(Disk(tmp_path / "store")) as state:
        state["list"] = []
        commit = state.commit("empty")
    assert vstate("blame", "list", store=tmp_path / "store").stdout.startswith(f"{commit.short}  ")
    result = vstate("blame", "list", "-L", "5:", store=tmp_path / "store")
    assert (result.stdout, result.code) == ("", 0)
    assert vstate("history", "list", "-n", "0", store=tmp_path / "store").code == 0
