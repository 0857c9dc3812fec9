"""Calls on a repository's names, notes and history, cut off by a store that fails or dies at any call, or an interrupt.

Afterwards whoever opens the store finds it as before the call or as after it; a call of several batches may be half
done. The same call, made again, does the rest.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.exact import exact
from tests.support.histories import numbered
from tests.support.interrupts import Interrupt, Trace
from tests.support.stores import memory_of
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import RefExistsError, StateError, UnknownNoteError, UnknownRevisionError
from versioned_state.storage import Fault, Faulty, InjectedCrash, KVStore

START = 1_700_000_000_000_000


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        done: what the call raises if it has been made already.
        stepwise: it works in several batches, so that it may be half done.
    """

    act: Callable[[Repository], object]
    done: type[StateError] | None = None
    stepwise: bool = False


def expiring(repository: Repository) -> object:
    return Repository(repository.store, clock=lambda: 2 * START).expire()


def together(repository: Repository) -> object:
    states = [Versioned(repository, branch=name) for name in ("u/1", "u/2")]
    for state in states:
        state["together"] = [1]
    return repository.commit_together(states)


def tagged(repository: Repository) -> object:
    state = Versioned(repository)
    state["n"] = "tagged"
    return state.commit("tagged", tag="new")


CALLS: dict[str, Call] = {
    "note": Call(lambda r: r.notes.__setitem__("main", {"a": 1})),
    "update a note": Call(lambda r: r.notes.update("u/1", {"a": 1})),
    "remove from a note": Call(lambda r: r.notes.remove("u/1", "n"), UnknownNoteError),
    "delete a note": Call(lambda r: r.notes.__delitem__("u/1"), UnknownNoteError),
    "policy": Call(lambda r: r.set_merge_policy("list", "append")),
    "tag": Call(lambda r: r.tags.create("new", "main~1"), RefExistsError),
    "annotated tag": Call(lambda r: r.tags.create("new", message="why"), RefExistsError),
    "delete a tag": Call(lambda r: r.tags.delete("v1"), UnknownRevisionError),
    "branch": Call(lambda r: r.branches.create("new", "main~1"), RefExistsError),
    "branch that expires": Call(lambda r: Versioned(r).fork("new", ttl_seconds=5), RefExistsError),
    "rename": Call(lambda r: r.branches.rename("u/1", "new"), UnknownRevisionError),
    "delete a branch": Call(lambda r: r.branches.delete("u/2"), UnknownRevisionError),
    "delete by force": Call(lambda r: r.branches.delete("u/1", force=True), UnknownRevisionError),
    "commit with a tag": Call(tagged, RefExistsError),
    "commit together": Call(together),
    "expire": Call(expiring, stepwise=True),
    "prune": Call(lambda r: r.prune(keep_last=1, keep_tagged=False, expire=timedelta(0))),
    "prune a branch": Call(lambda r: r.prune(keep_last=1, branches="u/1", expire=timedelta(0))),
    "purge a path": Call(lambda r: r.purge("secret"), stepwise=True),
    "purge branches": Call(lambda r: r.purge(branches="u/*"), stepwise=True),
    "gc": Call(lambda r: r.gc(), stepwise=True),
    "gc in slices": Call(lambda r: [r.gc(time_limit=0.0001) for _ in range(3)], stepwise=True),
}


@functools.cache
def content() -> dict[str, bytes]:
    """Three commits on main, a branch with its own commits, one without, two that expire, tags, notes, and garbage."""
    store = Memory()
    clock = partial(next, itertools.count(START, 1_000_000))
    repository = Repository(store, clock=clock)
    state = Versioned(repository)
    state["list"], state["secret"] = [{"n": n} for n in range(60)], "s"
    numbered(state, range(3))
    repository.tags.create("v1")
    own = state.fork("u/1")
    repository.notes[numbered(own, range(2))[-1]] = {"n": 1, "of": "u/1"}
    repository.branches.create("u/2", "main~1")
    for name in ("old/1", "old/2"):
        old = Versioned(repository, branch=name, ttl_seconds=60)
        old["n"] = name
        old.commit()
    state["n"] = "taken back"
    state.commit()
    state.reset("HEAD~1")
    return dict(store.items())


