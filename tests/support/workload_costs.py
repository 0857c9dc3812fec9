"""The named workloads, measured by function calls, store requests and bytes written: no busy machine changes these.

``python -m tests.support.workload_costs`` prints the figures for ``tests/test_workload_costs.py``. It is a process of
its own, since the oracle, coverage and the caches of earlier tests would count too.
"""

from __future__ import annotations

import gc
import itertools
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.counted_calls import calls_of
from versioned_state import Disk, Memory, Repository, Versioned, emit, task
from versioned_state.agents import call as calls
from versioned_state.services.agent_state.session_handle import Session, SessionHandle
from versioned_state.storage import Counting
from versioned_state.storage.base import KVStore

KEYS = 20_000
SCATTERED = range(7, KEYS, KEYS // 50)


@dataclass
class Costs:
    """The mean costs of one round of a workload."""

    calls: float
    requests: float
    written: float


@dataclass
class Workload:
    """A workload: ``begin`` fills a store and returns a function that makes one of ``rounds`` rounds."""

    name: str
    begin: Callable[[KVStore], Callable[[], object]]
    rounds: int = 40
    per: int = 1
    """The parts of a round, such as commits, to which the costs refer."""


def messages(count: int) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"message {n} " + "some words " * (1 + 7 * n % 13), "n": n}
        for n in range(count)
    ]


