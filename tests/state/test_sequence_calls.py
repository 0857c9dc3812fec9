"""A sequence has the calls, results and exceptions of a list, on every kind of state, loaded or not."""

from __future__ import annotations

import asyncio
import operator
import random
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from itertools import product
from typing import Any

import pytest

from tests.support.exact import exact
from tests.support.handles import committed, two
from tests.support.long_runs import first
from versioned_state import Live, Memory, Versioned
from versioned_state.errors import HandleClosedError, MergeConflictError, UnserializableValueError
from versioned_state.storage import Wrapper

SIZES = (0, 3, 300)


def unloaded(values: list[Any]) -> Any:
    first = committed(list=values)
    return Versioned(first.repository).sequence("list")


def loaded(values: list[Any]) -> Any:
    state = Versioned()
    state["list"] = values
    return state.sequence("list")


def in_namespace(values: list[Any]) -> Any:
    state = Versioned()
    state.namespace("n")["list"] = values
    state.commit()
    state.namespace("n").release("list")
    return state.namespace("n").sequence("list")


def live(values: list[Any]) -> Any:
    state = Live()
    if values:
        state["list"] = values
    return state.sequence("list")


def uncommitted(values: list[Any]) -> Any:
    sequence = Versioned().sequence("list")
    sequence.extend(values)
    return sequence


KINDS = {"unloaded": unloaded, "loaded": loaded, "namespace": in_namespace, "live": live, "uncommitted": uncommitted}

INDICES = (0, 1, 2, -1, 299, 300, -301, 10**30, "1", None, 1.0, True)
SLICES = (slice(1, 2), slice(5, 1), slice(None, None, 2), slice(2, 2, -1), slice(None, None, -2))

CALLS: dict[str, Callable[[Any], Any]] = {
    **{f"item {index!r}": operator.itemgetter(index) for index in (*INDICES, *SLICES)},
    **{f"assign {index!r}": operator.methodcaller("__setitem__", index, "new") for index in (*INDICES, *SLICES)},
    **{f"delete {index!r}": operator.methodcaller("__delitem__", index) for index in (*INDICES, *SLICES)},
    **{f"insert {index!r}": operator.methodcaller("insert", index, "new") for index in (0, -1, 2, 999, -999, "1")},
    **{f"pop {index!r}": operator.methodcaller("pop", *index) for index in ((), (0,), (-2,), (300,), (-301,), ("1",))},
    "assign what cannot be iterated": lambda values: values.__setitem__(slice(0, 1), 5),
    "extend by what cannot be iterated": lambda values: values.extend(5),
    "assign a generator": lambda values: values.__setitem__(slice(1, 1), (n for n in "ab")),
    "assign itself": lambda values: values.__setitem__(slice(1, 2), values),
    "extend by itself": lambda values: values.extend(values),
    "step of none": lambda values: values[::0],
    "remove": lambda values: values.remove({"n": 2}),
    "remove what is not there": lambda values: values.remove("nothing"),
    "index from the end": lambda values: values.index({"n": 2}, -300, -1),
    "count": lambda values: values.count({"n": 1}),
    "contains": lambda values: ({"n": 1} in values, "nothing" in values),
    "clear": lambda values: values.clear(),
    "reverse": lambda values: values.reverse(),
    "sort": lambda values: values.sort(key=lambda each: -each["n"]),
    "sort badly": lambda values: values.sort(),
    "add": lambda values: ([*values, 1], [1, *values], values + [1], [1] + values),  # noqa: RUF005 - the operators
    "add a tuple": lambda values: values + (1,),  # noqa: RUF005 - it raises
    "add in place": lambda values: len(operator.iadd(values, "ab")),
    "multiply in place": lambda values: len(operator.imul(values, 2)),
    "copy": lambda values: values.copy(),
    "compare": lambda values: (
        values == [],
        values == list(values),
        values == (1,),
        values != [1],
        values == [*values, 1],
    ),
    "iterate": lambda values: (list(values), list(reversed(values)), [*values[::-7]]),
}


def outcome(call: Callable[[Any], Any], values: Any) -> Any:
    try:
        return exact(call(values))
    except (IndexError, TypeError, ValueError) as error:
        return type(error)


def _cases() -> Iterator[Any]:
    """Every call on every kind of sequence. Everyday, on one that is not loaded and on one other kind, in turns."""
    for number, (call, (step, kind)) in enumerate(product(CALLS, enumerate(KINDS))):
        is_everyday = step == 0 or step == 1 + number // len(KINDS) % (len(KINDS) - 1)
        yield pytest.param(call, kind, id=f"{call}-{kind}", marks=[] if is_everyday else [pytest.mark.long])


@pytest.mark.parametrize(("call", "kind"), list(_cases()))
def test_a_call_does_what_it_does_to_a_list(call, kind):
    for size in SIZES:
        expected: list[Any] = [{"n": n} for n in range(size)]
        sequence = KINDS[kind]([{"n": n} for n in range(size)])
        assert outcome(CALLS[call], sequence) == outcome(CALLS[call], expected), size
        assert exact(list(sequence)) == exact(expected)
        assert sequence == expected


def test_what_it_is():
    sequence = unloaded([1, 2])
    past = sequence._space.checkout("HEAD").sequence("list")
    assert isinstance(sequence, MutableSequence)
    with pytest.raises(TypeError, match="unhashable"):
        hash(sequence)
    match sequence:
        case [first, *rest]:
            assert (first, rest) == (1, [2])
    assert isinstance(past, Sequence)
    assert not isinstance(past, MutableSequence)
    assert past == sequence == [1, 2]


