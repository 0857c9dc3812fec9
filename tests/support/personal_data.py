"""Histories that mention a person, for tests of purge, and the search for a text in all that a store holds."""

from __future__ import annotations

from tests.support.segments import own_bytes
from versioned_state import Commit, KVStore, Repository, Versioned

SECRET = "Alice Example, 17 Chestnut Row"
LONG = "\n".join(f"{n}: {SECRET} said something long {n * 7919}" for n in range(400))


def holds(store: KVStore, text: str = SECRET) -> bool:
    """Return whether any object or record contains it."""
    word = text.encode()
    return any(word in value or (key.startswith("o/") and word in own_bytes(value)) for key, value in store.items())


def agent(repository: Repository) -> dict[str, Commit]:
    """Return a history that mentions a person early and late, in branches, tags, deleted branches and reset commits."""
    state = Versioned(repository)
    made = {}
    state["n"] = 0
    made["before"] = state.commit("begin")
    repository.tags.create("before")
    state["users"] = {"alice": {"who": SECRET, "long": LONG}, "bob": {"who": "Bob"}}
    made["added"] = state.commit("a person comes")
    repository.branches.create("side")
    state["users"]["alice"]["age"] = 30
    state["n"] = 1
    made["lost"] = state.commit("to be reset")
    state.reset("main~1")
    state["notes"] = ["nothing personal"] * 300
    made["noted"] = state.commit("notes")
    del state["users"]["alice"]
    made["gone"] = state.commit("the person leaves")
    repository.tags.create("late")
    side = Versioned(repository, branch="side")
    side["users"]["alice"]["who"] += " (side)"
    made["side"] = side.commit("on the side")
    repository.branches.create("deleted", "side")
    repository.branches.delete("deleted")
    return made


def small(repository: Repository) -> None:
    state = Versioned(repository)
    for n in range(4):
        state["n"] = n
        state["users"] = {"alice": SECRET + str(n), "bob": n}
        state.commit(str(n))
    repository.branches.create("side", "main~2")
    state.reset("main~1")


def messages(repository: Repository, name: str = "main") -> list[str]:
    return [commit.message for commit in repository.log(name)]
