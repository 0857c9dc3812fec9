"""The operations of the API: each is a call of a service, as a row of a table. Layer: server.

The OpenAPI document is made from the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from types import TracebackType
from typing import Any, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field, SkipValidation, ValidationError

from versioned_state.errors import LimitExceededError, RefExistsError, SessionNotFoundError
from versioned_state.off_loop import Threads
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.server.answers import NOTHING, absent, is_large, malformed, refusal_of
from versioned_state.server.exactly_once import REQUEST, Done, OnceDatabase
from versioned_state.server.limits import MAX_BODY_OF_A_READ, Limits
from versioned_state.server.requests import SESSION, USER, Count, Number, Parameter, Positive, adapter
from versioned_state.server.tokens import Scope
from versioned_state.services.agent_state import VersionedStateService
from versioned_state.services.memory import VersionedMemoryService
from versioned_state.services.memory.memories import MESSAGES, session_name
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.session import Session
from versioned_state.services.session import VersionedSessionService
from versioned_state.services.session_history.messages import (
    CheckedMessages,
    as_messages,
    document_of,
    session_document,
)
from versioned_state.services.session_history.session_history_service import VersionedSessionHistoryService
from versioned_state.services.store_service import StoreService

Method = Literal["GET", "POST", "DELETE"]

_MOST_COMMITS: Final = 1000
_LONGEST_MESSAGE: Final = 256
"""Characters of the message of a turn's commit: a write's answer has it, and must fit into ``app._LEAST_ANSWER``."""

_PART_OF_A_MESSAGE: Final = 256
"""Bytes that each part of a message counts as until it is checked, which takes ten times as long as writing."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that a server offers.

    Attributes:
        state, history, memory: over one repository. ``history`` does not create sessions that do not exist.
        opening: the same history, which creates them.
        sessions, opening_sessions: the session service, and its history that creates sessions.
    """

    state: VersionedStateService
    history: VersionedSessionHistoryService
    opening: VersionedSessionHistoryService
    memory: VersionedMemoryService
    sessions: VersionedSessionService
    opening_sessions: VersionedSessionHistoryService

    @property
    def of_sessions(self) -> Services:
        """The services that work on the branches of sessions."""
        whole = self.sessions
        return Services(whole.state, whole.history, self.opening_sessions, whole.memory, whole, self.opening_sessions)

    async def __aenter__(self) -> Self:
        for service in self._all:
            await service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for service in self._all:
            await service.stop()

    async def health(self) -> bool:
        """Return whether the store answers."""
        return await self.state.health()

    @property
    def _all(self) -> tuple[StoreService, ...]:
        return self.state, self.history, self.opening, self.memory, self.sessions, self.opening_sessions


@dataclass(slots=True)
class Call:
    """A request for an operation.

    Attributes:
        off_loop: runs a function that takes long and does not wait for the store.
        fingerprint: a hash that distinguishes the arguments and the body from others.
    """

    services: Services
    user_id: str
    session_id: str | None
    off_loop: Threads
    arguments: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    fingerprint: str = ""

    @property
    def session(self) -> str:
        """The id of the session, for an operation that needs one."""
        assert self.session_id is not None, "checked by the operation"
        return self.session_id

    async def messages(self, given: Any) -> CheckedMessages:
        """Check the messages of the body, off the event loop if they are many. Raises ``InvalidArgumentError``."""
        check = partial(as_messages, given)
        return CheckedMessages(await self.off_loop(check) if is_large(given, _PART_OF_A_MESSAGE) else check())


def _as_it_is(value: Any) -> Any:
    return value


async def _nothing(_: Call, __: Done) -> Any:
    return NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A row of the API.

    Attributes:
        run: makes the call. Its result is the argument of ``document``, or ``NOTHING`` for an empty answer.
        document: turns the result into data, off the event loop if it is large.
        own: the parameters besides user and session.
        session: whether it needs a session, may have one, or has none.
        exists: returns whether the session exists, if a missing one is an error.
        body, result: the pydantic types of the request's body and of the answer, or None.
        repeated: makes the answer if an earlier attempt has made the commit.
    """

    name: str
    method: Method
    path: str
    summary: str
    run: Callable[[Call], Awaitable[Any]]
    own: tuple[Parameter, ...] = ()
    session: Literal["none", "optional", "required"] = "none"
    exists: Callable[[Call], Awaitable[bool]] | None = None
    body: Any = None
    result: Any = None
    repeated: Callable[[Call, Done], Awaitable[Any]] = _nothing
    document: Callable[[Any], Any] = _as_it_is
    reads: bool = False
    """Whether a POST only reads."""
    of_sessions: bool = False
    """Whether its services are those of the session service."""

    @property
    def scope(self) -> Scope:
        """The scope that a token needs."""
        return "read" if self.method == "GET" or self.reads else "write"

    def most_body(self, limits: Limits) -> int:
        """Return the largest size of the body, in bytes."""
        if self.body is None:
            return 0
        return min(limits.max_body, MAX_BODY_OF_A_READ) if self.reads else limits.max_body

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters of the query."""
        return (USER, *(() if self.session == "none" else (SESSION,)), *self.own)

    def check_session(self, call: Call) -> None:
        """Raise ``RefusalError`` if the session is needed, and not given."""
        if self.session == "required" and call.session_id is None:
            raise malformed("the parameter session_id is missing")

    def checked_body(self, value: Any) -> Any:
        """Return the body as its type, which the service checks further. Raises ``RefusalError``."""
        try:
            return adapter(self.body).validate_python(value, strict=True)
        except ValidationError as error:
            raise refusal_of(error) from None


async def _repeated(service: StoreService, branch: str) -> Any:
    """Return no answer to a deletion of a missing thing if an earlier attempt deleted it.

    Otherwise raises ``RefusalError``.
    """
    request, database = REQUEST.get(), service.repository.database
    if request is None or not isinstance(database, OnceDatabase):
        raise absent()
    if not await service.run_in_turn(branch, partial(database.is_done, request, branch)):
        raise absent()
    return NOTHING


def _found(value: Any) -> Any:
    if value is None:
        raise absent()
    return value


# Bodies and parameters


class TurnBody(BaseModel, extra="forbid"):
    """The body of a turn: the head that it began with, the state's changed and removed keys, and the messages."""

    base: str = Field(pattern="^[0-9a-f]{48}$")
    values: dict[str, Any] = {}
    removed: list[str] = []
    messages: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    message: str = ""


