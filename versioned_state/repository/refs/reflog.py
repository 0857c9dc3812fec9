"""The reflog: where a ref pointed before. Layer: repository.

Only moves that a step to a child does not explain are written down (reset, delete, create elsewhere): a linked list of immutable
entries, the last of which the ref's record names. Between two entries, the commits are their own log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, expect
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit
from versioned_state.repository.history.graph import first_parent_of
from versioned_state.repository.refs.ref import Ref


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One move: from ``old`` to ``new`` (None: there was none, or it was deleted), when, by whom, and by what call."""

    old: Address | None
    new: Address | None
    time: int
    author: str | None
    action: str
    previous: Address | None


def write_entry(ref: Ref, new: Address | None, *, time: int, author: str | None, action: str) -> bytes:
    """The raw bytes of the entry for moving ``ref`` to ``new``, kind first."""
    body: bytes = msgpack.packb([ref.kind, ref.name, ref.head, new, time, author, action, ref.log], unicode_errors="surrogatepass")
    return bytes((Kind.LOG_ENTRY,)) + body


def read_entry(address: Address, raw: bytes) -> LogEntry:
    """The entry in these raw bytes. Raises ``CorruptObjectError``."""
    expect(raw, address, Kind.LOG_ENTRY)
    try:
        _kind, _name, old, new, time, author, action, previous = msgpack.unpackb(memoryview(raw)[1:], unicode_errors="surrogatepass")
        if type(time) is not int or type(action) is not str or not (author is None or type(author) is str):
            raise ValueError("a field of another type")
        if any(a is not None and (type(a) is not bytes or len(a) != ADDRESS_SIZE) for a in (old, new, previous)):
            raise ValueError("an address of another size")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(address.hex(), str(error)) from error
    return LogEntry(old, new, time, author, action, previous)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a ref pointed: the commit (None while it was deleted), since when, and what brought it there."""

    commit: Commit | None
    time: int
    action: str


def iter_positions(
    ref: Ref,
    read_commit: Callable[[Address], Commit],
    read_log: Callable[[Address], LogEntry],
    expired: Callable[[], int] = lambda: 0,
) -> Iterator[Position]:
    """Where the ref has pointed, newest first. Cost: one read for each.

    Args:
        expired: up to when entries have expired, in microseconds: what they lead to may have been collected. Asked once, at the first.
    """
    head, log = ref.head, ref.log
    entry = None if log is None else read_log(log)
    end: int | None = None
    while True:
        if entry is not None and head == entry.new:
            yield Position(None if head is None else read_commit(head), entry.time, entry.action)
            end = expired() if end is None else end
            if entry.time < end:
                return
            head = entry.old
            entry = None if entry.previous is None else read_log(entry.previous)
            if head is None and entry is None:
                return
            continue
        if head is None:
            return
        commit = read_commit(head)
        if commit.address == ROOT_ADDRESS:
            return
        yield Position(commit, commit.time, "commit")
        parent = first_parent_of(commit, read_commit)
        if parent is None:  # history was cut here
            return
        head = parent.address
