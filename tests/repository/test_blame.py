"""Blame and the history of a path are what a naive walk over whole values gives, and read little."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks import data
from tests.support.damage import damage
from tests.support.exact import exact
from tests.support.handles import cold, committed
from tests.support.histories import numbered
from tests.support.worlds import reached
from versioned_state import Commit, Memory, ObjectInfo, Repository, Versioned
from versioned_state.errors import CorruptObjectError, InvalidPathError, UnknownPathError
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.history.reach import references_of_tree
from versioned_state.repository.inspect.blame import Blame
from versioned_state.storage import Counting, Wrapper
from versioned_state.values.cells import ENTRY_INLINE
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.keys import ENGINE, namespace_prefix, user_key
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import empty

MISSING = object()


def write(repository: Repository, values: dict[str, Any], *parents: Commit) -> Commit:
    """A commit of this state, whatever its parents hold."""
    staging = Staging(repository.database.objects)
    nodes = Nodes(staging, staging=staging)
    encoder = Encoder(nodes)
    cells: dict[bytes, bytes | None] = {
        user_key(key): encoder.encode_at(value, ENTRY_INLINE) for key, value in values.items()
    }
    tree = edit_map(nodes, empty(Shape.MAP), cells)
    commit = repository.database.write_commit(
        tree, parents or (repository.commit(ROOT_ID),), staging=staging, message=""
    )
    repository.store.apply({}, {}, objects=staging.sealed())
    return commit


class Histories:
    """Histories at random, with branches and merges, and beside each commit its whole state.

    No element of the list and no line of the text occurs twice, and they keep their order, so that nobody can be in
    doubt about which is which: each has a rank, and all lists are sorted by it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.repository = Repository(Memory(), clock=itertools.count(1).__next__)
        self.numbers = itertools.count()
        self.size = rng.choice((0, 20, 300, 1000))
        self.ranked: dict[str, dict[Fraction, Any]] = {}
        self.states: dict[str, dict[str, Any]] = {ROOT_ID: {}}
        self.commits: list[Commit] = []
        first = {Fraction(n): self.element() for n in range(rng.choice((0, 1, 12, 80)))}
        self.add(
            first, {"kind": "begin", **{f"k{n}": "v" * rng.choice((1, 90)) for n in range(rng.choice((0, 3, 60)))}}
        )
        for _ in range(rng.randrange(4, 16)):
            parents = [rng.choice(self.commits[-4:])]
            if rng.random() < 0.35:
                parents.append(rng.choice(self.commits))
            self.go_on(*dict.fromkeys(parents))

    def element(self) -> str:
        return f"{next(self.numbers)} " + "x" * self.rng.randrange(self.size + 1)

    def go_on(self, *parents: Commit) -> None:
        rng = self.rng
        ranked = dict(self.ranked[parents[0].id])
        prefs = dict(self.states[parents[0].id]["prefs"])
        if len(parents) == 2:
            other = self.states[parents[1].id]["prefs"]
            ranked |= {rank: element for rank, element in self.ranked[parents[1].id].items() if rng.random() < 0.9}
            prefs |= {key: other[key] for key in other if rng.random() < 0.5}
        for _ in range(rng.randrange(4)):
            self.edit(ranked, prefs)
        self.add(ranked, prefs, *parents)

    def edit(self, ranked: dict[Fraction, Any], prefs: dict[str, Any]) -> None:
        rng = self.rng
        what = rng.choice(("append", "insert", "change", "delete", "prefs", "remove"))
        ranks = sorted(ranked)
        if what == "append" or not ranks:
            for step in range(rng.choice((1, 2, 20))):
                ranked[Fraction(max([*ranks, Fraction(next(self.numbers))]).__floor__() + 1 + step)] = self.element()
        elif what == "insert":
            at = rng.randrange(len(ranks))
            below = ranks[at - 1] if at else ranks[0] - 1
            # Between the two, and nowhere where another branch has put one.
            ranked[below + (ranks[at] - below) * Fraction(rng.randrange(1, 10**6), 10**6)] = self.element()
        elif what == "change":
            ranked[rng.choice(ranks)] = self.element()
        elif what == "delete":
            del ranked[rng.choice(ranks)]
        elif what == "prefs" or not prefs:
            prefs[rng.choice(("kind", "k1", "k2", "new"))] = rng.choice(
                ("a", "b", 1, True, "long " * 30, ["x" * 3000], {"deep": ["y" * 100]})
            )
        else:
            prefs.pop(rng.choice(list(prefs)))

    def add(self, ranked: dict[Fraction, Any], prefs: dict[str, Any], *parents: Commit) -> None:
        elements = [ranked[rank] for rank in sorted(ranked)]
        state: dict[str, Any] = {
            "items": elements,
            "text": "\n".join(elements),
            "prefs": prefs,
            "deep": {"items": list(elements), "other": len(elements)},
        }
        if self.rng.random() < 0.1:
            del state["deep"]
        if self.rng.random() < 0.05 and parents:
            state["items"] = "no list"
        if self.rng.random() < 0.3:
            state["noise"] = next(self.numbers)
        commit = write(self.repository, state, *parents)
        if commit.id not in self.states:
            self.states[commit.id] = state
            self.ranked[commit.id] = ranked
            self.commits.append(commit)

    # What is so, by looking at whole values

    def at(self, commit: Commit, keys: list[str]) -> Any:
        value: Any = self.states[commit.id]
        for key in keys:
            value = value.get(key, MISSING) if type(value) is dict else MISSING
        return value

    def blame(self, commit: Commit, keys: list[str], part: Any, *, whole: bool) -> Commit:
        """Return the origin of a part: a (key, value) of a dict, an element, a line, or the whole value."""
        parents = self.repository.parents(commit)
        here = self.at(commit, keys)
        for parent in parents:
            if same(self.at(parent, keys), here):
                return self.blame(parent, keys, part, whole=whole)
        for parent in () if whole else parents:
            value = self.at(parent, keys)
            if type(value) is type(here) and any(same(each, part) for each in parts_of(value)):
                return self.blame(parent, keys, part, whole=whole)
        return commit

    def touches(self, head: Commit, keys: list[str]) -> list[tuple[Commit, str]]:
        """The commits that touched a path by keys, and how."""
        found, seen, pending = [], {head.id}, [head]
        while pending:
            commit = pending.pop()
            here = self.at(commit, keys)
            parents = self.repository.parents(commit)
            alike = [parent for parent in parents if same(self.at(parent, keys), here)][:1]
            if not alike and commit.id != ROOT_ID:
                old = self.at(parents[0], keys)
                found.append((commit, "added" if old is MISSING else "removed" if here is MISSING else "changed"))
            for parent in alike or parents:
                if parent.id not in seen:
                    seen.add(parent.id)
                    pending.append(parent)
        return sorted(found, key=lambda touch: (-touch[0].generation, -touch[0].time))