class TurnBegin(BaseModel):
    """The answer to the beginning of a turn."""

    base: str
    state: dict[Any, Any]


class CommitBody(BaseModel):
    """A commit."""

    id: str
    parents: list[str]
    time: int
    author: str | None
    message: str
    meta: dict[str, Any] | None


class CommitOrNone(BaseModel):
    """The answer to a turn, and to an undo: the head of the session, if there is one."""

    commit: CommitBody | None


class Copy(BaseModel):
    """The answer to a fork."""

    session_id: str


class Listing(BaseModel, extra="forbid"):
    """The body of a listing."""

    filters: dict[str, Any] | None = None


class Search(Listing):
    """The body of a search for the last of its messages, which the service checks."""

    messages: list[SkipValidation[Message]]


class Round(BaseModel):
    """The answer to a save."""

    round_id: int


_ROUND: Final = Parameter(
    "round_id", int, "The number of the round; by default the latest, or for a save the next one."
)
_LAST: Final = Parameter("last", Count, "How many of the newest messages to return; by default all.")
_TTL: Final = Parameter("ttl_seconds", Number, "Seconds after the last save until the session expires.")
_AFTER: Final = (
    Parameter("after", str, "Begin after the session with this id."),
    Parameter("limit", Count, "The largest number of sessions to return."),
)

_TURNS: Final = Parameter("turns", Positive, "How many turns to take back; by default 1.")
_TO: Final = Parameter("to", str, "The id of the copy; by default a new one.")
_LIMIT: Final = Parameter("limit", Count, "The largest number of commits to return; by default, and at most, 1,000.")


_TABLE: Final[list[Operation]] = []

Run = Callable[[Call], Awaitable[Any]]


def _operation(method: Method, path: str, summary: str, **row: Any) -> Callable[[Run], Run]:
    """Return a decorator that adds an operation to the table.

    The function makes its call, and has its name after an underscore.
    """

    def add(run: Run) -> Run:
        _TABLE.append(Operation(name=run.__name__[1:], method=method, path=path, summary=summary, run=run, **row))
        return run

    return add


