"""``vstate gc`` and ``vstate fsck``: their output, their effects and their exit codes.

The engine's tests cover the rest.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.canonical_form import EARLIER_LEAVES, with_doubled_elements
from tests.support.command_line import Vstate
from tests.support.examples import Trip, control_characters
from tests.support.small_nodes import small_nodes
from versioned_state import Disk, Repository, Versioned
from versioned_state.objects.keys import ref_key
from versioned_state.repository.format import write_format
from versioned_state.repository.refs.gc_fence import GcRecord


def drop(path: Path) -> None:
    with Versioned(Disk(path)) as state:
        state["dropped"] = ["x" * 5000, "y" * 5000]
        state.commit("dropped")
        state.reset("HEAD~1")


def test_gc_says_what_it_would_free_then_frees_it(vstate: Vstate, own_trip: Trip):
    drop(own_trip.path)
    assert re.fullmatch(r"freed 0 objects, 0 bytes; kept \d+, [\d.]+ KB\n", vstate("gc", store=own_trip.path).stdout)
    dry = vstate("gc", "--expire", "0s", "--dry-run", store=own_trip.path)
    assert dry.code == 0
    assert re.match(r"would free [1-9]\d* objects?, ", dry.stdout)
    done = vstate("gc", "--expire", "0s", "--compact", store=own_trip.path)
    assert done.stdout.splitlines()[0] == dry.stdout.strip().replace("would free", "freed")
    assert re.fullmatch(r"the store takes [\d.]+ (KB|bytes) less", done.stdout.splitlines()[1])
    assert done.stderr == ""
    with Repository(Disk(own_trip.path)) as repository:
        assert repository.fsck().ok
        assert repository.fsck().dangling == 0


def test_gc_as_json(vstate: Vstate, own_trip: Trip):
    drop(own_trip.path)
    shown = json.loads(vstate("gc", "--expire", "0s", "--json", store=own_trip.path).stdout)
    assert shown["freed"] > 0
    assert set(shown) == {
        "refs",
        "kept",
        "kept_bytes",
        "freed",
        "freed_bytes",
        "seconds",
        "compacted",
        "dry_run",
        "finished",
    }


def test_gc_beside_another_one_is_one_line_with_a_way_out(vstate: Vstate, own_trip: Trip):
    record = GcRecord().but(owner=b"someone", generation=1, beat=2**62)
    assert record.stored is not None
    with Disk(own_trip.path) as store:
        store.set("gc", record.but(beat=Repository(store).database.now()).stored or b"")
    refused = vstate("gc", store=own_trip.path)
    assert refused.code == 1
    assert refused.stderr.startswith("error: another gc is at work")
    assert "--force" in refused.stderr.splitlines()[1]
    assert vstate("gc", "--force", store=own_trip.path).code == 0


@pytest.mark.parametrize("args", [["gc", "--expire", "soon"], ["gc", "now"], ["fsck", "main"]])
def test_what_is_not_understood(vstate: Vstate, own_trip: Trip, args: list[str]):
    assert vstate(*args, store=own_trip.path).code == 2


@pytest.mark.parametrize("command", ["gc", "fsck"])
def test_no_store(vstate: Vstate, tmp_path: Path, command: str):
    result = vstate(command, store=tmp_path / "nothing")
    assert result.code == 1
    assert result.stderr.startswith("error: ")
    assert "hint: " in result.stderr
    assert not (tmp_path / "nothing").exists()


def test_fsck_counts_the_branches_that_there_are_and_the_deleted_ones_by_themselves(vstate: Vstate, tmp_path: Path):
    with Disk(tmp_path / "store") as disk, Versioned(disk) as state:
        state["x"] = 1
        state.commit()
        for name in ("one", "two"):
            state.fork(name).close()
            state.repository.branches.delete(name)
    result = vstate("fsck", store=tmp_path / "store")
    assert ", 1 branch or tag, 2 reflogs of deleted ones; " in result.stdout
    shown = json.loads(vstate("fsck", "--json", store=tmp_path / "store").stdout)
    assert (shown["refs"], shown["deleted"]) == (3, 2)


def test_fsck_of_a_sound_store(vstate: Vstate, trip: Trip):
    result = vstate("fsck", store=trip.path)
    assert result.code == 0
    refs = r"\d+ branches and tags(, \d+ reflogs? of deleted ones)?"
    assert re.fullmatch(rf"checked \d+ objects, \d+ commits, {refs}; \d+ dangling: no fault\n", result.stdout), (
        result.stdout
    )
    shown = json.loads(vstate("fsck", "--json", store=trip.path).stdout)
    assert shown["ok"] is True
    assert shown["findings"] == []


def test_fsck_of_a_damaged_store(vstate: Vstate, own_trip: Trip):
    with Disk(own_trip.path) as store:
        head = Repository(store).branches["main"]
        stored = store.get("o/" + head.parents[0]) or b""
        store.delete("o/" + head.parents[0])
        store.delete("ref/branch/idea")
    result = vstate("fsck", store=own_trip.path)
    assert result.code == 1
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert "missing branch idea: it was created, and its record is gone" in lines
    assert any(
        line.startswith(f"missing commit {head.parents[0]}: it is not in the store, named by ") for line in lines
    )
    assert lines[-1].endswith(": 2 faults")
    shown = json.loads(vstate("fsck", "--json", store=own_trip.path).stdout)
    assert shown["ok"] is False
    assert {finding["id"] for finding in shown["findings"]} == {"idea", head.parents[0]}
    assert stored


@pytest.mark.no_oracle("writes a tree with a fault on purpose")
def test_fsck_of_a_tree_that_is_not_canonical(vstate: Vstate, tmp_path: Path):
    with small_nodes(EARLIER_LEAVES):
        state, _ = with_doubled_elements(Disk(tmp_path / "store"))
        state.repository.store.close()
        result = vstate("fsck", store=tmp_path / "store")
        as_json = vstate("fsck", "--json", store=tmp_path / "store")
    assert result.code == 1
    assert "not canonical sequence " in result.stdout
    assert ", in messages, named by " in " ".join(result.stdout.split())
    shown = json.loads(as_json.stdout)
    assert not shown["ok"]
    assert {(finding["problem"], finding["path"]) for finding in shown["findings"]} == {("not canonical", "messages")}
    assert {finding["commit"] for finding in shown["findings"]} == {state.head.id}


@pytest.mark.parametrize("key", ["format", "gc", "cuts"])
def test_fsck_of_a_store_that_does_not_open(vstate: Vstate, own_trip: Trip, key: str):
    with Disk(own_trip.path) as store:
        store.set(key, b"damaged, and long enough")
    result = vstate("fsck", store=own_trip.path)
    assert result.code == 1
    assert f"corrupt record {key}: " in result.stdout


def test_fsck_unpickles_nothing_and_escapes_what_it_shows(vstate: Vstate, hostile: Path):
    result = vstate("fsck", store=hostile)
    assert "misplaced branch branch\\u202e\\x9b: bad name for a branch" in result.stdout
    assert "1 fault" in result.stdout
    assert control_characters(result.stdout) == set()
    with Disk(hostile) as store:
        store.delete(ref_key("branch", "branch\u202e\x9b"))
    result = vstate("fsck", store=hostile)
    assert "missing branch branch\\u202e\\x9b: " in result.stdout
    assert control_characters(result.stdout) == set()


def test_an_upgrade_has_nothing_to_do(vstate: Vstate, own_trip: Trip):
    before = (own_trip.path / "store.sqlite3").read_bytes()
    for args in ([], ["--dry-run"]):
        done = vstate("upgrade", *args, store=own_trip.path)
        assert (done.code, done.stdout) == (
            0,
            "nothing to do: the store has format version 1, the newest of this release\n",
        )
    assert json.loads(vstate("upgrade", "--json", store=own_trip.path).stdout) == {
        "found": 1,
        "version": 1,
        "dry_run": False,
    }
    assert (own_trip.path / "store.sqlite3").read_bytes() == before


@pytest.mark.parametrize(
    "args", [["upgrade"], ["upgrade", "--dry-run"], ["log"], ["set", "k", "1"], ["gc"], ["fsck"]], ids=" ".join
)
def test_a_store_of_a_newer_release_is_one_line_with_a_way_out(vstate: Vstate, own_trip: Trip, args: list[str]):
    with Disk(own_trip.path) as store:
        store.set("format", write_format(2))
    refused = vstate(*args, store=own_trip.path)
    assert refused.code == 1
    assert refused.stderr.splitlines()[0].startswith(
        "error: the store has format version 2; this release reads up to 1"
    )
    assert "upgrade versioned-state" in refused.stderr


def test_fsck_tells_of_records_of_other_releases(vstate: Vstate, own_trip: Trip):
    with Disk(own_trip.path) as store:
        store.set("later/one", b"")
    done = vstate("fsck", store=own_trip.path)
    assert done.code == 0
    assert "kinds that this release does not have: later/" in done.stderr
    assert json.loads(vstate("fsck", "--json", store=own_trip.path).stdout)["unknown"] == ["later/"]
