"""Branches and tags as a repository shows them: mappings from names to commits, and what git does with them. Layer: repository.

A branch moves, a tag does not. Whatever is deleted keeps its record and its reflog, so it can be brought back.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    LimitExceededError,
    RefExistsError,
    StorageError,
    UnknownOutcomeError,
    UnknownRevisionError,
    UnmergedBranchError,
)
from versioned_state.objects.address import Address, address_of
from versioned_state.objects.keys import RefKind
from versioned_state.objects.store import Staging
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import MAX_TEXT, Commit
from versioned_state.repository.names.resolve import default_branch, resolve
from versioned_state.repository.refs.ref import Ref, check_name, iter_refs, move_ref, rename_ref, write_ref
from versioned_state.repository.refs.reflog import read_entry

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_KINDS: Final[tuple[RefKind, ...]] = ("branch", "tag")
_DELETE: Final = "delete"
_ANNOTATED: Final = "tag: "
"""How the action of the log entry begins that created an annotated tag; its message follows."""

_READ_AT_ONCE: Final = 256

_COMPARED_AT_ONCE: Final = 256
"""Branches whose commits are counted in one walk: 2,000 of them, 1,000 commits behind in the mean, take half a second; each alone, 43."""


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch beside another one.

    Attributes:
        head: the commit that it points to; ``head.time`` is when somebody last worked on it.
        base: the branch or revision that it was compared with; None where there is none to compare with.
        ahead, behind: how many commits it has that the base does not have, and the other way round; None without a base.
    """

    name: str
    head: Commit
    base: str | None
    ahead: int | None
    behind: int | None


@dataclass(frozen=True, slots=True)
class Annotation:
    """What an annotated tag says: why, by whom, and when (microseconds since 1970, UTC)."""

    message: str
    author: str | None
    time: int


@dataclass(frozen=True, slots=True)
class TagInfo:
    """A tag: the commit that it points to, and what it says, where it is annotated."""

    name: str
    commit: Commit
    annotation: Annotation | None


@dataclass(frozen=True, slots=True)
class _Move:
    """A ref as it was read, where it is to go (None: deleted), why, and the log entry of that, by which the move is known again."""

    ref: Ref
    commit: Commit | None
    action: str
    entry: bytes


