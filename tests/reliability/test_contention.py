"""Many processes commit to one branch: no round is lost, doubled or out of order, and each stands on the one before it.

Over every kind of store that processes share, which ``SHARED`` lists.
"""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from tests.support.numbered_rounds import check_objects
from tests.support.processes import fork
from tests.support.store_openers import SHARED, Opener
from versioned_state import Repository, Versioned
from versioned_state.errors import BranchMovedError


@pytest.fixture(params=SHARED)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return SHARED[request.param](request, tmp_path)


def write(
    opener: Opener,
    name: str,
    rounds: int,
    acknowledgements: Path,
    *,
    pause: float = 0,
    meeting: Barrier | None = None,
    last: Path | None = None,
) -> None:
    """Write rounds to keys of its own, from where the last writer of this name stopped, and note each acknowledged one.

    Before every fifth round it waits until all are at the ``meeting``. The last round waits until the file ``last`` is
    there.
    """
    log = os.open(acknowledgements, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Versioned(opener()) as state:
        own = state.setdefault(name, [])
        while len(own) < rounds:
            n = len(own)
            if meeting is not None and n % 5 == 0:
                meeting.wait(120)
            while last and n == rounds - 1 and not last.exists():
                time.sleep(0.001)
            own.append(n)
            state.namespace(name)["last"] = n
            while True:
                try:
                    commit = state.commit(f"{name} {n}", meta={"writer": name, "n": n})
                    break
                except BranchMovedError:  # the others were faster a hundred times; what was staged is still there
                    continue
            assert state.head == commit
            assert own == list(range(n + 1))
            os.write(log, f"{n} {commit.id}\n".encode())
            time.sleep(random.random() * pause)


def check(opener: Opener, names: list[str], rounds: int, folder: Path) -> int:
    """Check the number, order and ancestry of the commits.

    Return how often the branch passed from one writer to another.
    """
    with Repository(opener()) as repository:
        line = list(repository.log("main", first_parent=True))
        line = [commit for commit in line if commit.parents]  # all but the root, which every store shares
        assert len(line) == len(names) * rounds == repository.branches["main"].height
        for commit, parent in pairwise(line):
            assert commit.parents == (parent.id,), "one line, without merges"
        written = {commit.id for commit in line}
        for name in names:
            own = [commit.meta["n"] for commit in reversed(line) if commit.meta["writer"] == name]
            assert own == list(range(rounds)), name
            told = [told.split(" ") for told in (folder / name).read_text().splitlines()]
            assert {id for _, id in told} <= written
        content = repository.snapshot("main")
        assert content.copy() == {name: list(range(rounds)) for name in names}
        assert all(content.namespace(name)["last"] == rounds - 1 for name in names)
        for commit, parent in random.Random(1).sample(list(pairwise(line)), 20):
            name = commit.meta["writer"]
            changed = {str(change.path).partition("[")[0] for change in repository.diff(parent, commit)}
            assert changed == {name, f"@{name}.last"}, "a commit changes what its writer changed"
        check_objects(repository)
        return sum(commit.meta["writer"] != parent.meta["writer"] for commit, parent in pairwise(line))


def test_eight_processes_on_one_branch(tmp_path, opener, long_run):
    """With 20 commits each, and with 250 in the long run.

    They meet every five rounds, or one of them might be done before the others get in.
    """
    names = [f"w{number}" for number in range(8)]
    rounds = 250 if long_run else 20
    Versioned(opener()).close()
    meeting = get_context("fork").Barrier(8)
    pids = [fork(partial(write, opener, name, rounds, tmp_path / name, pause=0.002, meeting=meeting)) for name in names]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8
    assert check(opener, names, rounds, tmp_path) > rounds / 2, "they did get in each other's way"


@pytest.mark.long
@pytest.mark.parametrize(("writers", "rounds"), [(16, 2000)])
def test_processes_that_are_stopped_and_killed(tmp_path, opener, writers, rounds):
    """A killed writer is replaced by another of its name.

    A stopped one resumes later, on a branch that has moved meanwhile.
    """
    names = [f"w{number}" for number in range(writers)]
    disturb(opener, names, rounds, tmp_path, pause=0.05, stop=0.2)
    check(opener, names, rounds, tmp_path)


def test_processes_that_are_stopped_and_killed_in_short(tmp_path, opener):
    names = [f"w{number}" for number in range(3)]
    assert disturb(opener, names, 30, tmp_path, pause=0.01, stop=0.02, most=12) > 0
    check(opener, names, 30, tmp_path)


def disturb(
    opener: Opener, names: list[str], rounds: int, folder: Path, *, pause: float, stop: float, most: int | None = None
) -> int:
    """Let writers write, and stop or kill one of them every `pause` seconds. Return the number of killed ones.

    After ``most`` that were killed, the others are only stopped: where a process begins slowly, it would be killed
    before it writes. The first one is killed, and none of them ends before that. They pause as well, or a fast store
    would have most of it before that.
    """
    dice = random.Random(3)
    Versioned(opener()).close()
    first_kill = folder / "first kill"

    def begin(name: str) -> int:
        return fork(partial(write, opener, name, rounds, folder / name, pause=pause / 2, last=first_kill))

    running = {name: begin(name) for name in names}
    killed = 0
    while running:
        time.sleep(dice.random() * 2 * pause)
        name = dice.choice(list(running))
        pid = running[name]
        hows = (signal.SIGSTOP, signal.SIGKILL) if most is None or killed < most else (signal.SIGSTOP,)
        how = dice.choice(hows) if killed else signal.SIGKILL
        os.kill(pid, how)
        if how is signal.SIGSTOP:
            time.sleep(dice.random() * stop)
            os.kill(pid, signal.SIGCONT)
        for name, pid in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del running[name]
            if os.WIFSIGNALED(status):
                assert os.WTERMSIG(status) == signal.SIGKILL
                killed += 1
                first_kill.touch()
                running[name] = begin(name)
            else:
                assert os.WEXITSTATUS(status) == 0
    return killed
