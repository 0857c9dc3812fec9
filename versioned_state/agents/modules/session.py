"""``SessionBase``, the base of every kind of session, and their shared checks. Layer: agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from versioned_state.agents.modules.kinds import is_class_of_modules
from versioned_state.arguments import instance_of
from versioned_state.errors import InvalidArgumentError


class SessionBase(ABC):
    """Sessions: the states of modules, such as the agents of an application, under an id.

    Your own kind of session implements the two methods.

    Args:
        session_id: the session of the calls that name none.
    """

    def __init__(self, session_id: str | None = None) -> None:
        self.session_id = session_id

    @abstractmethod
    async def save_session_state(self, *args: Any, **kwargs: Any) -> Any:
        """Save the states of modules, each under the name of its argument."""

    @abstractmethod
    async def load_session_state(self, *args: Any, **kwargs: Any) -> None:
        """Load the states of modules. A module whose name was not saved stays as it is."""


def check_ids(session_id: object, user_id: object) -> tuple[str, str]:
    """Return the two ids, with ``""`` for no user.

    Raises ``InvalidArgumentError`` if one is not a string, or there is no session id.
    """
    if session_id is None:
        raise InvalidArgumentError(
            "there is no session_id",
            remains="nothing was saved or loaded",
            hint='save_session_state("one", agent=agent)',
        )
    user_id = "" if user_id is None else user_id  # as in agentscope
    for name, value in (("session_id", session_id), ("user_id", user_id)):
        instance_of(name, value, str)
    return str.__str__(session_id), str.__str__(user_id)


def check_modules(modules: Mapping[str, Any]) -> None:
    """Raise ``InvalidArgumentError`` for a value that is not a module, ours or agentscope's."""
    for name, module in modules.items():
        if not is_class_of_modules(type(module)):
            raise InvalidArgumentError(
                f"{name}= must be a StateModule, not {type(module).__name__}", remains="nothing was saved or loaded"
            )
