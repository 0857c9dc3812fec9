"""``vstate effects`` lists, settles and forgets the effects of a store. Also ``vstate purge --effect``."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from versioned_state import Disk, Versioned, effect, effects
from versioned_state.agents import effects as rollback_names

START = 1_795_227_000 * 1_000_000


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A store with an effect that is done, one that is in doubt, and one whose key and result mean harm."""
    path = tmp_path / "ledger"
    ticks = iter(range(START, START + 60_000_000, 1_000_000))
    with Disk(path) as store:
        state = Versioned(store, clock=lambda: next(ticks))
        effect("pay:order-1", lambda: {"receipt": 31}, state=state)
        with pytest.raises(ConnectionError):
            effect("pay:order-2", fail, state=state)
        effect("mail:\x1b[31m", lambda: "red \x1b[31m\n", state=state)
    return path


def fail() -> None:
    raise ConnectionError


def test_they_are_listed(vstate: Vstate, ledger: Path):
    assert vstate("effects", store=ledger).stdout.splitlines() == [
        "done      2026-11-21 02:10:00 UTC  pay:order-1    {'receipt': 31}",
        "in doubt  2026-11-21 02:10:01 UTC  pay:order-2    ",
        "done      2026-11-21 02:10:02 UTC  mail:\\x1b[31m  'red \\x1b[31m\\n'",
    ]
    assert vstate("effects", "pay:*", "--in-doubt", store=ledger).stdout.split()[-1] == "pay:order-2"
    assert vstate("effects", "nothing", store=ledger).stdout == ""
    shown = vstate("effects", "pay:*", "--json", store=ledger).objects
    assert shown == [
        {"key": "pay:order-1", "status": "done", "since": "2026-11-21T02:10:00.000000Z", "result": {"receipt": 31}},
        {"key": "pay:order-2", "status": "in doubt", "since": "2026-11-21T02:10:01.000000Z", "result": None},
    ]


def test_one_in_doubt_is_settled(vstate: Vstate, ledger: Path):
    assert (
        vstate("effects", "--settle", "pay:order-2", "--result", '{"receipt": 32}', store=ledger).stdout
        == "settled pay:order-2\n"
    )
    with Disk(ledger) as store:
        assert effect("pay:order-2", fail, state=Versioned(store)) == {"receipt": 32}
    assert_error(vstate("effects", "--settle", "pay:order-2", store=ledger), "not in doubt", "nothing was changed")
    assert_error(vstate("effects", "--settle", "pay:order-9", store=ledger), "pay:order-9", "vstate effects")


def test_one_is_forgotten(vstate: Vstate, ledger: Path):
    done = vstate("effects", "--forget", "pay:order-1", "--json", store=ledger)
    assert json.loads(done.stdout) == {"key": "pay:order-1", "status": "forgotten"}
    assert "order-1" not in vstate("effects", store=ledger).stdout
    assert_error(vstate("effects", "--forget", "pay:order-1", store=ledger), "nothing was changed")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--settle", "a", "--forget", "b"], "exclude"),
        (["--settle", "a", "pay:*"], "exclude"),
        (["--result", "1"], "--settle"),
        (["--settle", "pay:order-2", "--result", "{"], "not JSON"),
    ],
)
def test_what_makes_no_sense_changes_nothing(vstate: Vstate, ledger: Path, args: list[str], message: str):
    before = vstate("effects", store=ledger).stdout
    result = vstate("effects", *args, store=ledger)
    assert result.code in (1, 2)
    assert message in result.stderr
    assert vstate("effects", store=ledger).stdout == before


def test_purge_erases_key_and_result(vstate: Vstate, ledger: Path):
    dry = vstate("purge", "--effect", "pay:*", "--effect", "gift:*", "--dry-run", store=ledger)
    assert [line for line in dry.stdout.splitlines() if line.startswith("-")] == [
        "- effect pay:order-1",
        "- effect pay:order-2",
    ]
    assert "no effect matches 'gift:*'" in dry.stderr
    assert len(vstate("effects", "pay:*", store=ledger).stdout.splitlines()) == 2
    done = json.loads(vstate("purge", "--effect", "pay:*", "--json", "--yes", store=ledger).stdout)
    assert done["effects"] == ["pay:order-1", "pay:order-2"]
    assert vstate("effects", store=ledger).stdout.count("(erased)") == 2
    assert vstate("effects", "pay:*", store=ledger).stdout == ""
    assert not any(b"order-1" in file.read_bytes() for file in ledger.iterdir())
    with Disk(ledger) as store:
        assert len(effects(Versioned(store))) == 3


SHOP = """
from pathlib import Path

def refund(receipt):
    with Path("refunds").open("a") as file:
        file.write(f"{receipt}\\n")
    return "refunded"
"""


def test_undo_and_reset_name_the_effects_behind_and_roll_back_calls_what_is_imported(
    vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "shopoftest.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    refund = importlib.import_module("shopoftest").refund
    path = tmp_path / "shop"
    with Disk(path) as store:
        state = Versioned(store)
        for number in range(3):
            state["n"] = effect(f"pay:{number}", str, number, state=state, on_rollback=refund if number else None)
            state.commit()
    rollback_names.FUNCTIONS.clear()  # as in another process
    assert "effect" not in vstate("reset", "main", store=path).stderr
    undone = vstate("undo", store=path).stderr
    assert "! effect pay:2 (done) lies behind this point: rolled back by shopoftest:refund" in undone
    assert "--using" in undone
    undone = vstate("reset", "main~1", store=path).stderr
    assert "pay:1" in undone
    assert "pay:2" in undone
    assert "pay:0" not in undone
    assert_error(
        vstate("effects", "roll-back", store=path), "which this process has not named", "nothing was rolled back"
    )
    assert_error(
        vstate("effects", "roll-back", "--using", "nosuch:thing", store=path), "nosuch", "nothing was rolled back"
    )
    assert_error(
        vstate("effects", "roll-back", "--using", "shopoftest:nothing", store=path),
        "nothing",
        "nothing was rolled back",
    )
    using = ("--using", "shopoftest:refund")
    dry = vstate("effects", "roll-back", *using, "--dry-run", store=path).stdout
    assert dry.splitlines() == ["would roll back pay:2 None", "would roll back pay:1 None"]
    assert not (tmp_path / "refunds").exists()
    done = vstate("effects", "roll-back", *using, "--json", store=path)
    assert done.objects == [{"key": f"pay:{number}", "rolled_back": True, "result": "refunded"} for number in (2, 1)]
    assert (tmp_path / "refunds").read_text() == "2\n1\n"
    assert vstate("effects", "roll-back", *using, store=path).stdout == ""
    assert vstate("effects", "--dry-run", store=path).code == 2
    assert vstate("effects", "roll-back", "--settle", "x", store=path).code == 2
