"""The part "workspace" of ``scripts/bench agents``: commits and moves of a 10,000-file folder, beside git's on a copy.

A command of git is a process of its own, which takes some milliseconds to start; a workspace lives in the agent's
process.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import sleep
from typing import Final

from benchmarks import report
from benchmarks.commit_worker import Requests
from benchmarks.measure import alternate, folder_bytes, median, paired, timed
from versioned_state import Disk, Versioned, Workspace

FILES: Final = 10_000
FOLDER: Final = 25
"""Files in a folder, and folders in a folder."""

SETTLED: Final = 0.03
"""Seconds after which a file that was written is old enough for its stat to be believed."""


class Git:
    """A repository of git."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self("init", "-q", "-b", "main")

    def __call__(self, *arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "gc.auto=0"]
        subprocess.run(["git", "-C", str(self.folder), *identity, *arguments], check=True)

    def commit(self) -> None:
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", "round")


def lay(folder: Path, files: int) -> list[str]:
    """Files as a large project has them; their paths."""
    dice = random.Random(1)
    paths = []
    for n in range(files):
        path = f"package{n // FOLDER // FOLDER:02}/part{n // FOLDER % FOLDER:02}/module_{n:05}.py"
        at = folder / path
        at.parent.mkdir(parents=True, exist_ok=True)
        lines = (
            f"name_{dice.randrange(10**6)} = function_{dice.randrange(1000)}(value)\n"
            for _ in range(dice.randrange(5, 60))
        )
        at.write_text("".join(lines))
        paths.append(path)
    return paths


def print_workspaces(folder: Path, turns: int, files: int = FILES) -> None:
    """Measure, and print the table."""
    if shutil.which("git") is None:
        print("git is not installed: workspaces are not compared")
        return
    report.print_table(
        [f"{files:,} files", "here", "git", "ratio", "10 to 90 % of pairs", "aim"], list(_rows(folder, turns, files))
    )


def _rows(folder: Path, turns: int, files: int) -> Iterator[list[str]]:
    ours, theirs = folder / "ours", folder / "theirs"
    paths = lay(ours, files)
    shutil.copytree(ours, theirs)
    git = Git(theirs)
    state = Versioned(Disk(folder / "workspace-store"))
    workspace = Workspace(state, ours)
    yield _row("first commit", [timed(state.commit)], [timed(git.commit)], "")
    dice = random.Random(2)

    def change(at: Path, number: int) -> str:
        path = paths[(number * 7919) % len(paths)]
        with (at / path).open("a") as file:
            file.write(f"round_{number} = {dice.random()}\n")
        return path

    def measured(
        name: str,
        prepare: Callable[[Path, int], object],
        here: Callable[[], object],
        there: Callable[[], object],
        turns: int = turns,
    ) -> list[str]:
        """The row of a call on each side, each time after a change of its folder."""

        def step(at: Path, call: Callable[[], object], number: int) -> float:
            prepare(at, number)
            sleep(SETTLED)
            return timed(call)

        found = alternate({"here": partial(step, ours, here), "git": partial(step, theirs, there)}, turns)
        return _row(name, found["here"], found["git"], "1")

    change(ours, 0)
    change(theirs, 0)
    sleep(SETTLED)
    state.commit()
    git.commit()
    yield measured("commit one changed file", change, state.commit, git.commit)
    last = state.head

    def forward(at: Path, _: int) -> None:
        if at == ours:
            state.reset(last)
        else:
            git("checkout", "-q", "main")

    yield measured(
        "go back one commit",
        forward,
        lambda: state.reset("HEAD~1"),
        lambda: git("checkout", "-q", "HEAD~1"),
        2 * (turns // 2),
    )
    forward(ours, 0)
    forward(theirs, 0)
    path = change(ours, 3)
    change(theirs, 3)
    yield measured(
        "restore one file",
        lambda at, _: change(at, 3),
        lambda: workspace.restore(path, overwrite=True),
        lambda: git("checkout", "-q", "HEAD", "--", path),
    )

    def empty(at: Path, _: int) -> None:
        for each in at.glob("package*"):
            shutil.rmtree(each)

    yield measured(
        "restore all files", empty, workspace.restore, lambda: git("checkout", "-q", "--", "."), max(turns // 10, 2)
    )
    workspace.close()
    state.close()
    yield from _bytes(folder, files)


def _bytes(folder: Path, files: int) -> Iterator[list[str]]:
    """Bytes of the first commit and of one changed file: of keys and values here, of loose objects there."""
    ours, theirs = folder / "counted", folder / "counted-theirs"
    paths = lay(ours, files)
    shutil.copytree(ours, theirs)
    git = Git(theirs)
    store = Requests()
    state = Versioned(store)
    with Workspace(state, ours):
        state.commit()
        git.commit()
        objects = theirs / ".git" / "objects"
        before = store.bytes, folder_bytes(objects)
        yield ["bytes of the first commit", *_counts(*before), "", "1"]
        rounds = 10
        for number in range(rounds):
            for at in (ours, theirs):
                with (at / paths[number * 997 % len(paths)]).open("a") as file:
                    file.write(f"round_{number} = 1\n")
            state.commit()
            git.commit()
        after = store.bytes, folder_bytes(objects)
        added = [(now - was) / rounds for now, was in zip(after, before, strict=True)]
        yield ["bytes of one changed file", *_counts(*added), "", "1"]


def _counts(here: float, there: float) -> list[str]:
    return [f"{here:,.0f}", f"{there:,.0f}", f"{here / there:.2f}"]


def _row(name: str, here: list[float], there: list[float], aim: str) -> list[str]:
    return [name, f"{median(here) * 1e3:.1f} ms", f"{median(there) * 1e3:.1f} ms", *paired(here, there), aim]
