"""Exactly-once writes: a write that a client repeats, because its reply was lost, is done once. Layer: server.

Each write has an id, which the client keeps when it repeats the write. The commit has the id in its meta. Before a
commit is made, the earlier commits are searched for the same id, back to the time at which the client may have sent the
write first. This is repeated if another instance was faster and the commit is made again on its head. So the second of
two attempts finds the first.

A write of many steps, such as the deletion of all sessions, first commits a plan: the branches to delete. Later
attempts do what is left of it, and nothing to a session that was created since.

The deletion of a branch makes no commit. The entry of the reflog has the id, and is searched each time before the
branch is moved. So a repeated deletion does not delete a branch that was created after the first deletion. A gc whose
``expire`` is shorter than the time within which requests are repeated may delete that entry.

A commit has the fingerprint of its request too, so that another request with the same id is refused, and not taken for
a repeated one.

``prune`` may delete the commit of a request that is repeated later. An instance that has seen the commit has the answer
in memory. Another instance cannot find out from the pruned history whether the request was done, and refuses it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from time import time_ns
from typing import Any, Final

from versioned_state.errors import (
    IdempotencyConflictError,
    MissingObjectError,
    UnknownRevisionError,
)
from versioned_state.objects.address import Address
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import Staging
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.database import Database
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.mapping import DELETE
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.refs.reflog import LogEntry
from versioned_state.repository.repository import Repository
from versioned_state.services.calls.handles import close_handle
from versioned_state.services.calls.turn import ApartError, callers
from versioned_state.state.branch import port
from versioned_state.state.branch.publisher import MovedError, again_if_moved
from versioned_state.state.versioned import Versioned
from versioned_state.values.trees.tree import Tree

_PLAN: Final = "plan"
"""The key of a state that is the plan of a request."""

_PLAN_S: Final = 24 * 3600
"""Seconds that the plan of a request stays that is never repeated: longer than any client repeats one.

Then ``expire`` deletes it.
"""

_BY_REQUEST: Final = f"{DELETE} by request "
"""The beginning of the reflog's action for a deletion by a request."""

RESET: Final = "reset"
"""The reflog's action for a move back to an earlier commit."""

META: Final = "request"
"""The name under which a commit's meta has the id of its request."""

_MARGIN_S: Final = 60
"""Seconds by which the clocks of instances may differ, and that one of them may take from a request to its commit."""

_FIRST_STEPS: Final = 1000
"""Commits that are read for a write that was not repeated: only another attempt that was faster could have left one."""

_BRANCHES: Final = 4096
"""Branches whose latest requests are kept in memory."""

_REQUESTS: Final = 1 << 16
"""The number of requests of all branches together, which take about 26 MB.

Those of a branch that was dropped are read again.
"""