class Refs(Mapping[str, Commit]):
    """The branches, or the tags, of a repository: a mapping from name to commit, in the order of the store: on most, of the names.

    Looking one up costs one read of the store; ``len`` and iteration cost what they list.
    """

    _kind: RefKind

    def __init__(self, database: Database) -> None:
        self._database = database
        self._in_doubt: dict[str, _Move] = {}  # by name, what the store may have done or not

    def __getitem__(self, name: str) -> Commit:
        return self._database.commits.read(self._head(self._live(name)))

    def __contains__(self, name: object) -> bool:
        return type(name) is str and self._database.ref(self._kind, name).head is not None

    def __iter__(self) -> Iterator[str]:
        return (ref.name for ref in iter_refs(self._database.store, self._kind))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[str, Commit]:
        """Names and commits, read some hundred at a time as they are taken."""
        return _Items(self)

    def values(self) -> ValuesView[Commit]:
        """The commits, read some hundred at a time as they are taken."""
        return _Values(self)

    def iter_commits(self) -> Iterator[tuple[Ref, Commit]]:
        """Each ref with its commit. Cost: a listing, and a call of the store for every few hundred of them."""
        refs = iter_refs(self._database.store, self._kind)
        while some := list(islice(refs, _READ_AT_ONCE)):
            commits = self._database.commits.read_many(self._head(ref) for ref in some)
            yield from ((ref, commits[self._head(ref)]) for ref in some)

    def deleted(self) -> Iterator[str]:
        """The names of those that were deleted; ``create(name, at="name@{1}")`` brings one back. Cost: what all of them cost."""
        return (ref.name for ref in iter_refs(self._database.store, self._kind, deleted=True) if ref.head is None)

    def _live(self, name: str) -> Ref:
        ref = self._database.ref(self._kind, name)
        if ref.head is None:
            gone = ref.stored is not None
            reason = f"there is no such {self._kind}" + ("; it was deleted" if gone else "")
            raise UnknownRevisionError(name, reason=reason, deleted=self._kind if gone else "")
        return ref

    @staticmethod
    def _head(ref: Ref) -> Address:
        assert ref.head is not None
        return ref.head

    def _create(self, name: str, at: str | Commit, *, action: str, author: str | None = None) -> tuple[Ref, Commit]:
        check_name(self._kind, name)
        commit = resolve(self._database, at)
        ref = self._database.ref(self._kind, name)
        moved = self._done_before(ref, commit, action)
        if moved is None and ref.head is None:
            moved = self._move(ref, commit, action=action, author=author)
        if moved is None:
            raise RefExistsError(self._kind, name)
        return moved, commit

    def _delete(self, name: str, may: Callable[[Ref, Commit], None] = lambda _ref, _head: None) -> Commit:
        """Delete a ref, if ``may`` does not raise; where it pointed. Raises ``UnknownRevisionError``."""
        while True:
            ref = self._database.ref(self._kind, name)
            doubt = self._in_doubt.get(name)
            if doubt is not None and self._done_before(ref, None, _DELETE):
                return self._database.commits.read(self._head(doubt.ref))
            ref = self._live(name)
            head = self._database.commits.read(self._head(ref))
            may(ref, head)
            if self._move(ref, None, action=_DELETE) is not None:
                return head

    # Moves whose reply was lost

    def _move(self, ref: Ref, commit: Commit | None, *, action: str, author: str | None = None) -> Ref | None:
        """``Database.move``; where the reply is lost, it finds out whether that was done.

        Raises:
            UnknownOutcomeError: it could not find out. The same call again does.
        """
        move = self._in_doubt.pop(ref.name, None)
        # A request that may still be on its way is sent again as it was: whichever comes second finds it done.
        if move is None or (move.ref.stored, move.commit, move.action) != (ref.stored, commit, action):
            move = _Move(ref, commit, action, self._database.log_entry(ref, commit, action=action, author=author))
        try:
            return self._send(move)
        except UnknownOutcomeError as error:
            self._in_doubt[ref.name] = move
            try:
                found = self._find(move) or self._send(move) or self._find(move)
            except StorageError as failure:
                raise error from failure
            del self._in_doubt[ref.name]
            return found

    def _send(self, move: _Move) -> Ref | None:
        return self._database.move(move.ref, move.commit, entry=move.entry)

    def _find(self, move: _Move) -> Ref | None:
        """The ref as it was once a move was done, if it was, and the ref not deleted since; otherwise None. Cost: a read for each since."""
        ref = self._database.ref(self._kind, move.ref.name)
        done, log = address_of(move.entry), ref.log
        while log is not None and log not in (done, move.ref.log):
            entry = read_entry(log, self._database.objects.read(log))
            log = None if entry.new is None else entry.previous
        if log != done:
            return None
        # Not as it is now: others may have gone on, and whoever stands there is to see that.
        head = None if move.commit is None else move.commit.address
        return replace(ref, head=head, log=done, stored=write_ref(ref.kind, ref.name, head, done))

    def _done_before(self, ref: Ref, commit: Commit | None, action: str) -> Ref | None:
        """The ref as it was then, if an earlier call made this very move, and could not find that out."""
        doubt = self._in_doubt.get(ref.name)
        if doubt is None or (doubt.commit, doubt.action) != (commit, action):
            return None
        found = self._find(doubt)
        if found is not None:
            del self._in_doubt[ref.name]
        return found


class _Items(ItemsView[str, Commit]):
    def __init__(self, refs: Refs) -> None:
        super().__init__(refs)
        self._refs = refs

    def __iter__(self) -> Iterator[tuple[str, Commit]]:
        return ((ref.name, commit) for ref, commit in self._refs.iter_commits())


class _Values(ValuesView[Commit]):
    def __init__(self, refs: Refs) -> None:
        super().__init__(refs)
        self._refs = refs

    def __iter__(self) -> Iterator[Commit]:
        return (commit for _, commit in self._refs.iter_commits())


