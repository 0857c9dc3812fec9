"""``Lines``: checkpoints as commits.

Each thread, and each namespace of a subgraph in it, is a line: a branch and its forks.

::

    langgraph/THREAD                  the newest checkpoint of the thread, and those that led to it
    langgraph/THREAD/fork/ID          a checkpoint that does not lead there: the end of what was left by time travel,
                                      or another writer's
    langgraph/THREAD/NAMESPACE        the same for a subgraph
    langgraph/THREAD/NAMESPACE/fork/ID

A checkpoint is a commit onto the commit of its parent. If the branch is elsewhere, because somebody went back in time
or two writers work on one thread, a fork keeps what the branch would leave: checkpoints are never lost, and never
mixed. Synchronous. Layer: integrations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from threading import Lock
from typing import Any, Final, NamedTuple

from versioned_state.errors import (
    BranchMovedError,
    MissingObjectError,
    RefExistsError,
    StoreBusyError,
    UnknownRevisionError,
)
from versioned_state.integrations.langgraph.pages import LEAST, Page, Pages, Row, delete_pages
from versioned_state.objects.address import Address
from versioned_state.objects.store import Staging
from versioned_state.repository.database import Database, Publication, backoff
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit, meta_values, new_commit
from versioned_state.repository.names.branch_name import branch_name, id_of
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.repository import Repository
from versioned_state.services.calls.handles import Handles, close_handle
from versioned_state.services.calls.locks import Locks
from versioned_state.state.branch.contents import ContentHandle
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.keys import USER, namespace_prefix, user_key

PREFIX: Final = "langgraph"
ID: Final = "checkpoint_id"
"""The key, in the meta of a commit, of the id of its checkpoint."""

REST: Final = "checkpoint"
"""The key, after all others, of what a checkpoint has beside its id and values."""

SHADOWED: Final = "metadata"
"""The key, in that, of metadata whose keys are among those of the adapter."""

_ID: Final = (ID,)
_ID_MARK: Final = InlineEncoder().encode_inline(ID, "meta")
_REST_MARK: Final = InlineEncoder().encode_inline(REST, "meta")
_SHADOWED_MARK: Final = InlineEncoder().encode_inline(SHADOWED, "meta")

LARGE: Final = "langgraph"
"""The namespace of a state that has what is too large for the meta of a commit."""

_LARGE_PREFIX: Final = namespace_prefix(LARGE)
_LARGE_KEY: Final = _LARGE_PREFIX + user_key(REST)

_FORK: Final = "fork"
_ATTEMPTS: Final = 1000
_HANDLES: Final = 64
_HANDLE_BYTES: Final = 64 << 20
_FEW: Final = 12
"""Checkpoints that are found without pages."""

_AHEAD: Final = 32
"""Checkpoints from which on they are read ahead."""

_KNOWN: Final = 50_000
"""The most checkpoints of which the index in memory is kept. Each takes about a kilobyte."""


class Line(NamedTuple):
    """A thread, and the namespace of a subgraph in it, or ``""``."""

    thread: str
    namespace: str = ""

    @property
    def branch(self) -> str:
        """The branch of the line."""
        return _branch_of(self)[0]

    @property
    def is_in_names(self) -> bool:
        """Whether the name of the branch has both ids. Of a long id it has a hash."""
        return _branch_of(self)[1]


@lru_cache(1024)
def _branch_of(line: Line) -> tuple[str, bool]:
    """Return the branch of a line, and whether its name has both ids."""
    name = branch_name(PREFIX, *line) if line.namespace else branch_name(PREFIX, line.thread)
    return name, all(id_of(part) is not None for part in name.split("/"))


class Content(NamedTuple):
    """The content of a checkpoint: the values of its channels, and what is too large for the meta of the commit."""

    values: dict[str, Any]
    large: Any = None


Entry = tuple[str, "bytes | Page", "Commit | int"]
"""A checkpoint that was found: its id, ``facts_of`` its commit, the commit; or its id, a page, the row there."""

Metadata = Callable[[Commit], "Mapping[str, Any] | None"]
"""Returns the metadata of a checkpoint, or None if they are not in the meta of the commit."""

_id_of: Final = itemgetter(0)


class Known:
    """The checkpoints of a line, found from the newest one down, as far as somebody has asked. Safe for many threads.

    The ids descend from each commit to its parent. So the checkpoints whose ids are greater than all in ``_next`` are
    all found. Of those that have a page (see ``pages``) no commit is read to find them.
    """

    def __init__(self, database: Database, main: Ref, forks: Mapping[str, Commit]) -> None:
        self.main: Ref = main
        self.forks: dict[str, Commit] = dict(forks)
        self._found: dict[str, Entry] = {}
        self._entries: list[Entry] = []  # those that are found, in ascending order
        # the next ones on each way down, in ascending order of their ids; without the commit if they have a page
        self._next: list[tuple[str, Address, Commit | None]] = []
        self._seen: set[Address] = {ROOT_ADDRESS}
        self._ahead: dict[Address, Commit] = {}
        self._pages: Pages | None = None
        self._used: set[Page] = set()
        self._without_page = 0
        """How many were found by their commits, since pages were written."""
        self._database = database
        self._lock = Lock()
        self._head = None if main.head is None else self._read(main.head)
        for head in ([] if self._head is None else [self._head]) + list(forks.values()):
            self._push(head)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: str) -> bool:
        return id in self._found

    def follow(self, main: Ref, forks: Mapping[str, Commit]) -> bool:
        """Take in the present refs of the line.

        Returns False if commits have left it, or a purge has rewritten them, so that everything must be found anew.
        """
        if (
            main.log != self.main.log
            or main.head is None
            or any(forks.get(name) != head for name, head in self.forks.items())
        ):
            return False
        with self._lock:
            head = self._head if main.head == self.main.head else self._read(main.head)
            if head is None or not self._is_before(head):
                return False
            for each in (head, *forks.values()):
                self._push(each)
            self.main, self.forks, self._head = main, dict(forks), head
        return True

    def _is_before(self, head: Commit) -> bool:
        """Return whether the end of the branch, as it was known, leads to a commit. Cost: O(log n) reads."""
        before = self._head
        if before is None or before is head:
            return True
        at = min(before.height, head.height)
        return graph.descend(head, at, self._database.commits.read).address == before.address

    def find(self, id: str) -> Commit | None:
        """Return a checkpoint, if there is one. Cost: a read for each later one that was not found before."""
        with self._lock:
            while self._next and self._next[-1][0] >= id and (id not in self._found or self._next[-1][0] == id):
                self._step()
            entry = self._found.get(id)
        if entry is None:
            return None
        return entry[2] if isinstance(entry[2], Commit) else self.commits([entry])[0]

    def before(self, id: str | None, most: int) -> list[Entry]:
        """Return the checkpoints before one, or the newest ones: at most ``most`` of them, newest first."""
        with self._lock:
            while True:
                end = len(self._entries) if id is None else bisect_left(self._entries, id, key=_id_of)
                # Those below the next one to be found may have a newer one between them.
                start = bisect_right(self._entries, self._next[-1][0], key=_id_of) if self._next else 0
                if end - start >= most or not self._next:
                    break
                if most > _FEW:
                    self._read_pages()
                if most > _AHEAD and not self._ahead:
                    self._read_ahead()
                self._step()
            return self._entries[max(start, end - most) : end][::-1]

    def all(self) -> dict[str, Commit]:
        """Return all checkpoints, by id."""
        with self._lock:
            while self._next:
                if not self._ahead:
                    self._read_ahead()
                self._step()
            entries = self._entries[:]
        return dict(zip(map(_id_of, entries), self.commits(entries), strict=True))

    def commits(self, entries: Sequence[Entry]) -> list[Commit]:
        """Return the commits of some checkpoints. Cost: nothing, or a request if they have pages."""
        wanted = [facts.addresses[at] for _, facts, at in entries if type(at) is int]  # type: ignore[union-attr]
        read = self._database.commits.read_many(wanted) if wanted else {}
        return [read[facts.addresses[at]] if type(at) is int else at for _, facts, at in entries]  # type: ignore[union-attr, misc]

    def write_pages(self, metadata: Metadata) -> None:
        """Write pages of the checkpoints that were found, and lead to the end of the branch, if many have none.

        Cost: most often nothing; else a request, and the metadata of these.
        """
        with self._lock:
            pages = self._pages
            gone = None if pages is None else pages.unused(self._used, is_all=not self._next)
            if pages is not None and (self._without_page >= LEAST or gone):
                self._without_page = 0
                self._used.update(pages.write(self.main, self._runs(pages, metadata), gone or set()))

    def _runs(self, pages: Pages, metadata: Metadata) -> Iterator[tuple[list[Row], Address]]:
        """Yield the runs of commits without a page, down from the end of the branch, and what is below each."""
        commits = {at.address: (id, at) for id, _, at in self._entries if isinstance(at, Commit)}
        address = self.main.head or ROOT_ADDRESS
        run: list[Row] = []
        while (place := pages.find(address)) is not None or address in commits:
            if place is not None:
                described, below = None, place[0].below
            else:
                id, commit = commits[address]
                described = None if commit.shallow else metadata(commit)
                below = commit.parent_addresses[0] if commit.parent_addresses else ROOT_ADDRESS
            if described is not None:
                run.append(Row(address, id, described))
            else:
                yield run, address
                run = []
            address = below
        yield run, address

    def _read_pages(self) -> None:
        if self._pages is None:
            self._pages = Pages(self._database, self.main.name)
            self._pages.read()

    def _is_known(self, address: Address) -> bool:
        return address in self._ahead or address in self._seen or self._row(address) is not None

    def _row(self, address: Address) -> tuple[Page, int] | None:
        return None if self._pages is None else self._pages.find(address)

    def _read_ahead(self) -> None:
        """Read the commits before those in ``_next``, many at a time: a commit names an ancestor half way down too."""
        wave = [address for _, _, commit in self._next if commit is not None for address in _earlier(commit)]
        while (wave := [each for each in dict.fromkeys(wave) if not self._is_known(each)]) and len(
            self._ahead
        ) < _KNOWN:
            found = self._database.commits.read_many(wave)
            self._ahead.update(found)
            wave = [address for commit in found.values() for address in _earlier(commit)]

    def _read(self, address: Address) -> Commit:
        found = self._ahead.pop(address, None)
        return self._database.commits.read(address) if found is None else found

    def _step(self) -> None:
        id, address, commit = self._next.pop()
        if commit is None:
            self._take_rows(address)
            return
        for parent in commit.parent_addresses[:1]:
            self._push_address(parent)
        self._without_page += 1
        self._add((id, facts_of(commit), commit))

    def _take_rows(self, address: Address) -> None:
        """Find the checkpoints of a page, from one down."""
        found = self._row(address)
        assert found is not None
        page, last = found
        ids, rows = page.ids[: last + 1], range(last + 1)
        self._seen.update(page.addresses[: last + 1])
        self._used.add(page)
        entries: list[Entry] = list(zip(ids, repeat(page, len(ids)), rows, strict=True))
        again = self._found.keys() & ids
        new = [entry for entry in entries if entry[0] not in again] if again else entries
        self._found.update(zip(map(_id_of, new), new, strict=True))
        self._entries += new
        self._entries.sort(key=_id_of)
        for entry in entries if again else ():
            if entry[0] in again:
                self._add(entry)
        self._push_address(page.below)

    def _add(self, entry: Entry) -> None:
        before = self._found.get(entry[0])
        if before is not None:  # the same checkpoint, put again
            old, new = self.commits([before, entry])
            if (new.time, new.generation) <= (old.time, old.generation):
                return
            del self._entries[bisect_left(self._entries, entry[0], key=_id_of)]
        self._found[entry[0]] = entry
        insort(self._entries, entry, key=_id_of)

    def _push_address(self, address: Address) -> None:
        if address in self._seen:
            return
        place = self._row(address)
        if place is None:
            self._push(self._read(address))
        else:
            self._seen.add(address)
            insort(self._next, (place[0].ids[place[1]], address, None))

    def _push(self, commit: Commit) -> None:
        found = None if commit.address in self._seen else checkpoint_at(commit, self._read)
        if found is not None and found[1].address not in self._seen:
            id, at = found
            self._seen.add(at.address)
            insort(self._next, (id, at.address, at))


@lru_cache(1024)
def checkpoint_id(commit: Commit) -> str | None:
    """Return the id of the checkpoint that a commit is, or None if it is another commit."""
    found = meta_values(commit, _ID).get(ID)
    return found if type(found) is str else None


def facts_of(commit: Commit) -> bytes:
    """Return packed bytes that have all metadata of a checkpoint, or none if these are not in the commit."""
    cell = commit.meta_cell or b""
    if _SHADOWED_MARK in cell:  # perhaps one whose metadata have an id too, which comes first
        return cell if _REST_MARK in cell else b""
    return cell[: cell.rfind(_ID_MARK)] if _REST_MARK in cell else b""


def checkpoint_at(commit: Commit, read: Callable[[Address], Commit]) -> tuple[str, Commit] | None:
    """Return a commit, or its nearest ancestor, that is a checkpoint, and its id.

    Commits of the user's own on the branch are none.
    """
    while (id := checkpoint_id(commit)) is None:
        if not commit.parent_addresses or commit.parent_addresses[0] == ROOT_ADDRESS:
            return None
        commit = read(commit.parent_addresses[0])
    return id, commit


class LineHandle(ContentHandle):
    """A handle on a branch of a line."""

    def __init__(self, repository: Repository, branch: str) -> None:
        super().__init__(repository, branch, (USER, _LARGE_PREFIX))
        self._made: tuple[Commit, str] | None = None  # the last checkpoint that it has committed, and its id

    @property
    def checkpoint(self) -> str | None:
        """The id of the checkpoint that is the head."""
        head, made = self.head, self._made
        return made[1] if made is not None and made[0] is head else checkpoint_id(head)

    def put(self, id: str, content: Content, options: Mapping[str, Any]) -> None:
        """Commit a checkpoint. Raises as ``commit``."""
        values = {user_key(key): value for key, value in content.values.items()}
        if content.large is not None:
            values[_LARGE_KEY] = content.large
        self._made = self.commit(values, **options), id


class Lines:
    """The lines of a repository. Safe for many threads and processes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.database: Database = repository.database
        self._handles: Handles[LineHandle] = Handles(_HANDLES, _HANDLE_BYTES, self._open)
        self._locks = Locks()
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._guard = Lock()

    def _open(self, branch: str) -> LineHandle:
        handle = self._handles.take_oldest()
        if handle is None:
            return LineHandle(self.repository, branch)
        try:
            handle.turn_to(branch)
        except BaseException:
            close_handle(handle)
            raise
        return handle

    def close(self) -> None:
        """Close the handles. Everything was committed."""
        self._handles.close()

    # Reading

    def newest(self, line: Line) -> Commit | None:
        """Return the newest checkpoint of a line. Cost: a read, or two."""
        head = self.database.read_head("branch", line.branch)[1]
        found = None if head is None else checkpoint_at(head, self.database.commits.read)
        return None if found is None else found[1]

    def find(self, line: Line, id: str) -> Commit | None:
        """Return a checkpoint.

        Cost: that of ``newest``, and a read for each later one that this object has not seen.
        """
        branch = line.branch
        with self._guard:
            known = self._known.get(branch)
        main, head = self.database.read_head("branch", branch)
        if known is not None and id in known and (main.head, main.log) == (known.main.head, known.main.log):
            return known.find(id)
        if head is not None and checkpoint_id(head) == id:
            return head
        return self.known(line).find(id)

    def known(self, line: Line) -> Known:
        """Return the checkpoints of a line, to find them. Cost: two requests."""
        branch = line.branch
        main = self.database.ref("branch", branch)
        forks = self._forks(branch)
        with self._guard:
            known = self._known.pop(branch, None)
        if known is None or not known.follow(main, forks):
            known = Known(self.database, main, forks)
        with self._guard:
            self._known[branch] = known
            total = sum(map(len, self._known.values())) if len(self._known) > 1 else 0
            while total > _KNOWN and len(self._known) > 1:
                total -= len(self._known.popitem(last=False)[1])
        return known

    def write_pages(self, line: Line, metadata: Metadata) -> None:
        """Write the pages of a line that was listed: see ``Known.write_pages``."""
        with self._guard:
            known = self._known.get(line.branch)
        if known is not None:
            known.write_pages(metadata)

    def _forks(self, branch: str) -> dict[str, Commit]:
        prefix = f"{branch}/{_FORK}/"
        infos = self.repository.branches.iter_info(prefix=prefix)
        return {info.name: info.head for info in infos if "/" not in info.name[len(prefix) :]}

    def forget(self, line: Line) -> None:
        """Drop what is in memory of a line."""
        self._forget(line.branch)

    def _forget(self, branch: str) -> None:
        self._handles.forget(branch)
        with self._guard:
            self._known.pop(branch, None)

    def lines(self, thread: str | None = None) -> list[Line]:
        """Return all lines, or those of a thread. Cost: lists their branches."""
        if thread is None:
            names: Iterable[str] = (info.name for info in self.repository.branches.iter_info(prefix=PREFIX + "/"))
        else:
            root = Line(thread).branch
            names = [root] if root in self.repository.branches else []
            names += [info.name for info in self.repository.branches.iter_info(prefix=root + "/")]
        return list(dict.fromkeys(line for name in names if (line := self._line(name, thread)) is not None))

    def _line(self, name: str, thread: str | None) -> Line | None:
        """Return the line of a branch, or None if the branch is a fork."""
        parts = name.split("/")[1:]
        if len(parts) > 2:
            return None
        ids = [id_of(part) for part in parts]
        if thread is not None:
            ids[0] = thread
        if None in ids:
            kept = self.repository.records.get(name)
            if kept is None:
                return None
            return Line(kept["thread_id"], kept["checkpoint_ns"])
        return Line(*(each for each in ids if each is not None))

    # Writing

    def put(self, line: Line, id: str, parent: str | None, content: Content, **options: Any) -> None:
        """Commit a checkpoint onto its parent.

        Args:
            options: of ``ContentHandle.commit``.
        """
        self._keep_ids(line)
        with self._locks.held(line.branch):
            is_again = False
            for attempt in range(_ATTEMPTS):
                try:
                    if self._put_next(line, id, parent, content, options):
                        return
                    with suppress(BranchMovedError):
                        if self._put_aside(line, id, parent, content, options):
                            return
                except MissingObjectError:
                    # Others have erased what the handle relied on. It is closed, and a new one does not.
                    if is_again:
                        raise
                    is_again = True
                if attempt:
                    backoff(attempt)
            raise _busy(line)

    def _put_next(self, line: Line, id: str, parent: str | None, content: Content, options: dict[str, Any]) -> bool:
        """Commit a checkpoint that follows the newest one.

        Returns False if it does not: then nothing was done, and the handle, which may stand on a commit that is no
        longer the head, is closed.
        """
        try:
            with self._handles.handle(line.branch) as handle:
                head = handle.checkpoint
                if head != parent or (head is not None and id <= head):
                    raise _AsideError
                handle.put(id, content, options)
        except (_AsideError, BranchMovedError):
            return False
        return True

    def _keep_ids(self, line: Line) -> None:
        """Record the ids of a line beside its branch, if the name of the branch has only the hash of one."""
        if not line.is_in_names and line.branch not in self.repository.records:
            self.repository.records[line.branch] = {"thread_id": line.thread, "checkpoint_ns": line.namespace}

    def _put_aside(self, line: Line, id: str, parent: str | None, content: Content, options: dict[str, Any]) -> bool:
        """Commit a checkpoint that may not follow the newest one. Returns False if it does: then nothing was done."""
        branch, read = line.branch, self.database.commits.read
        head = self.database.read_head("branch", branch)[1]
        newest, at = (None if head is None else checkpoint_at(head, read)) or (None, None)
        is_newest = newest is None or id > newest
        if head == at and newest == parent and is_newest:
            return False
        base = None if parent is None or parent >= id else self._parent(line, parent)
        onto = read(ROOT_ADDRESS) if base is None else base
        if is_newest and at is not None and newest is not None and newest != parent:
            with suppress(RefExistsError):
                self.repository.branches.create(_fork(branch, newest), at)
        target = branch if is_newest or id == newest else _fork(branch, id)
        with self._handles.handle(target) as handle:
            if target == branch and head is not None and handle.head != head:
                raise BranchMovedError(branch, expected=head.id, actual=handle.head.id)
            handle.put(id, content, {**options, "parent": onto})
        with self._guard:
            self._known.pop(branch, None)  # the checkpoint may be one that was put again
        return True

    def _parent(self, line: Line, id: str) -> Commit | None:
        """Return a checkpoint that is to be a parent: most often it is the end of a fork."""
        fork = self.database.read_head("branch", _fork(line.branch, id))[1]
        return self.find(line, id) if fork is None else fork

    # Deleting

    def delete(self, thread: str) -> None:
        """Delete a thread, with its subgraphs and all writes."""
        root = Line(thread).branch
        with self._locks.held(root):
            for name in dict.fromkeys([root, *self.repository.branches.delete_with_inner(root)]):
                self._forget(name)

    def keep(self, line: Line, wanted: Callable[[dict[str, Commit]], Collection[str]]) -> set[str]:
        """Delete all checkpoints of a line but some. Returns the ids of the deleted ones.

        The later ones are committed again, onto the newest one that is left of those before them, with the content, the
        message and the time that they had. The ids of checkpoints stay; those of their commits change.

        Args:
            wanted: returns the ids to keep; perhaps called several times.
        """
        branch = line.branch
        with self._locks.held(branch):
            for attempt in range(_ATTEMPTS):
                self.forget(line)
                known = self.known(line)
                commits = known.all()
                kept = set(wanted(commits))
                gone = set(commits) - kept
                if not gone or self._rewrite(branch, known, commits, kept):
                    self.forget(line)
                    if gone:
                        delete_pages(self.database, branch)
                    return gone
                backoff(attempt)
            raise _busy(line)

    def _rewrite(self, branch: str, known: Known, commits: dict[str, Commit], kept: set[str]) -> bool:
        """Point the branches of a line to commits of the wanted checkpoints only.

        Returns False if one has moved meanwhile.
        """
        root = self.database.commits.read(ROOT_ADDRESS)
        staging = Staging(self.database.objects)
        new: dict[Address, Commit] = {}
        leaves: dict[Address, Commit] = {}
        instead: dict[Address, Commit] = {ROOT_ADDRESS: root}

        def read(address: Address) -> Commit:
            return new[address] if address in new else self.database.commits.read(address)

        for id, commit in sorted(commits.items()):
            before = self._before(commit)
            parent = instead.get(before, root)
            if id not in kept:
                instead[commit.address] = parent
                continue
            made = commit
            if commit.parent_addresses[:1] != (parent.address,):
                made, raw = _onto(self.database, commit, parent, read)
                staging.add(raw, made.address)
                new[made.address] = made
            instead[commit.address] = leaves[made.address] = made
            leaves.pop(parent.address, None)
        return self._place(branch, known, leaves.values(), staging)

    def _before(self, commit: Commit) -> Address:
        """Return the checkpoint that a commit follows, or the root."""
        if not commit.parent_addresses:
            return ROOT_ADDRESS
        read = self.database.commits.read
        parent = commit.parent_addresses[0]
        found = None if parent == ROOT_ADDRESS else checkpoint_at(read(parent), read)
        return ROOT_ADDRESS if found is None else found[1].address

    def _place(self, branch: str, known: Known, leaves: Iterable[Commit], staging: Staging) -> bool:
        """Point the branches of a line to these commits only, forks first, so that what is kept always has a branch.

        Returns False if one of them has moved meanwhile. The branch itself moves in any case, so that other processes
        notice.
        """
        ends = sorted(leaves, key=lambda each: checkpoint_id(each) or "")
        forks = {_fork(branch, checkpoint_id(each) or ""): each for each in ends[:-1]}
        before = {name: head.address for name, head in known.forks.items()}
        for name, commit in forks.items():
            ref = self.database.ref("branch", name)
            if ref.head != before.get(name) or (
                ref.head != commit.address and self._move(ref, commit, staging) is None
            ):
                return False
        main = self.database.ref("branch", branch)
        if (main.head, main.log) != (known.main.head, known.main.log):
            return False
        if ends and self._move(main, ends[-1], staging) is None:
            return False
        for name in ([] if ends else [branch]) + [name for name in known.forks if name not in forks]:
            with suppress(UnknownRevisionError):
                self.repository.branches.delete(name, force=True)
        return True

    def _move(self, ref: Ref, commit: Commit, staging: Staging) -> Ref | None:
        action = "checkpoints deleted or copied"
        if commit.address not in staging:
            return self.database.move(ref, commit, action=action)
        moved = self.database.publish([Publication(ref, commit, staging, action=action)])
        return None if moved is None else moved[0]

    # Copying

    def copy(self, source: Line, target: Line) -> None:
        """Give a line all checkpoints of another, beside its own.

        Cost: a branch for each of the other's, whatever they hold.
        """
        head = self.newest(source)
        heads = ([] if head is None else [head]) + list(self._forks(source.branch).values())
        if source == target or not heads:
            return
        self._keep_ids(target)
        with self._locks.held(target.branch):
            for attempt in range(_ATTEMPTS):
                self.forget(target)
                known = self.known(target)
                there = [] if known.main.head is None else [self.database.commits.read(known.main.head)]
                leaves = {commit.address: commit for commit in (*there, *known.forks.values(), *heads)}
                if self._place(target.branch, known, leaves.values(), Staging(self.database.objects)):
                    self.forget(target)
                    return
                backoff(attempt)
            raise _busy(target)


def _earlier(commit: Commit) -> list[Address]:
    """Return the addresses of earlier commits that a commit names."""
    parent = commit.parent_addresses[:1]
    return [*parent, *([] if commit.jump_address is None or not parent else [commit.jump_address])]


class _AsideError(Exception):
    """The checkpoint does not follow the one that a handle is at."""


def _busy(line: Line) -> StoreBusyError:
    return StoreBusyError(f"others keep changing the thread {line.thread!r}", hint="try again")


def _fork(branch: str, id: str) -> str:
    return f"{branch}/{_FORK}/{branch_name(id)}"


def _onto(
    database: Database, commit: Commit, parent: Commit, read: Callable[[Address], Commit]
) -> tuple[Commit, bytes]:
    """Return a commit as it is, but with another parent, and its bytes."""
    return new_commit(
        commit.tree,
        (parent,),
        time=commit.time,
        author=commit.author,
        message=commit.message,
        meta_cell=commit.meta_cell,
        jump=graph.jump_of(parent, read),
        sign=None if database.signer is None else database.signer.sign,
    )
