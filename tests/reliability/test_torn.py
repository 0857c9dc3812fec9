"""A store's log is cut short or lost in places, as by a power cut: what opens is a prefix of the commits, and whole."""

from __future__ import annotations

import random
import shutil
from bisect import bisect_right
from pathlib import Path

import pytest

from tests.support.numbered_rounds import DISK, KINDS, Kind, check_history, check_objects, copy_files, play
from versioned_state import Disk, Repository, Versioned

COMMITS = 20


@pytest.fixture(scope="module", params=KINDS, ids=str)
def torn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kind, Path, list[int]]:
    """A copy of a store whose log holds 20 commits, and where in the log each ended."""
    kind: Kind = request.param
    place, copy = tmp_path_factory.mktemp("live") / "store", tmp_path_factory.mktemp("copy") / "store"
    Versioned(kind.open(place)).close()
    ends = []
    with Versioned(kind.open(place)) as state:
        for n in range(1, COMMITS + 1):
            play(state, n)
            ends.append((place / f"{kind.file}-wal").stat().st_size)
        copy_files(place, copy, kind)
    assert len(set(ends)) == COMMITS
    return kind, copy, ends


def reopened(kind: Kind, source: Path, place: Path, log: bytes, *, thorough: bool) -> int:
    """Check that the commits can be read with that log, and that another commit succeeds.

    Return the number of commits.
    """
    place.mkdir()
    shutil.copy(source / kind.file, place)
    (place / f"{kind.file}-wal").write_bytes(log)
    height = height_for_readers(place) if kind is DISK and thorough else None
    with Versioned(kind.open(place)) as state:
        repository = state.repository
        if "main" not in repository.branches:
            count = 0
        elif thorough:
            count = len(check_history(repository, read=range(1, repository.branches["main"].height + 1)))
            check_objects(repository)
        else:
            count = repository.branches["main"].height
            assert state["step"] == count
        assert height in (None, count)
        play(state, count + 1)
    if thorough:
        with Repository(kind.open(place)) as repository:
            assert len(check_history(repository)) == count + 1
    shutil.rmtree(place)
    return count


def height_for_readers(place: Path) -> int:
    """Return the number of commits that are there if the store is opened for reading only."""
    with Repository(Disk(place, read_only=True)) as repository:
        return repository.branches["main"].height if "main" in repository.branches else 0


def test_log_cut_anywhere_leaves_a_prefix_of_the_commits(torn, tmp_path, long_run):
    kind, source, ends = torn
    log = (source / f"{kind.file}-wal").read_bytes()
    seen = set()
    # A page and the header before it are 4,120 bytes, so that cuts fall everywhere in them. Both kinds are SQLite
    # below. Everyday, one of them is cut at two or three places of each page, the other at fewer.
    step = 512 if long_run else 512 * 3 if kind is DISK else 512 * 5
    for number, cut in enumerate((*range(0, len(log), step), len(log))):
        wanted = bisect_right(ends, cut)
        assert (
            reopened(kind, source, tmp_path / "store", log[:cut], thorough=wanted not in seen or number % 20 == 0)
            == wanted
        ), cut
        seen.add(wanted)
    assert seen == set(range(COMMITS + 1))


def test_lost_sectors_of_the_log_leave_a_prefix_of_the_commits(torn, tmp_path, long_run):
    """The disk wrote some sectors of what was not synced and not others: rubbish, zeros, or what was there before."""
    kind, source, ends = torn
    log = (source / f"{kind.file}-wal").read_bytes()
    dice = random.Random(4)
    for number in range(10_000 if long_run else 60):
        lost = bytearray(log)
        starts = [dice.randrange(0, len(log), 512) for _ in range(dice.choice((1, 1, 2, 8)))]
        for start in starts:
            length = len(lost[start : start + 512])
            other = dice.randrange(0, len(log) - 512, 512)
            lost[start : start + 512] = dice.choice(
                (dice.randbytes(length), bytes(length), log[other : other + length])
            )
        changed = next((at for at in range(0, len(log), 512) if lost[at : at + 512] != log[at : at + 512]), len(log))
        found = reopened(kind, source, tmp_path / "store", bytes(lost), thorough=number % 10 == 0)
        # All that ended before the first lost sector; what came after it may be there only if nothing of it was
        # changed.
        assert bisect_right(ends, changed) == found, (starts, found)
