"""Several workers on one state: each has a fork, their changes are merged by path, and who conflicts is named.

python examples/workers.py
"""

from __future__ import annotations

import tempfile
from functools import partial

from versioned_state import Disk, SuccessEvent, Versioned, current_state, events, parallel, task


@task
def research(topic: str) -> int:
    """Find something, note it under its topic, and in the list of all sources."""
    state = current_state()
    state["findings"][topic] = {"summary": f"all about {topic}", "pages": len(topic)}
    state["sources"].append(f"https://example.org/{topic}")
    return len(topic)


@task
def title(words: str) -> None:
    current_state()["report"]["title"] = words


@task
def write() -> None:
    """An orchestrator: its workers begin where it stands, and it goes on with what they found."""
    state = current_state()
    state["plan"] = ["trains", "hotels", "weather"]
    parallel(state, [partial(research, topic) for topic in state["plan"]], policies={"sources": "append"})
    state["report"] = {"title": "Lisbon", "pages": sum(found["pages"] for found in state["findings"].values())}


def main(folder: str) -> None:
    with Disk(folder) as store, Versioned(store) as state:
        state["findings"], state["sources"] = {}, []
        state.commit("a report is wanted")
        write(state=state)
        print(state["findings"], state["sources"], state["report"], sep="\n")
        assert sorted(state["findings"]) == ["hotels", "trains", "weather"]
        assert len(state["sources"]) == 3
        assert sum(isinstance(event, SuccessEvent) for event in events(state)) == 4

        # Workers in processes of their own, over the same store.
        outcomes = parallel(
            state,
            [partial(research, "food"), partial(research, "museums")],
            policies={"sources": "append"},
            executor="processes",
        )
        print([outcome.value for outcome in outcomes], "pages by two processes")
        assert len(state["findings"]) == 5

        # Two change the same path. With "return", the first one lands, and the other is told where it conflicts, and
        # with whom.
        first, second = parallel(
            state, [partial(title, "Lisbon by train"), partial(title, "Lisbon, cheap")], on_failure="return"
        )
        assert first.error is None
        for conflict in second.conflicts:
            print(f"conflict at {conflict.path} with call {conflict.calls}")
        assert state["report"]["title"] == "Lisbon by train"
        assert list(state.repository.branches) == ["main"], "the forks are gone"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
