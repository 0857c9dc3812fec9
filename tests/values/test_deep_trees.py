"""A tree grown by single appends has the nodes of one built at once, also where its last inner node has one child."""

from __future__ import annotations

from typing import Any

import pytest

from versioned_state import Memory, Versioned
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.values.trees.chunker import InnerChunker, MapLeafChunker, SequenceLeafChunker
from versioned_state.values.trees.edit import Edit, build, splice
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.tree import Tree, empty, same, top_of


def new_nodes() -> Nodes:
    staging = Staging(ObjectStore(Memory()))
    return Nodes(staging, staging=staging)


def item(shape: Shape, number: int) -> tuple[bytes, bytes | None]:
    """The cell and the key of an element: cells of 800 bytes make few of them a deep tree."""
    cell = b"\xc5\x03\x20" + b"%06d" % number + b"x" * 794
    return cell, b"%06d" % number if shape is Shape.MAP else None


def appended(nodes: Nodes, tree: Tree, number: int) -> Tree:
    cell, key = item(tree.shape, number)
    return splice(nodes, tree, [Edit(tree.count, tree.count, [cell], None, None if key is None else [key])])


def last_nodes(nodes: Nodes, tree: Tree) -> list[Node]:
    """The last inner node of each level, from the top."""
    node, found = top_of(nodes, tree), []
    while node.level:
        found.append(node)
        node = nodes.child(tree.shape, node, len(node.items) - 1)
    return found


@pytest.mark.parametrize("shape", [Shape.SEQUENCE, Shape.MAP])
def test_single_appends_give_the_tree_built_at_once(shape: Shape):
    nodes, tree = new_nodes(), empty(shape)
    only_children = heights = 0
    was_only = False
    for number in range(4_000):
        before = last_nodes(nodes, tree)
        tree = appended(nodes, tree, number)
        assert tree.count == number + 1
        # Rebuilding is dear, so it is done at the first append to a last node with one child, and where the tree grows
        # a level.
        is_only = any(len(node.items) == 1 for node in before[1:])
        grown = len(last_nodes(nodes, tree)) > len(before)
        first, was_only = is_only and not was_only, is_only
        if first or grown:
            only_children += first
            heights += grown
            cells, keys = zip(*[item(shape, n) for n in range(number + 1)], strict=True)
            whole = build(nodes, shape, 0, Edit(0, 0, list(cells), None, list(keys) if shape is Shape.MAP else None))
            assert same(tree, whole), number
    assert only_children > 10
    assert heights >= 3


@pytest.mark.parametrize("chunker", [InnerChunker, MapLeafChunker, SequenceLeafChunker])
def test_a_node_whose_only_item_was_replaced_is_open(chunker: Any):
    resumed = chunker()
    assert resumed.resume([], None, 0)
    assert resumed.pending == 0


def message(number: int) -> dict[str, str]:
    return {"role": "user" if number % 2 else "assistant", "content": f"message {number} " + "words " * (number % 20)}


def test_one_append_to_a_long_list_stores_one_element():
    state = Versioned(Memory())
    state["messages"] = [message(number) for number in range(19_132)]  # the last node of its third level has one child
    state.commit()
    state["messages"].append(message(19_132))
    state.commit()
    assert state.checkout("HEAD")["messages"] == state["messages"]
    assert len(state.diff("HEAD~1", "HEAD")) == 1
