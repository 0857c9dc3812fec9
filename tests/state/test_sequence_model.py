"""A sequence equals a list under any operations: one store is edited through sequences, another by the loaded list."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.handles import RollbackWantedError
from versioned_state import Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import MergeConflictError
from versioned_state.storage import Cache

SIZES = (0, 2, 40, 400)
SEEDS = st.integers(0, 2**32)
EITHER = st.integers(0, 1)


def element(rng: random.Random) -> Any:
    """An element that no other one equals, of any size and form."""
    number = rng.randrange(10**9)
    return rng.choice(
        [
            number,
            f"text {number}",
            {"n": number, "tags": ["a", number]},
            {"n": number, "content": "word " * rng.randrange(100)},
            [number, (number, "in a tuple"), {number}],
            {"n": number, "large": [{"i": i, "of": number} for i in range(rng.choice([3, 300]))]},
        ]
    )


def bounds(rng: random.Random, length: int) -> slice:
    near = rng.randrange(-length - 2, length + 3)
    some = [
        (near, near + rng.randrange(4)),
        (None, 2),
        (-2, None),
        (near, None, rng.choice([2, 7, -1, -3])),
        (near, near),
    ]
    return slice(*rng.choice(some))


def change(values: Any, rng: random.Random) -> object:
    """One call that changes a list, the same for a list and a sequence of equal elements.

    Returns what the call returned or raised.
    """
    length = len(values)
    index = rng.randrange(-length - 1, length + 1)
    picked = bounds(rng, length)
    some = [element(rng) for _ in range(rng.randrange(4))]
    as_many = [element(rng) for _ in range(length)[picked]]
    calls: list[Callable[[], object]] = [
        lambda: values.append(element(rng)),
        lambda: values.extend(some),
        lambda: values.insert(index, element(rng)),
        values.pop,
        lambda: values.pop(index),
        lambda: values.__delitem__(index),
        lambda: values.__setitem__(index, element(rng)),
        lambda: values.__delitem__(picked),
        lambda: values.__setitem__(slice(picked.start, picked.stop), some),
        lambda: values.__setitem__(picked, as_many),
        lambda: values.__setitem__(picked, some),
        lambda: values.remove(values[index]),
        lambda: len(values.__iadd__(some)),
    ]
    rare: list[Callable[[], object]] = [
        values.clear,
        values.reverse,
        lambda: values.sort(key=repr),
        lambda: bool(values.__imul__(0)),
    ]
    try:
        return copy.deepcopy(rng.choice(rare)() if rng.random() < 0.03 else rng.choice(calls)())
    except (IndexError, ValueError, TypeError) as error:
        return type(error), "step" in str(error), "extended slice" in str(error)


class Side:
    """Two handles on one branch, which edit the list as a sequence or as a list."""

    def __init__(self, store: KVStore, *, lazily: bool) -> None:
        self.lazily = lazily
        self.repository = Repository(store, clock=itertools.count(1).__next__)
        self.states = [Versioned(self.repository), Versioned(self.repository)]
        self.held: list[list[Any]] = [[], []]

    def values(self, which: int) -> Any:
        state = self.states[which]
        return state.sequence("list") if self.lazily else state.setdefault("list", [])

    def do(self, which: int, call: str) -> object:
        try:
            getattr(self.states[which], call)()
        except MergeConflictError as error:
            paths = sorted(str(conflict.path) for conflict in error.conflicts)
            self.states[which].discard()
            return paths
        return None

    def close(self) -> None:
        for state in self.states:
            state.discard()
            state.close()


class SequenceMachine(RuleBasedStateMachine):
    """The same rounds on two stores. On one of them only ``sort`` and ``reverse`` load the list."""

    open_store: Callable[[], KVStore] = Memory

    def __init__(self) -> None:
        super().__init__()
        self.stores = [type(self).open_store(), type(self).open_store()]
        self.sides = [Side(store, lazily=lazily) for store, lazily in zip(self.stores, (True, False), strict=True)]

    @initialize(size=st.sampled_from(SIZES), seed=SEEDS)
    def begin(self, size: int, seed: int) -> None:
        for side in self.sides:
            rng = random.Random(seed)
            side.states[0]["list"] = [element(rng) for _ in range(size)]
            side.states[0].commit("begin")
            side.states[0].release("list")
            side.states[1].refresh()

    def on_both(self, call: Callable[[Side], object]) -> None:
        lazily, loaded = map(call, self.sides)
        assert lazily == loaded

    @rule(which=EITHER, seed=SEEDS, count=st.integers(1, 4))
    def edit(self, which: int, seed: int, count: int) -> None:
        rngs = [random.Random(seed), random.Random(seed)]
        for _ in range(count):
            results = [change(side.values(which), rng) for side, rng in zip(self.sides, rngs, strict=True)]
            assert results[0] == results[1], results

    @rule(which=EITHER, seed=SEEDS)
    def read_and_hold(self, which: int, seed: int) -> None:
        def read(side: Side) -> object:
            rng = random.Random(seed)
            values = side.values(which)
            got = values[bounds(rng, len(values))]
            side.held[which] += [each for each in got if isinstance(each, dict | list)]
            del side.held[which][:-6]
            return copy.deepcopy(got)

        self.on_both(read)

    @rule(which=EITHER, seed=SEEDS)
    def change_in_place(self, which: int, seed: int) -> None:
        """Through a reference that was held since before any commits and merges."""

        def place(side: Side, index: int) -> list[int]:
            return [at for at, each in enumerate(side.values(which)) if each is side.held[which][index]]

        for index in range(len(self.sides[0].held[which])):
            places = [place(side, index) for side in self.sides]
            if places[0] != places[1]:  # a loaded list may have to guess where an element has moved
                for side in self.sides:
                    side.held[which][index] = {}
        rng = random.Random(seed)
        if self.sides[0].held[which]:
            index, number = rng.randrange(len(self.sides[0].held[which])), rng.random()
            for side in self.sides:
                each = side.held[which][index]
                if isinstance(each, dict):
                    each["changed"] = number
                else:
                    each.append(number)

    @rule(which=EITHER)
    def commit(self, which: int) -> None:
        self.on_both(lambda side: side.do(which, "commit"))

    @rule(which=EITHER, call=st.sampled_from(["refresh", "refresh", "discard", "undo"]))
    def move(self, which: int, call: str) -> None:
        def moved(side: Side) -> object:
            if call == "undo" and (
                side.states[which].status() or side.states[which].head.generation < 3 or side.states[which].head.shallow
            ):
                return None
            if call == "undo":
                side.states[which].refresh()
            return side.do(which, call)

        self.on_both(moved)

    @rule(which=EITHER, seed=SEEDS)
    def transaction_that_fails(self, which: int, seed: int) -> None:
        def fail(side: Side) -> object:
            rng = random.Random(seed)
            in_list = [each for each in side.held[which] if any(each is value for value in side.values(which))]
            before = copy.deepcopy(in_list)
            with suppress(RollbackWantedError), side.states[which].transaction():
                if rng.random() < 0.5:
                    for each in in_list:
                        each.clear()
                else:
                    change(side.values(which), rng)
                    if rng.random() < 0.2:
                        side.states[which].pop("list", None)
                    change(side.values(which), rng)
                raise RollbackWantedError
            assert in_list == before, "references are restored, too"
            return before

        self.on_both(fail)

    @rule(which=EITHER)
    def reopen(self, which: int) -> None:
        def open_again(side: Side) -> None:
            side.do(which, "commit")
            side.states[which].close()
            side.held[which].clear()
            side.states[which] = Versioned(side.repository)

        self.on_both(open_again)

    @rule(which=EITHER)
    def release(self, which: int) -> None:
        for side in self.sides:
            side.states[which].release("list")
            side.held[which].clear()

    @rule()
    def gc(self) -> None:
        for side in self.sides:
            if side.repository.store.max_expected is None:
                side.repository.gc()

    @rule(keep=st.integers(1, 4))
    def prune(self, keep: int) -> None:
        """The handles go on to the head first: gc may take the list that uncommitted edits are based on."""

        def prune(side: Side) -> object:
            conflicts = [side.do(handle, "refresh") for handle in (0, 1)]
            side.repository.prune(keep_last=keep, expire=timedelta(0))
            return conflicts

        self.on_both(prune)

    @rule(which=EITHER)
    def purge(self, which: int) -> None:
        """The handles stand on commits that are rewritten, and go on from those that stand for them."""

        def purge(side: Side) -> object:
            if side.states[which].status() or side.repository.store.max_expected is not None:
                return None
            side.do(which, "refresh")
            side.states[which]["secret"] = 1
            conflicts = side.do(which, "commit")
            if conflicts is None:
                side.repository.purge("secret")
                for handle in (0, 1, 0, 1):  # again: a conflict drops the changes, and the handle is where it was
                    conflicts = side.do(handle, "refresh") or conflicts
            return conflicts

        self.on_both(purge)

    @invariant()
    def they_are_equal(self) -> None:
        for which in (0, 1):
            lazily, loaded = self.sides[0].states[which], self.sides[1].states[which]
            assert [str(each) for each in lazily.status()] == [str(each) for each in loaded.status()]
            assert lazily.head.root == loaded.head.root
            sequence, values = lazily.sequence("list"), loaded.get("list", [])
            assert len(sequence) == len(values)
            assert sequence == values
            assert lazily.checkout("HEAD").sequence("list") == loaded.checkout("HEAD").get("list", [])

    def teardown(self) -> None:
        for side in self.sides:
            side.close()
        for store in self.stores:
            store.close()


def run(open_store: Callable[[], KVStore], *, examples: int | None = None, steps: int | None = None) -> None:
    machine = type("Machine", (SequenceMachine,), {"open_store": staticmethod(open_store)})
    chosen = (
        settings() if examples is None or steps is None else settings(max_examples=examples, stateful_step_count=steps)
    )
    run_state_machine_as_test(machine, settings=chosen)


def test_a_sequence_equals_a_list(long_run: bool):  # noqa: FBT001 - a fixture
    run(Memory, examples=200 if long_run else 5, steps=60 if long_run else 20)


def test_a_sequence_equals_a_list_on_a_disk(tmp_path: Path, long_run: bool):  # noqa: FBT001 - a fixture
    numbers = itertools.count()
    run(lambda: Disk(tmp_path / str(next(numbers))), examples=40 if long_run else 2, steps=40 if long_run else 10)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["redis", "postgres", "s3", "cache"])
def test_a_sequence_equals_a_list_on_any_store(kind: str, request: pytest.FixtureRequest):
    open_store = (lambda: Cache(Memory())) if kind == "cache" else request.getfixturevalue(f"{kind}_server").fresh_store
    run(open_store, examples=10, steps=40)