class Branches(Refs):
    """The branches of a repository: a mapping from name to head.

    Names may begin alike (``a`` beside ``a/b``), which git does not allow.
    """

    _kind = "branch"

    def create(self, name: str, at: str | Commit = "HEAD") -> Commit:
        """Create a branch at a revision; its head. A deleted one comes back with ``at="name@{1}"``.

        Raises:
            RefExistsError: there is one of that name; it was not moved.
            UnknownRevisionError, InvalidArgumentError: there is no such revision; it is no name. Nothing was changed.
        """
        return self._create(name, at, action="create")[1]

    def begin(self, name: str, at: str | Commit) -> tuple[Ref, Commit]:
        """``create``, for a handle on the new branch: its record as well."""
        return self._create(name, at, action="create")

    def delete(self, name: str, *, force: bool = False) -> Commit:
        """Delete a branch; its head, which its reflog keeps as long as it keeps anything (30 days, unless gc was told otherwise).

        Cost: O(log n) reads where the default branch (``main``) has its head among its first parents. Otherwise the commits of the default
        branch down to the head's generation; then one read for each other branch and tag, O(log n) for those that are longer, and what
        these have beyond the default branch down to that generation. With ``force`` none of that.

        Args:
            force: delete it even if no other branch or tag leads to its head.

        Raises:
            UnmergedBranchError: none does. Nothing was changed.
            UnknownRevisionError: there is none of that name.
        """

        def may(ref: Ref, head: Commit) -> None:
            if not force and not _is_kept(self._database, ref, head):
                raise UnmergedBranchError(name, head.id)

        return self._delete(name, may)

    def rename(self, old: str, new: str) -> Commit:
        """Give a branch another name; its head. The reflog goes along, and the old name's is kept, too.

        It is one step. On a store that takes one condition a batch (S3), the new name is there first, and after a failure both may be. A
        handle on the old name is told that the branch was deleted, and goes on with ``switch``. Where a branch of the new name was
        deleted earlier, its reflog is now found under the old name.

        Raises:
            RefExistsError: there is a branch of the new name.
            UnknownRevisionError, InvalidArgumentError: there is none of the old name; the new one is no name.
            BranchMovedError: on S3, where both names were there for a moment, and somebody moved the new one.
        """
        check_name("branch", new)
        store = self._database.store
        at_once = store.max_expected is None or store.max_expected >= 2 + self._database.fence.enabled
        while True:
            source = self._live(old)
            target = self._database.ref("branch", new)
            if target.head is not None:
                raise RefExistsError("branch", new)
            if at_once:
                if self._swap(source, target):
                    break
            elif self._create_and_delete(source, target):
                break
        return self._database.commits.read(self._head(source))

    def _farewell(self, source: Ref, target: Ref) -> bytes:
        # What was at the new name must not go lost, and the log of a record is one list, in order of time: so the names swap their pasts.
        left = source if target.log is None else replace(source, head=None, log=target.log)
        return self._database.log_entry(left, None, action=f"rename to {target.name}")

    def _swap(self, source: Ref, target: Ref) -> bool:
        """Move the record from one name to another; False where either was moved meanwhile."""
        staging = Staging(self._database.objects)
        log = staging.add(self._farewell(source, target))
        return rename_ref(self._database.fence, source, target, log=log, staging=staging)

    def _create_and_delete(self, source: Ref, target: Ref) -> bool:
        """The same in two steps; False where the first was not done."""
        fence, objects = self._database.fence, self._database.objects
        placed = move_ref(fence, target, source.head, log=source.log, staging=Staging(objects))
        if placed is None:
            return False
        while True:
            staging = Staging(objects)
            log = staging.add(self._farewell(source, target))
            if move_ref(fence, source, None, log=log, staging=staging) is not None:
                return True
            # Somebody committed to the old name in between.
            source = self._database.ref("branch", source.name)
            if source.head is None:
                return True
            moved = move_ref(fence, placed, source.head, log=source.log, staging=Staging(objects))
            if moved is None:
                raise BranchMovedError(target.name, expected=_hex(placed.head), actual=_hex(self._database.ref("branch", target.name).head))
            placed = moved

    def iter_info(self, base: str | Commit | None = None) -> Iterator[BranchInfo]:
        """Each branch with its head, and how far it is ahead of a base and behind it; the base is the default branch, if none is given.

        Cost: for each 256 of them, one read for each commit that does not lead to all of these and to the base.
        """
        database = self._database
        name = default_branch(database) if base is None else base.short if isinstance(base, Commit) else base
        compared = None
        if base is not None or name in self:
            compared = resolve(database, name if base is None else base)
        branches = self.iter_commits()
        if compared is None:
            yield from (BranchInfo(ref.name, head, None, None, None) for ref, head in branches)
            return
        while some := list(islice(branches, _COMPARED_AT_ONCE)):
            counts = graph.ahead_behind([head for _, head in some], compared, database.commits.read)
            for (ref, head), (ahead, behind) in zip(some, counts, strict=True):
                yield BranchInfo(ref.name, head, name, ahead, behind)


