"""``Pages``: the ids and metadata of checkpoints beside the commits of a line, for listings with a filter.

Layer: integrations.

A page is derived from a run of commits, each the parent of the next. It has their addresses, the ids of their
checkpoints, and those of the metadata that are numbers or short texts: a function of the addresses. So it is true
whatever becomes of the branch. One that has grown has later commits without a page, and one whose commits were
rewritten makes no use of its old pages. A listing begins at the refs, and reads each commit that it yields. One with a
filter writes the pages that are missing.

A page is a named record of the branch, so every program deletes, renames and purges it with the branch. If a purge
replaces words in it, its digest tells, and it is not used. It is written on the condition that the branch is where the
listing saw it: nothing that was purged or deleted meanwhile comes back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, NamedTuple

from blake3 import blake3

from versioned_state.errors import CorruptObjectError, ReadOnlyError, StorageError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import record_key, ref_key
from versioned_state.repository.database import Database
from versioned_state.repository.refs.named_records import read_named, write_named
from versioned_state.repository.refs.ref import Ref

LEAST: Final = 64
"""Checkpoints of which a page is made: to read so many commits takes a millisecond or two."""

_MOST: Final = 8192
"""Checkpoints of a page at most."""

_AT_ONCE: Final = 4096
"""Pages that are read at once. A line has some ten."""

_LONGEST: Final = 100
"""Characters of the longest text in a page."""

_FIELDS: Final = 64
"""Keys of metadata of which a page has the values: with all it would be a square if each checkpoint had its own."""

_PAGES: Final = "%m"  # no id is escaped to this
_UUID: Final = 36
"""Characters of an id of LangGraph's."""

_is_uuid: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_SCALARS: Final = frozenset({str, int, float, bool})


