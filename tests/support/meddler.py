"""A store whose user is not alone: something else happens right before, or right after, one of its batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from versioned_state.storage import KVStore
from versioned_state.storage.wrapper import Wrapper


class Meddler(Wrapper):
    """Does ``before`` and ``after`` once each, around the next batch that puts something under a condition: a move of a ref."""

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
