"""Stores for the tests of the command line: a trip with everything a log can show, and one that means harm."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from pathlib import Path

from versioned_state import Commit, Disk, Repository, Versioned
from versioned_state.objects.keys import RefKind
from versioned_state.objects.store import Staging
from versioned_state.repository.database import Publication

START = 1_795_227_000 * 1_000_000  # 2026-11-21 02:10:00 UTC
MINUTE = 60 * 1_000_000


@dataclass
class Trip:
    """The store of a trip: five commits on main, a branch, a merge, a tag, a namespace."""

    path: Path
    commits: list[Commit]

    def tidy(self, text: str) -> str:
        """Return a text with the ids of commits named by number, other addresses by x, and the path by its role."""
        text = text.replace(str(self.path), "STORE")
        for number, commit in enumerate(self.commits, 1):
            text = text.replace(commit.id, f"commit-{number:-<41}").replace(commit.short, f"commit-{number:-<5}")
        return re.sub(r"\b[0-9a-f]{48}\b", "x" * 48, text)


def make_trip(path: Path) -> Trip:
    with Repository(Disk(path), clock=count(START, MINUTE).__next__) as repository:
        state = Versioned(repository, author="planner")
        commits = []
        state["messages"] = [{"role": "system", "content": "You plan trips."}]
        state["budget"] = {"limit": 600, "spent": 0}
        state["notes"] = "Lisbon\nby train\nquiet"
        state["user/1"] = {"name": "Ana"}
        commits.append(state.commit("Begin", meta={"round": 1}))

        state["messages"].append({"role": "user", "content": "A weekend in Lisbon, please."})
        state["prefs"] = {"people": 2, "quiet": True}
        commits.append(state.commit("Hear the traveller\n\nHe wants a weekend\nin Lisbon.", author="Bruna Magalhães"))

        state["messages"] += [{"role": "assistant", "content": None}, {"role": "tool", "content": "x" * 200}]
        state["budget"]["spent"] += 98
        state["notes"] = "Lisbon\nby train AP 121\nquiet\nbooked"
        del state["prefs"]["quiet"]
        commits.append(
            state.commit("Book the train", meta={"round": 3, "tool": "book", "cost": 98.5, "why": "it is cheap"})
        )
        repository.tags.create("v1", "main")
        repository.branches.create("idea", "main")

        idea = Versioned(repository, branch="idea", author="dreamer")
        idea["budget"]["limit"] = 900
        commits.append(idea.commit("Spend more"))

        state.namespace("worker")["job"] = {"id": 7, "done": (1, 2)}
        state["seen"] = {"hotel", "train", "weather"}
        state["when"] = dt.datetime(2026, 6, 12, 7, 4, tzinfo=dt.UTC)
        state["price"] = Decimal("98.50")
        commits.append(state.commit())
        commits.append(_merge(repository, commits[4], commits[3]))
    return Trip(path, commits)


def _merge(repository: Repository, ours: Commit, theirs: Commit) -> Commit:
    """Return a commit of two parents on a branch of its own, with the state of the first."""
    staging = Staging(repository.database.objects)
    commit = repository.database.write_commit(
        ours.tree, (ours, theirs), staging=staging, message="Merge the idea", author="planner"
    )
    assert (
        repository.database.publish([Publication(repository.database.ref("branch", "merged"), commit, staging)])
        is not None
    )
    return commit


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\x00\x7f"
"""Sets the title, clears the screen, colours it in one byte of C1, turns the direction of text, and more."""


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.target}'",)


def make_hostile(path: Path, target: Path) -> None:
    """A store whose every text is full of escape sequences, with pickles that would make the file ``target``."""
    with Versioned(Disk(path), author=f"author{ESCAPES}", pickle="allow") as state:
        state[f"key{ESCAPES}"] = f"value{ESCAPES}\nsecond{ESCAPES}"
        state["nested"] = {f"key{ESCAPES}": [f"value{ESCAPES}", ESCAPES.encode()]}
        state["lone"] = "\ud800"
        state["bomb"] = Bomb(target)
        state["list"] = [1, Bomb(target)]
        state.namespace(f"name{ESCAPES}".replace("\0", ""))["bomb"] = Bomb(target)
        state.commit(f"message{ESCAPES}\nsecond{ESCAPES}", meta={f"key{ESCAPES}": f"value{ESCAPES}"})
        state[f"key{ESCAPES}"] = f"value{ESCAPES}\nchanged{ESCAPES}"
        state["bomb"] = {"deeper": Bomb(target)}
        state["list"].append(Bomb(target))
        del state["nested"]
        state.commit(f"again{ESCAPES}")
        plant(state.repository, "branch", "branch\u202e\x9b")
    assert not target.exists()


def plant(repository: Repository, kind: RefKind, name: str) -> None:
    """Give the head of main a branch or a tag of a name that nobody could give it, as other software may have."""
    assert (
        repository.database.move(
            repository.database.ref(kind, name), repository.commit("main"), action=f"create{ESCAPES}"
        )
        is not None
    )


def control_characters(text: str, *, allowed: Iterable[str] = "\n\t") -> set[str]:
    """Return the characters that a terminal might take for a command, or would not show."""
    return {char for char in text if not char.isprintable()} - set(allowed)
