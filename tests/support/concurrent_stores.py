"""Stores in which another writer acts at a chosen moment: before a call, or around the move of a ref."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from versioned_state.storage import Faulty, KVStore
from versioned_state.storage.wrapper import Wrapper


class ActsAroundMove(Wrapper):
    """Calls ``before`` and ``after`` once each, around the next batch that moves a ref: one with conditional puts."""

    def __init__(self, store: KVStore, *, before: Callable[[], object] | None = None) -> None:
        super().__init__(store)
        self.before = before
        self.after: Callable[[], object] | None = None

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        if expected and puts and self.before is not None:
            before, self.before = self.before, None
            before()
        done = super().apply(expected, puts, deletes, objects=objects)
        if done and puts and self.after is not None:
            after, self.after = self.after, None
            after()
        return done


class ActsBeforeCall(Faulty):
    """Calls `act` before call number `at`.

    By trying every number a test lets others act between any two calls of an operation.
    """

    def __init__(self, store: KVStore, act: Callable[[], object], *, at: int | None = None) -> None:
        super().__init__(store, at=at)
        self.act = act

    def _is_due(self) -> bool:
        self.calls += 1
        if self.calls == self.at:
            self.fired = True
            self.act()
        return False
