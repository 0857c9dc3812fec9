"""Trees that are not canonical, as a faulty writer makes them, and the check of one commit's trees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.crafted_stores import Put, craft
from tests.support.small_nodes import Limits
from versioned_state import Commit, KVStore, Memory, Versioned
from versioned_state.objects.address import Address
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.history.commit import read_commit
from versioned_state.values.canonical import Flaw, Known, find_flaws
from versioned_state.values.trees.chunker import InnerChunker, is_open
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Node, Nodes, Shape, write_node
from versioned_state.values.trees.tree import Tree, empty


def flaws_of(store: KVStore, id: str, known: Known | None = None) -> list[Flaw]:
    """Return the nodes of a commit's trees that are not canonical."""
    objects = ObjectStore(store)
    address = Address(bytes.fromhex(id))
    return list(find_flaws(Nodes(objects), read_commit(address, objects.read(address)).tree, known=known))


@contextmanager
def keeping_replaced_nodes() -> Iterator[None]:
    """A writer with a fault: a node whose only child is replaced stays beside the node that takes its place."""

    def resume(self: InnerChunker, items: list[bytes], keys: list[bytes] | None, weight: int) -> bool:
        if not items or not is_open(items):
            return False
        self.pending = len(items)
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InnerChunker, "resume", resume)
        yield


def store_with(nodes: Nodes, root: Tree) -> Memory:
    """Return a store whose head has this root, and all that was staged for it."""

    def make(put: Put) -> tuple[int, Any]:
        for raw in nodes.staging.staged().values():
            put(raw)
        return root.count, [write_node(Shape.MAP, root.top)] if isinstance(root.top, Node) else root.top

    return craft(make)


def root_of(nodes: Nodes, cells: dict[bytes, bytes]) -> Tree:
    """Return the root of a state with these root keys."""
    return edit_map(nodes, empty(Shape.MAP), {**cells})


LONG = 19_132
"""Messages of a list whose third level has a last node with one child, in leaves of ``EARLIER_LEAVES``."""

EARLIER_LEAVES: Limits = {"values.trees.chunker": {"LEAF_LEAST": 3072, "LEAF_SCALE": 2048, "LEAF_GREATEST": 16_384}}
"""Leaves of 4.5 KB, as they were before the first release.

A list has three levels in them with a quarter of the messages.
"""


def message(number: int) -> dict[str, str]:
    return {"role": "user" if number % 2 else "assistant", "content": f"message {number} " + "words " * (number % 20)}


def with_doubled_elements(store: KVStore) -> tuple[Versioned, Commit]:
    """Return a state whose last commit has elements of a list twice, and the commit before."""
    state = Versioned(store)
    state["messages"] = [message(number) for number in range(LONG)]
    before = state.commit()
    with keeping_replaced_nodes():
        state["messages"].append(message(LONG))
        state.commit()
    return state, before
