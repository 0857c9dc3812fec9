"""Sessions of Google's ADK, from the SQLite file of its session services. Layer: integrations.

They become the branches of ``adk_branches``, which the adapter reads and continues. Nothing of the ADK is imported,
except for the pickled actions of its oldest files. An event is the JSON of the ADK's ``Event``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from versioned_state.integrations.adk_branches import EVENTS, SESSION, STATE, branch_of, session_facts
from versioned_state.integrations.importing.appended import Appended, Step, summary
from versioned_state.integrations.importing.database import Database, text_ids
from versioned_state.integrations.importing.source import (
    DamagedRowError,
    PickledRowError,
    SourceFormatError,
    Thread,
    json_of,
    object_of,
)

_VERSION: Final = "1"
_SHARED: Final = ("app:", "user:", "temp:")
"""The beginnings of keys that are not of the session's own state."""

_JSON: Final = (
    "content",
    "grounding_metadata",
    "custom_metadata",
    "usage_metadata",
    "citation_metadata",
    "input_transcription",
    "output_transcription",
)
_PLAIN: Final = ("author", "branch", "error_code", "error_message")
_FLAGS: Final = ("partial", "turn_complete", "interrupted")

_OWN: Final = "app_name = ? AND user_id = ? AND id = ?"
_EVENTS: Final = "FROM events WHERE app_name = ? AND user_id = ? AND session_id = ? ORDER BY timestamp, rowid"


