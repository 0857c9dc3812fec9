"""What if? An agent tries each option on a branch of its own; the branches are scored, and the best is merged.

python examples/what_if.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from versioned_state import Versioned, current_state, emit, events, task

OPTIONS = {"train": (98, 9), "plane": (240, 3), "bus": (45, 21)}
"""Cost in EUR and hours of each way to travel."""


@dataclass
class Weighed:
    """An event of our own: what an option is worth."""

    way: str
    score: float


@task
def try_out(way: str) -> None:
    """Plan the trip as if this were the way."""
    state = current_state()
    cost, hours = OPTIONS[way]
    state["trip"] = {"way": way, "hours": hours}
    state["budget"]["spent"] += cost
    state["notes"].append(f"{way}: {hours} hours for {cost} EUR")
    emit(Weighed(way, score(state)))


def score(state: Mapping[str, Any]) -> float:
    """Better with money left, worse with each hour: any function of a state."""
    return float(state["budget"]["limit"] - state["budget"]["spent"] - 20 * state["trip"]["hours"])


def main() -> None:
    state = Versioned()
    state["budget"] = {"limit": 600, "spent": 0}
    state["notes"] = ["a weekend in Lisbon"]
    start = state.commit("hear the traveller")
    branches = state.repository.branches

    scores = {}
    for way in OPTIONS:
        with state.fork(f"try/{way}", at=start) as fork:
            try_out(way, state=fork)
            scores[fork.branch] = score(fork)
    state["notes"].append("they are two")  # meanwhile the conversation goes on
    state.commit("hear more")

    for branch, points in sorted(scores.items(), key=lambda each: -each[1]):
        print(f"{points:6}  {branch}\n{state.diff(start, branch)}")
    best = max(scores, key=lambda branch: scores[branch])
    state.merge(best, message=f"take {best}", policies={"notes": "append"})
    for branch in scores:
        branches.delete(branch, force=True)

    print(f"\n{state.head.message}: {dict(state)}")
    assert state["trip"] == {"way": "train", "hours": 9}
    assert sorted(state["notes"]) == ["a weekend in Lisbon", "they are two", "train: 9 hours for 98 EUR"]
    assert list(branches) == ["main"]
    assert list(events(state, types=Weighed)) == [Weighed("train", 322.0)], "its events came along"


if __name__ == "__main__":
    main()
