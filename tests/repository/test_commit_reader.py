"""Commits are read by many threads at once, and by address as they are stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from versioned_state import Commit, Memory, Repository, Versioned
from versioned_state.storage import Wrapper

THREADS = 8


class Meeting(Wrapper):
    """A store in which a read of an object ends only once as many threads as expected are reading."""

    barrier: Barrier | None = None

    def get(self, key: str) -> bytes | None:
        if self.barrier is not None and key.startswith("o/"):
            self.barrier.wait(timeout=20)
        return self.store.get(key)


def test_threads_on_one_repository_read_at_once():
    state = Versioned(Memory())
    commits: list[Commit] = []
    for n in range(THREADS):
        state["n"] = n
        commits.append(state.commit(str(n)))
    store = Meeting(state.repository.store)
    repository = Repository(store)
    store.barrier = Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(3):
            assert list(threads.map(repository.database.commits.read, [commit.address for commit in commits])) == commits
            repository.database.forget()
            assert list(threads.map(repository.database.commits.find, [commit.address for commit in commits])) == commits
            repository.database.forget()
            assert [commit.id for commit in threads.map(repository.commit, [commit.id for commit in commits])] == [c.id for c in commits]
            repository.database.forget()


def test_one_and_the_same_read_by_many_threads_is_one_commit():
    state = Versioned(Memory())
    state["n"] = 1
    head = state.commit("one")
    store = Meeting(state.repository.store)
    repository = Repository(store)
    store.barrier = Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(repository.database.commits.read, [head.address] * THREADS))
    assert set(found) == {head}
    assert {commit.message for commit in found} == {"one"}
