"""Several processes on one thread of LangGraph: nothing is lost, nothing is mixed, also if they are killed."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support import store_openers
from tests.support.langgraph_threads import check_steps, put_steps
from tests.support.processes import fork, join, start
from versioned_state import Disk
from versioned_state.integrations.langgraph import VersionedSaver


def disk(request: pytest.FixtureRequest, folder: Path) -> Any:
    return lambda: Disk(folder / "store")


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("place", "count"),
    [
        pytest.param(disk, 12, id="disk"),
        *(
            pytest.param(each, 100, id=f"{each.__name__}, 100 each", marks=pytest.mark.long)
            for each in (disk, store_openers.redis, store_openers.postgres)
        ),
    ],
)
def test_four_processes_on_one_thread(place: Any, count: int, request: pytest.FixtureRequest, tmp_path: Path):
    opened = place(request, tmp_path)

    def write(name: str) -> None:
        with opened() as store, VersionedSaver(store) as saver:
            put_steps(saver, name, count)

    opened().close()
    join(*(fork(lambda name=name: write(name)) for name in "abcd"))  # type: ignore[misc]
    with opened() as store, VersionedSaver(store) as saver:
        check_steps(saver, dict.fromkeys("abcd", count))
        assert saver.repository.fsck().ok


WRITER = """
    import sys
    from tests.support.langgraph_threads import config, put_step
    from versioned_state.integrations.langgraph import VersionedSaver

    folder, name = sys.argv[1:]
    with VersionedSaver(folder) as saver:
        own = [each for each in saver.list(config()) if each.checkpoint["channel_values"]["by"] == name]
        at, steps = (own[0].config, len(own)) if own else (config(), 0)
        if own and not own[0].pending_writes:
            saver.put_writes(at, [("by", name)], name)
        print(steps, flush=True)
        while True:
            steps += 1
            at = put_step(saver, at, name, steps)
            print(steps, flush=True)
"""


@pytest.mark.long
def test_writers_that_are_killed_again_and_again(tmp_path: Path):
    done = dict.fromkeys("ab", 0)
    dice = random.Random(7)
    for _ in range(12):
        writers = {name: start(WRITER, tmp_path / "store", name) for name in done}
        for name, writer in writers.items():
            assert writer.stdout is not None
            for _ in range(dice.randrange(2, 30)):
                done[name] = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
        for name, writer in writers.items():
            with writer:
                assert writer.stdout is not None
                acknowledged = [int(line) for line in writer.stdout if line.endswith("\n")]
            done[name] = max([done[name], *acknowledged])
        with VersionedSaver(tmp_path / "store") as saver:
            check_steps(saver, done, killed=True)
    with VersionedSaver(tmp_path / "store") as saver:
        assert saver.repository.fsck().ok
    assert min(done.values()) > 20
