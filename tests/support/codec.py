"""The engine's parts below the public names, put together for tests that look at bytes."""

from __future__ import annotations

from typing import Any

from versioned_state import KVStore, Memory
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.trees.nodes import Nodes


def new_nodes(objects: ObjectStore | None = None) -> Nodes:
    """Return nodes with nothing staged, over a store of their own or over these objects."""
    staging = Staging(ObjectStore(Memory()) if objects is None else objects)
    return Nodes(staging, staging=staging)


class Codec:
    """A codec over one store, which pickles nothing."""

    def __init__(self, kv: KVStore | None = None) -> None:
        self.kv: KVStore = Memory() if kv is None else kv
        self.objects = ObjectStore(self.kv)

    def encode(self, value: Any) -> bytes:
        """Return the cell of a value, with all that it refers to stored."""
        nodes = new_nodes(self.objects)
        cell, _ = Encoder(nodes).encode(value, None, "value")
        self.kv.apply({}, {}, objects=nodes.staging.sealed())
        return cell

    def decode(self, cell: bytes) -> Any:
        return Decoder(Nodes(self.objects)).decode(cell)
