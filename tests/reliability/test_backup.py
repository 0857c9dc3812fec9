"""Copies of a store in use, made as docs/operations.md says: each is a whole committed state, and works as a store."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.numbered_rounds import KINDS, check_history, check_objects, play
from tests.support.processes import fork, join
from versioned_state import Repository, Versioned


def online(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)


def vacuumed(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source, isolation_level=None)) as live:
        live.execute("VACUUM INTO ?", (str(target),))


@pytest.mark.parametrize("copy", [online, vacuumed], ids=lambda copy: copy.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_copy_of_a_store_that_is_written_to(tmp_path, kind, copy: Callable[[Path, Path], None]):
    place = tmp_path / "store"
    with Versioned(kind.open(place)) as state:
        for n in range(1, 20):
            play(state, n)
        enough, done = Event(), []

        def write() -> None:
            n = 20
            while not enough.is_set():
                play(state, n)
                done.append(n)
                n += 1
                time.sleep(0.003)

        writer = Thread(target=write)
        writer.start()
        try:
            for number in range(3):
                target = tmp_path / f"copy {number}"
                target.mkdir(mode=0o700)
                before = state.head.meta["n"]
                copy(place / kind.file, target / kind.file)
                with Versioned(kind.open(target)) as again:
                    count = len(check_history(again.repository, least=before))
                    check_objects(again.repository)
                    play(again, count + 1)
        finally:
            enough.set()
            writer.join()
    assert done


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_copy_without_a_log_that_many_open_at_once(tmp_path, kind):
    """VACUUM INTO makes a file in SQLite's old mode.

    The first to open it changes that, under the eyes of the others.
    """
    with Versioned(kind.open(tmp_path / "store")) as state:
        play(state, 1)
        for number in range(5):
            target = tmp_path / f"copy {number}"
            target.mkdir(mode=0o700)
            vacuumed(tmp_path / "store" / kind.file, target / kind.file)
            begin = time.monotonic() + 0.05

            def look(target: Path = target, begin: float = begin) -> None:
                time.sleep(max(begin - time.monotonic(), 0))
                with Repository(kind.open(target)) as repository:
                    assert len(check_history(repository)) == 1

            join(*(fork(look) for _ in range(4)))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_folder_that_is_moved_or_copied_while_nobody_has_it_open(tmp_path, kind):
    place = tmp_path / "store"
    with Versioned(kind.open(place)) as state:
        for n in range(1, 10):
            play(state, n)
    shutil.copytree(place, tmp_path / "copy")
    place.rename(tmp_path / "moved")
    for name in ("copy", "moved"):
        with Repository(kind.open(tmp_path / name)) as repository:
            assert len(check_history(repository)) == 9
