"""The ids that callers give: strings. Layer: services."""

from __future__ import annotations

from versioned_state.errors import InvalidArgumentError


def as_id(name: str, id: object) -> str:
    """An id as a plain string. Raises ``InvalidArgumentError``, which names the argument, if it is not a string."""
    if not isinstance(id, str):
        raise InvalidArgumentError(f"{name} is a string, not {type(id).__name__}", remains="nothing was read or changed")
    return str.__str__(id)
