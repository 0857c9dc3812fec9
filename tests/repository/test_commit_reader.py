"""Commits are read by many threads at once, and an empty author is none wherever one is given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from tests.support.histories import numbered
from versioned_state import Memory, Repository, Versioned
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
    commits = numbered(state, range(THREADS))
    store = Meeting(state.repository.store)
    repository = Repository(store)
    store.barrier = Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(3):
            assert (
                list(threads.map(repository.database.commits.read, [commit.address for commit in commits])) == commits
            )
            repository.database.forget()
            assert (
                list(threads.map(repository.database.commits.find, [commit.address for commit in commits])) == commits
            )
            repository.database.forget()
            assert [commit.id for commit in threads.map(repository.commit, [commit.id for commit in commits])] == [
                c.id for c in commits
            ]
            repository.database.forget()


def test_an_empty_author_is_none_wherever_it_is_given():
    for author in ("", None):
        for repository in (Repository(Memory(), author="repository"), Repository(Memory(), author=author)):
            state = Versioned(repository, author=author)
            state["n"] = 1
            made = [state.commit("one", author=author)]
            state["n"] = 2
            made.append(state.commit("two"))
            made.append(state.revert("HEAD", author=author))
            repository.tags.create("v1", "HEAD~1", message="released", author=author)
            said = repository.tags.annotation("v1")
            assert said is not None
            state.reset("HEAD~1")
            log = repository.database.ref("branch", "main").log
            assert log is not None
            authors = {commit.author for commit in made} | {said.author, repository.database.read_log(log).author}
            assert authors == {repository.author}
            assert repository.author in ("repository", None)


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
