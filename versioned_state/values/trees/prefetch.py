"""Nodes read before the walk that needs them: one call of the store a level, instead of one a node. Layer: values.

This only saves calls: a walk reads by itself the nodes that it does not find in the cache.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from versioned_state.values.trees.nodes import Node, Nodes, Shape

_MOST: Final = 256
"""Nodes of one level up to which they are read ahead: some levels of them fit in the cache of ``Nodes``."""


def fetch_difference(
    nodes: Nodes, shape: Shape, a: Node | bytes, b: Node | bytes
) -> tuple[list[Node], list[Node]] | None:
    """Read into the cache the nodes that two trees, given by their tops, do not share.

    Cost: those nodes, in one call for each level.

    Returns the leaves of the first and those of the second tree, or None if there are too many nodes to keep, of which
    some were read then.
    """
    nodes.fetch(shape, a, b)
    left, right = [nodes.get(shape, a)], [nodes.get(shape, b)]
    while left or right:
        level = max([row[0].level for row in (left, right) if row])
        if not level:
            break
        # The taller tree goes down alone until both are at one level.
        olds = _children(left) if left and left[0].level == level else {}
        news = _children(right) if right and right[0].level == level else {}
        shared = olds.keys() & news.keys()
        wanted = [each for each in (*olds, *news) if each not in shared]
        if len(wanted) > _MOST:
            return None
        below = nodes.get_all(shape, wanted)
        split = len(olds) - len(shared)
        if olds:
            left = below[:split]
        if news:
            right = below[split:]
    return left, right


def _children(row: Sequence[Node]) -> dict[bytes, None]:
    return dict.fromkeys(chain.from_iterable([node.items for node in row]))


def fetch_paths(nodes: Nodes, top: Node | bytes, keys: Iterable[bytes]) -> None:
    """Read into the cache the nodes on the paths to some keys of a map, if they are not too many.

    Cost: one call for each level.
    """
    row: dict[Node | bytes, list[bytes]] = {top: list(keys)}
    while row and len(row) <= _MOST:
        nodes.fetch(Shape.MAP, *row)
        below: dict[Node | bytes, list[bytes]] = {}
        for each, sought in row.items():
            node = nodes.get(Shape.MAP, each)
            if node.level:
                assert node.keys is not None
                for key in sought:
                    below.setdefault(node.items[max(bisect_right(node.keys, key) - 1, 0)], []).append(key)
        row = below
