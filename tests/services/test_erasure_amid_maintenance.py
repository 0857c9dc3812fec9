"""A user is erased although another process prunes and collects the user's history while it is read."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.support.handles import cold
from versioned_state import Memory, Repository
from versioned_state.errors import MissingObjectError
from versioned_state.services.agent_state.state_service import VersionedStateService
from versioned_state.services.users import delete_user
from versioned_state.storage import Wrapper


class PrunedMeanwhile(Wrapper):
    """A store in which another process prunes and collects all history at a read of an object, as often as told to."""

    def __init__(self, store: Memory, *, at: int, times: int = 1) -> None:
        super().__init__(store)
        self.store, self.at, self.times = store, at, times
        self.is_armed = False
        self.reads = 0

    def get(self, key: str) -> bytes | None:
        self.reads += self.is_armed and key.startswith("o/")
        if self.is_armed and self.reads == self.at and self.times:
            self.reads = 0
            self.times -= 1
            other = Repository(self.store)
            other.prune(keep_last=1, branches="*", expire=timedelta(0), gc=True)
        return super().get(key)


async def saved(store: Memory) -> None:
    service = VersionedStateService(Repository(store))
    await service.start()
    for number in range(6):
        await service.save_state("u", {"n": number, "text": f"{number} " * 300}, "s")
    await service.stop()


@pytest.mark.parametrize("at", range(1, 8))
def test_a_user_is_erased_while_others_prune_the_history(at: int):
    store = Memory()
    asyncio.run(saved(store))
    watched = PrunedMeanwhile(store, at=at)
    repository = Repository(watched)
    watched.is_armed = True
    erasure = delete_user(repository, "u")
    assert erasure.branches == ("u/s",)
    assert not erasure.left
    assert not list(Repository(store).branches)


def test_a_damaged_history_is_not_looked_at_for_ever():
    store = Memory()
    asyncio.run(saved(store))
    repository = Repository(store)
    head = next(iter(repository.log("u/s")))
    store.delete("o/" + head.parents[0])
    with pytest.raises(MissingObjectError):
        delete_user(cold(store), "u")