def small(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": "x" * 70} for n in range(count)]


def state_of(store: KVStore, **items: Any) -> Versioned:
    state = Versioned(store)
    state.update(items)
    state.commit("first")
    return state


def growing_number(store: KVStore) -> Callable[[], object]:
    state = state_of(store, n=0, messages=messages(230))

    def round_() -> None:
        state["n"] += 1
        state.commit("round")

    return round_


def growing_list(
    store: KVStore, *, length: int, more: int, make: Callable[[int], list[Any]] = messages
) -> Callable[[], object]:
    state, new = state_of(store, messages=make(length)), make(more)

    def round_() -> None:
        state["messages"] += [dict(message) for message in new]
        state.commit("round")

    return round_


def growing_sequence(store: KVStore) -> Callable[[], object]:
    state_of(store, messages=messages(1_000)).close()
    state = Versioned(store)

    def round_() -> None:
        state.sequence("messages").extend(messages(2))
        state.commit("round")

    return round_


def replay(store: KVStore) -> Callable[[], object]:
    """A conversation of 40 messages on a branch of its own, a commit for each."""
    repository, number = Repository(store), iter(range(1_000))

    def round_() -> None:
        state = Versioned(repository, branch=f"conversation-{next(number)}")
        state["messages"] = []
        for message in messages(40):
            state["messages"].append(message)
            state.commit()
        state.close()

    return round_


def request(store: KVStore) -> Callable[[], object]:
    """What a stateless server does: open a session of 1,000 messages, read the last 20, append two, commit."""
    state_of(store, messages=messages(1_000)).close()

    def round_() -> None:
        state = Versioned(store)
        history = state.sequence("messages")
        assert len(history[-20:]) == 20
        history.extend(messages(2))
        state.commit("round")
        state.close()

    return round_


def saves(store: KVStore) -> Callable[[], object]:
    """A service's save, apart from its threads: a state of 200 messages, made anew, with two more each time."""
    handle, session, log = SessionHandle(Repository(store), "user/trip"), Session("user", "trip", True), messages(200)

    def round_() -> None:
        log.extend(messages(2))
        content = {"memory": {"content": [dict(message) for message in log]}, "name": "assistant", "turn": len(log)}
        handle.save(session, handle.encoded(content), None)

    round_()
    return round_


def open_and_read(store: KVStore) -> Callable[[], object]:
    state_of(store, messages=messages(1_000)).close()

    def round_() -> None:
        state = Versioned(store)
        assert len(state["messages"]) == 1_000
        state.close()

    return round_


def status(store: KVStore) -> Callable[[], object]:
    state = state_of(store, **{f"key {n}": {"n": n} for n in range(1_000)})
    return state.status


def diff(store: KVStore) -> Callable[[], object]:
    """A diff of keys that lie far apart, through a handle that has read nothing."""
    state = state_of(
        store,
        **{f"user {n:06}": {"id": n, "name": f"user {n}", "tags": ["a", "b"], "score": n / 7} for n in range(KEYS)},
    )
    for n in SCATTERED:
        state[f"user {n:06}"]["score"] = -1
    state.commit("changed")
    state.close()

    def round_() -> None:
        state = Versioned(store)
        assert len(state.diff("main~1", "main")) == len(SCATTERED)
        state.close()

    return round_


def together(store: KVStore) -> Callable[[], object]:
    state = state_of(store, n=0)
    forks = [state.fork("a"), state.fork("b")]

    def round_() -> None:
        for fork in forks:
            fork["n"] += 1
        state.repository.commit_together(forks, "round")

    return round_


def transaction(store: KVStore) -> Callable[[], object]:
    state = state_of(store, n=0)

    def round_() -> None:
        with state.transaction("round"):
            state["n"] += 1

    return round_


@dataclass
class Counted:
    number: int


@task
def count(state: Any, *, tell: bool = False) -> None:
    """Count one more."""
    state["n"] += 1
    if tell:
        emit(Counted(state["n"]))


@task
def count_within(state: Any) -> None:
    count(state=state)


def calling(store: KVStore, *, run: Callable[..., object]) -> Callable[[], object]:
    # The names of events, which follow from the clock and the ids of calls, decide where the leaves of their series
    # end. (The measured seconds, in each commit, still vary, and so do the addresses of commits.)
    calls.urandom = random.Random(0).randbytes  # type: ignore[attr-defined]
    clock = itertools.count(1_700_000_000_000_000, 1_000)
    state = Versioned(Repository(store, clock=clock.__next__))
    state.update({"n": 0, "prefs": {"theme": "dark"}, "plan": ["first", "second"]})
    state.commit("first")
    return partial(run, state=state)


WORKLOADS = (
    Workload("a growing number", growing_number),
    Workload("append to 230 messages", partial(growing_list, length=230, more=1)),
    Workload("append to 300 small elements, one leaf", partial(growing_list, length=300, more=1, make=small)),
    Workload("append 2 messages to 1,000", partial(growing_list, length=1_000, more=2)),
    Workload("append 2 messages to 1,000 through a sequence", growing_sequence),
    Workload("replay, a round", replay, rounds=3, per=40),
    Workload("request of a stateless server", request),
    Workload("save of a service", saves),
    Workload("open and read 1,000 messages", open_and_read, rounds=5),
    Workload("status of 1,000 small dicts", status, rounds=5),
    Workload("diff of scattered keys, a key", diff, rounds=3, per=len(SCATTERED)),
    Workload("commit together, two branches", together),
    Workload("transaction", transaction),
    Workload("task", partial(calling, run=count), rounds=200),
    Workload("task with an event", partial(calling, run=partial(count, tell=True)), rounds=200),
    Workload("task in a task", partial(calling, run=count_within), rounds=200),
)


def measure(workload: Workload) -> Costs:
    """Return the mean costs of some rounds, after a few that import and cache what every later round uses."""
    folder = tempfile.mkdtemp()
    counting = Counting(Memory())
    with Disk(folder) as disk:
        on_disk, counted = workload.begin(disk), workload.begin(counting)
        for _ in range(3):
            on_disk()
            counted()
        counting.reset()
        gc.disable()  # a finalizer would count too
        made = calls_of(lambda: [on_disk() for _ in range(workload.rounds)])
        gc.enable()
        for _ in range(workload.rounds):
            counted()
    shutil.rmtree(folder)
    counts, parts = counting.counts, workload.rounds * workload.per
    return Costs(made / parts, counts.round_trips / parts, counts.bytes_written / parts)


def main() -> None:
    """Print the costs of each workload as JSON, or those that are named."""
    found = {each.name: measure(each) for each in WORKLOADS if each.name in sys.argv[1:] or not sys.argv[1:]}
    shown = {name: [round(each.calls, 1), round(each.requests, 2), round(each.written)] for name, each in found.items()}
    sys.stdout.write(json.dumps(shown, indent=1) + "\n")


if __name__ == "__main__":
    main()
