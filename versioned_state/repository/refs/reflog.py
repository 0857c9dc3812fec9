"""The reflog: the earlier positions of a ref. Layer: repository.

A log entry is written only for a move that is not a step to a child: reset, delete, create. Entries form a linked list
of immutable objects, and the ref's record names the last one. Between two entries the commits are their own log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgpack

from versioned_state.errors import CorruptObjectError, MissingObjectError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, expect
from versioned_state.records import dataclass
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit
from versioned_state.repository.refs.ref import Ref

DEFAULT_EXPIRE: Final = timedelta(days=30)
"""How long the reflog keeps commits that nothing else leads to; git's default."""

CREATE: Final = "create"
"""The call that created a branch at a commit."""

EXPIRE: Final = "expire"
"""The deletion of a branch whose time to live was over."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One move: from ``old`` to ``new`` (None: the ref did not exist), when, by whom, and by which call."""

    old: Address | None
    new: Address | None
    time: int
    author: str | None
    action: str
    previous: Address | None


def write_entry(ref: Ref, new: Address | None, *, time: int, author: str | None, action: str) -> bytes:
    """Return the raw bytes of the entry for moving ``ref`` to ``new``, kind first."""
    body: bytes = msgpack.packb(
        [ref.kind, ref.name, ref.head, new, time, author, action, ref.log], unicode_errors="surrogatepass"
    )
    return bytes((Kind.LOG_ENTRY,)) + body


def read_entry(address: Address, raw: bytes) -> LogEntry:
    """Return the entry in these raw bytes. Raises ``CorruptObjectError``."""
    expect(raw, address, Kind.LOG_ENTRY)
    try:
        _kind, _name, old, new, time, author, action, previous = msgpack.unpackb(
            memoryview(raw)[1:], unicode_errors="surrogatepass"
        )
        if type(time) is not int or type(action) is not str or not (author is None or type(author) is str):
            raise ValueError("a field of another type")
        if any(a is not None and (type(a) is not bytes or len(a) != ADDRESS_SIZE) for a in (old, new, previous)):
            raise ValueError("an address of another size")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(address.hex(), str(error)) from error
    return LogEntry(old, new, time, author, action, previous)


@dataclass(frozen=True, slots=True)
class Position:
    """A position of a ref: the commit, the time since which it was the head, and the call that moved the ref.

    The commit is None if the ref was deleted at that time.
    """

    commit: Commit | None
    time: int
    action: str


class Reflog:
    """The past of one ref, as it was read.

    Args:
        read_commit, read_log: read a commit, a log entry.
        expired: returns the time up to which entries have expired, in microseconds: commits that only they name may
            have been collected. Called at most once, at the first entry.
    """

    def __init__(
        self,
        ref: Ref,
        read_commit: graph.Read,
        read_log: Callable[[Address], LogEntry],
        expired: Callable[[], int] = lambda: 0,
    ) -> None:
        self._ref = ref
        self._read_commit = read_commit
        self._read_log = read_log
        self._expired = expired

    def __iter__(self) -> Iterator[Position]:
        """Yield the positions of the ref, newest first. Cost: one read each."""
        for part in self._parts():
            if isinstance(part, Position):
                yield part
                continue
            newest, end = part
            for commit in graph.first_parents(newest, self._read_commit):
                if commit.address in (end, ROOT_ADDRESS):
                    break
                yield Position(commit, commit.time, "commit")

    def __len__(self) -> int:
        """Return how many positions there are. Cost: as ``at``."""
        return sum(1 if isinstance(part, Position) else self._length(*part) for part in self._parts())

    def at(self, number: int) -> Position | None:
        """Return the position that many moves ago, or None if the ref has not moved that often.

        Cost: O(log n) reads for each log entry passed.
        """
        for part in self._parts():
            if isinstance(part, Position):
                if number == 0:
                    return part
                number -= 1
                continue
            newest, end = part
            length = self._length(newest, end)
            if number < length:
                commit = graph.descend(newest, newest.height - number, self._read_commit)
                return Position(commit, commit.time, "commit")
            number -= length
        return None

    def _parts(self) -> Iterator[Position | tuple[Commit, Address | None]]:
        """Yield the log entries, and between them the runs of ordinary commits.

        A run is its newest commit, and its end, which is beyond it. A run that leads to no log entry ends with the root
        commit, or where history does.
        """
        head, log = self._ref.head, self._ref.log
        entry = None if log is None else self._read_log(log)
        expired: int | None = None
        while head is not None or entry is not None:
            if entry is not None and head == entry.new:
                yield Position(None if head is None else self._read_commit(head), entry.time, entry.action)
                expired = self._expired() if expired is None else expired
                if entry.time < expired:
                    return
                head = entry.old
                entry = None if entry.previous is None else self._read_log(entry.previous)
                continue
            if head is None or head == ROOT_ADDRESS:
                return
            newest = self._read_commit(head)
            head = None if entry is None else entry.new
            if self._ref.kind == "tag":  # the tag was made with the commit, and has no earlier positions
                yield Position(newest, newest.time, "commit")
                continue
            yield newest, head
            # A run after a deletion leads to nothing: the branch began anew with its first commit.
            if entry is None or (head is not None and not self._foot(newest, head)[1]):
                return

    def _length(self, newest: Commit, end: Address | None) -> int:
        return newest.height - self._foot(newest, end)[0] + 1

    def _foot(self, newest: Commit, end: Address | None) -> tuple[int, bool]:
        """Return the height of the oldest commit of a run, and whether the run leads to its end.

        Cost: O(log n) reads.
        """
        if end is not None:
            with suppress(MissingObjectError):  # collected, so history ends above it
                commit = self._read_commit(end)
                if commit.height <= newest.height and graph.descend(newest, commit.height, self._read_commit) == commit:
                    return commit.height + 1, True
        return max(graph.descend(newest, 0, self._read_commit).height, 1), False
