"""Where two sides changed the same thing. Pure: trees in, conflicts out. Layer: repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from versioned_state.values.decoder import Decoder
from versioned_state.values.diff import diff_maps
from versioned_state.values.encoder import Encoder
from versioned_state.values.keys import path_of
from versioned_state.values.nodes import Nodes
from versioned_state.values.path import Path
from versioned_state.values.pickles import PicklePolicy
from versioned_state.values.tree import Tree


class Missing:
    """Stands for a side of a conflict that has nothing at the path."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that both sides changed: what the merge base has there, what ours is, and what theirs is; ``MISSING`` where there is nothing.

    Objects show as ``ObjectInfo``: nothing is unpickled.
    """

    path: Path
    base: Any
    ours: Any
    theirs: Any


def find_conflicts(nodes: Nodes, base: Tree, ours: Mapping[bytes, bytes | None], theirs: Tree) -> list[Conflict]:
    """The keys that we changed and they changed otherwise. ``ours`` maps root keys to new cells (None: removed; empty: cannot be told).

    Cost: what they changed.
    """
    decoder = Decoder(Encoder(nodes, PicklePolicy("refuse", private=False)), describe=True)

    def show(cell: bytes | None) -> Any:
        return decoder.decode(cell) if cell else MISSING

    conflicts = []
    for key, old, new in diff_maps(nodes, base, theirs):
        if key in ours and ours[key] != new:
            conflicts.append(Conflict(path_of(key), show(old), show(ours[key]), show(new)))
    return conflicts
