"""Listings of branches and tags: by name or by their last change, page by page, at the cost of the listed refs.

Layer: repository.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from versioned_state.arguments import check_text, count, instance_of, one_of, string
from versioned_state.errors import InvalidArgumentError, MissingObjectError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import RECENT, RefKind, read_index_key, recent_key, ref_key
from versioned_state.records import dataclass, field
from versioned_state.repository.history.commit import Commit, meta_values, read_commit
from versioned_state.repository.refs.ref import WINDOW, Place, Ref, parse_ref
from versioned_state.repository.refs.reflog import LogEntry, read_entry
from versioned_state.values.encode.inline import InlineEncoder

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

Order = Literal["name", "changed"]

_FIRST_PAGE: Final = 64
_LARGEST_PAGE: Final = 1024
_FEW: Final = 512
"""The most refs with its prefix that a listing by the last change reads and sorts.

If there are more, the listing goes through the index.
"""

_WILD: Final = re.compile(r"[*?\[]")
"""Where a pattern ceases to be the beginning of a name."""

_PLAIN: Final = (str, int, bool, type(None))

_CANDIDATES: Final = 4096
"""The most refs found by the index of meta that a listing by the last change reads and sorts.

If there are more, it passes over those with other values.
"""


@dataclass(frozen=True, slots=True)
class RefInfo:
    """A branch or a tag in a listing.

    Attributes:
        head: the commit that it points to.
        changed: when it was pointed there, in microseconds since 1970, UTC.
        cursor: ``after`` for the page that begins after it.
    """

    name: str
    head: Commit
    changed: int
    cursor: str

    @property
    def meta(self) -> dict[str, Any]:
        """The meta of the head, decoded at each access."""
        return self.head.meta


class Listed(NamedTuple):
    """A ref with its head, as it was read."""

    ref: Ref
    head: Commit
    changed: int
    entry: LogEntry | None

    @property
    def position(self) -> tuple[int, str]:
        """Its place in the order by the last change."""
        return self.changed, self.ref.name


@dataclass(frozen=True, slots=True)
class Listing:
    """The arguments of a listing, as ``Branches.iter_info`` documents them. Raises ``InvalidArgumentError``."""

    kind: RefKind
    prefix: str = ""
    after: str | None = None
    limit: int | None = None
    by: Order = "name"
    reverse: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)
    like: str | Sequence[str] = ()
    logs: bool = False

    def __post_init__(self) -> None:
        like: Any = self.like
        patterns = tuple(like) if isinstance(like, Iterable) and not isinstance(like, str) else (like,)
        for pattern in patterns:
            string("like", pattern)
        object.__setattr__(self, "like", patterns)
        string("prefix", self.prefix)
        check_text("after", self.after)
        one_of("by", self.by, ("name", "changed"))
        if self.limit is not None:
            count("limit", self.limit)
        instance_of("where", self.where, Mapping)
        if not self.prefix and len(patterns) == 1:
            object.__setattr__(self, "prefix", _WILD.split(patterns[0], maxsplit=1)[0])
        if self.by == "changed" and self.after is not None:
            read_cursor(self.after)

    def run(self, database: Database) -> Iterator[Listed]:
        """Yield the refs, read a page at a time as they are taken."""
        left = self.limit
        if left == 0:
            return
        for listed in self._by_change(database) if self.by == "changed" else self._by_name(database):
            yield listed
            if left is not None:
                left -= 1
                if not left:
                    return

    def cursor(self, listed: Listed) -> str:
        """Return ``after`` for the refs after this one."""
        return f"{listed.changed}/{listed.ref.name}" if self.by == "changed" else listed.ref.name

    def _has(self, name: str) -> bool:
        """Return whether a name has the prefix, and is like one of the patterns."""
        return name.startswith(self.prefix) and (
            not self.like or any(fnmatchcase(name, pattern) for pattern in self.like)
        )

    # By name

    def _by_name(self, database: Database) -> Iterator[Listed]:
        read = Heads(database, self)
        index = self._index(database)
        if index is not None:
            after = None if self.after is None else index + self.after
            for keys in self._pages(database, index + self.prefix, after, reverse=self.reverse):
                yield from read(self._found(index, keys))
            return
        after = None if self.after is None else ref_key(self.kind, self.after)
        if self.like:
            for keys in self._pages(database, ref_key(self.kind, self.prefix), after, reverse=self.reverse):
                yield from read(self._like(keys))
            return
        for page in self._records(database, ref_key(self.kind, self.prefix), after, reverse=self.reverse):
            yield from read(page, page)

    def _like(self, keys: Iterable[str]) -> list[str]:
        """Return the keys of refs whose names are like one of the patterns."""
        if not self.prefix and not self.like:
            return list(keys)
        start = len(ref_key(self.kind, ""))
        return [key for key in keys if self._has(key[start:])]

    def _index(self, database: Database) -> str | None:
        """Return the beginning of the keys of an index of meta that have the refs to list, and perhaps others.

        Returns None if there is no such index.
        """
        if not self.where:
            return None
        from versioned_state.repository.refs.meta_index import search_index

        return search_index(database.fence, self.kind, self.where)

    def _found(self, index: str, keys: Iterable[str]) -> list[str]:
        """Return the keys of the refs that some keys of the index of meta stand for."""
        start, skip = ref_key(self.kind, ""), len(index)
        return self._like([start + key[skip:] for key in keys])

    def _records(
        self, database: Database, prefix: str, after: str | None, *, reverse: bool
    ) -> Iterator[dict[str, bytes]]:
        """Yield the records of refs whose keys have a prefix, a page at a time."""
        size = self._first_page
        while page := database.store.page_items(prefix, after=after, limit=size, reverse=reverse):
            yield {key: stored for key, stored in page.items() if stored is not None}
            if len(page) < size:
                return
            after = next(reversed(page))
            size = min(size * 2, _LARGEST_PAGE)

    @property
    def _first_page(self) -> int:
        """The size of the first page, which is small so that the first ref comes at once."""
        # By the last change, one more: only the next ref confirms that those before it are the newest.
        return (
            _FIRST_PAGE
            if self.limit is None or self.where or self.like
            else min(self.limit + (self.by == "changed"), _LARGEST_PAGE)
        )

    def _pages(self, database: Database, prefix: str, after: str | None, *, reverse: bool) -> Iterator[list[str]]:
        """Yield the keys with a prefix, a page at a time."""
        size = self._first_page
        while keys := database.store.page(prefix, after=after, limit=size, reverse=reverse):
            yield keys
            if len(keys) < size:
                return
            after = keys[-1]
            size = min(size * 2, _LARGEST_PAGE)

    # By the last change

    def _by_change(self, database: Database) -> Iterator[Listed]:
        """Yield the newest first, or with ``reverse`` the oldest."""
        limit = None if self.after is None else read_cursor(self.after)
        found = self._few(database)
        if found is None:
            found = self._oldest(database, limit) if self.reverse else self._newest(database, limit)
        for listed in found:
            if limit is None or (listed.position > limit if self.reverse else listed.position < limit):
                yield listed

    def _few(self, database: Database) -> Iterator[Listed] | None:
        """Yield all refs with the prefix, in order, or None if there are many, and the index has the order."""
        indexed = self.kind == "branch" and database.fence.enabled
        prefix = ref_key(self.kind, self.prefix)
        read = Heads(database, self)
        index = self._index(database)
        many = None if index is None or not indexed or self.limit is None else _CANDIDATES
        if index is not None and (
            many is None or len(database.store.page(index + self.prefix, limit=many + 1)) <= many
        ):
            pages = self._pages(database, index + self.prefix, None, reverse=False)
            every = [listed for keys in pages for listed in read(self._found(index, keys))]
        elif indexed:
            keys = database.store.page(prefix, limit=_FEW + 1) if self.prefix else ()
            if not self.prefix or len(keys) > _FEW:
                return None
            every = list(read(self._like(keys)))
        elif self.like:
            pages = self._pages(database, prefix, None, reverse=False)
            every = [listed for keys in pages for listed in read(self._like(keys))]
        else:
            every = [
                listed for page in self._records(database, prefix, None, reverse=False) for listed in read(page, page)
            ]
        every.sort(key=lambda listed: listed.position, reverse=not self.reverse)
        return iter(every)

    def _newest(self, database: Database, limit: tuple[int, str] | None) -> Iterator[Listed]:
        """Yield the newest first.

        No branch has a place before its last change, so refs that changed after the next place are in order.
        """
        after = None if limit is None else recent_key(Place.at(limit[0] + WINDOW + 1).bound, "")
        waiting: list[tuple[int, _Backwards, Listed]] = []
        read = Heads(database, self)
        for keys in self._pages(database, RECENT, after, reverse=True):
            entries = [(Place(bound), name) for bound, name in map(read_index_key, keys)]
            # A branch with an exact place after the cursor is not read.
            wanted = [
                name for place, name in entries if self._has(name) and (limit is None or place.earliest <= limit[0])
            ]
            for listed in read([ref_key("branch", name) for name in wanted]):
                heapq.heappush(waiting, (-listed.changed, _Backwards(listed.ref.name), listed))
            latest = entries[-1][0].latest
            while waiting and -waiting[0][0] > latest:
                yield heapq.heappop(waiting)[2]
        while waiting:
            yield heapq.heappop(waiting)[2]

    def _oldest(self, database: Database, limit: tuple[int, str] | None) -> Iterator[Listed]:
        """Yield the oldest first. A branch may have changed up to ``WINDOW`` before its time in the index."""
        after = None if limit is None else recent_key(Place.at(limit[0]).bound, "")
        waiting: list[tuple[tuple[int, str], Listed]] = []
        read = Heads(database, self)
        for keys in self._pages(database, RECENT, after, reverse=False):
            entries = [(Place(bound), name) for bound, name in map(read_index_key, keys)]
            wanted = [name for _, name in entries if self._has(name)]
            for listed in read([ref_key("branch", name) for name in wanted]):
                heapq.heappush(waiting, (listed.position, listed))
            passed = entries[-1][0].latest - WINDOW
            while waiting and waiting[0][0][0] < passed:
                yield heapq.heappop(waiting)[1]
        while waiting:
            yield heapq.heappop(waiting)[1]


class _Backwards(str):
    """A name that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