def same(a: Any, b: Any) -> bool:
    if a is b or type(a) is str or MISSING in (a, b):
        return bool(a == b)
    return type(a) is type(b) and bool(exact(a) == exact(b))


def parts_of(value: Any) -> list[Any]:
    if type(value) is dict:
        return list(value.items())
    return value.split("\n") if type(value) is str and value else list(value)


PATHS = ["items", "text", "prefs", "deep.items", "deep", ""]


@given(st.integers(0, 2**32))
def test_blame_is_what_a_naive_walk_gives(seed):
    histories = Histories(seed)
    for head in histories.commits[-2:]:
        for path in PATHS:
            keys = path.split(".") if path else []
            value = histories.at(head, keys)
            if value is MISSING:
                with pytest.raises(UnknownPathError):
                    histories.repository.blame(path, head)
                continue
            parts = parts_of(value) if value else [value]
            if path == "":
                parts.sort()
            expected = [histories.blame(head, keys, part, whole=not value) for part in parts]
            found = histories.repository.blame(path, head)
            assert [each.commit for each in found] == expected
            shown = [part[1] for part in parts] if type(value) is dict and value else parts
            assert exact([each.value for each in found]) == exact(shown)
            start, end = histories.rng.choice(((-3, None), (1, 4), (None, -2), (5, 2)))
            assert [each.commit for each in histories.repository.blame(path, head, start=start, end=end)] == expected[
                start:end
            ]


