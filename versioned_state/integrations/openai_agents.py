"""``VersionedSession``: a session of the OpenAI Agents SDK whose items are a list on a branch.

Needs the extra ``openai-agents``.

Layer: integrations.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from agents import SessionSettings
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

from versioned_state.arguments import count, string
from versioned_state.errors import InvalidArgumentError, RefExistsError, UnknownRevisionError
from versioned_state.integrations.adapter import Adapter, Place
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.message_log import MESSAGES, MessageLog
from versioned_state.off_loop import off_loop
from versioned_state.repository.names.branch_name import branch_name, id_of

if TYPE_CHECKING:
    from agents import RunResult
    from agents.items import TResponseInputItem

    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.state.sequence import StateSequence
    from versioned_state.state.versioned import Versioned

check_version("openai_agents")

_PREFIX: Final = "openai-agents"
_MAIN: Final = "main"
_USAGE: Final = "usage"
"""The key of the usage of turns: each with the index of the turn's first item as ``at``."""

_COUNTS: Final = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS: Final = ("input_tokens_details", "output_tokens_details")
_PREVIEW: Final = 100
"""The characters of a turn's ``content`` in a list of turns, as in ``AdvancedSQLiteSession``."""


class VersionedSession(Adapter):
    """A session of the OpenAI Agents SDK: its items are the list ``messages`` of a branch, and each change is a commit.

    ::

        from versioned_state.integrations.openai_agents import VersionedSession

        session = VersionedSession("./agent-state", "user-123")
        result = await Runner.run(agent, "Hello", session=session)

    An append costs the items, whatever the length of the session. Any number of sessions, threads and processes may use
    one store: hand them one ``Repository``, or the path or URL to each. Items that are popped, undone or cleared stay
    in the history of the branch.

    The calls of branches, turns and usage are those of ``AdvancedSQLiteSession``. A turn is a message of the user with
    all that follows it; the first one is number 1.

    Args:
        place: as for ``Adapter``.
        session_id: any text.
        session_settings: its ``limit`` is the number of items that ``get_items`` returns by default.

    Attributes:
        branch_id: the branch of the session that the calls use, at first ``main``.
    """

    def __init__(
        self, place: Place, session_id: str, *, session_settings: SessionSettings | dict[str, Any] | None = None
    ) -> None:
        self.session_id: str = string("session_id", session_id)
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self.branch_id: str = _MAIN
        super().__init__(place)
        self._log = MessageLog(self.writers)

    def branch(self, session_id: str | None = None, branch_id: str | None = None) -> str:
        """Return the name in the repository of a session's branch, by default of the one that this session uses."""
        own = session_id is None or session_id == self.session_id
        branch_id = (self.branch_id if own else _MAIN) if branch_id is None else string("branch_id", branch_id)
        parts = (_PREFIX, self.session_id if session_id is None else session_id)
        return branch_name(*parts) if branch_id == _MAIN else branch_name(*parts, branch_id)

    # The protocol of sessions

    async def get_items(self, limit: int | None = None, branch_id: str | None = None) -> list[TResponseInputItem]:
        """Return the items, oldest first: the newest ``limit`` ones, by default as many as the settings say, or all.

        Args:
            limit: a negative number means no limit, as in SQLite.
            branch_id: another branch of the session.
        """
        limit = resolve_session_limit(limit, self.session_settings)
        last = None if limit is None or limit < 0 else limit
        return await off_loop(partial(self._log.read, self.branch(None, branch_id), last))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items: all of them or none, in one commit."""
        given = list(items)
        if given:
            await self._change(lambda messages: messages.extend(given))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it, or return None if there is none."""
        popped: TResponseInputItem | None = await self._change(
            lambda messages: messages.pop() if len(messages) else None
        )
        return popped

    async def clear_session(self) -> None:
        """Remove all items, and all branches but ``main``, which is used from then on.

        History keeps them until it is purged.
        """

        def clear() -> None:
            for each in self._branch_ids():
                if each != _MAIN:
                    self._log.delete(self.branch(None, each))
            self._log.edit(self.branch(None, _MAIN), _cleared)

        await off_loop(clear)
        self.branch_id = _MAIN

    # Undo, and copies

    async def undo(self, turns: int = 1) -> list[TResponseInputItem]:
        """Remove the last turns, in one commit: each a message of the user and what follows it.

        Returns the items, oldest first.

        Raises:
            InvalidArgumentError: there are fewer turns. Nothing was removed.
        """
        turns = count("turns", turns, least=1)

        def cut(messages: StateSequence) -> list[TResponseInputItem]:
            at, found = len(messages), 0
            for item in reversed(messages):
                at -= 1
                found += _is_of_user(item)
                if found == turns:
                    last: list[TResponseInputItem] = messages[at:]
                    del messages[at:]
                    return last
            raise InvalidArgumentError(f"the session has {found} turn{'s' * (found != 1)}, not {turns}")

        removed: list[TResponseInputItem] = await self._change(cut, f"undo {turns} turn{'s' * (turns != 1)}")
        return removed

    async def fork(self, session_id: str | None = None, *, turn: int | None = None) -> VersionedSession:
        """Begin another session with the items of this one, which both share, and return it.

        Args:
            session_id: that of the new session; by default a new one.
            turn: leave this turn and those after it out.

        Raises:
            RefExistsError: there is such a session.
            InvalidArgumentError: there is no such turn.
        """
        copy = VersionedSession(
            self.repository, str(uuid4()) if session_id is None else session_id, session_settings=self.session_settings
        )
        source = self.branch()
        await off_loop(
            lambda: self._log.fork(source, copy.branch(), keep=None if turn is None else self._start(source, turn))
        )
        return copy

    # Branches of the session, and turns, as in AdvancedSQLiteSession

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Begin a branch with the items before a turn, and use it from then on. Returns its id.

        Raises:
            InvalidArgumentError: there is no such turn, or the name is blank or longer than 63 bytes, or a branch has
                it. It is a ``ValueError``.
        """
        branch_id = (
            f"branch_from_turn_{turn_number}_{uuid4().hex[:8]}"
            if branch_name is None
            else string("branch_name", branch_name)
        )
        source, target = self.branch(), self.branch(None, branch_id)
        if branch_id == _MAIN:
            raise _exists(branch_id)
        if not branch_id.strip() or id_of(target.rpartition("/")[2]) != branch_id:
            raise InvalidArgumentError(
                f"the name of a branch must have 1 to 63 bytes and not be blank, not {branch_id!r:.80}"
            )
        try:
            await off_loop(lambda: self._log.fork(source, target, keep=self._start(source, turn_number)))
        except RefExistsError:
            raise _exists(branch_id) from None
        self.branch_id = branch_id
        return branch_id

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Begin a branch before the first turn whose message has a text in it, and use it from then on. Returns its id.

        Raises:
            InvalidArgumentError: there is no such turn, or as ``create_branch_from_turn``.
        """
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise InvalidArgumentError(f"no turn has {search_term!r:.80} in it")
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Use another branch of the session from then on.

        Raises ``InvalidArgumentError`` if there is none of that id.
        """
        if branch_id != _MAIN and not await off_loop(partial(self._log.exists, self.branch(None, branch_id))):
            raise _no_branch(branch_id)
        self.branch_id = branch_id

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:  # noqa: FBT001, FBT002 - as in AdvancedSQLiteSession
        """Delete a branch of the session. Its reflog keeps it for 30 days.

        Args:
            force: delete it even if it is the one in use; ``main`` is used from then on.

        Raises:
            InvalidArgumentError: it is ``main``, or in use, or there is none. Nothing was deleted.
        """
        if branch_id == _MAIN:
            raise InvalidArgumentError(
                "the branch 'main' of a session cannot be deleted", hint="clear_session() empties it"
            )
        if branch_id == self.branch_id and not force:
            raise InvalidArgumentError(
                f"the branch {branch_id!r} is in use", hint="switch to another one, or pass force=True"
            )
        if await off_loop(partial(self._log.delete, self.branch(None, branch_id))) is None:
            raise _no_branch(branch_id)
        if branch_id == self.branch_id:
            self.branch_id = _MAIN

    async def list_branches(self) -> list[dict[str, Any]]:
        """List the branches: of each ``branch_id``, ``message_count``, ``user_turns`` and ``is_current``.

        Cost: reads all their items.
        """

        def listing() -> list[dict[str, Any]]:
            found = []
            for branch_id in self._branch_ids():
                items = self._log.read(self.branch(None, branch_id))
                turns = sum(map(_is_of_user, items))
                current = branch_id == self.branch_id
                found.append(
                    {"branch_id": branch_id, "message_count": len(items), "user_turns": turns, "is_current": current}
                )
            return found

        return await off_loop(listing)

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """List the turns, each with ``turn``, ``content``, ``full_content`` and ``can_branch``.

        ``turn`` is its number, ``full_content`` the user's message, and ``content`` that message, cut.
        """
        return await off_loop(partial(self._turns, self.branch(None, branch_id)))

    async def find_turns_by_content(self, search_term: str, branch_id: str | None = None) -> list[dict[str, Any]]:
        """List the turns whose user's message has a text in it, in any case, as ``get_conversation_turns``."""
        wanted = string("search_term", search_term).lower()
        found = await self.get_conversation_turns(branch_id)
        return [turn for turn in found if any(wanted in text.lower() for text in _texts(turn["full_content"]))]

    async def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[dict[str, str | None]]]:
        """Return each item's ``type`` and ``tool_name`` by the number of its turn: 0 for items before the first one."""
        found: dict[int, list[dict[str, str | None]]] = {}
        turn = 0
        for item in await self._all_items(branch_id):
            turn += _is_of_user(item)
            found.setdefault(turn, []).append({"type": _type_of(item), "tool_name": _tool_of(item)})
        return found

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return how often each tool was called in each turn: its name, the number of calls, and the turn's number."""
        calls = Counter(
            (turn, item["tool_name"] or item["type"] or "")
            for turn, items in (await self.get_conversation_by_turns(branch_id)).items()
            for item in items
            if (item["type"] or "").endswith(("_call", "_approval_request"))
        )
        return [(tool, calls[turn, tool], turn) for turn, tool in sorted(calls)]

    async def store_run_usage(self, result: RunResult) -> None:
        """Keep the usage of a run with the last turn, under ``usage``, in one commit. It leaves with the turn."""
        usage = result.context_wrapper.usage
        counts = {name: getattr(usage, name) or 0 for name in _COUNTS}
        details = {name: _details(getattr(usage, name, None)) for name in _DETAILS}

        def keep(state: Versioned) -> tuple[None, str]:
            messages, kept = state.sequence(MESSAGES), state.sequence(_USAGE)
            at = next((at for at in range(len(messages) - 1, -1, -1) if _is_of_user(messages[at])), None)
            if at is not None:
                if len(kept) and kept[-1]["at"] == at:
                    kept.pop()
                kept.append({"at": at, **counts, **details})
            return None, "usage"

        await self._edit(keep)

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the usage of a turn, or an empty dict if none was kept.

        Without a number, return a list of all that was kept.
        """
        found = await off_loop(partial(self._usage, branch_id))
        if user_turn_number is None:
            return found
        kept = next((each for each in found if each["user_turn_number"] == user_turn_number), {})
        return {name: value for name, value in kept.items() if name != "user_turn_number"}

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the sums of the usage of a branch, by default of all branches, with ``total_turns``.

        None if none was kept.
        """

        def usage() -> list[dict[str, Any]]:
            return [
                each
                for branch in (self._branch_ids() if branch_id is None else [branch_id])
                for each in self._usage(branch)
            ]

        found = await off_loop(usage)
        return (
            {name: sum(each[name] for each in found) for name in _COUNTS} | {"total_turns": len(found)}
            if found
            else None
        )

    # The hook of OpenAIResponsesCompactionSession

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot:
        """Return the newest items, which a compaction of the SDK then replaces in one commit."""
        found = await self.get_items(limit + 1)
        branch = self.branch()

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected = items[start:]

            def replace(state: Versioned) -> tuple[bool, str]:
                messages = state.sequence(MESSAGES)
                at = len(messages) - len(expected)
                if not expected or at < 0 or messages[at:] != expected:
                    return False, ""
                messages[at:] = output
                expired = 0
                if prune_prefix is not None:
                    expired = next((number for number in range(at) if not prune_prefix(messages[number])), at)
                    del messages[:expired]
                _let_go(state, at, expired)
                return True, "compacted"

            return await off_loop(lambda: self._log.edit(branch, replace))

        items = found[max(len(found) - limit, 0) :]
        return _CompactionSnapshot(items, len(found) <= limit, replace_suffix)

    # Parts

    async def _all_items(self, branch_id: str | None) -> list[Any]:
        return await off_loop(partial(self._log.read, self.branch(None, branch_id)))

    async def _change(self, change: Callable[[StateSequence], Any], message: str = "") -> Any:
        """Change the items, and let go of the usage of turns that are gone."""

        def edit(state: Versioned) -> tuple[Any, str]:
            messages = state.sequence(MESSAGES)
            before = len(messages)
            result = change(messages)
            if len(messages) < before:
                _let_go(state, len(messages))
            return result, message or f"messages {len(messages) - before:+}"

        return await self._edit(edit)

    async def _edit(self, edit: Callable[[Versioned], tuple[Any, str]]) -> Any:
        branch = self.branch()
        create = branch == self.branch(None, _MAIN)
        try:
            return await off_loop(lambda: self._log.edit(branch, edit, create=create))
        except UnknownRevisionError:
            raise _no_branch(self.branch_id) from None  # deleted, or cleared with the session, by another handle on it

    def _usage(self, branch_id: str | None) -> list[dict[str, Any]]:
        """Return what was kept of each turn, with the number of the turn."""

        def read(snapshot: Snapshot) -> list[dict[str, Any]]:
            users = [_is_of_user(item) for item in snapshot.get(MESSAGES, [])]
            return [{"user_turn_number": sum(users[: each.pop("at") + 1]), **each} for each in snapshot.get(_USAGE, [])]

        return self._log.at_head(self.branch(None, branch_id), read, [])

    def _branch_ids(self) -> list[str]:
        """List the ids of the branches, ``main`` first."""
        prefix = self.branch(None, _MAIN) + "/"
        found = (id_of(info.name.removeprefix(prefix)) for info in self.repository.branches.iter_info(prefix=prefix))
        return [_MAIN, *(each for each in found if each is not None)]

    def _turns(self, branch: str) -> list[dict[str, Any]]:
        contents = [item.get("content", "") for item in self._log.read(branch) if _is_of_user(item)]
        return [
            {"turn": number, "content": _preview(content), "full_content": content, "can_branch": True}
            for number, content in enumerate(contents, 1)
        ]

    def _start(self, branch: str, turn: int) -> int:
        """Return the index of the first item of a turn. Raises ``InvalidArgumentError`` if there is none."""
        turn = count("turn", turn, least=1)
        starts = [at for at, item in enumerate(self._log.read(branch)) if _is_of_user(item)]
        if turn > len(starts):
            raise InvalidArgumentError(
                f"the session has {len(starts)} turn{'s' * (len(starts) != 1)}, and no turn {turn}"
            )
        return starts[turn - 1]


