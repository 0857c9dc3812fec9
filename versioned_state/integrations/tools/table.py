"""The tools: their names, descriptions and arguments, from which every definition is made. Layer: integrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from versioned_state.integrations.tools import reading, writing
from versioned_state.integrations.tools.text import ToolError, cut

_TYPES: Final[dict[str, tuple[type, ...]]] = {"string": (str,), "integer": (int,), "boolean": (bool,), "array": (list,)}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a tool: its JSON type and, unless it is required, its default."""

    type: str
    description: str = ""
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()

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
        renamed: the parameters of ``run`` by arguments of other names.
    """

    name: str
    title: str
    description: str
    arguments: Mapping[str, Argument]
    run: Callable[..., str]
    needs: Literal["read", "write", "branches", "undo"] = "read"
    destructive: bool = False
    renamed: tuple[tuple[str, str], ...] = ()

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
        """Return the keyword arguments of ``run``. Raises ``ToolError`` for an unknown or missing argument, or one of another type."""
        if not isinstance(arguments, Mapping):
            raise ToolError(f"{self.name} takes an object of arguments")
        unknown = next((name for name in arguments if name not in self.arguments), None)
        if unknown is not None:
            raise ToolError(f"{self.name} has no argument {cut(str(unknown), 40)!r}; it takes {', '.join(self.arguments)}")
        given = {name: value for name, value in arguments.items() if value is not None}
        missing = next((name for name, each in self.arguments.items() if each.required and name not in given), None)
        if missing is not None:
            raise ToolError(f"{self.name} needs {missing}")
        renamed = dict(self.renamed)
        return {renamed.get(name, name): self.arguments[name].check(self.name, name, value) for name, value in given.items()}


def _path(description: str = "such as messages[3].content; empty: all") -> Argument:
    return Argument("string", description, "")


_REV: Final = Argument("string", "HEAD, HEAD~2, a branch or an id", "HEAD")


def _limit(default: int) -> Argument:
    return Argument("integer", "", default)


_DRY: Final = Argument("boolean", "false: do it", default=True)
_HEAD: Final = "the id of the head that you saw last; refused if it moved"

TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        "state_get",
        "Read a value",
        "Read the value at a path. Lists, dicts and long texts come in parts: ask for the next with start.",
        {"path": _path(), "rev": _REV, "start": Argument("integer", "negative: from the end", 0), "limit": _limit(50)},
        reading.state_get,
    ),
    Tool(
        "state_outline",
        "Show the shape",
        "Show keys, types and sizes, without values.",
        {"path": _path(), "rev": _REV, "depth": Argument("integer", "", 2)},
        reading.state_outline,
    ),
    Tool(
        "state_log",
        "List commits",
        "List commits, newest first: id, age, author, message, note.",
        {
            "path": _path("only commits that changed this path"),
            "rev": _REV,
            "limit": _limit(20),
            "grep": Argument("string", "text in message, author or note", ""),
            "since": Argument("string", "ISO time or date", ""),
        },
        reading.state_log,
    ),
    Tool(
        "state_diff",
        "Compare commits",
        "Show what changed from a to b, by path.",
        {
            "a": Argument("string", "", "HEAD~1"),
            "b": Argument("string", "", "HEAD"),
            "path": _path("only below this path"),
            "limit": _limit(50),
        },
        reading.state_diff,
    ),
    Tool(
        "state_blame",
        "Find who wrote it",
        "Show which commit each part of a value comes from.",
        {"path": Argument("string", required=True), "rev": _REV, "limit": _limit(20)},
        reading.state_blame,
    ),
    Tool(
        "state_search",
        "Search text",
        "Find a text, ignoring case, in the state, or the commits in which it came or went.",
        {
            "pattern": Argument("string", "plain text", required=True),
            "rev": _REV,
            "path": _path("only below this path"),
            "limit": _limit(30),
            "in": Argument("string", "", "state", choices=("state", "history")),
        },
        reading.state_search,
        renamed=(("in", "where"),),
    ),
    Tool(
        "state_branches",
        "List branches",
        "List branches: name, head, age. * marks the present one.",
        {"prefix": Argument("string", "", ""), "limit": _limit(30), "after": Argument("string", "the last name of the page before", "")},
        reading.state_branches,
    ),
    Tool(
        "state_events",
        "List task calls",
        "List calls of tasks, newest first: outcome and seconds.",
        {"rev": _REV, "limit": _limit(20), "errors_only": Argument("boolean", default=False)},
        reading.state_events,
    ),
    Tool(
        "state_set",
        "Change values",
        "Commit changes, all or none. Each is {path, value}, {path, append: [...]} or {path, delete: true}.",
        {
            "changes": Argument("array", required=True),
            "expected_head": Argument("string", _HEAD, required=True),
            "message": Argument("string", "", ""),
        },
        writing.state_set,
        "write",
    ),
    Tool(
        "state_mark",
        "Mark a commit",
        "Attach a label to a commit, to find it with state_log grep.",
        {"rev": _REV, "label": Argument("string", "", "good"), "why": Argument("string", "", "")},
        writing.state_mark,
        "write",
    ),
    Tool(
        "state_branch",
        "Make a branch",
        "Make a branch, to try something out.",
        {
            "name": Argument("string", required=True),
            "at": Argument("string", "", "HEAD"),
            "switch": Argument("boolean", "continue there", default=False),
        },
        writing.state_branch,
        "branches",
    ),
    Tool(
        "state_merge",
        "Merge",
        "Merge a branch or commit into the present branch. Shows the changes or the conflicts first.",
        {
            "rev": Argument("string", required=True),
            "policy": Argument("string", "for conflicts: ours, theirs, union, append, sum", ""),
            "dry_run": _DRY,
        },
        writing.state_merge,
        "branches",
        destructive=True,
    ),
    Tool(
        "state_restore",
        "Restore",
        "Commit the content of an earlier commit again. Nothing is lost: it is a new commit.",
        {
            "rev": Argument("string", required=True),
            "path": _path("only this path"),
            "dry_run": _DRY,
            "expected_head": Argument("string", _HEAD, ""),
        },
        writing.state_restore,
        "undo",
        destructive=True,
    ),
)
"""All tools, in the order in which a model gets them."""
