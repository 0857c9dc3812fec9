"""One checkout under measurement: commits as it is told, and answers with figures.

`benchmarks.commits` starts it, once a checkout.

It imports nothing of this project but public names of ``versioned_state``, since it runs with the package of another
checkout too. A line on standard input asks for one turn, ``[kind, workload, number]``; a line of JSON on standard
output answers it.
"""

from __future__ import annotations

import cProfile
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import versioned_state
from versioned_state import Disk, KVStore, Memory, Repository, Versioned

COUNTER_COMMITS = 40
FEWEST_MESSAGES, MOST_MESSAGES = 210, 250


class Requests(Memory):
    """Counts the requests to the store, the objects that they bring or take, and the bytes that they bring."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0
        self.bytes = 0
        self.objects_read = self.objects_written = 0

    def get(self, key: str) -> bytes | None:
        self.requests += 1
        self.objects_read += key.startswith("o/")
        return super().get(key)

    def get_many(self, keys: Any) -> dict[str, bytes]:
        self.requests += 1
        found = super().get_many(keys)
        self.objects_read += len(found)
        return found

    def keys(self, prefix: str = "") -> Iterator[str]:
        self.requests += 1
        return super().keys(prefix)

    def apply(self, expected: Any, puts: Any, deletes: Any = (), *, objects: Any = None) -> bool:
        self.requests += 1
        self.objects_written += len(objects or {})
        self.bytes += sum(len(key) + len(value) for part in (puts, objects or {}) for key, value in part.items())
        return super().apply(expected, puts, deletes, objects=objects)


def replay(state: Versioned, conversation: list[Any]) -> Iterator[Callable[[], object]]:
    """A real conversation, a commit per message."""
    state["messages"] = [conversation[0]]
    state.commit()
    for message in conversation[1:]:
        yield partial(_append, state, message)


def counter(state: Versioned, _conversation: list[Any]) -> Iterator[Callable[[], object]]:
    """A number that grows by one a commit, beside a few values that stay."""
    state.update({"counter": 0, "task": "count", "prefs": {"theme": "dark"}, "plan": ["first", "second"]})
    state.commit()

    def count() -> None:
        state["counter"] += 1
        state.commit()

    for _ in range(COUNTER_COMMITS):
        yield count


def messages(state: Versioned, _conversation: list[Any]) -> Iterator[Callable[[], object]]:
    """A list of about 230 small messages that grows by one a commit."""
    state["messages"] = [_small_message(number) for number in range(FEWEST_MESSAGES)]
    state.commit()
    for number in range(FEWEST_MESSAGES, MOST_MESSAGES):
        yield partial(_append, state, _small_message(number))


def _append(state: Versioned, message: dict[str, Any]) -> None:
    state["messages"].append(message)
    state.commit()


def _small_message(number: int) -> dict[str, Any]:
    return {"role": ("user", "assistant")[number % 2], "content": f"message {number}"}


WORKLOADS = {"replay": replay, "counter": counter, "messages": messages}


class Turns:
    """The store of this checkout, and the turns that it takes."""

    def __init__(self, folder: Path, conversations: list[list[Any]]) -> None:
        self.store = Disk(folder)
        self.conversations = conversations
        self.branches = 0

    def seconds(self, workload: str, number: int) -> list[float]:
        """The seconds of each commit of a turn, the change that it takes included."""
        found = []
        gc.collect()
        for commit in self._commits(self.store, workload, number):
            start = time.perf_counter()
            commit()
            found.append(time.perf_counter() - start)
        return found

    def calls(self, workload: str, number: int) -> list[int]:
        """The function calls of each commit of a turn, as cProfile counts them."""
        found = []
        for commit in self._commits(self.store, workload, number):
            profile = cProfile.Profile()
            profile.runcall(commit)
            found.append(sum(entry.callcount for entry in profile.getstats()))
        return found

    def requests(self, workload: str, number: int) -> list[tuple[int, int]]:
        """The requests to the store, and the bytes sent to it, of each commit of a turn."""
        store, found = Requests(), []
        for commit in self._commits(store, workload, number):
            before = store.requests, store.bytes
            commit()
            found.append((store.requests - before[0], store.bytes - before[1]))
        return found

    def _commits(self, store: KVStore, workload: str, number: int) -> Iterator[Callable[[], object]]:
        self.branches += 1
        # Decoded anew, so that no turn works on values that another has touched.
        conversation = json.loads(json.dumps(self.conversations[number % len(self.conversations)]))
        yield from WORKLOADS[workload](Versioned(Repository(store), branch=f"turn-{self.branches}"), conversation)


def main() -> None:
    """Answer each line of standard input."""
    folder, conversations = sys.argv[1:]
    turns = Turns(Path(folder), json.loads(Path(conversations).read_text(encoding="utf-8")))
    print(json.dumps(versioned_state.__file__), flush=True)
    for line in sys.stdin:
        kind, workload, number = json.loads(line)
        print(json.dumps(getattr(turns, kind)(workload, number)), flush=True)


if __name__ == "__main__":
    main()