@given(st.integers(0, 2**32))
def test_the_history_of_a_path_is_what_a_naive_walk_gives(seed):
    histories = Histories(seed)
    for head in histories.commits[-2:]:
        for path in [
            "items",
            "text",
            "prefs",
            "prefs.kind",
            "prefs.k1",
            "prefs.new",
            "deep.items",
            "deep.other",
            "noise",
            "never",
        ]:
            keys = path.split(".")
            found = list(histories.repository.history(path, head))
            assert [(touch.commit, touch.kind) for touch in found] == histories.touches(head, keys)
            for touch in found:
                first, *_ = histories.repository.parents(touch.commit)
                for shown, value in (
                    (touch.old, histories.at(first, keys)),
                    (touch.new, histories.at(touch.commit, keys)),
                ):
                    assert exact(shown) == exact(None if value is MISSING else value)
                assert touch.changes


# Searches that are ended in time


def resolved(histories: Histories, part: Blame, *, below: bool) -> Commit:
    """The commit that a part comes from, by as many searches of one commit as needed, each from where the last ended.

    ``below``: it is an entry or an element of the value.
    """
    while not part.complete:
        there = part.path_in_commit
        value = histories.repository.snapshot(part.commit).at(there)
        assert exact(value) == exact(part.value) or (not below and part.value in value.split("\n"))
        within = StatePath(there.steps[:-1]) if below else there
        found = histories.repository.blame(within if within.steps else "", part.commit, deadline=0)
        (part,) = [each for each in found if each.path == there and (each.line is None or each.value == part.value)]
    return part.commit


@given(st.integers(0, 2**32))
def test_blame_that_is_ended_goes_on_where_it_was_ended(seed):
    histories = Histories(seed)
    head = histories.commits[-1]
    for path in ["items", "text", "deep", ""]:
        if path and histories.at(head, [path]) is MISSING:
            continue
        whole = histories.repository.blame(path, head)
        assert whole.complete
        ended = histories.repository.blame(path, head, deadline=0)
        assert [part.path for part in ended] == [part.path for part in whole]
        assert ended.complete == all(part.complete for part in ended)
        for part, expected in zip(ended, whole, strict=True):
            assert part.commit == head if part.complete else part.commit in histories.repository.parents(head)
            assert resolved(histories, part, below=str(part.path) != path) == expected.commit


def test_a_line_goes_on_through_a_commit_in_which_it_was_the_only_one():
    state = Versioned()
    for text in ("keep\ndrop", "keep", "keep\nmore"):
        state["text"] = text
        state.commit(text)
    first, alone, last = reversed(list(state.log()))
    assert [part.commit for part in state.blame("text")] == [first, last]
    line = state.blame("text", deadline=0)[0]
    assert (line.commit, line.complete) == (alone, False)
    assert [part.commit for part in state.blame(line.path_in_commit, line.commit)] == [first]


@given(st.integers(0, 2**32))
def test_a_history_that_is_ended_goes_on_where_it_was_ended(seed):
    histories = Histories(seed)
    head = histories.commits[-1]
    for path in ["items", "prefs.kind", "noise", "never", "deep.items"]:
        whole = histories.repository.history(path, head)
        found: dict[str, str] = {}
        left = [(head, StatePath.parse(path))]
        seen = set()
        while left:
            commit, place = left.pop()
            some = histories.repository.history(place, commit, deadline=0)
            found |= {touch.commit.id: touch.kind for touch in some}
            assert some.complete is not bool(some.rest)
            left += [each for each in some.rest if each[0].id not in seen]
            seen |= {each.id for each, _ in some.rest}
        assert found == {touch.commit.id: touch.kind for touch in whole}
        assert whole.complete
        assert whole.rest == []