# States


async def _has_state(call: Call) -> bool:
    return bool(await call.services.state.list_rounds(call.user_id, call.session_id))


async def _saved(_: Call, done: Done) -> Any:
    return {"round_id": done.round}


@_operation(
    "POST",
    "/v1/state",
    "Save a state as a round.",
    repeated=_saved,
    own=(_ROUND, _TTL),
    session="optional",
    body=dict[Any, Any],
    result=Round,
)
async def _save_state(call: Call) -> Any:
    given = call.arguments
    save = call.services.state.save_owned if is_large(call.body) else call.services.state.save_state
    number = await save(
        call.user_id, call.body, call.session_id, given.get("round_id"), ttl_seconds=given.get("ttl_seconds")
    )
    return {"round_id": number}


@_operation(
    "GET",
    "/v1/state",
    "Return the state of a round.",
    own=(_ROUND,),
    session="optional",
    exists=_has_state,
    result=dict[Any, Any],
)
async def _export_state(call: Call) -> Any:
    return _found(await call.services.state.export_state(call.user_id, call.session_id, call.arguments.get("round_id")))


@_operation(
    "DELETE", "/v1/state", "Delete a session, or one round of it.", own=(_ROUND,), session="optional", exists=_has_state
)
async def _delete_state(call: Call) -> Any:
    number = call.arguments.get("round_id")
    state = call.services.state
    rounds = await state.list_rounds(call.user_id, call.session_id)
    if not rounds or (number is not None and number not in rounds):
        return await _repeated(state, state.branch(call.user_id, call.session_id))
    await state.delete_state(call.user_id, call.session_id, number)
    return NOTHING


@_operation(
    "GET",
    "/v1/state/rounds",
    "List the rounds of a session, in order.",
    session="optional",
    exists=_has_state,
    result=list[int],
)
async def _list_rounds(call: Call) -> Any:
    return await call.services.state.list_rounds(call.user_id, call.session_id) or _found(None)


@_operation("GET", "/v1/state/sessions", "List the sessions of a user that have a state.", result=list[str])
async def _list_state_sessions(call: Call) -> Any:
    return await call.services.state.list_sessions(call.user_id)


# Histories


async def _has_session(call: Call) -> bool:
    return await call.services.history.get_session(call.user_id, call.session, last=0) is not None


async def _created_again(call: Call, _: Done) -> Any:
    return await _open_session(call)


def _session_documents(sessions: list[Session]) -> list[dict[str, Any]]:
    return [session_document(session) for session in sessions]


@_operation(
    "POST",
    "/v1/history/sessions",
    "Create a session, or return the existing one.",
    document=session_document,
    repeated=_created_again,
    own=(_TTL, _LAST),
    session="optional",
    result=Session,
)
async def _create_session(call: Call) -> Any:
    session_id, request = call.session_id, REQUEST.get()
    if request is not None and not (session_id or "").strip():
        session_id = str(UUID(request.id))  # so that a repeated request finds the session of the first one
    return await call.services.history.create_session(call.user_id, session_id, **call.arguments)


@_operation(
    "GET",
    "/v1/history/sessions",
    "List the sessions of a user, without their messages.",
    document=_session_documents,
    own=_AFTER,
    result=list[Session],
)
async def _list_sessions(call: Call) -> Any:
    return await call.services.history.list_sessions(call.user_id, **call.arguments)


@_operation("DELETE", "/v1/history/sessions", "Delete all sessions of a user.")
async def _delete_user_sessions(call: Call) -> Any:
    await call.services.history.delete_user_sessions(call.user_id)
    return NOTHING


@_operation(
    "GET",
    "/v1/history/session",
    "Return a session with its messages.",
    document=session_document,
    own=(_LAST,),
    session="required",
    exists=_has_session,
    result=Session,
)
async def _get_session(call: Call) -> Any:
    return _found(await call.services.history.get_session(call.user_id, call.session, call.arguments.get("last")))


@_operation(
    "POST",
    "/v1/history/session",
    "Return a session with its messages. Create it unless it exists or was deleted.",
    document=session_document,
    repeated=_created_again,
    own=(_LAST,),
    session="required",
    result=Session,
)
async def _open_session(call: Call) -> Any:
    return _found(await call.services.opening.get_session(call.user_id, call.session, call.arguments.get("last")))


