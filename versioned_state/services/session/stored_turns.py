"""``StoredTurns``: turns as commits on the branches of sessions, undone and copied there.

Synchronous. Layer: services.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    CorruptObjectError,
    InvalidArgumentError,
    MissingObjectError,
    SessionNotFoundError,
    StateError,
)
from versioned_state.objects.address import Address
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.maintenance.expire import expire_branch
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.repository import Repository
from versioned_state.services.agent_state.reading import content_of, has_files
from versioned_state.services.agent_state.rounds import rounds_of
from versioned_state.services.agent_state.saving import rounds_hook
from versioned_state.services.agent_state.session_handle import Session
from versioned_state.services.calls.handles import Handles, close_handle
from versioned_state.services.calls.heads import at_head, head_of, is_over, unless_erased
from versioned_state.services.calls.turn import ALONE, Steps, sent
from versioned_state.services.memory.stored_memory import Addition, StagedMemory
from versioned_state.services.session.chat import Chat
from versioned_state.services.session.session_memory import SessionMemory
from versioned_state.services.session_history.stored_sessions import SessionName, keep_id
from versioned_state.services.session_hooks import FILES_KEY, SessionHooks
from versioned_state.state.branch import port
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.publisher import MovedError, again_if_moved, raise_if_moved
from versioned_state.state.branch.together import prepare_commit
from versioned_state.state.versioned import Versioned
from versioned_state.values.keys import NAMESPACE
from versioned_state.values.trees.nodes import Nodes

if TYPE_CHECKING:
    from versioned_state.repository.merging.policies import Policy

T = TypeVar("T")

_REMAINS: Final = "nothing of the turn was committed"


class _GoneError(Exception):
    """The session does not have the commit with which a turn began."""


def _moved_away(branch: str, head: str | None) -> BranchMovedError:
    return BranchMovedError(branch, expected=head, actual=None, remains=_REMAINS, hint="run the turn again")


@dataclass(slots=True)
class OpenTurn:
    """A turn: its session, its handle while the block runs, and at the end the changes to commit besides the handle's.

    Attributes:
        ttl: the time to live of the session from then on, in microseconds, or None to leave it as it is.
        base: the id of the head that the turn began with, in another process, or None for the present head.
        hidden: keys of the handle that are not a part of the state.
        used: keys of the state that the block has read or set.
        remembered: the memory as staged for the commit that is sent next, or was sent.
    """

    branch: str
    session: Session
    name: SessionName
    ttl: int | None
    message: str
    policies: Mapping[str, Policy]
    workspace: Path | None
    base: str | None = None
    open: Versioned | None = None
    hidden: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)
    messages: list[dict[str, Any]] = field(default_factory=list)
    memory: list[Addition] = field(default_factory=list)
    remembered: StagedMemory | None = None

    @property
    def handle(self) -> Versioned:
        """The handle of the block."""
        assert self.open is not None
        return self.open

    def drop(self) -> None:
        """Drop the changes of the handle, and close it. The files of a workspace are as before the block."""
        state, self.open = self.open, None
        if state is not None:
            try:
                if self.workspace is not None:
                    state.discard()
            finally:
                close_handle(state)


class StoredTurns:
    """The turns of a repository's sessions.

    The caller makes the calls on one session one by one. Other processes may work on it too.
    """

    def __init__(
        self,
        repository: Repository,
        handles: Handles[Versioned],
        chat: Chat,
        memory: SessionMemory,
        hooks: SessionHooks,
    ) -> None:
        self._repository = repository
        self._database = repository.database
        self._handles = handles
        self._chat = chat
        self._memory = memory
        self._hooks = hooks

    # Turns

    def open(self, turn: OpenTurn) -> None:
        """Open the handle of a turn at the head of the session."""

        def attempt(_: None) -> Versioned:
            state = self._handles.take(turn.branch) if turn.workspace is None and turn.base is None else None
            fresh = state is None
            if state is None:
                state = Versioned(self._repository, branch=turn.branch)
            try:
                if not fresh:
                    state.refresh()
                ref = port.handle(state).ref
                if ref.head is not None and is_over(self._database, ref, state.head):
                    expire_branch(self._repository.branches, turn.branch, self._database.now())
                    raise BranchMovedError(turn.branch, expected=state.head.id, actual=state.head.id)
                if self._chat.is_older(state):
                    self._chat.take_in(turn.branch, turn.name)
                    state.refresh()
                if turn.base is not None and turn.base != state.head.id:
                    self._go_back(state, turn.base)
                if turn.workspace is not None:
                    from versioned_state.agents.workspace import Workspace

                    Workspace(state, turn.workspace, name=FILES_KEY)
            except BaseException:
                close_handle(state)
                raise
            return state

        try:
            state = turn.open = unless_erased(lambda: again_if_moved(attempt, None, lambda _: None))
        except _GoneError:
            raise _moved_away(turn.branch, turn.base) from None
        has = turn.workspace is not None or has_files(_nodes(state), state.head.tree)
        turn.hidden = frozenset((FILES_KEY,) if has else ())

    def _go_back(self, state: Versioned, base: str) -> None:
        """Put a new handle where the turn began.

        Before it commits, ``_behind`` merges its changes onto what others have committed since.

        Raises ``_GoneError`` if the session has no such commit any more, or never had it.
        """
        handle, head, read = port.handle(state), state.head, self._database.commits.read
        try:
            at = read(Address(bytes.fromhex(base)))
            if at.height > head.height or graph.descend(head, at.height, read) != at:
                raise _GoneError
        except (MissingObjectError, CorruptObjectError):
            raise _GoneError from None
        handle.set_position(handle.ref, at)
        handle.worktree.tree = handle.root_of(at)

    def commit_in_steps(self, turn: OpenTurn) -> Steps[Commit | None]:
        """Commit a turn, sent with those of other sessions.

        Returns the head if it has changed nothing, or None without one.
        """
        state = turn.handle
        try:
            if turn.base is not None:
                yield ALONE
                self._behind(turn)
            if turn.workspace is not None or self._hooks.has(turn.branch):
                yield ALONE
                with ExitStack() as stack:
                    if turn.workspace is None:
                        stack.enter_context(self._hooks.joined(turn.branch, state))
                    self._commit_alone(turn)
            else:
                made = yield from self._sent_with_others(turn)
                if not made:
                    yield ALONE
                    self._behind(turn)
                    self._commit_alone(turn)
        except StateError as error:
            if not isinstance(error, CommitInDoubtError):
                error.remains = _REMAINS
            raise
        turn.open = None
        port.handle(state).ttl = None  # what other processes set later stays
        if turn.workspace is not None:
            close_handle(state)
        else:
            self._release(turn, state)
            self._handles.give(turn.branch, state)
        return None if state.head.id == ROOT_ID else state.head

    def _sent_with_others(self, turn: OpenTurn) -> Steps[bool]:
        """Commit a turn on the head of its handle. Returns False if the session has another head by now."""
        try:
            prepared = self._staged(turn, lambda options: prepare_commit(turn.handle, options))
        except BranchMovedError:
            return False
        if prepared is None:
            return True
        answer = yield from sent(prepared.publication)
        return prepared.settle(answer) is not None

    def _commit_alone(self, turn: OpenTurn) -> None:
        state = turn.handle

        def attempt(_: None) -> None:
            self._staged(
                turn, lambda options: state.commit(options.message, meta=options.meta, on_moved=OnMoved.REFUSE)
            )

        try:
            again_if_moved(attempt, None, lambda _: self._behind(turn))
        except MovedError:
            raise _moved_away(turn.branch, state.head.id) from None

    def _behind(self, turn: OpenTurn) -> None:
        """Move to the head of others: merge the changes of the state by path, and drop what is staged anew.

        Raises ``BranchMovedError`` if the changes need a value as it was at the turn's head, and that was collected.
        """
        state, head = turn.handle, turn.handle.head

        def move() -> None:
            port.handle(state).worktree.restore(within=NAMESPACE)
            state.refresh(policies=turn.policies)

        try:
            unless_erased(move)  # a head that was read may be collected before its values are
        except MissingObjectError as error:
            try:
                raise_if_moved(port.handle(state), error)
            except BranchMovedError:
                raise _moved_away(turn.branch, head.id) from None
            raise

    def _staged(self, turn: OpenTurn, commit: Callable[[CommitOptions], T]) -> T:
        """Stage the turn on the head of its handle, and return the result of ``commit``.

        Raises ``BranchMovedError`` if that head was collected, because others have moved the branch and pruned it.
        """
        hook = rounds_hook(turn.handle)
        try:
            return commit(self._stage(turn))
        except MissingObjectError as error:
            raise_if_moved(port.handle(turn.handle), error)
            raise
        finally:
            hook.rounds = None

    def _stage(self, turn: OpenTurn) -> CommitOptions:
        """Stage the messages, the memory and the round of a turn on the head of its handle. Returns the commit."""
        state, head = turn.handle, turn.handle.head
        self._chat.stage(state, turn.messages)
        keep_id(state, turn.session.session_id)
        turn.remembered = self._memory.stage(state, turn.memory) if turn.memory else None
        rounds = rounds_of(_nodes(state), head.tree)
        number = 1 if rounds.latest is None else rounds.latest + 1
        hook = rounds_hook(state)
        hook.rounds = turn.session.named(rounds.settled(head.height).at(number, head.height + 1))
        hook.unless = head.tree
        port.handle(state).ttl = turn.ttl
        return CommitOptions(
            turn.message or _summary(number, turn), meta=turn.session.meta(round=number), on_moved=OnMoved.REFUSE
        )

    def _release(self, turn: OpenTurn, state: Versioned) -> None:
        """Release a turn's values: its caller may still have them, and the next turn begins with those of the store."""
        self._chat.released(state, turn.messages)
        if turn.remembered is not None:
            turn.remembered.release(state)
        for key in turn.used:
            state.release(key)

    # Undo, copies

    def undo(self, branch: str, session_id: str, turns: int) -> Commit | None:
        """Move a session to before its last turns.

        Returns the new head, or None if the session is deleted, since none was before.
        """
        read = self._database.commits.read

        def attempt(_: None) -> Commit | None:
            self._handles.forget(branch)
            head = head_of(self._database, branch)
            if head is None:
                raise SessionNotFoundError(session_id)
            oldest, found = head, []
            for oldest in graph.first_parents(head, read):
                if oldest.id != ROOT_ID and "round" in oldest.meta:
                    found.append(oldest)
                    if len(found) == turns:
                        break
            pruned = f"; {graph.pruned_reason(oldest)}" if oldest.shallow and not oldest.parent_addresses else ""
            if len(found) < turns:
                raise InvalidArgumentError(
                    f"the session has {len(found)} turn{'s' * (len(found) != 1)}, not {turns}{pruned}",
                    remains="nothing was changed",
                )
            if pruned:
                raise InvalidArgumentError(
                    f"the state before turn {oldest.short} is not there{pruned}", remains="nothing was changed"
                )
            target = read(oldest.parent_addresses[0])
            if target.id == ROOT_ID:

                def check(_: Ref, now: Commit) -> None:
                    if now != head:
                        raise MovedError

                self._repository.branches.remove(branch, check)
                return None
            with Versioned(self._repository, branch=branch) as state:
                if state.head != head:
                    raise MovedError
                return state.reset(target)

        try:
            return unless_erased(lambda: again_if_moved(attempt, None, lambda _: None))
        finally:
            self._memory.forget(branch)

    def fork(self, branch: str, name: SessionName, target: str, copy: SessionName, ttl: int | None) -> None:
        """Begin the branch of a copy at the head of a session."""
        head = self._chat.head(branch, name)
        if head is None:
            raise SessionNotFoundError(name.session_id)
        self._repository.branches.begin(target, head, ttl=ttl, origin=branch)

    def read(self, branch: str) -> tuple[str, dict[str, Any]]:
        """Read the state of a session.

        Returns the id of its head too, that of the empty root commit if there is no session.
        """

        def content(head: Commit) -> tuple[str, dict[str, Any]]:
            return head.id, content_of(self._repository, head)

        nothing: tuple[str, dict[str, Any]] = ROOT_ID, {}
        return at_head(self._database, branch, content, nothing)

    def log(self, branch: str, limit: int | None) -> list[Commit]:
        """Return the commits of a session, newest first."""
        head = head_of(self._database, branch)
        if head is None:
            return []
        line = (commit for commit in graph.first_parents(head, self._database.commits.read) if commit.id != ROOT_ID)
        return list(islice(line, limit))


def _nodes(state: Versioned) -> Nodes:
    """Return the nodes of a handle, with those that it has read or written."""
    return port.handle(state).worktree.encoder.nodes


def _summary(number: int, turn: OpenTurn) -> str:
    """Return the default message of a turn's commit."""
    grown = {"messages": len(turn.messages), "memory": sum(len(each.messages) for each in turn.memory)}
    words = ", ".join(f"{what} +{count}" for what, count in grown.items() if count)
    return f"turn {number}: {words}" if words else f"turn {number}"
