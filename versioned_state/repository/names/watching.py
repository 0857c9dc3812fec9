"""``Watch``: which branches move, from where to where, as they do, at the cost of those that moved lately.

Layer: repository.

``docs/design/043-a-feed-of-changes.md`` says why nothing is lost, and under which condition.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from versioned_state.arguments import check_text, list_of, seconds, string
from versioned_state.errors import InvalidArgumentError, MissingObjectError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import GONE, RECENT, gone_key, read_index_key, recent_key, ref_key
from versioned_state.records import dataclass
from versioned_state.repository.history.commit import EARLIEST, LATEST, Commit
from versioned_state.repository.names.branches import new_name
from versioned_state.repository.names.listing import Heads, Listed, Listing
from versioned_state.repository.refs.ref import WINDOW, Place, Ref, parse_ref

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.refs.reflog import LogEntry

_SHARE: Final = 9
"""A watch waits at least this many times as long as its last poll took, so that it takes a tenth of a core at most."""

_PAGE: Final = 1024
_START: Final = ref_key("branch", "")


@dataclass(frozen=True, slots=True)
class BranchMove:
    """A branch that has moved since a watch last saw it.

    Attributes:
        name: of the branch.
        before: the id of the commit that it pointed to, or None if the branch is new, or if its reflog no longer tells.
            It is the head that the watch last saw, if it moved within ``lag`` of the move before; else that of its
            reflog, which has the times of its writers.
        head: the commit that it points to now, or None if it was deleted.
        time: when it was pointed there, in microseconds since 1970, UTC.
        cursor: ``after`` for a watch that continues after this move.
    """

    name: str
    before: str | None
    head: Commit | None
    time: int
    cursor: str

    @property
    def id(self) -> str | None:
        """The id of ``head``."""
        return None if self.head is None else self.head.id

    def to_json(self) -> dict[str, Any]:
        """Return the move as data for JSON, with the id and the message of the head."""
        message = None if self.head is None else self.head.message
        return {
            "branch": self.name,
            "before": self.before,
            "id": self.id,
            "message": message,
            "time": self.time,
            "cursor": self.cursor,
        }


class _Seen(NamedTuple):
    """A branch as a watch last saw it. ``latest`` is the end of its place in the index."""

    stored: bytes | None
    head: Address | None
    log: Address | None
    latest: float


class _Found(NamedTuple):
    """A branch whose record a poll finds changed.

    ``moved`` is false if its head is the same, or was reported before.
    """

    time: int
    name: str
    moved: bool
    before: str | None
    head: Commit | None
    seen: _Seen


class Watch(Iterator[BranchMove]):
    """The moves of branches from some point on: an iterator, and an asynchronous one. See ``Repository.watch``.

    Safe for many threads and tasks, each of which gets other moves. An error, a cancellation or Ctrl-C leaves the watch
    as it is: the next step goes on.
    """

    def __init__(
        self,
        database: Database,
        prefix: str,
        *,
        branches: Iterable[str] | None,
        after: str | None,
        interval: float,
        timeout: float | None,
        lag: float,
    ) -> None:
        self._database = database
        self._prefix = string("prefix", prefix)
        self._names = None if branches is None else _names(branches, self._prefix)
        check_text("after", after)
        self._interval = seconds("interval", interval)
        self._timeout = math.inf if timeout is None else seconds("timeout", timeout)
        self._lag = round(seconds("lag", lag) * 1_000_000)
        self._lock = Lock()
        self._seen: dict[str, _Seen] = {}
        self._ready: deque[BranchMove] = deque()
        self._reading: Iterator[list[_Found]] | None = None
        self._rest = self._interval
        # The latest time of a move that was found, but at most the present time: all moves that become visible from now
        # on are later, or at most ``lag`` earlier.
        self._reached = EARLIEST
        self._cursor = after or ""
        self._is_first = bool(after)
        if after is None:
            self._begin()
        elif after:
            self._reached = _read_cursor(after)

    @property
    def cursor(self) -> str:
        """``after`` for a watch that continues where this one is, after the moves that were taken from it."""
        return self._cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BranchMove:
        """Return the next move. Waits for it, ``timeout`` at most, and raises ``StopIteration`` then."""
        ends = time.monotonic() + self._timeout
        while (move := self._take()) is None:
            if (left := ends - time.monotonic()) <= 0:
                raise StopIteration
            time.sleep(min(self._rest, left))
        return move

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BranchMove:
        """Do ``__next__`` with the event loop free."""
        import asyncio

        from versioned_state.off_loop import off_loop

        ends = time.monotonic() + self._timeout
        while (move := self._next_ready() or await off_loop(self._poll) or self._next_ready()) is None:
            if (left := ends - time.monotonic()) <= 0:
                raise StopAsyncIteration
            await asyncio.sleep(min(self._rest, left))
        return move

    def _take(self) -> BranchMove | None:
        """Return the next move that was found, after a poll if there is none."""
        move = self._next_ready()
        if move is None:
            self._poll()
            move = self._next_ready()
        return move

    def _next_ready(self) -> BranchMove | None:
        try:
            move = self._ready.popleft()
        except IndexError:
            return None
        self._cursor = move.cursor
        return move

    # Polls

    def _begin(self) -> None:
        """Take all branches as they are for seen."""
        now = self._database.now()
        newest = self._database.store.page(RECENT, limit=1, reverse=True) if self._is_indexed else ()
        self._reached = min([now, *(Place(read_index_key(key)[0]).latest for key in newest)])
        self._cursor = str(self._reached)
        for stored, _ in self._pages(self._floor):
            self._seen |= {
                name: _as_seen(parse_ref("branch", name, raw)) for name, raw in stored.items() if raw is not None
            }

    def _poll(self) -> None:
        """Read until moves are found, or to the end.

        A call that is cut off anywhere has lost nothing: the next one reads it again.
        """
        with self._lock:
            began = time.monotonic()
            while not self._ready:
                reading = self._reading or self._found()
                self._reading = None  # a generator that has raised is at its end
                found = next(reading, None)
                if found is None:
                    self._is_first = False
                    if self._is_indexed:  # the others are never read again, unless they move
                        self._seen = {name: seen for name, seen in self._seen.items() if seen.latest >= self._floor}
                    self._rest = max(self._interval, _SHARE * (time.monotonic() - began))
                    return
                self._accept(found)
                self._reading = reading

    def _accept(self, found: list[_Found]) -> None:
        now, reached = self._database.now(), self._reached
        moves = []
        for each in found:
            if each.moved:
                reached = max(reached, min(each.time, now))
                moves.append(BranchMove(each.name, each.before, each.head, each.time, str(reached)))
        self._ready.extend(moves)  # first: better that a move is found twice than never
        self._reached = reached
        for each in found:
            if each.seen.stored is None:
                self._seen.pop(each.name, None)
            else:
                self._seen[each.name] = each.seen

    @property
    def _floor(self) -> int:
        """The time from which on moves may have become visible since the last poll."""
        return max(self._reached - self._lag, EARLIEST)

    @property
    def _is_indexed(self) -> bool:
        """Whether polls go through the index of last changes, not through all branches or those that were named."""
        return self._names is None and self._database.fence.enabled

    def _found(self) -> Iterator[list[_Found]]:
        """Yield the branches whose records have changed, by the time of their moves."""
        floor = self._floor
        waiting: list[tuple[int, str, _Found]] = []
        given: set[str] = set()  # what moves again meanwhile is for the next poll
        for stored, passed in self._pages(floor):
            for found in self._changed(stored, floor, given):
                heapq.heappush(waiting, (found.time, found.name, found))
            ready = []
            while waiting and waiting[0][0] < passed:
                ready.append(heapq.heappop(waiting)[2])
            if ready:
                yield ready

    # The records to compare, by name, and with each page the time before which no branch of a later page has changed

    def _pages(self, floor: int) -> Iterator[tuple[dict[str, bytes | None], float]]:
        if self._is_indexed:
            yield from self._lately(floor)
        elif self._names is not None:
            yield self._records(self._names), math.inf
        else:
            records: dict[str, bytes | None] = {}
            for key, stored in self._database.store.items(_START + self._prefix):
                records[key[len(_START) :]] = stored
            # A branch that was seen, and whose record is gone, was erased.
            yield {**dict.fromkeys(self._seen), **records}, math.inf

    def _records(self, names: Sequence[str]) -> dict[str, bytes | None]:
        found = self._database.store.get_many([_START + name for name in names]) if names else {}
        return {name: found.get(_START + name) for name in names}

    def _lately(self, floor: int) -> Iterator[tuple[dict[str, bytes | None], float]]:
        """Yield the branches whose place in the index is at a time or later, deleted ones first."""
        place, read = Place.at(floor).bound, set()
        for _, names in self._index(GONE, gone_key(place, "")) if floor > EARLIEST else ():
            yield self._records(names), -math.inf  # of any prefix: a branch with the prefix may have had another name
        for latest, every in self._index(RECENT, recent_key(place, "")):
            names = [name for name in every if name.startswith(self._prefix)]
            read.update(names)
            # A branch may have changed up to ``WINDOW`` before its time in the index.
            yield self._records(names), latest - WINDOW
        # Those with a place earlier than they had, or none: branches that were deleted, erased, or moved by a clock
        # that is behind.
        yield (
            self._records([name for name, seen in self._seen.items() if seen.latest >= floor and name not in read]),
            math.inf,
        )

    def _index(self, prefix: str, after: str) -> Iterator[tuple[int, list[str]]]:
        """Yield the names in an index, a page at a time, and the last time in the page."""
        while keys := self._database.store.page(prefix, after=after, limit=_PAGE):
            entries = list(map(read_index_key, keys))
            yield Place(entries[-1][0]).latest, [name for _, name in entries]
            if len(keys) < _PAGE:
                return
            after = keys[-1]

    # What has changed

    def _changed(self, stored: Mapping[str, bytes | None], floor: int, given: set[str]) -> Iterator[_Found]:
        """Yield the branches whose records are not as they were last seen, and those that one was renamed to.

        Leaves out branches that were given.
        """
        renamed: dict[str, int] = {}
        while stored:
            changed = {name: raw for name, raw in stored.items() if name not in given and self._is_news(name, raw)}
            given.update(stored)
            for found, entry in self._read(changed, floor, renamed):
                yield found if found.name.startswith(self._prefix) else found._replace(moved=False)
                renamed |= self._renames(found, entry, floor)
            stored = self._records([name for name in renamed if name not in given]) if self._names is None else {}

    def _is_news(self, name: str, stored: bytes | None) -> bool:
        seen = self._seen.get(name)
        return stored is not None if seen is None else stored != seen.stored

    def _read(
        self, stored: Mapping[str, bytes | None], floor: int, renamed: Mapping[str, int]
    ) -> Iterator[tuple[_Found, LogEntry | None]]:
        database = self._database
        live: dict[str, bytes] = {}  # last: a deleted one tells whether one of these was renamed
        for name, raw in stored.items():
            ref = Ref("branch", name, None, None, None) if raw is None else parse_ref("branch", name, raw)
            if raw is not None and ref.head is not None:
                live[_START + name] = raw
                continue
            seen, entry = self._seen.get(name), self._entry(ref.log)
            when = database.now() if entry is None else entry.time
            before = self._before(ref, floor)
            # One that was not seen may have come and gone since, but who can tell if its reflog has expired?
            moved = (
                seen.head is not None
                if seen is not None
                else floor > EARLIEST and (when >= floor or not self._is_first)
            )
            yield _Found(when, name, moved, before, None, _as_seen(ref)), entry
        for listed in Heads(database, Listing("branch", logs=True))(live, live):
            yield self._of(listed, floor, renamed.get(listed.ref.name)), listed.entry

    def _of(self, listed: Listed, floor: int, renamed: int | None) -> _Found:
        ref, head = listed.ref, listed.head
        seen, when = self._seen.get(ref.name), listed.changed if renamed is None else renamed
        is_old = self._is_first and seen is None and when < floor
        moved = not is_old and (seen is None or seen.head != ref.head)
        before = self._before(ref, floor) if moved and (seen is not None or renamed is None) else None
        return _Found(when, ref.name, moved, before, head, _as_seen(ref))

    def _before(self, ref: Ref, floor: int) -> str | None:
        """Return the id of the commit that a branch pointed to when it was last seen, or at a time if it was not."""
        seen = self._seen.get(ref.name)
        if seen is not None:
            return None if seen.head is None else seen.head.hex()
        if ref.stored is None or floor == EARLIEST or not (self._is_indexed or self._is_first):
            return None
        with suppress(MissingObjectError):  # gc, prune or purge took what the reflog leads to
            for position in self._database.reflog(ref):
                if position.time < floor:
                    return None if position.commit is None else position.commit.id
        return None

    def _renames(self, found: _Found, entry: LogEntry | None, floor: int) -> dict[str, int]:
        """Return the names that a branch got since a time, with the times.

        The entry of a renamed branch in the index is as old as the branch's last change.
        """
        names: dict[str, int] = {}
        seen = self._seen.get(found.name)
        known = None if seen is None else seen.log
        log = found.seen.log
        while entry is not None and entry.time >= floor and log != known:
            name = new_name(entry.action)
            if name is not None and name.startswith(self._prefix):
                names[name] = entry.time
            log = entry.previous
            entry = self._entry(log)
        return names

    def _entry(self, log: Address | None) -> LogEntry | None:
        """Return a log entry, or None if there is none, or if gc has erased it since."""
        with suppress(MissingObjectError):
            return None if log is None else self._database.read_log(log)
        return None


def _as_seen(ref: Ref) -> _Seen:
    return _Seen(ref.stored, ref.head, ref.log, Place(ref.bound).latest if ref.bound else -math.inf)


def _names(branches: Iterable[str], prefix: str) -> list[str]:
    wanted = [string("a name in branches", name) for name in list_of("branches", branches)]
    return [name for name in dict.fromkeys(wanted) if name.startswith(prefix)]


def _read_cursor(cursor: str) -> int:
    """Return the time in a cursor. Raises ``InvalidArgumentError``."""
    try:
        time = int(cursor)
        if not (cursor.isascii() and EARLIEST <= time <= LATEST):
            raise ValueError
    except ValueError:
        raise InvalidArgumentError(
            f"{cursor!r:.80} is not the cursor of a watch", hint="after=move.cursor of a move"
        ) from None
    return time