@_operation("DELETE", "/v1/history/session", "Delete a session.", session="required", exists=_has_session)
async def _delete_session(call: Call) -> Any:
    history = call.services.history
    if not await _has_session(call):
        return await _repeated(history, history.branch(call.user_id, call.session))
    await history.delete_session(call.user_id, call.session)
    return NOTHING


@_operation(
    "POST",
    "/v1/history/messages",
    "Append one or more messages to a session.",
    own=(_TTL,),
    session="required",
    exists=_has_session,
    body=dict[str, Any] | list[dict[str, Any]],
)
async def _append_message(call: Call) -> Any:
    messages: Any = await call.messages(call.body)
    await call.services.history.append_message(
        Session(id=call.session, user_id=call.user_id), messages, **call.arguments
    )
    return NOTHING


# Memories


async def _has_memory(call: Call) -> bool:
    memory = call.services.memory
    if not call.session_id:
        return bool(await memory.list_memory(call.user_id, {"page_size": 1}))
    names = (MESSAGES, session_name(call.session_id))
    return bool(
        await memory.read_in_turn(
            memory.branch(call.user_id), lambda memories: any(True for _ in memories.entries(names))
        )
    )


def _documents(messages: list[Message]) -> list[dict[str, Any]]:
    return [document_of(message) for message in messages]


@_operation(
    "POST", "/v1/memory", "Add messages to the memory of a user.", session="optional", body=list[dict[str, Any]]
)
async def _add_memory(call: Call) -> Any:
    messages: Any = await call.messages(call.body)
    await call.services.memory.add_memory(call.user_id, messages, call.session_id)
    return NOTHING


@_operation(
    "POST",
    "/v1/memory/search",
    "Search the memory of a user.",
    document=_documents,
    body=Search,
    result=list[Message],
    reads=True,
)
async def _search_memory(call: Call) -> Any:
    query: Any = await call.messages(call.body.messages[-1:])
    return await call.services.memory.search_memory(call.user_id, query, call.body.filters)


@_operation(
    "POST",
    "/v1/memory/list",
    "List a page of the memory of a user.",
    document=_documents,
    body=Listing,
    result=list[Message],
    reads=True,
)
async def _list_memory(call: Call) -> Any:
    return await call.services.memory.list_memory(call.user_id, call.body.filters)


@_operation(
    "DELETE",
    "/v1/memory",
    "Delete the memory of a user, or that of one session.",
    session="optional",
    exists=_has_memory,
)
async def _delete_memory(call: Call) -> Any:
    memory = call.services.memory
    if not await _has_memory(call):
        return await _repeated(memory, memory.branch(call.user_id))
    await memory.delete_memory(call.user_id, call.session_id)
    return NOTHING


# Turns


def commit_document(commit: Commit) -> dict[str, Any]:
    """Return a commit as a dict."""
    names = ("id", "parents", "time", "author", "message", "meta")
    return {name: list(value) if name == "parents" else value for name in names for value in (getattr(commit, name),)}


def _commits(commits: list[Commit]) -> list[dict[str, Any]]:
    return [commit_document(commit) for commit in commits]


def _commit_or_none(commit: Commit | None) -> dict[str, Any]:
    return {"commit": None if commit is None else commit_document(commit)}


async def _made_commit(call: Call, done: Done) -> Any:
    sessions = call.services.sessions
    return await sessions.run_in_turn(
        f"{done.address.hex()}", partial(sessions.repository.database.commits.read, done.address)
    )


async def _has_whole_session(call: Call) -> bool:
    return bool(await call.services.sessions.log(call.user_id, call.session, limit=1))


@_operation(
    "GET",
    "/v1/session/turn",
    "Return the state of a session, and the head that a turn begins with.",
    session="required",
    result=TurnBegin,
)
async def _begin_turn(call: Call) -> Any:
    base, state = await call.services.sessions.read(call.user_id, call.session)
    return {"base": base, "state": state}