def test_the_preview_of_a_part_reads_what_it_shows():
    store = Counting(Memory())
    state = committed(store, list=[{"n": n, "text": "x" * 50} for n in range(20_000)], text="one\n'two'")
    (part,) = [part for part in cold(store).blame() if str(part.path) == "list"]
    store.reset()
    assert part.preview(width=60).startswith("[{'n': 0, 'text': 'xxxx")
    assert store.counts.objects_read < 10
    assert [line.preview() for line in state.blame("text")] == ["one", "'two'"]
    assert [part.preview() for part in state.blame("list", end=1)] == [repr(state["list"][0])]


def test_an_ended_search_reads_as_little_as_it_examined(large):
    store, _ = large
    for search in (
        lambda: cold(store).blame('["item-000001"]', deadline=0),
        lambda: list(cold(store).history('["item-000001"]', deadline=0)),
    ):
        store.reset()
        search()
        assert store.counts.objects_read < 20


def test_the_rest_of_a_history_is_what_was_not_taken():
    state = Versioned()
    for number in range(7):
        state["list"] = [f"new {number}", *state.get("list", ["the first"])]
        state["list"][-1] = f"changed {number}"
        state.commit(str(number))
    history = state.history("list[-1]")
    assert [next(history).commit.message for _ in range(3)] == ["6", "5", "4"]
    ((commit, path),) = history.rest
    assert (commit.message, str(path)) == ("3", "list[4]")
    assert [touch.commit.message for touch in state.history(path, commit)] == [
        touch.commit.message for touch in history
    ]
    assert history.complete


# What a naive walk leaves open


def lines(state: Versioned, path: str, start: int | None = None, end: int | None = None) -> list[tuple[str, Any]]:
    return [(part.commit.message, part.value) for part in state.blame(path, start=start, end=end)]


def test_an_element_that_others_push_along_keeps_its_commit_and_one_that_changes_in_its_place_does_not():
    state = Versioned()
    state["list"] = [{"n": n} for n in range(4)]
    state.commit("first")
    state["list"].insert(0, {"n": "new"})
    state.commit("insert")
    state["list"][2]["more"] = 1
    del state["list"][3]
    state.commit("edit")
    assert lines(state, "list") == [
        ("insert", {"n": "new"}),
        ("first", {"n": 0}),
        ("edit", {"n": 1, "more": 1}),
        ("first", {"n": 3}),
    ]
    assert lines(state, "list[2]") == [("first", 1), ("edit", 1)]
    assert lines(state, "list", start=-1) == [("first", {"n": 3})]
    assert [str(part.path) for part in state.blame("list[2]")] == ["list[2].n", "list[2].more"]


def test_an_element_is_followed_by_its_place_and_has_no_history_before_it_was_put_in():
    state = Versioned()
    state["list"] = ["a", {"plan": ["x"]}]
    state.commit("first")
    state["list"].insert(0, "before")
    state.commit("push")
    state["list"][-1]["plan"].append("y")
    state.commit("second")
    state["list"] += ["last"]
    state.commit("last")
    touched = [
        (touch.commit.message, str(touch.path), touch.kind, touch.old, touch.new)
        for touch in state.history("list[-2].plan")
    ]
    assert touched == [
        ("second", "list[2].plan", "changed", ["x"], ["x", "y"]),
        ("first", "list[1].plan", "added", None, ["x"]),
    ]
    (first, *_) = state.history("list[2].plan")
    assert [str(change) for change in first.changes] == ["+ list[2].plan[1] = 'y'"]
    assert [touch.commit.message for touch in state.history("list[0]")] == ["push"]
    assert [touch.commit.message for touch in state.history("list[3]")] == ["last"]
    with pytest.raises(UnknownPathError, match=r"list\[4\]"):
        state.history("list[4]")
    with pytest.raises(UnknownPathError):
        state.history("nothing[0]")
    del state["list"]
    state.commit("gone")
    state["list"] = ["another"]
    state.commit("back")
    assert [touch.commit.message for touch in state.history("list[0]")] == ["back"]
    assert [touch.commit.message for touch in state.history("list")][:3] == ["back", "gone", "last"]


