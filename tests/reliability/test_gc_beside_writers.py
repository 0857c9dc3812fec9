"""Garbage is collected all the time, beside processes that write, reset and drop, two of which bring garbage back.

What was acknowledged is there, with its content; what is reachable is whole.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.support.exact import exact
from tests.support.handles import insist
from tests.support.processes import fork, join
from tests.support.store_openers import SHARED, Opener
from tests.support.strategies import make_large
from versioned_state import Disk, Repository, Versioned
from versioned_state.errors import StoreBusyError
from versioned_state.state.worktree import worktree

EVERYDAY_S = {"disk": 3.0, "disk cache": 1.0, "redis": 1.5, "postgres": 1.5}


def write(opener: Opener, name: str, until: float, acknowledgements: Path, *, put_back: bool) -> None:
    """Write rounds on a branch of its own and on a shared one, and drop half of what was written."""
    vars(worktree)["_FLUSH_AT"] = 20_000  # large commits go ahead
    rng = random.Random(name)
    log = os.open(acknowledgements, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    repository = Repository(opener())
    own, shared = Versioned(repository, branch=name), Versioned(repository, branch="shared")
    for n in itertools.count():
        if time.monotonic() > until and n >= 8:  # on a machine that is busy with other things, as many as it takes
            break
        # Out of a few, so that it was there before, be it as garbage; or new each time.
        seed = rng.randrange(3) if put_back else n
        own["value"] = make_large(rng.choice(("list", "text", "dict")), rng.choice((40, 300, 900)), seed)
        own["n"] = n
        insist(own)
        if n % 2:
            own.reset("HEAD~1")
        else:
            os.write(log, f"{own.head.id}\n".encode())
        if n % 4 == 0:
            shared.namespace(name)["n"] = n
            shared.namespace(name)["value"] = make_large("list", 60, seed)
            insist(shared)
            os.write(log, f"{shared.head.id}\n".encode())
        if n % 7 == 3:
            scratch = Versioned(repository, branch=f"{name}-scratch")
            scratch["value"] = make_large("nested", 200, seed)
            insist(scratch)
            repository.branches.delete(f"{name}-scratch", force=True)
    repository.close()


def collect(opener: Opener, until: float, counted: Path) -> None:
    freed = runs = 0
    with Repository(opener()) as repository:
        while time.monotonic() < until or (not freed and time.monotonic() < until + 60):
            with suppress(StoreBusyError):
                freed += repository.gc(expire=timedelta(0)).freed
                runs += 1
    counted.write_text(f"{runs} {freed}")


def beside(opener: Opener, folder: Path, seconds: float) -> None:
    opener().close()
    until = time.monotonic() + seconds
    writers = [f"writer-{n}" for n in range(4)]
    work = [partial(write, opener, name, until, folder / name, put_back=n < 2) for n, name in enumerate(writers)]
    join(*map(fork, (*work, partial(collect, opener, until, folder / "collected"))))
    runs, freed = map(int, (folder / "collected").read_text().split())
    assert runs >= 1
    assert freed > 0
    with Repository(opener()) as repository:
        report = repository.fsck()
        assert report.ok, "\n".join(map(str, report.findings))
        kept = {commit.id for name in repository.branches for commit in repository.log(name)}
        for name in writers:
            told = (folder / name).read_text().split()
            assert told
            assert set(told) <= kept, "what was acknowledged, and not reset, is in the history of its branch"
            content = repository.snapshot(name)
            assert len(exact(content.copy())) > 0
        for commit in repository.log("shared", limit=20):
            repository.snapshot(commit).copy()
        repository.gc(expire=timedelta(0))
        assert repository.fsck().dangling == 0


@pytest.mark.parametrize("kind", SHARED)
def test_gc_beside_four_writers(kind, request, tmp_path, long_run):
    beside(SHARED[kind](request, tmp_path), tmp_path, 20.0 if long_run else EVERYDAY_S[kind])


@pytest.mark.long
def test_gc_beside_four_writers_for_minutes(tmp_path):
    beside(partial(Disk, tmp_path / "store", timeout=300), tmp_path, 180.0)