class Tags(Refs):
    """The tags of a repository: a mapping from name to commit. A tag does not move."""

    _kind = "tag"

    def create(self, name: str, at: str | Commit = "HEAD", *, message: str | None = None, author: str | None = None) -> Commit:
        """Create a tag at a revision; the commit.

        Args:
            message: what is to be said of it: then it is annotated, with author and time.
            author: who says so; without one, the repository's.

        Raises:
            RefExistsError: there is one of that name; it was not moved.
            LimitExceededError: message or author is longer than 65,536 bytes.
            UnknownRevisionError, InvalidArgumentError: there is no such revision; it is no name; the message is empty. Nothing was changed.
        """
        for what, text in (("message", message), ("author", author)):
            if text is None:
                continue
            if type(text) is not str or (what == "message" and not text.strip()):
                raise InvalidArgumentError(f"the {what} of a tag is a text; without a message there is no annotation; nothing was changed")
            if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
                raise LimitExceededError(f"the {what} of a tag of {len(text)} characters", limit=MAX_TEXT)
        return self._create(name, at, action="create" if message is None else _ANNOTATED + message, author=author)[1]

    def delete(self, name: str) -> Commit:
        """Delete a tag; the commit that it pointed to, which its reflog keeps as long as it keeps anything.

        Raises:
            UnknownRevisionError: there is none of that name.
        """
        return self._delete(name)

    def annotation(self, name: str) -> Annotation | None:
        """What a tag says; None where it is not annotated. Cost: two reads. Raises ``UnknownRevisionError``.

        It is the tag's newest log entry, which gc keeps whatever its age.
        """
        return self._annotation(self._live(name))

    def _annotation(self, ref: Ref) -> Annotation | None:
        if ref.log is None:
            return None
        entry = read_entry(ref.log, self._database.objects.read(ref.log))
        if not entry.action.startswith(_ANNOTATED):
            return None
        return Annotation(entry.action.removeprefix(_ANNOTATED), entry.author, entry.time)

    def iter_info(self) -> Iterator[TagInfo]:
        """Each tag with its commit and what it says. Cost: two reads for each."""
        for ref, commit in self.iter_commits():
            yield TagInfo(ref.name, commit, self._annotation(ref))


def _is_kept(database: Database, ref: Ref, head: Commit) -> bool:
    """Whether another branch or a tag leads to the head of this branch."""
    read = database.commits.read
    seen: set[Address] = set()
    first = database.ref("branch", default_branch(database))
    if first.name != ref.name and first.head is not None and _leads_to(database.commits.read(first.head), head, read, seen):
        return True
    if not head.parent_addresses and not head.shallow:
        return True  # the empty root commit, which every store has
    heads = {each.head for kind in _KINDS for each in iter_refs(database.store, kind) if (each.kind, each.name) != ("branch", ref.name)}
    if ref.head in heads:
        return True
    return any(_leads_to(database.commits.read(each), head, read, seen) for each in heads - {first.head} if each is not None)


def _leads_to(start: Commit, target: Commit, read: graph.Read, seen: set[Address]) -> bool:
    """``history.is_ancestor``, for many starts: ``seen`` has the commits that are known not to lead there."""
    if target.height <= start.height and graph.descend(start, target.height, read) == target:
        return True
    pending = [start]
    while pending:
        commit = pending.pop()
        if commit == target:
            return True
        if commit.address not in seen and commit.generation > target.generation:
            seen.add(commit.address)
            # The last parent comes first: what was merged lately is found early.
            pending += graph.parents_of(commit, read)
    return False


def _hex(address: Address | None) -> str | None:
    return None if address is None else address.hex()