def test_a_key_that_was_deleted_has_a_history_and_one_that_came_back_has_all_of_it():
    state = Versioned()
    for value in (1, None, 2, None):
        if value is None:
            del state["key"]
        else:
            state["key"] = value
        state.commit(str(value))
    assert [(touch.kind, touch.old, touch.new) for touch in state.history("key")] == [
        ("removed", 2, None),
        ("added", None, 2),
        ("removed", 1, None),
        ("added", None, 1),
    ]
    assert list(state.history("never")) == []
    with pytest.raises(UnknownPathError):
        state.blame("key")


def test_lines_of_a_text_are_blamed_be_it_short_or_long():
    state = Versioned()
    state["note"] = "a\nb\nc\n"
    state["long"] = "".join(f"line {n}\n" for n in range(5000))
    state.commit("first")
    state["note"] = "a\nB\nc"
    state["long"] = state["long"].replace("line 3000\n", "line 3000\nput in\n").replace("line 17\n", "line seventeen\n")
    state.commit("second")
    assert lines(state, "note") == [("first", "a"), ("second", "B"), ("first", "c")]
    found = state.blame("long")
    assert [(part.line, part.value) for part in found if part.commit.message == "second"] == [
        (18, "line seventeen"),
        (3002, "put in"),
    ]
    assert [part.line for part in found] == list(range(1, 5002))
    state["note"] = "one line"
    state.commit("third")
    assert [(part.line, part.value, part.commit.message) for part in state.blame("note")] == [
        (None, "one line", "third")
    ]


def test_a_text_of_one_line_is_blamed_as_a_line_and_an_empty_one_as_a_value():
    state = Versioned()
    for text in ("", "\nkeep", "keep\n", "keep", "", "\nback"):
        state["text"] = text
        state.commit(repr(text))
    # The empty line is no part of the empty text before it.
    assert lines(state, "text") == [("'\\nback'", ""), ("'\\nback'", "back")]
    found = [
        [(part.commit.message, part.line, part.value) for part in state.blame("text", f"HEAD~{n}")] for n in (1, 2, 3)
    ]
    assert found == [
        [("''", None, "")],
        [("'\\nkeep'", None, "keep")],
        [("'\\nkeep'", None, "keep\n")],
    ]
    assert state.blame("text", "HEAD~1")[0].commit == state.repository.commit("HEAD~1")


def test_a_value_without_parts_is_one_part_and_an_order_is_none():
    state = Versioned()
    state.update(pair=(1, [2]), tags={"a", "b"}, empty=[], order={"a": 1, "b": 2}, number=1)
    first = state.commit("first")
    state["number"] = True
    state["order"] = {"b": 2, "a": 1}
    state["pair"] = (1, [2, 3])
    state.commit("second")
    assert lines(state, "tags") == [("first", {"a", "b"})]
    assert lines(state, "empty") == [("first", [])]
    assert lines(state, "number") == [("second", True)]
    assert lines(state, "order") == [("first", 2), ("first", 1)]
    assert [touch.commit.message for touch in state.history("order")] == ["second", "first"]
    assert lines(state, "pair") == [("second", (1, [2, 3]))]
    assert lines(state, "pair[1]") == [("first", 2), ("second", 3)]
    assert lines(state, "pair[0]") == [("first", 1)]
    assert state.blame("number", first)[0].commit == first


class Holder:
    """An object with a buffer, which is pickled apart."""

    def __init__(self, n: int) -> None:
        self.array = np.full(160, n)


