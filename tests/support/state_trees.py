"""States as trees, encoded, decoded and merged below the repository."""

from __future__ import annotations

from typing import Any

from versioned_state import Memory
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.repository.merging.merge import Resolution, merge_trees
from versioned_state.repository.merging.policies import Policies
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.keys import user_key
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree, empty, iter_items, same

PICKLES = PicklePolicy("allow", private=True)


class StateTrees:
    """States as trees over one staging area."""

    def __init__(self) -> None:
        staging = Staging(ObjectStore(Memory()))
        self.nodes = Nodes(staging, staging=staging)
        self.encoder = Encoder(self.nodes, PICKLES)
        self.decoder = Decoder(self.nodes, PICKLES)

    def tree(self, state: dict[str, Any]) -> Tree:
        return edit_map(
            self.nodes,
            empty(Shape.MAP),
            {user_key(key): self.encoder.encode(v, None, key)[0] for key, v in state.items()},
        )

    def state(self, tree: Tree) -> dict[str, Any]:
        return {key[1:].decode(): self.decoder.decode(cell) for key, cell in iter_items(self.nodes, tree)}

    def merge(
        self, base: Any, ours: Any, theirs: Any, policies: Any = None, *, theirs_first: bool = True, **resolutions: Any
    ):
        """Return the merged state, and the conflicts.

        The tree is the one that the same state has when it is built from nothing.
        """
        sides = (self.tree(base), self.tree(ours), self.tree(theirs))
        settled = [Resolution(StatePath.parse(path), None, value) for path, value in resolutions.items()]
        merged = merge_trees(
            self.nodes,
            sides,
            pickles=PICKLES,
            policies=Policies(policies or {}),
            resolutions=settled,
            theirs_first=theirs_first,
        )
        state = self.state(merged.tree)
        assert same(merged.tree, self.tree(state)), "canonical"
        return state, merged.conflicts
