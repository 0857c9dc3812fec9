"""Shallow history: the commits at which ``prune`` ended it, as git's ``shallow`` file lists them. Layer: repository.

Every commit is read through this record (``graft``): a shallow commit has only the parents that were kept, and a jump that could pass
one is hidden. So a walk along ``parents`` and ``jump`` stops there by itself. The record is read when a repository is opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgpack

from versioned_state.errors import CorruptRefError
from versioned_state.objects.address import ADDRESS_SIZE
from versioned_state.objects.keys import SHALLOW
from versioned_state.objects.record import read_record, write_record
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import jump_height


@dataclass(frozen=True, slots=True)
class ShallowCommit:
    """A commit at which history ends: its height, and as bits the parents that were kept: 1 for the first one, 2 for the second.

    If the first parent was not kept, none was.
    """

    height: int
    kept: int


class Shallow(Mapping[bytes, ShallowCommit]):
    """The shallow commits of a store, by address. ``stored`` is the bytes of the record, None if there is no record."""

    def __init__(self, commits: Mapping[bytes, ShallowCommit], stored: bytes | None = None) -> None:
        self._commits = dict(commits)
        self.stored = stored
        # A jump follows first parents, so it passes a shallow commit only if that one has lost its first parent.
        self._heights = sorted({commit.height for commit in self._commits.values() if not commit.kept})

    def __getitem__(self, address: bytes) -> ShallowCommit:
        return self._commits[address]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._commits)

    def __len__(self) -> int:
        return len(self._commits)

    def graft(self, commit: Commit) -> Commit:
        """The commit as history reads now. Cost: a lookup; nothing if no commit is shallow.

        A jump past the height of any shallow commit is hidden, even if that commit lies on another line: only a walk could tell. The
        walk then follows parents, for at most as many steps as there are such heights.
        """
        if not self._commits:
            return commit
        shallow = self._commits.get(commit.address)
        if shallow is not None:
            kept = tuple(parent for index, parent in enumerate(commit.parent_addresses) if shallow.kept >> index & 1)
            commit = replace(commit, parent_addresses=kept, shallow=True)
        if commit.jump_address is not None and (not commit.parent_addresses or self._passes(commit)):
            commit = replace(commit, jump_address=None)
        return commit

    def _passes(self, commit: Commit) -> bool:
        heights = self._heights
        index = bisect_right(heights, jump_height(commit.height))
        return index < len(heights) and heights[index] < commit.height

    def kept_parents(self, address: bytes, parents: Iterable[bytes]) -> list[bytes]:
        """Those of a commit's stored parents that history still has."""
        shallow = self._commits.get(address)
        return [parent for index, parent in enumerate(parents) if shallow is None or shallow.kept >> index & 1]


def write_shallow(commits: Mapping[bytes, ShallowCommit]) -> bytes:
    """The record: the addresses joined in order, then the heights, the kept parents, and a checksum."""
    ordered = sorted(commits)
    body: bytes = msgpack.packb(
        [b"".join(ordered), [commits[address].height for address in ordered], [commits[address].kept for address in ordered]]
    )
    return write_record(SHALLOW, body)


def read_shallow(stored: bytes | None) -> Shallow:
    """The shallow commits in a record; None: there are none. Raises ``CorruptRefError``."""
    if stored is None:
        return Shallow({})
    try:
        joined, heights, kept = msgpack.unpackb(read_record(SHALLOW, stored))
        addresses = [joined[i : i + ADDRESS_SIZE] for i in range(0, len(joined), ADDRESS_SIZE)]
        commits = {address: ShallowCommit(height, bits) for address, height, bits in zip(addresses, heights, kept, strict=True)}
        if type(joined) is not bytes or len(joined) % ADDRESS_SIZE or not all(type(number) is int for number in (*heights, *kept)):
            raise ValueError("a field of another type")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptRefError(SHALLOW, f"the record of shallow history is damaged: {error}") from error
    return Shallow(commits, stored)
