"""``Locks``: a lock for each name. Layer: services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Locks:
    """A lock for each name in use. Safe for many threads."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._locks: dict[str, tuple[Lock, int]] = {}  # with the number of blocks that hold it or wait for it

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Run a block while no other block of the same name runs."""
        with self._guard:
            lock, blocks = self._locks.get(name) or (Lock(), 0)
            self._locks[name] = lock, blocks + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, blocks = self._locks.pop(name)
                if blocks > 1:
                    self._locks[name] = lock, blocks - 1
