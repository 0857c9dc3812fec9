"""``vstate effects``: the ledger of a store, listed, settled and forgotten; and ``vstate purge --effect``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from versioned_state import Disk, Versioned, effect, effects

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
    shown = [json.loads(line) for line in vstate("effects", "pay:*", "--json", store=ledger).stdout.splitlines()]
    assert shown == [
        {"key": "pay:order-1", "status": "done", "since": "2026-11-21T02:10:00.000000Z", "result": {"receipt": 31}},
        {"key": "pay:order-2", "status": "in doubt", "since": "2026-11-21T02:10:01.000000Z", "result": None},
    ]


def test_one_in_doubt_is_settled(vstate: Vstate, ledger: Path):
    assert vstate("effects", "--settle", "pay:order-2", "--result", '{"receipt": 32}', store=ledger).stdout == "settled pay:order-2\n"
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
    assert [line for line in dry.stdout.splitlines() if line.startswith("-")] == ["- effect pay:order-1", "- effect pay:order-2"]
    assert "no effect matches 'gift:*'" in dry.stderr
    assert len(vstate("effects", "pay:*", store=ledger).stdout.splitlines()) == 2
    done = json.loads(vstate("purge", "--effect", "pay:*", "--json", "--yes", store=ledger).stdout)
    assert done["effects"] == ["pay:order-1", "pay:order-2"]
    assert vstate("effects", store=ledger).stdout.count("(erased)") == 2
    assert vstate("effects", "pay:*", store=ledger).stdout == ""
    assert not any(b"order-1" in file.read_bytes() for file in ledger.iterdir())
    with Disk(ledger) as store:
        assert len(effects(Versioned(store))) == 3