class Heads:
    """Refs by their keys, read with their heads.

    A page takes two calls of the store, or one if the records were read already. Leaves out those that are deleted or
    do not fit. Raises ``CorruptRefError`` for one that is not there, although the index or an earlier page has it, and
    it was not erased.

    No ref is returned twice: a ref that changes during a listing has two places in the index in turn.
    """

    def __init__(self, database: Database, listing: Listing) -> None:
        self._database = database
        self._listing = listing
        self._start = len(ref_key(listing.kind, ""))
        self._filter = _Filter(listing.where) if listing.where else None
        self._given: set[str] = set()

    def __call__(self, keys: Iterable[str], stored: Mapping[str, bytes] | None = None) -> Iterator[Listed]:
        """Yield the refs in the order of their keys. ``stored`` has their records, if these were read already."""
        fresh = list(keys)
        if self._listing.by == "changed":
            fresh = [key for key in fresh if key not in self._given]
            self._given.update(fresh)
        commits, wanted = self._database.commits, self._filter
        clears = commits.cache.clears
        refs, raws, known = self._read(fresh, stored)
        graft = commits.shallow.graft
        read: list[Commit] = []
        try:
            for ref in refs:
                head, log = ref.head, ref.log
                assert head is not None
                commit = known.get(head)
                if commit is None:
                    raw = raws[head]
                    if wanted is not None and not wanted.may_fit(raw):
                        continue
                    commit = read_commit(head, raw)
                    read.append(commit)
                if wanted is not None and not wanted.fits(commit):
                    continue
                entry = None if log is None or log not in raws else read_entry(log, raws[log])
                yield Listed(ref, graft(commit), ref.changed(commit), entry)
        finally:  # also if the caller has taken the refs that it wanted
            if len(refs) <= _FIRST_PAGE:
                commits.cache.keep_many(read, clears)

    def _read(
        self, keys: list[str], stored: Mapping[str, bytes] | None
    ) -> tuple[list[Ref], dict[Address, bytes], dict[Address, Commit]]:
        """Return the live refs under some keys, the objects that they name, and the commits that are known already.

        A head whose commit was read lately is not among the objects.
        """
        store, kind, commits = self._database.store, self._listing.kind, self._database.commits
        if stored is None:
            stored = store.get_many(keys) if keys else {}
            if len(stored) < len(keys):
                for key in keys:
                    if key not in stored:
                        self._database.ref(kind, key[self._start :])  # raises if it was created, and not erased
        while True:
            refs = [parse_ref(kind, key[self._start :], stored[key]) for key in keys if key in stored]
            refs = [ref for ref in refs if ref.head is not None]
            wanted: dict[Address, None] = dict.fromkeys(ref.head for ref in refs if ref.head is not None)
            known = commits.cache.get_many(wanted) if len(refs) <= _FIRST_PAGE else {}
            if known:
                wanted = {head: None for head in wanted if head not in known}
            if self._listing.logs:
                wanted.update((ref.log, None) for ref in refs if ref.log is not None)
            try:
                return refs, self._database.objects.read_many(wanted), known
            except MissingObjectError:
                again = store.get_many(keys)
                if again == {key: stored[key] for key in keys if key in stored}:
                    raise
                stored = again  # a ref was moved, and its old head collected, after it was read