class Row(NamedTuple):
    """A checkpoint for a page: the address of its commit, its id and its metadata."""

    address: Address
    id: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A run of checkpoints in the order of their ids, each a commit onto the one before.

    Attributes:
        addresses, ids: of the checkpoints.
        below: the parent of the first one.
        fields: the values in their metadata, by key. None stands for a key that is not there, too.
        others: the keys of which the page lacks values: one is long or has parts, or other keys are more frequent.
        rows: the row of each address.
    """

    addresses: Sequence[Address]
    ids: Sequence[str]
    below: Address
    fields: Mapping[str, Sequence[Any]]
    others: frozenset[str]
    rows: Mapping[Address, int]

    def __len__(self) -> int:
        return len(self.ids)

    def columns(self, wanted: Mapping[str, Any]) -> list[tuple[Sequence[Any], Any]]:
        """Return columns of the page, each with the value that a checkpoint has there if it fits."""
        found = []
        for key, value in wanted.items():
            if type(value) in _SCALARS and "." not in key and key not in self.others:
                found.append((self.fields.get(key) or [None] * len(self), value))
        return found


def _page(rows: Sequence[Row], below: Address) -> Page:
    keys = Counter(key for row in rows for key in row.metadata)
    fields = {key: [row.metadata.get(key) for row in rows] for key, _ in keys.most_common(_FIELDS)}
    long = {key for key, column in fields.items() if not all(map(_has_room, column))}
    others = frozenset(keys.keys() - fields.keys() | long)
    return _of(
        [row.address for row in rows],
        [row.id for row in rows],
        below,
        {key: column for key, column in fields.items() if key not in others},
        others,
    )


def _of(
    addresses: list[Address], ids: list[str], below: Address, fields: dict[str, list[Any]], others: frozenset[str]
) -> Page:
    return Page(addresses, ids, below, fields, others, dict(zip(addresses, range(len(addresses)), strict=True)))


def _has_room(value: Any) -> bool:
    return value is None or (type(value) in _SCALARS and (type(value) is not str or len(value) <= _LONGEST))


def _joined(lower: Page, upper: Page) -> Page:
    """Return one page instead of two, of which the second begins where the first ends."""
    others = lower.others | upper.others
    keys = [key for key in {**lower.fields, **upper.fields} if key not in others]
    others |= {*keys[_FIELDS:]}
    fields = {
        key: [each for page in (lower, upper) for each in page.fields.get(key) or repeat(None, len(page))]
        for key in keys[:_FIELDS]
    }
    return _of([*lower.addresses, *upper.addresses], [*lower.ids, *upper.ids], lower.below, fields, others)


class Pages:
    """The pages of a line.

    Attributes:
        damaged: the keys of those that cannot be read, or have a commit at which history ends by now.
    """

    def __init__(self, database: Database, branch: str) -> None:
        self.damaged: set[str] = set()
        self._pages: dict[str, Page] = {}
        self._database = database
        self._branch = branch

    def read(self) -> None:
        """Read the pages. Cost: two requests, or one if there are none."""
        shallow = self._database.commits.shallow
        for key, stored in self._database.store.page_items(_key(self._branch), limit=_AT_ONCE).items():
            page = None if stored is None else _read(key, stored)
            if page is None or (shallow and any(address in shallow for address in page.addresses)):
                self.damaged.add(key)
            else:
                self._pages[key] = page

    def find(self, address: Address) -> tuple[Page, int] | None:
        """Return the page that has a commit, and the row."""
        for page in self._pages.values():
            row = page.rows.get(address)
            if row is not None:
                return page, row
        return None

    def unused(self, used: Collection[Page], *, is_all: bool) -> set[str]:
        """Return the keys of pages that are of no use.

        Args:
            used: pages that have checkpoints of the line.
            is_all: whether these are all pages that have.
        """
        return self.damaged | {key for key, page in self._pages.items() if is_all and page not in used}

    def write(self, main: Ref, runs: Iterable[tuple[list[Row], Address]], gone: set[str]) -> Collection[Page]:
        """Write a page for each run of many checkpoints, delete others, and return the written ones.

        Does nothing if the branch has moved, or the store cannot be written.

        Args:
            main: the branch, as it was when the runs were found.
            runs: checkpoints, the newest first, and the parent of the last one.
            gone: the keys of pages to delete.
        """
        made = {}
        for run, below in runs:
            if len(run) >= LEAST:
                page = _page(run[::-1], below)
                while (lower := self._before(page)) is not None:
                    gone |= {lower[0]}
                    page = _joined(lower[1], page)
                made[f"{_key(self._branch)}{page.addresses[-1].hex()[:16]}"] = page
        if not made and not gone:
            return ()
        puts = {key: write_named(key, _content(page)) for key, page in made.items()}
        expected = {ref_key("branch", self._branch): main.stored}
        with suppress(StorageError, ReadOnlyError):
            if self._database.store.apply(expected, puts, gone - puts.keys()):
                self.damaged.clear()
                for key in gone:
                    self._pages.pop(key, None)
                self._pages.update(made)
                return made.values()
        return ()

    def _before(self, page: Page) -> tuple[str, Page] | None:
        """Return the page that ends where another begins, with its key, unless it is much larger.

        So each row is written a few times.
        """
        for key, lower in self._pages.items():
            if lower.addresses[-1] == page.below and len(lower) <= min(2 * len(page), _MOST - len(page)):
                return key, lower
        return None


def delete_pages(database: Database, branch: str) -> None:
    """Delete the pages of a line. Cost: a request, and another if there are any."""
    keys = list(database.store.keys(_key(branch)))
    if keys:
        database.store.delete_many(keys)


def _key(branch: str) -> str:
    """Return the beginning of the keys of the pages of a line."""
    return record_key(f"{branch}/{_PAGES}/")


# The record of a page


def _content(page: Page) -> dict[str, Any]:
    fields, others = {key: [*column] for key, column in page.fields.items()}, sorted(page.others)
    ids: Any = [*page.ids]
    if all(map(_is_uuid, ids)):
        # The first digits of all ids, then the second ones, and so on, since ids have many digits in common.
        joined = "".join(ids).encode()
        ids = b"".join(joined[at::_UUID] for at in range(_UUID))
    commits = b"".join((page.below, *page.addresses))
    return {"commits": commits, "ids": ids, "fields": fields, "others": others, "digest": _digest(ids, fields, others)}


def _read(key: str, stored: bytes) -> Page | None:
    """Return the page in a record, or None if that is damaged, or words in it were replaced."""
    try:
        found = read_named(key, stored)
        joined, ids, fields, others = found["commits"], found["ids"], found["fields"], found["others"]
        if found["digest"] != _digest(ids, fields, others):
            return None
        below, *addresses = [joined[at : at + ADDRESS_SIZE] for at in range(0, len(joined), ADDRESS_SIZE)]
        if type(ids) is bytes:
            digits, size = ids.decode(), len(addresses)
            ids = [digits[row::size] for row in range(size)]
        if {len(addresses)} != {len(ids), *map(len, fields.values())}:
            return None
    except (CorruptObjectError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return _of(addresses, ids, below, fields, frozenset(others))


def _digest(ids: list[str] | bytes, fields: dict[str, list[Any]], others: list[str]) -> bytes:
    """Return a digest of all texts of a page."""
    texts = [each for column in fields.values() for each in column if type(each) is str]
    parts = (*fields, "", *others, "", *(ids if type(ids) is list else ()), "", *texts)
    return blake3("\0".join(parts).encode("utf-8", "surrogatepass")).digest(length=8)
