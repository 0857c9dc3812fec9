"""``SessionSaves``: saves rounds of sessions, each as a commit, together with those of other sessions or alone.

Layer: services.

::

    encoded ahead ── the commit is prepared ── sent with other sessions' ──┬── the round
          │                     │                                          └── the branch had moved, or the store failed
          └── no warm handle    └── the store must be read first                  │
                     └────────────────────────┴──── saved alone ──────────────────┘
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
from versioned_state.services.agent_state.session_handle import SAVED, Encoded, Session, SessionGoneError, SessionHandle
from versioned_state.services.calls.handles import Handles, close_handle
from versioned_state.services.calls.heads import unless_erased
from versioned_state.services.calls.locks import Locks
from versioned_state.services.calls.turn import ALONE, sent
from versioned_state.services.session_hooks import SessionHooks
from versioned_state.state.aio.caller import StoreNeeded
from versioned_state.state.branch import port
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.publisher import MovedError, again_if_moved
from versioned_state.state.versioned import Versioned

T = TypeVar("T")

Ready = tuple[SessionHandle, Encoded]
"""An encoded state, and the handle to save it with."""


class AskedSave(NamedTuple):
    """A state to save as a round. ``ready`` is its encoded form, if there is one, and ``ttl`` is in microseconds."""

    branch: str
    session: Session
    content: dict[str, Any]
    ready: Ready | None
    number: int | None
    ttl: int | None


class Limits(NamedTuple):
    """The largest number of sessions with a round for a user, and of rounds for a session."""

    sessions: int | None
    rounds: int | None


def encoded(handles: Handles[SessionHandle], branch: str, state: dict[str, Any]) -> Ready | None:
    """Encode a state on this thread.

    Returns None unless the session has an idle handle with the last state, and no store is needed.
    """
    handle = handles.take(branch)
    if handle is None:
        return None
    try:
        if handle.is_warm:
            with suppress(StoreNeeded):
                return handle, handle.encoded(state, sealed=True)
    except StateError:
        handles.give(branch, handle)
        raise
    handles.give(branch, handle)
    return None


class SessionSaves:
    """The saves of the sessions of a repository.

    The caller makes those of one session one by one. Other processes may save too.
    """

    def __init__(
        self,
        repository: Repository,
        handles: Handles[SessionHandle],
        limits: Limits,
        creations: Locks,
        hooks: SessionHooks,
    ) -> None:
        self._repository = repository
        self._handles = handles
        self._limits = limits
        self._creations = creations
        self._hooks = hooks

    def save_in_steps(self, asked: AskedSave) -> Generator[Any, Any, int]:
        """Save a state as a function in steps. Returns the number of its round."""
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
        """Save an encoded state with those of other sessions.

        Returns None if that is not possible, and nothing was saved.
        """
        port.handle(handle).ttl = asked.ttl
        try:
            prepared = handle.prepare(asked.session, ready, asked.number, max_rounds=self._limits.rounds)
            if prepared is None:
                return None
            answer = yield from sent(prepared.publication)
            number = prepared.settle(answer)
            if number is None:
                with suppress(BranchMovedError, MissingObjectError):  # it was deleted, and a save alone finds that too
                    port.handle(handle).refresh(SAVED)
                return None
        except BaseException:
            close_handle(handle)
            raise
        self._handles.give(asked.branch, handle)
        return number

    def save_alone(self, asked: AskedSave) -> int:
        """Save a state. Returns the number of its round."""
        handles, ready = self._handles, asked.ready
        first, content = (None, None) if ready is None else ready
        anew = False

        def attempt() -> int | None:
            nonlocal first, content, anew
            handle, first = first, None
            try:
                handle = handle or handles.take(asked.branch) or SessionHandle(self._repository, asked.branch)
                if content is None:
                    content = handle.encoded(asked.content, anew=anew)
                    if ready is not None and not content.equals(ready[1]):
                        close_handle(handle)
                        return None
                port.handle(handle).ttl = asked.ttl
                with self._creation(port.handle(handle), asked.session):
                    number = handle.save(asked.session, content, asked.number, max_rounds=self._limits.rounds)
            except BaseException as error:
                if handle is not None:
                    close_handle(handle)
                # of the last state, or of the handle's head: gc collected it after it was erased
                if isinstance(error, MissingObjectError):
                    content, anew = None, True
                raise
            handles.give(asked.branch, handle)
            return number

        number = _while_gone(asked.branch, attempt)
        if number is None:  # the dict belongs to the caller, who has changed it since
            assert ready is not None
            expected = port.handle(ready[0]).head.id
            raise BranchMovedError(
                asked.branch, expected=expected, actual=None, remains="nothing was saved", hint="save again"
            )
        return number

    def save_joined(self, asked: AskedSave) -> int:
        """Save a state together with what joins the saves of the session. Returns the number of its round."""

        def save(state: Versioned) -> int:
            handle = port.handle(state)
            handle.ttl = asked.ttl
            with self._creation(handle, asked.session):
                return saving.save(state, asked.session, asked.content, asked.number, max_rounds=self._limits.rounds)

        return self.joined(asked.branch, save)

    def joined(self, branch: str, function: Callable[[Versioned], T]) -> T:
        """Return the result of a function of a new handle, which the hooks of the session have joined."""

        def attempt() -> T:
            with Versioned(self._repository, branch=branch) as state:
                try:
                    with self._hooks.joined(branch, state):
                        return function(state)
                except BaseException:
                    close_handle(state)
                    raise

        return _while_gone(branch, attempt)

    @contextmanager
    def _creation(self, handle: BranchHandle, session: Session) -> Iterator[None]:
        """Run a block that may create a session.

        Raises ``QuotaExceededError`` if the user has too many. Cost: reads the head of each.
        """
        if self._limits.sessions is None or has_rounds(self._repository.database, handle.head):
            yield
            return
        prefix = branch_name(session.user_id) + "/"
        # otherwise calls that create sessions at the same moment could all find room
        with self._creations.held(prefix):
            if count_sessions(self._repository, prefix, but=handle.branch) >= self._limits.sessions:
                raise QuotaExceededError("the number of sessions of a user", limit=self._limits.sessions)
            yield


def _while_gone(branch: str, attempt: Callable[[], T]) -> T:
    """Return an attempt's result, and repeat it with another handle if the session was deleted or erased meanwhile."""

    def again(_: None) -> T:
        try:
            return attempt()
        except SessionGoneError:
            raise MovedError from None

    try:
        return unless_erased(lambda: again_if_moved(again, None))
    except MovedError:
        raise BranchMovedError(
            branch, expected=None, actual=None, remains="nothing was saved", hint="save again"
        ) from None
