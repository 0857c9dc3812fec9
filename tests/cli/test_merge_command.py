"""Merges from the command line: what a conflict prints, how options resolve it, and what changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.examples import Bomb
from tests.support.forked_trips import head_of, heads, state_of
from versioned_state import Disk, Repository, Snapshot, Versioned


def test_a_conflict_changes_nothing_and_names_both_sides(vstate: Vstate, fork: Path):
    before = heads(fork)
    result = vstate("merge", "what-if", "--json")
    assert result.code == 1
    limit, messages = json.loads(result.stdout)["conflicts"]
    assert limit == {"path": "budget.limit", "base": 600, "ours": 700, "theirs": 900}
    assert (messages["path"], len(messages["base"]), messages["theirs"][2]["content"]) == ("messages", 2, "grander")
    assert heads(fork) == before


@pytest.mark.parametrize(
    ("options", "limit", "said"),
    [
        (["--ours", "**"], 700, ["cheaper"]),
        (["--theirs", "**"], 900, ["grander"]),
        (["--ours", "**", "--theirs", "budget.*"], 900, ["cheaper"]),  # the pattern that says more goes first
        (["--ours", "messages", "--theirs", "budget.limit"], 900, ["cheaper"]),
        # a side for a path is a side for all conflicts below it
        (["--ours", "messages", "--theirs", "budget"], 900, ["cheaper"]),
        (["--policy", "**=ours"], 700, ["cheaper"]),
        (["--policy", "messages=append", "--set", "budget.limit", "800"], 800, ["grander", "cheaper"]),
        (["--policy", "messages=theirs", "--policy", "budget.limit=min"], 700, ["grander"]),
        (
            ["--policy", "messages=append", "--policy", "budget.limit=sum", "--ours", "budget.limit"],
            1000,
            ["grander", "cheaper"],
        ),
        # the same twice
        (["--ours", "messages", "--ours", "messages", "--ours", "budget.*", "--ours", "*.limit"], 700, ["cheaper"]),
        (["--set", "budget.limit", "null", "--set", "messages", '["\\u00e9", {"a": [1.5]}]'], None, None),
    ],
)
@pytest.mark.parametrize("dry", [True, False], ids=["dry-run", "merge"])
def test_conflicts_are_resolved(
    options: list[str], limit: Any, said: list[str] | None, dry: Any, vstate: Vstate, fork: Path
):
    before = heads(fork)
    if dry:
        shown = json.loads(vstate("merge", "what-if", "--dry-run", "--json", *options).stdout)
        assert heads(fork) == before
        assert vstate("merge", "what-if", *options).code == 0
        assert shown["changes"] == vstate("diff", before["main"], "--json").objects
        return
    result = vstate("merge", "what-if", *options)
    merged = state_of(fork)
    assert result.code == 0, result.stderr
    assert merged["budget"] == {"limit": limit, "spent": 98}
    assert merged["notes"] == "Lisbon\nby fast train\nquiet"
    expected = ["é", {"a": [1.5]}] if said is None else said
    assert (
        merged["messages"] if said is None else [message["content"] for message in merged["messages"][2:]]
    ) == expected
    assert head_of(fork).parents == (before["main"], before["what-if"])
    assert head_of(fork).author == "tester"


@pytest.mark.parametrize(
    ("options", "word", "code"),
    [
        (["--ours", "budget.limt"], "no conflict at budget.limt", 1),
        (["--set", "budget", "1"], "no conflict at budget", 1),
        (["--set", "budget.limit", "{"], "is not JSON", 1),
        (["--set", "budget.limit", "[" * 100_000], "is not JSON", 1),
        (["--set", "budget.limit"], "requires 2 arguments", 2),
        (["--ours", "a["], "bad path", 1),
        (["--ours", "messages", "--theirs", "messages"], "messages is resolved twice, by --ours and by --theirs", 2),
        (["--theirs", "**", "--ours", "**"], "** is resolved twice", 2),
        (
            ["--ours", 'budget["limit"]', "--set", "budget.limit", "1"],
            "budget.limit is resolved twice, by --ours and by --set",
            2,
        ),
        (["--set", "budget.limit", "1", "--set", "budget.limit", "2"], "budget.limit is resolved twice", 2),
        (["--policy", "messages=union", "--policy", "messages=append"], "messages is resolved twice", 2),
        (
            ["--ours", "messages", "--ours", "budget.*", "--theirs", "*.limit"],
            "--ours budget.* and --theirs *.limit both resolve budget.limit",
            2,
        ),
        (["--policy", "messages"], "PATTERN=NAME", 2),
        (["--policy", "messages=best"], "is not a merge policy", 1),
        (["--ours", "messages"], "1 conflict in merging what-if into main", 1),
    ],
)
def test_what_resolves_nothing_changes_nothing(options: list[str], word: str, code: int, vstate: Vstate, fork: Path):
    before = heads(fork)
    assert_error(vstate("merge", "what-if", *options), word, code=code)
    assert heads(fork) == before


def test_a_dry_run_writes_nothing(vstate: Vstate, fork: Path):
    fork.chmod(0o500)
    (fork / "store.sqlite3").chmod(0o400)
    try:
        files = {file.name: file.read_bytes() for file in fork.iterdir()}
        assert vstate("merge", "what-if", "--dry-run").code == 1
        assert vstate("merge", "what-if", "--dry-run", "--ours", "**").code == 0
        assert vstate("merge", "main~1", "--dry-run").stderr == "already up to date\n"
        assert vstate("switch", "what-if").code == 0
        assert {file.name: file.read_bytes() for file in fork.iterdir()} == files
    finally:
        fork.chmod(0o700)


def test_objects_are_merged_without_being_unpickled(vstate: Vstate, tmp_path: Path):
    target, store = tmp_path / "unpickled", tmp_path / "objects"
    with Versioned(Disk(store), pickle="allow") as state:
        state["list"] = [Bomb(target), 1, 2, 3]
        state["both"] = 0
        state.commit("base")
        other = state.fork("other")
        other["theirs"], other["both"] = Bomb(target), Bomb(tmp_path / "theirs")
        other["list"].append(Bomb(target))
        other.commit("theirs")
        state["ours"], state["both"] = Bomb(target), Bomb(tmp_path / "ours")
        state["list"].insert(0, 0)
        state.commit("ours")
    target.unlink(missing_ok=True)  # these handles may unpickle what they made
    result = vstate("merge", "other", store=store)
    assert "    ours    <object tests.support.examples.Bomb" in result.stdout
    assert_error(result, "1 conflict")
    assert vstate("merge", "other", "--theirs", "both", store=store).code == 0
    assert not target.exists()
    with Repository(Disk(store), pickle="refuse") as repository:
        shown: Snapshot = repository.snapshot("main", describe=True)
        assert sorted(shown) == ["both", "list", "ours", "theirs"]
        assert len(shown["list"]) == 6
        assert not repository.diff("main", "other").under("both")
    assert_error(
        vstate("restore", "both", "--from", "main~1", store=store),
        "would have to be unpickled",
        "hint: vstate never unpickles",
    )
    assert not target.exists()
