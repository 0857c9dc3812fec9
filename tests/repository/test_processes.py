"""Processes that are killed, and processes that commit to one branch at once, over one ``Disk``."""

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

from tests.support.exact import exact
from tests.support.processes import fork, join, start
from versioned_state import Disk, Repository, Versioned
from versioned_state.storage.testing.writers import run_together

WRITER = """
    import os, sys
    from versioned_state import Disk, Versioned
    store, acknowledged = sys.argv[1:]
    state = Versioned(Disk(store))
    log = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    state.setdefault("messages", [])
    n = len(state["messages"])
    print("ready", flush=True)
    while True:
        state["messages"].append({"n": n, "text": "x" * (n * 37 % 900)})
        state["step"] = n
        if n % 7 == 3:
            state["messages"][n // 2]["changed"] = n
        commit = state.commit(str(n))
        os.write(log, f"{n} {commit.id}\\n".encode())
        n += 1
        if n % 50 == 0:
            del state["messages"][5:]
            state.commit("shorter")
            state["messages"] += [{"n": "filler"}] * (n - 5)
            os.write(log, f"{n} {state.commit('longer').id}\\n".encode())
            n += 1
            state["messages"].append(0)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path, long_run):
    """A writer is killed again and again, at any moment. Every acknowledged commit is there, and whole."""
    store, acknowledged = tmp_path / "store", tmp_path / "acknowledged"
    rng = random.Random(1)
    known: set[str] = set()
    for _ in range(500 if long_run else 8):
        writer = start(WRITER, store, acknowledged)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.12))
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        lines = acknowledged.read_text().splitlines() if acknowledged.exists() else []
        known = {line.split(" ")[1] for line in lines}
        with Repository(Disk(store)) as repository:
            if not known:
                continue
            line = [commit.id for commit in repository.log("main")]
            assert known <= set(line), "every acknowledged commit is in the history of the branch"
            last = lines[-1].split(" ")[1]
            assert line.index(last) <= 2, "at most what was under way came after the last that was acknowledged"
            for id in (line[0], last, rng.choice(line), line[-1]):
                content = repository.snapshot(id).copy()
                assert content["step"] >= 0
                assert len(content["messages"]) > 0
            state = Versioned(repository)
            assert not state.status()
            assert exact(state.copy()) == exact(repository.snapshot(line[0]).copy())
    assert len(known) > 8, "the writers had time to do something"


def committer(store: Path, name: str, rounds: int, meeting: Barrier) -> None:
    """A process that commits to keys of its own on the one branch, and meets the others before every tenth round."""
    with Versioned(Disk(store, timeout=30)) as state:
        state[name] = []
        for n in range(rounds):
            if n % 10 == 0:
                meeting.wait(120)
            state[name].append(n)
            state.namespace(name)["step"] = n
            commit = state.commit(f"{name} {n}", meta={"writer": name, "n": n})
            assert commit == state.head
            assert state[name] == list(range(n + 1))
            time.sleep(random.random() * 0.002)  # or one of them would hold the store while the others wait


def test_processes_that_commit_to_one_branch_at_once(tmp_path):
    """Nobody's round is lost, doubled or out of order, and each stands on the one before it."""
    store = tmp_path / "store"
    writers, rounds = ["a", "b", "c", "d"], 50
    Versioned(Disk(store)).close()
    meeting = get_context("fork").Barrier(len(writers))
    join(*(fork(lambda name=name: committer(store, name, rounds, meeting)) for name in writers))  # type: ignore[misc]
    with Repository(Disk(store)) as repository:
        line = list(repository.log("main", first_parent=True))
        assert len(line) == len(writers) * rounds == repository.branches["main"].height
        assert list(repository.log("main")) == line, "one line, without merges"
        for name in writers:
            own = [commit.meta["n"] for commit in reversed(line) if commit.meta["writer"] == name]
            assert own == list(range(rounds))
        turns = sum(a.meta["writer"] != b.meta["writer"] for a, b in pairwise(line))
        assert turns >= len(writers), "they did get in each other's way"
        content = repository.snapshot("main")
        assert content.copy() == {name: list(range(rounds)) for name in writers}
        assert all(content.namespace(name)["step"] == rounds - 1 for name in writers)
        for commit, parent in pairwise(line):
            name = commit.meta["writer"]
            changed = {str(change.path).partition("[")[0] for change in repository.diff(parent, commit)}
            assert changed == {name, f"@{name}.step"}, "a commit changes what its writer changed"


def test_threads_with_a_handle_each(tmp_path):
    with Repository(Disk(tmp_path / "store", timeout=30)) as repository:

        def work(name: str) -> None:
            state = Versioned(repository)
            for n in range(25):
                state[name] = n
                state.commit(f"{name} {n}")

        run_together(partial(work, name) for name in "abcd")
        assert repository.snapshot("main").copy() == dict.fromkeys("abcd", 24)
        assert repository.branches["main"].height == 100


def test_threads_that_share_a_handle():
    state = Versioned()
    state["log"] = []

    def work(name: str) -> None:
        for n in range(60):
            state[name] = {"n": n}
            assert state[name] == {"n": n}
            state.commit(f"{name} {n}")
            list(state)
            state.status()

    run_together(partial(work, name) for name in "abcd")
    state.commit()
    assert state.checkout("HEAD").copy() == {"log": [], **{name: {"n": 59} for name in "abcd"}}


def test_a_fork_goes_on_by_itself(tmp_path):
    with Versioned(Disk(tmp_path / "store")) as state:
        state["parent"] = [1]
        state.commit()

        def child() -> None:
            state["child"] = [1]
            state.commit("child")

        join(fork(child))
        state["parent"].append(2)
        state.commit("parent")
        assert state.checkout("HEAD").copy() == {"parent": [1, 2], "child": [1]}
        assert state["child"] == [1]


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_store_that_was_never_closed_is_read_back(tmp_path, durability):
    program = """
        import os, sys
        from versioned_state import Disk, Versioned
        state = Versioned(Disk(sys.argv[1], durability=sys.argv[2]))
        for n in range(30):
            state[f"k{n}"] = ["x" * 100] * n
            state.commit(str(n))
        os._exit(0)
    """
    process = start(program, tmp_path / "store", durability)
    process.communicate()
    assert process.returncode == 0
    with Versioned(Disk(tmp_path / "store")) as state:
        assert len(state) == 30
        assert state["k29"] == ["x" * 100] * 29
