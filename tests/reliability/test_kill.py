"""A process that commits is killed at any moment: what it had been told was committed is there, whole, and in order."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.numbered_rounds import KINDS, Kind, check_history, check_objects, play
from tests.support.processes import fork
from versioned_state import Repository, Versioned


def write(kind: Kind, place: Path, acknowledgements: Path) -> None:
    """Rounds without end, each written down once it is acknowledged."""
    log = os.open(acknowledgements, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    state = Versioned(kind.open(place))
    n = state.get("step", 0)
    while True:
        n += 1
        commit = play(state, n)
        os.write(log, f"{n} {commit.id}\n".encode())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path, kind, long_run):
    place, acknowledgements = tmp_path / "store", tmp_path / "acknowledged"
    acknowledgements.touch()
    dice = random.Random(9)
    rounds = 2000 if long_run else 20
    told: list[list[str]] = []
    for number in range(rounds):
        size = acknowledgements.stat().st_size
        writer = fork(partial(write, kind, place, acknowledgements))
        deadline = time.monotonic() + 60
        # As a rule it is killed in one of the rounds after its first; now and then before that, or as it opens the
        # store.
        while acknowledgements.stat().st_size == size and number % 5 != 4:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(dice.random() * 0.03)
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)

        told = [line.split(" ") for line in acknowledgements.read_text().splitlines()]
        with Repository(kind.open(place)) as repository:
            if number < 20 or number % 250 == 0 or number == rounds - 1:
                line = check_history(repository, read=[dice.randrange(1, len(told) + 1)])
                assert {id for _, id in told} <= {commit.id for commit in line}
                assert check_objects(repository) >= len(line)
            else:  # in the long run it would be read two thousand times
                line = list(repository.log("main", limit=500))[::-1]
                assert told[-1][1] in {commit.id for commit in line}
            # One more at most that was not told, or two where the last writer had no time to tell of its first.
            assert line[-1].meta["n"] - int(told[-1][0]) in (0, 1, 2)
    assert len(told) >= rounds * 4 // 5
