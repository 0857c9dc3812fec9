"""The program whose power is cut: it commits, writes down what was acknowledged, reopens its store, and is killed.

    python -m tests.support.power.writer FOLDER DURABILITY PLAN SABOTAGE SEED

It commits numbered rounds (``numbered_rounds``) to several branches. The commit of a round has its number on the
branch, ``n``, and unless several threads commit, its number among all, ``all``.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final

from tests.support.numbered_rounds import change
from versioned_state import Commit, Disk, Repository, Versioned
from versioned_state.errors import CommitInDoubtError, StorageError
from versioned_state.storage.local import log_sync, sqlite_file

BRANCHES: Final = ("one", "two", "three")
STORE, ACKNOWLEDGED, FAILING = "parent/store", "acknowledged", "failing"

_PAGES: Final = 40
"""A checkpoint after as many pages instead of 2,000, so that the log begins anew several times."""


class Writer:
    def __init__(self, folder: Path, durability: str, seed: int) -> None:
        self.folder = folder
        self.durability = durability
        self.dice = random.Random(seed)
        self.all = 0
        self.log = os.open(folder / ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def open(self) -> Disk:
        return Disk(self.folder / STORE, durability=self.durability)  # type: ignore[arg-type]

    def round(self, state: Versioned, count: int | None) -> None:
        n = state.get("step", 0) + 1
        change(state, n)
        self.acknowledge(state, state.commit(meta={"n": n} if count is None else {"n": n, "all": count}))

    def acknowledge(self, state: Versioned, commit: Commit) -> None:
        os.write(self.log, f"{state.branch} {commit.meta['n']} {commit.id}\n".encode())

    def in_turns(self, repository: Repository, rounds: int) -> None:
        """Rounds of one thread, whose order is known."""
        states = [Versioned(repository, branch=name) for name in BRANCHES]
        for _ in range(rounds):
            self.all += 1
            self.round(self.dice.choice(states), self.all)

    def at_once(self, repository: Repository, rounds: int) -> None:
        """Rounds of several threads, which wait for the disk at once."""

        def work(branch: str) -> None:
            state = Versioned(repository, branch=branch)
            for _ in range(rounds):
                self.round(state, None)

        threads = [Thread(target=work, args=(branch,)) for branch in BRANCHES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def in_a_child(self, rounds: int, repository: Repository) -> None:
        pid = os.fork()
        if not pid:
            self.in_turns(repository, rounds)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        self.all += rounds

    def one_thread(self) -> None:
        with Repository(self.open()) as repository:
            self.in_turns(repository, 6)
        repository = Repository(self.open())
        self.in_turns(repository, 12)
        self.in_a_child(4, repository)
        repository.store.compact()  # type: ignore[attr-defined]
        self.in_turns(repository, 5)

    def threads(self) -> None:
        with Repository(self.open()) as repository:
            self.at_once(repository, 3)
        self.at_once(Repository(self.open()), 8)

    def processes(self) -> None:
        """Rounds of several processes at once.

        With ``"power"``, the last one does not wait for the disk, and acknowledges nothing.
        """
        with Repository(self.open()):
            pass
        pids = []
        for number, branch in enumerate(BRANCHES):
            pids.append(os.fork())
            if pids[-1]:
                continue
            if number == 2 and self.durability == "power":
                self.durability = "process"
                self.log = os.open(os.devnull, os.O_WRONLY)
            state = Versioned(Repository(self.open()), branch=branch)
            for _ in range(8):
                self.round(state, None)
            os._exit(0)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)

    def failing(self) -> None:
        """The disk fails one sync of the log, which the store repairs by itself, or every sync for a while."""
        repository = Repository(self.open())
        state = Versioned(repository, branch=BRANCHES[0])
        mark = self.folder / FAILING
        for number in range(4):
            self.in_turns(repository, 3 + number)
            state.refresh()
            mark.touch()
            self.all += 1
            try:
                self.round(state, self.all)
            except CommitInDoubtError:
                raise
            except StorageError:  # SQLite's own sync failed, of a log that was to begin anew: nothing was committed
                self.acknowledge(state, state.commit(meta={"n": state["step"], "all": self.all}))
            assert not mark.exists()
            self.in_turns(repository, 2)
            state.refresh()
            mark.write_text("as long as this file is there")
            self.all += 1
            try:
                self.round(state, self.all)
            except CommitInDoubtError as error:
                mark.unlink()
                state.refresh()
                if state.head.id != error.commit:
                    raise
                self.acknowledge(state, state.head)  # the store shows it, so it is on the disk
            except StorageError:  # the log was to begin anew: nothing was committed
                mark.unlink()
                self.acknowledge(state, state.commit(meta={"n": state["step"], "all": self.all}))
            else:
                raise AssertionError("a commit was acknowledged that is not on the disk")

    def dying(self) -> None:
        """A process dies after a sync has failed, and the next one goes on."""
        mark = self.folder / FAILING
        for number in range(3):
            pid = os.fork()
            if not pid:
                repository = Repository(self.open())
                self.in_turns(repository, 4)
                mark.write_text("until the process has died")
                self.all += 1
                try:
                    self.round(Versioned(repository, branch=BRANCHES[number]), self.all)
                except CommitInDoubtError:
                    os._exit(0)
                raise AssertionError("a commit was acknowledged that is not on the disk")
            assert os.waitpid(pid, 0)[1] == 0
            mark.unlink()
            self.all += 5
            repository = Repository(self.open())
            self.in_turns(repository, 3)
            if number == 1:
                repository.close()


def _no_sync(log: log_sync.OpenLog) -> None:
    """The syncs of commits are left out."""


_connect = sqlite_file.connect


def _connect_without_syncs(*arguments: object, **options: object) -> sqlite_file.Connection:
    connection = _connect(*arguments, **options)  # type: ignore[arg-type]
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _no_rewrite(connection: object, log: object, file: object) -> None:
    """A failed sync is followed by another one, and nothing is written again."""
    log.sync()  # type: ignore[attr-defined]


SABOTAGE: Final[dict[str, Callable[[], None]]] = {
    "none": lambda: None,
    "commits are not synced": lambda: setattr(log_sync.OpenLog, "sync", _no_sync),
    "synchronous is off": lambda: setattr(sqlite_file, "connect", _connect_without_syncs),
    "the log is not written again": lambda: setattr(log_sync, "rewrite_log", _no_rewrite),
    "the mark is not looked at": lambda: setattr(log_sync.LogSync, "is_marked", lambda log: False),
    "names are not synced": lambda: setattr(sqlite_file, "_sync", lambda path: None),
}


def main(folder: str, durability: str, plan: str, sabotage: str, seed: str) -> None:
    sqlite_file._CHECKPOINT_PAGES = _PAGES
    SABOTAGE[sabotage]()
    writer = Writer(Path(folder), durability, int(seed))
    getattr(writer, plan)()
    os._exit(0)  # the store is not closed


if __name__ == "__main__":
    main(*sys.argv[1:])
