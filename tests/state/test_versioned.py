"""A state is a dict: its methods, its rounds, its namespaces and sequences, and ``Live``, which is the same without rounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from versioned_state import Commit, Live, Memory, OnMoved, Repository, Snapshot, State, StatePath, StateSequence, Versioned
from versioned_state.errors import BranchMovedError, MergeConflictError, TransactionError
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.merging.merge import MISSING
from versioned_state.storage import Counting


class UndoError(Exception):
    pass


STATES: dict[str, Callable[[], State]] = {
    "Versioned": Versioned,
    "namespace": lambda: Versioned().namespace("a").namespace("b"),
    "Live": Live,
    "namespace of Live": lambda: Live().namespace("a"),
}


@pytest.mark.parametrize("name", STATES)
def test_it_is_a_dict(name):
    state = STATES[name]()
    model: dict[str, Any] = {}
    assert isinstance(state, MutableMapping)
    for mapping in (state, model):
        mapping["b"] = [1]
        mapping["a"] = 2
        mapping.update({"c": 3}, d=4)
        assert mapping.setdefault("e", 5) == 5
        assert mapping.setdefault("a", 9) == 2
        assert mapping.pop("d") == 4
        assert mapping.pop("d", None) is None
        del mapping["c"]
        assert mapping.get("x", "default") == "default"
        assert "a" in mapping
        assert "x" not in mapping
        mapping |= {"z": 26}
    assert dict(state) == model
    assert list(state) == list(state.keys()) == sorted(model)
    assert list(state.items()) == sorted(model.items())
    assert list(state.values()) == [model[key] for key in sorted(model)]
    assert len(state) == len(model)
    assert state == model
    assert state | {"y": 1} == {**model, "y": 1}
    assert type(state | {}) is dict
    assert state.copy() == model
    assert state.copy()["b"] is state["b"], "the values are not copied"
    assert list(state.iter_keys("a")) == ["a"]
    with pytest.raises(KeyError, match="x"):
        state.pop("x")
    state.clear()
    assert not state
    assert list(state) == []


@pytest.mark.parametrize("name", STATES)
def test_keys_come_in_the_order_of_their_characters(name):
    state = STATES[name]()
    keys = ["", "\0", "a", "a\0", "a.b", "aa", "b", "é", "\ud7ff", "\ud800", "\ue000", "\U0001f600", "~", "A"]
    for key in reversed(keys):
        state[key] = key
    assert list(state) == sorted(keys)
    assert [key for key in sorted(keys) if key.startswith("a")] == list(state.iter_keys("a"))
    assert all(state[key] == key for key in keys)


def test_keys_added_and_removed_over_committed_ones():
    state = Versioned()
    for n in range(0, 300, 2):
        state[f"{n:03}"] = n
    state.commit()
    expected = {f"{n:03}": n for n in range(0, 300, 2)}
    for n in range(0, 300, 3):
        state[f"{n:03}"] = expected[f"{n:03}"] = -n
    for n in range(0, 300, 10):
        del state[f"{n:03}"], expected[f"{n:03}"]
    for _ in range(2):
        assert list(state) == sorted(expected)
        assert len(state) == len(expected)
        assert list(state.iter_keys("01")) == sorted(key for key in expected if key.startswith("01"))
        assert all((f"{n:03}" in state) == (f"{n:03}" in expected) for n in range(300))
        assert dict(state.checkout(state.commit())) == expected


def test_a_key_that_is_deleted_and_set_again():
    state = Versioned()
    state["k"], state["l"] = [1], [2]
    state.commit()
    for again in ([1], [3], None):
        del state["k"]
        assert (len(state), list(state), "k" in state) == (1, ["l"], False)
        state["k"] = again
        assert (len(state), list(state), "k" in state) == (2, ["k", "l"], True)
        assert bool(state.status()) == (again != [1])
        state.discard()
        assert dict(state) == {"k": [1], "l": [2]}


def test_the_state_may_change_while_it_is_walked():
    state = Versioned()
    state.update({str(n): n for n in range(50)})
    state.commit()
    for key in state:
        del state[key]
        state[key + "!"] = 1
    assert list(state) == sorted(f"{n}!" for n in range(50))


# Rounds


def test_a_round(state_with_rounds):
    state, first, second = state_with_rounds
    assert state.head == second
    assert second.parents == (first.id,)
    assert first.parents == (ROOT_ID,)
    assert (first.message, second.message) == ("one", "two")
    assert (first.author, second.author) == ("me", "you")
    assert (dict(first.meta), dict(second.meta)) == ({}, {"step": 2, "tool": (1, None)})
    assert (first.generation, second.generation) == (1, 2)
    assert second.short == second.id[:12]
    assert second.datetime.timestamp() == pytest.approx(second.time / 1e6)
    assert first == Repository(state.repository.store).read(first.id)
    assert first != second
    assert len({first, state.repository.read(first.id)}) == 1
    with pytest.raises(AttributeError):
        first.message = "other"
    assert [commit.message for commit in state.log()] == ["two", "one"]
    assert [commit.message for commit in state.log(limit=1)] == ["two"]
    assert [commit.message for commit in state.log(first)] == ["one"]


@pytest.fixture
def state_with_rounds() -> tuple[Versioned, Commit, Commit]:
    clock = iter(range(1_700_000_000_000_000, 2**60, 1_000_001))
    state = Versioned(author="me", clock=lambda: next(clock))
    state["a"] = [1]
    first = state.commit("one")
    state["a"].append(2)
    return state, first, state.commit("two", author="you", meta={"step": 2, "tool": (1, None)})


def test_the_past_of_a_commit_does_not_change(state_with_rounds):
    state, _, second = state_with_rounds
    second.meta["step"] = 99
    second.meta["new"] = 1
    again = Repository(state.repository.store)
    for commit in (state.repository.read(second.id), next(state.log()), state.repository.commit("main"), again.read(second.id)):
        assert dict(commit.meta) == {"step": 2, "tool": (1, None)}


def test_nothing_changed_is_no_round(state_with_rounds):
    state, _, second = state_with_rounds
    assert state.commit("nothing") == second
    assert state.commit("asked for", allow_empty=True).parents == (second.id,)
    assert state.head.message == "asked for"
    assert state.head.root == second.root
    assert not state.diff(second, state.head)


def test_an_empty_commit_on_a_moved_branch_is_made_too():
    for on_moved in (OnMoved.MERGE, OnMoved.REPLACE):
        repository = Repository()
        a, b = Versioned(repository), Versioned(repository)
        theirs = a.commit("theirs", allow_empty=True)
        ours = b.commit("ours", allow_empty=True, on_moved=on_moved)
        assert ours.message == "ours"
        assert ours.parents == (theirs.id,)


@pytest.mark.parametrize(
    ("change", "summary"),
    [
        (lambda s: s["messages"].extend([1, 2]), "messages +2"),
        (lambda s: s["messages"].pop(), "messages -1"),
        (lambda s: s["messages"].__setitem__(0, "x"), "messages"),
        (lambda s: s.__setitem__("new", 1), "new added"),
        (lambda s: s.__delitem__("step"), "step removed"),
        (lambda s: (s["messages"].append(1), s.__setitem__("step", 2)), "messages +1, step"),
        (lambda s: s.update({f"k{n}": n for n in range(9)}), "k0 added, k1 added, k2 added, k3 added, k4 added, and 4 more"),
        (lambda s: s.sequence("long").extend([1, 2, 3]), "long +3"),
        (lambda s: s.namespace("n").__setitem__("k", 1), "@n.k added"),
        (lambda s: s.__setitem__("odd key", 1), '["odd key"] added'),
        (lambda s: None, "no change"),
    ],
)
def test_the_message_of_a_round_that_was_given_none(change, summary):
    first = Versioned()
    first["messages"], first["step"], first["long"] = [1, 2], 1, ["x" * 100] * 100
    first.commit()
    state = Versioned(first.repository)
    change(state)
    assert state.commit(allow_empty=True).message == summary


def test_a_summary_stays_short():
    state = Versioned()
    for n in range(6):
        state[f"{n}" + "k" * 4_000] = 1
    assert len(state.commit().message) < 1000


def test_views_of_the_past(state_with_rounds):
    state, first, second = state_with_rounds
    past = state.checkout(first)
    assert isinstance(past, Snapshot)
    assert issubclass(Snapshot, Mapping)
    assert (past["a"], state["a"]) == ([1], [1, 2])
    assert past.commit == first
    assert dict(past) == {"a": [1]} == past.copy()
    assert len(past) == 1
    assert first.short in repr(past)
    for revision in (first.id, first.short, "HEAD~1", "main~", first):
        assert state.checkout(revision)["a"] == [1]
    assert state.head == second
    assert past.keys_at("a") == 1
    assert state.checkout(second).at("a[-1]") == 2


def test_diffs(state_with_rounds):
    state, first, second = state_with_rounds
    assert [str(change) for change in state.diff(first, second)] == ["+ a[1] = 2"]
    assert [str(change) for change in state.diff(second, first)] == ["- a[1] = 2"]
    state["a"].append(3)
    assert [str(change) for change in state.diff(first)] == ["+ a[1] = 2", "+ a[2] = 3"]
    assert [str(change) for change in state.diff("HEAD")] == ["+ a[2] = 3"] == [str(change) for change in state.status()]
    assert not state.diff(first, first)


def test_a_handle_opened_again_stands_at_the_head(state_with_rounds):
    state, _, second = state_with_rounds
    again = Versioned(state.repository.store)
    assert again.head == second
    assert dict(again) == {"a": [1, 2]}
    assert not again.status()
    other = Versioned(state.repository.store, branch="other")
    assert dict(other) == {}
    assert other.head.id == ROOT_ID
    assert "other" not in state.repository.branches, "a branch begins with its first commit"
    assert "main" in repr(state)


def test_discard_and_reset(state_with_rounds):
    state, first, second = state_with_rounds
    state["a"].append(3)
    state["b"] = 1
    state.discard()
    assert dict(state) == {"a": [1, 2]}
    state["a"].append(3)
    assert state.reset(first) == first == state.head
    assert dict(state) == {"a": [1]}
    assert state.repository.branches["main"] == first
    assert state.reset("main@{1}") == second
    assert dict(state) == {"a": [1, 2]}


# Several handles on one branch


def two(**content: Any) -> tuple[Versioned, Versioned]:
    a = Versioned(author="a")
    a.update(content)
    a.commit("base")
    return a, Versioned(a.repository, author="b")


def test_different_keys_merge():
    a, b = two(x=[1], y=[1], z=1)
    a["x"].append(2)
    theirs = a.commit("theirs")
    b["y"].append(2)
    b["new"] = 1
    del b["z"]
    ours = b.commit("ours")
    assert ours.parents == (theirs.id,)
    assert dict(b) == {"x": [1, 2], "y": [1, 2], "new": 1} == dict(b.checkout(ours))
    assert not b.status()
    assert a["y"] == [1], "a has not looked yet"
    assert a.refresh() == ours
    assert dict(a) == dict(b)


CONFLICTS: dict[str, tuple[Callable[[Versioned], Any], Callable[[Versioned], Any], tuple[Any, Any, Any]]] = {
    "both changed": (lambda s: s["x"].append(2), lambda s: s["x"].append(3), ([1], [1, 3], [1, 2])),
    "ours removed": (lambda s: s["x"].append(2), lambda s: s.__delitem__("x"), ([1], MISSING, [1, 2])),
    "theirs removed": (lambda s: s.__delitem__("x"), lambda s: s["x"].append(3), ([1], [1, 3], MISSING)),
    "both added": (lambda s: s.__setitem__("n", 1), lambda s: s.__setitem__("n", 2), (MISSING, 2, 1)),
    "type only": (lambda s: s.__setitem__("x", (1,)), lambda s: s.__setitem__("x", {1}), ([1], {1}, (1,))),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_the_same_key_is_a_conflict_and_nothing_is_lost(name):
    theirs, ours, sides = CONFLICTS[name]
    a, b = two(x=[1], y=[1])
    theirs(a)
    a["y"].append("theirs")
    head = a.commit()
    ours(b)
    b["z"] = "staged"
    before = (b.copy(), str(b.status()), b.head)
    for call in (b.commit, b.refresh, lambda: b.commit(on_moved=OnMoved.MERGE)):
        with pytest.raises(MergeConflictError, match="main") as caught:
            call()
        (conflict,) = caught.value.conflicts
        assert (conflict.base, conflict.ours, conflict.theirs) == sides
        assert str(conflict.path) in str(caught.value)
        assert (b.copy(), str(b.status()), b.head) == before
    assert a.repository.branches["main"] == head
    # The way out that the hint names.
    b.discard()
    b.refresh()
    assert dict(b) == dict(a)


def test_the_same_change_on_both_sides_is_no_conflict():
    a, b = two(x=[1], y=[1])
    for state in (a, b):
        state["x"].append(2)
        state["n"] = {"k": 1}
        del state["y"]
    a.commit()
    b.commit()
    assert dict(a.checkout("main")) == dict(b) == {"x": [1, 2], "n": {"k": 1}}
    assert not b.status()


def test_refusing_to_merge():
    a, b = two(x=1)
    a["x"] = 2
    a.commit()
    b["y"] = 1
    with pytest.raises(BranchMovedError) as caught:
        b.commit(on_moved=OnMoved.REFUSE)
    assert (caught.value.branch, caught.value.actual) == ("main", a.head.id)
    assert dict(b) == {"x": 1, "y": 1}
    assert len(b.status()) == 1
    b.refresh()
    assert b.commit(on_moved=OnMoved.REFUSE).parents == (a.head.id,)
    assert dict(b) == {"x": 2, "y": 1}


def test_a_record_that_moved_to_where_it_was_has_not_moved():
    a, b = two(x=1)
    head = a.head
    a.reset("HEAD~1")
    a.reset(head)
    b["y"] = 1
    assert b.commit(on_moved=OnMoved.REFUSE).parents == (head.id,)
    repository = Repository()
    state = Versioned(repository)
    repository.branches.create("main", state.head)
    state["a"] = 1
    assert state.reset(state.head) == state.head
    state["a"] = 1
    assert state.commit(on_moved=OnMoved.REFUSE).generation == 1


def test_replacing():
    a, b = two(x=[1], y=1)
    a["x"].append("theirs")
    a["theirs"] = 1
    theirs = a.commit()
    b["y"] = 2
    ours = b.commit(on_moved=OnMoved.REPLACE)
    assert ours.parents == (theirs.id,)
    assert dict(b) == {"x": [1], "y": 2} == dict(b.checkout(ours))
    assert not b.status()


@pytest.mark.parametrize("on_moved", OnMoved)
def test_on_moved_by_its_value(on_moved):
    results: list[dict[str, Any] | None] = []
    for given in (on_moved, on_moved.value):
        a = Versioned()
        b = Versioned(a.repository)
        a["theirs"] = b["ours"] = 1
        a.commit()
        try:
            b.commit(on_moved=given)
        except BranchMovedError:
            results.append(None)
        else:
            results.append(dict(b.checkout("HEAD")))
    assert results[0] == results[1] == {"merge": {"theirs": 1, "ours": 1}, "refuse": None, "replace": {"ours": 1}}[on_moved.value]


def test_an_unknown_keyword_names_the_public_call():
    state: Any = Versioned()
    with pytest.raises(TypeError, match=r"^Versioned\.commit\(\) got an unexpected keyword argument 'colour'"):
        state.commit(colour="red")
    with (
        pytest.raises(TypeError, match=r"^Versioned\.transaction\(\) got an unexpected keyword argument 'colour'"),
        state.transaction(colour=1),
    ):
        pass


def test_a_branch_that_was_deleted_meanwhile_is_no_state_to_merge_with():
    a, b = two(x=1)
    a.repository.branches.delete("main", force=True)
    b["y"] = 1
    with pytest.raises(BranchMovedError):
        b.commit("again")
    a.repository.branches.create("main", b.head)
    b.commit("again")
    assert dict(Versioned(a.repository)) == {"x": 1, "y": 1}


# Transactions


def test_a_transaction_is_one_round():
    state = Versioned()
    state["a"] = [1]
    with state.transaction("all of it", author="me", meta={"k": 1}) as inner:
        assert inner is state
        state["a"].append(2)
        state["b"] = 1
    assert (state.head.message, state.head.author, dict(state.head.meta)) == ("all of it", "me", {"k": 1})
    assert state.head.generation == 1
    with state.transaction("nothing"):
        pass
    assert state.head.generation == 1


def test_a_transaction_that_fails_is_undone_and_what_was_staged_before_is_there_still():
    state = Versioned()
    state["a"] = [1]
    state.commit()
    state["a"].append("before")
    state["staged"] = staged = {"k": 1}
    state.sequence("seq").append("before")
    before = str(state.status())
    with suppress(UndoError), state.transaction("never"):
        state["a"].append("inside")
        state["staged"] = 5
        state["new"] = 1
        state.sequence("seq").append("inside")
        del state["a"]
        raise UndoError
    assert dict(state) == {"a": [1, "before"], "staged": {"k": 1}, "seq": ["before"]}
    assert state["staged"] is staged
    assert str(state.status()) == before
    assert state.commit().generation == 2


@pytest.mark.parametrize("looked_at", [True, False])
@pytest.mark.parametrize("by", ["rollback", "discard"])
def test_a_key_that_was_deleted_and_begun_anew_as_a_sequence_is_undone(by, looked_at):
    state = Versioned()
    state["a"] = [1]
    state.commit()
    with suppress(UndoError), state.transaction() if by == "rollback" else nullcontext():
        del state["a"]
        state.sequence("a").append(2)
        if looked_at:
            assert dict(state) == {"a": [2]}
        raise UndoError
    if by == "discard":
        state.discard()
    assert (list(state), len(state), dict(state)) == (["a"], 1, {"a": [1]})
    assert not state.status()


def test_transactions_within_one_another():
    state = Versioned()
    with state.transaction("outer"):
        state["a"] = 1
        with state.transaction("inner"):
            state["b"] = 2
        assert state.head.id == ROOT_ID, "the outer one commits"
        with suppress(UndoError), state.transaction("inner"):
            state["a"] = 5
            state["c"] = 3
            raise UndoError
        assert dict(state) == {"a": 1, "b": 2}
    assert dict(state.checkout("HEAD")) == {"a": 1, "b": 2}
    assert state.head.message == "outer"


def test_what_cannot_be_undone_is_refused_within_a_transaction():
    state = Versioned()
    state["a"] = 1
    state.commit()
    with state.transaction("t"):
        state["a"] = 2
        for call in (state.commit, state.refresh, state.discard, lambda: state.reset("HEAD")):
            with pytest.raises(TransactionError, match="transaction"):
                call()
        assert len(state.status()) == 1
    assert state.head.message == "t"
    state.discard()


def test_a_transaction_whose_commit_conflicts_is_undone():
    a, b = two(x=1, y=[1])
    held = b["y"]
    a["x"] = 2
    a.commit()

    def work() -> None:
        with b.transaction():
            b["x"] = 3
            b["y"].append(2)

    with pytest.raises(MergeConflictError):
        work()
    assert dict(b) == {"x": 1, "y": [1]}
    assert b["y"] is held
    assert not b.status()


# Namespaces


def test_namespaces_never_meet():
    state = Versioned()
    state["user/1"] = "slash"
    state["n"] = "top"
    state.namespace("user")["1"] = "namespace"
    state.namespace("user").namespace("1")["x"] = "deep"
    state.namespace("user/1")["x"] = "other"
    state.namespace("n")["n"] = "inner"
    assert dict(state) == {"n": "top", "user/1": "slash"}
    commit = state.commit()
    for top in (state, state.checkout(commit), Versioned(state.repository)):
        assert dict(top.namespace("user")) == {"1": "namespace"}
        assert dict(top.namespace("user").namespace("1")) == {"x": "deep"}
        assert dict(top.namespace("user/1")) == {"x": "other"}
        assert dict(top.namespace("nothing")) == {}
        assert len(top) == 2
        assert len(top.namespace("n")) == 1
    assert state.checkout(commit).namespaces() == ["n", "user", "user/1"]
    assert state.checkout(commit).namespace("user").namespaces() == ["1"]
    assert [str(change.path) for change in state.diff(commit, "HEAD~1").under(StatePath().namespace("user"))] == [
        '@user["1"]',
        '@user.@"1".x',
    ]


def test_a_namespace_is_part_of_the_states_rounds():
    state = Versioned()
    space = state.namespace("worker")
    space["list"] = [1]
    state.commit()
    space["list"].append(2)
    with suppress(UndoError), state.transaction():
        space["list"].append(3)
        space["other"] = 1
        raise UndoError
    assert dict(space) == {"list": [1, 2]}
    state.discard()
    assert dict(space) == {"list": [1]}
    space.sequence("list").append(5)
    assert space["list"] == [1, 5]


# Sequences

SIZES = (0, 1, 5, 100, 3000)


@pytest.mark.parametrize("size", SIZES)
def test_a_sequence_reads_like_the_list(size):
    expected = [{"n": n, "x": "x" * (n % 40)} for n in range(size)]
    first = Versioned()
    first["list"] = expected
    first.commit()
    for state in (first, Versioned(first.repository)):
        sequence = state.sequence("list")
        assert isinstance(sequence, StateSequence)
        assert len(sequence) == size
        assert list(sequence) == expected
        assert list(reversed(sequence)) == expected[::-1]
        for start, stop, step in itertools.product((None, 0, 2, -3, size), (None, 1, 7, -1, size + 9), (None, 1, 3, -1, -2)):
            assert sequence[start:stop:step] == expected[start:stop:step]
        for index in {0, -1, size // 2, size - 1} if size else ():
            assert sequence[index] == expected[index]
        for index in (size, -size - 1):
            with pytest.raises(IndexError):
                sequence[index]
        if size:
            assert expected[size // 2] in sequence
            assert sequence.index(expected[-1]) == expected.index(expected[-1])
            assert sequence.count(expected[0]) == expected.count(expected[0])


@pytest.mark.parametrize("size", SIZES)
def test_a_sequence_appends_without_loading_the_list(size):
    first = Versioned()
    first["list"] = [{"n": n} for n in range(size)]
    first.commit()
    store = Counting(first.repository.store)
    state = Versioned(store)
    sequence = state.sequence("list")
    sequence.append("a")
    sequence.extend(["b", {"c": 1}])
    assert len(sequence) == size + 3
    assert sequence[size:] == ["a", "b", {"c": 1}]
    assert sequence[-1] == {"c": 1}
    commit = state.commit()
    assert len(sequence) == size + 3
    sequence.append("later")
    assert len(sequence) == size + 4
    assert state.checkout(commit)["list"] == [*({"n": n} for n in range(size)), "a", "b", {"c": 1}]
    state.discard()
    assert len(sequence) == size + 3
    same = Versioned()
    same["list"] = first.checkout(commit)["list"]
    assert same.commit().root == commit.root, "canonical, however it came about"
    if size == 3000:
        assert store.counts.objects_read < 40


def test_a_sequence_of_a_key_that_is_not_there_yet():
    state = Versioned()
    sequence = state.sequence("new")
    assert list(sequence) == []
    assert "new" not in state
    sequence.append(1)
    assert "new" in state
    assert dict(state) == {"new": [1]}
    assert state.checkout(state.commit())["new"] == [1]
    other = Versioned(state.repository)
    lazily = other.sequence("new")
    lazily.append(2)
    del other["new"]
    assert list(lazily) == []
    lazily.append(3)
    assert other["new"] == [3]
    assert other.checkout(other.commit())["new"] == [3]


def test_a_sequence_and_its_list_are_one():
    state = Versioned()
    state["list"] = [1]
    state.commit()
    other = Versioned(state.repository)
    sequence = other.sequence("list")
    sequence.append(2)
    live = other["list"]
    assert live == [1, 2]
    sequence.append(3)
    live.append(4)
    assert live == [1, 2, 3, 4] == list(sequence)
    assert [str(change) for change in other.status()] == ["+ list[1] = 2", "+ list[2] = 3", "+ list[3] = 4"]


def test_a_sequence_after_others_appended():
    a, b = two(list=[1])
    b.sequence("list")
    a["list"].append(2)
    a.commit()
    sequence = b.sequence("list")
    b.refresh()
    assert list(sequence) == [1, 2]
    sequence.append(3)
    assert b.checkout(b.commit())["list"] == [1, 2, 3]


# Live


def test_live_takes_anything_and_commits_nothing():
    live = Live()
    live["socket"] = thing = object()
    assert live["socket"] is thing
    live.namespace("n")["k"] = 1
    assert dict(live.namespace("n")) == {"k": 1}
    assert list(live) == ["socket"]
    assert not hasattr(live, "commit")
    assert repr(live)


# Several branches over one repository


def test_branches_share_what_is_equal():
    repository = Repository(Memory())
    main = Versioned(repository)
    main["list"] = list(range(5000))
    main.commit()
    repository.branches.create("side", "main")
    side = Versioned(repository, branch="side")
    side["list"].append(1)
    side["only"] = 1
    side.commit("side")
    assert len(main["list"]) == 5000
    assert "only" not in main
    assert repository.merge_base("main", "side") == main.head
    assert [str(change.path) for change in repository.diff("main", "side")] == ["list[5000]", "only"]
