"""Shallow history: the commits at which ``prune`` ended it, as git's ``shallow`` file lists them. Layer: repository.

Every commit is read through this record (``graft``): a shallow commit has only the parents that were kept, and a jump
that could pass a shallow commit is hidden. So a walk along ``parents`` and ``jump`` stops there. The record and its
pages are read when a repository is opened. A prune adds to the record; a full record becomes a page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgpack

from versioned_state.errors import CorruptRefError
from versioned_state.objects.address import ADDRESS_SIZE
from versioned_state.objects.keys import SHALLOW, shallow_page_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.records import dataclass, replace
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import jump_height

_PER_PAGE: Final = 512
"""The number of shallow commits in the record at which they go to a page of their own, of 14 KB.

A prune writes the record, and a page now and then.
"""


@dataclass(frozen=True, slots=True)
class ShallowCommit:
    """A commit at which history ends: its height, and the parents that were kept.

    ``kept`` has a bit for each parent: 1 for the first one, 2 for the second. If the first parent was not kept, none
    was.
    """

    height: int
    kept: int


class Shallow(Mapping[bytes, ShallowCommit]):
    """The shallow commits of a store, by address.

    Attributes:
        stored: the bytes of the record, None if there is no record.
        own: the shallow commits in the record itself, which take precedence over those of its pages.
        pages: the names of its pages; ``paged`` has the content of all pages.
    """

    def __init__(
        self,
        own: Mapping[bytes, ShallowCommit],
        stored: bytes | None = None,
        pages: tuple[str, ...] = (),
        paged: Mapping[bytes, ShallowCommit] = MappingProxyType({}),
        heights: frozenset[int] = frozenset(),
    ) -> None:
        self.stored = stored
        self.own: Final = dict(own)
        self.pages = pages
        self.paged = paged
        self.paged_heights = heights
        # A jump follows first parents, so it passes a shallow commit only if that one has lost its first parent.
        self._heights = sorted(heights | _heights_of(self.own))

    def __getitem__(self, address: bytes) -> ShallowCommit:
        found: ShallowCommit | None = self.get(address)
        if found is None:
            raise KeyError(address)
        return found

    def get(self, address: bytes, default: Any = None) -> Any:
        return self.own.get(address) or self.paged.get(address, default)

    def __contains__(self, address: object) -> bool:
        return address in self.own or address in self.paged

    def __iter__(self) -> Iterator[bytes]:
        yield from self.own
        yield from (address for address in self.paged if address not in self.own)

    def __len__(self) -> int:
        return len(self.own.keys() | self.paged.keys()) if self.paged else len(self.own)

    def graft(self, commit: Commit) -> Commit:
        """Return the commit as history is now. Cost: a lookup, or nothing if no commit is shallow.

        A jump past the height of any shallow commit is hidden, even if that commit lies on another line: only a walk
        could tell. The walk then follows parents, for at most as many steps as there are such heights.
        """
        if not self.own and not self.paged:
            return commit
        shallow = self.get(commit.address)
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
        """Return those of a commit's stored parents that history still has."""
        shallow = self.get(address)
        return [parent for index, parent in enumerate(parents) if shallow is None or shallow.kept >> index & 1]


def with_cuts(shallow: Shallow, made: Mapping[bytes, ShallowCommit]) -> dict[str, bytes]:
    """Return the records that make some commits shallow too: the record, and sometimes a page.

    Cost: the new shallow commits.

    A page is named by its content, so it may be put before the record that names it.
    """
    own = {**shallow.own, **made}
    if len(own) < _PER_PAGE:
        return {SHALLOW: write_shallow(own, shallow.pages)}
    body = _packed(own)
    page = shallow_page_key(body)
    pages = (*(each for each in shallow.pages if each != page), page)
    return {page: write_record(page, body), SHALLOW: write_shallow({}, pages)}


def all_cuts(commits: Mapping[bytes, ShallowCommit]) -> dict[str, bytes]:
    """Return the records for exactly these shallow commits."""
    found: dict[str, bytes] = {}
    pages = []
    ordered = sorted(commits)
    for start in range(0, len(ordered) - _PER_PAGE + 1, _PER_PAGE):
        body = _packed({address: commits[address] for address in ordered[start : start + _PER_PAGE]})
        pages.append(page := shallow_page_key(body))
        found[page] = write_record(page, body)
    rest = ordered[len(pages) * _PER_PAGE :]
    return {**found, SHALLOW: write_shallow({address: commits[address] for address in rest}, tuple(pages))}


def write_shallow(commits: Mapping[bytes, ShallowCommit], pages: tuple[str, ...] = ()) -> bytes:
    """Return the record of shallow commits.

    It has the addresses, joined in order, the heights, the kept parents, the names of any pages, and a checksum.
    """
    return write_record(SHALLOW, _packed(commits, list(pages)))


def _packed(commits: Mapping[bytes, ShallowCommit], pages: list[str] | None = None) -> bytes:
    ordered = sorted(commits)
    fields: list[object] = [
        b"".join(ordered),
        [commits[address].height for address in ordered],
        [commits[address].kept for address in ordered],
    ]
    if pages:
        fields.append(pages)
    body: bytes = msgpack.packb(fields)
    return body


def read_shallow(
    stored: bytes | None,
    get_many: Callable[[Iterable[str]], Mapping[str, bytes]] = lambda _: {},
    before: Shallow | None = None,
) -> Shallow | None:
    """Return the shallow commits in a record, and in its pages. None as a record means that there are none.

    None is returned if a page is gone: the record has been replaced since, or damaged.

    Args:
        get_many: reads the pages.
        before: shallow commits of which the pages are known.

    Raises:
        CorruptRefError: the record is damaged, or a page is.
    """
    if stored is None:
        return Shallow({})
    own, pages = _read(SHALLOW, stored)
    if not pages:
        return Shallow(own, stored)
    if before is not None and before.pages == pages[: len(before.pages)]:
        paged, heights, new = (
            dict(before.paged) if pages != before.pages else before.paged,
            before.paged_heights,
            pages[len(before.pages) :],
        )
    else:
        paged, heights, new = {}, frozenset(), pages
    found = get_many(new) if new else {}
    if len(found) < len(new):
        return None
    for page in new:
        commits, _ = _read(page, found[page])
        assert isinstance(paged, dict)
        paged.update(commits)
        heights |= _heights_of(commits)
    return Shallow(own, stored, pages, paged, heights)


def _heights_of(commits: Mapping[bytes, ShallowCommit]) -> frozenset[int]:
    return frozenset(commit.height for commit in commits.values() if not commit.kept)


def _read(key: str, stored: bytes) -> tuple[dict[bytes, ShallowCommit], tuple[str, ...]]:
    try:
        joined, heights, kept, *rest = msgpack.unpackb(read_record(key, stored))
        addresses = [joined[i : i + ADDRESS_SIZE] for i in range(0, len(joined), ADDRESS_SIZE)]
        commits = {
            address: ShallowCommit(height, bits) for address, height, bits in zip(addresses, heights, kept, strict=True)
        }
        pages = tuple(rest[0]) if rest else ()
        if (
            type(joined) is not bytes
            or len(joined) % ADDRESS_SIZE
            or not all(type(number) is int for number in (*heights, *kept))
        ):
            raise ValueError("a field of another type")
        if not all(type(page) is str for page in pages):
            raise ValueError("a field of another type")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptRefError(key, f"the record of shallow history is damaged: {error}") from error
    return commits, pages