@_operation(
    "POST",
    "/v1/session/turn",
    "Commit a turn: changes of the state, messages and memory, all or nothing.",
    document=_commit_or_none,
    repeated=_made_commit,
    own=(_TTL,),
    session="required",
    body=TurnBody,
    result=CommitOrNone,
)
async def _end_turn(call: Call) -> Any:
    given: TurnBody = call.body
    if len(given.message) > _LONGEST_MESSAGE:
        raise LimitExceededError("the length of a commit's message", limit=_LONGEST_MESSAGE)
    messages: Any = await call.messages(given.messages)
    memory: Any = await call.messages(given.memory)
    ttl = call.arguments.get("ttl_seconds")
    sessions, request = call.services.sessions, REQUEST.get()
    branch, database = sessions.branch(call.user_id, call.session), sessions.repository.database
    # repeated, it might change nothing
    if request is not None and request.age is not None and isinstance(database, OnceDatabase):
        done = await sessions.run_in_turn(branch, partial(database.commit_of, request, branch))
        if done is not None:
            return await _made_commit(call, done)
    turn = sessions.turn(call.user_id, call.session, ttl_seconds=ttl, message=given.message, base=given.base)
    async with turn:
        for key in given.removed:
            turn.state.pop(key, None)
        turn.state.update(given.values)
        turn.append(messages)
        turn.remember(memory)
    return turn.commit


@_operation(
    "POST",
    "/v1/session/undo",
    "Take back the last turns of a session.",
    document=_commit_or_none,
    repeated=_made_commit,
    own=(_TURNS,),
    session="required",
    exists=_has_whole_session,
    result=CommitOrNone,
)
async def _undo_turns(call: Call) -> Any:
    sessions, request = call.services.sessions, REQUEST.get()
    branch, database = sessions.branch(call.user_id, call.session), sessions.repository.database
    if request is not None and request.age is not None and isinstance(database, OnceDatabase):
        moved = await sessions.run_in_turn(branch, lambda: database.move_of(request, database.ref("branch", branch)))
        if moved is not None:
            return await _made_commit(call, moved)
    try:
        return await sessions.undo(call.user_id, call.session, call.arguments.get("turns", 1))
    except SessionNotFoundError:
        await _repeated(sessions, branch)
        return None


def _beginning(repository: Repository, branch: str) -> int | None:
    """Return the time at which a branch began, after its last deletion, or None if it is deleted now."""
    life = takewhile(lambda position: position.commit is not None, repository.reflog(branch))
    times = [position.time for position in life]
    return times[-1] if times else None


@_operation(
    "POST",
    "/v1/session/fork",
    "Copy a session, with its history.",
    own=(_TO,),
    session="required",
    exists=_has_whole_session,
    result=Copy,
)
async def _fork_session(call: Call) -> Any:
    sessions, request, to = call.services.sessions, REQUEST.get(), call.arguments.get("to")
    if to is None and request is not None:
        to = str(UUID(request.id))  # so that a repeated request finds the copy of the first one
    try:
        made = await sessions.fork(call.user_id, call.session, to)
    except RefExistsError:
        if to is None or request is None or request.age is None:
            raise
        branch = sessions.branch(call.user_id, to)
        made_at = await sessions.run_in_turn(branch, lambda: _beginning(sessions.repository, branch))
        if made_at is None or made_at < request.since:
            raise
        made = to
    return {"session_id": made}


@_operation(
    "GET",
    "/v1/session/log",
    "List the newest commits of a session.",
    document=_commits,
    own=(_LIMIT,),
    session="required",
    result=list[CommitBody],
)
async def _session_log(call: Call) -> Any:
    limit = min(call.arguments.get("limit", _MOST_COMMITS), _MOST_COMMITS)
    return await call.services.sessions.log(call.user_id, call.session, limit=limit)


@_operation(
    "DELETE",
    "/v1/session",
    "Delete a session: state, messages, memory and files.",
    session="required",
    exists=_has_whole_session,
)
async def _delete_whole_session(call: Call) -> Any:
    sessions = call.services.sessions
    if not await _has_whole_session(call):
        return await _repeated(sessions, sessions.branch(call.user_id, call.session))
    await sessions.delete_session(call.user_id, call.session)
    return NOTHING


OPERATIONS: Final[tuple[Operation, ...]] = (
    *_TABLE,
    *(
        replace(each, name=f"{each.name}_of_sessions", path=each.path.replace("/v1/", "/v1/session/"), of_sessions=True)
        for each in _TABLE
        if each.path.startswith(("/v1/history", "/v1/memory"))  # states are on the branches of sessions already
    ),
)
