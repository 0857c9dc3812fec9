"""``StateTools``: the tools of one state, as definitions and as calls. Layer: integrations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from itertools import islice
from typing import Any, Final, Literal

from versioned_state.arguments import count, instance_of, one_of, string
from versioned_state.errors import StateError, StorageError
from versioned_state.integrations.tools.context import CLIENT, Context
from versioned_state.integrations.tools.scope import Scope
from versioned_state.integrations.tools.table import TOOLS, Tool
from versioned_state.integrations.tools.text import Redaction, ToolError, cut
from versioned_state.off_loop import off_loop
from versioned_state.state.versioned import Versioned
from versioned_state.values.paths.path import Key, StatePath

Vendor = Literal["openai", "anthropic", "gemini"]


class StateTools:
    """Tools with which a model looks at a state, and changes it if it may.

    ``definitions()`` is for the request, ``call()`` for the answer.

    The model sees the branch of the state, and the branches whose names begin with ``prefix``: no other branch, id or
    namespace. What it reads is committed: changes of the program that are not committed yet do not show. Each answer is
    a text of at most ``max_chars`` characters that marks stored data as such. A call takes at most about five seconds.

    Args:
        state: the state.
        write: offer ``state_set`` and ``state_mark``.
        branches: offer ``state_branch`` and ``state_merge``.
        undo: offer ``state_restore``, which commits an earlier content again.
        prefix: the branches that are visible beside the state's own; by default those below it: ``main/``.
        redact: patterns of paths whose values are never shown, such as ``users.*.card``.
        max_chars: the most characters of an answer, 500 or more.
        author: the author of the tools' commits; by default ``model``.

    Raises:
        InvalidArgumentError, InvalidPathError: an argument is of the wrong kind, or a pattern does not parse.
    """

    def __init__(
        self,
        state: Versioned,
        *,
        write: bool = False,
        branches: bool = False,
        undo: bool = False,
        prefix: str | None = None,
        redact: Iterable[str] = (),
        max_chars: int = 8000,
        author: str = "model",
    ) -> None:
        instance_of("state", state, Versioned)
        self._context = Context(
            state,
            Scope(state.repository, state.branch, f"{state.branch}/" if prefix is None else string("prefix", prefix)),
            Redaction((redact,) if isinstance(redact, str) else redact),
            count("max_chars", max_chars, least=500),
            string("author", author),
        )
        allowed = {"read": True, "write": write, "branches": branches, "undo": undo}
        self._tools = {tool.name: tool for tool in TOOLS if allowed[tool.needs]}

    @property
    def branch(self) -> str:
        """The branch that the tools are on."""
        return self._context.scope.branch

    @property
    def tools(self) -> list[Tool]:
        """The tools that are offered, in order."""
        return list(self._tools.values())

    def definitions(self, vendor: Vendor) -> list[dict[str, Any]]:
        """Return the definitions of the tools in the form that a vendor's API takes.

        Raises:
            InvalidArgumentError: there is no such vendor.
        """
        one_of("vendor", vendor, Vendor)
        return [_DEFINITION[vendor](tool) for tool in self.tools]

    def limited(self, *, may_write: bool) -> StateTools:
        """Return tools for many clients at once: none can switch branches, and without ``may_write`` they only read."""
        tools = copy(self)
        tools._context = self._context.shared()
        tools._tools = {name: tool for name, tool in self._tools.items() if may_write or tool.needs == "read"}
        return tools

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, client: str = "") -> str:
        """Call a tool and return its answer.

        Args:
            arguments: as the model gave them.
            client: the name of the calling program, for the meta of a commit.

        Raises:
            ToolError: the call is refused. Its text is for the model: it says what is wrong, and what to call instead.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool {cut(str(name), 64)!r}; there are {', '.join(self._tools)}")
        values = tool.checked({} if arguments is None else arguments)
        CLIENT.set(client)
        try:
            answer: str = tool.run(self._context, **values)
        except StorageError:
            raise ToolError("the store did not answer; try again") from None
        except StateError as error:
            # An error of ours that no tool expects: its class says what happened, and its text may hold stored data.
            raise ToolError(f"the call failed: {type(error).__name__}") from error
        return answer if len(answer) <= self._context.max_chars else answer[: self._context.max_chars - 1] + "…"

    async def acall(self, name: str, arguments: Mapping[str, Any] | None = None, *, client: str = "") -> str:
        """Do as ``call``, off the event loop."""
        return await off_loop(lambda: self.call(name, arguments, client=client))

    async def aroot_keys(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        """Return some keys of the state after one of them, each with its path, off the event loop."""

        def read() -> list[tuple[str, str]]:
            _, snapshot = self._context.snapshot("HEAD")
            keys = (key for key in snapshot.iter_keys(start=after) if key != after)
            return [(key, str(StatePath((Key(key),)))) for key in islice(keys, limit)]

        return await off_loop(read)

    def __repr__(self) -> str:
        return f"<StateTools of {self.branch}: {', '.join(self._tools)}>"


def _openai(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
    }


def _anthropic(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _gemini(tool: Tool) -> dict[str, Any]:
    # Its schemas are a subset of OpenAPI's, without additionalProperties.
    schema = {key: value for key, value in tool.schema.items() if key != "additionalProperties"}
    return {"name": tool.name, "description": tool.description, "parameters": schema}


_DEFINITION: Final[dict[str, Callable[[Tool], dict[str, Any]]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
