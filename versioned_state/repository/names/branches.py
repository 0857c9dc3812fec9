"""Branches: names that move with each commit. Layer: repository."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, Final

from versioned_state.arguments import count, string
from versioned_state.errors import BranchMovedError, RefExistsError, UnmergedBranchError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import RECENT, REF_KINDS, lock_key, read_index_key, record_key, ref_key
from versioned_state.objects.store import Staging
from versioned_state.records import dataclass, replace
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.listing import Listing, Order, RefInfo
from versioned_state.repository.names.mapping import DELETE, Move, Refs
from versioned_state.repository.names.resolve import default_branch, resolve
from versioned_state.repository.refs.named_records import keys_of_branch, moved_with_branch
from versioned_state.repository.refs.own_line import find_sharers
from versioned_state.repository.refs.ref import (
    NOTHING,
    BatchPart,
    Ref,
    after_move,
    check_name,
    iter_refs,
    move_ref,
    read_refs,
    rename_ref,
    renamed,
)
from versioned_state.repository.refs.reflog import CREATE, read_entry

if TYPE_CHECKING:
    from versioned_state.repository.database import Database


_RENAME: Final = "rename to "

_COMPARED_AT_ONCE: Final = 256
"""The number of branches compared in one walk.

2,000 branches, on average 1,000 commits behind, take half a second; in a walk each, 43 seconds.
"""


_LIKELY: Final = 64
"""The number of branches that a search for one that leads to a commit looks at first: those that changed last.

