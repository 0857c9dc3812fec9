"""Cuts: which commits stand where history was cut away, as git's shallow file says it. Layer: repository.

``prune`` writes them, and the repository reads every commit through them: a cut commit has only the parents that were kept, and a
jump that could lead across a cut is not there. So whoever follows ``parents`` and ``jump`` stops at a cut, and needs to know nothing
of it. All cuts are one record, which is read when a repository is opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgpack

from versioned_state.errors import CorruptRefError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import CUTS, object_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import jump_height

if TYPE_CHECKING:
    from versioned_state.repository.repository import Repository


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut commit: its height, and the parents that it still has, as bits: 1 for the first one, 2 for the second.

    Where the first parent is cut away, all are.
    """

    height: int
    kept: int


class Cuts(Mapping[bytes, Cut]):
    """The cuts of a store by the address of the commit. ``stored`` is the record's bytes, None where there is no record."""

    def __init__(self, cuts: Mapping[bytes, Cut], stored: bytes | None = None) -> None:
        self._cuts = dict(cuts)
        self.stored = stored
        # Jumps cross cuts only where the first parent is gone: jumps go by first parents.
        self._heights = sorted({cut.height for cut in self._cuts.values() if not cut.kept})

    def __getitem__(self, address: bytes) -> Cut:
        return self._cuts[address]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._cuts)

    def __len__(self) -> int:
        return len(self._cuts)

    def graft(self, commit: Commit) -> Commit:
        """The commit as history reads now. Cost: a lookup, and nothing where there are no cuts.

        A jump that passes the height of any cut is taken away, whether or not it passes that very commit: nothing but a walk could tell.
        The walk then goes by parents there, for as many steps as cuts have heights.
        """
        if not self._cuts:
            return commit
        cut = self._cuts.get(bytes.fromhex(commit.id))
        if cut is not None:
            parents = tuple(id for index, id in enumerate(commit.parents) if cut.kept >> index & 1)
            commit = replace(commit, parents=parents, cut=True)
        if commit.jump is not None and (not commit.parents or self._passes(commit)):
            commit = replace(commit, jump=None)
        return commit

    def _passes(self, commit: Commit) -> bool:
        heights = self._heights
        index = bisect_right(heights, jump_height(commit.height))
        return index < len(heights) and heights[index] < commit.height

    def kept_parents(self, address: bytes, parents: Iterable[bytes]) -> list[bytes]:
        """Those of a commit's stored parents that history still has."""
        cut = self._cuts.get(address)
        return [parent for index, parent in enumerate(parents) if cut is None or cut.kept >> index & 1]


def write_cuts(cuts: Mapping[bytes, Cut]) -> bytes:
    """The record: addresses, in order and joined, then heights and kept parents, then a checksum."""
    ordered = sorted(cuts)
    body: bytes = msgpack.packb(
        [b"".join(ordered), [cuts[address].height for address in ordered], [cuts[address].kept for address in ordered]]
    )
    return write_record(CUTS, body)


def read_cuts(stored: bytes | None) -> Cuts:
    """The cuts in a record; None: there are none. Raises ``CorruptRefError``."""
    if stored is None:
        return Cuts({})
    try:
        joined, heights, kept = msgpack.unpackb(read_record(CUTS, stored))
        addresses = [joined[i : i + ADDRESS_SIZE] for i in range(0, len(joined), ADDRESS_SIZE)]
        cuts = {address: Cut(height, bits) for address, height, bits in zip(addresses, heights, kept, strict=True)}
        if type(joined) is not bytes or len(joined) % ADDRESS_SIZE or not all(type(number) is int for number in (*heights, *kept)):
            raise ValueError("a field of another type")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptRefError(CUTS, f"the record of cut history is damaged: {error}") from error
    return Cuts(cuts, stored)


def live_cuts(repository: Repository) -> dict[bytes, Cut]:
    """The cuts whose commit was not collected since. Cost: reads those commits."""
    cuts = repository.cuts
    keys = {object_key(Address(address)): address for address in cuts}
    found = repository.store.get_many(keys) if keys else {}
    return {address: cuts[address] for key, address in keys.items() if key in found}


def forget_cuts(repository: Repository) -> None:
    """Drop the cuts of commits that were collected."""
    while True:
        cuts = repository.refresh_cuts()
        live = live_cuts(repository)
        if len(live) == len(cuts):
            return
        repository.store.apply({CUTS: cuts.stored}, {CUTS: write_cuts(live)})
