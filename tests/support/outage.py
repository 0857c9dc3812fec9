"""A store that is away for a while."""

from __future__ import annotations

from versioned_state.storage import Faulty, KVStore


class Outage(Faulty):
    """Fails at the next calls as well: a store that is away for a while cannot be asked at once how a call ended."""

    def __init__(self, store: KVStore, *, calls: int = 1) -> None:
        self.length = calls
        super().__init__(store)

    def _is_due(self) -> bool:
        if self.fired and self.at is not None and self.calls < self.at + self.length - 1:
            self.calls += 1
            return True
        return super()._is_due()
