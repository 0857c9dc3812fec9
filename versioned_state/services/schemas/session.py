"""``Session``: one conversation of one user. Layer: services."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, InstanceOf

from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.model import Model


class Session(Model):
    """A conversation: its id, its user, and its messages, oldest first.

    The ids are any strings. A message that is not a valid ``Message`` stays a dict.
    """

    id: InstanceOf[str]
    user_id: InstanceOf[str]
    messages: list[Annotated[Message | dict[str, Any], Field(union_mode="left_to_right")]] = Field(default_factory=list)
