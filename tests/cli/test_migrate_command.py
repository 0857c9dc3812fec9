"""``vstate migrate``: branches brought to the newest version by the migrations of a module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from versioned_state import Disk, Versioned

MODULE = """
from versioned_state import Migrations

migrations = Migrations()

@migrations.to(2)
def one_name(state):
    state["name"] = f"{state.pop('first')} {state.pop('last')}"
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store with two branches at version 1, and a module ``people`` in this folder."""
    path = tmp_path / "store"
    with Disk(path) as disk:
        for branch, first in (("main", "Ann"), ("side", "Bea")):
            state = Versioned(disk, branch=branch)
            state.update(first=first, last="Lee")
            state.commit("old")
    (tmp_path / "people.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield path
    sys.modules.pop("people", None)


def names(store: Path) -> list[object]:
    with Disk(store) as disk:
        return [dict(Versioned(disk, branch=branch)) for branch in ("main", "side")]


OLD = [{"first": "Ann", "last": "Lee"}, {"first": "Bea", "last": "Lee"}]


def test_a_dry_run_shows_the_changes_and_writes_nothing(vstate: Vstate, store: Path):
    done = vstate("migrate", "people:migrations", "--dry-run", "--exit-code", store=store)
    assert done.code == 1
    assert done.stdout.splitlines() == [
        "main: version 1 to 2",
        "- first = 'Ann'",
        "- last = 'Lee'",
        "+ name = 'Ann Lee'",
    ]
    assert names(store) == OLD


def test_branches_are_migrated(vstate: Vstate, store: Path):
    done = vstate("migrate", "people", "side", "--author", "ops", store=store)
    assert done.stdout.startswith("[side ")
    assert "migrate to version 2" in done.stdout
    assert names(store) == [OLD[0], {"name": "Bea Lee"}]
    assert "ops" in vstate("log", "side", "-n1", store=store).stdout
    done = vstate("migrate", "people", "--all", "--exit-code", store=store)
    assert done.code == 1
    assert "side is at version 2 already" in done.stdout
    assert names(store) == [{"name": "Ann Lee"}, {"name": "Bea Lee"}]
    done = vstate("migrate", "people", "--all", "--exit-code", store=store)
    assert done.code == 0


def test_json_is_an_object_a_branch(vstate: Vstate, store: Path):
    (dry,) = vstate("migrate", "people", "--dry-run", "--json", store=store).objects
    assert (dry["branch"], dry["from"], dry["to"], dry["commit"]) == ("main", 1, 2, None)
    assert [change["path"] for change in dry["changes"]] == ["first", "last", "name"]
    done = vstate("migrate", "people", "--all", "--json", store=store).objects
    assert [each["branch"] for each in done] == ["main", "side"]
    assert all(each["commit"] for each in done)


def test_a_failure_on_one_branch_changes_none(vstate: Vstate, store: Path):
    with Disk(store) as disk:
        state = Versioned(disk, branch="side")
        del state["last"]
        state.commit()
    assert_error(
        vstate("migrate", "people", "--all", store=store), "migration to version 2 failed", "nothing was changed"
    )
    assert names(store)[0] == OLD[0]


def test_what_is_not_there_is_said(vstate: Vstate, store: Path, tmp_path: Path):
    (tmp_path / "brokenshape.py").write_text("1 / 0")
    assert_error(vstate("migrate", "nosuchmodule", store=store), "nosuchmodule", "cannot be imported")
    assert_error(vstate("migrate", "brokenshape", store=store), "ZeroDivisionError")
    assert_error(vstate("migrate", "people:nothing", store=store), "people:nothing must be a Migrations, not NoneType")
    assert_error(vstate("migrate", "people", "mian", store=store), "mian", "main")
    assert_error(vstate("migrate", "people", "main", "--all", store=store), "exclude", code=2)
    assert names(store) == OLD


def test_a_newer_state_is_refused(vstate: Vstate, store: Path, tmp_path: Path):
    vstate("migrate", "people", store=store)
    (tmp_path / "oldershape.py").write_text("from versioned_state import Migrations\nmigrations = Migrations()\n")
    assert_error(vstate("migrate", "oldershape", store=store), "version 2", "version 1")
