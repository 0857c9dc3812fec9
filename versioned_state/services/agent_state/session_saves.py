"""``SessionSaves``: rounds of sessions, each a commit, saved together with those of other sessions or alone. Layer: services.

::

    encoded ahead ── the commit is prepared ── sent with those of other sessions ──┬── the round
          │                     │                                                  └── the branch had moved, or the store failed
          └── no warm handle    └── the store has to be asked first                       │
                     └────────────────────────┴──── saved alone ──────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from versioned_state.errors import BranchMovedError, MissingObjectError, QuotaExceededError, StateError
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.repository import Repository
from versioned_state.services.agent_state import saving
from versioned_state.services.agent_state.reading import count_sessions, has_rounds
from versioned_state.services.agent_state.writer import SAVED, Encoded, Session, SessionGoneError, SessionHandle, StoreNeededError
from versioned_state.services.calls.handles import Handles, close_handle
from versioned_state.services.calls.heads import ERASURES, unless_erased
from versioned_state.services.calls.locks import Locks
from versioned_state.services.calls.sending import sent
from versioned_state.services.calls.turn import ALONE
from versioned_state.services.session_hooks import SessionHooks
from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned

T = TypeVar("T")

Ready = tuple[SessionHandle, Encoded]
"""A state that is encoded, and the handle to save it with."""


class AskedSave(NamedTuple):
    """A state to save as a round. ``ready`` if it is encoded already; ``ttl`` in microseconds."""

    branch: str
    session: Session
    content: dict[str, Any]
    ready: Ready | None
    number: int | None
    ttl: int | None


class Limits(NamedTuple):
    """The sessions with a round that a user may have, and the rounds that a session may have."""

    sessions: int | None
    rounds: int | None


def encoded(handles: Handles, branch: str, state: dict[str, Any]) -> Ready | None:
    """A state, encoded on this thread, and the handle for it; None if no handle of the session is idle that knows the state before."""
    handle = handles.take(branch)
    if handle is None:
        return None
    assert isinstance(handle, SessionHandle)
    try:
        if handle.is_warm:
            with suppress(StoreNeededError):
                return handle, handle.encoded(state, sealed=True)
    except StateError:
        handles.give(branch, handle)
        raise
    handles.give(branch, handle)
    return None


class SessionSaves:
    """The saves of the sessions of a repository. Those of one session come one after another; other processes may save as well."""

    def __init__(self, repository: Repository, handles: Handles, limits: Limits, creations: Locks, hooks: SessionHooks) -> None:
        self._repository = repository
        self._handles = handles
        self._limits = limits
        self._creations = creations
        self._hooks = hooks

    def save_in_steps(self, asked: AskedSave) -> Generator[Any, Any, int]:
        """Save a state; the number of its round. Yields as a function in steps."""
        number = None
        if asked.ready is not None:
            handle, ready = asked.ready
            if ready.late:
                yield ALONE
                try:
                    handle.complete(ready)
                except BaseException:
                    close_handle(handle)
                    raise
            number = yield from self._save_ready(asked, handle, ready)
        if number is None:
            yield ALONE
            number = self.save_alone(asked)
        return number

    def _save_ready(self, asked: AskedSave, handle: SessionHandle, ready: Encoded) -> Generator[Any, Any, int | None]:
        """Save an encoded state with those of other sessions; None if that cannot be, and nothing was saved."""
        port.handle(handle).ttl = asked.ttl
        try:
            prepared = handle.prepare(asked.session, ready, asked.number, max_rounds=self._limits.rounds)
            if prepared is None:
                return None
            answer = yield from sent(prepared.publication)
            number = prepared.settle(answer)
            if number is None:
                with suppress(BranchMovedError, MissingObjectError):  # it was deleted, which a save alone finds as well
                    port.handle(handle).refresh(SAVED)
                return None
        except BaseException:
            close_handle(handle)
            raise
        self._handles.give(asked.branch, handle)
        return number

    def save_alone(self, asked: AskedSave) -> int:
        """Save a state; the number of its round."""
        handles, ready = self._handles, asked.ready
        handle, content = (None, None) if ready is None else ready
        erasures = 0
        while True:
            taken = None
            try:
                taken = handles.take(asked.branch) if handle is None else handle
                handle = None
                if taken is None:  # not if it is false, as the handle of an empty state is
                    taken = SessionHandle(self._repository, branch=asked.branch)
                assert isinstance(taken, SessionHandle)
                if content is None:
                    content = taken.encoded(asked.content, anew=bool(erasures))
                    if ready is not None and not content.equals(ready[1]):  # the dict is the caller's, who has changed it since
                        was = ready[0].head.id
                        raise BranchMovedError(asked.branch, expected=was, actual=None, remains="nothing was saved", hint="save again")
                port.handle(taken).ttl = asked.ttl
                with self._creation(taken, asked.session):
                    saved = taken.save(asked.session, content, asked.number, max_rounds=self._limits.rounds)
            except BaseException as error:
                if taken is not None:
                    close_handle(taken)
                if isinstance(error, SessionGoneError):
                    continue
                if isinstance(error, MissingObjectError) and erasures < ERASURES:
                    erasures += 1  # gc collected what the state before had, or the head of the handle, after it was gone
                    content = None
                    continue
                raise
            handles.give(asked.branch, taken)
            return saved

    def save_joined(self, asked: AskedSave) -> int:
        """Save a state together with what joins the saves of the session; the number of its round."""

        def save(state: Versioned) -> int:
            port.handle(state).ttl = asked.ttl
            with self._creation(state, asked.session):
                return saving.save(state, asked.session, asked.content, asked.number, max_rounds=self._limits.rounds)

        return self.joined(asked.branch, save)

    def joined(self, branch: str, function: Callable[[Versioned], T]) -> T:
        """The result of a function of a handle of its own, which the hooks of the session have joined."""

        def attempt() -> T:
            while True:
                with suppress(SessionGoneError), Versioned(self._repository, branch=branch) as state:
                    try:
                        with self._hooks.joined(branch, state):
                            return function(state)
                    except BaseException:
                        close_handle(state)
                        raise

        return unless_erased(attempt)

    @contextmanager
    def _creation(self, state: Versioned, session: Session) -> Iterator[None]:
        """The block of a save, which may create a session. Raises ``QuotaExceededError`` if the user has too many. Cost: theirs."""
        if self._limits.sessions is None or has_rounds(state.repository.database, state.head):
            yield
            return
        prefix = branch_name(session.user_id) + "/"
        with self._creations.held(prefix):  # those who create one at the same moment must not all find room for it
            if count_sessions(self._repository, prefix, but=state.branch) >= self._limits.sessions:
                raise QuotaExceededError("the number of sessions of a user", limit=self._limits.sessions)
            yield