def test_a_value_that_changed_its_form_alone_is_no_change():
    # 100 bytes are inline in a small dict, and a blob in a large one.
    state = Versioned()
    state["dict"] = {"a": "x" * 100, "list": [{"k": "y" * 300}]}
    state.commit("small")
    state["dict"].update({f"k{n}": "z" * 100 for n in range(100)})
    state.commit("large")
    assert lines(state, "dict", end=2) == [("small", "x" * 100), ("small", [{"k": "y" * 300}])]
    assert [message for message, _ in lines(state, "dict")] == ["small"] * 2 + ["large"] * 100
    assert lines(state, "dict.list[0]") == [("small", "y" * 300)]
    assert [touch.commit.message for touch in state.history("dict.a")] == ["small"]
    state["grows"] = ["a" * 100, {"b": ["c" * 100]}]
    state.commit("short")
    state["grows"] = ["new", *state["grows"], *("d" * 100 for n in range(100))]
    state.commit("long")
    assert [message for message, _ in lines(state, "grows", end=3)] == ["long", "short", "short"]
    # And so are the buffers of an object.
    state["objects"] = [Holder(0)]
    state.commit("few")
    state["objects"] = [Holder(-1), *state["objects"], *("d" * 100 for n in range(100))]
    state.commit("many")
    assert [part.commit.message for part in state.blame("objects", end=2)] == ["many", "few"]


def test_namespaces_and_the_whole_state_are_blamed_by_key():
    state = Versioned()
    state["key"] = 1
    state.commit("first")
    state.namespace("worker")["job"] = 1
    state.namespace("worker").namespace("deep")["job"] = 1
    state.commit("second")
    state.namespace("worker")["other"] = 2
    state.commit("third")
    assert [(str(part.path), part.commit.message) for part in state.blame("@worker")] == [
        ("@worker.job", "second"),
        ("@worker.other", "third"),
        ("@worker.@deep.job", "second"),
    ]
    assert [(str(part.path), part.commit.message) for part in state.blame()][:2] == [
        ("key", "first"),
        ("@worker.job", "second"),
    ]
    assert [touch.commit.message for touch in state.history("@worker.other")] == ["third"]
    with pytest.raises(UnknownPathError):
        state.blame("@other")
    with pytest.raises(InvalidPathError):
        state.history("@worker")
    assert Versioned().blame() == []


def test_the_engines_own_keys_are_not_shown():
    repository = Repository(Memory())
    staging = Staging(repository.database.objects)
    nodes = Nodes(staging, staging=staging)
    tree = edit_map(
        nodes,
        empty(Shape.MAP),
        {ENGINE + b"notes": b"\x01", user_key("key"): b"\x02", namespace_prefix("a") + ENGINE: b"\x03"},
    )
    commit = repository.database.write_commit(tree, (repository.commit(ROOT_ID),), staging=staging, message="")
    repository.store.apply({}, {}, objects=staging.sealed())
    assert [str(part.path) for part in repository.blame("", commit)] == ["key"]
    with pytest.raises(UnknownPathError):
        repository.blame("@a", commit)


def test_a_merge_is_blamed_for_what_neither_parent_has():
    state = Versioned()
    state["list"] = [f"{n}" for n in range(50)]
    state["kept"] = ["a"]
    state.commit("begin")
    other = state.fork("other")
    other["list"][40] = "theirs"
    other["theirs"] = [1]
    other.commit("theirs")
    state["list"][3] = "ours"
    state.commit("ours")
    state.merge("other", message="merge")
    state["list"][20] = "later"
    state["kept"].append("b")
    state.commit("later")
    found = lines(state, "list")
    assert {index: message for index, (message, _) in enumerate(found) if message != "begin"} == {
        3: "ours",
        20: "later",
        40: "theirs",
    }
    # Only the merge is unlike both of its parents; of a path that one side alone changed it is no part.
    assert [touch.commit.message for touch in state.history("list")] == [
        "later",
        "merge",
        "theirs",
        "ours",
        "begin",
    ] or [touch.commit.message for touch in state.history("list")] == ["later", "merge", "ours", "theirs", "begin"]
    assert [touch.commit.message for touch in state.history("theirs")] == ["theirs"]
    assert [touch.commit.message for touch in state.history("list[40]")] == ["theirs", "begin"]


