"""Marks of values other than plain data change with what would be stored, and with nothing else that users notice."""

from __future__ import annotations

import textwrap
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.codec import new_nodes
from tests.support.processes import run
from versioned_state import Versioned
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import UNKNOWN
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import plain_cell

MANY = [{"role": "user", "content": f"message {n}"} for n in range(300)]


def mark(*run):
    found = Fingerprinter().of(list(run), plain=False)[0]
    assert found is not None
    return found


def test_no_run_is_the_same_as_an_unknown_one():
    assert not any(Fingerprinter().same(UNKNOWN, [value]) for value in (None, [], {}, (), "", b"", object()))


def test_cells_are_those_of_a_run_only_if_each_value_is_the_same():
    fingerprinter = Fingerprinter()
    run = [{"a": 1}, "text", 2, None, [True]]
    cells = [plain_cell(value) or b"" for value in run]
    assert fingerprinter.same_cells(cells, run)
    for other in ({"a": True}, {"a": 1.0}, {"a": 1, "b": 2}, [{"a": 1}], ("a", 1), b"a", "\ud800", object()):
        assert not fingerprinter.same_cells(cells, [other, *run[1:]])
    assert not fingerprinter.same_cells([b"".join(cells[:2]), *cells[2:]], run[1:])


class Plain:
    """Data, by its attributes."""

    plan: Any
    history: Any
    me: Any

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Agent(Plain):
    """An object, for it says how it is pickled."""

    def __getstate__(self):
        return dict(self.__dict__)


@pytest.mark.parametrize("more", [[], MANY], ids=["small", "large"])
class TestSharingInsideAnObject:
    def test_two_lists_are_not_one(self, more):
        one: list[int] = []
        assert mark(Agent(a=one, b=one, more=more)) != mark(Agent(a=[], b=[], more=more))

    def test_which_two_of_three_are_one(self, more):
        x: list[int] = []
        y: list[int] = []
        assert mark(Agent(a=x, b=x, c=y, more=more)) != mark(Agent(a=x, b=y, c=y, more=more))

    def test_deep_inside_other_objects(self, more):
        inner = Agent(n=1)
        assert mark([Agent(a=(inner,), b={"k": inner}, more=more)]) != mark(
            [Agent(a=(Agent(n=1),), b={"k": Agent(n=1)}, more=more)]
        )

    def test_equal_strings_and_tuples_may_be_one_or_two(self, more):
        text, pair = str(10**20), (1, str(10**30))
        one = Agent(a=text, b=text, c=pair, d=pair, more=more)
        assert mark(one) == mark(Agent(a=str(10**20), b=text, c=pair, d=(1, str(10**30)), more=more))

    def test_an_object_that_contains_itself(self, more):
        def looped(n):
            agent = Agent(n=n, more=more)
            agent.me = [agent]
            return agent

        assert mark(looped(1)) == mark(looped(1)) != mark(looped(2))


def test_sharing_between_objects_and_in_data_does_not_count():
    x = [1]
    assert mark((x, x), {1}) == mark(([1], [1]), {1})
    agent = Agent(n=1)
    assert mark(agent, agent) == mark(Agent(n=1), Agent(n=1))


@pytest.mark.parametrize(
    "wrap",
    [lambda f: f, lambda f: [f], lambda f: Agent(f=f), lambda f: Agent(f=f, more=MANY), lambda f: Agent(f=[f].append)],
)
def test_a_function_that_is_stored_as_a_whole(wrap):
    def make(n):
        def tool():
            return n

        return tool

    assert mark(wrap(make(1))) != mark(wrap(make(2)))
    tool = make(1)
    before = mark(wrap(tool))
    assert mark(wrap(tool)) == before
    tool.limit = 5
    assert mark(wrap(tool)) != before


def test_what_is_stored_by_name_is_marked_by_it():
    assert (
        mark(Agent, len, textwrap.dedent)
        == mark(Agent, len, textwrap.dedent)
        != mark(SimpleNamespace, len, textwrap.dedent)
    )


def test_an_instance_counts_by_its_identity_and_a_value_does_not():
    """An instance at two places is stored once, so it is a change if an equal instance replaces it at one of them."""
    agent = Plain(n=1)
    assert mark(agent, agent) != mark(agent, Plain(n=1))
    assert mark([1], (1,)) == mark([1], (1,))