@dataclass(frozen=True)
class _CompactionSnapshot:
    """The newest items of a session, for a compaction: what the SDK's own sessions return.

    Attributes:
        complete: whether these are all.
        replace_suffix: replaces the items from an index on by others, if nobody has changed them meanwhile. Returns
            whether it did.
    """

    items: list[Any]
    complete: bool
    replace_suffix: Callable[[int, list[Any]], Awaitable[bool]]


def _cleared(state: Versioned) -> tuple[None, str]:
    state.sequence(MESSAGES).clear()
    _let_go(state, 0)
    return None, "cleared"


def _let_go(state: Versioned, end: int, moved: int = 0) -> None:
    """Remove the usage of turns that began at an index or after it, or among the first items, which were removed."""
    if _USAGE in state:
        kept = [{**each, "at": each["at"] - moved} for each in state[_USAGE] if moved <= each["at"] < end]
        if kept:
            state[_USAGE] = kept
        else:
            del state[_USAGE]


def _details(details: Any) -> dict[str, Any] | None:
    return dict(vars(details)) if details else None


def _type_of(item: Any) -> str:
    role = item.get("role")
    return str(role if role in ("user", "assistant") else item.get("type") or "other")


def _tool_of(item: Any) -> str | None:
    """Return the name of a call's tool, with its server or namespace, as ``AdvancedSQLiteSession`` names it."""
    kind, name = item.get("type"), item.get("name")
    if kind in ("tool_search_call", "tool_search_output"):
        return "tool_search"
    where = item.get("server_label") if kind in ("mcp_call", "mcp_approval_request") else item.get("namespace")
    found = ".".join(str(part) for part in (where, name) if part)
    if found and where != name:
        return found
    return str(name) if name else kind if str(kind).endswith("_call") else None


def _is_of_user(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return (
        [str(part["text"]) for part in content if isinstance(part, dict) and "text" in part]
        if isinstance(content, list)
        else []
    )


def _preview(content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
    return text if len(text) <= _PREVIEW else text[:_PREVIEW] + "..."


def _exists(branch_id: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the session has a branch {branch_id!r} already")


def _no_branch(branch_id: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the session has no branch {branch_id!r:.80}")
