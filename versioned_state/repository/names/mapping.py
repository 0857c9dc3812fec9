"""``Refs``, the base of branches and tags: a mapping from names to commits. Layer: repository.

A deleted ref keeps its record and its reflog, so it can be restored. Before a move whose reply was lost is repeated, it
is looked up.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from versioned_state.errors import (
    RefExistsError,
    StorageError,
    StoreBusyError,
    UnknownOutcomeError,
    UnknownRevisionError,
    UnsupportedByStoreError,
)
from versioned_state.objects.address import Address, address_of
from versioned_state.objects.keys import GC, RefKind
from versioned_state.records import dataclass, replace
from versioned_state.repository.database import backoff
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.resolve import comes_back, resolve
from versioned_state.repository.names.syntax import parse_revision
from versioned_state.repository.refs.ref import NOTHING, BatchPart, Ref, after_move, check_name, iter_refs
from versioned_state.repository.refs.reflog import read_entry as read_log_entry

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.names.listing import RefInfo

DELETE: Final = "delete"
"""The reflog's word for a deletion."""

_READ_AT_ONCE: Final = 256
"""Commits of one read of the store, when refs are listed with their commits."""

AT_ONCE: Final = 4096
"""Refs of one batch. A gc at work is told of as many new heads and entries at most."""

ATTEMPTS: Final = 100

