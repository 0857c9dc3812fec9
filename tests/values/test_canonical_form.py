"""Each rule of the canonical form of trees: what the engine writes keeps all, and a tree that breaks one is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.support.canonical_form import flaws_of, keeping_replaced_nodes, root_of, store_with
from tests.support.codec import new_nodes
from tests.support.mutations import sample
from tests.support.strategies import make_large
from versioned_state import Memory, Repository, Versioned, emit, task
from versioned_state.values.canonical import Form, Known, find_flaws
from versioned_state.values.cells import Code
from versioned_state.values.keys import ENGINE, OLDER_ROUNDS, user_key
from versioned_state.values.series import EMPTY, Part, Parts, series_of
from versioned_state.values.trees.blob import write_spans
from versioned_state.values.trees.edit import Edit, build_sequence, edit_map, grow, splice
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_parts
from versioned_state.values.trees.tree import Tree, empty, iter_items, top_of


def cells(count: int, size: int = 100) -> list[bytes]:
    return [b"\xda" + size.to_bytes(2, "big") + b"%0*d" % (size, number) for number in range(count)]


def stored(nodes: Nodes, shape: Shape, node: Node) -> Tree:
    """A tree whose top is an object of its own."""
    return Tree(shape, node.count, nodes.add(shape, node))


def keys(count: int) -> list[bytes]:
    return [b"s%06d" % number for number in range(count)]


def inner_over(nodes: Nodes, tree: Tree) -> Node:
    """One inner node over all leaves of a tree of three levels."""
    top = top_of(nodes, tree)
    rows = [nodes.child(tree.shape, top, index) for index in range(len(top.items))]
    assert rows[0].level == 1
    items = [item for row in rows for item in row.items]
    return Node(1, items, [count for row in rows for count in row.counts or []])


# One broken rule each: the code of the tree's cell, the tree, and a word of the reason.

Make = Callable[[Nodes], Tree]


def an_open_leaf_in_the_middle(nodes: Nodes) -> Tree:
    items = cells(400)
    return grow(nodes, Shape.SEQUENCE, [Node(0, items[:5]), *rest_of(nodes, build_sequence(nodes, items[5:]))])


def rest_of(nodes: Nodes, tree: Tree) -> list[Node]:
    top = top_of(nodes, tree)
    return [nodes.child(tree.shape, top, index) for index in range(len(top.items))]


def a_leaf_with_a_boundary_within(nodes: Nodes) -> Tree:
    return stored(nodes, Shape.SEQUENCE, Node(0, cells(800)))


def a_leaf_of_a_map_with_a_boundary_within(nodes: Nodes) -> Tree:
    return stored(nodes, Shape.MAP, Node(0, cells(100), None, keys(100)))


def an_open_leaf_of_a_map_in_the_middle(nodes: Nodes) -> Tree:
    return grow(nodes, Shape.MAP, [Node(0, cells(3), None, keys(10)[:3]), Node(0, cells(3), None, keys(10)[3:6])])


def an_inner_node_with_a_boundary_within(nodes: Nodes) -> Tree:
    return stored(nodes, Shape.SEQUENCE, inner_over(nodes, build_sequence(nodes, cells(6000))))


def a_large_top_inlined(nodes: Nodes) -> Tree:
    return Tree(Shape.SEQUENCE, 6, Node(0, cells(6)))


def a_small_top_stored(nodes: Nodes) -> Tree:
    return stored(nodes, Shape.SEQUENCE, Node(0, cells(3)))


def a_top_with_one_child(nodes: Nodes) -> Tree:
    leaf = Node(0, cells(20))
    return Tree(Shape.SEQUENCE, 20, Node(1, [nodes.add(Shape.SEQUENCE, leaf)], [20]))


def a_set_out_of_order(nodes: Nodes) -> Tree:
    return build_sequence(nodes, cells(20)[::-1])


def a_text_cut_elsewhere(nodes: Nodes) -> Tree:
    data = b"a line\n" * 3000
    return write_spans(nodes, data, [(0, 700), (700, 9000), (9000, len(data))]).tree


def a_text_with_a_boundary_within(nodes: Nodes) -> Tree:
    data = b"".join(b"line %d\n" % number for number in range(5000))
    return write_spans(nodes, data, [(0, len(data))]).tree


def bytes_in_short_chunks(nodes: Nodes) -> Tree:
    return write_spans(nodes, bytes(100_000), [(0, 10_000), (10_000, 75_536), (75_536, 100_000)]).tree


def bytes_in_one_long_chunk(nodes: Nodes) -> Tree:
    return write_spans(nodes, bytes(100_000), [(0, 100_000)]).tree


BROKEN: list[tuple[Code, Make, str]] = [
    (Code.LIST_TREE, an_open_leaf_in_the_middle, "not the last node of its level"),
    (Code.TUPLE_TREE, an_open_leaf_in_the_middle, "not the last node of its level"),
    (Code.LIST_TREE, a_leaf_with_a_boundary_within, "a boundary is within it"),
    (Code.DICT_TREE, a_leaf_of_a_map_with_a_boundary_within, "a boundary is within it"),
    (Code.DICT_TREE, an_open_leaf_of_a_map_in_the_middle, "not the last node of its level"),
    (Code.LIST_TREE, an_inner_node_with_a_boundary_within, "a boundary is within it"),
    (Code.LIST_TREE, a_large_top_inlined, "too large"),
    (Code.LIST_TREE, a_small_top_stored, "small enough to be inlined"),
    (Code.LIST_TREE, a_top_with_one_child, "one child only"),
    (Code.SET_TREE, a_set_out_of_order, "order of their bytes"),
    (Code.FROZENSET_TREE, a_set_out_of_order, "order of their bytes"),
    (Code.TEXT, a_text_cut_elsewhere, "not the last chunk"),
    (Code.TEXT, a_text_with_a_boundary_within, "a boundary is within it"),
    (Code.BYTES_BLOB, bytes_in_short_chunks, "have not 65,536 bytes each"),
    (Code.PACKED, bytes_in_one_long_chunk, "more than 65,536"),
]


@pytest.mark.parametrize(("code", "make", "reason"), BROKEN, ids=lambda each: getattr(each, "__name__", str(each)))
@pytest.mark.parametrize("nested", [False, True])
def test_a_tree_that_breaks_a_rule_is_found(code: Code, make: Make, reason: str, *, nested: bool):
    nodes = new_nodes()
    cell = tree_cell(code, make(nodes))
    if nested:
        cell = tree_cell(Code.LIST_TREE, build_sequence(nodes, [b"\xc0", b"\x91" + cell, *cells(40)]))
    root = root_of(nodes, {user_key("a"): cell, user_key("b"): b"\x01"})
    found = list(find_flaws(nodes, root))
    assert any(reason in flaw.reason for flaw in found), found
    assert {flaw.path for flaw in found} <= {"a", "a[1]", ""}
    report = Repository(store_with(nodes, root)).fsck()
    assert not report.ok
    said = [finding for finding in report.findings if finding.problem == "not canonical" and reason in finding.error]
    assert said, report.findings
    assert said[0].path in {"a", "a[1]", ""}


def series(nodes: Nodes, count: int, start: int = 0) -> Parts:
    entries = {f"{number:06}": cells(1)[0] for number in range(start, start + count)}
    return series_of(nodes, None).extended(nodes, entries).parts


def part(tree: Tree) -> Part:
    return Part(tree, tree_cell(Code.DICT_TREE, tree))


def whole(nodes: Nodes, parts: Parts) -> Tree:
    tree = empty(Shape.MAP)
    for each in parts:
        if each.tree.count:
            leaf_keys, items = zip(*iter_items(nodes, each.tree), strict=True)
            tree = splice(nodes, tree, [Edit(tree.count, tree.count, list(items), None, list(leaf_keys))])
    return tree


def a_series_with_an_open_leaf_in_its_complete_ones(nodes: Nodes) -> Parts:
    return Parts(part(whole(nodes, series(nodes, 300))), EMPTY.last, EMPTY.newest)


def a_series_with_all_in_its_groups(nodes: Nodes) -> Parts:
    tree = whole(nodes, series(nodes, 300))
    return Parts(EMPTY.complete, part(tree), EMPTY.newest)


def a_series_whose_newest_entries_are_a_group(nodes: Nodes) -> Parts:
    found = series(nodes, 306)
    assert found.newest.tree.count
    after = edit_map(nodes, found.newest.tree, {b"s9%05d" % number: cells(1, 1000)[0] for number in range(1)})
    return found._replace(newest=part(Tree(Shape.MAP, after.count, top_of(nodes, after))))


def a_series_whose_groups_are_inlined(nodes: Nodes) -> Parts:
    found = next(parts for count in range(300, 400) if (parts := series(nodes, count)).last.tree.count)
    return found._replace(last=part(Tree(Shape.MAP, found.last.tree.count, top_of(nodes, found.last.tree))))


def a_series_whose_groups_are_incomplete(nodes: Nodes) -> Parts:
    found = next(parts for count in range(300, 400) if (parts := series(nodes, count)).last.tree.count)
    leaf = top_of(nodes, found.last.tree)
    assert leaf.keys is not None
    return found._replace(last=part(stored(nodes, Shape.MAP, Node(0, leaf.items[:-1], None, leaf.keys[:-1]))))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (a_series_with_an_open_leaf_in_its_complete_ones, "only complete leaves may be here"),
        (a_series_with_all_in_its_groups, "not a leaf"),
        (a_series_whose_newest_entries_are_a_group, "have a complete group"),
        (a_series_whose_groups_are_inlined, "are inlined, and should be an object"),
        (a_series_whose_groups_are_incomplete, "does not end with a complete group"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
@pytest.mark.parametrize("key", [ENGINE + b"events", b"nworker\0" + ENGINE + b"results"])
def test_a_series_that_breaks_a_rule_is_found(make: Callable[[Nodes], Parts], reason: str, key: bytes):
    nodes = new_nodes()
    root = root_of(nodes, {key: make(nodes).cell})
    found = list(find_flaws(nodes, root))
    assert any(reason in flaw.reason for flaw in found), found
    assert any(reason in finding.error for finding in Repository(store_with(nodes, root)).fsck().findings)


def test_a_series_of_each_length_keeps_the_rules():
    nodes, known = new_nodes(), Known()
    log = series_of(nodes, None)
    for number in range(1500):
        log = log.extended(nodes, {f"{number:06}": cells(1, 20 + number * 7919 % 400)[0]})
        root = root_of(nodes, {ENGINE + b"events": log.cell})
        assert list(find_flaws(nodes, root, known=known)) == [], number


def test_older_rounds_are_an_object_in_any_size():
    nodes = new_nodes()
    small = edit_map(nodes, empty(Shape.MAP), {b"x\x01": b"\x01"})
    assert isinstance(small.top, Node)
    good = root_of(nodes, {OLDER_ROUNDS: tree_cell(Code.DICT_TREE, stored(nodes, Shape.MAP, small.top))})
    assert list(find_flaws(nodes, good)) == []
    bad = root_of(nodes, {OLDER_ROUNDS: tree_cell(Code.DICT_TREE, small)})
    assert [flaw.reason for flaw in find_flaws(nodes, bad)] == ["the older rounds are inlined, and should be an object"]


def test_an_order_of_keys_that_is_the_sorted_one_is_found():
    nodes = new_nodes()
    entries = edit_map(nodes, empty(Shape.MAP), {b"s%03d" % number: b"\x01" for number in range(200)})
    order = [b"\xa3%03d" % number for number in range(200)]
    for keys_in_order, flawed in ((order, True), (order[::-1], False)):
        cell = tree_cell(Code.DICT_TREE, entries, *tree_parts(build_sequence(nodes, keys_in_order)))
        found = list(find_flaws(nodes, root_of(nodes, {user_key("a"): cell})))
        assert [flaw.form for flaw in found] == [Form.ORDER] * flawed


@pytest.mark.parametrize("shape", [Shape.SEQUENCE, Shape.MAP])
def test_a_node_that_is_kept_beside_the_one_that_replaced_it_is_found_where_it_is(shape: Shape):
    form = Form.LIST if shape is Shape.SEQUENCE else Form.DICT
    nodes, tree, known = new_nodes(), empty(shape), Known()
    with keeping_replaced_nodes():
        for number in range(3000):
            clean = tree.count
            cell = b"\xda\x06\x40" + b"%01600d" % number
            tree = splice(
                nodes,
                tree,
                [Edit(clean, clean, [cell], None, None if shape is Shape.SEQUENCE else [b"s%06d" % number])],
            )
            if tree.count > number + 1:
                break
            assert list(find_flaws(nodes, tree, form, known=known)) == []
    doubled = tree.count - clean - 1
    for found, levels in ((find_flaws(nodes, tree, form, known=known), {2}), (find_flaws(nodes, tree, form), {1, 2})):
        assert {(flaw.offset, flaw.level) for flaw in found} == {(clean - doubled, level) for level in levels}


def test_all_kinds_of_values_keep_the_rules():
    store, known = Memory(), Known()
    state = Versioned(store)
    kinds = (
        "list",
        "numbers",
        "dict",
        "text",
        "surrogates",
        "bytes",
        "bytearray",
        "tuple",
        "set",
        "frozenset",
        "array",
        "deque",
        "nested",
    )
    for seed, kind in enumerate(kinds):
        value = make_large(kind, 900, seed)
        state[kind] = value
        state["in a list of " + kind] = [value, {"deeper": (value, [1])}]
        state.namespace("n")[kind] = value
    state["in another order"] = {f"name {number * 7919 % 1000}": number for number in range(1000)}
    state["sample"] = sample(random.Random(1), 60)
    state["packed"] = {"a": [1] * 200, "b": "xx" * 500, "c": 1 << 100_000}
    state["long line"], state["lines"] = "x" * 100_000, "a line, of text\n" * 10_000
    for size in (65_535, 65_536, 65_537, 131_072, 3_000_000):
        state[f"bytes {size}"] = random.Random(size).randbytes(size)
    state["floats"] = np.arange(100_000.0)
    assert flaws_of(store, state.commit().id, known) == []
    for number in range(300):
        state[f"key {number}"] = number
    assert flaws_of(store, state.commit().id, known) == []
    assert state.repository.fsck().ok


@dataclass
class Step:
    number: int
    text: str


@task
def step(number: int) -> int:
    emit(Step(number, "word " * (number % 300)))
    return number


def test_events_and_results_keep_the_rules():
    store, known = Memory(), Known()
    state = Versioned(store)
    for number in range(150):
        step(number, state=state)
        assert flaws_of(store, state.head.id, known) == []


@settings(max_examples=12)
@given(st.randoms(use_true_random=False))
def test_edits_of_any_kind_keep_the_rules(rng: random.Random):
    nodes, known = new_nodes(), Known()
    shape = rng.choice([Shape.SEQUENCE, Shape.MAP])
    form = Form.LIST if shape is Shape.SEQUENCE else Form.DICT
    tree = empty(shape)
    items, names = cells(200, rng.choice([20, 400, 3000])), keys(3000)
    for _ in range(20):
        if shape is Shape.SEQUENCE:
            start = rng.choice([0, tree.count, rng.randint(0, tree.count)])
            end = min(tree.count, start + rng.choice([0, 0, 1, 50]))
            tree = splice(nodes, tree, [Edit(start, end, rng.sample(items, rng.choice([0, 1, 1, 80])))])
        else:
            changed = rng.sample(names, rng.choice([1, 1, 30, 300]))
            tree = edit_map(nodes, tree, {key: rng.choice([None, b"\x01", items[0]]) for key in changed})
        assert list(find_flaws(nodes, tree, form, known=known)) == []


def test_a_known_node_is_checked_at_each_place():
    """The open node is known from the commit before, where it is the last one."""
    nodes, known = new_nodes(), Known()
    items = cells(400)
    first = build_sequence(nodes, items[:20])
    assert list(find_flaws(nodes, first, Form.LIST, known=known)) == []
    assert isinstance(first.top, bytes)
    doubled = grow(
        nodes, Shape.SEQUENCE, [nodes.get(Shape.SEQUENCE, first.top), *rest_of(nodes, build_sequence(nodes, items))]
    )
    (flaw,) = find_flaws(nodes, doubled, Form.LIST, known=known)
    assert (flaw.address, flaw.offset, flaw.level) == (first.top.hex(), 0, 0)