def test_where_history_was_cut_the_cut_commit_answers_for_what_is_older():
    repository = Repository(Memory())
    state = Versioned(repository)
    state["list"] = []
    for n in range(10):
        state["list"].append(n)
        state.commit(str(n))
    repository.prune(keep_last=3)
    found = repository.blame("list")
    assert [part.commit.message for part in found] == ["7"] * 8 + ["8", "9"]
    assert [part.commit.shallow for part in found] == [True] * 8 + [False] * 2
    assert [(touch.commit.message, touch.kind) for touch in repository.history("list")] == [
        ("9", "changed"),
        ("8", "changed"),
        ("7", "added"),
    ]


class Unknown:
    """Has no form of data: it says how it is pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


def test_nothing_is_unpickled():
    state = Versioned(Memory())
    state["objects"] = [Unknown()]
    state["object"] = Unknown()
    state.commit("first")
    state["objects"].append(Unknown())
    state.commit("second")
    repository = Repository(state.repository.store, pickle="refuse")
    found = repository.blame("objects")
    assert [part.commit.message for part in found] == ["first", "second"]
    assert all(isinstance(part.value, ObjectInfo) for part in found)
    (touch,) = repository.history("object")
    assert isinstance(touch.new, ObjectInfo)


# Cost

COUNT, MESSAGES, ROUNDS = 100_000, 10_000, 80


@pytest.fixture(scope="module")
def large() -> tuple[Counting, int]:
    """Return a store with a large state and rounds of a message and a changed key each, and its tree's object count."""
    store, found = Counting(Memory()), data.sample()
    with Versioned(Repository(store)) as state:
        state.update(
            {f"item-{n:06}": {"id": n, "score": n * 7919 % 1000, "tag": f"tag {n % 10}"} for n in range(COUNT)}
        )
        state["messages"] = found.messages(MESSAGES)
        state.commit("all of it")
    repository = Repository(store)
    state = Versioned(repository)
    for n in range(ROUNDS):
        key = f"item-{random.Random(n).randrange(COUNT):06}"
        state[key] = {"id": n, "changed": True}
        state.sequence("messages").append(found.messages(1, start=MESSAGES + n)[0])
        state.commit(str(n))
    return store, len(reached(repository.database.objects, references_of_tree(state.head.tree)))


def test_blame_of_the_last_messages_reads_little(large):
    store, objects = large
    repository = cold(store)
    store.reset()
    found = repository.blame("messages", start=-50)
    assert [part.commit.message for part in found] == [str(n) for n in range(ROUNDS - 50, ROUNDS)]
    # A commit each, and a few nodes of the root. Without what is foreseen of the states before it would be 450.
    assert store.counts.objects_read < 150 < objects * 0.02


def test_the_history_of_a_path_reads_what_differs_on_the_way(large):
    store, objects = large
    repository = cold(store)
    store.reset()
    assert [touch.commit.message for touch in repository.history("messages[-1].content")] == [str(ROUNDS - 1)]
    assert store.counts.objects_read < 50
    store.reset()
    assert len(list(cold(store).history("messages"))) == ROUNDS + 1
    assert store.counts.objects_read < 3 * ROUNDS < objects * 0.025


