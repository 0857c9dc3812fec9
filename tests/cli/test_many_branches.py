"""``vstate branch`` with its selections, ``note``, ``log --notes`` and ``expire``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from versioned_state import Disk, Repository, Versioned

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def _filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a store with four branches, made an hour apart, of which one has a time to live."""
    now = 1_700_000_000 * SECOND

    def clock() -> int:
        nonlocal now
        now += 3600 * SECOND
        return now

    with Disk(tmp_path / "store") as disk:
        repository = Repository(disk, clock=clock)
        for name in ("main", "u1/b", "u1/a", "u2/a"):
            state = Versioned(repository, branch=name, ttl_seconds=60 if name == "u2/a" else None)
            state["n"] = name
            state.commit(f"made {name}")
    monkeypatch.setenv("VSTATE_STORE", str(tmp_path / "store"))


def test_branches_are_listed_by_prefix_since_and_last_change(vstate: Vstate):
    def listed(*options: str) -> list[str]:
        result = vstate("branch", *options)
        assert result.code == 0, result.stderr
        return result.stdout.split()

    assert listed() == ["*", "main", "u1/a", "u1/b", "u2/a"]
    assert listed("--prefix", "u1/") == listed("-l", "u1/*") == ["u1/a", "u1/b"]
    assert listed("--sort", "changed") == ["u2/a", "u1/a", "u1/b", "*", "main"]
    assert listed("--sort", "changed", "-n", "2") == ["u2/a", "u1/a"]
    assert listed("--since", "2023-11-15T01:13") == ["u1/a", "u2/a"]
    assert listed("--since", "1h") == []
    infos = [json.loads(line) for line in vstate("branch", "--prefix", "u1/", "--json").stdout.splitlines()]
    assert [(info["name"], info["changed"][:13], info["ahead"]) for info in infos] == [
        ("u1/a", "2023-11-15T01", 1),
        ("u1/b", "2023-11-15T00", 1),
    ]
    assert vstate("branch", "-v", "--prefix", "u1/").stdout.count("+1 -1") == 2


def test_a_pattern_deletes_after_a_dry_run(vstate: Vstate):
    shown = vstate("branch", "-D", "u1/*", "--dry-run").stdout
    assert [line.split()[2] for line in shown.splitlines()] == ["u1/a,", "u1/b,"]
    assert vstate("branch").stdout.split() == ["*", "main", "u1/a", "u1/b", "u2/a"]
    for options in ([], ["--dry-run"]):
        assert_error(vstate("branch", "-d", "u1/*", *options), "u1/a")
    assert vstate("branch", "-D", "u1/*").stdout.count("deleted u1/") == 2
    assert vstate("branch").stdout.split() == ["*", "main", "u2/a"]
    assert_error(vstate("branch", "-D", "u1/*"), "no branch matches")
    assert vstate("branch", "new", "--dry-run").code == 2
    assert vstate("branch", "-d", "x", "--prefix", "u").code == 2


def test_a_note_is_shown_and_changed(vstate: Vstate):
    assert vstate("note").stdout == ""
    assert vstate("note", "score", "0.5").stdout == "score: 0.5\n"
    assert vstate("note", "u1/a", "said", "well done", "--text").stdout == 'said: "well done"\n'
    assert vstate("note", "main", "tags", '["a"]').stdout == 'score: 0.5\ntags: ["a"]\n'
    assert json.loads(vstate("note", "main", "--json").stdout)["note"] == {
        "score": 0.5,
        "tags": ["a"],
    }
    assert 'note score: 0.5\n    note tags: ["a"]' in vstate("log", "--notes").stdout
    assert json.loads(vstate("log", "--notes", "--json").stdout)["note"] == {
        "score": 0.5,
        "tags": ["a"],
    }
    assert vstate("note", "--list").stdout.count("made") == 2
    assert vstate("note", "-d", "score").stdout == 'tags: ["a"]\n'
    vstate("note", "-d", "tags")
    assert vstate("note", "--list").stdout.count("made") == 1
    assert_error(vstate("note", "main", "a", "not json"), "JSON")
    assert_error(vstate("note", "nothing"), "nothing")
    assert vstate("note", "a", "b", "c", "d").code == 2


def test_a_value_that_is_missing_and_a_key_that_is_not_there_are_errors(vstate: Vstate):
    vstate("note", "main", "score", "0.5")
    for words in (("main", "score"), ("u1/a", "1"), ("HEAD", "2", "--text")):
        assert_error(vstate("note", *words), "VALUE is missing")
    assert_error(vstate("note", "-d", "score", "-d", "tags"), "tags")
    assert_error(vstate("note", "u1/a", "-d", "score"), "has no note")
    assert vstate("note").stdout == "score: 0.5\n"
    assert vstate("note", "HEAD", "main", "1").stdout == "score: 0.5\nmain: 1\n"


def test_what_is_over_expires(vstate: Vstate):
    assert vstate("expire", "--dry-run").stdout == "would expire u2/a\n"
    assert vstate("expire").stdout == "expired u2/a\n"
    assert json.loads(vstate("expire", "--json").stdout) == {"expired": []}


def test_a_gc_takes_a_time(vstate: Vstate):
    assert json.loads(vstate("gc", "--time", "30s", "--json").stdout)["finished"]