_NO_ORIGINS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_PLURAL: Final = {"branch": "branches", "tag": "tags"}


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a ref: the ref as it was read, the commit it is to point to, why, and the log entry.

    ``commit`` is None if the ref is deleted. The log entry, ``entry``, identifies the move. ``origin`` has the name by
    which the commit was found, if it was found by one; ``at`` is the revision that a caller gave.
    """

    ref: Ref
    commit: Commit | None
    action: str
    entry: bytes
    ttl: int | None = None
    origin: tuple[str, ...] = ()
    at: str | Commit | None = None


class Refs(Mapping[str, Commit]):
    """The branches, or the tags, of a repository: a mapping from name to commit.

    Its order is that of the store, mostly by name. A lookup costs one read of the store; ``len`` and iteration cost
    what they list.
    """

    _kind: RefKind

    def __init__(self, database: Database) -> None:
        self._database = database
        self._in_doubt: dict[str, Move] = {}  # by name, the moves whose outcome is not known

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._database.store!r}>"

    @abstractmethod
    def iter_info(self, *, limit: int | None = None) -> Iterator[RefInfo]:
        """Yield them with their heads, by name."""

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook

        return notebook.refs(_PLURAL[self._kind], self.iter_info(limit=notebook.ROWS + 1))

    def __getitem__(self, name: str) -> Commit:
        ref, commit = self._database.read_head(self._kind, name)
        if commit is None:
            raise self._unknown(ref)
        return commit

    def __contains__(self, name: object) -> bool:
        return type(name) is str and self._database.ref(self._kind, name).head is not None

    def __iter__(self) -> Iterator[str]:
        return (ref.name for ref in iter_refs(self._database.store, self._kind))

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names that a notebook offers behind ``branches["``, at most a thousand."""
        return list(islice(self, 1000))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[str, Commit]:
        """Return names and commits, read a few hundred at a time as they are taken."""
        return _Items(self)

    def values(self) -> ValuesView[Commit]:
        """Return the commits, read a few hundred at a time as they are taken."""
        return _Values(self)

    def iter_commits(self) -> Iterator[tuple[Ref, Commit]]:
        """Yield each ref with its commit. Cost: a listing, and a call of the store for every few hundred of them."""
        refs = iter_refs(self._database.store, self._kind)
        while some := list(islice(refs, _READ_AT_ONCE)):
            commits = self._database.commits.read_many(self._head(ref) for ref in some)
            yield from ((ref, commits[self._head(ref)]) for ref in some)

    def deleted(self) -> Iterator[str]:
        """Yield the names of deleted refs.

        ``create(name, at="name@{1}")`` brings one back. Cost: a listing of all refs.
        """
        return (ref.name for ref in iter_refs(self._database.store, self._kind, deleted=True) if ref.head is None)

    def _live(self, name: str) -> Ref:
        ref = self._database.ref(self._kind, name)
        self._check_live(ref)
        return ref

    def _check_live(self, ref: Ref) -> None:
        """Raise ``UnknownRevisionError`` if the ref points to nothing."""
        if ref.head is None:
            raise self._unknown(ref)

    def _unknown(self, ref: Ref) -> UnknownRevisionError:
        gone = ref.stored is not None
        reason = f"there is no such {self._kind}" + ("; it was deleted" if gone else "")
        deleted = self._kind if gone and comes_back(self._database, ref) else ""
        return UnknownRevisionError(ref.name, reason=reason, deleted=deleted)

    @staticmethod
    def _head(ref: Ref) -> Address:
        assert ref.head is not None
        return ref.head

    def _create(
        self,
        name: str,
        at: str | Commit,
        *,
        action: str,
        author: str | None = None,
        ttl: int | None = None,
        origin: str | None = None,
    ) -> tuple[Ref, Commit]:
        check_name(self._kind, name)
        # The commit of a revision may be erased before the ref points to it; then the revision means another one, or
        # none.
        return self._database.unless_swept(lambda: self._create_at(name, at, action, author, ttl, origin))

    def _create_at(
        self, name: str, at: str | Commit, action: str, author: str | None, ttl: int | None, origin: str | None
    ) -> tuple[Ref, Commit]:
        doubt = self._in_doubt.get(name)
        if doubt is not None and doubt.commit is not None and doubt.at == at:
            # The revision may mean another commit by now, if it was this ref or another writer moved that.
            moved = self._done_before(doubt.ref, doubt.commit, action)
            if moved is not None:
                return moved, doubt.commit
        if type(at) is str:
            origin = parse_revision(at).base
        commit = resolve(self._database, at)
        ref = self._database.ref(self._kind, name)
        moved = self._done_before(ref, commit, action)
        if moved is None and ref.head is None:
            moved = self._move(
                ref, commit, action=action, author=author, ttl=ttl, origin=() if origin is None else (origin,), at=at
            )
        if moved is None:
            raise RefExistsError(self._kind, name)
        return moved, commit

    def _delete(
        self, name: str, check: Callable[[Ref, Commit], None] = lambda _ref, _head: None, *, action: str = DELETE
    ) -> Commit:
        """Delete a ref unless ``check`` raises, and return the commit that it pointed to.

        Raises ``UnknownRevisionError``.
        """
        return self._database.unless_swept(lambda: self._delete_live(name, check, action))

    def _delete_live(self, name: str, check: Callable[[Ref, Commit], None], action: str) -> Commit:
        while True:
            ref = self._database.ref(self._kind, name)
            doubt = self._in_doubt.get(name)
            if doubt is not None and self._done_before(ref, None, action):
                return self._database.commits.read(self._head(doubt.ref))
            self._check_live(ref)
            head = self._database.commits.read(self._head(ref))
            check(ref, head)
            if self._move(ref, None, action=action) is not None:
                return head

    # Many at once

    def _delete_together(
        self, names: Iterable[str], gone_with: Callable[[Sequence[str]], BatchPart] = lambda _: NOTHING
    ) -> list[str]:
        """Delete those of some refs that exist, up to ``AT_ONCE`` in one batch. Returns their names.

        Args:
            gone_with: returns what goes with some of them, in the same batch.
        """
        most = self._database.store.max_expected
        at_once = AT_ONCE if most is None else max(1, most - self._database.fence.enabled)
        found: dict[str, None] = {}
        rest = iter(names)
        while some := list(islice(rest, at_once)):
            for attempt in range(ATTEMPTS):
                refs = [ref for ref in self._database.refs(self._kind, some) if ref.head is not None]
                found.update((ref.name, None) for ref in refs)
                if not refs or self._move_together([(ref, None) for ref in refs], action=DELETE, part=gone_with(some)):
                    break
                backoff(attempt)  # others moved one of them; or the reply was lost, and the next look shows the outcome
            else:
                raise StoreBusyError(f"others keep changing these {_PLURAL[self._kind]}", hint="try again")
        return list(found)

    def _move_together(
        self,
        moves: Sequence[tuple[Ref, Commit | None]],
        *,
        action: str,
        origins: Mapping[str, Sequence[str]] = _NO_ORIGINS,
        part: BatchPart = NOTHING,
    ) -> bool:
        """Move refs in one batch. Returns False if others moved one of them, or if the reply was lost."""
        try:
            return self._database.move_together(moves, action=action, origins=origins, part=part)
        except UnknownOutcomeError as error:
            try:
                self._database.store.get(GC)  # is the store there, so that the next look shows the outcome?
            except StorageError as failure:
                raise error from failure
            return False

    # Moves whose reply was lost

    def _move(
        self,
        ref: Ref,
        commit: Commit | None,
        *,
        action: str,
        author: str | None = None,
        ttl: int | None = None,
        origin: tuple[str, ...] = (),
        at: str | Commit | None = None,
    ) -> Ref | None:
        """Do ``Database.move``, settled."""
        move = self._in_doubt.pop(ref.name, None)
        # A request that may still be on its way is sent again unchanged: whichever arrives second finds the move done.
        if move is None or (move.ref.stored, move.commit, move.action) != (ref.stored, commit, action):
            move = Move(
                ref,
                commit,
                action,
                self._database.log_entry(ref, commit, action=action, author=author),
                ttl,
                origin,
                at,
            )
        return self._settle(move, self._send)

    def _settle(self, move: Move, send: Callable[[Move], Ref | None]) -> Ref | None:
        """Send a move and, if the reply is lost, find out whether it was done. Returns None if others moved the ref.

        Raises:
            UnknownOutcomeError: it could not find out. The same call again does.
        """
        try:
            return send(move)
        except UnknownOutcomeError as error:
            self._in_doubt[move.ref.name] = move
            try:
                found = self._find(move) or send(move) or self._find(move)
            except StorageError as failure:
                raise error from failure
            self._settled(move)
            return found

    def _settled(self, move: Move) -> None:
        """Forget a move whose outcome is known now, unless another thread has moved the same ref since."""
        if self._in_doubt.get(move.ref.name) is move:
            self._in_doubt.pop(move.ref.name, None)

    def _send(self, move: Move) -> Ref | None:
        part = self._gone_with(move.ref) if move.commit is None else NOTHING
        return self._database.move(move.ref, move.commit, entry=move.entry, part=part, ttl=move.ttl, origin=move.origin)

    def _gone_with(self, ref: Ref) -> BatchPart:
        """Return the part of the batch that deletes a ref."""
        return NOTHING

    def _find(self, move: Move) -> Ref | None:
        """Return the ref right after a move, if the move was done and the ref was not deleted since.

        Cost: a read for each later log entry.
        """
        ref = self._database.ref(self._kind, move.ref.name)
        done, log = address_of(move.entry), ref.log
        while log is not None and log not in (done, move.ref.log):
            entry = self._database.read_log(log)
            log = None if entry.new is None else entry.previous
        if log != done:
            return None
        # Not the present ref: others may have moved it on, and a handle at this position must notice that.
        head = None if move.commit is None else move.commit.address
        time = read_log_entry(done, move.entry).time
        after = after_move(
            move.ref, head, done, changed=time, is_new=False, indexed=self._database.fence.enabled, ttl=move.ttl
        )
        return replace(after, sweeps=ref.sweeps)

    def _done_before(self, ref: Ref, commit: Commit | None, action: str) -> Ref | None:
        """Return the ref right after this move, if an earlier call made the move without knowing it."""
        doubt = self._in_doubt.get(ref.name)
        if doubt is None or (doubt.commit, doubt.action) != (commit, action):
            return None
        found = self._find(doubt)
        if found is not None:
            self._settled(doubt)
        return found


def check_conditions(database: Database, refs: int, call: str) -> None:
    """Raise ``UnsupportedByStoreError`` unless the store can move that many refs in one batch, beside gc."""
    most = database.store.max_expected
    if most is not None and most < refs + database.fence.enabled:
        raise UnsupportedByStoreError(
            f"{call} moves {refs} refs in one batch, and this store takes {most} conditions a batch",
            hint="use a store of another kind: a folder, PostgreSQL or Redis",
        )


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