def opened(store: KVStore) -> Repository:
    return Repository(store, clock=partial(next, itertools.count(START + 3_600_000_000, 1_000_000)))


def see(store: KVStore) -> Any:
    """All that whoever opens the store finds: the messages and contents of each ref, the notes, the policies."""
    repository = Repository(store)
    found: dict[str, Any] = {"policies": repository.merge_policies}
    for refs in (repository.branches, repository.tags):
        for info in refs.iter_info():
            line = [(commit.message, exact(repository.snapshot(commit).copy())) for commit in repository.log(info.head)]
            found[f"{type(info).__name__} {info.name}"] = (
                line,
                repository.notes.get(info.head),
                bool(getattr(info, "expires", None)),
            )
    return found


@functools.cache
def expected(name: str) -> tuple[Any, Any]:
    """What is seen before the call and after it."""
    store = memory_of(content())
    before = see(store)
    CALLS[name].act(opened(store))
    return before, see(store)


def check(name: str, store: Memory, where: object) -> None:
    """The store is as before the call or as after it, and sound, and the call made again does what is left."""
    call = CALLS[name]
    before, after = expected(name)
    found = see(store)
    assert call.stepwise or found in (before, after), where
    assert opened(store).fsck().ok, where
    if call.done is not None and found == after:
        with pytest.raises(call.done):
            call.act(opened(store))
    else:
        call.act(opened(store))
    assert see(store) == after, where
    assert opened(store).fsck().ok, where


def test_each_call_changes_something_but_gc():
    for name in CALLS:
        before, after = expected(name)
        assert (before != after) == (not name.startswith("gc")), name


def steps(name: str, *, first: int, long_run: bool) -> Iterator[int]:
    """Return the store calls at which to fail: every other one, a sample of a purge's hundred, in the long run all."""
    if long_run:
        yield from itertools.count(1)
    yield from itertools.count(first, 11 if name.startswith(("purge", "gc")) else 2)


WAYS = {
    "fails before": (Fault.BEFORE, False),
    "fails after": (Fault.AFTER, False),
    "dies in the middle": (Fault.PARTIAL, True),
    "fails in the middle": (Fault.PARTIAL, False),
    "dies before": (Fault.BEFORE, True),
    "dies after": (Fault.AFTER, True),
}
LONG = {"fails in the middle", "dies before", "dies after"}
"""In the long run only: what becomes of the store is as in one of the others."""


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.long if way in LONG else ()) for way in WAYS])
@pytest.mark.parametrize("name", CALLS)
def test_a_store_that_fails_at_any_call(name, way, long_run):
    fault, crash = WAYS[way]
    for at in steps(name, first=2 if fault is Fault.AFTER else 1, long_run=long_run):
        store = memory_of(content())
        faulty = Faulty(store)
        repository = opened(faulty)
        faulty.arm(at, fault=fault, crash=crash)
        said_done = False
        with suppress(StateError, InjectedCrash):
            CALLS[name].act(repository)
            said_done = True
        assert not said_done or see(store) == expected(name)[1], at
        check(name, store, at)
        if not faulty.fired:
            return


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_line(name, long_run):
    lines = Trace()
    lines.run(partial(CALLS[name].act, opened(memory_of(content()))))
    apart = 1 if long_run else max(lines.count // 6, 1)
    for at in itertools.count(1 + len(name) % apart, apart):
        store = memory_of(content())
        repository = opened(store)
        trace = Trace(at)
        try:
            trace.run(partial(CALLS[name].act, repository))
        except Interrupt:
            check(name, store, trace.hit)
        else:
            assert see(store) == expected(name)[1]
            return
