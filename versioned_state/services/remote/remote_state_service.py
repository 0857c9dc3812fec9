"""``RemoteStateService``: the states of a server. Layer: services."""

from __future__ import annotations

from typing import Any

from versioned_state.arguments import instance_of
from versioned_state.services.agent_state.state_service import StateService
from versioned_state.services.remote.remote_service import RemoteService


class RemoteStateService(RemoteService, StateService):
    """The state service of a server: see ``RemoteService`` for its arguments, and ``StateService`` for its calls."""

    lane_of = "state"

    async def save_state(
        self,
        user_id: str,
        state: dict[str, Any],
        session_id: str | None = None,
        round_id: int | None = None,
        ttl_seconds: float | None = None,
    ) -> int:
        """Save a state, as it is at the call, as a round.

        Returns the number of the round. Refuses values that are not data.
        """
        instance_of("a state", state, dict, remains="nothing was saved")
        instance_of("round_id", round_id, int | None)
        instance_of("ttl_seconds", ttl_seconds, int | float | None)
        saved = await self._call(
            "POST",
            "/v1/state",
            user_id,
            session_id or None,
            body=dict(state),
            round_id=round_id,
            ttl_seconds=ttl_seconds,
        )
        return int(saved["round_id"])

    async def export_state(
        self, user_id: str, session_id: str | None = None, round_id: int | None = None
    ) -> dict[str, Any] | None:
        """Return a round's state, by default the latest one's, or None if there is no such user, session or round."""
        instance_of("round_id", round_id, int | None)
        state: dict[str, Any] | None = await self._call(
            "GET", "/v1/state", user_id, session_id or None, round_id=round_id, absent=lambda: None
        )
        return state

    async def list_sessions(self, user_id: str) -> list[str]:
        """List the ids of a user's sessions that have a round, in order."""
        return list(await self._call("GET", "/v1/state/sessions", user_id, absent=list))

    async def list_rounds(self, user_id: str, session_id: str | None = None) -> list[int]:
        """List the rounds of a session, in order. The list is empty if there is no such session."""
        return list(await self._call("GET", "/v1/state/rounds", user_id, session_id or None, absent=list))

    async def delete_state(self, user_id: str, session_id: str | None = None, round_id: int | None = None) -> None:
        """Delete a round of a session, or by default the session. Without effect if it does not exist."""
        instance_of("round_id", round_id, int | None)
        await self._call("DELETE", "/v1/state", user_id, session_id or None, round_id=round_id, absent=lambda: None)
