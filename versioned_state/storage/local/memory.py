"""``Memory``, a store that ends with the process: the default of ``Versioned()``, and the store of most tests.

Layer: storage.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping

from versioned_state.storage.backend import Backend, raise_closed
from versioned_state.storage.base import OBJECT_PREFIX, may_list_objects
from versioned_state.storage.call_lock import CallLock


class Memory(Backend):
    """Two dicts under a lock. Only this process reaches it, so it is ``private``."""

    private = True

    def __init__(self) -> None:
        self._lock = CallLock()
        self._objects: dict[str, bytes] = {}
        self._mutable: dict[str, bytes] = {}
        # The mutable keys in order, so that listing a prefix costs what it lists.
        self._ordered: list[str] = []
        # A batch whose conditions held and that is not finished. If an interrupt leaves one, the next call finishes it.
        self._begun: tuple[Mapping[str, bytes], Collection[str]] | None = None

    def __repr__(self) -> str:
        return f"<Memory {len(self._objects)} objects, {len(self._mutable)} other keys>"

    def _get(self, key: str) -> bytes | None:
        if self._begun is not None:
            self._wait()
        value = (self._objects if key[:2] == OBJECT_PREFIX else self._mutable).get(key)
        if value is None and self._closed:
            raise_closed()  # another thread has closed the store since this call began: nothing is there any more
        return value

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        found = {}
        with self._lock:
            self._finish()
            if self._closed:
                raise_closed()
            for key in keys:
                value = (self._objects if key[:2] == OBJECT_PREFIX else self._mutable).get(key)
                if value is not None:
                    found[key] = value
        return found

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int]:
        return {key: len(value) for key, value in self._get_many(keys).items()}

    def _keys(self, prefix: str) -> Iterator[str]:
        with self._lock:
            self._finish()
            if self._closed:
                raise_closed()
            start = end = bisect_left(self._ordered, prefix)
            while end < len(self._ordered) and self._ordered[end].startswith(prefix):
                end += 1
            found = self._ordered[start:end]
            if may_list_objects(prefix):
                found += [key for key in self._objects if key.startswith(prefix)]
        return self._while_open(found)

    def _page(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> list[str]:
        with self._lock:
            self._finish()
            if self._closed:
                raise_closed()
            ordered = self._ordered
            if reverse:
                end = bisect_right(ordered, prefix, key=lambda key: key[: len(prefix)])
                end = end if after is None else min(end, bisect_left(ordered, after))
                found = ordered[max(end - limit, 0) : end][::-1]
            else:
                start = (
                    bisect_left(ordered, prefix)
                    if after is None
                    else max(bisect_right(ordered, after), bisect_left(ordered, prefix))
                )
                found = ordered[start : start + limit]
        return [key for key in found if key.startswith(prefix)]

    def _while_open(self, found: list[str]) -> Iterator[str]:
        for key in found:
            if self._closed:
                raise_closed()
            yield key

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        with self._lock:
            self._finish()
            if self._closed:
                raise_closed()
            for key, value in objects.items():
                self._objects.setdefault(key, value)
            for key, wanted in expected.items():
                if self._mutable.get(key) != wanted:
                    return False
            if puts or deletes:
                # from here on the batch is completed even after an interrupt
                self._begun = (dict(puts), tuple(deletes))
                self._finish()
        return True

    def _wait(self) -> None:
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        """Finish the batch that has begun. Repeating a part of it changes nothing."""
        if self._begun is None:
            return
        puts, deletes = self._begun
        ordered = self._ordered
        for key, value in puts.items():
            if key not in self._mutable:
                at = bisect_left(ordered, key)
                if at == len(ordered) or ordered[at] != key:
                    ordered.insert(at, key)
            self._mutable[key] = value
        for key in deletes:
            if key[:2] == OBJECT_PREFIX:
                self._objects.pop(key, None)
                continue
            at = bisect_left(ordered, key)
            if at < len(ordered) and ordered[at] == key:
                del ordered[at]
            self._mutable.pop(key, None)
        self._begun = None

    def _close(self) -> None:
        with self._lock:
            self._begun = None
            self._objects, self._mutable, self._ordered = {}, {}, []
