"""``RemoteMemoryService``: the memories of a server. Layer: services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from versioned_state.services.memory.memory_service import MemoryService
from versioned_state.services.remote.remote_service import RemoteService
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.session_history.messages import as_messages

Given = Message | Mapping[str, Any] | list[Any]


class RemoteMemoryService(RemoteService, MemoryService):
    """A server's memory service: see ``RemoteService`` for its arguments, ``VersionedMemoryService`` for its calls."""

    lane_of = "memory"

    async def add_memory(self, user_id: str, messages: Given, session_id: str | None = None) -> None:
        """Add messages to a session of a user, all of them or none."""
        body = [data for _, data in as_messages(messages)]
        await self._call("POST", "/v1/memory", user_id, session_id or None, body=body)

    async def search_memory(
        self, user_id: str, messages: Given, filters: Mapping[str, Any] | None = None
    ) -> list[Message]:
        """Search a user's messages of all sessions. The query is the text of the last of ``messages``."""
        last: object = messages[-1:] if isinstance(messages, list | tuple) else messages
        query = [data for _, data in as_messages([] if last is None else last)]
        return await self._found(user_id, "/v1/memory/search", {"messages": query, "filters": _plain(filters)})

    async def list_memory(self, user_id: str, filters: Mapping[str, Any] | None = None) -> list[Message]:
        """List a page of a user's messages: sessions in the order of their ids, messages of each in order of time."""
        return await self._found(user_id, "/v1/memory/list", {"filters": _plain(filters)})

    async def delete_memory(self, user_id: str, session_id: str | None = None) -> None:
        """Delete the messages of a session, or with a falsy ``session_id`` all of a user.

        Does nothing if there are none.
        """
        await self._call("DELETE", "/v1/memory", user_id, session_id or None, absent=lambda: None)

    async def _found(self, user_id: str, path: str, body: dict[str, Any]) -> list[Message]:
        found = await self._call("POST", path, user_id, body=body, reads=True, absent=list)
        return [Message.model_validate(each) for each in found]


def _plain(filters: Any) -> Any:
    return dict(filters) if isinstance(filters, Mapping) else filters
