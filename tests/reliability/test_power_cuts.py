"""The power is cut at any moment of a program that commits: a store's promises then, and that a broken one is noticed.

The program runs on the real SQLite and the real file system. A library beneath it records its calls on files, and
``DiskModel`` says what a disk may hold after a cut at any of them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.exact import exact
from tests.support.long_runs import first
from tests.support.numbered_rounds import content
from tests.support.power.disk_model import Call, DiskModel, read_calls, write_files
from tests.support.power.recording import library
from tests.support.power.writer import ACKNOWLEDGED, BRANCHES, FAILING, STORE
from tests.support.processes import ROOT
from versioned_state import Disk, Repository

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the recorder is loaded beneath a process of Linux")

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a store is checked: there, no sync waits for a disk."""

EVERYDAY, LONG = 15, 300
"""Cuts of each recorded run."""


AT_ONCE = ("threads", "processes")
"""The plans in which the commits of different branches have no order."""


@dataclass
class Recording:
    """The calls of a run of ``writer`` in a folder."""

    folder: Path
    durability: str
    calls: list[Call]


def record(folder: Path, durability: str, plan: str, sabotage: str = "none", seed: int = 1) -> Recording:
    place = folder / "place"
    place.mkdir()
    log = folder / "calls"
    environment = {
        "LD_PRELOAD": str(library()),
        "PYTHONPATH": str(ROOT),
        "RECORDER_FOLDER": str(place),
        "RECORDER_LOG": str(log),
        "RECORDER_DELAY": "1000" if plan in AT_ONCE else "0",
        "RECORDER_FAILING": str(place / FAILING),
    }
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.support.power.writer",
        place,
        durability,
        plan,
        sabotage,
        str(seed),
    ]
    subprocess.run(command, env={**os.environ, **environment}, cwd=ROOT, check=True)
    return Recording(place, durability, list(read_calls(log)))


@dataclass
class Acknowledged:
    """The commits that were acknowledged before a moment, of each branch in order."""

    commits: dict[str, dict[int, str]] = field(default_factory=lambda: {name: {} for name in BRANCHES})

    def add(self, line: bytes) -> None:
        branch, n, commit = line.decode().split()
        self.commits[branch][int(n)] = commit


class LostError(Exception):
    """The store does not hold what it must hold after a cut."""


def require(condition: object, reason: object) -> None:
    if not condition:
        raise LostError(reason)


def check(place: Path, recording: Recording, acknowledged: Acknowledged, *, ordered: bool) -> None:
    """Check a store after a cut, and that it goes on."""
    try:
        store = Disk(place / STORE)
        with Repository(store) as repository:
            found = {}
            for name in BRANCHES:
                line = list(repository.log(name))[::-1] if name in repository.branches else []
                line = [commit for commit in line if commit.parents]  # without the root, which all stores share
                require([commit.meta["n"] for commit in line] == list(range(1, len(line) + 1)), f"{name} has gaps")
                if line:
                    wanted = content(len(line))
                    require(exact(repository.snapshot(name).copy()) == exact(wanted), f"{name} has another content")
                for n, told in acknowledged.commits[name].items():
                    if recording.durability == "power":
                        require(n <= len(line), f"{name} has {len(line)} rounds, and the {n}th was acknowledged")
                    require(
                        n > len(line) or line[n - 1].id == told, f"{name} has another {n}th round than was acknowledged"
                    )
                found[name] = line
            if ordered:
                numbers = sorted(commit.meta["all"] for line in found.values() for commit in line)
                require(numbers == list(range(1, len(numbers) + 1)), f"of all rounds these are there: {numbers}")
            report = repository.fsck()
            require(report.ok, report.findings)
            require(not report.dangling, f"{report.dangling} objects without a ref: half of a batch")
            require(
                store.apply({}, {"goes on": b"yes"}) and store.get("goes on") == b"yes", "the store refuses a write"
            )
    except LostError:
        raise
    except Exception as error:
        raise LostError(f"{type(error).__name__}: {error}") from error


def cuts(recording: Recording, count: int, dice: random.Random) -> list[int]:
    """Choose when to cut: a third at any call, a third after syncs and name changes, a third after acknowledgements."""
    numbers = range(1, len(recording.calls) + 1)
    marked = [number for number in numbers if recording.calls[number - 1].kind in "BEFUL"]
    acks = [
        number
        for number in numbers
        if recording.calls[number - 1].first.startswith(tuple(name.encode() for name in BRANCHES))
    ]
    third = count // 3
    return sorted(
        dice.choices(numbers, k=third) + dice.choices(marked, k=third) + dice.choices(acks, k=count - 2 * third)
    )


def find_losses(recording: Recording, count: int, dice: random.Random, *, ordered: bool) -> Iterator[str]:
    """Cut the power at moments of a recording, and yield the losses."""
    model, acknowledged, played = DiskModel(recording.folder), Acknowledged(), 0
    file = str(recording.folder / ACKNOWLEDGED)
    for number in cuts(recording, count, dice):
        while played < number:
            call = recording.calls[played]
            played += 1
            model.play(call)
            if call.kind == "W" and call.file == model.names.get(file):
                acknowledged.add(call.first)
        seed = dice.random()
        with TemporaryDirectory(dir=MEMORY) as place:
            write_files(model.cut(random.Random(seed)), recording.folder, Path(place), random.Random(seed))
            try:
                check(Path(place), recording, acknowledged, ordered=ordered)
            except LostError as error:
                yield f"cut after call {number} of {len(recording.calls)}, seed {seed}: {error}"


@pytest.mark.parametrize(
    ("durability", "plan"),
    [
        ("process", "one_thread"),
        ("process", "processes"),
        ("power", "one_thread"),
        ("power", "threads"),
        ("power", "processes"),
        ("power", "failing"),
        ("power", "dying"),
    ],
)
@pytest.mark.parametrize("seed", first(1, range(1, 9)))
def test_a_store_keeps_its_promise_after_a_cut_of_the_power(tmp_path, durability, plan, seed, long_run):
    recording = record(tmp_path, durability, plan, seed=seed)
    count = LONG if long_run else EVERYDAY
    assert list(find_losses(recording, count, random.Random(seed), ordered=plan not in AT_ONCE)) == []


@pytest.mark.parametrize(
    ("durability", "plan", "sabotage"),
    [
        ("process", "one_thread", "synchronous is off"),
        ("power", "threads", "commits are not synced"),
        ("power", "one_thread", "names are not synced"),
        ("power", "failing", "the log is not written again"),
        ("power", "dying", "the mark is not looked at"),
    ],
)
def test_a_broken_promise_is_noticed(tmp_path, durability, plan, sabotage):
    """The tests above can fail: each of these programs leaves out one step."""
    recording = record(tmp_path, durability, plan, sabotage)
    assert any(find_losses(recording, LONG, random.Random(1), ordered=plan not in AT_ONCE))
