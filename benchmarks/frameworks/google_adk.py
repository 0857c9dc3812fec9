"""Google ADK: ``VersionedSessionService`` beside ``SqliteSessionService`` and ``DatabaseSessionService`` on SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS
from benchmarks.frameworks.threads import Framework, adapter, never_closed, parts

_ANN: Final = {"app_name": "trips", "user_id": "ann"}


class _Service:
    """A session service, and the session that it was asked for last, as a runner has it during a run."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self._session: Any = None

    async def begin(self, thread: str) -> None:
        self._session = await self.service.create_session(**_ANN, session_id=thread)

    async def put(self, thread: str, step: int, texts: list[str]) -> None:
        from google.adk.events.event import Event
        from google.adk.events.event_actions import EventActions
        from google.genai import types

        role = "model" if step % 2 else "user"
        content = types.Content(role=role, parts=[types.Part(text=texts[-1])])
        actions = EventActions(state_delta={"step": step})
        assert self._session.id == thread
        await self.service.append_event(
            self._session, Event(invocation_id=f"i{step // 2}", author=role, content=content, actions=actions)
        )

    async def get(self, thread: str, config: Any = None) -> list[str]:
        session = await self.service.get_session(**_ANN, session_id=thread, config=config)
        return [] if session is None else [event.content.parts[0].text for event in session.events]

    async def newest(self, thread: str) -> list[str]:
        from google.adk.sessions.base_session_service import GetSessionConfig

        return await self.get(thread, GetSessionConfig(num_recent_events=10))

    async def delete(self, thread: str) -> None:
        await self.service.delete_session(**_ANN, session_id=thread)


async def _listed(service: _Service, _: str) -> list[tuple[str, Any]]:
    found = await service.service.list_sessions(app_name="trips")
    return sorted((session.id, session.state) for session in found.sessions)


def _theirs(folder: Path) -> _Service:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    return _Service(SqliteSessionService(str(folder / "sessions.db")))


def _database(folder: Path) -> _Service:
    from google.adk.sessions.database_session_service import DatabaseSessionService

    return _Service(DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'sessions.db'}"))


def _beside(name: str, theirs: Any) -> Framework:
    return Framework(
        name,
        {OURS: adapter("google_adk.VersionedSessionService", _Service), THEIRS: never_closed(theirs)},
        _Service.put,
        _Service.get,
        begin=_Service.begin,
        reads={"get, the newest 10": _Service.newest, "list_sessions": _listed},
        delete=_Service.delete,
    )


PARTS: Final = {
    **parts(_beside("SqliteSessionService", _theirs)),
    "database": parts(_beside("DatabaseSessionService", _database))["conversation-200"],
}
