"""The ids that callers give: strings. Layer: services."""

from __future__ import annotations

from versioned_state.arguments import instance_of


def as_id(name: str, id: object) -> str:
    """An id as a plain string. Raises ``InvalidArgumentError``, which names the argument, if it is not a string."""
    return str.__str__(instance_of(name, id, str))
