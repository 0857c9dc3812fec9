"""What a diff says is enough to make the new value of the old one, and says it the way a person would."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from tests.support.codec import new_nodes
from tests.support.exact import clone, exact, exact_data
from tests.support.long_runs import first
from tests.support.mutations import mutate, sample
from tests.support.strategies import any_values, json_values, make_large, values
from versioned_state import Diff, Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError
from versioned_state.storage import Counting
from versioned_state.storage.testing.writers import run_together
from versioned_state.values.changes import diff as diff_module
from versioned_state.values.changes.diff import CellChange, diff_maps, diff_values
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.encode.compose import Composer
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.paths.path import Index, Key, StatePath
from versioned_state.values.trees import prefetch
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.tree import empty


def check(old: Any, new: Any) -> Diff:
    """The diff from one value to another, after everything that holds of any diff was checked of it."""
    repository = Repository(Memory(), pickle="refuse")
    state = Versioned(repository)
    state["old only"] = state["value"] = old
    first = state.commit()
    del state["old only"]
    state["value"], state["new only"] = new, 1
    status = state.status()
    second = state.commit()

    diff = repository.diff(first, second)
    for way, was, now, content in (
        (repository.diff(second, first), second, first, {"old only": old, "value": old}),
        (diff, first, second, {"new only": 1, "value": new}),
    ):
        state.apply(way)
        assert exact(dict(state)) == exact(content)
        before, after = repository.snapshot(was), repository.snapshot(now)
        for change in way:
            assert (change.kind == "added") <= (change.old is None)
            assert (change.kind == "removed") <= (change.new is None)
            if change.kind == "removed":
                assert exact(before.at(change.path)) == exact(change.old)
            elif change.reordered:
                assert exact(change.new) == exact(list(after.at(change.path)))
            else:
                assert exact(after.at(change.path)) == exact(change.new)
    assert [(change.kind, str(change.path)) for change in status] == [
        (change.kind, str(change.path)) for change in diff
    ]
    assert not repository.diff(second, second)
    assert len(repository.diff(second, second)) == 0
    stat = diff.stat()
    assert stat.added + stat.removed + stat.changed == len(diff) == len(list(diff))
    # Those that join others within words and emoji are shown as they are, though they do not print.
    assert all(char.isprintable() or char in "\n\u200c\u200d" for char in str(diff))
    return Diff(repository.database.objects, first.tree, second.tree)


@given(any_values, st.integers(0, 2**32), st.integers(1, 6))
def test_applied_to_the_old_value_it_gives_the_new_one(old, seed, steps):
    rng = random.Random(seed)
    new = [clone(old), {"at": clone(old)}]
    for _ in range(steps):
        mutate(rng, new)
    check([old, {"at": clone(old)}], exact_data(new))


@given(values | json_values, values | json_values)
def test_between_values_that_have_nothing_to_do_with_each_other(old, new):
    check(old, new)


some_keys: st.SearchStrategy[Any] = st.sampled_from(["a", "b", "c", 1, True, 2.0, None])


@example({}, {"\u200c": None})
@given(st.dictionaries(some_keys, json_values), st.dictionaries(st.text(max_size=2), json_values))
def test_between_dicts(old, new):
    check(old, {**new, **old} if len(new) % 2 else {**old, **new})
    check(old, new)


@pytest.mark.parametrize("seed", first(4, range(12)))
def test_of_a_large_nested_state(seed):
    rng = random.Random(seed)
    old = sample(rng, 200)
    new = clone(old)
    for _ in range(rng.choice((1, 3, 20))):
        mutate(rng, new)
    check(old, exact_data(new))


@pytest.mark.parametrize("kind", ["list", "numbers", "dict", "text", "nested"])
def test_of_large_values(kind, long_run):
    for seed in range(10 if long_run else 1):
        rng = random.Random(seed)
        old = [make_large(kind, 2000, seed)]
        new = clone(old)
        for _ in range(4):
            mutate(rng, new)
        check(old, exact_data(new))


# The way a person would say it


def shown(old: Any, new: Any) -> list[str]:
    return [f"{change.kind} {change.path}" for change in check(old, new).under("value")]


MESSAGES = [{"n": n, "content": f"message {n} " + "x" * (n % 90)} for n in range(1000)]
WORDS = {f"key {n:04}": [n, "x" * (n % 50)] for n in range(1000)}

EDITS: dict[str, tuple[Any, Any, list[str]]] = {
    "append": (MESSAGES[:-2], MESSAGES, ["added value[998]", "added value[999]"]),
    "insert in the middle": (MESSAGES[:500] + MESSAGES[501:], MESSAGES, ["added value[500]"]),
    "insert in the middle of few": ([1, 2, 3, 4], [1, 2, 9, 3, 4], ["added value[2]"]),
    "insert at the start": (MESSAGES[1:], MESSAGES, ["added value[0]"]),
    "delete in the middle": (MESSAGES, MESSAGES[:500] + MESSAGES[501:], ["removed value[500]"]),
    "delete and insert": (
        MESSAGES,
        [*MESSAGES[:100], *MESSAGES[101:900], "new", *MESSAGES[900:]],
        ["removed value[100]", "added value[899]"],
    ),
    "change deep inside": (MESSAGES, [*MESSAGES[:7], {**MESSAGES[7], "n": "x"}, *MESSAGES[8:]], ["changed value[7].n"]),
    "add a field deep inside": (
        MESSAGES,
        [*MESSAGES[:7], {**MESSAGES[7], "z": 1}, *MESSAGES[8:]],
        ["added value[7].z"],
    ),
    "change one entry": (WORDS, {**WORDS, "key 0500": 1}, ['changed value["key 0500"]']),
    "add an entry": (WORDS, {**WORDS, "new": 1}, ["added value.new"]),
    "remove an entry": (
        WORDS,
        {key: value for key, value in WORDS.items() if key != "key 0007"},
        ['removed value["key 0007"]'],
    ),
    "order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ["changed value"]),
    "order of many": (WORDS, dict(reversed(WORDS.items())), ["changed value"]),
    "type only": (
        [1, (2,), b"a"],
        [True, [2], bytearray(b"a")],
        ["changed value[0]", "changed value[1]", "changed value[2]"],
    ),
    "key of another type": ({1: "a"}, {True: "a"}, ["removed value{1}", "added value{True}"]),
    "list to dict": ([1], {"a": 1}, ["changed value"]),
    "small to large": ([MESSAGES[0]], MESSAGES, [f"added value[{n}]" for n in range(1, 1000)]),
    "large to small": (MESSAGES[:300], MESSAGES[:1], [f"removed value[{n}]" for n in range(1, 300)]),
}


@pytest.mark.parametrize("name", EDITS)
def test_shown_as_a_person_would(name):
    old, new, expected = EDITS[name]
    assert shown(old, new) == expected


def test_a_dicts_order_shows_the_keys():
    (change,) = check({"a": 1, "b": 2, "c": 3}, {"c": 3, "a": 1, "b": 2}).under("value")
    assert change.reordered
    assert (change.old, change.new) == (["a", "b", "c"], ["c", "a", "b"])
    assert str(change) == "~ value keys in another order: ['c', 'a', 'b']"


@pytest.mark.parametrize("lines", [5, 3000])
def test_text_changes_by_line(lines):
    old = "".join(f"line {n}\n" for n in range(lines))
    new = old.replace("line 3\n", "line three\nline three and a half\n")
    (change,) = check(old, new).under("value")
    assert change.lines() == [("@", "line 4"), ("-", "line 3"), ("+", "line three"), ("+", "line three and a half")]
    assert str(change).splitlines()[1:] == [
        "    @ line 4",
        "    - line 3",
        "    + line three",
        "    + line three and a half",
    ]
    assert (change.old, change.new) == (old, new)


def test_shown_on_one_line_each_without_control_characters():
    state = Versioned()
    state["a"] = "\x1b[31mred\x07\n\r" * 1000
    state["b"] = ["\x1b]0;title\x07", {"\x1b": b"\x1b"}]
    state["c"] = np.zeros(5000)
    lines = str(state.status()).splitlines()
    assert [line[:5] for line in lines] == ["+ a =", "+ b =", "+ c ="]
    assert all(len(line) < 200 and line.isprintable() for line in lines)


def test_huge_ints_can_be_shown():
    diff = check([1], [10**6000, {10**6000: -(10**6000)}])
    assert all(len(line) < 300 for line in str(diff).splitlines())


@given(any_values)
def test_in_json(value):
    state = Versioned()
    state["value"] = value
    (entry,) = state.status().to_json()
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry


def test_values_in_json_never_pass_for_others():
    state = Versioned()
    state["v"] = [b"a", (1,), {1}, float("nan"), 1 + 2j, {1: 2}, {"$bytes": "YQ=="}]
    (entry,) = state.status().to_json()
    parts = [json.dumps(part) for part in entry["new"]]
    assert len(set(parts)) == len(parts)
    assert json.loads(json.dumps(entry)) == entry


def test_under_a_path():
    diff = check({"a": {"b": [1, 2]}, "ab": 1}, {"a": {"b": [1, 3], "c": 4}, "ab": 2})
    assert [str(change.path) for change in diff.under("value.a")] == ["value.a.b[1]", "value.a.c"]
    assert diff.under("value.a.b[1]")[0].path.steps[-1] == Index(1)
    assert not diff.under("value.x")
    assert diff.under("value.ab")[0].path.steps[-1] == Key("ab")


def test_stat_by_key():
    state = Versioned()
    state["a"], state["b"] = [1, 2], {"x": 1}
    state.namespace("n")["c"] = 1
    first = state.commit()
    state["a"].append(3)
    state["a"][0] = 0
    del state["b"]
    state.namespace("n")["c"] = 2
    stat = state.diff(first).stat()
    assert (stat.added, stat.removed, stat.changed) == (1, 1, 2)
    assert stat.keys == {"a": (1, 0, 1), "b": (0, 1, 0), "@n.c": (0, 0, 1)}
    assert str(stat).splitlines()[-1] == "3 keys: 1 added, 1 removed, 2 changed"


# Cost


def cost(old: Any, new: Any) -> int:
    """Objects read to find what changed, without reading any value."""
    store = Counting(Memory())
    state = Versioned(store)
    state["value"] = old
    first = state.commit()
    state["value"] = new
    second = state.commit()
    repository = Repository(store)
    first, second = repository.commit(first.id), repository.commit(second.id)
    store.reset()
    assert len(repository.diff(first, second)) < 10
    return store.counts.objects_read


@pytest.mark.parametrize(
    "name", ["append", "insert in the middle", "change deep inside", "change one entry", "add an entry"]
)
def test_the_cost_follows_the_change(name):
    old, new, _ = EDITS[name]
    assert cost(old, new) < 25
    many = (
        [old] * 20 if isinstance(old, list) else {f"{n} {key}": value for n in range(20) for key, value in old.items()}
    )
    more = [*many[:-1], new] if isinstance(many, list) else {**many, "0 key 0500": 1}
    assert cost(many, more) < 50


# The two ways in which maps are compared: all that differs at once, or one path down each


@pytest.mark.parametrize("sizes", [(0, 0), (0, 1), (3, 3), (3, 4000), (4000, 0), (4000, 4000)])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_maps_are_compared_alike_in_both_ways(sizes, share, monkeypatch):
    rng = random.Random(str((sizes, share)))
    nodes = new_nodes()
    old = {f"k{rng.randrange(10**6):06}".encode(): b"\xa1a" for _ in range(sizes[0])}
    new = {key: cell for key, cell in old.items() if rng.random() < share}
    new |= dict.fromkeys(rng.sample(sorted(new), len(new) // 50), b"\xa1b")
    while len(new) < sizes[1]:
        new[f"k{rng.randrange(10**6):06}".encode()] = b"\xa1c"
    a, b = (edit_map(nodes, empty(Shape.MAP), dict(each)) for each in (old, new))
    expected = [
        (key, old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
    ]
    for most in (10**6, 0):
        monkeypatch.setattr(prefetch, "_MOST", most)
        assert list(diff_maps(nodes, a, b)) == expected


def changes_of(old: bytes, new: bytes) -> list[CellChange] | str:
    """The changes between two inline cells, or the error."""
    try:
        return list(diff_values(Composer(new_nodes()), old, new, StatePath()))
    except CorruptObjectError as error:
        return str(error)


def assert_compared_alike(old: bytes, new: bytes) -> None:
    """Two cells are compared as if every dict were a tree of its entries, and every scalar perhaps one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff_module, "_changed_entries", lambda *_: None)
        patch.setattr(diff_module, "_PLAIN", ())
        expected = changes_of(old, new)
    assert changes_of(old, new) == expected