class AdkImporter(Appended):
    """The sessions of a file, and the states of apps and users."""

    framework: ClassVar[str] = "adk"
    key: ClassVar[str] = EVENTS

    def __init__(self, source: str, *, allow_pickle: bool = False) -> None:
        super().__init__(source, allow_pickle=allow_pickle)
        keys = ("app_name", "user_id", "id", "state")
        events = ("id", "app_name", "user_id", "session_id", "invocation_id", "timestamp")
        self._database = Database(source, "the ADK", {"sessions": keys, "events": events})
        try:
            self._columns = self._database.columns
            self._check_version()
        except BaseException:
            self._database.close()
            raise

    def _check_version(self) -> None:
        if "adk_internal_metadata" in self._columns:
            for (version,) in self._database.rows(
                "SELECT value FROM adk_internal_metadata WHERE key = 'schema_version'"
            ):
                if version != _VERSION:
                    raise SourceFormatError(
                        self.source, f"its schema is version {version!r} of the ADK; {_VERSION} is the newest known"
                    )
        events = self._columns["events"]
        if "event_data" not in events and not {"actions", "content", "author"} <= events:
            raise SourceFormatError(self.source, "its table 'events' is of an unknown version of the ADK")

    def threads(self) -> list[Thread]:
        """Return the apps and users that have states, and the sessions."""
        found = []
        for table, columns in (("app_states", "app_name"), ("user_states", "app_name, user_id")):
            if table not in self._columns:
                continue
            for found_ids in self._database.rows(f"SELECT {columns} FROM {table} ORDER BY {columns}"):  # noqa: S608
                texts = text_ids(self.source, table, *found_ids)
                found.append(Thread(f"the state of {' '.join(map(repr, texts))}", branch_of(*texts), 1, texts))
        query = """
            SELECT app_name, user_id, id,
            (SELECT COUNT(*) FROM events e
            WHERE e.app_name = s.app_name AND e.user_id = s.user_id AND e.session_id = s.id)
            FROM sessions s ORDER BY app_name, user_id, id
        """
        for *ids, events in self._database.rows(query):
            texts = text_ids(self.source, "sessions", *ids)
            found.append(Thread(f"session {' '.join(map(repr, texts))}", branch_of(*texts), max(events, 1), texts))
        return found

    def steps(self, thread: Thread) -> Iterator[Step]:
        """Yield a step for each event, with the state after it. A state without events is one step."""
        if len(thread.ids) < 3:
            where = "app_name = ?" if len(thread.ids) == 1 else "app_name = ? AND user_id = ?"
            table = "app_states" if len(thread.ids) == 1 else "user_states"
            yield Step((), thread.name, {STATE: self._state_in(table, where, thread)})
            return
        end = self._state_in("sessions", _OWN, thread)
        events = [self._event(row) for row in self._rows(thread)]
        app, user, own = thread.ids
        session = session_facts(app, user, own, self._began(thread, events))
        deltas = [_delta(event) for event in events]
        changed = {key for delta in deltas for key in delta}
        state = {key: value for key, value in end.items() if key not in changed}  # as the session began
        for at, (event, delta) in enumerate(zip(events, deltas, strict=True)):
            state = end if at + 1 == len(events) else {**state, **delta}
            meta = {"event_id": event["id"], "invocation_id": event["invocation_id"]}
            yield Step((event,), summary(event), {STATE: state, SESSION: session}, meta)
        if not events:
            yield Step((), "a session without events", {STATE: end, SESSION: session})

    def _state_in(self, table: str, where: str, thread: Thread) -> dict[str, Any]:
        ((text,),) = self._database.rows(f"SELECT state FROM {table} WHERE {where}", *thread.ids)  # noqa: S608 - names of tables
        return (
            {}
            if text is None
            else object_of(self.source, f"the state of {thread.name}" if table == "sessions" else thread.name, text)
        )

    def _began(self, thread: Thread, events: list[dict[str, Any]]) -> float:
        """Return when a session began, in seconds since 1970.

        A file that does not say so has the time of its first event.
        """
        found = None
        if "create_time" in self._columns["sessions"]:
            ((found,),) = self._database.rows(f"SELECT create_time FROM sessions WHERE {_OWN}", *thread.ids)  # noqa: S608
        if found is not None:
            return self._time(thread.name, found)
        return events[0]["timestamp"] if events else 0.0

    def _time(self, where: str, found: object) -> float:
        """Return a time of the file in seconds since 1970: it is a number, or a text in UTC."""
        if isinstance(found, int | float):
            return float(found)
        try:
            return datetime.fromisoformat(str(found)).replace(tzinfo=UTC).timestamp()
        except ValueError as error:
            raise DamagedRowError(self.source, where, f"it has no time: {error}") from error

    def _rows(self, thread: Thread) -> Iterator[dict[str, Any]]:
        columns = sorted(self._columns["events"])
        query = f"SELECT {', '.join(map(_quoted, columns))} {_EVENTS}"
        for row in self._database.rows(query, *thread.ids):
            yield dict(zip(columns, row, strict=True))

    def _event(self, row: dict[str, Any]) -> dict[str, Any]:
        where = f"event {row['id']!r} of session {row['session_id']!r}"
        text_ids(self.source, "events", row["id"], row["invocation_id"])
        ids = {"id": row["id"], "invocation_id": row["invocation_id"]}
        if "event_data" in row:
            event = object_of(self.source, where, row["event_data"])
            when = event["timestamp"] if "timestamp" in event else self._time(where, row["timestamp"])
            return {**event, **ids, "timestamp": when}
        parts = {name: row[name] for name in _PLAIN if row.get(name) is not None}
        flags = {name: bool(row[name]) for name in _FLAGS if row.get(name) is not None}
        objects = {
            name: object_of(self.source, where, row[name]) for name in _JSON if row.get(name) not in (None, "null")
        }
        actions = {} if row["actions"] is None else {"actions": self._unpickled(where, row["actions"])}
        tools = {}
        if row.get("long_running_tool_ids_json"):
            tools["long_running_tool_ids"] = json_of(self.source, where, row["long_running_tool_ids_json"])
        return {
            **ids,
            **parts,
            **flags,
            **objects,
            **actions,
            **tools,
            "timestamp": self._time(where, row["timestamp"]),
        }

    def _unpickled(self, where: str, raw: object) -> Any:
        if not self.allow_pickle:
            raise PickledRowError(self.source, where)
        try:
            actions: Any = pickle.loads(raw)  # type: ignore[arg-type]  # noqa: S301 - the user has allowed it
            return actions if isinstance(actions, dict) else actions.model_dump(mode="json", exclude_none=True)
        except ModuleNotFoundError as error:
            raise DamagedRowError(
                self.source,
                where,
                f"its class is not installed: {error}",
                hint="pip install google-adk, and import again",
            ) from error
        except Exception as error:
            raise DamagedRowError(self.source, where, f"it does not unpickle: {error}") from error

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._database.close()


def _delta(event: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of an event to the session's own state."""
    actions = event.get("actions")
    delta = actions.get("state_delta", actions.get("stateDelta")) if isinstance(actions, dict) else None
    return (
        {key: value for key, value in delta.items() if not key.startswith(_SHARED)} if isinstance(delta, dict) else {}
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
