"""``VersionedSessionService``: the sessions of Google's Agent Development Kit, each a branch.

Needs the extra ``google-adk``.

Layer: integrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any, Final
from uuid import uuid4

from google.adk.errors._stale_session_error import StaleSessionError  # has no public name yet
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.platform import time as platform_time
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from versioned_state.arguments import string
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.integrations.adapter import Adapter, Place
from versioned_state.integrations.adk_branches import EVENTS, SESSION, STATE, branch_of, prefix_of, session_facts
from versioned_state.integrations.frameworks import check_version
from versioned_state.off_loop import off_loop
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.services.calls.heads import at_head, at_listed, head_of
from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned

check_version("google_adk")


class VersionedSessionService(Adapter, BaseSessionService):  # type: ignore[misc, unused-ignore] # a class of an untyped module
    """A session service of Google ADK: a session is a branch, its events are the list ``events``, each one a commit.

    ::

        from versioned_state.integrations.google_adk import VersionedSessionService

        sessions = VersionedSessionService("./agent-state")
        runner = Runner(app_name="trips", agent=agent, session_service=sessions)

    The state of a session is the dict ``state`` of its branch. The state of an app (``app:``) and that of a user
    (``user:``) are the dict ``state`` of branches of their own. An event and all that it changes in the three become
    visible in one step, or not at all. ``temp:`` is not stored. As in ADK's own databases, events and states are kept
    in the form that they have in JSON.

    An event costs its bytes, whatever the length of the session. Any number of tasks, threads and processes may use one
    store. An event is refused with ``StaleSessionError`` if its ``Session`` is not the stored one any more; an event
    that was stored already is not stored again. A deleted session stays in the reflog for 30 days. On S3 an event
    cannot change two of the three states at once.

    Args:
        place: as for ``Adapter``.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)

    def branch(self, app_name: str, user_id: str | None = None, session_id: str | None = None) -> str:
        """Return the name of the branch in the repository of a session, or of the state of a user or of an app."""
        parts = [string("app_name", app_name)]
        for name, each in (("user_id", user_id), ("session_id", session_id)):
            if each is None:
                break
            parts.append(string(name, each))
        return branch_of(*parts)

    # The interface of session services

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Begin a session, and return it.

        Args:
            state: its first state. Keys that begin with ``user:`` and ``app:`` change the states of the user and of the
                app.

        Raises:
            AlreadyExistsError: there is such a session. Nothing was changed.
        """
        session_id = (session_id or "").strip() or str(uuid4())
        return await off_loop(partial(self._create, app_name, user_id, session_id, _as_json(state or {})))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session, or None if there is none. Cost: that of the events that the configuration leaves."""
        return await off_loop(partial(self._get, app_name, user_id, session_id.strip(), config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """List the sessions of a user, by default of all, without their events: the last updated one comes last."""
        return await off_loop(lambda: ListSessionsResponse(sessions=self._list(app_name, user_id)))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, if there is one. The states of the user and of the app stay, and so do forks."""
        branch = self.branch(app_name, user_id, session_id.strip())

        def delete() -> None:
            with suppress(UnknownRevisionError):
                self.repository.branches.delete(branch, force=True)

        await off_loop(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, with keys that have no prefix."""
        return await off_loop(partial(self._state, self.branch(app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and what it changes, in one step, and append it to the session. A partial event is not stored.

        Raises:
            SessionNotFoundError: there is no such session.
            StaleSessionError: the session has got other events since it was read. Nothing was changed: read it again.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        data = event.model_dump(mode="json", exclude_none=True)
        head = await off_loop(partial(self._append, session, data))
        session.last_update_time = event.timestamp
        session._storage_update_marker = head.id
        if not any(each.id == event.id and each == event for each in reversed(session.events)):
            self._commit_event_to_session(session, event)
        return event

    # Ours

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        source_session_id: str,
        fork_before_invocation_id: str | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session with the events and the state of another one, and return it.

        Both share what they have in common.

        The states of the user and of the app are those of both sessions, and stay as they are.

        Args:
            fork_before_invocation_id: leave out the events from this invocation on, and what they changed in the state.
            session_id: that of the new session; by default a new one.

        Raises:
            SessionNotFoundError: there is no such session.
            InvalidArgumentError: the session has no such invocation. It is a ``ValueError``.
            AlreadyExistsError: there is a session of the new id.
        """
        new_id = (session_id or "").strip() or str(uuid4())
        return await off_loop(
            partial(self._fork, app_name, user_id, source_session_id.strip(), fork_before_invocation_id, new_id)
        )

    # Reading

    def _state(self, branch: str) -> dict[str, Any]:
        found: dict[str, Any] = self._at_head(branch, lambda _, snapshot: snapshot.get(STATE, {}), {})
        return found

    def _at_head(self, branch: str, read: Callable[[Commit, Snapshot], Any], absent: Any) -> Any:
        return at_head(
            self.repository.database, branch, lambda head: read(head, self.repository.snapshot(head)), absent
        )

    def _session(self, head: Commit, snapshot: Snapshot, config: GetSessionConfig) -> Session | None:
        """Return the session of a commit, with its own state only.

        None if another program made the branch, and it has no session.
        """
        ids = snapshot.get(SESSION)
        if ids is None:
            return None
        events = snapshot.sequence(EVENTS)
        began = ids.pop("create_time")
        session = Session(
            **ids,
            state=snapshot.get(STATE, {}),
            events=[Event.model_validate(event) for event in _wanted(events, config)],
            last_update_time=events[-1]["timestamp"] if len(events) else began,
        )
        session._storage_update_marker = head.id
        return session

    def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig) -> Session | None:
        found: Session | None = self._at_head(
            self.branch(app_name, user_id, session_id), partial(self._session, config=config), None
        )
        return None if found is None else self._merged(found)

    def _merged(self, session: Session, shared: dict[str, dict[str, Any]] | None = None) -> Session:
        """Add the states of the app and of the user to a session.

        They are read once for all calls with the same ``shared``.
        """
        shared = {} if shared is None else shared
        for prefix, branch in (
            (State.APP_PREFIX, self.branch(session.app_name)),
            (State.USER_PREFIX, self.branch(session.app_name, session.user_id)),
        ):
            if branch not in shared:
                shared[branch] = self._state(branch)
            session.state.update({f"{prefix}{key}": value for key, value in shared[branch].items()})
        return session

    def _list(self, app_name: str, user_id: str | None) -> list[Session]:
        parts = (app_name,) if user_id is None else (app_name, user_id)
        config = GetSessionConfig(num_recent_events=0)
        shared: dict[str, dict[str, Any]] = {}

        def read(head: Commit) -> Session | None:
            return self._session(head, self.repository.snapshot(head), config)

        found = []
        for info in self.repository.branches.iter_info(prefix=prefix_of(*parts)):
            session = at_listed(self.repository.database, info, read, None)
            if session is not None:
                found.append(self._merged(session, shared))
        return sorted(found, key=lambda each: (each.last_update_time, each.user_id, each.id))

    # Writing

    def _create(self, app_name: str, user_id: str, session_id: str, state: dict[str, Any]) -> Session:
        ids = {"app_name": app_name, "user_id": user_id, "id": session_id}

        def create(own: Versioned) -> str:
            if port.handle(own).ref.head is not None:
                raise AlreadyExistsError(f"Session with id {session_id} already exists.")
            own[SESSION] = session_facts(app_name, user_id, session_id, platform_time.get_time())
            return "session"

        head = self._write(ids, create, state)
        session = self._session(head, self.repository.snapshot(head), GetSessionConfig())
        assert session is not None
        return self._merged(session)

    def _append(self, session: Session, event: dict[str, Any]) -> Commit:
        ids = {"app_name": session.app_name, "user_id": session.user_id, "id": session.id}
        branch = self.branch(*ids.values())
        expected = session._storage_update_marker
        last = session.events[-1].id if session.events else None

        def append(own: Versioned) -> str | None:
            if SESSION not in own:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            events = own.sequence(EVENTS)
            newest = events[-1] if len(events) else None
            if newest == event:
                return None
            is_current = (newest and newest["id"]) == last if expected is None else own.head.id == expected
            if not is_current:
                raise StaleSessionError(
                    f"the session {session.id!r:.80}, the branch {branch!r}, "
                    "was modified in storage since it was read: read it again"
                )
            events.append(event)
            return f"{event['author']}: {_summary(event)}"

        return self._write(ids, append, event.get("actions", {}).get("state_delta") or {})

    def _write(
        self, ids: Mapping[str, str], edit: Callable[[Versioned], str | None], delta: Mapping[str, Any]
    ) -> Commit:
        """Change a session and the states that a delta changes, in one step. Returns the session's head.

        Args:
            edit: called with the session's state, and again with a new one if a branch has moved. Returns the message
                of the commit, or None if there is nothing to do.
        """
        app, user = ids["app_name"], ids["user_id"]
        deltas = _by_branch(
            delta, own=self.branch(app, user, ids["id"]), user=self.branch(app, user), app=self.branch(app)
        )

        def commit(states: list[Versioned]) -> Commit:
            message = edit(states[0])
            if message is not None:
                for state, changes in zip(states, deltas.values(), strict=True):
                    if changes:
                        state.setdefault(STATE, {}).update(changes)
                Repository.commit_together(states, message, on_moved=OnMoved.REFUSE)
            return states[0].head

        return self.writers.write_together(deltas, commit)

    def _fork(self, app_name: str, user_id: str, source_id: str, before: str | None, new_id: str) -> Session:
        branch, target = self.branch(app_name, user_id, source_id), self.branch(app_name, user_id, new_id)

        def begin(state: Versioned) -> None:
            head = head_of(self.repository.database, branch)
            if head is None:
                raise SessionNotFoundError(f"Session {source_id} not found.")
            if port.handle(state).ref.head is not None:
                raise AlreadyExistsError(f"Session with id {new_id} already exists.")
            start, missing = (head, []) if before is None else self._before(head, before)
            kept = self.repository.snapshot(start)
            for key in kept:
                state[key] = kept[key]
            state[SESSION] = {**kept[SESSION], "id": new_id}
            _replay(state, missing)
            state.commit(f"fork of {source_id}", parent=start, on_moved=OnMoved.REFUSE)

        self.writers.write(target, begin)
        found = self._get(app_name, user_id, new_id, GetSessionConfig())
        if found is None:
            raise SessionNotFoundError(f"Session {new_id} not found.")
        return found

    def _before(self, head: Commit, invocation_id: str) -> tuple[Commit, list[dict[str, Any]]]:
        """Return the last commit before an invocation, and the events before it that the commit does not have.

        There are such events only where several came with one commit, for example after a squash.
        """
        snapshot = self.repository.snapshot(head)
        events = list(snapshot.sequence(EVENTS))
        kept = list(takewhile(lambda event: event.get("invocation_id") != invocation_id, events))
        if len(kept) == len(events):
            raise InvalidArgumentError(
                f"the session {snapshot[SESSION]['id']!r:.80} has no invocation {invocation_id!r:.80}"
            )
        for commit in self.repository.log(head, first_parent=True):
            found = self.repository.snapshot(commit)
            if SESSION in found and len(found.sequence(EVENTS)) <= len(kept):
                return commit, kept[len(found.sequence(EVENTS)) :]
        raise InvalidArgumentError(
            f"the history of the session no longer reaches back to the invocation {invocation_id!r:.80}",
            hint="fork before a later one",
        )


def _as_json(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state in the form that it has in an event."""
    found: dict[str, Any] = EventActions(state_delta=state).model_dump(mode="json")["state_delta"]
    return found


def _by_branch(delta: Mapping[str, Any], *, own: str, user: str, app: str) -> dict[str, dict[str, Any]]:
    """Return the changes of each branch: first those of the session's own, which may be none."""
    found: dict[str, dict[str, Any]] = {own: {}}
    for key, value in delta.items():
        if key.startswith(State.APP_PREFIX):
            found.setdefault(app, {})[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            found.setdefault(user, {})[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            found[own][key] = value
    return found


def _replay(state: Versioned, events: Sequence[dict[str, Any]]) -> None:
    state.sequence(EVENTS).extend(events)
    for event in events:
        changes = next(
            iter(_by_branch(event.get("actions", {}).get("state_delta") or {}, own="", user="user", app="app").values())
        )
        if changes:
            state.setdefault(STATE, {}).update(changes)


def _wanted(events: Sequence[Any], config: GetSessionConfig) -> list[Any]:
    """Return the newest events that a configuration leaves, oldest first. Reads no others, but one."""
    most = config.num_recent_events
    if config.after_timestamp is None:
        return list(events[max(len(events) - most, 0) :] if most is not None else events)

    def newest_first() -> Iterator[Any]:
        for number, event in enumerate(reversed(events)):
            if number == most or event["timestamp"] < config.after_timestamp:
                return
            yield event

    return list(newest_first())[::-1]


def _summary(event: Mapping[str, Any]) -> str:
    """Describe an event in a line: its text, or the names of the tools that it calls and answers."""
    parts = (event.get("content") or {}).get("parts") or []
    said = " ".join(part["text"] for part in parts if part.get("text"))
    called = [f"{part[kind].get('name')}{mark}" for part in parts for kind, mark in _TOOLS if part.get(kind)]
    text = " ".join(" ".join([said, *called]).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_TOOLS: Final = (("function_call", "(…)"), ("function_response", "() returned"))
_LONGEST: Final = 60
"""The characters of a commit's message that say what an event says."""
