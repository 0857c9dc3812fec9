"""A store with something to purge of each kind, the purges of it, and a store that kills its process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.support.histories import Clock
from tests.support.personal_data import SECRET
from versioned_state import KVStore, Memory, Repository, Versioned, effect
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.storage import Faulty

LONG = [f"{SECRET} {n}" for n in range(30)]
PROMPT = [f"rule {n}" for n in range(40)]


def filled(store: KVStore | None = None) -> Repository:
    """Two users' sessions, a fork of one, a path with the secret in main, an effect with it, and a gc."""
    repository = Repository(Memory() if store is None else store, clock=Clock())
    for name in ("main", "alice/1", "bob/1"):
        state = Versioned(repository, branch=name)
        state["prompt"] = PROMPT
        for n in range(3):
            state["said"] = [*LONG, name, n] if name.startswith("alice") else [name, n] * 40
            if name == "main":
                state["users"] = {"alice": [*LONG, "main", n], "bob": n}
            state.commit(f"{name} {n}", meta={"n": n, "large": 10**5000})
    with Versioned(repository, branch="main").fork("alice/fork") as fork:
        fork["mine"] = [*LONG, "fork"]
        fork.commit()
    repository.branches.create("alice/2", "alice/1")
    repository.branches.delete("alice/2")
    effect("mail:alice", lambda: [*LONG, 10**5000], state=repository)
    repository.gc()
    return repository


Purge = Callable[[Repository], PurgeReport]

PURGES_OF: dict[str, Purge] = {
    "a path": lambda repository: repository.purge("users.alice"),
    "branches": lambda repository: repository.purge(branches="alice/*"),
    "branches, thoroughly": lambda repository: repository.purge(branches="alice/*", thorough=True),
    "a fork": lambda repository: repository.purge(branches=["alice/fork"]),
    "branches and effects": lambda repository: repository.purge(branches="alice/*", effects="mail:*"),
    "effects": lambda repository: repository.purge(effects="mail:*"),
    "all of it": lambda repository: repository.purge(
        "users.alice", branches="alice/*", effects="mail:alice", replace={"alice": "A."}
    ),
}


class KilledAtCall(Faulty):
    """Kills its process before one call, or with ``at`` below 0 after it."""

    def __init__(self, store: KVStore, at: int) -> None:
        super().__init__(store)
        self._last = at

    def _is_due(self) -> bool:
        self.calls += 1
        if self.calls == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        return False
