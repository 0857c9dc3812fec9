"""``SandboxTool``: a tool by name, and the type of sandbox that it needs. Layer: sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from versioned_state.errors import InvalidArgumentError
from versioned_state.sandbox.registry import type_name


class SandboxTool:
    """A tool of sandboxes of one type.

    It is called with a sandbox, or with all those of a session, and its own arguments.

    Attributes:
        name: the name of the tool, and of the sandbox's method.
        sandbox_type: the type of sandbox that it needs.
    """

    __name__: str

    def __init__(self, name: str, sandbox_type: str, description: str) -> None:
        self.name = self.__name__ = name
        self.sandbox_type = sandbox_type
        self.__doc__ = description

    def __call__(self, sandbox: Any, *args: Any, **arguments: Any) -> Any:
        """Run the tool in a sandbox, or in the one of its type among several.

        Raises ``InvalidArgumentError`` if none has the tool.
        """
        for each in sandbox if isinstance(sandbox, Iterable) and not hasattr(sandbox, self.name) else (sandbox,):
            if not self._is_for(each):
                continue
            method = getattr(each, self.name, None)
            if callable(method):
                return method(*args, **arguments)
            if not args and callable(getattr(each, "call_tool", None)):
                return each.call_tool(self.name, arguments)
        raise InvalidArgumentError(
            f"{self.name} needs a sandbox of type {str(self.sandbox_type)!r}",
            hint="sandbox_service.connect(session_id, user_id, tools=[...]) gives one",
        )

    def bind(self, sandbox: Any) -> Callable[..., Any]:
        """Return the tool in one sandbox: a function of the tool's own arguments."""
        return partial(self, sandbox)

    def _is_for(self, sandbox: Any) -> bool:
        known = getattr(sandbox, "sandbox_type", None)
        return known is None or type_name(known) == type_name(self.sandbox_type)

    def __repr__(self) -> str:
        return f"<SandboxTool {self.sandbox_type}.{self.name}>"
