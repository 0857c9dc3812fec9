"""Work is linear in a value's size, whatever its content and depth: twice the depth, at most 2.3 times the calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.counted_calls import calls_of
from tests.support.nested_kinds import BESIDE, CONTAINERS, HASHABLE, nested
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import MergeConflictError
from versioned_state.services.remote import bodies

Make = Callable[[Any, Any], Any]

FACTOR = 2.3
STEP = 2000
"""Calls by which work may grow at once where a value no longer fits in the leaf around it."""

SMALL = 25, 50
"""Depths at which all levels together are packed inline."""

LARGE = 25, 50
PADDING = "p" * 1000 + "\udcff"
"""Makes nearly all levels large: each is a tree of its own."""

LONG_RUN_ONLY = 60, 120
MOST = 3_000_000

_EVERYDAY = {
    "list",
    "tuple",
    "dict, last",
    "dataclass",
    "ordinary class",
    "lone surrogate",
    "int of 128 bits",
    "Decimal",
    "numpy",
    "frozenset",
}


def cases(names: Iterable[str]) -> list[Any]:
    """Some of these names in every run, the others in the long one."""
    return [name if name in _EVERYDAY else pytest.param(name, marks=pytest.mark.long) for name in names]


def works(make: Make, beside: Any, depth: int) -> dict[str, int]:
    """The calls of each operation on a value."""
    found: dict[str, int] = {}

    def step(name: str, act: Callable[[], object]) -> None:
        found[name] = calls_of(act, most=MOST)

    def value(innermost: Any) -> Any:
        return nested(make, beside, depth, innermost)

    store = Memory()
    state = Versioned(store)
    repository = Repository(store)
    state["first"] = [0]
    state.commit()
    state["value"] = value(0)
    step("status of what is new", lambda: str(state.status()))
    step("commit", state.commit)
    step("status", state.status)
    state["value"] = value(0)
    step("status of an equal value", state.status)
    state.discard()
    step("read", lambda: Versioned(repository)["value"])
    step("snapshot", lambda: repository.snapshot("main")["value"])
    repository.branches.create("other", "main")
    state["value"] = value(1)
    step("commit of a change", state.commit)
    step("diff", lambda: str(repository.diff("HEAD~1", "HEAD")))
    step("patch", lambda: repository.diff("HEAD~1", "HEAD").to_patch())
    step("blame", lambda: list(repository.blame("value")))
    step("grep", lambda: list(repository.grep("nothing has this")))
    step("log of a text", lambda: list(repository.log(changed="nothing has this")))
    step("fsck", repository.fsck)
    other = Versioned(store, branch="other")
    patch = repository.diff("HEAD~1", "HEAD").to_patch()
    step("apply", lambda: other.apply(patch))
    other.discard()
    other["value"] = value(2)
    other.commit()

    def merge() -> None:
        with suppress(MergeConflictError):
            state.merge("other")

    step("merge", merge)
    return found


def check(make: Make, beside: Any, depths: tuple[int, int]) -> None:
    small, large = (works(make, beside, depth) for depth in depths)
    assert {name: (small[name], large[name]) for name in small if large[name] > FACTOR * small[name] + STEP} == {}


@pytest.mark.parametrize("beside", cases(["text", "lone surrogate", "int of 128 bits"]))
@pytest.mark.parametrize("kind", cases(CONTAINERS))
def test_each_container(kind: str, beside: str):
    check(CONTAINERS[kind], BESIDE[beside], SMALL)


@pytest.mark.parametrize("kind", cases(CONTAINERS))
def test_each_container_whose_levels_are_trees(kind: str, long_run: bool):  # noqa: FBT001 - a fixture
    check(CONTAINERS[kind], PADDING, LONG_RUN_ONLY if long_run else LARGE)


@pytest.mark.parametrize("kind", ["tuple", "dict"])
@pytest.mark.parametrize("beside", cases(sorted(BESIDE.keys() - {"text", "lone surrogate", "int of 128 bits"})))
def test_each_type_of_data(beside: str, kind: str):
    check(CONTAINERS[kind], BESIDE[beside], SMALL)


@pytest.mark.parametrize("beside", cases(["text", "lone surrogate"]))
@pytest.mark.parametrize("kind", cases(HASHABLE))
@pytest.mark.parametrize("place", ["element of a set", "key"])
def test_what_is_nested_in_a_set_or_a_key(kind: str, beside: str, place: str):
    def works_of(depth: int) -> list[int]:
        value = nested(HASHABLE[kind], BESIDE[beside], depth, 0)
        store = Memory()
        state = Versioned(store)
        state["value"] = [{value} if place == "element of a set" else {value: 1}]
        repository = Repository(store)
        steps: list[Callable[[], object]] = [
            lambda: str(state.status()),
            state.commit,
            state.status,
            lambda: Versioned(repository)["value"],
            lambda: repository.snapshot("main")["value"],
            lambda: list(repository.grep("nothing has this")),
            lambda: str(repository.diff("HEAD~1", "HEAD")),
            repository.fsck,
        ]
        return [calls_of(step, most=MOST) for step in steps]

    for small, large in zip(*map(works_of, SMALL), strict=True):
        assert large <= FACTOR * small + STEP


@pytest.mark.parametrize("kind", cases(CONTAINERS))
def test_bodies(kind: str):
    def work(depth: int) -> tuple[int, int]:
        value = nested(CONTAINERS[kind], BESIDE["lone surrogate"], depth)
        body = bodies.encode(value) if kind != "ordinary class" else b"\xc0"
        return calls_of(lambda: bodies.encode(value), most=MOST), calls_of(lambda: bodies.decode(body), most=MOST)

    if kind != "ordinary class":
        for small, large in zip(work(30), work(60), strict=True):
            assert large <= FACTOR * small + 100