def read_cursor(cursor: str) -> tuple[int, str]:
    """Return the time of the last change and the name in a cursor. Raises ``InvalidArgumentError``."""
    time, _, name = cursor.partition("/")
    try:
        return int(time), name
    except ValueError:
        raise InvalidArgumentError(
            f"{cursor!r:.80} is not the cursor of a listing by the last change",
            hint="after=info.cursor, of the last one of the page before",
        ) from None


class _Filter:
    """Whether the meta of a commit has some values. Most commits that do not are not even decoded."""

    def __init__(self, where: Mapping[str, Any]) -> None:
        encoder = InlineEncoder()
        self._where = where
        self._marks = [
            encoder.encode_inline(key, "where") + encoder.encode_inline(value, "where")
            for key, value in where.items()
            if type(value) in _PLAIN
        ]

    def may_fit(self, raw: bytes) -> bool:
        """Return whether a commit may fit, given its raw bytes."""
        for mark in self._marks:  # noqa: SIM110 - all() would take three times as long for the one mark that there mostly is
            if mark not in raw:
                return False
        return True

    def fits(self, commit: Commit) -> bool:
        """Return whether a commit fits."""
        meta = meta_values(commit, self._where)
        if len(meta) < len(self._where):
            return False
        for key, value in self._where.items():
            found = meta[key]
            if type(found) is not type(value) or found != value:
                return False
        return True