@pytest.mark.parametrize("make", [Plain, Agent])
def test_attributes_become_one_and_two(make):
    state = Versioned()
    state["agent"] = agent = make(plan=[], history=[])
    state.commit()
    agent.history = agent.plan
    assert state.status()
    back = state.checkout(state.commit())["agent"]
    assert back.history is back.plan
    agent.history = []
    assert state.status()
    back = state.checkout(state.commit())["agent"]
    assert back.history is not back.plan


SCRIPT = """
import sys
from versioned_state import Disk, Versioned
class Tool:
    def call(self): return 1
    def __getstate__(self): return {}
class Note:
    def __init__(self): self.text = "a"
    def call(self): return 1
def tool(): return 1
state = Versioned(Disk(sys.argv[1]))
state["in"] = {"tools": [tool, Tool()], "more": list(range(100))}
state["note"] = Note()
state["top"] = tool
first = state.commit()
assert state.commit() == first
class Tool:
    def call(self): return 2
    def __getstate__(self): return {}
class Note:
    def __init__(self): self.text = "a"
    def call(self): return 2
def tool(): return 2
state["note"] = Note()
assert not state.status(), "its fields are what they were"
state["in"]["tools"][0] = tool
assert [str(change.path) for change in state.status()] == ["in.tools[0]"], state.status()
state.commit()
state["in"]["tools"][1] = Tool()
assert [str(change.path) for change in state.status()] == ["in.tools[1]"], state.status()
state.commit()
tool.limit = 5
assert [str(change.path) for change in state.status()] == ["in.tools[0]"], state.status()
state.commit()
again = Versioned(Disk(sys.argv[1]))
called = [again["in"]["tools"][0](), again["in"]["tools"][1].call(), again["top"](), again["note"].call()]
assert called == [2, 2, 1, 2], called
assert not again.status(), again.status()
"""

READER = """
import sys
from versioned_state import Disk, Versioned
state = Versioned(Disk(sys.argv[1]))
assert state["in"]["tools"][1].call() == 2
assert state.checkout("HEAD").at("note.text") == "a"
assert state["note"].name == "__main__:Note", "this script has no such class"
assert not state.status(), state.status()
state["in"]["more"].append(1)
state.commit()
assert not state.status()
"""


def test_a_script_that_defines_its_tools_again(tmp_path):
    for script in (SCRIPT, READER):
        run(script, tmp_path / "s")


class Comparing(Fingerprinter):
    """Counts the groups that it compares."""

    compared = 0

    def _same_group(self, *args: Any) -> bool:
        self.compared += 1
        return super()._same_group(*args)


def encoder_that_counts() -> tuple[Encoder, Comparing]:
    encoder = Encoder(new_nodes())
    encoder.fingerprinter = counting = Comparing()
    return encoder, counting


def test_a_list_that_changed_within_a_dict_is_compared_once():
    def content(count: int) -> dict[str, Any]:
        return {"memory": {"content": [{"role": "user", "content": f"message {n} " * 20} for n in range(count)]}}

    encoder, counting = encoder_that_counts()
    _, base = encoder.encode(content(1000), None, "a")
    counting.compared = 0
    cell, grown = encoder.encode(content(1002), base, "a")
    groups = -(-1000 // 64) + 4
    assert groups / 2 < counting.compared < 2 * groups
    assert cell == encoder_that_counts()[0].encode(content(1002), None, "a")[0]
    same, _ = encoder.encode(content(1002), grown, "a")
    assert same == cell


@pytest.mark.parametrize("is_within", [False, True])
def test_a_list_that_was_compared_and_changed_then_is_compared_again(is_within):
    elements: list[str] = [f"{n} " * 20 for n in range(300)]
    value: Any = {"a": elements} if is_within else elements
    encoder, _ = encoder_that_counts()
    _, base = encoder.encode(value, None, "a")
    for at in (0, 299, 150, 3):
        elements[at] = f"before {at}"
        assert base is not None
        assert not encoder.fingerprinter.is_unchanged(value, base)
        elements[at - 100] = f"after {at}"
        cell, base = encoder.encode(value, base, "a")
        assert cell == encoder_that_counts()[0].encode(value, None, "a")[0]


def test_a_fingerprinter_takes_little_memory():
    tracemalloc.start()
    try:
        kept = [Fingerprinter() for _ in range(20)]
        assert tracemalloc.get_traced_memory()[0] < len(kept) * 50_000
    finally:
        tracemalloc.stop()
