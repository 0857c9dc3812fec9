"""Sessions of the OpenAI Agents SDK, from the file of its ``SQLiteSession`` or ``AdvancedSQLiteSession``.

Layer: integrations.

A session becomes the branch that ``VersionedSession`` has for it, with a commit for each item; so does each branch of
an ``AdvancedSQLiteSession``, with the usage of its turns. Nothing of the SDK is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from versioned_state.integrations.importing.appended import Appended, Step, summary
from versioned_state.integrations.importing.database import Database, text_ids
from versioned_state.integrations.importing.source import Thread, json_of, object_of
from versioned_state.repository.names.branch_name import branch_name

_PREFIX: Final = "openai-agents"
_MAIN: Final = "main"
_COUNTS: Final = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS: Final = ("input_tokens_details", "output_tokens_details")

_PLAIN: Final = """
    SELECT session_id, 'main', COUNT(*) FROM agent_messages GROUP BY session_id ORDER BY session_id
"""
_BRANCHED: Final = """
    SELECT s.session_id, s.branch_id, COUNT(*) FROM message_structure s JOIN agent_messages m ON m.id = s.message_id
    GROUP BY s.session_id, s.branch_id ORDER BY s.session_id, s.branch_id
"""
_OF_SESSION: Final = """
    SELECT id, message_data, created_at FROM agent_messages WHERE session_id = ? ORDER BY id
"""
_OF_BRANCH: Final = """
    SELECT m.id, m.message_data, m.created_at FROM agent_messages m JOIN message_structure s ON m.id = s.message_id
    WHERE m.session_id = ? AND s.branch_id = ? ORDER BY s.sequence_number
"""
_USAGE: Final = f"""
    SELECT user_turn_number, {", ".join(_COUNTS + _DETAILS)} FROM turn_usage
    WHERE session_id = ? AND branch_id = ? ORDER BY user_turn_number
"""  # noqa: S608 - names of columns


class OpenAIAgentsImporter(Appended):
    """The sessions of a file, as branches of ``versioned_state.integrations.openai_agents``."""

    framework: ClassVar[str] = "openai-agents"
    key: ClassVar[str] = "messages"

    def __init__(self, source: str, *, allow_pickle: bool = False) -> None:
        super().__init__(source, allow_pickle=allow_pickle)
        tables = {
            "agent_sessions": ("session_id",),
            "agent_messages": ("id", "session_id", "message_data", "created_at"),
        }
        self._database = Database(source, "the OpenAI Agents SDK", tables)
        self._has_branches = "message_structure" in self._database.columns
        self._branched: set[str] = set()  # the sessions with branches
        self._has_usage = "turn_usage" in self._database.columns

    def threads(self) -> list[Thread]:
        """Return the sessions that have items, and the branches of each."""
        found = []
        for session, branch, steps in self._database.rows(_BRANCHED) if self._has_branches else ():
            text_ids(self.source, "message_structure", session, branch)
            self._branched.add(session)
            found.append(_thread(session, branch, steps))
        for session, branch, steps in self._database.rows(_PLAIN):
            text_ids(self.source, "agent_messages", session)
            if session not in self._branched:
                found.append(_thread(session, branch, steps))
        return found

    def steps(self, thread: Thread) -> Iterator[Step]:
        """Yield a step for each item. The last one has the usage of the turns."""
        session, branch = thread.ids
        is_branched = session in self._branched
        rows = (
            self._database.rows(_OF_BRANCH, session, branch)
            if is_branched
            else self._database.rows(_OF_SESSION, session)
        )
        users: list[int] = []
        for at, (number, data, created) in enumerate(rows):
            where = f"message {number} of {thread.name}"
            item = json_of(self.source, where, data)
            if isinstance(item, dict) and item.get("role") == "user":
                users.append(at)
            keys = self._usage(thread, users) if at + 1 == thread.steps else {}
            meta = {"created_at": created} if isinstance(created, str) else {}
            yield Step((item,), summary(item), keys, meta)

    def _usage(self, thread: Thread, users: list[int]) -> dict[str, Any]:
        """Return the usage of a branch's turns, as ``VersionedSession`` keeps it, by the indices of user messages."""
        if not self._has_usage:
            return {}
        kept = []
        for turn, *numbers in self._database.rows(_USAGE, *thread.ids):
            where = f"the usage of turn {turn} of {thread.name}"
            if type(turn) is int and 0 < turn <= len(users):
                details = {
                    name: None if text is None else object_of(self.source, where, text)
                    for name, text in zip(_DETAILS, numbers[len(_COUNTS) :], strict=True)
                }
                counts = {name: number or 0 for name, number in zip(_COUNTS, numbers, strict=False)}
                kept.append({"at": users[turn - 1], **counts, **details})
        return {"usage": kept} if kept else {}

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._database.close()


def _thread(session: str, branch: str, steps: int) -> Thread:
    if branch == _MAIN:
        return Thread(f"session {session!r}", branch_name(_PREFIX, session), steps, (session, branch))
    return Thread(
        f"branch {branch!r} of session {session!r}", branch_name(_PREFIX, session, branch), steps, (session, branch)
    )
