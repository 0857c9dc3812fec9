"""The vectors of messages: kept in the state, and searched exactly, in this process. Layer: services.

::

    @vectors.@<name>/<dimension>["<id><session>"]   the 32-bit floats of a message's text, little-endian;
                                                    none if it has no text
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import cache
from heapq import nlargest
from math import sqrt
from threading import Lock
from typing import Any, Final

from versioned_state.services.memory.memories import Memories, Place, escaped
from versioned_state.services.memory.text import text_of
from versioned_state.state.versioned import Versioned
from versioned_state.values.trees.tree import Tree

VECTORS: Final = "vectors"

_FOUND_AT_ONCE: Final = 10
"""The default number of messages of a vector search: every message has a vector, so all are similar to some degree."""


class Vectors:
    """The vectors of the users who were searched last, in memory. Safe for many threads.

    Args:
        max_bytes: bytes of memory for them. The vectors of one user stay while they are searched, whatever their size.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._users: OrderedDict[str, _User] = OrderedDict()
        self._lock = Lock()

    def nearest(self, memories: Memories, embedder: str, vector: bytes, limit: int | None) -> list[Place]:
        """Find the messages with the smallest angle to a vector, the nearest first, and among equals the newest first.

        Cost: reading the vectors that this process does not have yet, and the length of all of them.
        """
        scored: dict[Place, float] = {}
        for part in memories.parts:
            scored |= {place: score for score, place in self._nearest(part, embedder, vector, limit)}
        return nlargest(_FOUND_AT_ONCE if limit is None else limit, scored, key=lambda place: (scored[place], place))

    def _nearest(
        self, memories: Memories, embedder: str, vector: bytes, limit: int | None
    ) -> list[tuple[float, Place]]:
        with self._lock:
            user = self._users.pop(memories.branch, None)
        user = _User(embedder) if user is None or user.embedder != embedder else user
        user.follow(memories)
        found = user.nearest(vector, _FOUND_AT_ONCE if limit is None else limit)
        with self._lock:
            self._users[memories.branch] = user
            while sum(each.size for each in self._users.values()) > self._max_bytes and len(self._users) > 1:
                self._users.popitem(last=False)
        return found

    def forget(self, branch: str) -> None:
        """Release the vectors of a user."""
        with self._lock:
            self._users.pop(branch, None)


def without_vector(memories: Memories, embedder: str) -> dict[Place, str]:
    """Find the texts without a vector of an embedder.

    Cost: two paths if there are none, otherwise all messages and vectors.
    """
    namespace = VECTORS, escaped(embedder)
    if memories.count(namespace) == len(memories):
        return {}
    have = {key for key, _ in memories.entries(namespace)}
    return {place: text_of(fields) for place, fields in memories.all() if place.key not in have}


def store(state: Versioned, embedder: str, vectors: Mapping[Place, bytes]) -> None:
    """Stage the vectors of some messages, and the removal of those of other embedders."""
    namespace = state.namespace(VECTORS)
    for other in namespace.namespaces():
        if other != escaped(embedder):
            namespace.namespace(other).clear()
    kept = namespace.namespace(escaped(embedder))
    for place, vector in vectors.items():
        kept[place.key] = _swapped(vector)


def remove(state: Versioned, session: str) -> None:
    """Stage the removal of the vectors of a session."""
    namespace = state.namespace(VECTORS)
    for embedder in namespace.namespaces():
        kept = namespace.namespace(embedder)
        for key in kept:
            if Place.of(key).session == session:
                del kept[key]


def release(state: Versioned, places: Iterable[Place]) -> None:
    """Release committed vectors."""
    namespace = state.namespace(VECTORS)
    for embedder in namespace.namespaces():
        for place in places:
            namespace.namespace(embedder).release(place.key)


def _swapped(vector: bytes) -> bytes:
    """Convert from the machine's byte order to little-endian, or back."""
    if sys.byteorder == "little":
        return vector
    numbers = array("f", vector)
    numbers.byteswap()
    return numbers.tobytes()


class _User:
    """The vectors of one user at a commit: rows of length 1, so that an angle is a product."""

    def __init__(self, embedder: str) -> None:
        self.embedder = embedder
        self._tree: Tree | None = None
        self._rows: dict[Place, Any] = {}
        self._matrix: tuple[list[Place], Any] | None = None

    @property
    def size(self) -> int:
        return sum(len(row) * 4 + 300 for row in self._rows.values())

    def follow(self, memories: Memories) -> None:
        """Add the changes since the last commit."""
        if self._tree is not None and self._tree.top == memories.tree.top:
            return
        for key, value in memories.entries((VECTORS, escaped(self.embedder)), since=self._tree):
            place = Place.of(key)
            self._rows.pop(place, None)
            if value and (row := _unit(array("f", _swapped(value)))) is not None:
                self._rows[place] = row
            self._matrix = None
        self._tree = memories.tree

    def nearest(self, vector: bytes, limit: int) -> list[tuple[float, Place]]:
        query = _unit(array("f", vector))
        if query is None or not self._rows or not limit:
            return []
        np = _numpy()
        if np is None:
            scores = {place: sum(a * b for a, b in zip(row, query, strict=False)) for place, row in self._rows.items()}
            return nlargest(limit, ((score, place) for place, score in scores.items()))
        if self._matrix is None:
            places = sorted(self._rows)
            self._matrix = places, np.array([self._rows[place] for place in places], dtype=np.float32)
        places, matrix = self._matrix
        products = matrix @ np.array(query, dtype=np.float32)
        # From the last place back, and stable: of equals the newest is first.
        order = np.argsort(-products[::-1], kind="stable")[:limit]
        backwards = len(places) - 1
        return [(float(products[backwards - index]), places[backwards - index]) for index in map(int, order)]


@cache
def _numpy() -> Any:
    """Return numpy, if it is installed."""
    try:
        import numpy as np
    except ImportError:
        return None
    return np


def _unit(vector: array[float]) -> array[float] | None:
    """Return the vector at length 1, or None if it is zero."""
    length = sqrt(sum(number * number for number in vector))
    return array("f", (number / length for number in vector)) if length else None
