"""Several processes on one thread of LangGraph: nothing is lost, nothing is mixed, also if they are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support import store_openers
from tests.support.langgraph_threads import THREAD, put
from tests.support.processes import ROOT, fork, join
from versioned_state import Disk
from versioned_state.integrations.langgraph import VersionedSaver


def check(saver: VersionedSaver, done: dict[str, int], *, killed: bool = False) -> None:
    """Each writer's acknowledged checkpoints are there, each onto its own one before, and with its own write only."""
    found = list(saver.list(THREAD))
    ids = [each.checkpoint["id"] for each in found]
    assert ids == sorted(set(ids), reverse=True)
    for name, count in done.items():
        own = [each for each in found if each.checkpoint["channel_values"]["by"] == name]
        lengths = [len(each.checkpoint["channel_values"]["steps"]) for each in own]
        assert lengths == list(range(len(own), 0, -1))
        assert count <= len(own) <= count + killed  # the last one may have been put, and not acknowledged
        for at, (each, before) in enumerate(zip(own, [*own[1:], None], strict=True)):
            assert each.parent_config == (None if before is None else before.config)
            assert each.pending_writes == [(name, "by", name)] or (killed and at == 0 and not each.pending_writes)
    assert len(found) == sum(
        len([each for each in found if each.checkpoint["channel_values"]["by"] == name]) for name in done
    )


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
            at = THREAD
            for steps in range(1, count + 1):
                at = put(saver, at, name, steps)

    opened().close()
    join(*(fork(lambda name=name: write(name)) for name in "abcd"))  # type: ignore[misc]
    with opened() as store, VersionedSaver(store) as saver:
        check(saver, dict.fromkeys("abcd", count))
        assert saver.repository.fsck().ok


WRITER = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from tests.support.langgraph_threads import THREAD, put
    from versioned_state.integrations.langgraph import VersionedSaver

    folder, name = sys.argv[1:]
    with VersionedSaver(folder) as saver:
        own = [each for each in saver.list(THREAD) if each.checkpoint["channel_values"]["by"] == name]
        at, steps = (own[0].config, len(own)) if own else (THREAD, 0)
        if own and not own[0].pending_writes:
            saver.put_writes(at, [("by", name)], name)
        print(steps, flush=True)
        while True:
            steps += 1
            at = put(saver, at, name, steps)
            print(steps, flush=True)
"""


@pytest.mark.long
def test_writers_that_are_killed_again_and_again(tmp_path: Path):
    done = dict.fromkeys("ab", 0)
    dice = random.Random(7)
    for _ in range(12):
        writers = {
            name: subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(WRITER.format(root=str(ROOT))), str(tmp_path / "store"), name],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            for name in done
        }
        for name, writer in writers.items():
            assert writer.stdout is not None
            for _ in range(dice.randrange(2, 30)):
                done[name] = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
        for name, writer in writers.items():
            acknowledged = [
                int(line) for line in writer.communicate()[0].splitlines(keepends=True) if line.endswith("\n")
            ]
            done[name] = max([done[name], *acknowledged])
        with VersionedSaver(tmp_path / "store") as saver:
            check(saver, done, killed=True)
    with VersionedSaver(tmp_path / "store") as saver:
        assert saver.repository.fsck().ok
    assert min(done.values()) > 20
