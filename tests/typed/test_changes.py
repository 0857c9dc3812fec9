"""A change of any field at any depth is seen, in instances that reach each other too, and nothing else counts."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.support import typed_classes as classes
from tests.support.exact import exact
from tests.support.long_runs import first
from tests.support.typed_classes import (
    Access,
    Bits,
    Both,
    Colour,
    Counts,
    Groups,
    History,
    Level,
    Loose,
    Message,
    Mode,
    Model,
    Names,
    Open,
    Ordered,
    Pair,
    Part,
    Place,
    Plain,
    Point,
    Prefs,
    Recent,
    Role,
    Sized,
    Slots,
    Step,
    Tags,
    Text,
    ToolError,
    Visit,
    nested,
)
from versioned_state import Memory, Repository, Versioned


def everything(size: int) -> dict[str, Any]:
    """Return an instance of each kind. ``size`` decides whether its fields are trees of their own."""
    wide = ["x" * 40 + str(n) for n in range(size)]
    error = ToolError("search", 1)
    error.add_note("a note")
    error.__cause__ = KeyError("inner")
    return {
        "dataclass": Message("user", [1, {"deep": (2, [3])}], list(wide)),
        "inherited": classes.Reply("user", "hi", list(wide), 0.5),
        "frozen": Point([1], {"in": list(wide)}),
        "slots": Step(1, {"in": list(wide)}),
        "generic": Pair[int](1, 2),
        "model": Model(name="a", parts=list(wide), part=Part(text=[1])),
        "open": Open.model_validate({"name": "a", "extra": {"n": list(wide)}}),
        "root": Names(list(wide)),
        "attrs": Visit("Rome", list(wide)),
        "loose": Loose([1]),
        "tuple": Place("Rome", {"n": list(wide)}),
        "plain": Plain(a=1, b=Plain(c=[1], d=list(wide))),
        "slotted": Slots(a=[1], b=list(wide)),
        "both": Both(a=[1], c={"n": 1}),
        "history": History([1, [2], *wide], title="t", more=[1]),
        "prefs": Prefs(a=[1], **{f"k{n}": n for n in range(size)}),
        "ordered": Ordered(b=1, a=[2]),
        "counts": Counts("aab"),
        "groups": Groups(list, a=[1]),
        "recent": Recent([1, [2]], 2000),
        "tags": Tags({1, "a"}),
        "sized": Sized("text"),
        "error": error,
        "enum": [Colour.RED, Role.USER, Level.LOW, Mode.FAST, Access.READ, Bits.A],
        "near": [Point(n, "p") for n in range(size)],
    }


def _set(statement: str) -> Callable[[dict[str, Any]], None]:
    return lambda v: exec(statement, {**vars(classes), "v": v, "deque": deque})


MUTATIONS = """
    v["dataclass"].role = "tool"
    v["dataclass"].content[1]["deep"][1].append(4)
    v["dataclass"].tags.append("new")
    v["dataclass"].new = 1
    del v["dataclass"].role
    v["dataclass"].limit = 5
    v["dataclass"] = Reply("user", v["dataclass"].content, v["dataclass"].tags)
    v["dataclass"] = dict(vars(v["dataclass"]))
    v["inherited"].length = 99
    v["inherited"].score = True
    v["inherited"].score = 0
    v["frozen"].x.append(2)
    v["frozen"].y["in"].append("new")
    v["frozen"] = Point(v["frozen"].x, v["frozen"].y | {"more": 1})
    v["slots"].result["in"].append("new")
    v["slots"].number = True
    del v["slots"].result
    v["generic"].first = 1.0
    v["generic"].__dict__["third"] = 3
    v["model"].name = "b"
    v["model"].parts.append("new")
    v["model"].part.text.append(2)
    v["model"].part = None
    v["model"].part = {"kind": "text", "text": [1]}
    v["model"]._seen.append(1)
    v["model"]._note = "n"
    v["model"].made = 1
    v["model"].__pydantic_fields_set__.discard("name")
    v["open"].name = "b"
    v["open"].new = 1
    v["open"].extra["n"].append(1)
    del v["open"].extra
    v["root"].root.append("new")
    v["attrs"].city = "Oslo"
    v["attrs"].stops.append("new")
    v["loose"].held.append(2)
    v["loose"]._hidden = 1
    v["loose"].more = 1
    v["tuple"].at["n"].append("new")
    v["tuple"] = ("Rome", v["tuple"].at)
    v["tuple"] = v["tuple"]._replace(city="Oslo")
    v["plain"].a = True
    v["plain"].a = 1.0
    v["plain"].b.c.append(2)
    v["plain"].b.d.append("new")
    v["plain"].new = None
    del v["plain"].a
    v["plain"].b = {"c": [1], "d": v["plain"].b.d}
    v["plain"].__class__ = Kind
    v["slotted"].a.append(2)
    v["slotted"].b.append("new")
    v["slotted"]._Slots__hidden = 1
    del v["slotted"].a
    v["both"].a.append(2)
    v["both"].c["n"] = 2
    v["both"].d = 1
    del v["both"].a
    v["history"].append(3)
    v["history"][1].append(3)
    v["history"].title = "new"
    v["history"].more.append(2)
    del v["history"].title
    v["history"] = list(v["history"])
    v["prefs"]["a"].append(2)
    v["prefs"]["new"] = 1
    v["prefs"].owner = "me"
    v["prefs"]["a"] = v["prefs"].pop("a")
    v["prefs"] = dict(v["prefs"])
    v["ordered"].move_to_end("b")
    v["ordered"]["a"].append(3)
    v["counts"]["a"] += 1
    v["groups"]["b"].append(1)
    v["groups"]["c"]
    v["groups"].default_factory = None
    v["recent"].appendleft(0)
    v["recent"][1].append(3)
    v["recent"] = Recent(v["recent"], 3000)
    v["recent"] = deque(v["recent"], 2000)
    v["tags"].add(2)
    v["tags"] = set(v["tags"])
    v["sized"].size = 5
    v["sized"] = "text"
    v["error"].code = 2
    v["error"].args = ("other",)
    v["error"].add_note("another")
    v["error"].new = 1
    v["error"].__cause__ = None
    v["error"].__cause__.args = ("changed",)
    v["enum"][0] = Colour.BLUE
    v["enum"][1] = "user"
    v["enum"][2] = 1
    v["enum"][3] = Mode.SLOW
    v["enum"][4] |= Access.RUN
    v["enum"][5] = Bits.B
    v["enum"][0] = Level.LOW
    v["near"].append(Point(0, "p"))
    v["near"].pop()
    v["near"][-1:] = [Slim(v["near"][-1].x, "p")] if v["near"] else [0]