def test_what_each_round_appends_is_learned_from_the_last():
    store, found, rounds = Counting(Memory()), data.sample(), 30
    state = Versioned(Repository(store))
    state.update({f"item-{n}": n for n in range(2000)})
    state["messages"] = found.messages(500)
    state.commit("begin")
    objects = len(reached(state.repository.database.objects, references_of_tree(state.head.tree)))
    repository = Repository(store)
    store.reset()
    assert {part.commit.message for part in repository.blame()} == {"begin"}
    assert store.counts.objects_read < objects
    for n in range(rounds):
        state[f"item-{n * 61}"] = -1
        state["messages"] += found.messages(3, start=500 + 3 * n)
        state.commit(str(n))
    repository = Repository(store)
    store.reset()
    assert [part.commit.message for part in repository.blame("messages", start=-3 * rounds)] == [
        str(n // 3) for n in range(3 * rounds)
    ]
    assert store.counts.objects_read < 4 * rounds
    for n in range(rounds):  # by turns, so that the last round says nothing of the next one
        state[f"item-{n * 61}"] = -2
        state["messages"] += found.messages(1 + n % 2, start=1000 + 2 * n)
        state.commit()
    repository = Repository(store)
    store.reset()
    assert len({part.commit for part in repository.blame("messages", start=-rounds * 3 // 2)}) == rounds
    counted = store.reset().objects_read
    assert counted < 6 * rounds, counted


def test_blame_of_a_long_text_reads_each_chunk_once():
    store = Counting(Memory())
    state = Versioned(Repository(store))
    text = [f"line {n} of a long text" for n in range(6_000)]
    state["text"] = "\n".join(text)
    state.commit("first")
    for n in range(20):
        text[n * 300] = f"changed {n}"
        state["text"] = "\n".join(text)
        state.commit(f"{n}")
    objects = len(reached(state.repository.database.objects, references_of_tree(state.head.tree)))
    repository = Repository(store)
    store.reset()
    assert sum(part.commit.message != "first" for part in repository.blame("text")) == 20
    assert store.counts.objects_read < objects + 20 * 8


@pytest.mark.parametrize("rounds", [50, 200])
def test_many_commits_are_read_in_few_calls(rounds):
    store = Counting(Memory())
    repository = Repository(store)
    state = Versioned(repository)
    state["last"] = {f"key {n * 7919 % 2000}": n for n in range(2000)}
    numbered(state, range(rounds))
    repository = Repository(store)
    store.reset()
    assert [change.commit.message for change in repository.history("n")] == [str(n) for n in reversed(range(rounds))]
    counts = store.reset()
    assert counts.round_trips < 30 + rounds // 6
    assert counts.objects_read < 2 * rounds
    assert next(iter(Repository(store).history("n"))).commit.message == str(rounds - 1)
    assert store.reset().round_trips < 8
    assert {part.commit.message for part in Repository(store).blame("last")} == {"0"}
    # the leaves of the dict, in the order of its keys, were 200 calls
    assert store.reset().round_trips < 80 + rounds // 6


def test_what_is_read_ahead_may_have_been_pruned_and_collected_meanwhile():
    store = Memory()
    repository = Repository(store)
    state = Versioned(repository)
    numbered(state, range(60))
    reader = Repository(store)
    changes = reader.history("n")
    found = [next(changes).commit.message for _ in range(3)]
    repository.prune(keep_last=20, expire=timedelta(0))
    repository.gc(expire=timedelta(0))
    reader.database.forget()
    found += [change.commit.message for change in changes]
    assert found == [str(n) for n in reversed(range(40, 60))]


@pytest.mark.parametrize("depth", [5, 20, 37])
def test_damage_below_stops_a_history_no_earlier_than_at_the_damaged_commit(depth):
    store = Memory()
    state = Versioned(store)
    numbered(state, range(60))
    key = object_key(state.repository.commit(f"HEAD~{depth}").address)
    damage(store, key)
    found: list[str] = []
    with pytest.raises(CorruptObjectError):
        found.extend(change.commit.message for change in Repository(Wrapper(store)).history("n"))
    assert found == [str(59 - n) for n in range(depth - 1)]
    assert [part.commit.message for part in Repository(Wrapper(store)).blame("n")] == ["59"]
