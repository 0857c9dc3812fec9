"""Messages and sessions as data, as they cross from a server to its clients. Layer: services."""

from __future__ import annotations

from typing import Any

from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history.messages import data_of


def document_of(message: Message | dict[str, Any]) -> dict[str, Any]:
    """A message as a dict of the fields that were set."""
    return message if isinstance(message, dict) else data_of(message)


def session_document(session: Session) -> dict[str, Any]:
    """A session as a dict."""
    return {"id": session.id, "user_id": session.user_id, "messages": [document_of(message) for message in session.messages]}


def session_of(document: dict[str, Any]) -> Session:
    """The session of such a dict."""
    return Session(id=document["id"], user_id=document["user_id"], messages=document["messages"])