@given(st.dictionaries(some_keys, any_values, max_size=6), st.integers(0, 2**32), st.integers(1, 4))
def test_small_dicts_are_compared_alike_in_both_ways(old, seed, steps):
    new = clone(old)
    rng = random.Random(seed)
    for _ in range(steps):
        mutate(rng, new)
    encoder = InlineEncoder(PicklePolicy("allow", private=True))
    assert_compared_alike(encoder.encode_inline(old), encoder.encode_inline(exact_data(new)))


A, LONG_A, NAN = b"\xa1a", b"\xd9\x01a", b"\xcb\x7f\xf8" + bytes(6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\x82" + NAN + b"\x01" + NAN + b"\x02", b"\x82" + NAN + b"\x01" + NAN + b"\x03"),
        (b"\x82" + A + b"\x01" + LONG_A + b"\x02", b"\x82" + A + b"\x01" + LONG_A + b"\x03"),
        (b"\x81" + A + b"\x01", b"\x81" + LONG_A + b"\x01"),
        (b"\x82" + A + b"\x01\xa1b\x02", b"\x82\xa1b\x02" + A + b"\x01"),
        (b"\x82\xa1b\x01" + A + b"\x02", b"\x82\xa1b\x03" + A + b"\x04"),
        (b"\x82" + A + b"\x01", b"\x81" + A + b"\x01"),
        (b"\x81" + A + b"\x01", b"\x81" + A + b"\xd4"),
        (b"\x81\xa1", b"\x81\xa2"),
        (b"\x81" + A + b"\x01", b"\x01"),
        (b"\x81" + A + b"\x01", b"\x81" + A + b"\xca\x3f\x80\x00\x00"),
        (b"\xc1", b"\x01"),
    ],
)
def test_cells_that_few_writers_write_are_compared_alike_in_both_ways(old, new):
    """Keys that are equal, in other forms, in another order; dicts that end too early."""
    assert_compared_alike(old, new)


def test_threads_share_what_was_read():
    state = Versioned()
    commits = []
    for n in range(15):
        state.update({f"k{rng:05}": n for rng in range(n, 6_000, 37)})
        commits.append(state.commit())
    repository = Repository(state.repository.store)

    def compare(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            at = rng.randrange(14)
            assert len(repository.diff(commits[at], commits[at + 1])) == len(range(at + 1, 6_000, 37))

    run_together(partial(compare, seed) for seed in range(4))
