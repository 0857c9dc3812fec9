"""The tools: their names, descriptions and arguments, from which every definition is made. Layer: integrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from keyword import iskeyword
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from versioned_state.integrations.tools import reading, writing
from versioned_state.integrations.tools.text import ToolError, cut

_TYPES: Final[dict[str, tuple[type, ...]]] = {"string": (str,), "integer": (int,), "boolean": (bool,), "array": (list,)}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a tool: its JSON type and, unless it is required, its default."""

    type: str
    description: str
    default: Any
    required: bool
    choices: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the argument."""
        schema: dict[str, Any] = {"type": self.type}
        if self.type == "array":
            schema["items"] = {"type": "object"}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.description:
            schema["description"] = self.description
        if not self.required and self.default not in ("", None):
            schema["default"] = self.default
        return schema

    def check(self, tool: str, name: str, value: Any) -> Any:
        """Return a value of the argument's type. Raises ``ToolError``."""
        if self.type == "integer" and type(value) is float and value.is_integer():
            value = int(value)
        if type(value) not in _TYPES[self.type]:
            raise ToolError(f"{tool}: {name} must be of type {self.type}")
        if self.choices and value not in self.choices:
            raise ToolError(f"{tool}: {name} must be one of {', '.join(self.choices)}")
        if self.type == "integer" and abs(value) > 1 << 53:
            raise ToolError(f"{tool}: {name} is too large")
        return value


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool for a model.

    Attributes:
        needs: what the program must allow for it to be offered.
        destructive: whether it replaces content, which history still has.
    """

    name: str
    title: str
    description: str
    arguments: Mapping[str, Argument]
    run: Callable[..., str]
    needs: Literal["read", "write", "branches", "undo"] = "read"
    destructive: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments, an object."""
        required = [name for name, argument in self.arguments.items() if argument.required]
        properties = {name: argument.schema for name, argument in self.arguments.items()}
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of ``run``.

        Raises ``ToolError`` for an unknown or missing argument, or one of another type.
        """
        if not isinstance(arguments, Mapping):
            raise ToolError(f"{self.name} takes an object of arguments")
        unknown = next((name for name in arguments if name not in self.arguments), None)
        if unknown is not None:
            raise ToolError(
                f"{self.name} has no argument {cut(str(unknown), 40)!r}; it takes {', '.join(self.arguments)}"
            )
        given = {name: value for name, value in arguments.items() if value is not None}
        missing = next((name for name, each in self.arguments.items() if each.required and name not in given), None)
        if missing is not None:
            raise ToolError(f"{self.name} needs {missing}")
        return {_parameter(name): self.arguments[name].check(self.name, name, value) for name, value in given.items()}


_KINDS: Final[dict[Any, str]] = {str: "string", int: "integer", bool: "boolean", list[Any]: "array"}


def _tool(
    title: str, description: str, run: Callable[..., str], described: Mapping[str, str] | None = None, **more: Any
) -> Tool:
    """Return the tool of a function. Its name and arguments, with their types and defaults, are those of the function.

    Args:
        described: descriptions of some arguments.
        more: ``needs`` and ``destructive`` of the tool.
    """
    types = get_type_hints(run)
    arguments = {}
    for parameter in list(signature(run).parameters.values())[1:]:
        name, kind = parameter.name.removesuffix("_"), types[parameter.name]
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        required = parameter.default is Parameter.empty
        default = None if required else parameter.default
        arguments[name] = Argument(
            "string" if choices else _KINDS[kind], (described or {}).get(name, ""), default, required, choices
        )
    return Tool(run.__name__, title, description, arguments, run, **more)


def _parameter(argument: str) -> str:
    """Return the name of a function's parameter for an argument."""
    return f"{argument}_" if iskeyword(argument) else argument


_PATH: Final = {"path": "such as messages[3].content; empty: all"}
_BELOW: Final = {"path": "only below this path"}
_REV: Final = {"rev": "HEAD, HEAD~2, a branch or an id"}
_HEAD: Final = {"expected_head": "the id of the head that you saw last; refused if it moved"}
_DRY: Final = {"dry_run": "false: do it"}

TOOLS: Final[tuple[Tool, ...]] = (
    _tool(
        "Read a value",
        "Read the value at a path. Lists, dicts and long texts come in parts: ask for the next with start.",
        reading.state_get,
        {**_PATH, **_REV, "start": "negative: from the end"},
    ),
    _tool("Show the shape", "Show keys, types and sizes, without values.", reading.state_outline, {**_PATH, **_REV}),
    _tool(
        "List commits",
        "List commits, newest first: id, age, author, message, note.",
        reading.state_log,
        {
            "path": "only commits that changed this path",
            **_REV,
            "grep": "text in message, author or note",
            "since": "ISO time or date",
        },
    ),
    _tool("Compare commits", "Show what changed from a to b, by path.", reading.state_diff, _BELOW),
    _tool("Find who wrote it", "Show which commit each part of a value comes from.", reading.state_blame, _REV),
    _tool(
        "Search text",
        "Find a text, ignoring case, in the state, or the commits in which it came or went.",
        reading.state_search,
        {"pattern": "plain text", **_REV, **_BELOW},
    ),
    _tool(
        "List branches",
        "List branches: name, head, age. * marks the present one.",
        reading.state_branches,
        {"after": "the last name of the page before"},
    ),
    _tool("List task calls", "List calls of tasks, newest first: outcome and seconds.", reading.state_events, _REV),
    _tool(
        "Change values",
        "Commit changes, all or none. Each is {path, value}, {path, append: [...]} or {path, delete: true}.",
        writing.state_set,
        _HEAD,
        needs="write",
    ),
    _tool(
        "Mark a commit",
        "Attach a label to a commit, to find it with state_log grep.",
        writing.state_mark,
        _REV,
        needs="write",
    ),
    _tool(
        "Make a branch",
        "Make a branch, to try something out.",
        writing.state_branch,
        {"switch": "continue there"},
        needs="branches",
    ),
    _tool(
        "Merge",
        "Merge a branch or commit into the present branch. Shows the changes or the conflicts first.",
        writing.state_merge,
        {"policy": "for conflicts: ours, theirs, union, append, sum", **_DRY},
        needs="branches",
        destructive=True,
    ),
    _tool(
        "Restore",
        "Commit the content of an earlier commit again. Nothing is lost: it is a new commit.",
        writing.state_restore,
        {"path": "only this path", **_DRY, **_HEAD},
        needs="undo",
        destructive=True,
    ),
)
"""All tools, in the order in which a model gets them."""
