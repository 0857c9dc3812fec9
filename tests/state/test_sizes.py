"""Every kind of value at each size that changes its tree's structure, by single steps or many, against plain Python.

The limits of nodes are small here (``small_nodes``), so a hundred elements are four levels. Each kind of value grows
from nothing and shrinks to nothing by one step a commit, at its beginning, in its middle and at its end, and so passes
each size at which a node splits and a level appears; walks take all other steps at random, one or several a commit,
with a handle that is kept or opened anew. After each commit, ``Checked`` compares the root with one built from scratch,
the content read anew with the model, and the difference with the step.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.support.checked_states import Checked
from tests.support.long_runs import first
from tests.support.small_nodes import SMALL, WIDER, small_nodes
from versioned_state import Versioned, register
from versioned_state.values.cells import Code

pytestmark = pytest.mark.usefixtures("small_tree_nodes")

PLACES: dict[str, Callable[[int], int]] = {
    "first": lambda size: 0,
    "middle": lambda size: size // 2,
    "last": lambda size: size,
}


@register
@dataclass
class Point:
    """An element with fields."""

    x: int
    note: str


Change = Callable[[Any], None]
"""Changes a state, or the model of one: both are mappings, with the value under the key ``v``."""


class Kind:
    """A kind of value: how it begins, grows and shrinks by one element, and what else can be done to it."""

    codes: tuple[Code | None, ...] = ()
    places: tuple[str, ...] = ("last",)  # at which it grows and shrinks; the walks change it everywhere
    size = 60
    levels = 4  # that its tree reaches
    changes = 1  # of a step, as the difference has them

    def start(self) -> Any:
        """The value of size 0."""
        raise NotImplementedError

    def insert(self, place: int, number: int) -> Change:
        raise NotImplementedError

    def remove(self, place: int) -> Change:
        raise NotImplementedError

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        """Other changes of a value of this size, of which a walk takes one. ``number`` is new."""
        return []

    def length(self, model: dict[str, Any]) -> int:
        return len(model["v"])


def held(state: Any) -> Any:
    return state["v"]


def put(value: Callable[[Any], Any]) -> Change:
    """Assigns a value that is made of the present one, whose parts stay the same objects."""

    def change(state: Any) -> None:
        state["v"] = value(held(state))

    return change


class Lists(Kind):
    codes: tuple[Code | None, ...] = (Code.LIST_TREE,)
    places: tuple[str, ...] = tuple(PLACES)
    of = staticmethod(held)

    def start(self) -> Any:
        return []

    def make(self, number: int) -> Any:
        return {"number": number, "in": "a list"}

    def insert(self, place: int, number: int) -> Change:
        return lambda state: self.of(state).insert(place, self.make(number))

    def remove(self, place: int) -> Change:
        return lambda state: self.of(state).__delitem__(place)

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        a, b = sorted(rng.randrange(size + 1) for _ in range(2))
        at = rng.randrange(size) if size else 0
        some = range(number, number + rng.choice([0, 1, 2, 7, 30]))
        step = rng.choice([2, 3, 5, -1])
        of, make = self.of, self.make
        changes: list[Change] = [
            lambda state: of(state).append(make(number)),
            lambda state: of(state).extend([make(each) for each in some]),
            lambda state: of(state).__setitem__(slice(a, b), [make(each) for each in some]),
            lambda state: of(state).__delitem__(slice(a, b)),
            lambda state: of(state).__delitem__(slice(a, min(b, a + 3))),
            lambda state: of(state).__delitem__(slice(None, None, step)) if step > 0 else None,
            lambda state: of(state).__setitem__(
                slice(None, None, step), [make(number + i) for i in range(len(range(size)[::step]))]
            ),
            lambda state: of(state).reverse(),
            lambda state: of(state).sort(key=order),
            lambda state: of(state).__delitem__(slice(size // 3, None)),
        ]
        if size:
            changes += [
                lambda state: of(state).__setitem__(at, make(number)),
                lambda state: of(state).__setitem__(-1, make(number)),
                lambda state: of(state).append(of(state).pop(at)),
                lambda state: of(state).insert(0, of(state).pop()),
                lambda state: change_within(of(state)[at], number),
                lambda state: change_within(of(state)[-1], number),
                lambda state: change_within(of(state)[0], number),
                lambda state: change_all(of(state)[:: size // 5 + 1], number),
                lambda state: replace_at(of(state), range(0, size, size // 5 + 1), make, number),
            ]
        return changes


def order(value: Any) -> str:
    """A key to sort any values by. The order in which a set shows its elements depends on its past."""
    return repr(sorted(value, key=repr) if isinstance(value, set | frozenset) else value)


def replace_at(values: Any, places: range, make: Callable[[int], Any], number: int) -> None:
    for place in places:
        values[place] = make(number + place)


def change_within(element: Any, number: int) -> None:
    """Changes an element in place, if it is of a kind that allows that."""
    if isinstance(element, dict):
        element["n"] = number
        element["changed"] = True
    elif isinstance(element, list):
        element.append(number)
    elif isinstance(element, Point):
        element.x = number


class AssignedLists(Lists):
    """Assigned anew at each step, while most of the objects are those that were there."""

    def insert(self, place: int, number: int) -> Change:
        return put(lambda old: [*old[:place], self.make(number), *old[place:]])

    def remove(self, place: int) -> Change:
        return put(lambda old: [*old[:place], *old[place + 1 :]])

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        a, b = sorted(rng.randrange(size + 1) for _ in range(2))
        some = range(number, number + rng.choice([1, 2, 7, 30]))
        make = self.make
        return [
            *super().others(rng, size, number),
            put(lambda old: old + [make(each) for each in some]),
            put(lambda old: [*old[a:], *[make(each) for each in some]]),
            put(lambda old: [make(each) for each in some] + old),
            put(lambda old: [*old[:a], *old[b:]]),
            put(lambda old: [*old[b:], *old[:a]]),
            put(lambda old: old[:a]),
            put(lambda old: old[::-1]),
            put(lambda old: sorted(old, key=order)),
            put(lambda old: [*old, *old[a : a + 3]]),
            put(list),
        ]


REPEATED = tuple(f"repeated {letter}" for letter in "abc")


class Repeating(AssignedLists):
    """A few objects over and over, so that a group of them is found at many places."""

    places: tuple[str, ...] = ("first",)
    levels = 1

    def make(self, number: int) -> Any:
        return REPEATED[number % 3]


class Sequences(Lists):
    @staticmethod
    def of(state: Any) -> Any:
        return state.sequence("v") if isinstance(state, Versioned) else state["v"]

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        a = rng.randrange(size + 1)
        of = self.of
        return [
            *super().others(rng, size, number),
            lambda state: change_all(of(state)[a : a + 9], number),
            lambda state: change_all(of(state)[a : a + 9][2:4], number),
            lambda state: keep(of(state)[a : a + 9]),
            lambda state: keep(of(state)[a : a + 9], of(state).insert, 0, number),
            lambda state: keep(of(state)[a : a + 9], of(state).append, number),
            lambda state: of(state).insert(a, dict(of(state)[a])) if a < size and type(of(state)[a]) is dict else None,
        ]


KEPT: deque[Any] = deque(maxlen=40)
"""Elements to which somebody refers, so that a sequence keeps them in memory."""


def keep(elements: list[Any], change: Callable[..., None] | None = None, *arguments: Any) -> None:
    """Refer to some elements for a while, during which a change is made."""
    KEPT.extend(elements)
    if change is not None:
        change(*arguments)


def change_all(elements: list[Any], number: int) -> None:
    for element in elements:
        change_within(element, number)


class Numbers(Lists):
    """Many equal elements: content sets boundaries, so a run has none, or one after each element that may have one."""

    levels = 3

    places: tuple[str, ...] = ("middle",)

    def make(self, number: int) -> Any:
        return (1 << 40) + number % 7


class Equal(Lists):
    places: tuple[str, ...] = ()

    def make(self, number: int) -> Any:
        return "all of them are equal"


class Texts(Lists):
    places: tuple[str, ...] = ()

    def make(self, number: int) -> Any:
        return f"{number} " * (number % 11)


class Large(Lists):
    """Elements that are trees themselves."""

    places: tuple[str, ...] = ("middle",)

    def make(self, number: int) -> Any:
        return [{"n": number, "i": i} for i in range(number % 13)]


class Instances(Lists):
    places: tuple[str, ...] = ("middle",)

    def make(self, number: int) -> Any:
        return Point(number, "note " * (number % 5))


class Mixed(Lists):
    places: tuple[str, ...] = ("middle",)

    def make(self, number: int) -> Any:
        some: list[Any] = [
            number,
            (number, "in a tuple"),
            {number, "in a set"},
            None,
            number / 7,
            b"bytes" * (number % 9),
            bytearray(number % 90),
            1 << (number % 90),
            {"n": {"n": number}},
            frozenset({number}),
            "\ud800",
            number % 2 == 0,
            Point(number, "x" * (number % 40)),
            {f"k{i}": i for i in range(number % 17)},
            tuple(range(number % 40)),
        ]
        return some[number % len(some)]


class Tuples(Kind):
    """A tuple within a list, which is encoded anew as a whole."""

    codes: tuple[Code | None, ...] = (Code.TUPLE_TREE,)

    def start(self) -> Any:
        return [()]

    def length(self, model: dict[str, Any]) -> int:
        return len(model["v"][0])

    def insert(self, place: int, number: int) -> Change:
        return self.changed(lambda old: (*old[:place], f"element {number}", *old[place:]))

    def remove(self, place: int) -> Change:
        return self.changed(lambda old: (*old[:place], *old[place + 1 :]))

    @staticmethod
    def changed(value: Callable[[Any], Any]) -> Change:
        return lambda state: state["v"].__setitem__(0, value(state["v"][0]))


class Dicts(Kind):
    """A record whose keys come in their order."""

    places: tuple[str, ...] = tuple(PLACES)
    codes: tuple[Code | None, ...] = (Code.DICT_TREE,)

    def start(self) -> Any:
        return {}

    def key(self, number: int) -> Any:
        return f"key {number:04}"

    def make(self, number: int) -> Any:
        return number if number % 3 else {"n": number}

    def insert(self, place: int, number: int) -> Change:
        """A key before those there are, between them or after them: the numbers of keys leave room."""

        def change(state: Any) -> None:
            keys = list(held(state))
            key = self.between(keys, place, number)
            if self.in_order:
                state["v"] = dict(
                    sorted({**held(state), key: self.make(number)}.items(), key=lambda item: str(item[0]))
                )
            else:
                held(state)[key] = self.make(number)

        return change

    in_order = False

    def between(self, keys: list[Any], place: int, number: int) -> Any:
        if place >= len(keys):
            return f"{keys[-1][:12] if keys else 'm'}n{number:04}"
        if not place:
            return f"a{9999 - number:04}"
        return f"{keys[place - 1]}-{number:04}"[-40:] if len(keys[place - 1]) < 30 else f"k{number:04}"

    def remove(self, place: int) -> Change:
        return lambda state: held(state).__delitem__(list(held(state))[place])

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        at = rng.randrange(size) if size else 0
        key = self.between([], 0, number)

        def reordered(state: Any) -> None:
            value = held(state)
            if size:
                name = list(value)[at]
                value[name] = value.pop(name)

        changes: list[Change] = [
            reordered,
            put(lambda old: dict(sorted(old.items(), key=lambda item: repr(item[0])))),
            put(lambda old: dict(reversed(old.items()))),
            put(dict),
            lambda state: held(state).update({self.between([], 0, number + i): i for i in range(9)}),
            put(lambda old: {key: number, **old}),
            put(lambda old: dict(list(old.items())[at:])),
            put(lambda old: dict(list(old.items())[: at // 2])),
            put(lambda old: {name: value for i, (name, value) in enumerate(old.items()) if i % 3}),
        ]
        if size:
            changes += [
                lambda state: held(state).__setitem__(list(held(state))[at], number),
                lambda state: held(state).__setitem__(list(held(state))[at], [number] * (number % 30)),
                lambda state: change_within(list(held(state).values())[at], number),
                lambda state: change_all(list(held(state).values())[:: size // 5 + 1], number),
                lambda state: held(state).update(dict.fromkeys(list(held(state))[:: size // 5 + 1], number)),
                lambda state: held(state).__setitem__(list(held(state))[-1], {"n": number}),
            ]
        return changes


class SortedDicts(Dicts):
    changes = 2  # in a small dict, a key that comes before others is another order too
    places: tuple[str, ...] = ()
    in_order = True


class MixedKeys(Dicts):
    """Keys of several types, of which some are equal and not the same: 1 and True and 1.0."""

    places: tuple[str, ...] = ("middle",)

    def between(self, keys: list[Any], place: int, number: int) -> Any:
        some = [
            number,
            (number, "a"),
            f"{number}",
            float(number),
            -number,
            b"%d" % number,
            frozenset({number}),
            None,
            True,
            1.5,
        ]
        return some[number % len(some)]


class Sets(Kind):
    codes: tuple[Code | None, ...] = (Code.SET_TREE,)

    def start(self) -> Any:
        return set()

    def insert(self, place: int, number: int) -> Change:
        return lambda state: held(state).add(float(number) if number % 2 else f"text {number}" * 2)

    def remove(self, place: int) -> Change:
        return lambda state: held(state).discard(sorted(held(state), key=repr)[place])

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        return [
            lambda state: held(state).update(range(number, number + 20)),
            put(lambda old: {each for each in old if len(repr(each)) % 2}),
            put(set),
        ]


class Roots(Kind):
    """The keys of the state itself."""

    places: tuple[str, ...] = tuple(PLACES)
    codes: tuple[Code | None, ...] = (None,)

    def start(self) -> Any:
        return 0

    def length(self, model: dict[str, Any]) -> int:
        return len(model) - 1

    def insert(self, place: int, number: int) -> Change:
        def change(state: Any) -> None:
            keys = sorted(state)[:-1]
            name = (
                "a" + "a" * len(keys)
                if not place
                else f"{keys[place - 1]}{number}"[-60:]
                if len(keys[place - 1]) < 50
                else f"t{number}"
            )
            if not place:
                name = f"A{9999 - number}"
            state[name] = number if number % 3 else {"n": [number]}

        return change

    def remove(self, place: int) -> Change:
        return lambda state: state.__delitem__(sorted(state)[:-1][place])

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        at = rng.randrange(size) if size else 0

        def within(state: Any) -> None:
            for name in sorted(state)[:-1][at : at + 5]:
                change_within(state[name], number)

        return [
            within,
            lambda state: state.update({f"m{number + i}": [i] * i for i in range(9)}),
            lambda state: delete_all(state, sorted(state)[:-1][at : at + 5]),
            lambda state: state.update(dict.fromkeys(sorted(state)[:-1][at : at + 3], number)),
            lambda state: state.update({name: {"now": ["a", "list"]} for name in sorted(state)[:-1][at : at + 3]}),
        ]


def delete_all(state: Any, names: list[str]) -> None:
    for name in names:
        del state[name]


class Lines(Kind):
    """A text of lines."""

    places: tuple[str, ...] = tuple(PLACES)
    codes: tuple[Code | None, ...] = (Code.TEXT,)
    empty: Any = ""

    def start(self) -> Any:
        return ""

    def length(self, model: dict[str, Any]) -> int:
        return len(self.split(model["v"]))

    def split(self, value: Any) -> list[Any]:
        return list(value.splitlines(keepends=True))

    def line(self, number: int) -> Any:
        return f"line {number}" + " of some words" * (number % 4) + "\n"

    def joined(self, lines: list[Any]) -> Any:
        return self.empty.join(lines)

    def insert(self, place: int, number: int) -> Change:
        return put(lambda old: self.joined([*self.split(old)[:place], self.line(number), *self.split(old)[place:]]))

    def remove(self, place: int) -> Change:
        return put(lambda old: self.joined([*self.split(old)[:place], *self.split(old)[place + 1 :]]))

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        a, b = rng.random(), rng.random()
        return [
            put(lambda old: old[: int(a * len(old))] + old[int(b * len(old)) :]),
            put(lambda old: old + self.line(number) * 3),
            put(lambda old: old[: int(a * len(old))] + self.line(number) + old[int(a * len(old)) + 4 :]),
            put(lambda old: old[int(a * 30) :]),
            put(lambda old: old[: 40 + int(a * 600)]),
        ]


class LongLines(Lines):
    """A text that is one line, with and without blanks, and with characters of several bytes."""

    places: tuple[str, ...] = ("middle",)

    def split(self, value: Any) -> list[Any]:
        return [value[at : at + 12] for at in range(0, len(value), 12)]

    def line(self, number: int) -> Any:
        return f"{number:04}" + "äß 字,x\U0001f600-"


class Bytes(Lines):
    places: tuple[str, ...] = ()
    codes: tuple[Code | None, ...] = (Code.BYTES_BLOB,)
    empty: Any = b""

    def start(self) -> Any:
        return b""

    def split(self, value: Any) -> list[Any]:
        return [bytes(value[at : at + 16]) for at in range(0, len(value), 16)]

    def line(self, number: int) -> Any:
        return random.Random(number).randbytes(16)


class Bytearrays(Bytes):
    """Changed in place."""

    places: tuple[str, ...] = tuple(PLACES)
    codes: tuple[Code | None, ...] = (Code.BYTEARRAY_BLOB,)

    def start(self) -> Any:
        return bytearray()

    def insert(self, place: int, number: int) -> Change:
        return lambda state: held(state).__setitem__(slice(16 * place, 16 * place), self.line(number))

    def remove(self, place: int) -> Change:
        return lambda state: held(state).__delitem__(slice(16 * place, 16 * place + 16))

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        at = rng.randrange(16 * size) if size else 0
        near = rng.choice([63, 64, 65, 127, 128, 129, 16 * size - 1]) % (16 * size) if size else 0
        changes: list[Change] = [
            lambda state: held(state).extend(self.line(number)[: number % 17]),
            lambda state: held(state).insert(at, number % 256),
            lambda state: held(state).__delitem__(slice(at, at + 64)),
            lambda state: held(state).__delitem__(slice(at, None)) if size > 30 else None,
            put(bytearray),
        ]
        if size:
            changes += [
                lambda state: change_byte(held(state), at, number),
                lambda state: change_byte(held(state), near, number),
            ]
        return changes


def change_byte(data: Any, at: int, number: int) -> None:
    if at < len(data):
        data[at] = number % 256


class Arrays(Kind):
    levels = 3
    codes: tuple[Code | None, ...] = (Code.ARRAY_BLOB,)

    def start(self) -> Any:
        return np.zeros(0)

    def insert(self, place: int, number: int) -> Change:
        return put(lambda old: np.insert(old, place, float(number)))

    def remove(self, place: int) -> Change:
        return put(lambda old: np.delete(old, place))

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        at = rng.randrange(size) if size else 0
        changes: list[Change] = [
            put(lambda old: np.concatenate([old, np.arange(float(number % 40))])),
            put(lambda old: old[: len(old) // 2].copy()),
            put(lambda old: old[::-1].copy()),
        ]
        if size:
            changes += [
                lambda state: held(state).__setitem__(at, number),
                lambda state: held(state).__setitem__(-1, number),
                lambda state: held(state).__setitem__(slice(at, at + 9), number),
            ]
        return changes


class Nested(Lists):
    """A long list in a long dict in a list."""

    places: tuple[str, ...] = ("middle",)
    codes: tuple[Code | None, ...] = (Code.LIST_TREE, Code.DICT_TREE)

    def start(self) -> Any:
        return [{**{f"k{i:02}": i for i in range(30)}, "list": []}, "beside"]

    @staticmethod
    def of(state: Any) -> Any:
        return state["v"][0]["list"]

    def length(self, model: dict[str, Any]) -> int:
        return len(model["v"][0]["list"])

    def others(self, rng: random.Random, size: int, number: int) -> list[Change]:
        return [
            *super().others(rng, size, number),
            lambda state: state["v"][0].__setitem__(f"k{number % 40:02}", number),
            lambda state: state["v"].append(number),
            lambda state: state["v"].insert(0, state["v"].pop(0)),
        ]


KINDS: dict[str, Kind] = {
    cls.__name__: cls()
    for cls in (
        Lists,
        AssignedLists,
        Repeating,
        Sequences,
        Numbers,
        Equal,
        Texts,
        Large,
        Instances,
        Mixed,
        Tuples,
        Dicts,
        SortedDicts,
        MixedKeys,
        Sets,
        Roots,
        Lines,
        LongLines,
        Bytes,
        Bytearrays,
        Arrays,
        Nested,
    )
}


def places() -> list[Any]:
    """Return each kind at each of its places.

    Every day all but lists and sequences are at one: the walks pass the others as well.
    """
    found: list[Any] = []
    for name, kind in KINDS.items():
        found += first(3 if name in ("Lists", "Sequences") else 1, [(name, place) for place in reversed(kind.places)])
    return found


@pytest.mark.parametrize(("name", "place"), places())
def test_it_grows_and_shrinks_by_single_steps(name: str, place: str):
    kind, at = KINDS[name], PLACES[place]
    checked = Checked({"v": kind.start()}, random.Random(f"{name} {place}"), warm=0.7)
    number = 0
    while (size := kind.length(checked.model)) < kind.size and number < 2 * kind.size:
        checked.step(kind.insert(at(size), number))
        checked.commit(changes=kind.changes)
        number += 1
    assert max(checked.deep.get(code, 0) for code in kind.codes) >= kind.levels, checked.deep
    while size := kind.length(checked.model):
        checked.step(kind.remove(min(at(size), size - 1)))
        checked.commit(changes=kind.changes)
    checked.finish()


@pytest.mark.parametrize("name", KINDS)
def test_walks(name: str, long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(500 if long_run else 2):
        with small_nodes(WIDER if seed % 2 else SMALL):
            walk(KINDS[name], random.Random(f"{name} {seed}"), steps=100 if long_run else 20)


def walk(kind: Kind, rng: random.Random, steps: int) -> None:
    checked = Checked({"v": kind.start()}, rng, warm=rng.choice([0, 0.8, 1]))
    number = 0
    for _ in range(steps):
        for _ in range(rng.choice([1, 1, 2, 5])):
            number += 50
            size = kind.length(checked.model)
            at = rng.choice([0, size // 2, size, rng.randrange(size + 1)])
            others = kind.others(rng, size, number)
            if others and rng.random() < 0.6:
                checked.step(rng.choice(others))
            elif size < rng.choice([10, 60, kind.size]):
                for more in range(rng.choice([1, 1, 20])):
                    checked.step(kind.insert(at, number + more))
            else:
                checked.step(kind.remove(min(at, size - 1)))
        checked.commit()
    checked.finish()