@dataclass(slots=True)
class Request:
    """A write of a client, as one instance received it.

    Attributes:
        id: its id.
        fingerprint: a hash of its parameters and its body.
        age: seconds since the client sent it first, or None for the first attempt.
        made: the commits of this attempt.
    """

    id: str
    fingerprint: str
    age: float | None = None
    made: set[Address] = field(default_factory=set)
    arrived: int = field(default_factory=lambda: time_ns() // 1000)

    @property
    def since(self) -> int:
        """The time, in microseconds, before which no commit of the write was made."""
        return self.arrived - int(((self.age or 0.0) + _MARGIN_S) * 1_000_000)

    @property
    def mark(self) -> str:
        """The form in which a commit's meta has the request."""
        return f"{self.id}.{self.fingerprint}"

    def check_same(self, fingerprint: str) -> None:
        """Raise ``IdempotencyConflictError`` if a commit's request of this id had other parameters or another body."""
        if fingerprint not in ("", self.fingerprint):
            raise conflict()


@dataclass(frozen=True, slots=True)
class Done:
    """The record of a request in its commit. It is kept without the commit, which ``prune`` and ``gc`` may delete.

    Attributes:
        address: the address of the commit.
        time: the time of the commit, in microseconds since 1970.
        fingerprint: the fingerprint of the request, or an empty string.
        round: the number of the round that the commit saved, or None.
    """

    address: Address
    time: int
    fingerprint: str
    round: int | None


REQUEST: Final[ContextVar[Request | None]] = ContextVar("versioned_state_request", default=None)
"""The write that is under way in a context."""


def conflict() -> IdempotencyConflictError:
    """Return the error for two different requests with one key."""
    return IdempotencyConflictError(
        "the Idempotency-Key was used for a request with other parameters or another body",
        remains="the first request counts, and this one changed nothing",
        hint="use a new key for each write",
    )


class RepeatedError(ApartError):
    """An earlier attempt did the write that is recorded in ``done``. Nothing was changed.

    If it was batched with other writes, each of them is then done by itself, so ``request`` is that of the caller who
    gets this error.
    """

    request: Request
    done: Done

    def __init__(self, request: Request, done: Done) -> None:
        super().__init__(done.address.hex())
        self.request, self.done = request, done


@dataclass(slots=True)
class _Recent:
    """The requests of all commits of a branch since a time, by id."""

    since: int
    done: dict[str, Done] = field(default_factory=dict)

    def add(self, commits: Iterable[Commit]) -> None:
        """Add newer commits, oldest first, and drop those that are older than any first attempt."""
        for commit in commits:
            self.done |= _done_by(commit)
        oldest = time_ns() // 1000 - 2 * _MARGIN_S * 1_000_000
        while self.done:
            id, done = next(iter(self.done.items()))
            if done.time >= oldest:
                break
            del self.done[id]
            self.since = max(self.since, done.time + 1)


class OnceDatabase(Database):
    """A database that records the requests of its commits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recent: OrderedDict[Address, _Recent] = OrderedDict()  # by the last commit in it
        self._count = 0  # the number of requests in all of them
        self._lock = Lock()

    def write_commit(
        self,
        tree: Tree,
        parents: tuple[Commit, ...],
        *,
        staging: Staging,
        message: str,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        tag: str | None = None,
    ) -> Commit:
        """Stage a commit, with the ids of the current requests.

        Raises ``RepeatedError`` if one of them has a commit already.
        """
        requests = _requests()
        if not requests:
            return super().write_commit(
                tree, parents, staging=staging, message=message, author=author, meta=meta, tag=tag
            )
        self._check(requests, parents[0])
        marks = [request.mark for request in requests]
        meta = {**(meta or {}), META: marks[0] if len(marks) == 1 else marks}
        commit = super().write_commit(
            tree, parents, staging=staging, message=message, author=author, meta=meta, tag=tag
        )
        for request in requests:
            request.made.add(commit.address)
        return commit

    def log_entry(self, ref: Ref, commit: Commit | None, *, action: str, author: str | None = None) -> bytes:
        """Return a log entry.

        Raises:
            UnknownRevisionError: the request of this context has deleted the branch already.
            RepeatedError: it has moved the branch back already.
        """
        request = REQUEST.get()
        if request is not None and commit is None and action == DELETE:
            if self._has_deleted(request, ref):
                raise UnknownRevisionError(
                    ref.name, reason="the request has deleted it already, and it was created again"
                )
            action = _deletion(request)
        elif request is not None and action == RESET:
            done = self.move_of(request, ref)
            if done is not None:
                raise RepeatedError(request, done)
            action = _move(request)
        return super().log_entry(ref, commit, action=action, author=author)

    def planned(self, branch: str, find: Callable[[], list[str]]) -> list[str]:
        """Return the branches that a call works on, as ``Database.planned``.

        The first attempt of a request commits them as its plan.

        A later attempt gets the rest of the plan: nothing if the first one has ended, and no branch that was deleted
        since.

        Raises ``IdempotencyConflictError`` if the first one was another request with the same key.
        """
        request = REQUEST.get()
        if request is None:
            return find()

        def attempt(_: None) -> list[str]:
            state = Versioned(Repository.over(self), branch=branch, ttl_seconds=_PLAN_S)
            try:
                earlier, is_done = self._find_plan(request, port.handle(state).ref)
                if earlier is not None:
                    request.check_same(_done_by(earlier)[request.id].fingerprint)
                    names = [] if is_done else list(state.repository.snapshot(earlier)[_PLAN])
                    return [name for name in names if not self._was_deleted(name, earlier.time)]
                state[_PLAN] = names = find()
                state.commit(f"plan of {len(names)} steps", on_moved=OnMoved.REFUSE, allow_empty=True)
            except RepeatedError:
                raise MovedError from None
            else:
                return names
            finally:
                close_handle(state)

        # If the branch has moved, another attempt, or another request of the user, was first.
        return again_if_moved(attempt, None, lambda _: None)

    def end_plan(self, branch: str) -> None:
        """Delete the branch of a plan. Its reflog keeps the plan for later attempts."""
        request = REQUEST.get()

        def check(_: Ref, head: Commit) -> None:
            if request is None or request.id not in _done_by(head):
                raise UnknownRevisionError(branch, reason="it has the plan of another request by now")

        with suppress(UnknownRevisionError):
            Repository.over(self).branches.remove(branch, check)

    def _find_plan(self, request: Request, ref: Ref) -> tuple[Commit | None, bool]:
        """Return the plan of an earlier attempt, and whether that attempt has ended.

        Cost: the plans since the first attempt.

        In that case a request has deleted the branch of the plan: this one, or another one of the user that did the
        rest of it.
        """
        heads = [] if ref.head is None else [(ref.head, False)]
        deletions = (entry for entry in self._moves_since(request.since, ref) if entry.new is None)
        heads += [(entry.old, entry.action.startswith(_BY_REQUEST)) for entry in deletions if entry.old is not None]
        for head, is_done in heads:
            with suppress(MissingObjectError):  # erased meanwhile
                found = self._find(request, self.commits.read(head))
                if found is not None:
                    return found, is_done
        return None, False

    def _was_deleted(self, branch: str, since: int) -> bool:
        """Return whether a branch was deleted after a time, in microseconds.

        It may be there again. Cost: its moves since.
        """
        return any(entry.new is None for entry in self._moves_since(since, self.ref("branch", branch)))

    def _moves_since(self, since: int, ref: Ref) -> Iterator[LogEntry]:
        """Yield the moves of a branch after a time, in microseconds, newest first."""
        log = ref.log
        with suppress(MissingObjectError):  # collected, so it is older than any attempt
            while log is not None:
                entry = self.read_log(log)
                if entry.time < since:
                    return
                yield entry
                log = entry.previous

    def is_done(self, request: Request, branch: str) -> bool:
        """Return whether an earlier attempt of a write to a branch was done.

        Cost: the moves and commits since the first attempt.

        Raises ``IdempotencyConflictError`` if that was another request with the same key.
        """
        return self._has_deleted(request, self.ref("branch", branch)) or self.commit_of(request, branch) is not None

    def commit_of(self, request: Request, branch: str) -> Done | None:
        """Return the record of the commit of an earlier attempt on a branch, or None.

        Cost and errors as ``is_done``.
        """
        ref = self.ref("branch", branch)
        with suppress(MissingObjectError):  # erased meanwhile
            found = None if ref.head is None else self._find(request, self.commits.read(ref.head))
            if found is not None:
                done = _done_by(found)[request.id]
                request.check_same(done.fingerprint)
                return done
        return None

    def move_of(self, request: Request, ref: Ref) -> Done | None:
        """Return the record of the move of a branch by an earlier attempt, or None.

        Cost: the moves since the first attempt.
        """
        move = _move(request)
        for entry in self._moves_since(request.since, ref):
            if entry.new is not None and entry.action == move:
                return Done(entry.new, entry.time, "", None)
        return None

    def _has_deleted(self, request: Request, ref: Ref) -> bool:
        deletion = _deletion(request)
        return any(entry.new is None and entry.action == deletion for entry in self._moves_since(request.since, ref))

    def _check(self, requests: Sequence[Request], head: Commit) -> None:
        """Raise ``RepeatedError`` if one of the latest commits of a branch is that of another attempt."""
        while True:
            shallow = self.commits.shallow
            try:
                self._check_history(requests, head)
            except MissingObjectError:
                if self.commits.shallow is not shallow:
                    continue  # others pruned the history and collected it while it was read
                if object_key(head.address) in self.store:
                    raise
                # No branch has this head any more, so the commit will be made again on another one.
            return

    def _check_history(self, requests: Sequence[Request], head: Commit) -> None:
        """Check as ``_check``. Raises ``MissingObjectError`` if others delete the history."""
        recent = self._recent_of(head, min(request.since for request in requests))
        for request in requests:
            done = recent.done.get(request.id)
            if done is None and request.age is not None and request.since < recent.since:
                found = self._find(request, head)
                done = None if found is None else _done_by(found)[request.id]
            if done is not None and done.address not in request.made:
                raise RepeatedError(request, done)

    def _recent_of(self, head: Commit, since: int) -> _Recent:
        """Return the requests of the commits up to ``head``.

        Cost: the commits since the last call, or else those since a time.
        """
        new: list[Commit] = []
        known = None
        for commit in islice(graph.first_parents(head, self.commits.read), _FIRST_STEPS):
            with self._lock:
                known = self._pop(commit.address)
            if known is not None:
                break
            if commit.time < since:
                break
            new.append(commit)
        if len(new) == _FIRST_STEPS or (new and self._is_cut(new[-1])):
            since = new[-1].time
        recent = _Recent(since) if known is None else known
        recent.add(reversed(new))
        with self._lock:
            self._pop(head.address)  # another thread's
            self._recent[head.address] = recent
            self._count += len(recent.done)
            while len(self._recent) > _BRANCHES or (self._count > _REQUESTS and len(self._recent) > 1):
                self._pop(next(iter(self._recent)))
        return recent

    def _pop(self, head: Address) -> _Recent | None:
        found = self._recent.pop(head, None)
        if found is not None:
            self._count -= len(found.done)
        return found

    def _find(self, request: Request, head: Commit) -> Commit | None:
        """Find the commit of an attempt that may be old.

        Raises ``IdempotencyConflictError`` if the history of that time was pruned.
        """
        commit = head
        for commit in graph.first_parents(head, self.commits.read):
            if commit.time < request.since:
                return None
            if request.id in _done_by(commit):
                return commit
        if self._is_cut(commit):
            raise IdempotencyConflictError(
                "the server cannot find out whether the request was done before: "
                "the commits of that time have been pruned",
                remains="this attempt changed nothing",
                hint="read what is stored; if the write is missing, send it with a new Idempotency-Key",
            )
        return None

    def _is_cut(self, commit: Commit) -> bool:
        """Return whether ``prune`` ended history here. The commit may have been read before that."""
        commit = self.commits.read(commit.address)
        return commit.shallow and not commit.parent_addresses


def _deletion(request: Request) -> str:
    """Return the reflog's action for a deletion by a request."""
    return f"{_BY_REQUEST}{request.id}"


def _move(request: Request) -> str:
    """Return the reflog's action for a move back by a request."""
    return f"{RESET} by request {request.id}"


def _done_by(commit: Commit) -> dict[str, Done]:
    """Return the records of a commit's requests, by their ids."""
    meta = commit.meta or {}
    found = meta.get(META)
    marks = (
        [found] if type(found) is str else [mark for mark in found if type(mark) is str] if type(found) is list else []
    )
    number = meta.get("round")
    pairs = [(id, fingerprint) for id, _, fingerprint in (mark.partition(".") for mark in marks)]
    return {id: Done(commit.address, commit.time, fingerprint, number) for id, fingerprint in pairs}


def _requests() -> list[Request]:
    """Return the writes of this thread: exactly those whose content the commit has."""
    together = callers()
    found = [context.get(REQUEST) for context in together] if together else [REQUEST.get()]
    return [request for request in found if request is not None]