A fork is mostly made of a branch in use.
"""


@dataclass(frozen=True, slots=True)
class BranchInfo(RefInfo):
    """A branch in a listing: name, head, when it changed last, the meta of the head, and where the next page begins.

    Attributes:
        expires: when its time to live is over, in microseconds since 1970, UTC, or None if it has none.
    """

    expires: int | None = None


class BranchPage(list[BranchInfo]):
    """Branches that a search has found, in a list. ``complete`` is whether there are no more."""

    def __init__(self, found: Iterable[BranchInfo], *, complete: bool) -> None:
        super().__init__(found)
        self.complete = complete


@dataclass(frozen=True, slots=True)
class BranchComparison:
    """A branch compared with a base.

    Attributes:
        head: the commit that it points to.
        base: the branch or revision that it was compared with, or None if there is none.
        ahead, behind: how many commits it has and the base has not, and the other way round, or None without a base.
    """

    name: str
    head: Commit
    base: str | None
    ahead: int | None
    behind: int | None


class Branches(Refs):
    """The branches of a repository: a mapping from name to head.

    One name may begin with another and a slash (``a`` beside ``a/b``), which git does not allow.
    """

    _kind = "branch"

    def create(self, name: str, at: str | Commit = "HEAD") -> Commit:
        """Create a branch at a revision, and return its head. A deleted branch comes back with ``at="name@{1}"``.

        Raises:
            RefExistsError: the branch exists; it was not moved.
            UnknownRevisionError, InvalidArgumentError: no such revision; not a name. Nothing was changed.
        """
        return self._create(name, at, action=CREATE)[1]

    def begin(
        self, name: str, at: str | Commit, *, ttl: int | None = None, origin: str | None = None
    ) -> tuple[Ref, Commit]:
        """Do ``create`` for a handle on the new branch, and return the branch's record too.

        The branch may begin at the head of another one, the ``origin``.
        """
        return self._create(name, at, action=CREATE, ttl=ttl, origin=origin)

    def delete(self, name: str, *, force: bool = False, dry_run: bool = False) -> Commit:
        """Delete a branch, and return its head.

        Its reflog keeps the head as long as reflogs keep anything (by default 30 days). Its records
        (``repository.records``) are deleted with it for good.

        Cost: O(log n) reads for each merge of the default branch (``main``) that is later than the head. They are all
        if it leads there; or if the branch was moved by commits alone, and no other ref was ever pointed at the head or
        merged it: the store keeps that. Else it looks at the refs that were last pointed there or merged it, at those
        that these came from, and at the 64 branches that changed last. If none of them leads there, it reads the heads
        of all branches and tags. None of that with ``force``.

        Args:
            force: delete it even if no other branch or tag leads to its head.
            dry_run: only look whether it would be deleted.

        Raises:
            UnmergedBranchError: no other branch or tag leads to its head. Nothing was changed.
            UnknownRevisionError: there is no branch of that name.
        """

        def check(ref: Ref, head: Commit) -> None:
            if not force and not _is_kept(self._database, ref, head):
                raise UnmergedBranchError(name, head.id)

        def look() -> Commit:
            ref = self._live(name)
            head = self._database.commits.read(self._head(ref))
            check(ref, head)
            return head

        return self._database.unless_swept(look) if dry_run else self.remove(name, check)

    def remove(self, name: str, check: Callable[[Ref, Commit], None], *, action: str = DELETE) -> Commit:
        """Delete a branch with its records and its lock, and return the commit that it pointed to.

        Raises ``UnknownRevisionError``, and whatever ``check`` raises: then nothing is deleted.
        """
        from versioned_state.repository.refs.lock_record import remove_lock

        if type(name) is not str:
            self._live(name)  # raises
        store = self._database.store
        lock = store.get(lock_key(name))
        head = self._delete(name, check, action=action)
        remove_lock(store, name, lock)
        return head

    def delete_with_inner(self, name: str) -> list[str]:
        """Delete a branch and all whose names begin with its own and a slash, even if no ref leads to their heads.

        Returns the names of those that existed. Their records and locks are deleted with them, and so are the records
        that have no branch yet. Up to 4,096 branches go in one batch, all or none. Cost: two listings, a read and a
        write; on a store of one condition a batch (S3), a listing, a read and a write for each branch.

        Raises:
            StorageError: some of the batches may have been done. The same call again deletes the rest.
        """
        store, start = self._database.store, ref_key("branch", "")
        string("name", name, empty=False)

        def left(some: Sequence[str]) -> tuple[str, ...]:
            return (*map(lock_key, some), record_key(name), *store.keys(record_key(name + "/")))

        names = [name, *(key.removeprefix(start) for key in store.keys(f"{start}{name}/"))]
        found = self._delete_together(names, lambda some: BatchPart(deletes=left(some)))
        if not found and (rest := store.get_many(left(names))):
            store.delete_many(rest)
        return found

    def _gone_with(self, ref: Ref) -> BatchPart:
        return BatchPart(deletes=tuple(keys_of_branch(self._database.store, ref.name)))

    def rename(self, old: str, new: str) -> Commit:
        """Rename a branch, and return its head.

        The reflog moves to the new name. A new one of the old name records the rename.

        The records of the branch are renamed with it.

        It is one step. On a store that takes one condition a batch (S3), the new name comes first, and after a failure
        both may exist. A handle on the old name gets an error, and continues with ``switch``. If a branch of the new
        name was deleted earlier, its reflog is now found under the old name.

        Raises:
            RefExistsError: there is a branch of the new name.
            UnknownRevisionError, InvalidArgumentError: there is no branch of the old name; the new one is not a name.
            BranchMovedError: on S3, if another writer moved the new name while both existed.
            UnknownOutcomeError: the store's reply was lost, and the store could not be read. The same call again finds
                out.
        """
        check_name("branch", new)
        # The head may be erased between the two reads; then the branch has another one.
        return self._database.unless_swept(lambda: self._rename(old, new))

    def _rename(self, old: str, new: str) -> Commit:
        doubt = self._in_doubt.get(old) if type(old) is str else None
        if doubt is not None and self._done_before(doubt.ref, None, _rename_to(new)):
            return self._database.commits.read(self._head(doubt.ref))
        store = self._database.store
        at_once = store.max_expected is None or store.max_expected >= 2 + self._database.fence.enabled
        while True:
            source = self._live(old)
            target = self._database.ref("branch", new)
            if target.head is not None or old == new:  # others may have deleted it between the two reads
                raise RefExistsError("branch", new)
            head = self._database.commits.read(self._head(source))  # first: once it is renamed, nothing can fail
            if self._swap(source, target) if at_once else self._create_and_delete(source, target):
                return head

    def _rename_entry(self, source: Ref, target: Ref) -> bytes:
        # The earlier reflog of the new name must not be lost, and a reflog is one list in order of time. So the names
        # swap their reflogs.
        left = source if target.log is None else replace(source, head=None, log=target.log)
        return self._database.log_entry(left, None, action=_rename_to(target.name))

    def _without_head(self, ref: Ref, log: Address, entry: bytes) -> Ref:
        """Return the ref after its deletion: it has only its last log entry."""
        time = read_entry(log, entry).time
        return after_move(ref, None, log, changed=time, is_new=False, indexed=self._database.fence.enabled)

    def _swap(self, source: Ref, target: Ref) -> bool:
        """Move the record from one name to another, or False if either was moved meanwhile."""
        staging = Staging(self._database.objects)
        entry = self._rename_entry(source, target)
        log = staging.add(entry)
        records = moved_with_branch(self._database.store, source.name, target.name)

        gone = self._without_head(source, log, entry)

        def send(_: Move) -> Ref | None:
            return (
                gone
                if rename_ref(self._database.fence, source, target, gone=gone, staging=staging, part=records)
                else None
            )

        return self._settle(Move(source, None, _rename_to(target.name), entry), send) is not None

    def _create_and_delete(self, source: Ref, target: Ref) -> bool:
        """Do ``_swap`` in two steps, or return False if the first was not done."""
        fence, objects = self._database.fence, self._database.objects
        placed = move_ref(fence, target, renamed(source, target), staging=Staging(objects))
        if placed is None:
            return False
        while True:
            staging = Staging(objects)
            entry = self._rename_entry(source, target)
            log = staging.add(entry)
            records = moved_with_branch(self._database.store, source.name, target.name)
            # the store takes one condition a batch
            unchecked = records if records is NOTHING else replace(records, expected={})
            if (
                move_ref(fence, source, self._without_head(source, log, entry), staging=staging, part=unchecked)
                is not None
            ):
                return True
            # Somebody committed to the old name in between.
            source = self._database.ref("branch", source.name)
            if source.head is None:
                return True
            moved = move_ref(fence, placed, renamed(source, placed), staging=Staging(objects))
            if moved is None:
                actual = self._database.ref("branch", target.name).head
                raise BranchMovedError(target.name, expected=_hex(placed.head), actual=_hex(actual))
            placed = moved

    def iter_info(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        by: Order = "name",
        reverse: bool = False,
        where: Mapping[str, Any] | None = None,
        like: str | Sequence[str] = (),
    ) -> Iterator[BranchInfo]:
        """Yield branches with their heads: by name, or by their last change with the newest first.

        Cost: three calls of the store for a page of some hundred branches, and the first page is small; it does not
        grow with the branches that are not listed. By the last change it also reads the branches with more than one
        change in the five minutes (``WINDOW``) before the first one that it yields, and if the prefix has up to 512
        branches, all of these. On a store of one condition a batch (S3) it reads all with the prefix.

        Args:
            prefix: only branches whose name begins with it: ``branch_name(user) + "/"``.
            after: begin after this name; by the last change, after the ``cursor`` of the last one of the page before.
            limit: at most this many.
            by: ``"name"`` or ``"changed"``.
            reverse: the other way round: the last name, or the oldest change, first.
            where: only branches whose head has these values in its meta, of the same type. Cost: reads the heads that
                it passes over.
            like: only branches whose name matches this pattern, or one of these, with ``*``, ``?`` and ``[…]``:
                ``"*refund*"``. Cost: of the others only the names are read.

        Raises:
            InvalidArgumentError: an argument is not what it should be. Raised at the call.
        """
        listing = Listing("branch", prefix, after, limit, by, reverse, {} if where is None else where, like)
        return (
            BranchInfo(
                each.ref.name,
                each.head,
                each.changed,
                listing.cursor(each),
                each.changed + each.ref.ttl if each.ref.ttl else None,
            )
            for each in listing.run(self._database)
        )

    def search(
        self,
        text: str,
        *,
        limit: int = 100,
        after: str | None = None,
        prefix: str = "",
        where: Mapping[str, Any] | None = None,
    ) -> BranchPage:
        """Return the branches whose name has a text in it, in any case, in the order of the names.

        They are at most ``limit``, and come after the name ``after``. With ``prefix`` and ``where`` only branches for
        which these hold too, as in ``iter_info``.

        ``complete`` of the result is whether there are no more; if it is false, the last name is ``after`` for the next
        page. Cost: of the branches that are passed over only the names are read, from ``after`` on until enough are
        found.

        Raises:
            InvalidArgumentError: an argument is not what it should be.
        """
        limit = count("limit", limit)
        like = f"*{_in_any_case(string('text', text))}*"
        found = list(self.iter_info(prefix=prefix, like=like, after=after, limit=limit + 1, where=where))
        return BranchPage(found[:limit], complete=len(found) <= limit)

    def compare(
        self, base: str | Commit | None = None, *, among: Iterable[BranchInfo] | None = None
    ) -> Iterator[BranchComparison]:
        """Yield each branch with its head, and how far it is ahead of a base and behind it.

        The base is by default the default branch.

        Args:
            base: a revision.
            among: only these, as ``iter_info`` yields them.

        Cost: for every 256 branches, one read for each commit that does not lead to all of them and to the base.
        """
        database = self._database
        name = default_branch(database) if base is None else base.short if isinstance(base, Commit) else base
        compared = None
        if base is not None or name in self:
            compared = resolve(database, name if base is None else base)
        listed = self.iter_commits() if among is None else among
        branches = (
            (each.name, each.head) if isinstance(each, BranchInfo) else (each[0].name, each[1]) for each in listed
        )
        if compared is None:
            yield from (BranchComparison(each, head, None, None, None) for each, head in branches)
            return
        while some := list(islice(branches, _COMPARED_AT_ONCE)):
            counts = graph.ahead_behind([head for _, head in some], compared, database.commits.read)
            for (each, head), (ahead, behind) in zip(some, counts, strict=True):
                yield BranchComparison(each, head, name, ahead, behind)


def _in_any_case(text: str) -> str:
    """Return the pattern of ``fnmatch`` for a text in any case."""
    forms = (
        "".join(dict.fromkeys(form for form in (char, char.lower(), char.upper()) if len(form) == 1)) for char in text
    )
    return "".join(f"[{form}]" if form[1:] or form in "*?[" else form for form in forms)


def _is_kept(database: Database, ref: Ref, head: Commit) -> bool:
    """Return whether another branch or a tag leads to the head of this branch."""
    if not head.parent_addresses and not head.shallow:
        return True  # the empty root commit, which every store has
    seen: set[Address] = set()
    first = database.ref("branch", default_branch(database))
    if first.name != ref.name and first.head is not None and _any_leads_to(database, [first.head], head, seen):
        return True
    sharers = find_sharers(database, ref, head)
    if sharers is None:
        return False
    every = (each for kind in REF_KINDS for each in iter_refs(database.store, kind))
    likely = (
        each for each in chain(sharers, _recent(database), every) if (each.kind, each.name) != ("branch", ref.name)
    )
    return _any_leads_to(database, (each.head for each in likely), head, seen)


def _recent(database: Database) -> Iterator[Ref]:
    """Yield the branches that changed last. Reads them when the first one is taken."""
    names = [read_index_key(key)[1] for key in database.store.page(RECENT, limit=_LIKELY, reverse=True)]
    yield from read_refs(database.store, [("branch", name) for name in names])


def _any_leads_to(database: Database, heads: Iterable[Address | None], target: Commit, seen: set[Address]) -> bool:
    """Return whether any of some heads leads to a commit. ``seen`` is as for ``graph.is_ancestor``."""
    read = database.commits.read
    looked_at: set[Address | None] = {None}
    others = iter(heads)
    # The likely ones come first, and few at a time.
    for size in chain((1, _LIKELY), repeat(_COMPARED_AT_ONCE)):
        taken = list(islice(others, size))
        if not taken:
            return False
        some = {each for each in taken if each is not None and each not in looked_at}
        if target.address in some:
            return True
        looked_at |= some
        # A child has a greater generation than its parents.
        longer = [each for each in database.commits.read_many(some).values() if each.generation > target.generation]
        if any(graph.is_ancestor(target, each, read, seen=seen) for each in longer):
            return True
    raise AssertionError  # the sizes have no end


def _rename_to(name: str) -> str:
    """Return the reflog's words for a rename."""
    return f"{_RENAME}{name}"


def new_name(action: str) -> str | None:
    """Return the name that a branch got by the call in a log entry, or None if the call was not a rename."""
    return action.removeprefix(_RENAME) if action.startswith(_RENAME) else None


def _hex(address: Address | None) -> str | None:
    return None if address is None else address.hex()