def test_a_sequence_of_a_snapshot_gives_copies():
    state = Versioned()
    state["list"] = [{"n": n} for n in range(300)]
    state.namespace("n")["list"] = [1]
    past = state.checkout(state.commit())
    sequence = past.sequence("list")
    sequence[7]["n"] = "changed"
    assert (sequence[7], len(sequence), sequence[-2:], sequence[5:0:-2]) == (
        {"n": 7},
        300,
        past["list"][-2:],
        past["list"][5:0:-2],
    )
    assert (sequence.index({"n": 299}), sequence.count({"n": 1}), {"n": 300} in sequence) == (299, 1, False)
    assert past.namespace("n").sequence("list") == [1]
    assert past.sequence("nothing") == []
    for bad in (300, -301):
        with pytest.raises(IndexError):
            sequence[bad]
    state["text"] = "text"
    with pytest.raises(TypeError, match="a list, not of str"):
        state.checkout(state.commit()).sequence("text")


def walked(values: Any, walk: Callable[[Any], Iterator[Any]], change: Callable[[Any, int], object]) -> list[Any]:
    seen = []
    for count, each in enumerate(walk(values)):
        seen.append(each)
        change(values, count)
    return seen


@pytest.mark.parametrize("walk", [iter, reversed])
@pytest.mark.parametrize(
    "change",
    [
        lambda values, count: count == 3 and values.__delitem__(1),
        lambda values, count: count == 3 and values.insert(0, "new"),
        lambda values, count: count == 250 and values.extend(["a", "b"]),
        lambda values, count: count == 2 and values.clear(),
        lambda values, count: count % 3 == 0 and values.pop(),
    ],
)
def test_an_iteration_goes_on_by_index_if_elements_come_or_go(walk, change):
    assert walked(unloaded(list(range(600))), walk, change) == walked(list(range(600)), walk, change)


def test_a_bad_value_is_named_by_its_place_and_nothing_is_lost():
    sequence = unloaded([{"n": n} for n in range(300)])
    state = sequence._space
    sequence[7] = {"bad": (n for n in "")}
    sequence.append({"good": 1})
    with pytest.raises(UnserializableValueError, match=r"list\[7\]\.bad"):
        state.commit()
    assert list(state.status().unstorable) == ["list"] or list(state.status().unstorable) == ["list[7].bad"]
    sequence[7] = {"n": 7}
    assert [str(change) for change in state.status()] == ["+ list[300] = {'good': 1}"]


def test_conflicts_and_policies_are_those_of_lists():
    ours, theirs = two(list=[{"n": n} for n in range(300)])
    theirs.sequence("list").append("theirs")
    theirs.sequence("list")[5]["n"] = "theirs"
    theirs.commit()
    sequence = ours.sequence("list")
    held = sequence[5]
    held["n"] = "ours"
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    assert [str(conflict.path) for conflict in caught.value.conflicts] == ["list[5].n"]
    assert sequence[5] is held
    held["n"] = 5
    sequence.append("ours")
    ours.commit(policies={"list": "append"})
    assert sequence[-2:] == ["theirs", "ours"]
    assert held == {"n": "theirs"}


def test_a_closed_state():
    sequence = unloaded([1, 2])
    iterator = iter(sequence)
    sequence._space.close()
    calls = (
        len,
        lambda each: each[0],
        lambda each: each.pop(),
        lambda each: each.insert(0, 1),
        list,
        lambda each: each == [1],
        lambda _: next(iterator),
    )
    for call in calls:
        with pytest.raises(HandleClosedError):
            call(sequence)


def test_in_asyncio():
    async def edit() -> list[Any]:
        sequence = unloaded([{"n": n} for n in range(300)])
        aio = sequence.aio
        assert await aio.pop() == {"n": 299}
        await aio.insert(0, "first")
        await aio.set(1, "second")
        await aio.set(slice(2, 4), ["third"])
        await aio.delete(slice(5, None))
        await aio.remove("second")
        held = await aio.get(-1)
        held["n"] = "changed"
        await sequence._space.aio.commit("edited")
        assert [each async for each in aio.reversed()] == [{"n": "changed"}, {"n": 3}, "third", "first"]
        await aio.delete(0)
        await aio.sort(key=str)
        await aio.reverse()
        assert await aio.count("third") == 1
        found = list(sequence)
        await aio.clear()
        assert await aio.length() == 0
        return found

    assert asyncio.run(edit()) == [{"n": 3}, {"n": "changed"}, "third"]


class Slow(Wrapper):
    """A store that takes its time for a batch."""

    def apply(self, *batch: Any, **objects: Any) -> bool:
        time.sleep(0.002)
        return self.store.apply(*batch, **objects)


@pytest.mark.parametrize("seed", first(2, range(12)))
async def test_changes_in_place_beside_commits_and_merges_are_never_lost(seed):
    rng = random.Random(seed)
    first = committed(Slow(Memory()), list=[{"n": n} for n in range(300)])
    state, other = Versioned(first.repository), Versioned(first.repository)
    sequence = state.sequence("list")
    held = [sequence[index] for index in rng.sample(range(50, 300), 5)]
    for round_ in range(5):
        if rng.random() < 0.5:
            other.refresh()
            other.sequence("list").insert(rng.randrange(10), {"theirs": round_})
            other.commit()
        if rng.random() < 0.5:
            sequence.append({"ours": round_})
        held[0]["round"] = round_
        commit = asyncio.create_task(state.aio.commit())
        for _ in range(rng.randrange(1, 20)):
            await asyncio.sleep(rng.random() * 0.0005)
            for each in held:
                each["changed"] = rng.random()
        await commit
        assert all(any(each is held_one for each in sequence) for held_one in held)
    await state.aio.commit()
    assert state.checkout("HEAD").sequence("list") == sequence
    assert not state.status()
