"""A counter that many writers of one store increment by compare-and-set."""

from __future__ import annotations

import os

from versioned_state import KVStore


def count_up(store: KVStore, times: int) -> None:
    """Increment the counter, each time with a new object. After a lost race, try again without the object: the store has kept it."""
    for _ in range(times):
        objects = {f"o/{os.urandom(24).hex()}": b"v" * 300}
        while True:
            value = store.get("counter")
            if store.apply({"counter": value}, {"counter": b"%d" % (int(value or b"0") + 1)}, objects=objects):
                break
            objects = {}
