"""A store that takes batches of many sessions in one round trip, and may lose the answer to one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from versioned_state.errors import StateError, UnknownOutcomeError
from versioned_state.storage import KVStore
from versioned_state.storage.base import Batch
from versioned_state.storage.wrapper import Wrapper


class Together(Wrapper):
    """Passes batches on, and notes how many came at once.

    Attributes:
        round_trips: the number of batches in each round trip.
        before: called with the batches of a round trip before they are applied.
        lost: tells the batches whose answer is lost, although they are applied.
    """

    sends_together = True

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.round_trips: list[int] = []
        self.before: Callable[[Sequence[Batch]], object] = lambda _: None
        self.lost: Callable[[Batch], bool] = lambda _: False

    def apply_each(self, batches: Sequence[Batch]) -> list[bool | StateError]:
        self.round_trips.append(len(batches))
        self.before(batches)
        outcomes = self.store.apply_each(batches)
        lost = [self.lost(batch) for batch in batches]
        return [UnknownOutcomeError("lost") if gone else outcome for gone, outcome in zip(lost, outcomes, strict=True)]