"""


def _cases() -> list[Any]:
    """Run each statement on a small and on a large instance, or in the everyday run on one of the two, in turn."""
    found: list[Any] = []
    for number, statement in enumerate(map(str.strip, MUTATIONS.strip().splitlines())):
        found += first(1, [(statement, size) for size in ((120, 1) if number % 2 else (1, 120))])
    return found


@pytest.mark.parametrize(("statement", "size"), _cases())
def test_a_change_in_place_is_seen(statement, size):
    repository = Repository(Memory())
    given = Versioned(repository)
    given["value"] = everything(size)
    given.commit()
    repository.branches.create("loaded")
    for state in (given, Versioned(repository, branch="loaded")):
        assert not state.status()
        live = state["value"]
        before = exact(live)
        _set(statement)(live)
        if exact(live) == before:
            assert statement.endswith(("= 1", "= 5")), statement  # as it was, but for the set of fields given
        diff = state.status()
        assert diff, statement
        assert all(str(change.path).startswith("value") for change in diff)
        commit = state.commit()
        assert exact(state.checkout(commit)["value"]) == exact(live)
        assert not state.status()


def test_what_is_no_change():
    state = Versioned()
    state["value"] = live = everything(300)
    state.commit()
    for name in ("plain", "dataclass", "both", "loose"):
        held = vars(live[name]).copy()
        vars(live[name]).clear()
        vars(live[name]).update(reversed(held.items()))
    live["dataclass"] = copy.deepcopy(live["dataclass"])
    live["frozen"] = copy.deepcopy(live["frozen"])
    live["enum"][0] = Colour.CRIMSON
    live["model"] = live["model"].model_copy(deep=True)
    live["tuple"] = Place(*live["tuple"])
    Plain.limit = 6
    try:
        assert not state.status()
    finally:
        Plain.limit = 5
    head = state.head
    assert state.commit() == head


# Graphs of instances, changed at random


def parts_of(value: Any) -> Iterator[Any]:
    """Every instance, list and dict in a value, once."""
    stack, seen = [value], set()
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            yield part
            stack += part.values()
        elif isinstance(part, (list, tuple, deque)):
            yield part
            stack += part
        if type(part).__module__ == classes.__name__ and not isinstance(
            part, (Colour, Role, Level, Mode, Access, Bits)
        ):
            yield part
            held = classes.attributes_of(part)
            # A model's own dicts hold what it declares.
            stack += [part for name, part in held.items() if not name.startswith("__pydantic")]
            stack += (held.get("__pydantic_private__") or {}).values()


FRESH: list[Callable[[random.Random], Any]] = [
    lambda rng: rng.randrange(3),
    lambda rng: rng.choice([True, 1.0, None, "a", b"a", (1,), Colour.RED, Role.USER, "user", Text("a"), Access.ALL]),
    lambda rng: [rng.randrange(3)],
    lambda rng: Point(rng.randrange(2), [1]),
    lambda rng: Plain(n=rng.randrange(3)),
    lambda rng: Message("user", "x" * rng.choice([1, 5000])),
    lambda rng: Slots(a=rng.randrange(3)),
    lambda rng: Part(text=rng.randrange(2)),
]


def mutate(rng: random.Random, value: Any) -> None:
    part = rng.choice([part for part in parts_of(value) if type(part) is not tuple])
    fresh = rng.choice(FRESH)(rng)
    if isinstance(part, (Step, Slots, Both, Plain, Message, Loose, Pair)) or (
        isinstance(part, BaseException) and rng.random() < 0.9
    ):
        names = list(classes.attributes_of(part)) or ["a"]
        name = rng.choice(
            [*names, *(["a", "b"] if isinstance(part, Slots) else ["fresh"] if hasattr(part, "__dict__") else names)]
        )
        if rng.random() < 0.2 and name in classes.attributes_of(part):
            delattr(part, name)
        else:
            setattr(part, name, fresh)
    elif isinstance(part, (list, deque)):
        if part and rng.random() < 0.5:
            part[rng.randrange(len(part))] = fresh
        elif part and rng.random() < 0.3:
            part.pop()
        else:
            part.append(fresh)
    elif isinstance(part, Counts):
        part["a"] += 1
    elif isinstance(part, dict):
        part[rng.choice([*part, "fresh"])] = fresh
    elif isinstance(part, (Model, Part, Visit)):
        name = rng.choice(list(classes.attributes_of(part) if isinstance(part, Visit) else type(part).model_fields))
        object.__setattr__(part, name, fresh)


def graph(rng: random.Random, size: int) -> Any:
    """Instances that reach each other: some at several places, some in a circle."""
    nodes: list[Any] = [rng.choice(FRESH)(rng) for _ in range(size)]
    nodes += [rng.choice([Plain(), Slots(), Both(), Message("user", ""), Pair(1, 2), Loose(1)]) for _ in range(size)]
    for node in nodes:
        if isinstance(node, (Plain, Slots, Message, Pair, Loose)) and rng.random() < 0.6:
            name = {Message: "content", Pair: "first", Loose: "held"}.get(type(node), "a")
            setattr(node, name, rng.choice(nodes) if rng.random() < 0.7 else [rng.choice(nodes)])
    return nodes


@pytest.mark.parametrize("size", [2, 6, 30])
@pytest.mark.parametrize("seed", range(5))
def test_random_mutations_of_graphs_of_instances(seed, size, long_run):
    for round_ in range(30 if long_run else 1):
        rng = random.Random(1000 * seed + size + 77 * round_)
        repository = Repository(Memory())
        state = Versioned(repository)
        state["graph"], state["beside"] = graph(rng, size), graph(rng, 2)
        state.commit()
        for _ in range(10):
            before = copy.deepcopy(state["graph"])
            for _ in range(rng.choice([1, 1, 3])):
                mutate(rng, state["graph"])
            changed = _shape(before) != _shape(state["graph"])
            diff = state.status()
            assert bool(diff) >= changed, "a change was missed"
            commit = state.commit()
            assert _shape(state.checkout(commit)["graph"]) == _shape(state["graph"])
            assert not state.status()
            if rng.random() < 0.3:
                state = Versioned(repository)
                assert not state.status()


def _shape(value: Any) -> Any:
    """A graph as a list of its parts, with instances of ordinary classes by the place at which each was met first."""
    known: dict[int, int] = {}
    kept: list[Any] = []

    def of(part: Any, depth: int) -> Any:
        if isinstance(part, (Plain, Slots)):
            if id(part) in known:
                return "again", known[id(part)]
            known[id(part)] = len(known)
            kept.append(part)
        elif depth > 60:
            return "a circle of values"
        if isinstance(part, dict):
            return type(part).__name__, [(exact(key), of(held, depth + 1)) for key, held in part.items()]
        if isinstance(part, (list, tuple, deque)) and not isinstance(part, classes.Place):
            return type(part).__name__, [of(held, depth + 1) for held in part]
        if type(part).__module__ == classes.__name__ and not isinstance(
            part, (Colour, Role, Level, Mode, Access, Bits, str)
        ):
            held = classes.attributes_of(part)
            return type(part).__name__, [(name, of(held[name], depth + 1)) for name in sorted(held)]
        return exact(part)

    return of(value, 0)


@settings(max_examples=25)
@given(st.lists(nested(4), min_size=1, max_size=3), st.integers(0, 2**32))
def test_random_mutations_of_nested_values(value, seed):
    rng = random.Random(seed)
    state = Versioned()
    state["value"] = value
    state.commit()
    for _ in range(3):
        before = exact(state["value"])
        mutate(rng, state["value"])
        after = exact(state["value"])
        assert bool(state.status()) == (before != after)
        assert exact(state.checkout(state.commit())["value"]) == after
