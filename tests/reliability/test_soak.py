"""A handle that goes on for ever: memory and file descriptors stay where they are."""

from __future__ import annotations

import gc
import statistics
import sys
from pathlib import Path

import pytest

from tests.support.numbered_rounds import DISK, DISK_CACHE, check_history, play
from versioned_state import Repository, Versioned
from versioned_state.values.trees.nodes import NodeCache


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.no_oracle("it counts blocks of memory")
@pytest.mark.parametrize("kind", [DISK, pytest.param(DISK_CACHE, marks=pytest.mark.long)], ids=str)
def test_memory_and_descriptors_stay_flat(tmp_path, kind, long_run, monkeypatch):
    """The compared windows begin when the caches are full. From then on their content varies by some hundred blocks."""
    monkeypatch.setattr(NodeCache, "DEFAULT_BYTES", 1 << 18)  # full long before the first window
    commits = (1_000_000 if kind is DISK else 100_000) if long_run else 2700
    blocks: dict[str, list[int]] = {"early": [], "late": []}
    open_files: set[int] = set()
    before = 0
    with Versioned(kind.open(tmp_path / "store")) as state:
        for n in range(1, commits + 1):
            play(state, n)
            if n % 12:
                continue
            state.status()
            state.checkout("HEAD~3")["messages"]
            list(state.log(limit=5))
            str(state.diff("HEAD~1", "HEAD"))
            if n <= 1000:
                before = resident()
            elif n % 24 == 0 and (n <= 1300 or n > commits - 300):
                gc.collect()
                blocks["early" if n <= 1300 else "late"].append(sys.getallocatedblocks())
                open_files.add(descriptors())
        # One small object that is kept by each commit is one block a commit: 1,400 everyday.
        assert statistics.mean(blocks["late"]) - statistics.mean(blocks["early"]) < 1000
        # Large objects, and what C holds: at most SQLite's cache of pages fills up, 8 MiB.
        assert resident() - before < 24 << 20
        assert len(open_files) == 1, "as many files at the end as in the middle"
    with Repository(kind.open(tmp_path / "store")) as repository:
        assert len(check_history(repository)) == commits
